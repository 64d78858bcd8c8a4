//! Which steps are possible, and how one of them is chosen and taken.

use std::time::Duration;

use crate::connection::Role;
use crate::world::{Logical, World};

/// One step of the world; the number is that of a stream, a client or a connection.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Append(usize),
    Push(usize),
    Drain(usize),
    FinishStream(usize),
    Comment(usize),
    Tell(usize),
    TimeOut(usize),
    Relieve(usize),
    Commit,
    Spill(usize),
    AnswerRead(usize),
    Retire,
    Connect(usize),
    SecondGet(usize),
    Read(usize),
    Drop(usize),
    Serve(usize),
    FinishTakeOver(usize),
    CloseFenced(usize),
    AskStale(usize),
    Pump(usize),
    Complete(usize),
    Sweep(usize),
    EndResponse(usize),
    NoticeGone(usize),
    HandOff(usize),
    Report(usize),
    Take(usize),
    Deliver(usize),
    Ack(usize),
}

impl World {
    /// Takes one step, chosen by weight among those that are possible.
    pub fn step(&mut self) {
        let possible = self.possible();
        let total: u64 = possible.iter().map(|(weight, _)| weight).sum();
        let mut chosen = self.rngs.schedule.between(0, total.max(1) - 1);
        for (weight, step) in possible {
            if chosen < weight {
                self.take_step(step);
                return;
            }
            chosen -= weight;
        }
    }

    fn possible(&self) -> Vec<(u64, Step)> {
        let mut steps = Vec::with_capacity(64);
        for (s, logical) in self.streams.iter().enumerate() {
            if !logical.oracle.finished {
                steps.extend([(10, Step::Append(s)), (3, Step::Comment(s))]);
                if logical.oracle.tail() > 20 {
                    steps.push((2, Step::FinishStream(s)));
                }
            }
            steps.push((4, Step::Push(s)));
            if logical.off_core.is_rung() {
                steps.push((10, Step::Drain(s)));
            }
            steps.extend([(2, Step::Tell(s)), (1, Step::TimeOut(s)), (3, Step::Relieve(s))]);
        }
        for (k, client) in self.clients.iter().enumerate() {
            let step = match client.active {
                None => (30, Step::Connect(k)),
                Some(_) => (2, Step::SecondGet(k)),
            };
            steps.push(step);
        }
        steps.extend((0..self.reports.len().min(3)).map(|r| (5, Step::Report(r))));
        if self.journal.on {
            steps.extend([(25, Step::Commit), (1, Step::Retire)]);
            steps.extend((0..self.streams.len()).map(|s| (6, Step::Spill(s))));
            let readings = self.journal.readings.len().min(3);
            steps.extend((0..readings).map(|r| (20, Step::AnswerRead(r))));
        }
        for c in 0..self.conns.len() {
            self.possible_on(c, &mut steps);
        }
        steps
    }

    fn possible_on(&self, c: usize, steps: &mut Vec<(u64, Step)>) {
        let conn = &self.conns[c];
        let mut may = |possible: bool, weight: u64, step: Step| {
            if possible {
                steps.push((weight, step));
            }
        };
        if !conn.peer.dropped {
            // A connection that its client no longer follows is read now and then, and dropped.
            let active = self.clients[conn.peer.client].active == Some(c);
            let readable = conn.socket.readable() > 0 || conn.socket.at_end();
            may(readable, if active { 50 } else { 4 }, Step::Read(c));
            may(conn.socket.accepted() > 0, if active { 2 } else { 4 }, Step::Drop(c));
        }
        may(conn.socket.can_deliver(), 40, Step::Deliver(c));
        may(conn.socket.can_ack(), 20, Step::Ack(c));
        may(conn.socket.can_take(), 30, Step::Take(c));
        if conn.is_closed() {
            return;
        }
        may(conn.socket.can_complete(), 30, Step::Complete(c));
        may(conn.socket.peer_gone(), 12, Step::NoticeGone(c));
        match &conn.role {
            Role::Idle if !conn.inbox.is_empty() => may(true, 30, Step::Serve(c)),
            Role::Idle => may(conn.is_flushed(), 3, Step::HandOff(c)),
            Role::Taking { .. } => may(self.can_finish(c), 20, Step::FinishTakeOver(c)),
            Role::Streaming { ended, .. } => {
                may(self.can_pump(c), 40, Step::Pump(c));
                may(*ended && conn.is_flushed(), 20, Step::EndResponse(c));
                may(true, 12, Step::Sweep(c));
            }
            Role::Fenced { .. } => {
                may(true, 15, Step::CloseFenced(c));
                may(true, 3, Step::AskStale(c));
                may(true, 5, Step::Sweep(c));
            }
            Role::Closed => (),
        }
    }

