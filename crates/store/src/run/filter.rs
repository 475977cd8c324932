//! Blocked Bloom filter: one cache line per probe.
//!
//! A key's hash picks one line of 512 bits and six bits in it. 10 bits per key give about 1.3 % false positives.
//! Source: Putze, Sanders, Singler, "Cache-, hash- and space-efficient Bloom filters", WEA 2007.

use ropewalk_base::put_u64;

use crate::prefetch::prefetch;

const BITS_PER_KEY: usize = 10;
const LINE_BITS: usize = 512;
pub(crate) const LINE_BYTES: usize = LINE_BITS / 8;
const PROBES: u32 = 6;
/// The golden ratio in 64 bits: remixes the hash, so that bit positions do not follow the choice of the line.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Line([u64; 8]);

/// May say "maybe" for an absent key, never says "no" for a present one. Without lines, as in a run without a
/// filter, it says "maybe" for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    lines: Vec<Line>,
}

impl Filter {
    pub(crate) fn build(hashes: &[u64]) -> Self {
        let lines = (hashes.len() * BITS_PER_KEY).div_ceil(LINE_BITS).max(1);
        let mut filter = Self { lines: vec![Line::default(); lines] };
        for &hash in hashes {
            let index = filter.line_of(hash);
            if let Some(line) = filter.lines.get_mut(index) {
                for (word, bit) in bits(hash) {
                    if let Some(word) = line.0.get_mut(word) {
                        *word |= bit;
                    }
                }
            }
        }
        filter
    }

    #[inline]
    fn line_of(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines.get(self.line_of(hash)) else { return true };
        bits(hash).all(|(word, bit)| line.0.get(word).is_some_and(|w| w & bit != 0))
    }

    /// Prefetches the line that [`Filter::may_contain`] will read.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(self.line_of(hash)) {
            prefetch(&line.0, 0, 1);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes());
        for word in self.lines.iter().flat_map(|line| line.0) {
            put_u64(out, word);
        }
    }

    /// Reads what [`Filter::encode`] wrote: whole lines.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let (chunks, _) = bytes.as_chunks::<LINE_BYTES>();
        let line = |chunk: &[u8; LINE_BYTES]| {
            let mut line = Line::default();
            for (word, bytes) in line.0.iter_mut().zip(chunk.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            line
        };
        Self { lines: chunks.iter().map(line).collect() }
    }
}

/// Word and mask of each of the six bits.
#[inline]
fn bits(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    let spread = hash.wrapping_mul(SPREAD);
    (1..=PROBES).map(move |i| {
        let bit = spread >> (64 - 9 * i) & 511;
        ((bit >> 6) as usize, 1 << (bit & 63))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_base::hash64;

    #[test]
    fn present_keys_pass_and_few_others_do() {
        let hashes: Vec<u64> = (0..20_000_u64).map(|k| hash64(&k.to_be_bytes())).collect();
        let filter = Filter::build(&hashes);
        assert!(hashes.iter().all(|&h| filter.may_contain(h)));
        let wrong = (20_000..220_000_u64).filter(|k| filter.may_contain(hash64(&k.to_be_bytes()))).count();
        assert!(wrong < 4_000, "{wrong} false positives in 200000");
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        assert_eq!(bytes.len(), filter.bytes());
        assert_eq!(Filter::decode(&bytes), filter);
    }

    #[test]
    fn filter_without_lines_passes_every_key() {
        assert!((0..100_u64).all(|key| Filter::default().may_contain(hash64(&key.to_be_bytes()))));
    }

    #[test]
    fn golden_bits() {
        let filter = Filter::build(&[hash64(b"ropewalk")]);
        let words: Vec<String> = filter.lines[0].0.iter().map(|w| format!("{w:x}")).collect();
        assert_eq!(words.join(" "), "0 20000000 0 4001 2000000000210 0 0 0");
    }
}
