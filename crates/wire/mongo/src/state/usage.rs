//! Number and time of the commands on each collection, for `top`.
//!
//! Counted since the start of the server, for commands that succeeded. Dropping a collection forgets it.

use std::collections::HashMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropewalk::documents::lang::{Value, Writer};

/// Most collections; later ones are not counted.
const COLLECTIONS_MAX: usize = 10_000;

/// Kinds of commands, in the order of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Query,
    GetMore,
    Insert,
    Update,
    Remove,
    /// Other commands that read.
    Read,
    /// Other commands that write.
    Write,
}

impl Kind {
    /// The kind of a command on a collection; `None` for other commands.
    pub(crate) fn of(command: &str) -> Option<Self> {
        Some(match command {
            "find" => Self::Query,
            "getMore" => Self::GetMore,
            "insert" => Self::Insert,
            "update" => Self::Update,
            "delete" => Self::Remove,
            "aggregate" | "count" | "distinct" | "explain" | "listIndexes" | "validate" | "collStats" => {
                Self::Read
            }
            "findAndModify" | "findandmodify" | "create" | "createIndexes" | "dropIndexes" | "collMod" => {
                Self::Write
            }
            _ => return None,
        })
    }

    fn reads(self) -> bool {
        matches!(self, Self::Query | Self::GetMore | Self::Read)
    }
}

/// The counts and microseconds of one collection, by [`Kind`].
#[derive(Default)]
struct Counts([(AtomicU64, AtomicU64); 7]);

impl Counts {
    /// Time and number of the kinds that `of` selects.
    fn sum(&self, of: impl Fn(Kind) -> bool) -> (u64, u64) {
        let mut sum = (0, 0);
        for (kind, (micros, count)) in KINDS.into_iter().zip(&self.0) {
            if of(kind) {
                sum.0 += micros.load(Ordering::Relaxed);
                sum.1 += count.load(Ordering::Relaxed);
            }
        }
        sum
    }
}

const KINDS: [Kind; 7] =
    [Kind::Query, Kind::GetMore, Kind::Insert, Kind::Update, Kind::Remove, Kind::Read, Kind::Write];

/// The collections of all databases.
#[derive(Default)]
pub(crate) struct Usage(RwLock<HashMap<String, HashMap<String, Counts>>>);

impl Usage {
    /// Counts a command.
    pub(crate) fn add(&self, database: &str, collection: &str, kind: Kind, took: Duration) {
        let count = |counts: &Counts| {
            if let Some((micros, number)) = counts.0.get(kind as usize) {
                micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
                number.fetch_add(1, Ordering::Relaxed);
            }
        };
        let known = self.0.read().unwrap_or_else(|held| held.into_inner());
        if let Some(counts) = known.get(database).and_then(|collections| collections.get(collection)) {
            return count(counts);
        }
        let is_full = known.values().map(HashMap::len).sum::<usize>() >= COLLECTIONS_MAX;
        drop(known);
        if !is_full {
            let mut known = self.0.write().unwrap_or_else(|held| held.into_inner());
            count(known.entry(database.to_owned()).or_default().entry(collection.to_owned()).or_default());
        }
    }

    /// Forgets a collection, or with `None` a database.
    pub(crate) fn forget(&self, database: &str, collection: Option<&str>) {
        let mut known = self.0.write().unwrap_or_else(|held| held.into_inner());
        match collection {
            Some(collection) => {
                if let Some(collections) = known.get_mut(database) {
                    collections.remove(collection);
                }
            }
            None => drop(known.remove(database)),
        }
    }

    /// Puts the counts of every collection, as `top` shows them.
    pub(crate) fn put(&self, out: &mut Writer) {
        let known = self.0.read().unwrap_or_else(|held| held.into_inner());
        let mut sorted: Vec<(String, &Counts)> = Vec::new();
        for (database, collections) in known.iter() {
            sorted.extend(collections.iter().map(|(name, counts)| (format!("{database}.{name}"), counts)));
        }
        sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (namespace, counts) in sorted {
            out.open_document(&namespace);
            let mut put = |field: &str, (micros, count): (u64, u64)| {
                out.open_document(field);
                out.put("time", Value::Int64(micros as i64));
                out.put("count", Value::Int64(count as i64));
                out.close();
            };
            put("total", counts.sum(|_| true));
            put("readLock", counts.sum(Kind::reads));
            put("writeLock", counts.sum(|kind| !kind.reads()));
            put("queries", counts.sum(|kind| kind == Kind::Query));
            put("getmore", counts.sum(|kind| kind == Kind::GetMore));
            put("insert", counts.sum(|kind| kind == Kind::Insert));
            put("update", counts.sum(|kind| kind == Kind::Update));
            put("remove", counts.sum(|kind| kind == Kind::Remove));
            put("commands", counts.sum(|kind| matches!(kind, Kind::Read | Kind::Write)));
            out.close();
        }
    }
}
