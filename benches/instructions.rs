//! A fixed amount of the pure hot path, for callgrind: `tests/instructions` says how it is counted.
//! The argument says which part; only what [`counted`] does is counted.

use std::hint::black_box;

use gapless::limits::Limits;
use gapless::session::Answers;

use path::{Fixture, Flood};

#[path = "../tests/hot_path/path.rs"]
mod path;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Requests that bring a session to its steady state, and requests that are counted.
const REQUESTS: u64 = 2_000;
/// Events that are counted, at least.
const EVENTS: u64 = 20_000;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("json") => requests(Fixture::new(Limits::default()), Answers::Json),
        Some("sse") => requests(Fixture::new(Limits::default()), Answers::Sse),
        Some("journaled") => requests(Fixture::journaled(Limits::default()), Answers::Sse),
        Some("flood") => flood(),
        other => eprintln!("json, sse, journaled or flood, not {other:?}"),
    }
}

fn requests(mut fixture: Fixture, answers: Answers) {
    let mut serve = || {
        for _ in 0..REQUESTS {
            fixture.serve(answers);
            black_box(&fixture.output);
        }
    };
    serve();
    counted(&mut serve);
    println!("{REQUESTS}");
}

fn flood() {
    let mut flood = Flood::new();
    let before = flood.events;
    counted(&mut || {
        while flood.events < before + EVENTS {
            flood.turn();
        }
    });
    println!("{}", flood.events - before);
}

/// Callgrind counts from its call to its return.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
    // Behind the call, or it would be a jump and its end unseen.
    black_box(());
}
