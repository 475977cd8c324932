//! A learned index: straight lines that predict the position of a key in a sorted array.
//!
//!   index ▲            ╱ piece 2           keys: sorted u64, duplicates allowed
//!         │       ╱───╱                    predict(key) ─▶ (low, high), a window around the line
//!         │   ╱──╱  piece 1                the array itself decides inside the window
//!         └──────────────────▶ key
//!
//! Searching a window of some twenty entries costs one or two cache lines; a binary search over the whole array costs
//! a cache miss per step once the array outgrows the cache.
//!
//! Invariants
//! 1. For the array it was trained on, the number of entries ≤ `key` lies in `low ..= high`, for every `key`.
//! 2. Training never fails: it returns a model, or [`None`] when lines do not fit the keys and a binary search is better.
//!
//! Not here: the array, and what to do when a model read from a file turns out to be wrong (the caller checks the edges
//! of the window against the array, which is the truth).
//! Source: shrinking cone, Galakatos et al., FITing-Tree, SIGMOD 2019; use in sorted files, Dai et al., Bourbon, OSDI 2020.

use ropewalk_base::{DecodeError, Decoder, put_u32, put_u64};

/// Error bound that suits block fences: 8 either way is two to three cache lines of the array.
pub const ERROR_DEFAULT: u32 = 8;
/// A model must replace at least this many keys per piece, or it is not worth its cache lines.
pub const KEYS_PER_PIECE_MIN: usize = 16;
/// The radix table has at most this many entries: 16 KiB, half a first-level cache.
const RADIX_MAX: usize = 4096;
/// A slot with more pieces than this is searched by halving. Evenly spread pieces leave one or two in a slot, and stepping
/// through those costs less than a search.
const STEPS_MAX: usize = 8;

/// One straight line: `index = base + slope * (key - first)`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Piece {
    first: u64,
    /// Index that the line has at `first`.
    base: u32,
    /// Indexes per unit of key; finite and not negative.
    slope: f64,
}

impl Piece {
    /// The line at `key ≥ first`, rounded down. Grows with `key`, because rounding in IEEE 754 is monotone.
    #[inline]
    fn at(&self, key: u64) -> u64 {
        u64::from(self.base).saturating_add((self.slope * key.saturating_sub(self.first) as f64) as u64)
    }
}

/// A trained model. About 20 bytes per piece and at most 16 KiB for the radix table.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    len: u32,
    /// How far the count of entries ≤ key may lie below and above the line.
    below: u32,
    above: u32,
    pieces: Vec<Piece>,
    /// `radix[t]`: index of the last piece that starts at or before the first key of slot `t`.
    radix: Vec<u32>,
    shift: u32,
}

impl Model {
    /// Fits lines to `keys` so that no key is more than `error` indexes off its line. One pass, about 10 ns per key.
    ///
    /// Returns `None` when there are too few keys or too many pieces for the model to pay; use a binary search then.
    /// `keys` must be sorted; duplicates are allowed. An unsorted slice gives a model whose windows are useless but
    /// harmless.
    pub fn train(keys: &[u64], error: u32) -> Option<Self> {
        let len = u32::try_from(keys.len()).ok()?;
        let pieces = fit(keys, error);
        if pieces.is_empty() || pieces.len() * KEYS_PER_PIECE_MIN > keys.len() {
            return None;
        }
        let mut model = Self::assemble(len, 0, 0, pieces);
        model.measure(keys);
        // Runs of equal keys can push the measured error far above the bound; a wide window is no gain.
        (model.below + model.above <= 4 * error + 4).then_some(model)
    }

    fn assemble(len: u32, below: u32, above: u32, pieces: Vec<Piece>) -> Self {
        let (min, max) = (pieces.first().map_or(0, |p| p.first), pieces.last().map_or(0, |p| p.first));
        let slots = (pieces.len() * 8).next_power_of_two().min(RADIX_MAX) as u64;
        let mut shift = 0;
        while (max - min) >> shift >= slots {
            shift += 1;
        }
        let mut radix = Vec::new();
        let mut piece = 0_u32;
        for slot in 0..=(max - min) >> shift {
            let start = min + (slot << shift);
            while pieces.get(piece as usize + 1).is_some_and(|next| next.first <= start) {
                piece += 1;
            }
            radix.push(piece);
        }
        Self { len, below, above, pieces, radix, shift }
    }

