//! SQLite 3.54.1 (rusqlite 0.41.1, bundled).
//!
//! `sqlite_full`: WAL, synchronous FULL: every commit syncs the log. Threads share one connection behind a lock, which
//! is faster than a connection each (writers would sleep in the busy handler).
//! `sqlite_tuned`: WAL, synchronous NORMAL, 3 GB cache, 4 GB mmap, one transaction for the load, statements prepared
//! once. NORMAL leaves the log unsynced, so the load ends with a sync of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use ropewalk_bench::commit::DurableStore;
use ropewalk_bench::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::rows::{Rows, VALUE_BYTES, signed};
use rusqlite::{Connection, OptionalExtension, Statement};

const TABLE: &str = "CREATE TABLE rows (key INTEGER PRIMARY KEY, value BLOB NOT NULL)";
const INSERT: &str = "INSERT INTO rows (key, value) VALUES (?1, ?2)";

fn open(dir: &Path, synchronous: &str) -> Result<Connection> {
    let connection = Connection::open(dir.join("rows.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.execute(TABLE, ())?;
    Ok(connection)
}

/// Every commit durable.
pub(crate) struct Full(Mutex<Connection>);

impl DurableStore for Full {
    fn create(dir: &Path) -> Result<Self> {
        Ok(Self(Mutex::new(open(dir, "FULL")?)))
    }

    fn commit(&self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connection.prepare_cached(INSERT)?.execute((signed(key), value.as_slice()))?;
        Ok(())
    }

    fn rows(&self) -> Result<u64> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows: i64 = connection.query_row("SELECT count(*) FROM rows", (), |row| row.get(0))?;
        Ok(rows.cast_unsigned())
    }
}

/// Set up for reading fast.
pub(crate) struct Tuned {
    connection: Connection,
    log: PathBuf,
}

impl OrderedStore for Tuned {
    type Reader<'a> = Reader<'a>;

    fn create(dir: &Path) -> Result<Self> {
        let connection = open(dir, "NORMAL")?;
        connection.pragma_update(None, "cache_size", -3_000_000)?;
        connection.pragma_update(None, "mmap_size", 4i64 << 30)?;
        Ok(Self { connection, log: dir.join("rows.sqlite-wal") })
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        let transaction = self.connection.transaction()?;
        let mut insert = transaction.prepare(INSERT)?;
        for (key, value) in rows.iter() {
            insert.execute((signed(key), value.as_slice()))?;
        }
        drop(insert);
        transaction.commit()?;
        File::open(&self.log)?.sync_data()?;
        Ok(())
    }

    fn settle(&mut self) -> Result<bool> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        Ok(true)
    }

    fn reader(&self) -> Result<Reader<'_>> {
        Ok(Reader {
            get: self.connection.prepare("SELECT value FROM rows WHERE key = ?1")?,
            scan: self.connection.prepare("SELECT value FROM rows WHERE key >= ?1 ORDER BY key LIMIT ?2")?,
        })
    }
}

/// Two prepared statements.
pub(crate) struct Reader<'a> {
    get: Statement<'a>,
    scan: Statement<'a>,
}

impl OrderedReader for Reader<'_> {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.get.query_row((signed(key),), |row| Ok(touch(row.get_ref(0)?.as_blob()?))).optional()?)
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        let (mut sum, mut count) = (0u64, 0);
        let mut rows = self.scan.query((signed(from), limit as i64))?;
        while let Some(row) = rows.next()? {
            sum = sum.wrapping_add(touch(row.get_ref(0)?.as_blob()?));
            count += 1;
        }
        Ok((sum, count))
    }
}
