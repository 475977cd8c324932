//! Chunks of samples with payloads: native histograms, and floats with start timestamps.
//!
//!   neighbours of one layout (schema, bounds, which buckets) ─▶ a run: the layout once, then every count as a column
//!
//! ```text
//! u8 form 2 │ varint samples, 1 to 8192 │ runs to the end, each: varint samples │ u8 kind │ …
//! times, at the head of each run      each: signed, relative to the one before (the first of the chunk: to the day)
//! kind 0 payloads                     each: payload bytes, as `batch` writes them
//! kind 1 floats with starts           columns of starts and values
//! kind 2 histograms, 3 with starts    u8 hint │ signed schema │ zero threshold f64 │ positive, negative: varint, each: signed gap
//!                                     │ bounds: varint, each f64 │ columns: [starts], sum, count, zero count, each bucket
//! column                              as the values of a chunk (see `value_column`); starts as the bits of their integers
//! ```
//! From scrape to scrape most buckets grow by nothing or a little, so a column packs a count in a few bits, where a payload
//! takes two or three bytes for it.

use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, put_bytes, put_u64, put_varint};
use ropewalk_labels::{BUCKETS_MAX, Bucket, Histogram, ResetHint};

use crate::chunk::CHUNK_SAMPLES_MAX;
use crate::chunk::value_column::{self, ValueEncoder};
use crate::sample::batch::{put_payload, take_payload};
use crate::sample::pack::{put_signed, take_signed};

const FORM: u8 = 2;
const PAYLOADS: u8 = 0;
const FLOATS: u8 = 1;
const HISTOGRAMS: u8 = 2;
const STARTED_HISTOGRAMS: u8 = 3;

/// Numbers of a run, samples times columns: bounds the allocation of decoding a damaged chunk.
const CELLS_MAX: usize = 1 << 20;
/// Below this many samples the columns of a run cost more than the payloads.
const RUN_SAMPLES_MIN: usize = 4;

/// A sample, decoded.
struct Rich {
    time: i64,
    start: i64,
    value: Result<Histogram, u64>,
}

impl Rich {
    /// True when both fit one run.
    fn is_like(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Err(_), Err(_)) => true,
            (Ok(a), Ok(b)) => {
                let same = |a: &[Bucket], b: &[Bucket]| {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.index == b.index)
                };
                let bits = |h: &Histogram| (h.schema, h.zero_threshold.to_bits(), h.hint as u8);
                bits(a) == bits(b)
                    && a.custom.len() == b.custom.len()
                    && a.custom.iter().zip(b.custom.iter()).all(|(a, b)| a.to_bits() == b.to_bits())
                    && same(&a.positive, &b.positive)
                    && same(&a.negative, &b.negative)
            }
            _ => false,
        }
    }

    fn columns(&self) -> usize {
        self.value.as_ref().map_or(2, |h| 4 + h.positive.len() + h.negative.len())
    }
}

/// Appends a chunk: at least one sample, at most 8192, in order of time. `base` is the beginning of their day.
///
/// # Errors
/// A payload does not decode.
pub(crate) fn put_rich(base: i64, samples: &[(i64, &[u8])], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    assert!(
        (1..=CHUNK_SAMPLES_MAX).contains(&samples.len()),
        "no chunk of {} samples can be read",
        samples.len()
    );
    let mut all = Vec::with_capacity(samples.len());
    for (time, payload) in samples {
        let (start, value) = take_payload(payload)?;
        all.push(Rich { time: *time, start, value });
    }
    out.push(FORM);
    put_varint(out, samples.len() as u64);
    let mut writer = RunWriter { before: base, values: ValueEncoder::default(), column: Vec::new(), out };
    for like in all.chunk_by(Rich::is_like) {
        let most = like.first().map_or(1, |first| (CELLS_MAX / first.columns()).max(1));
        for run in like.chunks(most) {
            writer.run(run);
        }
    }
    Ok(())
}

struct RunWriter<'a> {
    before: i64,
    values: ValueEncoder,
    column: Vec<u64>,
    out: &'a mut Vec<u8>,
}

