//! `make fuzz`: mutated bytes against the decoder of the wire, the coordinator behind it, and the session of a job that
//! hears them from its coordinator.
//!
//! No coverage guides it, so that it runs on the stable toolchain; in its place it starts from good frames of every kind
//! and from what was interesting before (`fuzz/corpus`), and mutates with the format in mind: lengths, presence
//! bytes and texts are where decoders go wrong. An input that makes something panic, or that breaks a
//! promise, is written to the corpus and named; a run with it in the corpus fails until it is mended.
//!
//! Usage: `weir-fuzz CORPUS SECONDS [SEED]`. Same seed, same inputs.

mod mutate;

use rand::SeedableRng;
use rand_pcg::Pcg64;
use std::error::Error;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weir_coord::coordinator::{Coordinator, Pace};
use weir_coord::ledger::Sum;
use weir_coord::session::{Gate, Input, Limits, Output, Peer, Route, Session, Wanted};
use weir_coord::storage::Storage;
use weir_coord::wire::{Identity, Inbox, MAX_FRAME_BYTES, Message};
use weir_engine::aggregators;
use weir_engine::sharing::PolicyKind;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [corpus, seconds, seed @ ..] = &words[..] else {
        return Err("usage: weir-fuzz CORPUS SECONDS [SEED]".into());
    };
    let corpus = PathBuf::from(corpus);
    let time = Duration::from_secs(seconds.parse()?);
    let seed = seed.first().map_or(Ok(1), |seed| seed.parse())?;
    let mut inputs = read_corpus(&corpus)?;
    println!("fuzz: {} inputs in {}", inputs.len(), corpus.display());
    inputs.extend(mutate::good_frames());
    for input in &inputs {
        if let Err(why) = try_input(input) {
            return report(&corpus, input, &why);
        }
    }
    let start = Instant::now();
    let mut random = Pcg64::seed_from_u64(seed);
    let mut count = 0u64;
    while start.elapsed() < time {
        for _ in 0..1000 {
            let input = mutate::mutated(&inputs, &mut random);
            if let Err(why) = try_input(&input) {
                return report(&corpus, &input, &why);
            }
            count += 1;
        }
    }
    println!(
        "fuzz: {count} inputs in {:.0} s, none broke anything (seed {seed})",
        start.elapsed().as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}

fn read_corpus(corpus: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(corpus)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    Ok(paths.iter().map(fs::read).collect::<Result<_, _>>()?)
}

fn report(corpus: &Path, input: &[u8], why: &str) -> Result<ExitCode, Box<dyn Error>> {
    let sum = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let path = corpus.join(format!("broke-{sum:016x}"));
    fs::write(&path, input)?;
    eprintln!("fuzz: {} breaks it: {why}", path.display());
    Ok(ExitCode::FAILURE)
}

fn try_input(input: &[u8]) -> Result<(), String> {
    let tried = catch_unwind(AssertUnwindSafe(|| {
        decode(input)?;
        coordinate(input)?;
        listen(input)
    }));
    tried.unwrap_or_else(|_| Err("it panics".into()))
}

/// What is decoded is what was meant: encoded again it is the same frame; and pieces give what the whole gives.
fn decode(input: &[u8]) -> Result<(), String> {
    let mut whole = Inbox::default();
    whole.feed(input);
    let mut pieces = Inbox::default();
    let mut fed = 0;
    let mut at = 0;
    loop {
        let message = whole.take();
        let piecewise = loop {
            match pieces.take() {
                Ok(None) if fed < input.len() => {
                    let end = (fed + 7).min(input.len());
                    pieces.feed(&input[fed..end]);
                    fed = end;
                }
                answer => break answer,
            }
        };
        if message != piecewise {
            return Err(format!("whole: {message:?}, in pieces: {piecewise:?}"));
        }
        let Ok(Some(message)) = message else { return Ok(()) };
        let mut frame = Vec::new();
        message.encode(&mut frame);
        if frame.len() > 4 + MAX_FRAME_BYTES || input.get(at..at + frame.len()) != Some(&frame[..]) {
            return Err(format!("encoded again, {message:?} is another frame"));
        }
        at += frame.len();
    }
}

