//! Event stores and tables as collections of the database `ropewalk`: find, insert, listCollections.
//!
//! ```text
//! events.STORE   _id: position │ seq │ recordedAt │ type │ tags │ id │ metadata │ tracking │ data
//! tables.TABLE   _id: primary key │ columns          tables.SCHEMA.TABLE outside of `public`
//!
//! filter ─▶ types, tags, positions; keys ─▶ events or rows of one snapshot ─▶ documents ─▶ state::made
//! ```
//! The part of the filter that selects events or rows may select more than match: every document is tested
//! against the whole filter.
//!
//! Not here: changes of rows and definitions. They are statements of SQL.

mod events;
mod rows;

use ropewalk::documents::lang::{Doc, DocBuf, Projection, Sort, Value, Writer};
use ropewalk::tables::shown;
use ropewalk::{Snapshot, Transaction};
use ropewalk_auth::Right;
use ropewalk_sql::{hide_rebuilds, is_system_table};

use crate::call::{Call, RESERVED};
use crate::crud::definitions::{LIST_FIELDS, listed};
use crate::crud::read::{FIND_FIELDS, FIRST_BATCH, Ready, first_batch};
use crate::crud::write::{sort, statements};
use crate::models::change::Change;
use crate::models::sql::failed;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::cursors::Source;
use crate::state::guard::{Guard, Needs};
use crate::state::made::{Chosen, Each, Feed, Made};

/// Prefixes of names of collections.
const EVENTS: &str = "events.";
const TABLES: &str = "tables.";
/// Events or rows between two checks for cancellation.
const AT_ONCE: usize = 256;

/// The object that a collection's name denotes.
enum Named<'a> {
    /// An event store.
    Events(&'a str),
    /// A table, with its schema unless that is `public`.
    Table(&'a str),
}

impl<'a> Named<'a> {
    fn parse(name: &'a str) -> Outcome<Self> {
        match (name.strip_prefix(EVENTS), name.strip_prefix(TABLES)) {
            (Some(store), _) if !store.is_empty() => Ok(Self::Events(store)),
            (_, Some(table)) if !table.is_empty() => Ok(Self::Table(table)),
            _ => {
                let message =
                    format!("collection {name:?}: the database {RESERVED} has events.STORE and tables.TABLE");
                Err(Failure::new(Code::InvalidNamespace, message))
            }
        }
    }

    /// The rights and the condition of its cursors.
    fn needs(&self) -> (Option<&'a str>, Needs) {
        match self {
            Self::Events(store) => (Some(store), Needs::Events((*store).to_owned())),
            Self::Table(_) => (None, Needs::Rows),
        }
    }
}

/// The events or rows that a query reads.
enum Scan<'a> {
    Events(events::Scan),
    Rows(rows::Scan<'a>),
}

impl Scan<'_> {
    /// In the transaction, with its writes.
    fn within(&self, tx: &mut Transaction, each: Each<'_>) -> Outcome<()> {
        match self {
            Self::Events(scan) => {
                let (mut feed, mut more) = (scan.within(tx)?, true);
                while more
                    && feed.next(&mut |document| {
                        more = each(document)?;
                        Ok(more)
                    })?
                {}
                Ok(())
            }
            Self::Rows(scan) => scan.within(tx, each),
        }
    }

    /// At a snapshot.
    fn at(self, call: &Call<'_>, snapshot: Snapshot) -> Outcome<Box<dyn Feed>> {
        Ok(match self {
            Self::Events(scan) => Box::new(scan.at(&snapshot)?),
            Self::Rows(scan) => Box::new(scan.at(call.shared.service.database(), snapshot)?),
        })
    }
}

/// `find`
pub(crate) fn find(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(FIND_FIELDS)?;
    call.args.not_offered(&[
        "hint",
        "max",
        "min",
        "returnKey",
        "showRecordId",
        "oplogReplay",
        "tailable",
        "awaitData",
    ])?;
    let name = call.collection_name()?;
    let named = Named::parse(name)?;
    let (store, needs) = named.needs();
    call.may(Right::Read, store)?;
    let guard = Guard::new(call.reader(), needs, Vec::new())?;
    let size = call.args.count("batchSize")?.unwrap_or(FIRST_BATCH);
    let single = call.args.flag("singleBatch")?.unwrap_or(false);
    let mut chosen = chosen(call)?;
    let sort = sort(&call.args)?;
    let filter = call.args.document("filter")?.unwrap_or(Doc::empty());
    let (scan, is_sorted) = match named {
        Named::Events(store) => {
            let scan = events::Scan::new(call, store, filter, sort.as_deref())?;
            let is_sorted = scan.is_sorted(sort.as_deref());
            (Scan::Events(scan), is_sorted)
        }
        Named::Table(table) => {
            let scan = rows::Scan::new(call, table, filter)?;
            let is_sorted = scan.is_sorted(call, sort.as_deref())?;
            (Scan::Rows(scan), is_sorted)
        }
    };
    let sort = sort.filter(|_| !is_sorted);
    let (source, at) = match call.transaction()? {
        Some(transaction) => {
            let documents = transaction.run_models(|tx| {
                collected(call, &mut chosen, sort.as_deref(), |each| scan.within(tx, each))
            })?;
            (documents, call.seq())
        }
        None => {
            let snapshot = call.snapshot()?;
            let at = snapshot.seq();
            let mut feed = scan.at(call, snapshot)?;
            let source = match &sort {
                None => Source::Made(Box::new(Made::new(feed, chosen))),
                Some(sort) => collected(call, &mut chosen, Some(sort), |each| {
                    while feed.next(&mut *each)? {}
                    Ok(())
                })?,
            };
            (source, at)
        }
    };
    first_batch(call, guard, format!("{RESERVED}.{name}"), source, size, single, at)
}

