//! A hierarchical timing wheel: all deadlines of a shard behind one timer (G. Varghese, A. Lauck,
//! "Hashed and Hierarchical Timing Wheels", 1987).
//!
//! Pure: it takes `now` and returns keys. It is lazy: a deadline cannot be moved or removed. The
//! owner of the key knows the real deadline, and inserts the key again if it fires before that.
//!
//! Invariants: `elapsed` is the tick up to which everything has fired. An entry lies in the level
//! of the highest 6-bit digit in which its tick differs from `elapsed`, in the slot of that digit.
//! So all of a level's entries come before all of the next level's, each slot lies ahead of
//! `elapsed`, and the earliest entry is in the first occupied slot of the lowest level.

use std::fmt;
use std::time::{Duration, Instant};

use super::timer::TimerKey;

/// The resolution: a deadline fires up to this much late, and never early.
pub const TICK: Duration = Duration::from_millis(8);

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 6;
/// The last tick that the wheel can tell apart, 17 years after its start; later ones fire then.
const TICK_MAX: u64 = (1 << (DIGIT_BITS * LEVELS as u32)) - 1;

/// Deadlines with a key each: 16 bytes a deadline where the key has up to 8.
pub struct Wheel<K> {
    start: Instant,
    elapsed: u64,
    levels: Box<[Level<K>; LEVELS]>,
    /// Keys whose deadline had passed when they were inserted.
    due: Vec<K>,
    len: usize,
}

struct Level<K> {
    /// One bit for each slot that is not empty.
    occupied: u64,
    slots: [Vec<Entry<K>>; SLOTS],
}

struct Entry<K> {
    tick: u64,
    key: K,
}

const _: () = assert!(size_of::<Entry<TimerKey>>() == 16);

impl<K: Copy> Wheel<K> {
    /// An empty wheel; `start` is now. Deadlines before it count as passed.
    pub fn new(start: Instant) -> Self {
        let level = |_| Level { occupied: 0, slots: std::array::from_fn(|_| Vec::new()) };
        let levels = Box::new(std::array::from_fn(level));
        Self { start, elapsed: 0, levels, due: Vec::new(), len: 0 }
    }

    /// Deadlines that have not fired.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no deadline waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a deadline. The same key may wait more than once.
    pub fn insert(&mut self, deadline: Instant, key: K) {
        self.len += 1;
        let since = deadline.saturating_duration_since(self.start);
        let tick = since.as_nanos().div_ceil(TICK.as_nanos()).min(u128::from(TICK_MAX)) as u64;
        if tick <= self.elapsed {
            self.due.push(key);
        } else {
            self.place(Entry { tick, key });
        }
    }

    /// Gives every key to `fire` whose deadline is at or before `now`, rounded up to a [`TICK`];
    /// in no particular order. A `now` before an earlier one fires only what is due already.
    pub fn expire(&mut self, now: Instant, fire: &mut impl FnMut(K)) {
        self.len -= self.due.len();
        self.due.drain(..).for_each(&mut *fire);
        let since = now.saturating_duration_since(self.start);
        let target = (since.as_nanos() / TICK.as_nanos()).min(u128::from(TICK_MAX)) as u64;
        while let Some((level, slot)) = self.first() {
            let begin = self.begin(level, slot);
            if begin > target {
                break;
            }
            self.elapsed = begin;
            self.levels[level].occupied &= !(1 << slot);
            let mut entries = std::mem::take(&mut self.levels[level].slots[slot]);
            for entry in entries.drain(..) {
                if entry.tick <= begin {
                    self.len -= 1;
                    fire(entry.key);
                } else {
                    self.place(entry);
                }
            }
            // An entry goes down by at least one level, so the slot is still empty: it keeps its
            // allocation, unless a burst has made it large.
            if entries.capacity() <= SLOTS {
                self.levels[level].slots[slot] = entries;
            }
        }
        self.elapsed = self.elapsed.max(target);
    }

    /// When to call [`Wheel::expire`] next, not before `now`; `None` if the wheel is empty.
    ///
    /// Never later than the first deadline rounded up to a [`TICK`]. It may be earlier: then
    /// `expire` fires nothing but sorts finer, at most five times for one deadline.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        if !self.due.is_empty() {
            return Some(now);
        }
        let (level, slot) = self.first()?;
        let nanos = u128::from(self.begin(level, slot)) * TICK.as_nanos();
        // At most TICK_MAX ticks, which is 17 years and fits into 64 bits.
        Some(now.max(self.start + Duration::from_nanos(nanos as u64)))
    }

    fn place(&mut self, entry: Entry<K>) {
        let highest_bit = (u64::BITS - 1) - (entry.tick ^ self.elapsed).max(1).leading_zeros();
        let level = (highest_bit / DIGIT_BITS) as usize;
        let slot = digit(entry.tick, level);
        self.levels[level].occupied |= 1 << slot;
        self.levels[level].slots[slot].push(entry);
    }

    /// The first occupied slot, as level and index.
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        Some((level, self.levels[level].occupied.trailing_zeros() as usize))
    }

    /// The first tick of a slot.
    fn begin(&self, level: usize, slot: usize) -> u64 {
        let above = DIGIT_BITS * (level as u32 + 1);
        self.elapsed >> above << above | (slot as u64) << (DIGIT_BITS * level as u32)
    }
}

