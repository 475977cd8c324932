//! The operators of an update, applied at one path of a document.
//!
//! `value::tree` finds or creates the branch at a path; here it gets its new value. An operator that does
//! not fit the existing value is an error that describes it.

use std::collections::HashSet;

use crate::lang::budget::{byte_steps, held};
use crate::lang::error::{LangResult, refuse};
use crate::lang::filter::parser::{is_about_value, is_operators};
use crate::lang::filter::{Comparison, Filter};
use crate::lang::options::Options;
use crate::lang::regex::Pattern;
use crate::lang::update::{UpdateContext, timestamp};
use crate::lang::value::key::key_of;
use crate::lang::value::number::{self, Arithmetic};
use crate::lang::value::order;
use crate::lang::value::sort::Sort;
use crate::lang::value::tree::{Branch, Tree};
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, Owned, Value};

/// An operator with its operand.
#[derive(Debug, Clone)]
pub(crate) enum Operator {
    Set(Owned),
    SetOnInsert(Owned),
    Unset,
    Increment(Owned),
    Multiply(Owned),
    Minimum(Owned),
    Maximum(Owned),
    Rename(String),
    /// A date, or a timestamp.
    CurrentDate {
        date: bool,
    },
    Push(Push),
    AddToSet(Vec<Owned>),
    Pull(Pull),
    /// The values to remove, by their keys.
    PullAll(HashSet<Vec<u8>>),
    /// The first element, or the last.
    Pop {
        first: bool,
    },
    Bits {
        and: i64,
        or: i64,
        xor: i64,
        long: bool,
    },
    /// The target of a rename; the source writes it.
    Nothing,
}

#[derive(Debug, Clone)]
pub(crate) struct Push {
    values: Vec<Owned>,
    position: Option<i64>,
    slice: Option<i64>,
    sort: Option<PushSort>,
}

#[derive(Debug, Clone)]
enum PushSort {
    /// Compares the elements themselves.
    Values { descending: bool },
    /// Compares documents by fields.
    Fields(Sort),
}

#[derive(Debug, Clone)]
pub(crate) enum Pull {
    /// Elements that equal the value, or match the pattern.
    Value(Owned),
    Pattern(Pattern),
    /// Elements that match the filter, which tests a field of this name with the element in it.
    Element(Filter),
    /// Documents that match.
    Document(Filter),
}

/// The name under which [`Pull::Element`] passes an element to its filter.
const ELEMENT: &str = "e";

impl Operator {
    pub(crate) fn is_known(name: &str) -> bool {
        matches!(
            name,
            "$set"
                | "$setOnInsert"
                | "$unset"
                | "$inc"
                | "$mul"
                | "$min"
                | "$max"
                | "$rename"
                | "$currentDate"
                | "$push"
                | "$addToSet"
                | "$pull"
                | "$pullAll"
                | "$pop"
                | "$bit"
        )
    }

    pub(crate) fn parse(name: &str, path: &str, operand: Value<'_>, options: &Options) -> LangResult<Self> {
        Ok(match name {
            "$set" => Self::Set(operand.into()),
            "$setOnInsert" => Self::SetOnInsert(operand.into()),
            "$unset" => Self::Unset,
            "$inc" if !operand.is_number() => {
                refuse!(TypeMismatch, "Cannot increment with non-numeric argument: {{{path}: {operand}}}")
            }
            "$inc" => Self::Increment(operand.into()),
            "$mul" if !operand.is_number() => {
                refuse!(TypeMismatch, "Cannot multiply with non-numeric argument: {{{path}: {operand}}}")
            }
            "$mul" => Self::Multiply(operand.into()),
            "$min" => Self::Minimum(operand.into()),
            "$max" => Self::Maximum(operand.into()),
            "$rename" => match operand {
                Value::String(target) => Self::Rename(target.to_owned()),
                _ => refuse!(BadValue, "The 'to' field for $rename must be a string: {path}: {operand}"),
            },
            "$currentDate" => Self::CurrentDate { date: wants_date(operand)? },
            "$push" => Self::Push(Push::parse(operand)?),
            "$addToSet" => Self::AddToSet(each(operand, "$addToSet")?),
            "$pull" => Self::Pull(Pull::parse(operand, options)?),
            "$pullAll" => match operand {
                Value::Array(values) => Self::PullAll(values.values().map(key_of).collect()),
                _ => refuse!(
                    BadValue,
                    "$pullAll requires an array argument but was given a {}",
                    operand.type_name()
                ),
            },
            "$pop" => match operand.as_integer() {
                Some(1) => Self::Pop { first: false },
                Some(-1) => Self::Pop { first: true },
                _ => refuse!(FailedToParse, "$pop expects 1 or -1, found: {operand}"),
            },
            "$bit" => parse_bits(operand)?,
            _ => refuse!(FailedToParse, "Unknown modifier: {name}"),
        })
    }

