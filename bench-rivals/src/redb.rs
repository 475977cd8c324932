//! redb 4.4.0: 3 GB cache, `i64` typed key, commits of 1M rows for the load, durability Immediate. redb has one writer;
//! others wait for it.

use std::path::Path;

use anyhow::Result;
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use ropewalk_bench::commit::DurableStore;
use ropewalk_bench::ordered::{OrderedReader, OrderedStore, touch};
use ropewalk_bench::rows::{Rows, VALUE_BYTES, signed};

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
