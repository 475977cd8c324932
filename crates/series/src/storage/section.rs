//! Section of a commit record for series.
//!
//! ```text
//! store u32 │ u8 kind, 0x80 added where the commit creates the store │ [name str] │ …
//! kind 0 samples    first new id varint │ new series varint, each: labels bytes (empty: id varint, a series that exists)
//!                   │ groups to the end
//! kind 1 deletion   from i64 │ to i64 │ u8: 0 all series, 1 those of the bitmap, 2 those, and the series themselves
//!                   │ bitmap (Roaring, portable form) to the end
//! kind 2 settings   u8 duplicates: 0 keep last, 1 keep first, 2 refuse │ series_max u64 │ metric_series_max u64
//!                   │ past_ms_max i64 │ future_ms_max i64 │ floor i64
//!
//! group             varint: number << 4 │ new << 3 │ form
//!                   number: new series: its ordinal in the list; else zigzag of id − id of the group before
//! form 0 one        signed time − first time of the group before │ bits u64
//! form 1 integer    the same with the value as a signed integer
//! form 2 several    n varint │ time as above, then n − 1 steps signed │ n × bits u64
//! form 3 integers   the same with values signed, each relative to the one before
//! form 4 chunk      bytes: a chunk (see `chunk`), times relative to 0
//! form 5 payloads   n varint │ each: time signed, relative to the one before │ payload bytes
//! form 6 exemplars  n varint │ each: time signed, relative to the one before │ bits u64 │ labels bytes, empty for none
//! kind 3 metadata   varint, each: metric str │ u8 type │ unit str │ help str
//! kind 4 rules      bytes to the end, see `rules`; sets the progress back
//! kind 5 progress   bytes to the end, see `rules`
//! ```
//! A scrape costs about eleven bytes a sample, one with integers five; a bulk load costs the bytes of its
//! chunks.

use std::sync::Arc;

use roaring::RoaringBitmap;
use ropewalk_base::{DecodeError, Decoder, put_bytes, put_u32, put_u64, put_varint, unzigzag, zigzag};

use crate::chunk::ChunkEncoder;
use crate::sample::batch::Exemplar;
use crate::sample::metadata::Metadata;
use crate::sample::pack::{put_signed, take_signed};
use crate::sample::types::{Duplicates, SeriesOptions};

/// Number of samples from which on a group is encoded as a chunk.
pub(crate) const CHUNK_FROM: usize = 64;
/// Samples per chunk of a long group.
const CHUNK_SAMPLES: usize = 2048;

const SAMPLES: u8 = 0;
const DELETION: u8 = 1;
const SETTINGS: u8 = 2;
const METADATA: u8 = 3;
const RULES: u8 = 4;
const PROGRESS: u8 = 5;
const CREATES: u8 = 0x80;

const ONE: u8 = 0;
const INTEGER: u8 = 1;
const SEVERAL: u8 = 2;
const INTEGERS: u8 = 3;
const CHUNK: u8 = 4;
const PAYLOADS: u8 = 5;
const EXEMPLARS: u8 = 6;

/// Integers below this take at most seven bytes as varints.
const INTEGER_MAX: f64 = 281_474_976_710_656.0;

/// Series of the samples in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A series that existed when the batch was prepared.
    Known(u32),
    /// Ordinal in the section's list.
    New(u32),
}

/// Writes the groups of a section; done by the caller's thread, before the sequencer.
#[derive(Default)]
pub(crate) struct GroupWriter {
    pub(crate) out: Vec<u8>,
    id: u32,
    time: i64,
    encoder: ChunkEncoder,
    chunk: Vec<u8>,
}

fn as_integer(bits: u64) -> Option<i64> {
    let value = f64::from_bits(bits);
    if value.is_nan() || value.abs() >= INTEGER_MAX {
        return None;
    }
    let integer = value as i64;
    ((integer as f64).to_bits() == bits).then_some(integer)
}

