//! Collections of documents.
//!
//! `requests` reads the bodies of the HTTP API, `run` carries them out, alone or in a transaction.

mod options;
mod requests;
pub(crate) mod run;

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ropewalk::documents::lang::{Owned, Pipeline};
use ropewalk::documents::{Collection, Definition, DocumentCursor, DocumentsError};
use ropewalk::{Database, Durability};

use crate::error::{Fault, Result};
use crate::handle::{Shared, Slot};
use crate::value::body::Body;
use crate::value::bson;
use requests::Work;
use run::Done;

/// Most documents, and bytes of them, of one batch.
const BATCH_MAX: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;

/// A prepared handle on a collection, which need not exist.
#[pyclass(frozen, name = "Collection", module = "ropewalk._core")]
pub(crate) struct Prepared {
    collection: Slot<Collection>,
}

pub(crate) fn prepared(shared: &Arc<Shared>, database: &str, name: &str) -> Result<Prepared> {
    let collection = shared.db()?.documents().collection(database, name)?;
    Ok(Prepared { collection: Slot::new(shared, collection)? })
}

impl Prepared {
    fn collection(&self) -> Result<Collection> {
        self.collection.with(|collection| Ok(collection.clone()))
    }

    fn db(&self) -> Result<Database> {
        self.collection.shared().db()
    }
}

#[pymethods]
impl Prepared {
    /// The document with this `_id`, as a dictionary, or `None`.
    fn get<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyDict>>> {
        let id = bson::owned(id)?;
        let collection = self.collection()?;
        let found = py.detach(|| collection.get(id.value()))?;
        Ok(found.map(|found| bson::to_dict(py, found.doc())).transpose()?)
    }

    /// Carries out `insert`, `put`, `update`, `delete`, `modify`, `count`, `distinct` or `aggregate`, with the
    /// body and the result of the HTTP API.
    fn run<'py>(
        &self,
        py: Python<'py>,
        action: &str,
        body: &Bound<'py, PyDict>,
    ) -> Result<Bound<'py, PyDict>> {
        let (db, collection) = (self.db()?, self.collection()?);
        let options = run::options(&db);
        let mut body = Body::new(body);
        let work = requests::work(action, &mut body, &options)?;
        let durability = body.durability()?;
        body.finish()?;
        let done = py.detach(|| alone(&db, &collection, &work, durability));
        let done = done.map_err(|fault| self.collection.shared().explained(fault))?;
        Ok(done.to_python(py)?)
    }

    /// A cursor over the documents that match, with the body of the HTTP API.
    fn find(&self, py: Python<'_>, body: &Bound<'_, PyDict>) -> Result<Cursor> {
        let (db, collection) = (self.db()?, self.collection()?);
        let mut body = Body::new(body);
        let find = requests::find(&mut body, &run::options(&db))?;
        body.finish()?;
        let cursor = py.detach(|| -> Result<_> {
            existing(&collection)?;
            Ok(collection.find(&find)?)
        })?;
        Ok(Cursor { cursor: Slot::new(self.collection.shared(), cursor)? })
    }

    /// Creates the collection, or sets its options.
    fn configure(&self, py: Python<'_>, body: &Bound<'_, PyDict>) -> Result<()> {
        let (db, collection) = (self.db()?, self.collection()?);
        let mut body = Body::new(body);
        let options = options::collection(&mut body)?;
        body.finish()?;
        py.detach(|| {
            let done = db.documents().transact(Durability::Sync, |tx| {
                match tx.create_collection(&collection, options.clone()) {
                    Err(DocumentsError::CollectionExists { .. }) => {
                        tx.set_options(&collection, options.clone())
                    }
                    created => created.map(|_| ()),
                }
            });
            Ok(done?)
        })
    }

    /// Creates an index; returns its name.
    fn create_index(&self, py: Python<'_>, body: &Bound<'_, PyDict>) -> Result<String> {
        let collection = self.collection()?;
        let mut body = Body::new(body);
        let index = options::index(&mut body)?;
        body.finish()?;
        py.detach(|| collection.create_index(&index))?;
        Ok(options::index_name(&index))
    }

    /// The indexes, the one on `_id` first.
    fn indexes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        let collection = self.collection()?;
        let definition = py.detach(|| existing(&collection))?;
        Ok(options::indexes(py, &definition)?)
    }

    /// Drops an index.
    fn drop_index(&self, py: Python<'_>, name: &str) -> Result<()> {
        let collection = self.collection()?;
        Ok(py.detach(|| collection.drop_index(name))?)
    }

    /// Drops the collection with its documents and indexes.
    #[pyo3(name = "drop")]
    fn drop_collection(&self, py: Python<'_>) -> Result<()> {
        let collection = self.collection()?;
        py.detach(|| {
            existing(&collection)?;
            collection.drop_collection()?;
            Ok(())
        })
    }
}

/// The definition of a collection that exists.
fn existing(collection: &Collection) -> Result<Arc<Definition>> {
    let unknown = || DocumentsError::UnknownCollection {
        database: collection.database().to_owned(),
        collection: collection.name().to_owned(),
    };
    Ok(collection.definition()?.ok_or_else(unknown)?)
}

/// Carries out work in its own commit, or at its own snapshot.
fn alone(db: &Database, collection: &Collection, work: &Work, durability: Durability) -> Result<Done> {
    match work {
        Work::Count(find) => {
            existing(collection)?;
            let snapshot = db.snapshot();
            Ok(Done::Count(snapshot.documents(db).count(collection, find)?))
        }
        Work::Distinct(field, filter) => {
            existing(collection)?;
            let snapshot = db.snapshot();
            let values: Vec<Owned> = snapshot.documents(db).distinct(collection, field, filter)?;
            Ok(Done::Values(values))
        }
        Work::Aggregate(pipeline) => aggregated(collection, pipeline, durability),
        Work::Get(_) | Work::Find(_) => {
            let snapshot = db.snapshot();
            Ok(run::read(&mut snapshot.documents(db), collection, work)?.0)
        }
        Work::Change(change) => {
            let (done, _) = db.documents().transact(durability, |tx| run::change(tx, collection, change))?;
            Ok(done)
        }
    }
}

fn aggregated(collection: &Collection, pipeline: &Pipeline, durability: Durability) -> Result<Done> {
    existing(collection)?;
    Ok(Done::Documents(collection.aggregate(pipeline, durability)?))
}

/// Documents that match, of one snapshot.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct Cursor {
    cursor: Slot<DocumentCursor>,
}

#[pymethods]
impl Cursor {
    /// Some further documents; an empty list at the end.
    fn next_batch<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        let batch = py.detach(|| {
            self.cursor.with(|cursor| cursor.next_batch(BATCH_MAX, BATCH_BYTES).map_err(Fault::from))
        })?;
        Ok(bson::to_list(py, &batch)?)
    }

    /// Ends the read, and releases its snapshot.
    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.cursor.take().map(drop))
    }
}
