//! Reading documents, in a transaction or at a snapshot.
//!
//! ```text
//! Find: filter, sort, projection, skip, limit, hint ─▶ plan ─▶ Rows ─▶ scan ─▶ sort if need be ─▶ skip, limit ─▶ projection
//! ```
//! Memory is bounded: a scan holds one page; a sort without an index holds at most [`SORT_BYTES_MAX`], or as
//! many documents as the limit requires.

use std::collections::BinaryHeap;
use std::sync::Arc;

use ropewalk_engine::KeySpan;

use crate::catalog::definition::Definition;
use crate::error::{DocumentsError, Result};
use crate::index::entry::document_key;
use crate::lang::budget::Held;
use crate::lang::{self, Doc, DocBuf, Filter, Owned, Projection, Sort, Value, Writer};
use crate::model::handle::Collection;
use crate::query::plan::{Hint, Needs, Wish, plan};
use crate::query::scan::{Found, Scan};
use crate::rules::{Access, Caller};
use crate::transaction::source::Source;

/// Most bytes that a sort without an index holds.
pub const SORT_BYTES_MAX: usize = 100 << 20;
/// Keys counted between two checks whether the query may continue.
const KEYS_PER_LOOK: u64 = 2 << 10;
/// Most bytes of the result of `distinct`, as of any document.
const DISTINCT_BYTES_MAX: usize = 16 << 20;
/// Memory of an entry of its tree, whose capacity may be twice its length.
const DISTINCT_ENTRY_BYTES: usize = 2 * size_of::<(Vec<u8>, Owned)>() + 16;

/// A query.
#[derive(Clone)]
pub struct Find {
    pub(crate) filter: Arc<Filter>,
    pub(crate) sort: Option<Arc<Sort>>,
    pub(crate) projection: Option<Arc<Projection>>,
    pub(crate) skip: usize,
    pub(crate) limit: Option<usize>,
    pub(crate) hint: Option<Hint>,
}

impl Default for Find {
    fn default() -> Self {
        Self::all()
    }
}

impl Find {
    /// Every document.
    pub fn all() -> Self {
        Self::matching(Filter::all())
    }

    /// The documents that match.
    pub fn matching(filter: Filter) -> Self {
        Self::shared(Arc::new(filter))
    }

    pub(crate) fn shared(filter: Arc<Filter>) -> Self {
        Self { filter, sort: None, projection: None, skip: 0, limit: None, hint: None }
    }

    /// The documents that match `filter`, such as `{ age: { $gt: 30 } }`.
    ///
    /// # Errors
    /// A document that is not a valid filter.
    pub fn filter(filter: Doc<'_>) -> Result<Self> {
        Ok(Self::matching(Filter::parse(filter, &lang::Options::default())?))
    }

    /// Sorts by `sort`.
    #[must_use]
    pub fn sort(mut self, sort: Sort) -> Self {
        self.sort = Some(Arc::new(sort));
        self
    }

    /// Returns only these fields.
    #[must_use]
    pub fn project(mut self, projection: Projection) -> Self {
        self.projection = Some(Arc::new(projection));
        self
    }

    /// Skips the first documents.
    #[must_use]
    pub fn skip(mut self, documents: usize) -> Self {
        self.skip = documents;
        self
    }

    /// True when the query depends on `_id`s alone: the filter is empty or names one `_id`, and the order is
    /// the natural one.
    pub(crate) fn depends_on_ids_alone(&self) -> bool {
        let natural = matches!(self.hint, None | Some(Hint::Natural(_)));
        natural && self.sort.is_none() && (self.filter.is_all() || self.filter.only_id().is_some())
    }

    /// Returns at most so many documents.
    #[must_use]
    pub fn limit(mut self, documents: usize) -> Self {
        self.limit = Some(documents);
        self
    }

    /// Uses this index.
    #[must_use]
    pub fn hint(mut self, hint: Hint) -> Self {
        self.hint = Some(hint);
        self
    }

    fn wanted(&self) -> Option<usize> {
        self.limit.map(|limit| limit.saturating_add(self.skip))
    }
}

