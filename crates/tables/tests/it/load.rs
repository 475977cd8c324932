//! Bulk load: loaded rows equal inserted rows, and a load is atomic.

use ropewalk_base::Seq;
use ropewalk_engine::{Isolation, KV, KvWrite, decode_section};
use ropewalk_tables::{
    DefaultValue, Expr, ForeignKeyDef, Identity, IndexDef, KeyRange, LoadOptions, Table, TableDef,
    TablesError, Value,
};
use ropewalk_vfs::{Env, FaultyVfs};

use crate::{Db, id, int, lines, people, person, text};

/// Everything through runs, in chunks of the smallest size.
const IN_RUNS: LoadOptions = LoadOptions { log_bytes_max: 0, memory_bytes: Some(1 << 20) };

/// Whether large loads go through the log.
const WAYS: [bool; 2] = [false, true];

/// `things (id int8 primary key, name text unique, kind int8, note text)`, two indexes.
fn things() -> TableDef {
    TableDef::new("things")
        .column(int("id"))
        .column(text("name").not_null())
        .column(int("kind"))
        .column(text("note").default(DefaultValue::Value("none".into())))
        .primary_key(["id"])
        .unique(["name"])
        .index(IndexDef::on(["kind"]).filter(Expr::column("kind").gt(0_i64)))
        .check("kinds", Expr::column("kind").lt(1000_i64))
}

fn thing(number: i64) -> [Value<'static>; 4] {
    let kind = if number % 7 == 0 { Value::Null } else { (number % 5).into() };
    [number.into(), format!("thing {number}").into(), kind, "n".repeat(1 + number as usize % 60).into()]
}

/// Numbers below `n`, each once, in random order.
fn shuffled(n: i64) -> impl Iterator<Item = i64> {
    (0..n).map(move |i| (i * 7919 + 13) % n)
}

fn load(
    db: &Db,
    table: &Table,
    options: LoadOptions,
    ids: impl Iterator<Item = i64>,
) -> Result<u64, TablesError> {
    let mut load = db.tables.load_with(table, options)?;
    for number in ids {
        load.row(&thing(number))?;
    }
    load.finish()
}

fn by_kind(db: &Db, table: &Table) -> Vec<i64> {
    let snapshot = db.engine.snapshot();
    let mut found = Vec::new();
    let each = &mut |row: ropewalk_tables::Row<'_>| {
        found.push(row.get(0)?.as_integer().unwrap());
        Ok(true)
    };
    db.tables.at(&snapshot).scan_index(table, "things_kind_idx", &KeyRange::all(), false, each).unwrap();
    found
}

/// Checks that a load left nothing: no row, no object, no file.
fn nothing_left(db: &Db) {
    db.verify();
    assert_eq!(db.tables.recover().unwrap(), 0);
    db.engine.compact().unwrap();
    let stats = db.engine.stats().store;
    let rows = stats.keyspaces.iter().find(|keyspace| keyspace.name == "tables").unwrap();
    assert_eq!((rows.entries, rows.file_bytes), (0, 0));
}

#[test]
fn load_equals_inserts() {
    WAYS.into_iter().for_each(loads_equal_inserts);
}

fn loads_equal_inserts(log_everything: bool) {
    let expected = {
        let db = Db::memory_in(log_everything);
        let table = db.create(things());
        db.run(|t| shuffled(3001).try_for_each(|n| t.insert_row(&table, &thing(n)).map(|_| ()))).unwrap();
        (db.lines(&table), by_kind(&db, &table))
    };
    assert_eq!(expected.0.len(), 3001);
    for options in [LoadOptions::default(), IN_RUNS] {
        for sorted in [true, false] {
            let db = Db::memory_in(log_everything);
            let table = db.create(things());
            let ids: Box<dyn Iterator<Item = i64>> =
                if sorted { Box::new(0..3001) } else { Box::new(shuffled(3001)) };
            assert_eq!(load(&db, &table, options, ids).unwrap(), 3001);
            assert_eq!((db.lines(&table), by_kind(&db, &table)), expected, "{options:?} sorted {sorted}");
            db.verify();
            // The table is an ordinary one.
            let twice = db.run(|t| t.insert_row(&table, &thing(17)).map(|_| ())).unwrap_err();
            assert!(matches!(twice, TablesError::Unique { .. }), "{twice}");
            assert!(db.run(|t| t.delete(&table, &id(17))).unwrap());
            db.run(|t| t.insert_row(&table, &thing(17))).unwrap();
            assert_eq!(db.lines(&table), expected.0);
            db.engine.compact().unwrap();
            db.verify();
        }
    }
}

