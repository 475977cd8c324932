//! Converts Arrow record batches to samples.
//!
//! A batch lists, column by column, where the buffers are in its body: the validity bits, and then numbers,
//! or offsets and bytes of strings, or indexes into an earlier dictionary, or, for a map, offsets into a
//! column of keys and one of values. Nothing is trusted: each buffer is cut out of the body by checked
//! arithmetic, and each row out of its buffers.

use std::collections::{HashMap, HashSet};

use arrow_ipc::{DictionaryBatch, Endianness, Field, Int, Precision, RecordBatch, Schema, TimeUnit, Type};

use crate::ingest::Read;
use crate::ingest::labels::{LabelSet, METRIC_NAME};
use crate::request::response::{ApiError, Kind};

use super::unpack::{Unpacked, cut};

/// Limit of label bytes of all rows of a batch, per byte of the message limit: dictionaries expand.
const LABEL_BYTES_PER_BYTE: usize = 16;
/// Bytes of the offsets of maps.
const MAP_OFFSETS: usize = 4;
/// Memory of a row in addition to its labels.
const GROUP_BYTES: usize = 16;

fn bad(what: impl Into<String>) -> ApiError {
    ApiError::bad(what)
}

/// Unit of a column of times.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl Unit {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "s" => Self::Seconds,
            "ms" => Self::Milliseconds,
            "us" => Self::Microseconds,
            "ns" => Self::Nanoseconds,
            _ => return None,
        })
    }

    fn ms(self, time: i64) -> i64 {
        match self {
            Self::Seconds => time.saturating_mul(1000),
            Self::Milliseconds => time,
            Self::Microseconds => time.div_euclid(1000),
            Self::Nanoseconds => time.div_euclid(1_000_000),
        }
    }
}

/// Width of a column's string offsets: 4 or 8 bytes.
#[derive(Debug, Clone, Copy)]
struct Offsets(usize);

/// Width of a column's dictionary indexes: 1 to 8 bytes.
#[derive(Debug, Clone, Copy)]
struct Index {
    dictionary: i64,
    bytes: usize,
    signed: bool,
}

#[derive(Debug)]
enum Column {
    Time(Unit),
    Value,
    Texts {
        label: String,
        offsets: Offsets,
    },
    Dictionary {
        label: String,
        index: Index,
    },
    /// Labels of each row.
    Map {
        keys: Offsets,
        values: Offsets,
    },
}

/// The columns of a stream, and its dictionaries.
#[derive(Debug)]
pub(super) struct Layout {
    columns: Vec<Column>,
    metric: Option<String>,
    dictionaries: HashMap<i64, Dictionary>,
}

#[derive(Debug)]
struct Dictionary {
    offsets: Offsets,
    values: Vec<Option<Box<[u8]>>>,
    bytes: usize,
}

impl Layout {
    /// # Errors
    /// A column is missing, or of an unsupported type.
    pub(super) fn new(schema: &Schema<'_>, metric: Option<String>) -> Result<Self, ApiError> {
        if schema.endianness() != Endianness::Little {
            return Err(bad("numbers have to be little-endian"));
        }
        let mut layout = Self { columns: Vec::new(), metric, dictionaries: HashMap::new() };
        let (mut names, mut times, mut values) = (HashSet::new(), 0, 0);
        let is_map = |field: &Field<'_>| field.type_type() == Type::Map;
        let has_map = schema.fields().into_iter().flatten().any(|field| is_map(&field));
        for field in schema.fields().into_iter().flatten() {
            let name = field.name().unwrap_or_default();
            if name.is_empty() || !names.insert(name) {
                return Err(bad(format!("the column name {name:?} is invalid or used twice")));
            }
            let column = match name {
                "timestamp" => {
                    times += 1;
                    Column::Time(unit(&field, has_map)?)
                }
                "value" => {
                    values += 1;
                    let is_double = field
                        .type_as_floating_point()
                        .is_some_and(|float| float.precision() == Precision::DOUBLE);
                    if !is_double || field.dictionary().is_some() {
                        return Err(wrong(&field, "float64"));
                    }
                    Column::Value
                }
                _ if is_map(&field) => map(&field)?,
                _ => layout.label(&field, name)?,
            };
            layout.columns.push(column);
        }
        if (times, values) != (1, 1) {
            return Err(bad("a column `timestamp` and a column `value` are needed"));
        }
        match (&layout.metric, names.contains("__name__")) {
            (Some(_), true) => Err(bad("the metric's name is in the path and in a column `__name__`")),
            (None, false) if !has_map => {
                Err(bad("the metric's name is neither in the path nor in a column `__name__`"))
            }
            _ => Ok(layout),
        }
    }

