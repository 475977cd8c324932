//! Tails of capped collections: each batch reads a new snapshot and continues after the last document that
//! was read.
//!
//! Source: MongoDB manual, "Tailable Cursors".

use ropewalk_engine::KeySpan;

use crate::catalog::definition::Definition;
use crate::error::{DocumentsError, Result};
use crate::index::order::{damaged, document_of, number_of, numbered, range};
use crate::lang::{Doc, DocBuf};
use crate::model::handle::Collection;
use crate::query::read::Find;
use crate::query::scan::Found;
use crate::rules::{Access, Caller};
use crate::transaction::source::Source;

/// Entries of the order that a tail reads in one scan.
const PAGE: usize = 256;
/// Reads a capped collection in insertion order, and resumes at its position when more documents arrive.
pub struct Tail {
    collection: Collection,
    find: Find,
    caller: Option<Caller>,
    order: u32,
    /// The last number read, if any.
    at: Option<u64>,
    skipped: usize,
    given: usize,
}

impl Collection {
    /// Follows a capped collection; applies its rules for `caller`, if there is one. `None`: the collection
    /// does not exist. Sort and hint of `find` are ignored.
    ///
    /// # Errors
    /// The collection is not capped.
    pub fn tail(&self, caller: Option<Caller>, find: &Find) -> Result<Option<Tail>> {
        let Some(definition) = self.definition()? else { return Ok(None) };
        let order = definition.order.ok_or_else(|| DocumentsError::InvalidOptions {
            what: format!(
                "tailable cursor requested on non capped collection {}.{}",
                self.database(),
                self.name()
            ),
        })?;
        let (collection, find) = (self.clone(), find.clone());
        Ok(Some(Tail { collection, find, caller, order, at: None, skipped: 0, given: 0 }))
    }
}

impl Tail {
    /// The documents that arrived since, as of the newest commit: at most `count`, and at most `bytes` of
    /// them unless the first alone is larger.
    ///
    /// # Errors
    /// [`DocumentsError::PlaceLost`] when the last document read, or the collection, is gone; as of every
    /// query.
    pub fn next_batch(&mut self, count: usize, bytes: usize) -> Result<Vec<DocBuf>> {
        let documents = self.collection.documents().clone();
        let snapshot = documents.engine.snapshot();
        let mut source = documents.at(&snapshot).as_caller(self.caller.clone());
        let lost = || DocumentsError::PlaceLost { collection: self.collection.name().to_owned() };
        let definition = source.definition_of(&self.collection)?;
        let definition = definition.filter(|definition| definition.order == Some(self.order));
        let definition = definition.ok_or_else(lost)?;
        if let Some(at) = self.at
            && source.fetch(&numbered(self.order, at))?.is_none()
        {
            return Err(lost());
        }
        let (mut batch, mut size) = (Vec::new(), 0);
        loop {
            let from = numbered(self.order, self.at.map_or(0, |at| at + 1));
            let mut page: Vec<Found> = Vec::new();
            source.walk(KeySpan::forward(&from, Some(&range(self.order).1)), &mut |key, id| {
                page.push((key.to_vec(), id.to_vec()));
                page.len() < PAGE
            })?;
            let last = page.len() < PAGE;
            for (key, id) in page {
                if batch.len() >= count || self.is_done() {
                    return Ok(batch);
                }
                let stored = source.fetch(&document_of(&definition, &id))?;
                let stored = stored.ok_or_else(|| damaged(&definition))?;
                if let Some(shown) = self.shown(&definition, &stored, documents.now_ms())? {
                    if !batch.is_empty() && size + shown.bytes().len() > bytes {
                        return Ok(batch);
                    }
                    if self.skipped < self.find.skip {
                        self.skipped += 1;
                    } else {
                        size += shown.bytes().len();
                        self.given += 1;
                        batch.push(shown);
                    }
                }
                self.at = number_of(&key);
            }
            if last {
                return Ok(batch);
            }
        }
    }

    /// Applies the query's filter and projection; `None` if the document does not match.
    fn shown(&self, definition: &Definition, stored: &[u8], now_ms: i64) -> Result<Option<DocBuf>> {
        let doc = Doc::trusted(stored);
        let may = definition.check_access(self.caller.as_ref(), Access::List, (Some(doc), None), now_ms);
        // Sort and hint are ignored here.
        let ids_alone = self.find.filter.is_all() || self.find.filter.only_id().is_some();
        if may.is_err() && !ids_alone || !self.find.filter.matches(doc)? {
            return Ok(None);
        }
        may?;
        Ok(Some(match &self.find.projection {
            Some(projection) => projection.apply(doc, Some(&self.find.filter))?,
            None => doc.to_buf(),
        }))
    }

    /// True when the query's limit is reached.
    pub fn is_done(&self) -> bool {
        self.find.limit.is_some_and(|limit| self.given >= limit)
    }

    /// True when there is a position to continue from: some document was read.
    pub fn position_exists(&self) -> bool {
        self.at.is_some()
    }
}
