//! The planner: derives ranges of one index, or of several for `$or`, from a filter and a sort.
//!
//! ```text
//! filter ─▶ candidates: _id, each index that is bounded or provides the sort order, all documents
//!        ─▶ race: count entries of each candidate's ranges, round by round ─▶ the first that ends wins
//! ```
//! The costs are measured: the race counts real entries, as of the snapshot, at most [`RACE_MAX`] of each
//! candidate. When no candidate ends within that, the one that binds more fields wins; one that provides the
//! order is preferred to one that does not.
//!
//! Bounds only narrow: the filter is evaluated again on every document found, so a bad plan can be slow but
//! not wrong.

use std::sync::Arc;

use ropewalk_engine::{Cursor, ReadView};

use crate::catalog::Spaces;
use crate::catalog::definition::{Definition, ID_INDEX, Index, pattern};
use crate::error::{DocumentsError, Result};
use crate::index::entry::KeyRange;
use crate::index::order;
use crate::index::wildcard;
use crate::lang::key::{IndexField, behind};
use crate::lang::{Code, DocBuf, Filter, LangError, Sort, Value, Writer};

/// Most ranges of one plan; further bounds are not used.
const RANGES_MAX: usize = 512;
/// Most entries of a candidate that the race counts.
const RACE_MAX: usize = 1024;
/// Most branches of an `$or` that are planned one by one.
const BRANCHES_MAX: usize = 64;

/// One scan: of an index, or of the documents themselves.
#[derive(Clone)]
pub(crate) struct Part {
    /// `None`: the documents by their `_id`.
    pub(crate) index: Option<Arc<Index>>,
    /// Ascending, disjoint.
    pub(crate) ranges: Vec<KeyRange>,
    /// Of the index's fields, how many the ranges bind.
    pub(crate) bound: usize,
    /// How many of them to single values. Key bytes cannot tell: the end of a type class looks like that of
    /// a value.
    points: usize,
    /// The ranges imply the filter: everything in them matches.
    exact: bool,
    /// The scan is in natural order.
    natural: bool,
    /// Scans the order of a capped collection, not its documents.
    pub(crate) by_order: bool,
    /// Entries that the race counted, and whether those were all.
    pub(crate) counted: Option<(usize, bool)>,
}

/// The data that a query needs of the documents it finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Needs {
    Documents,
    /// Only the values under these paths.
    Paths(Vec<String>),
    /// Only the number of documents.
    Nothing,
}

/// Whether documents are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetch {
    Documents,
    /// The index entries hold all fields that the result and the filter need.
    Entries,
    /// The ranges alone decide, and nothing else is needed.
    Nothing,
}

/// How a query is run.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Several for `$or`, each with the filter of its branch.
    pub(crate) parts: Vec<Part>,
    pub(crate) branches: Option<Arc<Vec<Filter>>>,
    pub(crate) backward: bool,
    /// Documents come in the order of the sort.
    pub(crate) sorted: bool,
    /// Candidates that lost.
    pub(crate) rejected: Vec<Part>,
    pub(crate) fetch: Fetch,
}

impl Plan {
    /// Numbers of the indexes that are used; that of the collection is the index on `_id`.
    pub(crate) fn objects(&self, definition: &Definition) -> impl Iterator<Item = u32> {
        let used = self.parts.iter().filter(|part| !part.is_scan());
        used.map(move |part| part.index.as_ref().map_or(definition.id, |index| index.object))
    }
}

/// Requirements of the query to plan.
pub(crate) struct Wish<'q> {
    pub(crate) filter: &'q Filter,
    pub(crate) sort: Option<&'q Sort>,
    pub(crate) hint: Option<&'q Hint>,
    /// Most documents that the caller needs.
    pub(crate) limit: Option<usize>,
    pub(crate) needs: &'q Needs,
}

/// The index to use, overriding the planner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// By its name; `_id_` is the documents themselves.
    Name(String),
    /// By its fields and directions.
    Fields(Vec<(String, bool)>),
    /// All documents, by `_id`, or in insertion order for a capped collection; true: backward.
    Natural(bool),
}

