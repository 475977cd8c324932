//! Executes a plan page by page. Between two pages only the key to resume from is held, so the same scan
//! serves a cursor over a snapshot and a statement in a transaction.
//!
//! A document has several entries in a multikey index. The scan returns it only at the first entry within
//! its ranges, in scan direction. That check needs the document, which is fetched anyway, and no memory of
//! earlier results. Likewise a document that matches several branches of an `$or` is returned by the first
//! of them.
//!
//! A page ends after some documents even if none of them matches, and before each page the source is asked
//! whether the query may continue. So timeouts, disconnects and shutdown end a query, however little it
//! finds.
//!
//! An index that is not multikey and holds all needed fields serves the query without the documents
//! ([`Fetch`]).

use std::sync::Arc;

use ropewalk_engine::KeySpan;

use crate::catalog::definition::{Definition, Index};
use crate::catalog::object_range;
use crate::error::{DocumentsError, Result};
use crate::index::entry::KeyRange;
use crate::index::entry::{document_of, entries, id_part, restored};
use crate::index::order;
use crate::lang::{Doc, DocBuf, Filter};
use crate::query::plan::{Fetch, Part, Plan};
use crate::rules::{Access, Caller};
use crate::transaction::source::Source;

/// Entries resolved to documents at a time, for the first page and for later ones.
const PAGE_FIRST: usize = 16;
const PAGE: usize = 256;
/// Bytes of documents of one page, about.
const PAGE_BYTES: usize = 1 << 20;
/// Most documents that one page examines, and their bytes, when few of them match.
const LOOKED: usize = 4 * PAGE;
const LOOKED_BYTES: usize = 4 * PAGE_BYTES;

/// A document on its way: key and bytes.
pub(crate) type Found = (Vec<u8>, Vec<u8>);

/// A scan in progress.
pub(crate) struct Scan {
    definition: Arc<Definition>,
    plan: Plan,
    filter: Arc<Filter>,
    part: usize,
    /// Ordinal of the range within the part, counted in scan direction.
    range: usize,
    /// Key to resume from within the range: the successor of the last key seen (backward: that key itself,
    /// excluded).
    resume: Option<Vec<u8>>,
    page: usize,
    /// Omits documents that this caller may not list, before the filter is evaluated.
    hidden_from: Option<Arc<Caller>>,
    /// Entries and documents examined.
    pub(crate) keys_examined: u64,
    pub(crate) documents_examined: u64,
}

/// One page of keys: the documents found, and whether the range continues.
struct Page {
    found: Vec<Found>,
    more: bool,
}

impl Scan {
    pub(crate) fn new(definition: Arc<Definition>, plan: Plan, filter: Arc<Filter>) -> Self {
        debug_assert!(
            plan.parts.iter().all(|part| part.ranges.is_sorted_by(|a, b| a.1 <= b.0)),
            "ranges are sorted and do not overlap"
        );
        debug_assert!(plan.branches.as_ref().is_none_or(|branches| branches.len() == plan.parts.len()));
        Self {
            definition,
            plan,
            filter,
            part: 0,
            range: 0,
            resume: None,
            page: PAGE_FIRST,
            hidden_from: None,
            keys_examined: 0,
            documents_examined: 0,
        }
    }

    pub(crate) fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The next matching documents, possibly none; `None` at the end.
    pub(crate) fn next_page(&mut self, source: &mut dyn Source) -> Result<Option<Vec<Found>>> {
        let Some(part) = self.plan.parts.get(self.part) else { return Ok(None) };
        let place =
            if self.plan.backward { part.ranges.len().checked_sub(self.range + 1) } else { Some(self.range) };
        let Some((start, end)) = place.and_then(|place| part.ranges.get(place)) else {
            self.part += 1;
            self.range = 0;
            return Ok(Some(Vec::new()));
        };
        if part.is_point() {
            let key = start.clone();
            self.range += 1;
            return Ok(Some(self.point(source, key)?));
        }
        source.look()?;
        let (from, to) = match (&self.resume, self.plan.backward) {
            (None, _) => (start.clone(), end.clone()),
            (Some(resume), false) => (resume.clone(), end.clone()),
            (Some(resume), true) => (start.clone(), resume.clone()),
        };
        let part = part.clone();
        let page = match &part.index {
            None if part.by_order => self.in_order(source, &from, &to)?,
            None => self.documents(source, &from, &to)?,
            Some(index) => self.entries(source, index, &part, &from, &to)?,
        };
        if page.more {
            let resume = self.resume.as_ref().expect("a page that is not the last has a last key");
            let moves = if self.plan.backward { *resume < to } else { from < *resume };
            assert!(moves, "a scan continues after the page that it has read");
            self.page = PAGE;
        } else {
            self.resume = None;
            self.range += 1;
        }
        Ok(Some(page.found))
    }