/// A query in progress: returns documents page by page.
pub(crate) struct Rows {
    find: Find,
    /// `None`: the collection does not exist.
    scan: Option<Scan>,
    /// Documents ready to be returned, in order.
    ready: std::vec::IntoIter<Found>,
    /// The first page was read.
    begun: bool,
    sorted: bool,
    skipped: usize,
    given: usize,
    /// The caller who must be allowed to list every document found.
    caller: Option<Arc<Caller>>,
    /// Memory of sorted documents that have not been returned.
    held: Option<Held>,
}

/// Memory of a document in a list that is sorted, in addition to its bytes, its key and its sort key.
const SORTED_BYTES: usize = 2 * size_of::<(Vec<u8>, u64, Found)>();

impl Rows {
    /// Complete documents, without regard to the caller's rules; for internal checks.
    pub(crate) fn new(source: &mut dyn Source, collection: &Collection, find: Find) -> Result<Self> {
        Self::open(source, collection, find, &Needs::Documents)
    }

    /// Complete documents, for statements that write: these check the rules for the write itself.
    pub(crate) fn to_write(source: &mut dyn Source, collection: &Collection, find: Find) -> Result<Self> {
        let mut rows = Self::open(source, collection, find, &Needs::Documents)?;
        if !rows.find.depends_on_ids_alone() {
            rows.hide(source);
        }
        Ok(rows)
    }

    /// Leaves out the documents that the caller, if there is one, may not list.
    fn hide(&mut self, source: &dyn Source) {
        if let (Some(scan), Some(caller)) = (&mut self.scan, source.caller()) {
            scan.hide_from(caller.clone());
        }
    }

    /// Rows as the query returns them: documents have the fields of the projection, and may lack others.
    pub(crate) fn shown(source: &mut dyn Source, collection: &Collection, find: Find) -> Result<Self> {
        let only = find.projection.as_ref().and_then(|projection| projection.only());
        Self::needing(source, collection, find, &only.map_or(Needs::Documents, Needs::Paths))
    }

    /// Rows with the fields in `needs`, filtered by the caller's rules.
    fn needing(source: &mut dyn Source, collection: &Collection, find: Find, needs: &Needs) -> Result<Self> {
        let caller = source.caller().cloned();
        let definition = source.definition_of(collection)?;
        if caller.is_none() || definition.is_none_or(|definition| definition.rules.is_none()) {
            return Self::open(source, collection, find, needs);
        }
        // Rules are evaluated on complete documents.
        let mut rows = Self::open(source, collection, find, &Needs::Documents)?;
        match rows.find.depends_on_ids_alone() {
            true => rows.caller = caller,
            // An error would reveal whether a hidden document has the values that the query selects.
            false => rows.hide(source),
        }
        Ok(rows)
    }

    fn open(source: &mut dyn Source, collection: &Collection, find: Find, needs: &Needs) -> Result<Self> {
        let definition = source.definition_of(collection)?;
        let scan = match definition {
            Some(definition) => Some(open(source, definition, &find, needs)?),
            None => None,
        };
        let ready = Vec::new().into_iter();
        Ok(Self {
            find,
            scan,
            ready,
            begun: false,
            sorted: false,
            skipped: 0,
            given: 0,
            caller: None,
            held: None,
        })
    }

