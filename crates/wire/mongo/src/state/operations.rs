//! Running operations: recorded, listed, killed.
//!
//! Every connection has one seat (its slot in the list of operations), since it runs one command at a time. A
//! command that begins gets an id and records itself in its connection's seat, which no other connection
//! writes; listing the operations reads all seats. To kill an operation is to store its id in its seat: the
//! command checks it whenever it checks the deadline, and is woken if it waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use ropewalk::documents::lang::{Doc, DocBuf, Value, Writer};
use tokio::sync::Notify;

use crate::protocol::failure::Outcome;
use crate::state::sessions::{SessionId, named_session};

/// Bytes of a command that are stored while it runs; of a longer one only its name and namespace are.
const COMMAND_BYTES_MAX: usize = 16 << 10;
/// The same for a truncated command, as in MongoDB.
const SHORT_BYTES: usize = 1000;
/// Buffer for commands that a seat retains from one command to the next.
const KEPT_BYTES: usize = 1 << 10;

/// All seats, and the ids of operations.
#[derive(Default)]
pub(crate) struct Operations {
    seats: Mutex<BTreeMap<i32, Arc<Seat>>>,
    numbers: AtomicI32,
}

/// Where a connection records what it runs.
pub(crate) struct Seat {
    connection: i32,
    peer: String,
    noted: Mutex<Noted>,
    /// The id of the operation to kill.
    ended: AtomicI32,
    wake: Notify,
}

/// The command that a connection runs, or ran last.
#[derive(Default)]
struct Noted {
    /// Zero: the connection is idle.
    number: i32,
    began: Option<Instant>,
    user: String,
    application: Option<String>,
    command: Vec<u8>,
}

/// A connection's seat, for as long as the connection lives.
pub(crate) struct Seated {
    operations: Arc<Operations>,
    seat: Arc<Seat>,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.operations.seats().remove(&self.seat.connection);
    }
}

/// A running command, until it is dropped.
pub(crate) struct Running {
    seat: Arc<Seat>,
    number: i32,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut noted = self.seat.noted();
        noted.number = 0;
        noted.command.clear();
        noted.command.shrink_to(KEPT_BYTES);
    }
}

impl Operations {
    fn seats(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// Gives a new connection its seat.
    pub(crate) fn enter(self: &Arc<Self>, connection: i32, peer: &str) -> Seated {
        let seat = Arc::new(Seat {
            connection,
            peer: peer.to_owned(),
            noted: Mutex::default(),
            ended: AtomicI32::new(0),
            wake: Notify::new(),
        });
        self.seats().insert(connection, seat.clone());
        Seated { operations: self.clone(), seat }
    }

    fn all(&self) -> Vec<Arc<Seat>> {
        self.seats().values().cloned().collect()
    }

    /// Kills the operations that match `of`.
    pub(crate) fn end_of(&self, of: impl Fn(&str, Doc<'_>) -> bool) {
        for seat in self.all() {
            let noted = seat.noted();
            if noted.number != 0 && of(&noted.user, noted.command()) {
                seat.end(noted.number);
            }
        }
    }

    /// Kills the operations of matching sessions.
    pub(crate) fn end_of_session(&self, of: impl Fn(&SessionId) -> bool) {
        self.end_of(|user, command| {
            let session = command.get("lsid").and_then(|lsid| named_session(lsid, user).ok());
            session.is_some_and(|session| of(&session))
        });
    }

    /// Describes the operations that `wish` includes, one at a time.
    pub(crate) fn list(&self, wish: &Wish<'_>) -> impl Iterator<Item = DocBuf> {
        self.all().into_iter().filter_map(move |seat| seat.describe(wish))
    }

    /// Kills an operation, if it is running. `may_kill` checks the right to kill it, unless it is an operation
    /// of `user`.
    ///
    /// # Errors
    /// The error of `may_kill`.
    pub(crate) fn kill(
        &self,
        number: i32,
        user: &str,
        may_kill: impl FnOnce() -> Outcome<()>,
    ) -> Outcome<()> {
        let seats = self.all();
        // The seat stays locked, so that exactly this operation is killed and not the next one.
        let found = seats
            .iter()
            .map(|seat| (seat, seat.noted()))
            .find(|(_, noted)| noted.number == number && number != 0);
        // A caller who may not kill it does not learn whether it exists.
        if found.as_ref().is_none_or(|(_, noted)| noted.user != user) {
            may_kill()?;
        }
        if let Some((seat, _)) = found {
            seat.end(number);
        }
        Ok(())
    }
}

impl Seated {
    /// Records a command that begins. `shows_itself`: lists may show its document, which holds no secret.
    pub(crate) fn begin(
        &self,
        shows_itself: bool,
        user: &str,
        application: Option<&String>,
        body: Doc<'_>,
    ) -> Running {
        // Zero is not an id; the ids start again when they are used up.
        let next = || self.operations.numbers.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        let number = Some(next()).filter(|number| *number != 0).unwrap_or_else(next);
        let mut noted = self.seat.noted();
        noted.number = number;
        noted.began = Some(Instant::now());
        if noted.user != user {
            user.clone_into(&mut noted.user);
        }
        if noted.application.is_none() {
            noted.application = application.cloned();
        }
        noted.command.clear();
        if shows_itself && body.bytes().len() <= COMMAND_BYTES_MAX {
            noted.command.extend_from_slice(body.bytes());
        } else {
            noted.command.extend_from_slice(cut(body, shows_itself).bytes());
        }
        drop(noted);
        Running { seat: self.seat.clone(), number }
    }
}

/// Short form of a command that is too long, or that must not be shown.
fn cut(body: Doc<'_>, long: bool) -> DocBuf {
    let mut out = Writer::new();
    for (place, (name, value)) in body.iter().enumerate() {
        let told = match name {
            "$db" | "lsid" | "collection" => true,
            _ => place == 0,
        };
        // The first field of a command is a collection's name, a number or irrelevant.
        let short = match value {
            Value::String(text) => text.len() <= SHORT_BYTES,
            Value::Document(doc) => name == "lsid" && doc.bytes().len() <= SHORT_BYTES,
            Value::Int32(_) | Value::Int64(_) | Value::Double(_) => true,
            _ => false,
        };
        match (told, short) {
            (true, true) => out.put(name, value),
            (true, false) => out.put(name, Value::Int32(1)),
            _ => {}
        }
    }
    if long {
        out.put("$truncated", Value::Bool(true));
    }
    out.finish()
}

impl Seat {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(|held| held.into_inner())
    }

    fn end(&self, number: i32) {
        self.ended.store(number, Ordering::Relaxed);
        self.wake.notify_one();
    }
}

impl Running {
    /// True if the operation was killed.
    pub(crate) fn is_ended(&self) -> bool {
        self.seat.ended.load(Ordering::Relaxed) == self.number
    }

