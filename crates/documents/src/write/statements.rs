//! The statements that write: insert, update, replace, find and modify, delete, bulk.

use std::sync::Arc;

use ropewalk_engine::{EngineError, TRANSACTION_BYTES_MAX};

use crate::catalog::definition::Definition;
use crate::error::{DocumentsError, Result};
use crate::index::entry::id_of;
use crate::lang::{self, Doc, DocBuf, Filter, Owned, Projection, Sort, Update, UpdateContext, Value};
use crate::model::handle::Collection;
use crate::query::plan::Hint;
use crate::query::read::{Find, Rows};
use crate::rules::Access;
use crate::transaction::source::Source;
use crate::transaction::tx::DocumentsTx;

/// Result of an insert of several documents.
#[derive(Debug, Default)]
pub struct InsertedMany {
    /// Position in the list and `_id` of each document inserted.
    pub inserted: Vec<(usize, Owned)>,
    /// Position in the list and reason of each rejected document; one at most when ordered.
    pub errors: Vec<(usize, DocumentsError)>,
}

/// Result of an update.
#[derive(Debug, Clone, Default)]
pub struct Updated {
    /// Documents that matched.
    pub matched: u64,
    /// Documents that actually changed.
    pub modified: u64,
    /// The `_id` of the document inserted by an upsert that matched none.
    pub upserted: Option<Owned>,
}

/// An update of one or of all documents that match.
#[derive(Clone)]
pub struct UpdateSpec {
    /// Selects the documents.
    pub filter: Arc<Filter>,
    /// Operators, a replacement, or a pipeline.
    pub update: Arc<Update>,
    /// Insert a document when none matches.
    pub upsert: bool,
    /// The index to use.
    pub hint: Option<Hint>,
    /// The order that decides which document is changed, when several match and only one is to be changed.
    pub sort: Option<Arc<Sort>>,
}

impl UpdateSpec {
    /// An update of the matching documents.
    pub fn new(filter: Filter, update: Update) -> Self {
        Self { filter: Arc::new(filter), update: Arc::new(update), upsert: false, hint: None, sort: None }
    }

    /// Inserts a document when none matches.
    #[must_use]
    pub fn upsert(mut self) -> Self {
        self.upsert = true;
        self
    }

    fn find(&self) -> Find {
        let mut find = Find::shared(self.filter.clone());
        find.hint = self.hint.clone();
        find.sort = self.sort.clone();
        find
    }
}

/// A document found and changed atomically.
#[derive(Clone)]
pub struct FindAndModify {
    /// Selects the document.
    pub filter: Arc<Filter>,
    /// The order that decides which document is changed, when several match.
    pub sort: Option<Arc<Sort>>,
    /// The fields to return.
    pub projection: Option<Arc<Projection>>,
    /// `None`: the document is deleted.
    pub update: Option<Arc<Update>>,
    /// Insert a document when none matches.
    pub upsert: bool,
    /// Returns the document after the change.
    pub return_new: bool,
    /// The index to use.
    pub hint: Option<Hint>,
}

impl FindAndModify {
    /// Changes the document that matches.
    pub fn update(filter: Filter, update: Update) -> Self {
        Self { update: Some(Arc::new(update)), ..Self::delete(filter) }
    }

    /// Deletes the document that matches.
    pub fn delete(filter: Filter) -> Self {
        Self {
            filter: Arc::new(filter),
            sort: None,
            projection: None,
            update: None,
            upsert: false,
            return_new: false,
            hint: None,
        }
    }

    /// Applies the projection to a document.
    pub(crate) fn project(&self, document: DocBuf) -> Result<DocBuf> {
        match &self.projection {
            Some(projection) => Ok(projection.apply(document.doc(), Some(&self.filter))?),
            None => Ok(document),
        }
    }
}

/// One write of a bulk.
#[derive(Clone)]
pub enum BulkWrite {
    /// Inserts a document.
    Insert(DocBuf),
    /// Changes the first document that matches.
    UpdateOne(UpdateSpec),
    /// Changes all documents that match.
    UpdateMany(UpdateSpec),
    /// Deletes the first document that matches.
    DeleteOne(Arc<Filter>),
    /// Deletes all documents that match.
    DeleteMany(Arc<Filter>),
}

