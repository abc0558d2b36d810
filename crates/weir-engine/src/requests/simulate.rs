//! Drives a scheduler and a device through a workload in virtual time.

use super::device::Position;
use super::{Device, Next, Request, RequestId, Scheduler, VirtualRequest};
use std::collections::VecDeque;

/// Where requests come from. Times are in seconds.
pub trait Workload {
    /// When the next request arrives, as far as it does not depend on the completion of others.
    fn next_arrival(&self) -> Option<f64>;
    /// That request; the scheduler numbers them in the order of these calls, from 0.
    fn take(&mut self) -> Option<Request>;
    /// A request is done: its client may now issue others.
    fn completed(&mut self, now: f64, id: RequestId);
}

/// Requests and their times of arrival, in order of arrival.
impl Workload for VecDeque<(f64, Request)> {
    fn next_arrival(&self) -> Option<f64> {
        self.front().map(|&(arrival, _)| arrival)
    }

    fn take(&mut self) -> Option<Request> {
        self.pop_front().map(|(_, request)| request)
    }

    fn completed(&mut self, _now: f64, _id: RequestId) {}
}

/// What the scheduler knows of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing, as in the paper: it may wait for a request that cannot come.
    Blind,
    /// That no request can come before another completes.
    SeesBlockedClients,
}

/// A dispatch, from the time the device begins it until it is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub request: VirtualRequest,
    pub start: f64,
    pub finish: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// In the order of dispatch, which is the device's.
    pub services: Vec<Service>,
    /// When the last request is done.
    pub makespan: f64,
}

/// Serves the whole workload. Up to `in_flight` dispatches are handed to the device at a time, which
/// takes them one after the other.
pub fn simulate(
    scheduler: &mut Scheduler,
    device: &Device,
    workload: &mut dyn Workload,
    in_flight: usize,
    outlook: Outlook,
) -> Run {
    let mut run = Run::default();
    let (mut now, mut clock_ns, mut done, mut position) = (0.0_f64, 0, 0, Position::None);
    loop {
        while workload.next_arrival().is_some_and(|arrival| arrival <= now)
            && let Some(request) = workload.take()
        {
            scheduler.add(clock_ns, request);
        }
        let mut wake_ns = None;
        while run.services.len() - done < in_flight.max(1) {
            let blocked = workload.next_arrival().is_none() && run.services.len() == done;
            let next = match outlook {
                Outlook::SeesBlockedClients if blocked => scheduler.next_without_waiting(clock_ns),
                _ => scheduler.next(clock_ns),
            };
            let Next::Dispatch(request) = next else {
                wake_ns = if let Next::WaitUntil(until_ns) = next { Some(until_ns) } else { None };
                break;
            };
            let start = run.services.last().map_or(now, |last: &Service| last.finish.max(now));
            let (length, end) = device.serve(position, &request);
            position = end;
            run.services.push(Service { request, start, finish: start + length });
        }
        let finish = run.services.get(done).map(|service| service.finish);
        let wake = wake_ns.map(|until_ns| until_ns as f64 / 1e9);
        let events = [finish, workload.next_arrival(), wake];
        let Some(next) = events.into_iter().flatten().min_by(f64::total_cmp) else { break };
        now = now.max(next);
        // Seconds do not hold every nanosecond: a wait that is over is over for the scheduler too.
        clock_ns = clock_ns.max((now * 1e9) as u64).max(wake_ns.filter(|_| wake == Some(next)).unwrap_or(0));
        if finish == Some(next) {
            scheduler.complete();
            run.services[done].request.ids().for_each(|id| workload.completed(now, id));
            done += 1;
        }
    }
    run.makespan = run.services.last().map_or(0.0, |last| last.finish);
    run
}
