//! What the pure hot path allocates, per request and per event. The bounds are what was measured:
//! one that falls is lowered here and in `docs/performance.md`.

use allocation_counter::measure;
use gapless::limits::Limits;
use gapless::session::Answers;

use path::{Fixture, Flood};

mod path;

/// Allocations of a request, on average over many in a session that has answered some.
fn per_request(mut fixture: Fixture, answers: Answers) -> f64 {
    const REQUESTS: u32 = 1_000;
    let mut serve = || (0..REQUESTS).for_each(|_| fixture.serve(answers));
    serve();
    let per_request = measure(serve).count_total as f64 / f64::from(REQUESTS);
    println!("{answers:?}: {per_request} allocations a request");
    per_request
}

#[test]
fn an_echo_as_json_takes_few_allocations() {
    assert!(per_request(Fixture::new(Limits::default()), Answers::Json) <= 6.0);
}

#[test]
fn an_echo_as_sse_takes_few_allocations() {
    assert!(per_request(Fixture::new(Limits::default()), Answers::Sse) <= 12.1);
}

#[test]
fn an_echo_as_sse_that_is_logged_on_disk_takes_some_more() {
    assert!(per_request(Fixture::journaled(Limits::default()), Answers::Sse) <= 16.1);
}

#[test]
fn sending_in_steady_state_allocates_nothing_and_logging_only_chunks() {
    let mut flood = Flood::new();
    let before = flood.events;
    let (mut producing, mut sending) = (0, 0);
    while flood.events < before + 20_000 {
        producing += measure(|| flood.produce()).count_total;
        sending += measure(|| flood.send_and_confirm()).count_total;
    }
    let per_event = producing as f64 / (flood.events - before) as f64;
    println!("{per_event} allocations an event to log, {sending} in all to send");
    assert_eq!(sending, 0);
    assert!(per_event <= 0.01);
}
