//! The log alone determines the contents: a database that has only the log of another one holds the same.
//!
//! ```text
//! each way to change the contents ─▶ leader ─▶ its log ─▶ an empty database ─▶ the same contents
//! ```
//! The ways are listed by model. A new kind of operation has to be added to [`OPERATIONS`], and calls that
//! make it to the ways.

mod documents;
mod events;
mod following;
mod keys;
mod series;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ropewalk::engine::{Background, Env};
use ropewalk::events::ReadOptions;
use ropewalk::series::Samples;
use ropewalk::{Database, Options, Query};
use ropewalk_engine::KeySpan;
use ropewalk_vfs::OpenMode;

/// Its name, and a call that makes at least one commit. Each may rely on those before it.
type Way = (&'static str, fn(&Database));

/// The state that readers see, by keyspace, event store and series store: keys and values.
type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

const DATABASE: &str = "/db";
/// Keyspaces whose keys depend on when memory was flushed. Their events and samples are compared instead.
const LAID_OUT_BY_FLUSHES: [&str; 3] = ["events", "events.terms", "series"];

/// All operations of commits, by crate. The guards write nothing.
const OPERATIONS: [&str; 19] = [
    "documents Inserts",
    "documents PointSection",
    "documents PointWrite",
    "documents SectionOperation",
    "engine Definition",
    "engine FollowsCommit", // a guard
    "engine KvBatch",
    "events AppendOperation",
    "events CreateOperation",
    "events DeleteOperation",
    "events ReadGuard", // a guard
    "series AppendSamples",
    "series DeleteOperation",
    "series MetadataOperation",
    "series ReadGuard", // a guard
    "series RulesOperation",
    "series SettingsOperation",
    "series ThinStep",
    "tables DdlOperation",
];

/// The sources that bypass the log, unless `log_everything` is set.
/// That of the simulation damages a node.
const BYPASSES: [&str; 3] =
    ["sim/src/cluster/distortion.rs", "tables/src/load/entry_writer.rs", "tables/src/load/loader.rs"];

fn options(env: &Env) -> Options {
    let options = Options::new().env(env.clone()).background(Background::Manual);
    let mut options = options.memory_budget(32 << 20).log_retention(u64::MAX).log_everything(true);
    options.engine_mut().log.segment_bytes_first = 64 << 10;
    options.engine_mut().log.segment_bytes_max = 1 << 20;
    options
}

/// Opens a database that was empty and has the log of the one in `leader`.
fn copy_of_the_log(leader: &Env) -> Database {
    let env = Env::memory();
    drop(options(&env).open(DATABASE).unwrap());
    let log = Path::new(DATABASE).join("log");
    for name in env.vfs.list(&log).unwrap() {
        env.vfs.remove(&log.join(name)).unwrap();
    }
    for name in leader.vfs.list(&log).unwrap().iter().filter(|name| name.ends_with(".seg")) {
        let path = log.join(name);
        let source = leader.vfs.open(&path, OpenMode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(source.len().unwrap()).unwrap()];
        source.read_exact_at(&mut bytes, 0).unwrap();
        env.vfs.open(&path, OpenMode::CreateNew).unwrap().write_all_at(&bytes, 0).unwrap();
    }
    options(&env).open(DATABASE).unwrap()
}

fn contents(db: &Database) -> Contents {
    let mut all = Contents::new();
    let snapshot = db.snapshot();
    for (number, keyspace) in (0_u16..).zip(db.stats().store.keyspaces) {
        let mut pairs = BTreeMap::new();
        if !LAID_OUT_BY_FLUSHES.contains(&keyspace.name.as_str()) {
            let each = |key: &[u8], value: &[u8]| {
                pairs.insert(key.to_vec(), value.to_vec());
                true
            };
            let read = snapshot.engine().read();
            read.visit(ropewalk_engine::Keyspace(number), KeySpan::ALL, each).unwrap();
        }
        all.insert(format!("keyspace {number} {}", keyspace.name), pairs);
    }
    for name in db.event_stores() {
        let store = db.existing_events(&name).unwrap();
        let mut events = BTreeMap::new();
        for event in snapshot.events(&store, &Query::all(), ReadOptions::default()).unwrap() {
            let event = event.unwrap();
            events.insert(event.position.0.to_be_bytes().to_vec(), format!("{event:?}").into_bytes());
        }
        all.insert(format!("event store {name}"), events);
    }
    for name in db.series_stores() {
        let store = db.series(&name).unwrap();
        let at = snapshot.series(&store);
        let mut selection = at.select(&[], i64::MIN, i64::MAX).unwrap();
        let mut found = BTreeMap::new();
        while let Some(id) = selection.next() {
            let mut samples = Samples::default();
            selection.samples(&mut samples).unwrap();
            let bits: Vec<_> = samples.bits().collect();
            let shown = format!("{bits:?} {:?} {:?}", samples.histograms, samples.starts_ms);
            found.insert(format!("{id} {:?}", selection.labels()).into_bytes(), shown.into_bytes());
        }
        all.insert(format!("series store {name}"), found);
    }
    all
}

fn assert_same(copy: &Database, leader: &Database, after: &str) {
    assert_eq!(copy.seq(), leader.seq(), "after {after}");
    let (copy, leader) = (contents(copy), contents(leader));
    assert_eq!(copy.keys().collect::<Vec<_>>(), leader.keys().collect::<Vec<_>>(), "after {after}");
    for (name, pairs) in &leader {
        let of_copy = &copy[name];
        let keys: BTreeSet<_> = pairs.keys().chain(of_copy.keys()).collect();
        let differing = keys.into_iter().find(|key| pairs.get(*key) != of_copy.get(*key));
        assert!(differing.is_none(), "after {after}: {name} differs at {differing:?}");
    }
}

fn assert_intact(db: &Database, after: &str) {
    let report = db.verify().unwrap();
    assert!(report.violations.is_empty(), "after {after}: {:?}", report.violations);
}

#[test]
fn copy_from_the_log_alone_is_the_same_after_every_way_to_change_the_contents() {
    let env = Env::memory();
    let leader = options(&env).open(DATABASE).unwrap();
    let ways = [keys::WAYS, events::WAYS, series::WAYS, documents::WAYS, tables::WAYS].concat();
    for (number, (way, change)) in ways.iter().enumerate() {
        let before = leader.seq();
        change(&leader);
        assert!(leader.seq() > before, "{way} makes a commit");
        // The leader has some of it in runs, the copy nothing.
        match number % 8 {
            2 | 5 => leader.checkpoint().unwrap(),
            7 => leader.compact().unwrap(),
            _ => {}
        }
        let copy = copy_of_the_log(&env);
        assert_same(&copy, &leader, way);
        assert_intact(&copy, way);
    }
    let copy = copy_of_the_log(&env);
    leader.compact().unwrap();
    copy.compact().unwrap();
    for db in [&leader, &copy] {
        assert_intact(db, "compaction");
    }
    assert_same(&copy, &leader, "compaction");
    // Both continue alike.
    for db in [&leader, &copy] {
        db.events("shop").unwrap().append(&[ropewalk::Event::new("Later")], None).unwrap();
    }
    assert_eq!(copy.seq(), leader.seq());
}

fn each_source(dir: &Path, each: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if path.is_dir() && name != "tests" && name != "target" {
            each_source(&path, each);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            each(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_operation_and_every_bypass_of_the_log_is_known() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut operations, mut bypasses) = (BTreeSet::new(), BTreeSet::new());
    each_source(crates, &mut |path, text| {
        let file = path.strip_prefix(crates).unwrap().to_str().unwrap().replace('\\', "/");
        let component = file.split('/').next().unwrap();
        let implementations = text.lines().filter(|line| line.starts_with("impl"));
        for (_, of) in implementations.filter_map(|line| line.split_once(" Operation for ")) {
            operations.insert(format!("{component} {}", of.trim_end_matches([' ', '{'])));
        }
        if text.contains(".ingest(") || text.contains(".run_writer(") {
            bypasses.insert(file);
        }
    });
    assert!(operations.iter().eq(OPERATIONS.iter()), "list the ways that make them: {operations:?}");
    assert!(bypasses.iter().eq(BYPASSES.iter()), "log it, too, with `log_everything`: {bypasses:?}");
}