impl RunWriter<'_> {
    fn run(&mut self, run: &[Rich]) {
        let first = run.first().expect("a run has samples");
        debug_assert!(run.iter().all(|rich| rich.is_like(first)), "samples of a run have the same columns");
        put_varint(self.out, run.len() as u64);
        let starts = run.iter().any(|rich| rich.start != 0);
        let kind = match &first.value {
            _ if run.len() < RUN_SAMPLES_MIN => PAYLOADS,
            Err(_) => FLOATS,
            Ok(_) if starts => STARTED_HISTOGRAMS,
            Ok(_) => HISTOGRAMS,
        };
        self.out.push(kind);
        for rich in run {
            put_signed(self.out, rich.time.wrapping_sub(self.before));
            self.before = rich.time;
        }
        if kind == PAYLOADS {
            for rich in run {
                let mut payload = Vec::new();
                put_payload(&mut payload, rich.start, rich.value.as_ref().map_err(|bits| *bits));
                put_bytes(self.out, &payload);
            }
            return;
        }
        if let Ok(layout) = &first.value {
            self.layout(layout);
        }
        if kind != HISTOGRAMS {
            self.column(run, |rich| rich.start.cast_unsigned());
        }
        // The kinds of a run are alike, so each of its samples has every column.
        let Ok(layout) = &first.value else {
            return self.column(run, |rich| rich.value.as_ref().err().copied().unwrap_or_default());
        };
        let of = |rich: &Rich, number: &dyn Fn(&Histogram) -> Option<f64>| {
            rich.value.as_ref().ok().and_then(number).unwrap_or_default().to_bits()
        };
        self.column(run, |rich| of(rich, &|h| Some(h.sum)));
        self.column(run, |rich| of(rich, &|h| Some(h.count)));
        self.column(run, |rich| of(rich, &|h| Some(h.zero_count)));
        for at in 0..layout.positive.len() {
            self.column(run, |rich| of(rich, &|h| h.positive.get(at).map(|b| b.count)));
        }
        for at in 0..layout.negative.len() {
            self.column(run, |rich| of(rich, &|h| h.negative.get(at).map(|b| b.count)));
        }
    }

    fn layout(&mut self, layout: &Histogram) {
        self.out.push(layout.hint as u8);
        put_signed(self.out, i64::from(layout.schema));
        put_u64(self.out, layout.zero_threshold.to_bits());
        for side in [&layout.positive, &layout.negative] {
            put_varint(self.out, side.len() as u64);
            let mut before = 0;
            for bucket in side {
                put_signed(self.out, i64::from(bucket.index) - before);
                before = i64::from(bucket.index);
            }
        }
        put_varint(self.out, layout.custom.len() as u64);
        layout.custom.iter().for_each(|bound| put_u64(self.out, bound.to_bits()));
    }

    fn column(&mut self, run: &[Rich], number: impl Fn(&Rich) -> u64) {
        self.column.clear();
        self.column.extend(run.iter().map(number));
        self.values.encode(&self.column, self.out);
    }
}

/// Passes the samples of a chunk to the callback: time and payload, as `batch` writes it.
pub(crate) fn each_rich(
    bytes: &[u8],
    base: i64,
    mut each: impl FnMut(i64, &[u8]),
) -> Result<(), DecodeError> {
    let mut decoder = Decoder::new(bytes);
    if decoder.u8("form of a chunk")? != FORM {
        return Err(DecodeError { what: "a chunk with payloads", offset: 0 });
    }
    let count = decoder.varint("number of samples")?;
    if count == 0 || count > CHUNK_SAMPLES_MAX as u64 {
        return Err(DecodeError { what: "1 to 8192 samples", offset: 1 });
    }
    let (mut left, mut time) = (count as usize, base);
    while left > 0 {
        left -= each_of_run(&mut decoder, left, &mut time, &mut each)?;
    }
    if !decoder.is_empty() {
        return Err(DecodeError { what: "the end of the chunk", offset: decoder.offset() });
    }
    Ok(())
}

