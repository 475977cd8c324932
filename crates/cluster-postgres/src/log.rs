//! The log itself: its calls block, and their work runs on one thread of a small runtime.

use core::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use ropewalk_log::LogId;
use ropewalk_log::shared::{
    AppendError, EntryIndex, SharedBounds, SharedEntry, SharedError, SharedLog, SharedResult,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::error::{PostgresOpenError, append_error, shared_error};
use crate::known::check_end;
use crate::pool::{Pool, Purpose};
use crate::servers::{PostgresOptions, parse};
use crate::session::{Durable, Head, Session, get, index, stored};
use crate::statements as sql;
use crate::tls::Tls;

/// Largest entry. PostgreSQL could store a gigabyte; an entry of this size is sent and synced well within the time
/// limit of a call.
const ENTRY_BYTES_MAX: usize = 4 << 20;

/// Most bytes that one read returns, except for its last entry: both ends hold them in memory.
const READ_BYTES_MAX: usize = 16 << 20;

/// Most entries that one read returns.
const READ_ENTRIES_MAX: usize = 8192;

/// Size of an entry that the first read assumes.
const ENTRY_BYTES_GUESS: usize = 1024;

/// Longest time until a reader without a notification reads again.
const POLL: Duration = Duration::from_millis(50);

/// Entries that one statement deletes: few enough for the time limit of a call with the largest entries.
const DELETE_ENTRIES: i64 = 128;

/// A log in two tables of PostgreSQL.
///
/// All methods block the thread that calls them, which may belong to an async runtime.
pub struct PostgresLog {
    log: Arc<Log>,
    worker: Worker,
}

struct Log {
    pool: Arc<Pool>,
    id: LogId,
    /// Size of the entries that were read last.
    entry_bytes: AtomicUsize,
}

/// The thread that moves the bytes of the connections.
struct Worker(Option<Runtime>);

impl Worker {
    fn start() -> std::io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        Ok(Self(Some(builder.worker_threads(1).thread_name("postgres-log").enable_all().build()?)))
    }

    /// Runs `work` and waits for its result; `None` if it panicked. The thread of the caller does not enter the
    /// runtime, because it may belong to another one.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (sender, result) = sync_channel(1);
        self.0.as_ref()?.spawn(async move {
            let _ = sender.send(work.await); // the receiver waits below
        });
        result.recv().ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which a thread of another runtime must not do.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl PostgresLog {
    /// Opens the log that `options` name; creates it and its tables if they do not exist and it may.
    ///
    /// `connection` is a connection string of PostgreSQL, `host=a,b user=…` or `postgres://…`. It may name several
    /// servers, of which the primary is used, also after a failover. Connections to other machines use TLS, unless
    /// it says `sslmode=disable`, and check the server's certificate with its name.
    ///
    /// # Errors
    /// [`PostgresOpenError`], also for a setting of the server with which a confirmed entry could be lost.
    pub fn open(connection: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let servers = parse(connection, &options)?;
        let tls = Tls::new(options.certificates.as_deref())?;
        let pool = Arc::new(Pool::new(servers, tls, options));
        let worker = Worker::start()
            .map_err(|error| PostgresOpenError::unavailable(format!("starting a thread: {error}")))?;
        let opening = pool.clone();
        let opened = worker.run(async move { Ok(opening.connect(None, Purpose::Append).await?.1.id) });
        let id = opened.unwrap_or_else(|| Err(PostgresOpenError::from(ended())))?;
        let log = Log { pool, id, entry_bytes: AtomicUsize::new(ENTRY_BYTES_GUESS) };
        Ok(Self { log: Arc::new(log), worker })
    }

    /// Runs a call on the worker.
    fn call<T, F>(&self, call: impl FnOnce(Arc<Log>) -> F) -> SharedResult<T>
    where
        T: Send + 'static,
        F: Future<Output = SharedResult<T>> + Send + 'static,
    {
        self.worker.run(call(self.log.clone())).unwrap_or_else(|| Err(ended()))
    }
}

/// The error of a call that panicked.
fn ended() -> SharedError {
    SharedError::Unavailable { cause: "the call ended without a result".to_owned() }
}

impl fmt::Debug for PostgresLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.log.pool.servers.iter().map(|server| server.name.as_str()).collect();
        let shard = &self.log.pool.shard;
        f.debug_struct("PostgresLog").field("shard", shard).field("servers", &servers).finish_non_exhaustive()
    }
}

impl SharedLog for PostgresLog {
    fn identity(&self) -> SharedResult<LogId> {
        self.call(|log| async move { Ok(log.head().await?.id) })
    }

    fn entry_bytes_max(&self) -> usize {
        ENTRY_BYTES_MAX
    }

