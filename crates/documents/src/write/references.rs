//! References between collections: a field that holds the `_id` of a document elsewhere.
//!
//! A child is written only while its parents exist: they are read, and guarded until commit. Deleting a parent
//! is rejected, deletes its children, or clears their references, as declared; its commit fails if another
//! transaction has written to the children since they were read. So each side detects the other, whichever
//! commits first.

use std::sync::Arc;

use ropewalk_base::keys::prefix_end;

use crate::catalog::definition::{Definition, OnDelete, Reference};
use crate::catalog::object_range;
use crate::error::{DocumentsError, Result};
use crate::index::entry::{document_key, id_of};
use crate::lang::display;
use crate::lang::{self, Doc, DocBuf, Filter, Options, Owned, Update, UpdateContext, Value, Writer};
use crate::query::read::{Find, Rows};
use crate::transaction::source::Source;
use crate::transaction::tx::DocumentsTx;

/// Most documents that one statement may change through references.
const CASCADE_MAX: usize = 1_000_000;

fn referred<'d>(doc: Doc<'d>, reference: &Reference) -> Result<Vec<Value<'d>>> {
    // A path that ends in an array yields the array and its elements; only the elements are references.
    let (mut all, _held) = lang::path::values_at(doc, &reference.field)?;
    all.retain(|value| !value.is_nullish() && !matches!(value, Value::Array(_)));
    Ok(all)
}

impl DocumentsTx<'_> {
    /// Checks that every document that `new` refers to exists.
    pub(crate) fn check_parents(
        &mut self,
        definition: &Arc<Definition>,
        old: Option<Doc<'_>>,
        new: Doc<'_>,
    ) -> Result<()> {
        for reference in &definition.options.references {
            let before: Vec<Vec<u8>> = match old {
                Some(old) => referred(old, reference)?.into_iter().map(encoded).collect(),
                None => Vec::new(),
            };
            for value in referred(new, reference)? {
                if before.contains(&encoded(value)) {
                    continue;
                }
                let parent = self.documents.handle(&definition.database, &reference.collection);
                let parent =
                    self.definition_of(&parent)?.ok_or_else(|| missing(definition, reference, value))?;
                self.guard_definition(&parent);
                let key = document_key(parent.id, value)?;
                let documents = self.spaces().documents;
                if self.kv.peek(documents, &key)?.is_none() {
                    self.kv.note_read(documents, &key);
                    return Err(missing(definition, reference, value));
                }
                self.kv.guard_exists(documents, &key);
            }
        }
        Ok(())
    }

    /// Handles the documents that referred to the deleted `id`.
    pub(crate) fn parent_deleted(&mut self, parent: &Arc<Definition>, id: Value<'_>) -> Result<()> {
        let mut gone = vec![(parent.clone(), Owned::from(id))];
        let mut touched = 0;
        while let Some((parent, id)) = gone.pop() {
            for child in parent.referenced_by.iter().copied().collect::<Vec<_>>() {
                let mut child = self.definition_by_id(child)?;
                self.guard_definition(&child);
                let references = child.options.references.clone();
                for reference in references.iter().filter(|reference| reference.collection == parent.name) {
                    let children = self.children(&child, reference, id.value())?;
                    touched += children.len();
                    if touched > CASCADE_MAX {
                        let what = format!("more than {CASCADE_MAX} documents would also change");
                        return Err(refused(&child, reference, what));
                    }
                    for (key, stored) in children {
                        match reference.on_delete {
                            OnDelete::Restrict => {
                                let what = format!(
                                    "document {} still refers to {}",
                                    display::value(id_of(Doc::trusted(&stored))),
                                    display::value(id.value())
                                );
                                return Err(refused(&child, reference, what));
                            }
                            OnDelete::SetNull => {
                                let changed =
                                    cleared(Doc::trusted(&stored), reference, id.value(), self.now_ms())?;
                                if let Some(changed) = changed {
                                    self.replace_stored(&mut child, &key, &stored, &changed, true)?;
                                }
                            }
                            OnDelete::Cascade => {
                                if self.kv.peek(self.spaces().documents, &key)?.is_some() {
                                    self.delete_without_references(&mut child, &key, &stored)?;
                                    if !child.referenced_by.is_empty() {
                                        let id = Owned::from(id_of(Doc::trusted(&stored)));
                                        gone.push((child.clone(), id));
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes without handling references to it: the caller does that, without recursion.
    fn delete_without_references(
        &mut self,
        definition: &mut Arc<Definition>,
        key: &[u8],
        stored: &[u8],
    ) -> Result<()> {
        let mut alone = definition.edit()?;
        alone.referenced_by.clear();
        self.delete_stored(&mut Arc::new(alone), key, stored)
    }

    /// The documents that refer to `id`, and a guard against new ones.
    fn children(
        &mut self,
        child: &Arc<Definition>,
        reference: &Reference,
        id: Value<'_>,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut filter = Writer::new();
        filter.open_document(&reference.field);
        filter.put("$eq", id);
        filter.close();
        let filter = Filter::parse(filter.finish().doc(), &Options::default())?;
        let handle = self.documents.handle(&child.database, &child.name);
        let mut rows = Rows::new(self, &handle, Find::matching(filter))?;
        let mut children = Vec::new();
        while let Some(found) = rows.next(self)? {
            children.push(found);
        }
        let index = child.indexes.iter().find(|index| {
            index.ready
                && index.partial.is_none()
                && index.fields().first().is_some_and(|field| field.path == reference.field)
        });
        let documents = self.spaces().documents;
        match index.zip(index.and_then(|index| index.fields().first())) {
            Some((index, field)) => {
                let mut start = index.object.to_be_bytes().to_vec();
                lang::key::encode(id, field.descending, &mut start);
                let end = prefix_end(&start);
                self.kv.guard_range(documents, &start, end.as_deref());
            }
            None => {
                let (start, end) = object_range(child.id);
                self.kv.guard_range(documents, &start, Some(&end));
            }
        }
        Ok(children)
    }
}

fn encoded(value: Value<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    lang::key::encode(value, false, &mut key);
    key
}

/// The document without its reference to `id`: the field becomes null, an element of a list is removed.
fn cleared(doc: Doc<'_>, reference: &Reference, id: Value<'_>, now_ms: i64) -> Result<Option<DocBuf>> {
    let mut update = Writer::new();
    if matches!(lang::path::get(doc, &reference.field), Some(Value::Array(_))) {
        update.open_document("$pullAll");
        update.open_array(&reference.field);
        update.put("0", id);
        update.close();
    } else {
        update.open_document("$set");
        update.put(&reference.field, Value::Null);
    }
    update.close();
    let update = update.finish();
    let update = Update::parse(Value::Document(update.doc()), None, &Options::default())?;
    let context = UpdateContext { position: None, now_ms, inserting: false };
    Ok(match update.apply(doc, &context)? {
        lang::Applied::Changed(changed) => Some(changed),
        lang::Applied::Unchanged => None,
    })
}

fn refused(child: &Definition, reference: &Reference, what: String) -> DocumentsError {
    DocumentsError::Reference { collection: child.name.clone(), field: reference.field.clone(), what }
}

fn missing(child: &Definition, reference: &Reference, id: Value<'_>) -> DocumentsError {
    refused(child, reference, format!("{} has no document {}", reference.collection, display::value(id)))
}