impl GroupWriter {
    fn head(&mut self, target: Target, form: u8) {
        let number = match target {
            Target::Known(id) => {
                let number = zigzag(i64::from(id) - i64::from(self.id));
                self.id = id;
                number << 4
            }
            Target::New(ordinal) => u64::from(ordinal) << 4 | 8,
        };
        put_varint(&mut self.out, number | u64::from(form));
    }

    fn time(&mut self, time: i64) {
        put_signed(&mut self.out, time.wrapping_sub(self.time));
        self.time = time;
    }

    /// Adds samples whose times rise strictly. `chunks`: a long group may be encoded as chunks, which are
    /// applied before other groups of the same commit; so the series must have no other group in the section.
    pub(crate) fn floats(&mut self, target: Target, times: &[i64], bits: &[u64], chunks: bool) {
        assert_eq!(times.len(), bits.len(), "every time has a value");
        debug_assert!(times.is_sorted_by(|a, b| a < b), "times of a group rise");
        match (times, bits) {
            ([], _) | (_, []) => {}
            ([time], [value]) => match as_integer(*value) {
                Some(integer) => {
                    self.head(target, INTEGER);
                    self.time(*time);
                    put_signed(&mut self.out, integer);
                }
                None => {
                    self.head(target, ONE);
                    self.time(*time);
                    put_u64(&mut self.out, *value);
                }
            },
            ([first, ..], _) => {
                if chunks && times.len() >= CHUNK_FROM {
                    for (times, bits) in times.chunks(CHUNK_SAMPLES).zip(bits.chunks(CHUNK_SAMPLES)) {
                        self.head(target, CHUNK);
                        self.chunk.clear();
                        self.encoder.encode_briefly(0, times, bits, &mut self.chunk);
                        put_bytes(&mut self.out, &self.chunk);
                    }
                    return;
                }
                let integers = bits.iter().all(|b| as_integer(*b).is_some());
                self.head(target, if integers { INTEGERS } else { SEVERAL });
                put_varint(&mut self.out, times.len() as u64);
                self.time(*first);
                for (before, time) in times.iter().zip(times.iter().skip(1)) {
                    put_signed(&mut self.out, time.wrapping_sub(*before));
                }
                let mut before = 0;
                for value in bits {
                    match as_integer(*value).filter(|_| integers) {
                        Some(integer) => {
                            put_signed(&mut self.out, integer - before);
                            before = integer;
                        }
                        None => put_u64(&mut self.out, *value),
                    }
                }
            }
        }
    }

    /// Adds samples with payloads.
    pub(crate) fn rich<'a>(
        &mut self,
        target: Target,
        len: usize,
        samples: impl Iterator<Item = (i64, &'a [u8])>,
    ) {
        if len == 0 {
            return;
        }
        self.head(target, PAYLOADS);
        put_varint(&mut self.out, len as u64);
        let mut written = 0;
        for (time, payload) in samples {
            self.time(time);
            put_bytes(&mut self.out, payload);
            written += 1;
        }
        assert_eq!(written, len, "a group has as many samples as its head says");
    }
}

impl GroupWriter {
    /// Adds exemplars.
    pub(crate) fn exemplars(&mut self, target: Target, exemplars: &[Exemplar]) {
        if exemplars.is_empty() {
            return;
        }
        self.head(target, EXEMPLARS);
        put_varint(&mut self.out, exemplars.len() as u64);
        for exemplar in exemplars {
            self.time(exemplar.time_ms);
            put_u64(&mut self.out, exemplar.value.to_bits());
            put_bytes(&mut self.out, exemplar.labels.as_ref().map_or(&[], |l| l.as_bytes()));
        }
    }
}

