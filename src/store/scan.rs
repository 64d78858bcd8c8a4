//! Reads a shard's segments into a [`Scanner`].

use std::fs::File;
use std::io::{self, Read};

use super::directory::SegmentFile;
use super::recovery::{Recovered, Scanner, Stop, Sure};

/// Bytes that are read at once.
const READ_BYTES: usize = 1024 * 1024;

/// A segment and its format, which this program does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignFormat {
    /// The segment's number.
    pub segment: u32,
    /// Its format.
    pub version: u16,
}

/// Reads a shard's log, again where the scanner asks for it; `read` hears of all bytes.
///
/// # Errors
/// The system's.
pub fn scan(
    segments: &[SegmentFile],
    scanner: impl Fn(Sure) -> Scanner,
    read: impl Fn(u64),
) -> io::Result<Result<Recovered, ForeignFormat>> {
    let mut bytes = vec![0; READ_BYTES];
    let mut sure = Sure::default();
    loop {
        let mut scanner = scanner(sure);
        for segment in segments {
            scanner.begin(segment.number);
            let mut file = File::open(&segment.path)?;
            loop {
                let length = file.read(&mut bytes)?;
                if length == 0 {
                    break;
                }
                scanner.feed(&bytes[..length]);
                read(length as u64);
            }
        }
        match scanner.finish() {
            Ok(recovered) => return Ok(Ok(recovered)),
            Err(Stop::Again { sure: more }) => sure = more,
            Err(Stop::Version { segment, version }) => {
                return Ok(Err(ForeignFormat { segment, version }));
            }
        }
    }
}
