//! LMDB 0.9.70 (heed 0.23.1): map of 16 GB, sync on, commits of 1M rows for the load, APPEND when sequential. LMDB has
//! one writer; others wait for its lock. YCSB without durability: NOSYNC.
//!
//! This file may use `unsafe` for one thing: opening an environment, which is unsafe because LMDB maps a file
//! that others could change. Only this process uses it.
#![allow(unsafe_code)]

use std::ops::Bound;
use std::path::Path;

use anyhow::{Context, Result, bail};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithTls};
use ropewalk_bench::workloads::kernel::commit::DurableStore;
use ropewalk_bench::workloads::kernel::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::workloads::kernel::rows::{Order, Rows, VALUE_BYTES, unsigned};
use ropewalk_bench::workloads::omendb::run::{IntegerRows, value};
use ropewalk_bench::workloads::ycsb::run::{Session, SharedStore};

const MAP_BYTES: usize = 16 << 30;
const ROWS_PER_COMMIT: usize = 1_000_000;

/// An environment with one unnamed table.
pub(crate) struct Lmdb {
    env: Env,
    table: Database<'static, Bytes, Bytes>,
}

fn open(dir: &Path) -> Result<Lmdb> {
    open_with(dir, EnvFlags::empty())
}

fn open_with(dir: &Path, flags: EnvFlags) -> Result<Lmdb> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(256);
    // SAFETY: the directory is new and belongs to this process; no other process changes the file while it is
    // mapped. Without syncs a power failure may leave a broken file, which is never opened again.
    let env = unsafe { options.flags(flags).open(dir)? };
    let transaction = env.write_txn()?;
    let created = env.create_databases_and_commit(transaction, |opener, transaction| {
        opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    })?;
    let CommitOrAbort::Commit(table) = created else { bail!("the table was not created") };
    Ok(Lmdb { env, table })
}

impl DurableStore for Lmdb {
    fn create(dir: &Path) -> Result<Self> {
        open(dir)
    }

    fn commit(&self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.table.put(&mut transaction, &key.to_be_bytes(), value)?;
        Ok(transaction.commit()?)
    }

    fn rows(&self) -> Result<u64> {
        let transaction = self.env.read_txn()?;
        Ok(self.table.len(&transaction)?)
    }
}

impl OrderedStore for Lmdb {
    type Reader<'a> = Reader<'a>;

    fn create(dir: &Path) -> Result<Self> {
        open(dir)
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        let flags = if rows.order == Order::Seq { PutFlags::APPEND } else { PutFlags::empty() };
        let mut transaction = self.env.write_txn()?;
        for (i, (key, value)) in rows.iter().enumerate() {
            if i > 0 && i.is_multiple_of(ROWS_PER_COMMIT) {
                transaction.commit()?;
                transaction = self.env.write_txn()?;
            }
            self.table.put_with_flags(&mut transaction, flags, &key.to_be_bytes(), &value)?;
        }
        Ok(transaction.commit()?)
    }

    fn settle(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn reader(&self) -> Result<Reader<'_>> {
        Ok(Reader { transaction: self.env.read_txn()?, table: self.table })
    }
}

impl IntegerRows for Lmdb {
    fn create(dir: &Path) -> Result<Self> {
        open(dir)
    }

    fn insert(&mut self, keys: &[i64], order: Order) -> Result<()> {
        let flags = if order == Order::Seq { PutFlags::APPEND } else { PutFlags::empty() };
        let mut transaction = self.env.write_txn()?;
        let mut text = String::new();
        for &key in keys {
            value(key, &mut text);
            let key = unsigned(key).to_be_bytes();
            self.table.put_with_flags(&mut transaction, flags, &key, text.as_bytes())?;
        }
        Ok(transaction.commit()?)
    }

    fn query(&mut self, keys: &[i64]) -> Result<u64> {
        let transaction = self.env.read_txn()?;
        let mut sum = 0_u64;
        for &key in keys {
            let found = self.table.get(&transaction, &unsigned(key).to_be_bytes())?;
            sum = sum.wrapping_add(touch(found.context("a row is missing")?));
        }
        Ok(sum)
    }
}

impl SharedStore for Lmdb {
    type Session<'a> = &'a Lmdb;

    fn create(dir: &Path, durable: bool) -> Result<Self> {
        open_with(dir, if durable { EnvFlags::empty() } else { EnvFlags::NO_SYNC })
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        OrderedStore::load(self, rows)
    }

    fn session(&self) -> Result<&Lmdb> {
        Ok(self)
    }
}

impl Session for &Lmdb {
    fn read(&mut self, key: u64) -> Result<Option<u64>> {
        let transaction = self.env.read_txn()?;
        Ok(self.table.get(&transaction, &key.to_be_bytes())?.map(touch))
    }

    fn update(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.commit(key, value)
    }

    fn insert(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.commit(key, value)
    }

    fn modify(&mut self, key: u64, change: fn(&mut [u8; VALUE_BYTES])) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        let found = self.table.get(&transaction, &key.to_be_bytes())?;
        let mut value: [u8; VALUE_BYTES] = found.context("a row is missing")?.try_into()?;
        change(&mut value);
        self.table.put(&mut transaction, &key.to_be_bytes(), &value)?;
        Ok(transaction.commit()?)
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        Reader { transaction: self.env.read_txn()?, table: self.table }.scan(from, limit)
    }
}

/// One read transaction.
pub(crate) struct Reader<'a> {
    transaction: RoTxn<'a, WithTls>,
    table: Database<'static, Bytes, Bytes>,
}

impl OrderedReader for Reader<'_> {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.table.get(&self.transaction, &key.to_be_bytes())?.map(touch))
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        let (mut sum, mut rows) = (0u64, 0);
        let from = from.to_be_bytes();
        let range = (Bound::Included(from.as_slice()), Bound::Unbounded);
        for row in self.table.range(&self.transaction, &range)?.take(limit) {
            sum = sum.wrapping_add(touch(row?.1));
            rows += 1;
        }
        Ok((sum, rows))
    }
}