fn id_field() -> [IndexField; 1] {
    [IndexField { path: "_id".to_owned(), descending: false }]
}

fn everything(definition: &Definition) -> Part {
    let range = match definition.order {
        Some(order) => order::range(order),
        None => crate::query::scan::all(definition),
    };
    let by_order = definition.order.is_some();
    Part {
        index: None,
        ranges: vec![range],
        bound: 0,
        points: 0,
        exact: false,
        natural: true,
        by_order,
        counted: None,
    }
}

impl Part {
    pub(crate) fn is_scan(&self) -> bool {
        self.index.is_none() && self.bound == 0
    }

    /// The key is fully determined: at most one document.
    pub(crate) fn is_point(&self) -> bool {
        self.index.is_none() && self.bound == 1 && (self.ranges.is_empty() || self.fixed() == 1)
    }

    fn fields(&self) -> Vec<IndexField> {
        match &self.index {
            Some(index) => index.fields().to_vec(),
            None if self.by_order => Vec::new(),
            None => id_field().to_vec(),
        }
    }

    /// Whether the scan provides the order of `sort`, and whether it must run backward for that.
    fn order(&self, sort: &Sort) -> Option<bool> {
        if let Some(backward) = sort.natural() {
            return self.natural.then_some(backward);
        }
        let fields = self.fields();
        let multikey = |place: usize| {
            self.index.as_ref().is_some_and(|index| index.multikey.get(place).copied().unwrap_or(false))
        };
        // Fields bound to one value are in any order; they may precede the sort's fields, or be among them.
        let fixed = self.fixed();
        let (bound, free) = fields.split_at_checked(fixed)?;
        let in_order = |path: &str| {
            bound.iter().enumerate().any(|(place, field)| field.path == path && !multikey(place))
        };
        let wanted: Vec<&IndexField> = sort.fields().iter().filter(|field| !in_order(&field.path)).collect();
        let mut backward = None;
        for (place, wanted) in wanted.iter().enumerate() {
            let field = free.get(place)?;
            let reverse = field.descending != wanted.descending;
            if field.path != wanted.path
                || multikey(fixed + place)
                || *backward.get_or_insert(reverse) != reverse
            {
                return None;
            }
        }
        Some(backward.unwrap_or(false))
    }

    /// The data that this scan has to fetch to serve the query.
    fn fetch(&self, wish: &Wish<'_>, sorted: bool) -> Fetch {
        let Some(index) = &self.index else {
            return if self.exact && *wish.needs == Needs::Nothing {
                Fetch::Nothing
            } else {
                Fetch::Documents
            };
        };
        // A document has several entries there; only the document shows which of them is the first.
        if index.is_multikey() {
            return Fetch::Documents;
        }
        let has = |path: &str| path == "_id" || index.fields().iter().any(|field| field.path == path);
        let needed = match wish.needs {
            Needs::Documents => return Fetch::Documents,
            Needs::Nothing if self.exact => return Fetch::Nothing,
            Needs::Nothing => true,
            Needs::Paths(paths) => paths.iter().all(|path| has(path)),
        };
        let asked = wish.filter.paths().is_some_and(|paths| paths.into_iter().all(has));
        let ordered =
            sorted || wish.sort.is_none_or(|sort| sort.fields().iter().all(|field| has(&field.path)));
        if needed && asked && ordered { Fetch::Entries } else { Fetch::Documents }
    }

    /// Leading fields that the only range binds to a single value.
    fn fixed(&self) -> usize {
        if self.ranges.len() == 1 { self.points } else { 0 }
    }
}

/// Key ranges of an index that contain a filter's matches.
struct Ranges {
    ranges: Vec<KeyRange>,
    /// Leading fields that they bind, and how many of those to single values.
    bound: usize,
    points: usize,
    /// The ranges imply the filter.
    exact: bool,
}

