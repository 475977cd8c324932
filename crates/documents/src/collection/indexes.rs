//! Indexes: create, hide, alter, drop, and build concurrently with writers.
//!
//! An index is built in batches. First it is declared; from then on every writer maintains it. Then existing
//! documents get their entries; each batch commits only if no concurrent write changed its documents.
//! Finally the index is declared ready, and readers may use it. An interrupted build continues when the same
//! index is created again.

use core::time::Duration;
use std::sync::Arc;

use ropewalk_engine::{Durability, KeySpan};

use crate::catalog::definition::{Definition, INDEXES_MAX, Index, IndexDef, IndexParts, wildcard_root};
use crate::catalog::object_range;
use crate::error::{DocumentsError, Result};
use crate::index::entry::{entries, id_part};
use crate::lang::{Doc, DocBuf, Value, Writer};
use crate::model::Documents;
use crate::model::commit_section::Event;
use crate::model::handle::Collection;
use crate::transaction::source::Source;
use crate::transaction::tx::DocumentsTx;

/// Documents of one batch of a build.
const BATCH: usize = 512;
/// Bytes of documents of one batch, about.
const BATCH_BYTES: usize = 4 << 20;

impl DocumentsTx<'_> {
    /// Declares an index and, when `ready`, fills it in the same transaction. Returns it, and whether it is
    /// new.
    pub(crate) fn declare_index(
        &mut self,
        collection: &Collection,
        def: &IndexDef,
        ready: bool,
    ) -> Result<(Arc<Index>, bool)> {
        def.check(collection.name())?;
        let definition = match self.definition_of(collection)? {
            Some(definition) => definition,
            None => self.create_now(collection)?,
        };
        let name = def.name.clone().unwrap_or_else(|| def.default_name());
        if let Some(there) = same_index(&definition, &name, def)? {
            return Ok((there, false));
        }
        def.check_partial(collection.name())?;
        Ok((self.put_index(&definition, name, def, ready)?, true))
    }

    /// Adds an index, whose definition has been checked, to a collection.
    pub(crate) fn put_index(
        &mut self,
        definition: &Definition,
        name: String,
        def: &IndexDef,
        ready: bool,
    ) -> Result<Arc<Index>> {
        if definition.indexes.len() + 1 >= INDEXES_MAX {
            let what = format!("it would have more than {INDEXES_MAX} indexes");
            return Err(DocumentsError::InvalidIndex { collection: definition.name.clone(), what });
        }
        let object = self.documents.model.new_number(&self.documents.engine)?;
        // A wildcard index has several entries for a document.
        let several = def.fields.iter().any(|field| wildcard_root(&field.path).is_some());
        let multikey = vec![several; def.fields.len()];
        let def = IndexDef { name: Some(name.clone()), ..def.clone() };
        let index = IndexParts { object, name, def, ready, multikey }.build()?;
        let mut changed = definition.edit()?;
        changed.indexes.push(index.clone());
        if ready {
            self.tell_index(&changed, "createIndexes", &index);
        }
        self.put_definition(changed, Event::Changed)?;
        Ok(index)
    }

    /// Creates an index within the transaction; false when the same index exists.
    /// [`Documents::create_index`] is better for collections with concurrent writers.
    ///
    /// # Errors
    /// An index with that name or those fields exists with other options; documents violate its uniqueness.
    pub fn create_index(&mut self, collection: &Collection, def: &IndexDef) -> Result<bool> {
        self.statement(|tx| {
            let (index, new) = tx.declare_index(collection, def, true)?;
            let mut next = Vec::new();
            while new && let Some(last) = tx.fill_batch(collection, &index.name, &next, BATCH)? {
                next = last;
            }
            Ok(new)
        })
    }

    /// Adds the entries of up to `limit` documents from key `next` on; returns the key to continue from.
    fn fill_batch(
        &mut self,
        collection: &Collection,
        name: &str,
        next: &[u8],
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        let mut definition = self.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
        self.guard_definition(&definition);
        let place = definition.indexes.iter().position(|index| index.name == name);
        let unknown =
            || DocumentsError::UnknownIndex { collection: definition.name.clone(), index: name.to_owned() };
        let place = place.ok_or_else(unknown)?;
        let (start, end) = object_range(definition.id);
        let start = if next.is_empty() { start.to_vec() } else { next.to_vec() };
        let (mut found, mut bytes) = (Vec::new(), 0);
        self.walk(KeySpan::forward(&start, Some(&end)), &mut |key, value| {
            bytes += value.len();
            found.push((key.to_vec(), value.to_vec()));
            found.len() < limit && bytes < BATCH_BYTES
        })?;
        let more = found.len() >= limit || bytes >= BATCH_BYTES;
        let documents = self.spaces().documents;
        for (key, value) in &found {
            let index = definition.indexes.get(place).cloned().expect("a new version has the same indexes");
            let doc = Doc::trusted(value);
            let of = entries(&definition, &index, doc, id_part(key))?;
            if of.multikey.iter().zip(&index.multikey).any(|(now, known)| *now && !known) {
                definition = self.mark_multikey(&definition, place, &of.multikey)?;
            }
            // A concurrent update of the document writes the entries of the new version; entries of this
            // version must not remain.
            self.kv.guard_key(documents, key);
            for entry in &of.entries {
                self.put_entry(&definition, &index, entry, Some(doc))?;
            }
        }
        Ok(found.pop().filter(|_| more).map(|(mut last, _)| {
            last.push(0);
            last
        }))
    }

    fn change_index(
        &mut self,
        collection: &Collection,
        name: &str,
        change: impl FnOnce(&mut IndexParts),
    ) -> Result<()> {
        let definition = self.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
        let there = definition.index_named(name)?;
        let index = there.with(change)?;
        let mut changed = definition.edit()?;
        match index.ready && !there.ready {
            true => self.tell_index(&changed, "createIndexes", &index),
            false => {
                self.tell(&changed, "modify", |out| out.put("index", Value::Document(told(&index).doc())))
            }
        }
        let slot = changed.indexes.iter_mut().find(|index| index.name == name);
        *slot.expect("the index was found by its name") = index;
        self.put_definition(changed, Event::Changed)?;
        Ok(())
    }

    /// Hides an index from the planner, or makes it visible again.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownIndex`].
    pub fn hide_index(&mut self, collection: &Collection, name: &str, hidden: bool) -> Result<()> {
        self.statement(|tx| tx.change_index(collection, name, |parts| parts.def.hidden = hidden))
    }

    /// Sets after how many seconds a TTL index expires documents.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownIndex`]; an index on several fields; an invalid number of seconds.
    pub fn expire_index_after(&mut self, collection: &Collection, name: &str, seconds: i64) -> Result<()> {
        self.statement(|tx| {
            let definition = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
            let index = definition.index_named(name)?;
            let def = IndexDef { expire_after_seconds: Some(seconds), ..index.def.clone() };
            def.check(&definition.name)?;
            tx.change_index(collection, name, |parts| parts.def = def)
        })
    }

    /// Drops an index.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownIndex`]; the index on `_id` cannot be dropped.
    pub fn drop_index(&mut self, collection: &Collection, name: &str) -> Result<()> {
        self.statement(|tx| {
            if name == crate::catalog::definition::ID_INDEX {
                return Err(DocumentsError::InvalidOptions { what: "cannot drop the index on _id".into() });
            }
            let definition = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
            let index = definition.index_named(name)?;
            let mut changed = definition.edit()?;
            changed.indexes.retain(|index| index.name != name);
            tx.drop_object(index.object);
            if index.ready {
                tx.tell_index(&changed, "dropIndexes", index);
            }
            tx.put_definition(changed, Event::Changed)?;
            Ok(())
        })
    }

    fn tell_index(&mut self, definition: &Definition, operation: &str, index: &Index) {
        self.tell(definition, operation, |out| {
            out.open_array("indexes");
            out.put("", Value::Document(told(index).doc()));
            out.close();
        });
    }
}

