//! Writing one document: the common path of every insert, update and delete.
//!
//! ```text
//! document ─▶ limits, _id ─▶ validator, references, quota ─▶ index entries (old and new) ─▶ document ─▶ section
//! ```
//! Invariants
//! 1. A document, its entries in every index and its part of the section are in one commit.
//! 2. Rules hold under concurrency at every isolation: what was checked is guarded (a free `_id`, a free
//!    unique key, the definition, an existing parent, the children found for a deleted parent).
//! 3. A failed statement has no effect.
//! 3. A statement that fails leaves nothing.

use std::borrow::Cow;
use std::sync::Arc;

use crate::catalog::definition::{Definition, Index};
use crate::error::{DocumentsError, Result};
use crate::index::entry::{Entry, document_key, entries, id_of, id_part, same_document};
use crate::lang::display;
use crate::lang::{self, DOCUMENT_BYTES_MAX, Doc, DocBuf, Owned, Value, Writer};
use crate::model::commit_section::{Event, What};
use crate::model::difference::difference;
use crate::model::handle::Collection;
use crate::rules::Access;
use crate::transaction::source::Source;
use crate::transaction::tx::DocumentsTx;

/// The error for a duplicate `_id`.
pub(crate) fn duplicate_id(definition: &Definition, id: Value<'_>) -> DocumentsError {
    let mut pattern = Writer::new();
    pattern.put("_id", Value::Int32(1));
    let mut key = Writer::new();
    key.put("_id", id);
    let key = key.finish();
    DocumentsError::Duplicate {
        collection: definition.name.clone(),
        index: crate::catalog::definition::ID_INDEX.to_owned(),
        pattern: Box::new(pattern.finish()),
        shown: display::document(key.doc()),
        key: Box::new(key),
    }
}

fn duplicate(definition: &Definition, index: &Index, doc: Doc<'_>) -> DocumentsError {
    let mut key = Writer::new();
    for field in index.fields() {
        key.put(&field.path, lang::path::get(doc, &field.path).unwrap_or(Value::Null));
    }
    let key = key.finish();
    DocumentsError::Duplicate {
        collection: definition.name.clone(),
        index: index.name.clone(),
        pattern: Box::new(index.pattern()),
        shown: display::document(key.doc()),
        key: Box::new(key),
    }
}

