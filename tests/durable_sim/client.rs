//! The clients: what they know, what they have read, and how they come back.

use std::collections::BTreeMap;

use gapless::mcp::session_id::SessionId;
use gapless::session::{Refusal, RefusalAnswer, Reply, STANDALONE, Step};
use gapless::stream::resume::Class;
use gapless::stream::{Attached, Generation};

use crate::oracle::{number_after, without_id};
use crate::world::World;

/// A client and its session.
pub struct Client {
    pub id: SessionId,
    /// It has been told of its session.
    pub known: bool,
    /// The run in which it waits for the answer to its `initialize`.
    pub starting: Option<u32>,
    /// It has given its session up.
    pub over: bool,
    /// What it knows of each stream.
    /// The params of what set its upstream up, in order.
    pub setups: Vec<String>,
    pub views: BTreeMap<u32, View>,
    pub readers: BTreeMap<u32, Reader>,
}

/// What a client knows of a stream.
#[derive(Default)]
pub struct View {
    /// The newest id.
    pub cursor: String,
    /// Its number.
    pub number: u64,
    /// The epoch in which it was handed out.
    pub epoch: u32,
    /// The client will not come back to it.
    pub done: bool,
    /// The last connection was one of an earlier process.
    pub crashed: bool,
}

/// A connection that reads a stream.
pub struct Reader {
    pub generation: Generation,
    offset: u64,
    acked: u64,
    /// The client may be told of the stream.
    opened: bool,
    /// The number of the next event that has to come.
    next: u64,
    /// What was sent and not read: acknowledged or not.
    bytes: Vec<u8>,
}

impl Client {
    pub fn new(id: SessionId) -> Self {
        let (views, readers) = (BTreeMap::new(), BTreeMap::new());
        Self { id, known: false, starting: None, over: false, setups: Vec::new(), views, readers }
    }
}

impl World {
    fn client(&mut self, client: u32) -> &mut Client {
        self.clients.get_mut(&client).expect("clients stay")
    }

    /// Connections ask for their replies.
    pub fn take_replies(&mut self, client: u32) {
        let Some(live) = self.live(client) else { return };
        for key in std::mem::take(&mut live.waiting) {
            let Some(live) = self.live(client) else { return };
            match live.session.reply(key) {
                Reply::Pending => live.waiting.push(key),
                Reply::Stream(stream) => {
                    if let Some(attached) = live.session.attach_first(stream) {
                        self.attached(client, stream, &attached);
                    }
                }
                Reply::Json(_) | Reply::Gone => {}
            }
        }
    }

    fn attached(&mut self, client: u32, stream: u32, attached: &Attached) {
        let Some(live) = self.live(client) else { return };
        let mut bytes = Vec::new();
        live.session.prologue(stream, attached, &mut bytes);
        let next = attached.after + 1;
        let offset = bytes.len() as u64;
        let generation = attached.generation;
        let reader = Reader { generation, offset, acked: 0, opened: false, next, bytes };
        self.client(client).readers.insert(stream, reader);
    }

    /// A connection is gone, whoever ended it; of the unread bytes the client reads some.
    pub fn close(&mut self, client: u32, stream: u32, generation: Option<Generation>) {
        let reader = self.client(client).readers.get(&stream);
        let current = reader.map(|reader| reader.generation);
        if current.is_none() || generation.is_some() && generation != current {
            return;
        }
        self.consume(client, stream);
        let Some(reader) = self.client(client).readers.remove(&stream) else { return };
        if reader.opened && !reader.bytes.is_empty() {
            self.mark("unread bytes were lost");
        }
        let now = self.now;
        if let Some(live) = self.live(client) {
            live.session.handle_closed(now, stream, reader.generation, reader.acked);
        }
    }

    pub fn drop_readers(&mut self, client: u32) {
        for stream in self.client(client).readers.keys().copied().collect::<Vec<_>>() {
            self.close(client, stream, None);
        }
    }

