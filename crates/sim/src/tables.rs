//! Tables on a disk that fails: transactions over rows with rules, definitions that change, loads, and lists that only grow.
//!
//!   session ─▶ statement ─▶ what the model says of the same statement at the same snapshot: same answer, same rows
//!   commit ─▶ the model's next state: rules hold, and what a serializable transaction has read is as it was
//!   crash ─▶ open ─▶ the rows are a state of the model, not older than promised; verify finds nothing
//!
//! The model keeps the state after every commit, so it says what any snapshot must show. Lists are the classic of history
//! checking: each transaction reads some and appends a number that nobody else appends, so that a lost, doubled or
//! misplaced write shows in every later read (list-append: Kingsbury and Alvaro, "Elle", VLDB 2020). Here every commit has a
//! place in one order, so nothing has to be searched: each read is compared with the state at its place.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use ropewalk::tables::{
    ColumnDef, DefaultValue, ForeignKeyDef, IndexDef, KeyRange, LoadOptions, Row, TableDef, TablesError,
    TablesRead, Type, Value,
};
use ropewalk::{Class, Database, Durability, Env, Error, Isolation, Transaction};
use ropewalk_vfs::{DiskOp, FaultyVfs, ManualClock, SeededRandom};

use crate::dice::Dice;
use crate::world::{Bug, Check, DIR, End, ensure, small_options};
use crate::{Counts, Run};

/// Open transactions.
const SESSIONS: usize = 4;
const TRACE_LINES: usize = 60;

/// What all tables hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    parents: BTreeMap<i64, String>,
    children: BTreeMap<i64, Option<i64>>,
    lists: BTreeMap<i64, Vec<u8>>,
    /// Rows of the last load, and its number.
    loaded: Option<(i64, i64)>,
}

/// What a transaction did, in order.
#[derive(Debug, Clone)]
enum Effect {
    Parent(i64, Option<String>),
    Child(i64, Option<Option<i64>>),
    List(i64, Vec<u8>),
    NoChildren,
    Loaded(Option<(i64, i64)>),
}

impl State {
    fn apply(&mut self, effect: &Effect) {
        fn set<V: Clone>(map: &mut BTreeMap<i64, V>, key: i64, value: Option<&V>) {
            match value {
                Some(value) => map.insert(key, value.clone()),
                None => map.remove(&key),
            };
        }
        match effect {
            Effect::Parent(key, name) => set(&mut self.parents, *key, name.as_ref()),
            Effect::Child(key, parent) => set(&mut self.children, *key, parent.as_ref()),
            Effect::List(key, items) => set(&mut self.lists, *key, Some(items)),
            Effect::NoChildren => self.children.clear(),
            Effect::Loaded(loaded) => self.loaded = *loaded,
        }
    }

    fn with(&self, effects: &[Effect]) -> Self {
        let mut state = self.clone();
        effects.iter().for_each(|effect| state.apply(effect));
        state
    }

    /// Names are unique and every child has its parent.
    fn is_sound(&self) -> bool {
        let names: std::collections::BTreeSet<_> = self.parents.values().collect();
        let orphan = |parent: &i64| !self.parents.contains_key(parent);
        names.len() == self.parents.len() && !self.children.values().flatten().any(orphan)
    }
}

/// A transaction and what is known of it.
struct Session {
    transaction: Transaction,
    isolation: Isolation,
    effects: Vec<Effect>,
    /// Lists and children as they were read, before own writes.
    lists_read: Vec<(i64, Option<Vec<u8>>)>,
    children_read: Option<BTreeMap<i64, Option<i64>>>,
    /// The snapshot of its first write to the children.
    first_child: Option<u64>,
    /// What there was when it first wrote.
    base: Option<State>,
}

struct World {
    dice: Dice,
    vfs: FaultyVfs,
    env: Env,
    clock: Arc<ManualClock>,
    options: ropewalk::Options,
    db: Option<Database>,
    sessions: Vec<Session>,
    /// The state after each commit that changed one, ascending.
    states: Vec<(u64, State)>,
    /// States that a commit without an answer may have left.
    doubts: Vec<State>,
    durable: u64,
    written: u64,
    full: bool,
    sync_failed: bool,
    faults_before: u64,
    next: u64,
    /// The commit that last truncated the children.
    truncated: u64,
    counts: Counts,
    trace: Vec<String>,
}

