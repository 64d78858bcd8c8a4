//! What must be true of one stream, from a plain `Vec` of what was appended to it.
//!
//! Nothing here asks the stream for its opinion: offsets come from the bytes that were put on the
//! connection ([`crate::decode`]), acknowledgements from the fake kernel, classes from both.

use std::collections::VecDeque;
use std::time::Instant;

use gapless::stream::resume::Class;
use gapless::stream::takeover::Lost;
use gapless::stream::{Attached, Generation, Place, Retention, Seq, Start, Stream};

use crate::check::{same, violated};
use crate::coverage::Coverage;
use crate::durable::Durable;
use crate::receipts::Waits;

/// Bytes of index that the stream charges for each event.
pub const INDEX_BYTES: u64 = 4;

/// One appended event.
pub struct Event {
    pub data: String,
    pub size: u64,
    pub at: Instant,
    /// Handed whole to a connection.
    pub handed: bool,
    /// The peer's TCP has acknowledged its last byte, on any connection.
    pub arrived: bool,
    /// Where it lies, and the write that put it there.
    pub place: Option<(Place, Seq)>,
}

impl Event {
    pub fn new(data: String, size: u64, at: Instant) -> Self {
        Self { data, size, at, handed: false, arrived: false, place: None }
    }
}

/// An event on the current connection that is not acknowledged.
struct Sent {
    number: u64,
    size: u64,
    end: u64,
}

#[derive(Default)]
pub struct Oracle {
    pub events: Vec<Event>,
    pub floor: u64,
    pub finished: bool,
    pub named: u64,
    pub sent_max: u64,
    pub sent: u64,
    /// The first event that is not confirmed.
    pub head: u64,
    pub generation: Generation,
    pub holder: Option<Generation>,
    pub waits: Waits,
    /// The tail when the reader attached: up to there it replays.
    replay_until: u64,
    unacked: VecDeque<Sent>,
    /// The write that a record of the end belongs to.
    pub finish: Option<Seq>,
    pub durable: Durable,
}

impl Oracle {
    pub fn new() -> Self {
        Self { floor: 1, head: 1, ..Self::default() }
    }

    pub fn tail(&self) -> u64 {
        self.events.len() as u64
    }