    /// Sets `below` and `above` to the errors measured on the keys. Between two neighbouring keys the true
    /// count is constant and the line grows, so checking both ends of every gap covers every key in between.
    fn measure(&mut self, keys: &[u64]) {
        let (mut below, mut above) = (0, 0);
        let mut note = |line: u64, count: u64| {
            below = below.max(line.saturating_sub(count));
            above = above.max(count.saturating_sub(line));
        };
        let mut index = 0_u64;
        let mut rest = keys.iter().peekable();
        while let Some(&key) = rest.next() {
            index += 1;
            match rest.peek() {
                Some(&&next) if next == key => {}
                Some(&&next) => {
                    note(self.line(key), index);
                    note(self.line(next.saturating_sub(1).max(key)), index);
                }
                None => {
                    note(self.line(key), index);
                    note(self.line(u64::MAX), index);
                }
            }
        }
        self.below = u32::try_from(below).unwrap_or(u32::MAX);
        self.above = u32::try_from(above).unwrap_or(u32::MAX);
    }

    /// Index of the last piece that `starts` accepts; the radix slot of `key` bounds the search. One key far
    /// from the others puts all their pieces into one slot, so a slot with many pieces is searched by
    /// halving.
    #[inline]
    fn last_piece(&self, key: u64, mut starts: impl FnMut(&Piece) -> bool) -> usize {
        let min = self.pieces.first().map_or(0, |p| p.first);
        let slot = (key.saturating_sub(min) >> self.shift) as usize;
        let mut at = self.radix.get(slot).or(self.radix.last()).map_or(0, |&p| p as usize);
        // Pieces after the next slot's own start after the first key of that slot, which is greater than `key`.
        let end = self.radix.get(slot.saturating_add(1)).map_or(self.pieces.len(), |&p| p as usize + 1);
        if end - at > STEPS_MAX {
            return at + self.pieces.get(at + 1..end).map_or(0, |rest| rest.partition_point(starts));
        }
        while self.pieces.get(at + 1).is_some_and(&mut starts) {
            at += 1;
        }
        at
    }

    /// The line at `key`, limited to the start of the next piece.
    #[inline]
    fn line(&self, key: u64) -> u64 {
        let at = self.last_piece(key, |piece| piece.first <= key);
        let limit = self.pieces.get(at + 1).map_or(u64::from(self.len), |next| u64::from(next.base));
        self.pieces.get(at).map_or(0, |piece| piece.at(key).min(limit))
    }

    /// The window in which the number of entries ≤ `key` lies: `low ≤ count ≤ high`. About 5 ns, or 20 where
    /// keys far from all others crowd the pieces into one slot of the radix table.
    #[inline]
    pub fn predict(&self, key: u64) -> (usize, usize) {
        if self.pieces.first().is_some_and(|p| key < p.first) {
            return (0, 0);
        }
        let line = self.line(key);
        let low = line.saturating_sub(u64::from(self.below));
        let high = line.saturating_add(u64::from(self.above)).min(u64::from(self.len));
        (low.min(high) as usize, high as usize)
    }

