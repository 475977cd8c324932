//! The log: appends, reads, bounds and trimming, and what failures of the service mean for each.
//!
//! An entry is a message of the stream, and its number the sequence of the message. Invariants
//! 1. [`AppendError::Fenced`] and [`AppendError::Refused`] are returned only when no attempt of the call was stored;
//!    an attempt that may have been received ends the call with [`AppendError::Unknown`].
//! 2. `known` is the newest entry that this process saw confirmed or read. The number in a refused append is not
//!    taken: the leader counts messages that have no majority yet.
//! 3. A leader of the stream that lost its majority answers for some seconds with what it has. So a newest entry before
//!    `known`, or before the expected one, is reported as [`SharedError::Lost`] only when the leader has a majority and
//!    the state lasts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_nats::Request;
use async_nats::header::{HeaderMap, NATS_EXPECTED_LAST_SEQUENCE, NATS_EXPECTED_STREAM};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use ropewalk_log::LogId;
use ropewalk_log::shared::{
    AppendError, EntryIndex, SharedBounds, SharedEntry, SharedError, SharedLog, SharedResult,
};
use serde_json::{Value, json};

use crate::error::NatsError;
use crate::feed::{Ended, Feed};
use crate::link::{CallError, Link, PAUSE, Unanswered};
use crate::settings::NatsSettings;
use crate::stream::{REPLICAS, StreamInfo, new_stream};

/// The oldest server without the known defects that lose entries.
const SERVER_VERSION_MIN: (u64, u64, u64) = (2, 15, 1);
const SERVER_VERSION_MIN_TEXT: &str = "2.15.1";

/// Longest time of an append, and of another call that does not wait for entries.
const CALL_TIME: Duration = Duration::from_secs(5);
/// Shortest time of an attempt that repeats another one.
const ATTEMPT_TIME_MIN: Duration = Duration::from_millis(200);
/// Time to find out whether an append failed because the stream was created again.
const CHECK_TIME: Duration = Duration::from_millis(500);
/// Shortest wait for an entry that is known to exist, and for a new consumer.
const KNOWN_TIME: Duration = Duration::from_secs(2);
/// How long the service must report too few entries until they are lost: a leader without a majority stops after ten
/// seconds, and a new one applies what it has within them.
const SHORT_TIME: Duration = Duration::from_secs(10);
/// Bytes of the headers of an entry, the stream's name not counted, rounded up.
const HEADER_BYTES: usize = 128;

/// Errors in NATS's list.
mod code {
    pub(super) const MESSAGE_TOO_LARGE: u64 = 10054;
    pub(super) const STREAM_EXISTS: u64 = 10058;
    pub(super) const STREAM_MISSING: u64 = 10059;
    pub(super) const OTHER_STREAM: u64 = 10060;
    pub(super) const WRONG_LAST_SEQUENCE: u64 = 10071;
    pub(super) const NO_MESSAGE: u64 = 10037;
    pub(super) const SEALED: u64 = 10109;
}

/// A shared log in a stream of NATS JetStream.
///
/// Calls block, for a bounded time; the connection is made again for ever when it is lost. Several threads may append
/// and read; reads that continue each other share one consumer.
pub struct NatsLog {
    link: Link,
    stream: String,
    subject: String,
    id: LogId,
    message_bytes_max: Option<u64>,
    known: AtomicU64,
    /// The consumer of the last read, for the one that continues it.
    feed: Mutex<Option<Feed>>,
}

impl fmt::Debug for NatsLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsLog").field("stream", &self.stream).field("id", &self.id).finish_non_exhaustive()
    }
}

impl NatsLog {
    /// Opens the log in an existing stream. Tries for [`NatsSettings::open_time`] while the servers do not answer.
    ///
    /// # Errors
    /// [`NatsError`]: also for settings of the stream that can lose entries, and for an old server.
    pub fn open(settings: &NatsSettings) -> Result<Self, NatsError> {
        let deadline = Instant::now() + settings.open_time;
        let link = Self::connect(settings, deadline)?;
        let answer = call(&link, settings, "STREAM.INFO", &json!({}), deadline)?;
        Self::new(link, settings, answer)
    }