    fn label(&mut self, field: &Field<'_>, name: &str) -> Result<Column, ApiError> {
        let offsets = match field.type_type() {
            Type::Utf8 => Offsets(4),
            Type::LargeUtf8 => Offsets(8),
            _ => return Err(wrong(field, "a text or a dictionary of texts, as every label")),
        };
        let label = name.to_owned();
        let Some(dictionary) = field.dictionary() else { return Ok(Column::Texts { label, offsets }) };
        // Without a type indexes are int32.
        let index = dictionary.indexType();
        let bits = index.as_ref().map_or(32, Int::bitWidth);
        let bytes = match bits {
            8 | 16 | 32 | 64 => bits as usize / 8,
            _ => return Err(wrong(field, "a dictionary with indexes of 8 to 64 bits")),
        };
        let signed = index.is_none_or(|index| index.is_signed());
        let id = dictionary.id();
        self.dictionaries.insert(id, Dictionary { offsets, values: Vec::new(), bytes: 0 });
        Ok(Column::Dictionary { label, index: Index { dictionary: id, bytes, signed } })
    }

    /// Bytes of the dictionaries.
    pub(super) fn bytes(&self) -> usize {
        self.dictionaries.values().map(|dictionary| dictionary.bytes).sum()
    }

    /// Adds a dictionary, or a delta to one. All of them together have at most `bytes_max` bytes.
    pub(super) fn dictionary(
        &mut self,
        batch: &DictionaryBatch<'_>,
        body: &[u8],
        bytes_max: usize,
    ) -> Result<(), ApiError> {
        let others: usize =
            self.dictionaries.iter().filter(|(id, _)| **id != batch.id()).map(|(_, other)| other.bytes).sum();
        let unknown = || bad(format!("no column has the dictionary {}", batch.id()));
        let dictionary = self.dictionaries.get_mut(&batch.id()).ok_or_else(unknown)?;
        let data = batch.data().ok_or_else(|| bad("a dictionary has no data"))?;
        if !batch.isDelta() {
            dictionary.values.clear();
            dictionary.bytes = 0;
        }
        let unpacked = Unpacked::new(&data, body, bytes_max)?;
        let mut buffers = Buffers::new(&data, &unpacked)?;
        let texts = buffers.texts(dictionary.offsets)?;
        for row in 0..buffers.rows {
            let value = texts.get(row)?;
            dictionary.bytes += value.map_or(0, <[u8]>::len) + GROUP_BYTES;
            if others + dictionary.bytes > bytes_max {
                let what = format!("dictionaries of over {bytes_max} bytes");
                return Err(ApiError::new(Kind::TooLarge, what));
            }
            dictionary.values.push(value.map(Box::from));
        }
        Ok(())
    }

