//! LMDB 0.9.70 (heed 0.23.1): map of 16 GB, sync on, commits of 1M rows for the load, APPEND when sequential. LMDB has
//! one writer; others wait for its lock.
//!
//! This file may use `unsafe` for one thing: opening an environment, which is unsafe because LMDB maps a file that
//! others could change. Only this process has it.
#![allow(unsafe_code)]

use std::ops::Bound;
use std::path::Path;

use anyhow::{Result, bail};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, PutFlags, RoTxn, WithTls};
use ropewalk_bench::commit::DurableStore;
use ropewalk_bench::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::rows::{Order, Rows, VALUE_BYTES};

const MAP_BYTES: usize = 16 << 30;
const ROWS_PER_COMMIT: usize = 1_000_000;

/// An environment with one unnamed table.
pub(crate) struct Lmdb {
    env: Env,
    table: Database<'static, Bytes, Bytes>,
}

fn open(dir: &Path) -> Result<Lmdb> {
    // SAFETY: the directory is new and belongs to this process; nobody else changes the file while it is mapped.
    let env = unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).max_readers(256).open(dir)? };
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