    /// Creates the stream and opens the log in it.
    ///
    /// # Errors
    /// [`NatsError::Exists`] if there is a stream of that name; as [`NatsLog::open`].
    pub fn create(settings: &NatsSettings) -> Result<Self, NatsError> {
        let deadline = Instant::now() + settings.open_time;
        let link = Self::connect(settings, deadline)?;
        let servers = link.client().server_info().connect_urls.len().max(settings.servers.len());
        let replicas = match settings.replicas {
            Some(replicas) => replicas,
            None if settings.allow_one_server && servers < 3 => 1,
            None => REPLICAS,
        };
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| NatsError::System {
            what: "drawing random numbers",
            cause: error.to_string(),
        })?;
        // Repeated until it is answered: the same settings again are no error.
        let answer =
            call(&link, settings, "STREAM.CREATE", &new_stream(&settings.stream, nonce, replicas), deadline)?;
        Self::new(link, settings, answer)
    }

    fn connect(settings: &NatsSettings, deadline: Instant) -> Result<Link, NatsError> {
        settings.check()?;
        let link = Link::connect(settings, deadline)?;
        let server = link.client().server_info();
        if is_old(&server.version) {
            return Err(NatsError::Version {
                server: server.server_name,
                found: server.version,
                needed: SERVER_VERSION_MIN_TEXT,
            });
        }
        Ok(link)
    }

    fn new(link: Link, settings: &NatsSettings, answer: Value) -> Result<Self, NatsError> {
        let info = StreamInfo::parse(&settings.stream, answer)?;
        info.check(&settings.stream, settings.allow_one_server)?;
        Ok(Self {
            link,
            stream: settings.stream.clone(),
            subject: info.subject,
            id: info.id,
            message_bytes_max: info.message_bytes_max,
            known: AtomicU64::new(0),
            feed: Mutex::new(None),
        })
    }

    /// The state of the stream, whichever incarnation it is.
    fn info(&self, deadline: Instant) -> SharedResult<StreamInfo> {
        let answer = self.link.call("STREAM.INFO", &self.stream, &json!({}), deadline);
        let lost = |what: String| SharedError::Lost { what: format!("stream {}: {what}", self.stream) };
        let answer = answer.map_err(|error| match error {
            CallError::Refused { code: code::STREAM_MISSING, .. } => lost("it was deleted".to_owned()),
            error => unavailable(error),
        })?;
        StreamInfo::parse(&self.stream, answer)
            .map_err(|error| lost(format!("it was created again: {error}")))
    }

    /// As [`NatsLog::info`], for the incarnation that was opened.
    fn own_info(&self, deadline: Instant) -> SharedResult<StreamInfo> {
        let info = self.info(deadline)?;
        if info.id == self.id { Ok(info) } else { Err(self.created_again()) }
    }

    fn created_again(&self) -> SharedError {
        SharedError::Lost { what: format!("stream {} was created again", self.stream) }
    }

    fn know(&self, entry: u64) {
        self.known.fetch_max(entry, Ordering::AcqRel);
    }

    /// The end of an append of which no attempt was stored.
    fn given_up(&self, cause: String) -> AppendError {
        match self.own_info(Instant::now() + CHECK_TIME) {
            Err(SharedError::Lost { what }) => AppendError::Refused { cause: what },
            _ => AppendError::Unknown { cause },
        }
    }

    /// The feed that continues with `next`: the last one, or a new one.
    fn feed_at(&self, next: u64, deadline: Instant) -> SharedResult<Feed> {
        if let Some(feed) = self.feed.lock().take_if(|feed| feed.next() == next) {
            return Ok(feed);
        }
        // Ends the other consumer.
        drop(self.feed.lock().take());
        let info = self.own_info(deadline)?;
        if next < info.first {
            return Err(SharedError::Trimmed { oldest: EntryIndex(info.first) });
        }
        Feed::open(&self.link, &self.stream, next, deadline).map_err(unavailable)
    }

    /// Finds out why the message `found` is next in a feed, and not the entry `next`.
    fn examine_hole(&self, next: u64, found: u64) -> SharedResult<Vec<SharedEntry>> {
        let deadline = Instant::now() + CALL_TIME;
        // Of the leader, while the feed is of any replica.
        match self.link.call("STREAM.MSG.GET", &self.stream, &json!({ "seq": next }), deadline) {
            Ok(answer) => match self.parse_message(&answer) {
                Some(bytes) => Ok(vec![SharedEntry { index: EntryIndex(next), bytes }]),
                None => Err(self.created_again()),
            },
            Err(CallError::Refused { code: code::NO_MESSAGE, .. }) => {
                let info = self.own_info(deadline)?;
                if next < info.first {
                    Err(SharedError::Trimmed { oldest: EntryIndex(info.first) })
                } else if info.last < found {
                    let what = format!("entry {next}: the leader has {} entries, a replica more", info.last);
                    Err(SharedError::Unavailable { cause: what })
                } else {
                    let what = format!("stream {} has no entry {next}, but entry {found}", self.stream);
                    Err(SharedError::Lost { what })
                }
            }
            Err(error) => Err(unavailable(error)),
        }
    }

    /// The contents in the answer to `STREAM.MSG.GET`; `None` for another stream's.
    fn parse_message(&self, answer: &Value) -> Option<Vec<u8>> {
        let text = |path: &str| answer.pointer(path).and_then(Value::as_str);
        if text("/message/subject") != Some(&self.subject) {
            return None;
        }
        // An empty message has no such field.
        STANDARD.decode(text("/message/data").unwrap_or_default()).ok()
    }
}

