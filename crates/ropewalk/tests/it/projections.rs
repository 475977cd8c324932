//! Materialised projections: exactly-once application, atomic rebuilds and failures, despite crashes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::doc;
use ropewalk::documents::lang::{Value as Bson, Writer};
use ropewalk::documents::{CollectionOptions, DocumentsError, Find};
use ropewalk::engine::{Background, Env};
use ropewalk::events::SequencedEventRef;
use ropewalk::projections::{
    ApplyError, MaterializedProjection, Output, ProjectionError, ProjectionOptions, ProjectionRun,
    Projections, RebuildMode,
};
use ropewalk::tables::{ColumnDef, IndexDef, KeyRange, Table, TableDef, TablesError, Type, Value};
use ropewalk::{Class, Database, Error, Event, EventStore, Isolation, Options, Position, Query, Snapshot};
use ropewalk_vfs::{DiskOp, FaultyVfs, ManualClock, Random, SeededRandom};

use crate::env;

/// Balances as rows, payments as documents.
#[derive(Default)]
struct Accounts {
    /// Fails at this position.
    fails_at: AtomicU64,
    /// Interrupts rebuilds after this position.
    ends_at: AtomicU64,
    /// Added to each amount.
    bonus: AtomicU64,
    projections: std::sync::Mutex<Option<Projections>>,
    /// Positions whose effects ran.
    effects: Arc<std::sync::Mutex<Vec<u64>>>,
}

fn paid(account: u64, amount: i64) -> Event {
    Event::new("Paid").tag(format!("account:{account}")).data(amount.to_string())
}

/// Account and amount of a payment.
fn read<'e>(mut tags: impl Iterator<Item = &'e str>, data: &[u8]) -> (i64, i64) {
    let account = tags.next().unwrap().strip_prefix("account:").unwrap().parse().unwrap();
    (account, std::str::from_utf8(data).unwrap().parse().unwrap())
}

impl MaterializedProjection for Accounts {
    fn query(&self) -> Query {
        Query::from_types(["Paid"])
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("accounts"), Output::collection("payments")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let name = run.name("accounts")?;
        let table = TableDef::new(name)
            .column(ColumnDef::new("id", Type::INT8))
            .column(ColumnDef::new("balance", Type::INT8).not_null())
            .primary_key(["id"])
            .index(IndexDef::on(["balance"]));
        run.tx().tables().create_table(table)?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        let position = event.position.0;
        let (account, amount) = read(event.tags(), event.data());
        let amount = amount + self.bonus.load(Ordering::Relaxed) as i64;
        let table = run.table("accounts")?;
        let row = run.tx().tables().get(&table, &[account.into()])?;
        let balance = row.map_or(0, |row| row.column("balance").unwrap().as_integer().unwrap());
        run.tx()
            .tables()
            .upsert(&table, &[("id", account.into()), ("balance", (balance + amount).into())])?;
        let payments = run.collection("payments")?;
        let document = bson::serialize_to_vec(&doc! { "_id": position as i64, "amount": amount }).unwrap();
        // Applied twice it would be there.
        run.tx().documents().insert_one(&payments, &document)?;
        if self.fails_at.load(Ordering::Relaxed) == position {
            return Err(format!("account {account} is closed").into());
        }
        if self.ends_at.load(Ordering::Relaxed) == position {
            self.projections.lock().unwrap().as_ref().unwrap().interrupt_rebuilds();
        }
        let effects = self.effects.clone();
        run.after_commit(move || effects.lock().unwrap().push(position));
        Ok(())
    }
}

/// The projection and what it is registered with know each other.
impl Drop for Bank {
    fn drop(&mut self) {
        *self.accounts.projections.lock().unwrap() = None;
    }
}

struct Bank {
    db: Database,
    events: EventStore,
    projections: Projections,
    accounts: Arc<Accounts>,
}

impl Bank {
    fn open(env: &Env, batch_events: usize) -> Result<Self, Error> {
        let db = Options::new().env(env.clone()).background(Background::Manual).open("/bank")?;
        Self::over(db, batch_events)
    }

    fn over(db: Database, batch_events: usize) -> Result<Self, Error> {
        let options = ProjectionOptions {
            batch_events,
            rebuild_batch_events: batch_events,
            ..ProjectionOptions::default()
        };
        let projections = db.projections_with("bank", options)?;
        let accounts = Arc::new(Accounts::default());
        *accounts.projections.lock().unwrap() = Some(projections.clone());
        projections.register("accounts", accounts.clone())?;
        Ok(Self { events: db.events("bank")?, db, projections, accounts })
    }

    fn memory(batch_events: usize) -> Self {
        Self::open(&Env::memory(), batch_events).unwrap()
    }

    fn checkpoint(&self) -> u64 {
        self.projections.status("accounts").unwrap().checkpoint.map_or(0, |position| position.0)
    }