/// Puts in the log from a commit on, and the longest section with keys.
fn puts_since(db: &Db, seq: Seq) -> (usize, usize) {
    let (mut puts, mut longest) = (0, 0);
    let mut feed = db.engine.changes(seq).unwrap();
    while let Some(change) = feed.next().unwrap() {
        for section in change.body.sections() {
            let (model, bytes) = section.unwrap();
            if model == KV {
                longest = longest.max(bytes.len());
                decode_section(bytes, |_, write| puts += usize::from(matches!(write, KvWrite::Put(..))))
                    .unwrap();
            }
        }
    }
    (puts, longest)
}

#[test]
fn load_through_the_log_has_every_row_in_small_commits() {
    const ROWS: i64 = 20_000;
    let [runs, log] = WAYS.map(|log_everything| {
        let db = Db::memory_in(log_everything);
        let table = db.create(things());
        let begin = db.engine.seq().next();
        assert_eq!(load(&db, &table, IN_RUNS, shuffled(ROWS)).unwrap(), ROWS as u64);
        db.verify();
        (puts_since(&db, begin), db.lines(&table), by_kind(&db, &table))
    });
    assert_eq!((&runs.1, &runs.2), (&log.1, &log.2), "the tables are the same");
    // A row and a name each, and the kinds that the partial index has; in addition some definitions.
    let entries = 2 * ROWS as usize + log.2.len();
    let (puts, longest) = log.0;
    assert!((entries..entries + 20).contains(&puts), "{puts} puts for {entries} entries");
    assert!(longest <= 512 << 10, "a commit of {longest} bytes");
    assert!(runs.0.0 < 20, "{} puts of a load that bypasses the log", runs.0.0);
}

#[test]
fn a_load_over_its_memory_is_sorted_in_chunks() {
    WAYS.into_iter().for_each(loads_in_chunks);
}

fn loads_in_chunks(log_everything: bool) {
    let env = Env::memory();
    let db = Db::manual_in(log_everything, &env);
    let table = db.create(things());
    // Sorted at first, then not: a stream, then chunks.
    let ids = (0..30_000).chain(shuffled(40_000).map(|n| n + 30_000));
    assert_eq!(load(&db, &table, IN_RUNS, ids).unwrap(), 70_000);
    let check = |db: &Db| {
        let table = db.tables.table("things").unwrap();
        let snapshot = db.engine.snapshot();
        let mut read = db.tables.at(&snapshot);
        let mut next = 0;
        read.scan(&table, &KeyRange::all(), false, &mut |row| {
            assert_eq!(row.values()?, thing(next), "row {next}");
            next += 1;
            Ok(true)
        })
        .unwrap();
        assert_eq!(next, 70_000);
        assert_eq!(read.collect(&table, &KeyRange::prefix(id(69_999)), false, 9).unwrap().len(), 1);
    };
    check(&db);
    drop(db);
    let db = Db::manual_in(log_everything, &env);
    check(&db);
    while db.engine.background_step().unwrap() {}
    check(&db);
    db.verify();
}

/// Enough rows for several threads, each with a part of the keys.
#[test]
fn big_load_is_sorted_by_several_threads() {
    WAYS.into_iter().for_each(loads_by_several_threads);
}

fn loads_by_several_threads(log_everything: bool) {
    const ROWS: i64 = 300_000;
    let row = |number: i64| [Value::Int8(number), Value::Int8(number % 11)];
    let def = || TableDef::new("pairs").column(int("id")).column(int("rest")).primary_key(["id"]);
    let options = LoadOptions { log_bytes_max: 0, memory_bytes: Some(64 << 20) };
    let (db, mut next) = (Db::memory_in(log_everything), 0);
    let table = db.create(def());
    let mut load = db.tables.load_with(&table, options).unwrap();
    shuffled(ROWS).try_for_each(|number| load.row(&row(number))).unwrap();
    assert_eq!(load.finish().unwrap(), ROWS as u64);
    let snapshot = db.engine.snapshot();
    let each = &mut |found: ropewalk_tables::Row<'_>| {
        assert_eq!(found.values()?, row(next), "row {next}");
        next += 1;
        Ok(true)
    };
    db.tables.at(&snapshot).scan(&table, &KeyRange::all(), false, each).unwrap();
    assert_eq!(next, ROWS);
    db.verify();

    // Duplicate keys, also where the parts are split: at the middle, and at the middle of each half.
    for place in [0, ROWS / 4, ROWS / 2, ROWS * 3 / 4, ROWS - 2] {
        let db = Db::memory_in(log_everything);
        let table = db.create(def());
        let mut load = db.tables.load_with(&table, options).unwrap();
        let twice = |number| if number == place + 1 { place } else { number };
        shuffled(ROWS).try_for_each(|number| load.row(&row(twice(number)))).unwrap();
        let error = load.finish().unwrap_err();
        let TablesError::Unique { key, .. } = &error else { panic!("{error}") };
        assert!(key.contains(&place.to_string()), "{key}, {place} expected");
        nothing_left(&db);
    }
}