    /// Bytes of sorted documents that have not been returned.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, Held::bytes)
    }

    pub(crate) fn scan(&self) -> Option<&Scan> {
        self.scan.as_ref()
    }

    /// The next document as stored: key and bytes.
    pub(crate) fn next(&mut self, source: &mut dyn Source) -> Result<Option<Found>> {
        loop {
            if self.find.limit.is_some_and(|limit| self.given >= limit) {
                return Ok(None);
            }
            if let Some(found) = self.ready.next() {
                if let Some(held) = &self.held {
                    held.give_back(found.0.len() + found.1.len());
                }
                if let (Some(caller), Some(scan)) = (&self.caller, &self.scan) {
                    let stored = Some(Doc::trusted(&found.1));
                    let now_ms = source.documents().now_ms();
                    scan.definition().check_access(Some(caller), Access::List, (stored, None), now_ms)?;
                }
                if self.skipped < self.find.skip {
                    self.skipped += 1;
                    continue;
                }
                self.given += 1;
                return Ok(Some(found));
            }
            let Some(scan) = &mut self.scan else { return Ok(None) };
            if !std::mem::replace(&mut self.begun, true) {
                let uses = &source.documents().model.uses;
                scan.plan().objects(scan.definition()).for_each(|object| uses.add(object));
            }
            let page = match &self.find.sort {
                Some(sort) if !scan.plan().sorted => {
                    if std::mem::replace(&mut self.sorted, true) {
                        return Ok(None);
                    }
                    let (found, held) = sorted(source, scan, sort, self.find.wanted())?;
                    self.held = Some(held);
                    Some(found)
                }
                _ => scan.next_page(source)?,
            };
            match page {
                Some(page) => self.ready = page.into_iter(),
                None => return Ok(None),
            }
        }
    }

    /// Applies the query's projection to a stored document.
    pub(crate) fn project(&self, stored: Vec<u8>) -> Result<DocBuf> {
        match &self.find.projection {
            Some(projection) => Ok(projection.apply(Doc::trusted(&stored), Some(&self.find.filter))?),
            None => Ok(DocBuf::trusted(stored)),
        }
    }
}

fn open(source: &mut dyn Source, definition: Arc<Definition>, find: &Find, needs: &Needs) -> Result<Scan> {
    let wish = Wish {
        filter: &find.filter,
        sort: find.sort.as_deref(),
        hint: find.hint.as_ref(),
        limit: find.wanted(),
        needs,
    };
    let spaces = source.documents().model.spaces();
    let plan = plan(&definition, spaces, source.reading().view(), &wish)?;
    Ok(Scan::new(definition, plan, find.filter.clone()))
}

/// All documents in the order of `sort`; with a limit, only the first `limit` are held.
fn sorted(
    source: &mut dyn Source,
    scan: &mut Scan,
    sort: &Sort,
    wanted: Option<usize>,
) -> Result<(Vec<Found>, Held)> {
    // A max-heap: the greatest is dropped when there are too many. The number preserves the scan's order
    // among equals.
    let mut heap: BinaryHeap<(Vec<u8>, u64, Found)> = BinaryHeap::new();
    let mut rows: Vec<(Vec<u8>, u64, Found)> = Vec::new();
    let (held, mut number) = (lang::budget::held("a sort"), 0_u64);
    while let Some(page) = scan.next_page(source)? {
        for (document, stored) in page {
            let mut key = sort.key(Doc::trusted(&stored))?;
            key.shrink_to_fit();
            let size = |row: &(Vec<u8>, u64, Found)| {
                row.0.len() + row.2.0.capacity() + row.2.1.capacity() + SORTED_BYTES
            };
            let row = (key, number, (document, stored));
            number += 1;
            held.take(size(&row))?;
            match wanted {
                Some(wanted) => {
                    heap.push(row);
                    if heap.len() > wanted
                        && let Some(dropped) = heap.pop()
                    {
                        held.give_back(size(&dropped));
                    }
                }
                None => rows.push(row),
            }
            if held.bytes() > SORT_BYTES_MAX {
                return Err(DocumentsError::SortMemory { max: SORT_BYTES_MAX });
            }
        }
    }
    let rows = if wanted.is_some() {
        heap.into_sorted_vec()
    } else {
        rows.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        rows
    };
    let found: Vec<Found> = rows.into_iter().map(|(_, _, found)| found).collect();
    Ok((found, held))
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::query::snapshot_reads::DocumentsAt<'_> {}
    impl Sealed for crate::transaction::tx::DocumentsTx<'_> {}
}

