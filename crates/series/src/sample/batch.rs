//! Batches of samples to append, filled by an application or a protocol, and reusable.
//!
//!   batch.series(labels).push(time, value) …  ─▶ columns of the whole batch ─▶ one commit
//!
//! Filling allocates only to grow columns that the batch owns; refilling a cleared batch allocates nothing.

use ropewalk_base::{DecodeError, Decoder};
use ropewalk_labels::{Histogram, Labels, LabelsRef};

use crate::id::SeriesId;
use crate::sample::histogram::{put_histogram, take_histogram};
use crate::sample::pack::{put_signed, take_signed};

/// Samples of any number of series, in any order, to be appended as one commit.
#[derive(Debug, Clone, Default)]
pub struct SampleBatch {
    labels: Vec<u8>,
    groups: Vec<Group>,
    pub(crate) times: Vec<i64>,
    pub(crate) bits: Vec<u64>,
    /// Time and end of the payload.
    rich: Vec<(i64, usize)>,
    payloads: Vec<u8>,
    exemplars: Vec<Exemplar>,
}

/// An example of the events that a sample counts, such as one request with its trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Time of the event, milliseconds since 1970.
    pub time_ms: i64,
    /// Measured value.
    pub value: f64,
    /// Identifying labels, such as `trace_id`.
    pub labels: Option<Labels>,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    who: Who,
    floats: usize,
    rich: usize,
    exemplars: usize,
}

/// Series of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    /// End of the label bytes; they begin where those of the previous group end.
    Labels(usize, usize),
    Id(SeriesId),
}

/// The samples of one series within a batch.
pub(crate) struct GroupRef<'a> {
    pub(crate) who: Who,
    pub(crate) times: &'a [i64],
    pub(crate) bits: &'a [u64],
    pub(crate) rich: RichSlice<'a>,
    pub(crate) exemplars: &'a [Exemplar],
}

/// Samples with payloads: histograms, and floats with start timestamps.
#[derive(Clone, Copy)]
pub(crate) struct RichSlice<'a> {
    entries: &'a [(i64, usize)],
    start: usize,
    payloads: &'a [u8],
}

impl<'a> RichSlice<'a> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = (i64, &'a [u8])> {
        let mut start = self.start;
        self.entries.iter().map(move |(time, end)| {
            let payload = self.payloads.get(start..*end).expect("payloads follow each other");
            start = *end;
            (*time, payload)
        })
    }
}

impl SampleBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes everything but retains the memory.
    pub fn clear(&mut self) {
        self.labels.clear();
        self.groups.clear();
        self.times.clear();
        self.bits.clear();
        self.rich.clear();
        self.payloads.clear();
        self.exemplars.clear();
    }

    /// Samples in it.
    pub fn len(&self) -> usize {
        self.times.len() + self.rich.len()
    }

    /// Approximate bytes of its labels and samples.
    pub fn bytes(&self) -> usize {
        self.labels.len() + self.len() * size_of::<(i64, u64)>() + self.payloads.len()
    }

    /// True without samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins the samples of a series; a new one is created by the commit.
    pub fn series(&mut self, labels: &Labels) -> SeriesSamples<'_> {
        self.series_bytes(labels.as_bytes())
    }

    /// As [`SampleBatch::series`], with labels in their stored form (see [`Labels::as_bytes`]) straight from a request:
    /// the append checks them only where the series is new.
    pub fn series_bytes(&mut self, labels: &[u8]) -> SeriesSamples<'_> {
        let start = self.labels.len();
        self.labels.extend_from_slice(labels);
        self.begin(Who::Labels(start, self.labels.len()))
    }

    /// Begins the samples of a series by its number: no look-up.
    pub fn series_id(&mut self, id: SeriesId) -> SeriesSamples<'_> {
        self.begin(Who::Id(id))
    }

    fn begin(&mut self, who: Who) -> SeriesSamples<'_> {
        let (floats, rich, exemplars) = (self.times.len(), self.rich.len(), self.exemplars.len());
        self.groups.push(Group { who, floats, rich, exemplars });
        SeriesSamples(self)
    }

    /// One sample of one series.
    pub fn push(&mut self, labels: &Labels, time_ms: i64, value: f64) {
        self.series(labels).push(time_ms, value);
    }

    pub(crate) fn label_bytes(&self, start: usize, end: usize) -> &[u8] {
        self.labels.get(start..end).expect("groups have the ends of their labels")
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupRef<'_>> {
        debug_assert_eq!(self.times.len(), self.bits.len(), "every time has a value");
        let ends = self.groups.iter().skip(1).map(|g| (g.floats, g.rich, g.exemplars));
        let ends = ends.chain([(self.times.len(), self.rich.len(), self.exemplars.len())]);
        self.groups.iter().zip(ends).map(|(group, (floats_end, rich_end, exemplars_end))| GroupRef {
            exemplars: of_group(&self.exemplars, group.exemplars..exemplars_end),
            who: group.who,
            times: of_group(&self.times, group.floats..floats_end),
            bits: of_group(&self.bits, group.floats..floats_end),
            rich: RichSlice {
                entries: of_group(&self.rich, group.rich..rich_end),
                start: group.rich.checked_sub(1).and_then(|at| self.rich.get(at)).map_or(0, |r| r.1),
                payloads: &self.payloads,
            },
        })
    }

    /// Appends the content of another batch after this one's.
    pub fn extend(&mut self, other: &Self) {
        other.groups().for_each(|group| self.copy(other, &group));
    }

    /// Removes the series whose labels `keep` refuses; those named by number stay.
    pub fn retain(&mut self, mut keep: impl FnMut(LabelsRef<'_>) -> bool) {
        let mut kept = Self::default();
        for group in self.groups() {
            let stays = match group.who {
                Who::Labels(start, end) => keep(LabelsRef::new(self.label_bytes(start, end))),
                Who::Id(_) => true,
            };
            if stays {
                kept.copy(self, &group);
            }
        }
        *self = kept;
    }

    /// Replaces the labels of each series by the result of `change`, or removes it; those named by number
    /// stay as they are. Series that become the same are merged, their samples in order of the batch.
    pub fn relabel(&mut self, mut change: impl FnMut(LabelsRef<'_>) -> Option<Labels>) {
        let mut changed = Self::default();
        for group in self.groups() {
            match group.who {
                Who::Id(_) => changed.copy(self, &group),
                Who::Labels(start, end) => {
                    if let Some(labels) = change(LabelsRef::new(self.label_bytes(start, end))) {
                        copy_samples(&mut changed.series(&labels), &group);
                    }
                }
            }
        }
        *self = changed;
    }

    fn copy(&mut self, other: &Self, group: &GroupRef<'_>) {
        let mut to = match group.who {
            Who::Labels(start, end) => self.series_bytes(other.label_bytes(start, end)),
            Who::Id(id) => self.series_id(id),
        };
        copy_samples(&mut to, group);
    }
}

/// The part of a column that belongs to one group.
fn of_group<T>(column: &[T], range: std::ops::Range<usize>) -> &[T] {
    column.get(range).expect("groups follow each other in every column")
}

fn copy_samples(to: &mut SeriesSamples<'_>, group: &GroupRef<'_>) {
    to.0.times.extend_from_slice(group.times);
    to.0.bits.extend_from_slice(group.bits);
    to.0.exemplars.extend_from_slice(group.exemplars);
    for (time, payload) in group.rich.iter() {
        to.0.payloads.extend_from_slice(payload);
        to.0.rich.push((time, to.0.payloads.len()));
    }
}

/// Fills in the samples of one series.
#[derive(Debug)]
pub struct SeriesSamples<'a>(&'a mut SampleBatch);

