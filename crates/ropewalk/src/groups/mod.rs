//! Consumer groups: the matching events of a store, each to be worked on by one of several consumers.
//!
//! ```text
//!              take                    acknowledge
//!  new events ──────▶ pending, leased ────────────▶ done
//!                      │    ▲ due again: the lease ran out, or the pause after a retry did
//!                      └────┘
//!                      │ park, or a retry after the last try           replay, discard
//!                      └─────────────────────────▶ parked ─────────▶
//! ```
//!
//! Everything is kept in the database, each call is one durable commit: what was handed out comes again after a crash, once
//! its lease runs out, and what was acknowledged does not. So each event is worked on at least once.
//!
//! **Order.** Events are first handed out by position, in batches that different consumers work on side by side; what comes
//! again comes late. With [`GroupSettings::in_order`] one batch is out at a time, and nothing is handed out before what
//! comes before it was acknowledged or parked.
//!
//! Not here: what is kept (`record`), handing out (`take`), what becomes of what was handed out (`settle`).

mod record;
mod settle;
mod take;

use core::time::Duration;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use ropewalk_base::keys::prefix_end;
use ropewalk_base::{DecodeError, Position, hash64};
use ropewalk_engine::{Durability, Isolation, KeyspaceOptions};
use ropewalk_events::{EventStore, Query, ReadOptions, SequencedEvent};

pub use settle::{Parked, Settled};
pub use take::{Lease, Taken};

use crate::database::{Database, Snapshot};
use crate::error::{Class, Error};
use crate::keyspace::Keyspace;
use crate::names::check_name;
use crate::transaction::Transaction;
use record::{GROUP, GroupRecord, PARKED, PENDING, Pending, key, prefix};

const KEYSPACE: &str = "sys.groups";
/// How often a call that meets other commits is tried again.
const ATTEMPTS: usize = 1_000;
/// Most events that may be pending in one group.
const PENDING_MAX: u32 = 100_000;
/// Longest lease and pause.
const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

/// What a group hands out, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// The events that it wants.
    pub query: Query,
    /// How long a consumer has for what it takes. Default 30 seconds; up to a year.
    pub lease: Duration,
    /// Pause before an event comes again whose consumer asks for a retry. Default 1 second; up to a year.
    pub pause: Duration,
    /// How often an event is handed out before it is parked. Default 10.
    pub tries_max: u32,
    /// Most events that are out and not settled. Default 1,000, at most 100,000.
    pub pending_max: u32,
    /// One batch at a time. Default: batches side by side.
    pub in_order: bool,
}

impl GroupSettings {
    /// The defaults, for the events of `query`.
    pub fn new(query: Query) -> Self {
        Self {
            query,
            lease: Duration::from_secs(30),
            pause: Duration::from_secs(1),
            tries_max: 10,
            pending_max: 1_000,
            in_order: false,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |what: &str| Err(GroupError::Settings { what: what.to_owned() }.into());
        if self.query.is_none() {
            return refuse("no event matches Query::none, so that the group would never hand out one");
        }
        if self.lease.is_zero() || self.lease > TIME_MAX || self.pause > TIME_MAX {
            return refuse("a lease lasts more than nothing, a lease and a pause at most a year");
        }
        if self.tries_max == 0 {
            return refuse("an event is handed out at least once");
        }
        if self.pending_max == 0 || self.pending_max > PENDING_MAX {
            return refuse("1 to 100,000 events may be pending");
        }
        Ok(())
    }
}

/// Why a group cannot do what it is asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The store has no group of this name.
    #[error("event store {store:?} has no consumer group {name:?}")]
    Unknown {
        /// The store.
        store: String,
        /// The group.
        name: String,
    },
    /// The group never handed out this lease.
    #[error("consumer group {name:?} has no lease {lease}; a lease comes from ConsumerGroup::take")]
    UnknownLease {
        /// The group.
        name: String,
        /// The lease.
        lease: u64,
    },
    /// The store was deleted since: its positions mean other events now.
    #[error("event store {store:?} was deleted after consumer group {name:?} read it; delete the group, too")]
    StoreReplaced {
        /// The store.
        store: String,
        /// The group.
        name: String,
    },
    /// The settings make no sense.
    #[error("consumer group: {what}")]
    Settings {
        /// What is wrong.
        what: String,
    },
    /// What is kept of a group does not decode.
    #[error("a record of consumer group {name:?} is damaged: {source}")]
    Damaged {
        /// The group.
        name: String,
        /// Where.
        source: DecodeError,
    },
}

impl GroupError {
    /// What to do about it.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Unknown { .. } | Self::UnknownLease { .. } => Class::NotFound,
            Self::Damaged { .. } => Class::Corrupt,
            _ => Class::Invalid,
        }
    }
}

/// Where a group stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its settings.
    pub settings: GroupSettings,
    /// Matching events up to here were handed out at least once.
    pub cursor: Position,
    /// Last position of the store.
    pub head: Position,
    /// Matching events that nobody was given yet.
    pub waiting: u64,
    /// Events that were handed out and are not settled.
    pub pending: u64,
    /// Those of them that somebody holds now.
    pub leased: u64,
    /// Events that nobody is given any more.
    pub parked: u64,
}