    /// Omits documents that the rules do not let `caller` list.
    pub(crate) fn hide_from(&mut self, caller: Arc<Caller>) {
        self.hidden_from = Some(caller);
    }

    /// Whether the filter may be evaluated on the document: its errors, too, reveal values.
    fn is_visible(&self, doc: Doc<'_>, now_ms: i64) -> bool {
        self.hidden_from.as_deref().is_none_or(|caller| {
            self.definition.check_access(Some(caller), Access::List, (Some(doc), None), now_ms).is_ok()
        })
    }

    /// The filter for the documents of this part.
    fn matches(&self, doc: Doc<'_>, now_ms: i64) -> Result<bool> {
        if !self.is_visible(doc, now_ms) {
            return Ok(false);
        }
        let Some(branches) = &self.plan.branches else { return Ok(self.filter.matches(doc)?) };
        for (place, branch) in branches.iter().enumerate().take(self.part + 1) {
            if branch.matches(doc)? {
                return Ok(place == self.part);
            }
        }
        Ok(false)
    }

    /// The document of a key that the filter determines: one lookup instead of a cursor and a guarded range.
    fn point(&mut self, source: &mut dyn Source, key: Vec<u8>) -> Result<Vec<Found>> {
        let Some(stored) = source.fetch(&key)? else { return Ok(Vec::new()) };
        self.keys_examined += 1;
        self.documents_examined += 1;
        let now_ms = source.documents().now_ms();
        Ok(match self.matches(Doc::trusted(&stored), now_ms)? {
            false => Vec::new(),
            true if self.plan.fetch == Fetch::Nothing => vec![(Vec::new(), Vec::new())],
            true => vec![(key, stored)],
        })
    }

