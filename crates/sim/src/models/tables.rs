//! Tables on a disk that fails: transactions over rows with rules, definitions that change, loads, and lists that only grow.
//!
//!   session ─▶ statement ─▶ the model at the same snapshot: same result, same rows
//!   commit ─▶ the model's next state: rules hold, and serializable reads are unchanged
//!   crash ─▶ open ─▶ the rows are a state of the model, no acknowledged commit lost; verify finds nothing
//!
//! The model stores the state after every commit, so it defines the contents of any snapshot. Lists are the
//! classic of history checking: each transaction reads some and appends a unique number, so that a lost,
//! doubled or misplaced write shows in every later read (list-append: Kingsbury and Alvaro, "Elle", VLDB
//! 2020). Here every commit has a place in one order, so no search is needed: each read is compared with the
//! state at its place.

use std::collections::BTreeMap;

use ropewalk::tables::{
    ColumnDef, DefaultValue, ForeignKeyDef, IndexDef, KeyRange, LoadOptions, Row, TableDef, TablesError,
    Type, Value,
};
use ropewalk::{Database, Durability, Error, Isolation, Transaction};

use crate::Run;
use crate::events::scenario::{Bug, Check, ensure};
use crate::runs::restarts;
use crate::runs::restarts::{Boots, World};
use crate::runs::states::{States, Trouble, set};

/// Open transactions.
const SESSIONS: usize = 4;

/// Contents of all tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    parents: BTreeMap<i64, String>,
    children: BTreeMap<i64, Option<i64>>,
    lists: BTreeMap<i64, Vec<u8>>,
    /// Rows of the last load, and its number.
    loaded: Option<(i64, i64)>,
}

/// Effects of a transaction, in order.
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

/// A transaction and its model state.
struct Session {
    transaction: Transaction,
    isolation: Isolation,
    effects: Vec<Effect>,
    /// Lists and children as they were read, before own writes.
    lists_read: Vec<(i64, Option<Vec<u8>>)>,
    children_read: Option<BTreeMap<i64, Option<i64>>>,
    /// The snapshot of its first write to the children.
    first_child: Option<u64>,
    /// State at its first write.
    base: Option<State>,
}

struct TablesWorld {
    boots: Boots,
    sessions: Vec<Session>,
    states: States<State>,
    next: u64,
    /// The commit that last truncated the children.
    truncated: u64,
}

/// Runs one seed: so many boots, each with one kind of injected fault.
pub fn run_tables(seed: u64, boots: u64) -> Run {
    let world = TablesWorld {
        boots: Boots::new(seed, 0x7ab1e5),
        sessions: Vec::new(),
        states: States::default(),
        next: 1,
        truncated: 0,
    };
    restarts::run(world, boots)
}

/// A database without tables has no state to compare: its creation was interrupted.
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
        // Rows of two loads in one table: use an invalid number.
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

impl World for TablesWorld {
    fn boots(&mut self) -> &mut Boots {
        &mut self.boots
    }

    fn leave(&mut self) {
        self.sessions.clear();
    }

    fn create(db: &Database) -> Result<(), Error> {
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
            create(
                TableDef::new("lists").column(id()).column(ColumnDef::new("items", Type::BYTEA).not_null()),
            )?;
            let load = TableDef::new("loaded").column(id()).column(ColumnDef::new("load", Type::INT8));
            create(load.column(ColumnDef::new("pad", Type::TEXT)).index(IndexDef::on(["pad"])))?;
            tx.commit()?;
        }
        Ok(())
    }

    fn reconcile(&mut self, db: &Database) -> Check {
        let found = db.engine().opened_at().0;
        self.states.reopen(found, read_state(db)?);
        // A truncation lost in a crash; its number is reused for another commit.
        self.truncated = self.truncated.min(found);
        self.compare(db)?;
        let left = db.tables().recover().map_err(Error::from)?;
        ensure!(left == 0, "{left} objects of loads were left after opening");
        Ok(())
    }

    fn compare(&mut self, db: &Database) -> Check {
        let at = db.seq().0;
        self.states.check(&mut self.boots, at, &read_state(db)?)?;
        restarts::verify(db)
    }

    fn step(&mut self) -> Check {
        match self.boots.dice.below(40) {
            0..24 => self.use_session(),
            24..30 => self.boots.housekeeping(12),
            30..33 => self.define(),
            33 | 34 => self.load(),
            35 => self.truncate(),
            36 => {
                self.boots.clock.advance(std::time::Duration::from_millis(self.boots.dice.below(300)));
                Ok(())
            }
            _ => self.states.read_now(&mut self.boots, read_state),
        }
    }
}