/// Once there are many, rows in key order are written by a separate thread.
#[test]
fn long_ordered_load_is_streamed() {
    WAYS.into_iter().for_each(ordered_loads);
}

fn ordered_loads(log_everything: bool) {
    const ROWS: i64 = 80_000;
    let long = |n: i64| person(n, "somebody with a name of some length", n);
    let attempt = |db: &Db, table: &Table, after: Option<i64>| -> Result<u64, TablesError> {
        let mut load = db.tables.load_with(table, IN_RUNS)?;
        (0..ROWS).chain(after).try_for_each(|n| load.row(&long(n)))?;
        load.finish()
    };
    // In order to the end, and with a last key that breaks the order.
    for after in [None, Some(-5)] {
        let db = Db::manual_in(log_everything, &Env::memory());
        let table = db.create(people());
        let rows = ROWS + i64::from(after.is_some());
        assert_eq!(attempt(&db, &table, after).unwrap(), rows as u64);
        let mut expected = after.into_iter().chain(0..ROWS);
        let snapshot = db.engine.snapshot();
        let each = &mut |row: ropewalk_tables::Row<'_>| {
            assert_eq!(row.values()?, long(expected.next().unwrap()));
            Ok(true)
        };
        db.tables.at(&snapshot).scan(&table, &KeyRange::all(), false, each).unwrap();
        assert_eq!(expected.next(), None);
        db.verify();
    }
    // A duplicate key: the last one, or one written long before.
    for twice in [ROWS - 1, 7] {
        let db = Db::manual_in(log_everything, &Env::memory());
        let table = db.create(people());
        let error = attempt(&db, &table, Some(twice)).unwrap_err();
        let expected = format!("(id)=({twice})");
        assert!(matches!(&error, TablesError::Unique { key, .. } if *key == expected), "{error}");
        nothing_left(&db);
    }
    // A load that is abandoned.
    let db = Db::manual_in(log_everything, &Env::memory());
    let table = db.create(people());
    let mut load = db.tables.load_with(&table, IN_RUNS).unwrap();
    (0..ROWS).try_for_each(|n| load.row(&long(n))).unwrap();
    drop(load);
    nothing_left(&db);
}

/// A disk that fills up during the writer thread: an error that says so, and nothing is left.
#[test]
fn a_disk_that_fills_up_under_a_load_in_order() {
    let disk = FaultyVfs::new(1);
    let db = Db::try_open(&disk_env(&disk)).unwrap();
    let table = db.run(|t| t.create_table(people())).unwrap();
    disk.set_space(Some(disk.used() + (3 << 20)));
    let attempt = || {
        let mut load = db.tables.load_with(&table, IN_RUNS)?;
        for n in 0..200_000 {
            load.row(&person(n, "somebody with a name of some length", n))?;
        }
        load.finish()
    };
    let error = attempt().unwrap_err().to_string();
    assert!(error.contains("space"), "{error}");
    disk.set_space(None);
    nothing_left(&db);
    assert_eq!(attempt().unwrap(), 200_000);
}

#[test]
fn load_that_violates_a_rule_leaves_nothing() {
    WAYS.into_iter().for_each(violating_loads);
}

fn violating_loads(log_everything: bool) {
    type Break = (&'static str, fn(i64) -> Option<[Value<'static>; 4]>);
    let breaks: [Break; 6] = [
        ("things_pkey", |n| (n == 4999).then(|| thing(2))),
        ("things_name_key", |n| (n == 4999).then(|| [n.into(), "thing 3".into(), Value::Null, Value::Null])),
        ("kinds", |n| (n == 4000).then(|| [n.into(), "x".into(), 1000_i64.into(), Value::Null])),
        ("name", |n| (n == 4000).then(|| [n.into(), Value::Null, Value::Null, Value::Null])),
        ("kind", |n| (n == 4000).then(|| [n.into(), "x".into(), "no number".into(), Value::Null])),
        ("id", |n| (n == 4000).then(|| [Value::Null, "x".into(), Value::Null, Value::Null])),
    ];
    for (what, broken) in breaks {
        for options in [LoadOptions::default(), LoadOptions { log_bytes_max: 60_000, ..IN_RUNS }, IN_RUNS] {
            let db = Db::manual_in(log_everything, &Env::memory());
            let table = db.create(things());
            let attempt = || {
                let mut load = db.tables.load_with(&table, options)?;
                for n in 0..5000 {
                    load.row(&broken(n).unwrap_or_else(|| thing(n)))?;
                }
                load.finish()
            };
            let error = attempt().unwrap_err();
            assert!(error.to_string().contains(&format!("{what:?}")), "{what}: {error}");
            nothing_left(&db);
            assert_eq!(load(&db, &table, options, 0..100).unwrap(), 100);
            assert_eq!(db.lines(&table).len(), 100);
        }
    }
}

