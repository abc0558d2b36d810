//! Inputs that are nearly good.

use rand::RngExt;
use rand_pcg::Pcg64;
use weir_coord::wire::{FileInfo, Identity, Message, Piece, Progress, Reader};
use weir_engine::engine::{Past, SeenAlone};

/// Inputs are at most this long: some hundred frames.
const MAX_INPUT_BYTES: usize = 8 << 10;

fn frames(messages: &[Message]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut bytes));
    bytes
}

/// Every kind of message, and whole conversations of three jobs.
pub(crate) fn good_frames() -> Vec<Vec<u8>> {
    let hello = |job: &str| {
        let names = Identity { job: job.into(), application: "lammps".into(), ..Identity::default() };
        let numbers = Identity { pid: 4711, ranks: 8, nodes: 2, w_iter_ns: Some(10_000_000_000), ..names };
        let identity =
            Identity { host: "node7".into(), account: "physics".into(), storage: "disk".into(), ..numbers };
        let alone = SeenAlone { ns: 3_000_000_000, bytes: 1 << 32 };
        let past = Past { life_ns: 90_000_000_000, stalled_ns: 7_000_000_000, alone };
        let identity = Identity { past, ..identity };
        Message::Hello { identity: Box::new(identity), rejoins: job == "b", epoch: 0 }
    };
    let progress = Progress { done_bytes: 1 << 20, spent_bytes: 2 << 20, wanted_bytes: 3 << 20 };
    let begin = Message::Begin { phase: 1, bytes: Some(1 << 30) };
    let announce = Message::Announce { phase: 1, bytes: None, known_bytes: 1 << 31 };
    let expect = Message::Expect { period_ns: Some(60_000_000_000) };
    let moved = Message::Moved { phase: 1, progress, in_flight: 1, busy_ns: 0, is_resting: false };
    let end = Message::End { phase: 1, bytes: 3 << 20, io_ns: 5, waited_ns: 6 };
    let age_ns = 1 << 30;
    let resume = Message::Resume { phase: 1, bytes: None, age_ns, granted: true, progress };
    let file =
        FileInfo { path: "/scratch/a".into(), ranks: 8, nodes: 2, bytes: 1 << 30, ..FileInfo::default() };
    let ask = Message::Ask { request: 1, file: file.clone() };
    let release = Message::Release { request: 1 };
    let claim = Message::Claim { request: 1, file, targets: vec![1, 3] };
    let read = |number, target| Message::Read {
        reader: Reader { number, file: 3, call: 1, target, service_ns: 1 << 20, shuffle_ns: 7_000 },
        pieces: vec![Piece { target, offset_bytes: 0, length_bytes: 1 << 20 }],
    };
    let served = |number| Message::Served { number, call: 1 };
    let singles = [
        ask.clone(),
        release.clone(),
        claim.clone(),
        read(0, 1),
        served(0),
        Message::Allocated { request: 1, aggregators: 2, stripes: 2, targets: vec![0, 3] },
        Message::Turn { number: 2, call: 1 },
        hello("a"),
        begin.clone(),
        announce.clone(),
        expect.clone(),
        moved.clone(),
        end.clone(),
        resume.clone(),
        Message::Proof { nonce: [1; 32], mac: [2; 32] },
        Message::Beat {},
        Message::Bye {},
        Message::StatusQuery {},
        Message::Challenge { nonce: [3; 32] },
        Message::Proven { mac: [4; 32] },
        Message::Welcome {
            lease_ms: 800,
            beat_ms: 200,
            report_ms: 2,
            policy: "weir".into(),
            orders: true,
            epoch: 1,
        },
        Message::Grant { phase: 1, share: 0.5, credit_bytes: u64::MAX, expected_ns: 0 },
        Message::Hold { phase: 1, expected_ns: 1 },
        Message::Credit { phase: 1, share: 0.5, credit_bytes: 1 << 22, expected_ns: 1 << 30 },
        Message::Ahead { granted: true },
        Message::Seen { alone: SeenAlone { ns: 1 << 30, bytes: 1 << 30 } },
        Message::Status { last: true, text: "{}".into() },
        Message::Refuse { reason: "wrong key".into() },
    ];
    let mut inputs: Vec<Vec<u8>> =
        singles.iter().map(|message| frames(std::slice::from_ref(message))).collect();
    let all = |message: &Message| vec![message.clone(); 3];
    let greet = vec![hello("a"), hello("c"), hello("d")];
    let conversation =
        [greet.clone(), all(&begin), all(&announce), all(&moved), all(&end), all(&expect), all(&begin)]
            .concat();
    inputs.push(frames(&conversation));
    let takeover = [vec![hello("a"), hello("b"), hello("b")], all(&resume), all(&moved), all(&end)].concat();
    inputs.push(frames(&takeover));
    let files = [all(&ask), all(&release), all(&ask), all(&claim), all(&release)].concat();
    inputs.push(frames(&[greet.clone(), files].concat()));
    let asked = [all(&read(0, 1)), all(&read(1, 2)), all(&read(2, 1))].concat();
    let reads = [all(&begin), asked, all(&served(0)), all(&served(1)), all(&served(2)), all(&end)];
    inputs.push(frames(&[greet, reads.concat()].concat()));
    inputs
}

/// One to five changes to an input, or to two of them joined.
pub(crate) fn mutated(inputs: &[Vec<u8>], random: &mut Pcg64) -> Vec<u8> {
    let pick = |random: &mut Pcg64| inputs[random.random_range(0..inputs.len())].as_slice();
    let mut bytes = pick(random).to_vec();
    for _ in 0..random.random_range(1..=5) {
        change(&mut bytes, pick(random), random);
    }
    bytes.truncate(MAX_INPUT_BYTES);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Pcg64) {
    if bytes.is_empty() {
        bytes.extend_from_slice(other);
        return;
    }
    let at = random.random_range(0..bytes.len());
    match random.random_range(0..8) {
        0 => bytes[at] ^= 1 << random.random_range(0..8),
        1 => bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xff][random.random_range(0..6)],
        2 => bytes.truncate(at),
        3 => bytes.extend_from_slice(other),
        4 => bytes.insert(at, random.random()),
        5 => {
            let end = (at + random.random_range(1..16)).min(bytes.len());
            bytes.drain(at..end);
        }
        6 => {
            // A number in the place of another, of the kind that overflows.
            let number =
                [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32][random.random_range(0..6)].to_le_bytes();
            let end = (at + number.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        _ => {
            let from = random.random_range(0..other.len().max(1)).min(other.len());
            bytes.splice(at..at, other[from..].iter().copied());
        }
    }
}
