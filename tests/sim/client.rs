//! The clients: they read at their own pace, break off, and come back with all kinds of cursors.

use crate::check::{same, violated};
use crate::connection::{Connection, Request, Response};
use crate::cursor::{self, EPOCH, Place, Presented};
use crate::decode::Item;
use crate::socket::Socket;
use crate::world::World;

/// One client's process.
pub struct Client {
    pub session: usize,
    /// The stream it follows.
    pub stream: usize,
    /// The last event it has read.
    pub last: Option<Place>,
    /// Those before it.
    pub history: Vec<Place>,
    /// The connection it reads its stream from.
    pub active: Option<usize>,
    /// It was told that its stream is over and all seen.
    pub done: bool,
}

impl Client {
    pub fn new(session: usize, stream: usize) -> Self {
        Self { session, stream, last: None, history: Vec::new(), active: None, done: false }
    }

    /// The number of the last event it has, or has given up.
    pub fn seen(&self) -> u64 {
        self.last.map_or(0, |place| place.number)
    }
}

impl World {
    /// A GET on an idle keep-alive connection or on a new one.
    pub fn connect(&mut self, k: usize, cursor: Option<Presented>) {
        let client = &self.clients[k];
        let request = Request { session: client.session, stream: client.stream, cursor };
        let idle = self.conns.iter().position(|conn| {
            let peer = &conn.peer;
            let quiet = peer.asked.is_empty() && peer.response.is_none() && !peer.dropped;
            peer.client == k && quiet && !conn.is_closed() && !conn.socket.peer_gone()
        });
        let reused = idle.filter(|_| !self.rngs.clients.once_in(4));
        let c = reused.unwrap_or_else(|| {
            let (send_buffer, window) = self.shape.buffers(&mut self.rngs.network);
            self.conns.push(Connection::new(k, Socket::new(send_buffer, window, self.shape.lies)));
            self.conns.len() - 1
        });
        self.conns[c].inbox.push_back(request.clone());
        self.conns[c].peer.asked.push_back(request);
        self.clients[k].active = Some(c);
    }

    /// A cursor as clients present them: mostly their own, sometimes any other.
    pub fn choose_cursor(&mut self, k: usize) -> Option<Presented> {
        let rng = &mut self.rngs.clients;
        let client = &self.clients[k];
        let oracle = &self.streams[client.stream].oracle;
        let own = client.last;
        let place = |number| Place::new(client.session, client.stream, number);
        match rng.between(0, 24) {
            0 | 1 => {
                self.coverage.mark("no cursor");
                None
            }
            2..=4 => {
                self.coverage.mark("older cursor");
                rng.pick(&client.history).copied().or(own).map(Presented::from)
            }
            5 => {
                self.coverage.mark("cursor ahead");
                let sent = oracle.sent_max.max(oracle.floor - 1);
                Some(place(sent + rng.skewed(5)).into())
            }
            6 | 7 => {
                let other = rng.pick(&self.clients)?.last.or(own)?;
                if other.session != client.session {
                    self.coverage.mark("cursor of another session");
                } else if other.stream != client.stream {
                    self.coverage.mark("cursor of another stream");
                }
                Some(other.into())
            }
            8 => {
                self.coverage.mark("forged cursor");
                let mut text = place(oracle.sent).id();
                let at = rng.between(0, 23) as usize;
                let other = if text.as_bytes().get(at) == Some(&b'x') { "y" } else { "x" };
                text.replace_range(at..=at, other);
                Some(Presented { text, place: None })
            }
            9 => Some(Place { epoch: EPOCH - 1, ..place(oracle.sent) }.into()),
            10 => Some(Place { stream: 1_000, ..place(1) }.into()),
            _ => own.map(Presented::from),
        }
    }

