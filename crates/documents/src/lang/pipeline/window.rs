//! `$setWindowFields`: fields computed from neighbouring documents.
//!
//! ```text
//! partitionBy ─▶ partitions, each in the order of sortBy
//!     documents: [-1, 1]              the previous one, itself, the next
//!     range: [-5, "current"]          those whose sort value is up to 5 less, and equal ones
//!     documents: ["unbounded", ..]    from the first on: one pass with running state
//! ```
//! All documents are held. A window with a lower bound is scanned for each document: cost documents ×
//! window.
//!
//! Source: MongoDB manual, "$setWindowFields".

use crate::lang::budget::{byte_steps, steps};
use crate::lang::error::{LangResult, refuse};
use crate::lang::expression::accumulate::Accumulator;
use crate::lang::expression::functions::dates;
use crate::lang::expression::functions::sum_of;
use crate::lang::expression::{Expression, Scope};
use crate::lang::memory::{Holder, Memory};
use crate::lang::pipeline::only;
use crate::lang::pipeline::window_functions::{Place, Whole};
use crate::lang::value::key::key_of;
use crate::lang::value::order;
use crate::lang::value::path;
use crate::lang::value::sort::Sort;
use crate::lang::value::tree::{Branch, Tree};
use crate::lang::value::val::Val;
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, DocBuf, Owned, Value};

/// Memory of a document with its keys: in the list that is sorted, and in those derived from it.
const KEYED_BYTES: usize = 2 * size_of::<(Vec<u8>, Vec<u8>, DocBuf)>();

/// A parsed `$setWindowFields`.
#[derive(Debug, Clone)]
pub(crate) struct WindowFields {
    partition: Option<Expression>,
    sort: Option<Sort>,
    outputs: Vec<Output>,
}

#[derive(Debug, Clone)]
struct Output {
    path: Vec<String>,
    function: Function,
}

#[derive(Debug, Clone)]
enum Function {
    /// A function of the documents in a frame.
    Framed(Framed, Frame),
    /// A function of the whole partition and the document's position in it.
    Whole(Whole),
}

#[derive(Debug, Clone)]
pub(crate) enum Framed {
    Accumulate(Accumulator),
    /// Rate of change of a value along the sort, per so many milliseconds if the sort value is a date.
    Derivative {
        input: Expression,
        unit_ms: Option<f64>,
    },
    Integral {
        input: Expression,
        unit_ms: Option<f64>,
    },
    Covariance {
        pair: [Expression; 2],
        sample: bool,
    },
}

/// The documents around one that belong to its frame.
#[derive(Debug, Clone)]
enum Frame {
    Documents(Bound<i64>, Bound<i64>),
    Range(Bound<Owned>, Bound<Owned>, Option<String>),
}

#[derive(Debug, Clone, PartialEq)]
enum Bound<T> {
    Unbounded,
    By(T),
}

/// One partition in sort order.
pub(crate) struct Partition<'p> {
    pub(crate) docs: &'p [DocBuf],
    /// The sort keys of the documents, as bytes; with one sort field also as values.
    pub(crate) keys: &'p [Vec<u8>],
    pub(crate) sort: Option<&'p str>,
}

impl WindowFields {
    pub(crate) fn parse(spec: Doc<'_>, scope: &Scope<'_>) -> LangResult<Self> {
        only("$setWindowFields", spec, &["partitionBy", "sortBy", "output"])?;
        let partition = spec.get("partitionBy").map(|by| Expression::parse(by, scope)).transpose()?;
        let sort = match spec.get("sortBy") {
            None => None,
            Some(Value::Document(sort)) => Some(Sort::parse(sort)?),
            Some(other) => refuse!(TypeMismatch, "'sortBy' must be an object, found {}", other.type_name()),
        };
        let Some(Value::Document(output)) = spec.get("output") else {
            refuse!(40414, "BSON field '$setWindowFields.output' is missing but a required field");
        };
        let outputs = output
            .iter()
            .map(|(name, value)| parse_output(name, value, sort.as_ref(), scope))
            .collect::<Result<_, _>>()?;
        Ok(Self { partition, sort, outputs })
    }

