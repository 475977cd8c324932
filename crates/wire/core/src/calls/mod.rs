//! The operations that protocols offer: each checks the caller's right and the limits, then executes.

pub(crate) mod backups;
pub(crate) mod blocking;
pub(crate) mod groups;
pub(crate) mod processor;
pub(crate) mod reading;

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ropewalk::documents::lang::SharedMemory;
use ropewalk::engine::EngineStats;
use ropewalk::events::{Appended, EventsError, QueryItem, ReadOptions, SequencedEvent};
use ropewalk::hooks::WriteCapacity;
use ropewalk::{AppendCondition, AppendOptions, Database, Event, EventStore, Position, Query, Seq};
use ropewalk_auth::{Access, Caller, Needs, Right};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::calls::backups::Turn;
use crate::calls::blocking::{committed, run_unpinned};
use crate::calls::reading::{INLINE, Reading, off_thread};
use crate::cluster::{Cluster, gauges};
use crate::error::{Code, Result, WRITES_NOTHING, WireError};
use crate::live::follow::Following;
use crate::live::hub::Hub;
use crate::metrics::Metrics;
use crate::request::limits::{Limits, ServiceSettings};
use crate::request::memory::RequestMemory;
use crate::request::page::Page;
use crate::request::stop::Stop;

/// An event store that a request reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedStore<'a> {
    /// Its name.
    pub name: &'a str,
    /// A store that does not exist is [`Code::NotFound`]. Otherwise it reads as empty.
    pub must_exist: bool,
}

impl<'a> From<&'a str> for AskedStore<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, must_exist: true }
    }
}

impl<'a> From<&'a String> for AskedStore<'a> {
    fn from(name: &'a String) -> Self {
        name.as_str().into()
    }
}

/// The database as protocols use it. Cheap to clone.
#[derive(Clone)]
pub struct Service(Arc<Shared>);

struct Shared {
    db: Database,
    cluster: OnceLock<Arc<dyn Cluster>>,
    access: Access,
    metrics: Arc<Metrics>,
    stop: Stop,
    limits: Limits,
    request_memory: RequestMemory,
    answer_memory: RequestMemory,
    commands: Arc<SharedMemory>,
    default_store: String,
    backups: Option<PathBuf>,
    backup_turn: Turn,
    reads: Arc<Semaphore>,
    long_reads: Arc<Semaphore>,
    statements: Semaphore,
    subscriptions: Arc<Semaphore>,
    hub: Hub,
}

/// An event store as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// Its name.
    pub name: String,
    /// Its last position, which is also the number of its events.
    pub head: Option<Position>,
}

/// Approximate bytes of the largest HTTP response that is built completely.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Memory of all document commands and of the sorted results of their cursors.
const COMMANDS_BYTES_MAX: u64 = 1 << 30;
/// Types and tags of one query that are looked up on the caller's thread; each costs about a microsecond.
const INLINE_TERMS_MAX: usize = 500;
/// Positions that an intersection without a match may scan on the caller's thread: at worst about a
/// millisecond.
const INLINE_POSITIONS_MAX: u64 = 200_000;
/// How long an append waits for a flush before it fails with a suggested pause.
const CAPACITY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Interval of its checks.
const CAPACITY_POLL: Duration = Duration::from_millis(10);

/// Permit of an unfinished append.
pub struct InFlight<'a> {
    metrics: &'a Metrics,
    bytes: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.appends_in_flight.fetch_sub(1, Relaxed);
        self.metrics.append_bytes_in_flight.fetch_sub(self.bytes, Relaxed);
    }
}

