//! The steps of the server's tasks: requests, take-overs, writers, acknowledgements, ends.

use gapless::stream::resume::Class;
use gapless::stream::takeover::Lost;
use gapless::stream::{Attached, Start, Takeover, Transmit};

use crate::check::{same, violated};
use crate::connection::{CHUNK_HEAD_BYTES, Role, answer, chunk, stream_head};
use crate::cursor::{self, Place};
use crate::decode::Item;
use crate::world::{Late, Report, World};

/// Requests and take-overs.
impl World {
    /// The connection's task takes its next request.
    pub fn serve(&mut self, c: usize) {
        let Some(request) = self.conns[c].inbox.pop_front() else { return };
        if self.conns[c].streams_served == 0 && self.rngs.network.once_in(3) {
            // An earlier response on the connection: its bytes count, its offsets matter.
            self.conns[c].send(answer(202, "accepted"));
        }
        let target = match &request.cursor {
            None => Ok((request.stream, Start::Fresh)),
            Some(presented) => {
                let place = cursor::resolve(request.session, &presented.text, &self.streams);
                let right = cursor::expected(request.session, presented, &self.streams);
                same("cursor", "what an id names", place, right);
                place.map(|place| (place.stream, Start::After(place.number)))
            }
        };
        match target {
            Ok((stream, start)) => self.take_over(c, stream, start),
            Err(class) => {
                self.coverage.class(class);
                self.conns[c].send(answer(400, class.name()));
            }
        }
    }

    fn take_over(&mut self, c: usize, s: usize, start: Start) {
        let logical = &mut self.streams[s];
        let expected = logical.oracle.admission(start);
        let before = logical.observe();
        let takeover = match Takeover::begin(&mut logical.stream, start) {
            Ok(takeover) => takeover,
            Err(class) => {
                same("class", "a refused resume", Some(class), expected.err());
                same("refusal", "the stream after it", logical.observe(), before);
                if logical.oracle.attached().is_some() {
                    self.coverage.mark("pair: refused resume beside a healthy reader");
                }
                self.refuse(c, s, class);
                return;
            }
        };
        same("class", "an admitted resume", None, expected.err());
        same("fence", "what must be closed", takeover.must_close(), logical.oracle.holder);
        if logical.oracle.is_replaying() {
            self.coverage.mark("pair: take-over during replay");
        }
        if logical.taking > 0 {
            self.coverage.mark("pair: second GET during take-over");
        }
        if self.journal.readings.iter().any(|reading| reading.stream == s) {
            self.coverage.mark("pair: take-over during a read");
        }
        logical.taking += 1;
        logical.oracle.generation += 1;
        let (generation, old) = (logical.oracle.generation, logical.holder);
        if let Some(old) = old {
            self.fence(old);
        }
        self.conns[c].role = Role::Taking { stream: s, takeover, generation, start, old };
    }

    /// `shutdown(2)` on a connection that has lost its stream.
    pub fn fence(&mut self, c: usize) {
        let conn = &mut self.conns[c];
        if let Role::Streaming { stream, generation, .. } = conn.role {
            conn.socket.shutdown();
            conn.role = Role::Fenced { stream, generation };
        }
    }

    fn refuse(&mut self, c: usize, s: usize, class: Class) {
        self.coverage.class(class);
        let logical = &self.streams[s];
        let resume_from = Place::new(logical.session, s, logical.oracle.floor - 1).id();
        let status = if class == Class::FinishedSeen { 405 } else { 410 };
        self.conns[c].send(answer(status, &format!("{} {resume_from}", class.name())));
    }

    /// Whether the take-over's last step may run: the fenced connection is gone.
    pub fn can_finish(&self, c: usize) -> bool {
        match self.conns[c].role {
            Role::Taking { stream, old, .. } => {
                old.is_none_or(|old| self.streams[stream].holder != Some(old))
            }
            _ => false,
        }
    }

