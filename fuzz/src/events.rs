//! Values of the events model in runs: an event, and a chunk of a posting.

use ropewalk_base::{put_bytes, put_varint};
use ropewalk_events::fuzzing::{event_value, posting_chunk};

use crate::script::Script;

pub(crate) fn value(data: &[u8]) {
    if let Some(event) = event_value(7, data) {
        assert_eq!(event.position.0, 7);
        assert!(event.event.data.len() + 16 < data.len(), "the payload lies within the value");
    }
}

/// An event with only a type, and one with all optional fields.
pub(crate) fn value_seeds() -> Vec<Vec<u8>> {
    let header = [[9_u8; 8], [1; 8]].concat();
    let full = [&b"\x01B\x02\x01t\x01u\x03"[..], &[0x11; 16], b"\x01\x01k\x01vdata"].concat();
    vec![[&header[..], b"\x01A\x00\x00"].concat(), [&header[..], &full].concat()]
}

/// The first position, then the chunk of a term called `term`.
pub(crate) fn chunk(data: &[u8]) {
    let mut script = Script(data);
    let first = script.u64();
    if let Some(positions) = posting_chunk(script.0, b"term", first) {
        assert!(positions.is_sorted(), "a posting ascends");
        assert!(positions.len() <= data.len(), "a chunk is no larger than its bytes");
    }
}

pub(crate) fn chunk_seeds() -> Vec<Vec<u8>> {
    let chunk = |first: u64, name: &[u8], gaps: &[u64]| {
        let mut out = first.to_le_bytes().to_vec();
        put_bytes(&mut out, name);
        put_varint(&mut out, gaps.len() as u64 + 1);
        gaps.iter().for_each(|gap| put_varint(&mut out, *gap));
        out
    };
    vec![
        chunk(5, b"term", &[1, 300, 7]),
        chunk(1, b"term", &[]),
        chunk(u64::MAX - 1, b"term", &[1]),
        chunk(1, b"other", &[2]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_decode() {
        assert!(value_seeds().iter().all(|seed| event_value(1, seed).is_some()));
        let decoded = |seed: &Vec<u8>| {
            let mut script = Script(seed);
            let first = script.u64();
            posting_chunk(script.0, b"term", first)
        };
        let chunks: Vec<_> = chunk_seeds().iter().map(decoded).collect();
        assert_eq!(
            chunks,
            [Some(vec![5, 6, 306, 313]), Some(vec![1]), Some(vec![u64::MAX - 1, u64::MAX]), None]
        );
    }
}