impl Service {
    /// Creates the service of `db`.
    ///
    /// # Errors
    /// The stored users cannot be read; the name of the default store is invalid.
    pub fn new(db: Database, settings: ServiceSettings) -> Result<Self> {
        let ServiceSettings { limits, insecure, default_store, backups } = settings;
        // Also checks the name. A follower leaves the store to its leader.
        let store = db.events(&default_store)?;
        if db.leads() {
            store.create()?;
            // Otherwise the first use of an idempotency key would define the keyspace by a commit, possibly between a
            // request and the commit that its precondition names as the newest.
            drop(db.idempotency_records()?);
        }
        let access = Access::open(db.clone(), insecure)?;
        let metrics = Arc::new(Metrics::new(access.logins().clone()));
        Ok(Self(Arc::new(Shared {
            access,
            cluster: OnceLock::new(),
            metrics,
            stop: Stop::new(),
            reads: Arc::new(Semaphore::new(limits.reads.min(Semaphore::MAX_PERMITS))),
            long_reads: Arc::new(Semaphore::new(limits.long_reads.clamp(1, Semaphore::MAX_PERMITS))),
            statements: Semaphore::new(limits.long_reads.clamp(1, Semaphore::MAX_PERMITS)),
            subscriptions: Arc::new(Semaphore::new(limits.subscriptions.min(Semaphore::MAX_PERMITS))),
            hub: Hub::default(),
            answer_memory: RequestMemory::new(limits.answer_memory, ANSWER_BYTES_MAX / 2),
            request_memory: RequestMemory::new(limits.request_memory, limits.request_bytes),
            commands: SharedMemory::new(COMMANDS_BYTES_MAX),
            limits,
            default_store,
            backups,
            backup_turn: Turn::default(),
            db,
        })))
    }

    /// Memory for responses that are built completely.
    pub fn answer_memory(&self) -> &RequestMemory {
        &self.0.answer_memory
    }

    /// Memory that document commands of every protocol share.
    pub fn commands(&self) -> &Arc<SharedMemory> {
        &self.0.commands
    }

    /// The database underneath.
    pub fn database(&self) -> &Database {
        &self.0.db
    }

    /// Users and tokens.
    pub fn access(&self) -> &Access {
        &self.0.access
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Whether requests that write can succeed.
    ///
    /// # Errors
    /// The server is shutting down, or the database rejects writes until it is opened again.
    pub fn readiness(&self) -> Result<()> {
        if self.stop().stopping() {
            return Err(WireError::stopping());
        }
        if self.database().stopped().is_some() {
            return Err(WireError::new(Code::Internal, WRITES_NOTHING));
        }
        self.cluster().map_or(Ok(()), |cluster| cluster.readiness())
    }

    /// Makes the service part of a cluster. To be called once, before it serves.
    pub fn join(&self, cluster: Arc<dyn Cluster>) {
        let joined = self.0.cluster.set(cluster.clone());
        debug_assert!(joined.is_ok(), "a service joins one cluster");
        self.0.metrics.add_source(move |_| gauges(&cluster.status()));
    }

    /// The cluster; `None` when the node is alone.
    pub fn cluster(&self) -> Option<&Arc<dyn Cluster>> {
        self.0.cluster.get()
    }

    /// Waits until this node may write; false if the server or the database stops before. At once when it is alone.
    pub async fn until_leading(&self) -> bool {
        tokio::select! {
            biased;
            begun = self.0.db.until_leading() => begun.is_ok(),
            () = self.0.stop.wait() => false,
        }
    }

    /// Creates what a new leader lacks: the default store.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn begin_leading(&self) -> Result<()> {
        self.0.db.events(&self.0.default_store)?.create()?;
        Ok(())
    }

    /// Waits until commit `seq` is visible here.
    ///
    /// # Errors
    /// [`Code::Timeout`] after the time of a request; [`Code::Stopping`]; the database has stopped.
    pub async fn wait_for_commit(&self, seq: Seq) -> Result<()> {
        let (here, time) = (self.0.db.seq(), self.0.limits.request_time);
        if here >= seq {
            return Ok(());
        }
        tokio::select! {
            seen = self.0.db.wait_visible_after(Seq(seq.0.saturating_sub(1))) => Ok(seen.map(drop)?),
            () = tokio::time::sleep(time) => {
                let what = format!("commit {seq} did not arrive at this node within {time:?}; it had {here} before");
                Err(WireError::new(Code::Timeout, what))
            }
            () = self.0.stop.wait() => Err(WireError::stopping()),
        }
    }