    /// The last step of a take-over.
    pub fn finish(&mut self, c: usize) {
        let role = std::mem::replace(&mut self.conns[c].role, Role::Idle);
        let Role::Taking { stream: s, takeover, generation, start, .. } = role else { return };
        let logical = &mut self.streams[s];
        logical.taking -= 1;
        let expected = logical.oracle.outcome(start, generation);
        let outcome = takeover.finish(&mut logical.stream);
        self.trace.note(format!("{start:?} -> {outcome:?}"));
        match (&outcome, &expected) {
            (Ok(_), Err(Lost::Superseded)) => violated("superseded", "an older take-over won"),
            (Ok(at), Ok(right)) if start == Start::Fresh => {
                same("position", "a listener without cursor begins", at, right);
            }
            _ => same("class", "a take-over's outcome", &outcome, &expected),
        }
        match outcome {
            Ok(at) => self.attached(c, s, start, &at),
            Err(Lost::Superseded) => {
                self.coverage.mark("superseded");
                self.conns[c].send(answer(409, "superseded"));
            }
            Err(Lost::Refused(class, _)) => {
                self.coverage.mark("refused after the fence");
                self.refuse(c, s, class);
            }
        }
    }

    fn attached(&mut self, c: usize, s: usize, start: Start, at: &Attached) {
        let (conn, logical) = (&mut self.conns[c], &mut self.streams[s]);
        logical.oracle.handle_attached(start, at);
        logical.holder = Some(c);
        self.coverage.class(at.class);
        if at.gap.is_some() {
            self.coverage.mark("gap announced");
        }
        if conn.handed_off {
            self.coverage.mark("stream response after a hand-off");
        }
        if conn.streams_served > 0 {
            self.coverage.mark("second stream response on one connection");
        }
        conn.streams_served += 1;
        conn.role = Role::Streaming { stream: s, generation: at.generation, ended: false };
        conn.send(stream_head(&Place::new(logical.session, s, at.after).id(), at.gap));
    }
}

/// Writers.
impl World {
    /// Whether the connection's writer may ask for more.
    pub fn can_pump(&self, c: usize) -> bool {
        let conn = &self.conns[c];
        let streaming = matches!(conn.role, Role::Streaming { ended: false, .. });
        streaming && conn.is_flushed() && !conn.socket.peer_gone()
    }

    /// The writer asks for one batch of a few chunks and submits it.
    pub fn pump(&mut self, c: usize, chunks: u64, max: u64) {
        let Role::Streaming { stream: s, generation, .. } = self.conns[c].role else { return };
        let (mut batch, mut data) = (Vec::new(), Vec::new());
        let (mut asked, mut broken) = (None, false);
        let (conn, logical) = (&mut self.conns[c], &mut self.streams[s]);
        if logical.stream.poll_comments(generation, &mut data) {
            chunk(&data, &mut batch);
            self.coverage.mark("comment sent");
        }
        for _ in 0..chunks {
            data.clear();
            let offset = conn.out.written() + batch.len() as u64 + CHUNK_HEAD_BYTES;
            match logical.stream.poll_transmit(generation, offset, max as usize, &mut data) {
                Transmit::Data(length) => {
                    same("transmit", "the length", length, data.len());
                    same("transmit", "whether it is empty", data.is_empty(), false);
                    chunk(&data, &mut batch);
                }
                Transmit::Idle => break,
                Transmit::RingFull => {
                    self.coverage.mark("ring full");
                    break;
                }
                Transmit::Finished => {
                    batch.extend_from_slice(b"0\r\n\r\n");
                    conn.role = Role::Streaming { stream: s, generation, ended: true };
                    break;
                }
                Transmit::Stale => violated("stale", "the current connection is called stale"),
                Transmit::Load(load) => {
                    asked = Some(*load);
                    break;
                }
                Transmit::Broken => {
                    broken = true;
                    batch.extend_from_slice(b"0\r\n\r\n");
                    conn.role = Role::Streaming { stream: s, generation, ended: true };
                    break;
                }
            }
        }
        for item in conn.send(batch) {
            let Item::Event { data, end, .. } = item else { continue };
            match data.split('/').nth(1).map(str::parse) {
                Some(Ok(number)) => logical.oracle.handle_handed(number, end),
                _ => violated("payload", "bytes that were never appended"),
            }
        }
        logical.oracle.check_handed(conn.tap.in_mid_event());
        if broken {
            self.coverage.mark("told that it is broken");
            logical.oracle.check_broken();
        }
        if let Some(load) = asked {
            self.ask(s, c, load);
        }
    }

