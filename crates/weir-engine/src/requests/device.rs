//! A device that serves one request at a time and minds where the last one ended.

use super::{Operation, VirtualRequest};

/// A request that begins where the last one ended moves at `bandwidth_bytes_s`, any other at that over
/// the sequential to random ratio (Table I: below 1 where random access is faster). Every dispatch costs
/// `cost_per_request_s` on top, however many requests were aggregated into it. So aggregation saves
/// costs per request, order saves jumps, and neither hides the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    pub bandwidth_bytes_s: f64,
    pub read_ratio: f64,
    pub write_ratio: f64,
    pub cost_per_request_s: f64,
}

/// File and offset where the last access ended.
pub(super) type Position = Option<(u64, u64)>;

impl Device {
    pub fn ratio(&self, operation: Operation) -> f64 {
        match operation {
            Operation::Read => self.read_ratio,
            Operation::Write => self.write_ratio,
        }
    }

    /// How long a dispatch takes, and where it leaves the device. Only the first part can be a jump:
    /// the ratio was measured with requests of the size in which they were issued.
    pub(super) fn serve(&self, from: Position, request: &VirtualRequest) -> (f64, Position) {
        let jump_bytes = match request.parts.front() {
            Some(first) if from != Some((request.file, request.offset)) => first.bytes,
            _ => 0,
        };
        let sequential_bytes = (request.bytes - jump_bytes) as f64;
        let bytes = sequential_bytes + jump_bytes as f64 * self.ratio(request.operation);
        (self.cost_per_request_s + bytes / self.bandwidth_bytes_s, Some((request.file, request.end())))
    }
}
