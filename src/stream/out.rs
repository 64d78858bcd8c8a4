//! The byte count of one connection, from accept to close.
//!
//! The offsets of the acknowledgement map are only as right as this count, so it lives with the
//! connection, survives every response on it and travels with a hand-off to another shard.

use crate::limits::WRITE_BYTES_MAX;

/// How far the kernel's count may be ahead of the completed writes, bytes: more than any write of a
/// stream has, framing included. A larger write loses nothing, its bytes count once it completes.
const AHEAD_BYTES_MAX: u64 = 2 * WRITE_BYTES_MAX as u64;

/// Bytes written to and acknowledged on one TCP connection, both counted from accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnOut {
    written: u64,
    acked: u64,
}

impl ConnOut {
    /// The counts of a connection that arrives from another shard, as they travelled with it.
    pub fn carried(written: u64, acked: u64) -> Self {
        Self { written, acked }
    }

    /// Bytes the peer's TCP is known to have acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Bytes of completed writes: the offset of the next byte to be written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// A write of `length` bytes has completed (maybe not the whole buffer).
    pub fn handle_written(&mut self, length: u64) {
        self.written += length;
    }

    /// The kernel says that `raw` bytes were acknowledged (`tcpi_bytes_acked`); the answer is
    /// what may be believed. While a write is in flight the raw number may run ahead of the
    /// completed writes, and a FIN counts one: so it is clamped to what was written, and it never
    /// falls. What no write in flight can explain is no count at all (a failed reading, a
    /// difference below zero): it confirms nothing, where the clamp alone would confirm all.
    pub fn handle_acked(&mut self, raw: u64) -> u64 {
        if raw.saturating_sub(self.written) <= AHEAD_BYTES_MAX {
            self.acked = self.acked.max(raw.min(self.written));
        }
        self.acked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_clamped_and_monotone() {
        let mut out = ConnOut::default();
        out.handle_written(100);
        assert_eq!(out.handle_acked(40), 40);
        assert_eq!(out.handle_acked(170), 100, "a write in flight");
        assert_eq!(out.handle_acked(40), 100, "never back");
        out.handle_written(1);
        let mut out = ConnOut::carried(out.written(), out.acked());
        assert_eq!(out.handle_acked(102), 101, "a FIN counts one");
    }

    /// `written - outq` is below zero while a write is in flight. Seen as `u64` and only clamped,
    /// it confirmed every byte written, and a listener without a cursor lost what had not arrived.
    #[test]
    fn an_impossible_reading_confirms_nothing() {
        let mut out = ConnOut::default();
        out.handle_written(100);
        assert_eq!(out.handle_acked(40), 40);
        assert_eq!(out.handle_acked(60u64.wrapping_sub(130)), 40);
        assert_eq!(out.handle_acked(u64::MAX), 40);
        assert_eq!(out.handle_acked(41), 41);
    }
}