    /// The documents, by partition and in order, with the window fields.
    pub(crate) fn finish(&self, docs: Vec<DocBuf>, memory: &Memory) -> LangResult<(Vec<DocBuf>, Holder)> {
        let hold = memory.holder("$setWindowFields");
        let mut keyed = Vec::with_capacity(docs.len());
        for doc in docs {
            let partition = match &self.partition {
                Some(partition) => {
                    let value = partition.evaluate_root(doc.doc())?;
                    if let Some(Value::Array(_)) = value.get() {
                        refuse!(
                            TypeMismatch,
                            "An expression used to partition cannot evaluate to value of type array"
                        );
                    }
                    key_of(value.or_null())
                }
                None => Vec::new(),
            };
            let key = self.sort.as_ref().map(|sort| sort.key(doc.doc())).transpose()?.unwrap_or_default();
            hold.take(KEYED_BYTES + partition.capacity() + key.capacity() + doc.bytes().len())?;
            keyed.push((partition, key, doc));
        }
        keyed.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let places: Vec<usize> = keyed.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect();
        let (mut docs, mut keys) = (Vec::with_capacity(keyed.len()), Vec::with_capacity(keyed.len()));
        for (_, key, doc) in keyed {
            docs.push(doc);
            keys.push(key);
        }
        let sort = self.sort.as_ref().and_then(Sort::only).map(|field| field.path.as_str());
        let mut out = Vec::with_capacity(docs.len());
        let (mut docs, mut keys) = (docs.as_mut_slice(), keys.as_slice());
        for place in places {
            let (own, rest) = docs.split_at_mut_checked(place).expect("partitions have all documents");
            let (own_keys, rest_keys) = keys.split_at_checked(place).expect("every document has a key");
            self.partition(&Partition { docs: own, keys: own_keys, sort }, memory, &hold, &mut out)?;
            // The results replace them.
            for doc in own {
                let doc = std::mem::replace(doc, DocBuf::empty());
                hold.change(-(doc.bytes().len() as isize))?;
            }
            (docs, keys) = (rest, rest_keys);
        }
        Ok((out, hold))
    }

    fn partition(
        &self,
        partition: &Partition<'_>,
        memory: &Memory,
        made: &Holder,
        out: &mut Vec<DocBuf>,
    ) -> LangResult<()> {
        let hold = memory.holder("$setWindowFields");
        let mut columns = Vec::with_capacity(self.outputs.len());
        for output in &self.outputs {
            hold.take(partition.docs.len() * size_of::<Option<Owned>>())?;
            let mut values = Vec::with_capacity(partition.docs.len());
            let mut each = |value: Option<Owned>| {
                hold.take(value.as_ref().map_or(0, Owned::bytes))?;
                values.push(value);
                Ok(())
            };
            match &output.function {
                Function::Whole(whole) => whole.values(partition, memory, &mut each)?,
                Function::Framed(framed, frame) => {
                    framed_values(framed, frame, partition, memory, &mut each)?;
                }
            }
            debug_assert_eq!(values.len(), partition.docs.len(), "a function gives each document a value");
            columns.push(values.into_iter());
        }
        for doc in partition.docs {
            byte_steps(doc.bytes().len())?;
            let mut tree = Tree::of(doc.doc());
            for (output, column) in self.outputs.iter().zip(&mut columns) {
                // A missing value adds no field.
                match column.next().flatten() {
                    Some(value) => *tree.create(&output.path)? = Branch::Owned(value),
                    None => drop(tree.remove(&output.path)),
                }
            }
            let doc = tree.into_document()?;
            made.take(doc.bytes().len())?;
            out.push(doc);
        }
        Ok(())
    }
}

fn parse_output(name: &str, value: Value<'_>, sort: Option<&Sort>, scope: &Scope<'_>) -> LangResult<Output> {
    if name.is_empty() || name.split('.').any(|part| part.is_empty() || part.starts_with('$')) {
        refuse!(FailedToParse, "{name:?} is not a valid path for a field of $setWindowFields");
    }
    let Value::Document(spec) = value else {
        refuse!(FailedToParse, "The field '{name}' must be an object");
    };
    let mut operators = spec.iter().filter(|(name, _)| *name != "window");
    let (Some((operator, operand)), None) = (operators.next(), operators.next()) else {
        refuse!(FailedToParse, "'{name}' takes one window function and, perhaps, a window");
    };
    let path = name.split('.').map(str::to_owned).collect();
    let window = spec.get("window");
    if let Some(whole) = Whole::parse(operator, operand, sort, scope)? {
        if window.is_some() {
            refuse!(5371601, "{operator} does not accept a 'window' field");
        }
        return Ok(Output { path, function: Function::Whole(whole) });
    }
    let framed = Framed::parse(operator, operand, sort, scope)?;
    let frame = match window {
        None if matches!(framed, Framed::Derivative { .. }) => {
            refuse!(5624900, "$derivative requires explicit window bounds")
        }
        None => Frame::Documents(Bound::Unbounded, Bound::Unbounded),
        Some(Value::Document(window)) => Frame::parse(window, sort)?,
        Some(_) => refuse!(FailedToParse, "'window' field must be an object"),
    };
    Ok(Output { path, function: Function::Framed(framed, frame) })
}

