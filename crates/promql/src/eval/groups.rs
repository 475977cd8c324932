//! Grouping of series by some of their labels: the key is written to one buffer and looked up by hash, so
//! that only a new group allocates.

use ropewalk_base::HashedMap;
use ropewalk_labels::{Labels, LabelsRef};

/// Groups in order of their first series.
#[derive(Default)]
pub(super) struct Groups {
    places: HashedMap<u64, usize>,
    labels: Vec<Labels>,
    key: Vec<u8>,
}

impl Groups {
    /// The number of the group of the labels for which `keep` returns true, and its labels when it is new.
    /// `keep` is not called for names after `last`.
    pub(super) fn place(
        &mut self,
        labels: &Labels,
        last: Option<&str>,
        keep: impl FnMut(&[u8]) -> bool,
    ) -> (usize, Option<Labels>) {
        labels.write_key(&mut self.key, last, keep);
        let next = self.labels.len();
        let hash = ropewalk_base::hash64(&self.key);
        let mut place = *self.places.entry(hash).or_insert(next);
        if self.labels.get(place).is_some_and(|group| group.as_bytes() != self.key) {
            // Two groups with the same hash are rare: search them linearly.
            place = self.labels.iter().position(|group| group.as_bytes() == self.key).unwrap_or(next);
        }
        if place < next {
            return (place, None);
        }
        let group = LabelsRef::new(&self.key).to_owned();
        self.labels.push(group.clone());
        (next, Some(group))
    }
}