fn digit(tick: u64, level: usize) -> usize {
    (tick >> (DIGIT_BITS * level as u32)) as usize % SLOTS
}

impl<K> fmt::Debug for Wheel<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("len", &self.len)
            .field("elapsed", &self.elapsed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn fired<K: Copy>(wheel: &mut Wheel<K>, now: Instant) -> Vec<K> {
        let mut keys = Vec::new();
        wheel.expire(now, &mut |key| keys.push(key));
        keys
    }

    #[test]
    fn a_deadline_fires_at_its_tick_and_not_a_nanosecond_before() {
        let start = Instant::now();
        for days in [0, 1, 30, 365] {
            let mut wheel = Wheel::new(start);
            let deadline = start + Duration::from_hours(24 * days) + TICK * 3;
            wheel.insert(deadline, 'a');
            assert!(fired(&mut wheel, deadline - Duration::from_nanos(1)).is_empty());
            assert_eq!(wheel.next(start), Some(deadline));
            assert_eq!(fired(&mut wheel, deadline), ['a']);
            assert!(wheel.is_empty() && wheel.next(start).is_none());
        }
    }

    #[test]
    fn deadlines_in_the_past_and_beyond_the_horizon_are_taken() {
        let start = Instant::now() + Duration::from_secs(1);
        let mut wheel = Wheel::new(start);
        wheel.insert(start - Duration::from_millis(500), 'p');
        assert_eq!(wheel.next(start), Some(start));
        assert_eq!(fired(&mut wheel, start), ['p']);

        let century = Duration::from_hours(100 * 365 * 24);
        wheel.insert(start + century, 'c');
        assert!(fired(&mut wheel, start + century / 10).is_empty());
        assert_eq!(fired(&mut wheel, start + century), ['c']);
        wheel.insert(start + century, 'd');
        assert_eq!(fired(&mut wheel, start + century), ['d']);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Advance(u64),
        AdvanceToNext,
    }

    /// Microseconds of all magnitudes up to about a month.
    fn micros() -> impl Strategy<Value = u64> {
        (0_u32..42, any::<u64>()).prop_map(|(bits, value)| value % (1 << bits))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => micros().prop_map(Step::Insert),
            1 => micros().prop_map(Step::Advance),
            1 => Just(Step::AdvanceToNext),
        ]
    }

    proptest! {
        #[test]
        fn it_fires_what_a_sorted_map_fires_at_most_a_tick_late(
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let start = Instant::now();
            let mut now = start;
            let mut wheel = Wheel::new(start);
            let mut model: BTreeMap<u32, Instant> = BTreeMap::new();
            for (key, step) in (0_u32..).zip(steps) {
                match step {
                    Step::Insert(after) => {
                        let deadline = now + Duration::from_micros(after);
                        wheel.insert(deadline, key);
                        model.insert(key, deadline);
                    }
                    Step::Advance(by) => now += Duration::from_micros(by),
                    Step::AdvanceToNext => now = wheel.next(now).unwrap_or(now),
                }
                for key in fired(&mut wheel, now) {
                    let deadline = model.remove(&key).expect("fires once, only what was put in");
                    prop_assert!(deadline <= now, "early by {:?}", deadline - now);
                }
                let earliest = model.values().min();
                if let Some(earliest) = earliest {
                    prop_assert!(*earliest + TICK > now, "late by {:?}", now - *earliest);
                    prop_assert!(wheel.next(now).expect("not empty") < *earliest + TICK);
                }
                prop_assert_eq!(wheel.len(), model.len());
                prop_assert_eq!(wheel.next(now).is_none(), model.is_empty());
            }
        }

        #[test]
        fn following_next_reaches_a_deadline_in_few_steps(after in micros()) {
            let start = Instant::now();
            let mut wheel = Wheel::new(start);
            wheel.insert(start + Duration::from_micros(after), ());
            let mut now = start;
            for _ in 0..LEVELS {
                if let Some(next) = wheel.next(now) {
                    now = next;
                    fired(&mut wheel, now);
                }
            }
            prop_assert!(wheel.is_empty());
        }
    }
}