    /// Balances and the number of payments as readers see them.
    fn rows(&self) -> (BTreeMap<i64, i64>, usize) {
        self.rows_at(&self.db.snapshot(), self.db.table("accounts").ok())
    }

    fn rows_at(&self, snapshot: &Snapshot, table: Option<Table>) -> (BTreeMap<i64, i64>, usize) {
        let mut tables = snapshot.tables(&self.db);
        let rows = table.map(|table| tables.rows(&table, &KeyRange::all(), usize::MAX).unwrap());
        let integer = |value: Value<'_>| value.as_integer().unwrap();
        let rows = rows.unwrap_or_default();
        let rows = rows.iter().map(|row| (integer(row.get(0).unwrap()), integer(row.get(1).unwrap())));
        let payments = self.db.collection("payments").unwrap();
        let found = snapshot.documents(&self.db).find(&payments, &Find::all()).unwrap();
        (rows.collect(), found.len())
    }

    /// The expected state: counts the events up to `checkpoint`, each amount raised by `bonus`.
    fn expected(&self, checkpoint: u64, bonus: i64) -> (BTreeMap<i64, i64>, usize) {
        let (mut balances, mut payments) = (BTreeMap::new(), 0);
        for event in self.events.read(&Query::from_types(["Paid"]), Default::default()).unwrap() {
            let event = event.unwrap();
            if event.position.0 <= checkpoint {
                let (account, amount) = read(event.tags(), event.data());
                *balances.entry(account).or_default() += amount + bonus;
                payments += 1;
            }
        }
        (balances, payments)
    }

    fn effects(&self) -> Vec<u64> {
        std::mem::take(&mut *self.accounts.effects.lock().unwrap())
    }

    /// The names of all tables and collections: nothing of a rebuild may be left.
    fn outputs(&self) -> Vec<String> {
        let mut names = self.db.tables().names().unwrap();
        names.extend(self.db.documents().collections("default").unwrap());
        names
    }
}

fn failed_at(error: &Error) -> Option<(u64, String)> {
    match error {
        Error::Projection(ProjectionError::Failed { position, source, .. }) => {
            Some((position.0, source.to_string()))
        }
        _ => None,
    }
}

#[test]
fn events_become_rows_and_documents_with_their_checkpoint() {
    let bank = Bank::memory(2);
    let status = bank.projections.status("accounts").unwrap();
    assert_eq!((status.generation, status.checkpoint, status.lag), (None, None, 0));
    assert_eq!(bank.projections.catch_up("accounts").unwrap().applied, 0);
    bank.events.append(&[paid(1, 10), Event::new("Other"), paid(2, 5), paid(1, 1)], None).unwrap();
    let status = bank.projections.status("accounts").unwrap();
    assert_eq!((status.checkpoint, status.lag, status.head), (None, 3, Position(4)));
    let progress = bank.projections.catch_up("accounts").unwrap();
    assert_eq!((progress.applied, progress.checkpoint), (3, Position(4)));
    assert_eq!(bank.rows(), ([(1, 11), (2, 5)].into(), 3));
    assert_eq!(bank.effects(), [1, 3, 4]);
    let status = bank.projections.status("accounts").unwrap();
    assert_eq!((status.generation, status.checkpoint, status.lag), (Some(1), Some(Position(4)), 0));
    assert_eq!((status.failure, status.rebuild), (None, None));
    assert_eq!(bank.projections.names(), ["accounts"]);
    // A second call has nothing to do and writes nothing.
    let seq = bank.db.seq();
    assert_eq!(bank.projections.catch_up("accounts").unwrap().applied, 0);
    assert_eq!(bank.db.seq(), seq);
    // A removed projection leaves nothing and starts again from the first event.
    bank.projections.remove("accounts").unwrap();
    assert_eq!(bank.outputs(), [""; 0]);
    assert_eq!(bank.projections.catch_up("accounts").unwrap().applied, 3);
    assert!(bank.db.verify().unwrap().violations.is_empty());
}

#[test]
fn failing_event_stops_projection_without_data_loss() {
    for batch in [1, 2, 100] {
        let bank = Bank::memory(batch);
        bank.events.append(&[paid(1, 10), paid(2, 5), paid(1, 1), paid(3, 7)], None).unwrap();
        bank.accounts.fails_at.store(3, Ordering::Relaxed);
        for _ in 0..2 {
            let error = bank.projections.catch_up("accounts").unwrap_err();
            assert_eq!(failed_at(&error), Some((3, "account 1 is closed".into())));
            assert_eq!(error.class(), Class::Invalid);
            let text = "projection \"accounts\" stops at position 3, event \"Paid\": account 1 is closed";
            assert_eq!(error.to_string(), text);
        }
        // Events before it are applied; the event itself and later ones are not.
        assert_eq!(bank.rows(), ([(1, 10), (2, 5)].into(), 2), "batches of {batch}");
        assert_eq!(bank.effects(), [1, 2]);
        let status = bank.projections.status("accounts").unwrap();
        let failure = status.failure.unwrap();
        assert_eq!((status.checkpoint, status.lag), (Some(Position(2)), 2));
        assert_eq!((failure.position, failure.event_type.as_str()), (Position(3), "Paid"));
        assert_eq!(failure.error, "account 1 is closed");
        // Once fixed, it resumes with the same event.
        bank.accounts.fails_at.store(0, Ordering::Relaxed);
        assert_eq!(bank.projections.catch_up("accounts").unwrap().applied, 2);
        assert_eq!(bank.rows(), bank.expected(4, 0));
        assert_eq!(bank.effects(), [3, 4]);
        assert_eq!(bank.projections.status("accounts").unwrap().failure, None);
    }
}

