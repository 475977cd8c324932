//! The database handle, snapshots and the change feed.

mod cluster;
pub(crate) mod committed;
pub(crate) mod leading;
pub(crate) mod metrics;
pub(crate) mod observer;
pub(crate) mod options;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod system_keyspace;
pub(crate) mod transaction;
mod wait;

use core::time::Duration;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ropewalk_base::{Lsn, Seq};
use ropewalk_documents::{Collection, DOCUMENTS, Documents, DocumentsAt, DocumentsModel};
use ropewalk_engine::{
    self as engine, Backup, Durability, Engine, EngineReport, EngineStats, KEYSPACES, KV, KeyspaceOptions,
    KvBatch, KvWrite, ModelId, Role, Value,
};
use ropewalk_events::{AppendSection, EVENTS, EventReader, EventStore, EventsModel, Query, ReadOptions};
use ropewalk_series::{SERIES, SeriesAt, SeriesModel, SeriesStore};
use ropewalk_tables::{TABLES, Table, Tables, TablesAt, TablesModel};
use ropewalk_vfs::Env;

use crate::database::leading::Leading;
use crate::database::observer::Observer;
use crate::database::options::Options;
use crate::database::retry::Backoff;
use crate::database::transaction::{Committed, Transaction};
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;

/// Slot of the events model among the engine's models (slot 0 is the keyspaces).
const EVENTS_SLOT: usize = 1;
/// Name of the document database that [`Database::collection`] uses.
pub const DOCUMENT_DATABASE: &str = "default";

/// Slot of the series model.
const SERIES_SLOT: usize = 3;

/// Handle on an open database. Cheap to clone; dropping the last clone closes it.
#[derive(Clone)]
pub struct Database {
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<EventsModel>,
    pub(crate) tables: Tables,
    pub(crate) series: Arc<SeriesModel>,
    pub(crate) documents: Documents,
    pub(crate) observer: Option<Observer>,
    pub(crate) leading: Arc<Leading>,
    extensions: Arc<Companions>,
}

