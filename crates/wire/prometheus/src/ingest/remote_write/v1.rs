//! Remote write 1.0: `prometheus.WriteRequest`, each series with its labels as strings.

use ropewalk::series::{Exemplar, Metadata};

use crate::ingest::labels::{LabelSet, Rejected};
use crate::ingest::metadata::metric_type;
use crate::ingest::protobuf::{Fields, Malformed, Value, varint};

use super::histogram::{self, Timed};
use super::known::{Known, Reading};
use super::{Begins, Bounds, Decoded, Fault, Who};
use crate::ingest::Refused;

/// Decodes a request; with `known`, cached series are named by their numbers.
pub(crate) fn decode(bytes: &[u8], bounds: Bounds, known: Option<&Known>) -> Result<Decoded, Fault> {
    let mut decoded = Decoded::default();
    let mut labels = LabelSet::default();
    let known = known.map(Known::read);
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => series(value.bytes()?, bounds, (&mut labels, known.as_ref()), &mut decoded)?,
            3 => metadata(value, &mut decoded)?,
            _ => {}
        }
    }
    Ok(decoded)
}

fn metadata(message: Value<'_>, decoded: &mut Decoded) -> Result<(), Malformed> {
    let (mut metric, mut metadata) = ("", Metadata::default());
    let mut fields = message.message()?;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => metadata.metric_type = metric_type(value.u64()?),
            2 => metric = value.text()?,
            4 => metadata.help = value.text()?.to_owned(),
            5 => metadata.unit = value.text()?.to_owned(),
            _ => {}
        }
    }
    decoded.metadata.add(metric, metadata, &mut decoded.refused);
    Ok(())
}

const CUT: Malformed = Malformed("a field is longer than its message");
/// First byte of a label and of a sample within a series: field number 1 and 2, length-delimited.
const LABEL: u8 = 0x0a;
const SAMPLE: u8 = 0x12;

/// Skips fields that begin with `first` and are shorter than 128 bytes, as almost all are.
#[inline]
fn skip(mut bytes: &[u8], first: u8) -> Result<&[u8], Malformed> {
    while let Some(([byte, length @ 0..0x80], rest)) = bytes.split_first_chunk()
        && *byte == first
    {
        bytes = rest.get(usize::from(*length)..).ok_or(CUT)?;
    }
    Ok(bytes)
}

/// Splits a series into its label bytes and the rest; `None` when the rest contains labels, too.
fn split(bytes: &[u8]) -> Result<Option<(&[u8], &[u8])>, Malformed> {
    let rest = skip(bytes, LABEL)?;
    let mut end = bytes.len() - rest.len();
    let behind = skip(rest, SAMPLE)?;
    let mut ended = behind.len() < rest.len();
    let mut fields = Fields(behind);
    while let Some((number, _)) = fields.next()? {
        match (number, ended) {
            (1, true) => return Ok(None),
            (1, false) => end = bytes.len() - fields.0.len(),
            _ => ended = true,
        }
    }
    Ok(bytes.split_at_checked(end))
}

fn series<'a>(
    bytes: &'a [u8],
    bounds: Bounds,
    (labels, known): (&mut LabelSet<'a>, Option<&Reading<'_>>),
    decoded: &mut Decoded,
) -> Result<(), Fault> {
    let sent = match known {
        Some(_) => split(bytes)?,
        None => None,
    };
    let found = known.zip(sent).map(|(known, (labels, rows))| (known.find(labels), rows));
    if let Some(((_, Some(id)), rows)) = found {
        decoded.by_number = true;
        return rows_of(rows, bounds, Who::Id(id), decoded);
    }
    labels.clear();
    let mut rows = 0_u64;
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => {
                let (name, value) = label(value)?;
                labels.push(name, value);
            }
            2..=4 => rows += 1,
            _ => {}
        }
    }
    if rows == 0 {
        return Ok(());
    }
    let stored = match labels.stored() {
        Ok(stored) => stored,
        Err(rejected) => {
            decoded.refuse(rejected, rows);
            return Ok(());
        }
    };
    if let Some(((key, _), _)) = found {
        decoded.unknown.push((key, stored.into()));
    }
    rows_of(bytes, bounds, Who::Labels(stored), decoded)
}

