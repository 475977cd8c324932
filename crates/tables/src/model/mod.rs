//! Calls by the engine: the tables' part in opening, commits and verification. No other module of the crate
//! uses these.

pub(crate) mod verify;

use ropewalk_base::{DecodeError, Decoder};
use ropewalk_engine::{Apply, EngineError, Model, ModelId, ReadView};
use ropewalk_store::{KeyspaceOptions, Store};

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

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let mut decoder = Decoder::new(section);
        while !decoder.is_empty() {
            decoder.varint("table")?;
        }
        self.last_ddl.changed(apply);
        Ok(())
    }

    fn verify(&self, read: ReadView<'_>) -> Result<Vec<String>, EngineError> {
        verify::verify(self.spaces(), read)
    }
}
