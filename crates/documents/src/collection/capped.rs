//! Capped collections: documents in the order in which they came, as many as fit; the oldest make room.
//!
//! ```text
//! an object of its own    0 number u64 ─▶ key of the `_id`      the documents in order; numbers rise and are never used again
//!                         1 key of the `_id` ─▶ number u64      where a document is in it
//!                         2 ─▶ first, next, documents, bytes    four u64; every write of the collection writes it
//! ```
//! Documents themselves lie by their `_id` as in every collection. Whoever writes meets whoever else writes at the record
//! under 2, so the order is that of the commits and the limits hold exactly.
//!
//! A [`Tail`] reads on behind the last document it has seen: each of its batches is of a snapshot of its own.
//!
//! Source: MongoDB manual, "Capped Collections", "Tailable Cursors".

use std::sync::Arc;

use ropewalk_engine::ReadView;

use crate::catalog::definition::Definition;
use crate::catalog::{Spaces, object_range};
use crate::error::DocumentsError;
use crate::index::entry::id_part;
use crate::lang::display;
use crate::lang::{Doc, DocBuf};
use crate::model::handle::Collection;
use crate::query::plan::KeyRange;
use crate::query::read::{Find, Source};
use crate::query::scan::Found;
use crate::rules::{Access, Caller};
use crate::transaction::tx::DocumentsTx;

/// Entries of the order that a tail looks at in one walk.
const PAGE: usize = 256;
/// The least limit, and what limits are a multiple of, as in MongoDB.
const BYTES_MIN: u64 = 4096;
const BYTES_STEP: u64 = 256;
/// Documents of a collection that is made capped, at most.
const CONVERTED_MAX: usize = 1_000_000;
/// The largest limit, as in MongoDB: 1 PiB.
const BYTES_MAX: u64 = 1 << 50;

/// How much a capped collection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capped {
    /// Bytes of documents.
    pub bytes: u64,
    /// Documents.
    pub documents: Option<u64>,
}

impl Capped {
    /// As MongoDB takes it: at least 4096 bytes, a multiple of 256 above; no number of documents below 1 is a limit.
    ///
    /// # Errors
    /// No bytes, or more than a PiB.
    pub fn of(bytes: i64, documents: Option<i64>) -> Result<Self, DocumentsError> {
        let refuse = || DocumentsError::InvalidOptions {
            what: format!("a capped collection holds between 1 and {BYTES_MAX} bytes, not {bytes}"),
        };
        let bytes = u64::try_from(bytes).ok().filter(|bytes| (1..=BYTES_MAX).contains(bytes));
        let bytes = bytes.ok_or_else(refuse)?.max(BYTES_MIN).next_multiple_of(BYTES_STEP);
        let documents = documents.and_then(|max| u64::try_from(max).ok()).filter(|max| *max > 0);
        Ok(Self { bytes, documents })
    }
}

/// The record of what the order holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    /// No number below is in use.
    first: u64,
    next: u64,
    documents: u64,
    bytes: u64,
}

impl Head {
    fn encode(self) -> Vec<u8> {
        [self.first, self.next, self.documents, self.bytes].map(u64::to_le_bytes).concat()
    }

    fn decode(stored: &[u8]) -> Option<Self> {
        let mut words = stored.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let head = Self {
            first: words.next()?,
            next: words.next()?,
            documents: words.next()?,
            bytes: words.next()?,
        };
        (stored.len() == 32).then_some(head)
    }

    fn fits(self, capped: Capped) -> bool {
        self.bytes <= capped.bytes && capped.documents.is_none_or(|max| self.documents <= max)
    }
}

fn key(order: u32, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = order.to_be_bytes().to_vec();
    key.push(kind);
    key.extend_from_slice(rest);
    key
}

fn numbered(order: u32, number: u64) -> Vec<u8> {
    key(order, 0, &number.to_be_bytes())
}

fn number_of(key: &[u8]) -> Option<u64> {
    key.get(5..)?.try_into().ok().map(u64::from_be_bytes)
}

fn damaged(definition: &Definition) -> DocumentsError {
    DocumentsError::damaged(format!("collection {:?}", definition.name), "the order of its documents")
}

/// The walk over a capped collection in the order of its documents.
pub(crate) fn range(order: u32) -> KeyRange {
    (key(order, 0, &[]), key(order, 1, &[]))
}

/// The key of the document that an entry of the order leads to.
pub(crate) fn document_of(definition: &Definition, entry: &[u8]) -> Vec<u8> {
    [&definition.id.to_be_bytes(), entry].concat()
}