    /// True when the operator applies to this document.
    pub(crate) fn counts(&self, context: &UpdateContext) -> bool {
        match self {
            Self::SetOnInsert(_) => context.inserting,
            Self::Nothing => false,
            _ => true,
        }
    }

    pub(crate) fn apply(
        &self,
        tree: &mut Tree<'_>,
        path: &[String],
        context: &UpdateContext,
    ) -> LangResult<()> {
        match self {
            Self::Set(value) | Self::SetOnInsert(value) => {
                *tree.grow(path, value.encoded_bytes())? = Branch::Owned(value.clone());
            }
            Self::Unset => {
                tree.remove(path)?;
            }
            Self::Increment(operand) => calculate(tree, path, operand.value(), Arithmetic::Add)?,
            Self::Multiply(operand) => calculate(tree, path, operand.value(), Arithmetic::Multiply)?,
            Self::Minimum(operand) | Self::Maximum(operand) => {
                let less = matches!(self, Self::Minimum(_));
                let place = tree.grow(path, operand.encoded_bytes())?;
                let order = place.with(|value| order::compare(operand.value(), value));
                if place.is_vacant() || if less { order.is_lt() } else { order.is_gt() } {
                    *place = Branch::Owned(operand.clone());
                }
            }
            Self::Rename(target) => rename(tree, path, target)?,
            Self::CurrentDate { date } => {
                let now = if *date {
                    Value::DateTime(context.now_ms)
                } else {
                    Value::Timestamp(timestamp(context.now_ms))
                };
                *tree.create(path)? = Branch::Raw(now);
            }
            Self::Push(push) => {
                let added = push.values.iter().map(Owned::encoded_bytes).sum();
                let elements = array(tree, path, "$push", added)?;
                push.apply(elements)?;
            }
            Self::AddToSet(values) => {
                let added = values.iter().map(Owned::encoded_bytes).sum();
                let elements = array(tree, path, "$addToSet", added)?;
                let (mut there, held) = (HashSet::new(), held("$addToSet"));
                let mut insert = |key: Vec<u8>| -> LangResult<bool> {
                    held.take(2 * size_of::<Vec<u8>>() + key.capacity())?;
                    byte_steps(key.len())?;
                    Ok(there.insert(key))
                };
                for element in &*elements {
                    insert(element.with(key_of))?;
                }
                for value in values {
                    if insert(key_of(value.value()))? {
                        elements.push(Branch::Owned(value.clone()));
                    }
                }
            }
            Self::Pull(pull) => {
                let Some(elements) = existing_array(tree, path, "$pull")? else { return Ok(()) };
                let mut kept = Vec::with_capacity(elements.len());
                for element in elements.drain(..) {
                    byte_steps(element.with(|value| value.payload_bytes()))?;
                    if !element.with(|value| pull.takes(value))? {
                        kept.push(element);
                    }
                }
                *elements = kept;
            }
            Self::PullAll(values) => {
                if let Some(elements) = existing_array(tree, path, "$pullAll")? {
                    elements.retain(|element| !values.contains(&element.with(key_of)));
                }
            }
            Self::Pop { first } => {
                if let Some(elements) = existing_array(tree, path, "$pop")?
                    && !elements.is_empty()
                {
                    elements.remove(if *first { 0 } else { elements.len() - 1 });
                }
            }
            Self::Bits { and, or, xor, long } => {
                let place = tree.create(path)?;
                let vacant = place.is_vacant();
                let own = place.with(|value| match value {
                    _ if vacant => Some((0, !long)),
                    Value::Int32(n) => Some((i64::from(n), true)),
                    Value::Int64(n) => Some((n, false)),
                    _ => None,
                });
                let Some((own, small)) = own else {
                    let kind = place.type_name();
                    refuse!(
                        BadValue,
                        "Cannot apply $bit to a value of non-integral type. The field '{}' has type {kind}",
                        path.join(".")
                    );
                };
                let result = ((own & and) | or) ^ xor;
                *place = Branch::Raw(number::narrow(result, small && !long));
            }
            Self::Nothing => {}
        }
        Ok(())
    }
}

