//! The only randomness of the simulator: one splitmix64 stream for each concern, all of one seed.
//!
//! Separate streams keep a replay stable: a change to what the network draws does not change
//! what the producers do.

/// What a stream of random numbers is for.
#[derive(Clone, Copy)]
pub enum Concern {
    Shape = 1,
    Schedule,
    Network,
    Clients,
    Producers,
    Retention,
    Journal,
}

/// A splitmix64 generator.
pub struct Rng(u64);

impl Rng {
    /// The stream of `concern` under `seed`.
    pub fn new(seed: u64, concern: Concern) -> Self {
        let mut rng = Self(seed ^ (concern as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
        rng.next();
        rng
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True once in `of` on average.
    pub fn once_in(&mut self, of: u64) -> bool {
        self.next().is_multiple_of(of)
    }

    /// One of `choices`, none if there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        match choices.len() {
            0 => None,
            len => choices.get((self.next() % len as u64) as usize),
        }
    }

    /// A number up to `high` in which small ones are as likely as large ones.
    pub fn skewed(&mut self, high: u64) -> u64 {
        let bits = u64::from(high.max(1).ilog2()) + 1;
        let reach = self.between(0, bits);
        self.between(1, (1 << reach).min(high.max(1)))
    }

    /// All of `high` as often as less.
    pub fn reach(&mut self, high: u64) -> u64 {
        if self.once_in(2) { high } else { self.skewed(high) }
    }
}
