//! `weir reproduce hio`: hierarchical collective I/O scheduling (Liu, Zhuang, Chen 2015), and `slack` beside it.

mod dominance;
mod equations;
mod testbed;
mod trials;

use super::study::{Claim, Context, Study, Table};
use trials::{Case, Summary, index};
use weir_engine::aggregators::Policy;

pub(super) fn study(context: &Context) -> Result<Study, String> {
    let (equations, mut claims) = equations::table(context)?;
    let experiments = testbed::experiments();
    let mut cases: Vec<Case> = experiments.iter().flat_map(testbed::Experiment::cases).collect();
    let paper_s = cases.len();
    cases.extend(dominance::cases());
    let trials = if context.quick { 6 } else { 120 };
    let summaries = trials::run(context, trials, &cases)?;
    let (gains, mut figures, testbed_claims) = testbed::report(&experiments, &summaries[..paper_s]);
    let (dominance, more_figures, dominance_claims) =
        dominance::report(&cases[paper_s..], &summaries[paper_s..]);
    figures.extend(more_figures);
    claims.extend(testbed_claims);
    claims.extend(dominance_claims);
    let mut all = Summary::default();
    summaries.iter().for_each(|summary| all.add(summary));
    claims.extend(slack_claims(&all, &summaries));
    Ok(Study {
        id: "hio",
        title: "HIO: hierarchical collective I/O scheduling".into(),
        tables: vec![equations, gains, dominance, guarantee(&all)],
        figures,
        claims,
    })
}

/// Who pays for a better mean: every application of every trial against its finish under SIO.
fn guarantee(all: &Summary) -> Table {
    let rows = Policy::ALL.map(|policy| {
        let i = index(policy);
        vec![
            policy.name().into(),
            all.trials().to_string(),
            all.better[i].to_string(),
            all.worse[i].to_string(),
            all.applications.to_string(),
            all.later[i].to_string(),
            format!("{:.1}%", 100.0 * all.latest[i]),
        ]
    });
    let columns =
        ["policy", "trials", "better mean", "worse mean", "applications", "later than SIO", "latest by"];
    Table {
        id: "guarantee".into(),
        caption: "All trials: the mean against SIO's, and applications that finish later than under SIO"
            .into(),
        columns: columns.map(String::from).to_vec(),
        rows: rows.into(),
    }
}

fn slack_claims(all: &Summary, summaries: &[Summary]) -> Vec<Claim> {
    let slack = index(Policy::Slack);
    let gain = |base| {
        let gains = summaries.iter().map(|summary| summary.gain(Policy::Slack, base));
        gains.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), gain| (low.min(gain), high.max(gain)))
    };
    let (over_sio, over_hio) = (gain(Policy::Sio), gain(Policy::Hio));
    vec![
        Claim::new(
            "slack: no application later than under SIO",
            "-",
            format!("{} of {} later", all.later[slack], all.applications),
            all.later[slack] == 0,
        ),
        Claim::new(
            "slack: mean never worse than SIO's in any case",
            "-",
            format!("{:+.1}% to {:+.1}%", over_sio.0, over_sio.1),
            over_sio.0 >= 0.0,
        ),
        Claim::new(
            "slack: mean never worse than HIO's in any case",
            "-",
            format!(
                "{:+.1}% to {:+.1}%; behind in {} of {} single trials",
                over_hio.0,
                over_hio.1,
                all.slack_behind_hio,
                all.trials()
            ),
            over_hio.0 >= 0.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;
    use weir_engine::aggregators::Mode;

    fn small_cases() -> Vec<Case> {
        let paper_s = testbed::experiments().into_iter().flat_map(|e| e.cases().collect::<Vec<_>>());
        paper_s.chain(dominance::cases()).filter(|case| case.applications <= 6).collect()
    }

    fn run(threads: usize) -> Vec<Summary> {
        trials::run(&Context::new(true, 5, NonZeroUsize::new(threads), None), 2, &small_cases())
            .expect("every case can be run")
    }

    #[test]
    fn the_number_of_threads_cannot_be_seen() {
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn nobody_pays_for_slack_and_hio_leaves_writes_alone() {
        for (case, summary) in small_cases().iter().zip(run(2)) {
            assert_eq!(summary.later[index(Policy::Slack)], 0);
            assert_eq!(summary.worse[index(Policy::Slack)], 0);
            if case.mode == Mode::Write {
                assert_eq!(summary.same[index(Policy::Hio)], summary.trials());
            }
        }
    }

    #[test]
    fn the_equations_hold() {
        let (table, claims) = equations::table(&Context::new(true, 5, None, None)).expect("the equations");
        assert!(claims.iter().all(|claim| claim.holds == Some(true)));
        assert_eq!(table.rows.len(), 48);
    }
}
