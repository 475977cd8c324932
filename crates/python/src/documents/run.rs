//! Reads and writes of documents, and their results.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ropewalk::Database;
use ropewalk::documents::lang::{DocBuf, Options, Owned, Patterns, Random};
use ropewalk::documents::{
    Collection, DOCUMENT_DATABASE as DATABASE, DocumentsError, DocumentsRead, DocumentsTx, Updated,
};

use crate::documents::requests::{self, Change, Work};
use crate::error::Result;
use crate::value::body::Body;
use crate::value::bson;

/// Options of parsers.
pub(crate) fn options(db: &Database) -> Options {
    let env = db.engine().env();
    Options {
        now_ms: env.clock.wall_micros().div_euclid(1000),
        variables: None,
        random: Random::seeded(env.random.next_u64()),
        patterns: Patterns::default(),
    }
}

/// The result of a read or write.
pub(crate) enum Done {
    Ids(Vec<Owned>),
    Updated(Updated),
    Deleted(u64),
    Document(Option<DocBuf>),
    Documents(Vec<DocBuf>),
    Count(u64),
    Values(Vec<Owned>),
    Stored,
}

impl Done {
    /// The result of the HTTP API.
    pub(crate) fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let result = PyDict::new(py);
        match self {
            Self::Ids(ids) => result.set_item("ids", values(py, ids)?)?,
            Self::Updated(updated) => {
                result.set_item("matched", updated.matched)?;
                result.set_item("modified", updated.modified)?;
                let upserted = updated.upserted.as_ref();
                let upserted = upserted.map(|id| bson::to_python(py, id.value())).transpose()?;
                result.set_item("upserted", upserted)?;
            }
            Self::Deleted(deleted) => result.set_item("deleted", deleted)?,
            Self::Document(found) => {
                let found = found.as_ref().map(|found| bson::to_dict(py, found.doc())).transpose()?;
                result.set_item("document", found)?;
            }
            Self::Documents(found) => result.set_item("documents", bson::to_list(py, found)?)?,
            Self::Count(count) => result.set_item("count", count)?,
            Self::Values(found) => result.set_item("values", values(py, found)?)?,
            Self::Stored => {}
        }
        Ok(result)
    }

    /// The `_id` of a single inserted document.
    pub(crate) fn inserted(&self) -> Option<&Owned> {
        match self {
            Self::Ids(ids) => ids.first(),
            _ => None,
        }
    }
}

fn values<'py>(py: Python<'py>, values: &[Owned]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for value in values {
        list.append(bson::to_python(py, value.value())?)?;
    }
    Ok(list)
}

/// Reads documents; returns also their number.
pub(crate) fn read(
    at: &mut impl DocumentsRead,
    collection: &Collection,
    work: &Work,
) -> std::result::Result<(Done, u64), DocumentsError> {
    Ok(match work {
        Work::Get(id) => {
            let found = at.get(collection, id.value())?;
            let count = u64::from(found.is_some());
            (Done::Document(found), count)
        }
        Work::Find(find) => {
            let found = at.find(collection, find)?;
            let count = found.len() as u64;
            (Done::Documents(found), count)
        }
        Work::Count(find) => {
            let count = at.count(collection, find)?;
            (Done::Count(count), count)
        }
        Work::Distinct(field, filter) => {
            let values = at.distinct(collection, field, filter)?;
            let count = values.len() as u64;
            (Done::Values(values), count)
        }
        Work::Aggregate(_) | Work::Change(_) => (Done::Stored, 0),
    })
}

/// Writes documents in a transaction; returns also the number of documents that it concerned.
pub(crate) fn change(
    tx: &mut DocumentsTx<'_>,
    collection: &Collection,
    change: &Change,
) -> std::result::Result<(Done, u64), DocumentsError> {
    Ok(match change {
        Change::Insert(documents) => {
            let insert = |document: &DocBuf| tx.insert_one(collection, document.bytes());
            let ids = documents.iter().map(insert).collect::<std::result::Result<Vec<_>, _>>()?;
            let count = ids.len() as u64;
            (Done::Ids(ids), count)
        }
        Change::Put(id, document, spec) => {
            match tx.get(collection, id.value())? {
                Some(_) => drop(tx.update_one(collection, spec)?),
                None => drop(tx.insert_one(collection, document.bytes())?),
            }
            (Done::Stored, 1)
        }
        Change::Update(spec, many) => {
            let updated =
                if *many { tx.update_many(collection, spec)? } else { tx.update_one(collection, spec)? };
            let matched = updated.matched;
            (Done::Updated(updated), matched)
        }
        Change::Delete(find) => {
            let deleted = tx.delete(collection, find)?;
            (Done::Deleted(deleted), deleted)
        }
        Change::Modify(spec) => {
            let (found, updated) = tx.find_and_modify(collection, spec)?;
            (Done::Document(found), updated.matched)
        }
    })
}

/// Reads or writes documents in a transaction; returns also the number of documents that it concerned.
pub(crate) fn within(
    tx: &mut DocumentsTx<'_>,
    collection: &Collection,
    work: &Work,
) -> std::result::Result<(Done, u64), DocumentsError> {
    match work {
        Work::Change(one) => change(tx, collection, one),
        work => read(tx, collection, work),
    }
}

/// An operation on documents in a transaction.
pub(crate) struct Operation {
    pub(crate) database: String,
    pub(crate) collection: String,
    pub(crate) work: Work,
    /// Number of documents that it must match, delete or find.
    pub(crate) expected: Option<u64>,
}

/// `database`, `collection`, `expect`, and one of `insert`, `update`, `delete`, `get` and `find`.
pub(crate) fn operation(body: &mut Body<'_, '_>, options: &Options) -> Result<Operation> {
    let database = body.text("database")?.unwrap_or_else(|| DATABASE.to_owned());
    let collection = body.need_text("collection")?;
    let expected = body.number("expect")?;
    let work = requests::operation(body, options)?;
    Ok(Operation { database, collection, work, expected })
}

/// A precondition: `database`, `collection`, `filter`, and the number of documents that match, by default 1.
pub(crate) fn count(body: &mut Body<'_, '_>, options: &Options) -> Result<Operation> {
    let database = body.text("database")?.unwrap_or_else(|| DATABASE.to_owned());
    let collection = body.need_text("collection")?;
    let expected = body.number("count")?.unwrap_or(1);
    let most = usize::try_from(expected).unwrap_or(usize::MAX).saturating_add(1);
    let work = requests::count(body, options, most)?;
    Ok(Operation { database, collection, work, expected: Some(expected) })
}
