//! A typed table under many sessions: transactions for writes, prepared reads, bulk load.

use std::path::Path;

use anyhow::Result;
use ropewalk::tables::{ColumnDef, KeyRange, PointGet, Table, TableDef, TablesError, Type, Value};
use ropewalk::{Database, Durability, Isolation, Options, Transaction};
use ropewalk_bench::workloads::kernel::ordered::touch;
use ropewalk_bench::workloads::kernel::rows::{Rows, VALUE_BYTES, signed};
use ropewalk_bench::workloads::ycsb::run::{Session, SharedStore};

const MEMORY_BYTES: u64 = 3 << 30;
/// Maximum attempts of a transaction with conflicts.
const ATTEMPTS: usize = 10_000;

/// `rows (key int8 primary key, value bytea not null)`
pub(crate) fn rows() -> TableDef {
    TableDef::new("rows")
        .column(ColumnDef::new("key", Type::INT8))
        .column(ColumnDef::new("value", Type::BYTEA).not_null())
        .primary_key(["key"])
}

/// One table, [`rows`].
pub(crate) struct Shared {
    db: Database,
    table: Table,
    durability: Durability,
}

impl SharedStore for Shared {
    type Session<'a> = One<'a>;

    fn create(dir: &Path, durable: bool) -> Result<Self> {
        // The peers retain no log of data in their files.
        let db = Options::new().memory_budget(MEMORY_BYTES).log_retention(0).open(dir)?;
        let mut tx = db.begin();
        let table = tx.tables().create_table(rows())?;
        tx.commit()?;
        let durability = if durable { Durability::Sync } else { Durability::Buffered };
        Ok(Self { db, table, durability })
    }

    fn load(&mut self, rows: Rows) -> Result<()> {
        let mut load = self.db.tables().load(&self.table)?;
        for (key, value) in rows.iter() {
            load.row(&[Value::Int8(signed(key)), Value::bytea(&value[..])])?;
        }
        load.finish()?;
        Ok(())
    }

    fn session(&self) -> Result<One<'_>> {
        Ok(One { shared: self, point: self.db.tables().point(&self.table) })
    }
}

/// One thread's handle.
pub(crate) struct One<'a> {
    shared: &'a Shared,
    point: PointGet,
}

impl One<'_> {
    fn write(&self, work: impl FnMut(&mut Transaction) -> Result<(), ropewalk::Error>) -> Result<()> {
        let shared = self.shared;
        Ok(shared.db.transact_with(Isolation::Serializable, shared.durability, ATTEMPTS, work)?)
    }
}

fn bytes<'v>(value: &'v Value<'_>) -> &'v [u8] {
    match value {
        Value::Bytea(bytes) => bytes,
        _ => &[],
    }
}

fn absent() -> ropewalk::Error {
    ropewalk::Error::Invalid("no such row".into())
}

impl Session for One<'_> {
    fn read(&mut self, key: u64) -> Result<Option<u64>> {
        let snapshot = self.shared.db.snapshot();
        let Some(row) = self.point.get(snapshot.engine(), &[Value::Int8(signed(key))])? else {
            return Ok(None);
        };
        Ok(Some(touch(bytes(&row.row().get(1)?))))
    }

    fn update(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        let table = &self.shared.table;
        self.write(|tx| {
            let found = tx.tables().update(
                table,
                &[Value::Int8(signed(key))],
                &[("value", Value::bytea(&value[..]))],
            )?;
            if found { Ok(()) } else { Err(absent()) }
        })
    }

    fn insert(&mut self, key: u64, value: &[u8; VALUE_BYTES]) -> Result<()> {
        let table = &self.shared.table;
        self.write(|tx| {
            tx.tables().insert_row(table, &[Value::Int8(signed(key)), Value::bytea(&value[..])])?;
            Ok(())
        })
    }

    fn modify(&mut self, key: u64, change: fn(&mut [u8; VALUE_BYTES])) -> Result<()> {
        let table = &self.shared.table;
        self.write(|tx| {
            let row = tx.tables().get(table, &[Value::Int8(signed(key))])?.ok_or_else(absent)?;
            let mut value: [u8; VALUE_BYTES] = bytes(&row.get(1)?)
                .try_into()
                .map_err(|_| ropewalk::Error::Invalid("another length".into()))?;
            change(&mut value);
            tx.tables().update_row(&row, &[("value", Value::bytea(&value[..]))])?;
            Ok(())
        })
    }

    fn scan(&mut self, from: u64, limit: usize) -> Result<(u64, usize)> {
        let snapshot = self.shared.db.snapshot();
        let range = KeyRange::all().from([Value::Int8(signed(from))]);
        let (mut sum, mut rows) = (0_u64, 0);
        let each = &mut |row: ropewalk::tables::Row<'_>| -> Result<bool, TablesError> {
            sum = sum.wrapping_add(touch(bytes(&row.get(1)?)));
            rows += 1;
            Ok(rows < limit)
        };
        snapshot.tables(&self.shared.db).scan(&self.shared.table, &range, false, each)?;
        Ok((sum, rows))
    }
}