    /// Number of straight lines.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.pieces.len() * size_of::<Piece>() + self.radix.len() * size_of::<u32>()
    }

    /// Appends the model: len, below, above, pieces (u32 each), then per piece first (u64), base (u32), slope (f64
    /// bits as u64). Little-endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.len);
        put_u32(out, self.below);
        put_u32(out, self.above);
        put_u32(out, self.pieces.len() as u32);
        for piece in &self.pieces {
            put_u64(out, piece.first);
            put_u32(out, piece.base);
            put_u64(out, piece.slope.to_bits());
        }
    }

    /// Reads what [`Model::encode`] wrote.
    ///
    /// # Errors
    /// The bytes end early, pieces are missing or out of order, or a slope is not a finite number ≥ 0.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let wrong = |what, offset| DecodeError { what, offset };
        let [len, below, above, count] = [
            decoder.u32("length of a model")?,
            decoder.u32("error below of a model")?,
            decoder.u32("error above of a model")?,
            decoder.u32("piece count of a model")?,
        ];
        let offset = decoder.offset();
        if count == 0 || decoder.rest().len() / 20 < count as usize {
            return Err(wrong("pieces of a model", offset));
        }
        let mut pieces: Vec<Piece> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let offset = decoder.offset();
            let piece = Piece {
                first: decoder.u64("first key of a piece")?,
                base: decoder.u32("base of a piece")?,
                slope: f64::from_bits(decoder.u64("slope of a piece")?),
            };
            if pieces.last().is_some_and(|last| last.first >= piece.first || last.base > piece.base)
                || piece.base > len
            {
                return Err(wrong("ascending pieces of a model", offset));
            }
            if !piece.slope.is_finite() || piece.slope < 0.0 {
                return Err(wrong("finite slope of a piece", offset));
            }
            pieces.push(piece);
        }
        Ok(Self::assemble(len, below, above, pieces))
    }
}

