//! Databases of all released formats open, and changed bytes are detected.
//!
//! `fixtures/vN` in the repository was written by format N. Make a new one with `UPDATE_FIXTURES=vN cargo test fixtures`.

use std::fs;
use std::path::{Path, PathBuf};

use ropewalk::engine::KeyspaceOptions;
use ropewalk::events::{QueryItem, ReadOptions, Tracking};
use ropewalk::tables::{
    ColumnDef, DefaultValue, ForeignKeyDef, KeyRange, LoadOptions, TableDef, TablesRead, Type, Value,
};
use ropewalk::{AppendCondition, AppendOptions, Class, Database, Durability, Error, Event, Options, Query};

use crate::directories::{copy, files};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn options() -> Options {
    let mut options = Options::new();
    options.engine_mut().log.segment_bytes_first = 16 << 10;
    options.engine_mut().log.segment_bytes_max = 16 << 10;
    options
}

/// Writes a database, part of it in runs, part in the log.
fn write(dir: &Path) {
    let db = options().open(dir).unwrap();
    let notes = db.keyspace("notes", KeyspaceOptions::default()).unwrap();
    let orders = db.events("orders").unwrap();
    for round in 0..2 {
        for n in 0..20_u64 {
            let order = round * 20 + n;
            let placed = Event::new("OrderPlaced")
                .tag(format!("order:{order}"))
                .tag(format!("customer:{}", order % 3))
                .data(format!("{{\"order\":{order}}}"))
                .metadata("channel", "web");
            let options = AppendOptions {
                tracking: Some(Tracking { source: "shop".into(), position: order + 1 }),
                idempotency_key: Some(format!("place-{order}")),
                ..Default::default()
            };
            orders.append_with(&[placed], options).unwrap();
            db.put(notes, &order.to_be_bytes(), format!("note {order}").as_bytes(), Durability::Sync)
                .unwrap();
        }
        db.events("customers").unwrap().append(&[Event::new("Seen").tag("customer:1")], None).unwrap();
        write_tables(&db, round);
        if round == 0 {
            db.compact().unwrap();
        }
    }
    let mut tx = db.begin();
    tx.delete(notes, &7_u64.to_be_bytes());
    tx.append(&orders, &[Event::new("OrderCancelled").tag("order:7")], AppendOptions::default()).unwrap();
    tx.commit().unwrap();
    db.close().unwrap();
}

/// Rows that were loaded into runs, changed in the log, and written under two definitions.
fn write_tables(db: &Database, round: u64) {
    let mut tx = db.begin();
    if round == 0 {
        let id = || ColumnDef::new("id", Type::INT8);
        let shops = TableDef::new("shops").column(id()).column(ColumnDef::new("name", Type::TEXT));
        tx.tables().create_table(shops.primary_key(["id"]).unique(["name"])).unwrap();
        let sales = TableDef::new("sales").column(id()).column(ColumnDef::new("shop", Type::INT8));
        let shop = ForeignKeyDef::new(["shop"], "shops", ["id"]);
        tx.tables().create_table(sales.primary_key(["id"]).foreign_key(shop)).unwrap();
        tx.commit().unwrap();
        for (table, rows) in [("shops", 3), ("sales", 100)] {
            let options = LoadOptions { log_bytes_max: 0, ..LoadOptions::default() };
            let mut load = db.tables().load_with(&db.table(table).unwrap(), options).unwrap();
            for n in 0..rows {
                let second = if table == "shops" { format!("shop {n}").into() } else { Value::Int8(n % 3) };
                load.row(&[n.into(), second]).unwrap();
            }
            load.finish().unwrap();
        }
    } else {
        let price = ColumnDef::new("price", Type::INT8).default(DefaultValue::Value(5_i64.into()));
        tx.tables().add_column("sales", price).unwrap();
        let sales = tx.tables().table("sales").unwrap();
        tx.tables().delete(&sales, &[Value::Int8(7)]).unwrap();
        let row = [("id", 100_i64.into()), ("shop", 1_i64.into()), ("price", 9_i64.into())];
        tx.tables().insert(&sales, &row).unwrap();
        tx.commit().unwrap();
    }
}

