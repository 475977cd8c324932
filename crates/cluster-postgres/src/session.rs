//! One connection: its settings, its checks, and the messages that the server sends unasked.

use std::sync::Arc;
use std::time::Duration;

use ropewalk_base::sync::{AtomicU64, Mutex, Ordering};
use ropewalk_log::LogId;
use ropewalk_log::shared::{EntryIndex, SharedError, SharedResult};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Connection, Row, Socket, Statement};

use crate::error::{PostgresOpenError, describe, shared_error};
use crate::known::{KnownEntry, check_end};
use crate::servers::Server;
use crate::statements as sql;
use crate::tls::{Stream, Tls};

/// Oldest version whose settings and functions the statements use.
const VERSION_MIN: i32 = 140_000;

/// A connection to the primary server, ready for the statements of one log.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) prepared: Prepared,
    /// Grows with each promotion.
    pub(crate) timeline: u32,
    warnings: Arc<Warnings>,
    /// Changes with each notification.
    news: watch::Receiver<u64>,
    driver: AbortHandle,
}

/// The statements that every call uses.
pub(crate) struct Prepared {
    pub(crate) append: Statement,
    pub(crate) fence: Statement,
    pub(crate) read: Statement,
}

/// Warnings that the server sent.
#[derive(Default)]
struct Warnings {
    count: AtomicU64,
    last: Mutex<String>,
}

/// The head row, checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) id: LogId,
    pub(crate) last: EntryIndex,
    pub(crate) oldest: EntryIndex,
}

/// The settings that decide whether a commit is durable.
pub(crate) struct Durable<'a> {
    pub(crate) synchronous_commit: &'a str,
    pub(crate) fsync: &'a str,
    pub(crate) full_page_writes: &'a str,
}

impl Durable<'_> {
    /// Fails with the first setting that allows a confirmed entry to be lost.
    pub(crate) fn check(&self) -> Result<(), PostgresOpenError> {
        let setting = |name, value: &str, needed| {
            Err(PostgresOpenError::Setting { name, value: value.to_owned(), needed })
        };
        match self {
            Self { fsync, .. } if *fsync != "on" => setting("fsync", fsync, "on"),
            Self { full_page_writes: value, .. } if *value != "on" => {
                setting("full_page_writes", value, "on")
            }
            Self { synchronous_commit: value, .. } if !["on", "remote_apply"].contains(value) => {
                setting("synchronous_commit", value, "on or remote_apply")
            }
            _ => Ok(()),
        }
    }
}

/// An unsigned number as PostgreSQL stores it; larger ones than it can store are beyond any log.
pub(crate) fn stored(index: EntryIndex) -> i64 {
    i64::try_from(index.0).unwrap_or(i64::MAX)
}

/// The number of an entry in a row.
pub(crate) fn index(row: &Row, column: usize) -> SharedResult<EntryIndex> {
    let value: i64 = get(row, column)?;
    let index = u64::try_from(value);
    index.map(EntryIndex).map_err(|_| SharedError::Lost { what: format!("its number {value} is negative") })
}

/// A value of a row.
pub(crate) fn get<'a, T>(row: &'a Row, column: usize) -> SharedResult<T>
where
    T: tokio_postgres::types::FromSql<'a>,
{
    row.try_get(column).map_err(|error| shared_error(&error))
}

impl Session {
    /// Connects to a server, checks and sets what its sessions need, and creates the log if `shard` is new and
    /// `may_create`.
    pub(crate) async fn open(
        server: &Server,
        tls: &Tls,
        shard: &str,
        lock_timeout: Duration,
        may_create: bool,
    ) -> Result<Self, PostgresOpenError> {
        let failed = |error: tokio_postgres::Error| PostgresOpenError::from(shared_error(&error));
        let (client, connection) = server
            .config
            .connect(tls.clone())
            .await
            .map_err(|error| PostgresOpenError::unavailable(describe(&error)))?;
        let warnings = Arc::new(Warnings::default());
        let (sender, news) = watch::channel(0);
        let driver = tokio::spawn(drive(connection, warnings.clone(), sender)).abort_handle();
        // From here on, a return ends the connection.
        let ends = Ends(driver.clone());
        let (settings, timeline) = settings(&client, lock_timeout).await?;
        client.batch_execute(&settings).await.map_err(failed)?;
        if may_create {
            create(&client, shard).await.map_err(failed)?;
        }
        let prepared = Prepared {
            append: client.prepare(sql::APPEND).await.map_err(failed)?,
            fence: client.prepare(sql::FENCE).await.map_err(failed)?,
            read: client.prepare(sql::READ).await.map_err(failed)?,
        };
        std::mem::forget(ends);
        Ok(Self { client, prepared, timeline, warnings, news, driver })
    }

