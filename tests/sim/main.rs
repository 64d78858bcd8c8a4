//! The deterministic simulator of the heart: the shipped `stream` code on a virtual clock, with
//! fake sockets, many producers and clients, and an oracle that is a plain `Vec` per stream.
//!
//! One seed replays a run: `GAPLESS_SIM_SEED=n` replays one with its trace. How many seeds are
//! tried, from which on and on how many threads: `GAPLESS_SIM_SEEDS`, `GAPLESS_SIM_FIRST` and
//! `GAPLESS_SIM_THREADS`. See `docs/testing.md`.

mod check;
mod client;
mod clock;
mod connection;
mod coverage;
mod cursor;
mod decode;
mod durable;
mod journal;
mod off_core;
mod oracle;
mod paging;
mod producer;
mod receipts;
mod rng;
mod server;
mod settle;
mod socket;
mod steps;
mod story;
mod trace;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use coverage::Coverage;
use world::World;

/// Seeds of one run in CI.
const SEEDS: u64 = 2_000;
/// Steps under one seed, before the world settles.
const STEPS: u64 = 500;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs one seed; a failure prints the seed and the last steps.
fn run(seed: u64, aloud: bool) -> Coverage {
    let mut world = World::new(seed);
    world.trace.aloud = aloud;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        (0..STEPS).for_each(|_| world.step());
        world.settle();
    }));
    if let Err(panic) = outcome {
        eprintln!("the last steps of seed {seed}:\n{}", world.trace);
        eprintln!("replay with GAPLESS_SIM_SEED={seed} cargo test --test sim");
        resume_unwind(panic);
    }
    world.coverage
}

#[test]
fn every_seed_keeps_the_promises() {
    if let Some(seed) = setting("GAPLESS_SIM_SEED") {
        println!("{}", run(seed, true));
        return;
    }
    let seeds = setting("GAPLESS_SIM_SEEDS").unwrap_or(SEEDS);
    let first = setting("GAPLESS_SIM_FIRST").unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let threads = setting("GAPLESS_SIM_THREADS").unwrap_or(cores);
    let runs: Vec<_> = (0..threads)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut coverage = Coverage::default();
                let own = (first..first + seeds).skip(thread as usize).step_by(threads as usize);
                own.for_each(|seed| coverage.add(&run(seed, false)));
                coverage
            })
        })
        .collect();
    let mut coverage = Coverage::default();
    for run in runs {
        coverage.add(&run.join().expect("a seed has failed, see above"));
    }
    println!("{seeds} seeds of {STEPS} steps reached:\n{coverage}");
    let missing = coverage.missing();
    assert!(seeds < SEEDS || missing.is_empty(), "never reached: {missing:?}");
}
