//! The fast path: inserts and changes of one document by `_id`, validated at their place in the commit
//! order. For collections without indexes and rules.
//!
//! ```text
//! insert: bytes ready ─▶ validate: the keys are free ─▶ encode: append the bytes
//! change: _id, update ─▶ validate: read the newest document, pending commits included, and apply the update ─▶ encode
//! ```
//! They need no snapshot and never conflict with concurrent writes: a hot document takes as many updates a
//! second as the log takes commits. They depend only on the collection's definition, as of the commit it was
//! loaded at.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use ropewalk_base::{Seq, put_bytes};
use ropewalk_engine::{
    CommitError, Durability, EngineError, KV, Keyspace, ModelId, Operation, Outcome, ReadView, Rejection,
    Verdict,
};

use crate::catalog::definition::Definition;
use crate::error::{DocumentsError, Result};
use crate::index::entry::{append_document_key, document_key, id_of, id_part};
use crate::lang::{Applied, DOCUMENT_BYTES_MAX, Doc, DocBuf, Update, UpdateContext, Value, Writer};
use crate::model::commit_section::What;
use crate::model::difference::{OVERHEAD, difference};
use crate::model::handle::Collection;
use crate::model::{DOCUMENTS, Documents, DocumentsModel, SectionOperation};

/// Largest document for an update by operators here; larger ones take the general path.
const UPDATED_BYTES_MAX: usize = 16 << 10;

/// Reason why the fast path rejected a write.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// A definition changed since it was read.
    #[error("a definition changed")]
    Stale,
    /// Documents with these positions in the list exist.
    #[error("{} documents exist already", .0.len())]
    Duplicates(Vec<usize>),
    /// No document has the `_id`.
    #[error("there is no such document")]
    Missing,
    /// The update changes nothing.
    #[error("the update changes nothing")]
    Unchanged,
    /// The general path has to be used.
    #[error("updated document exceeds the fast-path size limit")]
    TooLarge,
    /// The update does not fit the document.
    #[error("{0}")]
    Failed(Box<DocumentsError>),
}

fn refused(why: Refused) -> Rejection {
    Box::new(why)
}

/// A cached definition and the commit it is valid for.
#[derive(Clone)]
struct Basis {
    model: Arc<DocumentsModel>,
    at: Seq,
}

impl Basis {
    fn check(&self) -> Result<(), Rejection> {
        if self.model.last_ddl.seq() > self.at { Err(refused(Refused::Stale)) } else { Ok(()) }
    }
}

fn put_op(section: &mut Vec<u8>, keyspace: Keyspace, key: &[u8], value: Option<&[u8]>) -> Range<usize> {
    section.extend_from_slice(&keyspace.0.to_le_bytes());
    section.push(u8::from(value.is_none()));
    put_bytes(section, key);
    let place = section.len() - key.len()..section.len();
    if let Some(value) = value {
        put_bytes(section, value);
    }
    place
}

/// Documents whose keys must be free.
pub(crate) struct Inserts {
    basis: Basis,
    keyspace: Keyspace,
    section: Vec<u8>,
    keys: Vec<Range<usize>>,
    /// Positions of the documents in the caller's list.
    places: Vec<usize>,
    ascending: bool,
    bytes: u64,
}

impl Inserts {
    fn key(&self, place: usize) -> &[u8] {
        let range = self.keys.get(place).expect("there is a key for each document");
        self.section.get(range.clone()).expect("keys are written to the section")
    }

    /// True when no key of the collection lies between the first and the last one.
    fn all_free(&self, latest: ReadView<'_>) -> Result<bool, EngineError> {
        let (first, last) = (self.key(0), self.key(self.keys.len() - 1));
        debug_assert!(self.ascending && first <= last, "all keys lie between the first and the last");
        let mut cursor = latest.cursor(self.keyspace);
        cursor.seek(first)?;
        Ok(!cursor.valid() || cursor.key() > last)
    }
}

impl Operation for Inserts {
    fn model(&self) -> ModelId {
        KV
    }

    fn bytes_max(&self) -> usize {
        self.section.len()
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.basis.check()?;
        if self.ascending && self.keys.len() > 2 && self.all_free(latest)? {
            return Ok(Verdict::Write);
        }
        let mut there = Vec::new();
        for place in 0..self.keys.len() {
            if latest.get(self.keyspace, self.key(place))?.is_some() {
                there.extend(self.places.get(place));
            }
        }
        if there.is_empty() { Ok(Verdict::Write) } else { Err(refused(Refused::Duplicates(there))) }
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        out.extend_from_slice(&self.section);
        (0, 0)
    }
}

/// A change of one document.
pub(crate) enum Change {
    /// Operators, or a replacement.
    Update {
        update: Arc<Update>,
        now_ms: i64,
    },
    Delete,
}

