//! Documents on a disk that fails: transactions over collections with unique, multikey, partial and TTL
//! indexes and with references, concurrent with standalone statements, definitions that change, and sweeps.
//!
//!   session ─▶ statement ─▶ the model at the same snapshot: same result, same documents
//!   commit ─▶ the model's next state: rules hold, no update is lost, serializable reads are unchanged
//!   crash ─▶ open ─▶ the documents are a state of the model, not too old; every index equals a scan
//!
//! The model stores the state after every commit, so it defines the contents of any snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ropewalk::documents::DOCUMENT_DATABASE;
use ropewalk::documents::lang::{Doc, DocBuf, Filter, Options as Language, Update, Value, Writer};
use ropewalk::documents::{
    Collection, CollectionOptions, DocumentsError, Find, IndexDef, OnDelete, Reference, UpdateSpec,
};
use ropewalk::{Database, Durability, Error, Isolation, Transaction};
use ropewalk_vfs::Clock;

use crate::Run;
use crate::events::scenario::{Bug, Check, ensure};
use crate::runs::crash_everywhere::Exhausted;
use crate::runs::restarts;
use crate::runs::restarts::{Boots, World};
use crate::runs::states::{States, Trouble, set};

/// Open transactions.
const SESSIONS: usize = 4;
/// Seconds after which documents of `fleeting` expire.
const EXPIRY_SECONDS: i64 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Person {
    name: i64,
    tags: Vec<i64>,
    group: Option<i64>,
}

/// Contents of all collections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    people: BTreeMap<i64, Person>,
    /// The person that a pet belongs to.
    pets: BTreeMap<i64, Option<i64>>,
    lists: BTreeMap<i64, Vec<i64>>,
    counters: BTreeMap<i64, i64>,
    /// The date of each, in milliseconds.
    fleeting: BTreeMap<i64, i64>,
}

/// Effect of a statement.
#[derive(Debug, Clone)]
enum Effect {
    Person(i64, Option<Person>),
    Pet(i64, Option<Option<i64>>),
    List(i64, Vec<i64>),
    Counter(i64, Option<i64>),
    Fleeting(i64, Option<i64>),
    NoPets,
}

/// A read of a transaction.
#[derive(Debug, Clone, Copy)]
enum Read {
    Tagged(i64),
    Pets,
    List(i64),
}

/// Result of a read: ids, or the list.
type Answer = Option<Vec<i64>>;

impl State {
    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Person(key, person) => set(&mut self.people, *key, person.as_ref()),
            Effect::Pet(key, owner) => set(&mut self.pets, *key, owner.as_ref()),
            Effect::List(key, items) => set(&mut self.lists, *key, Some(items)),
            Effect::Counter(key, count) => set(&mut self.counters, *key, count.as_ref()),
            Effect::Fleeting(key, date) => set(&mut self.fleeting, *key, date.as_ref()),
            Effect::NoPets => self.pets.clear(),
        }
    }

    fn with<'e>(&self, effects: impl IntoIterator<Item = &'e Effect>) -> Self {
        let mut state = self.clone();
        effects.into_iter().for_each(|effect| state.apply(effect));
        state
    }

    /// True when the document of the effect is the same in both.
    fn agrees(&self, other: &Self, effect: &Effect) -> bool {
        match effect {
            Effect::Person(key, _) => self.people.get(key) == other.people.get(key),
            Effect::Pet(key, _) => self.pets.get(key) == other.pets.get(key),
            Effect::List(key, _) => self.lists.get(key) == other.lists.get(key),
            Effect::Counter(key, _) => self.counters.get(key) == other.counters.get(key),
            Effect::Fleeting(key, _) => self.fleeting.get(key) == other.fleeting.get(key),
            Effect::NoPets => self.pets == other.pets,
        }
    }

    /// Names are unique and the owner of every pet, if any, exists.
    fn is_sound(&self) -> bool {
        let names: BTreeSet<_> = self.people.values().map(|person| person.name).collect();
        let stray = |owner: &i64| !self.people.contains_key(owner);
        names.len() == self.people.len() && !self.pets.values().flatten().any(stray)
    }

    fn answer(&self, read: Read) -> Answer {
        match read {
            Read::Tagged(tag) => {
                let tagged = self.people.iter().filter(|(_, person)| person.tags.contains(&tag));
                Some(tagged.map(|(id, _)| *id).collect())
            }
            Read::Pets => Some(self.pets.keys().copied().collect()),
            Read::List(key) => self.lists.get(&key).cloned(),
        }
    }
}