/// Whatever a coordinator says and whenever, the session of a job stands, and opens its gate when nothing more comes.
fn listen(input: &[u8]) -> Result<(), String> {
    let limits = Limits { phase_gap_ns: None, max_wait_ns: 1_000_000_000, free_bytes: 4096 };
    let identity = Identity { job: "job".into(), ranks: 1, nodes: 1, ..Identity::default() };
    let mut sum = Sum { waiting: 1, waiting_bytes: 7, ..Sum::default() };
    let mut session = Session::new(0, identity, Wanted::Service, limits, &Sum::default());
    let mut outputs = Vec::new();
    let mut inbox = Inbox::default();
    inbox.feed(input);
    let (mut now_ns, mut turn) = (0u64, 0);
    loop {
        turn += 1;
        let pause = input.get(turn % input.len().max(1)).map_or(0, |byte| usize::from(*byte));
        now_ns = now_ns.saturating_add(PAUSES_NS[pause % PAUSES_NS.len()]);
        session.step(now_ns, Input::Tick, &mut outputs);
        session.step(now_ns, Input::Look(&sum), &mut outputs);
        if outputs.contains(&Output::Connect(Route::Service)) {
            session.step(now_ns, Input::Connected(Peer { name: String::new(), secret: None }), &mut outputs);
        }
        outputs.clear();
        sum.waiting = u32::from(turn % 3 != 0);
        match inbox.take() {
            Ok(Some(message)) => session.step(now_ns, Input::Received(message), &mut outputs),
            _ => break,
        }
    }
    session.step(now_ns, Input::Broken { reason: "gone".into() }, &mut outputs);
    session.step(now_ns.saturating_add(2_000_000_000), Input::Tick, &mut outputs);
    match session.gate() {
        Gate::Open { .. } => Ok(()),
        gate => Err(format!("the gate is {gate:?} though nobody coordinates")),
    }
}

/// Targets of the storage that files are placed on.
const TARGETS: u32 = 4;

/// How long it takes until the next message comes: from at once to years.
const PAUSES_NS: [u64; 5] = [0, 1, 7_000_000, 1_000_000_000, 100_000_000_000_000_000];

/// Whatever is said and whenever, the coordinator stands, answers only those who are there, shares at most everything, and places
/// files where there is something.
fn coordinate(input: &[u8]) -> Result<(), String> {
    let policy = PolicyKind::ALL[input.len() % PolicyKind::ALL.len()];
    let mut coordinator = Coordinator::new(0, policy, Pace::default());
    let order = aggregators::Policy::ALL[input.len() % aggregators::Policy::ALL.len()];
    let bandwidth = vec![1e9, 1.9e9, 1.5e9];
    let scratch = Storage::new("/scratch");
    let scratch = Storage { targets: TARGETS as usize, bandwidth, compute_nodes: 9, ..scratch };
    coordinator.set_order(order);
    coordinator.set_storages(&[scratch]);
    let mut inbox = Inbox::default();
    inbox.feed(input);
    let mut now_ns = 0;
    let mut turn = 0;
    while let Ok(Some(message)) = inbox.take() {
        turn += 1;
        now_ns += PAUSES_NS[usize::from(input[turn % input.len()]) % PAUSES_NS.len()];
        let peer = turn % 3;
        if coordinator.handle(now_ns, peer, message).is_err() {
            coordinator.gone(now_ns, peer);
        }
        coordinator.tick(now_ns);
        let answers: Vec<(usize, Message)> = coordinator.outbox().drain(..).collect();
        for (to, answer) in answers {
            if to > 2 {
                return Err(format!("{answer:?} goes to {to}, who is not there"));
            }
            if let Message::Allocated { stripes, targets, .. } = &answer
                && (targets.len() != *stripes as usize
                    || targets.last().is_some_and(|last| *last >= TARGETS)
                    || !targets.is_sorted_by(|a, b| a < b))
            {
                return Err(format!("{answer:?} is no place"));
            }
            // A job that is backfilled has a share of nothing.
            if matches!(answer, Message::Grant { share, .. } if !(0.0..=1.0).contains(&share)) {
                return Err(format!("{answer:?} has no share"));
            }
        }
    }
    (0..3).for_each(|peer| coordinator.gone(now_ns, peer));
    Ok(())
}