    /// A fenced writer that has not noticed yet asks for more: it must get nothing.
    pub fn ask_stale(&mut self, c: usize) {
        let Role::Fenced { stream: s, generation } = self.conns[c].role else { return };
        let mut data = Vec::new();
        let offset = self.conns[c].out.written();
        let stream = &mut self.streams[s].stream;
        let answer = stream.poll_transmit(generation, offset, 1024, &mut data);
        same("stale", "the answer to a fenced writer", answer, Transmit::Stale);
        same("stale", "a fenced writer's bytes", data.len(), 0);
        self.coverage.mark("old writer asks again");
    }
}

/// Acknowledgements and ends.
impl World {
    /// The connection's acknowledgements are read, and reported now or some time later.
    pub fn sweep(&mut self, c: usize, later: bool) {
        let (stream, generation) = match self.conns[c].role {
            Role::Streaming { stream, generation, .. } => (stream, generation),
            Role::Fenced { stream, generation } => (stream, generation),
            _ => return,
        };
        let acked = self.conns[c].read_acked(&mut self.rngs.network, &mut self.coverage);
        let truth = self.conns[c].truth;
        let report = Report { late: Late::Acked, stream, generation, acked, truth };
        if later { self.reports.push(report) } else { self.report(&report) }
    }

    /// A report reaches its stream.
    pub fn report(&mut self, report: &Report) {
        let Report { stream, generation, acked, truth, .. } = *report;
        let logical = &mut self.streams[stream];
        let late = logical.oracle.holder != Some(generation);
        match report.late {
            Late::Acked => {
                if late {
                    self.coverage.mark("late acknowledgement of an old generation");
                }
                logical.stream.handle_acked(generation, acked);
                logical.oracle.handle_acked(generation, truth, &mut self.coverage);
            }
            Late::Closed => {
                if late {
                    self.coverage.mark("late end of an old generation");
                }
                logical.stream.handle_closed(generation, acked);
                logical.oracle.handle_closed(generation, truth, &mut self.coverage);
            }
        }
    }

    /// The connection's claim on its stream ends, however: its writer has returned, its
    /// acknowledgements are read for the last time.
    fn release(&mut self, c: usize, stream: usize, generation: u32) {
        self.conns[c].complete(&mut self.coverage);
        let acked = self.conns[c].read_acked(&mut self.rngs.network, &mut self.coverage);
        let truth = self.conns[c].truth;
        let report = Report { late: Late::Closed, stream, generation, acked, truth };
        self.report(&report);
        if self.rngs.network.once_in(4) {
            self.reports.push(report);
        }
        if self.streams[stream].holder == Some(c) {
            self.streams[stream].holder = None;
        }
    }

    /// The writer of a fenced connection returns and its socket is closed with linger 0.
    pub fn close_fenced(&mut self, c: usize) {
        let Role::Fenced { stream, generation } = self.conns[c].role else { return };
        self.release(c, stream, generation);
        self.close(c);
    }

    /// A finished response is over; the connection waits for its next request.
    pub fn end_response(&mut self, c: usize) {
        let Role::Streaming { stream, generation, ended: true } = self.conns[c].role else {
            return;
        };
        self.release(c, stream, generation);
        self.conns[c].role = Role::Idle;
    }

    /// The connection's task notices that its peer is gone.
    pub fn notice_gone(&mut self, c: usize) {
        match self.conns[c].role {
            Role::Streaming { stream, generation, .. } => self.release(c, stream, generation),
            Role::Taking { stream, .. } => self.streams[stream].taking -= 1,
            Role::Idle => (),
            Role::Fenced { .. } | Role::Closed => return,
        }
        self.close(c);
    }

    fn close(&mut self, c: usize) {
        let conn = &mut self.conns[c];
        conn.role = Role::Closed;
        conn.complete(&mut self.coverage);
        conn.socket.close(&mut self.coverage);
    }
}
