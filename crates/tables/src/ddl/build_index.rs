//! Indexes built concurrently with writers.
//!
//!   1 declare: from this commit on every writer maintains the index     2 fill: batches of rows, each a transaction
//!   3 publish: from this commit on readers use it
//!
//! A transaction that began before 1 and wrote rows conflicts at its commit, because writes depend on the
//! definition; so after 1 no row is written without its entry. A batch of 2 conflicts only with writers of
//! the same rows, and is retried with fewer rows. An interrupted build leaves the index declared; building
//! it again continues from there.

use ropewalk_engine::KeySpan;

use crate::catalog::object_range;
use crate::catalog::tables::Tables;
use crate::error::{Result, TablesError};
use crate::read::TablesRead;
use crate::row::keys::index_entry;
use crate::schema::Index;
use crate::schema::define::IndexDef;
use crate::write::tx::TablesTx;

/// Rows of one batch.
const BATCH: usize = 512;
impl Tables {
    /// Creates an index concurrently with readers and writers. Readers use it when it is complete. Called
    /// again with the same name and definition it continues an interrupted build.
    ///
    /// # Errors
    /// The name is taken by another index. Rows violate its uniqueness, or its expression fails for a row:
    /// the index is dropped then.
    pub fn create_index(&self, table: &str, def: IndexDef) -> Result<()> {
        let index = self.insist(|tx| {
            let handle = tx.table(table)?;
            let schema = tx.schema(&handle)?;
            let started = schema.indexes().iter().find(|i| !i.ready && Some(&i.name) == def.name.as_ref());
            match started {
                Some(index) => Ok(index.clone()),
                None => Ok(tx.declare_index(table, def.clone(), false)?.1),
            }
        })?;
        self.complete(table, &index)
    }

    /// Completes the builds that were interrupted, such as by the end of the node that led before; returns their number.
    ///
    /// # Errors
    /// As [`Tables::create_index`], of the first index that cannot be completed.
    pub fn resume_builds(&self) -> Result<usize> {
        let mut resumed = 0;
        for name in self.names()? {
            let table = match self.table(&name) {
                // Dropped meanwhile.
                Err(TablesError::UnknownTable { .. }) => continue,
                table => table?,
            };
            let schema = self.schema(&self.engine.snapshot(), &table)?;
            for index in schema.indexes().iter().filter(|index| !index.ready) {
                self.complete(&name, index)?;
                resumed += 1;
            }
        }
        Ok(resumed)
    }

    /// Fills a declared index and publishes it.
    fn complete(&self, table: &str, index: &Index) -> Result<()> {
        self.fill(table, index).inspect_err(|_| {
            // A half-built index is useless; if the drop fails, too, the user can drop it.
            let _ = self.insist(|tx| tx.drop_index(table, &index.name));
        })
    }

    fn fill(&self, table: &str, index: &Index) -> Result<()> {
        let mut batch = BATCH;
        let mut next = Vec::new();
        loop {
            match self.run(|tx| tx.fill_batch(table, index, &next, batch)) {
                Ok(Some(last)) => {
                    next = last;
                    batch = (batch * 2).min(BATCH);
                }
                Ok(None) => break,
                Err(error) if error.is_conflict() => batch = (batch / 2).max(1),
                Err(error) => return Err(error),
            }
        }
        self.insist(|tx| tx.publish_index(table, &index.name))
    }
}

impl TablesTx<'_> {
    /// Adds the entries of up to `limit` rows from key `next` on; returns the key to continue from.
    fn fill_batch(
        &mut self,
        table: &str,
        index: &Index,
        next: &[u8],
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        let handle = self.table(table)?;
        let schema = self.schema(&handle)?;
        // Dropped meanwhile, or renewed by a TRUNCATE; the rows since then have their entries from their writers.
        if !schema.indexes().iter().any(|known| known.object == index.object) {
            return Ok(None);
        }
        let (start, end) = object_range(schema.parts.rows);
        debug_assert!(next.is_empty() || next.starts_with(&start), "rows move together with their indexes");
        let start = if next.is_empty() { start.to_vec() } else { next.to_vec() };
        self.statement(|statement| {
            statement.tx().guard_schema(&schema);
            let mut rows = Vec::new();
            let each = &mut |key: &[u8], value: &[u8]| {
                rows.push((key.to_vec(), value.to_vec()));
                rows.len() < limit
            };
            statement
                .tx()
                .walk_rows(KeySpan::forward(&start, end.as_ref().map(<[u8; 4]>::as_slice)), each)?;
            for (key, value) in &rows {
                let row = crate::row::Row::new(&schema, key, value);
                if let Some(entry) = index_entry(&schema, index, &row.values()?, key)? {
                    statement.put_entry(&schema, index, &entry)?;
                }
            }
            let more = rows.len() == limit;
            Ok(rows.pop().filter(|_| more).map(|(mut last, _)| {
                last.push(0);
                last
            }))
        })
    }

    fn publish_index(&mut self, table: &str, name: &str) -> Result<()> {
        let handle = self.table(table)?;
        let mut parts = self.schema(&handle)?.parts.clone();
        let unknown = || TablesError::UnknownIndex { table: table.to_owned(), index: name.to_owned() };
        parts.indexes.iter_mut().find(|index| index.name == name).ok_or_else(unknown)?.ready = true;
        self.put_parts(parts, false)?;
        Ok(())
    }
}