#[test]
fn a_failing_event_may_be_skipped() {
    let bank = Bank::memory(10);
    assert_eq!(bank.projections.skip_failing("accounts").unwrap(), None);
    bank.events.append(&[paid(1, 10), paid(2, 5), paid(3, 7)], None).unwrap();
    bank.accounts.fails_at.store(2, Ordering::Relaxed);
    bank.projections.catch_up("accounts").unwrap_err();
    assert_eq!(bank.projections.skip_failing("accounts").unwrap(), Some(Position(2)));
    assert_eq!(bank.projections.skip_failing("accounts").unwrap(), None);
    assert_eq!(bank.projections.catch_up("accounts").unwrap().applied, 1);
    assert_eq!(bank.rows(), ([(1, 10), (3, 7)].into(), 2));
}

#[test]
fn rebuild_swaps_outputs_atomically_without_repeating_effects() {
    let bank = Bank::memory(2);
    let events: Vec<Event> = (0..9).map(|i| paid(i % 3, 1)).collect();
    bank.events.append(&events, None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    bank.effects();
    let (before, table) = (bank.db.snapshot(), bank.db.table("accounts").ok());
    bank.events.append(&[paid(7, 7)], None).unwrap();

    // Modes with nothing to do.
    assert_eq!(bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap(), None);
    assert_eq!(bank.projections.rebuild("accounts", RebuildMode::MissingCheckpointsOnly).unwrap(), None);

    bank.accounts.bonus.store(100, Ordering::Relaxed);
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap().unwrap();
    // Up to the live checkpoint: the effects of the tenth event are still due.
    assert_eq!((rebuilt.generation, rebuilt.applied), (2, 9));
    assert!(rebuilt.finished && !rebuilt.resumed);
    assert_eq!(bank.rows(), bank.expected(9, 100));
    assert_eq!(bank.rows_at(&before, table), bank.expected(9, 0), "older snapshots are unchanged");
    assert_eq!(bank.effects(), [0; 0]);
    assert_eq!(bank.outputs(), ["accounts", "payments"]);
    let status = bank.projections.status("accounts").unwrap();
    assert_eq!((status.generation, status.checkpoint, status.lag), (Some(2), Some(Position(9)), 1));
    bank.projections.catch_up("accounts").unwrap();
    assert_eq!(bank.effects(), [10]);
    assert_eq!(bank.rows(), bank.expected(10, 100));
    assert!(bank.db.verify().unwrap().violations.is_empty());
}

#[test]
fn missing_checkpoints_are_built_without_effects() {
    let bank = Bank::memory(4);
    bank.events.append(&[paid(1, 1), paid(2, 2), paid(3, 3)], None).unwrap();
    let results = bank.projections.rebuild_all(RebuildMode::MissingCheckpointsOnly);
    assert_eq!(results.len(), 1);
    let rebuilt = results[0].1.as_ref().unwrap().unwrap();
    assert_eq!((rebuilt.generation, rebuilt.applied, rebuilt.finished), (1, 3, true));
    bank.events.append(&[paid(4, 4)], None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    assert_eq!(bank.effects(), [4]);
    assert_eq!(bank.rows(), bank.expected(4, 0));
}

#[test]
fn d1_12_resume_only_resumes_and_begins_nothing() {
    let bank = Bank::memory(2);
    bank.events.append(&(0..6).map(|i| paid(i, 1)).collect::<Vec<_>>(), None).unwrap();
    assert_eq!(RebuildMode::default(), RebuildMode::ResumeOnly);
    assert_eq!(bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap(), None);
    bank.accounts.ends_at.store(3, Ordering::Relaxed);
    let begun = bank.projections.rebuild("accounts", RebuildMode::MissingCheckpointsOnly).unwrap().unwrap();
    assert!(!begun.finished && !begun.resumed);
    bank.accounts.ends_at.store(0, Ordering::Relaxed);
    let resumed = bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap().unwrap();
    assert!(resumed.finished && resumed.resumed);
    assert_eq!((resumed.generation, begun.applied + resumed.applied), (begun.generation, 6));
    assert_eq!(bank.rows(), bank.expected(6, 0));
}

#[test]
fn interrupted_rebuild_resumes_after_reopening() {
    let env = Env::memory();
    let bank = Bank::open(&env, 2).unwrap();
    bank.events.append(&(0..10).map(|i| paid(i, 1)).collect::<Vec<_>>(), None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    bank.accounts.ends_at.store(5, Ordering::Relaxed);
    bank.accounts.bonus.store(1, Ordering::Relaxed);
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap().unwrap();
    assert_eq!((rebuilt.generation, rebuilt.applied, rebuilt.finished), (2, 6, false));
    // The live projection continues meanwhile.
    bank.events.append(&[paid(20, 2)], None).unwrap();
    bank.accounts.bonus.store(0, Ordering::Relaxed);
    bank.projections.catch_up("accounts").unwrap();
    assert_eq!(bank.rows(), bank.expected(11, 0));
    let rebuild = bank.projections.status("accounts").unwrap().rebuild.unwrap();
    assert_eq!((rebuild.generation, rebuild.checkpoint, rebuild.until), (2, Position(6), Position(10)));
    drop(bank);

    let bank = Bank::open(&env, 2).unwrap();
    bank.accounts.bonus.store(1, Ordering::Relaxed);
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap().unwrap();
    assert_eq!((rebuilt.generation, rebuilt.applied), (2, 5));
    assert!(rebuilt.finished && rebuilt.resumed);
    assert_eq!(bank.rows(), bank.expected(11, 1));
    assert_eq!(bank.outputs(), ["accounts", "payments"]);
    // A forced rebuild discards an interrupted one.
    bank.accounts.ends_at.store(3, Ordering::Relaxed);
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap().unwrap();
    assert!(!rebuilt.finished);
    bank.accounts.ends_at.store(0, Ordering::Relaxed);
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap().unwrap();
    assert_eq!((rebuilt.generation, rebuilt.applied, rebuilt.resumed), (4, 11, false));
    assert_eq!(bank.outputs(), ["accounts", "payments"]);
}

#[test]
fn interrupted_first_build_completes_without_effects() {
    let bank = Bank::memory(2);
    bank.events.append(&(0..6).map(|i| paid(i, 1)).collect::<Vec<_>>(), None).unwrap();
    bank.accounts.ends_at.store(2, Ordering::Relaxed);
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::MissingCheckpointsOnly).unwrap().unwrap();
    assert!(!rebuilt.finished);
    bank.events.append(&[paid(9, 9)], None).unwrap();
    assert_eq!(bank.projections.catch_up("accounts").unwrap().checkpoint, Position(7));
    assert_eq!(bank.effects(), [7], "what was there when the build began is history");
    assert_eq!(bank.rows(), bank.expected(7, 0));
}

#[test]
fn failed_rebuild_keeps_live_outputs_and_resumes() {
    let bank = Bank::memory(2);
    bank.events.append(&(0..6).map(|i| paid(i, 1)).collect::<Vec<_>>(), None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    bank.accounts.fails_at.store(4, Ordering::Relaxed);
    let error = bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap_err();
    assert_eq!(failed_at(&error).map(|(position, _)| position), Some(4));
    assert_eq!(bank.rows(), bank.expected(6, 0));
    let rebuild = bank.projections.status("accounts").unwrap().rebuild.unwrap();
    assert_eq!(rebuild.checkpoint, Position(3));
    assert_eq!(rebuild.failure.unwrap().position, Position(4));
    bank.accounts.fails_at.store(0, Ordering::Relaxed);
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap().unwrap();
    assert_eq!((rebuilt.applied, rebuilt.finished), (3, true));
}

#[test]
fn several_projections_rebuild_in_parallel() {
    struct Count(String);
    impl MaterializedProjection for Count {
        fn query(&self) -> Query {
            Query::all()
        }

        fn outputs(&self) -> Vec<Output> {
            vec![Output::collection(self.0.clone())]
        }

        fn apply(
            &self,
            run: &mut ProjectionRun<'_>,
            event: &SequencedEventRef<'_>,
        ) -> Result<(), ApplyError> {
            if self.0 == "c3" && run.generation() > 1 {
                return Err("never again".into());
            }
            let collection = run.collection(&self.0)?;
            let document = bson::serialize_to_vec(&doc! { "_id": event.position.0 as i64 }).unwrap();
            run.tx().documents().insert_one(&collection, &document)?;
            Ok(())
        }
    }
    let db = Database::in_memory().unwrap();
    let projections = db.projections("s").unwrap();
    let names: Vec<String> = (0..6).map(|i| format!("c{i}")).collect();
    for name in &names {
        projections.register(name, Arc::new(Count(name.clone()))).unwrap();
    }
    db.events("s").unwrap().append(&vec![Event::new("E"); 20], None).unwrap();
    for (name, result) in projections.rebuild_all(RebuildMode::MissingCheckpointsOnly) {
        assert_eq!(result.unwrap().unwrap().applied, 20, "{name}");
    }
    let some = projections.rebuild_some(["c1", "c3", "nobody", "c5"], RebuildMode::ForceFullRebuild);
    let outcome = |index: usize| some[index].1.as_ref().map(|rebuilt| rebuilt.unwrap().generation);
    assert_eq!((outcome(0).unwrap(), outcome(3).unwrap()), (2, 2));
    assert!(failed_at(outcome(1).unwrap_err()).is_some());
    assert_eq!(outcome(2).unwrap_err().class(), Class::NotFound);
    let generations = projections.statuses().unwrap().into_iter().map(|status| status.generation.unwrap());
    assert_eq!(generations.collect::<Vec<_>>(), [1, 2, 1, 1, 1, 2]);
    for name in &names {
        let collection = db.collection(name).unwrap();
        let found = db.snapshot().documents(&db).find(&collection, &Find::all()).unwrap();
        assert_eq!(found.len(), 20);
    }
}

#[test]
fn recreated_store_is_distinguished_from_deleted_one() {
    let bank = Bank::memory(10);
    bank.events.append(&[paid(1, 1), paid(1, 1)], None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    bank.events.delete().unwrap();
    let replaced = |error: Error| matches!(error, Error::Projection(ProjectionError::StoreReplaced { .. }));
    assert!(replaced(bank.projections.catch_up("accounts").unwrap_err()));
    bank.events.append(&[paid(2, 2), paid(3, 3), paid(4, 4)], None).unwrap();
    assert!(replaced(bank.projections.catch_up("accounts").unwrap_err()));
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap().unwrap();
    assert_eq!((rebuilt.applied, rebuilt.finished), (3, true));
    assert_eq!(bank.rows(), ([(2, 2), (3, 3), (4, 4)].into(), 3));
}

#[test]
fn names_are_checked() {
    let bank = Bank::memory(1);
    let class = |result: Result<(), Error>| result.unwrap_err().class();
    assert_eq!(class(bank.projections.register("", Arc::new(Accounts::default()))), Class::Invalid);
    assert_eq!(class(bank.projections.register("a\0b", Arc::new(Accounts::default()))), Class::Invalid);
    assert_eq!(class(bank.projections.register("accounts", Arc::new(Accounts::default()))), Class::Invalid);
    assert_eq!(class(bank.projections.catch_up("nobody").map(|_| ())), Class::NotFound);
}

#[test]
fn failed_prepare_is_reported_and_leaves_nothing() {
    let bank = Bank::memory(1);
    let table = TableDef::new("accounts").column(ColumnDef::new("id", Type::INT8)).primary_key(["id"]);
    bank.db
        .transact(Isolation::Serializable, 1, |tx| {
            tx.tables().create_table(table.clone())?;
            Ok::<_, Error>(())
        })
        .unwrap();
    bank.events.append(&[paid(1, 1)], None).unwrap();
    let error = bank.projections.catch_up("accounts").unwrap_err();
    assert!(matches!(error, Error::Projection(ProjectionError::Unprepared { generation: 1, .. })), "{error}");
    assert_eq!(bank.checkpoint(), 0);
}

#[test]
fn followers_apply_commits_and_end_on_stop_or_failure() {
    let bank = Bank::over(Database::in_memory().unwrap(), 3).unwrap();
    bank.events.append(&[paid(0, 0)], None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    let running = bank.projections.start();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let events = &bank.events;
            scope.spawn(move || {
                for _ in 0..30 {
                    events.append(&[paid(writer, 1), Event::new("Other")], None).unwrap();
                }
            });
        }
        // Rebuilds run concurrently with writers and the live projection.
        for _ in 0..3 {
            bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap();
        }
    });
    while bank.projections.status("accounts").unwrap().lag > 0 {
        std::thread::yield_now();
    }
    assert!(running.follows("accounts"));
    assert_eq!(bank.rows(), ([(0, 30), (1, 30), (2, 30)].into(), 91));
    let mut effects = bank.effects();
    // Effects run after the commit of their batch, so the last ones may be pending.
    bank.accounts.fails_at.store(182, Ordering::Relaxed);
    bank.events.append(&[paid(1, 1)], None).unwrap();
    while running.follows("accounts") {
        std::thread::yield_now();
    }
    effects.extend(bank.effects());
    effects.sort_unstable();
    let paid = bank.events.read(&Query::from_types(["Paid"]), Default::default()).unwrap();
    let paid: Vec<u64> = paid.map(|event| event.unwrap().position.0).filter(|p| *p != 182).collect();
    assert_eq!(effects, paid, "every effect once");
    let ended = running.stop();
    assert_eq!(failed_at(&ended[0].1).map(|(position, _)| position), Some(182));
    // An idle one ends when stopped.
    bank.accounts.fails_at.store(0, Ordering::Relaxed);
    bank.projections.catch_up("accounts").unwrap();
    assert!(bank.projections.start().stop().is_empty());
}

#[test]
fn concurrent_catch_ups_apply_each_event_once() {
    let db = Database::in_memory().unwrap();
    // The two sets of projections share only the database.
    let banks = [Bank::over(db.clone(), 2).unwrap(), Bank::over(db, 3).unwrap()];
    banks[0].events.append(&(0..60).map(|i| paid(i % 4, 1)).collect::<Vec<_>>(), None).unwrap();
    std::thread::scope(|scope| {
        for bank in &banks {
            scope.spawn(move || bank.projections.catch_up("accounts").unwrap());
        }
    });
    assert_eq!(banks[0].rows(), banks[0].expected(60, 0));
    let mut effects = banks[0].effects();
    effects.extend(banks[1].effects());
    effects.sort_unstable();
    assert_eq!(effects, (1..=60).collect::<Vec<_>>());
}

#[test]
fn any_sequence_of_calls_equals_counting_the_events() {
    for seed in 0..60 {
        let random = SeededRandom::new(seed);
        let up_to = |n: u64| random.next_u64() % n;
        let env = Env::memory();
        let mut bank = Bank::open(&env, 1 + up_to(4) as usize).unwrap();
        let (mut head, mut applied) = (0, 0);
        let mut effects = Vec::new();
        // A rebuild may be interrupted and still unfinished; the code does not change meanwhile.
        for step in 0..40 {
            let what = up_to(10);
            match what {
                0..=3 => {
                    let events: Vec<Event> = (0..1 + up_to(4))
                        .map(|_| {
                            if up_to(4) == 0 { Event::new("Other") } else { paid(up_to(3), up_to(9) as i64) }
                        })
                        .collect();
                    head = bank.events.append(&events, None).unwrap().last.0;
                }
                4 | 5 => {
                    bank.accounts.fails_at.store(up_to(2) * (1 + up_to(head + 1)), Ordering::Relaxed);
                    let _ = bank.projections.catch_up("accounts");
                    bank.accounts.fails_at.store(0, Ordering::Relaxed);
                }
                6 | 7 => {
                    bank.accounts.ends_at.store(up_to(2) * (1 + up_to(head + 1)), Ordering::Relaxed);
                    let mode = [
                        RebuildMode::ResumeOnly,
                        RebuildMode::MissingCheckpointsOnly,
                        RebuildMode::ForceFullRebuild,
                    ][up_to(3) as usize];
                    bank.projections.rebuild("accounts", mode).unwrap();
                    bank.accounts.ends_at.store(0, Ordering::Relaxed);
                }
                8 => bank.db.checkpoint().unwrap(),
                _ => {
                    effects.extend(bank.effects());
                    drop(bank);
                    bank = Bank::open(&env, 1 + up_to(4) as usize).unwrap();
                }
            }
            let checkpoint = bank.checkpoint();
            assert!(checkpoint >= applied && checkpoint <= head, "seed {seed}, step {step}");
            applied = checkpoint;
            assert_eq!(bank.rows(), bank.expected(checkpoint, 0), "seed {seed}, step {step}: {what}");
        }
        bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap();
        bank.projections.catch_up("accounts").unwrap();
        assert_eq!(bank.rows(), bank.expected(head, 0), "seed {seed}");
        effects.extend(bank.effects());
        let count = effects.len();
        effects.sort_unstable();
        effects.dedup();
        assert_eq!(effects.len(), count, "seed {seed}: no effect twice");
        assert!(bank.db.verify().unwrap().violations.is_empty());
    }
}

#[test]
fn power_cut_at_any_operation_leaves_checkpoint_and_rows_consistent() {
    // Batches, an interrupted and a finished rebuild, and an engine checkpoint in between.
    let work = |disk: &FaultyVfs| -> Result<(), Error> {
        let bank = Bank::open(&env(disk), 2)?;
        bank.events.append(&[paid(1, 1), paid(2, 2), paid(1, 3)], None)?;
        bank.projections.catch_up("accounts")?;
        bank.db.checkpoint()?;
        bank.events.append(&[paid(3, 4), paid(2, 5)], None)?;
        bank.accounts.ends_at.store(1, Ordering::Relaxed);
        bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild)?;
        bank.accounts.ends_at.store(0, Ordering::Relaxed);
        bank.projections.catch_up("accounts")?;
        bank.projections.rebuild("accounts", RebuildMode::ResumeOnly)?;
        bank.events.append(&[paid(4, 6)], None)?;
        bank.projections.catch_up("accounts")?;
        Ok(())
    };
    let disk = FaultyVfs::new(1);
    work(&disk).unwrap();
    let operations = disk.operations();
    assert!(operations > 40, "{operations}");
    let mut interrupted = 0;
    for point in 1..=operations {
        let disk = FaultyVfs::new(point);
        disk.crash_at(point);
        let _ = work(&disk);
        disk.crash();
        let bank = Bank::open(&env(&disk), 2).unwrap();
        let checkpoint = bank.checkpoint();
        assert_eq!(bank.rows(), bank.expected(checkpoint, 0), "cut at {point}");
        if bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap().is_some() {
            interrupted += 1;
            assert_eq!(bank.rows(), bank.expected(checkpoint, 0), "cut at {point}, rebuilt");
        }
        bank.events.append(&[paid(9, 9)], None).unwrap();
        bank.projections.catch_up("accounts").unwrap();
        assert_eq!(bank.rows(), bank.expected(u64::MAX, 0), "cut at {point}, caught up");
        assert_eq!(bank.outputs(), ["accounts", "payments"], "cut at {point}");
        assert!(bank.db.verify().unwrap().violations.is_empty());
    }
    assert!(interrupted > 3, "{interrupted} cuts fell into the rebuild");
}

#[test]
fn collection_handle_follows_the_name_after_rebuild() {
    let bank = Bank::memory(10);
    bank.events.append(&[paid(1, 1)], None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    let payments = bank.db.collection("payments").unwrap();
    bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap();
    // A handle refers to the name, so it reads the new generation.
    assert!(payments.get(Bson::Int64(1)).unwrap().is_some());
}

#[test]
fn rebuilt_collection_has_the_access_rules_that_the_live_one_has_at_the_switch() {
    let bank = Bank::memory(1);
    bank.events.append(&[paid(1, 1), paid(1, 1)], None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    let payments = bank.db.collection("payments").unwrap();
    let set_rule = |rule: &str| {
        let mut rules = Writer::new();
        rules.put("read", Bson::String(rule));
        payments
            .set_options(CollectionOptions { rules: Some(rules.finish()), ..CollectionOptions::default() })
            .unwrap();
    };
    let rule = |name: &str| {
        let definition = bank.db.collection(name).unwrap().definition().unwrap().unwrap();
        let rules = definition.options().rules.clone().unwrap();
        rules.doc().get("read").unwrap().as_str().unwrap().to_owned()
    };
    set_rule("resource.amount > 5");
    // The first document creates the collection of the rebuild, without rules.
    bank.accounts.ends_at.store(1, Ordering::Relaxed);
    let begun = bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap().unwrap();
    assert!(!begun.finished);
    assert_eq!(rule("payments__g2"), "resource.amount > 5");
    set_rule("resource.amount > 9");
    bank.accounts.ends_at.store(0, Ordering::Relaxed);
    let rebuilt = bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap().unwrap();
    assert!(rebuilt.finished);
    assert_eq!(rule("payments"), "resource.amount > 9");
}

#[test]
fn users_cannot_take_the_names_that_a_rebuild_needs() {
    let bank = Bank::memory(1);
    bank.events.append(&[paid(1, 1), paid(1, 1)], None).unwrap();
    bank.projections.catch_up("accounts").unwrap();
    let document = |id: i64| bson::serialize_to_vec(&doc! { "_id": id }).unwrap();
    let mut tx = bank.db.begin();
    let table = TableDef::new("accounts__g2").column(ColumnDef::new("id", Type::INT8)).primary_key(["id"]);
    let refused = tx.tables().create_table(table).unwrap_err();
    assert!(matches!(refused, TablesError::ReservedName { .. }), "{refused}");
    let payments = bank.db.collection("payments__g2").unwrap();
    let refused = tx.documents().insert_one(&payments, &document(9)).unwrap_err();
    assert!(matches!(refused, DocumentsError::InvalidName { .. }), "{refused}");
    drop(tx);
    // The existing collection stays usable, and the rebuild succeeds.
    bank.accounts.ends_at.store(1, Ordering::Relaxed);
    assert!(!bank.projections.rebuild("accounts", RebuildMode::ForceFullRebuild).unwrap().unwrap().finished);
    let mut tx = bank.db.begin();
    tx.documents().insert_one(&payments, &document(9)).unwrap();
    tx.commit().unwrap();
    bank.accounts.ends_at.store(0, Ordering::Relaxed);
    assert!(bank.projections.rebuild("accounts", RebuildMode::ResumeOnly).unwrap().unwrap().finished);
    assert!(bank.db.collection("payments").unwrap().get(Bson::Int64(9)).unwrap().is_some());
}

/// A table with one row for each event.
struct Copies {
    clock: Arc<ManualClock>,
    /// Bytes of a row.
    bytes: usize,
    /// Time that an event takes.
    time: Duration,
}

impl MaterializedProjection for Copies {
    fn query(&self) -> Query {
        Query::from_types(["Paid"])
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::table("copies")]
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let table = TableDef::new(run.name("copies")?)
            .column(ColumnDef::new("position", Type::INT8))
            .column(ColumnDef::new("body", Type::TEXT))
            .primary_key(["position"]);
        run.tx().tables().create_table(table)?;
        Ok(())
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        self.clock.advance(self.time);
        let (table, body) = (run.table("copies")?, "x".repeat(self.bytes));
        let row = [("position", Value::Int8(event.position.0 as i64)), ("body", Value::text(body))];
        run.tx().tables().insert(&table, &row)?;
        Ok(())
    }
}

/// A bank whose seven payments are copied in batches of at most eight.
fn copied(bytes: usize, time: Duration) -> Bank {
    let clock = Arc::new(ManualClock::default());
    let bank = Bank::open(&Env { clock: clock.clone(), ..Env::memory() }, 8).unwrap();
    bank.projections.register("copies", Arc::new(Copies { clock, bytes, time })).unwrap();
    bank.events.append(&(0..7).map(|n| paid(n, 1)).collect::<Vec<_>>(), None).unwrap();
    bank
}

/// Commits that only a power cut could undo together with their checkpoint are not synced one by one.
#[test]
fn catch_up_and_rebuild_sync_their_last_commit() {
    for batch in [1, 4] {
        let (disk, clock) = (FaultyVfs::new(1), Arc::new(ManualClock::default()));
        let open = || {
            let (vfs, random) = (Arc::new(disk.process()), Arc::new(SeededRandom::new(7)));
            let bank = Bank::open(&Env { vfs, clock: clock.clone(), random }, batch).unwrap();
            let copies = Copies { clock: clock.clone(), bytes: 1, time: Duration::ZERO };
            bank.projections.register("copies", Arc::new(copies)).unwrap();
            bank
        };
        let bank = open();
        bank.events.append(&(0..40).map(|n| paid(n, 1)).collect::<Vec<_>>(), None).unwrap();
        let before = disk.count(DiskOp::Sync);
        assert_eq!(bank.projections.catch_up("copies").unwrap().applied, 40);
        let syncs = disk.count(DiskOp::Sync) - before;
        assert!((1..=3).contains(&syncs), "catch-up by {batch}: {syncs}");
        // Nothing is due, so nothing is written.
        let seq = bank.db.seq();
        bank.projections.catch_up("copies").unwrap();
        assert_eq!(bank.db.seq(), seq);
        disk.crash();
        drop(bank);

        let bank = open();
        let status = bank.projections.status("copies").unwrap();
        assert_eq!((status.checkpoint, status.lag), (Some(Position(40)), 0), "by {batch}");
        let before = disk.count(DiskOp::Sync);
        let rebuilt = bank.projections.rebuild("copies", RebuildMode::ForceFullRebuild).unwrap().unwrap();
        assert!(rebuilt.finished && rebuilt.applied == 40);
        // Its beginning and the switch, in any case.
        let syncs = disk.count(DiskOp::Sync) - before;
        assert!((2..=4).contains(&syncs), "rebuild by {batch}: {syncs}");
        disk.crash();
        drop(bank);
        let status = open().projections.status("copies").unwrap();
        assert_eq!((status.generation, status.checkpoint), (Some(2), Some(Position(40))), "by {batch}");
    }
}

#[test]
fn effects_run_after_a_durable_commit() {
    let disk = FaultyVfs::new(1);
    let bank = Bank::open(&env(&disk), 1).unwrap();
    bank.events.append(&(0..10).map(|n| paid(n, 1)).collect::<Vec<_>>(), None).unwrap();
    let before = disk.count(DiskOp::Sync);
    bank.projections.catch_up("accounts").unwrap();
    assert_eq!(bank.effects().len(), 10);
    assert!(disk.count(DiskOp::Sync) - before >= 10, "each batch has an effect");
}

#[test]
fn batch_ends_before_the_event_that_exceeds_a_transaction() {
    let bank = copied(12 << 20, Duration::ZERO);
    let first = bank.projections.apply_batch("copies").unwrap();
    assert_eq!((first.applied, first.checkpoint, first.is_at_head), (5, Position(5), false));
    let second = bank.projections.apply_batch("copies").unwrap();
    assert_eq!((second.applied, second.checkpoint, second.is_at_head), (2, Position(7), true));
    assert_eq!(bank.projections.status("copies").unwrap().failure, None);
    // A row that no batch can hold is a failure of its event.
    let bank = copied(17 << 20, Duration::ZERO);
    let failed = bank.projections.apply_batch("copies").unwrap_err();
    assert_eq!(failed_at(&failed).map(|(position, _)| position), Some(1), "{failed}");
}

#[test]
fn batch_ends_when_its_time_is_over() {
    let bank = copied(1, Duration::from_secs(2));
    for (applied, is_at_head) in [(3, false), (3, false), (1, true)] {
        let batch = bank.projections.apply_batch("copies").unwrap();
        assert_eq!((batch.applied, batch.is_at_head), (applied, is_at_head));
    }
    assert_eq!(bank.projections.status("copies").unwrap().lag, 0);
}