fn check_tables(db: &Database) -> Result<(), Error> {
    let (shops, sales) = (db.table("shops")?, db.table("sales")?);
    let snapshot = db.snapshot();
    let mut read = snapshot.tables(db);
    assert_eq!(read.count(&shops, &KeyRange::all())?, 3);
    let mut total = 0;
    let mut ids = Vec::new();
    let each = &mut |row: ropewalk::tables::Row<'_>| {
        ids.push(row.get(0)?.as_integer().unwrap());
        total += row.column("price")?.as_integer().unwrap();
        Ok(true)
    };
    read.scan(&sales, &KeyRange::all(), false, each)?;
    assert_eq!(ids, (0..=100).filter(|id| *id != 7).collect::<Vec<_>>());
    assert_eq!(total, 99 * 5 + 9);
    let of_shop = KeyRange::prefix([Value::Int8(1)]);
    // The name of the foreign key, which differs between formats.
    let index = read.schema(&sales)?.indexes()[0].name().to_owned();
    assert_eq!(read.collect_index(&sales, &index, &of_shop, false, usize::MAX)?.len(), 33);
    Ok(())
}

/// Reads all data back; returns the first error. The first fixture predates tables.
fn check(db: &Database, tables: bool) -> Result<(), Error> {
    if tables {
        check_tables(db)?;
    }
    let before = db.seq();
    let notes = db.keyspace("notes", KeyspaceOptions::default())?;
    assert_eq!(db.seq(), before, "the keyspace is found, also where no record defines it");
    let snapshot = db.snapshot();
    for order in 0..41_u64 {
        let note =
            snapshot.get(notes, &order.to_be_bytes())?.map(|v| String::from_utf8_lossy(&v).into_owned());
        let expected = (order != 7 && order < 40).then(|| format!("note {order}"));
        assert_eq!(note, expected);
    }
    let mut cursor = snapshot.cursor(notes);
    cursor.first()?;
    let mut rows = 0;
    while cursor.valid() {
        rows += 1;
        cursor.next()?;
    }
    assert_eq!(rows, 39);
    let orders = db.existing_events("orders")?;
    let all = orders.read(&Query::all(), ReadOptions::default())?.collect::<Result<Vec<_>, _>>()?;
    assert_eq!(all.len(), 41);
    assert!((1..).zip(&all).all(|(position, event)| event.position.0 == position));
    assert_eq!(all[25].event.data, b"{\"order\":25}");
    assert_eq!(all[25].event.metadata, [("channel".to_owned(), "web".to_owned())]);
    for (query, count) in [
        (Query::from_tags(["customer:1"]), 13),
        (Query::from_types(["OrderPlaced"]), 40),
        (Query::from_tags(["order:7"]), 2),
        (Query::from_items([QueryItem::new(["OrderCancelled"], ["order:7"])]), 1),
        (Query::from_types(["OrderShipped"]), 0),
    ] {
        assert_eq!(orders.count(&query)?, count, "{query:?}");
        let back = orders.read(&query, ReadOptions::backwards())?.collect::<Result<Vec<_>, _>>()?;
        assert_eq!(back.len() as u64, count, "{query:?}");
    }
    assert_eq!(orders.tracking("shop")?, Some(40));
    assert_eq!(db.existing_events("customers")?.count(&Query::all())?, 2);
    Ok(())
}

/// Size of the last log record, written when the log becomes idle or is closed.
const MARK_BYTES: usize = 64;

