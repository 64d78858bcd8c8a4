use std::cell::RefCell;

use super::regression_tests::Silent;
use super::*;
use crate::mcp::headers::Accept;
use crate::mcp::jsonrpc;
use crate::store::body::{SessionBody, Transport};
use crate::store::journal::{Action, Level};
use crate::store::recovery::{RecoveredSession, RecoveredStream};
use crate::store::segment::Segments;

fn settings(limits: Limits) -> Rc<Settings> {
    let journal = Journal::new(Level::Process, 1, 1 << 20, 0, Segments::default());
    let settings = Settings::in_memory(limits, [7; 32], Overflow::Auto);
    Rc::new(Settings { journal: Some(Rc::new(RefCell::new(journal))), ..settings })
}

/// Writes everything at once, and tells the session.
fn commit(session: &mut Session) {
    let journal = session.settings.journal.clone().expect("it is journaled");
    while let Some(action) = { journal.borrow_mut().poll_action() } {
        let mut journal = journal.borrow_mut();
        match action {
            Action::Create(segment) => journal.handle_created(segment),
            Action::SyncDirectory => journal.handle_directory_synced(),
            Action::Write { seq, bytes, .. } => journal.handle_written(seq, bytes.len(), bytes),
            Action::Sync { upto, .. } => journal.handle_synced(upto),
            Action::Remove(segment) => journal.handle_removed(segment),
        }
    }
    session.stream_numbers().into_iter().for_each(|number| session.handle_committed(number));
}

/// A call that is answered on a stream of its own; its key and the stream's number.
fn call(session: &mut Session, upstream: &mut Silent, now: Instant, id: u32) -> (CallKey, u32) {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{}}}}"#);
    let message = jsonrpc::parse(text.as_bytes()).expect("a message");
    let accept = Accept { json: false, sse: true };
    let form = ReplyForm { accept, answers: Answers::Sse };
    let posted = session.handle_post(now, &message, form, upstream);
    let Ok(Posted::Exchange(exchange)) = posted else { panic!("{posted:?}") };
    let Reply::Stream(stream) = session.reply(exchange) else { panic!("it is a stream") };
    (upstream.newest, stream)
}

/// Story: with a small `--data-bytes` each segment that went was written again whole, for the
/// answers of finished calls that were still in memory, and so the next one had to go.
#[test]
fn a_segment_takes_finished_calls_along_where_memory_holds_more_than_the_journal() {
    let small = Limits { data_bytes: 1 << 30, ..Limits::default() };
    assert_eq!(floors_after_a_segment_went(small), (2, 1));
    assert_eq!(floors_after_a_segment_went(Limits::default()), (1, 1));
}

/// The floors of a finished and of an open call, of one event each, whose segment went.
fn floors_after_a_segment_went(limits: Limits) -> (u64, u64) {
    let (now, mut upstream) = (Instant::now(), Silent::default());
    let mut session = Session::new(SessionId::from_random(0, [1; 16]), settings(limits), now, 0);
    session.set_initialized("2025-11-25");
    let (done, finished) = call(&mut session, &mut upstream, now, 1);
    session.respond(now, done, 20, |_, out| out.extend_from_slice(b"{\"done\":1}"));
    let (open, unfinished) = call(&mut session, &mut upstream, now, 2);
    session.notify(now, About::Call(open), 20, |out| out.extend_from_slice(b"{\"open\":1}"));
    commit(&mut session);
    session.handle_retired(now, 1, &mut upstream);
    commit(&mut session);
    assert_eq!(session.bytes(), session.recount());
    let finished = session.stream(finished).expect("it is known");
    let unfinished = session.stream(unfinished).expect("it is open");
    assert_eq!((finished.tail(), unfinished.tail(), unfinished.committed()), (1, 1, 1));
    (finished.floor(), unfinished.floor())
}

/// Story: behind a damaged place the standalone stream went on with the numbers of events that were
/// lost there, and a cursor of before would have been served with others.
#[test]
fn the_numbers_of_a_damaged_stream_are_not_used_again() {
    let now = Instant::now();
    let body = SessionBody {
        id: SessionId::from_random(0, [1; 16]),
        server: "default".into(),
        principal: 0,
        transport: Transport::StreamableHttp,
        next_stream: 1,
        revision: "2025-11-25".to_owned(),
        endpoint: String::new(),
        initialize: Vec::new(),
        result: Vec::new(),
    };
    let stream = RecoveredStream {
        number: STANDALONE,
        ids: Vec::new(),
        answered: Vec::new(),
        finished: false,
        buried: false,
        floor: 1,
        tail: 7,
        broken: true,
        runs: Vec::new(),
    };
    let recovered =
        RecoveredSession { slot: 3, body, setups: Vec::new(), broken: true, streams: vec![stream] };
    let (mut session, _) =
        Session::restore(recovered, settings(Limits::default()), now).expect("it goes on");
    let token = Token::mint(&[7; 32], &session.id(), STANDALONE, 1);
    let cursor = |number| {
        let mut id = Vec::new();
        token.push_id(number, &mut id);
        id
    };
    for lost in [6, 7, 8, 1_000_000] {
        let refusal = session.resume(now, &cursor(lost)).expect_err("it may be lost");
        assert_eq!(refusal.class, crate::stream::resume::Class::LogFailed, "{lost}");
    }
    let (_, next) = session.write(now, About::Standalone, 9, |out| out.extend_from_slice(b"{}"));
    assert!(next > 1 << 32);
}