    /// Takes `step`, then checks every stream.
    pub fn take_step(&mut self, step: Step) {
        let wait = self.rngs.schedule.skewed(200);
        self.clock.advance(Duration::from_millis(wait));
        self.trace.step(self.clock.elapsed(), step);
        let reach = self.shape.reach;
        match step {
            Step::Append(s) => {
                let count = self.rngs.producers.skewed(self.shape.burst);
                self.burst(s, count);
            }
            Step::Push(s) => {
                let count = self.rngs.producers.skewed(self.shape.burst);
                self.push(s, count);
            }
            Step::Drain(s) => self.drain(s),
            Step::FinishStream(s) => self.finish_stream(s),
            Step::Comment(s) => self.comment(s),
            Step::Tell(s) => self.tell(s),
            Step::TimeOut(s) => self.time_out(s),
            Step::Relieve(s) => self.relieve(s),
            Step::Connect(k) => self.come_back(k),
            Step::SecondGet(k) => {
                let cursor = self.choose_cursor(k);
                self.connect(k, cursor);
            }
            Step::Read(c) => {
                let max = self.rngs.clients.reach(reach);
                self.read(c, max);
            }
            Step::Drop(c) => self.drop_conn(c),
            Step::Serve(c) => self.serve(c),
            Step::FinishTakeOver(c) => self.finish(c),
            Step::CloseFenced(c) => self.close_fenced(c),
            Step::AskStale(c) => self.ask_stale(c),
            Step::Pump(c) => {
                let (chunks, max) = self.shape.batch(&mut self.rngs.network);
                self.pump(c, chunks, max);
            }
            Step::Complete(c) => self.conns[c].complete(&mut self.coverage),
            Step::Sweep(c) => {
                let later = self.rngs.network.once_in(3);
                self.sweep(c, later);
            }
            Step::EndResponse(c) => self.end_response(c),
            Step::NoticeGone(c) => self.notice_gone(c),
            Step::HandOff(c) => {
                self.coverage.mark("hand-off with carried counts");
                self.conns[c].hand_off();
            }
            Step::Report(r) => {
                let report = self.reports.remove(r);
                self.report(&report);
            }
            Step::Take(c) => {
                let max = self.rngs.network.reach(reach);
                self.conns[c].socket.take(max);
            }
            Step::Deliver(c) => {
                let max = self.rngs.network.reach(reach);
                self.conns[c].socket.deliver(max, &mut self.coverage);
            }
            Step::Ack(c) => {
                let max = self.rngs.network.reach(reach);
                self.conns[c].socket.ack(max);
            }
            _ => self.take_journal_step(step),
        }
        self.check();
    }

    /// Takes a step of the durable log.
    fn take_journal_step(&mut self, step: Step) {
        match step {
            Step::Commit => self.commit(false),
            Step::Spill(s) => self.spill(s),
            Step::AnswerRead(r) => self.answer_read(r),
            Step::Retire => self.retire(),
            _ => unreachable!("a step of something else"),
        }
    }

    /// A client without a stream asks for one.
    fn come_back(&mut self, k: usize) {
        if self.clients[k].done {
            // Its stream is over: it turns to the newest one of its session, or makes one.
            let session = self.clients[k].session;
            let open = |logical: &Logical| logical.session == session && !logical.oracle.finished;
            let newest = self.streams.iter().rposition(open);
            let stream = newest.unwrap_or_else(|| self.add_stream(session));
            let client = &mut self.clients[k];
            client.stream = stream;
            client.last = None;
            client.done = false;
        }
        let cursor = self.choose_cursor(k);
        self.connect(k, cursor);
    }
}