impl DocumentsTx<'_> {
    /// The collection's definition for a write; creates the collection if needed.
    pub(crate) fn definition_to_write(&mut self, collection: &Collection) -> Result<Arc<Definition>> {
        match self.definition_of(collection)? {
            Some(definition) => {
                self.guard_definition(&definition);
                Ok(definition)
            }
            None => self.create_now(collection),
        }
    }

    /// The bytes to store for a document from a client: checked, with an `_id`, which is moved to the front.
    pub(crate) fn prepared<'d>(&self, doc: Doc<'d>) -> Result<Cow<'d, [u8]>> {
        let prepared = lang::prepare_insert(doc, self.now_ms(), || {
            Owned::from(Value::ObjectId(self.documents.new_id()))
        })?;
        too_large(prepared.len())?;
        Ok(prepared)
    }

    /// Inserts a prepared document.
    pub(crate) fn insert_prepared(&mut self, definition: &mut Arc<Definition>, stored: &[u8]) -> Result<()> {
        let doc = Doc::trusted(stored);
        let id = id_of(doc);
        let key = document_key(definition.id, id)?;
        let documents = self.spaces().documents;
        // Checked first: a caller who may not create the document must not learn whether it exists.
        self.check_access(definition, Access::Create, None, Some(doc))?;
        if self.kv.peek(documents, &key)?.is_some() {
            self.kv.note_read(documents, &key);
            return Err(self.told(definition, duplicate_id(definition, id)));
        }
        self.check_rules(definition, None, doc)?;
        self.write_entries(definition, &key, None, Some(doc))?;
        self.guard(documents, &key);
        self.put(documents, &key, stored)?;
        self.did(definition, What::Insert { key: id_part(&key), bytes: stored.len() as u64 });
        self.joined(definition, &key, stored.len())?;
        self.check_quota(definition)
    }

    /// Replaces `old` by `new`, which has the same `_id`.
    pub(crate) fn replace_stored(
        &mut self,
        definition: &mut Arc<Definition>,
        key: &[u8],
        old: &[u8],
        new: &DocBuf,
        is_update: bool,
    ) -> Result<()> {
        too_large(new.bytes().len())?;
        let (before, after) = (Doc::trusted(old), new.doc());
        if document_key(definition.id, id_of(after))? != key {
            return Err(DocumentsError::ImmutableId);
        }
        self.check_rules(definition, Some(before), after)?;
        self.write_entries(definition, key, Some(before), Some(after))?;
        let documents = self.spaces().documents;
        self.guard(documents, key);
        self.put(documents, key, new.bytes())?;
        let (old_bytes, new_bytes) = (old.len() as u64, new.bytes().len() as u64);
        let id = id_part(key);
        if is_update {
            let difference = difference(before, after);
            let difference = difference.bytes();
            self.did(definition, What::Update { key: id, old: old_bytes, new: new_bytes, difference });
        } else {
            self.did(definition, What::Replace { key: id, old: old_bytes, new: new_bytes });
        }
        self.resized(definition, old.len(), new.bytes().len())?;
        self.check_quota(definition)
    }

    /// Deletes the document under `key` and handles references to it as declared.
    pub(crate) fn delete_stored(
        &mut self,
        definition: &mut Arc<Definition>,
        key: &[u8],
        old: &[u8],
    ) -> Result<()> {
        let doc = Doc::trusted(old);
        self.write_entries(definition, key, Some(doc), None)?;
        let documents = self.spaces().documents;
        self.guard(documents, key);
        self.remove(documents, key)?;
        self.left(definition, key, old.len())?;
        let mut id = Writer::new();
        id.put("_id", id_of(doc));
        let id = id.finish();
        self.did(definition, What::Delete { key: id_part(key), old: old.len() as u64, id: id.bytes() });
        if !definition.referenced_by.is_empty() {
            self.parent_deleted(definition, id_of(doc))?;
        }
        Ok(())
    }

    fn check_rules(
        &mut self,
        definition: &Arc<Definition>,
        old: Option<Doc<'_>>,
        new: Doc<'_>,
    ) -> Result<()> {
        if let Some(validator) = &definition.validator
            && !self.state.unvalidated
            && !validator.matches(new)?
        {
            let excused = definition.options.moderate
                && match old {
                    Some(old) => !validator.matches(old)?,
                    None => false,
                };
            if !excused {
                let rule = definition.options.validator.as_ref().map(|rule| display::document(rule.doc()));
                return Err(DocumentsError::Validation {
                    collection: definition.name.clone(),
                    what: lang::error::text(format_args!("it does not match {}", rule.unwrap_or_default())),
                });
            }
        }
        if !definition.options.references.is_empty() {
            self.check_parents(definition, old, new)?;
        }
        Ok(())
    }

    fn check_quota(&self, definition: &Definition) -> Result<()> {
        let Some(max) = definition.quota else { return Ok(()) };
        if self.state.grown <= 0 {
            return Ok(());
        }
        let held = self.documents.database_bytes(&definition.database)?;
        let bytes = held + self.state.grown as u64;
        if bytes > max {
            return Err(DocumentsError::Quota { database: definition.database.clone(), bytes, max });
        }
        Ok(())
    }

    /// A duplicate error that the caller may see: without values if the collection has rules.
    fn told(&self, definition: &Definition, error: DocumentsError) -> DocumentsError {
        let bound = self.state.caller.is_some() && definition.rules.is_some();
        if bound { error.without_values() } else { error }
    }

    /// Updates the indexes from the old document to the new one: only entries that differ are written.
    fn write_entries(
        &mut self,
        definition: &mut Arc<Definition>,
        key: &[u8],
        old: Option<Doc<'_>>,
        new: Option<Doc<'_>>,
    ) -> Result<()> {
        for place in 0..definition.indexes.len() {
            let index = definition.indexes.get(place).cloned().expect("a new version has the same indexes");
            let of = |doc: Option<Doc<'_>>| match doc {
                Some(doc) => entries(definition, &index, doc, id_part(key)),
                None => Ok(crate::index::entry::Entries::default()),
            };
            let (before, after) = (of(old)?, of(new)?);
            debug_assert!(
                after.multikey.is_empty() || after.multikey.len() == index.multikey.len(),
                "every field of an index is known to go through arrays, or not to"
            );
            let newly = |known: &[bool]| after.multikey.iter().zip(known).any(|(now, known)| *now && !known);
            if newly(&index.multikey) {
                *definition = self.mark_multikey(definition, place, &after.multikey)?;
            }
            self.swap_entries(definition, &index, &before.entries, &after.entries, new)?;
        }
        Ok(())
    }

    fn swap_entries(
        &mut self,
        definition: &Definition,
        index: &Index,
        old: &[Entry],
        new: &[Entry],
        doc: Option<Doc<'_>>,
    ) -> Result<()> {
        debug_assert!(
            old.is_sorted_by(|a, b| a < b) && new.is_sorted_by(|a, b| a < b),
            "entries are sorted, for the searches"
        );
        let documents = self.spaces().documents;
        for entry in old.iter().filter(|entry| new.binary_search(entry).is_err()) {
            self.guard(documents, &entry.key);
            self.remove(documents, &entry.key)?;
        }
        for entry in new.iter().filter(|entry| old.binary_search(entry).is_err()) {
            self.put_entry(definition, index, entry, doc)?;
        }
        Ok(())
    }

    pub(crate) fn put_entry(
        &mut self,
        definition: &Definition,
        index: &Index,
        entry: &Entry,
        doc: Option<Doc<'_>>,
    ) -> Result<()> {
        let documents = self.spaces().documents;
        let other = |there: Vec<u8>| !same_document(index, &entry.key, &there, &entry.value);
        if index.def.unique && self.kv.peek(documents, &entry.key)?.is_some_and(other) {
            self.kv.note_read(documents, &entry.key);
            return Err(self.told(definition, duplicate(definition, index, doc.unwrap_or(Doc::empty()))));
        }
        self.guard(documents, &entry.key);
        self.put(documents, &entry.key, &entry.value)?;
        Ok(())
    }

    /// Records in the definition that documents have arrays on the paths of an index. Happens once for each
    /// path.
    pub(crate) fn mark_multikey(
        &mut self,
        definition: &Definition,
        place: usize,
        found: &[bool],
    ) -> Result<Arc<Definition>> {
        let mut changed = definition.edit()?;
        let index = changed.indexes.get_mut(place).expect("a copy has the same indexes");
        *index = index.with(|parts| {
            parts.multikey.iter_mut().zip(found).for_each(|(known, now)| *known |= *now);
        })?;
        self.put_definition(changed, Event::Changed)
    }
}

fn too_large(bytes: usize) -> Result<()> {
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(DocumentsError::TooLarge { what: "document", bytes, max: DOCUMENT_BYTES_MAX });
    }
    Ok(())
}
