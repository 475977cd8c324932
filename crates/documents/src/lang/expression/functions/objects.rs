use std::collections::HashMap;

use super::{Arguments, Function, arg, between, fixed, named};
use crate::lang::budget::{Held, byte_steps, held};
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, Value};

pub(super) const TABLE: &[Function] = &[
    between("$mergeObjects", 0, usize::MAX, merge),
    Function { name: "$getField", arguments: Arguments::NamedOrOne(&["field", "input"], 1), call: get },
    named("$setField", &["field", "input", "value"], 3, set),
    named("$unsetField", &["field", "input"], 2, set),
    fixed("$bsonSize", 1, |args| match arg(args, 0).or_null() {
        Value::Document(doc) => Ok(val::int(doc.bytes().len())),
        value if value.is_nullish() => Ok(Val::NULL),
        value => refuse!(31393, "$bsonSize requires a document input, found: {}", value.type_name()),
    }),
    fixed("$objectToArray", 1, to_array),
    fixed("$arrayToObject", 1, from_array),
];

fn merge(args: &[Val<'_>]) -> Answer {
    let mut merged = Merged::new();
    // A single operand may be an array of all objects.
    let only = match args {
        [only] => only.get().and_then(Value::as_array),
        _ => None,
    };
    let (listed, _held);
    let values: Vec<Option<Value<'_>>> = match only {
        Some(array) => {
            (listed, _held) = val::listed(array, size_of::<Option<Value<'_>>>())?;
            listed.into_iter().map(Some).collect()
        }
        None => args.iter().map(Val::get).collect(),
    };
    for value in values {
        match value {
            None | Some(Value::Null | Value::Undefined) => {}
            Some(Value::Document(doc)) => merged.put_all(doc)?,
            Some(other) => {
                refuse!(
                    40400,
                    "$mergeObjects requires object inputs, but input {other} is of type {}",
                    other.type_name()
                )
            }
        }
    }
    val::built(merged.into_writer())
}

/// Fields by name; a repeated name changes its value and retains its position.
pub(crate) struct Merged<'v> {
    fields: Vec<(&'v str, Value<'v>)>,
    places: HashMap<&'v str, usize>,
    held: Held,
}

/// Memory of one field: in the list and in the map, whose capacity may be twice their length.
const MERGED_FIELD_BYTES: usize = 3 * (size_of::<(&str, Value<'_>)>() + size_of::<(&str, usize)>());

impl<'v> Merged<'v> {
    pub(crate) fn new() -> Self {
        Self { fields: Vec::new(), places: HashMap::new(), held: held("$mergeObjects") }
    }

    pub(crate) fn put(&mut self, name: &'v str, value: Value<'v>) -> LangResult<()> {
        let next = self.fields.len();
        match self.places.get(name).and_then(|place| self.fields.get_mut(*place)) {
            Some((_, own)) => *own = value,
            None => {
                self.held.take(MERGED_FIELD_BYTES)?;
                self.fields.push((name, value));
                self.places.insert(name, next);
            }
        }
        Ok(())
    }

    pub(crate) fn put_all(&mut self, doc: Doc<'v>) -> LangResult<()> {
        byte_steps(doc.bytes().len())?;
        doc.iter().try_for_each(|(name, value)| self.put(name, value))
    }

    pub(crate) fn into_writer(self) -> Writer {
        let mut writer = Writer::new().bounded();
        self.fields.iter().for_each(|(name, value)| writer.put(name, *value));
        writer
    }
}

fn get(args: &[Val<'_>]) -> Answer {
    let Some(Value::String(name)) = arg(args, 0).get() else {
        refuse!(
            5654602,
            "$getField requires 'field' to evaluate to type String, found: {}",
            arg(args, 0).type_name()
        );
    };
    Ok(match arg(args, 1).get() {
        Some(Value::Document(doc)) => doc.get(name).map_or(Val::Missing, val::own),
        Some(value) if value.is_nullish() => Val::NULL,
        _ => Val::Missing,
    })
}

fn set(args: &[Val<'_>]) -> Answer {
    let Some(Value::String(name)) = arg(args, 0).get() else {
        refuse!(
            4161107,
            "$setField requires 'field' to evaluate to type String, found: {}",
            arg(args, 0).type_name()
        );
    };
    let doc = match arg(args, 1).get() {
        Some(Value::Document(doc)) => doc,
        _ if arg(args, 1).is_nullish() => return Ok(Val::NULL),
        _ => refuse!(
            4161105,
            "$setField requires 'input' to evaluate to type Object, found: {}",
            arg(args, 1).type_name()
        ),
    };
    let mut writer = Writer::new().bounded();
    let mut there = false;
    for (own, value) in doc {
        if own != name {
            writer.put(own, value);
        } else if let Some(value) = arg(args, 2).get() {
            writer.put(own, value);
            there = true;
        }
    }
    if let (false, Some(value)) = (there, arg(args, 2).get()) {
        if name.contains('\0') {
            refuse!(BadValue, "a field name cannot hold a null byte");
        }
        writer.put(name, value);
    }
    val::built(writer)
}

fn to_array(args: &[Val<'_>]) -> Answer {
    let doc = match arg(args, 0).get() {
        Some(Value::Document(doc)) => doc,
        _ if arg(args, 0).is_nullish() => return Ok(Val::NULL),
        _ => refuse!(40390, "$objectToArray requires a document input, found: {}", arg(args, 0).type_name()),
    };
    let mut writer = Writer::array().bounded();
    for (name, value) in doc {
        writer.open_document("");
        writer.put("k", Value::String(name));
        writer.put("v", value);
        writer.close();
    }
    val::built(writer)
}

fn from_array(args: &[Val<'_>]) -> Answer {
    let array = match arg(args, 0).get() {
        Some(Value::Array(array)) => array,
        _ if arg(args, 0).is_nullish() => return Ok(Val::NULL),
        _ => refuse!(40386, "$arrayToObject requires an array input, found: {}", arg(args, 0).type_name()),
    };
    let mut merged = Merged::new();
    for element in array.values() {
        let pair = match element {
            Value::Document(doc) if doc.iter().count() == 2 => doc.get("k").zip(doc.get("v")),
            Value::Array(pair) if pair.values().count() == 2 => {
                pair.values().next().zip(pair.values().nth(1))
            }
            _ => None,
        };
        let Some((Value::String(name), value)) = pair else {
            refuse!(
                40392,
                "$arrayToObject requires elements of the form {{k: \"name\", v: value}} or [\"name\", value], found: {element}"
            );
        };
        if name.contains('\0') {
            refuse!(4940400, "Key field cannot contain an embedded null byte");
        }
        merged.put(name, value)?;
    }
    val::built(merged.into_writer())
}