#[test]
fn every_format_opens_and_accepts_appends() {
    if let Ok(version) = std::env::var("UPDATE_FIXTURES") {
        let dir = fixtures().join(version);
        assert!(!dir.exists(), "a fixture of a released format does not change");
        write(&dir);
    }
    for fixture in fs::read_dir(fixtures()).unwrap() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("db");
        let fixture = fixture.unwrap();
        copy(&fixture.path(), &dir);
        let db = options().open(&dir).unwrap();
        let tables = fixture.file_name() != "v1";
        check(&db, tables).unwrap();
        if tables {
            let sales = db.table("sales").unwrap();
            let orphan = [("id", 500_i64.into()), ("shop", 77_i64.into())];
            assert!(db.begin().tables().insert(&sales, &orphan).is_err());
            let mut tx = db.begin();
            tx.tables().insert(&sales, &[("id", 500_i64.into()), ("shop", 2_i64.into())]).unwrap();
            tx.commit().unwrap();
        }
        assert!(db.verify().unwrap().violations.is_empty());
        let orders = db.events("orders").unwrap();
        // Stored idempotency keys and conditions still apply.
        let again = Event::new("OrderPlaced")
            .tag("order:3")
            .tag("customer:0")
            .data("{\"order\":3}")
            .metadata("channel", "web");
        let options = AppendOptions { idempotency_key: Some("place-3".into()), ..Default::default() };
        assert_eq!(orders.append_with(std::slice::from_ref(&again), options).unwrap().last.0, 4);
        let guard = AppendCondition::none_match(Query::from_tags(["order:3"]));
        assert!(orders.append(std::slice::from_ref(&again), Some(guard)).unwrap_err().is_refused());
        assert_eq!(orders.append(&[again], None).unwrap().last.0, 42);
    }
}

/// Flips bits in all files: each time reads are correct, or an error names the file.
///
/// Harmless bits are those no longer needed: log records before the checkpoint, the last mark of the log, and
/// the zeros after it. A changed bit of a run or of the manifest is always detected by a read or by verify.
#[test]
fn changed_bytes_are_refused_or_harmless() {
    let temp = tempfile::tempdir().unwrap();
    let (good, dir) = (temp.path().join("good"), temp.path().join("db"));
    write(&good);
    copy(&good, &dir);
    let mut all = Vec::new();
    files(&dir, &mut all);
    let checkpoint = options().open(&dir).unwrap().stats().checkpoint_lsn.0 as usize;
    assert!(checkpoint > 0, "part of it is in runs");
    fs::remove_dir_all(&dir).unwrap();
    copy(&good, &dir);
    let (mut refused, mut harmless) = (0, 0);
    for path in all.iter().filter(|path| !path.ends_with("LOCK")) {
        let original = fs::read(path).unwrap();
        // Preallocated zeros after the records have no meaning; test only a few of them.
        let used = original.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        let step = (used / 24).max(1);
        for offset in (0..used).step_by(step).chain([used + 100, original.len().saturating_sub(1)]) {
            let Some(byte) = original.get(offset) else { continue };
            let mut bytes = original.clone();
            bytes[offset] = byte ^ (1 << (offset % 8));
            fs::write(path, &bytes).unwrap();
            let checked = options().open(&dir).and_then(|db| {
                check(&db, true)?;
                Ok(db.verify()?.store.damage.len())
            });
            match checked {
                // Damage in data not read so far is found by verify.
                Ok(1..) => refused += 1,
                Ok(0) => {
                    let log = path.extension().is_some_and(|extension| extension == "seg");
                    let unused = offset < checkpoint || offset + MARK_BYTES >= used;
                    assert!(log && unused, "{} byte {offset} of {used} changed unnoticed", path.display());
                    harmless += 1;
                }
                Err(error) => {
                    assert_eq!(error.class(), Class::Corrupt, "{} byte {offset}: {error}", path.display());
                    assert!(error.to_string().contains("/db/"), "{} byte {offset}: {error}", path.display());
                    refused += 1;
                }
            }
            // After the log was truncated as torn, the database differs from the original.
            fs::remove_dir_all(&dir).unwrap();
            copy(&good, &dir);
        }
    }
    assert!(refused > 10 * harmless, "{refused} refused, {harmless} harmless");
}
