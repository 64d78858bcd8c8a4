//! The byte count of one connection, from accept to close.
//!
//! The offsets of the acknowledgement map are only as right as this count, so it lives with the
//! connection, survives every response on it and travels with a hand-off to another shard.

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
    /// completed writes, a FIN counts one, and a failed reading may be anything: so it is
    /// clamped to what was written, and it never falls.
    pub fn handle_acked(&mut self, raw: u64) -> u64 {
        self.acked = self.acked.max(raw.min(self.written));
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
        assert_eq!(out.handle_acked(u64::MAX), 100, "a negative difference seen as u64");
        assert_eq!(out.handle_acked(40), 100, "never back");
        out.handle_written(1);
        let mut out = ConnOut::carried(out.written(), out.acked());
        assert_eq!(out.handle_acked(102), 101, "a FIN counts one");
    }
}