    /// The samples of a batch, and how many rows it has.
    pub(super) fn samples(
        &self,
        batch: &RecordBatch<'_>,
        body: &[u8],
        bytes_max: usize,
    ) -> Result<(Read, u64), ApiError> {
        let unpacked = Unpacked::new(batch, body, bytes_max)?;
        let mut buffers = Buffers::new(batch, &unpacked)?;
        let (mut times, mut values, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        let mut maps = Vec::new();
        for column in &self.columns {
            match column {
                Column::Time(unit) => {
                    times.extend(
                        buffers.numbers("timestamp")?.map(|bytes| unit.ms(i64::from_le_bytes(bytes))),
                    );
                }
                Column::Value => values.extend(buffers.numbers("value")?.map(f64::from_le_bytes)),
                Column::Texts { label, offsets } => {
                    labels.push((label.as_str(), Labels::Texts(buffers.texts(*offsets)?)));
                }
                Column::Dictionary { label, index } => {
                    let dictionary = self.dictionaries.get(&index.dictionary);
                    let values = dictionary.map_or(&[][..], |dictionary| &dictionary.values);
                    labels.push((label.as_str(), Labels::Dictionary(buffers.indexes(*index)?, values)));
                }
                Column::Map { keys, values } => maps.push(buffers.map(*keys, *values)?),
            }
        }
        let mut rows = Rows {
            metric: self.metric.as_deref(),
            read: Read::default(),
            budget: bytes_max.saturating_mul(LABEL_BYTES_PER_BYTE),
        };
        // Consecutive rows of one series share one lookup.
        let (mut group, mut here) = (Given::default(), Given::default());
        let mut from = 0;
        for row in 0..buffers.rows {
            here.clear();
            for (_, label) in &labels {
                here.values.push(label.get(row)?);
            }
            for map in &maps {
                map.get(row, &mut here.pairs)?;
            }
            if row > 0 && !rows.is_same(&here, &group)? {
                rows.add(&labels, &group, (&times, &values), from..row)?;
                from = row;
            }
            if from == row {
                std::mem::swap(&mut group, &mut here);
            }
        }
        if buffers.rows > 0 {
            rows.add(&labels, &group, (&times, &values), from..buffers.rows)?;
        }
        Ok((rows.read, buffers.rows as u64))
    }
}

/// The labels of a row: the values of columns, and the pairs of maps.
#[derive(Default)]
struct Given<'a> {
    values: Vec<Option<&'a [u8]>>,
    pairs: Vec<(&'a [u8], &'a [u8])>,
}

impl Given<'_> {
    fn clear(&mut self) {
        self.values.clear();
        self.pairs.clear();
    }
}

/// Builds the batch of samples.
struct Rows<'a> {
    metric: Option<&'a str>,
    read: Read,
    budget: usize,
}

