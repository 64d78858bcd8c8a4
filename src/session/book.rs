//! A session's account in its shard's journal: what a restart has to know of it.
//!
//! Invariant: a change is appended in the step in which it happens in memory, so that the journal
//! has a session's changes in their order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::store::body::{self, SessionBody};
use crate::store::journal::{Journal, Seq};
use crate::store::record::{self, Header, Kind};
use crate::stream::Stream;
use crate::stream::log::Place;

/// One session's account.
pub(super) struct Book {
    journal: Rc<RefCell<Journal>>,
    slot: u32,
    /// The order of the requests that set the upstream up: that of the newest one.
    setups: Cell<u64>,
}

/// Method and params of what [`Book::setup`] journaled.
pub(super) fn setup_of(line: &str) -> Option<(String, String)> {
    line.split_once('\n').map(|(method, params)| (method.to_owned(), params.to_owned()))
}

impl Book {
    /// A new account.
    pub(super) fn new(journal: &Rc<RefCell<Journal>>) -> Self {
        let slot = journal.borrow_mut().next_slot();
        Self::of(journal, slot, 0)
    }

    /// The account that a session had before a restart; `setups` is above the order of every
    /// request that was journaled then.
    pub(super) fn of(journal: &Rc<RefCell<Journal>>, slot: u32, setups: u64) -> Self {
        Self { journal: Rc::clone(journal), slot, setups: Cell::new(setups) }
    }

    /// The session's number in the journal.
    pub(super) fn slot(&self) -> u32 {
        self.slot
    }

    /// The session itself, as it is now.
    pub(super) fn session(&self, body: &SessionBody) -> Seq {
        self.append_with(Kind::Session, 0, 0, 0, |out| body.encode(out)).1
    }

    /// A request that the upstream has to be told again.
    pub(super) fn setup(&self, method: &str, params: &str) {
        let line = [method, "\n", params].concat();
        let order = self.setups.get() + 1;
        self.setups.set(order);
        self.append(Kind::Setup, 0, 0, order, line.as_bytes());
    }

    /// A new stream, which answers the requests `ids`.
    pub(super) fn open(&self, number: u32, ids: &[Box<str>], stream: &mut Stream) {
        let seq = self.stream(number, ids, |_| false, stream);
        stream.handle_opened(seq);
        self.watch(number, stream, seq);
    }

    /// A stream as it is now: `answered` says which of its requests are.
    pub(super) fn stream(
        &self,
        number: u32,
        ids: &[Box<str>],
        answered: impl Fn(&str) -> bool,
        stream: &Stream,
    ) -> Seq {
        let flags = if stream.is_finished() { record::FINISHED } else { 0 };
        self.append_with(Kind::Stream, flags, number, stream.floor(), |out| {
            let ids = ids.iter().map(|id| (id.as_bytes(), answered(id)));
            body::push_stream(out, stream.tail(), ids);
        })
        .1
    }

    /// A stream of which only its end and its requests are known.
    pub(super) fn tombstone(&self, number: u32, ids: &[Box<str>], tail: u64) {
        self.append_with(Kind::Stream, record::BURIED, number, tail + 1, |out| {
            body::push_stream(out, tail, ids.iter().map(|id| (id.as_bytes(), false)));
        });
    }

    /// The newest event of a stream; `answers` is the place among the stream's requests of the one
    /// that it answers, counted from 1, or 0.
    pub(super) fn event(&self, number: u32, answers: u16, stream: &mut Stream) {
        let (place, seq) = self.append_event(number, stream.tail(), answers, stream);
        stream.handle_logged(place, seq);
        self.watch(number, stream, seq);
    }

    /// An event that lies in a segment which shall go is logged once more.
    pub(super) fn copy(&self, number: u32, event: u64, stream: &mut Stream) {
        let (place, seq) = self.append_event(number, event, 0, stream);
        stream.replace_place(event, place, seq);
        self.watch(number, stream, seq);
    }

    /// The stream is finished, though not all of its requests are answered.
    pub(super) fn finish(&self, number: u32, stream: &mut Stream) {
        let (_, seq) = self.append(Kind::Finish, 0, number, stream.tail(), &[]);
        stream.handle_finish_logged(seq);
        self.watch(number, stream, seq);
    }

    /// Retention has moved the stream's floor.
    pub(super) fn floor(&self, number: u32, floor: u64) {
        self.append(Kind::Floor, 0, number, floor, &[]);
    }

    /// Retention has dropped the whole stream.
    pub(super) fn bury(&self, number: u32, tail: u64) {
        self.append(Kind::Floor, record::BURIED, number, tail + 1, &[]);
    }

    /// The session is over, and never comes back.
    pub(super) fn end(&self) -> Seq {
        self.append(Kind::End, 0, 0, 0, &[]).1
    }

    /// What is logged goes out once it is committed: at once where nothing is promised, else when
    /// the journal says so.
    fn watch(&self, number: u32, stream: &mut Stream, seq: Seq) {
        let mut journal = self.journal.borrow_mut();
        if journal.committed() >= seq {
            stream.handle_committed(seq);
        } else {
            journal.touch(self.slot, number);
        }
    }

    fn append_event(&self, number: u32, event: u64, answers: u16, stream: &Stream) -> (Place, Seq) {
        let body = stream.event(event).expect("what is logged is in memory");
        let header = Header { answers, ..self.header(Kind::Event, 0, number, event) };
        self.journal.borrow_mut().append(&header, body)
    }

    fn append(&self, kind: Kind, flags: u8, stream: u32, number: u64, body: &[u8]) -> (Place, Seq) {
        self.journal.borrow_mut().append(&self.header(kind, flags, stream, number), body)
    }

    fn append_with(
        &self,
        kind: Kind,
        flags: u8,
        stream: u32,
        number: u64,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> (Place, Seq) {
        self.journal.borrow_mut().append_with(&self.header(kind, flags, stream, number), encode)
    }

    fn header(&self, kind: Kind, flags: u8, stream: u32, number: u64) -> Header {
        Header { kind, flags, answers: 0, slot: self.slot, stream, number }
    }
}
