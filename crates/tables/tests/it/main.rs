//! Behaviour of tables.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod alone;
mod alter;
mod bad_input;
mod concurrency;
mod constraints;
mod covering;
mod deferred;
mod enums;
mod generated;
mod golden;
mod history;
mod invariants;
mod load;
mod model;
mod predecessor;
mod rows;

use std::path::Path;
use std::sync::Arc;

use ropewalk_engine::{
    Background, CommitError, Durability, Engine, EngineError, EngineOptions, Isolation, KeyConflict,
    KvTransaction,
};
use ropewalk_tables::{
    ColumnDef, KeyRange, OwnedRow, Row, Table, TableDef, Tables, TablesError, TablesMark, TablesModel,
    TablesRead, TablesState, TablesTx, Type, Value,
};
use ropewalk_vfs::Env;

/// An engine with the tables model.
pub struct Db {
    pub engine: Arc<Engine>,
    pub tables: Tables,
}

/// A savepoint of a [`Tx`].
pub type Mark = (ropewalk_engine::KvMark, TablesMark);

/// A transaction as the facade builds it, without the other models.
pub struct Tx {
    tables: Tables,
    kv: KvTransaction,
    state: TablesState,
}

impl Db {
    pub fn open(env: &Env, options: EngineOptions) -> Self {
        let model = Arc::new(TablesModel::default());
        let engine = Arc::new(Engine::open(env, Path::new("/db"), options, vec![model.clone()]).unwrap());
        let tables = Tables::new(engine.clone(), model);
        Self { engine, tables }
    }

    pub fn memory() -> Self {
        Self::memory_in(false)
    }

    pub fn memory_in(log_everything: bool) -> Self {
        Self::open(&Env::memory(), EngineOptions { log_everything, ..EngineOptions::default() })
    }

    /// No automatic background work; small memtables.
    pub fn manual(env: &Env) -> Self {
        Self::try_open(env).unwrap()
    }

    pub fn manual_in(log_everything: bool, env: &Env) -> Self {
        Self::try_open_in(log_everything, env).unwrap()
    }

    pub fn try_open(env: &Env) -> Result<Self, EngineError> {
        Self::try_open_in(false, env)
    }

    pub fn try_open_in(log_everything: bool, env: &Env) -> Result<Self, EngineError> {
        let model = Arc::new(TablesModel::default());
        let options = EngineOptions {
            memory_budget: 1 << 19,
            background: Background::Manual,
            log_everything,
            ..EngineOptions::default()
        };
        let engine = Arc::new(Engine::open(env, Path::new("/db"), options, vec![model.clone()])?);
        Ok(Self { tables: Tables::new(engine.clone(), model), engine })
    }

    pub fn begin(&self) -> Tx {
        self.begin_with(Isolation::Serializable)
    }

    pub fn begin_with(&self, isolation: Isolation) -> Tx {
        let kv = KvTransaction::new(self.engine.clone(), isolation);
        Tx { tables: self.tables.clone(), kv, state: TablesState::default() }
    }

    /// Runs one transaction and commits it.
    pub fn run<R>(
        &self,
        work: impl FnOnce(&mut TablesTx<'_>) -> Result<R, TablesError>,
    ) -> Result<R, TablesError> {
        let mut tx = self.begin();
        let result = work(&mut tx.t())?;
        tx.commit()?;
        Ok(result)
    }

    /// Retries until the transaction commits without a conflict.
    pub fn insist<R>(
        &self,
        isolation: Isolation,
        mut work: impl FnMut(&mut TablesTx<'_>) -> Result<R, TablesError>,
    ) -> Result<R, TablesError> {
        loop {
            let mut tx = self.begin_with(isolation);
            let result = work(&mut tx.t()).and_then(|result| tx.commit().map(|()| result));
            match result {
                Err(error) if error.is_conflict() => {}
                result => return result,
            }
        }
    }

    pub fn create(&self, def: TableDef) -> Table {
        self.run(|t| t.create_table(def)).unwrap()
    }

    /// All rows as lines, as of the newest commit.
    pub fn lines(&self, table: &Table) -> Vec<String> {
        let snapshot = self.engine.snapshot();
        lines(&mut self.tables.at(&snapshot), table)
    }

    pub fn verify(&self) {
        let report = self.engine.verify().unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
    }
}

impl Tx {
    pub fn t(&mut self) -> TablesTx<'_> {
        TablesTx::new(&self.tables, &mut self.kv, &mut self.state)
    }

    pub fn savepoint(&self) -> Mark {
        (self.kv.mark(), self.state.mark())
    }

    pub fn rollback_to(&mut self, (mark, state): Mark) {
        self.kv.rollback_to(mark);
        self.state.rolled_back(&state);
    }

    pub fn wrote(&self) -> bool {
        self.kv.has_writes()
    }

    pub fn snapshot_seq(&self) -> u64 {
        self.kv.snapshot().seq().0
    }

    pub fn commit(self) -> Result<(), TablesError> {
        self.committed().map(|_| ())
    }

    /// The commit's number; `None` when nothing was written.
    pub fn committed(mut self) -> Result<Option<u64>, TablesError> {
        self.t().check_deferred()?;
        let mut operations: Vec<_> = self.state.operation().into_iter().collect();
        if !self.kv.has_writes() {
            return Ok(None);
        }
        let engine = self.kv.engine().clone();
        operations.push(Box::new(self.kv.into_batch()));
        let committed = engine.commit(operations, Durability::Sync);
        let _ = self.tables.remove_orphaned_loads();
        match committed {
            Ok(done) => Ok(Some(done.seq.0)),
            Err(CommitError::Rejected(reason)) => Err(match reason.downcast::<KeyConflict>() {
                Ok(conflict) => {
                    let unread = TablesError::Conflict { what: "a key".into(), seq: conflict.seq };
                    self.tables.explain(&conflict).unwrap_or(unread)
                }
                // The disk failed during validation.
                Err(other) => EngineError::Stopped { cause: other.to_string().into() }.into(),
            }),
            Err(other) => Err(EngineError::from(other).into()),
        }
    }
}

pub fn line(row: Row<'_>) -> String {
    row.values().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

pub fn shown(rows: &[OwnedRow]) -> Vec<String> {
    rows.iter().map(|row| line(row.row())).collect()
}

pub fn lines(read: &mut impl TablesRead, table: &Table) -> Vec<String> {
    shown(&read.collect(table, &KeyRange::all(), false, usize::MAX).unwrap())
}

pub fn int(name: &str) -> ColumnDef {
    ColumnDef::new(name, Type::INT8)
}

pub fn text(name: &str) -> ColumnDef {
    ColumnDef::new(name, Type::TEXT)
}

/// `people (id int8 primary key, name text, age int8)`
pub fn people() -> TableDef {
    TableDef::new("people").column(int("id")).column(text("name")).column(int("age")).primary_key(["id"])
}

pub fn person(id: i64, name: &'static str, age: i64) -> [Value<'static>; 3] {
    [id.into(), name.into(), age.into()]
}

pub fn id(id: i64) -> [Value<'static>; 1] {
    [id.into()]
}
