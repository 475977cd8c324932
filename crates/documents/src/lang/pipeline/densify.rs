//! `$densify`: documents in the gaps of a sequence of numbers or dates.
//!
//! ```text
//! { field: "t", partitionByFields: ["k"], range: { step: 2, bounds: .. } }
//!     "partition"   from the least value of a partition to its greatest:     1 ─▶ 3 ─▶ 5 ─▶ (6)
//!     "full"        from the least value of all to the greatest, in each partition
//!     [0, 6]        0 ─▶ 2 ─▶ 4, also without any document if there are no partitions
//! ```
//! All documents are held, sorted by partition and value. Those that are made are not: they are made one by
//! one, at most [`MADE_MAX`]. The n-th value is the first plus n steps, so that no rounding error adds up
//! and a step of a month stays at the end of months.
//!
//! Source: MongoDB manual, "$densify".

use std::collections::VecDeque;

use crate::lang::budget::steps;
use crate::lang::error::{LangError, refuse};
use crate::lang::expression::functions::{dates, product_of, sum_of};
use crate::lang::memory::{Holder, Memory};
use crate::lang::pipeline::{Stream, checked_path, known, text_list};
use crate::lang::value::key::encode;
use crate::lang::value::order;
use crate::lang::value::path;
use crate::lang::value::tree::{Branch, Tree};
use crate::lang::value::val::Val;
use crate::lang::value::{Doc, DocBuf, Owned, Value};

/// Most documents that one stage makes, MongoDB's default.
const MADE_MAX: usize = 500_000;
/// Memory of a document with its keys in a list that is sorted.
const KEYED_BYTES: usize = 2 * size_of::<Entry>();

/// A parsed `$densify`.
#[derive(Debug, Clone)]
pub(crate) struct Densify {
    field: String,
    partition: Vec<String>,
    step: Owned,
    unit: Option<String>,
    bounds: Bounds,
}

#[derive(Debug, Clone)]
enum Bounds {
    Full,
    Partition,
    /// From the first value up to but not including the second.
    Between(Owned, Owned),
}

/// A document with its value, `None` if it has none, and its keys.
struct Entry {
    partition: Vec<u8>,
    key: Vec<u8>,
    value: Option<Owned>,
    doc: DocBuf,
}

impl Densify {
    pub(crate) fn parse(operand: Value<'_>) -> Result<Self, LangError> {
        let Value::Document(spec) = operand else {
            refuse!(
                FailedToParse,
                "The $densify stage specification must be an object, found {}",
                operand.type_name()
            );
        };
        known("$densify", spec, &["field", "partitionByFields", "range"])?;
        let field = match spec.get("field") {
            Some(Value::String(field)) => checked_path(field)?.to_owned(),
            Some(other) => return Err(mistyped("field", other, "string")),
            None => return Err(missing("field")),
        };
        let partition = match spec.get("partitionByFields") {
            Some(fields) => text_list("$densify.partitionByFields", fields)?,
            None => Vec::new(),
        };
        for path in &partition {
            checked_path(path)?;
            if is_within(path, &field) || is_within(&field, path) {
                refuse!(
                    8993000,
                    "BSON field '$densify.partitionByFields' contains the field that is being densified"
                );
            }
        }
        let range = match spec.get("range") {
            Some(Value::Document(range)) => range,
            Some(other) => return Err(mistyped("range", other, "object")),
            None => return Err(missing("range")),
        };
        let partition: Vec<String> = partition.into_iter().map(str::to_owned).collect();
        let (step, unit, bounds) = parse_range(range, !partition.is_empty())?;
        Ok(Self { field, partition, step, unit, bounds })
    }