    fn append(&self, expected: EntryIndex, entry: &[u8]) -> Result<EntryIndex, AppendError> {
        if entry.len() > ENTRY_BYTES_MAX {
            let cause = format!("{} bytes exceed the limit of {ENTRY_BYTES_MAX}", entry.len());
            return Err(AppendError::Refused { cause });
        }
        let (log, entry) = (self.log.clone(), entry.to_vec());
        let appended = self.worker.run(async move { log.append(expected, &entry).await });
        appended.unwrap_or_else(|| Err(append_error(ended())))
    }

    fn read(&self, after: EntryIndex, bytes_max: usize, wait: Duration) -> SharedResult<Vec<SharedEntry>> {
        self.call(|log| async move { log.read(after, bytes_max, wait).await })
    }

    fn bounds(&self) -> SharedResult<SharedBounds> {
        self.call(|log| async move {
            let head = log.head().await?;
            Ok(SharedBounds { oldest: head.oldest, newest: head.last })
        })
    }

    fn trim(&self, oldest: EntryIndex) -> SharedResult<()> {
        self.call(|log| async move { log.trim(oldest).await })
    }

    fn warnings(&self) -> SharedResult<Vec<String>> {
        self.call(|log| async move { log.warnings().await })
    }
}

impl Log {
    /// Bounds the time of an exchange with the server.
    async fn in_time<T>(&self, exchange: impl Future<Output = SharedResult<T>>) -> SharedResult<T> {
        let limit = self.pool.call_timeout;
        timeout(limit, exchange).await.unwrap_or_else(|_| {
            // The statement is not cancelled: see the crate's invariant 4.
            self.pool.prefer_next();
            Err(SharedError::Unavailable { cause: format!("PostgreSQL did not respond within {limit:?}") })
        })
    }

