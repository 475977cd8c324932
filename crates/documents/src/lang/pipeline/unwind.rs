//! `$unwind`: one document for each element of an array.

use std::ops::Range;

use crate::lang::error::{LangResult, refuse};
use crate::lang::pipeline::only;
use crate::lang::pipeline::projection::{Projection, with_field};
use crate::lang::value::{DocBuf, Fields, Owned, Value};

#[derive(Debug, Clone)]
pub(crate) struct Unwind {
    path: String,
    position: Option<String>,
    keep_empty: bool,
}

impl Unwind {
    pub(crate) fn parse(operand: Value<'_>) -> LangResult<Self> {
        let (path, position, keep_empty) = match operand {
            Value::String(path) => (path, None, false),
            Value::Document(doc) => {
                only("$unwind", doc, &["path", "includeArrayIndex", "preserveNullAndEmptyArrays"])?;
                let Some(Value::String(path)) = doc.get("path") else {
                    refuse!(28812, "no path specified to $unwind stage");
                };
                let position = match doc.get("includeArrayIndex") {
                    None => None,
                    Some(Value::String(name)) if !name.is_empty() && !name.starts_with('$') => {
                        Some(name.to_owned())
                    }
                    Some(_) => refuse!(
                        28810,
                        "expected a non-empty string for the includeArrayIndex option to $unwind stage"
                    ),
                };
                let keep = match doc.get("preserveNullAndEmptyArrays") {
                    None => false,
                    Some(Value::Bool(keep)) => keep,
                    Some(_) => refuse!(
                        28809,
                        "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage"
                    ),
                };
                (path, position, keep)
            }
            _ => refuse!(
                15981,
                "expected either a string or an object as specification for $unwind stage, got {}",
                operand.type_name()
            ),
        };
        match path
            .strip_prefix('$')
            .filter(|path| !path.starts_with('$') && path.split('.').all(|name| !name.is_empty()))
        {
            Some(path) => Ok(Self { path: path.to_owned(), position, keep_empty }),
            None => refuse!(28818, "path option to $unwind stage should be prefixed with a '$': {path}"),
        }
    }

    /// One document for each element, made one at a time: together they may be far larger than the original.
    pub(crate) fn apply(&self, doc: DocBuf) -> Unwound<'_> {
        let found = self
            .path
            .split('.')
            .try_fold(Value::Document(doc.doc()), |value, name| value.as_document()?.get(name));
        let elements = match found {
            Some(Value::Array(array)) if array.is_empty() && self.keep_empty => Elements::Emptied,
            // The byte range of the elements in the document: a list of all values could be large.
            Some(Value::Array(array)) => {
                let at = array.bytes().as_ptr().addr() - doc.doc().bytes().as_ptr().addr();
                Elements::Array(at + 4..at + array.bytes().len() - 1)
            }
            Some(value) if !value.is_nullish() => Elements::Itself,
            _ => Elements::Nothing,
        };
        let elements = match elements {
            Elements::Nothing if self.keep_empty => Elements::Itself,
            other => other,
        };
        Unwound { unwind: self, doc, elements, at: 0 }
    }

    fn numbered(&self, doc: DocBuf, position: Value<'_>) -> LangResult<DocBuf> {
        match &self.position {
            Some(name) => with_field(doc.doc(), name, Owned::from(position)),
            None => Ok(doc),
        }
    }
}

/// The documents made from one.
pub(crate) struct Unwound<'u> {
    unwind: &'u Unwind,
    doc: DocBuf,
    elements: Elements,
    at: i64,
}

enum Elements {
    /// The remaining elements, by their byte range in the document.
    Array(Range<usize>),
    /// The document unchanged.
    Itself,
    /// The document without its empty array.
    Emptied,
    Nothing,
}

impl Iterator for Unwound<'_> {
    type Item = LangResult<DocBuf>;

    fn next(&mut self) -> Option<Self::Item> {
        let (unwind, doc) = (self.unwind, self.doc.doc());
        match &mut self.elements {
            Elements::Array(elements) => {
                let mut rest = Fields::of(doc.bytes().get(elements.clone())?);
                let (_, element) = rest.next()?;
                elements.start = elements.end - rest.left();
                let position = Value::Int64(self.at);
                self.at += 1;
                Some(
                    with_field(doc, &unwind.path, element.into())
                        .and_then(|doc| unwind.numbered(doc, position)),
                )
            }
            Elements::Nothing => None,
            Elements::Itself => {
                let only = unwind.numbered(doc.to_buf(), Value::Null);
                self.elements = Elements::Nothing;
                Some(only)
            }
            Elements::Emptied => {
                let without =
                    Projection::removing(&[&unwind.path]).and_then(|projection| projection.apply(doc, None));
                self.elements = Elements::Nothing;
                Some(without.and_then(|doc| unwind.numbered(doc, Value::Null)))
            }
        }
    }
}