/// Checks the order of a collection that has `count` documents.
pub(crate) fn verify(
    spaces: Spaces,
    read: ReadView<'_>,
    (definition, order): (&Definition, u32),
    count: u64,
    mut tell: impl FnMut(String),
) -> Result<(), DocumentsError> {
    let name = &definition.name;
    let (start, end) = range(order);
    let mut cursor = read.cursor(spaces.documents);
    cursor.seek(&start)?;
    let mut head = Head { first: 1, next: 1, documents: 0, bytes: 0 };
    while cursor.valid() && cursor.key() < end.as_slice() {
        let (entry, id) = (cursor.key(), cursor.value());
        head.documents += 1;
        head.next = number_of(entry).map_or(head.next, |number| number + 1);
        match read.get(spaces.documents, &document_of(definition, id))? {
            Some(stored) => head.bytes += stored.len() as u64,
            None => tell(format!(
                "collection {name:?}: its order leads to no document at {}",
                display::hex(entry)
            )),
        }
        let back = read.get(spaces.documents, &key(order, 1, id))?;
        if back.as_deref() != entry.get(5..) {
            tell(format!("collection {name:?}: {} is elsewhere in its order", display::hex(id)));
        }
        cursor.next()?;
    }
    if head.documents != count {
        tell(format!("collection {name:?}: {} documents are in its order, it has {count}", head.documents));
    }
    let stored = read.get(spaces.documents, &key(order, 2, &[]))?;
    let stored = stored.and_then(|stored| Head::decode(&stored));
    let right = stored.map_or(count == 0, |stored| {
        (stored.documents, stored.bytes) == (head.documents, head.bytes) && stored.next >= head.next
    });
    if !right {
        tell(format!("collection {name:?}: its order says {stored:?}, it holds {head:?}"));
    }
    Ok(())
}

impl DocumentsTx<'_> {
    fn head(&self, definition: &Definition, order: u32) -> Result<Head, DocumentsError> {
        match self.kv.peek(self.spaces().documents, &key(order, 2, &[]))? {
            Some(stored) => Head::decode(&stored).ok_or_else(|| damaged(definition)),
            None => Ok(Head { first: 1, next: 1, documents: 0, bytes: 0 }),
        }
    }

    fn put_head(&mut self, order: u32, head: Head) -> Result<(), DocumentsError> {
        let (documents, key) = (self.spaces().documents, key(order, 2, &[]));
        self.guard(documents, &key);
        self.put(documents, &key, &head.encode())
    }

    /// A document was put under `document_key`: it is the newest, and the oldest make room.
    pub(crate) fn joined(
        &mut self,
        definition: &mut Arc<Definition>,
        document_key: &[u8],
        bytes: usize,
    ) -> Result<(), DocumentsError> {
        let Some((order, capped)) = definition.order.zip(definition.options.capped) else { return Ok(()) };
        if bytes as u64 > capped.bytes {
            let max = usize::try_from(capped.bytes).unwrap_or(usize::MAX);
            return Err(DocumentsError::TooLarge { what: "document for its capped collection", bytes, max });
        }
        let mut head = self.head(definition, order)?;
        let (number, id) = (head.next, id_part(document_key));
        head.next += 1;
        head.documents += 1;
        head.bytes += bytes as u64;
        let documents = self.spaces().documents;
        self.put(documents, &numbered(order, number), id)?;
        self.put(documents, &key(order, 1, id), &number.to_be_bytes())?;
        self.put_head(order, head)?;
        self.make_room(definition, order, capped)
    }

    /// Deletes the oldest documents until what is left fits.
    pub(crate) fn make_room(
        &mut self,
        definition: &mut Arc<Definition>,
        order: u32,
        capped: Capped,
    ) -> Result<(), DocumentsError> {
        loop {
            let mut head = self.head(definition, order)?;
            if head.fits(capped) {
                return Ok(());
            }
            let mut oldest = None;
            let (start, end) = (numbered(order, head.first), range(order).1);
            self.walk(&start, Some(&end), false, &mut |key, id| {
                oldest = Some((number_of(key), id.to_vec()));
                false
            })?;
            let Some((Some(number), id)) = oldest else { return Err(damaged(definition)) };
            head.first = number;
            self.put_head(order, head)?;
            let key = document_of(definition, &id);
            let stored = self.fetch(&key)?.ok_or_else(|| damaged(definition))?;
            self.delete_stored(definition, &key, &stored)?;
        }
    }

    /// A document took the place of another and keeps its place in the order.
    pub(crate) fn resized(
        &mut self,
        definition: &Definition,
        old: usize,
        new: usize,
    ) -> Result<(), DocumentsError> {
        let Some(order) = definition.order else { return Ok(()) };
        let mut head = self.head(definition, order)?;
        head.bytes = (head.bytes + new as u64).saturating_sub(old as u64);
        self.put_head(order, head)
    }

    /// The document under `document_key` was deleted.
    pub(crate) fn left(
        &mut self,
        definition: &Definition,
        document_key: &[u8],
        bytes: usize,
    ) -> Result<(), DocumentsError> {
        let Some(order) = definition.order else { return Ok(()) };
        let (documents, place) = (self.spaces().documents, key(order, 1, id_part(document_key)));
        let number = self.kv.peek(documents, &place)?.and_then(|stored| stored.try_into().ok());
        let number = number.map(u64::from_be_bytes).ok_or_else(|| damaged(definition))?;
        self.remove(documents, &place)?;
        self.remove(documents, &numbered(order, number))?;
        let mut head = self.head(definition, order)?;
        head.first += u64::from(head.first == number);
        head.documents = head.documents.saturating_sub(1);
        head.bytes = head.bytes.saturating_sub(bytes as u64);
        self.put_head(order, head)
    }

    /// Makes a collection capped; its documents come in the order of their `_id`, the first make room. Its indexes stay.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownCollection`]; a reference that keeps a document from going.
    pub fn cap(&mut self, collection: &Collection, capped: Capped) -> Result<(), DocumentsError> {
        self.statement(|tx| {
            let definition = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
            let mut changed = definition.edit()?;
            let given = changed.order.is_none();
            if given {
                changed.order = Some(tx.documents.model.new_number(&tx.documents.engine)?);
            }
            changed.options.capped = Some(capped);
            let order = changed.order;
            let mut changed = tx.put_modified(changed)?;
            if given {
                tx.put_in_order(&changed)?;
            }
            match order {
                Some(order) => tx.make_room(&mut changed, order, capped),
                None => Ok(()),
            }
        })
    }

    /// Gives all documents places in the order.
    fn put_in_order(&mut self, definition: &Definition) -> Result<(), DocumentsError> {
        let Some(order) = definition.order else { return Ok(()) };
        let (start, end) = object_range(definition.id);
        let documents = self.spaces().documents;
        // What is inserted meanwhile in the short way would have no place.
        self.kv.guard_range(documents, &start, Some(&end));
        let (mut ids, mut bytes) = (Vec::new(), 0);
        self.walk(&start, Some(&end), false, &mut |key, stored| {
            ids.push(id_part(key).to_vec());
            bytes += stored.len() as u64;
            ids.len() <= CONVERTED_MAX
        })?;
        if ids.len() > CONVERTED_MAX {
            let what = format!("more than {CONVERTED_MAX} documents are too many to be capped in one commit");
            return Err(DocumentsError::InvalidOptions { what });
        }
        for (number, id) in (1_u64..).zip(&ids) {
            self.put(documents, &numbered(order, number), id)?;
            self.put(documents, &key(order, 1, id), &number.to_be_bytes())?;
        }
        let count = ids.len() as u64;
        self.put_head(order, Head { first: 1, next: count + 1, documents: count, bytes })
    }
}