    /// Classifies the error of a statement and decides whether its connection is used again.
    fn failed(&self, generation: u64, error: &tokio_postgres::Error) -> SharedError {
        // Another append holds the head row and waits for a standby. The connection works.
        if error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) {
            self.pool.retire(generation);
        }
        shared_error(error)
    }

    /// The error when there is no head row with the nonce of the log.
    fn gone(&self) -> SharedError {
        SharedError::Lost { what: format!("it was removed or created again, its identity was {}", self.id) }
    }

    async fn append(&self, expected: EntryIndex, entry: &[u8]) -> Result<EntryIndex, AppendError> {
        match self.in_time(self.append_or_newest(expected, entry)).await {
            Ok(Ok(index)) => Ok(index),
            Ok(Err(newest)) => Err(AppendError::Fenced { newest }),
            Err(error) => Err(append_error(error)),
        }
    }

    /// Appends, or returns the newest entry as the inner error.
    async fn append_or_newest(
        &self,
        expected: EntryIndex,
        entry: &[u8],
    ) -> SharedResult<Result<EntryIndex, EntryIndex>> {
        let (generation, session) = self.pool.session(self.id, Purpose::Append).await?;
        let warnings = session.warnings();
        let (shard, nonce, channel) = (&self.pool.shard, self.id.0.as_slice(), Pool::channel(self.id));
        let parameters: [&(dyn ToSql + Sync); 5] = [shard, &nonce, &stored(expected), &entry, &channel];
        // The rows are complete only after the commit: it precedes the message that ends them.
        let rows = session.client.query(&session.prepared.append, &parameters).await;
        let rows = rows.map_err(|error| self.failed(generation, &error))?;
        session.check_warnings(warnings)?;
        if let Some(row) = rows.first() {
            let appended = index(row, 0)?;
            self.pool.known.learn(appended, entry);
            return Ok(Ok(appended));
        }
        let newest = self.fence(generation, &session).await?;
        if newest == expected {
            // The settings changed between the two statements.
            let cause = "the entry was not stored, although the expected one is the newest".to_owned();
            return Err(SharedError::Unavailable { cause });
        }
        Ok(Err(newest))
    }

    /// The newest entry, which is durable like all before it when this returns.
    async fn fence(&self, generation: u64, session: &Session) -> SharedResult<EntryIndex> {
        let (warnings, known) = (session.warnings(), self.pool.known.get());
        let parameters: [&(dyn ToSql + Sync); 2] = [&self.pool.shard, &self.id.0.as_slice()];
        let rows = session.client.query(&session.prepared.fence, &parameters).await;
        let rows = rows.map_err(|error| self.failed(generation, &error))?;
        session.check_warnings(warnings)?;
        let row = rows.first().ok_or_else(|| self.gone())?;
        let durable =
            Durable { synchronous_commit: get(row, 1)?, fsync: get(row, 2)?, full_page_writes: get(row, 3)? };
        durable.check().map_err(PostgresOpenError::into_shared)?;
        let newest = index(row, 0)?;
        check_end(known, newest)?;
        Ok(newest)
    }

    async fn read(
        &self,
        after: EntryIndex,
        bytes_max: usize,
        wait: Duration,
    ) -> SharedResult<Vec<SharedEntry>> {
        // None: a wait that never ends.
        let end = Instant::now().checked_add(wait);
        loop {
            let (entries, mut news) = self.in_time(self.read_now(after, bytes_max)).await?;
            let left = end.map_or(POLL, |end| end.saturating_duration_since(Instant::now()));
            if !entries.is_empty() || left.is_zero() {
                return Ok(entries);
            }
            // A connection that ends wakes, too: the next read connects again, or fails.
            let _ = timeout(left.min(POLL), news.changed()).await;
        }
    }

    /// The entries that exist, and a receiver that changes when there are more.
    async fn read_now(
        &self,
        after: EntryIndex,
        bytes_max: usize,
    ) -> SharedResult<(Vec<SharedEntry>, watch::Receiver<u64>)> {
        let (generation, session) = self.pool.session(self.id, Purpose::Read).await?;
        let news = session.news();
        let bytes = bytes_max.clamp(1, READ_BYTES_MAX);
        // A quarter more entries than should fit: the statement stops at the bytes.
        let expected = bytes / self.entry_bytes.load(Ordering::Relaxed).max(1);
        let entries = (expected + expected / 4 + 8).min(READ_ENTRIES_MAX);
        let (bytes, entries) =
            (i64::try_from(bytes).unwrap_or(i64::MAX), i64::try_from(entries).unwrap_or(i64::MAX));
        let nonce = self.id.0.as_slice();
        let parameters: [&(dyn ToSql + Sync); 5] =
            [&self.pool.shard, &nonce, &stored(after), &bytes, &entries];
        let rows = session.client.query(&session.prepared.read, &parameters).await;
        let rows = rows.map_err(|error| self.failed(generation, &error))?;
        let first = rows.first().ok_or_else(|| self.gone())?;
        let (last, oldest) = (index(first, 0)?, index(first, 1)?);
        let entries = entries_of(&rows)?;
        check(after, last, oldest, &entries)?;
        if let Some(newest) = entries.last() {
            self.pool.known.learn(newest.index, &newest.bytes);
            let bytes: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
            self.entry_bytes.store(bytes / entries.len(), Ordering::Relaxed);
        }
        Ok((entries, news))
    }

    async fn head(&self) -> SharedResult<Head> {
        self.in_time(async {
            let (generation, session) = self.pool.session(self.id, Purpose::Read).await?;
            let known = self.pool.known.get();
            let head = session.head(&self.pool.shard, None).await.map_err(|error| {
                self.pool.retire(generation);
                error.into_shared()
            })?;
            if head.id != self.id {
                return Err(self.gone());
            }
            check_end(known, head.last)?;
            Ok(head)
        })
        .await
    }

    /// Moves the beginning first, so that no reader takes deleted entries for lost ones.
    async fn trim(&self, oldest: EntryIndex) -> SharedResult<()> {
        let shard = &self.pool.shard;
        let nonce = self.id.0.as_slice();
        let oldest = self.number(sql::TRIM, &[shard, &nonce, &stored(oldest)]).await?;
        let oldest = oldest.ok_or_else(|| self.gone())?;
        let Some(first) = self.number(sql::FIRST, &[shard]).await? else { return Ok(()) };
        let mut from = first;
        while from < oldest {
            let to = oldest.min(from.saturating_add(DELETE_ENTRIES));
            self.number(sql::DELETE, &[shard, &from, &to]).await?;
            from = to;
        }
        Ok(())
    }

    /// The number that a statement returns, if it returns a row and not NULL.
    async fn number(&self, statement: &str, parameters: &[&(dyn ToSql + Sync)]) -> SharedResult<Option<i64>> {
        self.in_time(async {
            let (generation, session) = self.pool.session(self.id, Purpose::Read).await?;
            let row = session.client.query_opt(statement, parameters).await;
            let row = row.map_err(|error| self.failed(generation, &error))?;
            row.map_or(Ok(None), |row| get(&row, 0))
        })
        .await
    }

    async fn warnings(&self) -> SharedResult<Vec<String>> {
        let exposed = self.pool.servers.iter().filter(|server| server.is_exposed);
        let mut warnings: Vec<String> =
            exposed.map(|server| format!("the connection to {} is not encrypted", server.name)).collect();
        let row = self
            .in_time(async {
                let (generation, session) = self.pool.session(self.id, Purpose::Read).await?;
                let row = session.client.query_one(sql::RISKS, &[]).await;
                row.map_err(|error| self.failed(generation, &error))
            })
            .await?;
        warnings.extend(risks(&row)?);
        Ok(warnings)
    }
}