impl Frame {
    fn parse(window: Doc<'_>, sort: Option<&Sort>) -> LangResult<Self> {
        only("window", window, &["documents", "range", "unit"])?;
        let unit = match window.get("unit") {
            None => None,
            Some(Value::String(unit)) => Some(unit.to_owned()),
            Some(_) => refuse!(FailedToParse, "Window bounds 'unit' must be a string"),
        };
        let pair = |value: Value<'_>| match value {
            Value::Array(bounds) if bounds.values().count() == 2 => {
                Ok(bounds.values().map(Owned::from).collect::<Vec<_>>())
            }
            _ => refuse!(FailedToParse, "Window bounds must be a 2-element array"),
        };
        match (window.get("documents"), window.get("range"), unit) {
            (Some(documents), None, None) => {
                let bounds = pair(documents)?;
                let mut bounds = bounds.iter().map(|bound| {
                    bound_of(bound.value(), |value| {
                        let whole = value.as_integer().filter(|_| value.is_number());
                        whole.filter(|n| n.unsigned_abs() < 1 << 40)
                    })
                });
                let (low, high) = (bounds.next().transpose()?, bounds.next().transpose()?);
                let (low, high) = (low.unwrap_or(Bound::Unbounded), high.unwrap_or(Bound::Unbounded));
                let unbounded = (&low, &high) == (&Bound::Unbounded, &Bound::Unbounded);
                if sort.is_none() && !unbounded {
                    refuse!(5339901, "Document-based bounds require a sortBy");
                }
                if let (Bound::By(low), Bound::By(high)) = (&low, &high)
                    && low > high
                {
                    refuse!(5339900, "Lower bound must not exceed upper bound");
                }
                Ok(Self::Documents(low, high))
            }
            (None, Some(range), unit) => {
                let Some(field) = sort.and_then(Sort::only).filter(|field| !field.descending) else {
                    refuse!(5339902, "Range-based bounds require sortBy a single, ascending field");
                };
                let _ = field;
                let bounds = pair(range)?;
                let mut bounds = bounds.iter().map(|bound| {
                    bound_of(bound.value(), |value| value.is_number().then(|| Owned::from(value)))
                });
                let (low, high) = (bounds.next().transpose()?, bounds.next().transpose()?);
                let (low, high) = (low.unwrap_or(Bound::Unbounded), high.unwrap_or(Bound::Unbounded));
                Ok(Self::Range(low, high, unit))
            }
            _ => refuse!(
                FailedToParse,
                "'window' field that specifies 'unit' or nothing takes either 'documents' or 'range'"
            ),
        }
    }

    /// The frame of the document at `place`: its first position, and that after its last.
    fn around(
        &self,
        place: usize,
        partition: &Partition<'_>,
        values: &[Owned],
    ) -> LangResult<(usize, usize)> {
        let len = partition.docs.len();
        match self {
            Self::Documents(low, high) => {
                let at = |by: i64| (place as i64).saturating_add(by).clamp(0, len as i64) as usize;
                let start = match low {
                    Bound::Unbounded => 0,
                    Bound::By(by) => at(*by),
                };
                let end = match high {
                    Bound::Unbounded => len,
                    Bound::By(by) => at(by.saturating_add(1)),
                };
                Ok((start, end.max(start)))
            }
            Self::Range(low, high, unit) => {
                let Some(own) = values.get(place) else { return Ok((place, place)) };
                let edge = |by: &Owned| moved(own.value(), by.value(), unit.as_deref());
                let start = match low {
                    Bound::Unbounded => 0,
                    Bound::By(by) => {
                        let edge = edge(by)?;
                        values.partition_point(|value| order::compare(value.value(), edge.value()).is_lt())
                    }
                };
                let end = match high {
                    Bound::Unbounded => len,
                    Bound::By(by) => {
                        let edge = edge(by)?;
                        values.partition_point(|value| order::compare(value.value(), edge.value()).is_le())
                    }
                };
                Ok((start, end.max(start)))
            }
        }
    }
}

