//! The database handle, snapshots and the change feed.

use core::time::Duration;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use ropewalk_base::{Lsn, Seq};
use ropewalk_documents::{Collection, DOCUMENTS, Documents, DocumentsAt, DocumentsModel};
use ropewalk_engine::{
    self as engine, Backup, Durability, Engine, EngineReport, EngineStats, KV, KeyspaceOptions, KvBatch,
    KvWrite, ModelId, Value,
};
use ropewalk_events::{AppendSection, EVENTS, EventReader, EventStore, EventsModel, Query, ReadOptions};
use ropewalk_series::{SERIES, SeriesAt, SeriesModel, SeriesStore};
use ropewalk_tables::{TABLES, Table, Tables, TablesAt, TablesModel};
use ropewalk_vfs::Env;

use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::label_texts::LabelTexts;
use crate::options::Options;
use crate::retry::Backoff;
use crate::transaction::{Committed, Transaction};

/// Slot of the events model among the engine's models (slot 0 is the keyspaces).
const EVENTS_SLOT: usize = 1;
/// The database of [`Database::collection`].
pub const DOCUMENT_DATABASE: &str = "default";

/// Slot of the series model.
const SERIES_SLOT: usize = 3;

/// An open database. Cheap to clone; the last clone closes it.
#[derive(Clone)]
pub struct Database {
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<EventsModel>,
    pub(crate) tables: Tables,
    pub(crate) series: Arc<SeriesModel>,
    pub(crate) documents: Documents,
    label_texts: Arc<LabelTexts>,
    companions: Arc<Companions>,
}

