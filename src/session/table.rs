//! Tables whose keys are ours: random session ids and dense counters.
//!
//! Only keys that we made ourselves are ever inserted, so a client cannot aim for collisions.

use std::collections::VecDeque;
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
}

/// A map for keys that are given out in ascending order: sorted, in one allocation that one entry
/// does not make larger than itself. Most sessions have one stream and one reader.
///
/// Adding the highest key and removing the lowest or the highest are O(1), finding is O(log n).
#[derive(Debug)]
pub struct Table<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Copy + Ord, V> Table<K, V> {
    fn find(&self, key: K) -> Result<usize, usize> {
        match self.0.back() {
            Some(&(last, _)) if last < key => Err(self.0.len()),
            Some(&(last, _)) if last == key => Ok(self.0.len() - 1),
            _ => self.0.binary_search_by_key(&key, |&(key, _)| key),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: K) -> Option<&V> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    /// Adds an entry, in the place of one of the same key.
    pub fn insert(&mut self, key: K, value: V) {
        if self.0.capacity() == 0 {
            self.0.reserve_exact(1);
        }
        match self.find(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let at = self.find(key).ok()?;
        self.0.remove(at).map(|(_, value)| value)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    /// Gives back the room of entries that are gone.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_entry_takes_no_more_room_than_itself() {
        let mut table = Table::default();
        table.insert(7_u32, 'a');
        assert_eq!(table.0.capacity(), 1);
        table.remove(7);
        table.shrink_to_fit();
        assert_eq!(table.0.capacity(), 0);
    }

    proptest! {
        #[test]
        fn a_table_is_an_ordered_map(
            steps in prop::collection::vec((0_u32..12, any::<bool>()), 0..100),
        ) {
            let (mut table, mut model) = (Table::default(), BTreeMap::new());
            for (value, (key, adds)) in steps.into_iter().enumerate() {
                if adds {
                    table.insert(key, value);
                    model.insert(key, value);
                } else {
                    prop_assert_eq!(table.remove(key), model.remove(&key));
                }
                prop_assert_eq!(table.get(key), model.get(&key));
                prop_assert_eq!(table.get_mut(key), model.get_mut(&key));
                prop_assert!(table.iter().eq(model.iter().map(|(key, value)| (*key, value))));
            }
        }
    }
}