/// Passes the samples of the next run to `each`; returns their number.
fn each_of_run(
    decoder: &mut Decoder<'_>,
    left: usize,
    time: &mut i64,
    each: &mut impl FnMut(i64, &[u8]),
) -> Result<usize, DecodeError> {
    let offset = decoder.offset();
    let count = decoder.varint("samples of a run")?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count == 0 || count > left {
        return Err(DecodeError { what: "a run inside its chunk", offset });
    }
    let kind = decoder.u8("kind of run")?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        *time = time.wrapping_add(take_signed(decoder, "time")?);
        times.push(*time);
    }
    match kind {
        PAYLOADS => {
            for time in times {
                each(time, decoder.bytes("payload")?);
            }
        }
        FLOATS => {
            let (starts, values) = (column(decoder, count)?, column(decoder, count)?);
            show(&times, each, |at, payload| {
                put_payload(payload, cell(&starts, at).cast_signed(), Err(cell(&values, at)))
            });
        }
        HISTOGRAMS | STARTED_HISTOGRAMS => {
            let mut histogram = layout(decoder)?;
            let columns = 4 + histogram.positive.len() + histogram.negative.len();
            if count.saturating_mul(columns) > CELLS_MAX.max(columns) {
                return Err(DecodeError { what: "a run of a million numbers at most", offset });
            }
            let starts = if kind == HISTOGRAMS { Vec::new() } else { column(decoder, count)? };
            let (sum, all, zero) =
                (column(decoder, count)?, column(decoder, count)?, column(decoder, count)?);
            let mut side = |buckets: &[Bucket]| {
                buckets.iter().map(|_| column(decoder, count)).collect::<Result<Vec<_>, _>>()
            };
            let (positive, negative) = (side(&histogram.positive)?, side(&histogram.negative)?);
            show(&times, each, |at, payload| {
                let float = |column: &[u64]| f64::from_bits(cell(column, at));
                (histogram.sum, histogram.count, histogram.zero_count) =
                    (float(&sum), float(&all), float(&zero));
                let sides = [(&mut histogram.positive, &positive), (&mut histogram.negative, &negative)];
                for (buckets, columns) in sides {
                    buckets.iter_mut().zip(columns).for_each(|(bucket, column)| bucket.count = float(column));
                }
                put_payload(payload, cell(&starts, at).cast_signed(), Ok(&histogram));
            });
        }
        _ => return Err(DecodeError { what: "a known kind of run", offset }),
    }
    Ok(count)
}

/// Number `at` of a column; 0 where there is no such column.
fn cell(column: &[u64], at: usize) -> u64 {
    column.get(at).copied().unwrap_or(0)
}

fn show(times: &[i64], each: &mut impl FnMut(i64, &[u8]), mut put: impl FnMut(usize, &mut Vec<u8>)) {
    let mut payload = Vec::new();
    for (at, time) in times.iter().enumerate() {
        payload.clear();
        put(at, &mut payload);
        each(*time, &payload);
    }
}

fn column(decoder: &mut Decoder<'_>, count: usize) -> Result<Vec<u64>, DecodeError> {
    let mut column = Vec::new();
    value_column::decode(decoder, count, 0..count, &mut column)?;
    Ok(column)
}

