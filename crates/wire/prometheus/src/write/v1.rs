//! Remote write 1.0: `prometheus.WriteRequest`, each series with its labels as texts.

use ropewalk::series::{Exemplar, Metadata};

use crate::described::metric_type;
use crate::labels::{LabelSet, Rejected};
use crate::protobuf::{Fields, Malformed, Value};

use super::histogram::{self, Timed};
use super::{Begins, Bounds, Decoded, Fault};

/// Reads a request.
pub(crate) fn decode(bytes: &[u8], bounds: Bounds) -> Result<Decoded, Fault> {
    let mut decoded = Decoded::default();
    let mut labels = LabelSet::default();
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => series(value.bytes()?, bounds, &mut labels, &mut decoded)?,
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

fn series<'a>(
    bytes: &'a [u8],
    bounds: Bounds,
    labels: &mut LabelSet<'a>,
    decoded: &mut Decoded,
) -> Result<(), Fault> {
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
    let mut into = Begins::new(&mut decoded.batch, stored);
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        match number {
            2 => {
                let (time_ms, value) = sample(value)?;
                if time_ms < bounds.floor_ms {
                    decoded.refused.too_old(time_ms, bounds.floor_ms);
                    continue;
                }
                into.samples().push(time_ms, value);
                decoded.samples += 1;
            }
            3 => match exemplar(value)? {
                Ok(exemplar) => {
                    into.samples().exemplar(exemplar);
                    decoded.exemplars += 1;
                }
                Err(Rejected(why)) => decoded.refused.add(1, || why),
            },
            4 => match histogram::decode(value)? {
                Ok(Timed { time_ms, .. }) if time_ms < bounds.floor_ms => {
                    decoded.refused.too_old(time_ms, bounds.floor_ms);
                }
                Ok(Timed { time_ms, start_ms, histogram }) => {
                    into.samples().push_histogram(time_ms, &histogram, start_ms);
                    decoded.histograms += 1;
                }
                Err(Rejected(why)) => decoded.refused.add(1, || why),
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

#[inline]
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
