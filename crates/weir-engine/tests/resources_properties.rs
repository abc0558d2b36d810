//! What must hold for every set of applications.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_engine::resources::arbiter::Arbiter;
use weir_engine::resources::sim::{self, Length};
use weir_engine::resources::{Allocator, Application, Placer, Platform, Policy, check, io_load, mckp};

/// Few distinct values, so that ties are common.
fn bandwidth() -> impl Strategy<Value = f64> {
    prop_oneof![(1_u32..6).prop_map(f64::from), 0.01_f64..1000.0]
}

prop_compose! {
    fn application()(
        bandwidth in vec(bandwidth(), 1..=8),
        volume in prop_oneof![1 => Just(0.0), 9 => 0.1_f64..1e4],
        cpu_time_s in prop_oneof![1 => Just(0.0), 9 => 0.1_f64..1e4],
        nodes in 1_u64..=100,
        phases in 1_u32..20,
    ) -> Application {
        let cpu_time_s = if volume == 0.0 { cpu_time_s.max(1.0) } else { cpu_time_s };
        Application { bandwidth, volume, cpu_time_s, nodes, phases }
    }
}

fn platform() -> impl Strategy<Value = Platform> {
    (1_usize..=12).prop_map(|resources| Platform { resources, compute_nodes: 100 })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(Policy::all())
}

fn is_sound(resources: usize, application: &Application, given: &[usize]) -> bool {
    let distinct = given.windows(2).all(|pair| pair[0] < pair[1]);
    distinct
        && given.iter().all(|r| *r < resources)
        && (1..=application.widest(resources)).contains(&given.len())
}

/// The largest sum of bandwidths by trying everything.
fn best_sum(applications: &[Application], fewest: usize, capacity: usize) -> f64 {
    let Some((first, rest)) = applications.split_first() else { return 0.0 };
    let with = |n: usize| {
        let bandwidth = if n == 0 { 0.0 } else { first.bandwidth[n - 1] };
        bandwidth + best_sum(rest, fewest, capacity - n)
    };
    (fewest..=first.widest(capacity)).map(with).fold(f64::NEG_INFINITY, f64::max)
}