/// Extension state of the layers above: one value per type.
#[derive(Default)]
struct Companions(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Database {
    /// Opens or creates the database in directory `path`, with default options.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }

    /// Opens an in-memory database, which is dropped with its last clone.
    ///
    /// It runs the same code, on files held in memory.
    ///
    /// # Errors
    /// None in practice.
    pub fn in_memory() -> Result<Self> {
        Options::new().env(Env::memory()).open("/memory")
    }

    pub(crate) fn open_with(path: &Path, options: Options) -> Result<Self> {
        if options.must_exist {
            // A directory with only one of the two is a damaged database; opening it reports that.
            let exists =
                ["store", "log"].iter().any(|half| options.env.vfs.exists(&path.join(half)).unwrap_or(false));
            if !exists {
                let why = format!(
                    "there is no database in {}; create one with `init`, or check the path",
                    path.display()
                );
                return Err(Error::Invalid(why));
            }
        }
        cluster::check_alone(path, &options)?;
        let events = Arc::new(EventsModel::new(EVENTS_SLOT));
        let tables = Arc::new(TablesModel::default());
        let series = Arc::new(SeriesModel::new(SERIES_SLOT));
        let documents = Arc::new(DocumentsModel::default());
        let engine = Engine::open(
            &options.env,
            path,
            options.engine,
            vec![events.clone(), tables.clone(), series.clone(), documents.clone()],
        )?;
        let engine = Arc::new(engine);
        let tables = Tables::new(engine.clone(), tables);
        if engine.role() == Role::Alone {
            tables.recover()?;
        }
        let leading = Arc::new(Leading::of(&engine.role()));
        let documents = Documents::new(engine.clone(), documents);
        let (observer, extensions) = (options.observer, Arc::default());
        Ok(Self { engine, events, tables, series, documents, observer, leading, extensions })
    }

    /// Returns the extension value of type `T`, created on first use and shared by all clones.
    ///
    /// A layer above stores state per database in it, such as a cache. It is dropped with the database.
    pub fn extension<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut extensions = self.extensions.0.lock();
        let companion = extensions.entry(TypeId::of::<T>()).or_insert_with(|| Arc::<T>::default()).clone();
        // The entry of a type always holds a value of that type.
        companion.downcast().unwrap_or_default()
    }

    /// Returns the event store `name`, which its first append creates.
    ///
    /// Until then it reads as empty.
    ///
    /// # Errors
    /// The name is empty, longer than 255 bytes, or contains control characters.
    pub fn events(&self, name: &str) -> Result<EventStore> {
        Ok(EventStore::new(self.engine.clone(), self.events.clone(), name)?)
    }

    /// Returns the event store `name`, which must exist.
    ///
    /// # Errors
    /// [`crate::Class::NotFound`].
    pub fn existing_events(&self, name: &str) -> Result<EventStore> {
        let store = self.events(name)?;
        if store.id().is_none() {
            return Err(ropewalk_events::EventsError::UnknownStore { name: name.to_owned() }.into());
        }
        Ok(store)
    }

    /// Returns the names of all event stores, sorted.
    pub fn event_stores(&self) -> Vec<String> {
        self.events.stores_at(self.engine.seq()).into_iter().map(|(name, _)| name).collect()
    }

    /// Returns the names of event stores, sorted: the first `max` that come after `after` and that `is_wanted`
    /// accepts.
    pub fn event_stores_after(
        &self,
        after: Option<&str>,
        max: usize,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        self.events.names_at(self.engine.seq(), after, max, is_wanted)
    }

    /// The tables: their names, definitions and online index builds.
    ///
    /// Rows and definitions are written within transactions, see [`Transaction::tables`].
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Returns a prepared handle on the table `name`.
    ///
    /// # Errors
    /// [`crate::Class::NotFound`].
    pub fn table(&self, name: &str) -> Result<Table> {
        Ok(self.tables.table(name)?)
    }

    /// Returns the series store `name`, which its first append creates.
    ///
    /// Until then it reads as empty.
    ///
    /// # Errors
    /// The name is empty, longer than 255 bytes, or contains control characters.
    pub fn series(&self, name: &str) -> Result<SeriesStore> {
        Ok(SeriesStore::new(self.engine.clone(), self.series.clone(), name)?)
    }

    /// Returns the names of all series stores, sorted.
    pub fn series_stores(&self) -> Vec<String> {
        self.series.stores()
    }

    /// Enforces the retention and downsampling rules of all series stores in the background.
    ///
    /// The rules are those of [`SeriesStore::set_rules`]. Rounds repeat, `pause` apart, until the returned
    /// handle is dropped.
    pub fn enforce_series_rules(&self, pause: std::time::Duration) -> engine::PeriodicTask {
        self.series.enforce_in_background(&self.engine, pause)
    }

    /// The documents: databases, collections, online index builds and change streams.
    ///
    /// Writes within a transaction go through [`Transaction::documents`].
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Returns the collection `name` of the database [`DOCUMENT_DATABASE`].
    ///
    /// Its first document creates it; until then it reads as empty. For other databases see
    /// [`Documents::collection`].
    ///
    /// # Errors
    /// The name is not allowed for a collection.
    pub fn collection(&self, name: &str) -> Result<Collection> {
        Ok(self.documents.collection(DOCUMENT_DATABASE, name)?)
    }

    /// Returns the collection `name` of [`DOCUMENT_DATABASE`], with documents of type `T`.
    ///
    /// ```
    /// use ropewalk::documents::doc;
    /// use ropewalk::{Database, Error, Isolation};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Order {
    ///     #[serde(rename = "_id")]
    ///     id: String,
    ///     customer: String,
    ///     cents: i64,
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let db = Database::in_memory()?;
    /// let orders = db.collection_of::<Order>("orders")?;
    /// orders.insert(&Order { id: "o1".into(), customer: "ann".into(), cents: 250 })?;
    /// orders.update(doc! { "_id": "o1" }, doc! { "$inc": { "cents": 50 } })?;
    /// for order in orders.find(doc! { "customer": "ann", "cents": { "$gt": 100 } })? {
    ///     assert_eq!(order?.cents, 300);
    /// }
    ///
    /// db.transact(Isolation::Serializable, 10, |tx| {
    ///     let mut orders = orders.within(tx.documents());
    ///     if orders.get("o1")?.is_some_and(|order| order.cents > 200) {
    ///         orders.delete(doc! { "_id": "o1" })?;
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// assert!(orders.get("o1")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The name is not allowed for a collection.
    #[cfg(feature = "serde")]
    pub fn collection_of<T>(&self, name: &str) -> Result<ropewalk_documents::TypedCollection<T>> {
        Ok(self.collection(name)?.typed())
    }

    /// Opens or creates an ordered keyspace. Creating one is a durable commit.
    ///
    /// The names `events`, `tables`, `series` and `documents` are reserved for the models, also as a prefix
    /// before a dot.
    ///
    /// # Errors
    /// The name is reserved, or the commit that defines it fails.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let owned =
            |model: &str| name.strip_prefix(model).is_some_and(|n| n.is_empty() || n.starts_with('.'));
        if name.is_empty() || owned("events") || owned("tables") || owned("series") || owned("documents") {
            return Err(Error::Invalid(format!("keyspace name {name:?} is reserved")));
        }
        Ok(Keyspace(self.engine.keyspace(name, options)?))
    }

    /// Notices commits that write keys of a keyspace, for a cache of its contents.
    ///
    /// A cache takes a mark, reads, and reads again once the mark is no longer current.
    pub fn watch_keyspace(&self, keyspace: Keyspace) -> engine::KeyspaceWatch {
        self.engine.watch_keyspace(keyspace.0)
    }

    /// Forgets which numbers of sequences, tables and collections are reserved and not used.
    ///
    /// To be called before this process begins to write to a database that another one has written to
    /// meanwhile, such as a replica that becomes the writer. The unused numbers are lost.
    pub fn forget_reserved_numbers(&self) {
        self.tables.forget_reserved_numbers();
        self.documents.forget_reserved_numbers();
    }

    /// Begins a serializable transaction.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone(), engine::Isolation::Serializable)
    }

    /// Begins a transaction at the given isolation level.
    pub fn begin_with(&self, isolation: engine::Isolation) -> Transaction {
        Transaction::new(self.clone(), isolation)
    }

    /// Begins a transaction that reads `snapshot`, at every level of isolation.
    ///
    /// Its commit is validated since then. To only read, [`Isolation::Snapshot`](crate::Isolation::Snapshot)
    /// costs least.
    pub fn begin_at(&self, snapshot: &Snapshot, isolation: engine::Isolation) -> Transaction {
        Transaction::at(self.clone(), isolation, snapshot.inner.clone())
    }

    /// Runs `work` in a transaction, commits it, and retries after conflicts.
    ///
    /// [`Database::run`] is the same with default options, and returns the commit. Each retry runs `work` again
    /// on the newest state, at most `attempts` times in all. `work` must have no effects outside the
    /// transaction.
    ///
    /// `E` is the application's error type: an error of `work` is returned at once and nothing is written.
    /// Read the events that `work` decides on with [`Transaction::decision`], so that a retry reads them
    /// again.
    ///
    /// ```
    /// use ropewalk::{AppendOptions, Database, Error, Event, Isolation, Query};
    /// use ropewalk::events::exists;
    ///
    /// enum Refusal {
    ///     NameTaken,
    ///     Database(Error),
    /// }
    ///
    /// impl From<Error> for Refusal {
    ///     fn from(error: Error) -> Self {
    ///         Self::Database(error)
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Error> {
    /// let db = Database::in_memory()?;
    /// let users = db.events("users")?;
    /// let register = || {
    ///     db.transact(Isolation::Serializable, 10, |tx| {
    ///         if tx.decision(&users, &exists(Query::from_tags(["username:ann"])))? {
    ///             return Err(Refusal::NameTaken);
    ///         }
    ///         tx.append(&users, &[Event::new("Registered").tag("username:ann")], AppendOptions::default())?;
    ///         Ok(())
    ///     })
    /// };
    /// assert!(register().is_ok());
    /// assert!(matches!(register(), Err(Refusal::NameTaken)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of `work`; the last conflict; any other commit failure. If `E` is [`Error`], a conflict that
    /// `work` returns is retried, too.
    pub fn transact<R, E: From<Error> + 'static>(
        &self,
        isolation: engine::Isolation,
        attempts: usize,
        work: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transact_with(isolation, Durability::Sync, attempts, work)
    }

    /// Same as [`Database::transact`], with an explicit durability.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn transact_with<R, E: From<Error> + 'static>(
        &self,
        isolation: engine::Isolation,
        durability: Durability,
        attempts: usize,
        work: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transact_committed(isolation, durability, attempts, work).map(|(result, _)| result)
    }

    /// Same as [`Database::transact_with`], and returns the commit; `None` if `work` wrote nothing.
    ///
    /// # Errors
    /// As [`Database::transact`].
    pub fn transact_committed<R, E: From<Error> + 'static>(
        &self,
        isolation: engine::Isolation,
        durability: Durability,
        attempts: usize,
        mut work: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<(R, Option<Committed>), E> {
        self.transact_chosen(isolation, attempts, |tx| work(tx).map(|result| (result, durability)))
    }

    /// As [`Database::transact_committed`], with the durability that `work` returns.
    pub(crate) fn transact_chosen<R, E: From<Error> + 'static>(
        &self,
        isolation: engine::Isolation,
        attempts: usize,
        mut work: impl FnMut(&mut Transaction) -> Result<(R, Durability), E>,
    ) -> Result<(R, Option<Committed>), E> {
        let mut backoff = Backoff::new(self, attempts);
        loop {
            let mut transaction = self.begin_with(isolation);
            let number = transaction.number();
            match work(&mut transaction) {
                Ok((result, durability)) => match transaction.commit_with(durability) {
                    Ok(committed) => return Ok((result, committed)),
                    Err(error) if backoff.retries(number, &error) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(error) => {
                    drop(transaction);
                    let own = (&error as &dyn Any).downcast_ref::<Error>();
                    if !own.is_some_and(|own| backoff.retries(number, own)) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Writes one key as one commit.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn put(&self, keyspace: Keyspace, key: &[u8], value: &[u8], durability: Durability) -> Result<Seq> {
        let mut batch = KvBatch::new();
        batch.put(keyspace.0, key, value);
        Ok(self.engine.commit(vec![Box::new(batch)], durability)?.seq)
    }

    /// Submits a batch of blind writes as one commit and returns its handle at once.
    ///
    /// This is the bulk-load path: it reads nothing and does not wait for the disk.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn submit_puts<'a>(
        &self,
        keyspace: Keyspace,
        rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        durability: Durability,
    ) -> Result<engine::CommitHandle> {
        let mut batch = KvBatch::new();
        for (key, value) in rows {
            batch.put(keyspace.0, key, value);
        }
        Ok(self.engine.submit(vec![Box::new(batch)], durability)?)
    }

    /// Takes a snapshot of all models at the newest visible commit.
    ///
    /// The snapshot retains the versions that it reads until it is dropped.
    pub fn snapshot(&self) -> Snapshot {
        self.at(self.engine.snapshot())
    }

    /// Takes a snapshot of all models as of commit `seq`, if its state still exists.
    ///
    /// It exists while a snapshot or transaction of that commit is open, and otherwise for as long as
    /// everything written after it is unflushed.
    ///
    /// ```
    /// use ropewalk::{Database, Durability, Error};
    /// use ropewalk::engine::KeyspaceOptions;
    ///
    /// # fn main() -> Result<(), Error> {
    /// let db = Database::in_memory()?;
    /// let keys = db.keyspace("k", KeyspaceOptions::default())?;
    /// let first = db.put(keys, b"k", b"1", Durability::Sync)?;
    /// db.put(keys, b"k", b"2", Durability::Sync)?;
    /// let earlier = db.snapshot_at(first)?;
    /// assert_eq!(earlier.get(keys, b"k")?.as_deref(), Some(b"1".as_slice()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EngineError::Unreadable`](crate::engine::EngineError::Unreadable), with the commits that can be
    /// read.
    pub fn snapshot_at(&self, seq: Seq) -> Result<Snapshot> {
        Ok(self.at(self.engine.snapshot_at(seq)?))
    }

    pub(crate) fn at(&self, inner: engine::Snapshot) -> Snapshot {
        Snapshot { inner }
    }

    /// Returns the commits of all models from number `from` on, in order.
    ///
    /// A reader resumes by commit number.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn changes(&self, from: Seq) -> Result<ChangeFeed> {
        Ok(ChangeFeed { inner: self.engine.changes(from)?, events: self.events.clone() })
    }

    /// The number of the newest visible commit.
    pub fn seq(&self) -> Seq {
        self.engine.seq()
    }

    /// The failure that stopped writes, such as a full disk, or that the database was closed.
    ///
    /// Reads continue to work. Reopening recovers the durable state.
    pub fn stopped(&self) -> Option<Error> {
        self.engine.stopped().map(Error::from)
    }

    /// A future that resolves to the newest visible commit once it exceeds `seq`.
    ///
    /// It resolves to an error if the engine stops. It needs no thread and no polling.
    pub fn wait_visible_after(&self, seq: Seq) -> engine::WaitVisible {
        self.engine.wait_visible_after(seq)
    }

    /// A future that resolves to the failure of [`Database::stopped`] once there is one.
    ///
    /// It needs no thread and no polling, and commits do not wake it.
    pub fn until_stopped(&self) -> engine::EngineStopped {
        self.engine.until_stopped()
    }

    /// The headroom that the memory budget leaves for writes.
    pub fn write_capacity(&self) -> engine::WriteCapacity {
        self.engine.write_capacity()
    }

    /// Statistics of the engine.
    pub fn stats(&self) -> EngineStats {
        self.engine.stats()
    }

    /// As [`Database::stats`], with the first `limit` keyspaces whose names come after `after`, by name.
    pub fn stats_after(&self, after: Option<&str>, limit: usize) -> EngineStats {
        self.engine.stats_after(after, limit)
    }

    /// Reads all stored bytes and checks all checksums and invariants.
    ///
    /// # Errors
    /// The check itself could not run.
    pub fn verify(&self) -> Result<EngineReport> {
        Ok(self.engine.verify()?)
    }

    /// Copies the database to the directory `target`, which must not exist.
    ///
    /// The copy is one commit of all models and contains everything acknowledged before the call. Writers
    /// continue meanwhile. The copy is durable when this returns, and a database like any other.
    ///
    /// Cost: the log after the checkpoint is copied; [`Database::checkpoint`] beforehand makes it short.
    /// Sorted files are hard-linked if `target` is on the same file system, otherwise copied.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    /// use ropewalk::{Database, Event};
    ///
    /// let db = Database::open(path)?;
    /// db.events("orders")?.append(&[Event::new("Placed")], None)?;
    /// let backup = db.backup(&copy)?;
    /// assert_eq!(backup.seq, db.seq());
    ///
    /// let restored = Database::open(copy)?;
    /// assert_eq!(restored.event_stores(), ["orders"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Class::Invalid`] if `target` exists; [`crate::Class::Busy`] while another backup to it runs;
    /// I/O errors such as a full disk; corruption in the log. A backup that fails or is interrupted leaves no
    /// `target`.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<Backup> {
        Ok(self.engine.backup(target.as_ref())?)
    }

    /// Flushes the memtables and advances the recovery start point.
    ///
    /// # Errors
    /// The flush failed; nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.engine.checkpoint()?)
    }

    /// Checkpoints, then merges all data into one sorted level.
    ///
    /// # Errors
    /// The merge failed; nothing is lost.
    pub fn compact(&self) -> Result<()> {
        Ok(self.engine.compact()?)
    }

    /// The storage engine, for tools.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Syncs and stops the engine.
    ///
    /// Other clones get errors from then on. Reads of open snapshots still work.
    ///
    /// # Errors
    /// The last sync failed.
    pub fn close(self) -> Result<()> {
        Ok(self.engine.close()?)
    }
}

