//! Documents under unique, multikey, compound and partial indexes: puts, updates through an index, deletes, inserts of several,
//! transactions over two documents, and a counter that all threads raise.
//!
//! Every thread has separate slots and announces each operation before it does it. So the parent knows the
//! contents of each slot, except for the one write of each thread that the kill cut off, which may have
//! happened, completely, or not. The bytes of a document follow from its slot and version.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;

use ropewalk::documents::lang::{Doc, DocBuf, Filter, Options as Language, Update, Value, Writer};
use ropewalk::documents::{Collection, DocumentsError, Find, IndexDef, UpdateSpec};
use ropewalk::{Database, Durability, Error};
use ropewalk_vfs::{Random, SeededRandom};

use crate::{Load, THREADS};

/// Slots of one thread.
const SLOTS: u64 = 150;

type Slot = u64;
type Version = u64;

/// The kinds of writes, by the letter that announces them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Puts documents, in one transaction.
    Put,
    /// Changes an existing document.
    Update,
    Delete,
    /// Inserts new documents.
    Insert,
    /// Raises the counter.
    Count,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Put, "put"),
    (Kind::Update, "update"),
    (Kind::Delete, "delete"),
    (Kind::Insert, "insert"),
    (Kind::Count, "count"),
];

/// One write.
#[derive(Debug, Clone)]
struct Task {
    kind: Kind,
    slots: Vec<Slot>,
    version: Version,
}

impl Task {
    fn line(&self, thread: u64) -> String {
        let kind = KINDS.iter().find(|(kind, _)| *kind == self.kind).map_or("", |(_, name)| name);
        let slots: Vec<String> = self.slots.iter().map(u64::to_string).collect();
        format!("{thread} {kind} {} {}\n", self.version, slots.join(","))
    }

    fn parse(line: &str) -> Option<(u64, Option<Self>)> {
        let mut words = line.split(' ');
        let thread = words.next()?.parse().ok()?;
        let kind = words.next()?;
        if kind == "done" {
            return Some((thread, None));
        }
        let kind = KINDS.iter().find(|(_, name)| *name == kind)?.0;
        let version = words.next()?.parse().ok()?;
        let slots = words.next().unwrap_or_default().split(',').filter(|slot| !slot.is_empty());
        let slots = slots.map(|slot| slot.parse().ok()).collect::<Option<Vec<_>>>()?;
        Some((thread, Some(Self { kind, slots, version })))
    }
}

fn document(put: impl FnOnce(&mut Writer)) -> DocBuf {
    let mut out = Writer::new();
    put(&mut out);
    out.finish()
}

/// Contents of a slot under a version, without the `_id`.
fn put_fields(slot: Slot, version: Version, out: &mut Writer) {
    let random = SeededRandom::new(slot << 40 ^ version);
    out.put("version", Value::Int64(version.cast_signed()));
    out.put("key", Value::Int64((slot * 7919 % 1_000_003).cast_signed()));
    out.open_array("tags");
    for place in 0..random.next_u64() % 4 {
        out.put(&place.to_string(), Value::Int32((random.next_u64() % 5) as i32));
    }
    out.close();
    if random.next_u64().is_multiple_of(3) {
        out.put("group", Value::Int32((random.next_u64() % 7) as i32));
    }
    let len = if random.next_u64().is_multiple_of(40) { 20_000 } else { random.next_u64() % 300 };
    let pad: Vec<u8> =
        std::iter::repeat_with(|| random.next_u64().to_le_bytes()).flatten().take(len as usize).collect();
    out.put("pad", Value::Binary(0, &pad));
}

fn stored(slot: Slot, version: Version) -> DocBuf {
    document(|out| {
        out.put("_id", Value::Int64(slot.cast_signed()));
        put_fields(slot, version, out);
    })
}

fn spec(filter: Filter, update: &DocBuf) -> Result<UpdateSpec, DocumentsError> {
    Ok(UpdateSpec::new(filter, Update::parse(Value::Document(update.doc()), None, &Language::default())?))
}