    /// The documents with those that fill the gaps between them.
    pub(crate) fn finish<E: From<LangError>>(
        &self,
        input: Stream<'_, E>,
        memory: &Memory,
    ) -> Result<Filled<'_>, E> {
        let hold = memory.holder("$densify");
        let mut entries = Vec::new();
        for doc in input {
            let entry = self.entry(doc?.compact())?;
            let value = entry.value.as_ref().map_or(0, Owned::bytes);
            let keys = entry.partition.capacity() + entry.key.capacity();
            hold.take(KEYED_BYTES + keys + value + entry.doc.bytes().len())?;
            entries.push(entry);
        }
        entries.sort_by(|a, b| (&a.partition, &a.key).cmp(&(&b.partition, &b.key)));
        Ok(Filled::new(self, entries, hold))
    }

    fn entry(&self, doc: DocBuf) -> Result<Entry, LangError> {
        let mut partition = Vec::new();
        for path in &self.partition {
            encode(path::get(doc.doc(), path).unwrap_or(Value::Null), false, &mut partition);
        }
        let value = path::get(doc.doc(), &self.field).filter(|value| !value.is_nullish());
        match value {
            Some(Value::DateTime(_)) if self.unit.is_none() => refuse!(
                6053600,
                "Encountered date densify value in collection when step does not have a date unit."
            ),
            None | Some(Value::DateTime(_)) => {}
            Some(value) if !value.is_number() => {
                refuse!(5733201, "Densify field type must be numeric or a date")
            }
            Some(_) if self.unit.is_some() => {
                refuse!(6053600, "Encountered numeric densify value in collection when step has a date unit.")
            }
            Some(_) => {}
        }
        let mut key = Vec::new();
        encode(value.unwrap_or(Value::Null), false, &mut key);
        let value = value.map(Owned::from);
        Ok(Entry { partition, key, value, doc })
    }

    /// The value that is `count` steps after `first`.
    fn value_at(&self, first: Value<'_>, count: usize) -> Result<Owned, LangError> {
        let count = crate::lang::value::number::narrow(count as i64, true);
        let by = product_of(self.step.value(), count);
        match &self.unit {
            None => Ok(Owned::from(sum_of(first, by))),
            Some(unit) => {
                let unit = Val::Ref(Value::String(unit));
                let moved = dates::shift("$densify", &[Val::Ref(first), unit, Val::Ref(by), Val::Missing], 1);
                Ok(Owned::from(moved?.or_null()))
            }
        }
    }

    /// A document with nothing but the partition's fields and a value.
    fn made(&self, like: Option<Doc<'_>>, value: Owned) -> Result<DocBuf, LangError> {
        let mut tree = Tree::default();
        for path in &self.partition {
            if let Some(found) = like.and_then(|doc| path::get(doc, path)) {
                *tree.create(&names(path))? = Branch::Owned(found.into());
            }
        }
        *tree.create(&names(&self.field))? = Branch::Owned(value);
        tree.into_document()
    }
}

fn names(path: &str) -> Vec<&str> {
    path.split('.').collect()
}

/// True for the path itself and for those inside of it.
fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn missing(field: &str) -> LangError {
    crate::lang::error::lang_error!(40414, "BSON field '$densify.{field}' is missing but a required field")
}

fn mistyped(field: &str, value: Value<'_>, expected: &str) -> LangError {
    crate::lang::error::lang_error!(
        TypeMismatch,
        "BSON field '$densify.{field}' is the wrong type '{}', expected type '{expected}'",
        value.type_name()
    )
}

fn parse_range(range: Doc<'_>, is_partitioned: bool) -> Result<(Owned, Option<String>, Bounds), LangError> {
    known("$densify.range", range, &["step", "unit", "bounds"])?;
    let step = range.get("step").ok_or_else(|| missing("range.step"))?;
    let is_positive = |step: Value<'_>| order::compare(step, Value::Int32(0)).is_gt();
    if !step.is_number() || !is_positive(step) {
        refuse!(5733401, "The step parameter in a range statement must be a strictly positive numeric value");
    }
    let unit = match range.get("unit") {
        None => None,
        Some(Value::String(unit)) => {
            dates::check_unit("$densify", unit)?;
            if step.as_integer().is_none() {
                refuse!(
                    6586400,
                    "The step parameter in a range statement must be a whole number when densifying a date range"
                );
            }
            Some(unit.to_owned())
        }
        Some(other) => return Err(mistyped("range.unit", other, "string")),
    };
    let bounds = match range.get("bounds").ok_or_else(|| missing("range.bounds"))? {
        Value::String("full") => Bounds::Full,
        Value::String("partition") if is_partitioned => Bounds::Partition,
        Value::String("partition") => refuse!(
            5733408,
            "one may not specify the bounds as 'partition' without specifying a non-empty array of \
             partitionByFields. You may have meant to specify 'full' bounds."
        ),
        Value::Array(pair) => parse_bounds(pair, unit.is_some())?,
        _ => return Err(bad_bounds()),
    };
    Ok((step.into(), unit, bounds))
}

fn bad_bounds() -> LangError {
    crate::lang::error::lang_error!(
        5733402,
        "the bounds in a range statement must be the string 'full', 'partition', or an ascending array of \
         two numbers or two dates"
    )
}

fn parse_bounds(pair: Doc<'_>, has_unit: bool) -> Result<Bounds, LangError> {
    let mut values = pair.values();
    let (Some(low), Some(high), None) = (values.next(), values.next(), values.next()) else {
        refuse!(5733403, "a bounding array in a range statement must have exactly two elements");
    };
    match (low, high) {
        (Value::DateTime(_), Value::DateTime(_)) if !has_unit => {
            refuse!(5733501, "Unit must be specified with a date step")
        }
        (Value::DateTime(_), Value::DateTime(_)) => {}
        (low, high) if low.is_number() && high.is_number() && has_unit => {
            refuse!(5733409, "numeric bounds may not have unit parameter")
        }
        (low, high) if low.is_number() && high.is_number() => {}
        (low, Value::DateTime(_)) if low.is_number() => {
            refuse!(5733406, "a bounding array must contain either both dates or both numeric types")
        }
        _ => return Err(bad_bounds()),
    }
    if order::compare(low, high).is_gt() {
        return Err(bad_bounds());
    }
    Ok(Bounds::Between(low.into(), high.into()))
}