/// What layers above keep with a database, one of each type.
#[derive(Default)]
struct Companions(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Database {
    /// Opens or creates the database in directory `path` with default options.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Options::new().open(path)
    }

    /// A database in memory: the same code on files that live in memory. Gone with the last clone.
    ///
    /// # Errors
    /// None in practice.
    pub fn in_memory() -> Result<Self, Error> {
        Options::new().env(Env::memory()).open("/memory")
    }

    pub(crate) fn open_with(path: &Path, options: Options) -> Result<Self, Error> {
        if options.must_exist {
            // One of them alone is a damaged database, as opening it says.
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
        tables.recover()?;
        let documents = Documents::new(engine.clone(), documents);
        Ok(Self {
            engine,
            events,
            tables,
            series,
            documents,
            label_texts: Arc::default(),
            companions: Arc::default(),
        })
    }

    /// The `T` of this database, made when first asked for: what a layer above keeps beside it for all its users, such as a
    /// cache. It goes with the database.
    pub fn companion<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut companions = self.companions.0.lock();
        let companion = companions.entry(TypeId::of::<T>()).or_insert_with(|| Arc::<T>::default()).clone();
        // The entry of a type is of that type.
        companion.downcast().unwrap_or_default()
    }

    /// The event store `name`. It comes into being with its first append; until then it reads as empty.
    ///
    /// # Errors
    /// A name that is empty, over 255 bytes or holds control characters.
    pub fn events(&self, name: &str) -> Result<EventStore, Error> {
        Ok(EventStore::new(self.engine.clone(), self.events.clone(), name)?)
    }

    /// The event store `name`, which must exist.
    ///
    /// # Errors
    /// [`crate::Class::NotFound`].
    pub fn existing_events(&self, name: &str) -> Result<EventStore, Error> {
        let store = self.events(name)?;
        if store.id().is_none() {
            return Err(ropewalk_events::EventsError::UnknownStore { name: name.to_owned() }.into());
        }
        Ok(store)
    }

    /// Names of all event stores, sorted.
    pub fn event_stores(&self) -> Vec<String> {
        self.events.stores_at(self.engine.seq()).into_iter().map(|(name, _)| name).collect()
    }

    /// The tables: names, definitions, indexes built beside running writers. Rows and definitions are written inside
    /// transactions, see [`Transaction::tables`].
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// A prepared handle on the table `name`.
    ///
    /// # Errors
    /// [`crate::Class::NotFound`].
    pub fn table(&self, name: &str) -> Result<Table, Error> {
        Ok(self.tables.table(name)?)
    }

    /// The series store `name`. It comes into being with its first append; until then it reads as empty.
    ///
    /// # Errors
    /// A name that is empty, over 255 bytes or holds control characters.
    pub fn series(&self, name: &str) -> Result<SeriesStore, Error> {
        Ok(SeriesStore::new(self.engine.clone(), self.series.clone(), name)?)
    }

    /// Names of all series stores, sorted.
    pub fn series_stores(&self) -> Vec<String> {
        self.series.stores()
    }

    /// Carries out what the series stores' rules say of retention and downsampling ([`SeriesStore::set_rules`]), in the
    /// background, again and again with `pause` between, for as long as the answer lives.
    pub fn enforce_series_rules(&self, pause: std::time::Duration) -> engine::Repeated {
        self.series.enforce_in_background(&self.engine, pause)
    }

    /// The documents: databases, collections, indexes built beside running writers, change streams. What is written inside a
    /// transaction is written through [`Transaction::documents`].
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// The collection `name` of the database [`DOCUMENT_DATABASE`]. It comes into being with its first document; until then
    /// it reads as empty. Other databases: [`Documents::collection`].
    ///
    /// # Errors
    /// A name that no collection may have.
    pub fn collection(&self, name: &str) -> Result<Collection, Error> {
        Ok(self.documents.collection(DOCUMENT_DATABASE, name)?)
    }

    /// The collection `name` of the database [`DOCUMENT_DATABASE`], with documents of type `T`.
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
    /// A name that no collection may have.
    #[cfg(feature = "serde")]
    pub fn collection_of<T>(&self, name: &str) -> Result<ropewalk_documents::TypedCollection<T>, Error> {
        Ok(self.collection(name)?.typed())
    }

    /// Finds or creates an ordered keyspace. The names `events`, `tables`, `series` and `documents`, and names that begin with one of
    /// them and a dot, belong to the models.
    ///
    /// # Errors
    /// A reserved name; the manifest cannot be written.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace, Error> {
        let owned =
            |model: &str| name.strip_prefix(model).is_some_and(|n| n.is_empty() || n.starts_with('.'));
        if name.is_empty() || owned("events") || owned("tables") || owned("series") || owned("documents") {
            return Err(Error::Invalid(format!("keyspace name {name:?} is reserved")));
        }
        Ok(Keyspace(self.engine.keyspace(name, options)?))
    }

    /// Begins a serializable transaction.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone(), engine::Isolation::Serializable)
    }

    /// Begins a transaction with another isolation.
    pub fn begin_with(&self, isolation: engine::Isolation) -> Transaction {
        Transaction::new(self.clone(), isolation)
    }

    /// Runs `work` in a transaction and commits it; after a conflict runs it again on the newest state, at most `attempts`
    /// times. `work` must have no effect but on the transaction.
    ///
    /// `E` is the application's own error: a refusal of `work` is returned at once and nothing is written. Events that `work`
    /// decides on are read by [`Transaction::decision`], so that a retry reads them again.
    ///
    /// ```
    /// use ropewalk::{AppendOptions, Database, Error, Event, Isolation, Query, any};
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
    ///         if tx.decision(&users, &any(Query::from_tags(["username:ann"])))? {
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
    /// That of `work`; the last conflict; other failures of the commit. Where `E` is [`Error`], a conflict that `work`
    /// returns is retried, too.
    pub fn transact<R, E: From<Error> + 'static>(
        &self,
        isolation: engine::Isolation,
        attempts: usize,
        work: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transact_with(isolation, Durability::Sync, attempts, work)
    }

    /// As [`Database::transact`], as durable as asked.
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

    /// As [`Database::transact_with`], with the commit; `None` when `work` wrote nothing.
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
        let mut backoff = Backoff::new(self, attempts);
        loop {
            let mut transaction = self.begin_with(isolation);
            match work(&mut transaction) {
                Ok(result) => match transaction.commit_with(durability) {
                    Ok(committed) => return Ok((result, committed)),
                    Err(error) if backoff.retries(&error) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(error) => {
                    let own = (&error as &dyn Any).downcast_ref::<Error>();
                    if !own.is_some_and(|own| backoff.retries(own)) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Writes one key, durable when it returns.
    ///
    /// # Errors
    /// The engine's.
    pub fn put(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        durability: Durability,
    ) -> Result<Seq, Error> {
        let mut batch = KvBatch::new();
        batch.put(keyspace.0, key, value);
        Ok(self.engine.commit(vec![Box::new(batch)], durability)?.seq)
    }

    /// Writes a batch of keys and values as one commit, without reading: the bulk path. Returns at once with a handle.
    ///
    /// # Errors
    /// The engine's.
    pub fn submit_puts<'a>(
        &self,
        keyspace: Keyspace,
        rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        durability: Durability,
    ) -> Result<engine::CommitHandle, Error> {
        let mut batch = KvBatch::new();
        for (key, value) in rows {
            batch.put(keyspace.0, key, value);
        }
        Ok(self.engine.submit(vec![Box::new(batch)], durability)?)
    }

    /// Everything as of now, for as long as the snapshot lives.
    pub fn snapshot(&self) -> Snapshot {
        self.at(self.engine.snapshot())
    }

    pub(crate) fn at(&self, inner: engine::Snapshot) -> Snapshot {
        Snapshot { inner, label_texts: self.label_texts.clone() }
    }

    /// Every commit from `from` on, in order, whatever model it wrote; resumable by number.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn changes(&self, from: Seq) -> Result<ChangeFeed, Error> {
        Ok(ChangeFeed { inner: self.engine.changes(from)?, events: self.events.clone() })
    }

    /// The newest visible commit.
    pub fn seq(&self) -> Seq {
        self.engine.seq()
    }

    /// The failure after which nothing is written any more, such as a full disk under the log, or that the database was closed.
    /// Reads go on; opening again goes on from what is durable.
    pub fn stopped(&self) -> Option<Error> {
        self.engine.stopped().map(Error::from)
    }

    /// A future for the newest visible commit once that lies beyond `seq`; resolves to the failure if the engine stops.
    /// Needs no thread and no polling.
    pub fn visible_beyond(&self, seq: Seq) -> engine::VisibleBeyond {
        self.engine.visible_beyond(seq)
    }

    /// A future for what [`Database::stopped`] will answer. Needs no thread and no polling, and no commit wakes it.
    pub fn until_stopped(&self) -> engine::UntilStopped {
        self.engine.until_stopped()
    }

    /// How much room the memory budget leaves for writes.
    pub fn room(&self) -> engine::Room {
        self.engine.room()
    }

    /// What the engine does and holds.
    pub fn stats(&self) -> EngineStats {
        self.engine.stats()
    }

    /// Reads every byte and checks every checksum and invariant.
    ///
    /// # Errors
    /// The check itself could not run.
    pub fn verify(&self) -> Result<EngineReport, Error> {
        Ok(self.engine.verify()?)
    }

    /// Copies the database to the directory `target`, which must not exist: everything acknowledged before the call, of all
    /// models, as of one commit. Writers go on meanwhile. The copy is durable when this returns, and a database like any other.
    ///
    /// Cost: the log behind the checkpoint is read and written, which [`Database::checkpoint`] makes short; sorted files get a
    /// second name where `target` is on the same file system, else they are read and written.
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
    /// [`crate::Class::Invalid`] when there is something at `target`; [`crate::Class::Busy`] while another backup to it is
    /// made; I/O, among them a full disk; damage in the log. A backup that fails or is interrupted leaves no `target`.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<Backup, Error> {
        Ok(self.engine.backup(target.as_ref())?)
    }

    /// Writes memtables out and moves the point recovery starts from.
    ///
    /// # Errors
    /// The flush failed; nothing is lost.
    pub fn checkpoint(&self) -> Result<(), Error> {
        Ok(self.engine.checkpoint()?)
    }

    /// Checkpoints and merges everything down to one sorted level.
    ///
    /// # Errors
    /// The merge failed; nothing is lost.
    pub fn compact(&self) -> Result<(), Error> {
        Ok(self.engine.compact()?)
    }

    /// The engine underneath, for tools.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Syncs and stops. Other clones get errors from then on; reads of open snapshots still work.
    ///
    /// # Errors
    /// The last sync failed.
    pub fn close(self) -> Result<(), Error> {
        Ok(self.engine.close()?)
    }
}

