//! `weir reproduce apio`: PerSched's ten sets, and Figures 5 and 6 of the APIO paper.
//!
//! The paper prints no numbers with its figures, so what is compared there are its claims. Its online
//! baseline, BIOS, is MinMax-γ with γ = 0.5: the policy `minmax`.

mod persched;
mod sets;
mod stochastic;

use super::study::{Context, Study};
use sets::Set;
use weir_engine::sim::Outcome;

pub(super) fn study(context: &Context) -> Result<Study, String> {
    let mut study = Study {
        id: "apio",
        title: "APIO: periodic and adaptively periodic I/O scheduling".into(),
        tables: Vec::new(),
        figures: Vec::new(),
        claims: Vec::new(),
    };
    persched::add(context, &mut study)?;
    stochastic::add(context, &mut study);
    Ok(study)
}

/// How a policy did.
#[derive(Clone, Copy, Default)]
struct Score {
    sys_efficiency: f64,
    dilation: f64,
}

impl Score {
    fn of(outcome: &Outcome) -> Score {
        Score { sys_efficiency: outcome.sys_efficiency(), dilation: outcome.dilation() }
    }

    fn mean(scores: &[Score]) -> Score {
        let count = scores.len() as f64;
        Score {
            sys_efficiency: scores.iter().map(|score| score.sys_efficiency).sum::<f64>() / count,
            dilation: scores.iter().map(|score| score.dilation).sum::<f64>() / count,
        }
    }

    fn cell(&self) -> String {
        format!("{:.4} / {:.4}", self.sys_efficiency, self.dilation)
    }
}

/// Instances for each application of a set, so that all would end together if each ran alone: as long
/// as `instances` of the longest ones.
fn counts(set: &Set, instances: usize) -> Vec<usize> {
    let longest_s = set.applications.iter().map(|a| a.alone_s()).fold(0.0, f64::max);
    set.applications.iter().map(|a| (instances as f64 * longest_s / a.alone_s()).round() as usize).collect()
}