impl Rows<'_> {
    fn spend(&mut self, bytes: usize) -> Result<(), ApiError> {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.ok_or_else(|| bad("the labels of the batch are too long in all"))?;
        Ok(())
    }

    /// True when two rows are of one series. Comparing equal bytes in two places is charged to the budget;
    /// equal values of a dictionary are in one place.
    fn is_same(&mut self, one: &Given<'_>, other: &Given<'_>) -> Result<bool, ApiError> {
        if one.pairs.len() != other.pairs.len() {
            return Ok(false);
        }
        let values = one.values.iter().zip(&other.values).map(|(one, other)| (*one, *other));
        let pairs = one.pairs.iter().zip(&other.pairs);
        let pairs = pairs.flat_map(|(one, other)| [(one.0, other.0), (one.1, other.1)]);
        for pair in values.chain(pairs.map(|(one, other)| (Some(one), Some(other)))) {
            let (one, other) = match pair {
                (None, None) => continue,
                (Some(one), Some(other)) if one.len() == other.len() => (one, other),
                _ => return Ok(false),
            };
            if !std::ptr::eq(one, other) {
                self.spend(one.len())?;
                if one != other {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Adds consecutive rows of one series.
    fn add(
        &mut self,
        labels: &[(&str, Labels<'_>)],
        given: &Given<'_>,
        (times, samples): (&[i64], &[f64]),
        rows: std::ops::Range<usize>,
    ) -> Result<(), ApiError> {
        let mut set = LabelSet::default();
        // A name in a map overrides that of the path.
        let is_named = given.pairs.iter().any(|(name, _)| *name == METRIC_NAME.as_bytes());
        let metric =
            self.metric.filter(|_| !is_named).map(|metric| (METRIC_NAME.as_bytes(), metric.as_bytes()));
        let columns = labels.iter().zip(&given.values);
        let columns = columns.filter_map(|((name, _), value)| Some((name.as_bytes(), (*value)?)));
        let mut bytes = GROUP_BYTES;
        for (name, value) in metric.into_iter().chain(columns).chain(given.pairs.iter().copied()) {
            set.push(name, value);
            bytes += name.len() + value.len();
        }
        self.spend(bytes)?;
        let count = rows.len() as u64;
        match set.stored() {
            Ok(stored) => {
                let times = times.get(rows.clone()).unwrap_or_default();
                let samples = samples.get(rows).unwrap_or_default();
                self.read.batch.series_bytes(stored).extend(times, samples);
            }
            Err(rejected) => self.read.refused.add(count, || rejected.0),
        }
        Ok(())
    }
}

/// A label of each row.
enum Labels<'a> {
    Texts(Texts<'a>),
    Dictionary(Indexes<'a>, &'a [Option<Box<[u8]>>]),
}

impl<'a> Labels<'a> {
    fn get(&self, row: usize) -> Result<Option<&'a [u8]>, ApiError> {
        match self {
            Self::Texts(texts) => texts.get(row),
            Self::Dictionary(indexes, values) => {
                let Some(index) = indexes.get(row)? else { return Ok(None) };
                let value = usize::try_from(index).ok().and_then(|index| values.get(index));
                let outside =
                    || bad(format!("row {row} has index {index} into a dictionary of {}", values.len()));
                Ok(value.ok_or_else(outside)?.as_deref())
            }
        }
    }
}

/// Which rows have a value.
struct Valid<'a>(Option<&'a [u8]>);

impl Valid<'_> {
    fn has(&self, row: usize) -> bool {
        self.0.is_none_or(|bits| bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1))
    }
}

struct Texts<'a> {
    valid: Valid<'a>,
    width: usize,
    offsets: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Texts<'a> {
    fn get(&self, row: usize) -> Result<Option<&'a [u8]>, ApiError> {
        if !self.valid.has(row) {
            return Ok(None);
        }
        let text = span(self.offsets, row, self.width).and_then(|(from, to)| self.bytes.get(from..to));
        text.map(Some).ok_or_else(|| bad(format!("the text of row {row} lies outside its buffer")))
    }
}

/// A map of each row: which entries it has, and all entries.
struct Map<'a> {
    valid: Valid<'a>,
    offsets: &'a [u8],
    keys: Texts<'a>,
    values: Texts<'a>,
}

impl<'a> Map<'a> {
    fn get(&self, row: usize, pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), ApiError> {
        if !self.valid.has(row) {
            return Ok(());
        }
        let (from, to) = span(self.offsets, row, MAP_OFFSETS)
            .ok_or_else(|| bad(format!("the map of row {row} lies outside its entries")))?;
        for entry in from..to {
            let key = self.keys.get(entry)?.ok_or_else(|| bad(format!("a key of row {row} is null")))?;
            // A null value is no label.
            if let Some(value) = self.values.get(entry)? {
                pairs.push((key, value));
            }
        }
        Ok(())
    }
}

struct Indexes<'a> {
    valid: Valid<'a>,
    index: Index,
    bytes: &'a [u8],
}

impl Indexes<'_> {
    fn get(&self, row: usize) -> Result<Option<i64>, ApiError> {
        if !self.valid.has(row) {
            return Ok(None);
        }
        let index = number(self.bytes, row, self.index.bytes, self.index.signed);
        index.map(Some).ok_or_else(|| bad(format!("row {row} has no index")))
    }
}

/// Where row `index` begins and ends, by offsets of `width` bytes.
fn span(offsets: &[u8], index: usize, width: usize) -> Option<(usize, usize)> {
    let at = |index: usize| usize::try_from(number(offsets, index, width, true)?).ok();
    at(index).zip(at(index.checked_add(1)?))
}

