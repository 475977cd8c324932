//! SQLite as a document store for the rows of the Bundoc report: `(id TEXT PRIMARY KEY, doc TEXT) WITHOUT ROWID`, WAL, JSON text
//! that is parsed when it is read, statements prepared once, the default cache.
//!
//! `sqlite_full_shared`: synchronous FULL, all threads write through one connection under a lock and read
//! through separate ones.
//! `sqlite_full_own`: synchronous FULL, a connection for each thread, a busy timeout of a minute.
//! `sqlite_normal_shared`, `sqlite_normal_own`: the same with synchronous NORMAL, for rows that are not durable.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ropewalk_bench::workloads::bundoc::run::{DocumentSession, DocumentStore, Field, Fields};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS docs (id TEXT PRIMARY KEY, doc TEXT NOT NULL) WITHOUT ROWID";
const INSERT: &str = "INSERT INTO docs (id, doc) VALUES (?1, ?2)";
const UPDATE: &str = "UPDATE docs SET doc = ?2 WHERE id = ?1";
const GET: &str = "SELECT doc FROM docs WHERE id = ?1";

/// A store whose writers share a connection, or have one each.
pub(crate) struct Store<const SHARED: bool> {
    file: PathBuf,
    durable: bool,
    writer: Mutex<Connection>,
}

/// A thread's connection, and the shared one for writes if there is one.
pub(crate) struct Session<'a> {
    own: Connection,
    shared: Option<&'a Mutex<Connection>>,
}

fn open(file: &Path, durable: bool) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?;
    connection.execute(TABLE, ())?;
    Ok(connection)
}

impl<const SHARED: bool> DocumentStore for Store<SHARED> {
    type Session<'a> = Session<'a>;

    fn open(dir: &Path, durable: bool) -> Result<Self> {
        let file = dir.join("docs.sqlite");
        Ok(Self { writer: Mutex::new(open(&file, durable)?), file, durable })
    }

    fn session(&self) -> Result<Session<'_>> {
        Ok(Session { own: open(&self.file, self.durable)?, shared: SHARED.then_some(&self.writer) })
    }
}

fn json(id: &str, fields: Fields<'_>) -> String {
    let mut object = serde_json::Map::new();
    object.insert("_id".into(), id.into());
    for (name, field) in fields {
        let value = match field {
            Field::Number(number) => (*number).into(),
            Field::Text(text) => (*text).into(),
            Field::Flag(flag) => (*flag).into(),
        };
        object.insert((*name).into(), value);
    }
    serde_json::Value::Object(object).to_string()
}

impl Session<'_> {
    fn write<R>(&mut self, work: impl FnOnce(&mut Connection) -> Result<R>) -> Result<R> {
        match self.shared {
            Some(shared) => work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner)),
            None => work(&mut self.own),
        }
    }
}

impl DocumentSession for Session<'_> {
    fn insert(&mut self, id: &str, fields: Fields<'_>) -> Result<()> {
        let document = json(id, fields);
        self.write(|connection| {
            connection.prepare_cached(INSERT)?.execute((id, &document))?;
            Ok(())
        })
    }

    fn replace(&mut self, id: &str, fields: Fields<'_>) -> Result<()> {
        let document = json(id, fields);
        self.write(|connection| {
            let changed = connection.prepare_cached(UPDATE)?.execute((id, &document))?;
            ensure!(changed == 1, "{id} does not exist");
            Ok(())
        })
    }

    fn find(&mut self, id: &str) -> Result<Option<i64>> {
        let mut get = self.own.prepare_cached(GET)?;
        let found: Option<String> = get.query_row((id,), |row| row.get(0)).optional()?;
        let Some(text) = found else { return Ok(None) };
        let document: serde_json::Value = serde_json::from_str(&text)?;
        Ok(Some(document.get("value").and_then(serde_json::Value::as_i64).context("no value")?))
    }

    fn insert_batch(&mut self, documents: &mut dyn Iterator<Item = (String, i64)>) -> Result<()> {
        self.write(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut insert = transaction.prepare_cached(INSERT)?;
            for (id, value) in documents {
                let document = json(&id, &[("value", Field::Number(value))]);
                insert.execute((&id, &document))?;
            }
            drop(insert);
            Ok(transaction.commit()?)
        })
    }

    fn count(&mut self) -> Result<u64> {
        let count: i64 = self.own.query_row("SELECT count(*) FROM docs", (), |row| row.get(0))?;
        Ok(count.cast_unsigned())
    }
}