impl SharedLog for NatsLog {
    fn identity(&self) -> SharedResult<LogId> {
        self.info(Instant::now() + CALL_TIME).map(|info| info.id)
    }

    fn entry_bytes_max(&self) -> usize {
        let stream =
            self.message_bytes_max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
        self.link.client().max_payload().min(stream).saturating_sub(HEADER_BYTES + self.stream.len())
    }

    fn append(&self, expected: EntryIndex, entry: &[u8]) -> Result<EntryIndex, AppendError> {
        let max = self.entry_bytes_max();
        if entry.len() > max {
            return Err(AppendError::Refused {
                cause: format!("it has {} bytes, at most {max}", entry.len()),
            });
        }
        let deadline = Instant::now() + CALL_TIME;
        loop {
            let mut headers = HeaderMap::new();
            headers.insert(NATS_EXPECTED_LAST_SEQUENCE, expected.0.to_string());
            headers.insert(NATS_EXPECTED_STREAM, self.stream.as_str());
            let request = Request::new().headers(headers).payload(entry.to_vec().into());
            let cause = match self.link.send(self.subject.clone(), request, deadline) {
                Ok(message) => match judge(expected, &message.payload) {
                    Ok(stored) => {
                        self.know(stored.0);
                        // A node that leads does not read: its own entries would be pushed back to it.
                        drop(self.feed.lock().take());
                        return Ok(stored);
                    }
                    Err(Judged::Final(error)) => return Err(error),
                    Err(Judged::NotStored(cause)) => cause,
                },
                Err(Unanswered::Unsent(cause)) => cause,
                Err(Unanswered::TooLarge(cause)) => return Err(AppendError::Refused { cause }),
                Err(Unanswered::Unknown(cause)) => return Err(AppendError::Unknown { cause }),
            };
            if Instant::now() + PAUSE + ATTEMPT_TIME_MIN >= deadline {
                return Err(self.given_up(cause));
            }
            thread::sleep(PAUSE);
        }
    }

