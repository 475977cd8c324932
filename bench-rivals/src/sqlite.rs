//! SQLite 3.54.1 (rusqlite 0.41.1, bundled).
//!
//! `sqlite_full`: WAL, synchronous FULL: every commit syncs the log. Threads share one connection under a
//! lock, which is faster than a connection each (writers would sleep in the busy handler).
//! `sqlite_tuned`: WAL, synchronous NORMAL, 3 GB cache, 4 GB mmap, one transaction for the load, statements prepared
//! once. NORMAL leaves the log unsynced, so the load ends with a sync of it.
//! `sqlite_report_shape`: as the OmenDB report drove it: all defaults (rollback journal, synchronous FULL, 2
//! MB page cache, no mmap), one transaction, every statement prepared again for every row and every query,
//! values copied out.
//! YCSB: as tuned, a connection for each thread, synchronous FULL in the durable rows. TPC-B: as full.
//! `sqlite_prepared`: the same defaults, statements prepared once, values read in place.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use ropewalk_bench::workloads::kernel::commit::DurableStore;
use ropewalk_bench::workloads::kernel::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::workloads::kernel::rows::{Order, Rows, VALUE_BYTES, signed};
use ropewalk_bench::workloads::omendb::run::{IntegerRows, value};
use ropewalk_bench::workloads::tpcb::run::{BRANCHES, Bank as BankShape, TELLERS, Teller, Transfer};
use ropewalk_bench::workloads::ycsb::run::{Session, SharedStore};
use rusqlite::{Connection, OptionalExtension, Statement, TransactionBehavior};

const TABLE: &str = "CREATE TABLE rows (key INTEGER PRIMARY KEY, value BLOB NOT NULL)";
const INSERT: &str = "INSERT INTO rows (key, value) VALUES (?1, ?2)";
const UPDATE: &str = "UPDATE rows SET value = ?2 WHERE key = ?1";
const SCAN: &str = "SELECT value FROM rows WHERE key >= ?1 ORDER BY key LIMIT ?2";
const GET: &str = "SELECT value FROM rows WHERE key = ?1";

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

/// Configured for fast reads.
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
        Ok(Reader { get: self.connection.prepare(GET)?, scan: self.connection.prepare(SCAN)? })
    }
}

impl IntegerRows for Tuned {
    fn create(dir: &Path) -> Result<Self> {
        <Self as OrderedStore>::create(dir)
    }

    fn insert(&mut self, keys: &[i64], _order: Order) -> Result<()> {
        insert_prepared(&mut self.connection, keys)?;
        File::open(&self.log)?.sync_data()?;
        Ok(())
    }

    fn query(&mut self, keys: &[i64]) -> Result<u64> {
        query_prepared(&self.connection, keys)
    }
}

/// One transaction, one statement.
fn insert_prepared(connection: &mut Connection, keys: &[i64]) -> Result<()> {
    let transaction = connection.transaction()?;
    let mut insert = transaction.prepare(INSERT)?;
    let mut text = String::new();
    for &key in keys {
        value(key, &mut text);
        insert.execute((key, text.as_bytes()))?;
    }
    drop(insert);
    Ok(transaction.commit()?)
}

/// One statement, a separate transaction for every key.
fn query_prepared(connection: &Connection, keys: &[i64]) -> Result<u64> {
    let mut get = connection.prepare(GET)?;
    let mut sum = 0_u64;
    for key in keys {
        sum = sum.wrapping_add(get.query_row((key,), |row| Ok(touch(row.get_ref(0)?.as_blob()?)))?);
    }
    Ok(sum)
}

fn open_with_defaults(dir: &Path) -> Result<Connection> {
    let connection = Connection::open(dir.join("rows.sqlite"))?;
    connection.execute(TABLE, ())?;
    Ok(connection)
}

/// Defaults and prepared statements.
pub(crate) struct Prepared(Connection);

impl IntegerRows for Prepared {
    fn create(dir: &Path) -> Result<Self> {
        Ok(Self(open_with_defaults(dir)?))
    }

    fn insert(&mut self, keys: &[i64], _order: Order) -> Result<()> {
        insert_prepared(&mut self.0, keys)
    }

    fn query(&mut self, keys: &[i64]) -> Result<u64> {
        query_prepared(&self.0, keys)
    }
}

/// Defaults, and a statement prepared for every row.
pub(crate) struct ReportShape(Connection);

impl IntegerRows for ReportShape {
    fn create(dir: &Path) -> Result<Self> {
        Ok(Self(open_with_defaults(dir)?))
    }

    fn insert(&mut self, keys: &[i64], _order: Order) -> Result<()> {
        let transaction = self.0.transaction()?;
        let mut text = String::new();
        for &key in keys {
            value(key, &mut text);
            transaction.execute(INSERT, (key, text.as_bytes()))?;
        }
        Ok(transaction.commit()?)
    }

    fn query(&mut self, keys: &[i64]) -> Result<u64> {
        let mut sum = 0_u64;
        for key in keys {
            let value: Vec<u8> = self.0.query_row(GET, (key,), |row| row.get(0))?;
            sum = sum.wrapping_add(touch(&value));
        }
        Ok(sum)
    }
}

/// Tuned, with a connection for each session: readers run concurrently with the writer.
pub(crate) struct Shared {
    dir: PathBuf,
    synchronous: &'static str,
}