/// The documents and those made between them.
pub(crate) struct Filled<'d> {
    densify: &'d Densify,
    entries: VecDeque<Entry>,
    /// The least and the greatest value of all documents.
    whole: Option<(Owned, Owned)>,
    current: Option<Gap>,
    made: usize,
    hold: Holder,
}

/// The values that are still to be made in a partition.
struct Gap {
    partition: Vec<u8>,
    /// A document of the partition, for its fields; `None` if there are no partitions.
    like: Option<DocBuf>,
    first: Owned,
    /// Steps from the first value to the next.
    count: usize,
    /// The next value.
    next: Owned,
    /// The last value, and whether it is made itself.
    end: Option<(Owned, bool)>,
}

impl<'d> Filled<'d> {
    fn new(densify: &'d Densify, entries: Vec<Entry>, hold: Holder) -> Self {
        let valued = || entries.iter().filter(|entry| entry.value.is_some());
        let least = valued().min_by(|a, b| a.key.cmp(&b.key)).and_then(|entry| entry.value.clone());
        let most = valued().max_by(|a, b| a.key.cmp(&b.key)).and_then(|entry| entry.value.clone());
        let mut filled =
            Self { densify, entries: entries.into(), whole: least.zip(most), current: None, made: 0, hold };
        if densify.partition.is_empty()
            && let Bounds::Between(low, _) = &densify.bounds
        {
            // Without any document, the range is made all the same.
            filled.current = Some(filled.gap(Vec::new(), None, low.clone()));
        }
        filled
    }

    fn gap(&self, partition: Vec<u8>, like: Option<DocBuf>, value: Owned) -> Gap {
        let (first, end) = match (&self.densify.bounds, &self.whole) {
            (Bounds::Between(low, high), _) => (low.clone(), Some((high.clone(), false))),
            (Bounds::Full, Some((least, most))) => (least.clone(), Some((most.clone(), true))),
            (Bounds::Full | Bounds::Partition, _) => (value, None),
        };
        Gap { partition, like, next: first.clone(), first, count: 0, end }
    }

    /// Begins the partition of the next document with a value, unless it has begun.
    fn enter(&mut self) {
        let Some(entry) = self.entries.front() else { return };
        let Some(value) = entry.value.clone() else { return };
        if self.current.as_ref().is_none_or(|gap| gap.partition != entry.partition) {
            let like = (!self.densify.partition.is_empty()).then(|| entry.doc.clone());
            self.current = Some(self.gap(entry.partition.clone(), like, value));
        }
    }

    /// True if a value is to be made before the next document, or before the end of the partition.
    fn is_due(&self) -> bool {
        let Some(gap) = &self.current else { return false };
        let next = gap.next.value();
        let same = self.entries.front().filter(|entry| entry.partition == gap.partition);
        let before_next = match same.and_then(|entry| entry.value.as_ref()) {
            Some(value) => order::compare(next, value.value()).is_lt(),
            // A document without a value is passed on first: it sorts before those with one.
            None if same.is_some() => false,
            None => gap.end.is_some(),
        };
        before_next
            && gap.end.as_ref().is_none_or(|(end, included)| {
                let order = order::compare(next, end.value());
                order.is_lt() || *included && order.is_eq()
            })
    }

    fn make(&mut self) -> Result<Option<DocBuf>, LangError> {
        steps(1)?;
        let Some(gap) = &mut self.current else { return Ok(None) };
        self.made += 1;
        if self.made > MADE_MAX {
            refuse!(
                5897900,
                "Generated {} documents in $densify, which is over the limit of {MADE_MAX}",
                self.made
            );
        }
        gap.count += 1;
        let after = self.densify.value_at(gap.first.value(), gap.count)?;
        let value = std::mem::replace(&mut gap.next, after);
        self.densify.made(gap.like.as_ref().map(DocBuf::doc), value).map(Some)
    }

    fn pass(&mut self) -> Result<Option<DocBuf>, LangError> {
        let Some(entry) = self.entries.pop_front() else { return Ok(None) };
        self.hold.change(-(entry.doc.bytes().len() as isize))?;
        if let (Some(gap), Some(value)) = (&mut self.current, &entry.value)
            && gap.partition == entry.partition
            && order::compare(gap.next.value(), value.value()).is_eq()
        {
            gap.count += 1;
            gap.next = self.densify.value_at(gap.first.value(), gap.count)?;
        }
        Ok(Some(entry.doc))
    }
}

impl Iterator for Filled<'_> {
    type Item = Result<DocBuf, LangError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The rest of a partition is made before the next one begins.
        if !self.is_due() {
            self.enter();
        }
        let next = if self.is_due() { self.make() } else { self.pass() };
        next.transpose()
    }
}
