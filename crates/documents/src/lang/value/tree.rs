//! A document that is being changed: only the parts on an update's paths are decoded, the rest remains
//! bytes.
//!
//! ```text
//! { a: 1, b: { c: [..], d: {..} }, e: ".." }      $set: { "b.x": 7 }
//!   raw   open  raw      raw       raw            b is opened, x is added, everything raw is copied as it was
//! ```

use std::borrow::Cow;

use crate::lang::budget::{Held, byte_steps, held};
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::path;
use crate::lang::value::writer::Writer;
use crate::lang::value::{DOCUMENT_BYTES_MAX, Doc, DocBuf, ELEMENT_BYTES, Owned, Value};

/// Most nulls that one update inserts to reach array positions.
const PADDING_MAX: usize = 1_500_000;
/// Most bytes that one update adds: a document of the largest size, and as much that later operators remove.
const ADDED_BYTES_MAX: usize = 2 * DOCUMENT_BYTES_MAX;

/// The document.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    root: Branch<'a>,
    /// Size of the original; the new document will be about as large.
    bytes_before: usize,
    growth: Growth,
}

/// The additions of an update so far.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    padding: usize,
    bytes: usize,
    /// The memory of inserted nulls.
    held: Memory,
}

impl Growth {
    /// Counts bytes that are about to be added.
    pub(crate) fn add(&mut self, bytes: usize) -> LangResult<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > ADDED_BYTES_MAX {
            refuse!(BSONObjectTooLarge, "an update adds more than {ADDED_BYTES_MAX} bytes to one document");
        }
        Ok(())
    }

    /// Counts nulls that are about to be added.
    fn pad(&mut self, elements: usize) -> LangResult<()> {
        self.padding = self.padding.saturating_add(elements);
        if self.padding >= PADDING_MAX {
            refuse!(BadValue, "can't backfill more than {PADDING_MAX} elements");
        }
        let held = self.held.get_or_insert_with(|| Box::new(held("an update")));
        held.take(2 * elements * size_of::<Branch<'_>>())?;
        self.add(elements.saturating_mul(ELEMENT_BYTES))
    }
}

/// Memory of a copied name or value, for each byte that it takes in a document: short ones take several
/// times their length.
const COPIED_BYTES: usize = 4;

/// Capacity for the branches of a document or array, with `copied` memory per byte of it.
fn room<T>(doc: Doc<'_>, copied: usize) -> LangResult<(Vec<T>, Memory)> {
    byte_steps(doc.bytes().len())?;
    let (count, held) = (doc.elements().count(), held("an update"));
    held.take(count * size_of::<T>() + copied * doc.bytes().len())?;
    // One more, for a branch that an update adds.
    Ok((Vec::with_capacity(count + 1), Some(Box::new(held))))
}

#[derive(Debug)]
pub(crate) enum Branch<'a> {
    Raw(Value<'a>),
    Owned(Owned),
    // The memory is held until the list is dropped.
    Document(Vec<Field<'a>>, #[expect(dead_code)] Memory),
    Array(Vec<Branch<'a>>, #[expect(dead_code)] Memory),
}

type Field<'a> = (Cow<'a, str>, Branch<'a>);
/// Memory of a list that was decoded; none for a new one.
type Memory = Option<Box<Held>>;

impl Default for Tree<'_> {
    fn default() -> Self {
        Self { root: Branch::Document(Vec::new(), None), bytes_before: 0, growth: Growth::default() }
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
    ///
    /// # Errors
    /// A document far above the limit.
    pub(crate) fn into_document(mut self) -> LangResult<DocBuf> {
        let size = self.root.open()?.size();
        let mut writer = Writer::with_capacity(size + 64).with_room(ADDED_BYTES_MAX);
        byte_steps(self.bytes_before)?;
        if let Branch::Document(fields, _) = self.root.open()? {
            if let Some(at) = fields.iter().position(|(name, _)| name == "_id").filter(|at| *at > 0) {
                let id = fields.remove(at);
                fields.insert(0, id);
            }
            fields.iter().for_each(|(name, value)| value.write(name, &mut writer));
        }
        Ok(writer.within("a document")?.finish())
    }

    /// Sets a field of a document that an upsert inserts.
    pub(crate) fn seed(&mut self, path: &str, value: Owned) -> LangResult<()> {
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

    /// The branch at `steps`, if it exists.
    pub(crate) fn find(&mut self, steps: &[impl AsRef<str>]) -> LangResult<Option<&mut Branch<'a>>> {
        let mut branch = &mut self.root;
        for step in steps {
            match branch.child(step.as_ref())? {
                Some(child) => branch = child,
                None => return Ok(None),
            }
        }
        Ok(Some(branch))
    }

    /// The branch at `steps`, created if missing: it is [vacant](Branch::is_vacant) then, and must be
    /// filled.
    pub(crate) fn create(&mut self, steps: &[impl AsRef<str>]) -> LangResult<&mut Branch<'a>> {
        let mut branch = &mut self.root;
        for step in steps {
            branch = branch.create(step.as_ref(), &mut self.growth)?;
        }
        Ok(branch)
    }

    /// The branch at `steps`, created if missing, for `bytes` that are added to it.
    pub(crate) fn grow(&mut self, steps: &[impl AsRef<str>], bytes: usize) -> LangResult<&mut Branch<'a>> {
        self.growth.add(bytes)?;
        self.create(steps)
    }

    /// Removes a field; an element of an array becomes null.
    pub(crate) fn remove(&mut self, steps: &[impl AsRef<str>]) -> LangResult<Option<Branch<'a>>> {
        let Some((last, parents)) = steps.split_last() else { return Ok(None) };
        let Some(parent) = self.find(parents)? else { return Ok(None) };
        Ok(match parent.open()? {
            Branch::Document(fields, _) => {
                let at = fields.iter().position(|(name, _)| name == last.as_ref());
                at.map(|at| fields.remove(at).1)
            }
            Branch::Array(elements, _) => {
                let element = path::position(last.as_ref()).and_then(|at| elements.get_mut(at));
                element.map(|element| std::mem::replace(element, Branch::Raw(Value::Null)))
            }
            _ => None,
        })
    }
}