impl Shared {
    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(self.dir.join("rows.sqlite"))?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.pragma_update(None, "synchronous", self.synchronous)?;
        connection.pragma_update(None, "cache_size", -3_000_000)?;
        connection.pragma_update(None, "mmap_size", 4i64 << 30)?;
        Ok(connection)
    }
}

impl SharedStore for Shared {
    type Session<'a> = One;

    fn create(dir: &Path, durable: bool) -> Result<Self> {
        let synchronous = if durable { "FULL" } else { "NORMAL" };
        open(dir, synchronous)?;
        Ok(Self { dir: dir.into(), synchronous })
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        let mut connection = self.connect()?;
        let transaction = connection.transaction()?;
        let mut insert = transaction.prepare(INSERT)?;
        for (key, value) in rows.iter() {
            insert.execute((signed(key), value.as_slice()))?;
        }
        drop(insert);
        transaction.commit()?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        Ok(())
    }

    fn session(&self) -> Result<One> {
        Ok(One(self.connect()?))
    }
}

/// One thread's connection.
pub(crate) struct One(Connection);

impl Session for One {
    fn read(&mut self, key: u64) -> Result<Option<u64>> {
        let mut get = self.0.prepare_cached(GET)?;
        Ok(get.query_row((signed(key),), |row| Ok(touch(row.get_ref(0)?.as_blob()?))).optional()?)
    }

    fn update(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        let mut update = self.0.prepare_cached(UPDATE)?;
        anyhow::ensure!(update.execute((signed(key), value.as_slice()))? == 1, "a row is missing");
        Ok(())
    }

    fn insert(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.0.prepare_cached(INSERT)?.execute((signed(key), value.as_slice()))?;
        Ok(())
    }

    fn modify(&mut self, key: u64, change: fn(&mut [u8; VALUE_BYTES])) -> Result<()> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value: Vec<u8> = transaction.prepare_cached(GET)?.query_row((signed(key),), |row| row.get(0))?;
        let mut value: [u8; VALUE_BYTES] = value.as_slice().try_into()?;
        change(&mut value);
        transaction.prepare_cached(UPDATE)?.execute((signed(key), value.as_slice()))?;
        Ok(transaction.commit()?)
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        let mut scan = self.0.prepare_cached(SCAN)?;
        let (mut sum, mut count) = (0u64, 0);
        let mut rows = scan.query((signed(from), limit as i64))?;
        while let Some(row) = rows.next()? {
            sum = sum.wrapping_add(touch(row.get_ref(0)?.as_blob()?));
            count += 1;
        }
        Ok((sum, count))
    }
}

/// TPC-B on one connection under a lock, every commit durable.
pub(crate) struct Bank(Mutex<Connection>);

impl BankShape for Bank {
    type Session<'a> = &'a Bank;

    fn create(dir: &Path, accounts: u64) -> Result<Self> {
        let mut connection = open(dir, "FULL")?;
        connection.execute_batch(
            "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
             CREATE TABLE tellers (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
             CREATE TABLE branches (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
             CREATE TABLE history (number INTEGER PRIMARY KEY, account INTEGER NOT NULL, teller INTEGER NOT NULL,
                                   branch INTEGER NOT NULL, delta INTEGER NOT NULL);",
        )?;
        let transaction = connection.transaction()?;
        for (table, rows) in [("accounts", accounts), ("tellers", TELLERS), ("branches", BRANCHES)] {
            let mut insert = transaction.prepare(&format!("INSERT INTO {table} VALUES (?1, 0)"))?;
            (0..rows.cast_signed()).try_for_each(|id| insert.execute((id,)).map(|_| ()))?;
        }
        transaction.commit()?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        Ok(Self(Mutex::new(connection)))
    }

    fn session(&self) -> Result<&Bank> {
        Ok(self)
    }

    fn sums(&self) -> Result<([i64; 4], u64)> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = [0; 4];
        let sources = [
            "balance) FROM accounts",
            "balance) FROM tellers",
            "balance) FROM branches",
            "delta) FROM history",
        ];
        for (sum, source) in sums.iter_mut().zip(sources) {
            let found: Option<i64> =
                connection.query_row(&format!("SELECT sum({source}"), (), |row| row.get(0))?;
            *sum = found.unwrap_or_default();
        }
        let lines: i64 = connection.query_row("SELECT count(*) FROM history", (), |row| row.get(0))?;
        Ok((sums, lines.cast_unsigned()))
    }
}

impl Teller for &Bank {
    fn transfer(&mut self, transfer: Transfer) -> Result<()> {
        let Transfer { account, teller, branch, delta, number } = transfer;
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let updates = [
            ("UPDATE accounts SET balance = balance + ?2 WHERE id = ?1", account),
            ("UPDATE tellers SET balance = balance + ?2 WHERE id = ?1", teller),
            ("UPDATE branches SET balance = balance + ?2 WHERE id = ?1", branch),
        ];
        for (sql, id) in updates {
            transaction.prepare_cached(sql)?.execute((id.cast_signed(), delta))?;
        }
        let [account, teller, branch, number] = [account, teller, branch, number].map(u64::cast_signed);
        transaction
            .prepare_cached("INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute((number, account, teller, branch, delta))?;
        Ok(transaction.commit()?)
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