/// The ranges of the keys `object | fields…` that `filter` allows.
fn ranges(object: u32, fields: &[IndexField], multikey: &[bool], filter: &Filter) -> Ranges {
    let mut prefixes = vec![object.to_be_bytes().to_vec()];
    let mut bound = 0;
    let mut exact = true;
    let mut array_bound = false;
    let whole = |bound: usize, exact: bool| {
        let paths: Vec<&str> = fields.iter().take(bound).map(|field| field.path.as_str()).collect();
        exact && filter.is_of(&paths)
    };
    for (place, field) in fields.iter().enumerate() {
        let many = multikey.get(place).copied().unwrap_or(false);
        // Two paths through the same array may match in different elements.
        if many && array_bound {
            break;
        }
        let Some(bounds) = filter.bounds(&field.path, many) else { break };
        // Before a further field, a single value must be exact to the last byte.
        let points = bounds.are_points();
        let exactly = bounds.exact;
        let inverted = |bytes: &[u8]| bytes.iter().map(|byte| !byte).collect::<Vec<_>>();
        let mut intervals: Vec<KeyRange> = bounds
            .intervals
            .into_iter()
            .map(|interval| match (field.descending, points) {
                (false, _) => (interval.start, interval.end),
                (true, true) => (inverted(&interval.start), Vec::new()),
                (true, false) => {
                    let turned = interval.descending();
                    (turned.start, turned.end)
                }
            })
            .collect();
        intervals.sort();
        if prefixes.len() * intervals.len().max(1) > RANGES_MAX {
            break;
        }
        array_bound |= many;
        exact &= exactly;
        bound += 1;
        let joined = |prefix: &[u8], tail: &[u8]| [prefix, tail].concat();
        if !points {
            let ranges = prefixes.iter().flat_map(|prefix| {
                intervals.iter().map(move |(start, end)| (joined(prefix, start), joined(prefix, end)))
            });
            let ranges = ranges.filter(|(start, end)| start < end).collect();
            return Ranges { ranges, bound, points: bound - 1, exact: whole(bound, exact) };
        }
        prefixes = prefixes
            .iter()
            .flat_map(|prefix| intervals.iter().map(move |(start, _)| joined(prefix, start)))
            .collect();
    }
    let range = |prefix: Vec<u8>| {
        let end = behind(&prefix);
        (prefix, end)
    };
    let ranges = prefixes.into_iter().map(range).collect();
    Ranges { ranges, bound, points: bound, exact: whole(bound, exact) }
}

/// True when every document that matches `filter` has an entry in the index.
fn covers_filter(index: &Index, filter: &Filter) -> bool {
    if let Some(partial) = &index.partial
        && !filter.implies(partial)
    {
        return false;
    }
    if !index.def.sparse {
        return true;
    }
    // A document without an entry has none of the fields; one field that a match must have is enough.
    index.fields().iter().any(|field| filter.wants_presence(&field.path))
}

fn candidate(definition: &Definition, index: Option<&Arc<Index>>, filter: &Filter) -> Part {
    let found = match index {
        None => ranges(definition.id, &id_field(), &[false], filter),
        Some(index) => ranges(index.object, index.fields(), &index.multikey, filter),
    };
    let Ranges { ranges, bound, points, exact } = found;
    let natural = index.is_none() && definition.order.is_none();
    Part { index: index.cloned(), ranges, bound, points, exact, natural, by_order: false, counted: None }
}

/// The scans of an index that serve the filter: one, or for a wildcard index one for each path.
fn candidates_of(definition: &Definition, index: &Arc<Index>, filter: &Filter) -> Vec<Part> {
    let Some(root) = wildcard::root(index) else { return vec![candidate(definition, Some(index), filter)] };
    let part = |path: &str| {
        let ranges =
            wildcard::ranges(index, root, filter, path).filter(|ranges| ranges.len() <= RANGES_MAX)?;
        let index = Some(index.clone());
        let (natural, by_order) = (false, false);
        Some(Part { index, ranges, bound: 1, points: 0, exact: false, natural, by_order, counted: None })
    };
    filter.bounded_paths().into_iter().filter_map(part).collect()
}

fn usable(index: &Index) -> bool {
    index.ready && !index.def.hidden
}