/// The consumer groups of one event store. Cheap to clone.
///
/// ```
/// use ropewalk::groups::GroupSettings;
/// use ropewalk::{Database, Event, Query};
///
/// # fn main() -> Result<(), ropewalk::Error> {
/// let db = Database::in_memory()?;
/// db.events("shop")?.append(&[Event::new("Placed"), Event::new("Seen"), Event::new("Placed")], None)?;
/// let groups = db.consumer_groups("shop")?;
/// groups.create("mail", GroupSettings::new(Query::from_types(["Placed"])), None)?;
///
/// let mail = groups.group("mail")?;
/// let lease = mail.take(10)?;
/// assert_eq!(lease.events.iter().map(|taken| taken.event.position.0).collect::<Vec<_>>(), [1, 3]);
/// mail.acknowledge(lease.id, None)?;
/// assert!(mail.take(10)?.events.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ConsumerGroups {
    db: Database,
    store: EventStore,
    keyspace: Keyspace,
}

/// One consumer group. Cheap to clone; any number of threads may use it at once.
#[derive(Clone)]
pub struct ConsumerGroup {
    groups: ConsumerGroups,
    name: String,
    prefix: Vec<u8>,
    turns: Arc<Turns>,
}

/// Calls to one group follow each other, whoever holds a handle on it: each is decided and committed before the next.
/// Groups share a few locks, so that names cost no memory.
struct Turns(Vec<Mutex<()>>);

/// Locks for all groups of a database.
const TURNS: usize = 64;

impl Default for Turns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::new(())).collect())
    }
}

impl Database {
    /// The consumer groups of the event store `store`.
    ///
    /// # Errors
    /// A name that no store may have; the manifest cannot be written.
    pub fn consumer_groups(&self, store: &str) -> Result<ConsumerGroups, Error> {
        let keyspace = self.keyspace(KEYSPACE, KeyspaceOptions::default())?;
        Ok(ConsumerGroups { store: self.events(store)?, db: self.clone(), keyspace })
    }
}

impl ConsumerGroups {
    /// Makes the group `name`, 1 to 255 bytes, which begins behind `after`, or with the first event. A group that is there
    /// gets the settings and stays where it is. True when it is new.
    ///
    /// # Errors
    /// Settings or a name that are not allowed; an invalid query.
    pub fn create(
        &self,
        name: &str,
        settings: GroupSettings,
        after: Option<Position>,
    ) -> Result<bool, Error> {
        check_name("consumer group", name)?;
        settings.check()?;
        // Refuses an invalid query.
        self.store.subscribe(&settings.query, None)?;
        let group = self.handle(name);
        let _turn = group.turn();
        group.attempt(|tx| {
            let old = group.find(tx)?;
            let is_new = old.is_none();
            let store = self.store.id_at(tx.snapshot().engine()).unwrap_or(0);
            let cursor = after.map_or(0, |after| after.0);
            let begins = || GroupRecord { store, cursor, next_lease: 1, settings: settings.clone() };
            let record = old.map_or_else(begins, |old| GroupRecord { settings: settings.clone(), ..old });
            group.put(tx, &record);
            Ok(is_new)
        })
    }

    /// The group `name`.
    ///
    /// # Errors
    /// [`GroupError::Unknown`]; damage.
    pub fn group(&self, name: &str) -> Result<ConsumerGroup, Error> {
        let group = self.handle(name);
        group.look(&self.db.snapshot())?;
        Ok(group)
    }

    /// The names of the store's groups, sorted.
    ///
    /// # Errors
    /// Damage.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let snapshot = self.db.snapshot();
        let before = [self.store.name().as_bytes(), b"\0"].concat();
        let mut cursor = snapshot.cursor(self.keyspace);
        let mut names = Vec::new();
        cursor.seek(&before)?;
        while cursor.valid() {
            let Some(rest) = cursor.key().strip_prefix(before.as_slice()) else { break };
            let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
            let text = String::from_utf8_lossy(name).into_owned();
            // Behind everything that is kept of the group.
            let behind = [before.as_slice(), name, b"\x01"].concat();
            names.push(text);
            cursor.seek(&behind)?;
        }
        Ok(names)
    }

    /// Deletes a group with what is pending and parked in it. False when there is none.
    ///
    /// # Errors
    /// The database's own.
    pub fn delete(&self, name: &str) -> Result<bool, Error> {
        let group = self.handle(name);
        let _turn = group.turn();
        group.attempt(|tx| {
            if group.find(tx)?.is_none() {
                return Ok(false);
            }
            let end = prefix_end(&group.prefix);
            for (key, _) in tx.range(self.keyspace, &group.prefix, end.as_deref(), usize::MAX)? {
                tx.delete(self.keyspace, &key);
            }
            Ok(true)
        })
    }

    fn handle(&self, name: &str) -> ConsumerGroup {
        let prefix = prefix(self.store.name(), name);
        let turns = self.db.companion::<Turns>();
        ConsumerGroup { groups: self.clone(), name: name.to_owned(), prefix, turns }
    }
}