impl<'a> Branch<'a> {
    const VACANT: Self = Self::Raw(Value::Undefined);

    /// True for a branch just made by [`Tree::create`] and still empty.
    pub(crate) fn is_vacant(&self) -> bool {
        matches!(self, Self::Raw(Value::Undefined))
    }

    /// Decodes a raw document or array into branches.
    ///
    /// # Errors
    /// More memory than the command may hold; an end of the command.
    pub(crate) fn open(&mut self) -> LangResult<&mut Self> {
        let opened = match self {
            Self::Raw(Value::Document(doc)) => {
                let (mut fields, held) = room(*doc, 0)?;
                fields.extend(doc.iter().map(|(name, value)| (name.into(), Self::Raw(value))));
                Some(Self::Document(fields, held))
            }
            Self::Raw(Value::Array(array)) => {
                let (mut elements, held) = room(*array, 0)?;
                elements.extend(array.values().map(Self::Raw));
                Some(Self::Array(elements, held))
            }
            Self::Owned(owned) => match owned.value() {
                Value::Document(doc) => {
                    let (mut fields, held) = room(doc, COPIED_BYTES)?;
                    fields.extend(
                        doc.iter()
                            .map(|(name, value)| (Cow::Owned(name.to_owned()), Self::Owned(value.into()))),
                    );
                    Some(Self::Document(fields, held))
                }
                Value::Array(array) => {
                    let (mut elements, held) = room(array, COPIED_BYTES)?;
                    elements.extend(array.values().map(|value| Self::Owned(value.into())));
                    Some(Self::Array(elements, held))
                }
                _ => None,
            },
            _ => None,
        };
        if let Some(opened) = opened {
            *self = opened;
        }
        Ok(self)
    }

    fn child(&mut self, step: &str) -> LangResult<Option<&mut Self>> {
        Ok(match self.open()? {
            Self::Document(fields, _) => {
                fields.iter_mut().find(|(name, _)| name == step).map(|(_, value)| value)
            }
            Self::Array(elements, _) => path::position(step).and_then(|at| elements.get_mut(at)),
            _ => None,
        })
    }

    fn create(&mut self, step: &str, growth: &mut Growth) -> LangResult<&mut Self> {
        if self.is_vacant() {
            *self = Self::Document(Vec::new(), None);
        }
        let kind = self.type_name();
        match self.open()? {
            Self::Document(fields, _) => {
                let at = fields.iter().position(|(name, _)| name == step);
                let at = at.unwrap_or_else(|| {
                    fields.push((step.to_owned().into(), Self::VACANT));
                    fields.len() - 1
                });
                if let Some((_, value)) = fields.get_mut(at) {
                    return Ok(value);
                }
            }
            Self::Array(elements, _) => {
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
            Self::Document(..) => Value::Document(Doc::empty()).type_name(),
            Self::Array(..) => Value::Array(Doc::empty()).type_name(),
        }
    }

    /// Approximate bytes as a field.
    fn size(&self) -> usize {
        ELEMENT_BYTES
            + match self {
                Self::Raw(value) => value.payload_bytes(),
                Self::Owned(owned) => owned.value().payload_bytes(),
                Self::Document(fields, _) => {
                    fields.iter().map(|(name, value)| name.len() + value.size()).sum()
                }
                Self::Array(elements, _) => elements.iter().map(Self::size).sum(),
            }
    }

    pub(crate) fn is_array(&self) -> bool {
        match self {
            Self::Raw(value) => value.as_array().is_some(),
            Self::Owned(owned) => owned.value().as_array().is_some(),
            Self::Document(..) => false,
            Self::Array(..) => true,
        }
    }

    /// Passes it to `read` as one value. Cost: a copy, if it was decoded.
    pub(crate) fn with<R>(&self, read: impl FnOnce(Value<'_>) -> R) -> R {
        match self {
            Self::Raw(value) => read(*value),
            Self::Owned(owned) => read(owned.value()),
            Self::Document(..) | Self::Array(..) => read(self.to_owned().value()),
        }
    }

    pub(crate) fn to_owned(&self) -> Owned {
        match self {
            Self::Raw(value) => (*value).into(),
            Self::Owned(owned) => owned.clone(),
            Self::Document(fields, _) => {
                let mut writer = Writer::new();
                fields.iter().for_each(|(name, value)| value.write(name, &mut writer));
                writer.into_owned()
            }
            Self::Array(elements, _) => {
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
            Self::Document(fields, _) => {
                writer.open_document(name);
                fields.iter().for_each(|(name, value)| value.write(name, writer));
                writer.close();
            }
            Self::Array(elements, _) => {
                writer.open_array(name);
                elements.iter().for_each(|value| value.write("", writer));
                writer.close();
            }
        }
    }
}