/// The database as of one commit. Never blocks a writer and is never blocked by one.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) inner: engine::Snapshot,
    pub(crate) label_texts: Arc<LabelTexts>,
}

impl Snapshot {
    /// The last commit it sees.
    pub fn seq(&self) -> Seq {
        self.inner.seq()
    }

    /// The value of `key`, read in place. Cost: at most one block of one run, without a copy.
    ///
    /// # Errors
    /// Damage.
    pub fn get(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<Value<'_>>, Error> {
        Ok(self.inner.read().get(keyspace.0, key)?)
    }

    /// A cursor over the keyspace, in both directions.
    pub fn cursor(&self, keyspace: Keyspace) -> engine::Cursor<'_> {
        self.inner.read().cursor(keyspace.0)
    }

    /// Releases the memory and files that [`Snapshot::get`] and [`Snapshot::cursor`] have read in place; the next such read
    /// holds those of its moment, at the same commit. For a snapshot that lives long and is idle between reads.
    pub fn repin(&mut self) {
        self.inner.repin();
    }

    /// The tables as of this snapshot.
    pub fn tables(&self, database: &Database) -> TablesAt<'_> {
        database.tables.at(&self.inner)
    }

    /// The engine's snapshot, for prepared reads such as [`ropewalk_tables::PointGet`].
    pub fn engine(&self) -> &engine::Snapshot {
        &self.inner
    }

    /// The documents as of this snapshot.
    pub fn documents(&self, database: &Database) -> DocumentsAt<'_> {
        database.documents.at(&self.inner)
    }

    /// A series store as of this snapshot.
    pub fn series(&self, store: &SeriesStore) -> SeriesAt<'_> {
        store.at(&self.inner)
    }

    /// Matching events of a store as of this snapshot.
    ///
    /// # Errors
    /// An invalid query; damage.
    pub fn events(
        &self,
        store: &EventStore,
        query: &Query,
        options: ReadOptions,
    ) -> Result<EventReader, Error> {
        Ok(store.read_at(self.inner.clone(), query, options)?)
    }
}

