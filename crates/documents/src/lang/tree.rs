//! A document that is being changed: opened only where an update goes, the rest stays bytes.
//!
//! ```text
//! { a: 1, b: { c: [..], d: {..} }, e: ".." }      $set: { "b.x": 7 }
//!   raw   open  raw      raw       raw            b is opened, x is added, everything raw is copied as it was
//! ```

use std::borrow::Cow;

use super::error::{LangError, refuse};
use super::path;
use super::value::{DOCUMENT_BYTES_MAX, Doc, DocBuf, ELEMENT_BYTES, Owned, Value};
use super::writer::Writer;

/// One update fills arrays with no more nulls than this to reach positions.
const PADDING_MAX: usize = 1_500_000;
/// Bytes that one update may add: a document of the largest size, and as much that other operators take away again.
const ADDED_BYTES_MAX: usize = 2 * DOCUMENT_BYTES_MAX;

/// The document.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    root: Branch<'a>,
    /// The size it had, which the new one will be near.
    bytes_before: usize,
    growth: Growth,
}

/// What was added so far.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    padding: usize,
    bytes: usize,
}

impl Growth {
    /// Counts bytes that are about to be added.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), LangError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > ADDED_BYTES_MAX {
            refuse!(BSONObjectTooLarge, "an update adds more than {ADDED_BYTES_MAX} bytes to one document");
        }
        Ok(())
    }

    /// Counts nulls that are about to be added.
    fn pad(&mut self, elements: usize) -> Result<(), LangError> {
        self.padding = self.padding.saturating_add(elements);
        if self.padding >= PADDING_MAX {
            refuse!(BadValue, "can't backfill more than {PADDING_MAX} elements");
        }
        self.add(elements.saturating_mul(ELEMENT_BYTES))
    }
}

#[derive(Debug)]
pub(crate) enum Branch<'a> {
    Raw(Value<'a>),
    Owned(Owned),
    Document(Vec<(Cow<'a, str>, Branch<'a>)>),
    Array(Vec<Branch<'a>>),
}

impl Default for Tree<'_> {
    fn default() -> Self {
        Self { root: Branch::Document(Vec::new()), bytes_before: 0, growth: Growth::default() }
    }
}

impl<'a> Tree<'a> {
    pub(crate) fn of(doc: Doc<'a>) -> Self {
        Self {
            root: Branch::Raw(Value::Document(doc)),
            bytes_before: doc.bytes().len(),
            growth: Growth::default(),
        }
    }

    /// The bytes, `_id` first.
    pub(crate) fn into_document(mut self) -> DocBuf {
        let mut writer = Writer::with_capacity(self.bytes_before + 64);
        if let Branch::Document(fields) = self.root.open() {
            if let Some(at) = fields.iter().position(|(name, _)| name == "_id").filter(|at| *at > 0) {
                let id = fields.remove(at);
                fields.insert(0, id);
            }
            fields.iter().for_each(|(name, value)| value.write(name, &mut writer));
        }
        writer.finish()
    }

    /// Sets a field of an upsert's first document.
    pub(crate) fn seed(&mut self, path: &str, value: Owned) -> Result<(), LangError> {
        let steps: Vec<&str> = path.split('.').collect();
        let place = self.create(&steps).ok().filter(|place| place.is_vacant());
        match place {
            Some(place) => {
                *place = Branch::Owned(value);
                Ok(())
            }
            None => refuse!(
                NotSingleValueField,
                "cannot infer query fields to set, path '{path}' is matched twice"
            ),
        }
    }

    /// The branch at `steps`, if it is there.
    pub(crate) fn find(&mut self, steps: &[impl AsRef<str>]) -> Option<&mut Branch<'a>> {
        steps.iter().try_fold(&mut self.root, |branch, step| branch.child(step.as_ref()))
    }

    /// The branch at `steps`, made if it is not there: it is [vacant](Branch::is_vacant) then, and must be filled.
    pub(crate) fn create(&mut self, steps: &[impl AsRef<str>]) -> Result<&mut Branch<'a>, LangError> {
        let mut branch = &mut self.root;
        for step in steps {
            branch = branch.create(step.as_ref(), &mut self.growth)?;
        }
        Ok(branch)
    }

    /// The branch at `steps`, made if it is not there, for `bytes` that are added to it.
    pub(crate) fn grow(
        &mut self,
        steps: &[impl AsRef<str>],
        bytes: usize,
    ) -> Result<&mut Branch<'a>, LangError> {
        self.growth.add(bytes)?;
        self.create(steps)
    }

    /// Takes a field away; an element of an array becomes null.
    pub(crate) fn remove(&mut self, steps: &[impl AsRef<str>]) -> Option<Branch<'a>> {
        let (last, parents) = steps.split_last()?;
        match self.find(parents)?.open() {
            Branch::Document(fields) => {
                let at = fields.iter().position(|(name, _)| name == last.as_ref())?;
                Some(fields.remove(at).1)
            }
            Branch::Array(elements) => {
                let element = elements.get_mut(path::position(last.as_ref())?)?;
                Some(std::mem::replace(element, Branch::Raw(Value::Null)))
            }
            _ => None,
        }
    }
}