fn document(put: impl FnOnce(&mut Writer)) -> DocBuf {
    let mut out = Writer::new();
    put(&mut out);
    out.finish()
}

fn int(value: i64) -> Value<'static> {
    Value::Int64(value)
}

fn put_list(out: &mut Writer, name: &str, items: &[i64]) {
    out.open_array(name);
    items.iter().enumerate().for_each(|(place, item)| out.put(&place.to_string(), int(*item)));
    out.close();
}

impl Person {
    fn put(&self, out: &mut Writer) {
        out.put("name", int(self.name));
        // A single tag is a scalar, several are an array: the index becomes multikey during the run.
        match self.tags.as_slice() {
            [tag] => out.put("tags", int(*tag)),
            tags => put_list(out, "tags", tags),
        }
        if let Some(group) = self.group {
            out.put("group", int(group));
        }
    }

    fn of(doc: Doc<'_>) -> Self {
        let name = integer(doc, "name").unwrap_or(-1);
        Self { name, tags: list(doc, "tags"), group: integer(doc, "group") }
    }
}

fn integer(doc: Doc<'_>, field: &str) -> Option<i64> {
    doc.get(field).and_then(Value::as_integer)
}

fn list(doc: Doc<'_>, field: &str) -> Vec<i64> {
    match doc.get(field) {
        Some(Value::Array(items)) => items.values().filter_map(Value::as_integer).collect(),
        Some(value) => value.as_integer().into_iter().collect(),
        None => Vec::new(),
    }
}

fn by(field: &str, value: i64) -> Filter {
    Filter::equals(field, int(value))
}

fn change(filter: Filter, put: impl FnOnce(&mut Writer)) -> Result<UpdateSpec, DocumentsError> {
    let update = document(put);
    Ok(UpdateSpec::new(filter, Update::parse(Value::Document(update.doc()), None, &Language::default())?))
}

fn operator(
    filter: Filter,
    operator: &str,
    put: impl FnOnce(&mut Writer),
) -> Result<UpdateSpec, DocumentsError> {
    change(filter, |out| {
        out.open_document(operator);
        put(out);
        out.close();
    })
}

fn pets_options() -> CollectionOptions {
    let owner =
        Reference { field: "owner".into(), collection: "people".into(), on_delete: OnDelete::Cascade };
    CollectionOptions { references: vec![owner], ..CollectionOptions::default() }
}

fn grouped() -> IndexDef {
    let filter = document(|out| {
        out.open_document("group");
        out.put("$exists", Value::Bool(true));
        out.close();
    });
    IndexDef::on(["group", "-name"]).partial(filter)
}

/// A transaction and its model state.
struct Session {
    transaction: Transaction,
    isolation: Isolation,
    /// Its effects, each with the snapshot of its statement.
    effects: Vec<(u64, Effect)>,
    /// Its reads, each with the snapshot of its statement.
    reads: Vec<(u64, Read)>,
}

impl Session {
    fn at(&self) -> u64 {
        self.transaction.snapshot().seq().0
    }

    fn done(&self) -> impl Iterator<Item = &Effect> {
        self.effects.iter().map(|(_, effect)| effect)
    }
}

struct DocumentsWorld {
    boots: Boots,
    sessions: Vec<Session>,
    states: States<State>,
    next: i64,
    /// The commit that last changed a definition on purpose.
    defined: u64,
    /// The newest commit when the step began.
    before: u64,
}

impl DocumentsWorld {
    fn new(boots: Boots) -> Self {
        Self { boots, sessions: Vec::new(), states: States::default(), next: 1, defined: 0, before: 0 }
    }
}

/// Runs one seed: so many boots, each with one kind of injected fault.
pub fn run_documents(seed: u64, boots: u64) -> Run {
    restarts::run(DocumentsWorld::new(Boots::new(seed, 0xd0c5)), boots)
}

/// Runs the first `steps` steps of a seed once for each operation of the disk and each of `tears` outcomes: with a power
/// cut there, and once with a kill there.
pub fn exhaust_documents(seed: u64, steps: u64, tears: u64) -> Exhausted {
    restarts::exhaust(|disk_seed| DocumentsWorld::new(Boots::on_disk(seed, disk_seed)), steps, tears)
}