    /// Reads the head row. Fails if the log is gone, is unlogged, or lacks the entry that is known.
    pub(crate) async fn head(
        &self,
        shard: &str,
        known: Option<KnownEntry>,
    ) -> Result<Head, PostgresOpenError> {
        let index_known = stored(known.map_or(EntryIndex::ZERO, |known| known.index));
        let parameters: [&(dyn ToSql + Sync); 2] = [&shard, &index_known];
        let row = self.client.query_opt(sql::STATE, &parameters).await.map_err(|e| shared_error(&e))?;
        let Some(row) = row else {
            let what = format!("there is no log {shard:?}, or it has entries and no head row");
            return Err(SharedError::Lost { what }.into());
        };
        if let Some(name) = get::<Option<String>>(&row, 4)? {
            return Err(PostgresOpenError::Table { name });
        }
        let nonce: &[u8] = get(&row, 0)?;
        let nonce = nonce.try_into().map_err(|_| SharedError::Lost {
            what: format!("its nonce has {} bytes instead of 16", nonce.len()),
        })?;
        let head = Head { id: LogId(nonce), last: index(&row, 1)?, oldest: index(&row, 2)? };
        check_end(known, head.last)?;
        if let Some(known) = known.filter(|known| known.index >= head.oldest) {
            known.check(get(&row, 3)?)?;
        }
        Ok(head)
    }

    /// Subscribes to the notifications of a channel.
    pub(crate) async fn listen(&self, channel: &str) -> SharedResult<()> {
        self.client.batch_execute(&format!("LISTEN {channel}")).await.map_err(|error| shared_error(&error))
    }

    /// A receiver that changes with each notification from now on.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        let mut news = self.news.clone();
        news.mark_unchanged();
        news
    }

    /// Warnings received so far.
    pub(crate) fn warnings(&self) -> u64 {
        self.warnings.count.load(Ordering::SeqCst)
    }

    /// Fails if the server sent a warning since it had sent `before`.
    pub(crate) fn check_warnings(&self, before: u64) -> SharedResult<()> {
        if self.warnings() == before {
            return Ok(());
        }
        let cause = format!("PostgreSQL warned: {}", self.warnings.last.lock());
        Err(SharedError::Unavailable { cause })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Ends the task of a connection that could not be prepared.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Moves the messages of a connection until it ends. A warning is counted before the response to the statement that
/// caused it, because the server sends it earlier.
async fn drive(
    mut connection: Connection<Socket, Stream>,
    warnings: Arc<Warnings>,
    news: watch::Sender<u64>,
) {
    while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            AsyncMessage::Notice(notice) if notice.parsed_severity() == Some(Severity::Warning) => {
                *warnings.last.lock() = notice.message().to_owned();
                warnings.count.fetch_add(1, Ordering::SeqCst);
            }
            AsyncMessage::Notification(_) => news.send_modify(|count| *count += 1),
            _ => {}
        }
    }
}

/// Checks the server and returns the settings of the session, and the timeline.
async fn settings(client: &Client, lock_timeout: Duration) -> Result<(String, u32), PostgresOpenError> {
    let row = client.query_one(sql::SERVER, &[]).await.map_err(|error| shared_error(&error))?;
    let version: i32 = get(&row, 0)?;
    if version < VERSION_MIN {
        return Err(PostgresOpenError::Version { found: get(&row, 1)? });
    }
    let Some(timeline) = get::<Option<&str>>(&row, 2)? else {
        return Err(PostgresOpenError::unavailable("it is a standby"));
    };
    let timeline = u32::from_str_radix(timeline, 16)
        .map_err(|_| PostgresOpenError::unavailable(format!("{timeline:?} is not a timeline")))?;
    let synchronous_commit = get(&row, 3)?;
    Durable { synchronous_commit, fsync: get(&row, 4)?, full_page_writes: get(&row, 5)? }.check()?;
    Ok((sql::session(synchronous_commit, version, lock_timeout.as_millis().max(1)), timeline))
}

/// Creates the tables and the head row where they are missing.
async fn create(client: &Client, shard: &str) -> Result<(), tokio_postgres::Error> {
    let exists: bool = client.query_one(sql::EXISTS, &[]).await?.try_get(0)?;
    if !exists {
        client.batch_execute(sql::CREATE).await?;
    }
    client.execute(sql::ADD, &[&shard]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_durable_settings_are_accepted() {
        let named = |synchronous_commit, fsync, full_page_writes| match (Durable {
            synchronous_commit,
            fsync,
            full_page_writes,
        })
        .check()
        {
            Err(PostgresOpenError::Setting { name, .. }) => name,
            other => {
                assert_eq!(other, Ok(()));
                ""
            }
        };
        assert_eq!(named("on", "on", "on"), "");
        assert_eq!(named("remote_apply", "on", "on"), "");
        assert_eq!(named("on", "off", "on"), "fsync");
        assert_eq!(named("on", "on", "off"), "full_page_writes");
        for value in ["off", "local", "remote_write"] {
            assert_eq!(named(value, "on", "on"), "synchronous_commit");
        }
    }
}