/// Adds the samples, exemplars and histograms of a series.
fn rows_of(bytes: &[u8], bounds: Bounds, who: Who<'_>, decoded: &mut Decoded) -> Result<(), Fault> {
    let Decoded { batch, samples, exemplars, histograms, refused, .. } = decoded;
    let mut into = Begins::new(batch, who);
    let mut take = |into: &mut Begins<'_, '_>, refused: &mut Refused, time_ms, value| {
        if time_ms < bounds.floor_ms {
            return refused.too_old(time_ms, bounds.floor_ms);
        }
        into.samples().push(time_ms, value);
        *samples += 1;
    };
    let mut fields = Fields(bytes);
    while let Some((time_ms, value, rest)) = usual_sample(fields.0) {
        take(&mut into, refused, time_ms, value);
        fields = Fields(rest);
    }
    while let Some((number, value)) = fields.next()? {
        match number {
            2 => {
                let (time_ms, value) = sample(value)?;
                take(&mut into, refused, time_ms, value);
            }
            3 => match exemplar(value)? {
                Ok(exemplar) => {
                    into.samples().exemplar(exemplar);
                    *exemplars += 1;
                }
                Err(Rejected(why)) => refused.add(1, || why),
            },
            4 => match histogram::decode(value)? {
                Ok(Timed { time_ms, .. }) if time_ms < bounds.floor_ms => {
                    refused.too_old(time_ms, bounds.floor_ms);
                }
                Ok(Timed { time_ms, start_ms, histogram }) => {
                    into.samples().push_histogram(time_ms, &histogram, start_ms);
                    *histograms += 1;
                }
                Err(Rejected(why)) => refused.add(1, || why),
            },
            _ => {}
        }
    }
    Ok(())
}

fn label(message: Value<'_>) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut name, mut text) = (&b""[..], &b""[..]);
    let mut fields = message.message()?;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => name = value.bytes()?,
            2 => text = value.bytes()?,
            _ => {}
        }
    }
    Ok((name, text))
}

/// Fast path for a sample in the usual encoding: fixed64 field 1 and varint field 2, both present.
#[inline]
fn usual_sample(bytes: &[u8]) -> Option<(i64, f64, &[u8])> {
    let ([SAMPLE, length, 0x09], rest) = bytes.split_first_chunk()? else { return None };
    let (value, rest) = rest.split_first_chunk()?;
    let (0x10, rest) = rest.split_first()? else { return None };
    let mut behind = rest;
    let time_ms = varint(&mut behind).ok()?;
    let ends_there = 10 + rest.len() - behind.len() == usize::from(*length);
    ends_there.then(|| (time_ms as i64, f64::from_le_bytes(*value), behind))
}

fn sample(message: Value<'_>) -> Result<(i64, f64), Malformed> {
    let (mut time_ms, mut number_of) = (0, 0.0);
    let mut fields = message.message()?;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => number_of = value.f64()?,
            2 => time_ms = value.i64()?,
            _ => {}
        }
    }
    Ok((time_ms, number_of))
}

fn exemplar(message: Value<'_>) -> Result<Result<Exemplar, Rejected>, Malformed> {
    let (mut labels, mut number_of, mut time_ms) = (LabelSet::default(), 0.0, 0);
    let mut fields = message.message()?;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => {
                let (name, value) = label(value)?;
                labels.push(name, value);
            }
            2 => number_of = value.f64()?,
            3 => time_ms = value.i64()?,
            _ => {}
        }
    }
    Ok(super::exemplar(&labels, number_of, time_ms))
}