    /// The client's process is gone, or gives this connection up.
    pub fn drop_conn(&mut self, c: usize) {
        let conn = &mut self.conns[c];
        if conn.peer.decoder.in_mid_event() {
            self.coverage.mark("reset in mid-event");
        }
        conn.peer.dropped = true;
        conn.socket.drop_by_peer(&mut self.coverage);
        self.leave(c);
    }

    fn leave(&mut self, c: usize) {
        let client = &mut self.clients[self.conns[c].peer.client];
        if client.active == Some(c) {
            client.active = None;
        }
    }

    /// The client reads at most `max` bytes.
    pub fn read(&mut self, c: usize, max: u64) {
        let conn = &mut self.conns[c];
        let mut items = Vec::new();
        conn.peer.decoder.feed(conn.socket.read(max), &mut items);
        for item in items {
            self.handle_item(c, item);
        }
        if self.conns[c].socket.at_end() {
            self.conns[c].peer.dropped = true;
            self.leave(c);
        }
    }

    fn handle_item(&mut self, c: usize, item: Item) {
        match item {
            Item::Head { status } => self.handle_head(c, status),
            Item::Body(body) if self.conns[c].peer.status != 202 => self.handle_refused(c, &body),
            Item::Body(_) | Item::Comment => (),
            Item::Event { id, kind, data, .. } => self.handle_event(c, &id, &kind, &data),
            Item::End => {
                self.conns[c].peer.response = None;
                self.leave(c);
            }
        }
    }

    fn handle_head(&mut self, c: usize, status: u16) {
        let peer = &mut self.conns[c].peer;
        peer.status = status;
        if status != 200 {
            return;
        }
        let Some(request) = peer.asked.pop_front() else {
            violated("response", "a stream nobody asked for")
        };
        let named = request.cursor.as_ref().and_then(|presented| presented.place);
        peer.response = Some(Response {
            seen: named.map(|place| place.number),
            stream: named.map_or(request.stream, |place| place.stream),
            priming: true,
        });
    }

    fn handle_refused(&mut self, c: usize, body: &str) {
        let peer = &mut self.conns[c].peer;
        peer.asked.pop_front();
        let client = &mut self.clients[peer.client];
        if client.active != Some(c) {
            return;
        }
        client.active = None;
        match body.split_once(' ') {
            Some(("finished_seen", _)) => client.done = true,
            // It accepts the gap it was told of, and goes on behind it.
            Some(("truncated", resume_from)) => {
                client.last = cursor::read(client.session, resume_from);
                client.stream = client.last.map_or(client.stream, |place| place.stream);
            }
            _ => (),
        }
    }

    /// One whole event: it must be the next one of its stream, byte for byte.
    fn handle_event(&mut self, c: usize, id: &str, kind: &str, data: &str) {
        let peer = &mut self.conns[c].peer;
        let Some(response) = &mut peer.response else {
            violated("response", "an event outside of a stream")
        };
        if kind == "gap" {
            return;
        }
        let client = &mut self.clients[peer.client];
        let Some(place) = cursor::read(client.session, id) else {
            violated("invented", format!("an event with the id {id:?}"))
        };
        let Place { stream, number, .. } = place;
        same("stream", "the stream of an event", stream, response.stream);
        if response.priming {
            response.priming = false;
            same("priming", "its number", number, response.seen.unwrap_or(number));
        } else {
            let next = response.seen.unwrap_or_default() + 1;
            if number > next {
                violated("gap", format!("event {number} of stream {stream} follows {}", next - 1));
            }
            if number < next {
                violated("duplicate", format!("event {number} of stream {stream} once more"));
            }
            match self.streams[stream].oracle.event(number) {
                Some(event) if event.data == data => (),
                Some(_) => violated("payload", format!("event {number} has other bytes")),
                None => violated("invented", format!("event {number} of stream {stream}")),
            }
        }
        response.seen = Some(number);
        if client.active == Some(c) {
            client.stream = stream;
            client.history.push(place);
            client.last = Some(place);
        }
    }
}
