//! Opening a database: exclusive owner, clear errors, no data loss.

use ropewalk::engine::KeyspaceOptions;
use ropewalk::events::ReadOptions;
use ropewalk::{Class, Database, Durability, Error, Event, Options, Query};

fn refused(result: Result<Database, Error>) -> Error {
    result.err().expect("must be refused")
}

#[test]
fn second_open_fails_naming_the_owner_process() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path()).unwrap();
    let error = refused(Database::open(dir.path()));
    assert_eq!(error.class(), Class::Busy);
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    drop(db);
    Database::open(dir.path()).unwrap();
}

#[test]
fn must_exist_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none");
    assert_eq!(refused(Options::new().must_exist().open(&path)).class(), Class::Invalid);
    assert!(!path.exists());
}

#[test]
fn a_file_in_the_way_is_an_io_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, b"not a directory").unwrap();
    let error = refused(Database::open(&path));
    assert_eq!(error.class(), Class::Io);
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn all_durabilities_survive_a_clean_close() {
    let dir = tempfile::tempdir().unwrap();
    let keys;
    {
        let db = Database::open(dir.path()).unwrap();
        keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        db.put(keys, b"sync", b"1", Durability::Sync).unwrap();
        db.put(keys, b"buffered", b"2", Durability::Buffered).unwrap();
        let interval = core::time::Duration::from_secs(3600);
        db.put(keys, b"async", b"3", Durability::Async { interval }).unwrap();
        db.events("s").unwrap().append(&[Event::new("E")], None).unwrap();
        db.close().unwrap();
    }
    let db = Database::open(dir.path()).unwrap();
    let snapshot = db.snapshot();
    for (key, value) in [(b"sync".as_slice(), b"1"), (b"buffered", b"2"), (b"async", b"3")] {
        assert_eq!(&*snapshot.get(keys, key).unwrap().unwrap(), value);
    }
    assert_eq!(db.seq().0, 5, "the keyspace, three keys, an event");
    let store = db.existing_events("s").unwrap();
    assert_eq!(snapshot.events(&store, &Query::all(), ReadOptions::default()).unwrap().count(), 1);
    assert_eq!(db.existing_events("t").err().unwrap().class(), Class::NotFound);
}

/// No record defines them: their numbers follow from the order in which each model makes them.
#[test]
fn keyspaces_of_the_models_have_the_same_numbers_in_every_new_database() {
    let db = Database::in_memory().unwrap();
    let names: Vec<String> = db.stats().store.keyspaces.into_iter().map(|keyspace| keyspace.name).collect();
    let expected = [
        "events",
        "events.terms",
        "events.meta",
        "tables",
        "tables.catalog",
        "series",
        "series.labels",
        "series.meta",
        "series.exemplars",
        "documents",
        "documents.catalog",
        "documents.sessions",
    ];
    assert_eq!(names, expected);
    let next = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert_eq!(usize::from(next.id()), expected.len());
}

#[test]
fn a_closed_database_refuses_commits_and_still_reads() {
    let db = Database::in_memory().unwrap();
    let store = db.events("s").unwrap();
    store.append(&[Event::new("E")], None).unwrap();
    db.clone().close().unwrap();
    let error = Error::from(store.append(&[Event::new("E")], None).unwrap_err());
    assert_eq!(error.class(), Class::Internal);
    assert_eq!(store.count(&Query::all()).unwrap(), 1);
}

#[test]
fn damage_and_foreign_files_are_named_with_file_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Database::open(dir.path()).unwrap();
        let store = db.events("s").unwrap();
        for i in 0..60_u32 {
            store.append(&[Event::new("E").data(vec![i as u8; 500])], None).unwrap();
        }
    }
    let log = dir.path().join("log");
    let segment = std::fs::read_dir(&log)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.metadata().unwrap().len() > 4096)
        .min()
        .unwrap();
    let good = std::fs::read(&segment).unwrap();
    let mut bad = good.clone();
    bad[9000] ^= 0x40;
    std::fs::write(&segment, &bad).unwrap();
    let error = refused(Database::open(dir.path()));
    assert_eq!(error.class(), Class::Corrupt, "{error}");
    assert!(error.to_string().contains(segment.file_name().unwrap().to_str().unwrap()), "{error}");
    assert!(error.to_string().contains("byte"), "{error}");
    std::fs::write(&segment, &good).unwrap();
    assert_eq!(Database::open(dir.path()).unwrap().events("s").unwrap().count(&Query::all()).unwrap(), 60);
}