/// Runs one seed: so many boots, each under some trouble.
pub fn run_tables(seed: u64, boots: u64) -> Run {
    let vfs = FaultyVfs::new(seed ^ 0x7ab1e5);
    let clock = Arc::new(ManualClock::default());
    clock.jump_wall_micros(1_700_000_000_000_000);
    let random = Arc::new(SeededRandom::new(seed ^ 0x5eed));
    let env = Env { vfs: Arc::new(vfs.clone()), clock: clock.clone(), random };
    let dice = Dice::new(seed);
    let mut world = World {
        options: small_options(&dice),
        dice,
        vfs,
        env,
        clock,
        db: None,
        sessions: Vec::new(),
        states: vec![(0, State::default())],
        doubts: Vec::new(),
        durable: 0,
        written: 0,
        full: false,
        sync_failed: false,
        faults_before: 0,
        next: 1,
        truncated: 0,
        counts: Counts::default(),
        trace: Vec::new(),
    };
    let result = catch_unwind(AssertUnwindSafe(|| world.live(boots))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Bug(format!("panic: {}", text.unwrap_or("without a message"))))
    });
    world.counts.faults = world.vfs.injected();
    let tail = world.trace.split_off(world.trace.len().saturating_sub(TRACE_LINES));
    let (hash, counts) = (world.vfs.fingerprint(), world.counts);
    let bug = result.err().map(|Bug(what)| what);
    if bug.is_some() {
        // A database in an impossible state may not even close; its memory is the price of the report.
        std::mem::forget(world);
    }
    Run { hash, counts, bug, tail }
}

fn open(options: &ropewalk::Options) -> Result<Database, Error> {
    let db = options.clone().open(Path::new(DIR))?;
    if db.tables().names()?.is_empty() {
        let id = || ColumnDef::new("id", Type::INT8);
        let mut tx = db.begin();
        let mut create = |def: TableDef| tx.tables().create_table(def.primary_key(["id"]));
        let name = ColumnDef::new("name", Type::TEXT).not_null();
        create(TableDef::new("parents").column(id()).column(name).unique(["name"]))?;
        create(
            TableDef::new("children")
                .column(id())
                .column(ColumnDef::new("parent", Type::INT8))
                .foreign_key(ForeignKeyDef::new(["parent"], "parents", ["id"])),
        )?;
        create(TableDef::new("lists").column(id()).column(ColumnDef::new("items", Type::BYTEA).not_null()))?;
        let load = TableDef::new("loaded").column(id()).column(ColumnDef::new("load", Type::INT8));
        create(load.column(ColumnDef::new("pad", Type::TEXT)).index(IndexDef::on(["pad"])))?;
        tx.commit()?;
    }
    Ok(db)
}

/// A database without tables has no state to compare: its creation was cut off.
fn read_state(db: &Database) -> Result<State, Error> {
    let snapshot = db.snapshot();
    let mut read = snapshot.tables(db);
    let mut state = State::default();
    let mut each = |table: &str, take: &mut dyn FnMut(i64, Row<'_>) -> Result<(), TablesError>| {
        let table = db.table(table)?;
        let all = &mut |row: Row<'_>| {
            take(row.get(0)?.as_integer().unwrap_or_default(), row)?;
            Ok(true)
        };
        Ok::<(), Error>(read.scan(&table, &KeyRange::all(), false, all)?)
    };
    each("parents", &mut |id, row| {
        state.parents.insert(id, row.get(1)?.to_string());
        Ok(())
    })?;
    each("children", &mut |id, row| {
        state.children.insert(id, row.column("parent")?.as_integer());
        Ok(())
    })?;
    each("lists", &mut |id, row| {
        state.lists.insert(id, bytes(&row.get(1)?));
        Ok(())
    })?;
    let mut rows = 0;
    let mut load = None;
    each("loaded", &mut |_, row| {
        let number = row.get(1)?.as_integer();
        // Rows of two loads in one table: a number that is none.
        load = if load.is_none() || load == number { number } else { Some(i64::MIN) };
        rows += 1;
        Ok(())
    })?;
    state.loaded = load.map(|load| (load, rows));
    Ok(state)
}

