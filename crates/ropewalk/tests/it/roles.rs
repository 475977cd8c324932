//! Leaders and followers over a shared log in memory: what a follower leaves to its leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropewalk::cluster::{MemorySharedLog, Role, SharedLog, SharedOptions};
use ropewalk::engine::{Background, Env};
use ropewalk::events::SequencedEventRef;
use ropewalk::groups::{GroupError, GroupSettings};
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun};
use ropewalk::tables::{ColumnDef, TableDef, Type};
use ropewalk::{Class, Database, Error, Event, Options, Position, Query, Seq};
use ropewalk_engine::PeriodicTask;
use ropewalk_log::LogId;
use ropewalk_vfs::ManualClock;

const PATIENCE: Duration = Duration::from_secs(10);

fn log() -> MemorySharedLog {
    MemorySharedLog::new(LogId([7; 16]))
}

/// Opens an empty node of the log.
fn open(log: &MemorySharedLog, node: u8) -> Database {
    let shared = SharedOptions::new(Arc::new(log.handle()), [node; 16], format!("http://n{node}:4780"));
    Options::new().env(Env::memory()).shared(shared).open("/db").unwrap()
}

fn lead(db: &Database) {
    assert!(db.engine().campaign().unwrap());
    db.begin_leading().unwrap();
}

/// Applies every entry that the log has.
fn follow(db: &Database, log: &MemorySharedLog) {
    loop {
        let entries = log.read(db.engine().place().index, 1 << 20, Duration::ZERO).unwrap();
        if entries.is_empty() {
            return;
        }
        for entry in &entries {
            db.engine().follow(entry).unwrap();
        }
    }
}

fn class<R>(result: Result<R, Error>) -> Option<Class> {
    result.err().map(|error| error.class())
}

/// One row for each event.
struct Rows;

impl MaterializedProjection for Rows {
    fn query(&self) -> Query {
        Query::all()
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("rows")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let name = run.name("rows")?;
        let def = TableDef::new(&name).column(ColumnDef::new("id", Type::INT8)).primary_key(["id"]);
        run.tx().tables().create_table(def)?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        let rows = run.table("rows")?;
        run.tx().tables().insert(&rows, &[("id", (event.position.0 as i64).into())])?;
        Ok(())
    }
}

#[test]
fn follower_reads_what_is_not_defined_as_empty_and_writes_nothing() {
    let log = log();
    let db = open(&log, 1);
    assert!(!db.leads());
    assert_eq!(db.role(), Role::Follower { leader: None });
    let groups = db.consumer_groups("shop").unwrap();
    assert!(groups.names().unwrap().is_empty());
    assert!(matches!(groups.group("mail"), Err(Error::Group(GroupError::Unknown { .. }))));
    let checkpoints = db.consumer_checkpoints("shop").unwrap();
    assert!(checkpoints.all().unwrap().is_empty() && checkpoints.get("mail").unwrap().is_none());
    let projections = db.projections("shop").unwrap();
    projections.register("rows", Arc::new(Rows)).unwrap();
    assert_eq!(projections.status("rows").unwrap().generation, None);
    // Every write is refused before it has an effect.
    let settings = GroupSettings::new(Query::all());
    assert_eq!(class(groups.create("mail", settings, None)), Some(Class::NotLeader));
    assert_eq!(class(groups.delete("mail")), Some(Class::NotLeader));
    assert_eq!(class(checkpoints.remove("mail")), Some(Class::NotLeader));
    assert_eq!(class(projections.catch_up("rows")), Some(Class::NotLeader));
    assert_eq!(class(projections.apply_batch("rows")), Some(Class::NotLeader));
    let events = db.events("shop").unwrap();
    assert_eq!(class(events.append(&[Event::new("A")], None).map_err(Error::from)), Some(Class::NotLeader));
    assert_eq!((db.seq(), log.entries().len()), (Seq(0), 0));
}

#[test]
fn handles_made_on_a_follower_write_once_it_leads() {
    let log = log();
    let db = open(&log, 1);
    let (groups, checkpoints) =
        (db.consumer_groups("shop").unwrap(), db.consumer_checkpoints("shop").unwrap());
    let projections = db.projections("shop").unwrap();
    projections.register("rows", Arc::new(Rows)).unwrap();
    lead(&db);
    db.events("shop").unwrap().append(&[Event::new("A"), Event::new("A")], None).unwrap();
    assert!(groups.create("mail", GroupSettings::new(Query::all()), None).unwrap());
    assert_eq!(groups.group("mail").unwrap().take(10).unwrap().events.len(), 2);
    checkpoints.set("bill", Position(2)).unwrap();
    assert_eq!(checkpoints.get("bill").unwrap(), Some(Position(2)));
    assert_eq!(projections.catch_up("rows").unwrap().applied, 2);
}