/// Refuses offsets that go back: rows could have the same bytes again and again then.
fn rising(offsets: &[u8], rows: usize, width: usize) -> Result<(), ApiError> {
    for row in 0..rows {
        if span(offsets, row, width).is_none_or(|(from, to)| from > to) {
            return Err(bad(format!("the offsets of row {row} are missing, or go back")));
        }
    }
    Ok(())
}

/// Number `index` of a column of little-endian integers; those that do not fit are negative.
fn number(bytes: &[u8], index: usize, width: usize, signed: bool) -> Option<i64> {
    let from = index.checked_mul(width)?;
    let bytes = bytes.get(from..from.checked_add(width)?)?;
    let negative = signed && bytes.last().is_some_and(|last| *last >= 0x80);
    let mut wide = if negative { [0xff; 8] } else { [0; 8] };
    wide.get_mut(..width)?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}

/// The buffers of a batch, column by column.
struct Buffers<'a> {
    rows: usize,
    body: &'a [u8],
    /// Rows and nulls of each column.
    nodes: Vec<(i64, i64)>,
    /// Offset and length of each buffer.
    places: &'a [(i64, i64)],
    node: usize,
    place: usize,
}

impl<'a> Buffers<'a> {
    fn new(batch: &RecordBatch<'_>, unpacked: &'a Unpacked<'_>) -> Result<Self, ApiError> {
        let rows = usize::try_from(batch.length()).map_err(|_| bad("a batch of less than no rows"))?;
        let nodes = batch.nodes().into_iter().flatten().map(|node| (node.length(), node.null_count()));
        let (body, places) = (&*unpacked.body, &*unpacked.places);
        Ok(Self { rows, body, nodes: nodes.collect(), places, node: 0, place: 0 })
    }

    /// Begins a column of as many rows as the batch has; returns its number of nulls.
    fn column(&mut self) -> Result<i64, ApiError> {
        let (rows, nulls) = self.node()?;
        if rows != self.rows {
            return Err(bad(format!("a column has {rows} rows, its batch {}", self.rows)));
        }
        Ok(nulls)
    }

    /// Begins a column; returns its numbers of rows and nulls.
    fn node(&mut self) -> Result<(usize, i64), ApiError> {
        let node = self.nodes.get(self.node).copied();
        let (rows, nulls) = node.ok_or_else(|| bad("a batch has fewer columns than its schema"))?;
        self.node += 1;
        Ok((usize::try_from(rows).map_err(|_| bad("a column of less than no rows"))?, nulls))
    }

