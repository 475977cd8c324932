//! Remote write 2.0: `io.prometheus.write.v2.Request`, labels as references to a symbol table.

use ropewalk::series::{Exemplar, Metadata};

use crate::ingest::labels::{LabelSet, METRIC_NAME, Rejected};
use crate::ingest::metadata::metric_type;
use crate::ingest::protobuf::{Fields, Malformed, Value};

use super::histogram::{self, Timed};
use super::{Begins, Bounds, Decoded, Fault, Who};

/// Decodes a request.
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

/// Collects the symbols first, since they may be anywhere in the request.
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
        let (mut rows, mut start_ms, mut metadata) = (0_u64, 0_i64, None);
        let mut fields = Fields(bytes);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => value.each_varint(|reference| self.references.push(reference))?,
                2..=4 => rows += 1,
                5 => metadata = Some(value.bytes()?),
                // Drafts of the protocol have the start time here, for all samples.
                6 => start_ms = value.i64()?,
                _ => {}
            }
        }
        if let Err(rejected) = resolve(self.symbols, &self.references, &mut self.labels) {
            decoded.refuse(rejected, rows);
            return Ok(());
        }
        if let Some(metadata) = metadata {
            self.metadata(metadata, decoded)?;
        }
        if rows == 0 {
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
        let mut into = Begins::new(&mut decoded.batch, Who::Labels(stored));
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
                4 => match exemplar(self.symbols, value)? {
                    Ok(exemplar) => {
                        into.samples().exemplar(exemplar);
                        decoded.exemplars += 1;
                    }
                    Err(Rejected(why)) => decoded.refused.add(1, || why),
                },
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

    /// Reads the metadata of a series' metric.
    fn metadata(&mut self, bytes: &[u8], decoded: &mut Decoded) -> Result<(), Malformed> {
        let text = |reference: u64| {
            let found = usize::try_from(reference).ok().and_then(|at| self.symbols.get(at));
            let found = found.ok_or(Malformed("metadata refers to a symbol that is not there"))?;
            Value::Bytes(found).text()
        };
        let mut metadata = Metadata::default();
        let mut fields = Fields(bytes);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => metadata.metric_type = metric_type(value.u64()?),
                3 => metadata.help = text(value.u64()?)?.to_owned(),
                4 => metadata.unit = text(value.u64()?)?.to_owned(),
                _ => {}
            }
        }
        let metric = self.labels.get(METRIC_NAME).and_then(|name| std::str::from_utf8(name).ok());
        if metadata != Metadata::default()
            && let Some(metric) = metric
        {
            decoded.metadata.add(metric, metadata, &mut decoded.refused);
        }
        Ok(())
    }
}

/// Resolves symbol references to slices.
fn resolve<'a>(symbols: &[&'a [u8]], references: &[u64], labels: &mut LabelSet<'a>) -> Result<(), Rejected> {
    labels.clear();
    let (pairs, rest) = references.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Rejected("the labels of a series have an odd number of references".to_owned()));
    }
    let symbol = |reference: u64| {
        let found = usize::try_from(reference).ok().and_then(|at| symbols.get(at));
        let missing =
            || Rejected(format!("there is no symbol {reference}; the request has {}", symbols.len()));
        found.copied().ok_or_else(missing)
    };
    let mut bytes = 0;
    for [name, value] in pairs {
        let (name, value) = (symbol(*name)?, symbol(*value)?);
        bytes += name.len() + value.len();
        if bytes > ropewalk::series::LABEL_SET_BYTES_MAX {
            return Err(Rejected("the labels of a series are too long in all".to_owned()));
        }
        labels.push(name, value);
    }
    Ok(())
}

fn exemplar(symbols: &[&[u8]], message: Value<'_>) -> Result<Result<Exemplar, Rejected>, Malformed> {
    let (mut references, mut number_of, mut time_ms) = (Vec::new(), 0.0, 0);
    let mut fields = message.message()?;
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => value.each_varint(|reference| references.push(reference))?,
            2 => number_of = value.f64()?,
            3 => time_ms = value.i64()?,
            _ => {}
        }
    }
    let mut labels = LabelSet::default();
    let resolved = resolve(symbols, &references, &mut labels);
    Ok(resolved.and_then(|()| super::exemplar(&labels, number_of, time_ms)))
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
