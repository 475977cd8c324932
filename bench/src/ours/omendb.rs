//! A typed table, as an application would have it: loaded in bulk, read through a prepared handle.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ropewalk::tables::{ColumnDef, PointGet, Table, TableDef, Type, Value};
use ropewalk::{Database, Options};
use ropewalk_bench::harness::random::SplitMix;
use ropewalk_bench::harness::worker::{Figure, Outcome, Task};
use ropewalk_bench::workloads::kernel::ordered::touch;
use ropewalk_bench::workloads::kernel::rows::Order;
use ropewalk_bench::workloads::omendb::run::{IntegerRows, value};

const MEMORY_BYTES: u64 = 3 << 30;
const MANY: usize = 32;

/// `rows (id int8 primary key, value bytea)`
pub(crate) struct Rows {
    db: Database,
    table: Table,
    point: PointGet,
}

impl IntegerRows for Rows {
    fn create(dir: &Path) -> Result<Self> {
        let db = Options::new().memory_budget(MEMORY_BYTES).open(dir)?;
        let mut tx = db.begin();
        let def = TableDef::new("rows")
            .column(ColumnDef::new("id", Type::INT8))
            .column(ColumnDef::new("value", Type::BYTEA))
            .primary_key(["id"]);
        let table = tx.tables().create_table(def)?;
        tx.commit()?;
        let point = db.tables().point(&table);
        Ok(Self { db, table, point })
    }

    fn insert(&mut self, keys: &[i64], _order: Order) -> Result<()> {
        let mut load = self.db.tables().load(&self.table)?;
        let mut text = String::new();
        for &key in keys {
            value(key, &mut text);
            load.row(&[Value::Int8(key), Value::bytea(text.as_bytes())])?;
        }
        let rows = load.finish()?;
        ensure!(rows == keys.len() as u64, "{rows} rows loaded");
        Ok(())
    }

    fn query(&mut self, keys: &[i64]) -> Result<u64> {
        let snapshot = self.db.snapshot();
        let mut sum = 0_u64;
        for &key in keys {
            let row = self.point.get(snapshot.engine(), &[Value::Int8(key)])?.context("a row is missing")?;
            sum = sum.wrapping_add(touched(&row.row().get(1)?));
        }
        Ok(sum)
    }

    /// Prepared reads one by one and batched.
    fn extra(&mut self, keys: &[i64], task: &Task, outcome: &mut Outcome) -> Result<()> {
        let snapshot = self.db.snapshot();
        let mut random = SplitMix::new(7);
        let (mut get, mut get_many) = (Figure::default(), Figure::default());
        // The first pass warms up.
        for pass in 0..=2 {
            let asked: Vec<Value<'_>> = (0..task.lookups).map(|_| Value::Int8(*random.pick(keys))).collect();
            let started = Instant::now();
            let mut one_by_one = 0_u64;
            for key in &asked {
                let row = self.point.get(snapshot.engine(), std::slice::from_ref(key))?;
                let row = row.context("a row is missing")?;
                one_by_one = one_by_one.wrapping_add(touched(&row.row().get(1)?));
            }
            if pass > 0 {
                get.per(started, asked.len(), 1e9);
            }
            let (mut at_once, mut found) = (0_u64, 0);
            let started = Instant::now();
            for keys in asked.chunks(MANY) {
                let mut slices = [&[][..]; MANY];
                slices.iter_mut().zip(keys).for_each(|(slice, key)| *slice = std::slice::from_ref(key));
                let keys = slices.get(..keys.len()).unwrap_or_default();
                self.point.get_many(snapshot.engine(), keys, |_, row| {
                    if let Some(row) = row {
                        at_once = at_once.wrapping_add(touched(&row.get(1)?));
                        found += 1;
                    }
                    Ok(())
                })?;
            }
            if pass > 0 {
                get_many.per(started, asked.len(), 1e9);
            }
            ensure!(found == asked.len() && at_once == one_by_one, "many at once differ from one by one");
        }
        outcome.figure("get", get);
        outcome.figure("get_many", get_many);
        Ok(())
    }
}

#[inline]
fn touched(value: &Value<'_>) -> u64 {
    match value {
        Value::Bytea(bytes) => touch(bytes),
        _ => 0,
    }
}