/// Result of a bulk.
#[derive(Debug, Default)]
pub struct BulkResult {
    /// Documents inserted, without upserts.
    pub inserted: u64,
    /// Documents that matched.
    pub matched: u64,
    /// Documents that actually changed.
    pub modified: u64,
    /// Documents deleted.
    pub deleted: u64,
    /// Position in the list and `_id` of each document that an upsert inserted.
    pub upserted: Vec<(usize, Owned)>,
    /// Position in the list and reason of each rejected write; one at most when ordered.
    pub errors: Vec<(usize, DocumentsError)>,
}

impl DocumentsTx<'_> {
    /// Inserts a document; returns its `_id`, which is generated if it has none.
    ///
    /// # Errors
    /// [`DocumentsError::Duplicate`]; bytes that are not a valid document; a rule that it violates.
    pub fn insert_one(&mut self, collection: &Collection, document: &[u8]) -> Result<Owned> {
        self.statement_on(collection, |tx| {
            let mut definition = tx.definition_to_write(collection)?;
            let prepared = tx.prepared(Doc::check(document)?)?;
            tx.insert_prepared(&mut definition, &prepared)?;
            Ok(Owned::from(id_of(Doc::trusted(&prepared))))
        })
    }

    /// Inserts documents. Ordered: stops at the first that is rejected; otherwise inserts all that can be
    /// inserted.
    ///
    /// # Errors
    /// Errors that concern all documents. An error of one document is part of the result.
    pub fn insert_many<D: AsRef<[u8]>>(
        &mut self,
        collection: &Collection,
        documents: &[D],
        ordered: bool,
    ) -> Result<InsertedMany> {
        self.statement_on(collection, |tx| {
            let mut definition = tx.definition_to_write(collection)?;
            let mut done = InsertedMany::default();
            for (place, document) in documents.iter().enumerate() {
                let inserted = tx.within(|tx| {
                    let prepared = tx.prepared(Doc::check(document.as_ref())?)?;
                    tx.insert_prepared(&mut definition, &prepared)?;
                    Ok(Owned::from(id_of(Doc::trusted(&prepared))))
                });
                match inserted {
                    Ok(id) => done.inserted.push((place, id)),
                    Err(error) if concerns_one(&error) => {
                        done.errors.push((place, collection.named(error)));
                        if ordered {
                            break;
                        }
                        // The rollback may have undone the definition's newest change.
                        definition = tx.definition_to_write(collection)?;
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(done)
        })
    }

    /// Changes the first document that matches, or inserts one if the update says so.
    ///
    /// # Errors
    /// An update that does not fit the document; a rule that the changed document violates.
    pub fn update_one(&mut self, collection: &Collection, spec: &UpdateSpec) -> Result<Updated> {
        self.statement_on(collection, |tx| Ok(tx.update_first(collection, spec)?.0))
    }

    /// Changes all documents that match.
    ///
    /// # Errors
    /// As [`DocumentsTx::update_one`]; a replacement, which cannot apply to several documents.
    pub fn update_many(&mut self, collection: &Collection, spec: &UpdateSpec) -> Result<Updated> {
        if spec.update.is_replacement() {
            let what = "a replacement cannot apply to several documents";
            return Err(collection.named(lang::LangError::new(lang::Code::FailedToParse, what).into()));
        }
        self.statement_on(collection, |tx| {
            let now_ms = tx.now_ms();
            // All matches are collected before the first is changed: a change must not make a document match
            // again.
            let keys = tx.keys_of(collection, spec.find())?;
            if keys.is_empty() {
                return Ok(tx.upsert(collection, spec, now_ms)?.0);
            }
            let mut definition = tx.definition_to_write(collection)?;
            let mut updated = Updated { matched: keys.len() as u64, ..Updated::default() };
            let mut bytes = 0;
            for key in keys {
                tx.look()?;
                // Changes delete no documents: one that is missing has nothing to change.
                let Some(stored) = tx.fetch(&key)? else { continue };
                let changed = tx.changed(&spec.filter, &spec.update, &stored, now_ms)?;
                if let Some(new) = changed {
                    // Do not buffer more than a commit can hold.
                    bytes += new.bytes().len() as u64;
                    if bytes > TRANSACTION_BYTES_MAX {
                        return Err(EngineError::TooLarge { bytes, max: TRANSACTION_BYTES_MAX }.into());
                    }
                    let (before, after) = (Some(Doc::trusted(&stored)), Some(new.doc()));
                    tx.check_access(&definition, Access::Update, before, after)?;
                    tx.replace_stored(&mut definition, &key, &stored, &new, true)?;
                    updated.modified += 1;
                }
            }
            Ok(updated)
        })
    }

    /// Finds a document, changes or deletes it, and returns it as it was before or after.
    ///
    /// # Errors
    /// As [`DocumentsTx::update_one`].
    pub fn find_and_modify(
        &mut self,
        collection: &Collection,
        spec: &FindAndModify,
    ) -> Result<(Option<DocBuf>, Updated)> {
        self.statement_on(collection, |tx| {
            let definition = tx.definition_of(collection)?;
            let project = |tx: &Self, stored: Vec<u8>| {
                // The document is returned, so the caller must be allowed to read it.
                if let Some(definition) = &definition {
                    tx.check_access(definition, Access::Read, Some(Doc::trusted(&stored)), None)?;
                }
                spec.project(DocBuf::trusted(stored))
            };
            let Some(update) = &spec.update else {
                let mut find = Find::shared(spec.filter.clone()).limit(1);
                (find.sort, find.hint) = (spec.sort.clone(), spec.hint.clone());
                let deleted = tx.delete_found(collection, find)?;
                let updated = Updated { matched: deleted.len() as u64, ..Updated::default() };
                let document = deleted.into_iter().next().map(|stored| project(tx, stored)).transpose()?;
                return Ok((document, updated));
            };
            let update = UpdateSpec {
                filter: spec.filter.clone(),
                update: update.clone(),
                upsert: spec.upsert,
                hint: spec.hint.clone(),
                sort: spec.sort.clone(),
            };
            let (updated, old, new) = tx.update_first(collection, &update)?;
            let document = if spec.return_new { new.or(old) } else { old };
            Ok((document.map(|stored| project(tx, stored)).transpose()?, updated))
        })
    }

    /// Deletes the first document that matches; returns whether there was one.
    ///
    /// # Errors
    /// A reference that forbids it.
    pub fn delete_one(&mut self, collection: &Collection, filter: &Filter) -> Result<bool> {
        let find = Find::shared(Arc::new(filter.clone())).limit(1);
        self.statement_on(collection, |tx| Ok(!tx.delete_found(collection, find)?.is_empty()))
    }

    /// Deletes the documents that `find` selects; returns their number.
    ///
    /// # Errors
    /// A reference that forbids it.
    pub fn delete(&mut self, collection: &Collection, find: &Find) -> Result<u64> {
        self.statement_on(collection, |tx| {
            let keys = tx.keys_of(collection, find.clone())?;
            tx.delete_keys(collection, keys)
        })
    }

    /// Deletes all documents that match; returns their number.
    ///
    /// # Errors
    /// A reference that forbids it.
    pub fn delete_many(&mut self, collection: &Collection, filter: &Filter) -> Result<u64> {
        self.delete(collection, &Find::shared(Arc::new(filter.clone())))
    }

    /// Executes writes of several kinds, in order. Ordered: stops at the first that is rejected.
    ///
    /// # Errors
    /// Errors that concern all writes. An error of one write is part of the result.
    pub fn bulk_write(
        &mut self,
        collection: &Collection,
        writes: &[BulkWrite],
        ordered: bool,
    ) -> Result<BulkResult> {
        let mut done = BulkResult::default();
        for (place, write) in writes.iter().enumerate() {
            let count = |done: &mut BulkResult, updated: Updated| {
                done.matched += updated.matched;
                done.modified += updated.modified;
                done.upserted.extend(updated.upserted.map(|id| (place, id)));
            };
            let result = match write {
                BulkWrite::Insert(document) => {
                    self.insert_one(collection, document.bytes()).map(|_| done.inserted += 1)
                }
                BulkWrite::UpdateOne(spec) => {
                    self.update_one(collection, spec).map(|updated| count(&mut done, updated))
                }
                BulkWrite::UpdateMany(spec) => {
                    self.update_many(collection, spec).map(|updated| count(&mut done, updated))
                }
                BulkWrite::DeleteOne(filter) => {
                    self.delete_one(collection, filter).map(|deleted| done.deleted += u64::from(deleted))
                }
                BulkWrite::DeleteMany(filter) => {
                    self.delete_many(collection, filter).map(|deleted| done.deleted += deleted)
                }
            };
            match result {
                Ok(()) => {}
                Err(error) if concerns_one(&error) => {
                    done.errors.push((place, error));
                    if ordered {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Keys of the documents that `find` selects.
    fn keys_of(&mut self, collection: &Collection, find: Find) -> Result<Vec<Vec<u8>>> {
        let mut rows = Rows::to_write(self, collection, find)?;
        let mut keys = Vec::new();
        while let Some((key, _)) = rows.next(self)? {
            keys.push(key);
        }
        Ok(keys)
    }

    /// Deletes the documents that `find` selects; returns them.
    fn delete_found(&mut self, collection: &Collection, find: Find) -> Result<Vec<Vec<u8>>> {
        let mut rows = Rows::to_write(self, collection, find)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next(self)? {
            found.push(row);
        }
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut definition = self.definition_to_write(collection)?;
        let mut deleted = Vec::with_capacity(found.len());
        for (key, stored) in found {
            self.check_access(&definition, Access::Delete, Some(Doc::trusted(&stored)), None)?;
            self.delete_stored(&mut definition, &key, &stored)?;
            deleted.push(stored);
        }
        Ok(deleted)
    }

    fn delete_keys(&mut self, collection: &Collection, keys: Vec<Vec<u8>>) -> Result<u64> {
        if keys.is_empty() {
            return Ok(0);
        }
        let mut definition = self.definition_to_write(collection)?;
        let mut deleted = 0;
        for key in keys {
            self.look()?;
            // A cascade may have deleted it already.
            let Some(stored) = self.fetch(&key)? else { continue };
            self.check_access(&definition, Access::Delete, Some(Doc::trusted(&stored)), None)?;
            self.delete_stored(&mut definition, &key, &stored)?;
            deleted += 1;
        }
        Ok(deleted)
    }

    /// Changes the first document that matches; also returns it as it was before and after.
    #[allow(clippy::type_complexity)] // also returns two documents; used in one place
    fn update_first(
        &mut self,
        collection: &Collection,
        spec: &UpdateSpec,
    ) -> Result<(Updated, Option<Vec<u8>>, Option<Vec<u8>>)> {
        let now_ms = self.now_ms();
        let mut rows = Rows::to_write(self, collection, spec.find().limit(1))?;
        let Some((key, stored)) = rows.next(self)? else {
            let (updated, new) = self.upsert(collection, spec, now_ms)?;
            return Ok((updated, None, new));
        };
        let mut updated = Updated { matched: 1, ..Updated::default() };
        let new = self.changed(&spec.filter, &spec.update, &stored, now_ms)?;
        let Some(new) = new else { return Ok((updated, Some(stored), None)) };
        let mut definition = self.definition_to_write(collection)?;
        let is_update = !spec.update.is_replacement();
        self.check_access(&definition, Access::Update, Some(Doc::trusted(&stored)), Some(new.doc()))?;
        self.replace_stored(&mut definition, &key, &stored, &new, is_update)?;
        updated.modified = 1;
        Ok((updated, Some(stored), Some(new.into_bytes())))
    }

    /// The document after the update; `None` when it does not change.
    fn changed(
        &self,
        filter: &Filter,
        update: &Update,
        stored: &[u8],
        now_ms: i64,
    ) -> Result<Option<DocBuf>> {
        let doc = Doc::trusted(stored);
        let position = filter.matches_at(doc)?.and_then(|found| found.position);
        let context = UpdateContext { position, now_ms, inserting: false };
        Ok(match update.apply(doc, &context)? {
            lang::Applied::Changed(new) => Some(new),
            lang::Applied::Unchanged => None,
        })
    }

    fn upsert(
        &mut self,
        collection: &Collection,
        spec: &UpdateSpec,
        now_ms: i64,
    ) -> Result<(Updated, Option<Vec<u8>>)> {
        if !spec.upsert {
            return Ok((Updated::default(), None));
        }
        let context = UpdateContext { position: None, now_ms, inserting: true };
        let document = spec.update.upsert(&spec.filter, &context)?;
        let mut definition: Arc<Definition> = self.definition_to_write(collection)?;
        let prepared = self.prepared(document.doc())?.into_owned();
        self.insert_prepared(&mut definition, &prepared)?;
        let id = Owned::from(id_of(Doc::trusted(&prepared)));
        Ok((Updated { upserted: Some(id), ..Updated::default() }, Some(prepared)))
    }
}

/// True for an error of one document among many; false for an error that the others would meet, too.
pub(crate) fn concerns_one(error: &DocumentsError) -> bool {
    !matches!(
        error,
        DocumentsError::Engine(_)
            | DocumentsError::Damaged { .. }
            | DocumentsError::Conflict { .. }
            | DocumentsError::InvalidName { .. }
            | DocumentsError::Interrupted(_)
            | DocumentsError::TransactionMemory { .. }
    )
}

/// The filter for the document with this `_id`.
pub fn id_filter(id: Value<'_>) -> Filter {
    Filter::equals("_id", id)
}
