//! Writes of a collection, each as one commit, retried after a conflict with another commit.

use std::borrow::Cow;

use ropewalk_engine::Durability;

use crate::error::Result;
use crate::lang::{self, Doc, DocBuf, Filter, Owned, Value};
use crate::model::handle::Collection;
use crate::write::document::duplicate_id;
use crate::write::fast_path::{Change, Inserted, Pointed};
use crate::write::statements::{BulkResult, BulkWrite, FindAndModify, InsertedMany, UpdateSpec, Updated};

/// Bytes of documents that an insert of many puts into one commit.
const BATCH_BYTES: usize = 32 << 20;

/// Writes, each as one commit with the requested durability.
impl Collection {
    /// Inserts a document; returns its `_id`, which is generated if it has none.
    ///
    /// # Errors
    /// [`crate::DocumentsError::Duplicate`]; bytes that are not a valid document; a rule that it violates.
    pub fn insert_one(&self, document: &[u8], durability: Durability) -> Result<Owned> {
        let new_id = || Owned::from(Value::ObjectId(self.documents().new_id()));
        let now_ms = self.documents().now_ms();
        let prepared = Doc::check(document).and_then(|doc| lang::prepare_insert(doc, now_ms, new_id));
        let prepared = prepared.map_err(|error| self.named(error.into()))?;
        let id = crate::index::entry::id_of(Doc::trusted(&prepared));
        match self.insert_plain(&[(0, &prepared)], durability)? {
            Inserted::All => Ok(Owned::from(id)),
            Inserted::Duplicates(_) => match self.newest()?.definition.as_ref() {
                Some(definition) => Err(duplicate_id(definition, id)),
                None => Err(self.unknown()),
            },
            Inserted::General => self.documents().transact(durability, |tx| tx.insert_one(self, &prepared)),
        }
    }