fn hinted<'d>(definition: &'d Definition, hint: &Hint) -> Result<Option<&'d Arc<Index>>> {
    let same = |fields: &[IndexField], wanted: &[(String, bool)]| {
        fields.len() == wanted.len()
            && fields
                .iter()
                .zip(wanted)
                .all(|(field, (path, descending))| field.path == *path && field.descending == *descending)
    };
    let (found, shown) = match hint {
        Hint::Natural(_) => return Ok(None),
        Hint::Name(name) if name == ID_INDEX => return Ok(None),
        Hint::Fields(wanted) if same(&id_field(), wanted) => return Ok(None),
        Hint::Name(name) => (definition.indexes.iter().find(|index| index.name == *name), name.clone()),
        Hint::Fields(wanted) => {
            let shown = wanted.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>().join(", ");
            (definition.indexes.iter().find(|index| same(index.fields(), wanted)), shown)
        }
    };
    match found {
        Some(index) if usable(index) => Ok(Some(index)),
        _ => Err(refused_hint(definition, &shown)),
    }
}

fn refused_hint(definition: &Definition, index: &str) -> DocumentsError {
    let name = &definition.name;
    let what = format!("hint: collection {name:?} has no index {index:?} that can be used");
    LangError::new(Code::BadValue, what).into()
}

/// `backward` is `None` when the part does not provide the requested order.
fn single(part: Part, backward: Option<bool>, rejected: Vec<Part>, wish: &Wish<'_>) -> Plan {
    let sorted = backward.is_some();
    let fetch = part.fetch(wish, sorted);
    let backward = backward.unwrap_or(false);
    Plan { parts: vec![part], branches: None, backward, sorted, rejected, fetch }
}

/// Chooses a plan for a query.
pub(crate) fn plan(
    definition: &Definition,
    spaces: Spaces,
    read: ReadView<'_>,
    wish: &Wish<'_>,
) -> Result<Plan> {
    let order = |part: &Part| match wish.sort {
        Some(sort) => part.order(sort),
        None => Some(false),
    };
    if let Some(hint) = wish.hint {
        let index = hinted(definition, hint)?;
        let part = match (hint, index) {
            (Hint::Natural(_), _) => everything(definition),
            (_, Some(index)) => candidates_of(definition, index, wish.filter)
                .into_iter()
                .next()
                .ok_or_else(|| refused_hint(definition, index.name()))?,
            (_, None) => candidate(definition, None, wish.filter),
        };
        let backward = match hint {
            Hint::Natural(backward) if wish.sort.is_none() => Some(*backward),
            _ => order(&part),
        };
        if backward.is_none() && wish.sort.is_some_and(|sort| sort.natural().is_some()) {
            let what = "a sort in natural order cannot use a hint of another order".to_owned();
            return Err(DocumentsError::InvalidOptions { what });
        }
        return Ok(single(part, backward, Vec::new(), wish));
    }
    let by_id = candidate(definition, None, wish.filter);
    let natural = wish.sort.is_some_and(|sort| sort.natural().is_some());
    if natural && !by_id.natural && !by_id.is_point() {
        let all = everything(definition);
        let backward = order(&all);
        return Ok(single(all, backward, Vec::new(), wish));
    }
    if by_id.is_point() || natural {
        let backward = order(&by_id);
        return Ok(single(by_id, backward, Vec::new(), wish));
    }
    let mut candidates = Vec::new();
    if by_id.bound > 0 {
        candidates.push(by_id);
    }
    for index in definition.indexes.iter().filter(|index| usable(index)) {
        let useful = |part: &Part| part.bound > 0 || wish.sort.is_some() && order(part).is_some();
        if covers_filter(index, wish.filter) {
            candidates.extend(candidates_of(definition, index, wish.filter).into_iter().filter(useful));
        }
    }
    if candidates.iter().all(|part| part.bound == 0)
        && let Some(plan) = union(definition, spaces, read, wish)?
    {
        return Ok(plan);
    }
    if candidates.iter().all(|part| part.bound == 0) || wish.filter.is_all() {
        candidates.push(everything(definition));
    }
    race(spaces, read, &mut candidates)?;
    let wanted = wish.limit.unwrap_or(usize::MAX);
    let filtered = if wish.filter.is_all() { 0 } else { wish.filter.bounded_paths().len().max(1) };
    let cost = |part: &Part| {
        let (counted, ended) = part.counted.unwrap_or((0, false));
        let ordered = order(part).is_some();
        // With a limit and the order provided, no more than that is read if the bounds are the complete
        // filter.
        let early = wish.sort.is_some() && ordered && wanted < counted && part.bound >= filtered;
        let read = if early { wanted } else { counted };
        let unknown = !ended && !early;
        // Documents are fetched one by one through an index; in `_id` order they are adjacent.
        let fetched = part.index.is_some() && part.fetch(wish, ordered) == Fetch::Documents;
        let each = if fetched { 4 } else { 1 };
        let work = read * each;
        let sorting = if ordered { 0 } else { counted };
        (unknown, work + sorting, usize::MAX - part.bound, !ordered)
    };
    candidates.sort_by_key(|part| {
        let (unknown, work, free, unordered) = cost(part);
        // A candidate that did not end is judged by its bound fields, not by the few counted entries.
        if unknown {
            (true, usize::from(part.is_scan()), free, unordered)
        } else {
            (false, work, free, unordered)
        }
    });
    let mut candidates = candidates.into_iter();
    let best = candidates.next().unwrap_or_else(|| everything(definition));
    let backward = order(&best);
    Ok(single(best, backward, candidates.collect(), wish))
}