    pub fn event(&self, number: u64) -> Option<&Event> {
        self.events.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    pub fn event_mut(&mut self, number: u64) -> Option<&mut Event> {
        self.events.get_mut(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    pub fn attached(&self) -> Option<Generation> {
        self.holder.filter(|&holder| holder == self.generation)
    }

    pub fn is_replaying(&self) -> bool {
        self.attached().is_some() && self.sent < self.replay_until
    }

    /// What admission must say to a resume.
    pub fn admission(&self, start: Start) -> Result<(), Class> {
        match start {
            Start::Fresh => Ok(()),
            // The number before the floor is handed out with every announcement of a gap.
            Start::After(number) if number > self.sent_max.max(self.floor - 1) => Err(Class::Ahead),
            Start::After(number) if number < self.broken() => Err(Class::LogFailed),
            Start::After(number) if number + 1 < self.floor => Err(Class::Truncated),
            Start::After(number) if self.is_over() && number == self.tail() => {
                Err(Class::FinishedSeen)
            }
            Start::After(_) => Ok(()),
        }
    }

    /// What the last step of a take-over must say.
    pub fn outcome(&self, start: Start, generation: Generation) -> Result<Attached, Lost> {
        if generation != self.generation {
            return Err(Lost::Superseded);
        }
        if let (Start::After(number), Err(class)) = (start, self.admission(start)) {
            return Err(Lost::Refused(class, number));
        }
        let after = match start {
            Start::Fresh => (self.head - 1).max(self.floor - 1),
            Start::After(number) => number,
        };
        let class = match start {
            Start::Fresh => Class::Fresh,
            Start::After(_) if after == self.tail() => Class::NothingNew,
            Start::After(_) if self.head == after + 1 => Class::Aligned,
            Start::After(_) if self.head > after + 1 => Class::RingAhead,
            Start::After(_) => Class::RingBehind,
        };
        let gap = (after >= self.head).then_some((self.head, after));
        let gap = gap.filter(|_| start == Start::Fresh);
        Ok(Attached { generation, class, after, gap })
    }

    /// A connection has attached as [`Oracle::outcome`] said.
    pub fn handle_attached(&mut self, start: Start, at: &Attached) {
        self.check_committed(at.after);
        if let Start::After(number) = start {
            self.named = self.named.max(number);
        }
        self.head = at.after + 1;
        self.sent = at.after;
        self.sent_max = self.sent_max.max(at.after);
        self.holder = Some(at.generation);
        self.replay_until = self.tail();
        self.unacked.clear();
    }

    /// The current connection was given an event whose last byte is number `end` of its bytes.
    pub fn handle_handed(&mut self, number: u64, end: u64) {
        self.check_committed(number);
        self.sent = number;
        self.sent_max = self.sent_max.max(number);
        let Some(event) = self.event_mut(number) else {
            violated("invented", format!("event {number} was handed over and never appended"))
        };
        event.handed = true;
        let size = event.size;
        self.unacked.push_back(Sent { number, size, end });
    }

    /// The peer of `generation` has truly acknowledged `acked` bytes.
    pub fn handle_acked(&mut self, generation: Generation, acked: u64, coverage: &mut Coverage) {
        if self.attached() == Some(generation) {
            self.confirm(acked, coverage);
        }
    }

    /// The connection of `generation` is gone.
    pub fn handle_closed(&mut self, generation: Generation, acked: u64, coverage: &mut Coverage) {
        if self.holder == Some(generation) {
            self.confirm(acked, coverage);
            self.holder = None;
            self.waits.handle_detached(self.sent);
        }
    }

    fn confirm(&mut self, acked: u64, coverage: &mut Coverage) {
        while let Some(front) = self.unacked.front() {
            if front.end > acked {
                if acked + front.size > front.end {
                    coverage.mark("pair: acknowledgement in mid-event");
                }
                break;
            }
            let number = front.number;
            self.unacked.pop_front();
            self.head = self.head.max(number + 1);
            if let Some(event) = self.event_mut(number) {
                event.arrived = true;
            }
        }
    }

    /// The lowest floor that bytes and count allow.
    pub fn floor_needed(&self, keep: &Retention) -> u64 {
        let mut floor = self.floor.max((self.tail() + 1).saturating_sub(keep.events));
        let kept = self.events.get(floor as usize - 1..).unwrap_or_default();
        let mut bytes: u64 = kept.iter().map(|event| event.size + INDEX_BYTES).sum();
        for event in kept {
            if bytes <= keep.bytes {
                break;
            }
            bytes -= event.size + INDEX_BYTES;
            floor += 1;
        }
        floor.min(self.committed() + 1)
    }

    /// Checks what retention did: the floor is where bytes and count put it, or above that up to
    /// the first young event, and never passes an attached reader without its fence.
    pub fn handle_relieved(
        &mut self,
        now: Instant,
        keep: &Retention,
        cut: Option<Generation>,
        floor: u64,
    ) {
        let needed = self.floor_needed(keep);
        self.handle_cut(needed, cut);
        let young = |event: &Event| keep.age.is_none_or(|age| event.at + age >= now);
        let oldest_young = self.events.iter().position(young).map_or(self.tail(), |at| at as u64);
        let mut highest = needed.max(oldest_young + 1).min(self.committed() + 1);
        if self.attached().is_some() {
            highest = highest.min(self.head);
        }
        let lowest = needed.max(self.floor);
        if floor < lowest || floor > highest.max(lowest) {
            violated("floor", format!("{floor} is not in {lowest}..={highest}"));
        }
        self.rise(floor);
    }

    /// A reader is cut if, and only if, a floor at `floor` passes it.
    pub fn handle_cut(&mut self, floor: u64, cut: Option<Generation>) {
        let must_cut = self.attached().is_some() && floor > self.head;
        same("cut", "the reader that is cut", cut, self.holder.filter(|_| must_cut));
        if must_cut {
            self.generation += 1;
        }
    }

    /// Compares everything the stream says about itself.
    pub fn compare(&mut self, stream: &Stream) {
        same("log", "tail", stream.tail(), self.tail());
        same("log", "finished", stream.is_finished(), self.finished);
        same("floor", "floor", stream.floor(), self.floor);
        same("committed", "committed", stream.committed(), self.committed());
        same("committed", "whether the birth is", stream.is_open(), self.durable.is_open());
        same("broken", "what cannot be read", stream.broken(), self.broken());
        same("fence", "generation", stream.generation(), self.generation);
        same("fence", "the holder", stream.holder(), self.holder);
        same("fence", "the attached connection", stream.attached(), self.attached());
        same("named", "named", stream.named(), self.named);
        same("sent", "sent_max", stream.sent_max(), self.sent_max);
        same("sent", "sent", stream.sent(), self.sent);
        // Below the floor the log no longer knows where events end: less may be confirmed there.
        if self.head < self.floor && stream.confirmed() < self.head {
            self.head = stream.confirmed() + 1;
        }
        same("head", "the ring's head", stream.confirmed() + 1, self.head);
    }
}