    /// The same check, for code that may outlive the command's borrow.
    pub(crate) fn watched(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let (seat, number) = (self.seat.clone(), self.number);
        move || seat.ended.load(Ordering::Relaxed) == number
    }

    /// Waits until the operation is killed.
    pub(crate) async fn ended(&self) {
        while !self.is_ended() {
            self.seat.wake.notified().await;
        }
    }
}

impl Noted {
    fn command(&self) -> Doc<'_> {
        Doc::trusted(&self.command)
    }

    /// `database.collection`, or the database's `$cmd`.
    fn namespace(&self) -> String {
        let command = self.command();
        let database = command.get("$db").and_then(Value::as_str).unwrap_or_default();
        let collection = match command.first() {
            // The text of a statement is not the name of a collection.
            Some(("ropewalkSql", _)) => None,
            Some(("getMore", _)) => command.get("collection").and_then(Value::as_str),
            Some((_, Value::String(name))) => Some(name),
            Some(("aggregate", _)) => Some("$cmd.aggregate"),
            _ => None,
        };
        format!("{database}.{}", collection.unwrap_or("$cmd"))
    }

    /// The kind of operation, by MongoDB's names.
    fn kind(&self) -> &'static str {
        match self.command().first().map_or("", |(name, _)| name) {
            "find" => "query",
            "insert" => "insert",
            "update" => "update",
            "delete" => "remove",
            "getMore" => "getmore",
            _ => "command",
        }
    }
}

/// The operations that are listed, and the reader of the list.
pub(crate) struct Wish<'a> {
    /// Operations of this user; `None`: of every user.
    pub(crate) user: Option<&'a str>,
    /// Connections that run nothing, too.
    pub(crate) idle: bool,
    /// Truncate long commands.
    pub(crate) short: bool,
    /// The server's address, as the reader connected to it.
    pub(crate) host: &'a str,
    /// Milliseconds since 1970.
    pub(crate) now_ms: i64,
}

impl Seat {
    /// Describes the operation, if `wish` includes it.
    fn describe(&self, wish: &Wish<'_>) -> Option<DocBuf> {
        let noted = self.noted();
        let active = noted.number != 0;
        if !active && !wish.idle || wish.user.is_some_and(|user| noted.user != user) {
            return None;
        }
        let mut out = Writer::new();
        out.put("type", Value::String("op"));
        out.put("host", Value::String(wish.host));
        out.put("desc", Value::String(&format!("conn{}", self.connection)));
        out.put("connectionId", Value::Int32(self.connection));
        out.put("client", Value::String(&self.peer));
        if let Some(application) = &noted.application {
            out.put("appName", Value::String(application));
        }
        out.put("active", Value::Bool(active));
        if !noted.user.is_empty() {
            out.open_array("effectiveUsers");
            out.open_document("");
            out.put("user", Value::String(&noted.user));
            out.put("db", Value::String("admin"));
            out.close();
            out.close();
        }
        if active {
            self.put_operation(&mut out, &noted, wish);
        } else {
            out.put("op", Value::String("none"));
            out.put("ns", Value::String(""));
            out.open_document("command");
            out.close();
        }
        Some(out.finish())
    }

    /// Puts the fields of an active operation.
    fn put_operation(&self, out: &mut Writer, noted: &Noted, wish: &Wish<'_>) {
        let micros = noted.began.map_or(0, |began| began.elapsed().as_micros()) as i64;
        out.put("opid", Value::Int32(noted.number));
        out.put("currentOpTime", Value::DateTime(wish.now_ms));
        out.put("startTime", Value::DateTime(wish.now_ms - micros / 1000));
        out.put("secs_running", Value::Int64(micros / 1_000_000));
        out.put("microsecs_running", Value::Int64(micros));
        out.put("op", Value::String(noted.kind()));
        out.put("ns", Value::String(&noted.namespace()));
        let command = noted.command();
        if wish.short && command.bytes().len() > SHORT_BYTES {
            out.put("command", Value::Document(cut(command, true).doc()));
        } else {
            out.put("command", Value::Document(command));
        }
        if let Some(lsid) = command.get("lsid") {
            out.put("lsid", lsid);
        }
        if self.ended.load(Ordering::Relaxed) == noted.number {
            out.put("killPending", Value::Bool(true));
        }
    }
}
