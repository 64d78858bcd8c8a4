//! A fake TCP connection with both kernels, seen from the server's and from the client's process.
//!
//! `read <= delivered <= accepted`, `acked <= delivered`: bytes are *accepted* by the server's
//! kernel, *delivered* to the client's kernel, *read* by the client's process, and *acked* as far
//! as the server's kernel has heard. The gaps between the four are where streams lose events.

use crate::coverage::Coverage;
use crate::rng::Rng;

struct Write {
    buffer: Vec<u8>,
    taken: usize,
}

/// What a completed write came to.
pub struct Completion {
    /// Bytes the kernel took.
    pub length: u64,
    /// What it did not take.
    pub rest: Vec<u8>,
}

/// One reading of the acknowledged byte count.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// What the server's process is told.
    pub raw: u64,
    /// What it may conclude: acknowledged and known to be written. None: the reading is garbage.
    pub truth: Option<u64>,
}

pub struct Socket {
    bytes: Vec<u8>,
    write: Option<Write>,
    completed: u64,
    delivered: u64,
    acked: u64,
    read: u64,
    send_buffer: u64,
    window: u64,
    shut: bool,
    closed: bool,
    peer_gone: bool,
    /// Readings of this connection are sometimes garbage.
    lies: bool,
}

/// The server's process.
impl Socket {
    pub fn new(send_buffer: u64, window: u64, lies: bool) -> Self {
        Self {
            bytes: Vec::new(),
            write: None,
            completed: 0,
            delivered: 0,
            acked: 0,
            read: 0,
            send_buffer,
            window,
            shut: false,
            closed: false,
            peer_gone: false,
            lies,
        }
    }

    pub fn submit(&mut self, buffer: Vec<u8>) {
        assert!(self.write.is_none(), "one write at a time");
        self.write = Some(Write { buffer, taken: 0 });
    }

    pub fn is_writing(&self) -> bool {
        self.write.is_some()
    }

    /// Whether the write in flight may return now.
    pub fn can_complete(&self) -> bool {
        self.write.as_ref().is_some_and(|write| write.taken > 0) || self.write_fails()
    }

    fn write_fails(&self) -> bool {
        self.write.is_some() && (self.shut || self.peer_gone)
    }

    /// The write in flight returns.
    pub fn complete(&mut self, coverage: &mut Coverage) -> Option<Completion> {
        let mut write = self.write.take()?;
        let rest = write.buffer.split_off(write.taken);
        self.completed += write.taken as u64;
        if !rest.is_empty() {
            coverage.mark("partial write");
        }
        Some(Completion { length: write.taken as u64, rest })
    }

    /// `shutdown(2)`: nothing more is taken, but what is queued still arrives.
    pub fn shutdown(&mut self) {
        self.shut = true;
    }

    /// Closes with linger 0: what has not arrived never will.
    pub fn close(&mut self, coverage: &mut Coverage) {
        assert!(self.write.is_none(), "the writer returns before its socket is closed");
        if self.accepted() > self.delivered {
            coverage.mark("linger-0 close drops queued bytes");
        }
        self.bytes.truncate(self.delivered as usize);
        self.closed = true;
    }

    pub fn peer_gone(&self) -> bool {
        self.peer_gone
    }

    /// Reads the acknowledged byte count, which may lie in every way that was seen on Linux.
    pub fn reading(&self, rng: &mut Rng, coverage: &mut Coverage) -> Reading {
        let honest = |raw: u64| Reading { raw, truth: Some(raw.min(self.completed)) };
        if self.lies && rng.once_in(12) {
            let queued = self.accepted() - self.acked;
            let raw = self.completed.wrapping_sub(queued);
            if raw > self.accepted() {
                coverage.mark("garbage: written - outq below zero");
                return Reading { raw, truth: None };
            }
            coverage.mark("garbage: failed reading");
            return Reading { raw: if rng.once_in(2) { 0 } else { u64::MAX }, truth: None };
        }
        if self.acked > self.completed {
            coverage.mark("acknowledged ahead of the completed write");
        }
        if self.delivered > self.acked {
            coverage.mark("lagging acknowledgement");
        }
        if self.shut && self.write.is_none() && self.acked == self.accepted() {
            coverage.mark("FIN counts one");
            return honest(self.acked + 1);
        }
        honest(self.acked)
    }
}

/// The two kernels and the wire.
impl Socket {
    pub fn accepted(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub fn can_take(&self) -> bool {
        let queued = self.accepted() - self.acked;
        let rest = self.write.as_ref().is_some_and(|write| write.taken < write.buffer.len());
        rest && !self.shut && !self.peer_gone && queued < self.send_buffer
    }

    /// The server's kernel takes at most `max` bytes of the write in flight.
    pub fn take(&mut self, max: u64) {
        if !self.can_take() {
            return;
        }
        let room = self.send_buffer - (self.accepted() - self.acked);
        let Some(write) = &mut self.write else { return };
        let rest = write.buffer.get(write.taken..).unwrap_or_default();
        let taken = rest.len().min(max.min(room) as usize);
        self.bytes.extend_from_slice(rest.get(..taken).unwrap_or_default());
        write.taken += taken;
    }

    pub fn can_deliver(&self) -> bool {
        self.accepted() > self.delivered && !self.peer_gone && !self.closed
    }

    /// At most `max` bytes arrive in the client's kernel.
    pub fn deliver(&mut self, max: u64, coverage: &mut Coverage) {
        let room = self.window - (self.delivered - self.read);
        let arriving = (self.accepted() - self.delivered).min(max);
        if arriving > 0 && room == 0 {
            coverage.mark("stalled at the receive window");
        }
        if arriving.min(room) > 0 && self.shut {
            coverage.mark("queued bytes arrive after shutdown");
        }
        self.delivered += arriving.min(room);
    }

    pub fn can_ack(&self) -> bool {
        self.delivered > self.acked && !self.closed
    }

    /// The server's kernel hears of at most `max` more acknowledged bytes.
    pub fn ack(&mut self, max: u64) {
        self.acked += (self.delivered - self.acked).min(max);
    }
}

/// The client's process.
impl Socket {
    pub fn readable(&self) -> u64 {
        self.delivered - self.read
    }

    /// Whether the client has read everything that will ever come.
    pub fn at_end(&self) -> bool {
        self.closed && self.readable() == 0
    }

    pub fn read(&mut self, max: u64) -> &[u8] {
        let from = self.read as usize;
        self.read += self.readable().min(max);
        self.bytes.get(from..self.read as usize).unwrap_or_default()
    }

    /// The client's process is gone: what it has not read is lost, acknowledged or not.
    pub fn drop_by_peer(&mut self, coverage: &mut Coverage) {
        if self.readable() > 0 && self.acked > self.read {
            coverage.mark("reset loses acknowledged bytes");
        }
        self.peer_gone = true;
        self.read = self.delivered;
    }
}