/// The database at one commit. It neither blocks writers nor is blocked by them.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) inner: engine::Snapshot,
}

impl Snapshot {
    /// The number of the last commit in this snapshot.
    pub fn seq(&self) -> Seq {
        self.inner.seq()
    }

    /// Returns the value of `key`, borrowed from the store.
    ///
    /// Cost: at most one block of one run is read, without a copy.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Value<'_>>> {
        Ok(self.inner.read().get(keyspace.0, key)?)
    }

    /// Returns a bidirectional cursor over the keyspace.
    pub fn cursor(&self, keyspace: Keyspace) -> engine::Cursor<'_> {
        self.inner.read().cursor(keyspace.0)
    }

    /// Releases the memory and files pinned by [`Snapshot::get`] and [`Snapshot::cursor`].
    ///
    /// The next such read pins the files that are current then and still reads the same commit. Use it for a
    /// long-lived snapshot that is idle between reads.
    pub fn refresh_sources(&mut self) {
        self.inner.refresh_sources();
    }

    /// The tables at this snapshot.
    pub fn tables(&self, database: &Database) -> TablesAt<'_> {
        database.tables.at(&self.inner)
    }

    /// The engine's snapshot, for prepared reads such as [`ropewalk_tables::PointGet`].
    pub fn engine(&self) -> &engine::Snapshot {
        &self.inner
    }

    /// The documents at this snapshot.
    pub fn documents(&self, database: &Database) -> DocumentsAt<'_> {
        database.documents.at(&self.inner)
    }

    /// A series store at this snapshot.
    pub fn series(&self, store: &SeriesStore) -> SeriesAt<'_> {
        store.at(&self.inner)
    }

    /// Returns the matching events of a store at this snapshot.
    ///
    /// # Errors
    /// The query is invalid, or stored data is corrupt.
    pub fn events(&self, store: &EventStore, query: &Query, options: ReadOptions) -> Result<EventReader> {
        Ok(store.read_at(self.inner.clone(), query, options)?)
    }
}

