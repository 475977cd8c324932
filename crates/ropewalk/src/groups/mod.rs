//! Consumer groups: each matching event of a store is processed by one of several consumers.
//!
//! ```text
//!              take                    acknowledge
//!  new events ──────▶ pending, leased ────────────▶ done
//!                      │    ▲ due again: the lease expired, or the pause after a retry ended
//!                      └────┘
//!                      │ park, or a retry after the last try           replay, discard
//!                      └─────────────────────────▶ parked ─────────▶
//! ```
//!
//! All state is stored in the database, and each call is one durable commit. After a crash, leased events are
//! handed out again once their lease expires; acknowledged events are not. Delivery is therefore at least
//! once.
//!
//! **Order.** Events are first handed out by position, in batches that consumers process in parallel; retried
//! events come later. With [`GroupSettings::in_order`] one batch is out at a time, and an event is handed out
//! only after all earlier ones were acknowledged or parked.
//!
//! Not here: stored records (`record`), handing out (`take`), acknowledging, retrying and parking (`settle`).

mod record;
mod settle;
mod take;

use core::time::Duration;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use ropewalk_base::keys::prefix_end;
use ropewalk_base::{DecodeError, Position, hash64};
use ropewalk_engine::{Durability, Isolation};
use ropewalk_events::{EventStore, Query, ReadOptions, SequencedEvent};

pub use settle::{Parked, Settled};
pub use take::{Lease, Taken};

use crate::database::system_keyspace::SystemKeyspace;
use crate::database::transaction::Transaction;
use crate::database::{Database, Snapshot};
pub use crate::error::GroupError;
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::names::check_name;
use record::{GROUP, GroupRecord, PARKED, PENDING, Pending, key, prefix};

const KEYSPACE: &str = "sys.groups";
/// Most attempts of a call that conflicts with other commits.
const ATTEMPTS: usize = 1_000;
/// Most events that may be pending in one group.
const PENDING_MAX: u32 = 100_000;
/// Longest lease and longest pause.
const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Settings of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// The events that the group delivers.
    pub query: Query,
    /// Lease time of a batch. Default 30 seconds, at most 366 days.
    pub lease: Duration,
    /// Pause before a retry. Default 1 second, at most 366 days.
    pub pause: Duration,
    /// Most times an event is handed out before it is parked. Default 10.
    pub tries_max: u32,
    /// Most events that are handed out and not settled. Default 1,000, at most 100,000.
    pub pending_max: u32,
    /// Hands out one batch at a time. Default: batches in parallel.
    pub in_order: bool,
}

impl GroupSettings {
    /// Default settings, for the events of `query`.
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

    fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(GroupError::Settings { what: what.to_owned() }.into());
        if self.query.is_none() {
            return refuse("Query::none matches no event, so the group would never hand out any");
        }
        if self.lease.is_zero() || self.lease > TIME_MAX || self.pause > TIME_MAX {
            return refuse("a lease must be longer than zero, a lease and a pause at most 366 days");
        }
        if self.tries_max == 0 {
            return refuse("the number of tries must be at least 1");
        }
        if self.pending_max == 0 || self.pending_max > PENDING_MAX {
            return refuse("the pending limit must be 1 to 100,000 events");
        }
        Ok(())
    }
}

/// Progress and backlog of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its settings.
    pub settings: GroupSettings,
    /// Position up to which matching events were handed out at least once.
    pub cursor: Position,
    /// Last position of the store.
    pub head: Position,
    /// Number of matching events not handed out yet.
    pub waiting: u64,
    /// Number of events handed out and not settled.
    pub pending: u64,
    /// Number of pending events under a lease that has not expired.
    pub leased: u64,
    /// Number of parked (dead-lettered) events.
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
    keyspace: SystemKeyspace,
}

/// One consumer group. Cheap to clone; any number of threads may use it at once.
#[derive(Clone)]
pub struct ConsumerGroup {
    groups: ConsumerGroups,
    keyspace: Keyspace,
    name: String,
    prefix: Vec<u8>,
    turns: Arc<Turns>,
}

/// Locks that serialize the calls to one group, across all handles of a database.
///
/// Each call commits before the next begins. Groups share a fixed number of locks, so that names use no
/// memory.
struct Turns(Vec<Mutex<()>>);

/// Number of locks for all groups of a database.
const TURNS: usize = 64;

impl Default for Turns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::new(())).collect())
    }
}

impl Database {
    /// Returns the consumer groups of the event store `store`.
    ///
    /// # Errors
    /// The name is not allowed for a store, or the commit that defines its keyspace fails.
    pub fn consumer_groups(&self, store: &str) -> Result<ConsumerGroups> {
        let keyspace = self.system_keyspace(KEYSPACE)?;
        Ok(ConsumerGroups { store: self.events(store)?, db: self.clone(), keyspace })
    }
}

impl ConsumerGroups {
    /// Creates the group `name`, or replaces the settings of an existing group; true if it is new.
    ///
    /// The name has 1 to 255 bytes. A new group starts after position `after`, by default with the first
    /// event. An existing group retains its cursor.
    ///
    /// # Errors
    /// Invalid settings, name or query.
    pub fn create(&self, name: &str, settings: GroupSettings, after: Option<Position>) -> Result<bool> {
        check_name("consumer group", name)?;
        settings.check()?;
        // Rejects an invalid query.
        self.store.subscribe(&settings.query, None)?;
        let group = self.handle(name, self.keyspace.to_write(&self.db)?);
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

    /// Returns the group `name`.
    ///
    /// # Errors
    /// [`GroupError::Unknown`]; corrupt data.
    pub fn group(&self, name: &str) -> Result<ConsumerGroup> {
        let unknown = || GroupError::Unknown { store: self.store.name().to_owned(), name: name.to_owned() };
        let group = self.handle(name, self.keyspace.to_read(&self.db).ok_or_else(unknown)?);
        group.look(&self.db.snapshot())?;
        Ok(group)
    }

    /// Returns the names of the groups of the store, sorted.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn names(&self) -> Result<Vec<String>> {
        self.names_after(None, usize::MAX)
    }