/// Commits in order. See [`Database::changes`].
pub struct ChangeFeed {
    inner: engine::ChangeFeed,
    events: Arc<EventsModel>,
}

/// One commit and everything it wrote.
pub struct Change<'a> {
    /// Its number.
    pub seq: Seq,
    /// Its address in the log.
    pub lsn: Lsn,
    /// Its time, microseconds since 1970 UTC.
    pub time_micros: i64,
    /// What it wrote, in order.
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
    /// Bytes of another model, as the log keeps them. See [`ChangedPart::model`].
    Other(ModelId, &'a [u8]),
}

impl ChangedPart<'_> {
    /// Whose part it is: `events`, `keys`, `documents`, `time series`, `tables`; `None` for a model that this build does not know.
    pub fn model(&self) -> Option<&'static str> {
        match self {
            Self::Events { .. } => Some("events"),
            Self::Keys(_) => Some("keys"),
            Self::Other(DOCUMENTS, _) => Some("documents"),
            Self::Other(SERIES, _) => Some("time series"),
            Self::Other(TABLES, _) => Some("tables"),
            Self::Other(..) => None,
        }
    }
}

impl ChangeFeed {
    /// The number of the commit that comes next; keep it to resume.
    pub fn next_seq(&self) -> Seq {
        self.inner.next_seq()
    }

    /// The next commit, waiting at most `timeout`; `None` when none came.
    ///
    /// # Errors
    /// [`crate::Class::NotFound`] when the log no longer holds it; damage.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Change<'_>>, Error> {
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
