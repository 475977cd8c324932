//! Calls by the engine: the tables' part in opening, commits and verification. No other module of the crate
//! uses these.

pub(crate) mod verify;

use std::sync::atomic::Ordering;

use ropewalk_base::{DecodeError, Decoder, Seq};
use ropewalk_engine::{Apply, EngineError, Memory, Model, ModelId, ReadView};
use ropewalk_store::{KeyspaceOptions, NewRun, Store};

use crate::catalog::Spaces;
use crate::catalog::tables::{TABLES, TablesModel};

impl Model for TablesModel {
    fn id(&self) -> ModelId {
        TABLES
    }

    fn name(&self) -> &'static str {
        "tables"
    }

    fn open(&self, store: &Store) -> Result<(), EngineError> {
        let rows = store.keyspace("tables", KeyspaceOptions::default())?;
        let catalog = store.keyspace("tables.catalog", KeyspaceOptions::default())?;
        self.spaces.get_or_init(|| Spaces { rows, catalog });
        Ok(())
    }

    fn load(&self, _read: ReadView<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let mut decoder = Decoder::new(section);
        while !decoder.is_empty() {
            decoder.varint("table")?;
        }
        let before = self.last_ddl.swap(apply.seq.0, Ordering::AcqRel);
        debug_assert!(before <= apply.seq.0, "commits are applied in their order");
        Ok(())
    }

    fn flush(&self, _: &dyn Memory, _: &Store, _: &[Seq]) -> Result<Vec<NewRun>, EngineError> {
        Ok(Vec::new())
    }

    fn verify(&self, read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        verify::verify(self.spaces(), read)
    }
}
