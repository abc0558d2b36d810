//! TO and TO-agg (section 2.4).

use super::queues::{Queues, VirtualRequest};
use super::scheduler::{Next, Order};
use super::{Request, RequestId};
use std::collections::BTreeMap;

/// Time order: each request by itself, first come, first served.
#[derive(Default)]
pub(super) struct To {
    pending: BTreeMap<RequestId, Request>,
}

impl Order for To {
    fn add(&mut self, id: RequestId, request: &Request) {
        self.pending.insert(id, *request);
    }

    fn next(&mut self, _now_ns: u64, _may_wait: bool) -> Next {
        self.take_oldest().map_or(Next::Nothing, Next::Dispatch)
    }

    fn take_oldest(&mut self) -> Option<VirtualRequest> {
        let (id, request) = self.pending.pop_first()?;
        Some(VirtualRequest::lone(id, &request, 0))
    }
}

/// Time order with aggregation: the oldest request, with all that is contiguous to it.
///
/// The paper walks its single queue for a contiguous request, O(N) per arrival (equation 3); two queues
/// per file find the same in O(log N).
pub(super) struct ToAgg {
    queues: Queues<()>,
}

impl ToAgg {
    pub(super) fn new() -> Self {
        ToAgg { queues: Queues::new() }
    }
}

impl Order for ToAgg {
    fn add(&mut self, id: RequestId, request: &Request) {
        self.queues.add(id, request);
    }

    fn next(&mut self, _now_ns: u64, _may_wait: bool) -> Next {
        self.take_oldest().map_or(Next::Nothing, Next::Dispatch)
    }

    fn take_oldest(&mut self) -> Option<VirtualRequest> {
        let (_, oldest) = self.queues.oldest()?;
        self.queues.take(oldest)
    }
}