/// Reads common to transactions and snapshots. A transaction sees its own writes, and its reads count for
/// its isolation. A collection that does not exist reads as empty.
#[allow(private_bounds)] // the trait is sealed
pub trait DocumentsRead: sealed::Sealed + Source + Sized {
    /// The document with this `_id`.
    ///
    /// # Errors
    /// Damage.
    fn get(&mut self, collection: &Collection, id: Value<'_>) -> Result<Option<DocBuf>> {
        self.begin();
        let Some(definition) = self.definition_of(collection)? else { return Ok(None) };
        let key = document_key(definition.id, id)?;
        let found = self.fetch(&key)?.map(DocBuf::trusted);
        let stored = found.as_ref().map(DocBuf::doc);
        let caller = self.caller().cloned();
        definition.check_access(
            caller.as_deref(),
            Access::Read,
            (stored, None),
            self.documents().now_ms(),
        )?;
        Ok(found)
    }

    /// The documents that `find` selects.
    ///
    /// # Errors
    /// A filter, sort or projection that does not fit a document; an unknown hint; a sort that takes too much
    /// memory; damage.
    fn find(&mut self, collection: &Collection, find: &Find) -> Result<Vec<DocBuf>> {
        self.begin();
        let mut rows = Rows::shown(self, collection, find.clone())?;
        let mut documents = Vec::new();
        while let Some((_, stored)) = rows.next(self)? {
            documents.push(rows.project(stored)?);
        }
        Ok(documents)
    }

    /// The first document that `find` selects.
    ///
    /// # Errors
    /// As [`DocumentsRead::find`].
    fn find_one(&mut self, collection: &Collection, find: &Find) -> Result<Option<DocBuf>> {
        Ok(self.find(collection, &find.clone().limit(1))?.pop())
    }

    /// Passes the documents that `find` selects to `each`, one by one, until it returns false.
    ///
    /// # Errors
    /// As [`DocumentsRead::find`]; the errors of `each`.
    fn visit(
        &mut self,
        collection: &Collection,
        find: &Find,
        each: &mut dyn FnMut(DocBuf) -> Result<bool>,
    ) -> Result<()> {
        self.begin();
        let mut rows = Rows::shown(self, collection, find.clone())?;
        while let Some((_, stored)) = rows.next(self)? {
            if !each(rows.project(stored)?)? {
                break;
            }
        }
        Ok(())
    }