fn read_state(db: &Database) -> Result<State, Error> {
    let snapshot = db.snapshot();
    let mut read = snapshot.documents(db);
    let mut state = State::default();
    let mut each = |name: &str, take: &mut dyn FnMut(i64, Doc<'_>)| -> Result<(), Error> {
        let collection = db.collection(name)?;
        read.visit(&collection, &Find::all(), &mut |document| {
            take(integer(document.doc(), "_id").unwrap_or(i64::MIN), document.doc());
            Ok(true)
        })?;
        Ok(())
    };
    each("people", &mut |id, doc| {
        state.people.insert(id, Person::of(doc));
    })?;
    each("pets", &mut |id, doc| {
        state.pets.insert(id, integer(doc, "owner"));
    })?;
    each("lists", &mut |id, doc| {
        state.lists.insert(id, list(doc, "items"));
    })?;
    each("counters", &mut |id, doc| {
        state.counters.insert(id, integer(doc, "n").unwrap_or(i64::MIN));
    })?;
    each("fleeting", &mut |id, doc| {
        let date = match doc.get("at") {
            Some(Value::DateTime(ms)) => ms,
            _ => i64::MIN,
        };
        state.fleeting.insert(id, date);
    })?;
    Ok(state)
}

impl World for DocumentsWorld {
    fn boots(&mut self) -> &mut Boots {
        &mut self.boots
    }

    fn leave(&mut self) {
        self.sessions.clear();
    }

    fn create(db: &Database) -> Result<(), Error> {
        if db.documents().collections(DOCUMENT_DATABASE)?.is_empty() {
            let mut tx = db.begin();
            let mut documents = tx.documents();
            let people = db.collection("people")?;
            documents.create_collection(&people, CollectionOptions::default())?;
            documents.create_index(&people, &IndexDef::on(["name"]).unique())?;
            documents.create_collection(&db.collection("pets")?, pets_options())?;
            let fleeting = db.collection("fleeting")?;
            documents.create_index(&fleeting, &IndexDef::on(["at"]).expire_after(EXPIRY_SECONDS))?;
            for plain in ["lists", "counters"] {
                documents.create_collection(&db.collection(plain)?, CollectionOptions::default())?;
            }
            tx.commit()?;
        }
        Ok(())
    }

    fn reconcile(&mut self, db: &Database) -> Check {
        let found = db.seq().0;
        self.states.reopen(found, read_state(db)?);
        self.compare(db)
    }

    fn compare(&mut self, db: &Database) -> Check {
        let at = db.seq().0;
        let found = read_state(db)?;
        self.states.check(&mut self.boots, at, &found)?;
        for (name, len) in [("people", found.people.len()), ("counters", found.counters.len())] {
            let counted = db.collection(name)?.estimated_count().map_err(Error::from)?.documents;
            ensure!(counted == len as u64, "{name}: {counted} counted, {len} there");
        }
        restarts::verify(db)
    }

    fn step(&mut self) -> Check {
        self.before = self.boots.db()?.seq().0;
        match self.boots.dice.below(40) {
            0..20 => self.use_session(),
            20..26 => self.boots.housekeeping(12),
            26..32 => self.statement_alone(),
            32..35 => self.define(),
            35 => self.sweep(),
            36 => {
                self.boots.clock.advance(Duration::from_millis(self.boots.dice.below(800)));
                Ok(())
            }
            _ => self.states.read_now(&mut self.boots, read_state),
        }
    }
}

impl DocumentsWorld {
    fn now_ms(&self) -> i64 {
        self.boots.clock.wall_micros().div_euclid(1000)
    }

