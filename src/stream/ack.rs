//! The acknowledgement map: which bytes of a connection carry which bytes of the log.
//!
//! A run is one contiguous piece of the log inside one contiguous piece of the connection's byte
//! stream; heads, chunk framing, comments and earlier responses lie between runs. So a batch of a
//! thousand events costs one entry, and confirmation is exact to the event.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Run {
    /// Offset in the connection's byte stream, counted from accept.
    offset: u64,
    /// Position in the stream's log.
    position: u64,
    /// Bytes.
    length: u64,
}

/// Runs sent on the current connection and not yet acknowledged whole, oldest first.
#[derive(Default)]
pub struct AckMap {
    runs: VecDeque<Run>,
}

impl AckMap {
    /// Forgets everything: a new connection begins.
    pub fn clear(&mut self) {
        self.runs.clear();
    }

    /// `length` bytes from log position `position` on are handed over at connection offset
    /// `offset`.
    pub fn record(&mut self, offset: u64, position: u64, length: u64) {
        // Nothing may be written for it: what comes next can have an earlier offset.
        if length == 0 {
            return;
        }
        if let Some(last) = self.runs.back_mut() {
            assert!(offset >= last.offset + last.length, "a connection's bytes go in order");
            if offset == last.offset + last.length && position == last.position + last.length {
                last.length += length;
                return;
            }
        }
        self.runs.push_back(Run { offset, position, length });
    }

    /// The peer's TCP has acknowledged `acked` bytes of the connection: the log position up to
    /// which everything has arrived, if this says anything new.
    pub fn handle_acked(&mut self, acked: u64) -> Option<u64> {
        let mut reached = None;
        while let Some(front) = self.runs.front_mut() {
            if acked <= front.offset {
                break;
            }
            let arrived = (acked - front.offset).min(front.length);
            reached = Some(front.position + arrived);
            front.offset += arrived;
            front.position += arrived;
            front.length -= arrived;
            if front.length > 0 {
                break;
            }
            self.runs.pop_front();
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: a read of no bytes claimed the offset behind framing that was then not written, and
    /// the next read, at an earlier offset, panicked.
    #[test]
    fn nothing_handed_over_claims_no_offset() {
        let mut map = AckMap::default();
        map.record(107, 0, 0);
        map.record(100, 0, 10);
        map.record(120, 10, 0);
        map.record(110, 10, 10);
        assert_eq!(map.handle_acked(119), Some(19));
        assert_eq!(map.handle_acked(120), Some(20));
        assert!(map.runs.is_empty());
    }

    #[test]
    fn framing_between_runs_confirms_nothing() {
        let mut map = AckMap::default();
        map.record(100, 0, 10);
        map.record(120, 10, 10);
        assert_eq!(map.handle_acked(100), None);
        assert_eq!(map.handle_acked(104), Some(4));
        assert_eq!(map.handle_acked(119), Some(10));
        assert_eq!(map.handle_acked(119), None);
        assert_eq!(map.handle_acked(1_000_000), Some(20));
        assert_eq!(map.handle_acked(1_000_001), None);
    }
}
