//! Reads of documents at a snapshot, outside any transaction; and cursors, which hold a snapshot.

use std::sync::Arc;

use ropewalk_engine::{EachEntry, KeySpan, Reading, Snapshot};

use crate::catalog::definition::Definition;
use crate::error::Result;
use crate::index::entry::{append_document_key, put_document_key};
use crate::lang::{DocBuf, Value};
use crate::model::Documents;
use crate::model::handle::Collection;
use crate::query::read::{Find, Rows};
use crate::query::view::refuse_view;
use crate::rules::Caller;
use crate::transaction::source::{CancelCheck, Source};

/// The documents as of one snapshot.
pub struct DocumentsAt<'a> {
    documents: Documents,
    snapshot: &'a Snapshot,
    caller: Option<Arc<Caller>>,
    look: Option<CancelCheck<'a>>,
}

impl<'a> DocumentsAt<'a> {
    /// Calls `look` periodically during reads; an error from it ends the read.
    #[must_use]
    pub fn with_cancellation(mut self, look: CancelCheck<'a>) -> Self {
        self.look = Some(look);
        self
    }

    /// Applies the collections' rules for `caller`, if there is one.
    #[must_use]
    pub fn as_caller(mut self, caller: impl Into<Option<Caller>>) -> Self {
        self.caller = caller.into().map(Arc::new);
        self
    }
}

impl Source for DocumentsAt<'_> {
    fn begin(&mut self) {}

    fn documents(&self) -> &Documents {
        &self.documents
    }

    fn caller(&self) -> Option<&Arc<Caller>> {
        self.caller.as_ref()
    }

    fn look(&self) -> Result<()> {
        self.look.map_or(Ok(()), |look| look())
    }

    fn reading(&self) -> Reading {
        self.snapshot.reading()
    }

    fn definition_of(&mut self, collection: &Collection) -> Result<Option<Arc<Definition>>> {
        let read = self.snapshot.reading();
        let found = collection.definition_at(read.view())?;
        if found.is_none() {
            refuse_view(collection, read.view())?;
        }
        Ok(found)
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let spaces = self.documents.model.spaces();
        Ok(self.snapshot.reading().view().get(spaces.documents, key)?.map(|value| value.to_vec()))
    }

    fn walk(&mut self, span: KeySpan<'_>, each: &mut EachEntry<'_>) -> Result<()> {
        Ok(self.snapshot.reading().view().visit(self.documents.model.spaces().documents, span, each)?)
    }
}

/// A cursor: the result of a query as of one snapshot, batch by batch. Between two batches it holds at most
/// one page of documents, unless it sorts without an index.
pub struct DocumentCursor {
    documents: Documents,
    snapshot: Snapshot,
    rows: Rows,
    ahead: Option<Vec<u8>>,
    done: bool,
}

impl DocumentCursor {
    /// The next documents: at most `count`, and no more than `bytes` of them unless the first alone is
    /// larger. Empty at the end.
    ///
    /// # Errors
    /// As [`crate::DocumentsRead::find`].
    pub fn next_batch(&mut self, count: usize, bytes: usize) -> Result<Vec<DocBuf>> {
        self.next_batch_while(count, bytes, &|| Ok(()))
    }

    /// As [`DocumentCursor::next_batch`], calling `look` periodically, also while nothing is found.
    ///
    /// # Errors
    /// As [`DocumentCursor::next_batch`]; the errors of `look`.
    pub fn next_batch_while(
        &mut self,
        count: usize,
        bytes: usize,
        look: CancelCheck<'_>,
    ) -> Result<Vec<DocBuf>> {
        let mut at = self.documents.at(&self.snapshot).with_cancellation(look);
        let (mut batch, mut size) = (Vec::new(), 0);
        while batch.len() < count && !self.done {
            let stored = match self.ahead.take() {
                Some(stored) => stored,
                None => match self.rows.next(&mut at)? {
                    Some((_, stored)) => stored,
                    None => {
                        self.done = true;
                        break;
                    }
                },
            };
            if !batch.is_empty() && size + stored.len() > bytes {
                self.ahead = Some(stored);
                break;
            }
            size += stored.len();
            batch.push(self.rows.project(stored)?);
        }
        Ok(batch)
    }

    /// Reads ahead to check whether documents are left. [`DocumentCursor::is_done`] only knows once the end
    /// was read.
    ///
    /// # Errors
    /// As [`DocumentCursor::next_batch`].
    pub fn has_more(&mut self) -> Result<bool> {
        self.has_more_while(&|| Ok(()))
    }

