//! FAIR-SHARE (IO-SETS section 3): a set per job, all of the same priority.

use super::Policy;
use crate::engine::{Desk, JobId};

#[derive(Default)]
pub struct Fair {
    active: u64,
}

impl Policy for Fair {
    fn began(&mut self, job: JobId, desk: &mut Desk) {
        self.active += 1;
        desk.grant(job, 1.0 / self.active as f64);
        self.share_equally(desk);
    }

    fn ended(&mut self, _job: JobId, desk: &mut Desk) {
        self.active -= 1;
        self.share_equally(desk);
    }
}

impl Fair {
    fn share_equally(&self, desk: &mut Desk) {
        if self.active > 0 {
            desk.share_all(1.0 / self.active as f64);
        }
    }
}