impl<'a> Branch<'a> {
    const VACANT: Self = Self::Raw(Value::Undefined);

    /// Just made by [`Tree::create`], nothing in it yet.
    pub(crate) fn is_vacant(&self) -> bool {
        matches!(self, Self::Raw(Value::Undefined))
    }

    /// Makes a document or array one of branches.
    pub(crate) fn open(&mut self) -> &mut Self {
        let opened = match self {
            Self::Raw(Value::Document(doc)) => Some(Self::Document(
                doc.iter().map(|(name, value)| (name.into(), Self::Raw(value))).collect(),
            )),
            Self::Raw(Value::Array(array)) => Some(Self::Array(array.values().map(Self::Raw).collect())),
            Self::Owned(owned) => match owned.value() {
                Value::Document(doc) => {
                    let field = |(name, value): (&str, Value<'_>)| {
                        (Cow::Owned(name.to_owned()), Self::Owned(value.into()))
                    };
                    Some(Self::Document(doc.iter().map(field).collect()))
                }
                Value::Array(array) => {
                    Some(Self::Array(array.values().map(|value| Self::Owned(value.into())).collect()))
                }
                _ => None,
            },
            _ => None,
        };
        if let Some(opened) = opened {
            *self = opened;
        }
        self
    }

    fn child(&mut self, step: &str) -> Option<&mut Self> {
        match self.open() {
            Self::Document(fields) => {
                fields.iter_mut().find(|(name, _)| name == step).map(|(_, value)| value)
            }
            Self::Array(elements) => elements.get_mut(path::position(step)?),
            _ => None,
        }
    }

    fn create(&mut self, step: &str, growth: &mut Growth) -> Result<&mut Self, LangError> {
        if self.is_vacant() {
            *self = Self::Document(Vec::new());
        }
        let kind = self.type_name();
        match self.open() {
            Self::Document(fields) => {
                let at = fields.iter().position(|(name, _)| name == step);
                let at = at.unwrap_or_else(|| {
                    fields.push((step.to_owned().into(), Self::VACANT));
                    fields.len() - 1
                });
                if let Some((_, value)) = fields.get_mut(at) {
                    return Ok(value);
                }
            }
            Self::Array(elements) => {
                let Some(at) = path::position(step) else {
                    refuse!(PathNotViable, "Cannot create field '{step}' in an element of type array");
                };
                if at >= elements.len() {
                    growth.pad(at - elements.len())?;
                    elements.resize_with(at, || Self::Raw(Value::Null));
                    elements.push(Self::VACANT);
                }
                if let Some(element) = elements.get_mut(at) {
                    return Ok(element);
                }
            }
            _ => {}
        }
        refuse!(PathNotViable, "Cannot create field '{step}' in an element of type {kind}")
    }

    /// The type of the value, without reading it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Raw(value) => value.type_name(),
            Self::Owned(owned) => owned.value().type_name(),
            Self::Document(_) => Value::Document(Doc::empty()).type_name(),
            Self::Array(_) => Value::Array(Doc::empty()).type_name(),
        }
    }

    /// Reads it as one value. Cost: a copy, if it was opened.
    pub(crate) fn with<R>(&self, read: impl FnOnce(Value<'_>) -> R) -> R {
        match self {
            Self::Raw(value) => read(*value),
            Self::Owned(owned) => read(owned.value()),
            Self::Document(_) | Self::Array(_) => read(self.to_owned().value()),
        }
    }

    pub(crate) fn to_owned(&self) -> Owned {
        match self {
            Self::Raw(value) => (*value).into(),
            Self::Owned(owned) => owned.clone(),
            Self::Document(fields) => {
                let mut writer = Writer::new();
                fields.iter().for_each(|(name, value)| value.write(name, &mut writer));
                writer.into_owned()
            }
            Self::Array(elements) => {
                let mut writer = Writer::array();
                elements.iter().for_each(|value| value.write("", &mut writer));
                writer.into_owned()
            }
        }
    }

    fn write(&self, name: &str, writer: &mut Writer) {
        match self {
            Self::Raw(value) => writer.put(name, *value),
            Self::Owned(owned) => writer.put(name, owned.value()),
            Self::Document(fields) => {
                writer.open_document(name);
                fields.iter().for_each(|(name, value)| value.write(name, writer));
                writer.close();
            }
            Self::Array(elements) => {
                writer.open_array(name);
                elements.iter().for_each(|value| value.write("", writer));
                writer.close();
            }
        }
    }
}
