//! What std does not offer of files: reserving space before it is written.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::cvt_retry;

/// Reserves `bytes` from the start of the file and makes it at least that long (fallocate(2)).
///
/// Errors: `StorageFull` where the file system has no room, and nothing stays reserved that a
/// truncation would not give back; `Unsupported` where it cannot reserve at all.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "longer than a file can be"))?;
    // SAFETY: fallocate takes no pointers; the descriptor is open.
    cvt_retry(|| unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn reserved_space_is_taken_before_anything_is_written() {
        let path = std::env::temp_dir().join(format!("gapless-reserve-{}", std::process::id()));
        let file = File::create(&path).expect("made");
        reserve(&file, 1 << 20).expect("reserved");
        let metadata = file.metadata().expect("known");
        assert_eq!(metadata.len(), 1 << 20);
        assert!(metadata.blocks() * 512 >= 1 << 20);
        let error = reserve(&file, u64::MAX).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        std::fs::remove_file(&path).expect("removed");
    }
}