    /// Begins a transaction, continues one, or ends one.
    fn use_session(&mut self) -> Check {
        let db = self.boots.db()?;
        if self.sessions.is_empty() || self.sessions.len() < SESSIONS && self.boots.dice.one_in(4) {
            let isolation = self.boots.dice.weighted(&[
                (5, Isolation::Serializable),
                (2, Isolation::Snapshot),
                (2, Isolation::ReadCommitted),
            ]);
            let transaction = db.begin_with(isolation);
            self.boots.note(format!("begin {isolation:?} at {}", transaction.snapshot().seq()));
            self.sessions.push(Session { transaction, isolation, effects: Vec::new(), reads: Vec::new() });
        }
        let mut session = self.sessions.swap_remove(self.boots.dice.index(self.sessions.len()));
        if session.isolation == Isolation::ReadCommitted && !session.effects.is_empty() {
            // Its next statement would see its own writes under old definitions: it can only end.
            if session.effects.iter().any(|(at, _)| *at < self.defined) {
                return self.commit(session);
            }
            if self.is_torn(&session)? {
                return Ok(());
            }
        }
        for _ in 0..self.boots.dice.between(1, 4) {
            if self.boots.dice.one_in(5) {
                return self.commit(session);
            }
            let taken_back = self.boots.dice.one_in(8);
            let before = session.effects.len();
            if taken_back {
                session.transaction.savepoint();
            }
            match self.statement(&db, &mut session) {
                Ok(()) => {}
                Err(trouble) => return trouble.excuse(&mut self.boots),
            }
            if taken_back {
                ensure!(session.transaction.rollback_to_savepoint(), "the savepoint is gone");
                session.effects.truncate(before);
            }
        }
        self.sessions.push(session);
        Ok(())
    }