    /// Returns the first `max` names of groups that come after `after`, sorted.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn names_after(&self, after: Option<&str>, max: usize) -> Result<Vec<String>> {
        let Some(keyspace) = self.keyspace.to_read(&self.db) else { return Ok(Vec::new()) };
        let snapshot = self.db.snapshot();
        let before = [self.store.name().as_bytes(), b"\0"].concat();
        // After all keys of a group.
        let behind = |name: &[u8]| [before.as_slice(), name, b"\x01"].concat();
        let mut cursor = snapshot.cursor(keyspace);
        let mut names = Vec::new();
        cursor.seek(&after.map_or_else(|| before.clone(), |name| behind(name.as_bytes())))?;
        while cursor.valid() && names.len() < max {
            let Some(rest) = cursor.key().strip_prefix(before.as_slice()) else { break };
            let name = rest.split(|byte| *byte == 0).next().unwrap_or_default();
            let next = behind(name);
            names.push(String::from_utf8_lossy(name).into_owned());
            cursor.seek(&next)?;
        }
        Ok(names)
    }

    /// Deletes a group with its pending and parked events; false if it does not exist.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn delete(&self, name: &str) -> Result<bool> {
        let group = self.handle(name, self.keyspace.to_write(&self.db)?);
        let _turn = group.turn();
        group.attempt(|tx| {
            if group.find(tx)?.is_none() {
                return Ok(false);
            }
            let end = prefix_end(&group.prefix);
            for (key, _) in tx.range(group.keyspace, &group.prefix, end.as_deref(), usize::MAX)? {
                tx.delete(group.keyspace, &key);
            }
            Ok(true)
        })
    }

    fn handle(&self, name: &str, keyspace: Keyspace) -> ConsumerGroup {
        let prefix = prefix(self.store.name(), name);
        let turns = self.db.extension::<Turns>();
        ConsumerGroup { groups: self.clone(), keyspace, name: name.to_owned(), prefix, turns }
    }
}

impl ConsumerGroup {
    /// The name of the group.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the status of the group.
    ///
    /// Cost: proportional to the numbers of waiting, pending and parked events.
    ///
    /// # Errors
    /// [`GroupError::Unknown`]; corrupt data.
    pub fn status(&self) -> Result<GroupStatus> {
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

    /// Not before the newest commit: due times were set by the clock of an earlier leader.
    fn now(&self) -> i64 {
        self.groups.db.engine().now_micros()
    }

    fn attempt<R>(&self, work: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        self.groups.db.transact_with(Isolation::Serializable, Durability::Sync, ATTEMPTS, work)
    }

    fn unknown(&self) -> Error {
        let (store, name) = (self.groups.store.name().to_owned(), self.name.clone());
        GroupError::Unknown { store, name }.into()
    }

    fn decoded<T>(&self, decoded: Result<T, DecodeError>) -> Result<T> {
        decoded.map_err(|source| GroupError::Damaged { name: self.name.clone(), source }.into())
    }

    fn key(&self, kind: u8, position: Position) -> Vec<u8> {
        key(&self.prefix, kind, Some(position.0))
    }

    fn find(&self, tx: &mut Transaction) -> Result<Option<GroupRecord>> {
        let stored = tx.get(self.keyspace, &key(&self.prefix, GROUP, None))?;
        stored.map(|bytes| self.decoded(GroupRecord::decode(&bytes))).transpose()
    }

    fn get(&self, tx: &mut Transaction) -> Result<GroupRecord> {
        self.find(tx)?.ok_or_else(|| self.unknown())
    }

    /// Returns the group record if the group has ever handed out `lease`.
    fn holding(&self, tx: &mut Transaction, lease: u64) -> Result<GroupRecord> {
        let record = self.get(tx)?;
        if lease == 0 || lease >= record.next_lease {
            return Err(GroupError::UnknownLease { name: self.name.clone(), lease }.into());
        }
        Ok(record)
    }

    fn put(&self, tx: &mut Transaction, record: &GroupRecord) {
        tx.put(self.keyspace, &key(&self.prefix, GROUP, None), &record.encode());
    }

    fn look(&self, snapshot: &Snapshot) -> Result<GroupRecord> {
        let key = key(&self.prefix, GROUP, None);
        let stored = snapshot.get(self.keyspace, &key)?.ok_or_else(|| self.unknown())?;
        self.decoded(GroupRecord::decode(&stored))
    }

    /// Calls `each` with the entries of one kind, by position, until it returns false.
    fn visit(
        &self,
        snapshot: &Snapshot,
        kind: u8,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let before = key(&self.prefix, kind, None);
        let mut cursor = snapshot.cursor(self.keyspace);
        cursor.seek(&before)?;
        while cursor.valid() && cursor.key().starts_with(&before) && each(cursor.key(), cursor.value())? {
            cursor.next()?;
        }
        Ok(())
    }

    /// Returns the event at `position`.
    fn event(&self, snapshot: &Snapshot, position: Position) -> Result<Option<SequencedEvent>> {
        let options = ReadOptions::default().from(position).limit(1);
        let found = snapshot.events(&self.groups.store, &Query::all(), options)?.next().transpose()?;
        Ok(found.filter(|event| event.position == position))
    }

    fn replaced(&self) -> Error {
        let (store, name) = (self.groups.store.name().to_owned(), self.name.clone());
        GroupError::StoreReplaced { store, name }.into()
    }
}