/// Filter, fields and bounds of the query.
fn chosen(call: &Call<'_>) -> Outcome<Chosen> {
    let (args, options) = (&call.args, call.options(&call.args)?);
    let filter = call.filter()?;
    let projection = args.document("projection")?.filter(|projection| !projection.is_empty());
    let projection = projection.map(|projection| Projection::parse(projection, &options)).transpose()?;
    let skip = args.count("skip")?.unwrap_or(0);
    // Zero is no limit.
    let left = args.count("limit")?.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    Ok(Chosen { filter, projection, skip, left })
}

/// Computes the documents at once, in the order of `sort`.
fn collected(
    call: &Call<'_>,
    chosen: &mut Chosen,
    sort: Option<&Sort>,
    scan: impl FnOnce(Each<'_>) -> Outcome<()>,
) -> Outcome<Source> {
    let mut ready = Ready::default();
    let mut seen = 0_usize;
    let mut look = || {
        seen += 1;
        if seen.is_multiple_of(AT_ONCE) { call.may_go_on() } else { Ok(()) }
    };
    let Some(sort) = sort else {
        scan(&mut |document| {
            look()?;
            if let Some(document) = chosen.choose(document)? {
                ready.push(document)?;
            }
            Ok(chosen.left > 0)
        })?;
        let (documents, bytes) = ready.done();
        return Ok(Source::Ready(documents, bytes));
    };
    // Bounds and fields apply to the sorted matches. Each counts in the memory of the result.
    let mut keys = Vec::new();
    scan(&mut |document| {
        look()?;
        if chosen.filter.matches(document.doc())? {
            let key = sort.key(document.doc())?;
            ready.charge(key.len())?;
            keys.push((key, keys.len()));
            ready.push(document)?;
        }
        Ok(true)
    })?;
    keys.sort_unstable();
    let (documents, _) = ready.done();
    let mut documents: Vec<Option<DocBuf>> = documents.into_iter().map(Some).collect();
    let mut sorted = Ready::default();
    for (_, place) in keys {
        let Some(document) = documents.get_mut(place).and_then(Option::take) else { continue };
        if let Some(document) = chosen.choose(document)? {
            sorted.push(document)?;
        }
    }
    let (documents, bytes) = sorted.done();
    Ok(Source::Ready(documents, bytes))
}

/// `insert`: all documents, or none.
pub(crate) fn insert<'a>(call: &mut Call<'a>) -> Outcome<Change<'a>> {
    call.args.only(&["insert", "documents", "ordered", "bypassDocumentValidation"])?;
    call.args.not_offered(&["bypassDocumentValidation"])?;
    if call.args.flag("ordered")? == Some(false) {
        let message =
            format!("'ordered: false' is not offered on the database {RESERVED}: an insert is one commit");
        return Err(Failure::new(Code::NotImplemented, message));
    }
    let named = Named::parse(call.collection_name()?)?;
    call.may(Right::Append, named.needs().0)?;
    let documents = statements(call, "documents")?;
    let documents = documents.into_iter().map(Doc::check).collect::<Result<Vec<_>, _>>()?;
    match named {
        Named::Events(store) => events::insert(call, store, &documents),
        Named::Table(table) => Ok(rows::insert(table, documents)),
    }
}

/// `listCollections`: those that the caller may read, without tables that rebuilds of projections fill.
pub(crate) fn list(call: &mut Call<'_>) -> Outcome<Writer> {
    call.args.only(LIST_FIELDS)?;
    let filter = call.filter()?;
    let name_only = call.args.flag("nameOnly")?.unwrap_or(false);
    let db = call.shared.service.database();
    let stores = db.event_stores().into_iter().filter(|store| call.may(Right::Read, Some(store)).is_ok());
    let mut names: Vec<String> = stores.map(|store| format!("{EVENTS}{store}")).collect();
    if call.may(Right::Read, None).is_ok() {
        // At one snapshot: a rebuild renames its tables when it ends.
        let snapshot = db.snapshot();
        let mut tables = db.tables().names_at(snapshot.engine()).map_err(ropewalk::Error::from)?;
        hide_rebuilds(db, &snapshot, &mut tables, None).map_err(|error| failed(call, &error))?;
        let tables = tables.iter().filter(|table| !is_system_table(table));
        names.extend(tables.map(|table| format!("{TABLES}{}", shown(table))));
    }
    let mut list = Ready::default();
    for name in &names {
        call.may_go_on()?;
        let whole = description(name, false);
        if filter.matches(whole.doc())? {
            list.push(if name_only { description(name, true) } else { whole })?;
        }
    }
    listed(call, Needs::Nothing, format!("{RESERVED}.$cmd.listCollections"), list)
}

fn description(name: &str, name_only: bool) -> DocBuf {
    let mut out = Writer::new();
    out.put("name", Value::String(name));
    out.put("type", Value::String("collection"));
    if !name_only {
        out.open_document("options");
        out.close();
        out.open_document("info");
        out.put("readOnly", Value::Bool(false));
        out.close();
    }
    out.finish()
}