    /// True when others have written since to documents of the effects, or to documents that conflict with
    /// them. A read committed transaction sees both then, its own documents and theirs, and its reads follow
    /// no rules until it is refused.
    fn is_torn(&self, session: &Session) -> Check<bool> {
        let now = self.states.latest()?;
        let mut together = now.clone();
        for (at, effect) in &session.effects {
            together.apply(effect);
            // Includes effects rolled back since: a name that it took and released is still reserved for it.
            if !self.states.at(*at)?.agrees(now, effect) || !together.is_sound() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The state that the transaction must see now.
    fn view(&self, session: &Session) -> Check<State> {
        Ok(self.states.at(session.at())?.with(session.done()))
    }

    fn person(&self) -> Person {
        let dice = &self.boots.dice;
        let tags = (0..dice.below(4)).map(|_| dice.below(3).cast_signed()).collect();
        let group = (!dice.one_in(3)).then(|| dice.below(2).cast_signed());
        Person { name: dice.below(5).cast_signed(), tags, group }
    }

    /// Executes one statement, and the same in the model.
    fn statement(&mut self, db: &Database, session: &mut Session) -> Result<(), Trouble> {
        let (key, other) = (self.boots.dice.below(5).cast_signed(), self.boots.dice.below(4).cast_signed());
        match self.boots.dice.below(12) {
            0..3 => self.put_person(db, session, key),
            3 => self.delete_person(db, session, key),
            4 => self.regroup(db, session, key % 3, other % 2),
            5 | 6 => self.put_pet(db, session, key, (!self.boots.dice.one_in(4)).then_some(other)),
            7 => self.delete_pets(db, session, other),
            8 => self.append(db, session, key),
            9 => self.count(db, session, key),
            _ => {
                let read = self.boots.dice.weighted(&[
                    (3, Read::Tagged(key % 3)),
                    (1, Read::Pets),
                    (1, Read::List(key)),
                ]);
                self.read(db, session, read)
            }
        }
    }

    /// Records the effects of a statement. An unchanged document is not a write: another commit may change it
    /// meanwhile.
    fn did(
        &mut self,
        session: &mut Session,
        changed: bool,
        effects: impl IntoIterator<Item = Effect>,
    ) -> Result<(), Trouble> {
        let mut view = self.view(session)?;
        let mut writes = Vec::new();
        for effect in effects {
            let after = view.with([&effect]);
            if after != view {
                view = after;
                writes.push(effect);
            }
        }
        if changed == writes.is_empty() {
            return Err(Bug(format!("was answered {changed}, and writes {writes:?}, in {view:?}")).into());
        }
        let at = session.at();
        session.effects.extend(writes.into_iter().map(|effect| (at, effect)));
        Ok(())
    }

    fn put_person(&mut self, db: &Database, session: &mut Session, key: i64) -> Result<(), Trouble> {
        let person = self.person();
        let spec = change(by("_id", key), |out| person.put(out))?.upsert();
        let done = session.transaction.documents().update_one(&db.collection("people")?, &spec);
        let view = self.view(session)?;
        let free = !view.people.iter().any(|(id, taken)| *id != key && taken.name == person.name);
        match done {
            Ok(done) if free => {
                let changed = done.modified > 0 || done.upserted.is_some();
                self.did(session, changed, [Effect::Person(key, Some(person))])
            }
            Err(DocumentsError::Duplicate { .. }) if !free => Ok(()),
            Ok(_) => {
                Err(Bug(format!("person {key} took a name that is taken: {person:?} in {view:?}")).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a person with its pets.
    fn delete_person(&mut self, db: &Database, session: &mut Session, key: i64) -> Result<(), Trouble> {
        let there = session.transaction.documents().delete_one(&db.collection("people")?, &by("_id", key))?;
        let view = self.view(session)?;
        let orphans = view.pets.iter().filter(|(_, owner)| **owner == Some(key));
        let effects: Vec<Effect> = orphans.map(|(pet, _)| Effect::Pet(*pet, None)).collect();
        self.did(session, there, effects.into_iter().chain([Effect::Person(key, None)]))
    }

    /// Moves all people with the tag into the group.
    fn regroup(&mut self, db: &Database, session: &mut Session, tag: i64, group: i64) -> Result<(), Trouble> {
        let spec = operator(by("tags", tag), "$set", |out| out.put("group", int(group)))?;
        let done = session.transaction.documents().update_many(&db.collection("people")?, &spec)?;
        let view = self.view(session)?;
        let tagged = view.people.iter().filter(|(_, person)| person.tags.contains(&tag));
        let effects: Vec<Effect> = tagged
            .map(|(id, person)| Effect::Person(*id, Some(Person { group: Some(group), ..person.clone() })))
            .collect();
        if done.matched != effects.len() as u64 {
            let what = format!("{} people have tag {tag}, expected {effects:?} of {view:?}", done.matched);
            return Err(Bug(what).into());
        }
        self.did(session, done.modified > 0, effects)
    }

    fn put_pet(
        &mut self,
        db: &Database,
        session: &mut Session,
        key: i64,
        owner: Option<i64>,
    ) -> Result<(), Trouble> {
        let spec = change(by("_id", key), |out| out.put("owner", owner.map_or(Value::Null, int)))?.upsert();
        let done = session.transaction.documents().update_one(&db.collection("pets")?, &spec);
        let allowed = match owner {
            Some(owner) => self.view(session)?.people.contains_key(&owner),
            None => true,
        };
        match done {
            Ok(done) if allowed => {
                let changed = done.modified > 0 || done.upserted.is_some();
                self.did(session, changed, [Effect::Pet(key, Some(owner))])
            }
            Err(DocumentsError::Reference { .. }) if !allowed => Ok(()),
            Ok(_) => Err(Bug(format!("pet {key} belongs to {owner:?}, who is not there")).into()),
            Err(error) => Err(error.into()),
        }
    }

    fn delete_pets(&mut self, db: &Database, session: &mut Session, owner: i64) -> Result<(), Trouble> {
        let deleted =
            session.transaction.documents().delete_many(&db.collection("pets")?, &by("owner", owner))?;
        let view = self.view(session)?;
        let gone = view.pets.iter().filter(|(_, of)| **of == Some(owner));
        let effects: Vec<Effect> = gone.map(|(pet, _)| Effect::Pet(*pet, None)).collect();
        if deleted != effects.len() as u64 {
            return Err(Bug(format!("{deleted} pets of {owner} were deleted, expected {effects:?}")).into());
        }
        self.did(session, deleted > 0, effects)
    }

    /// Appends one number to a list.
    fn append(&mut self, db: &Database, session: &mut Session, key: i64) -> Result<(), Trouble> {
        let number = self.next;
        self.next += 1;
        let spec = operator(by("_id", key), "$push", |out| out.put("items", int(number)))?.upsert();
        session.transaction.documents().update_one(&db.collection("lists")?, &spec)?;
        let mut items = self.view(session)?.lists.get(&key).cloned().unwrap_or_default();
        items.push(number);
        self.did(session, true, [Effect::List(key, items)])
    }

    fn count(&mut self, db: &Database, session: &mut Session, key: i64) -> Result<(), Trouble> {
        let spec = operator(by("_id", key), "$inc", |out| out.put("n", int(1)))?;
        let done = session.transaction.documents().update_one(&db.collection("counters")?, &spec)?;
        let count = self.view(session)?.counters.get(&key).map(|count| count + 1);
        self.did(session, done.modified > 0, [Effect::Counter(key, count)])
    }

    fn read(&mut self, db: &Database, session: &mut Session, read: Read) -> Result<(), Trouble> {
        let mut documents = session.transaction.documents();
        let ids = |found: Vec<DocBuf>| found.iter().filter_map(|found| integer(found.doc(), "_id")).collect();
        let found: Answer = match read {
            Read::Tagged(tag) => {
                let find = Find::matching(by("tags", tag));
                let mut found: Vec<i64> = ids(documents.find(&db.collection("people")?, &find)?);
                found.sort_unstable();
                Some(found)
            }
            Read::Pets => Some(ids(documents.find(&db.collection("pets")?, &Find::all())?)),
            Read::List(key) => {
                let found = documents.get(&db.collection("lists")?, int(key))?;
                found.map(|found| list(found.doc(), "items"))
            }
        };
        let expected = self.view(session)?.answer(read);
        if found != expected {
            return Err(Bug(format!("{read:?}: expected {expected:?}, found {found:?}")).into());
        }
        self.boots.counts.reads += 1;
        session.reads.push((session.at(), read));
        Ok(())
    }

    fn commit(&mut self, session: Session) -> Check {
        let Session { transaction, isolation, effects, reads } = session;
        let durability = self.boots.durability();
        self.boots.note(format!("commit {isolation:?} {durability:?}: {effects:?}"));
        let before = self.states.latest()?.clone();
        let after = before.with(effects.iter().map(|(_, effect)| effect));
        match transaction.commit_with(durability) {
            Ok(None) => {
                ensure!(effects.is_empty(), "a transaction with writes answers that it wrote nothing")
            }
            Ok(Some(done)) => {
                ensure!(after.is_sound(), "a commit broke the rules: {after:?}");
                for (at, effect) in &effects {
                    let seen = self.states.at(*at)?;
                    ensure!(seen.agrees(&before, effect), "{effect:?} at {at} overwrote another commit's");
                }
                for (at, read) in reads.iter().filter(|_| isolation == Isolation::Serializable) {
                    let (seen, now) = (self.states.at(*at)?.answer(*read), before.answer(*read));
                    ensure!(seen == now, "{read:?} was answered {seen:?}, and is {now:?} at the commit");
                }
                self.states.commit(&mut self.boots, done.seq.0, durability, after);
            }
            Err(error) => self.states.fail(&mut self.boots, "commit", &error, after)?,
        }
        Ok(())
    }

    /// Records a change that commits by itself and whose `effects` happen atomically.
    fn whole<T>(
        &mut self,
        what: &str,
        durability: Durability,
        done: Result<T, DocumentsError>,
        effects: impl FnOnce(Option<&T>, &State) -> Check<Vec<Effect>>,
    ) -> Check {
        let before = self.states.latest()?.clone();
        let after = before.with(&effects(done.as_ref().ok(), &before)?);
        match done.map_err(Error::from) {
            Ok(_) => {
                let seq = self.boots.db()?.seq().0;
                ensure!(seq > self.before || after == before, "{what} changed something without a commit");
                // A no-op promises nothing about earlier commits.
                if seq > self.before {
                    self.states.commit(&mut self.boots, seq, durability, after);
                }
            }
            // An index that exists with other options, or not at all.
            Err(Error::Documents(
                DocumentsError::IndexExists { .. } | DocumentsError::UnknownIndex { .. },
            )) if after == before => {}
            Err(error) => self.states.fail(&mut self.boots, what, &error, after)?,
        }
        Ok(())
    }

    /// Statements that are separate transactions; those on counters are decided in their place in the commit
    /// order.
    fn statement_alone(&mut self) -> Check {
        let db = self.boots.db()?;
        let key = self.boots.dice.below(5).cast_signed();
        let durability = self.boots.durability();
        let counters = db.collection("counters")?;
        let expect = |found: bool, holds: bool, what: &str| -> Check {
            ensure!(found == holds, "{what} {key}: {found}, expected {holds}");
            Ok(())
        };
        match self.boots.dice.below(5) {
            0 => {
                let new = [key, key + 1, key + 5];
                self.boots.note(format!("insert counters {new:?} {durability:?}"));
                let documents: Vec<Vec<u8>> = new.iter().map(|id| counter(*id)).collect();
                let done = counters.insert_many(&documents, false, durability);
                self.whole("insert", durability, done, |done, before| {
                    let missing: Vec<i64> =
                        new.into_iter().filter(|id| !before.counters.contains_key(id)).collect();
                    if let Some(done) = done {
                        let places: Vec<i64> =
                            done.inserted.iter().filter_map(|(place, _)| new.get(*place).copied()).collect();
                        ensure!(places == missing, "inserted {places:?}, missing were {missing:?}");
                    }
                    Ok(missing.into_iter().map(|id| Effect::Counter(id, Some(0))).collect())
                })
            }
            1 | 2 => {
                self.boots.note(format!("count {key} {durability:?}"));
                let spec = operator(by("_id", key), "$inc", |out| out.put("n", int(1)));
                let done = spec.and_then(|spec| counters.update_one(&spec, durability));
                self.whole("count", durability, done, |done, before| {
                    let count = before.counters.get(&key).map(|count| count + 1);
                    if let Some(done) = done {
                        expect(done.modified == 1, count.is_some(), "count")?;
                    }
                    Ok(vec![Effect::Counter(key, count)])
                })
            }
            3 => {
                self.boots.note(format!("delete counter {key} {durability:?}"));
                let done = counters.delete_one(&by("_id", key), durability);
                self.whole("delete", durability, done, |done, before| {
                    if let Some(there) = done {
                        expect(*there, before.counters.contains_key(&key), "delete")?;
                    }
                    Ok(vec![Effect::Counter(key, None)])
                })
            }
            _ => {
                let (id, date) = (self.next, self.now_ms() - self.boots.dice.below(1500).cast_signed());
                self.next += 1;
                self.boots.note(format!("fleeting {id} at {date} {durability:?}"));
                let stored = document(|out| {
                    out.put("_id", int(id));
                    out.put("at", Value::DateTime(date));
                });
                let done = db.collection("fleeting")?.insert_one(stored.bytes(), durability);
                self.whole("insert", durability, done, |_, _| Ok(vec![Effect::Fleeting(id, Some(date))]))
            }
        }
    }

    /// Deletes expired documents.
    fn sweep(&mut self) -> Check {
        let db = self.boots.db()?;
        let expired = self.now_ms() - EXPIRY_SECONDS * 1000;
        self.boots.note(format!("sweep what is not younger than {expired}"));
        let done = db.documents().sweep_expired();
        self.whole("sweep", Durability::Buffered, done, |deleted, before| {
            let old = before.fleeting.iter().filter(|(_, date)| **date <= expired);
            let effects: Vec<Effect> = old.map(|(id, _)| Effect::Fleeting(*id, None)).collect();
            if let Some(deleted) = deleted {
                ensure!(*deleted == effects.len() as u64, "{deleted} swept, expected {effects:?}");
            }
            Ok(effects)
        })
    }

    /// Definitions are created and dropped while sessions are open.
    fn define(&mut self) -> Check {
        let db = self.boots.db()?;
        let kind = self.boots.dice.below(7);
        self.boots.note(format!("definition {kind}"));
        let (people, pets) = (db.collection("people")?, db.collection("pets")?);
        let none = |_: Option<&()>, _: &State| Ok(Vec::new());
        let made = |done: Result<bool, DocumentsError>| done.map(drop);
        let checked = match kind {
            0 => self.whole(
                "index",
                Durability::Sync,
                made(people.create_index(&IndexDef::on(["tags"]))),
                none,
            ),
            1 => self.whole("index", Durability::Sync, people.drop_index("tags_1"), none),
            2 => self.whole("index", Durability::Sync, in_one(&db, &people, &grouped()), none),
            3 => self.whole("index", Durability::Sync, people.drop_index("group_1_name_-1"), none),
            4 => {
                self.whole("index", Durability::Sync, made(pets.create_index(&IndexDef::on(["owner"]))), none)
            }
            5 => self.whole("index", Durability::Sync, pets.drop_index("owner_1"), none),
            _ => {
                let anew = db.documents().transact(Durability::Sync, |tx| {
                    tx.drop_collection(&pets)?;
                    tx.create_collection(&pets, pets_options())
                });
                self.whole("drop", Durability::Sync, made(anew), |_, _| Ok(vec![Effect::NoPets]))
            }
        };
        self.defined = db.seq().0;
        checked
    }
}

/// An index made inside a transaction.
fn in_one(db: &Database, collection: &Collection, def: &IndexDef) -> Result<(), DocumentsError> {
    db.documents().transact(Durability::Sync, |tx| tx.create_index(collection, def)).map(drop)
}

fn counter(id: i64) -> Vec<u8> {
    let stored = document(|out| {
        out.put("_id", int(id));
        out.put("n", int(0));
    });
    stored.into_bytes()
}