/// The samples of one group.
pub(crate) enum Group<'a> {
    /// In the caller's scratch memory.
    Floats,
    Chunk(&'a [u8]),
    Rich(i64, &'a [u8]),
    /// Time, bits of the value, labels.
    Exemplar(i64, u64, &'a [u8]),
}

/// Passes the groups of a section to `each`.
///
/// # Errors
/// `each` was called for the groups before the error.
pub(crate) fn each_group<'a>(
    groups: Decoder<'a>,
    mut each: impl FnMut(Target, Group<'a>, &[(i64, u64)]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut decoder = groups;
    let (mut last_id, mut last_time) = (0_u32, 0_i64);
    let mut scratch: Vec<(i64, u64)> = Vec::new();
    while !decoder.is_empty() {
        let offset = decoder.offset();
        let head = decoder.varint("group")?;
        let number = head >> 4;
        let target = if head & 8 != 0 {
            u32::try_from(number).ok().map(Target::New)
        } else {
            let id = i64::from(last_id).checked_add(unzigzag(number));
            id.and_then(|id| u32::try_from(id).ok()).map(Target::Known)
        };
        let target = target.ok_or(DecodeError { what: "number of a series", offset })?;
        if let Target::Known(id) = target {
            last_id = id;
        }
        let mut time = |decoder: &mut Decoder<'a>| {
            last_time = last_time.wrapping_add(take_signed(decoder, "time")?);
            Ok::<_, DecodeError>(last_time)
        };
        scratch.clear();
        let form = (head & 7) as u8;
        match form {
            ONE => {
                let time = time(&mut decoder)?;
                each(target, Group::Floats, &[(time, decoder.u64("value")?)])?;
            }
            INTEGER => {
                let time = time(&mut decoder)?;
                let value = take_signed(&mut decoder, "value")? as f64;
                each(target, Group::Floats, &[(time, value.to_bits())])?;
            }
            SEVERAL | INTEGERS => {
                let len = decoder.varint("number of samples")?;
                let mut at = time(&mut decoder)?;
                for index in 0..len {
                    if index > 0 {
                        at = at.wrapping_add(take_signed(&mut decoder, "step")?);
                    }
                    scratch.push((at, 0));
                }
                let mut integer = 0_i64;
                for (_, bits) in &mut scratch {
                    *bits = if form == INTEGERS {
                        integer = integer.wrapping_add(take_signed(&mut decoder, "value")?);
                        (integer as f64).to_bits()
                    } else {
                        decoder.u64("value")?
                    };
                }
                each(target, Group::Floats, &scratch)?;
            }
            CHUNK => each(target, Group::Chunk(decoder.bytes("chunk")?), &[])?,
            PAYLOADS => {
                for _ in 0..decoder.varint("number of samples")? {
                    let time = time(&mut decoder)?;
                    each(target, Group::Rich(time, decoder.bytes("payload")?), &[])?;
                }
            }
            EXEMPLARS => {
                for _ in 0..decoder.varint("number of exemplars")? {
                    let time = time(&mut decoder)?;
                    let bits = decoder.u64("value")?;
                    each(target, Group::Exemplar(time, bits, decoder.bytes("labels")?), &[])?;
                }
            }
            _ => return Err(DecodeError { what: "a known form of group", offset }),
        }
    }
    Ok(())
}

/// A section, read in place.
#[derive(Debug, Clone)]
pub(crate) struct Section<'a> {
    pub(crate) store: u32,
    /// Name of the store, when this commit creates it.
    pub(crate) creates: Option<&'a str>,
    pub(crate) body: Body<'a>,
}