    /// Inserts documents: one commit up to 32 MiB, then another. Ordered: stops at the first that is
    /// rejected; otherwise inserts all that can be inserted.
    ///
    /// # Errors
    /// Errors that concern all documents. An error of one document is part of the result.
    pub fn insert_many<D: AsRef<[u8]>>(
        &self,
        documents: &[D],
        ordered: bool,
        durability: Durability,
    ) -> Result<InsertedMany> {
        let mut done = InsertedMany::default();
        let mut prepared: Vec<(usize, Cow<'_, [u8]>)> = Vec::with_capacity(documents.len());
        let mut bytes = 0;
        let new_id = || Owned::from(Value::ObjectId(self.documents().new_id()));
        let now_ms = self.documents().now_ms();
        for (place, document) in documents.iter().enumerate() {
            let checked =
                Doc::check(document.as_ref()).and_then(|doc| lang::prepare_insert(doc, now_ms, new_id));
            match checked {
                Ok(stored) => {
                    bytes += stored.len();
                    prepared.push((place, stored));
                }
                Err(error) => {
                    done.errors.push((place, self.named(error.into())));
                    if ordered {
                        break;
                    }
                }
            }
            if bytes >= BATCH_BYTES {
                bytes = 0;
                if !self.insert_batch(std::mem::take(&mut prepared), ordered, durability, &mut done)? {
                    return Ok(done);
                }
            }
        }
        self.insert_batch(prepared, ordered, durability, &mut done)?;
        done.errors.sort_by_key(|(place, _)| *place);
        if ordered {
            done.errors.truncate(1);
        }
        Ok(done)
    }

    /// Returns false when the remaining documents are to be skipped.
    fn insert_batch(
        &self,
        mut prepared: Vec<(usize, Cow<'_, [u8]>)>,
        ordered: bool,
        durability: Durability,
        done: &mut InsertedMany,
    ) -> Result<bool> {
        let id = |stored: &[u8]| Owned::from(crate::index::entry::id_of(Doc::trusted(stored)));
        let mut goes_on = true;
        while !prepared.is_empty() {
            match self.insert_plain(&prepared, durability)? {
                Inserted::All => {
                    done.inserted.extend(prepared.iter().map(|(place, stored)| (*place, id(stored))));
                    break;
                }
                Inserted::Duplicates(places) => {
                    let definition = self.newest()?.definition.clone().ok_or_else(|| self.unknown())?;
                    let first = *places.first().expect("duplicates have places");
                    debug_assert!(places.is_sorted(), "places are sorted, for the search");
                    let before = prepared.len();
                    for (place, stored) in prepared.iter().filter(|(place, _)| places.contains(place)) {
                        if !ordered || *place == first {
                            let id = crate::index::entry::id_of(Doc::trusted(stored));
                            done.errors.push((*place, duplicate_id(&definition, id)));
                        }
                    }
                    if ordered {
                        goes_on = false;
                        prepared.retain(|(place, _)| *place < first);
                    } else {
                        prepared.retain(|(place, _)| places.binary_search(place).is_err());
                    }
                    assert!(prepared.len() < before, "duplicates are not tried again");
                }
                Inserted::General => {
                    let stored: Vec<&[u8]> = prepared.iter().map(|(_, stored)| stored.as_ref()).collect();
                    let many =
                        self.documents().transact(durability, |tx| tx.insert_many(self, &stored, ordered))?;
                    let place = |inner: usize| prepared.get(inner).map_or(inner, |(place, _)| *place);
                    goes_on &= !ordered || many.errors.is_empty();
                    done.inserted.extend(many.inserted.into_iter().map(|(inner, id)| (place(inner), id)));
                    done.errors.extend(many.errors.into_iter().map(|(inner, error)| (place(inner), error)));
                    break;
                }
            }
        }
        Ok(goes_on)
    }

    /// Changes the first document that matches, or inserts one if the update says so.
    ///
    /// # Errors
    /// An update that does not fit the document; a rule that the changed document violates.
    pub fn update_one(&self, spec: &UpdateSpec, durability: Durability) -> Result<Updated> {
        if let Some(id) = spec.filter.only_id().filter(|_| spec.hint.is_none()) {
            let now_ms = self.documents().now_ms();
            let change = || Change::Update { update: spec.update.clone(), now_ms };
            let is_update = !spec.update.is_replacement();
            match self.change_plain(id, change, is_update, durability)? {
                Pointed::Changed { .. } => return Ok(Updated { matched: 1, modified: 1, upserted: None }),
                Pointed::Unchanged => return Ok(Updated { matched: 1, modified: 0, upserted: None }),
                Pointed::Missing if !spec.upsert => return Ok(Updated::default()),
                Pointed::Missing | Pointed::General => {}
            }
        }
        self.documents().transact(durability, |tx| tx.update_one(self, spec))
    }

    /// Changes all documents that match, in one commit.
    ///
    /// # Errors
    /// As [`Collection::update_one`]; a replacement, which cannot apply to several documents.
    pub fn update_many(&self, spec: &UpdateSpec, durability: Durability) -> Result<Updated> {
        self.documents().transact(durability, |tx| tx.update_many(self, spec))
    }

    /// Finds a document, changes or deletes it, and returns it as it was before or after.
    ///
    /// # Errors
    /// As [`Collection::update_one`].
    pub fn find_and_modify(
        &self,
        spec: &FindAndModify,
        durability: Durability,
    ) -> Result<(Option<DocBuf>, Updated)> {
        if let Some((id, update)) = spec.filter.only_id().zip(spec.update.as_ref())
            && spec.hint.is_none()
            && !spec.upsert
        {
            let now_ms = self.documents().now_ms();
            let change = || Change::Update { update: update.clone(), now_ms };
            match self.change_plain(id, change, !update.is_replacement(), durability)? {
                Pointed::Changed { old, new } => {
                    let shown = if spec.return_new { new } else { Some(DocBuf::trusted(old)) };
                    let shown = shown.map(|shown| spec.project(shown)).transpose()?;
                    return Ok((shown, Updated { matched: 1, modified: 1, upserted: None }));
                }
                Pointed::Missing => return Ok((None, Updated::default())),
                Pointed::Unchanged | Pointed::General => {}
            }
        }
        self.documents().transact(durability, |tx| tx.find_and_modify(self, spec))
    }

    /// Deletes the first document that matches; returns whether there was one.
    ///
    /// # Errors
    /// A reference that forbids it.
    pub fn delete_one(&self, filter: &Filter, durability: Durability) -> Result<bool> {
        if let Some(id) = filter.only_id() {
            match self.change_plain(id, || Change::Delete, false, durability)? {
                Pointed::Changed { .. } => return Ok(true),
                Pointed::Missing => return Ok(false),
                Pointed::Unchanged | Pointed::General => {}
            }
        }
        self.documents().transact(durability, |tx| tx.delete_one(self, filter))
    }

    /// Deletes all documents that match, in one commit; returns their number.
    ///
    /// # Errors
    /// A reference that forbids it.
    pub fn delete_many(&self, filter: &Filter, durability: Durability) -> Result<u64> {
        self.documents().transact(durability, |tx| tx.delete_many(self, filter))
    }

    /// Executes writes of several kinds, in order, in one commit. Ordered: stops at the first that is
    /// rejected.
    ///
    /// # Errors
    /// Errors that concern all writes. An error of one write is part of the result.
    pub fn bulk_write(
        &self,
        writes: &[BulkWrite],
        ordered: bool,
        durability: Durability,
    ) -> Result<BulkResult> {
        self.documents().transact(durability, |tx| tx.bulk_write(self, writes, ordered))
    }
}