impl SeriesSamples<'_> {
    /// A float sample. Times may come in any order.
    #[inline]
    pub fn push(&mut self, time_ms: i64, value: f64) -> &mut Self {
        self.0.times.push(time_ms);
        self.0.bits.push(value.to_bits());
        self
    }

    /// Columns of float samples; if one column is longer, its rest is ignored.
    pub fn extend(&mut self, times_ms: &[i64], values: &[f64]) -> &mut Self {
        let len = times_ms.len().min(values.len());
        self.0.times.extend(times_ms.iter().take(len));
        self.0.bits.extend(values.iter().take(len).map(|v| v.to_bits()));
        self
    }

    /// A float sample of a counter that began at `start_ms`; 0 is no start.
    pub fn push_started(&mut self, time_ms: i64, value: f64, start_ms: i64) -> &mut Self {
        if start_ms == 0 {
            return self.push(time_ms, value);
        }
        put_payload(&mut self.0.payloads, start_ms, Err(value.to_bits()));
        self.0.rich.push((time_ms, self.0.payloads.len()));
        self
    }

    /// A native histogram; `start_ms` 0 is no start.
    pub fn push_histogram(&mut self, time_ms: i64, histogram: &Histogram, start_ms: i64) -> &mut Self {
        put_payload(&mut self.0.payloads, start_ms, Ok(histogram));
        self.0.rich.push((time_ms, self.0.payloads.len()));
        self
    }

    /// An exemplar. A series stores one for each time, the last.
    pub fn exemplar(&mut self, exemplar: Exemplar) -> &mut Self {
        self.0.exemplars.push(exemplar);
        self
    }
}

const HAS_START: u8 = 1;
const IS_HISTOGRAM: u8 = 2;

/// `u8 flags (1 start, 2 histogram) │ [start signed] │ histogram, or the bits of a float`.
pub(crate) fn put_payload(out: &mut Vec<u8>, start_ms: i64, value: Result<&Histogram, u64>) {
    let start = if start_ms == 0 { 0 } else { HAS_START };
    out.push(start | if value.is_ok() { IS_HISTOGRAM } else { 0 });
    if start_ms != 0 {
        put_signed(out, start_ms);
    }
    match value {
        Ok(histogram) => put_histogram(out, histogram),
        Err(bits) => out.extend_from_slice(&bits.to_le_bytes()),
    }
}

/// A decoded payload: start timestamp, then a histogram or the bits of a float.
pub(crate) fn take_payload(payload: &[u8]) -> Result<(i64, Result<Histogram, u64>), DecodeError> {
    let mut decoder = Decoder::new(payload);
    let flags = decoder.u8("flags of a sample")?;
    if flags > 3 {
        return Err(DecodeError { what: "known flags of a sample", offset: 0 });
    }
    let start = if flags & HAS_START != 0 { take_signed(&mut decoder, "start timestamp")? } else { 0 };
    let value = if flags & IS_HISTOGRAM != 0 {
        Ok(take_histogram(&mut decoder)?)
    } else {
        Err(decoder.u64("value")?)
    };
    if !decoder.is_empty() {
        return Err(DecodeError { what: "the end of a sample", offset: decoder.offset() });
    }
    Ok((start, value))
}