/// Reader of all commits in order, see [`Database::changes`].
pub struct ChangeFeed {
    inner: engine::ChangeFeed,
    events: Arc<EventsModel>,
}

/// One commit and everything it wrote.
pub struct Change<'a> {
    /// The commit number.
    pub seq: Seq,
    /// The byte address of the record in the log.
    pub lsn: Lsn,
    /// Commit time, microseconds since 1970 UTC.
    pub time_micros: i64,
    /// The parts that the commit wrote, in order.
    pub parts: Vec<ChangedPart<'a>>,
}

/// One model's part of a commit.
pub enum ChangedPart<'a> {
    /// Events appended to a store.
    Events {
        /// The store's name.
        store: String,
        /// Events, tracking, idempotency key.
        append: AppendSection<'a>,
    },
    /// Writes to ordered keyspaces.
    Keys(Vec<(Keyspace, KvWrite<'a>)>),
    /// The encoded log section of another model, see [`ChangedPart::model`].
    Other(ModelId, &'a [u8]),
}

impl ChangedPart<'_> {
    /// Name of the model, or `None` if this build does not know it.
    ///
    /// One of `events`, `keys`, `keyspaces` (the definition of one), `documents`, `time series` and `tables`.
    pub fn model(&self) -> Option<&'static str> {
        match self {
            Self::Events { .. } => Some("events"),
            Self::Keys(_) => Some("keys"),
            Self::Other(KEYSPACES, _) => Some("keyspaces"),
            Self::Other(DOCUMENTS, _) => Some("documents"),
            Self::Other(SERIES, _) => Some("time series"),
            Self::Other(TABLES, _) => Some("tables"),
            Self::Other(..) => None,
        }
    }
}