/// A plan for each branch of an `$or`; `None` when one of them would read everything.
fn union(
    definition: &Definition,
    spaces: Spaces,
    read: ReadView<'_>,
    wish: &Wish<'_>,
) -> Result<Option<Plan>> {
    let Some(branches) = wish.filter.branches().filter(|branches| branches.len() <= BRANCHES_MAX) else {
        return Ok(None);
    };
    let mut parts = Vec::with_capacity(branches.len());
    for filter in &branches {
        // A nested `$or` within a branch is left to the filter.
        let by_id = candidate(definition, None, filter);
        let mut found = Vec::new();
        if by_id.bound > 0 {
            found.push(by_id);
        }
        for index in definition.indexes.iter().filter(|index| usable(index)) {
            if covers_filter(index, filter) {
                let parts = candidates_of(definition, index, filter);
                found.extend(parts.into_iter().filter(|part| part.bound > 0));
            }
        }
        race(spaces, read, &mut found)?;
        found.sort_by_key(|part| {
            let (counted, ended) = part.counted.unwrap_or((0, false));
            (!ended, if ended { counted } else { 0 }, usize::MAX - part.bound)
        });
        match found.into_iter().next() {
            Some(part) => parts.push(part),
            None => return Ok(None),
        }
    }
    let branches = Some(Arc::new(branches));
    let (sorted, fetch) = (wish.sort.is_none(), Fetch::Documents);
    Ok(Some(Plan { parts, branches, backward: false, sorted, rejected: Vec::new(), fetch }))
}

/// Counts entries of the candidates until one has no more.
fn race(spaces: Spaces, read: ReadView<'_>, candidates: &mut [Part]) -> Result<()> {
    if candidates.len() < 2 {
        return Ok(());
    }
    let mut runners: Vec<Runner<'_>> =
        candidates.iter().map(|part| Runner::new(read.cursor(spaces.documents), part)).collect();
    let mut goal = 16;
    while goal <= RACE_MAX {
        for runner in &mut runners {
            runner.run(goal)?;
        }
        if runners.iter().any(|runner| runner.ended) {
            break;
        }
        goal *= 4;
    }
    let counted: Vec<(usize, bool)> = runners.iter().map(|runner| (runner.counted, runner.ended)).collect();
    for (part, counted) in candidates.iter_mut().zip(counted) {
        part.counted = Some(counted);
    }
    Ok(())
}

struct Runner<'a> {
    cursor: Cursor<'a>,
    ranges: Vec<KeyRange>,
    at: usize,
    placed: bool,
    counted: usize,
    ended: bool,
}

