//! `$bucket` and `$bucketAuto`: groups by ranges.

use crate::lang::error::{LangResult, refuse};
use crate::lang::expression::accumulate::Accumulator;
use crate::lang::expression::{Expression, Scope};
use crate::lang::memory::Memory;
use crate::lang::pipeline::granularity::Granularity;
use crate::lang::pipeline::group::{self, Group};
use crate::lang::pipeline::only;
use crate::lang::value::key::key_of;
use crate::lang::value::order;
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, DocBuf, Owned, Value};

/// `$bucket` as a group: its key is the lower boundary.
pub(crate) fn parse(spec: Doc<'_>, scope: &Scope<'_>) -> LangResult<Group> {
    only("$bucket", spec, &["groupBy", "boundaries", "default", "output"])?;
    let (Some(by), Some(Value::Array(boundaries))) = (spec.get("groupBy"), spec.get("boundaries")) else {
        refuse!(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.");
    };
    let boundaries: Vec<Value<'_>> = boundaries.values().collect();
    if boundaries.len() < 2 {
        refuse!(40192, "The $bucket 'boundaries' field must have at least 2 values");
    }
    for (low, high) in boundaries.iter().zip(boundaries.iter().skip(1)) {
        if order::class(*low) != order::class(*high) {
            refuse!(40193, "All values in the 'boundaries' option to $bucket must have the same type.");
        }
        if order::compare(*low, *high).is_ge() {
            refuse!(
                40194,
                "The 'boundaries' option to $bucket must be sorted in ascending order, but found {low} before {high}"
            );
        }
    }
    let default = spec.get("default");
    if let (Some(default), Some(first), Some(last)) = (default, boundaries.first(), boundaries.last())
        && order::compare(default, *first).is_ge()
        && order::compare(default, *last).is_lt()
    {
        refuse!(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or not below the highest"
        );
    }
    // { $switch: { branches: [ { case: { $and: [ { $gte: [by, low] }, { $lt: [by, high] } ] }, then: low } ],
    // default } }
    let mut writer = Writer::new().bounded();
    writer.open_document("$switch");
    writer.open_array("branches");
    for (low, high) in boundaries.iter().zip(boundaries.iter().skip(1)) {
        writer.open_document("");
        writer.open_document("case");
        writer.open_array("$and");
        for (operator, bound) in [("$gte", low), ("$lt", high)] {
            writer.open_document("");
            writer.open_array(operator);
            writer.put("", by);
            literal(&mut writer, "", *bound);
            writer.close();
            writer.close();
        }
        writer.close();
        writer.close();
        literal(&mut writer, "then", *low);
        writer.close();
    }
    writer.close();
    if let Some(default) = default {
        literal(&mut writer, "default", default);
    }
    let switch = writer.within("$bucket with all its boundaries")?.finish();
    let id = Expression::parse(Value::Document(switch.doc()), scope)?;
    Ok(Group::new(id, output("$bucket", spec, scope)?))
}

fn literal(writer: &mut Writer, name: &str, value: Value<'_>) {
    writer.open_document(name);
    writer.put("$literal", value);
    writer.close();
}

/// The accumulators; without any, a count.
fn output(stage: &str, spec: Doc<'_>, scope: &Scope<'_>) -> LangResult<Vec<(String, Accumulator)>> {
    match spec.get("output") {
        Some(Value::Document(output)) => group::fields(output, scope),
        Some(_) => refuse!(40196, "The {stage} 'output' field must be an object"),
        None => {
            let mut writer = Writer::new();
            writer.open_document("count");
            writer.put("$sum", Value::Int32(1));
            group::fields(writer.finish().doc(), scope)
        }
    }
}

/// Memory of a document with its key in a list that is sorted.
const KEYED_BYTES: usize = 2 * size_of::<Keyed>();

/// A parsed `$bucketAuto`.
#[derive(Debug, Clone)]
pub(crate) struct BucketAuto {
    by: Expression,
    buckets: usize,
    group: Group,
    /// Boundaries are numbers of this series.
    granularity: Option<Granularity>,
}

impl BucketAuto {
    pub(crate) fn parse(spec: Doc<'_>, scope: &Scope<'_>) -> LangResult<Self> {
        only("$bucketAuto", spec, &["groupBy", "buckets", "output", "granularity"])?;
        let granularity = match spec.get("granularity") {
            None => None,
            Some(Value::String(name)) => Some(Granularity::parse(name)?),
            Some(other) => refuse!(
                40261,
                "The $bucketAuto 'granularity' field must be a string, but found type: {}",
                other.type_name()
            ),
        };
        let Some(by) = spec.get("groupBy") else {
            refuse!(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified");
        };
        let buckets = spec.get("buckets").and_then(Value::as_integer).and_then(|n| usize::try_from(n).ok());
        let Some(buckets) = buckets.filter(|n| *n > 0) else {
            refuse!(40243, "The $bucketAuto 'buckets' field must be a positive 32-bit integer");
        };
        let by = Expression::parse(by, scope)?;
        let group = Group::new(Expression::constant(Value::Null), output("$bucketAuto", spec, scope)?);
        Ok(Self { by, buckets, group, granularity })
    }

    /// Buckets with about the same number of documents; equal values are in one bucket.
    pub(crate) fn finish(&self, docs: Vec<DocBuf>, memory: &Memory) -> LangResult<Vec<DocBuf>> {
        let hold = memory.holder("$bucketAuto");
        let mut keyed = Vec::with_capacity(docs.len());
        for doc in docs {
            let by = Owned::from(self.by.evaluate_root(doc.doc())?.or_null());
            if self.granularity.is_some() {
                check_number(by.value())?;
            }
            let key = key_of(by.value());
            hold.take(KEYED_BYTES + key.capacity() + by.bytes())?;
            keyed.push((key, by, doc));
        }
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        let size = (keyed.len() as f64 / self.buckets as f64).round().max(1.0) as usize;
        let mut out = Vec::new();
        let mut rest = keyed.as_slice();
        let mut edge: Option<Owned> = None;
        while let Some((_, low, _)) = rest.first() {
            let last_bucket = out.len() + 1 == self.buckets;
            let mut end = if last_bucket { rest.len() } else { size.min(rest.len()) };
            while end < rest.len()
                && rest.get(end).map(|entry| &entry.0) == rest.get(end - 1).map(|entry| &entry.0)
            {
                end += 1;
            }
            let low = match (&self.granularity, edge.take()) {
                (Some(series), None) => rounded(low.value(), |number| series.below(number)),
                (_, edge) => edge.unwrap_or_else(|| low.clone()),
            };
            if let Some(series) = &self.granularity {
                edge = Some(upper_edge(series, rest, &mut end));
            }
            let (bucket, next) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            let fields = self.group.fields();
            let mut states: Vec<_> = fields.iter().map(|(_, field)| field.start()).collect();
            let grown = memory.holder("$bucketAuto");
            for (_, _, doc) in bucket {
                for ((_, field), state) in fields.iter().zip(&mut states) {
                    grown.change(field.add(state, doc.doc())?)?;
                }
            }
            // The last bucket includes its upper boundary, the others end before the next begins.
            let high = next.first().or(bucket.last()).map_or(Value::Null, |(_, high, _)| high.value());
            let mut id = Writer::new();
            id.put("min", low.value());
            id.put("max", edge.as_ref().map_or(high, Owned::value));
            let made = group::finish(id.into_owned().value(), fields, &states)?;
            hold.take(size_of::<DocBuf>() + made.bytes().len())?;
            out.push(made);
            rest = next;
        }
        Ok(out)
    }
}

/// A document with its key and its value.
type Keyed = (Vec<u8>, Owned, DocBuf);

/// Rejects a value that a granularity cannot round.
fn check_number(value: Value<'_>) -> LangResult<()> {
    let number = value.as_double();
    if let Some(number) = number {
        if number.is_nan() {
            refuse!(
                40259,
                "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN"
            );
        }
        if number < 0.0 {
            refuse!(
                40260,
                "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a negative number"
            );
        }
        return Ok(());
    }
    refuse!(
        40258,
        "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: {}",
        value.type_name()
    )
}

fn rounded(value: Value<'_>, round: impl Fn(f64) -> f64) -> Owned {
    Owned::from(Value::Double(round(value.as_double().unwrap_or_default())))
}

/// The preferred number above the bucket that begins `rest`; `end` is moved after all values below it.
fn upper_edge(series: &Granularity, rest: &[Keyed], end: &mut usize) -> Owned {
    let value = |at: usize| rest.get(at).map(|(_, value, _)| value.value());
    let last = value(end.saturating_sub(1)).unwrap_or(Value::Null);
    let edge = rounded(last, |number| series.above(number));
    while value(*end).is_some_and(|value| order::compare(value, edge.value()).is_lt()) {
        *end += 1;
    }
    // Zero is rounded to itself: a bucket of zeros ends where the next one begins.
    match value(*end) {
        Some(next) if order::compare(edge.value(), Value::Int32(0)).is_eq() => {
            rounded(next, |number| series.below(number))
        }
        _ => edge,
    }
}
