use std::collections::HashMap;

use super::super::error::refuse;
use super::super::val::{self, Answer, Val};
use super::super::value::{Doc, Owned, Value};
use super::super::writer::Writer;
use super::{Arguments, Function, arg, between, fixed, named};

pub(super) const TABLE: &[Function] = &[
    between("$mergeObjects", 0, usize::MAX, merge),
    Function { name: "$getField", arguments: Arguments::NamedOrOne(&["field", "input"], 1), call: get },
    named("$setField", &["field", "input", "value"], 3, set),
    named("$unsetField", &["field", "input"], 2, set),
    fixed("$objectToArray", 1, to_array),
    fixed("$arrayToObject", 1, from_array),
];

fn merge(args: &[Val<'_>]) -> Answer {
    let mut merged = Merged::default();
    // One operand may be the array of all.
    let only = match args {
        [only] => only.get().and_then(Value::as_array),
        _ => None,
    };
    let values: Vec<Option<Value<'_>>> = match only {
        Some(array) => array.values().map(Some).collect(),
        None => args.iter().map(Val::get).collect(),
    };
    for value in values {
        match value {
            None | Some(Value::Null | Value::Undefined) => {}
            Some(Value::Document(doc)) => merged.put_all(doc),
            Some(other) => {
                refuse!(
                    40400,
                    "$mergeObjects requires object inputs, but input {other} is of type {}",
                    other.type_name()
                )
            }
        }
    }
    val::built(merged.into_owned())
}

/// Fields by name; a name that comes again changes its value and keeps its place.
#[derive(Default)]
pub(crate) struct Merged<'v> {
    fields: Vec<(&'v str, Value<'v>)>,
    places: HashMap<&'v str, usize>,
}

impl<'v> Merged<'v> {
    pub(crate) fn put(&mut self, name: &'v str, value: Value<'v>) {
        let next = self.fields.len();
        match self.fields.get_mut(*self.places.entry(name).or_insert(next)) {
            Some((_, own)) => *own = value,
            None => self.fields.push((name, value)),
        }
    }

    pub(crate) fn put_all(&mut self, doc: Doc<'v>) {
        doc.iter().for_each(|(name, value)| self.put(name, value));
    }

    pub(crate) fn into_owned(self) -> Owned {
        let mut writer = Writer::new();
        self.fields.iter().for_each(|(name, value)| writer.put(name, *value));
        writer.into_owned()
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
    let mut writer = Writer::new();
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
    val::built(writer.into_owned())
}

fn to_array(args: &[Val<'_>]) -> Answer {
    let doc = match arg(args, 0).get() {
        Some(Value::Document(doc)) => doc,
        _ if arg(args, 0).is_nullish() => return Ok(Val::NULL),
        _ => refuse!(40390, "$objectToArray requires a document input, found: {}", arg(args, 0).type_name()),
    };
    let mut writer = Writer::array();
    for (name, value) in doc {
        writer.open_document("");
        writer.put("k", Value::String(name));
        writer.put("v", value);
        writer.close();
    }
    val::built(writer.into_owned())
}

fn from_array(args: &[Val<'_>]) -> Answer {
    let array = match arg(args, 0).get() {
        Some(Value::Array(array)) => array,
        _ if arg(args, 0).is_nullish() => return Ok(Val::NULL),
        _ => refuse!(40386, "$arrayToObject requires an array input, found: {}", arg(args, 0).type_name()),
    };
    let mut merged = Merged::default();
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
        merged.put(name, value);
    }
    val::built(merged.into_owned())
}