impl<'a> Runner<'a> {
    fn new(cursor: Cursor<'a>, part: &Part) -> Self {
        Self { cursor, ranges: part.ranges.clone(), at: 0, placed: false, counted: 0, ended: false }
    }

    fn run(&mut self, goal: usize) -> Result<()> {
        while self.counted < goal && !self.ended {
            let Some((start, end)) = self.ranges.get(self.at) else {
                self.ended = true;
                break;
            };
            if self.placed {
                self.cursor.next()?;
            } else {
                self.cursor.seek(start)?;
                self.placed = true;
            }
            if self.cursor.valid() && self.cursor.key() < end.as_slice() {
                self.counted += 1;
            } else {
                self.at += 1;
                self.placed = false;
            }
        }
        Ok(())
    }
}

impl Plan {
    /// The plan as a document, in the shape that MongoDB's tools display: `winningPlan`, `rejectedPlans`.
    pub(crate) fn explain(&self, definition: &Definition, sort: Option<&Sort>) -> DocBuf {
        let mut out = Writer::new();
        let namespace = format!("{}.{}", definition.database, definition.name);
        out.put("namespace", Value::String(&namespace));
        out.open_document("winningPlan");
        if sort.is_some() && !self.sorted {
            out.put("stage", Value::String("SORT"));
            out.open_document("inputStage");
            self.put_parts(&mut out);
            out.close();
        } else {
            self.put_parts(&mut out);
        }
        out.close();
        out.open_array("rejectedPlans");
        for (place, part) in self.rejected.iter().enumerate() {
            out.open_document(&place.to_string());
            put_part(&mut out, part, false, Fetch::Documents);
            out.close();
        }
        out.close();
        out.finish()
    }

    fn put_parts(&self, out: &mut Writer) {
        if let [part] = self.parts.as_slice() {
            return put_part(out, part, self.backward, self.fetch);
        }
        out.put("stage", Value::String("OR"));
        out.open_array("inputStages");
        for (place, part) in self.parts.iter().enumerate() {
            out.open_document(&place.to_string());
            put_part(out, part, self.backward, self.fetch);
            out.close();
        }
        out.close();
    }
}

fn put_part(out: &mut Writer, part: &Part, backward: bool, fetch: Fetch) {
    let direction = Value::String(if backward { "backward" } else { "forward" });
    match &part.index {
        None if part.bound == 0 => out.put("stage", Value::String("COLLSCAN")),
        None => out.put("stage", Value::String(if part.is_point() { "IDHACK" } else { "CLUSTERED_IXSCAN" })),
        Some(index) => {
            let (stage, scan) = match fetch {
                Fetch::Documents => ("FETCH", "IXSCAN"),
                Fetch::Entries => ("PROJECTION_COVERED", "IXSCAN"),
                Fetch::Nothing => ("COUNT", "COUNT_SCAN"),
            };
            out.put("stage", Value::String(stage));
            out.open_document("inputStage");
            out.put("stage", Value::String(scan));
            out.put("keyPattern", Value::Document(pattern(index.fields()).doc()));
            out.put("indexName", Value::String(index.name()));
            out.put("isMultiKey", Value::Bool(index.is_multikey()));
            out.put("isUnique", Value::Bool(index.def.unique));
            out.put("isSparse", Value::Bool(index.def.sparse));
            out.put("isPartial", Value::Bool(index.partial.is_some()));
            out.put("direction", direction);
            out.put("ranges", Value::Int32(i32::try_from(part.ranges.len()).unwrap_or(i32::MAX)));
            out.put("boundFields", Value::Int32(i32::try_from(part.bound).unwrap_or(i32::MAX)));
            put_counted(out, part);
            return out.close();
        }
    }
    out.put("direction", direction);
    put_counted(out, part);
}

fn put_counted(out: &mut Writer, part: &Part) {
    if let Some((counted, ended)) = part.counted {
        out.put("entriesCounted", Value::Int64(counted as i64));
        out.put("allCounted", Value::Bool(ended));
    }
}