    fn read(&self, after: EntryIndex, bytes_max: usize, wait: Duration) -> SharedResult<Vec<SharedEntry>> {
        let start = Instant::now();
        let deadline = start.checked_add(wait).unwrap_or(start + Duration::from_secs(86_400));
        let next = after.next().0;
        loop {
            let is_known = self.known.load(Ordering::Acquire) > after.0;
            let mut feed = self.feed_at(next, deadline.max(start + KNOWN_TIME))?;
            let until =
                if is_known || feed.has_pending() { deadline.max(start + KNOWN_TIME) } else { deadline };
            let (entries, ended) = feed.fetch(&self.link, &self.subject, bytes_max, until);
            if ended.is_none() {
                *self.feed.lock() = Some(feed);
            }
            if let Some(last) = entries.last() {
                self.know(last.index.0);
                return Ok(entries);
            }
            match ended {
                None if is_known => {
                    let cause = format!("entry {next} exists and did not arrive in time");
                    return Err(SharedError::Unavailable { cause });
                }
                None => return Ok(entries),
                Some(Ended::Broken(cause)) if Instant::now() >= until => {
                    return Err(SharedError::Unavailable { cause });
                }
                Some(Ended::Broken(_)) => {}
                Some(Ended::Hole(found)) => return self.examine_hole(next, found),
                Some(Ended::Foreign) => return Err(self.created_again()),
            }
        }
    }

    fn bounds(&self) -> SharedResult<SharedBounds> {
        let start = Instant::now();
        loop {
            // Before the request: a concurrent append may be confirmed after the answer was made.
            let known = self.known.load(Ordering::Acquire);
            let info = self.own_info(Instant::now() + CALL_TIME)?;
            if info.last >= known {
                return Ok(SharedBounds { oldest: EntryIndex(info.first), newest: EntryIndex(info.last) });
            }
            if start.elapsed() >= SHORT_TIME {
                let (stream, last) = (&self.stream, info.last);
                let what = format!("stream {stream} ends with entry {last}, and entry {known} was confirmed");
                return Err(if info.has_majority() {
                    SharedError::Lost { what }
                } else {
                    SharedError::Unavailable { cause: what }
                });
            }
            thread::sleep(PAUSE);
        }
    }

    fn trim(&self, oldest: EntryIndex) -> SharedResult<()> {
        // A purge beyond the end would skip numbers.
        let oldest = oldest.min(self.bounds()?.newest.next());
        let body = json!({ "seq": oldest.0 });
        match self.link.call("STREAM.PURGE", &self.stream, &body, Instant::now() + CALL_TIME) {
            Ok(_) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }

    fn warnings(&self) -> SharedResult<Vec<String>> {
        let mut lines = vec![
            "sync_interval of the NATS servers cannot be read by clients: without `sync_interval: always` a power \
             failure of several servers loses confirmed entries"
                .to_owned(),
        ];
        let server = self.link.client().server_info();
        if is_old(&server.version) {
            lines.push(format!(
                "NATS server {:?} has version {}; a shared log needs {SERVER_VERSION_MIN_TEXT} or newer",
                server.server_name, server.version
            ));
        }
        lines.extend(self.own_info(Instant::now() + CALL_TIME)?.warnings(&self.stream));
        Ok(lines)
    }
}

/// An append that was answered and not confirmed.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Final(AppendError),
    /// It was not stored, and a repetition may be.
    NotStored(String),
}

/// Reads the answer to an append.
fn judge(expected: EntryIndex, payload: &[u8]) -> Result<EntryIndex, Judged> {
    let unknown = |cause: String| Err(Judged::Final(AppendError::Unknown { cause }));
    let Ok(answer) = serde_json::from_slice::<Value>(payload) else {
        return unknown("the answer is not JSON".to_owned());
    };
    let Some(error) = answer.get("error") else {
        return match answer.get("seq").and_then(Value::as_u64) {
            Some(stored) if stored == expected.next().0 => Ok(EntryIndex(stored)),
            stored => unknown(format!("it was stored as entry {stored:?}, expected was {}", expected.next())),
        };
    };
    let description = error.get("description").and_then(Value::as_str).unwrap_or("no description");
    match error.get("err_code").and_then(Value::as_u64).unwrap_or(0) {
        code::WRONG_LAST_SEQUENCE => {
            let newest = description.rsplit(' ').next().and_then(|number| number.parse().ok());
            match newest.map(EntryIndex) {
                Some(newest) if newest > expected => Err(Judged::Final(AppendError::Fenced { newest })),
                Some(newest) => Err(Judged::NotStored(format!(
                    "the newest entry is {newest}, before the expected {expected}: the service lags or lost entries"
                ))),
                None => unknown(description.to_owned()),
            }
        }
        code::MESSAGE_TOO_LARGE | code::OTHER_STREAM | code::SEALED => {
            Err(Judged::Final(AppendError::Refused { cause: description.to_owned() }))
        }
        code => unknown(format!("{description} (error {code})")),
    }
}

