//! The deterministic simulator of crashes: the shipped journal, sessions, streams and recovery on
//! a fake disk and a virtual clock, whose process dies at every point, with and without the power,
//! and starts again; clients come back with what they hold.
//!
//! `GAPLESS_DURABLE_SEED=n` replays one seed with its steps; `GAPLESS_DURABLE_SEEDS`,
//! `GAPLESS_DURABLE_FIRST` and `GAPLESS_DURABLE_THREADS` say how many are tried, from which on and
//! on how many threads. See `docs/testing.md`.

mod client;
mod disk;
mod oracle;
mod process;
mod recovery;
#[path = "../sim/rng.rs"]
#[allow(dead_code, reason = "the other simulator has more concerns")]
mod rng;
mod settle;
mod steps;
mod upstream;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use oracle::Reached;
use world::World;

/// Seeds of one run in CI.
const SEEDS: u64 = 400;
/// Steps under one seed, before everything comes to its end.
const STEPS: u64 = 600;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs one seed; a failure prints the seed and the last steps.
fn run(seed: u64, aloud: bool) -> Reached {
    let mut world = World::new(seed);
    world.aloud = aloud;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        (0..STEPS).for_each(|_| world.step());
        world.end();
    }));
    if let Err(panic) = outcome {
        let steps: Vec<_> = world.trace.into();
        eprintln!("the last steps of seed {seed}:\n{}", steps.join("\n"));
        eprintln!("replay with GAPLESS_DURABLE_SEED={seed} cargo test --test durable_sim");
        resume_unwind(panic);
    }
    world.reached
}

#[test]
fn every_seed_keeps_what_it_promised() {
    if let Some(seed) = setting("GAPLESS_DURABLE_SEED") {
        println!("{:?}", run(seed, true));
        return;
    }
    let seeds = setting("GAPLESS_DURABLE_SEEDS").unwrap_or(SEEDS);
    let first = setting("GAPLESS_DURABLE_FIRST").unwrap_or(0);
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let threads = setting("GAPLESS_DURABLE_THREADS").unwrap_or(cores);
    let mut reached = Reached::default();
    thread::scope(|scope| {
        let run_some = |from: u64| {
            let mut reached = Reached::default();
            for seed in (first + from..first + seeds).step_by(threads as usize) {
                reached.add(&run(seed, false));
            }
            reached
        };
        let running: Vec<_> =
            (0..threads).map(|from| scope.spawn(move || run_some(from))).collect();
        for one in running {
            reached.add(&one.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    println!("{seeds} seeds of {STEPS} steps reached {reached:?}");
    assert!(seeds < SEEDS || reached.missing().is_empty(), "never: {:?}", reached.missing());
}