    /// The server sends what it has, at most `turns` writes of it.
    pub fn send(&mut self, client: u32, stream: u32, turns: u64) {
        for _ in 0..turns {
            let now = self.now;
            let Some(mut reader) = self.client(client).readers.remove(&stream) else { return };
            let Some(live) = self.live(client) else { return };
            reader.opened |= live.session.may_open(stream);
            if !reader.opened {
                self.client(client).readers.insert(stream, reader);
                return;
            }
            let before = reader.bytes.len();
            let generation = reader.generation;
            let step = live.session.transmit(stream, generation, reader.offset, &mut reader.bytes);
            reader.offset += (reader.bytes.len() - before) as u64;
            self.client(client).readers.insert(stream, reader);
            match step {
                Step::Write => self.check_committed(client, stream),
                Step::Load => {
                    let wanted = self.live(client).and_then(|live| live.session.take_load(stream));
                    let Some(wanted) = wanted else { return };
                    if !self.is_written(&wanted.load) {
                        self.mark("waited for a write before a read");
                        return;
                    }
                    let read = self.load(wanted.slot, stream, &wanted.token, &wanted.load);
                    let excused = read.is_some() || self.oracle.damaged || self.is_poisoned();
                    assert!(excused, "check `page`: {client}/{stream} cannot be read");
                    self.mark("event read from the disk");
                    if let Some(live) = self.live(client) {
                        live.session.handle_loaded(now, stream, &wanted.load, read);
                    }
                }
                Step::Finished | Step::Planned | Step::Stale => {
                    return self.close(client, stream, None);
                }
                Step::Wait | Step::RingFull => return,
            }
        }
    }

    /// The peer's TCP acknowledges some of what was sent, read or not.
    pub fn acknowledge(&mut self, client: u32, stream: u32, all: bool) {
        let Some(mut reader) = self.client(client).readers.remove(&stream) else { return };
        if reader.opened {
            let least = if all { reader.offset } else { reader.acked };
            reader.acked = self.rng.between(least, reader.offset);
            if let Some(live) = self.live(client) {
                live.session.handle_acked(stream, reader.generation, reader.acked);
            }
        }
        self.client(client).readers.insert(stream, reader);
    }

    /// The client reads some of what was sent.
    pub fn consume(&mut self, client: u32, stream: u32) {
        let Some(mut reader) = self.client(client).readers.remove(&stream) else { return };
        if reader.opened {
            let most = reader.bytes.len() as u64;
            let readable = if self.settling { most } else { self.rng.between(0, most) } as usize;
            let mut end = 0;
            while let Some(at) = reader.bytes[end..readable].windows(2).position(|w| w == b"\n\n") {
                let event = reader.bytes[end..end + at + 2].to_vec();
                end += at + 2;
                self.read_event(client, stream, &mut reader.next, &event);
            }
            // What is left is the part of an event, and stays.
            reader.bytes.drain(..end);
        }
        self.client(client).readers.insert(stream, reader);
    }

    fn read_event(&mut self, client: u32, stream: u32, next: &mut u64, event: &[u8]) {
        let text = std::str::from_utf8(event).expect("events are text");
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let Some(id) = field("id: ") else { return };
        let data = field("data: ").unwrap_or_default();
        let position = id.rsplit('.').next().unwrap_or_default();
        let epoch = self.meta.epoch;
        if position == "end" {
            let excused = self.oracle.damaged || self.is_poisoned();
            assert!(excused, "check `told`: {client}/{stream} is told {data}");
            self.mark("told: log_failed");
            return;
        }
        let number: u64 = position.parse().expect("a number");
        if let Some(last) = number_after(event, "\"last_missed\":") {
            assert_eq!(last + 1, *next, "check `gap`: the gap that is told of");
            self.mark("gap announced");
        } else if !data.is_empty() {
            let shown = format!("{client}/{stream}: {number} where {next} has to come");
            assert!(number >= *next, "check `duplicate`: {shown}");
            assert_eq!(number, *next, "check `gap`: {shown}");
            let log = self.oracle.logs.get(&(client, stream));
            let known = log.and_then(|log| log.get(&number));
            let same = known.is_some_and(|known| known == without_id(event));
            assert!(same, "check `payload`: event {number} of {client}/{stream}");
            *next += 1;
            if data.contains("\"reason\":\"restarted\"") {
                self.mark("told: restarted");
            }
        } else {
            assert_eq!(number + 1, *next, "check `gap`: the priming event of {client}/{stream}");
        }
        let client = self.client(client);
        let view = client.views.entry(stream).or_default();
        (view.cursor, view.number, view.epoch) = (id.to_owned(), number, epoch);
    }