fn layout(decoder: &mut Decoder<'_>) -> Result<Histogram, DecodeError> {
    let offset = decoder.offset();
    let hint = ResetHint::from_number(decoder.u8("hint")?.into());
    let hint = hint.ok_or(DecodeError { what: "a known hint", offset })?;
    let offset = decoder.offset();
    let schema = i8::try_from(take_signed(decoder, "schema")?);
    let schema = schema.map_err(|_| DecodeError { what: "schema", offset })?;
    let zero_threshold = f64::from_bits(decoder.u64("zero threshold")?);
    let number = |decoder: &mut Decoder<'_>| {
        let offset = decoder.offset();
        match decoder.varint("number of buckets")? {
            n if n <= BUCKETS_MAX as u64 => Ok(n),
            _ => Err(DecodeError { what: "at most 65536 buckets", offset }),
        }
    };
    let side = |decoder: &mut Decoder<'_>| {
        let (mut buckets, mut before) = (Vec::new(), 0_i64);
        for _ in 0..number(decoder)? {
            let offset = decoder.offset();
            before = before.wrapping_add(take_signed(decoder, "index of a bucket")?);
            let index = i32::try_from(before).map_err(|_| DecodeError { what: "index", offset })?;
            buckets.push(Bucket { index, count: 0.0 });
        }
        Ok::<_, DecodeError>(buckets)
    };
    let (positive, negative) = (side(decoder)?, side(decoder)?);
    let mut custom = Vec::new();
    for _ in 0..number(decoder)? {
        custom.push(f64::from_bits(decoder.u64("bound")?));
    }
    let custom: Arc<[f64]> = custom.into();
    Ok(Histogram { hint, schema, zero_threshold, positive, negative, custom, ..Histogram::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::histogram::tests::any_histogram;
    use proptest::prelude::*;
    use ropewalk_base::hex;

    fn payload(start: i64, value: Result<&Histogram, u64>) -> Vec<u8> {
        let mut payload = Vec::new();
        put_payload(&mut payload, start, value);
        payload
    }

    fn encode(base: i64, samples: &[(i64, Vec<u8>)]) -> Vec<u8> {
        let samples: Vec<(i64, &[u8])> = samples.iter().map(|(time, payload)| (*time, &**payload)).collect();
        let mut bytes = Vec::new();
        put_rich(base, &samples, &mut bytes).unwrap();
        bytes
    }

    fn decode(base: i64, bytes: &[u8]) -> Result<Vec<(i64, Vec<u8>)>, DecodeError> {
        let mut all = Vec::new();
        each_rich(bytes, base, |time, payload| all.push((time, payload.to_vec())))?;
        Ok(all)
    }

    #[test]
    fn golden_bytes() {
        let float = |start: i64| payload(start, Err(2.0_f64.to_bits()));
        assert_eq!(
            hex(&encode(100, &[(101, float(90))])),
            "0201010002 0b01b4010000000000000040".replace(' ', "")
        );
        let floats: Vec<_> = (0..4).map(|i| (100 + i, float(90))).collect();
        let starts = "005a00000000000000";
        assert_eq!(hex(&encode(100, &floats)), format!("0204040100020202{starts}000000000000000040"));
        let histogram = |n: f64| Histogram {
            count: n,
            sum: 0.5,
            positive: vec![Bucket { index: 2, count: n }],
            ..Histogram::default()
        };
        let all: Vec<_> = (0..4).map(|i| (i, payload(0, Ok(&histogram(i as f64))))).collect();
        let (layout, sum, zero) =
            ("0000000000000000000001040000", "00000000000000e03f", "000000000000000000");
        let counts = "010000000104020000";
        assert_eq!(hex(&encode(0, &all)), format!("0204040200020202{layout}{sum}{counts}{zero}{counts}"));
    }

    #[test]
    fn a_scrape_of_a_histogram_takes_a_few_bytes() {
        let mut counts = vec![0_u64; 20];
        let mut all = Vec::new();
        for i in 0..240_u64 {
            counts.iter_mut().enumerate().for_each(|(at, count)| *count += (i * 7 + at as u64) % 3);
            let positive =
                (0..).zip(&counts).map(|(index, count)| Bucket { index, count: *count as f64 }).collect();
            let count = counts.iter().sum::<u64>() as f64;
            let custom: Arc<[f64]> = (1..=20).map(f64::from).collect();
            let schema = ropewalk_labels::CUSTOM_SCHEMA;
            let histogram =
                Histogram { schema, count, sum: count * 1.5, positive, custom, ..Histogram::default() };
            histogram.check().unwrap();
            all.push((15_000 * i as i64, payload(0, Ok(&histogram))));
        }
        let bytes = encode(0, &all);
        let plain: usize = all.iter().map(|(_, payload)| payload.len()).sum();
        assert_eq!(decode(0, &bytes).unwrap(), all);
        assert!(bytes.len() < 240 * 14 && plain > 240 * 200, "{} instead of {plain}", bytes.len());
    }

    proptest! {
        #[test]
        fn chunks_round_trip(
            pool in prop::collection::vec((prop::option::weighted(0.8, any_histogram()), prop::bool::ANY), 1..6),
            lens in prop::collection::vec(1..8_usize, 1..6),
            base: i64,
        ) {
            let mut all = Vec::new();
            for (len, (histogram, started)) in lens.iter().zip(pool.iter().cycle()) {
                for i in 0..*len {
                    let start = if *started { 7 } else { 0 };
                    let mut one = histogram.clone();
                    one.iter_mut().for_each(|h| h.count += i as f64);
                    // A float without a start has no payload.
                    let value = payload(if one.is_none() { 9 } else { start }, one.as_ref().ok_or(i as u64));
                    all.push((base.wrapping_add(all.len() as i64), value));
                }
            }
            prop_assert_eq!(decode(base, &encode(base, &all)).unwrap(), all);
        }

        #[test]
        fn any_bytes_decode_or_fail(mut bytes: Vec<u8>, kind in 0..5_u8, count in 1..9_u8, base: i64) {
            bytes.splice(0..0, [FORM, count, count, kind]);
            let _ = decode(base, &bytes);
        }

        #[test]
        fn a_changed_byte_is_no_panic(histogram in any_histogram(), at: prop::sample::Index, to: u8) {
            let all: Vec<_> = (0..6).map(|i| (i, payload(i, Ok(&histogram)))).collect();
            let mut bytes = encode(0, &all);
            let at = at.index(bytes.len());
            bytes[at] = to;
            let _ = decode(0, &bytes);
        }
    }
}