    /// The number of documents that `find` selects, skip and limit included.
    ///
    /// # Errors
    /// As [`DocumentsRead::find`].
    fn count(&mut self, collection: &Collection, find: &Find) -> Result<u64> {
        self.begin();
        let Some(definition) = self.definition_of(collection)? else { return Ok(0) };
        let mut count = 0_u64;
        let asked = self.caller().is_some() && definition.rules.is_some();
        if find.filter.is_all() && find.hint.is_none() && !asked {
            let (start, end) = crate::query::scan::all(&definition);
            let wanted = find.wanted().map_or(u64::MAX, |wanted| wanted as u64);
            let (mut from, mut more) = (start, wanted > 0);
            while more {
                self.look()?;
                let (until, mut last) = (wanted.min(count.saturating_add(KEYS_PER_LOOK)), None);
                self.walk(KeySpan::forward(&from, Some(&end)), &mut |key, _| {
                    count += 1;
                    if count == until {
                        last = Some(key.to_vec());
                    }
                    count < until
                })?;
                more = count < wanted && last.is_some();
                if let Some(last) = last {
                    from = crate::query::scan::behind(last, false);
                }
            }
            // More may be skipped than there are.
            return Ok(count.saturating_sub(find.skip as u64));
        }
        let unsorted = Find { sort: None, projection: None, ..find.clone() };
        let mut rows = Rows::needing(self, collection, unsorted, &Needs::Nothing)?;
        while rows.next(self)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// The distinct values under `path`, elements of arrays one by one, in value order.
    ///
    /// # Errors
    /// As [`DocumentsRead::find`]; more than 16 MiB of values.
    fn distinct(&mut self, collection: &Collection, path: &str, filter: &Filter) -> Result<Vec<Owned>>
    where
        Self: Sized,
    {
        self.begin();
        let find = Find::shared(Arc::new(filter.clone()));
        // An index on the path provides the values without the documents.
        let mut rows = Rows::needing(self, collection, find, &Needs::Paths(vec![path.to_owned()]))?;
        let mut values = std::collections::BTreeMap::new();
        let (held, mut bytes) = (lang::budget::held("distinct"), 0);
        while let Some((_, stored)) = rows.next(self)? {
            lang::path::each_at(Doc::trusted(&stored), path, &mut |value| {
                lang::budget::byte_steps(value.payload_bytes())?;
                let key = lang::key::key_of(value);
                let size = key.len();
                if bytes <= DISTINCT_BYTES_MAX
                    && let std::collections::btree_map::Entry::Vacant(free) = values.entry(key)
                {
                    let value = Owned::from(value);
                    held.take(DISTINCT_ENTRY_BYTES + size + value.bytes())?;
                    free.insert(value);
                    bytes += size;
                }
                Ok(())
            })?;
            if bytes > DISTINCT_BYTES_MAX {
                let max = DISTINCT_BYTES_MAX;
                return Err(DocumentsError::TooLarge { what: "distinct", bytes, max });
            }
        }
        Ok(values.into_values().collect())
    }

    /// The plan of `find`, as a document; with `run` also execution statistics.
    ///
    /// # Errors
    /// As [`DocumentsRead::find`].
    fn explain(&mut self, collection: &Collection, find: &Find, run: bool) -> Result<DocBuf> {
        self.begin();
        let rows = Rows::shown(self, collection, find.clone())?;
        explained(self, collection, find, run, rows)
    }

    /// The plan of [`DocumentsRead::count`], in the same shape.
    ///
    /// # Errors
    /// As [`DocumentsRead::find`].
    fn explain_count(&mut self, collection: &Collection, find: &Find, run: bool) -> Result<DocBuf> {
        self.begin();
        let unsorted = Find { sort: None, projection: None, ..find.clone() };
        let rows = Rows::needing(self, collection, unsorted.clone(), &Needs::Nothing)?;
        explained(self, collection, &unsorted, run, rows)
    }
}

fn explained(
    source: &mut dyn Source,
    collection: &Collection,
    find: &Find,
    run: bool,
    mut rows: Rows,
) -> Result<DocBuf> {
    // Plans and counts would reveal documents that the rules hide.
    if let Some(definition) = source.definition_of(collection)?
        && definition.rules.is_some()
        && source.caller().is_some()
    {
        return Err(DocumentsError::Denied { collection: definition.name.clone(), access: "explain" });
    }
    let mut returned = 0_i64;
    if run {
        while rows.next(source)?.is_some() {
            returned += 1;
        }
    }
    let mut out = Writer::new();
    out.open_document("queryPlanner");
    let planned = match rows.scan() {
        Some(scan) => scan.plan().explain(scan.definition(), find.sort.as_deref()),
        None => {
            let mut none = Writer::new();
            let namespace = format!("{}.{}", collection.database(), collection.name());
            none.put("namespace", Value::String(&namespace));
            none.open_document("winningPlan");
            none.put("stage", Value::String("EOF"));
            none.close();
            none.open_array("rejectedPlans");
            none.close();
            none.finish()
        }
    };
    planned.doc().iter().for_each(|(name, value)| out.put(name, value));
    out.close();
    if run {
        let examined = rows.scan().map_or((0, 0), |scan| (scan.keys_examined, scan.documents_examined));
        out.open_document("executionStats");
        out.put("executionSuccess", Value::Bool(true));
        out.put("nReturned", Value::Int64(returned));
        out.put("totalKeysExamined", Value::Int64(examined.0 as i64));
        out.put("totalDocsExamined", Value::Int64(examined.1 as i64));
        out.close();
    }
    Ok(out.finish())
}

impl DocumentsRead for crate::query::snapshot_reads::DocumentsAt<'_> {}
impl DocumentsRead for crate::transaction::tx::DocumentsTx<'_> {}