    pub fn is_poisoned(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.journal.borrow().is_poisoned())
    }

    /// A listener without a cursor.
    pub fn listen(&mut self, client: u32) {
        let now = self.now;
        let Some(live) = self.live(client) else { return };
        let (stream, takeover) = live.session.listen(now);
        if takeover.must_close().is_some() {
            self.close(client, stream, None);
        }
        let Some(live) = self.live(client) else { return };
        if let Ok(attached) = live.session.attach(stream, takeover, b"") {
            self.attached(client, stream, &attached);
        }
    }

    /// A client comes back to a stream with its cursor.
    pub fn come_back(&mut self, client: u32, stream: u32) {
        let now = self.now;
        let Some(view) = self.client(client).views.get(&stream) else { return };
        let (cursor, number, epoch) = (view.cursor.clone(), view.number, view.epoch);
        let crashed = view.crashed;
        let Some(live) = self.live(client) else { return };
        match live.session.resume(now, cursor.as_bytes()) {
            Err(refusal) => self.refused(client, stream, &refusal),
            Ok((found, takeover)) => {
                assert_eq!(found, stream, "check `stream`: a cursor names another");
                assert_eq!(epoch, self.meta.epoch, "check `epoch`: an old cursor is served");
                if takeover.must_close().is_some() {
                    self.close(client, stream, None);
                }
                let Some(live) = self.live(client) else { return };
                match live.session.attach(stream, takeover, cursor.as_bytes()) {
                    Ok(attached) => {
                        assert_eq!(attached.after, number, "check `gap`: it goes on elsewhere");
                        self.mark(if crashed { "resumed after a restart" } else { "resumed" });
                        self.attached(client, stream, &attached);
                        if let Some(view) = self.client(client).views.get_mut(&stream) {
                            view.crashed = false;
                        }
                    }
                    Err(Some(refusal)) => self.refused(client, stream, &refusal),
                    Err(None) => {}
                }
            }
        }
    }

    /// A refusal has to be true, and told.
    fn refused(&mut self, client: u32, stream: u32, refusal: &Refusal) {
        let epoch = self.meta.epoch;
        let damaged = self.oracle.damaged;
        let Client { views, .. } = &self.clients[&client];
        let view = &views[&stream];
        let bounds = self.process.as_ref().and_then(|process| {
            let stream = process.lives.get(&client)?.session.stream(stream)?;
            Some((stream.floor(), stream.tail(), stream.is_finished()))
        });
        let shown = format!(
            "{client}/{stream} at {}: {:?}, epoch {} of {epoch}, {}",
            view.number, refusal.class, view.epoch, view.cursor
        );
        let has_bounds = refusal.class != Class::Unknown;
        let bounds_are_told = !has_bounds
            || bounds.is_none_or(|(floor, tail, _)| (refusal.floor, refusal.tail) == (floor, tail));
        let (is_true, mark) = match refusal.class {
            Class::EpochChanged => (view.epoch != epoch, "told: epoch_changed"),
            Class::Truncated => {
                let below = bounds.is_none_or(|(floor, ..)| view.number + 1 < floor);
                (view.epoch == epoch && below, "told: log_truncated")
            }
            Class::FinishedSeen => {
                let seen = bounds.is_none_or(|(_, tail, over)| over && view.number == tail);
                (view.epoch == epoch && seen && refusal.tail == view.number, "told: finished")
            }
            Class::Expired => (bounds.is_none(), "told: expired"),
            Class::LogFailed => (damaged, "told: log_failed"),
            // So old an epoch is not recognised any more.
            Class::Unknown => (view.epoch + 8 < epoch, "told: unknown"),
            Class::Ahead => panic!("check `held`: {shown}"),
            _ => (false, "nothing"),
        };
        assert!(is_true && bounds_are_told, "check `refusal`: {shown}, {bounds:?}");
        let is_told = match &refusal.answer {
            RefusalAnswer::InBand(bytes) | RefusalAnswer::Gone(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                stream != STANDALONE || text.contains("\"code\":-310")
            }
            RefusalAnswer::Over(_) => refusal.class == Class::FinishedSeen,
            RefusalAnswer::Unknown(_) => refusal.class == Class::Unknown,
        };
        assert!(is_told, "check `refusal`: {shown} is told {:?}", refusal.answer);
        self.mark(mark);
        let client = self.client(client);
        if stream == STANDALONE {
            // It begins anew, knowing that something is missing.
            client.views.remove(&stream);
        } else if let Some(view) = client.views.get_mut(&stream) {
            view.done = true;
        }
    }
}