/// A value as displayed in a message.
fn short(value: Value<'_>) -> String {
    crate::lang::error::text(format_args!("{value}"))
}

fn calculate(tree: &mut Tree<'_>, path: &[String], operand: Value<'_>, how: Arithmetic) -> LangResult<()> {
    let place = tree.create(path)?;
    let vacant = place.is_vacant();
    let result = place.with(|value| {
        let own = if vacant { Value::Int32(0) } else { value };
        number::calculate(own, operand, how).map(Owned::from)
    });
    if let Some(result) = result {
        *place = Branch::Owned(result);
        return Ok(());
    }
    let (number, kind, shown) = place.with(|value| (value.is_number(), value.type_name(), short(value)));
    let name = if how == Arithmetic::Add { "$inc" } else { "$mul" };
    let id = tree.find(&["_id"])?.map_or("null".to_owned(), |id| id.with(short));
    if number {
        refuse!(
            BadValue,
            "Failed to apply {name} operations to current value ({shown}) for document {{_id: {id}}}"
        );
    }
    refuse!(
        TypeMismatch,
        "Cannot apply {name} to a value of non-numeric type. {{_id: {id}}} has the field '{}' of non-numeric type {kind}",
        path.join(".")
    )
}

fn rename(tree: &mut Tree<'_>, path: &[String], target: &str) -> LangResult<()> {
    let target: Vec<&str> = target.split('.').collect();
    if tree.find(path)?.is_none() {
        return Ok(());
    }
    // Neither end may be inside an array: elements have no names.
    let parents = |steps: usize| (0..steps).rev();
    for length in parents(path.len()) {
        let inside = path.get(..length).map(|steps| tree.find(steps)).transpose()?.flatten();
        if inside.is_some_and(|branch| branch.is_array()) {
            refuse!(BadValue, "The source field cannot be an array element, '{}'", path.join("."));
        }
    }
    for length in parents(target.len()) {
        let inside = target.get(..length).map(|steps| tree.find(steps)).transpose()?.flatten();
        if inside.is_some_and(|branch| branch.is_array()) {
            refuse!(BadValue, "The destination field cannot be an array element, '{}'", target.join("."));
        }
    }
    if let Some(value) = tree.remove(path)? {
        *tree.create(&target)? = value;
    }
    Ok(())
}

/// The array at a path, created if missing, for `bytes` that are added to it.
fn array<'t, 'a>(
    tree: &'t mut Tree<'a>,
    path: &[String],
    operator: &str,
    bytes: usize,
) -> LangResult<&'t mut Vec<Branch<'a>>> {
    let place = tree.grow(path, bytes)?;
    if place.is_vacant() {
        *place = Branch::Array(Vec::new(), None);
    }
    elements(place, path, operator)
}

fn existing_array<'t, 'a>(
    tree: &'t mut Tree<'a>,
    path: &[String],
    operator: &str,
) -> LangResult<Option<&'t mut Vec<Branch<'a>>>> {
    tree.find(path)?.map(|place| elements(place, path, operator)).transpose()
}

