//! Decoders outside of the API, for the fuzz targets.

use crate::event::codec::{SequencedEvent, SequencedEventRef};
use crate::index::postings::read_chunk;

/// The value of an event as stored in runs.
pub fn event_value(position: u64, value: &[u8]) -> Option<SequencedEvent> {
    SequencedEventRef::from_stored(position, value).ok().map(|event| event.to_owned())
}

/// The positions of a posting chunk, if it decodes and belongs to `name`.
pub fn posting_chunk(value: &[u8], name: &[u8], first: u64) -> Option<Vec<u64>> {
    let mut positions = Vec::new();
    read_chunk(value, name, first, &mut positions).ok()?.then_some(positions)
}