    fn buffer(&mut self) -> Result<&'a [u8], ApiError> {
        let place = self.places.get(self.place).copied();
        let place = place.ok_or_else(|| bad("a batch has fewer buffers than its columns need"))?;
        self.place += 1;
        cut(self.body, place)
    }

    fn valid(&mut self, rows: usize, nulls: i64) -> Result<Valid<'a>, ApiError> {
        let bits = self.buffer()?;
        match nulls {
            0 => Ok(Valid(None)),
            _ if bits.len() >= rows.div_ceil(8) => Ok(Valid(Some(bits))),
            _ => Err(bad("a column with nulls does not say which they are")),
        }
    }

    /// A column of eight-byte numbers, none of them null.
    fn numbers(&mut self, name: &str) -> Result<impl Iterator<Item = [u8; 8]> + use<'a>, ApiError> {
        if self.column()? != 0 {
            return Err(bad(format!("the column {name:?} has nulls")));
        }
        self.buffer()?;
        let bytes = self.buffer()?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let numbers = numbers.get(..self.rows);
        let numbers = numbers.ok_or_else(|| bad(format!("the column {name:?} is shorter than its batch")))?;
        Ok(numbers.iter().copied())
    }

    fn texts(&mut self, offsets: Offsets) -> Result<Texts<'a>, ApiError> {
        let nulls = self.column()?;
        self.texts_of(self.rows, nulls, offsets)
    }

    fn texts_of(&mut self, rows: usize, nulls: i64, offsets: Offsets) -> Result<Texts<'a>, ApiError> {
        let valid = self.valid(rows, nulls)?;
        let texts = Texts { valid, width: offsets.0, offsets: self.buffer()?, bytes: self.buffer()? };
        rising(texts.offsets, rows, texts.width)?;
        Ok(texts)
    }

    fn indexes(&mut self, index: Index) -> Result<Indexes<'a>, ApiError> {
        let nulls = self.column()?;
        let valid = self.valid(self.rows, nulls)?;
        Ok(Indexes { valid, index, bytes: self.buffer()? })
    }

    fn map(&mut self, keys: Offsets, values: Offsets) -> Result<Map<'a>, ApiError> {
        let nulls = self.column()?;
        let valid = self.valid(self.rows, nulls)?;
        let offsets = self.buffer()?;
        rising(offsets, self.rows, MAP_OFFSETS)?;
        // The entries are a struct column, which has no buffer of numbers.
        let (entries, nulls) = self.node()?;
        self.buffer()?;
        let mut column = |offsets| {
            let (rows, nulls) = self.node()?;
            if rows != entries {
                return Err(bad("the keys and values of a map are not as many as its entries"));
            }
            self.texts_of(rows, nulls, offsets)
        };
        let map = Map { valid, offsets, keys: column(keys)?, values: column(values)? };
        if nulls == 0 { Ok(map) } else { Err(bad("a map has entries that are null")) }
    }
}

/// A column of maps.
fn map(field: &Field<'_>) -> Result<Column, ApiError> {
    let texts = |field: &Field<'_>| match field.type_type() {
        Type::Utf8 if field.dictionary().is_none() => Some(Offsets(4)),
        Type::LargeUtf8 if field.dictionary().is_none() => Some(Offsets(8)),
        _ => None,
    };
    let entries = field.children().filter(|children| children.len() == 1).map(|children| children.get(0));
    let pair = entries.and_then(|entries| entries.children()).filter(|pair| pair.len() == 2);
    let pair = pair.and_then(|pair| Some((texts(&pair.get(0))?, texts(&pair.get(1))?)));
    let (keys, values) = pair.ok_or_else(|| wrong(field, "a map of texts to texts"))?;
    Ok(Column::Map { keys, values })
}

/// Unit of the column of times. In a stream with a map, as mytsdb's clients send it, int64 without metadata
/// means milliseconds.
fn unit(field: &Field<'_>, has_map: bool) -> Result<Unit, ApiError> {
    let needed = "a timestamp, or int64 with the metadata `unit` of s, ms, us or ns";
    if field.dictionary().is_some() {
        return Err(wrong(field, needed));
    }
    if let Some(timestamp) = field.type_as_timestamp() {
        return match timestamp.unit() {
            TimeUnit::SECOND => Ok(Unit::Seconds),
            TimeUnit::MILLISECOND => Ok(Unit::Milliseconds),
            TimeUnit::MICROSECOND => Ok(Unit::Microseconds),
            TimeUnit::NANOSECOND => Ok(Unit::Nanoseconds),
            _ => Err(wrong(field, needed)),
        };
    }
    let is_int64 = field.type_as_int().is_some_and(|int| int.bitWidth() == 64 && int.is_signed());
    let stated = field.custom_metadata().into_iter().flatten().find(|pair| pair.key() == Some("unit"));
    let stated = match stated {
        Some(pair) => pair.value().and_then(Unit::named),
        None => has_map.then_some(Unit::Milliseconds),
    };
    stated.filter(|_| is_int64).ok_or_else(|| wrong(field, needed))
}

fn wrong(field: &Field<'_>, needed: &str) -> ApiError {
    let name = field.name().unwrap_or_default();
    let found = field.type_type().variant_name().unwrap_or("of an unknown type");
    bad(format!("the column {name:?} is {found}; it has to be {needed}"))
}