/// The shrinking cone: a piece grows while some slope from its first point passes within `error` of every point, and
/// each point narrows the cone of such slopes. Equal keys are one point, at the count of keys up to and with them.
fn fit(keys: &[u64], error: u32) -> Vec<Piece> {
    let error = f64::from(error);
    let mut pieces: Vec<Piece> = Vec::new();
    let mut cone: Option<(u64, u32, f64, f64)> = None;
    let close = |(first, base, low, high): (u64, u32, f64, f64)| {
        let slope = if high.is_finite() { f64::midpoint(low, high) } else { low };
        Piece { first, base, slope }
    };
    let mut count = 0_u32;
    let mut rest = keys.iter().peekable();
    while let Some(&key) = rest.next() {
        count += 1;
        if rest.peek() == Some(&&key) {
            continue;
        }
        cone = match cone {
            None => Some((key, count, 0.0, f64::INFINITY)),
            Some((first, base, low, high)) => {
                let run = (key - first) as f64;
                let rise = f64::from(count - base);
                let (new_low, new_high) = (low.max((rise - error) / run), high.min((rise + error) / run));
                if new_low <= new_high {
                    Some((first, base, new_low, new_high))
                } else {
                    pieces.push(close((first, base, low, high)));
                    Some((key, count, 0.0, f64::INFINITY))
                }
            }
        };
    }
    pieces.extend(cone.map(close));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(keys: &[u64], key: u64) -> usize {
        keys.partition_point(|&k| k <= key)
    }

    fn check(keys: &[u64], probes: impl IntoIterator<Item = u64>) {
        let Some(model) = Model::train(keys, ERROR_DEFAULT) else { return };
        let mut bytes = Vec::new();
        model.encode(&mut bytes);
        let again = Model::decode(&mut Decoder::new(&bytes)).unwrap();
        assert_eq!(again, model);
        for key in probes {
            let (low, high) = model.predict(key);
            let count = count(keys, key);
            assert!(low <= count && count <= high, "key {key}: {count} outside {low}..={high}");
        }
    }

    fn around(keys: &[u64]) -> Vec<u64> {
        let near = keys.iter().flat_map(|&k| [k.saturating_sub(1), k, k.saturating_add(1)]);
        near.chain([0, 1, u64::MAX - 1, u64::MAX]).collect()
    }

    #[test]
    fn a_straight_line_takes_one_piece() {
        let keys: Vec<u64> = (0..10_000).map(|i| i * 37 + 5).collect();
        assert_eq!(Model::train(&keys, 8).unwrap().pieces(), 1);
        check(&keys, around(&keys));
    }

    #[test]
    fn uniform_keys_take_few_pieces_and_narrow_windows() {
        let mut state = 7_u64;
        let mut keys: Vec<u64> = (0..16_000)
            .map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                state
            })
            .collect();
        keys.sort_unstable();
        let model = Model::train(&keys, 8).unwrap();
        assert!(model.pieces() < 200, "{}", model.pieces());
        let (low, high) = model.predict(keys[8000]);
        assert!(high - low <= 20);
        check(&keys, around(&keys));
    }

    #[test]
    fn keys_that_lines_do_not_fit_give_no_model() {
        assert!(Model::train(&[], 8).is_none());
        assert!(Model::train(&[7; 10], 8).is_none());
        let jumps: Vec<u64> = (0..64).flat_map(|i| std::iter::repeat_n(1_u64 << i, 40)).collect();
        assert!(Model::train(&jumps, 8).is_none());
    }

    /// Keys whose gaps change every 36 keys, so that each stretch takes its own piece.
    fn uneven(count: usize) -> Vec<u64> {
        let mut key = 1 << 40;
        let gaps = (0..count).map(|i| 1 << (i / 36 * 7 % 11));
        gaps.map(|gap: u64| {
            key += gap;
            key
        })
        .collect()
    }

    #[test]
    fn piece_search_with_outlying_keys_takes_logarithmic_steps() {
        let dense = uneven(16_240);
        let with = |more: &[u64]| {
            let mut keys = dense.clone();
            keys.extend(more);
            keys.sort_unstable();
            keys
        };
        let far: Vec<u64> = (0..64).map(|i| (1 << 62) + i).collect();
        for keys in [dense.clone(), with(&far), with(&[u64::MAX]), with(&[0]), with(&[0, u64::MAX])] {
            let model = Model::train(&keys, ERROR_DEFAULT).unwrap();
            assert!(model.pieces() > 200, "{}", model.pieces());
            let halvings = model.pieces().ilog2() as usize + 2;
            for key in around(&keys) {
                let mut steps = 0;
                let found = model.last_piece(key, |piece| {
                    steps += 1;
                    piece.first <= key
                });
                let expected = model.pieces.partition_point(|piece| piece.first <= key).saturating_sub(1);
                assert_eq!(found, expected, "key {key}");
                assert!(steps <= STEPS_MAX.max(halvings), "key {key}: {steps} steps");
            }
            check(&keys, around(&keys));
        }
    }

    #[test]
    fn golden_bytes() {
        let keys: Vec<u64> = (0..32).map(|i| i * 2).collect();
        let mut bytes = Vec::new();
        Model::train(&keys, 8).unwrap().encode(&mut bytes);
        let hex = ropewalk_base::hex(&bytes);
        assert_eq!(hex, "20000000000000000000000001000000000000000000000001000000000000000000e03f");
    }

    #[test]
    fn damaged_models_are_refused() {
        let keys: Vec<u64> = (0..64).collect();
        let mut bytes = Vec::new();
        Model::train(&keys, 8).unwrap().encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert!(Model::decode(&mut Decoder::new(&bytes[..cut])).is_err());
        }
        let at = bytes.len() - 8;
        bytes[at..].copy_from_slice(&f64::NAN.to_bits().to_le_bytes());
        assert!(Model::decode(&mut Decoder::new(&bytes)).is_err());
    }

    proptest! {
        #[test]
        fn every_key_lies_in_its_window(
            gaps in proptest::collection::vec(prop_oneof![0..3_u64, 0..1000_u64, any::<u64>().prop_map(|x| x >> 8)], 0..600),
            error in 1..32_u32,
            probes: Vec<u64>,
        ) {
            let keys: Vec<u64> = gaps.iter().scan(0_u64, |sum, gap| { *sum = sum.saturating_add(*gap); Some(*sum) }).collect();
            if let Some(model) = Model::train(&keys, error) {
                for key in around(&keys).into_iter().chain(probes) {
                    let (low, high) = model.predict(key);
                    let count = count(&keys, key);
                    prop_assert!(low <= count && count <= high);
                }
            }
        }

        #[test]
        fn any_bytes_decode_or_fail_but_never_panic(bytes: Vec<u8>, key: u64) {
            if let Ok(model) = Model::decode(&mut Decoder::new(&bytes)) {
                let (low, high) = model.predict(key);
                prop_assert!(low <= high);
            }
        }
    }
}
