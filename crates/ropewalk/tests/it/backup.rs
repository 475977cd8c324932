//! Backups of a database in use: one commit over all models, complete or absent.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bson::doc;

use ropewalk::documents::lang::Value as Bson;
use ropewalk::engine::{Background, Backup, EngineError};
use ropewalk::series::{Labels, Matcher, SampleBatch, Samples};
use ropewalk::tables::{ColumnDef, KeyRange, LoadOptions, TableDef, Type};
use ropewalk::{AppendOptions, Class, Database, Error, Event, Isolation, Options, Query};
use ropewalk_vfs::{DiskOp, FaultyVfs, Vfs};

use crate::env;

const TARGET: &str = "/backups/one";

fn create(db: &Database) -> Result<(), Error> {
    db.transact(Isolation::Serializable, 1, |tx| {
        let table = TableDef::new("rows")
            .column(ColumnDef::new("writer", Type::INT8))
            .column(ColumnDef::new("number", Type::INT8))
            .primary_key(["writer", "number"]);
        tx.tables().create_table(table).map(drop).map_err(Error::from)
    })
}

/// The next transaction of the writer, which writes to each model.
fn write(db: &Database, writer: u64, number: u64) -> Result<(), Error> {
    let (events, documents) = (db.events("events")?, db.collection("documents")?);
    let (rows, samples) = (db.table("rows")?, db.series("samples")?);
    let mut batch = SampleBatch::new();
    batch.push(&Labels::new([("writer", writer.to_string())])?, number as i64, number as f64);
    let document = doc! { "_id": format!("{writer}:{number}"), "text": "x".repeat(200) };
    let mut tx = db.begin();
    tx.append(&events, &[Event::new("Written").tag(format!("writer:{writer}"))], AppendOptions::default())?;
    tx.documents().insert_one(&documents, &bson::serialize_to_vec(&document).unwrap())?;
    tx.tables().insert_row(&rows, &[(writer as i64).into(), (number as i64).into()])?;
    tx.append_samples(&samples, &batch)?;
    tx.commit().map(drop)
}

/// Number of transactions of a writer, on which all models must agree.
fn written(db: &Database, writer: u64) -> u64 {
    let snapshot = db.snapshot();
    let query = Query::from_tags([format!("writer:{writer}")]);
    let events =
        snapshot.events(&db.events("events").unwrap(), &query, Default::default()).unwrap().count() as u64;

    let documents = db.collection("documents").unwrap();
    let mut at = snapshot.documents(db);
    let id = |number| format!("{writer}:{number}");
    let there: Vec<bool> =
        (1..=events + 1).map(|n| at.get(&documents, Bson::String(&id(n))).unwrap().is_some()).collect();
    assert!(there[..events as usize].iter().all(|there| *there) && !there[events as usize], "{there:?}");

    let range = KeyRange::prefix([(writer as i64).into()]);
    assert_eq!(snapshot.tables(db).count(&db.table("rows").unwrap(), &range).unwrap(), events);

    let (mut samples, store) = (Samples::default(), db.series("samples").unwrap());
    let at = snapshot.series(&store);
    let matcher = Matcher::equal("writer", writer.to_string());
    let mut selection = at.select(&[matcher], i64::MIN, i64::MAX).unwrap();
    while selection.next().is_some() {
        selection.samples(&mut samples).unwrap();
    }
    assert_eq!(samples.times_ms, (1..=events as i64).collect::<Vec<_>>());
    events
}

fn assert_whole(db: &Database) {
    let report = db.verify().unwrap();
    assert!(report.violations.is_empty() && report.store.damage.is_empty(), "{report:?}");
}

