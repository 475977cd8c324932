//! Decoders that are not part of the API, for the fuzz targets.

use ropewalk_labels::Samples;

use crate::chunk::payload_chunk;
use crate::chunk::{ChunkEncoder, ChunkHead};
use crate::import;
use crate::retention::rules::Rules;
use crate::storage::section::{Body, Section, each_group};

/// Times and bits of a chunk.
pub fn chunk(bytes: &[u8], base: i64) -> Option<(Vec<i64>, Vec<u64>)> {
    let (mut times, mut bits) = (Vec::new(), Vec::new());
    let head = ChunkHead::decode(bytes, base).ok()?;
    head.samples(&mut times, &mut bits).ok()?;
    Some((times, bits))
}

/// A chunk as stored in files.
pub fn encode_chunk(base: i64, times: &[i64], bits: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    ChunkEncoder::default().encode(base, times, bits, &mut out);
    out
}

/// Times and payloads of a chunk with payloads.
pub fn rich_chunk(bytes: &[u8], base: i64) -> Option<Vec<(i64, Vec<u8>)>> {
    let mut all = Vec::new();
    payload_chunk::each_rich(bytes, base, |time, payload| all.push((time, payload.to_vec()))).ok()?;
    Some(all)
}

/// A chunk with payloads as stored in files; `None` when a payload is invalid.
pub fn encode_rich_chunk(base: i64, samples: &[(i64, Vec<u8>)]) -> Option<Vec<u8>> {
    let samples: Vec<(i64, &[u8])> =
        samples.iter().map(|(time, payload)| (*time, payload.as_slice())).collect();
    let mut out = Vec::new();
    payload_chunk::put_rich(base, &samples, &mut out).ok()?;
    Some(out)
}

/// Number of groups in a section of a commit record, or 0 for one without; `None` when it does not decode.
pub fn section(bytes: &[u8]) -> Option<u64> {
    let section = Section::decode(bytes).ok()?;
    let mut count = 0;
    match section.body {
        Body::Samples { groups, .. } => each_group(groups, |_, _, _| {
            count += 1;
            Ok(())
        })
        .ok()?,
        Body::Rules(_, bytes) => drop(Rules::decode(bytes).ok()?),
        _ => {}
    }
    Some(count)
}

/// The samples of a chunk of a Prometheus block, if it decodes.
pub fn block_chunk(encoding: u8, data: &[u8]) -> Option<Samples> {
    let mut samples = Samples::default();
    import::decode_chunk(encoding, data, &mut samples).then_some(samples)
}

/// Number of series in the index of a Prometheus block, if it can be read to its end.
pub fn block_index(bytes: &[u8]) -> Option<u64> {
    import::count_series(bytes)
}