/// A call of [`NatsLog::open`] or [`NatsLog::create`].
fn call(
    link: &Link,
    settings: &NatsSettings,
    verb: &str,
    body: &Value,
    deadline: Instant,
) -> Result<Value, NatsError> {
    let stream = settings.stream.clone();
    link.call(verb, &stream, body, deadline).map_err(|error| match error {
        CallError::Unavailable(cause) if cause.contains("Permissions Violation") => {
            NatsError::Denied { servers: settings.servers_text(), cause }
        }
        CallError::Unavailable(cause) => NatsError::Unreachable { servers: settings.servers_text(), cause },
        CallError::Refused { code: code::STREAM_MISSING, .. } => NatsError::Missing { stream },
        CallError::Refused { code: code::STREAM_EXISTS, .. } => NatsError::Exists { stream },
        CallError::Refused { code, description } => {
            NatsError::Refused { request: format!("{verb} {stream}"), code, description }
        }
    })
}

fn unavailable(error: CallError) -> SharedError {
    SharedError::Unavailable {
        cause: match error {
            CallError::Unavailable(cause) => cause,
            CallError::Refused { code, description } => format!("{description} (error {code})"),
        },
    }
}

/// True for a version before [`SERVER_VERSION_MIN`], or text that is no version.
fn is_old(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-', '+']).map(str::parse);
    let mut number = || numbers.next().and_then(Result::ok);
    match (number(), number(), number()) {
        (Some(major), Some(minor), Some(patch)) => (major, minor, patch) < SERVER_VERSION_MIN,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_the_oldest_safe_one_are_old() {
        for version in ["2.15.0", "2.9.10", "1.99.99", "", "2.15", "x.y.z"] {
            assert!(is_old(version), "{version}");
        }
        for version in ["2.15.1", "v2.15.2", "2.16.0-RC.1", "3.0.0"] {
            assert!(!is_old(version), "{version}");
        }
    }

    #[test]
    fn answer_to_an_append_is_judged_by_what_it_proves() {
        let judged = |text: &str| judge(EntryIndex(9), text.as_bytes());
        let error = |code: u64, text: &str| {
            judged(&json!({"error": {"code": 400, "err_code": code, "description": text}, "stream": "S", "seq": 0}).to_string())
        };
        assert_eq!(judged(r#"{"stream":"S","seq":10}"#), Ok(EntryIndex(10)));
        let fenced = AppendError::Fenced { newest: EntryIndex(12) };
        assert_eq!(error(10071, "wrong last sequence: 12"), Err(Judged::Final(fenced)));
        // A leader that lags cannot know what is newest.
        assert!(matches!(error(10071, "wrong last sequence: 8"), Err(Judged::NotStored(_))));
        for code in [10054, 10060, 10109] {
            assert!(matches!(error(code, "no"), Err(Judged::Final(AppendError::Refused { .. }))), "{code}");
        }
        for answer in [
            error(10071, "wrong last sequence"),
            error(10077, "store failed"),
            error(10023, "insufficient resources"),
            judged("no JSON"),
            judged(r#"{"stream":"S","seq":11}"#),
            judged(r#"{"stream":"S"}"#),
        ] {
            assert!(matches!(answer, Err(Judged::Final(AppendError::Unknown { .. }))), "{answer:?}");
        }
    }
}
