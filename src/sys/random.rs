//! Random bytes from the kernel (getrandom(2)), in batches: one call a kilobyte.

use std::fmt;
use std::io;

/// Bytes fetched at one time.
const BATCH_BYTES: usize = 1024;

/// A shard's own supply of random bytes, good for keys and ids.
pub struct Random {
    batch: Box<[u8; BATCH_BYTES]>,
    used: usize,
}

impl Random {
    /// Fetches the first batch; an error means that this system has no random source.
    pub fn new() -> io::Result<Self> {
        let mut batch = Box::new([0; BATCH_BYTES]);
        getrandom::fill(batch.as_mut_slice()).map_err(io::Error::other)?;
        Ok(Self { batch, used: 0 })
    }

    /// Fills `out`.
    ///
    /// # Panics
    /// If the kernel's source fails after it has worked in [`Random::new`], which Linux does not
    /// do; ids that can be guessed would be worse.
    pub fn fill(&mut self, out: &mut [u8]) {
        if out.len() > BATCH_BYTES - self.used {
            if out.len() > BATCH_BYTES / 2 {
                getrandom::fill(out).expect("the kernel's random source has worked before");
                return;
            }
            getrandom::fill(self.batch.as_mut_slice())
                .expect("the kernel's random source has worked before");
            self.used = 0;
        }
        let taken = &mut self.batch[self.used..self.used + out.len()];
        out.copy_from_slice(taken);
        // What has been given out is forgotten here, so that a later read of this memory tells
        // nothing about ids in use.
        taken.fill(0);
        self.used += out.len();
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_id_comes_twice_across_batches() {
        let mut random = Random::new().expect("a source");
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let mut id = [0; 16];
            random.fill(&mut id);
            assert_ne!(id, [0; 16]);
            assert!(seen.insert(id));
        }
    }

    #[test]
    fn any_length_is_filled_to_its_end() {
        let mut random = Random::new().expect("a source");
        random.fill(&mut []);
        for length in [1, 511, 512, 513, BATCH_BYTES, BATCH_BYTES + 1, 10_000] {
            // The last byte stays zero once in 256 times; not eight times in a row.
            let last_was_set = (0..8).any(|_| {
                let mut out = vec![0; length];
                random.fill(&mut out);
                out[length - 1] != 0
            });
            assert!(last_was_set, "{length}");
        }
    }
}