#[test]
fn backup_during_writes_merges_and_loads_is_one_commit() {
    const WRITERS: u64 = 3;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let db = Options::new().memory_budget(2 << 20).log_retention(0).open(path("db")).unwrap();
    create(&db).unwrap();
    for writer in 0..WRITERS {
        write(&db, writer, 1).unwrap();
    }
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(1)).collect();
    let (stop, loads) = (AtomicBool::new(false), AtomicU64::new(0));
    let backups = std::thread::scope(|scope| {
        for (writer, acknowledged) in (0..).zip(&acknowledged) {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                for number in 2.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    write(db, writer, number).unwrap();
                    acknowledged.store(number, Ordering::SeqCst);
                }
            });
        }
        // Rows that reach the disk as sorted files, not through the log.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let name = format!("loaded{}", loads.load(Ordering::SeqCst));
                let table = TableDef::new(name).column(ColumnDef::new("id", Type::INT8)).primary_key(["id"]);
                let table = db.transact(Isolation::Serializable, 1, |tx| {
                    Ok::<_, Error>(tx.tables().create_table(table.clone())?)
                });
                let options = LoadOptions { log_bytes_max: 0, ..LoadOptions::default() };
                let mut load = db.tables().load_with(&table.unwrap(), options).unwrap();
                for id in 0..500_i64 {
                    load.row(&[id.into()]).unwrap();
                }
                load.finish().unwrap();
                loads.fetch_add(1, Ordering::SeqCst);
            }
        });
        let backups: Vec<(Vec<u64>, u64, Backup)> = (0..8)
            .map(|number| {
                // Each backup includes new commits and runs concurrently with more of them.
                let done = || acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).sum::<u64>();
                while done() < (number + 1) * 100 {
                    std::thread::yield_now();
                }
                if number % 3 == 2 {
                    db.compact().unwrap();
                }
                let before = acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect();
                let loads = loads.load(Ordering::SeqCst);
                (before, loads, db.backup(path(&format!("copy{number}"))).unwrap())
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        backups
    });
    let mut last = 0;
    for (number, (before, loads, backup)) in backups.iter().enumerate() {
        let copy = Options::new().must_exist().open(path(&format!("copy{number}"))).unwrap();
        // Opening abandons an unfinished bulk load with a separate commit.
        assert!((backup.seq.0..=backup.seq.0 + 1).contains(&copy.seq().0), "{} {backup:?}", copy.seq());
        assert!(
            backup.seq.0 > last && backup.files >= 2 && backup.linked_bytes <= backup.bytes,
            "{backup:?}"
        );
        last = backup.seq.0;
        for (writer, before) in (0..).zip(before) {
            let found = written(&copy, writer);
            assert!(
                found >= *before,
                "writer {writer}: {before} acknowledged before the backup, {found} in it"
            );
        }
        let tables = copy.snapshot();
        let loaded = (0..).map_while(|n| copy.table(&format!("loaded{n}")).ok());
        let rows: Vec<u64> =
            loaded.map(|table| tables.tables(&copy).count(&table, &KeyRange::all()).unwrap()).collect();
        assert!(
            rows.len() as u64 >= *loads && rows.iter().take(*loads as usize).all(|rows| *rows == 500),
            "{rows:?}"
        );
        assert!(rows.iter().all(|rows| [0, 500].contains(rows)), "{rows:?}");
        assert_whole(&copy);
        // The copy accepts writes like any database, without affecting the original.
        write(&copy, 0, written(&copy, 0) + 1).unwrap();
        copy.compact().unwrap();
        assert_whole(&copy);
    }
    assert!(
        (0..WRITERS)
            .all(|writer| written(&db, writer) >= acknowledged[writer as usize].load(Ordering::SeqCst))
    );
    assert_whole(&db);
}

fn open(disk: &FaultyVfs, path: &str) -> Result<Database, Error> {
    Options::new().background(Background::Manual).env(env(disk)).open(path)
}

/// A database with files and a log: five transactions, two of them flushed.
fn prepared(disk: &FaultyVfs) -> Database {
    let db = open(disk, "/db").unwrap();
    create(&db).unwrap();
    for number in 1..=5 {
        write(&db, 0, number).unwrap();
        if number == 2 {
            db.checkpoint().unwrap();
        }
    }
    db
}

/// Names of the files below a directory, without directories.
fn files(disk: &FaultyVfs, below: &str) -> Vec<String> {
    let files = disk.files().into_iter().map(|(path, _)| path.display().to_string());
    files.filter(|path| path.starts_with(below)).collect()
}

#[test]
fn power_cut_at_any_operation_leaves_complete_backup_or_none() {
    let disk = FaultyVfs::new(1);
    let db = prepared(&disk);
    let start = disk.operations();
    db.backup(TARGET).unwrap();
    let end = disk.operations();
    drop(db);
    assert!(end - start > 15, "{start}..{end}");
    let mut whole = 0;
    for point in start + 1..=end + 1 {
        for seed in 0..6 {
            let disk = FaultyVfs::new(point * 100 + seed);
            let db = prepared(&disk);
            disk.crash_at(point);
            let done = db.backup(TARGET);
            assert_eq!(done.is_ok(), point > end, "{done:?}");
            drop(db);
            disk.crash();
            let original = open(&disk, "/db").unwrap();
            assert_eq!(written(&original, 0), 5);
            let there = disk.exists(Path::new(TARGET)).unwrap();
            assert!(there || done.is_err(), "cut at {point}");
            if there {
                whole += 1;
            } else {
                // Remains of the first attempt do not prevent a second one.
                assert_eq!(original.backup(TARGET).unwrap().seq, original.seq());
            }
            drop(original);
            let copy = open(&disk, TARGET).unwrap();
            assert_eq!(written(&copy, 0), 5, "cut at {point}");
            assert_whole(&copy);
            assert!(!disk.exists(Path::new("/backups/one.partial")).unwrap(), "cut at {point}");
        }
    }
    assert!(whole > 6, "some cuts come after the renaming");
}

