//! Remote write 2.0: `io.prometheus.write.v2.Request`, labels as numbers of symbols that stand in the request once.

use crate::labels::{LabelSet, Rejected};
use crate::protobuf::{Fields, Malformed, Value};

use super::histogram::{self, Timed};
use super::{Begins, Bounds, Decoded, Fault};

/// Reads a request.
pub(crate) fn decode(bytes: &[u8], bounds: Bounds) -> Result<Decoded, Fault> {
    let symbols = symbols(bytes)?;
    let mut decoded = Decoded::default();
    let mut work =
        Work { symbols: &symbols, labels: LabelSet::default(), references: Vec::new(), label_bytes: 0 };
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        if number == 5 {
            work.series(value.bytes()?, bounds, &mut decoded)?;
        }
    }
    Ok(decoded)
}

/// They may stand anywhere in the request, so they are looked for first.
fn symbols(bytes: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut symbols = Vec::new();
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        if number == 4 {
            symbols.push(value.bytes()?);
        }
    }
    if symbols.first().is_some_and(|first| !first.is_empty()) {
        return Err(Malformed("the first symbol has to be the empty text"));
    }
    Ok(symbols)
}

struct Work<'a, 's> {
    symbols: &'s [&'a [u8]],
    labels: LabelSet<'a>,
    references: Vec<u64>,
    /// Of all series so far.
    label_bytes: usize,
}

#[derive(Default)]
struct Sample {
    time_ms: i64,
    value: f64,
    start_ms: i64,
}

impl<'a> Work<'a, '_> {
    fn series(&mut self, bytes: &'a [u8], bounds: Bounds, decoded: &mut Decoded) -> Result<(), Fault> {
        self.references.clear();
        let (mut rows, mut start_ms) = (0_u64, 0_i64);
        let mut fields = Fields(bytes);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => value.each_varint(|reference| self.references.push(reference))?,
                2 | 3 => rows += 1,
                4 => decoded.exemplars += 1,
                // Drafts of the protocol have the start here, for all samples.
                6 => start_ms = value.i64()?,
                _ => {}
            }
        }
        if rows == 0 {
            return Ok(());
        }
        if let Err(rejected) = self.resolve() {
            decoded.refuse(rejected, rows);
            return Ok(());
        }
        let stored = match self.labels.stored() {
            Ok(stored) => stored,
            Err(rejected) => {
                decoded.refuse(rejected, rows);
                return Ok(());
            }
        };
        self.label_bytes += stored.len();
        if self.label_bytes > bounds.label_bytes_max {
            return Err(Fault::LabelBytes);
        }
        let mut into = Begins::new(&mut decoded.batch, stored);
        let mut fields = Fields(bytes);
        while let Some((number, value)) = fields.next()? {
            match number {
                2 => {
                    let sample = sample(value, start_ms)?;
                    if sample.time_ms < bounds.floor_ms {
                        decoded.refused.too_old(sample.time_ms, bounds.floor_ms);
                        continue;
                    }
                    into.samples().push_started(sample.time_ms, sample.value, sample.start_ms);
                    decoded.samples += 1;
                }
                3 => match histogram::decode(value)? {
                    Ok(Timed { time_ms, .. }) if time_ms < bounds.floor_ms => {
                        decoded.refused.too_old(time_ms, bounds.floor_ms);
                    }
                    Ok(timed) => {
                        let start_ms = if timed.start_ms == 0 { start_ms } else { timed.start_ms };
                        into.samples().push_histogram(timed.time_ms, &timed.histogram, start_ms);
                        decoded.histograms += 1;
                    }
                    Err(Rejected(why)) => decoded.refused.add(1, || why),
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// From references to slices.
    fn resolve(&mut self) -> Result<(), Rejected> {
        self.labels.clear();
        let (pairs, rest) = self.references.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Rejected("the labels of a series have an odd number of references".to_owned()));
        }
        let symbol = |reference: u64| {
            let found = usize::try_from(reference).ok().and_then(|at| self.symbols.get(at));
            found.copied().ok_or_else(|| {
                Rejected(format!("there is no symbol {reference}; the request has {}", self.symbols.len()))
            })
        };
        let mut bytes = 0;
        for [name, value] in pairs {
            let (name, value) = (symbol(*name)?, symbol(*value)?);
            bytes += name.len() + value.len();
            if bytes > ropewalk::series::LABEL_SET_BYTES_MAX {
                return Err(Rejected("the labels of a series are too long in all".to_owned()));
            }
            self.labels.push(name, value);
        }
        Ok(())
    }
}

#[inline]
fn sample(message: Value<'_>, start_ms: i64) -> Result<Sample, Malformed> {
    let mut sample = Sample { start_ms, ..Sample::default() };
    let mut fields = message.message()?;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => sample.value = value.f64()?,
            2 => sample.time_ms = value.i64()?,
            3 => sample.start_ms = value.i64()?,
            _ => {}
        }
    }
    Ok(sample)
}