    /// Waits for the proof that what is read next contains every acknowledged commit. At once when the node is alone.
    ///
    /// # Errors
    /// [`Code::NotLeader`]: the leader can prove it; [`Code::Timeout`].
    pub async fn read_barrier(&self) -> Result<()> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        run_unpinned(|| cluster.barrier(self.0.limits.request_time))
    }

    /// The error of a write on a node that follows.
    pub fn not_leader(&self) -> WireError {
        self.0.db.not_leader().into()
    }

    /// The shutdown signal.
    pub fn stop(&self) -> &Stop {
        &self.0.stop
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// Memory for requests that are being received.
    pub fn request_memory(&self) -> &RequestMemory {
        &self.0.request_memory
    }

    /// The store that protocols without store names use.
    pub fn default_store(&self) -> &str {
        &self.0.default_store
    }

    pub(crate) fn long_reads(&self) -> &Semaphore {
        &self.0.long_reads
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    pub(crate) fn backups(&self) -> Option<&Path> {
        self.0.backups.as_deref()
    }

    pub(crate) fn backup_turn(&self) -> &Turn {
        &self.0.backup_turn
    }

    pub(crate) fn begin(&self, caller: &Caller, right: Right, store: Option<&str>) -> Result<()> {
        if self.0.stop.stopping() {
            return Err(WireError::stopping());
        }
        Ok(caller.check(right, store)?)
    }

    pub(crate) fn asked(&self, caller: &Caller, right: Right, store: AskedStore<'_>) -> Result<EventStore> {
        let AskedStore { name, must_exist } = store;
        self.begin(caller, right, Some(name))?;
        Ok(if must_exist { self.0.db.existing_events(name)? } else { self.0.db.events(name)? })
    }

    fn enter_append(&self, bytes: usize) -> Result<InFlight<'_>> {
        let (limits, metrics) = (&self.0.limits, &*self.0.metrics);
        let count = metrics.appends_in_flight.fetch_add(1, Relaxed);
        let before = metrics.append_bytes_in_flight.fetch_add(bytes as u64, Relaxed);
        let entered = InFlight { metrics, bytes: bytes as u64 };
        // An append larger than the limit may run alone.
        let full = before > 0 && before + bytes as u64 > limits.append_bytes_in_flight as u64;
        if count >= limits.appends_in_flight as u64 || full {
            return Err(WireError::exhausted("too many appends are in progress"));
        }
        Ok(entered)
    }

    /// Appends `events` atomically; returns when they have the requested durability. The first append creates
    /// its store.
    ///
    /// # Errors
    /// [`crate::Code::ConditionFailed`] with the conflict, and the other codes of appends;
    /// [`crate::Code::TooLarge`]; [`crate::Code::ResourceExhausted`] when there are too many unfinished
    /// appends.
    pub async fn append(
        &self,
        caller: &Caller,
        store: &str,
        events: &[Event],
        options: AppendOptions,
    ) -> Result<Appended> {
        self.begin(caller, Right::Append, Some(store))?;
        let limits = &self.0.limits;
        if events.len() > limits.append_events {
            return Err(WireError::too_large("events in one append", events.len(), limits.append_events));
        }
        let bytes: usize = events.iter().map(event_bytes).sum();
        if bytes > limits.request_bytes {
            return Err(WireError::too_large("bytes in one append", bytes, limits.request_bytes));
        }
        let _in_flight = self.enter_append(bytes)?;
        self.wait_for_write_capacity().await?;
        let store = self.0.db.events(store)?;
        let pending = if self.may_be_long(&store, &options.conditions)? {
            off_thread(&self.0.long_reads, || store.try_submit(events, options)).await?
        } else {
            store.try_submit(events, options)?
        };
        let appended = committed(pending).await?;
        self.0.metrics.events_appended.fetch_add(events.len() as u64, Relaxed);
        Ok(appended)
    }

    /// True if a check of the conditions may take long: then the append is blocking work.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn may_be_long(&self, store: &EventStore, conditions: &[AppendCondition]) -> Result<bool> {
        let mut long = false;
        for condition in conditions {
            long |= may_be_long(store, &condition.fail_if_events_match, condition.after)?;
        }
        Ok(long)
    }

    /// Admits a write of about `bytes` to `store`: checks the caller's right, the limit of unfinished writes,
    /// and memory. For protocols whose models have no call here; hold the permit until the write is
    /// acknowledged.
    ///
    /// # Errors
    /// [`crate::Code::PermissionDenied`]; [`crate::Code::ResourceExhausted`]; [`crate::Code::Stopping`].
    pub async fn admit(&self, caller: &Caller, store: &str, bytes: usize) -> Result<InFlight<'_>> {
        self.begin(caller, Right::Append, Some(store))?;
        self.admit_write(bytes).await
    }

    /// As [`Service::admit`], for a write to several stores whose rights the caller of this function checks.
    ///
    /// # Errors
    /// [`crate::Code::ResourceExhausted`]; [`crate::Code::Stopping`].
    pub async fn admit_write(&self, bytes: usize) -> Result<InFlight<'_>> {
        if self.0.stop.stopping() {
            return Err(WireError::stopping());
        }
        let in_flight = self.enter_append(bytes)?;
        self.wait_for_write_capacity().await?;
        Ok(in_flight)
    }

    /// Rejects a caller without the right on `store`, and every call once the server stops.
    ///
    /// # Errors
    /// [`crate::Code::PermissionDenied`]; [`crate::Code::Stopping`].
    pub fn check(&self, caller: &Caller, right: Right, store: &str) -> Result<()> {
        self.begin(caller, right, Some(store))
    }

    /// Rejects a caller without the rights of an operation, and operations on single stores once the server
    /// stops. `store`: its name, where the object is a single store.
    ///
    /// # Errors
    /// [`crate::Code::PermissionDenied`]; [`crate::Code::Stopping`].
    pub fn authorize(&self, caller: &Caller, needs: Needs, store: Option<&str>) -> Result<()> {
        if self.0.stop.stopping() && needs.resource.is_store() {
            return Err(WireError::stopping());
        }
        Ok(needs.check(caller, store)?)
    }

    /// Admits a read of `store`, for models that have no call here; hold the permit until the read is
    /// complete.
    ///
    /// # Errors
    /// [`crate::Code::PermissionDenied`]; [`crate::Code::ResourceExhausted`]; [`crate::Code::Stopping`].
    pub fn admit_read(&self, caller: &Caller, store: &str) -> Result<OwnedSemaphorePermit> {
        self.begin(caller, Right::Read, Some(store))?;
        let permit = self.0.reads.clone().try_acquire_owned();
        permit.map_err(|_| WireError::exhausted("too many reads are open"))
    }

    /// Admits a live stream; the right to it was already checked. Hold the permit as long as it lives.
    ///
    /// # Errors
    /// [`crate::Code::ResourceExhausted`].
    pub fn admit_stream(&self) -> Result<OwnedSemaphorePermit> {
        let permit = self.0.subscriptions.clone().try_acquire_owned();
        permit.map_err(|_| WireError::exhausted("too many subscriptions are open"))
    }

    /// Runs `work`, which may take long, as blocking work, a bounded number at once.
    pub async fn run_blocking_limited<R>(&self, work: impl FnOnce() -> R) -> R {
        off_thread(&self.0.long_reads, work).await
    }

    /// Runs a transaction with SQL statements as blocking work. They may wait for locks, so they take no turn
    /// of other requests.
    pub async fn in_statement<R>(&self, work: impl FnOnce() -> R) -> R {
        off_thread(&self.0.statements, work).await
    }

    /// Counts events that were appended without [`Service::append`].
    pub fn note_appended(&self, events: u64) {
        self.0.metrics.events_appended.fetch_add(events, Relaxed);
    }

    /// Waits while the memory budget is tight; the engine's own wait would block an async thread.
    ///
    /// # Errors
    /// [`crate::Code::ResourceExhausted`] when it stays spent.
    pub async fn wait_for_write_capacity(&self) -> Result<()> {
        let until = Instant::now() + CAPACITY_WAIT_MAX;
        loop {
            match self.0.db.write_capacity() {
                WriteCapacity::Free => return Ok(()),
                WriteCapacity::Tight(pause) => {
                    tokio::time::sleep(pause).await;
                    return Ok(());
                }
                WriteCapacity::Spent if Instant::now() >= until => {
                    return Err(WireError::exhausted(format!(
                        "the memory budget is still spent after {CAPACITY_WAIT_MAX:?}: flushing does not keep up"
                    )));
                }
                WriteCapacity::Spent => tokio::time::sleep(CAPACITY_POLL).await,
            }
        }
    }

    /// Opens a read of the matching events at the current snapshot.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`]; an invalid query; [`crate::Code::ResourceExhausted`].
    pub fn read<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
        query: Query,
        options: ReadOptions,
    ) -> Result<Reading> {
        let store = self.asked(caller, Right::Read, store.into())?;
        let permit = self.0.reads.clone().try_acquire_owned();
        let permit = permit.map_err(|_| WireError::exhausted("too many reads are open"))?;
        let reader = store.read(&query, options)?;
        self.0.metrics.reads.fetch_add(1, Relaxed);
        let (turns, metrics) = (self.0.long_reads.clone(), self.0.metrics.clone());
        Ok(Reading { reader, turns, metrics, long: query.has_prefixes(), _permit: permit })
    }

    /// The newest matching event.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`]; an invalid query.
    pub async fn last<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
        query: &Query,
    ) -> Result<Option<SequencedEvent>> {
        let store = self.asked(caller, Right::Read, store.into())?;
        if may_be_long(&store, query, None)? {
            return Ok(off_thread(&self.0.long_reads, || store.read_last(query)).await?);
        }
        Ok(store.read_last(query)?)
    }

    /// Number of matching events.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`]; an invalid query.
    pub async fn count<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
        query: &Query,
    ) -> Result<u64> {
        let store = self.asked(caller, Right::Read, store.into())?;
        let head = store.head()?.unwrap_or(Position::ZERO);
        if query.is_all() {
            return Ok(head.0);
        }
        let until = Instant::now() + INLINE;
        let mut count = Count { at: Position::ZERO, found: 0, ended: false };
        if !query.has_prefixes() {
            count.go_on(&store, query, head, Some(until))?;
        }
        if !count.ended {
            off_thread(&self.0.long_reads, || count.go_on(&store, query, head, None)).await?;
        }
        Ok(count.found)
    }

    /// True when an event after `after` matches.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`]; an invalid query.
    pub async fn exists<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
        query: &Query,
        after: Option<Position>,
    ) -> Result<bool> {
        let store = self.asked(caller, Right::Read, store.into())?;
        if may_be_long(&store, query, after)? {
            return Ok(off_thread(&self.0.long_reads, || store.exists(query, after)).await?);
        }
        Ok(store.exists(query, after)?)
    }

    /// The last position; `None` for an empty store.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`].
    pub async fn head<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
    ) -> Result<Option<Position>> {
        Ok(self.asked(caller, Right::Read, store.into())?.head()?)
    }

    /// Highest upstream position stored for `source`.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`] for an unknown store.
    pub async fn tracking<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
        source: &str,
    ) -> Result<Option<u64>> {
        Ok(self.asked(caller, Right::Read, store.into())?.tracking(source)?)
    }

    /// Follows the matching events from after `after` (`None`: from the first) for ever.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`]; an invalid query; [`crate::Code::ResourceExhausted`].
    pub fn follow<'s>(
        &self,
        caller: &Caller,
        store: impl Into<AskedStore<'s>>,
        query: Query,
        after: Option<Position>,
    ) -> Result<Following> {
        let store = self.asked(caller, Right::Read, store.into())?;
        let permit = self.0.subscriptions.clone().try_acquire_owned();
        let permit = permit.map_err(|_| WireError::exhausted("too many subscriptions are open"))?;
        // Rejects an invalid query before the stream begins.
        store.subscribe(&query, after)?;
        Ok(Following::new(
            self.clone(),
            caller.clone(),
            store,
            query,
            after.unwrap_or(Position::ZERO),
            permit,
        ))
    }

    /// A page of the stores that the caller may read, by name, and the name after which the next page begins.
    ///
    /// # Errors
    /// Corruption.
    pub fn stores(&self, caller: &Caller, page: &Page) -> Result<(Vec<StoreInfo>, Option<String>)> {
        let may_read = |name: &str| caller.may(Right::Read, Some(name));
        let names = self.0.db.event_stores_after(page.after(), page.sought(), may_read);
        let (names, next) = page.cut(names, String::as_str);
        let info = |name: String| -> Result<StoreInfo> {
            let head = self.0.db.events(&name)?.head()?;
            Ok(StoreInfo { name, head })
        };
        Ok((names.into_iter().map(info).collect::<Result<_, _>>()?, next))
    }

    /// Creates an empty store; false when it exists.
    ///
    /// # Errors
    /// A name that is not allowed.
    pub async fn create_store(&self, caller: &Caller, name: &str) -> Result<bool> {
        self.begin(caller, Right::Admin, Some(name))?;
        let store = self.0.db.events(name)?;
        off_thread(&self.0.long_reads, || Ok(store.create()?)).await
    }

    /// Deletes a store with everything in it.
    ///
    /// # Errors
    /// [`crate::Code::NotFound`].
    pub async fn delete_store(&self, caller: &Caller, name: &str) -> Result<()> {
        let store = self.asked(caller, Right::Admin, name.into())?;
        let deleted = off_thread(&self.0.long_reads, || store.delete()).await?;
        let missing = || EventsError::UnknownStore { name: name.to_owned() };
        if deleted { Ok(()) } else { Err(missing().into()) }
    }

    /// State and sizes of the engine, with a page of its keyspaces, by name, and the name after which the next
    /// page begins.
    ///
    /// # Errors
    /// [`crate::Code::PermissionDenied`].
    pub fn stats(&self, caller: &Caller, page: &Page) -> Result<(EngineStats, Option<String>)> {
        caller.check(Right::Read, None)?;
        let mut stats = self.0.db.stats_after(page.after(), page.sought());
        let (keyspaces, next) = page.cut(stats.store.keyspaces, |keyspace| &keyspace.name);
        stats.store.keyspaces = keyspaces;
        Ok((stats, next))
    }
}

