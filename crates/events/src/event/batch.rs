//! Events copied out of their store in stored form: two allocations for any number of them.

use crate::event::codec::SequencedEventRef;

/// Owned events in the order of insertion, to be passed to other threads and read in place there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventBatch {
    /// Stored events, back to back.
    bytes: Vec<u8>,
    /// Position of each and where it ends in `bytes`.
    ends: Vec<(u64, usize)>,
}

impl EventBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a copy of `event`.
    pub fn push(&mut self, event: &SequencedEventRef<'_>) {
        self.bytes.extend_from_slice(event.value());
        self.ends.push((event.position.0, self.bytes.len()));
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without events.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of the events as they are stored.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The event at `index`, read in place.
    pub fn get(&self, index: usize) -> Option<SequencedEventRef<'_>> {
        let (position, end) = *self.ends.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |(_, end)| *end);
        let event = SequencedEventRef::from_stored(position, self.bytes.get(start..end)?);
        Some(event.expect("pushed bytes are those of a decoded event"))
    }

    /// The events, read in place.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = SequencedEventRef<'_>> + ExactSizeIterator {
        (0..self.ends.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// Releases unused capacity.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}
