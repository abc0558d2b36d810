//! What the algorithms and the trees make of the modelled situations: Figures 3, 4 and 5.

use super::super::study::{Claim, Context, Figure, FigureKind, Series, Study, Table};
use super::cells;
use super::model::{Measured, Place, contenders, measure};
use weir_engine::requests::Algorithm;
use weir_engine::requests::select::{Inputs, Measurement, Selector, Situation};
use weir_engine::requests::table3::{self, CLUSTERS, Pattern};

const PASTEL: usize = 0;
const GRAPHENE: usize = 1;
const EDEL: usize = 3;

pub(super) fn add(context: &Context, study: &mut Study) {
    let all = situations(&[8, 16]);
    let measured = measure(context, "agios: 192 situations", &all);
    let single = |shared: bool| {
        table3::patterns().filter(move |p| p.applications == 1 && p.file_per_process != shared)
    };
    let place = |cluster, processes| move |pattern| Place { pattern, processes, cluster };
    let figure3: Vec<Place> = single(true).map(place(GRAPHENE, 8)).collect();
    let figure4: Vec<Place> = single(false).map(place(PASTEL, 32)).collect();
    let figure3 = measure(context, "agios: Figure 3", &figure3);
    let figure4 = measure(context, "agios: Figure 4", &figure4);
    study.figures.push(bars(
        "figure3",
        "Figure 3: one application, shared file, Graphene, 8 processes",
        &figure3,
    ));
    study.figures.push(bars(
        "figure4",
        "Figure 4: one application, file per process, Pastel, 32 processes",
        &figure4,
    ));
    add_clusters(study, &measured);
    add_solutions(study, &measured);
    add_waiting(study, &measured);
    add_worst_of_figure3(study, &figure3);
    add_file_per_process_gain(study, &figure4);
}

/// All patterns on all clusters, in the order of [`table3::measurements`].
fn situations(processes: &[u64]) -> Vec<Place> {
    let mut places = Vec::new();
    for &processes in processes {
        for pattern in table3::patterns() {
            places.extend((0..CLUSTERS.len()).map(|cluster| Place { pattern, processes, cluster }));
        }
    }
    places
}

fn short_name(pattern: &Pattern) -> String {
    let (spatiality, size) = (pattern.spatiality.name(), pattern.request_size.name());
    format!("{spatiality} {size} {}", pattern.operation.name())
}

fn bars(id: &str, caption: &str, measured: &[Measured]) -> Figure {
    let groups: Vec<String> = measured
        .iter()
        .enumerate()
        .map(|(group, m)| format!("{group}: {}", short_name(&m.place.pattern)))
        .collect();
    let series = contenders().into_iter().enumerate().skip(1).map(|(index, contender)| Series {
        name: contender.name(),
        points: measured.iter().enumerate().map(|(group, m)| (group as f64, m.normalized(index))).collect(),
    });
    Figure {
        id: id.into(),
        caption: format!("{caption}, modelled ({})", groups.join("; ")),
        x: "access pattern".into(),
        y: "time over time without reordering".into(),
        kind: FigureKind::Bars,
        series: series.collect(),
    }
}

/// The mean over a cluster's situations of the time over that of time order.
fn add_clusters(study: &mut Study, measured: &[Measured]) {
    let mut rows = Vec::new();
    for (index, contender) in contenders().into_iter().enumerate().skip(1) {
        let mut row = vec![contender.name()];
        for cluster in 0..CLUSTERS.len() {
            let here: Vec<f64> =
                measured.iter().filter(|m| m.place.cluster == cluster).map(|m| m.normalized(index)).collect();
            row.push(format!("{:.3}", here.iter().sum::<f64>() / here.len() as f64));
        }
        rows.push(row);
    }
    let names = CLUSTERS.iter().map(|c| format!("{} ({})", c.name, c.device));
    study.tables.push(Table {
        id: "clusters".into(),
        caption: "Modelled: mean time over the time of time order, per cluster (lower is better)".into(),
        columns: [String::from("Algorithm")].into_iter().chain(names).collect(),
        rows,
    });
}

/// A way to select an algorithm, and what section 5 says it came to: situations whose time is more than
/// 10 % shorter, and more than 10 % longer, than with time order.
struct Solution {
    name: &'static str,
    shorter: Option<usize>,
    longer: Option<usize>,
    choose: Choose,
}

/// From the index of a situation, and what a tree may know of it.
type Choose = Box<dyn Fn(usize, &Situation) -> Algorithm>;