#[test]
fn load_after_error_rejects_rows() {
    let db = Db::memory();
    let table = db.create(people());
    let mut load = db.tables.load(&table).unwrap();
    load.row(&person(1, "ann", 30)).unwrap();
    assert!(matches!(load.row(&[1_i64.into()]), Err(TablesError::Arity { expected: 3, found: 1, .. })));
    assert!(load.finish().unwrap_err().to_string().contains("failed before"));
    let mut load = db.tables.load(&table).unwrap();
    assert!(matches!(load.insert(&[("no", 1_i64.into())]), Err(TablesError::UnknownColumn { .. })));
    assert!(load.finish().is_err());
    assert_eq!(db.tables.load(&table).unwrap().finish().unwrap(), 0);
    assert!(db.lines(&table).is_empty());
}

#[test]
fn duplicates_are_found_across_chunks() {
    WAYS.into_iter().for_each(loads_with_duplicates);
}

fn loads_with_duplicates(log_everything: bool) {
    for repeated in [0, 29_999, 30_001, 69_000] {
        let db = Db::manual_in(log_everything, &Env::memory());
        let table = db.create(people());
        let mut load = db.tables.load_with(&table, IN_RUNS).unwrap();
        let mut attempt = || {
            for n in (0..30_000).chain(shuffled(40_000).map(|n| n + 30_000)).chain([repeated]) {
                load.row(&person(n, "somebody with a name of some length", n))?;
            }
            Ok(())
        };
        let result = attempt().and_then(|()| load.finish());
        let error = result.unwrap_err();
        let expected = format!("(id)=({repeated})");
        assert!(matches!(&error, TablesError::Unique { key, .. } if *key == expected), "{error}");
        nothing_left(&db);
    }
}

#[test]
fn defaults_identities_and_row_numbers() {
    WAYS.into_iter().for_each(loads_with_defaults);
}

fn loads_with_defaults(log_everything: bool) {
    for options in [LoadOptions::default(), IN_RUNS] {
        let db = Db::memory_in(log_everything);
        let def = TableDef::new("log").column(int("n").identity(Identity::Always)).column(text("what"));
        let table = db.create(def.column(int("level").default(DefaultValue::Value(3_i64.into()))));
        let mut load = db.tables.load_with(&table, options).unwrap();
        load.insert(&[("what", "one".into())]).unwrap();
        load.insert(&[("what", "two".into()), ("level", Value::Null)]).unwrap();
        assert_eq!(load.finish().unwrap(), 2);
        db.run(|t| t.insert(&table, &[("what", "three".into())])).unwrap();
        assert_eq!(db.lines(&table), ["1 one 3", "2 two NULL", "3 three 3"]);
        let mut load = db.tables.load_with(&table, options).unwrap();
        assert!(matches!(load.insert(&[("n", 1_i64.into())]), Err(TablesError::Generated { .. })));
    }
}

fn family(db: &Db) -> (Table, Table) {
    let parents = db.create(TableDef::new("parents").column(int("id")).primary_key(["id"]));
    let children = TableDef::new("children").column(int("id")).column(int("parent")).primary_key(["id"]);
    let children =
        db.create(children.foreign_key(ForeignKeyDef::new(["parent"], "parents", ["id"]).named("of")));
    (parents, children)
}

#[test]
fn load_requires_parents_until_commit() {
    WAYS.into_iter().for_each(loads_with_parents);
}

fn loads_with_parents(log_everything: bool) {
    for options in [LoadOptions::default(), IN_RUNS] {
        // Few parents are guarded one by one, many as a range.
        for many in [10, 5000] {
            let db = Db::memory_in(log_everything);
            let (parents, children) = family(&db);
            let mut load = db.tables.load(&parents).unwrap();
            (0..many).for_each(|n| load.row(&id(n)).unwrap());
            load.finish().unwrap();
            let begin = || {
                let mut load = db.tables.load_with(&children, options).unwrap();
                for n in 0..many * 2 {
                    let parent: Value<'_> = if n == 1 { Value::Null } else { (n % many).into() };
                    load.row(&[n.into(), parent]).unwrap();
                }
                load
            };
            let mut load = begin();
            load.row(&[(-1_i64).into(), many.into()]).unwrap();
            let error = load.finish().unwrap_err();
            assert!(error.to_string().contains("\"of\""), "{error}");
            let load = begin();
            db.run(|t| t.delete(&parents, &id(5))).unwrap();
            let error = load.finish().unwrap_err();
            assert!(error.is_conflict(), "{error}");
            assert!(db.lines(&children).is_empty());
            db.run(|t| t.insert_row(&parents, &id(5))).unwrap();
            assert_eq!(begin().finish().unwrap() as i64, many * 2);
            assert!(db.run(|t| t.delete(&parents, &id(5))).is_err());
            db.verify();
        }
    }
}

#[test]
fn concurrent_write_makes_load_conflict() {
    WAYS.into_iter().for_each(loads_with_concurrent_writes);
}

