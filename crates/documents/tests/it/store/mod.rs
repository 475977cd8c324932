//! The storage layer: collections, indexes, plans, transactions, streams.

mod basics;
mod capped;
mod ddl;
mod guarantees;
mod indexes;
mod looking;
mod model;
mod pipelines;
mod planning;
mod rules;
mod streams;
mod submitting;
mod views;

use std::path::Path;
use std::sync::Arc;

use bson::{Document, doc};
use ropewalk_documents::lang::{DocBuf, Filter, Options, Owned, Sort, Update, Value};
use ropewalk_documents::{
    Collection, Documents, DocumentsError, DocumentsMark, DocumentsModel, DocumentsRead, DocumentsState,
    DocumentsTx, Find, UpdateSpec,
};
use ropewalk_engine::{
    CommitError, Durability, Engine, EngineOptions, Isolation, KeyConflict, KvMark, KvTransaction, Operation,
};
use ropewalk_vfs::Env;

pub(crate) const SYNC: Durability = Durability::Sync;

/// A database with only the documents model.
pub(crate) struct Db {
    pub(crate) documents: Documents,
}

impl Db {
    pub(crate) fn new() -> Self {
        Self::open(&Env::memory(), EngineOptions::default())
    }

    pub(crate) fn open(env: &Env, options: EngineOptions) -> Self {
        Self::try_open(env, Path::new("/db"), options).unwrap()
    }

    pub(crate) fn try_open(
        env: &Env,
        path: &Path,
        options: EngineOptions,
    ) -> Result<Self, ropewalk_engine::EngineError> {
        let model = Arc::new(DocumentsModel::default());
        let engine = Arc::new(Engine::open(env, path, options, vec![model.clone()])?);
        Ok(Self { documents: Documents::new(engine, model) })
    }

    pub(crate) fn coll(&self, name: &str) -> Collection {
        self.documents.collection("app", name).unwrap()
    }

    pub(crate) fn begin(&self, isolation: Isolation) -> Tx {
        Tx {
            documents: self.documents.clone(),
            kv: KvTransaction::new(self.documents.engine().clone(), isolation),
            state: DocumentsState::default(),
        }
    }

    /// Runs all verifications: of the database, and of every file.
    pub(crate) fn verify(&self) {
        let report = self.documents.engine().verify().unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
    }

    /// All documents of a collection, by `_id`.
    pub(crate) fn all(&self, collection: &Collection) -> Vec<Document> {
        self.find(collection, &Find::all())
    }

    pub(crate) fn find(&self, collection: &Collection, find: &Find) -> Vec<Document> {
        let snapshot = self.documents.engine().snapshot();
        let found = self.documents.at(&snapshot).find(collection, find).unwrap();
        found.iter().map(plain).collect()
    }
}

/// A transaction as the facade builds it.
pub(crate) struct Tx {
    documents: Documents,
    kv: KvTransaction,
    state: DocumentsState,
}

impl Tx {
    pub(crate) fn d(&mut self) -> DocumentsTx<'_> {
        DocumentsTx::new(&self.documents, &mut self.kv, &mut self.state)
    }

    pub(crate) fn mark(&self) -> (KvMark, DocumentsMark) {
        (self.kv.mark(), self.state.mark())
    }

    pub(crate) fn rollback_to(&mut self, (kv, state): (KvMark, DocumentsMark)) {
        self.kv.rollback_to(kv);
        self.state.rolled_back(state);
    }

    pub(crate) fn commit(mut self) -> Result<(), DocumentsError> {
        let mut operations: Vec<Box<dyn Operation>> = self.state.operation().into_iter().collect();
        if self.kv.has_writes() {
            operations.push(Box::new(self.kv.into_batch()));
        }
        if operations.is_empty() {
            return Ok(());
        }
        match self.documents.engine().commit(operations, SYNC) {
            Ok(_) => Ok(()),
            Err(CommitError::Rejected(reason)) => {
                let conflict = reason.downcast::<KeyConflict>().unwrap();
                Err(self.documents.explain(&conflict).unwrap())
            }
            Err(other) => Err(ropewalk_engine::EngineError::from(other).into()),
        }
    }
}

pub(crate) fn d(document: Document) -> DocBuf {
    DocBuf::check(bson::serialize_to_vec(&document).unwrap()).unwrap()
}

pub(crate) fn b(document: Document) -> Vec<u8> {
    d(document).into_bytes()
}

pub(crate) fn plain(document: &DocBuf) -> Document {
    bson::deserialize_from_slice(document.bytes()).unwrap()
}

pub(crate) fn f(filter: Document) -> Filter {
    Filter::parse(d(filter).doc(), &Options::default()).unwrap()
}

pub(crate) fn find(filter: Document) -> Find {
    Find::matching(f(filter))
}

pub(crate) fn sort(spec: Document) -> Sort {
    Sort::parse(d(spec).doc()).unwrap()
}

pub(crate) fn update(update: Document) -> Update {
    Update::parse(Value::Document(d(update).doc()), None, &Options::default()).unwrap()
}

pub(crate) fn spec(filter: Document, change: Document) -> UpdateSpec {
    UpdateSpec::new(f(filter), update(change))
}

pub(crate) fn shown(id: &Owned) -> String {
    id.value().to_string()
}

pub(crate) fn ids(documents: &[Document]) -> Vec<i32> {
    documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

pub(crate) fn explain(db: &Db, collection: &Collection, find: &Find) -> Document {
    let snapshot = db.documents.engine().snapshot();
    plain(&db.documents.at(&snapshot).explain(collection, find, true).unwrap())
}

/// The name of the index that a query uses, or the stage that it uses instead.
pub(crate) fn used(db: &Db, collection: &Collection, find: &Find) -> String {
    let explained = explain(db, collection, find);
    let mut plan = explained.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    let mut prefix = String::new();
    loop {
        let stage = plan.get_str("stage").unwrap();
        match plan.get_document("inputStage") {
            Ok(inner) => {
                if stage == "SORT" {
                    prefix.push_str("SORT ");
                }
                plan = inner;
            }
            Err(_) => return prefix + plan.get_str("indexName").unwrap_or(stage),
        }
    }
}

pub(crate) fn seeded(db: &Db, name: &str, documents: impl IntoIterator<Item = Document>) -> Collection {
    let collection = db.coll(name);
    let documents: Vec<Vec<u8>> = documents.into_iter().map(b).collect();
    let done = collection.insert_many(&documents, true, SYNC).unwrap();
    assert!(done.errors.is_empty(), "{:?}", done.errors);
    collection
}

pub(crate) fn numbered(count: i32) -> impl Iterator<Item = Document> {
    (0..count).map(|n| doc! { "_id": n, "n": n, "even": n % 2 == 0, "tenth": n / 10 })
}