fn solutions(measured: &[Measured]) -> Vec<Solution> {
    let all = table3::measurements(&[8, 16]);
    let best: Vec<Algorithm> = measured.iter().map(Measured::best).collect();
    let own: Vec<Measurement> =
        all.iter().zip(&best).map(|(m, &best)| Measurement { situation: m.situation, best }).collect();
    let oracle: Vec<Algorithm> = all.iter().map(|m| m.best).collect();
    let tree = |measurements: &[Measurement], inputs| {
        let selector = Selector::learn(measurements, inputs);
        Box::new(move |_: usize, situation: &Situation| selector.choose(situation))
    };
    vec![
        Solution {
            name: "Table III",
            shorter: Some(71),
            longer: Some(4),
            choose: Box::new(move |index, _| oracle[index]),
        },
        Solution {
            name: "aIOLi-only",
            shorter: Some(66),
            longer: Some(37),
            choose: Box::new(|_, _| Algorithm::Aioli),
        },
        Solution {
            name: "SJF-only",
            shorter: Some(42),
            longer: Some(21),
            choose: Box::new(|_, _| Algorithm::Sjf),
        },
        Solution { name: "T1", shorter: Some(71), longer: Some(4), choose: tree(&all, Inputs::All) },
        Solution { name: "T2", shorter: Some(71), longer: Some(4), choose: tree(&all, Inputs::Live) },
        Solution {
            name: "T3",
            shorter: None,
            longer: Some(10),
            choose: tree(&all, Inputs::LiveWithoutFiles),
        },
        Solution { name: "re-trained", shorter: None, longer: None, choose: tree(&own, Inputs::Live) },
        Solution {
            name: "model's best",
            shorter: None,
            longer: None,
            choose: Box::new(move |index, _| best[index]),
        },
    ]
}

/// What a solution came to in the model.
struct Came {
    better: usize,
    worse: usize,
    best: usize,
    mean: f64,
}

fn came_to(solution: &Solution, measured: &[Measured]) -> Came {
    let mut came = Came { better: 0, worse: 0, best: 0, mean: 0.0 };
    for (index, m) in measured.iter().enumerate() {
        let Place { pattern, processes, cluster } = m.place;
        let situation = pattern.situation(processes, &CLUSTERS[cluster]);
        let choice = (solution.choose)(index, &situation);
        let time = m.of(choice);
        came.better += usize::from(time < 0.9);
        came.worse += usize::from(time > 1.1);
        came.best += usize::from(choice == m.best());
        came.mean += time / measured.len() as f64;
    }
    came
}

fn add_solutions(study: &mut Study, measured: &[Measured]) {
    let solutions = solutions(measured);
    let came: Vec<Came> = solutions.iter().map(|solution| came_to(solution, measured)).collect();
    let rows = solutions.iter().zip(&came).map(|(solution, came)| {
        let printed = |count: Option<usize>| count.map_or(String::new(), |count| count.to_string());
        cells(&[
            &solution.name,
            &printed(solution.shorter),
            &came.better,
            &printed(solution.longer),
            &came.worse,
            &came.best,
            &format!("{:.3}", came.mean),
        ])
    });
    let columns = cells(&[
        &"Solution",
        &"> 10 % shorter, paper",
        &"modelled",
        &"> 10 % longer, paper",
        &"modelled",
        &"Best choice of five, modelled",
        &"Mean time over time order's",
    ]);
    study.tables.push(Table {
        id: "solutions".into(),
        caption: "Section 5: situations (of 192) where the selected algorithm changes the time".into(),
        columns,
        rows: rows.collect(),
    });
    add_figure5(study, &solutions, &came);
    let (aioli, t2, own) = (&came[1], &came[4], &came[6]);
    study.claims.push(Claim {
        text: "Selecting by T2 worsens fewer situations than always using aIOLi (section 5), in the model"
            .into(),
        paper: "4 against 37".into(),
        ours: format!("{} against {}", t2.worse, aioli.worse),
        holds: Some(t2.worse < aioli.worse),
    });
    study.claims.push(Claim {
        text: "A tree must fit its platform: re-trained on the model's own times, T2's attributes give shorter times".into(),
        paper: "not tried".into(),
        ours: format!("mean {:.3} of time order's, T2 of the paper {:.3}", own.mean, t2.mean),
        holds: Some(own.mean <= t2.mean),
    });
}

