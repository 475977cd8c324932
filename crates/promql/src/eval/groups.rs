//! Which group a series belongs to, by some of its labels: they are written side by side into one buffer and looked up by hash,
//! so that only a new group costs memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::data::labels::Labels;

/// The key is a hash already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Groups in the order in which they were met.
#[derive(Default)]
pub(super) struct Groups {
    places: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    labels: Vec<Labels>,
    key: String,
}

impl Groups {
    /// The number of the group of the labels for which `keep` says true, and its labels when it is new. Names behind `last` are
    /// not asked about.
    pub(super) fn place(
        &mut self,
        labels: &Labels,
        last: Option<&str>,
        keep: impl FnMut(&str) -> bool,
    ) -> (usize, Option<Labels>) {
        labels.key(&mut self.key, last, keep);
        let next = self.labels.len();
        let hash = ropewalk_base::hash64(self.key.as_bytes());
        let mut place = *self.places.entry(hash).or_insert(next);
        if self.labels.get(place).is_some_and(|group| !group.is(&self.key)) {
            // Two groups with one hash: rare enough for a search.
            place = self.labels.iter().position(|group| group.is(&self.key)).unwrap_or(next);
        }
        if place < next {
            return (place, None);
        }
        let group = Labels::from_key(&self.key);
        self.labels.push(group.clone());
        (next, Some(group))
    }
}
