//! The deterministic simulator of sessions: the shipped `Session` on a virtual clock, with a fake
//! upstream and fake connections, under random posts, messages, cancels, slow readers, resumes,
//! retention and relief.
//!
//! After every step the bytes that the session charges equal a recount of all that it holds, and at
//! the end, when everything has ended, they are those of a new session. `GAPLESS_SIM_SEED=n`
//! replays one seed; `GAPLESS_SIM_SEEDS` says how many are tried. See `docs/testing.md`.

mod oracle;
#[path = "../sim/rng.rs"]
#[allow(dead_code, reason = "the other simulator has more concerns")]
mod rng;
mod steps;
mod upstream;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::World;

/// Seeds of one run in CI.
const SEEDS: u64 = 400;
/// Steps under one seed, before everything ends.
const STEPS: u64 = 600;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn run(seed: u64) -> oracle::Reached {
    let mut world = World::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            world.step();
        }
        world.end();
    }));
    if let Err(panic) = outcome {
        eprintln!("the last steps of seed {seed}: {:?}", world.trace);
        eprintln!("replay with GAPLESS_SIM_SEED={seed} cargo test --test session_sim");
        resume_unwind(panic);
    }
    world.oracle.reached
}

#[test]
fn every_seed_keeps_its_account() {
    if let Some(seed) = setting("GAPLESS_SIM_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let seeds = setting("GAPLESS_SIM_SEEDS").unwrap_or(SEEDS);
    let first = setting("GAPLESS_SIM_FIRST").unwrap_or(0);
    let mut reached = oracle::Reached::default();
    for seed in first..first + seeds {
        reached.add(&run(seed));
    }
    println!("{seeds} seeds of {STEPS} steps reached {reached:?}");
    assert!(seeds < SEEDS || reached.missing().is_empty(), "never: {:?}", reached.missing());
}