fn bound_of<T: From<T>>(value: Value<'_>, number: impl Fn(Value<'_>) -> Option<T>) -> LangResult<Bound<T>> {
    match value {
        Value::String("unbounded") => Ok(Bound::Unbounded),
        Value::String("current") => match number(Value::Int32(0)) {
            Some(zero) => Ok(Bound::By(zero)),
            None => refuse!(FailedToParse, "'current' is not a valid bound here"),
        },
        other => match number(other) {
            Some(by) => Ok(Bound::By(by)),
            None => refuse!(
                FailedToParse,
                "Window bounds must be 'unbounded', 'current', or a number, found {other}"
            ),
        },
    }
}

/// A sort value shifted by `by`.
fn moved(value: Value<'_>, by: Value<'_>, unit: Option<&str>) -> LangResult<Owned> {
    match (value, unit) {
        (Value::DateTime(_), Some(unit)) => {
            let args = [Val::Ref(value), Val::Ref(Value::String(unit)), Val::Ref(by), Val::Missing];
            Ok(Owned::from(dates::shift("$setWindowFields", &args, 1)?.or_null()))
        }
        (value, None) if value.is_number() => Ok(Owned::from(sum_of(value, by))),
        (Value::DateTime(_), None) => {
            refuse!(5429513, "Invalid range: Expected the sortBy field to be a number, but it was a date")
        }
        (other, None) => refuse!(
            5429414,
            "Invalid range: Expected the sortBy field to be a number, but it was {}",
            other.type_name()
        ),
        (other, Some(_)) => refuse!(
            5429513,
            "Invalid range: Expected the sortBy field to be a date, but it was {}",
            other.type_name()
        ),
    }
}

/// The sort values of a partition, if the sort has one field.
fn sort_values(partition: &Partition<'_>) -> Vec<Owned> {
    let Some(path) = partition.sort else { return Vec::new() };
    let of = |doc: &DocBuf| path::get(doc.doc(), path).map_or_else(|| Owned::from(Value::Null), Owned::from);
    partition.docs.iter().map(of).collect()
}

fn framed_values(
    framed: &Framed,
    frame: &Frame,
    partition: &Partition<'_>,
    memory: &Memory,
    each: &mut dyn FnMut(Option<Owned>) -> LangResult<()>,
) -> LangResult<()> {
    let hold = memory.holder("$setWindowFields");
    let values = match frame {
        Frame::Range(..) => {
            let bytes: usize = partition.docs.iter().map(|doc| doc.bytes().len()).sum();
            hold.take(partition.docs.len() * size_of::<Owned>() + bytes)?;
            sort_values(partition)
        }
        Frame::Documents(..) => Vec::new(),
    };
    let mut grown = match framed {
        Framed::Accumulate(accumulator) => Some((0, accumulator.start())),
        _ => None,
    };
    let mut last: Option<((usize, usize), Option<Owned>)> = None;
    for place in 0..partition.docs.len() {
        let (start, end) = frame.around(place, partition, &values)?;
        if let Some((own, value)) = &last
            && *own == (start, end)
        {
            byte_steps(value.as_ref().map_or(0, Owned::bytes))?;
            each(value.clone())?;
            continue;
        }
        let docs = partition.docs.get(start..end).expect("a frame lies in its partition");
        let value = match (framed, &mut grown) {
            (Framed::Accumulate(accumulator), Some((taken, state))) if start == 0 && *taken <= end => {
                for doc in partition.docs.get(*taken..end).expect("a frame lies in its partition") {
                    hold.change(accumulator.add(state, doc.doc())?)?;
                }
                *taken = end;
                accumulator.finish(state)?
            }
            (Framed::Accumulate(accumulator), _) => {
                let frame = memory.holder("$setWindowFields");
                let mut state = accumulator.start();
                for doc in docs {
                    frame.change(accumulator.add(&mut state, doc.doc())?)?;
                }
                accumulator.finish(&state)?
            }
            (other, _) => {
                steps(docs.len())?;
                other.value(docs, &Place { partition, start })?
            }
        };
        let value = value.get().map(Owned::from);
        each(value.clone())?;
        last = Some(((start, end), value));
    }
    Ok(())
}

impl Framed {
    fn parse(name: &str, operand: Value<'_>, sort: Option<&Sort>, scope: &Scope<'_>) -> LangResult<Self> {
        if let Some(framed) = Self::parse_along(name, operand, sort, scope)? {
            return Ok(framed);
        }
        if name == "$mergeObjects" || !name.starts_with('$') {
            refuse!(FailedToParse, "Unrecognized window function, {name}");
        }
        let mut spec = Writer::new();
        spec.put(name, operand);
        Ok(Self::Accumulate(Accumulator::parse(Value::Document(spec.finish().doc()), scope)?))
    }
}