#[test]
fn new_leader_continues_groups_and_projections_of_the_one_before() {
    let log = log();
    let (a, b) = (open(&log, 1), open(&log, 2));
    lead(&a);
    a.events("shop").unwrap().append(&[Event::new("A"), Event::new("A")], None).unwrap();
    let group = a.consumer_groups("shop").unwrap();
    group.create("mail", GroupSettings::new(Query::all()), None).unwrap();
    let lease = group.group("mail").unwrap().take(1).unwrap();
    let first = a.projections("shop").unwrap();
    first.register("rows", Arc::new(Rows)).unwrap();
    assert_eq!(first.catch_up("rows").unwrap().applied, 2);
    follow(&b, &log);
    assert_eq!(b.consumer_groups("shop").unwrap().names().unwrap(), ["mail"]);
    drop((group, first, a));

    lead(&b);
    b.events("shop").unwrap().append(&[Event::new("A")], None).unwrap();
    let mail = b.consumer_groups("shop").unwrap().group("mail").unwrap();
    let rest: Vec<_> = mail.take(10).unwrap().events.iter().map(|taken| taken.event.position.0).collect();
    assert_eq!((lease.events[0].event.position.0, rest), (1, vec![2, 3]));
    let next = b.projections("shop").unwrap();
    next.register("rows", Arc::new(Rows)).unwrap();
    assert_eq!(next.catch_up("rows").unwrap().applied, 1);
    // A keyspace that only the second leader defines comes after those of the first.
    b.consumer_checkpoints("shop").unwrap().set("bill", Position(3)).unwrap();
    let c = open(&log, 3);
    follow(&c, &log);
    assert_eq!(c.consumer_checkpoints("shop").unwrap().get("bill").unwrap(), Some(Position(3)));
    assert_eq!(c.consumer_groups("shop").unwrap().names().unwrap(), ["mail"]);
}

#[test]
fn projections_of_a_follower_begin_when_it_leads() {
    let log = log();
    let (a, b) = (open(&log, 1), open(&log, 2));
    lead(&a);
    a.events("shop").unwrap().append(&[Event::new("A")], None).unwrap();
    follow(&b, &log);
    let projections = b.projections("shop").unwrap();
    projections.register("rows", Arc::new(Rows)).unwrap();
    let running = projections.start();
    std::thread::sleep(Duration::from_millis(50));
    assert!(running.follows("rows") && b.table("rows").is_err());
    drop(a);
    lead(&b);
    let begun = Instant::now();
    while b.table("rows").is_err() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(running.stop().is_empty());
}

#[test]
fn waiting_for_leading_ends_with_leading_with_a_stop_and_with_the_engine() {
    let alone = Database::in_memory().unwrap();
    assert!(alone.leads());
    alone.wait_leading(&AtomicBool::new(false)).unwrap();

    let log = log();
    let db = open(&log, 1);
    let waiter = |db: &Database, stop: &Arc<AtomicBool>| {
        let (db, stop) = (db.clone(), stop.clone());
        std::thread::spawn(move || db.wait_leading(&stop).map(|()| db.leads()))
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = waiter(&db, &stop);
    stop.store(true, Ordering::Release);
    stopped.thread().unpark();
    assert!(!stopped.join().unwrap().unwrap());

    let never = Arc::new(AtomicBool::new(false));
    let led = waiter(&db, &never);
    lead(&db);
    assert!(led.join().unwrap().unwrap());

    let other = open(&log, 2);
    let ended = waiter(&other, &never);
    other.clone().close().unwrap();
    assert!(ended.join().unwrap().is_err());
}

#[test]
fn periodic_task_of_a_follower_begins_when_it_leads() {
    let log = log();
    let db = open(&log, 1);
    let rounds = Arc::new(AtomicU64::new(0));
    let counted = rounds.clone();
    let task = PeriodicTask::start("rounds", db.engine().clone(), Duration::from_millis(1), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(rounds.load(Ordering::Relaxed), 0);
    lead(&db);
    let begun = Instant::now();
    while rounds.load(Ordering::Relaxed) == 0 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(task);
}

#[test]
fn event_due_by_the_clock_of_the_leader_before_is_due_at_once() {
    // The new leader's clock is one hour slow.
    let log = log();
    let node = |node: u8, seconds: u64| {
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_secs(seconds));
        let env = Env { clock, ..Env::memory() };
        let shared = SharedOptions::new(Arc::new(log.handle()), [node; 16], "http://n:1");
        Options::new().env(env).background(Background::Manual).shared(shared).open("/db").unwrap()
    };
    let (ahead, behind) = (node(1, 7_200), node(2, 3_600));
    lead(&ahead);
    ahead.events("shop").unwrap().append(&[Event::new("A")], None).unwrap();
    let groups = ahead.consumer_groups("shop").unwrap();
    groups.create("mail", GroupSettings::new(Query::all()), None).unwrap();
    let mail = groups.group("mail").unwrap();
    let lease = mail.take(1).unwrap();
    mail.retry(lease.id, None, Some(Duration::ZERO), "again").unwrap();
    follow(&behind, &log);
    drop((groups, mail, ahead));
    lead(&behind);
    let mail = behind.consumer_groups("shop").unwrap().group("mail").unwrap();
    assert_eq!(mail.take(1).unwrap().events.len(), 1);
}

#[test]
fn node_is_not_opened_without_its_shared_log() {
    let (log, env) = (log(), Env::memory());
    let shared = SharedOptions::new(Arc::new(log.handle()), [1; 16], "http://n1:4780");
    let open = |shared: Option<SharedOptions>| {
        let options = Options::new().env(env.clone());
        shared.map_or_else(|| options.clone(), |shared| options.clone().shared(shared)).open("/db")
    };
    let db = open(Some(shared.clone())).unwrap();
    lead(&db);
    db.events("shop").unwrap().append(&[Event::new("A")], None).unwrap();
    db.close().unwrap();
    assert_eq!(class(open(None)), Some(Class::Invalid));
    let db = open(Some(shared)).unwrap();
    assert_eq!(db.events("shop").unwrap().head().unwrap(), Some(Position(1)));
    db.close().unwrap();
    env.vfs.remove("/db/place".as_ref()).unwrap();
    assert!(open(None).unwrap().leads());
}
