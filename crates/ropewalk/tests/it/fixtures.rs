//! Databases written by released formats still open, and bytes that changed are noticed.
//!
//! `fixtures/vN` in the repository was written by format N. Make a new one with `UPDATE_FIXTURES=vN cargo test fixtures`.

use std::fs;
use std::path::{Path, PathBuf};

use ropewalk::{
    AppendCondition, AppendOptions, Class, Database, Durability, Error, Event, KeyspaceOptions, Options,
    Query, QueryItem, ReadOptions, Tracking,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn options() -> Options {
    let mut options = Options::new();
    options.engine_mut().log.segment_bytes_first = 16 << 10;
    options.engine_mut().log.segment_bytes_max = 16 << 10;
    options
}

/// Part of it in runs, part in the log.
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

/// Reads everything back; the error is the first that the database gave.
fn check(db: &Database) -> Result<(), Error> {
    let notes = db.keyspace("notes", KeyspaceOptions::default())?;
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

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = {
            let e = entry.unwrap();
            (e.path(), to.join(e.file_name()))
        };
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(|_| ()).unwrap() }
    }
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, out) } else { out.push(path) }
    }
    out.sort();
}

#[test]
fn every_format_opens_and_goes_on() {
    if let Ok(version) = std::env::var("UPDATE_FIXTURES") {
        let dir = fixtures().join(version);
        assert!(!dir.exists(), "a fixture of a released format does not change");
        write(&dir);
    }
    for fixture in fs::read_dir(fixtures()).unwrap() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("db");
        copy(&fixture.unwrap().path(), &dir);
        let db = options().open(&dir).unwrap();
        check(&db).unwrap();
        assert!(db.verify().unwrap().violations.is_empty());
        let orders = db.events("orders").unwrap();
        // What it remembers still holds: idempotency keys and conditions.
        let again = Event::new("OrderPlaced")
            .tag("order:3")
            .tag("customer:0")
            .data("{\"order\":3}")
            .metadata("channel", "web");
        let options = AppendOptions { idempotency_key: Some("place-3".into()), ..Default::default() };
        assert_eq!(orders.append_with(std::slice::from_ref(&again), options).unwrap().last.0, 4);
        let guard = AppendCondition::none_match(Query::from_tags(["order:3"]));
        assert!(orders.append(std::slice::from_ref(&again), Some(guard)).unwrap_err().is_conflict());
        assert_eq!(orders.append(&[again], None).unwrap().last.0, 42);
    }
}

/// Flips bits all over the files: each time the answer is right or there is an error that names a file.
#[test]
fn changed_bytes_are_refused_or_harmless() {
    let temp = tempfile::tempdir().unwrap();
    let (good, dir) = (temp.path().join("good"), temp.path().join("db"));
    write(&good);
    copy(&good, &dir);
    let mut all = Vec::new();
    files(&dir, &mut all);
    let (mut refused, mut harmless) = (0, 0);
    for path in all.iter().filter(|path| !path.ends_with("LOCK")) {
        let original = fs::read(path).unwrap();
        // Preallocated zeros behind the records say nothing; look at a few of them only.
        let used = original.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        let step = (used / 24).max(1);
        for offset in (0..used).step_by(step).chain([used + 100, original.len().saturating_sub(1)]) {
            let Some(byte) = original.get(offset) else { continue };
            let mut bytes = original.clone();
            bytes[offset] = byte ^ (1 << (offset % 8));
            fs::write(path, &bytes).unwrap();
            match options().open(&dir).and_then(|db| check(&db)) {
                Ok(()) => harmless += 1,
                Err(error) => {
                    assert_eq!(error.class(), Class::Corrupt, "{} byte {offset}: {error}", path.display());
                    assert!(error.to_string().contains("/db/"), "{} byte {offset}: {error}", path.display());
                    refused += 1;
                }
            }
            // A log that was cut as torn is another database now.
            fs::remove_dir_all(&dir).unwrap();
            copy(&good, &dir);
        }
    }
    assert!(refused > 8 * harmless, "{refused} refused, {harmless} harmless");
}
