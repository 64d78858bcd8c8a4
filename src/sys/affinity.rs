//! CPUs that this process may use, and pinning a thread to one (sched_setaffinity(2)).

use std::io;

use super::cvt;

/// Words of a CPU mask to begin with: 1024 CPUs.
const MASK_WORDS: usize = 1024 / WORD_BITS;
/// Words beyond which a kernel cannot be believed: half a million CPUs.
const MASK_WORDS_MAX: usize = MASK_WORDS * 512;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// The CPUs that the calling thread is allowed to run on, in ascending order, never empty.
///
/// A container's CPU set counts; a CPU quota does not show here.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let mut words = MASK_WORDS;
    loop {
        let mut mask: Vec<libc::c_ulong> = vec![0; words];
        // SAFETY: the pointer is to a live buffer of exactly the given size in bytes.
        let got = cvt(unsafe {
            libc::sched_getaffinity(0, size_of_val(mask.as_slice()), mask.as_mut_ptr().cast())
        });
        match got {
            Ok(_) => return Ok(bits(&mask)),
            // The kernel's mask is larger than ours.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && words < MASK_WORDS_MAX => {
                words *= 2;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Pins the calling thread to one CPU. EINVAL: the CPU does not exist or is not allowed.
pub fn pin(cpu: usize) -> io::Result<()> {
    let word = cpu / WORD_BITS;
    if word >= MASK_WORDS_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut mask: Vec<libc::c_ulong> = vec![0; MASK_WORDS.max(word + 1)];
    mask[word] = 1 << (cpu % WORD_BITS);
    // SAFETY: the pointer is to a live buffer of exactly the given size, which is only read.
    cvt(unsafe { libc::sched_setaffinity(0, size_of_val(mask.as_slice()), mask.as_ptr().cast()) })
        .map(drop)
}

fn bits(mask: &[libc::c_ulong]) -> Vec<usize> {
    (0..mask.len() * WORD_BITS)
        .filter(|cpu| mask[cpu / WORD_BITS] & (1 << (cpu % WORD_BITS)) != 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_pinned_to_each_allowed_cpu() {
        let cpus = allowed_cpus().expect("a mask");
        assert!(!cpus.is_empty());
        for cpu in cpus {
            std::thread::spawn(move || {
                pin(cpu).expect("pinned");
                assert_eq!(allowed_cpus().expect("a mask"), [cpu]);
            })
            .join()
            .expect("pinned");
        }
    }

    #[test]
    fn every_word_of_a_mask_counts() {
        assert_eq!(bits(&[1, 0, 1 << 63 | 2]), [0, 129, 191]);
        for cpu in [100_000, usize::MAX] {
            assert_eq!(pin(cpu).expect_err("no such CPU").raw_os_error(), Some(libc::EINVAL));
        }
    }
}