#[derive(Debug, Clone)]
pub(crate) enum Body<'a> {
    Samples { first_new: u32, new: Vec<NewSeries<'a>>, groups: Decoder<'a> },
    Deletion { from: i64, to: i64, ids: Option<Arc<RoaringBitmap>>, forget: bool },
    Settings { options: SeriesOptions, floor: i64 },
    Metadata(Vec<(&'a str, Metadata)>),
    Rules(RulesPart, &'a [u8]),
}

/// The two kinds of sections about rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RulesPart {
    Rules,
    Progress,
}

/// An entry of a section's list of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSeries<'a> {
    /// Created by this commit, with the next id.
    Created(&'a [u8]),
    /// Created between the batch's preparation and its place in the order.
    Known(u32),
}

fn put_head(out: &mut Vec<u8>, store: u32, kind: u8, creates: Option<&str>) {
    put_u32(out, store);
    out.push(kind | if creates.is_some() { CREATES } else { 0 });
    if let Some(name) = creates {
        put_bytes(out, name.as_bytes());
    }
}

pub(crate) fn put_samples<'a>(
    out: &mut Vec<u8>,
    (store, creates): (u32, Option<&str>),
    first_new: u32,
    new: impl ExactSizeIterator<Item = NewSeries<'a>>,
    groups: &[u8],
) {
    put_head(out, store, SAMPLES, creates);
    put_varint(out, u64::from(first_new));
    put_varint(out, new.len() as u64);
    for series in new {
        match series {
            NewSeries::Created(labels) => put_bytes(out, labels),
            NewSeries::Known(id) => {
                put_varint(out, 0);
                put_varint(out, u64::from(id));
            }
        }
    }
    out.extend_from_slice(groups);
}

pub(crate) fn put_deletion(
    out: &mut Vec<u8>,
    store: u32,
    (from, to): (i64, i64),
    ids: Option<&RoaringBitmap>,
    forget: bool,
) {
    put_head(out, store, DELETION, None);
    out.extend_from_slice(&from.to_le_bytes());
    out.extend_from_slice(&to.to_le_bytes());
    out.push(match (ids, forget) {
        (None, _) => 0,
        (Some(_), false) => 1,
        (Some(_), true) => 2,
    });
    if let Some(ids) = ids {
        ids.serialize_into(out).expect("writing to a vector does not fail");
    }
}

pub(crate) fn put_settings(
    out: &mut Vec<u8>,
    (store, creates): (u32, Option<&str>),
    options: SeriesOptions,
    floor: i64,
) {
    put_head(out, store, SETTINGS, creates);
    put_options(out, options, floor);
}

pub(crate) fn put_metadata(
    out: &mut Vec<u8>,
    (store, creates): (u32, Option<&str>),
    all: &[(String, Metadata)],
) {
    put_head(out, store, METADATA, creates);
    put_varint(out, all.len() as u64);
    for (metric, metadata) in all {
        put_bytes(out, metric.as_bytes());
        metadata.encode(out);
    }
}

pub(crate) fn put_rules(
    out: &mut Vec<u8>,
    (store, creates): (u32, Option<&str>),
    part: RulesPart,
    bytes: &[u8],
) {
    let kind = if part == RulesPart::Rules { RULES } else { PROGRESS };
    put_head(out, store, kind, creates);
    out.extend_from_slice(bytes);
}

/// Settings as encoded in sections and in the catalog.
pub(crate) fn put_options(out: &mut Vec<u8>, options: SeriesOptions, floor: i64) {
    out.push(match options.duplicates {
        Duplicates::KeepLast => 0,
        Duplicates::KeepFirst => 1,
        Duplicates::Refuse => 2,
    });
    put_u64(out, options.series_max);
    put_u64(out, options.metric_series_max);
    for time in [options.past_ms_max, options.future_ms_max, floor] {
        out.extend_from_slice(&time.to_le_bytes());
    }
}

pub(crate) fn take_options(decoder: &mut Decoder<'_>) -> Result<(SeriesOptions, i64), DecodeError> {
    let offset = decoder.offset();
    let duplicates = match decoder.u8("duplicates")? {
        0 => Duplicates::KeepLast,
        1 => Duplicates::KeepFirst,
        2 => Duplicates::Refuse,
        _ => return Err(DecodeError { what: "a known treatment of duplicates", offset }),
    };
    let series_max = decoder.u64("series_max")?;
    let metric_series_max = decoder.u64("metric_series_max")?;
    let mut time = |what| decoder.array(what).map(i64::from_le_bytes);
    let (past_ms_max, future_ms_max) = (time("past_ms_max")?, time("future_ms_max")?);
    let floor = time("floor")?;
    let options = SeriesOptions { duplicates, series_max, metric_series_max, past_ms_max, future_ms_max };
    Ok((options, floor))
}