/// The entries of the rows of a read, in order.
fn entries_of(rows: &[Row]) -> SharedResult<Vec<SharedEntry>> {
    let mut entries = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(bytes) = get::<Option<&[u8]>>(row, 3)? {
            entries.push(SharedEntry { index: index(row, 2)?, bytes: bytes.to_vec() });
        }
    }
    // They arrive in order with every plan of today; the statement does not require it.
    entries.sort_by_key(|entry| entry.index);
    Ok(entries)
}

/// Fails unless `entries` are the ones after `after`, without gaps.
fn check(
    after: EntryIndex,
    last: EntryIndex,
    oldest: EntryIndex,
    entries: &[SharedEntry],
) -> SharedResult<()> {
    if after > last {
        let what = format!("it ends at entry {last}, but the entries after {after} were requested");
        return Err(SharedError::Lost { what });
    }
    if oldest > after.next() {
        return Err(SharedError::Trimmed { oldest });
    }
    let mut next = after.next();
    for entry in entries {
        if entry.index != next {
            return Err(SharedError::Lost { what: format!("entry {next} is missing") });
        }
        if entry.index > last {
            let what = format!("it has entry {next}, but ends at entry {last}");
            return Err(SharedError::Lost { what });
        }
        next = next.next();
    }
    if entries.is_empty() && after < last {
        return Err(SharedError::Lost { what: format!("entry {next} is missing") });
    }
    Ok(())
}

/// One line for each risk in a row of [`sql::RISKS`].
fn risks(row: &Row) -> SharedResult<Vec<String>> {
    let is_off = |column| Ok::<bool, SharedError>(get::<&str>(row, column)? != "on");
    let standbys: &str = get(row, 0)?;
    let (connected, is_visible): (i64, bool) = (get(row, 5)?, get(row, 6)?);
    let mut found = Vec::new();
    if standbys.is_empty() {
        found.push(
            "synchronous_standby_names is empty: PostgreSQL stores one copy of the log before it confirms an \
             append, and a failover may lose confirmed entries",
        );
    } else if is_visible && connected == 0 {
        found.push("no synchronous standby is connected: appends wait until one is");
    }
    if is_off(1)? {
        found.push("data_checksums is off: PostgreSQL does not detect damage on its disk");
    }
    if is_off(2)? {
        found.push("autovacuum is off: the space of trimmed entries is not used again");
    }
    if is_off(3)? {
        found.push("fsync is off: a crash loses entries; appends are not confirmed");
    }
    if is_off(4)? {
        found.push("full_page_writes is off: a crash damages entries; appends are not confirmed");
    }
    Ok(found.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(after: u64, last: u64, oldest: u64, indexes: &[u64]) -> SharedResult<()> {
        let entry = |index: &u64| SharedEntry { index: EntryIndex(*index), bytes: Vec::new() };
        let entries: Vec<SharedEntry> = indexes.iter().map(entry).collect();
        check(EntryIndex(after), EntryIndex(last), EntryIndex(oldest), &entries)
    }

    #[test]
    fn read_without_gaps_is_accepted() {
        assert_eq!(checked(0, 0, 1, &[]), Ok(()));
        assert_eq!(checked(3, 3, 4, &[]), Ok(()));
        assert_eq!(checked(0, 3, 1, &[1, 2, 3]), Ok(()));
        assert_eq!(checked(1, 9, 2, &[2, 3]), Ok(()));
    }

    #[test]
    fn gap_or_lost_end_is_found() {
        for (after, last, oldest, indexes) in [
            (0, 3, 1, &[2, 3][..]),
            (0, 3, 1, &[1, 3]),
            (0, 3, 1, &[]),
            (0, 2, 1, &[1, 2, 3]),
            (4, 3, 1, &[]),
            (u64::MAX - 1, 3, 1, &[]),
        ] {
            let found = checked(after, last, oldest, indexes);
            assert!(matches!(found, Err(SharedError::Lost { .. })), "{after} {indexes:?}: {found:?}");
        }
    }

    #[test]
    fn trimmed_entries_are_no_gap() {
        let trimmed = Err(SharedError::Trimmed { oldest: EntryIndex(4) });
        assert_eq!(checked(0, 9, 4, &[4, 5]), trimmed);
        assert_eq!(checked(0, 3, 4, &[]), trimmed);
        assert_eq!(checked(3, 3, 4, &[]), Ok(()));
    }
}
