//! redb 4.4.0: 3 GB cache, `i64` typed key, commits of 1M rows for the load, durability Immediate. redb has one writer;
//! others wait for it. YCSB without durability: durability None, and Immediate every thousandth commit.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableDefinition,
};
use ropewalk_bench::workloads::kernel::commit::DurableStore;
use ropewalk_bench::workloads::kernel::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::workloads::kernel::rows::{Order, Rows, VALUE_BYTES, signed};
use ropewalk_bench::workloads::omendb::run::{IntegerRows, value};
use ropewalk_bench::workloads::ycsb::run::{Session, SharedStore};

const TABLE: TableDefinition<'_, i64, &[u8]> = TableDefinition::new("rows");
const ROWS_PER_COMMIT: u64 = 1_000_000;

/// One database file.
pub(crate) struct Redb(Database);

impl Redb {
    fn open(dir: &Path) -> Result<Self> {
        let database = Database::builder().set_cache_size(3 << 30).create(dir.join("rows.redb"))?;
        Ok(Self(database))
    }

    fn write(&self, rows: impl Iterator<Item = (u64, [u8; VALUE_BYTES])>) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in rows {
            table.insert(signed(key), value.as_slice())?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }
}

impl DurableStore for Redb {
    fn create(dir: &Path) -> Result<Self> {
        Self::open(dir)
    }

    fn commit(&self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.write(std::iter::once((key, *value)))
    }

    fn rows(&self) -> Result<u64> {
        Ok(self.0.begin_read()?.open_table(TABLE)?.len()?)
    }
}

impl OrderedStore for Redb {
    type Reader<'a> = Reader;

    fn create(dir: &Path) -> Result<Self> {
        Self::open(dir)
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        let mut all = rows.iter();
        for _ in 0..rows.count.div_ceil(ROWS_PER_COMMIT) {
            self.write(all.by_ref().take(ROWS_PER_COMMIT as usize))?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn reader(&self) -> Result<Reader> {
        Ok(Reader(self.0.begin_read()?.open_table(TABLE)?))
    }
}

impl IntegerRows for Redb {
    fn create(dir: &Path) -> Result<Self> {
        Self::open(dir)
    }

    fn insert(&mut self, keys: &[i64], _order: Order) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut table = transaction.open_table(TABLE)?;
        let mut text = String::new();
        for &key in keys {
            value(key, &mut text);
            table.insert(key, text.as_bytes())?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn query(&mut self, keys: &[i64]) -> Result<u64> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let mut sum = 0_u64;
        for &key in keys {
            sum = sum.wrapping_add(touch(table.get(key)?.context("a row is missing")?.value()));
        }
        Ok(sum)
    }
}

/// Interval of synced commits when commits need not be durable: without any sync the file only grows.
const COMMITS_PER_SYNC: u64 = 1000;

/// For many sessions.
pub(crate) struct Shared {
    redb: Redb,
    durable: bool,
    commits: AtomicU64,
}

impl Shared {
    fn write(&self, key: u64, value: impl FnOnce(Option<&[u8]>) -> Result<[u8; VALUE_BYTES]>) -> Result<()> {
        let mut transaction = self.redb.0.begin_write()?;
        let synced =
            self.durable || self.commits.fetch_add(1, Ordering::Relaxed).is_multiple_of(COMMITS_PER_SYNC);
        transaction.set_durability(if synced { Durability::Immediate } else { Durability::None })?;
        let mut table = transaction.open_table(TABLE)?;
        let value = value(table.get(signed(key))?.as_ref().map(|found| found.value()))?;
        table.insert(signed(key), value.as_slice())?;
        drop(table);
        Ok(transaction.commit()?)
    }
}

impl SharedStore for Shared {
    type Session<'a> = &'a Shared;

    fn create(dir: &Path, durable: bool) -> Result<Self> {
        Ok(Self { redb: Redb::open(dir)?, durable, commits: AtomicU64::new(0) })
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        self.redb.load(rows)
    }

    fn session(&self) -> Result<&Shared> {
        Ok(self)
    }
}

impl Session for &Shared {
    fn read(&mut self, key: u64) -> Result<Option<u64>> {
        self.redb.reader()?.get(key)
    }

    fn update(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.write(key, |_| Ok(*value))
    }

    fn insert(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        self.write(key, |_| Ok(*value))
    }

    fn modify(&mut self, key: u64, change: fn(&mut [u8; VALUE_BYTES])) -> Result<()> {
        self.write(key, |found| {
            let mut value: [u8; VALUE_BYTES] = found.context("a row is missing")?.try_into()?;
            change(&mut value);
            Ok(value)
        })
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        self.redb.reader()?.scan(from, limit)
    }
}

/// One read transaction's table.
pub(crate) struct Reader(ReadOnlyTable<i64, &'static [u8]>);

impl OrderedReader for Reader {
    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.0.get(signed(key))?.map(|value| touch(value.value())))
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        let (mut sum, mut rows) = (0u64, 0);
        for row in self.0.range(signed(from)..)?.take(limit) {
            sum = sum.wrapping_add(touch(row?.1.value()));
            rows += 1;
        }
        Ok((sum, rows))
    }
}