/// An index in the format of change streams.
fn told(index: &Index) -> DocBuf {
    let mut out = Writer::new();
    out.put("v", Value::Int32(2));
    out.open_document("key");
    for field in &index.def.fields {
        out.put(&field.path, Value::Int32(if field.descending { -1 } else { 1 }));
    }
    out.close();
    out.put("name", Value::String(&index.name));
    out.finish()
}

/// The existing index that matches `def`, if any.
fn same_index(definition: &Definition, name: &str, def: &IndexDef) -> Result<Option<Arc<Index>>> {
    let bytes = |def: &IndexDef| def.partial.as_ref().map(|partial| partial.bytes().to_vec());
    let fields = |def: &IndexDef| {
        def.fields.iter().map(|field| (field.path.clone(), field.descending)).collect::<Vec<_>>()
    };
    let same = |there: &IndexDef| {
        (there.unique, there.sparse, there.expire_after_seconds)
            == (def.unique, def.sparse, def.expire_after_seconds)
            && bytes(there) == bytes(def)
            && there.collation == def.collation
    };
    for index in &definition.indexes {
        let (same_name, same_fields) = (index.name == name, fields(&index.def) == fields(def));
        if same_name && same_fields && same(&index.def) {
            return Ok(Some(index.clone()));
        }
        // The same fields may be indexed again under another filter or collation.
        let same_order = bytes(&index.def) == bytes(def) && index.def.collation == def.collation;
        if same_name || same_fields && same_order {
            let (collection, index) = (definition.name.clone(), index.name.clone());
            return Err(DocumentsError::IndexExists { collection, index, same_name });
        }
    }
    Ok(None)
}

