//! Writes of a table's definition in a transaction, for statements and loads; creates and deletes its
//! objects.

use std::sync::Arc;

use ropewalk_engine::KeySpan;

use crate::catalog::{object_key, object_range, table_key};
use crate::error::{Result, TablesError};
use crate::read::TablesRead;
use crate::schema::{DEFINITION_BYTES_MAX, Parts, Schema};
use crate::write::tx::TablesTx;

impl TablesTx<'_> {
    /// Runs an atomic statement that changes definitions.
    pub(crate) fn ddl<R>(&mut self, run: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.begin();
        let mark = self.kv.mark();
        let result = run(self);
        if result.is_err() {
            self.kv.rollback_to(mark);
            self.state.rolled_back();
        }
        result
    }

    /// Writes a definition. A concurrent change of it is detected at commit.
    pub(crate) fn put_parts(&mut self, mut parts: Parts, is_new: bool) -> Result<Arc<Schema>> {
        let catalog = self.spaces().catalog;
        if !is_new {
            parts.version += 1;
            self.kv.guard_key(catalog, &table_key(parts.id));
        }
        parts.renew_layout().map_err(|what| TablesError::Definition { table: parts.name.clone(), what })?;
        let encoded = parts.encode();
        if encoded.len() > DEFINITION_BYTES_MAX {
            let what = format!(
                "its definition of {} bytes exceeds the limit of {DEFINITION_BYTES_MAX}; fewer columns, or a copy without its past, fit",
                encoded.len()
            );
            return Err(TablesError::Definition { table: parts.name, what });
        }
        if cfg!(debug_assertions) {
            parts.check();
        }
        debug_assert!(
            Parts::decode(&encoded).is_ok_and(|parts| parts.encode() == encoded),
            "a definition reads as it was written"
        );
        self.kv.put(catalog, &table_key(parts.id), &encoded);
        for object in parts.objects() {
            if is_new || !self.kv_has_object(object)? {
                self.kv.put(catalog, &object_key(object), &parts.id.to_le_bytes());
            }
        }
        let schema = Arc::new(Schema::new(parts));
        // Rows that others write under a newer definition could not be read with the transaction's one.
        self.kv.pin_statement_snapshot();
        self.state.ddl.insert(schema.id());
        self.state.schemas.insert(schema.id(), schema.clone());
        Ok(schema)
    }

    fn kv_has_object(&mut self, object: u32) -> Result<bool> {
        Ok(self.kv.peek(self.spaces().catalog, &object_key(object))?.is_some())
    }

    /// Removes a definition.
    pub(crate) fn forget(&mut self, id: u32) {
        self.kv.pin_statement_snapshot();
        self.state.ddl.insert(id);
        self.state.schemas.remove(&id);
    }

    /// Deletes the objects' keys when the transaction commits.
    pub(crate) fn drop_objects(&mut self, objects: impl IntoIterator<Item = u32>) {
        let spaces = self.spaces();
        for object in objects {
            let (start, end) = object_range(object);
            self.kv.sweep_range(spaces.rows, &start, &end.unwrap_or([0xff; 4]));
            self.kv.delete(spaces.catalog, &object_key(object));
        }
    }

    /// True when the table has no row; guards this until commit.
    pub(crate) fn is_empty(&mut self, schema: &Schema) -> Result<bool> {
        let (start, end) = object_range(schema.parts.rows);
        let end = end.as_ref().map(<[u8; 4]>::as_slice);
        let mut empty = true;
        self.walk_rows(KeySpan::forward(&start, end), &mut |_, _| {
            empty = false;
            false
        })?;
        if self.guards_ranges() {
            let rows = self.spaces().rows;
            self.kv.guard_range(rows, &start, end);
        }
        Ok(empty)
    }
}