fn bytes(value: &Value<'_>) -> Vec<u8> {
    match value {
        Value::Bytea(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

impl World {
    fn live(&mut self, boots: u64) -> Check {
        self.restart(End::Kill, false)?;
        for _ in 0..boots {
            self.troubled_boot()?;
        }
        self.heal();
        self.restart(End::Close, false)?;
        for _ in 0..20 {
            self.step()?;
        }
        self.sessions.clear();
        let db = self.db()?;
        db.compact()?;
        self.compare(&db, db.seq().0)?;
        drop(db);
        self.restart(End::Close, false)
    }

    fn note(&mut self, line: impl Into<String>) {
        self.trace.push(format!("{:>4} {}", self.counts.steps, line.into()));
    }

    fn db(&self) -> Check<Database> {
        self.db.clone().ok_or_else(|| Bug("the database is closed".into()))
    }

    fn heal(&mut self) {
        self.vfs.calm();
        self.full = false;
    }

    fn stopped(&self) -> bool {
        self.db.as_ref().is_some_and(|db| db.engine().stopped().is_some())
    }

    /// A failure, which the disk must explain.
    fn excuse(&mut self, what: &str, error: &Error) -> Check {
        self.note(format!("{what}: {error}"));
        let typed = matches!(error.class(), Class::Io | Class::Busy | Class::Internal);
        let reason =
            self.vfs.is_off() || self.full || self.stopped() || self.vfs.injected() > self.faults_before;
        ensure!(typed && reason, "{what} failed without a reason: {error} ({:?})", error.class());
        Ok(())
    }

    fn troubled_boot(&mut self) -> Check {
        let steps = self.dice.between(10, 120);
        match self.dice.below(8) {
            0 => {}
            1..=4 => self.vfs.crash_at(self.vfs.operations() + self.dice.between(1, 200)),
            5 => {
                self.sync_failed = true;
                self.vfs.fail(DiskOp::Sync, self.dice.below(40));
            }
            6 => self.vfs.fail(DiskOp::Write, self.dice.below(40)),
            _ => {
                self.vfs.set_space(Some(self.vfs.used() + self.dice.below(64 << 10)));
                self.full = true;
            }
        }
        for step in 0..steps {
            self.step()?;
            if self.vfs.is_off() || self.stopped() {
                break;
            }
            if self.full && step > steps / 2 {
                self.heal();
            }
        }
        let end = match self.vfs.is_off() {
            true => End::PowerCut,
            false => self.dice.weighted(&[(3, End::PowerCut), (2, End::Kill), (1, End::Close)]),
        };
        self.heal();
        let trouble = self.dice.one_in(2);
        self.restart(end, trouble)
    }

    /// Ends the boot, opens again, and compares.
    fn restart(&mut self, end: End, trouble: bool) -> Check {
        self.note(format!("---- {end:?}"));
        self.sessions.clear();
        if let Some(db) = &self.db {
            let stats = db.stats();
            self.counts.rolls += stats.log.rolls;
            self.counts.flushed_bytes += stats.store.keyspaces.iter().map(|k| k.flushed_bytes).sum::<u64>();
            self.counts.compacted_bytes +=
                stats.store.keyspaces.iter().map(|k| k.compacted_bytes).sum::<u64>();
        }
        let mut floor = match end {
            End::PowerCut => self.durable,
            End::Kill if self.sync_failed => self.durable,
            End::Kill => self.written,
            End::Close => {
                if let Some(db) = self.db.take() {
                    let (running, seq) = (!self.stopped(), db.seq().0);
                    self.faults_before = self.vfs.injected();
                    let stopped = db.engine().stopped().is_some();
                    match db.close() {
                        Ok(()) if running && !stopped => self.durable = self.durable.max(seq),
                        Ok(()) => {}
                        Err(error) => {
                            self.note(format!("close: {error}"));
                            ensure!(stopped || self.vfs.is_off(), "close failed without a reason: {error}");
                        }
                    }
                }
                self.durable
            }
        };
        match end {
            End::PowerCut => {
                self.vfs.crash();
                self.counts.power_cuts += 1;
            }
            End::Kill => self.vfs.kill(),
            End::Close => {}
        }
        self.db = None;
        self.sync_failed = false;
        for attempt in 0.. {
            if trouble && attempt < 3 && self.dice.one_in(3) {
                self.vfs.crash_at(self.vfs.operations() + self.dice.between(1, 40));
            }
            self.faults_before = self.vfs.injected();
            self.counts.opens += 1;
            let env = Env { vfs: Arc::new(self.vfs.process()), ..self.env.clone() };
            match open(&self.options.clone().env(env)) {
                Ok(db) => {
                    self.db = Some(db);
                    break;
                }
                Err(error) => self.excuse("open", &error)?,
            }
            if self.vfs.is_off() {
                self.vfs.crash();
                floor = self.durable;
            }
            if attempt > 2 {
                self.heal();
            }
        }
        // What was planned for the opening does not meet the comparison.
        self.vfs.calm();
        if self.vfs.is_off() {
            self.vfs.crash();
            return self.restart(End::PowerCut, false);
        }
        let db = self.db()?;
        self.reconcile(&db, floor)
    }

    fn reconcile(&mut self, db: &Database, floor: u64) -> Check {
        let found = db.seq().0;
        self.note(format!("opened at commit {found}, promised {floor}"));
        ensure!(found >= floor, "commit {floor} was acknowledged and is lost: reopened at commit {found}");
        let last = self.states.last().map_or(0, |(seq, _)| *seq);
        let state = read_state(db)?;
        let doubted = found > last && self.doubts.contains(&state);
        self.states.retain(|(seq, _)| *seq <= found);
        if doubted {
            self.states.push((found, state));
        }
        self.doubts.clear();
        (self.durable, self.written) = (found, found);
        self.compare(db, found)?;
        let left = db.tables().recover().map_err(Error::from)?;
        ensure!(left == 0, "{left} objects of loads were left after opening");
        Ok(())
    }

    /// The state that a snapshot of commit `at` shows.
    fn state_at(&self, at: u64) -> Check<&State> {
        let found = self.states.iter().rev().find(|(seq, _)| *seq <= at);
        found.map(|(_, state)| state).ok_or_else(|| Bug(format!("no state at commit {at}")))
    }

    fn latest(&self) -> Check<&State> {
        self.state_at(u64::MAX)
    }

    fn compare(&mut self, db: &Database, at: u64) -> Check {
        self.counts.reads += 1;
        let (found, expected) = (read_state(db)?, self.state_at(at)?);
        ensure!(found == *expected, "at commit {at}: expected {expected:?}, found {found:?}");
        let report = db.verify()?;
        ensure!(report.violations.is_empty(), "verify: {:?}", report.violations);
        ensure!(report.store.damage.is_empty(), "verify: {:?}", report.store.damage);
        Ok(())
    }

    fn step(&mut self) -> Check {
        self.counts.steps += 1;
        self.faults_before = self.vfs.injected();
        match self.dice.below(40) {
            0..24 => self.use_session(),
            24..30 => self.housekeeping(),
            30..33 => self.define(),
            33 | 34 => self.load(),
            35 => self.truncate(),
            36 => {
                self.clock.advance(std::time::Duration::from_millis(self.dice.below(300)));
                Ok(())
            }
            _ => self.read_now(),
        }
    }

    fn housekeeping(&mut self) -> Check {
        let db = self.db()?;
        let done = match self.dice.below(12) {
            0 => db.checkpoint(),
            1 => db.compact(),
            _ => db.engine().background_step().map(|_| ()).map_err(Error::from),
        };
        done.or_else(|error| self.excuse("housekeeping", &error))
    }

    fn read_now(&mut self) -> Check {
        let db = self.db()?;
        self.counts.reads += 1;
        let at = db.seq().0;
        match read_state(&db) {
            Ok(found) => {
                let expected = self.state_at(at)?;
                ensure!(found == *expected, "at commit {at}: expected {expected:?}, found {found:?}");
                Ok(())
            }
            Err(error) => self.excuse("read", &error),
        }
    }

    fn durability(&self) -> Durability {
        let interval = std::time::Duration::from_millis(self.dice.between(1, 200));
        self.dice.weighted(&[
            (4, Durability::Sync),
            (1, Durability::Buffered),
            (1, Durability::Async { interval }),
        ])
    }

    /// Begins a transaction, goes on with one, or ends one.
    fn use_session(&mut self) -> Check {
        let db = self.db()?;
        if self.sessions.is_empty() || self.sessions.len() < SESSIONS && self.dice.one_in(4) {
            let isolation = self.dice.weighted(&[
                (5, Isolation::Serializable),
                (2, Isolation::Snapshot),
                (1, Isolation::ReadCommitted),
            ]);
            let transaction = db.begin_with(isolation);
            self.note(format!("begin {isolation:?} at {}", transaction.snapshot().seq()));
            let (effects, lists_read) = (Vec::new(), Vec::new());
            let session = Session {
                transaction,
                isolation,
                effects,
                lists_read,
                children_read: None,
                first_child: None,
                base: None,
            };
            self.sessions.push(session);
        }
        let mut session = self.sessions.swap_remove(self.dice.index(self.sessions.len()));
        // Its rows are in a table that is gone, where a newer statement does not find them: it can only be refused.
        let newer = session.isolation == Isolation::ReadCommitted;
        if newer && session.first_child.is_some_and(|at| at < self.truncated) {
            let commits = self.counts.commits;
            self.commit(session)?;
            ensure!(self.counts.commits == commits, "rows of a truncated table were committed");
            return Ok(());
        }
        if newer && session.base.as_ref().is_some_and(|base| self.is_torn(base, &session.effects)) {
            return Ok(());
        }
        for _ in 0..self.dice.between(1, 4) {
            if self.dice.one_in(5) {
                return self.commit(session);
            }
            match self.statement(&db, &mut session) {
                Ok(()) => {}
                Err(Trouble::Bug(bug)) => return Err(bug),
                // What a failed read leaves in the transaction is nothing that a caller would go on with.
                Err(Trouble::Disk(error)) => return self.excuse("statement", &error),
            }
        }
        self.sessions.push(session);
        Ok(())
    }

    /// True when others have written since to rows that the effects are about, or rows that rule them out. A read committed
    /// transaction sees both then, its own rows and theirs, and what it sees follows no rules until it is refused.
    fn is_torn(&self, base: &State, effects: &[Effect]) -> bool {
        let Ok(now) = self.latest() else { return true };
        let changed = effects.iter().any(|effect| match effect {
            Effect::Parent(key, _) => base.parents.get(key) != now.parents.get(key),
            Effect::Child(key, _) => base.children.get(key) != now.children.get(key),
            Effect::List(key, _) => base.lists.get(key) != now.lists.get(key),
            Effect::NoChildren | Effect::Loaded(_) => false,
        });
        changed || !now.with(effects).is_sound()
    }

    /// One statement, and what the model says of it.
    fn statement(&mut self, db: &Database, session: &mut Session) -> Result<(), Trouble> {
        let (key, other) = (self.dice.below(5).cast_signed(), self.dice.below(4).cast_signed());
        let id = [Value::Int8(key)];
        let kind = self.dice.below(9);
        let name = format!("n{}", self.dice.below(4));
        let parent = (!self.dice.one_in(4)).then_some(other);
        let table = db.table(match kind {
            0..=2 => "parents",
            3..=5 => "children",
            _ => "lists",
        })?;
        let mut tables = session.transaction.tables();
        // Whether there was something to do.
        let done: Result<bool, TablesError> = match kind {
            0 | 1 => {
                tables.upsert(&table, &[("id", key.into()), ("name", name.as_str().into())]).map(|_| true)
            }
            2 => tables.delete(&table, &id),
            3 | 4 => tables.upsert(&table, &[("id", key.into()), ("parent", parent.into())]).map(|_| true),
            5 if self.dice.one_in(2) => tables.delete(&table, &id),
            5 => return self.read_children(&table, session),
            6 => return self.read_list(&table, session, key).map(|_| ()),
            _ => return self.append(&table, session, key),
        };
        // The statement has chosen its snapshot by now.
        let view = self.view(session)?;
        let free = !view.parents.iter().any(|(id, taken)| *id != key && *taken == name);
        let childless = !view.children.values().any(|parent| *parent == Some(key));
        let has_parent = parent.is_none_or(|parent| view.parents.contains_key(&parent));
        let (allowed, effect) = match kind {
            0 | 1 => (free, Effect::Parent(key, Some(name))),
            2 => (childless, Effect::Parent(key, None)),
            3 | 4 => (has_parent, Effect::Child(key, Some(parent))),
            _ => (true, Effect::Child(key, None)),
        };
        let there = match kind {
            2 => view.parents.contains_key(&key),
            5 => view.children.contains_key(&key),
            _ => true,
        };
        match done {
            Ok(done) if allowed && done == there => {
                if done && matches!(effect, Effect::Child(..)) {
                    session.first_child.get_or_insert(session.transaction.snapshot().seq().0);
                }
                let at = session.transaction.snapshot().seq().0;
                session.base.get_or_insert(self.state_at(at)?.clone());
                session.effects.extend(done.then_some(effect));
            }
            Err(TablesError::Unique { .. }) if kind < 2 && !allowed => {}
            Err(TablesError::ForeignKey { .. }) if kind >= 2 && !allowed => {}
            Ok(done) => return Err(Bug(format!("{effect:?} answers {done} in {view:?}")).into()),
            Err(error) => return Err(Error::from(error).into()),
        }
        Ok(())
    }

    /// What the transaction must see now.
    fn view(&self, session: &Session) -> Result<State, Trouble> {
        let at = session.transaction.snapshot().seq().0;
        Ok(self.state_at(at)?.with(&session.effects))
    }

    fn read_children(
        &mut self,
        table: &ropewalk::tables::Table,
        session: &mut Session,
    ) -> Result<(), Trouble> {
        let mut found = BTreeMap::new();
        let each = &mut |row: Row<'_>| {
            found.insert(row.get(0)?.as_integer().unwrap_or_default(), row.column("parent")?.as_integer());
            Ok(true)
        };
        session.transaction.tables().scan(table, &KeyRange::all(), self.dice.one_in(2), each)?;
        let view = self.view(session)?;
        if found != view.children {
            return Err(Bug(format!("children: expected {:?}, found {found:?}", view.children)).into());
        }
        self.counts.reads += 1;
        let at = session.transaction.snapshot().seq().0;
        let before = self.state_at(at)?.children.clone();
        session.children_read.get_or_insert(before);
        Ok(())
    }

    fn read_list(
        &mut self,
        table: &ropewalk::tables::Table,
        session: &mut Session,
        key: i64,
    ) -> Result<Option<Vec<u8>>, Trouble> {
        let row = session.transaction.tables().get(table, &[Value::Int8(key)])?;
        let found = row.map(|row| row.get(1).map(|items| bytes(&items))).transpose()?;
        let view = self.view(session)?;
        if found.as_ref() != view.lists.get(&key) {
            let expected = view.lists.get(&key);
            return Err(Bug(format!("list {key}: expected {expected:?}, found {found:?}")).into());
        }
        self.counts.reads += 1;
        let at = session.transaction.snapshot().seq().0;
        session.lists_read.push((key, self.state_at(at)?.lists.get(&key).cloned()));
        Ok(found)
    }

    /// Reads a list and puts one more number at its end.
    fn append(
        &mut self,
        table: &ropewalk::tables::Table,
        session: &mut Session,
        key: i64,
    ) -> Result<(), Trouble> {
        let mut items = self.read_list(table, session, key)?.unwrap_or_default();
        items.extend_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        let values = [("id", key.into()), ("items", Value::bytea(items.clone()))];
        session.transaction.tables().upsert(table, &values)?;
        session.effects.push(Effect::List(key, items));
        Ok(())
    }

    fn commit(&mut self, session: Session) -> Check {
        let Session { transaction, isolation, effects, lists_read, children_read, .. } = session;
        let durability = self.durability();
        self.note(format!("commit {isolation:?} {durability:?}: {effects:?}"));
        let before = self.latest()?.clone();
        let after = before.with(&effects);
        match transaction.commit_with(durability) {
            Ok(None) => {
                ensure!(effects.is_empty(), "a transaction with writes answers that it wrote nothing")
            }
            Ok(Some(done)) => {
                self.counts.commits += 1;
                ensure!(after.is_sound(), "a commit broke the rules: {after:?}");
                // Appends rest on a read at every level but the weakest.
                let checked = match isolation {
                    Isolation::Serializable => lists_read.as_slice(),
                    _ => &[],
                };
                for (key, seen) in checked {
                    let now = before.lists.get(key);
                    ensure!(now == seen.as_ref(), "list {key} was read as {seen:?}, and was {now:?}");
                }
                if let (Isolation::Serializable, Some(seen)) = (isolation, children_read) {
                    let now = &before.children;
                    ensure!(*now == seen, "the children were read as {seen:?}, and were {now:?}");
                }
                if isolation == Isolation::Snapshot {
                    for effect in &effects {
                        let Effect::List(key, items) = effect else { continue };
                        let kept = before.lists.get(key).is_none_or(|before| items.starts_with(before));
                        ensure!(kept, "an append to list {key} was lost");
                    }
                }
                self.acknowledged(done.seq.0, durability);
                self.states.push((done.seq.0, after));
            }
            Err(error) if error.is_conflict() => self.counts.refusals += 1,
            Err(error) => {
                self.excuse("commit", &error)?;
                self.doubts.push(after);
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, seq: u64, durability: Durability) {
        if durability == Durability::Sync {
            self.durable = self.durable.max(seq);
        }
        if !matches!(durability, Durability::Async { .. }) {
            self.written = self.written.max(seq);
        }
    }

    /// Something that commits by itself, durably, and whose `effects` happen as a whole or not at all.
    fn whole(&mut self, what: &str, effects: &[Effect], done: Result<(), Error>) -> Check {
        let after = self.latest()?.with(effects);
        match done {
            Ok(()) => {
                let seq = self.db()?.seq().0;
                self.acknowledged(seq, Durability::Sync);
                self.states.push((seq, after));
                self.counts.commits += 1;
            }
            Err(error) if error.is_conflict() => self.counts.refusals += 1,
            // An index or a column that is there already, or not at all.
            Err(Error::Tables(
                TablesError::Duplicate { .. }
                | TablesError::UnknownIndex { .. }
                | TablesError::UnknownColumn { .. },
            )) if effects.is_empty() => {}
            Err(error) => {
                self.excuse(what, &error)?;
                self.doubts.push(after);
            }
        }
        Ok(())
    }

    /// Definitions come and go beside the sessions.
    fn define(&mut self) -> Check {
        let db = self.db()?;
        let number = self.dice.below(2);
        let (index, column) = (format!("i{number}"), format!("c{number}"));
        let kind = self.dice.below(5);
        self.note(format!("definition {kind} {number}"));
        let done = match kind {
            0 => {
                let def = IndexDef::on(if number == 0 { vec!["parent"] } else { vec!["id", "parent"] });
                db.tables().create_index("children", def.named(&index)).map_err(Error::from)
            }
            1 => self.in_one(&db, |tx| tx.tables().drop_index("children", &index)),
            2 => {
                let default = DefaultValue::Value(7_i64.into());
                let def = ColumnDef::new(&column, Type::INT8).default(default);
                self.in_one(&db, |tx| tx.tables().add_column("children", def))
            }
            3 => self.in_one(&db, |tx| tx.tables().drop_column("children", &column)),
            _ => {
                let done = self.in_one(&db, |tx| tx.tables().truncate("children", false));
                self.whole("truncate", &[Effect::NoChildren], done)?;
                self.truncated = db.seq().0;
                return Ok(());
            }
        };
        self.whole("definition", &[], done)
    }

    fn in_one(
        &self,
        db: &Database,
        work: impl FnOnce(&mut Transaction) -> Result<(), TablesError>,
    ) -> Result<(), Error> {
        let mut tx = db.begin();
        work(&mut tx)?;
        tx.commit().map(|_| ())
    }

    fn truncate(&mut self) -> Check {
        let db = self.db()?;
        self.note("truncate what was loaded");
        let done = self.in_one(&db, |tx| tx.tables().truncate("loaded", false));
        self.whole("truncate", &[Effect::Loaded(None)], done)
    }

    /// Loads the table if it is empty, straight into runs or through the log, sorted or not.
    fn load(&mut self) -> Check {
        if self.latest()?.loaded.is_some() {
            return self.truncate();
        }
        let db = self.db()?;
        let rows = self.dice.between(1, 1500).cast_signed();
        let number = self.next.cast_signed();
        self.next += 1;
        let log_bytes_max = if self.dice.one_in(3) { 1 << 20 } else { 0 };
        let options = LoadOptions { log_bytes_max, memory_bytes: Some(64 << 10) };
        let stride = if self.dice.one_in(2) { 1 } else { 7919 };
        self.note(format!("load {rows} rows in steps of {stride}, {options:?}"));
        let attempt = || -> Result<(), Error> {
            let mut load = db.tables().load_with(&db.table("loaded")?, options)?;
            for i in 0..rows {
                let id = if rows % stride == 0 { i } else { i * stride % rows };
                let pad = format!("{:0>60}", id % 97);
                load.row(&[id.into(), number.into(), pad.into()])?;
            }
            load.finish()?;
            Ok(())
        };
        let done = attempt();
        self.whole("load", &[Effect::Loaded(Some((number, rows)))], done)
    }
}

/// Why a statement ended the step.
enum Trouble {
    Bug(Bug),
    Disk(Error),
}

impl From<Bug> for Trouble {
    fn from(bug: Bug) -> Self {
        Self::Bug(bug)
    }
}

impl<E: Into<Error>> From<E> for Trouble
where
    E: std::error::Error,
{
    fn from(error: E) -> Self {
        Self::Disk(error.into())
    }
}
