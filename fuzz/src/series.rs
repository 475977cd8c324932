//! Values of series in runs and in commit records, and imported Prometheus blocks.

use ropewalk_base::{crc32c, put_u32, put_varint};
use ropewalk_series::fuzzing;

use crate::script::Script;

/// Most samples of a chunk.
const SAMPLES_MAX: usize = 8192;

/// The base of the times, then the chunk.
pub(crate) fn chunk(data: &[u8]) {
    let mut script = Script(data);
    let base = script.u64().cast_signed();
    if let Some((times, bits)) = fuzzing::chunk(script.0, base) {
        assert!(times.len() == bits.len() && (1..=SAMPLES_MAX).contains(&times.len()));
        if times.is_sorted() {
            let again = fuzzing::chunk(&fuzzing::encode_chunk(base, &times, &bits), base);
            assert_eq!(again, Some((times, bits)), "a decoded chunk encodes to the same bytes");
        }
    }
}

pub(crate) fn chunk_seeds() -> Vec<Vec<u8>> {
    let times = |n: i64, step: i64| (0..n).map(|i| 1_000 + i * step + i % 3).collect::<Vec<i64>>();
    let columns: [(Vec<i64>, Vec<u64>); 4] = [
        (times(3, 15_000), vec![1.0_f64.to_bits(); 3]),
        (times(600, 15_000), (0..600).map(|i| f64::from(i * i % 977).to_bits()).collect()),
        (times(200, 5), (0..200).map(|i| (f64::from(i) / 7.0).to_bits()).collect()),
        (
            vec![i64::MIN, 0, i64::MAX],
            vec![f64::NAN.to_bits(), f64::INFINITY.to_bits(), (-0.0_f64).to_bits()],
        ),
    ];
    let seed = |(times, bits): &(Vec<i64>, Vec<u64>)| {
        [&1_000_i64.to_le_bytes()[..], &fuzzing::encode_chunk(1_000, times, bits)].concat()
    };
    columns.iter().map(seed).collect()
}

/// The beginning of the day, then a chunk with payloads.
pub(crate) fn histograms(data: &[u8]) {
    let mut script = Script(data);
    let base = script.u64().cast_signed();
    if let Some(samples) = fuzzing::rich_chunk(script.0, base) {
        assert!((1..=SAMPLES_MAX).contains(&samples.len()));
        // A payload is checked by its reader.
        if let Some(again) = fuzzing::encode_rich_chunk(base, &samples) {
            assert_eq!(fuzzing::rich_chunk(&again, base).map(|all| all.len()), Some(samples.len()));
        }
    }
}

pub(crate) fn histogram_seeds() -> Vec<Vec<u8>> {
    let float = |start: u8| [&[1, start][..], &2.5_f64.to_le_bytes()].concat();
    let histogram = |n: u8| {
        let head = [2, 1, 6];
        let floats = [0.001_f64.to_le_bytes(), f64::from(n).to_le_bytes()].concat();
        [&head[..], &floats, &[n, 0, 2, 2, n, 4, 1, 1, 3, n]].concat()
    };
    let all: [Vec<(i64, Vec<u8>)>; 3] = [
        (0..6).map(|i| (i * 15, float(4))).collect(),
        (0..9).map(|i| (i * 15, histogram(i as u8 % 100))).collect(),
        (0..9).map(|i| (i * 15, if i % 4 == 0 { float(9) } else { histogram(i as u8) })).collect(),
    ];
    let seed = |samples: &Vec<(i64, Vec<u8>)>| {
        let chunk = fuzzing::encode_rich_chunk(0, samples).unwrap_or_default();
        [&[0; 8][..], &chunk].concat()
    };
    all.iter().map(seed).collect()
}

pub(crate) fn section(data: &[u8]) {
    if let Some(groups) = fuzzing::section(data) {
        assert!(groups <= data.len() as u64 * 8, "a group takes bytes");
    }
}

