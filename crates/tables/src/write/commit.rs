//! Commits: the section of the tables, transactions with a separate commit, and descriptions of conflicts.

use ropewalk_base::{Seq, put_varint};
use ropewalk_engine::{
    CommitError, Durability, EngineError, Isolation, KeyConflict, Keyspace, KvTransaction, ModelId,
    Operation, Outcome, ReadView, Rejection, Verdict,
};

use crate::catalog::tables::{TABLES, Tables};
use crate::catalog::{number, object_key};
use crate::error::{Result, TablesError};
use crate::read::table::Table;
use crate::row::display;
use crate::write::tx::{TablesState, TablesTx};

/// Most attempts at a change of a definition that conflicts with others.
const ATTEMPTS: usize = 100;

/// The part of a commit that lists the changed definitions.
pub(crate) struct DdlOperation {
    pub(crate) tables: Vec<u32>,
    /// Catalog entries of loaded objects: they must still exist, or a clean-up has taken the objects for
    /// left over.
    pub(crate) loading: Vec<(Keyspace, [u8; 5])>,
}

impl Operation for DdlOperation {
    fn model(&self) -> ModelId {
        TABLES
    }

    fn bytes_max(&self) -> usize {
        self.tables.len() * 5
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        for (keyspace, key) in &self.loading {
            if latest.get(*keyspace, key)?.is_none() {
                let (keyspace, key, seq) = (*keyspace, key.to_vec(), latest.at());
                return Err(Box::new(KeyConflict { keyspace, key, seq }));
            }
        }
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        self.tables.iter().for_each(|table| put_varint(out, u64::from(*table)));
        (0, 0)
    }
}

impl Tables {
    /// Runs `work` in a separate transaction and commits it durably.
    pub(crate) fn run<R>(&self, work: impl FnOnce(&mut TablesTx<'_>) -> Result<R>) -> Result<R> {
        let mut kv = KvTransaction::new(self.engine.clone(), Isolation::Serializable);
        let mut state = TablesState::default();
        let result = work(&mut TablesTx::new(self, &mut kv, &mut state))?;
        let mut operations: Vec<Box<dyn Operation>> = state.operation().into_iter().collect();
        if kv.has_writes() {
            operations.push(Box::new(kv.into_batch()));
        }
        if operations.is_empty() {
            return Ok(result);
        }
        self.commit(operations)?;
        Ok(result)
    }

    /// Commits durably, and describes a conflict.
    pub(crate) fn commit(&self, operations: Vec<Box<dyn Operation>>) -> Result<()> {
        match self.engine.commit(operations, Durability::Sync) {
            Ok(_) => Ok(()),
            Err(CommitError::Rejected(reason)) => Err(match reason.downcast::<KeyConflict>() {
                Ok(conflict) => {
                    let seq = conflict.seq;
                    let unknown = || TablesError::Conflict { what: "a key".into(), seq };
                    self.explain(&conflict).unwrap_or_else(unknown)
                }
                Err(other) => TablesError::Definition { table: String::new(), what: other.to_string() },
            }),
            Err(other) => Err(EngineError::from(other).into()),
        }
    }

    /// As `run`, retried after conflicts.
    pub(crate) fn insist<R>(&self, work: impl Fn(&mut TablesTx<'_>) -> Result<R>) -> Result<R> {
        let mut attempt = 1;
        loop {
            match self.run(&work) {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => attempt += 1,
                result => return result,
            }
        }
    }

    /// The object that a key of the engine belongs to: the rows of a table, or an index.
    pub fn object_of(&self, keyspace: Keyspace, key: &[u8]) -> Option<u32> {
        let object = key.first_chunk().filter(|_| keyspace == self.model.spaces().rows)?;
        Some(u32::from_be_bytes(*object))
    }

    /// Describes a conflict of the engine, if it was about tables.
    pub fn explain(&self, conflict: &KeyConflict) -> Option<TablesError> {
        let spaces = self.model.spaces();
        let seq = conflict.seq;
        let snapshot = self.engine.snapshot();
        let schema = |id: u32| Table::new(&self.model, id, "").schema_at(&self.model, snapshot.read()).ok();
        let what = if conflict.keyspace == spaces.catalog {
            match conflict.key.split_first()? {
                (b'e', name) => format!("the type {:?}", String::from_utf8_lossy(name)),
                (b'n', name) => format!("the table name {:?}", String::from_utf8_lossy(name)),
                (b't', id) => {
                    let schema = schema(u32::from_be_bytes(id.try_into().ok()?));
                    schema.map_or_else(
                        || "a table".into(),
                        |s| format!("the definition of table {:?}", s.name()),
                    )
                }
                _ => "the catalog".into(),
            }
        } else if conflict.keyspace == spaces.rows {
            let object = u32::from_be_bytes(*conflict.key.first_chunk()?);
            let stored = snapshot.read().get(spaces.catalog, &object_key(object)).ok()?;
            let schema = stored.and_then(|bytes| number(&bytes)).and_then(schema);
            schema.map_or_else(|| "a table".into(), |schema| display::any_key(&schema, &conflict.key))
        } else {
            return None;
        };
        Some(TablesError::Conflict { what, seq })
    }
}