/// The document before and after. Validation computes the change; its section and the caller read it.
#[derive(Default)]
struct Worked {
    old: Vec<u8>,
    new: Option<DocBuf>,
}

struct PointWrite {
    basis: Basis,
    keyspace: Keyspace,
    key: Vec<u8>,
    change: Change,
    worked: Arc<Mutex<Worked>>,
}

impl Operation for PointWrite {
    fn model(&self) -> ModelId {
        KV
    }

    fn bytes_max(&self) -> usize {
        let value = if matches!(self.change, Change::Delete) { 0 } else { UPDATED_BYTES_MAX };
        self.key.len() + value + 32
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.basis.check()?;
        let Some(stored) = latest.get(self.keyspace, &self.key)? else {
            return Err(refused(Refused::Missing));
        };
        let new = match &self.change {
            Change::Delete => None,
            Change::Update { update, now_ms } => {
                // A long update would delay all commits; it takes the general path.
                if stored.len() > UPDATED_BYTES_MAX {
                    return Err(refused(Refused::TooLarge));
                }
                let context = UpdateContext { position: None, now_ms: *now_ms, inserting: false };
                let failed = |error| refused(Refused::Failed(Box::new(DocumentsError::Language(error))));
                match update.apply(Doc::trusted(&stored), &context).map_err(failed)? {
                    Applied::Unchanged => return Err(refused(Refused::Unchanged)),
                    Applied::Changed(new) if new.bytes().len() > UPDATED_BYTES_MAX => {
                        return Err(refused(Refused::TooLarge));
                    }
                    Applied::Changed(new) => Some(new),
                }
            }
        };
        *self.worked.lock() = Worked { old: stored.to_vec(), new };
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        let worked = self.worked.lock();
        // Without a new document the old one is deleted.
        assert_eq!(
            worked.new.is_none(),
            matches!(self.change, Change::Delete),
            "validation computes the change"
        );
        put_op(out, self.keyspace, &self.key, worked.new.as_ref().map(DocBuf::bytes));
        (0, 0)
    }
}

/// The section of a [`PointWrite`].
struct PointSection {
    collection: u32,
    key: Vec<u8>,
    is_update: bool,
    worked: Arc<Mutex<Worked>>,
}

impl Operation for PointSection {
    fn model(&self) -> ModelId {
        DOCUMENTS
    }

    fn bytes_max(&self) -> usize {
        // A difference takes no more than the old and the new document; an `_id` no more than the old
        // document.
        self.key.len() + 2 * UPDATED_BYTES_MAX + OVERHEAD + 64
    }

    fn validate(&mut self, _latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        let worked = self.worked.lock();
        let (key, before, old) = (id_part(&self.key), Doc::trusted(&worked.old), worked.old.len() as u64);
        match &worked.new {
            Some(after) if self.is_update => {
                let difference = difference(before, after.doc());
                let (new, difference) = (after.bytes().len() as u64, difference.bytes());
                What::Update { key, old, new, difference }.put(self.collection, out);
            }
            Some(after) => {
                What::Replace { key, old, new: after.bytes().len() as u64 }.put(self.collection, out)
            }
            None => {
                let mut id = Writer::new();
                id.put("_id", id_of(before));
                What::Delete { key, old, id: id.finish().bytes() }.put(self.collection, out);
            }
        }
        (0, 0)
    }
}

/// Result of a change by `_id`.
pub(crate) enum Pointed {
    Missing,
    Unchanged,
    Changed {
        old: Vec<u8>,
        new: Option<DocBuf>,
    },
    /// The general path has to be used.
    General,
}

/// Result of inserts.
pub(crate) enum Inserted {
    All,
    Duplicates(Vec<usize>),
    /// The collection is not plain (any more), or does not exist yet.
    General,
}

impl Documents {
    /// Waits until the newest change of a definition is visible, so that it can be read.
    fn settle_definitions(&self) -> Result<()> {
        Ok(self.engine.wait_until_visible(self.model.last_ddl.seq())?)
    }
}

impl Collection {
    /// The definition, if the collection is plain, and the commit it is valid for.
    fn plain(&self) -> Result<Option<(Arc<Definition>, Basis)>> {
        let loaded = self.newest()?;
        Ok(match &loaded.definition {
            Some(definition) if definition.is_plain() => {
                let basis = Basis { model: self.documents().model.clone(), at: loaded.at };
                Some((definition.clone(), basis))
            }
            _ => None,
        })
    }