/// True when the first match of `query` after `after` may take long to find: many terms, or an intersection
/// over many positions.
fn may_be_long(store: &EventStore, query: &Query, after: Option<Position>) -> Result<bool> {
    let terms: usize = query.items.iter().map(|item| item.types.len() + item.tags.len()).sum();
    let meets =
        |item: &QueryItem| item.has_prefixes() || item.tags.len() + usize::from(!item.types.is_empty()) > 1;
    if terms > INLINE_TERMS_MAX {
        return Ok(true);
    }
    if !query.items.iter().any(meets) {
        return Ok(false);
    }
    let head = store.head()?.map_or(0, |head| head.0);
    Ok(head.saturating_sub(after.map_or(0, |after| after.0)) > INLINE_POSITIONS_MAX)
}

/// Approximate bytes of an event in a log record.
fn event_bytes(event: &Event) -> usize {
    let tags: usize = event.tags.iter().map(|tag| tag.len() + 2).sum();
    let metadata: usize = event.metadata.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
    event.event_type.len() + event.data.len() + tags + metadata + 24
}

/// A count that can be interrupted. Events never change, so continuing at a later snapshot up to the same
/// head gives the same count.
struct Count {
    at: Position,
    found: u64,
    ended: bool,
}

impl Count {
    fn go_on(
        &mut self,
        store: &EventStore,
        query: &Query,
        head: Position,
        until: Option<Instant>,
    ) -> Result<()> {
        let options = ReadOptions::default().after(self.at).before(head.next());
        store.scan(query, options, |scan| {
            loop {
                let Some(position) = scan.next_position()? else {
                    self.ended = true;
                    return Ok(());
                };
                self.at = position;
                self.found += 1;
                if self.found.is_multiple_of(256) && until.is_some_and(|until| Instant::now() > until) {
                    return Ok(());
                }
            }
        })?;
        Ok(())
    }
}