fn add_figure5(study: &mut Study, solutions: &[Solution], came: &[Came]) {
    let printed = |which: fn(&Solution) -> Option<usize>| {
        let point = |(group, solution)| Some((group as f64, which(solution)? as f64));
        solutions.iter().enumerate().filter_map(point).collect::<Vec<_>>()
    };
    let modelled = |which: fn(&Came) -> usize| {
        came.iter().enumerate().map(|(group, c)| (group as f64, which(c) as f64)).collect::<Vec<_>>()
    };
    let names: Vec<String> =
        solutions.iter().enumerate().map(|(group, s)| format!("{group}: {}", s.name)).collect();
    study.figures.push(Figure {
        id: "figure5b".into(),
        caption: format!("Figure 5b: situations changed by more than 10 % ({})", names.join("; ")),
        x: "solution".into(),
        y: "situations of 192".into(),
        kind: FigureKind::Bars,
        series: vec![
            Series { name: "shorter, paper".into(), points: printed(|s| s.shorter) },
            Series { name: "shorter, modelled".into(), points: modelled(|c| c.better) },
            Series { name: "longer, paper".into(), points: printed(|s| s.longer) },
            Series { name: "longer, modelled".into(), points: modelled(|c| c.worse) },
        ],
    });
}

/// Ours: waiting only while something can come.
fn add_waiting(study: &mut Study, measured: &[Measured]) {
    for (blind, seeing) in [(3, 5), (4, 6)] {
        let ratio = |m: &&Measured| m.makespans[seeing] / m.makespans[blind];
        let mean = |keep: &dyn Fn(&Measured) -> bool| {
            let ratios: Vec<f64> = measured.iter().filter(|m| keep(m)).map(|m| ratio(&m)).collect();
            ratios.iter().sum::<f64>() / ratios.len() as f64
        };
        let (disks, ssd) = (mean(&|m| m.place.cluster != EDEL), mean(&|m| m.place.cluster == EDEL));
        study.claims.push(Claim {
            text: format!(
                "{} that never waits while every client is blocked is faster",
                contenders()[blind].name()
            ),
            paper: "waits".into(),
            ours: format!("{disks:.3} of its time with disks, {ssd:.3} with the SSD"),
            holds: Some(disks < 1.0 && ssd < 1.0),
        });
    }
}

/// Section 3.1: with contiguous small requests to a shared file, aIOLi and MLF were the worst.
fn add_worst_of_figure3(study: &mut Study, figure3: &[Measured]) {
    let small_contiguous = |m: &&Measured| short_name(&m.place.pattern).starts_with("contiguous small");
    let mean = |algorithms: [Algorithm; 2]| {
        let times = figure3.iter().filter(small_contiguous).flat_map(|m| algorithms.map(|a| m.of(a)));
        let times: Vec<f64> = times.collect();
        times.iter().sum::<f64>() / times.len() as f64
    };
    let (waiting, others) =
        (mean([Algorithm::Mlf, Algorithm::Aioli]), mean([Algorithm::ToAgg, Algorithm::Sjf]));
    study.claims.push(Claim {
        text: "Contiguous small requests to a shared file on Graphene: aIOLi and MLF are the worst (section 3.1)".into(),
        paper: "worse than SJF and TO-agg".into(),
        ours: format!("{waiting:.3} of time order's time; SJF and TO-agg {others:.3}"),
        holds: Some(waiting > others),
    });
}

/// Section 3.3: the best improvements were with a file per process on Pastel.
fn add_file_per_process_gain(study: &mut Study, figure4: &[Measured]) {
    let gain = |m: &Measured| 100.0 * (1.0 - Algorithm::ALL.into_iter().map(|a| m.of(a)).fold(1.0, f64::min));
    let most = |operation: &str| {
        figure4.iter().filter(|m| m.place.pattern.operation.name() == operation).map(gain).fold(0.0, f64::max)
    };
    let (write, read) = (most("write"), most("read"));
    study.claims.push(Claim {
        text: "File per process on Pastel, 32 processes: scheduling shortens reads more than writes (section 3.3)".into(),
        paper: "up to 38 % (write), 68 % (read)".into(),
        ours: format!("up to {write:.0} % (write), {read:.0} % (read), without a cache"),
        holds: Some(read > write),
    });
    let spread = |m: &Measured| {
        let times: Vec<f64> = Algorithm::ALL.into_iter().skip(1).map(|a| m.of(a)).collect();
        times.iter().copied().fold(0.0, f64::max) - times.iter().copied().fold(f64::MAX, f64::min)
    };
    let widest = 100.0 * figure4.iter().map(spread).fold(0.0, f64::max);
    study.claims.push(Claim {
        text: "There, the four algorithms do not differ significantly (section 3.3)".into(),
        paper: "no significant difference".into(),
        ours: format!("{widest:.1} % of time order's time between the best and the worst"),
        holds: Some(widest < 10.0),
    });
}
