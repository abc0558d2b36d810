//! What the paper says, and what came out.

use super::super::study::Claim;
use super::campaign::{Campaign, Measured, Run, Summary, mean};
use super::compared;
use weir_engine::resources::{Allocator, Placer, Policy};

/// Where the paper's "low" and "larger" I/O-load(`π_sys`) begin here.
const LOW: f64 = 0.3;
const HIGH: f64 = 0.6;

pub(super) fn claims(nodes: &Campaign, targets: &Campaign) -> Vec<Claim> {
    vec![
        lemma_1(nodes, targets),
        gnc_is_near_gc(nodes),
        rand_is_worse(nodes),
        gc_balances_best(nodes),
        bba_is_fastest_alone(nodes),
        bba_congests(nodes),
        ta_congests_less(nodes),
        mckp_is_worst(nodes),
        ta_is_bba(nodes, targets),
        ta_idles_less(nodes),
        ta_is_as_fast_as_bba(nodes),
        static_idles_little(nodes),
        robust(nodes),
        ta_idles_less_in_general(nodes),
        weir_is_better_in_general(nodes),
        targets_are_alike(nodes, targets),
        weir_is_better("I/O nodes", nodes),
        weir_is_better("storage targets", targets),
    ]
}

fn gnc(allocator: Allocator) -> Run {
    Run::exact(Policy::TwoStep(allocator, Placer::Gnc))
}

fn slowdown(m: &Measured) -> f64 {
    m.slowdown
}

fn idletime(m: &Measured) -> f64 {
    m.idletime
}

fn least_and_most(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), v| (least.min(v), most.max(v)))
}

/// `-1.2 to +3.4 %`
fn percent_range((least, most): (f64, f64)) -> String {
    format!("{:+.1} to {:+.1} %", least * 100.0, most * 100.0)
}

fn lemma_1(nodes: &Campaign, targets: &Campaign) -> Claim {
    let broken: usize = nodes.sets.iter().chain(&targets.sets).map(|set| set.lemma_broken).sum();
    let all = nodes.applications() + targets.applications();
    let ours = format!("{broken} exceptions among {all} applications");
    Claim::new("Lemma 1: n_sys <= n_perf", "all applications", ours, broken == 0)
}

/// The placement against GC with every allocation but random, which the paper excepts.
fn against_gc(nodes: &Campaign, placer: Placer) -> Vec<Summary> {
    let allocators = [Allocator::Static, Allocator::Bba, Allocator::Nsysa, Allocator::Ta];
    let run = |allocator, placer| Run::exact(Policy::TwoStep(allocator, placer));
    allocators.iter().flat_map(|&a| nodes.above(run(a, placer), run(a, Placer::Gc), slowdown)).collect()
}

fn gnc_is_near_gc(nodes: &Campaign) -> Claim {
    let above = against_gc(nodes, Placer::Gnc);
    let range = least_and_most(above.iter().map(|s| s.mean));
    let typical = mean(&above.iter().map(|s| s.mean.abs()).collect::<Vec<_>>());
    let ours = format!("{}, {:.1} % apart on average", percent_range(range), typical * 100.0);
    Claim::new("GNC's slowdown is about GC's (Figure 5a)", "very little impact", ours, typical <= 0.05)
}

fn rand_is_worse(nodes: &Campaign) -> Claim {
    let range = least_and_most(against_gc(nodes, Placer::Rand).iter().map(|s| s.mean));
    let holds = range.0 > 0.0;
    Claim::new("RandP is worse than GC (Figure 5b)", "not true for RandP", percent_range(range), holds)
}

fn gc_balances_best(nodes: &Campaign) -> Claim {
    let spread = |allocator, placer| {
        let run = Run::exact(Policy::TwoStep(allocator, placer));
        mean(&nodes.within(0.45, 0.55, run, |m| m.spread))
    };
    let ordered = |&a: &Allocator| {
        let [rand, gnc, gc] = Placer::ALL.map(|p| spread(a, p));
        gc < gnc && gnc < rand
    };
    let holds = Allocator::ALL.iter().all(ordered);
    let [rand, gnc, gc] = Placer::ALL.map(|p| spread(Allocator::Bba, p));
    let exceptions: Vec<&str> = Allocator::ALL.iter().filter(|a| !ordered(a)).map(|a| a.name()).collect();
    let except = if holds { String::new() } else { format!("; not with {}", exceptions.join(", ")) };
    let ours = format!("with BBA {gc:.2} < {gnc:.2} < {rand:.2}{except}");
    Claim::new("I/O-spread: GC < GNC < RandP (Figures 6 and 7)", "with every allocation", ours, holds)
}