impl TablesWorld {
    /// Begins a transaction, continues one, or ends one.
    fn use_session(&mut self) -> Check {
        let db = self.boots.db()?;
        if self.sessions.is_empty() || self.sessions.len() < SESSIONS && self.boots.dice.one_in(4) {
            let isolation = self.boots.dice.weighted(&[
                (5, Isolation::Serializable),
                (2, Isolation::Snapshot),
                (1, Isolation::ReadCommitted),
            ]);
            let transaction = db.begin_with(isolation);
            self.boots.note(format!("begin {isolation:?} at {}", transaction.snapshot().seq()));
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
        let mut session = self.sessions.swap_remove(self.boots.dice.index(self.sessions.len()));
        // Its rows are in a dropped table, where a newer statement does not find them: it can only be
        // refused.
        let newer = session.isolation == Isolation::ReadCommitted;
        if newer && session.first_child.is_some_and(|at| at < self.truncated) {
            let commits = self.boots.counts.commits;
            self.commit(session)?;
            ensure!(self.boots.counts.commits == commits, "rows of a truncated table were committed");
            return Ok(());
        }
        if newer && session.base.as_ref().is_some_and(|base| self.is_torn(base, &session.effects)) {
            return Ok(());
        }
        for _ in 0..self.boots.dice.between(1, 4) {
            if self.boots.dice.one_in(5) {
                return self.commit(session);
            }
            match self.statement(&db, &mut session) {
                Ok(()) => {}
                Err(trouble) => return trouble.excuse(&mut self.boots),
            }
        }
        self.sessions.push(session);
        Ok(())
    }

    /// True when others have written since to rows of the effects, or to rows that conflict with them. A read
    /// committed transaction sees both then, its own rows and theirs, and its reads follow no rules until it
    /// is refused.
    fn is_torn(&self, base: &State, effects: &[Effect]) -> bool {
        let Ok(now) = self.states.latest() else { return true };
        let changed = effects.iter().any(|effect| match effect {
            Effect::Parent(key, _) => base.parents.get(key) != now.parents.get(key),
            Effect::Child(key, _) => base.children.get(key) != now.children.get(key),
            Effect::List(key, _) => base.lists.get(key) != now.lists.get(key),
            Effect::NoChildren | Effect::Loaded(_) => false,
        });
        changed || !now.with(effects).is_sound()
    }

    /// Executes one statement, and the same in the model.
    fn statement(&mut self, db: &Database, session: &mut Session) -> Result<(), Trouble> {
        let (key, other) = (self.boots.dice.below(5).cast_signed(), self.boots.dice.below(4).cast_signed());
        let id = [Value::Int8(key)];
        let kind = self.boots.dice.below(9);
        let name = format!("n{}", self.boots.dice.below(4));
        let parent = (!self.boots.dice.one_in(4)).then_some(other);
        let table = db.table(match kind {
            0..=2 => "parents",
            3..=5 => "children",
            _ => "lists",
        })?;
        let mut tables = session.transaction.tables();
        // True when the statement had an effect.
        let done: Result<bool, TablesError> = match kind {
            0 | 1 => {
                tables.upsert(&table, &[("id", key.into()), ("name", name.as_str().into())]).map(|_| true)
            }
            2 => tables.delete(&table, &id),
            3 | 4 => tables.upsert(&table, &[("id", key.into()), ("parent", parent.into())]).map(|_| true),
            5 if self.boots.dice.one_in(2) => tables.delete(&table, &id),
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
                session.base.get_or_insert(self.states.at(at)?.clone());
                session.effects.extend(done.then_some(effect));
            }
            Err(TablesError::Unique { .. }) if kind < 2 && !allowed => {}
            Err(TablesError::ForeignKey { .. }) if kind >= 2 && !allowed => {}
            Ok(done) => return Err(Bug(format!("{effect:?} answers {done} in {view:?}")).into()),
            Err(error) => return Err(Error::from(error).into()),
        }
        Ok(())
    }