fn elements<'t, 'a>(
    place: &'t mut Branch<'a>,
    path: &[String],
    operator: &str,
) -> LangResult<&'t mut Vec<Branch<'a>>> {
    let kind = place.type_name();
    let path = path.join(".");
    match place.open()? {
        Branch::Array(elements, _) => Ok(elements),
        _ if operator == "$push" => {
            refuse!(BadValue, "The field '{path}' must be an array but is of type {kind}")
        }
        _ if operator == "$pop" => {
            refuse!(TypeMismatch, "Path '{path}' contains an element of non-array type '{kind}'")
        }
        _ => refuse!(BadValue, "Cannot apply {operator} to a non-array value: '{path}' is of type {kind}"),
    }
}

impl Push {
    fn parse(operand: Value<'_>) -> LangResult<Self> {
        let mut push = Self { values: Vec::new(), position: None, slice: None, sort: None };
        let modifiers = operand.as_document().filter(|doc| doc.get("$each").is_some());
        let Some(modifiers) = modifiers else {
            if let Some(doc) = operand.as_document()
                && is_operators(doc)
            {
                refuse!(DollarPrefixedFieldName, "$push takes its modifiers together with $each only: {doc}");
            }
            push.values.push(operand.into());
            return Ok(push);
        };
        let integer = |name: &str, value: Value<'_>| match value.as_integer() {
            Some(number) => Ok(Some(number)),
            None => refuse!(
                BadValue,
                "The value for {name} must be an integer value but was given type: {}",
                value.type_name()
            ),
        };
        for (name, value) in modifiers {
            match name {
                "$each" => push.values = each(operand, "$push")?,
                "$position" => push.position = integer(name, value)?,
                "$slice" => push.slice = integer(name, value)?,
                "$sort" => {
                    push.sort = Some(match value {
                        Value::Document(spec) => PushSort::Fields(Sort::parse(spec)?),
                        value => match value.as_integer() {
                            Some(1) => PushSort::Values { descending: false },
                            Some(-1) => PushSort::Values { descending: true },
                            _ => refuse!(BadValue, "The $sort element value must be either 1 or -1"),
                        },
                    });
                }
                _ => refuse!(BadValue, "Unrecognized clause in $push: {name}"),
            }
        }
        Ok(push)
    }

    fn apply(&self, elements: &mut Vec<Branch<'_>>) -> LangResult<()> {
        let length = elements.len();
        let at = match self.position {
            None => length,
            Some(at) if at >= 0 => usize::try_from(at).unwrap_or(length).min(length),
            Some(at) => length.saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(length)),
        };
        elements.splice(at..at, self.values.iter().cloned().map(Branch::Owned));
        match &self.sort {
            None => {}
            Some(PushSort::Values { descending }) => sort_elements(elements, &|value| {
                let mut key = Vec::new();
                crate::lang::value::key::encode(value, *descending, &mut key);
                Ok(key)
            })?,
            Some(PushSort::Fields(sort)) => {
                sort_elements(elements, &|value| sort.key(value.as_document().unwrap_or(Doc::empty())))?;
            }
        }
        match self.slice {
            None => {}
            Some(keep) if keep >= 0 => elements.truncate(usize::try_from(keep).unwrap_or(usize::MAX)),
            Some(keep) => {
                let keep = usize::try_from(keep.unsigned_abs()).unwrap_or(usize::MAX);
                elements.drain(..elements.len().saturating_sub(keep));
            }
        }
        Ok(())
    }
}