    fn documents(&mut self, source: &mut dyn Source, from: &[u8], to: &[u8]) -> Result<Page> {
        let (mut found, mut bytes, mut looked, mut looked_bytes) = (Vec::new(), 0, 0_usize, 0);
        let (mut failure, mut last) = (None, None);
        let backward = self.plan.backward;
        let (this, now_ms) = (&*self, source.documents().now_ms());
        source.walk(KeySpan { start: from, end: Some(to), backward }, &mut |key, value| {
            looked += 1;
            looked_bytes += value.len();
            match this.matches(Doc::trusted(value), now_ms) {
                Ok(true) if this.plan.fetch == Fetch::Nothing => found.push((Vec::new(), Vec::new())),
                Ok(true) => {
                    bytes += value.len();
                    found.push((key.to_vec(), value.to_vec()));
                }
                Ok(false) => {}
                Err(error) => {
                    failure = Some(error);
                    return false;
                }
            }
            let goes_on = found.len() < this.page
                && bytes < PAGE_BYTES
                && looked < LOOKED
                && looked_bytes < LOOKED_BYTES;
            if !goes_on {
                last = Some(key.to_vec());
            }
            goes_on
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        self.keys_examined += looked as u64;
        self.documents_examined += looked as u64;
        let more = last.is_some();
        self.resume = last.map(|key| behind(key, backward));
        Ok(Page { found, more })
    }

    /// The documents of a capped collection in insertion order.
    fn in_order(&mut self, source: &mut dyn Source, from: &[u8], to: &[u8]) -> Result<Page> {
        let (backward, mut seen) = (self.plan.backward, Vec::new());
        source.walk(KeySpan { start: from, end: Some(to), backward }, &mut |key, id| {
            seen.push((key.to_vec(), order::document_of(&self.definition, id)));
            seen.len() < self.page
        })?;
        let mut more = seen.len() == self.page;
        self.keys_examined += seen.len() as u64;
        let (mut found, mut bytes, mut last) = (Vec::new(), 0, None);
        let now_ms = source.documents().now_ms();
        for (key, document) in seen {
            let Some(stored) = source.fetch(&document)? else {
                let place = format!("collection {:?}", self.definition.name);
                return Err(DocumentsError::damaged(place, "its order refers to a missing document"));
            };
            self.documents_examined += 1;
            last = Some(key);
            if self.matches(Doc::trusted(&stored), now_ms)? {
                bytes += stored.len();
                found.push((document, stored));
                if bytes >= PAGE_BYTES {
                    more = true;
                    break;
                }
            }
        }
        self.resume = last.filter(|_| more).map(|key| behind(key, backward));
        Ok(Page { found, more })
    }

    fn entries(
        &mut self,
        source: &mut dyn Source,
        index: &Arc<Index>,
        part: &Part,
        from: &[u8],
        to: &[u8],
    ) -> Result<Page> {
        let backward = self.plan.backward;
        let mut seen = Vec::new();
        source.walk(KeySpan { start: from, end: Some(to), backward }, &mut |key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            seen.len() < self.page
        })?;
        let more = seen.len() == self.page;
        self.keys_examined += seen.len() as u64;
        let (mut found, mut bytes) = (Vec::new(), 0);
        let (mut stopped, now_ms) = (None, source.documents().now_ms());
        for (key, value) in &seen {
            let document = document_of(&self.definition, index, key, value)?;
            if let Some(shown) = self.without_document(index, key, value) {
                if self.plan.fetch == Fetch::Nothing || self.matches(Doc::trusted(&shown), now_ms)? {
                    found.push((document, shown));
                }
                continue;
            }
            let Some(stored) = source.fetch(&document)? else {
                let place = format!("collection {:?}, index {:?}", self.definition.name, index.name);
                return Err(DocumentsError::damaged(place, "an entry refers to a missing document"));
            };
            self.documents_examined += 1;
            let doc = Doc::trusted(&stored);
            if self.matches(doc, now_ms)? && self.is_first(index, part, doc, &document, key)? {
                bytes += stored.len();
                found.push((document, stored));
                if bytes >= PAGE_BYTES {
                    stopped = Some(key.clone());
                    break;
                }
            }
        }
        let more = more || stopped.is_some();
        let last = stopped.or_else(|| seen.pop().map(|(key, _)| key));
        self.resume = last.filter(|_| more).map(|key| behind(key, backward));
        Ok(Page { found, more })
    }

    /// The document restored from the entry alone, if the entry has all that is needed.
    fn without_document(&self, index: &Index, key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        match self.plan.fetch {
            Fetch::Documents => None,
            Fetch::Entries => restored(index, key, value).map(DocBuf::into_bytes),
            Fetch::Nothing => Some(Vec::new()),
        }
    }

    /// Whether `key` is the first of the document's entries in scan direction.
    fn is_first(
        &self,
        index: &Index,
        part: &Part,
        doc: Doc<'_>,
        document: &[u8],
        key: &[u8],
    ) -> Result<bool> {
        if !index.is_multikey() {
            return Ok(true);
        }
        let entries = entries(&self.definition, index, doc, id_part(document))?.entries;
        let walked = |entry: &&crate::index::entry::Entry| within(&part.ranges, &entry.key);
        let first =
            if self.plan.backward { entries.iter().rev().find(walked) } else { entries.iter().find(walked) };
        Ok(first.is_none_or(|entry| entry.key == key))
    }
}

/// The key from which a scan that has seen `key` resumes.
pub(crate) fn behind(mut key: Vec<u8>, backward: bool) -> Vec<u8> {
    if !backward {
        key.push(0);
    }
    key
}

fn within(ranges: &[KeyRange], key: &[u8]) -> bool {
    let place = ranges.partition_point(|(start, _)| start.as_slice() <= key);
    place.checked_sub(1).and_then(|place| ranges.get(place)).is_some_and(|(_, end)| key < end.as_slice())
}

/// All keys of a collection's documents.
pub(crate) fn all(definition: &Definition) -> KeyRange {
    let (start, end) = object_range(definition.id);
    (start.to_vec(), end.to_vec())
}