fn loads_with_concurrent_writes(log_everything: bool) {
    for options in [LoadOptions::default(), IN_RUNS] {
        let db = Db::memory_in(log_everything);
        let table = db.create(people());
        let mut load = db.tables.load_with(&table, options).unwrap();
        load.row(&person(1, "ann", 30)).unwrap();
        db.run(|t| t.insert_row(&table, &person(2, "bob", 20))).unwrap();
        let error = load.finish().unwrap_err();
        assert!(error.is_conflict(), "{error}");
        assert_eq!(db.lines(&table), ["2 bob 20"]);
        db.run(|t| t.delete(&table, &id(2))).unwrap();
        // A transaction that has read the empty table conflicts with the load; a changed definition stops
        // the load.
        let mut reader = db.begin();
        assert_eq!(reader.t().count(&table, &KeyRange::all()).unwrap(), 0);
        let mut load = db.tables.load_with(&table, options).unwrap();
        load.row(&person(1, "ann", 30)).unwrap();
        load.finish().unwrap();
        reader.t().insert_row(&table, &person(9, "eve", 1)).unwrap();
        assert!(reader.commit().unwrap_err().is_conflict());
        db.run(|t| t.truncate("people", false)).unwrap();
        let mut load = db.tables.load_with(&table, options).unwrap();
        load.row(&person(1, "ann", 30)).unwrap();
        db.run(|t| t.add_column("people", int("more"))).unwrap();
        assert!(load.finish().unwrap_err().is_conflict());
        db.verify();
    }
}

#[test]
fn readers_see_load_atomically() {
    WAYS.into_iter().for_each(loads_with_readers);
}

fn loads_with_readers(log_everything: bool) {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let db = Db::memory_in(log_everything);
        let table = db.create(people());
        let before = db.engine.snapshot();
        let mut tx = db.begin_with(isolation);
        assert_eq!(tx.t().count(&table, &KeyRange::all()).unwrap(), 0);
        let mut load = db.tables.load_with(&table, IN_RUNS).unwrap();
        for n in 0..30_000 {
            load.row(&person(n, "somebody", n)).unwrap();
            if n % 10_000 == 0 {
                assert!(db.lines(&table).is_empty());
            }
        }
        load.finish().unwrap();
        let mut before = before;
        before.refresh_sources();
        assert!(lines(&mut db.tables.at(&before), &table).is_empty());
        assert_eq!(tx.t().count(&table, &KeyRange::all()).unwrap(), 0);
        let after = db.engine.snapshot();
        assert_eq!(db.tables.at(&after).count(&table, &KeyRange::all()).unwrap(), 30_000);
    }
}

/// A table that has rows, or refers to itself, is loaded through the log.
#[test]
fn table_with_rows_is_loaded_through_the_log() {
    let db = Db::memory();
    let table = db.create(things());
    load(&db, &table, IN_RUNS, 0..100).unwrap();
    assert_eq!(load(&db, &table, IN_RUNS, 100..3000).unwrap(), 2900);
    assert_eq!(db.lines(&table).len(), 3000);
    let error = load(&db, &table, IN_RUNS, [5000, 6000, 2].into_iter()).unwrap_err();
    assert!(matches!(error, TablesError::Unique { .. }), "{error}");
    assert_eq!(db.lines(&table).len(), 3000);
    let tree = TableDef::new("tree").column(int("id")).column(int("up")).primary_key(["id"]);
    let tree = db.create(tree.foreign_key(ForeignKeyDef::new(["up"], "tree", ["id"])));
    let mut load = db.tables.load(&tree).unwrap();
    load.row(&[1_i64.into(), Value::Null]).unwrap();
    (2..3000_i64).for_each(|n| load.row(&[n.into(), (n / 2).into()]).unwrap());
    assert_eq!(load.finish().unwrap(), 2999);
    db.verify();
}

/// A crash at any disk operation: all of the load, or none of it and no leftovers.
#[test]
fn a_crash_at_any_step_of_a_load() {
    let steps = |disk: &FaultyVfs| -> Result<(), Box<dyn std::error::Error>> {
        let db = Db::try_open(&disk_env(disk))?;
        let table = db.run(|t| t.create_table(people()))?;
        let mut load = db.tables.load_with(&table, IN_RUNS)?;
        // Three chunks.
        for n in shuffled(25_000) {
            load.row(&person(n, "somebody with a name that takes some room, so that rows are few", n))?;
        }
        load.finish()?;
        db.run(|t| t.insert_row(&table, &person(-1, "last", 0)))?;
        Ok(())
    };
    let open = |disk: &FaultyVfs| Db::try_open(&disk_env(disk)).unwrap();
    crash_at_each_operation(steps, open, |db, done, operation| {
        let table = db.tables.table("people").ok()?;
        let snapshot = db.engine.snapshot();
        let count = db.tables.at(&snapshot).count(&table, &KeyRange::all()).unwrap();
        assert!([0, 25_000, 25_001].contains(&count), "{count} rows after a crash at operation {operation}");
        assert!(!done || count == 25_001);
        match count {
            0 => nothing_left(db),
            _ => db.verify(),
        }
        Some(count > 0)
    });
}