fn sort_elements(
    elements: &mut Vec<Branch<'_>>,
    key: &dyn Fn(Value<'_>) -> LangResult<Vec<u8>>,
) -> LangResult<()> {
    let held = held("$push");
    held.take(elements.len() * 2 * size_of::<(Vec<u8>, Branch<'_>)>())?;
    let mut keyed = Vec::with_capacity(elements.len());
    for element in elements.drain(..) {
        let key = element.with(key)?;
        byte_steps(key.len())?;
        held.take(key.capacity())?;
        keyed.push((key, element));
    }
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    elements.extend(keyed.into_iter().map(|(_, element)| element));
    Ok(())
}

/// The values of `{ $each: [..] }`, or the one value.
fn each(operand: Value<'_>, operator: &str) -> LangResult<Vec<Owned>> {
    let Some(doc) = operand.as_document().filter(|doc| doc.get("$each").is_some()) else {
        return Ok(vec![operand.into()]);
    };
    for (name, _) in doc {
        if operator == "$addToSet" && name != "$each" {
            refuse!(BadValue, "Found unexpected fields after $each in $addToSet: {doc}");
        }
    }
    match doc.get("$each") {
        Some(Value::Array(values)) => Ok(values.values().map(Owned::from).collect()),
        other => refuse!(
            TypeMismatch,
            "The argument to $each in {operator} must be an array but it was of type {}",
            other.map_or("missing", Value::type_name)
        ),
    }
}

impl Pull {
    fn parse(operand: Value<'_>, known: &Options) -> LangResult<Self> {
        Ok(match operand {
            Value::Document(doc) if is_about_value(doc) => {
                let mut writer = Writer::new();
                writer.put(ELEMENT, operand);
                Self::Element(Filter::parse(writer.finish().doc(), known)?)
            }
            Value::Document(doc) => Self::Document(Filter::parse(doc, known)?),
            Value::Regex(pattern, options) => Self::Pattern(known.patterns.compile(pattern, options)?),
            value => Self::Value(value.into()),
        })
    }

    fn takes(&self, element: Value<'_>) -> LangResult<bool> {
        match self {
            Self::Value(value) => Ok(Comparison::Equal.holds(Some(element), value.value())),
            Self::Pattern(pattern) => Ok(match element {
                Value::String(text) => pattern.is_match(text)?,
                Value::Regex(text, options) => (text, options) == (&pattern.pattern, &pattern.options),
                _ => false,
            }),
            Self::Element(filter) => {
                let mut writer = Writer::new();
                writer.put(ELEMENT, element);
                filter.matches(writer.finish().doc())
            }
            Self::Document(filter) => match element {
                Value::Document(doc) => filter.matches(doc),
                _ => Ok(false),
            },
        }
    }
}

fn wants_date(operand: Value<'_>) -> LangResult<bool> {
    match operand {
        Value::Bool(_) => Ok(true),
        Value::Document(doc) => match doc.get("$type") {
            Some(Value::String("date")) => Ok(true),
            Some(Value::String("timestamp")) => Ok(false),
            _ => refuse!(
                BadValue,
                "The '$type' string field is required to be 'date' or 'timestamp': {{$currentDate: {{field: {{$type: 'date'}}}}}}"
            ),
        },
        other => refuse!(
            BadValue,
            "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({{$type: 'timestamp/date'}}).",
            other.type_name()
        ),
    }
}

fn parse_bits(operand: Value<'_>) -> LangResult<Operator> {
    let Value::Document(doc) = operand else {
        refuse!(
            BadValue,
            "The $bit modifier is not compatible with a {}. You must pass in an embedded document: {{$bit: {{field: {{and/or/xor: #}}}}}}",
            operand.type_name()
        );
    };
    let (mut and, mut or, mut xor, mut long) = (-1, 0, 0, false);
    for (name, value) in doc {
        let number = match value {
            Value::Int32(n) => i64::from(n),
            Value::Int64(n) => {
                long = true;
                n
            }
            _ => refuse!(
                BadValue,
                "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: {doc}",
                value.type_name()
            ),
        };
        match name {
            // Composed in sequence: (x & a | o) ^ b with any further operation folded in.
            "and" => (and, or, xor) = (and & number, or & number, xor & number),
            "or" => (and, or, xor) = (and & !number, (or | number), xor & !number),
            "xor" => xor ^= number,
            _ => refuse!(
                BadValue,
                "The $bit modifier only supports 'and', 'or', and 'xor', not '{name}' which is an unknown operator: {doc}"
            ),
        }
    }
    if doc.is_empty() {
        refuse!(
            BadValue,
            "You must pass in at least one bitwise operation. The format is: {{$bit: {{field: {{and/or/xor: #}}}}}}"
        );
    }
    Ok(Operator::Bits { and, or, xor, long })
}
