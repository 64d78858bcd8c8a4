//! The durable log: how an event gets to the disk before it goes to a client, and comes back from
//! there after a restart.
//!
//! ```text
//! session.append ─▶ stream log (memory)     ─▶ ... waits for `committed` ... ─▶ socket
//!               └─▶ journal.append (a batch) ─▶ write ─▶ [fdatasync] ─▶ journal.committed
//! start: segments ─▶ recovery (sessions, where events lie) ─▶ sealed and synced ─▶ journal
//! ```
//!
//! Each shard has a log of its own: segments, numbered without a gap, in one folder; a record is of
//! one session, which its *slot* names. `docs/wal-format.md` draws every byte.
//!
//! ```text
//! DIR/lock                 held (flock) by the process that uses the directory; its number inside
//! DIR/meta                 what holds for all of it: `meta`; replaced whole, never changed
//! DIR/g<generation>/       one for each time that the number of shards was settled
//!     shard-<k>/           one for each shard
//!         0000000001.wal   segments
//!         spare-<n>        a file that is about to become a segment, or was one
//! ```
//!
//! Directories are 0700 and files 0600: what is inside resumes other people's streams.
//!
//! Invariants:
//! * An event is sent only when every byte of the log up to its end has been written, at
//!   [`Level::Power`](journal::Level::Power) when a sync that began after that has returned.
//! * A process never appends to a segment of an earlier process.
//! * What is not exactly a record of its segment is never an event: a bad place is the torn end of
//!   the log, or damage, and then the streams that it touches are refused.

pub mod body;
pub mod directory;
pub mod epoch;
#[cfg(test)]
mod fake_disk;
pub mod files;
pub mod journal;
pub mod meta;
pub mod record;
pub mod recovery;
pub mod rehome;
pub mod scan;
pub mod segment;
pub mod start;
mod threads;
pub mod tool;
pub mod wal;