    /// Inserts prepared documents (position in the caller's list, bytes) as one commit.
    pub(crate) fn insert_plain(
        &self,
        prepared: &[(usize, impl AsRef<[u8]>)],
        durability: Durability,
    ) -> Result<Inserted> {
        let documents = self.documents();
        loop {
            let Some((definition, basis)) = self.plain()? else { return Ok(Inserted::General) };
            let (inserts, twice) = gather(documents, &definition, basis, prepared)?;
            if !twice.is_empty() {
                return Ok(Inserted::Duplicates(twice));
            }
            let what = What::Inserts { documents: prepared.len() as u64, bytes: inserts.bytes };
            let mut section = Vec::with_capacity(16);
            what.put(definition.id, &mut section);
            let operations: Vec<Box<dyn Operation>> =
                vec![Box::new(inserts), Box::new(SectionOperation { section })];
            match refusal(documents.engine.commit(operations, durability))? {
                None => return Ok(Inserted::All),
                Some(Refused::Duplicates(places)) => return Ok(Inserted::Duplicates(places)),
                Some(Refused::Stale) => documents.settle_definitions()?,
                Some(_) => return Ok(Inserted::General),
            }
        }
    }

    /// Changes the document with this `_id`.
    pub(crate) fn change_plain(
        &self,
        id: Value<'_>,
        change: impl Fn() -> Change,
        is_update: bool,
        durability: Durability,
    ) -> Result<Pointed> {
        let documents = self.documents();
        loop {
            let Some((definition, basis)) = self.plain()? else { return Ok(Pointed::General) };
            let key = document_key(definition.id, id)?;
            let worked = Arc::new(Mutex::new(Worked::default()));
            let section = PointSection {
                collection: definition.id,
                key: key.clone(),
                is_update,
                worked: worked.clone(),
            };
            let write = PointWrite {
                basis,
                keyspace: documents.model.spaces().documents,
                key,
                change: change(),
                worked: worked.clone(),
            };
            let operations: Vec<Box<dyn Operation>> = vec![Box::new(write), Box::new(section)];
            match refusal(documents.engine.commit(operations, durability))? {
                None => {
                    let worked = std::mem::take(&mut *worked.lock());
                    return Ok(Pointed::Changed { old: worked.old, new: worked.new });
                }
                Some(Refused::Missing) => return Ok(Pointed::Missing),
                Some(Refused::Unchanged) => return Ok(Pointed::Unchanged),
                Some(Refused::Stale) => documents.settle_definitions()?,
                Some(Refused::Failed(error)) => return Err(self.named(*error)),
                Some(Refused::TooLarge | Refused::Duplicates(_)) => return Ok(Pointed::General),
            }
        }
    }
}

/// Builds the operation; also returns the positions of duplicates within the list.
fn gather(
    documents: &Documents,
    definition: &Definition,
    basis: Basis,
    prepared: &[(usize, impl AsRef<[u8]>)],
) -> Result<(Inserts, Vec<usize>)> {
    let keyspace = documents.model.spaces().documents;
    let total: usize = prepared.iter().map(|(_, stored)| stored.as_ref().len() + 48).sum();
    let mut section = Vec::with_capacity(total);
    let (mut keys, mut places) = (Vec::with_capacity(prepared.len()), Vec::with_capacity(prepared.len()));
    let (mut key, mut last) = (Vec::new(), Vec::new());
    let (mut ascending, mut bytes) = (true, 0);
    for (place, stored) in prepared {
        let stored = stored.as_ref();
        key.clear();
        append_document_key(definition.id, id_of(Doc::trusted(stored)), &mut key)?;
        if stored.len() > DOCUMENT_BYTES_MAX {
            let (bytes, max) = (stored.len(), DOCUMENT_BYTES_MAX);
            return Err(DocumentsError::TooLarge { what: "document", bytes, max });
        }
        ascending &= last < key;
        bytes += stored.len() as u64;
        keys.push(put_op(&mut section, keyspace, &key, Some(stored)));
        places.push(*place);
        std::mem::swap(&mut key, &mut last);
    }
    debug_assert!(
        keys.len() == prepared.len() && places.is_sorted(),
        "keys and places are those of the list"
    );
    let inserts = Inserts { basis, keyspace, section, keys, places, ascending, bytes };
    let mut twice = Vec::new();
    if !ascending && prepared.len() > 1 {
        let mut seen = HashSet::with_capacity(prepared.len());
        for (index, (place, _)) in prepared.iter().enumerate() {
            if !seen.insert(inserts.key(index)) {
                twice.push(*place);
            }
        }
    }
    Ok((inserts, twice))
}

/// The fast path's reason for rejection, if validation failed for one; other failures are errors.
fn refusal<T>(result: Result<T, CommitError>) -> Result<Option<Refused>> {
    Ok(result.err().map(CommitError::reason).transpose()?)
}