#[test]
fn a_damaged_run_is_refused_and_found_by_verify() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Database::open(dir.path()).unwrap();
        let store = db.events("s").unwrap();
        for i in 0..500_u32 {
            store.append(&[Event::new("E").data(vec![i as u8; 300])], None).unwrap();
        }
        db.compact().unwrap();
        assert!(db.verify().unwrap().violations.is_empty());
    }
    let runs = std::fs::read_dir(dir.path().join("store")).unwrap().map(|e| e.unwrap().path());
    let largest = runs.max_by_key(|p| p.metadata().unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    bytes[20_000] ^= 1;
    std::fs::write(&largest, &bytes).unwrap();
    let db = Database::open(dir.path()).unwrap();
    let store = db.events("s").unwrap();
    let found = store.read(&Query::all(), ReadOptions::default()).unwrap().find_map(Result::err);
    let error = Error::from(found.expect("a wrong answer must not be given"));
    assert_eq!(error.class(), Class::Corrupt);
    assert!(error.to_string().contains(largest.file_name().unwrap().to_str().unwrap()), "{error}");
}

#[test]
fn database_without_log_or_store_does_not_open_as_empty() {
    let dir = tempfile::tempdir().unwrap();
    let aside = tempfile::tempdir().unwrap();
    {
        let db = Database::open(dir.path()).unwrap();
        db.events("s").unwrap().append(&[Event::new("E")], None).unwrap();
    }
    // Nothing was flushed so far, so the manifest requires the log from its beginning.
    for (half, named) in [("log", "log"), ("store", "MANIFEST")] {
        let (inside, outside) = (dir.path().join(half), aside.path().join(half));
        std::fs::rename(&inside, &outside).unwrap();
        for _ in 0..2 {
            let error = refused(Options::new().must_exist().open(dir.path()));
            assert_eq!(error.class(), Class::Corrupt, "{half}: {error}");
            assert!(error.to_string().contains(named), "{half}: {error}");
        }
        assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 0, "{half}: nothing is made in its place");
        std::fs::remove_dir(&inside).unwrap();
        std::fs::rename(&outside, &inside).unwrap();
    }
    let db = Database::open(dir.path()).unwrap();
    assert_eq!(db.existing_events("s").unwrap().count(&Query::all()).unwrap(), 1);
    drop(db);
    // Salvage reports what is lost; the database opens at the checkpoint.
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    assert!(Options::new().inspect_log(dir.path(), None).unwrap().is_some());
    assert!(Options::new().salvage_log(dir.path(), None).unwrap().is_some());
    assert_eq!(Database::open(dir.path()).unwrap().seq().0, 0);
    assert!(Options::new().inspect_log(dir.path(), None).unwrap().is_none());
    assert!(
        Options::new().inspect_log(aside.path(), None).unwrap().is_none(),
        "where there is nothing, nothing is damaged"
    );
}

#[test]
fn created_files_are_accessible_to_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let around = tempfile::tempdir().unwrap();
    let (dir, copy) = (around.path().join("in").join("db"), around.path().join("copy"));
    let db = Database::open(&dir).unwrap();
    db.events("s").unwrap().append(&[Event::new("E")], None).unwrap();
    db.checkpoint().unwrap();
    db.backup(&copy).unwrap();
    let (mut rest, mut seen) = (vec![dir, copy], 0);
    while let Some(path) = rest.pop() {
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o077, 0, "{}", path.display());
        seen += 1;
        if found.is_dir() {
            rest.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen > 10, "{seen}");
}