impl Documents {
    /// Creates an index concurrently with readers and writers. Readers use it once it is complete. Called
    /// again with the same definition it continues an interrupted build. Returns false if the same index is
    /// already complete.
    ///
    /// # Errors
    /// An index with that name or those fields exists with other options. Documents violate its uniqueness:
    /// the index is dropped then.
    pub fn create_index(&self, collection: &Collection, def: &IndexDef) -> Result<bool> {
        let (index, new) = self
            .transact(Durability::Sync, |tx| tx.statement(|tx| tx.declare_index(collection, def, false)))?;
        if index.ready {
            return Ok(new);
        }
        self.complete(collection, &index.name)?;
        Ok(true)
    }

    /// Completes the builds that were interrupted, such as by the end of the node that led before; returns their number.
    ///
    /// # Errors
    /// As [`Documents::create_index`], of the first index that cannot be completed.
    pub fn resume_builds(&self) -> Result<usize> {
        let mut resumed = 0;
        for database in self.databases()? {
            for name in self.collections(&database)? {
                let collection = self.handle(&database, &name);
                let Some(definition) = collection.definition()? else { continue };
                for index in definition.indexes.iter().filter(|index| !index.ready) {
                    self.complete(&collection, &index.name)?;
                    resumed += 1;
                }
            }
        }
        Ok(resumed)
    }

    /// Fills a declared index and publishes it.
    fn complete(&self, collection: &Collection, index: &str) -> Result<()> {
        self.fill(collection, index).inspect_err(|_| {
            // A half-built index is useless; if the drop fails, too, the user can drop it.
            let _ = self.transact(Durability::Sync, |tx| tx.drop_index(collection, index));
        })
    }

    fn fill(&self, collection: &Collection, name: &str) -> Result<()> {
        let mut batch = BATCH;
        let mut next = Vec::new();
        loop {
            let filled = self.attempt(Durability::Buffered, |tx| {
                tx.statement(|tx| tx.fill_batch(collection, name, &next, batch))
            });
            match filled {
                Ok(Some(last)) => {
                    next = last;
                    batch = (batch * 2).min(BATCH);
                }
                Ok(None) => break,
                Err(DocumentsError::Conflict { seq, .. }) => {
                    batch = (batch / 2).max(1);
                    self.engine.wait_visible(seq, Duration::from_secs(1));
                }
                Err(error) => return Err(error),
            }
        }
        self.transact(Durability::Sync, |tx| {
            tx.statement(|tx| tx.change_index(collection, name, |parts| parts.ready = true))
        })
    }
}

/// Changes, each as a durable commit.
impl Collection {
    /// Creates an index concurrently with readers and writers; false when the same index exists.
    ///
    /// # Errors
    /// As [`Documents::create_index`].
    pub fn create_index(&self, def: &IndexDef) -> Result<bool> {
        self.documents().create_index(self, def)
    }

    /// Drops an index.
    ///
    /// # Errors
    /// As [`DocumentsTx::drop_index`].
    pub fn drop_index(&self, name: &str) -> Result<()> {
        self.documents().transact(Durability::Sync, |tx| tx.drop_index(self, name))
    }
}
