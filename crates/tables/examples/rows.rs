//! Cost of rows on top of the store: point reads, scans, inserts; one thread, in memory.
//!
//! ```text
//! cargo run --release -p ropewalk-tables --example rows -- [ROWS]
//! ```
//!
//! Prints nanoseconds per operation. `raw` reads the same key from the keyspace, bypassing tables.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a measuring program: it prints, and stops at the first error

use std::path::Path;
use std::sync::Arc;

use ropewalk_base::keys;
use ropewalk_engine::{Durability, Engine, EngineOptions, Isolation, KvTransaction, Operation};
use ropewalk_tables::{
    ColumnDef, KeyRange, TableDef, Tables, TablesModel, TablesState, TablesTx, Type, Value,
};
use ropewalk_vfs::{Env, Random, SeededRandom};

const READS: u64 = 300_000;
const BATCH: i64 = 10_000;

fn main() {
    let rows: i64 = std::env::args().nth(1).map_or(200_000, |text| text.parse().unwrap());
    let env = Env::memory();
    let clock = Env::real().clock;
    let model = Arc::new(TablesModel::default());
    let engine = Arc::new(
        Engine::open(&env, Path::new("/db"), EngineOptions::default(), vec![model.clone()]).unwrap(),
    );
    let tables = Tables::new(engine.clone(), model);
    let run = |work: &dyn Fn(&mut TablesTx<'_>)| {
        let mut kv = KvTransaction::new(engine.clone(), Isolation::Serializable);
        let mut state = TablesState::default();
        work(&mut TablesTx::new(&tables, &mut kv, &mut state));
        let mut operations: Vec<Box<dyn Operation>> = state.operation().into_iter().collect();
        operations.push(Box::new(kv.into_batch()));
        engine.commit(operations, Durability::Buffered).unwrap();
    };
    run(&|t| {
        let columns = TableDef::new("t").column(ColumnDef::new("id", Type::INT8));
        t.create_table(columns.column(ColumnDef::new("v", Type::TEXT).not_null()).primary_key(["id"]))
            .unwrap();
    });
    let table = tables.table("t").unwrap();
    let timed = |name: &str, count: u64, work: &mut dyn FnMut()| {
        let start = clock.monotonic_nanos();
        work();
        let nanos = clock.monotonic_nanos() - start;
        println!("{name:<28} {:>8} ns", nanos / count);
    };
    let text = "x".repeat(100);
    timed("insert, 10k a commit", rows as u64, &mut || {
        for first in (0..rows).step_by(BATCH as usize) {
            run(&|t| {
                for id in first..(first + BATCH).min(rows) {
                    t.insert_row(&table, &[Value::Int8(id), text.as_str().into()]).unwrap();
                }
            });
        }
    });
    for state in ["memtable", "compacted"] {
        if state == "compacted" {
            engine.compact().unwrap();
        }
        println!("-- {state}");
        let random = SeededRandom::new(1);
        let ids: Vec<i64> = (0..READS).map(|_| (random.next_u64() % rows as u64) as i64).collect();
        let snapshot = engine.snapshot();
        let raw = engine.keyspace("tables", Default::default()).unwrap();
        let object = {
            let mut cursor = snapshot.read().cursor(raw);
            cursor.first().unwrap();
            cursor.key().first_chunk::<4>().copied().unwrap()
        };
        let mut found = 0_usize;
        timed("raw get", READS, &mut || {
            let mut key = Vec::new();
            for id in &ids {
                key.clear();
                key.extend_from_slice(&object);
                keys::put_i64(&mut key, *id);
                found += snapshot.read().get(raw, &key).unwrap().unwrap().len();
            }
        });
        let mut point = tables.point(&table);
        timed("point get, both columns", READS, &mut || {
            for id in &ids {
                let row = point.get(&snapshot, &[Value::Int8(*id)]).unwrap().unwrap();
                let row = row.row();
                let (Value::Int8(id), Value::Text(text)) = (row.get(0).unwrap(), row.get(1).unwrap()) else {
                    return;
                };
                found += id as usize % 2 + text.len();
            }
        });
        let mut kv = KvTransaction::new(engine.clone(), Isolation::Serializable);
        let mut state = TablesState::default();
        timed("get in a transaction", READS, &mut || {
            let mut t = TablesTx::new(&tables, &mut kv, &mut state);
            for id in &ids {
                found += t.get(&table, &[Value::Int8(*id)]).unwrap().is_some() as usize;
            }
        });
        timed("scan, per row", rows as u64, &mut || {
            let mut at = tables.at(&snapshot);
            at.scan(&table, &KeyRange::all(), false, &mut |row| {
                found += matches!(row.get(1)?, Value::Text(_)) as usize;
                Ok(true)
            })
            .unwrap();
        });
        assert!(found > 0);
    }
}