impl<'a> Section<'a> {
    /// Reads a section of the series model.
    pub(crate) fn decode(section: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(section);
        let store = decoder.u32("store")?;
        let kind = decoder.u8("kind of section")?;
        let creates = if kind & CREATES != 0 { Some(decoder.str("store name")?) } else { None };
        let body = match kind & !CREATES {
            SAMPLES => Self::samples(&mut decoder)?,
            DELETION => Self::deletion(&mut decoder)?,
            SETTINGS => {
                let (options, floor) = take_options(&mut decoder)?;
                Body::Settings { options, floor }
            }
            METADATA => {
                let mut all = Vec::new();
                for _ in 0..decoder.varint("number of metrics")? {
                    all.push((decoder.str("metric")?, Metadata::decode(&mut decoder)?));
                }
                Body::Metadata(all)
            }
            RULES => Body::Rules(RulesPart::Rules, decoder.rest()),
            PROGRESS => Body::Rules(RulesPart::Progress, decoder.rest()),
            _ => return Err(DecodeError { what: "a known kind of section", offset: 4 }),
        };
        Ok(Self { store, creates, body })
    }

    fn samples(decoder: &mut Decoder<'a>) -> Result<Body<'a>, DecodeError> {
        let id = |decoder: &mut Decoder<'a>| {
            let offset = decoder.offset();
            let id = decoder.varint("number of a series")?;
            u32::try_from(id).map_err(|_| DecodeError { what: "number of a series", offset })
        };
        let first_new = id(decoder)?;
        let count = decoder.varint("number of new series")?;
        let mut new = Vec::new();
        for _ in 0..count {
            new.push(match decoder.bytes("labels")? {
                [] => NewSeries::Known(id(decoder)?),
                labels => NewSeries::Created(labels),
            });
        }
        Ok(Body::Samples { first_new, new, groups: *decoder })
    }

