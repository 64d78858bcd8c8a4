//! The end of a run: the faults stop, every client comes back once more and must get everything.

use gapless::limits::WRITE_BYTES_MAX;

use crate::check::{same, violated};
use crate::connection::Role;
use crate::cursor::Presented;
use crate::world::World;

/// Rounds in which a calm world has to bring one client up to date.
const ROUNDS_MAX: u64 = 20_000;

impl World {
    /// Brings every client up to date, one after the other, with live events on the way.
    pub fn settle(&mut self) {
        self.shape.keep.bytes = u64::MAX;
        self.shape.keep.events = u64::MAX;
        self.shape.keep.age = None;
        self.journal.damages = false;
        for c in 0..self.conns.len() {
            if !self.conns[c].peer.dropped {
                self.drop_conn(c);
            }
        }
        for s in 0..self.streams.len() {
            if self.streams[s].off_core.is_rung() {
                self.drain(s);
            }
            self.streams[s].off_core.check_drained();
        }
        for k in 0..self.clients.len() {
            self.settle_client(k);
        }
        for logical in &mut self.streams {
            logical.stream.handle_ended();
            logical.oracle.waits.handle_ended();
        }
        self.check();
    }

    fn settle_client(&mut self, k: usize) {
        self.clients[k].done = false;
        for round in 0..ROUNDS_MAX {
            let s = self.clients[k].stream;
            if self.clients[k].active.is_none() && !self.clients[k].done {
                let cursor = self.clients[k].last.map(Presented::from);
                self.connect(k, cursor);
            }
            if round == 3 && !self.streams[s].oracle.finished {
                self.burst(s, 2);
            }
            (0..self.conns.len()).for_each(|c| self.calm_step(c));
            self.settle_journal();
            self.check();
            let client = &self.clients[k];
            let tail = self.streams[client.stream].oracle.tail();
            if round > 3 && (client.done || (client.active.is_some() && client.seen() == tail)) {
                same("settled", "the last event of a client", client.seen(), tail);
                return;
            }
        }
        let client = &self.clients[k];
        let tail = self.streams[client.stream].oracle.tail();
        let (s, seen) = (client.stream, client.seen());
        violated("settled", format!("client {k} of stream {s} is stuck at {seen} of {tail}"));
    }

    /// All that may happen on a connection happens, at full reach.
    pub fn calm_step(&mut self, c: usize) {
        if self.conns[c].socket.peer_gone() {
            self.notice_gone(c);
            self.close_fenced(c);
        }
        match self.conns[c].role {
            Role::Idle => self.serve(c),
            Role::Taking { .. } if self.can_finish(c) => self.finish(c),
            Role::Fenced { .. } => self.close_fenced(c),
            Role::Streaming { ended: true, .. } if self.conns[c].is_flushed() => {
                self.end_response(c);
            }
            _ => (),
        }
        if self.can_pump(c) {
            // More than the ring holds, where there is so much: it fills up even in a calm world.
            self.pump(c, 100, WRITE_BYTES_MAX as u64);
        }
        let conn = &mut self.conns[c];
        if conn.is_closed() && conn.peer.dropped {
            return;
        }
        conn.socket.take(u64::MAX);
        conn.complete(&mut self.coverage);
        conn.socket.deliver(u64::MAX, &mut self.coverage);
        conn.socket.ack(u64::MAX);
        self.read(c, u64::MAX);
        self.sweep(c, false);
    }
}
