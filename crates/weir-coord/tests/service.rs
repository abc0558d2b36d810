//! The coordinators of many storages, without sockets.

use weir_coord::server::Settings;
use weir_coord::service::{Heard, Service};
use weir_coord::wire::{Identity, Message};
use weir_engine::sharing::PolicyKind;

/// What is documented.
const MAX_STORAGES: usize = 4096;

const MS: u64 = 1_000_000;

fn hello(job: usize, storage: &str) -> Message {
    let (job, storage) = (format!("job {job}"), storage.into());
    let identity = Identity { job, storage, ranks: 1, nodes: 1, ..Identity::default() };
    Message::Hello { identity: Box::new(identity), rejoins: false, epoch: 0 }
}

fn join(service: &mut Service, peer: usize, storage: &str) -> Result<Heard, String> {
    service.arrive_own(0, peer);
    service.hear(0, peer, hello(peer, storage))
}

/// Who was told what since this was last asked, of grants and holds.
fn told(service: &mut Service) -> Vec<(usize, bool)> {
    let mut told = Vec::new();
    service.drain_outbox(|peer, message| match message {
        Message::Grant { .. } => told.push((peer, true)),
        Message::Hold { .. } => told.push((peer, false)),
        _ => {}
    });
    told.sort_unstable();
    told
}

#[test]
fn every_node_of_a_large_machine_may_have_a_disk_of_its_own() {
    let settings = Settings { policy: PolicyKind::Exclusive, ..Settings::default() };
    let mut service = Service::new(0, settings);
    for node in 0..MAX_STORAGES {
        assert_eq!(join(&mut service, node, &format!("disk of node {node}")), Ok(Heard::Nothing));
    }
    let refused = join(&mut service, MAX_STORAGES, "one more").unwrap_err();
    assert_eq!(refused, "there are 4096 storages already");
    service.gone(0, MAX_STORAGES);
    service.end_round(MS);
    told(&mut service);
    // A job that shares a disk waits for its turn, those at other disks do not.
    assert_eq!(join(&mut service, MAX_STORAGES, "disk of node 7"), Ok(Heard::Nothing));
    for peer in [7, MAX_STORAGES, MAX_STORAGES - 1] {
        service.hear(2 * MS, peer, Message::Begin { phase: 1, bytes: None }).unwrap();
    }
    assert_eq!(told(&mut service), [(7, true), (MAX_STORAGES - 1, true), (MAX_STORAGES, false)]);
    service.gone(3 * MS, 7);
    assert_eq!(told(&mut service), [(MAX_STORAGES, true)]);
    // The disk that nobody uses any more makes room for another.
    service.gone(4 * MS, 9);
    assert_eq!(join(&mut service, 9, "one more"), Ok(Heard::Nothing));
    let names: Vec<&str> = service.coordinators().map(|(name, _)| name).collect();
    assert_eq!(names.len(), MAX_STORAGES);
    assert!(names.contains(&"one more") && !names.contains(&"disk of node 9"));
    service.gone(5 * MS, 9);
    assert_eq!(join(&mut service, 9, "disk of node 9"), Ok(Heard::Nothing), "and again");
}

/// A coordinator with something to do by itself is called in time, though nobody says anything to it.
#[test]
fn what_is_due_at_one_storage_is_done_in_time() {
    let mut service = Service::new(0, Settings { policy: PolicyKind::Exclusive, ..Settings::default() });
    for peer in 0..3 {
        join(&mut service, peer, if peer == 2 { "quiet" } else { "busy" }).unwrap();
    }
    for peer in 0..2 {
        service.hear(MS, peer, Message::Begin { phase: 1, bytes: None }).unwrap();
    }
    service.end_round(MS);
    assert_eq!(told(&mut service), [(0, true), (1, false)]);
    let mut now_ns = MS;
    // The job that has its turn does nothing with it: the other one is let in after two seconds.
    while now_ns < 3_000 * MS {
        let due_ns = service.deadline_ns();
        assert!(due_ns > now_ns, "nothing was told and nothing is due");
        now_ns = due_ns;
        (0..3).for_each(|peer| service.note_sign_of_life(now_ns, peer));
        service.end_round(now_ns);
        if told(&mut service).contains(&(1, true)) {
            return;
        }
    }
    panic!("nobody looked at the storage");
}