proptest! {
    #[test]
    fn lemma_1(application in application(), resources in 1_usize..=12) {
        prop_assert!(application.n_sys(resources) <= application.n_perf(resources));
    }

    #[test]
    fn schedules_are_sound_and_repeatable(
        platform in platform(),
        applications in vec(application(), 1..12),
        policy in policy(),
        seed: u64,
    ) {
        prop_assert_eq!(check(&platform, &applications), Ok(()));
        let placement = policy.schedule(&platform, &applications, seed);
        prop_assert_eq!(placement.len(), applications.len());
        for (application, given) in applications.iter().zip(&placement) {
            prop_assert!(is_sound(platform.resources, application, given), "{given:?}");
        }
        prop_assert_eq!(policy.schedule(&platform, &applications, seed), placement);
    }

    #[test]
    fn mckp_is_optimal(applications in vec(application(), 1..6), resources in 1_usize..=6) {
        let allocation = mckp::allocate(resources, &applications);
        let crowded = applications.len() > resources;
        let (fewest, capacity) = if crowded { (0, resources - 1) } else { (1, resources) };
        prop_assert!(allocation.iter().all(|n| *n >= fewest));
        prop_assert!(allocation.iter().sum::<usize>() <= capacity);
        let bandwidth = |(a, n): (&Application, &usize)| if *n == 0 { 0.0 } else { a.bandwidth[n - 1] };
        let sum: f64 = applications.iter().zip(&allocation).map(bandwidth).sum();
        let best = best_sum(&applications, fewest, capacity);
        prop_assert!((sum - best).abs() <= 1e-9 * best, "{sum} is not {best}");
    }

    #[test]
    fn mckp_shares_only_the_last_resource(applications in vec(application(), 1..12), resources in 1_usize..=8) {
        let allocation = mckp::allocate(resources, &applications);
        let mut users = vec![0; resources];
        mckp::place(resources, &allocation).concat().iter().for_each(|r| users[*r] += 1);
        prop_assert!(users[..resources - 1].iter().all(|u| *u <= 1), "{users:?}");
        prop_assert!(applications.len() > resources || users[resources - 1] <= 1);
    }

    #[test]
    fn ta_is_between_nsysa_and_bba(platform in platform(), applications in vec(application(), 1..12)) {
        let [sys, perf, ta] = [Allocator::Nsysa, Allocator::Bba, Allocator::Ta]
            .map(|a| a.allocate(&platform, &applications, 1));
        let load = |allocation: &[usize]| io_load(platform.resources, &applications, allocation);
        let cpu_load = |allocation: &[usize]| -> f64 {
            applications.iter().zip(allocation).map(|(a, n)| a.cpu_load(*n)).sum()
        };
        prop_assert!(load(&sys) <= load(&ta) + 1e-9, "NSYSA has the least I/O-load");
        prop_assert!(load(&ta) <= load(&sys).max(1.0) + 1e-9, "TA does not saturate");
        prop_assert!(cpu_load(&sys) <= cpu_load(&ta) + 1e-9);
        prop_assert!(cpu_load(&ta) <= cpu_load(&perf) + 1e-9);
        // At exactly 1 rounding decides.
        if load(&perf) < 1.0 - 1e-9 {
            prop_assert_eq!(ta, perf);
        }
    }

    #[test]
    fn gnc_balances_the_number_of_applications(
        platform in platform(),
        applications in vec(application(), 1..12),
    ) {
        let placement = Policy::TwoStep(Allocator::Bba, Placer::Gnc).schedule(&platform, &applications, 1);
        let mut users = vec![0; platform.resources];
        placement.concat().iter().for_each(|r| users[*r] += 1);
        let (least, most) = (users.iter().min().unwrap(), users.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{users:?}");
    }

    #[test]
    fn the_arbiter_moves_nobody_who_is_there(
        platform in platform(),
        policy in policy(),
        applications in vec((application(), any::<prop::sample::Index>()), 1..12),
    ) {
        let play = || {
            let mut arbiter = Arbiter::new(platform, policy, 7).expect("a platform");
            let mut there: Vec<(u64, Vec<usize>)> = Vec::new();
            for (id, (application, leaver)) in applications.iter().enumerate() {
                let given = arbiter.join(id as u64, application.clone()).expect("it may join").to_vec();
                assert!(is_sound(platform.resources, application, &given), "{given:?}");
                there.push((id as u64, given));
                if id % 3 == 2 {
                    let (gone, _) = there.remove(leaver.index(there.len()));
                    assert!(arbiter.leave(gone));
                    assert_eq!(arbiter.resources_of(gone), None);
                }
                for (id, given) in &there {
                    assert_eq!(arbiter.resources_of(*id), Some(given.as_slice()));
                }
            }
            there
        };
        prop_assert_eq!(play(), play());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn simulations_are_sound_and_repeatable(
        platform in platform(),
        applications in vec(application(), 1..8),
        policy in policy(),
        seed: u64,
    ) {
        let placement = policy.schedule(&platform, &applications, seed);
        let length = Length { min_phases: 3, max_events: 200_000 };
        // Phases of very different lengths are refused, which is right and tells nothing more.
        let Ok(outcome) = sim::run(&platform, &applications, &placement, length, seed) else { return Ok(()) };
        for observed in &outcome.applications {
            prop_assert!(observed.slowdown_io >= 1.0);
            prop_assert!(observed.slowdown_congestion() >= -1e-6, "nobody is faster than alone: {observed:?}");
            let most = observed.slowdown_io * applications.len() as f64;
            prop_assert!(observed.slowdown <= most * (1.0 + 1e-6), "at worst all share: {observed:?}");
            prop_assert!((0.0..=1.0 + 1e-9).contains(&observed.io_share));
        }
        prop_assert!(outcome.occupancy.iter().all(|o| (0.0..=1.0 + 1e-9).contains(o)));
        prop_assert_eq!(sim::run(&platform, &applications, &placement, length, seed), Ok(outcome));
    }

    #[test]
    fn without_sharing_there_is_no_congestion(applications in vec(application(), 1..6)) {
        let platform = Platform { resources: 64, compute_nodes: 100 };
        let placement = Policy::TwoStep(Allocator::Bba, Placer::Gnc).schedule(&platform, &applications, 1);
        let length = Length { min_phases: 3, max_events: 200_000 };
        let Ok(outcome) = sim::run(&platform, &applications, &placement, length, 1) else { return Ok(()) };
        for observed in &outcome.applications {
            prop_assert!((observed.slowdown - 1.0).abs() < 1e-6, "{observed:?}");
        }
    }
}