/// Crashes at each disk operation of `steps`, and opens again. `check` gets whether `steps` succeeded, and returns
/// whether the load is present; `None` if its table is not.
fn crash_at_each_operation(
    steps: impl Fn(&FaultyVfs) -> Result<(), Box<dyn std::error::Error>>,
    open: impl Fn(&FaultyVfs) -> Db,
    check: impl Fn(&Db, bool, u64) -> Option<bool>,
) {
    let whole = FaultyVfs::new(1);
    steps(&whole).unwrap();
    let (mut none, mut all) = (0, 0);
    // The steps of opening are tested elsewhere.
    for operation in 30..=whole.operations() {
        let disk = FaultyVfs::new(operation);
        disk.crash_at(operation);
        let done = steps(&disk).is_ok();
        disk.crash();
        disk.calm();
        let db = open(&disk);
        db.tables.recover().unwrap();
        match check(&db, done, operation) {
            Some(true) => all += 1,
            Some(false) => none += 1,
            None => {}
        }
    }
    assert!(none > 3 && all > 0, "{none} without the load, {all} with it");
}

fn disk_env(disk: &FaultyVfs) -> Env {
    Env { vfs: std::sync::Arc::new(disk.process()), ..Env::memory() }
}

/// Lookups of many keys at once, over memtables, several flushes and levels, with deletes and changes in
/// between.
#[test]
fn batched_lookups_equal_single_lookups() {
    let env = Env::memory();
    let db = Db::manual(&env);
    let table = db.create(people());
    load(&db, &db.create(things()), IN_RUNS, 0..1000).unwrap();
    for round in 0..6_i64 {
        db.run(|t| {
            for n in (0..2000).filter(|n| n % (round + 2) == 0) {
                t.upsert(&table, &[("id", n.into()), ("name", "x".into()), ("age", round.into())])?;
            }
            (0..100).try_for_each(|n| t.delete(&table, &id(n * 20 + round)).map(|_| ()))
        })
        .unwrap();
        if round < 5 {
            db.engine.checkpoint().unwrap();
        }
        if round == 2 {
            db.engine.compact().unwrap();
        }
    }
    let snapshot = db.engine.snapshot();
    let keys: Vec<_> = (-5..2100_i64).rev().chain([7, 7, 7]).map(id).collect();
    let keys: Vec<&[Value<'_>]> = keys.iter().map(<[_; 1]>::as_slice).collect();
    let mut point = db.tables.point(&table);
    let mut single = Vec::new();
    for key in &keys {
        let row = point.get(&snapshot, key).unwrap();
        single.push(row.map(|row| row.row().to_owned()).map(|row| format!("{row:?}")));
    }
    assert!(single.iter().any(Option::is_none) && single.iter().flatten().count() > 500);
    let mut many = vec![None; keys.len()];
    let each = |number: usize, row: Option<ropewalk_tables::Row<'_>>| {
        many[number] = row.map(|row| format!("{row:?}"));
        Ok(())
    };
    point.get_many(&snapshot, &keys, each).unwrap();
    assert_eq!(many, single);
    let shown = |rows: Vec<Option<ropewalk_tables::OwnedRow>>| -> Vec<Option<String>> {
        rows.into_iter().map(|row| row.map(|row| format!("{row:?}"))).collect()
    };
    assert_eq!(shown(db.tables.at(&snapshot).get_many(&table, &keys).unwrap()), single);
    assert_eq!(shown(db.begin().t().get_many(&table, &keys).unwrap()), single);
    let mut wrong = db.tables.point(&table);
    assert!(wrong.get_many(&snapshot, &[&[]], |_, _| Ok(())).is_err());
}

/// Store statistics of the table's rows.
fn rows_stats(db: &Db) -> ropewalk_store::KeyspaceStats {
    let stats = db.engine.stats().store;
    stats.keyspaces.into_iter().find(|keyspace| keyspace.name == "tables").unwrap()
}

