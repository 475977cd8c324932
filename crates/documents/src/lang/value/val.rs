use crate::lang::budget::{Held, byte_steps, held};
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::writer::Writer;
use crate::lang::value::{DEPTH_MAX, DOCUMENT_BYTES_MAX, Doc, Owned, Value};

/// Result of an expression: missing, a value borrowed from the document, or a new one.
#[derive(Debug, Clone)]
pub(crate) enum Val<'a> {
    Missing,
    Ref(Value<'a>),
    Own(Owned),
}

/// Result of a function, without borrowed values.
pub(crate) type Answer = LangResult<Val<'static>>;

impl Val<'_> {
    pub(crate) const NULL: Val<'static> = Val::Ref(Value::Null);

    pub(crate) fn get(&self) -> Option<Value<'_>> {
        match self {
            Val::Missing => None,
            Val::Ref(value) => Some(*value),
            Val::Own(owned) => Some(owned.value()),
        }
    }

    /// Missing, null or undefined.
    pub(crate) fn is_nullish(&self) -> bool {
        self.get().is_none_or(Value::is_nullish)
    }

    /// The value; null if missing.
    pub(crate) fn or_null(&self) -> Value<'_> {
        self.get().unwrap_or(Value::Null)
    }

    /// The name of the type, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        self.get().map_or("missing", Value::type_name)
    }

    /// Memory of a value that is owned.
    pub(crate) fn own_bytes(&self) -> usize {
        if let Val::Own(owned) = self { owned.bytes() } else { 0 }
    }

    /// Bytes of the value, borrowed or owned.
    pub(crate) fn size(&self) -> usize {
        self.get().map_or(0, Value::payload_bytes)
    }

    pub(crate) fn into_static(self) -> Val<'static> {
        match self {
            Val::Missing => Val::Missing,
            Val::Ref(value) => Val::Own(value.into()),
            Val::Own(owned) => Val::Own(owned),
        }
    }
}

/// An owned copy.
pub(crate) fn own(value: Value<'_>) -> Val<'static> {
    Val::Own(value.into())
}

pub(crate) fn bool(value: bool) -> Val<'static> {
    Val::Ref(Value::Bool(value))
}

pub(crate) fn int(value: usize) -> Val<'static> {
    Val::Ref(crate::lang::value::number::narrow(value as i64, true))
}

pub(crate) fn text(value: &str) -> Answer {
    if value.len() > DOCUMENT_BYTES_MAX {
        refuse!(BSONObjectTooLarge, "an expression made a text of {} bytes", value.len());
    }
    Ok(own(Value::String(value)))
}

/// A document or array that was built: no larger and no deeper than one from a client.
pub(crate) fn built(writer: Writer) -> Answer {
    let owned = writer.within("a value that an expression made")?.into_owned();
    if let Value::Document(doc) | Value::Array(doc) = owned.value() {
        byte_steps(doc.bytes().len())?;
        if !shallow(doc, 1) {
            refuse!(Overflow, "an expression made a value that is nested deeper than {DEPTH_MAX} levels");
        }
    }
    Ok(Val::Own(owned))
}

fn shallow(doc: Doc<'_>, depth: usize) -> bool {
    depth <= DEPTH_MAX
        && doc.values().all(|value| match value {
            Value::Document(inner) | Value::Array(inner) => shallow(inner, depth + 1),
            _ => true,
        })
}

/// An array of these values.
pub(crate) fn array<'v>(values: impl IntoIterator<Item = Value<'v>>) -> Answer {
    let mut writer = Writer::array().bounded();
    for value in values {
        writer.put("", value);
        if writer.is_full() {
            break;
        }
    }
    built(writer)
}

/// The elements of an array, with `each` additional bytes that a function needs per element.
pub(crate) fn listed(array: Doc<'_>, each: usize) -> LangResult<(Vec<Value<'_>>, Held)> {
    byte_steps(array.bytes().len())?;
    let (count, held) = (array.values().count(), held("an expression"));
    held.take(count.saturating_mul(size_of::<Value<'_>>() + each))?;
    let mut values = Vec::with_capacity(count);
    values.extend(array.values());
    Ok((values, held))
}