pub(crate) fn section_seeds() -> Vec<Vec<u8>> {
    let head = |kind: u8| {
        let mut out = Vec::new();
        put_u32(&mut out, 7);
        out.push(kind);
        out
    };
    let groups = [0xe1, 0x01, 0xd0, 0x0f, 0x04, 0x20, 0, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 0x23, 2, 4, 6, 1, 1];
    vec![
        [&head(0x80)[..], b"\x01m\x05\x01\x04\x01a\x01b", &groups].concat(),
        [&head(1)[..], &[0; 8], &[1; 8], &[0]].concat(),
        [&head(2)[..], &[1], &[3; 40]].concat(),
        [&head(3)[..], b"\x01\x01m\x01\x01s\x01h"].concat(),
        [&head(4)[..], &[5, 0, 1, 1, 1, b'a', 3, 3, b'b', b'|', b'c', 0xac, 2, 1, 0, 1, 2, 3]].concat(),
    ]
}

/// The encoding, then the chunk of a Prometheus block.
pub(crate) fn block_chunk(data: &[u8]) {
    let mut script = Script(data);
    let encoding = script.u8() % 5;
    if let Some(samples) = fuzzing::block_chunk(encoding, script.0) {
        assert!(samples.len() <= usize::from(u16::MAX));
        assert!(samples.times_ms.is_sorted_by(|a, b| a < b));
    }
}

pub(crate) fn block_chunk_seeds() -> Vec<Vec<u8>> {
    // Two floats: time 5, value 1, a step of 10, the same value; then a histogram without buckets.
    let floats = [&[1, 0, 2, 10][..], &1.0_f64.to_be_bytes(), &[10, 0]].concat();
    let histogram = [&[2, 0, 1, 0x40, 0, 0b1010_1000, 0b1011_0100][..], &[0; 12]].concat();
    vec![floats, histogram, vec![3, 0, 0, 0]]
}

/// An index with corrected checksums: the input gives the symbols and one series.
pub(crate) fn block_index(data: &[u8]) {
    let mut script = Script(data);
    let symbols = script.u8();
    let symbols = script.bytes(usize::from(symbols));
    let _ = fuzzing::block_index(&index(symbols, script.0));
    let _ = fuzzing::block_index(data);
}

fn index(symbols: &[u8], series: &[u8]) -> Vec<u8> {
    let be = |out: &mut Vec<u8>, number: u32| out.extend_from_slice(&number.to_be_bytes());
    let mut out = Vec::new();
    be(&mut out, 0xbaaa_d700);
    out.push(2);
    be(&mut out, symbols.len() as u32);
    out.extend_from_slice(symbols);
    be(&mut out, crc32c(symbols));
    out.resize(out.len().next_multiple_of(16), 0);
    let at = out.len() as u64;
    put_varint(&mut out, series.len() as u64);
    out.extend_from_slice(series);
    be(&mut out, crc32c(series));
    let start = out.len();
    for place in [5, at, 0, 0, 0, 0] {
        out.extend_from_slice(&place.to_be_bytes());
    }
    let crc = crc32c(out.get(start..).unwrap_or_default());
    be(&mut out, crc);
    out
}

pub(crate) fn block_index_seeds() -> Vec<Vec<u8>> {
    let symbols = [&[0, 0, 0, 2][..], b"\x01a\x02bc"].concat();
    let series = [1, 0, 1, 2, 10, 20, 8, 1, 5, 3];
    vec![[&[symbols.len() as u8][..], &symbols, &series].concat()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_decode() {
        let rest = |seed: &Vec<u8>| seed.get(8..).unwrap_or_default().to_vec();
        assert!(chunk_seeds().iter().all(|seed| fuzzing::chunk(&rest(seed), 1_000).is_some()));
        assert!(histogram_seeds().iter().all(|seed| fuzzing::rich_chunk(&rest(seed), 0).is_some()));
        assert!(section_seeds().iter().all(|seed| fuzzing::section(seed).is_some()));
        for seed in block_chunk_seeds() {
            assert!(fuzzing::block_chunk(seed[0], &seed[1..]).is_some(), "{seed:?}");
        }
        let seed = &block_index_seeds()[0];
        let (symbols, series) = seed[1..].split_at(usize::from(seed[0]));
        assert_eq!(fuzzing::block_index(&index(symbols, series)), Some(1));
    }
}