    /// The state that the transaction must see now.
    fn view(&self, session: &Session) -> Result<State, Trouble> {
        let at = session.transaction.snapshot().seq().0;
        Ok(self.states.at(at)?.with(&session.effects))
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
        session.transaction.tables().scan(table, &KeyRange::all(), self.boots.dice.one_in(2), each)?;
        let view = self.view(session)?;
        if found != view.children {
            return Err(Bug(format!("children: expected {:?}, found {found:?}", view.children)).into());
        }
        self.boots.counts.reads += 1;
        let at = session.transaction.snapshot().seq().0;
        let before = self.states.at(at)?.children.clone();
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
        self.boots.counts.reads += 1;
        let at = session.transaction.snapshot().seq().0;
        session.lists_read.push((key, self.states.at(at)?.lists.get(&key).cloned()));
        Ok(found)
    }

    /// Reads a list and appends one number to it.
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
        let durability = self.boots.durability();
        self.boots.note(format!("commit {isolation:?} {durability:?}: {effects:?}"));
        let before = self.states.latest()?.clone();
        let after = before.with(&effects);
        match transaction.commit_with(durability) {
            Ok(None) => {
                ensure!(effects.is_empty(), "a transaction with writes answers that it wrote nothing")
            }
            Ok(Some(done)) => {
                ensure!(after.is_sound(), "a commit broke the rules: {after:?}");
                // Appends depend on a read at every level but the weakest.
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
                self.states.commit(&mut self.boots, done.seq.0, durability, after);
            }
            Err(error) => self.states.fail(&mut self.boots, "commit", &error, after)?,
        }
        Ok(())
    }

    /// Records a change that commits by itself, durably, and whose `effects` happen atomically.
    fn whole(&mut self, what: &str, effects: &[Effect], done: Result<(), Error>) -> Check {
        let after = self.states.latest()?.with(effects);
        match done {
            Ok(()) => {
                let seq = self.boots.db()?.seq().0;
                self.states.commit(&mut self.boots, seq, Durability::Sync, after);
            }
            // An index or a column that exists already, or not at all.
            Err(Error::Tables(
                TablesError::Duplicate { .. }
                | TablesError::UnknownIndex { .. }
                | TablesError::UnknownColumn { .. },
            )) if effects.is_empty() => {}
            Err(error) => self.states.fail(&mut self.boots, what, &error, after)?,
        }
        Ok(())
    }

    /// Definitions are created and dropped while sessions are open.
    fn define(&mut self) -> Check {
        let db = self.boots.db()?;
        let number = self.boots.dice.below(2);
        let (index, column) = (format!("i{number}"), format!("c{number}"));
        let kind = self.boots.dice.below(5);
        self.boots.note(format!("definition {kind} {number}"));
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
        let db = self.boots.db()?;
        self.boots.note("truncate what was loaded");
        let done = self.in_one(&db, |tx| tx.tables().truncate("loaded", false));
        self.whole("truncate", &[Effect::Loaded(None)], done)
    }

    /// Loads the table if it is empty, straight into runs or through the log, sorted or not.
    fn load(&mut self) -> Check {
        if self.states.latest()?.loaded.is_some() {
            return self.truncate();
        }
        let db = self.boots.db()?;
        let rows = self.boots.dice.between(1, 1500).cast_signed();
        let number = self.next.cast_signed();
        self.next += 1;
        let log_bytes_max = if self.boots.dice.one_in(3) { 1 << 20 } else { 0 };
        let options = LoadOptions { log_bytes_max, memory_bytes: Some(64 << 10) };
        let stride = if self.boots.dice.one_in(2) { 1 } else { 7919 };
        self.boots.note(format!("load {rows} rows in steps of {stride}, {options:?}"));
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