#[test]
fn failed_backup_leaves_nothing_and_can_be_repeated() {
    for op in [DiskOp::Create, DiskOp::Write, DiskOp::Sync, DiskOp::SyncDir, DiskOp::Rename, DiskOp::Read] {
        for skip in 0.. {
            let disk = FaultyVfs::new(skip);
            let db = prepared(&disk);
            let before = disk.injected();
            disk.fail(op, skip);
            let done = db.backup(TARGET);
            if disk.injected() == before {
                break;
            }
            match done {
                // If a hard link fails, the file is copied.
                Ok(backup) => {
                    assert_eq!(op, DiskOp::Create, "{op:?} {skip}");
                    assert!(backup.linked_bytes < backup.bytes);
                }
                Err(error) => {
                    assert_eq!(error.class(), Class::Io, "{op:?} {skip}: {error}");
                    // Only the last sync runs after the rename to the target.
                    if disk.exists(Path::new(TARGET)).unwrap() {
                        assert_eq!(op, DiskOp::SyncDir);
                    } else {
                        assert_eq!(files(&disk, "/backups"), [""; 0], "{op:?} {skip}");
                        assert_eq!(db.backup(TARGET).unwrap().seq, db.seq(), "{op:?} {skip}");
                    }
                }
            }
            drop(db);
            assert_eq!(written(&open(&disk, TARGET).unwrap(), 0), 5, "{op:?} {skip}");
        }
    }
}

#[test]
fn backup_on_full_disk_fails_and_releases_space() {
    let disk = FaultyVfs::new(3);
    let db = prepared(&disk);
    let used = disk.used();
    disk.set_space(Some(used + 1000));
    let error = db.backup(TARGET).unwrap_err();
    let Error::Engine(EngineError::Log(log)) = &error else { panic!("{error}") };
    assert!(error.class() == Class::Io && log.to_string().contains("/backups/one.partial/log"), "{error}");
    assert_eq!((disk.used(), files(&disk, "/backups")), (used, Vec::new()));
    disk.set_space(None);
    db.backup(TARGET).unwrap();
}

#[test]
fn backup_never_touches_existing_files() {
    let disk = FaultyVfs::new(1);
    let db = prepared(&disk);
    db.backup(TARGET).unwrap();
    let refused = |target: &str| {
        let error = db.backup(target).unwrap_err();
        assert_eq!(error.class(), Class::Invalid, "{error}");
        error.to_string()
    };
    assert_eq!(refused(TARGET), "no backup to /backups/one: it exists already");
    assert!(refused("/").contains("does not end with a name"));
    assert!(refused("/backups/..").contains("does not end with a name"));
    // A foreign directory has the temporary name of the backup.
    disk.create_dir_all(Path::new("/backups/two.partial/log")).unwrap();
    let file =
        disk.open(Path::new("/backups/two.partial/log/mine.txt"), ropewalk_vfs::OpenMode::CreateNew).unwrap();
    file.write_all_at(b"mine", 0).unwrap();
    assert!(
        refused("/backups/two").starts_with("no backup to /backups/two.partial/log: something that is no")
    );
    assert_eq!(files(&disk, "/backups/two"), ["/backups/two.partial/log/mine.txt"]);
    // Only one backup at a time to one target.
    let _held = disk.lock(Path::new("/backups/three.partial/LOCK"), "pid 7").unwrap();
    let error = db.backup("/backups/three").unwrap_err();
    assert!(error.class() == Class::Busy && error.to_string().contains("pid 7"), "{error}");
    // The failed attempts left the first backup unchanged.
    drop(db);
    assert_eq!(written(&open(&disk, TARGET).unwrap(), 0), 5);
}

#[test]
fn backup_links_flushed_files_without_using_space() {
    let disk = FaultyVfs::new(1);
    let db = prepared(&disk);
    db.checkpoint().unwrap();
    let used = disk.used();
    let backup = db.backup(TARGET).unwrap();
    assert!(backup.linked_bytes > 0);
    assert_eq!(disk.used() - used, backup.bytes - backup.linked_bytes);
    // A merge deletes files of the database, but the copy still has them.
    write(&db, 0, 6).unwrap();
    db.compact().unwrap();
    drop(db);
    assert_eq!(written(&open(&disk, TARGET).unwrap(), 0), 5);
    assert_eq!(written(&open(&disk, "/db").unwrap(), 0), 6);
}

#[test]
fn a_stopped_engine_makes_no_backup() {
    let disk = FaultyVfs::new(1);
    let db = prepared(&disk);
    disk.fail(DiskOp::Sync, 0);
    write(&db, 0, 6).unwrap_err();
    let error = db.backup(TARGET).unwrap_err();
    assert!(matches!(error, Error::Engine(EngineError::Stopped { .. })), "{error}");
    assert_eq!(files(&disk, "/backups"), [""; 0]);
}