/// Integer keys get a model, hostile ones (a prefix longer than a head, shared by many) fences;
/// amplification is reported.
#[test]
fn stats_report_index_and_amplification() {
    let db = Db::manual(&Env::memory());
    assert_eq!(rows_stats(&db).write_amplification(), None);
    let numbers = db.create(people());
    let mut load = db.tables.load_with(&numbers, IN_RUNS).unwrap();
    (0..50_000).for_each(|n| load.row(&person(n, "somebody", n)).unwrap());
    load.finish().unwrap();
    let stats = rows_stats(&db);
    assert!(stats.runs_with_model > 0 && stats.runs_without_model == 0, "{stats:?}");
    assert_eq!((stats.read_amplification(), stats.write_amplification()), (1, Some(1.0)));
    let space = stats.space_amplification().unwrap();
    // Keys share their first bytes, so it may be below one.
    assert!((0.7..1.6).contains(&space), "{space}");
    db.run(|t| t.drop_table("people")).unwrap();
    let hostile = db.create(TableDef::new("hostile").column(text("id")).primary_key(["id"]));
    let mut load = db.tables.load_with(&hostile, IN_RUNS).unwrap();
    // Groups of keys that differ only far after their first bytes: one head for many blocks.
    for n in 0..60_000_u32 {
        load.row(&[format!("{:04}{}{n:08}", n / 6000 * 997, "x".repeat(100)).into()]).unwrap();
    }
    load.finish().unwrap();
    db.engine.compact().unwrap();
    let stats = rows_stats(&db);
    assert!(stats.runs_without_model > 0, "{stats:?}");
    let snapshot = db.engine.snapshot();
    let key = format!("{:04}{}{:08}", 3 * 997, "x".repeat(100), 20_000);
    assert!(db.tables.point(&hostile).get(&snapshot, &[key.into()]).unwrap().is_some());
}

#[test]
fn dropped_table_frees_its_bytes() {
    let db = Db::manual(&Env::memory());
    let (kept, dropped) = (db.create(people()), db.create(things()));
    let mut first = db.tables.load(&kept).unwrap();
    (0..100).for_each(|n| first.row(&person(n, "somebody", n)).unwrap());
    first.finish().unwrap();
    load(&db, &dropped, IN_RUNS, 0..20_000).unwrap();
    db.engine.compact().unwrap();
    let before = rows_stats(&db).file_bytes;
    let pinned = db.engine.snapshot();
    db.run(|t| t.drop_table("things")).unwrap();
    db.engine.compact().unwrap();
    // A snapshot retains the rows that it can read.
    assert_eq!(db.tables.at(&pinned).count(&dropped, &KeyRange::all()).unwrap(), 20_000);
    drop(pinned);
    db.engine.compact().unwrap();
    let after = rows_stats(&db);
    assert!(after.file_bytes * 10 < before, "{} of {before} bytes are left", after.file_bytes);
    assert_eq!((after.entries, after.range_tombstones), (100, 0));
    assert_eq!(db.lines(&kept).len(), 100);
    db.verify();
}

/// Loads `rows` people within a transaction.
fn load_within(tx: &mut crate::Tx, table: &Table, rows: i64) -> u64 {
    let mut load = tx.t().load(table, IN_RUNS).unwrap().unwrap();
    for n in shuffled(rows) {
        load.row(&mut tx.t(), &person(n, "somebody with a name that takes some room", n)).unwrap();
    }
    load.finish(&mut tx.t()).unwrap()
}

#[test]
fn a_transaction_reads_and_changes_what_it_loaded() {
    WAYS.into_iter().for_each(loads_in_transactions);
}

fn loads_in_transactions(log_everything: bool) {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let db = Db::memory_in(log_everything);
        let old = db.create(TableDef::new("old").column(int("id")).primary_key(["id"]));
        db.run(|t| t.insert_row(&old, &id(1))).unwrap();
        let mut tx = db.begin_with(isolation);
        let table = tx.t().create_table(people().index(IndexDef::on(["age"]))).unwrap();
        assert_eq!(load_within(&mut tx, &table, 20_000), 20_000);
        assert_eq!(tx.t().count(&table, &KeyRange::all()).unwrap(), 20_000);
        assert!(tx.t().update(&table, &id(7), &[("age", (-1_i64).into())]).unwrap());
        assert!(tx.t().delete(&table, &id(8)).unwrap());
        tx.t().insert_row(&table, &person(-3, "new", -2)).unwrap();
        let taken = tx.t().insert_row(&table, &person(9, "again", 0)).unwrap_err();
        assert!(matches!(taken, TablesError::Unique { .. }));
        let mut youngest = Vec::new();
        let each = &mut |row: ropewalk_tables::Row<'_>| {
            youngest.push(row.get(0)?.as_integer().unwrap());
            Ok(youngest.len() < 3)
        };
        tx.t().scan_index(&table, "people_age_idx", &KeyRange::all(), false, each).unwrap();
        assert_eq!(youngest, [-3, 7, 0]);
        let own = lines(&mut tx.t(), &table);
        tx.commit().unwrap();
        assert_eq!(db.lines(&table), own);
        assert_eq!(own.len(), 20_000);
        assert_eq!(db.tables.recover().unwrap(), 0, "nothing is left over");
        db.verify();
    }
}

