use super::error::{LangError, refuse};
use super::value::{DEPTH_MAX, DOCUMENT_BYTES_MAX, Doc, Owned, Value};

/// What an expression gives: nothing, a value of the document in place, or a new one.
#[derive(Debug, Clone)]
pub(crate) enum Val<'a> {
    Missing,
    Ref(Value<'a>),
    Own(Owned),
}

/// What a function gives: it has copied what it keeps.
pub(crate) type Answer = Result<Val<'static>, LangError>;

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

    /// The value; null for nothing.
    pub(crate) fn or_null(&self) -> Value<'_> {
        self.get().unwrap_or(Value::Null)
    }

    /// For messages.
    pub(crate) fn type_name(&self) -> &'static str {
        self.get().map_or("missing", Value::type_name)
    }

    pub(crate) fn into_static(self) -> Val<'static> {
        match self {
            Val::Missing => Val::Missing,
            Val::Ref(value) => Val::Own(value.into()),
            Val::Own(owned) => Val::Own(owned),
        }
    }
}

/// A value that stays: a copy.
pub(crate) fn own(value: Value<'_>) -> Val<'static> {
    Val::Own(value.into())
}

pub(crate) fn bool(value: bool) -> Val<'static> {
    Val::Ref(Value::Bool(value))
}

pub(crate) fn int(value: usize) -> Val<'static> {
    Val::Ref(super::number::narrow(value as i64, true))
}

pub(crate) fn text(value: &str) -> Answer {
    if value.len() > DOCUMENT_BYTES_MAX {
        refuse!(BSONObjectTooLarge, "an expression made a text of {} bytes", value.len());
    }
    Ok(own(Value::String(value)))
}

/// A document or array that was built: no larger and no deeper than one that comes from outside.
pub(crate) fn built(owned: Owned) -> Answer {
    if let Value::Document(doc) | Value::Array(doc) = owned.value() {
        if doc.bytes().len() > DOCUMENT_BYTES_MAX {
            refuse!(BSONObjectTooLarge, "an expression made a value of {} bytes", doc.bytes().len());
        }
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

/// An array of what these are; nothing becomes null.
pub(crate) fn array<'v>(values: impl IntoIterator<Item = Value<'v>>) -> Answer {
    built(Owned::array(values))
}
