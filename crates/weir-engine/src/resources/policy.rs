//! An allocation and a placement together: what a coordinator is told to use.

use super::{Allocator, Application, BadInput, Placer, Platform, mckp, weir};

/// How resources are scheduled. MCKP and `weir` decide both steps at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    TwoStep(Allocator, Placer),
    Mckp,
    Weir,
}

impl Policy {
    /// All of them, allocations in the paper's order.
    pub fn all() -> Vec<Policy> {
        let pairs =
            Allocator::ALL.iter().flat_map(|&a| Placer::ALL.iter().map(move |&p| Policy::TwoStep(a, p)));
        pairs.chain([Policy::Mckp, Policy::Weir]).collect()
    }

    /// `ta+gc`, `mckp`, `weir`.
    pub fn name(self) -> String {
        match self {
            Policy::TwoStep(allocator, placer) => format!("{}+{}", allocator.name(), placer.name()),
            Policy::Mckp => "mckp".into(),
            Policy::Weir => "weir".into(),
        }
    }

    /// The policy of that name. An allocation alone goes with `gnc`, as in most of the paper.
    pub fn parse(name: &str) -> Result<Policy, BadInput> {
        let is = |policy: &Policy| policy.name() == name || policy.name() == format!("{name}+gnc");
        Policy::all().into_iter().find(is).ok_or_else(|| {
            let allocators = Allocator::ALL.map(Allocator::name).join(", ");
            let placers = Placer::ALL.map(Placer::name).join(", ");
            let reason = format!(
                "there is no {name:?}; there are mckp, weir and ALLOCATION+PLACEMENT with ALLOCATION one of \
                 {allocators} and PLACEMENT one of {placers} (gnc if not given)"
            );
            BadInput::new("policy", reason)
        })
    }

    /// The resources of each application: distinct, ascending, at least one. The seed matters to
    /// `random` and `rand` alone.
    pub fn schedule(self, platform: &Platform, applications: &[Application], seed: u64) -> Vec<Vec<usize>> {
        let resources = platform.resources;
        match self {
            Policy::TwoStep(allocator, placer) => {
                let allocation = allocator.allocate(platform, applications, seed);
                // Another stream, so that who gets many does not depend on who gets which.
                placer.place(resources, applications, &allocation, !seed)
            }
            Policy::Mckp => mckp::place(resources, &mckp::allocate(resources, applications)),
            Policy::Weir => weir::schedule(platform, applications),
        }
    }

    /// The resources of the last application, when the others keep theirs: what was decided for a whole
    /// execution stays (section 2), as files are striped and nodes connected.
    pub(crate) fn join(
        self,
        platform: &Platform,
        applications: &[Application],
        others: &[&[usize]],
        seed: u64,
    ) -> Vec<usize> {
        let newcomer = others.len();
        match self {
            Policy::TwoStep(allocator, placer) => {
                let n = allocator.allocate(platform, applications, seed)[newcomer];
                placer.join(platform.resources, applications, others, n, seed)
            }
            Policy::Mckp => {
                let n = mckp::allocate(platform.resources, applications)[newcomer].max(1);
                Placer::Gnc.join(platform.resources, applications, others, n, seed)
            }
            Policy::Weir => weir::join(platform, applications, others),
        }
    }
}