/// Reads a capped collection in the order of its documents, and goes on where it was when there are more.
pub struct Tail {
    collection: Collection,
    find: Find,
    caller: Option<Caller>,
    order: u32,
    /// The last number looked at, once there was one.
    at: Option<u64>,
    skipped: usize,
    given: usize,
}

impl Collection {
    /// Follows the collection, which has to be capped, for a caller, if there is one, whom its rules are asked about. `None`:
    /// it does not exist. Sort and hint of `find` do not count.
    ///
    /// # Errors
    /// The collection is not capped.
    pub fn tail(&self, caller: Option<Caller>, find: &Find) -> Result<Option<Tail>, DocumentsError> {
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
    /// What has come since, as of the newest commit: at most `count` documents, and no more than `bytes` of them unless the
    /// first alone is larger.
    ///
    /// # Errors
    /// [`DocumentsError::PlaceLost`] when the last document seen, or the collection, is gone; as of every query.
    pub fn next_batch(&mut self, count: usize, bytes: usize) -> Result<Vec<DocBuf>, DocumentsError> {
        let documents = self.collection.documents().clone();
        let snapshot = documents.engine.snapshot();
        let mut source = documents.at(&snapshot).acting_for(self.caller.clone());
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
            source.walk(&from, Some(&range(self.order).1), false, &mut |key, id| {
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

    /// The document as the query wants it, if it does.
    fn shown(
        &self,
        definition: &Definition,
        stored: &[u8],
        now_ms: i64,
    ) -> Result<Option<DocBuf>, DocumentsError> {
        let doc = Doc::trusted(stored);
        let may = definition.check_access(self.caller.as_ref(), Access::List, (Some(doc), None), now_ms);
        // Sort and hint do not count here.
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

    /// The query's limit is reached.
    pub fn is_done(&self) -> bool {
        self.find.limit.is_some_and(|limit| self.given >= limit)
    }

    /// There is a place to go on from: some document was looked at.
    pub fn has_place(&self) -> bool {
        self.at.is_some()
    }
}