impl ChangeFeed {
    /// The number of the next commit. Store it to resume.
    pub fn next_seq(&self) -> Seq {
        self.inner.next_seq()
    }

    /// Returns the next commit, or `None` if none arrives within `timeout`.
    ///
    /// # Errors
    /// [`crate::Class::NotFound`] if the log no longer holds the commit; corrupt data.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Change<'_>>> {
        self.inner.wait(timeout);
        let Some(change) = self.inner.next()? else { return Ok(None) };
        let (seq, lsn) = (change.seq, change.lsn);
        let damaged = |source| engine::EngineError::Record { seq, lsn, source };
        let mut parts = Vec::new();
        for section in change.body.sections() {
            let (model, bytes) = section.map_err(damaged)?;
            parts.push(match model {
                EVENTS => {
                    let append = AppendSection::decode(bytes).map_err(damaged)?;
                    let store =
                        append.creates.map(str::to_owned).or_else(|| self.events.store_name(append.store));
                    ChangedPart::Events { store: store.unwrap_or_default(), append }
                }
                KV => {
                    let mut writes = Vec::new();
                    engine::decode_section(bytes, |keyspace, write| writes.push((Keyspace(keyspace), write)))
                        .map_err(damaged)?;
                    ChangedPart::Keys(writes)
                }
                other => ChangedPart::Other(other, bytes),
            });
        }
        Ok(Some(Change { seq, lsn, time_micros: change.body.time_micros, parts }))
    }
}