    fn deletion(decoder: &mut Decoder<'a>) -> Result<Body<'a>, DecodeError> {
        let from = i64::from_le_bytes(decoder.array("from")?);
        let to = i64::from_le_bytes(decoder.array("to")?);
        let offset = decoder.offset();
        let what = decoder.u8("the kind of a deletion")?;
        let ids = match what {
            0 => None,
            1 | 2 => {
                let ids = RoaringBitmap::deserialize_from(decoder.rest());
                Some(Arc::new(ids.map_err(|_| DecodeError { what: "a bitmap of series", offset })?))
            }
            _ => return Err(DecodeError { what: "a known kind of deletion", offset }),
        };
        Ok(Body::Deletion { from, to, ids, forget: what == 2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::metadata::MetricType;
    use proptest::prelude::*;
    use ropewalk_base::hex;
    use ropewalk_labels::Labels;

    type Read = Vec<(Target, Vec<(i64, u64)>, Vec<(i64, Vec<u8>)>)>;

    fn read(groups: &[u8]) -> Result<Read, DecodeError> {
        let mut all = Read::new();
        each_group(Decoder::new(groups), |target, group, floats| {
            let mut floats = floats.to_vec();
            let mut rich = Vec::new();
            match group {
                Group::Floats => {}
                Group::Chunk(bytes) => {
                    let (mut times, mut bits) = (Vec::new(), Vec::new());
                    crate::chunk::ChunkHead::decode(bytes, 0)?.samples(&mut times, &mut bits)?;
                    floats = times.into_iter().zip(bits).collect();
                }
                Group::Rich(time, payload) | Group::Exemplar(time, _, payload) => {
                    rich.push((time, payload.to_vec()))
                }
            }
            all.push((target, floats, rich));
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn golden_bytes() {
        let mut writer = GroupWriter::default();
        writer.floats(Target::Known(7), &[1000], &[2.0_f64.to_bits()], true);
        writer.floats(Target::Known(8), &[1000], &[0.5_f64.to_bits()], true);
        writer.floats(Target::New(0), &[1000, 1015], &[3.0_f64.to_bits(), 5.0_f64.to_bits()], true);
        writer.rich(Target::Known(8), 1, [(1000, b"xy".as_slice())].into_iter());
        assert_eq!(hex(&writer.out), "e101d00f042000000000000000e03f0b02001e0604050100027879");
        let mut writer = GroupWriter::default();
        let labels = Some(Labels::new([("id", "7")]).unwrap());
        writer.exemplars(Target::New(1), &[Exemplar { time_ms: 5, value: 0.5, labels }]);
        assert_eq!(hex(&writer.out), "1e010a000000000000e03f050269640137");
        let mut section = Vec::new();
        let about = Metadata { metric_type: MetricType::Counter, unit: "s".into(), help: "h".into() };
        put_metadata(&mut section, (3, None), &[("m".into(), about)]);
        assert_eq!(hex(&section), "03000000030101 6d0101730168".replace(' ', ""));
        let mut section = Vec::new();
        let labels = b"\x01a\x011".as_slice();
        let new = [NewSeries::Created(labels), NewSeries::Known(4)];
        put_samples(&mut section, (3, Some("m")), 9, new.into_iter(), b"\x00");
        assert_eq!(hex(&section), "0300000080016d09020401610131000400");
        let Body::Samples { first_new: 9, new: back, .. } = Section::decode(&section).unwrap().body else {
            panic!("samples");
        };
        assert_eq!(back, new);
        let mut section = Vec::new();
        let ids: RoaringBitmap = [1, 5].into_iter().collect();
        put_deletion(&mut section, 3, (-1, 2), Some(&ids), true);
        assert!(hex(&section).starts_with("0300000001ffffffffffffffff020000000000000002"));
        let Body::Deletion { from: -1, to: 2, ids: Some(back), forget: true } =
            Section::decode(&section).unwrap().body
        else {
            panic!("deletion");
        };
        assert_eq!(*back, ids);
        let mut section = Vec::new();
        let options = SeriesOptions {
            duplicates: Duplicates::Refuse,
            series_max: 5,
            metric_series_max: 3,
            past_ms_max: 1,
            future_ms_max: i64::MAX,
        };
        put_settings(&mut section, (3, None), options, -2);
        let numbers = "05000000000000000300000000000000 0100000000000000ffffffffffffff7ffeffffffffffffff";
        assert_eq!(hex(&section), format!("030000000202{numbers}").replace(' ', ""));
        assert!(
            matches!(Section::decode(&section).unwrap().body, Body::Settings { options: o, floor: -2 } if o == options)
        );
    }

    proptest! {
        #[test]
        fn groups_round_trip(groups in prop::collection::vec(
            (any::<u32>(), any::<bool>(), prop::collection::btree_map(any::<i64>(), any::<u64>(), 1..80), any::<bool>()),
            0..8,
        )) {
            let mut writer = GroupWriter::default();
            let mut expected = Read::new();
            for (id, new, samples, integers) in groups {
                let target = if new { Target::New(id) } else { Target::Known(id) };
                let value = |b: u64| if integers { ((b >> 20) as f64).to_bits() } else { b };
                let samples: Vec<(i64, u64)> = samples.into_iter().map(|(t, b)| (t, value(b))).collect();
                let (times, bits): (Vec<i64>, Vec<u64>) = samples.iter().copied().unzip();
                writer.floats(target, &times, &bits, true);
                expected.push((target, samples, Vec::new()));
            }
            prop_assert_eq!(read(&writer.out).unwrap(), expected);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>, kind in 0..7_u8) {
            let _ = read(&bytes);
            let mut section = vec![1, 0, 0, 0, kind];
            section.extend_from_slice(&bytes);
            let _ = Section::decode(&section);
        }
    }
}