    /// As [`DocumentCursor::has_more`], calling `look` periodically.
    ///
    /// # Errors
    /// As [`DocumentCursor::has_more`]; the errors of `look`.
    pub fn has_more_while(&mut self, look: CancelCheck<'_>) -> Result<bool> {
        if self.ahead.is_none() && !self.done {
            let mut at = self.documents.at(&self.snapshot).with_cancellation(look);
            self.ahead = self.rows.next(&mut at)?.map(|(_, stored)| stored);
            self.done = self.ahead.is_none();
        }
        Ok(!self.done)
    }

    /// Bytes of documents that the cursor holds beyond one page: sorted and not yet returned.
    pub fn held_bytes(&self) -> usize {
        self.rows.held_bytes() + self.ahead.as_ref().map_or(0, Vec::capacity)
    }

    /// True when nothing is left.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Iterates over the documents, calling `look` periodically.
    pub fn documents_while<'l>(mut self, look: CancelCheck<'l>) -> impl Iterator<Item = Result<DocBuf>> + 'l {
        std::iter::from_fn(move || self.step(look))
    }

    fn step(&mut self, look: CancelCheck<'_>) -> Option<Result<DocBuf>> {
        match self.next_batch_while(1, usize::MAX, look) {
            Ok(mut batch) => batch.pop().map(Ok),
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }

    /// The snapshot it reads.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Iterator for DocumentCursor {
    type Item = Result<DocBuf>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(&|| Ok(()))
    }
}

impl Documents {
    /// Reads the documents as of `snapshot`, outside any transaction.
    pub fn at<'a>(&self, snapshot: &'a Snapshot) -> DocumentsAt<'a> {
        DocumentsAt { documents: self.clone(), snapshot, caller: None, look: None }
    }
}

impl Collection {
    /// The document with this `_id`, as of the newest commit. Cost: one lookup and the copy of the document.
    ///
    /// # Errors
    /// Damage.
    #[inline]
    pub fn get(&self, id: Value<'_>) -> Result<Option<DocBuf>> {
        let documents = self.documents();
        let Some(collection) = self.newest_id()? else { return Ok(None) };
        KEY.with_borrow_mut(|key| {
            put_document_key(collection, id, key)?;
            let keyspace = documents.model.spaces().documents;
            let copied = |value: Option<&[u8]>| value.map(|value| DocBuf::trusted(value.to_vec()));
            Ok(documents.engine.with_value(keyspace, key, copied)?)
        })
    }

    /// Prepares reads by `_id` that allocate nothing: see [`Getter::get`].
    pub fn getter(&self) -> Getter {
        Getter { collection: self.clone(), key: Vec::with_capacity(64) }
    }

    /// A cursor over the documents that `find` selects, as of the newest commit.
    ///
    /// # Errors
    /// As [`crate::DocumentsRead::find`].
    pub fn find(&self, find: &Find) -> Result<DocumentCursor> {
        self.find_at(self.documents().engine.snapshot(), find)
    }

    /// A cursor over the documents that `find` selects, as of `snapshot`.
    ///
    /// # Errors
    /// As [`crate::DocumentsRead::find`].
    pub fn find_at(&self, snapshot: Snapshot, find: &Find) -> Result<DocumentCursor> {
        self.find_for(None, snapshot, find)
    }

    /// As [`Collection::find_at`], applying the collection's rules for `caller`, if there is one.
    ///
    /// # Errors
    /// As [`crate::DocumentsRead::find`]; [`crate::DocumentsError::Denied`], also later, at a document that the
    /// caller may not list.
    pub fn find_for(
        &self,
        caller: Option<Caller>,
        snapshot: Snapshot,
        find: &Find,
    ) -> Result<DocumentCursor> {
        let documents = self.documents().clone();
        let caller = caller.map(Arc::new);
        let rows = Rows::shown(
            &mut DocumentsAt { documents: documents.clone(), snapshot: &snapshot, caller, look: None },
            self,
            find.clone(),
        )?;
        Ok(DocumentCursor { documents, snapshot, rows, ahead: None, done: false })
    }
}

thread_local! {
    /// Key buffer of reads by `_id`, reused for its capacity.
    static KEY: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Reads by `_id` in place.
pub struct Getter {
    collection: Collection,
    key: Vec<u8>,
}

impl Getter {
    /// The bytes of the document with this `_id` as of `snapshot`, in place. Allocates nothing.
    ///
    /// # Errors
    /// Damage.
    pub fn get<'s>(
        &mut self,
        snapshot: &'s Snapshot,
        id: Value<'_>,
    ) -> Result<Option<ropewalk_engine::Value<'s>>> {
        let read = snapshot.read();
        let Some(definition) = self.collection.definition_at(read)? else { return Ok(None) };
        self.key.clear();
        append_document_key(definition.id, id, &mut self.key)?;
        Ok(read.get(self.collection.documents().model.spaces().documents, &self.key)?)
    }
}