/// Creates collections and indexes; existing ones stay.
pub(crate) fn define(db: &Database) -> Result<(), Error> {
    let collection = db.collection("documents")?;
    let grouped = document(|out| {
        out.open_document("group");
        out.put("$exists", Value::Bool(true));
        out.close();
    });
    let defs = [
        IndexDef::on(["key"]).unique(),
        IndexDef::on(["tags"]),
        IndexDef::on(["version", "-key"]),
        IndexDef::on(["group"]).partial(grouped),
    ];
    for def in defs {
        collection.create_index(&def)?;
    }
    let counter = document(|out| {
        out.put("_id", Value::String("counter"));
        out.put("n", Value::Int64(0));
    });
    match db.collection("counters")?.insert_one(counter.bytes(), Durability::Sync) {
        Ok(_) | Err(DocumentsError::Duplicate { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn perform(db: &Database, collection: &Collection, task: &Task) -> Result<(), Error> {
    let by_id = |slot: &Slot| Filter::equals("_id", Value::Int64(slot.cast_signed()));
    let sync = Durability::Sync;
    match task.kind {
        Kind::Put => {
            let put = |slot: &Slot| {
                let update = document(|out| put_fields(*slot, task.version, out));
                Ok::<_, Error>(spec(by_id(slot), &update)?.upsert())
            };
            let specs = task.slots.iter().map(put).collect::<Result<Vec<_>, _>>()?;
            db.documents().transact(sync, |tx| {
                specs.iter().try_for_each(|spec| tx.update_one(collection, spec).map(drop))
            })?;
        }
        Kind::Update => {
            for slot in &task.slots {
                let key = Value::Int64((slot * 7919 % 1_000_003).cast_signed());
                let update = document(|out| put_fields(*slot, task.version, out));
                collection.update_one(&spec(Filter::equals("key", key), &update)?, sync)?;
            }
        }
        Kind::Delete => {
            for slot in &task.slots {
                collection.delete_one(&by_id(slot), sync)?;
            }
        }
        Kind::Insert => {
            let documents: Vec<Vec<u8>> =
                task.slots.iter().map(|slot| stored(*slot, task.version).into_bytes()).collect();
            collection.insert_many(&documents, false, sync)?;
        }
        Kind::Count => {
            let update = document(|out| {
                out.open_document("$inc");
                out.put("n", Value::Int64(1));
                out.close();
            });
            let counter = Filter::equals("_id", Value::String("counter"));
            db.collection("counters")?.update_one(&spec(counter, &update)?, sync)?;
        }
    }
    Ok(())
}

/// Writes in one thread until the process is killed.
pub(crate) fn write_on(
    db: &Database,
    (round, thread): (u64, u64),
    out: &Mutex<std::io::Stdout>,
) -> Result<(), Error> {
    let collection = db.collection("documents")?;
    let random = SeededRandom::new(round << 8 | thread);
    // One write call, so that a line is complete or absent; without a reader the thread ends.
    let say = |line: &str| {
        let mut out = out.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_ok()
    };
    for n in 0_u64.. {
        let slot = || thread * SLOTS + random.next_u64() % SLOTS;
        let (kind, count) = match random.next_u64() % 10 {
            0 | 1 => (Kind::Put, 1),
            2 => (Kind::Put, 2),
            3..6 => (Kind::Update, 1),
            6 => (Kind::Delete, 1),
            7 | 8 => (Kind::Insert, 3),
            _ => (Kind::Count, 0),
        };
        let mut slots: Vec<Slot> = std::iter::repeat_with(slot).take(count).collect();
        slots.sort_unstable();
        slots.dedup();
        let task = Task { kind, slots, version: round << 32 | n };
        if !say(&task.line(thread)) {
            return Ok(());
        }
        perform(db, &collection, &task)?;
        if !say(&format!("{thread} done\n")) {
            return Ok(());
        }
    }
    Ok(())
}

/// Contents of the slots, and announced writes without an acknowledgement.
#[derive(Default)]
pub(crate) struct Acknowledged {
    slots: BTreeMap<Slot, Version>,
    counter: u64,
    under_way: BTreeMap<u64, Task>,
    done: usize,
}

fn apply(slots: &mut BTreeMap<Slot, Version>, task: &Task) {
    for slot in &task.slots {
        match task.kind {
            Kind::Put => {
                slots.insert(*slot, task.version);
            }
            Kind::Insert => {
                slots.entry(*slot).or_insert(task.version);
            }
            Kind::Update => {
                slots.entry(*slot).and_modify(|version| *version = task.version);
            }
            Kind::Delete => {
                slots.remove(slot);
            }
            Kind::Count => {}
        }
    }
}

fn of_thread(slots: &BTreeMap<Slot, Version>, thread: u64) -> BTreeMap<Slot, Version> {
    slots.range(thread * SLOTS..(thread + 1) * SLOTS).map(|(slot, version)| (*slot, *version)).collect()
}

fn integer(doc: Doc<'_>, field: &str) -> Option<u64> {
    doc.get(field)?.as_integer()?.try_into().ok()
}

impl Load for Acknowledged {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let (thread, task) = Task::parse(line).ok_or_else(|| format!("the child says {line:?}"))?;
        match task {
            Some(task) => {
                self.under_way.insert(thread, task);
            }
            None => {
                let task = self.under_way.remove(&thread).ok_or("done, and nothing was under way")?;
                apply(&mut self.slots, &task);
                self.counter += u64::from(task.kind == Kind::Count);
                self.done += 1;
            }
        }
        Ok(())
    }

    fn check(&mut self, db: &Database) -> Result<u64, String> {
        let text = |error: Error| error.to_string();
        let collection = db.collection("documents").map_err(text)?;
        let snapshot = db.snapshot();
        let mut found = BTreeMap::new();
        let mut foreign = None;
        let mut read = snapshot.documents(db);
        let each = &mut |document: DocBuf| {
            match (integer(document.doc(), "_id"), integer(document.doc(), "version")) {
                (Some(slot), Some(version)) if stored(slot, version).bytes() == document.bytes() => {
                    found.insert(slot, version);
                }
                (slot, version) => foreign = Some(format!("document {slot:?}, version {version:?}")),
            }
            Ok(true)
        };
        read.visit(&collection, &Find::all(), each).map_err(|error| error.to_string())?;
        if let Some(foreign) = foreign {
            return Err(format!("{foreign} has other bytes"));
        }
        for thread in 0..THREADS {
            let mut allowed = vec![of_thread(&self.slots, thread)];
            if let Some(task) = self.under_way.get(&thread) {
                let mut after = of_thread(&self.slots, thread);
                apply(&mut after, task);
                allowed.push(after);
            }
            let found = of_thread(&found, thread);
            if !allowed.contains(&found) {
                let task = self.under_way.get(&thread);
                return Err(format!("thread {thread}: found {found:?}, expected {allowed:?} ({task:?})"));
            }
        }
        let counter = read
            .get(&db.collection("counters").map_err(text)?, Value::String("counter"))
            .map_err(|error| error.to_string())?
            .and_then(|counter| integer(counter.doc(), "n"))
            .unwrap_or_default();
        let pending = self.under_way.values().filter(|task| task.kind == Kind::Count).count() as u64;
        if !(self.counter..=self.counter + pending).contains(&counter) {
            return Err(format!(
                "the counter is {counter}, {} were acknowledged, {pending} under way",
                self.counter
            ));
        }
        let total = found.len() as u64;
        (self.slots, self.counter) = (found, counter);
        self.under_way.clear();
        Ok(total)
    }

    fn acknowledged(&self) -> usize {
        self.done
    }
}