/// Rows of a small load are in the log of the transaction, and do not count as insertions.
#[test]
fn insertions_after_a_load_find_its_rows() {
    let db = Db::memory();
    let table = db.create(people());
    let mut tx = db.begin();
    let mut load = tx.t().load(&table, LoadOptions::default()).unwrap().unwrap();
    for n in 1_000..1_100 {
        load.row(&mut tx.t(), &person(n, "loaded", 0)).unwrap();
    }
    load.finish(&mut tx.t()).unwrap();
    for n in 0..100 {
        tx.t().insert_row(&table, &person(n, "inserted", 0)).unwrap();
    }
    let taken = tx.t().insert_row(&table, &person(1_050, "again", 0)).unwrap_err();
    assert!(matches!(taken, TablesError::Unique { .. }), "{taken}");
    tx.commit().unwrap();
    assert_eq!(db.lines(&table).len(), 200);
    db.verify();
}

#[test]
fn a_transaction_loads_parents_and_then_children() {
    const PARENTS: i64 = 5000;
    for log_everything in WAYS {
        for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
            let db = Db::memory_in(log_everything);
            let (parents, children) = family(&db);
            let mut tx = db.begin_with(isolation);
            let mut load = tx.t().load(&parents, IN_RUNS).unwrap().unwrap();
            (0..PARENTS).for_each(|n| load.row(&mut tx.t(), &id(n)).unwrap());
            assert_eq!(load.finish(&mut tx.t()).unwrap(), PARENTS as u64);
            let mut load = tx.t().load(&children, IN_RUNS).unwrap().unwrap();
            for n in 0..2 * PARENTS {
                load.row(&mut tx.t(), &[n.into(), (n % PARENTS).into()]).unwrap();
            }
            load.finish(&mut tx.t()).unwrap();
            assert_eq!(tx.t().count(&children, &KeyRange::all()).unwrap(), 2 * PARENTS as u64);
            tx.commit().unwrap();
            assert_eq!(db.lines(&children).len(), 2 * PARENTS as usize);
            assert_eq!(db.tables.recover().unwrap(), 0);
            db.verify();
        }
    }
}

#[test]
fn rolled_back_load_leaves_nothing() {
    WAYS.into_iter().for_each(rolled_back_loads);
}

fn rolled_back_loads(log_everything: bool) {
    let db = Db::memory_in(log_everything);
    let table = db.create(people());
    let mut tx = db.begin();
    load_within(&mut tx, &table, 20_000);
    drop(tx);
    nothing_left(&db);
    // Rollback to a savepoint: the transaction continues, and commits without the load.
    let mut tx = db.begin();
    let mark = tx.savepoint();
    load_within(&mut tx, &table, 20_000);
    tx.rollback_to(mark);
    assert!(lines(&mut tx.t(), &table).is_empty());
    tx.t().insert_row(&table, &person(1, "one", 1)).unwrap();
    tx.commit().unwrap();
    assert_eq!(db.lines(&table), ["1 one 1"]);
    assert_eq!(db.tables.recover().unwrap(), 0);
    db.verify();
    // Truncated and loaded again in one transaction; a table with rows cannot be loaded this way.
    let mut tx = db.begin();
    assert!(tx.t().load(&table, IN_RUNS).unwrap().is_none());
    tx.t().truncate("people", false).unwrap();
    load_within(&mut tx, &table, 5000);
    tx.commit().unwrap();
    assert_eq!(db.lines(&table).len(), 5000);
    db.verify();
}

#[test]
fn a_crash_at_any_step_of_a_load_within_a_transaction() {
    WAYS.into_iter().for_each(crashes_of_a_load_in_a_transaction);
}

fn crashes_of_a_load_in_a_transaction(log_everything: bool) {
    let steps = |disk: &FaultyVfs| -> Result<(), Box<dyn std::error::Error>> {
        let db = Db::try_open_in(log_everything, &disk_env(disk))?;
        let mut tx = db.begin();
        let table = tx.t().create_table(people())?;
        let mut load = tx.t().load(&table, IN_RUNS)?.ok_or("not empty")?;
        for n in shuffled(9000) {
            load.row(
                &mut tx.t(),
                &person(n, "somebody with a name that takes some room, so that rows are few", n),
            )?;
        }
        load.finish(&mut tx.t())?;
        tx.t().insert_row(&table, &person(-1, "last", 0))?;
        tx.commit()?;
        Ok(())
    };
    let open = |disk: &FaultyVfs| Db::try_open_in(log_everything, &disk_env(disk)).unwrap();
    crash_at_each_operation(steps, open, |db, done, _| {
        let Ok(table) = db.tables.table("people") else {
            assert!(!done);
            nothing_left(db);
            return Some(false);
        };
        let snapshot = db.engine.snapshot();
        assert_eq!(db.tables.at(&snapshot).count(&table, &KeyRange::all()).unwrap(), 9001);
        assert_eq!(db.tables.recover().unwrap(), 0);
        db.verify();
        Some(true)
    });
}