fn bba_is_fastest_alone(nodes: &Campaign) -> Claim {
    let range = least_and_most(nodes.by_load(gnc(Allocator::Bba), |m| m.slowdown_io).iter().map(|s| s.mean));
    let ours = format!("{} to {}", range.0, range.1);
    Claim::new("BBA's rho_io is 1 (Figure 8)", "1", ours, range == (1.0, 1.0))
}

fn congestion(nodes: &Campaign, allocator: Allocator) -> Vec<Summary> {
    nodes.by_load(gnc(allocator), Measured::slowdown_congestion)
}

fn bba_congests(nodes: &Campaign) -> Claim {
    let bba = congestion(nodes, Allocator::Bba);
    let points: Vec<(f64, f64)> = bba.iter().map(|s| (s.load, s.mean)).collect();
    let (slope, correlation) = linear(&points);
    let ours = format!("grows by {:.2} per 0.1 of load, correlation {correlation:.3}", slope / 10.0);
    let text = "BBA's rho_con grows linearly with the load (Figure 8)";
    Claim::new(text, "increases linearly", ours, correlation > 0.95)
}

fn linear(points: &[(f64, f64)]) -> (f64, f64) {
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (mean_x, mean_y) = (mean(&x), mean(&y));
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(x, y)| f(x - mean_x, y - mean_y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    (xy / xx, xy / (xx * yy).sqrt())
}

fn ta_congests_less(nodes: &Campaign) -> Claim {
    let varies = |allocator| {
        let (least, most) = least_and_most(congestion(nodes, allocator).iter().map(|s| s.mean));
        most - least
    };
    let [bba, ta, nsysa] = [Allocator::Bba, Allocator::Ta, Allocator::Nsysa].map(varies);
    let ours = format!("rho_con varies by {ta:.2} (TA), {nsysa:.2} (NSYSA), {bba:.2} (BBA)");
    let text = "The congestion of NSYSA and TA varies less with the load than BBA's (Figure 8)";
    Claim::new(text, "do not vary as much", ours, ta < bba && nsysa < bba)
}

fn mckp_is_worst(nodes: &Campaign) -> Claim {
    let mckp = nodes.by_load(Run::exact(Policy::Mckp), slowdown);
    let others = compared().into_iter().filter(|(name, _)| *name != "mckp");
    let worst = |i: usize, run: Run| nodes.by_load(run, slowdown)[i].mean < mckp[i].mean;
    let holds = others.into_iter().all(|(_, run)| (0..mckp.len()).all(|i| worst(i, run)));
    let (least, most) = least_and_most(mckp.iter().map(|s| s.mean));
    let ours = format!("slowdown {least:.0} to {most:.0}");
    Claim::new("MCKP is worse than all others (Figure 8)", "worse than all", ours, holds)
}

fn ta_is_bba(nodes: &Campaign, targets: &Campaign) -> Claim {
    let unsaturated = nodes.sets.iter().chain(&targets.sets).filter(|set| set.load_perf <= 1.0);
    let (same, all) =
        unsaturated.fold((0, 0), |(same, all), set| (same + usize::from(set.ta_is_bba), all + 1));
    let ours = format!("the same in {same} of {all} sets");
    Claim::new("TA is BBA where I/O-load(pi_perf) <= 1", "always", ours, same == all)
}

fn ta_idles_less(nodes: &Campaign) -> Claim {
    let above = nodes.above(gnc(Allocator::Ta), gnc(Allocator::Bba), idletime);
    let high = least_and_most(above.iter().filter(|s| s.load > HIGH).map(|s| s.mean));
    let low = least_and_most(above.iter().filter(|s| s.load < LOW).map(|s| s.mean));
    let ours = format!("{} above load {HIGH}, {} below {LOW}", percent_range(high), percent_range(low));
    let holds = high.1 < 0.0 && low.0.abs().max(low.1.abs()) < 0.02;
    let text = "TA's Machine-Idletime is BBA's at low load and better at larger (Figure 9)";
    Claim::new(text, "real difference at larger load", ours, holds)
}

fn ta_is_as_fast_as_bba(nodes: &Campaign) -> Claim {
    let above = nodes.above(gnc(Allocator::Ta), gnc(Allocator::Bba), slowdown);
    let range = least_and_most(above.iter().map(|s| s.mean));
    let text = "TA's Mean-I/O-SlowDown is about BBA's (Figure 8; not worse by more than a tenth)";
    Claim::new(text, "similar", percent_range(range), range.1 < 0.1)
}

fn static_idles_little(nodes: &Campaign) -> Claim {
    let above = nodes.above(gnc(Allocator::Static), gnc(Allocator::Bba), idletime);
    let last = above[above.len() - 1];
    let ours = format!("{:+.1} % of BBA's at load {:.2}", last.mean * 100.0, last.load);
    let text = "Static has a good Machine-Idletime when the load is high (Figure 9)";
    Claim::new(text, "good", ours, last.mean < 0.0)
}

fn robust(nodes: &Campaign) -> Claim {
    let ta = Policy::TwoStep(Allocator::Ta, Placer::Gnc);
    let range = |policy| {
        let above = nodes.above(Run::general(policy), Run::exact(policy), slowdown);
        least_and_most(above.iter().map(|s| s.mean))
    };
    let (least, most) = range(ta);
    let ours = format!("TA {}, weir {}", percent_range((least, most)), percent_range(range(Policy::Weir)));
    let text = "General curves instead of exact ones cost TA less than 1 % (Figure 11)";
    Claim::new(text, "below 1 %", ours, least.abs().max(most) < 0.01)
}

fn ta_idles_less_in_general(nodes: &Campaign) -> Claim {
    let general = |allocator| Run::general(Policy::TwoStep(allocator, Placer::Gnc));
    let above = nodes.above(general(Allocator::Ta), general(Allocator::Bba), idletime);
    let high = least_and_most(above.iter().filter(|s| s.load > HIGH).map(|s| s.mean));
    let text = "With general curves TA still idles less than BBA at larger load (Figure 11b)";
    Claim::new(text, "TA is the best", percent_range(high), high.1 < 0.0)
}

fn weir_is_better_in_general(nodes: &Campaign) -> Claim {
    let against_exact_ta = |value: fn(&Measured) -> f64| {
        let above = nodes.above(Run::general(Policy::Weir), gnc(Allocator::Ta), value);
        least_and_most(above.iter().map(|s| s.mean))
    };
    let (slowdown, idletime) = (against_exact_ta(slowdown), against_exact_ta(idletime));
    let ours = format!("slowdown {}, idle time {}", percent_range(slowdown), percent_range(idletime));
    let text = "weir with general curves is better than TA with exact ones at every load";
    Claim::new(text, "ours, not in the paper", ours, slowdown.1 < 0.0 && idletime.1 < 0.0)
}

fn targets_are_alike(nodes: &Campaign, targets: &Campaign) -> Claim {
    let runs = [gnc(Allocator::Bba), gnc(Allocator::Nsysa), gnc(Allocator::Ta), gnc(Allocator::Static)];
    let pairs = runs.iter().flat_map(|&run| {
        let nodes = nodes.by_load(run, slowdown);
        let same = move |t: &Summary| nodes.iter().find(|n| n.load == t.load).map(|n| t.mean / n.mean - 1.0);
        targets.by_load(run, slowdown).into_iter().filter_map(move |t| same(&t))
    });
    let range = least_and_most(pairs);
    let text =
        "Storage targets give slowdowns like those of I/O nodes (Figure 13; other curves than the paper's)";
    Claim::new(text, "below 5 % apart", percent_range(range), range.0.abs().max(range.1) < 0.05)
}

fn weir_is_better(label: &str, campaign: &Campaign) -> Claim {
    let weir = Run::exact(Policy::Weir);
    let against = |allocator, value: fn(&Measured) -> f64| {
        least_and_most(campaign.above(weir, gnc(allocator), value).iter().map(|s| s.mean))
    };
    let compared =
        [Allocator::Ta, Allocator::Bba].map(|a| (a.name(), against(a, slowdown), against(a, idletime)));
    let holds = compared.iter().all(|(_, slowdown, idletime)| slowdown.1 < 0.0 && idletime.1 < 0.0);
    let text = |(name, slowdown, idletime): &(&str, (f64, f64), (f64, f64))| {
        let (slowdown, idletime) = (percent_range(*slowdown), percent_range(*idletime));
        format!("against {name}: slowdown {slowdown}, idle time {idletime}")
    };
    let ours = compared.iter().map(text).collect::<Vec<_>>().join("; ");
    Claim::new(
        &format!("weir is better than TA and BBA at every load ({label})"),
        "ours, not in the paper",
        ours,
        holds,
    )
}
