//! The steps of the producers, and of retention.

use std::time::Duration;

use gapless::stream::receipt::Stage;

use crate::check::same;
use crate::cursor::Place;
use crate::oracle::Event;
use crate::world::World;

impl World {
    /// A burst of events of the owning core, whether or not anybody is connected.
    pub fn burst(&mut self, s: usize, count: u64) {
        for _ in 0..count {
            let payload = self.payload();
            self.append(s, &payload);
        }
    }

    pub fn payload(&mut self) -> String {
        let length = self.rngs.producers.skewed(self.shape.event_bytes) as usize;
        let letter = char::from(b'a' + self.rngs.producers.between(0, 25) as u8);
        std::iter::repeat_n(letter, length).collect()
    }

    /// Logs one event, then keeps the stream inside of its budget.
    pub fn append(&mut self, s: usize, payload: &str) {
        let logical = &mut self.streams[s];
        let number = logical.oracle.tail() + 1;
        let data = format!("{s}/{number}/{payload}");
        let id = Place::new(logical.session, s, number).id();
        let encoded = format!("id: {id}\ndata: {data}\n\n");
        let size = encoded.len() as u64;
        let short = payload.len().is_multiple_of(5);
        let hint = if short { encoded.len() / 2 } else { encoded.len() };
        let now = self.clock.now();
        let given = logical.stream.append(now, hint, |given, out| {
            same("log", "the number of an event", given, number);
            out.extend_from_slice(encoded.as_bytes());
        });
        same("log", "the number of an accepted event", given, number);
        logical.oracle.events.push(Event::new(data, size, now));
        self.log(s);
        let logical = &mut self.streams[s];
        if logical.stream.over_budget(&self.shape.keep) {
            if let (Some(c), true) = (logical.holder, self.rngs.retention.once_in(2)) {
                self.sweep(c, false);
            }
            self.relieve(s);
        }
    }

    pub fn finish_stream(&mut self, s: usize) {
        self.close_off_core(s);
        let logical = &mut self.streams[s];
        if logical.oracle.holder.is_none() {
            self.coverage.mark("pair: finish while detached");
        }
        logical.stream.finish();
        logical.oracle.finished = true;
        // The last event says so itself, or a record of its own does.
        if self.journal.on && self.journal.rng.once_in(2) {
            logical.stream.handle_finish_logged(self.journal.seq);
            logical.oracle.finish = Some(self.journal.seq);
        }
    }

    pub fn comment(&mut self, s: usize) {
        self.streams[s].stream.comment(64, |out| out.extend_from_slice(b": still here\n\n"));
    }

    /// A producer asks to be told about one of its events, an old one too.
    pub fn tell(&mut self, s: usize) {
        let stages = [Stage::Logged, Stage::Sent, Stage::Confirmed, Stage::Named];
        let rng = &mut self.rngs.producers;
        let logical = &mut self.streams[s];
        let tail = logical.oracle.tail();
        let back = rng.skewed(8) - 1;
        let number = tail.saturating_sub(back);
        if let (Some(&stage), 1..) = (rng.pick(&stages), number) {
            let deadline = self.clock.now() + Duration::from_millis(rng.skewed(100_000));
            self.tickets += 1;
            logical.oracle.waits.add(self.tickets, number, stage, deadline);
            logical.stream.tell(self.tickets, number, stage, deadline);
        }
    }

    pub fn time_out(&mut self, s: usize) {
        let now = self.clock.now();
        let logical = &mut self.streams[s];
        logical.stream.handle_timeout(now);
        logical.oracle.waits.handle_timeout(now);
    }

    /// Retention.
    pub fn relieve(&mut self, s: usize) {
        let now = self.clock.now();
        let keep = self.shape.keep;
        let logical = &mut self.streams[s];
        let (before, needed) = (logical.oracle.floor, logical.oracle.floor_needed(&keep));
        let replaying = logical.oracle.is_replaying();
        let cut = logical.stream.relieve(now, &keep);
        let floor = logical.stream.floor();
        logical.oracle.handle_relieved(now, &keep, cut, floor);
        if replaying && floor > before {
            self.coverage.mark("pair: retention during replay");
        }
        if floor > needed {
            self.coverage.mark("trimmed by age");
        }
        if cut.is_some() {
            self.coverage.mark("reader cut");
            if let Some(c) = logical.holder {
                self.fence(c);
            }
        }
    }
}
