//! Hashing for tables whose keys are ours: random session ids and dense counters.
//!
//! Only keys that we made ourselves are ever inserted, so a client cannot aim for collisions.

use std::hash::Hasher;

/// Passes an integer key through, spread over the word.
#[derive(Clone, Copy, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        self.write_u64(u64::from(key));
    }

    fn write_u64(&mut self, key: u64) {
        // Fibonacci hashing: the table takes its bits from both ends of the word.
        self.0 = (self.0.rotate_left(5) ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u128(&mut self, key: u128) {
        self.write_u64(key as u64 ^ (key >> 64) as u64);
    }
}