impl ConsumerGroup {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it stands. Cost: proportional to what is waiting, pending and parked.
    ///
    /// # Errors
    /// [`GroupError::Unknown`]; damage.
    pub fn status(&self) -> Result<GroupStatus, Error> {
        let snapshot = self.groups.db.snapshot();
        let record = self.look(&snapshot)?;
        let head = self.groups.store.head_at(snapshot.engine())?.unwrap_or(Position::ZERO);
        let options = ReadOptions::default().after(Position(record.cursor)).before(head.next());
        let waiting = self.groups.store.scan(&record.settings.query, options, |scan| {
            let mut waiting = 0;
            while scan.next_position()?.is_some() {
                waiting += 1;
            }
            Ok(waiting)
        })?;
        let now = self.now();
        let (mut pending, mut leased, mut parked) = (0, 0, 0);
        self.visit(&snapshot, PENDING, |_, value| {
            let one = self.decoded(Pending::decode(value))?;
            pending += 1;
            leased += u64::from(one.lease > 0 && one.due_micros > now);
            Ok(true)
        })?;
        self.visit(&snapshot, PARKED, |_, _| {
            parked += 1;
            Ok(true)
        })?;
        let cursor = Position(record.cursor);
        Ok(GroupStatus { settings: record.settings, cursor, head, waiting, pending, leased, parked })
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        let index = hash64(&self.prefix) as usize % TURNS;
        self.turns.0.get(index).expect("there are as many as the remainder has values").lock()
    }

    fn now(&self) -> i64 {
        self.groups.db.engine().env().clock.wall_micros()
    }

    fn attempt<R>(&self, work: impl FnMut(&mut Transaction) -> Result<R, Error>) -> Result<R, Error> {
        self.groups.db.transact_with(Isolation::Serializable, Durability::Sync, ATTEMPTS, work)
    }

    fn unknown(&self) -> Error {
        let (store, name) = (self.groups.store.name().to_owned(), self.name.clone());
        GroupError::Unknown { store, name }.into()
    }

    fn decoded<T>(&self, decoded: Result<T, DecodeError>) -> Result<T, Error> {
        decoded.map_err(|source| GroupError::Damaged { name: self.name.clone(), source }.into())
    }

    fn key(&self, kind: u8, position: Position) -> Vec<u8> {
        key(&self.prefix, kind, Some(position.0))
    }

    fn find(&self, tx: &mut Transaction) -> Result<Option<GroupRecord>, Error> {
        let stored = tx.get(self.groups.keyspace, &key(&self.prefix, GROUP, None))?;
        stored.map(|bytes| self.decoded(GroupRecord::decode(&bytes))).transpose()
    }

    fn get(&self, tx: &mut Transaction) -> Result<GroupRecord, Error> {
        self.find(tx)?.ok_or_else(|| self.unknown())
    }

    /// The group, if it handed out `lease` at some time.
    fn holding(&self, tx: &mut Transaction, lease: u64) -> Result<GroupRecord, Error> {
        let record = self.get(tx)?;
        if lease == 0 || lease >= record.next_lease {
            return Err(GroupError::UnknownLease { name: self.name.clone(), lease }.into());
        }
        Ok(record)
    }

    fn put(&self, tx: &mut Transaction, record: &GroupRecord) {
        tx.put(self.groups.keyspace, &key(&self.prefix, GROUP, None), &record.encode());
    }

    fn look(&self, snapshot: &Snapshot) -> Result<GroupRecord, Error> {
        let key = key(&self.prefix, GROUP, None);
        let stored = snapshot.get(self.groups.keyspace, &key)?.ok_or_else(|| self.unknown())?;
        self.decoded(GroupRecord::decode(&stored))
    }

    /// Shows the keys of one kind with their values, in order of positions, while `each` answers true.
    fn visit(
        &self,
        snapshot: &Snapshot,
        kind: u8,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let before = key(&self.prefix, kind, None);
        let mut cursor = snapshot.cursor(self.groups.keyspace);
        cursor.seek(&before)?;
        while cursor.valid() && cursor.key().starts_with(&before) && each(cursor.key(), cursor.value())? {
            cursor.next()?;
        }
        Ok(())
    }

    /// The event at a position.
    fn event(&self, snapshot: &Snapshot, position: Position) -> Result<Option<SequencedEvent>, Error> {
        let options = ReadOptions::default().from(position).limit(1);
        let found = snapshot.events(&self.groups.store, &Query::all(), options)?.next().transpose()?;
        Ok(found.filter(|event| event.position == position))
    }

    fn replaced(&self) -> Error {
        let (store, name) = (self.groups.store.name().to_owned(), self.name.clone());
        GroupError::StoreReplaced { store, name }.into()
    }
}
