//! One command in execution: its client, database, session, transaction, durability and deadline.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use ropewalk::documents::lang::{
    self, Budget, COMMAND_BYTES_MAX, Doc, LangError, Options, Patterns, Value, Writer,
};
use ropewalk::documents::{Caller as Asked, Collection, Documents, DocumentsError, DocumentsTx, Retry};
use ropewalk::{Durability, Isolation, Seq, Snapshot, Transaction};
use ropewalk_wire::{Caller, Right};

use crate::Shared;
use crate::args::Args;
use crate::command::Command;
use crate::compress::Compressor;
use crate::failure::{Code, Failure, Outcome, TRANSIENT};
use crate::frame::Request;
use crate::operations::{Running, Seated};
use crate::session::{self, Phase, SessionId, State};

/// The client of a connection.
pub(crate) struct Client {
    /// Number of the connection.
    pub(crate) connection: i32,
    /// Where the connection records what it runs.
    pub(crate) seat: Seated,
    /// The peer's address.
    pub(crate) peer: Option<IpAddr>,
    /// The same, with the port.
    pub(crate) peer_text: String,
    /// The server's address that the client connected to.
    pub(crate) local: Option<String>,
    /// The caller, after login.
    pub(crate) caller: Option<Caller>,
    /// Version of users and tokens when the caller was last checked.
    pub(crate) seen: u64,
    /// A login in progress.
    pub(crate) login: Option<crate::login::Conversation>,
    /// The mechanism by which the client logged in.
    pub(crate) logged_in: bool,
    /// The application's name, as the client reported it.
    pub(crate) application: Option<String>,
    /// The current write had been executed before; only its result is repeated.
    pub(crate) answered_again: AtomicBool,
    /// The negotiated compressors.
    pub(crate) compressors: Vec<Compressor>,
}

/// The client's connection while a command runs.
pub(crate) trait Line: Sync {
    /// True once the client has disconnected. Cheap enough to call every few hundred documents.
    fn is_dead(&self) -> bool;
}

/// A command with its context.
pub(crate) struct Call<'a> {
    /// The server.
    pub(crate) shared: &'a Shared,
    /// The client.
    pub(crate) client: &'a mut Client,
    /// The caller; `None` before login.
    pub(crate) caller: Option<Caller>,
    /// The message.
    pub(crate) request: &'a Request,
    /// The fields.
    pub(crate) args: Args<'a>,
    /// The database named.
    pub(crate) database: &'a str,
    /// The session.
    pub(crate) session: Option<SessionId>,
    /// `txnNumber`.
    pub(crate) number: Option<i64>,
    /// It is part of a transaction.
    pub(crate) in_transaction: bool,
    /// It is the first part.
    pub(crate) starts: bool,
    /// The deadline.
    pub(crate) deadline: Option<Instant>,
    /// Its entry among the running operations.
    pub(crate) running: Running,
    /// Its regular expressions, set with its first parser.
    patterns: OnceLock<Patterns>,
    /// Its memory and time, set with its first evaluation.
    budget: OnceLock<Budget>,
    /// The client's connection.
    line: &'a dyn Line,
}

/// Accepted fields of a read concern.
const READ_CONCERN: &[&str] = &["level", "afterClusterTime", "atClusterTime", "provenance"];
const WRITE_CONCERN: &[&str] = &["w", "j", "wtimeout", "fsync", "provenance"];

impl<'a> Call<'a> {
    /// Collects what every command has.
    ///
    /// # Errors
    /// Invalid session, transaction or concern.
    pub(crate) fn new(
        shared: &'a Shared,
        client: &'a mut Client,
        request: &'a Request,
        line: &'a dyn Line,
        command: &'static Command,
    ) -> Outcome<Self> {
        let user = client.caller.as_ref().map_or("", Caller::name);
        let running = client.seat.begin(command, user, client.application.as_ref(), request.body());
        let name = command.name;
        let args = Args::new(name, request.body());
        let database = request
            .database()
            .ok_or_else(|| Failure::new(Code::MissingField, "OP_MSG requests require a $db argument"))?;
        let caller = client.caller.clone();
        let user = caller.as_ref().map_or("", Caller::name);
        let session = match args.document("lsid")? {
            Some(lsid) => Some(session_id(lsid, user)?),
            None => None,
        };
        let number = args.integer("txnNumber")?;
        let autocommit = args.flag("autocommit")?;
        let starts = args.flag("startTransaction")?.unwrap_or(false);
        let in_transaction = autocommit.is_some();
        let refuse = |what: &str| Err(Failure::new(Code::InvalidOptions, what));
        if number.is_some() && session.is_none() {
            return refuse("Transaction number requires a session ID to also be specified");
        }
        if number.is_some_and(|number| number < 0) {
            return refuse("Transaction number cannot be negative");
        }
        if autocommit == Some(true) {
            return refuse("Specifying autocommit=true is not allowed.");
        }
        if in_transaction && number.is_none() {
            return refuse("autocommit requires a txnNumber");
        }
        if starts && !in_transaction {
            return refuse("Specifying startTransaction=true requires autocommit=false");
        }
        if args.flag("apiStrict")?.unwrap_or(false) && args.text("apiVersion")?.is_none() {
            return Err(Failure::new(Code::APIVersionError, "apiStrict needs an apiVersion"));
        }
        if let Some(version) = args.text("apiVersion")?
            && version != "1"
        {
            return Err(Failure::new(Code::APIVersionError, "API version must be \"1\""));
        }
        let time = args.max_time()?.unwrap_or(shared.settings.command_time);
        let deadline = Instant::now().checked_add(time);
        let call = Self {
            shared,
            client,
            caller,
            request,
            args,
            database,
            session,
            number,
            in_transaction,
            starts,
            deadline,
            running,
            patterns: OnceLock::new(),
            budget: OnceLock::new(),
            line,
        };
        call.check_concerns()?;
        Ok(call)
    }

    /// The documents.
    pub(crate) fn documents(&self) -> &'a Documents {
        &self.shared.documents
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.shared.now_ms()
    }

    /// Parser options for `args`, which are the command's or those of one of its statements.
    ///
    /// # Errors
    /// A collation other than the simple one.
    pub(crate) fn options(&self, args: &Args<'_>) -> Outcome<Options> {
        args.options(self.now_ms(), self.shared.random(), self.patterns().clone())
    }

    /// The regular expressions of the command: compiling them is bounded by the command's deadline.
    fn patterns(&self) -> &Patterns {
        self.patterns.get_or_init(|| Patterns::looking(self.stop()))
    }

    /// The memory and time of the command: evaluation inside [`Budget::run`] counts.
    pub(crate) fn budget(&self) -> &Budget {
        let shared = || Some(self.shared.service.commands().clone());
        self.budget.get_or_init(|| Budget::new(COMMAND_BYTES_MAX, shared(), self.stop()))
    }

    /// Checks whether the command may continue, regardless of its client; for code that outlives this borrow.
    fn stop(&self) -> impl Fn() -> Result<(), LangError> + Send + Sync + 'static {
        let (deadline, stop) = (self.deadline, self.shared.service.stop().clone());
        let is_ended = self.running.watched();
        move || match reason_to_end(stop.stopping(), is_ended(), deadline) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Authenticates the caller again: a command that waits may outlive the user and their rights.
    ///
    /// # Errors
    /// `Unauthorized`: the user or token is gone.
    pub(crate) fn look_at_caller(&mut self) -> Outcome<()> {
        let mut seen = self.client.seen;
        if let Some(caller) = &mut self.caller
            && let Err(error) = self.shared.service.access().still(caller, &mut seen)
        {
            return Err(Failure::new(Code::Unauthorized, error.message));
        }
        Ok(())
    }

    /// The user's name; empty for an anonymous caller.
    pub(crate) fn user(&self) -> &str {
        self.caller.as_ref().map_or("", Caller::name)
    }

    /// The caller to whom rules of collections apply; `None` for administrators of the database.
    pub(crate) fn asked(&self) -> Option<Asked> {
        self.asked_in(self.database)
    }

    /// The same for a command that also touches another database: rules apply unless the caller may
    /// administer both.
    pub(crate) fn asked_in(&self, other: &str) -> Option<Asked> {
        let caller = self.caller.as_ref()?;
        if [self.database, other].iter().all(|database| caller.may(Right::Admin, Some(database))) {
            return None;
        }
        let mut auth = Writer::new();
        auth.put("uid", Value::String(caller.name()));
        Some(Asked { auth: Some(auth.finish()) })
    }

    /// Rejects a command for which the caller has no right on a database.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub(crate) fn may(&self, right: Right, database: Option<&str>) -> Outcome<()> {
        match &self.caller {
            Some(caller) => Ok(caller.check(right, database)?),
            None => Err(Failure::new(Code::Unauthorized, "authentication is needed")),
        }
    }

    /// The collection that the command's first field names.
    ///
    /// # Errors
    /// Not a string, or not a valid collection name.
    pub(crate) fn collection(&self) -> Outcome<Collection> {
        let name = self.args.text(self.args.doc().first().map_or("", |(name, _)| name))?;
        let name = name.ok_or_else(|| {
            Failure::new(Code::InvalidNamespace, format!("{} needs the name of a collection", self.args.name))
        })?;
        Ok(self.documents().collection(self.database, name)?)
    }

    /// Checks whether a long command may continue: fails when the server stops, the operation was killed, the
    /// deadline has passed, or the client has disconnected.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn may_go_on(&self) -> Result<(), DocumentsError> {
        let stopping = self.shared.service.stop().stopping();
        let why = match reason_to_end(stopping, self.running.is_ended(), self.deadline) {
            Some(why) => why,
            None if self.line.is_dead() => {
                LangError::new(lang::Code::ClientDisconnect, "the client has disconnected")
            }
            None => return Ok(()),
        };
        Err(DocumentsError::Interrupted(why))
    }

    fn check_concerns(&self) -> Outcome<()> {
        if let Some(concern) = self.args.document("readConcern")? {
            let concern = Args::statement("readConcern", concern, READ_CONCERN)?;
            let level = concern.text("level")?.unwrap_or("local");
            if !["local", "available", "majority", "linearizable", "snapshot"].contains(&level) {
                let message = format!(
                    "Enumeration value '{level}' for field 'readConcern.level' is not a valid value."
                );
                return Err(Failure::new(Code::BadValue, message));
            }
            let newest = self.shared.service.database().seq().0;
            if let Some(Value::Timestamp(after)) = concern.get("afterClusterTime")
                && after > newest
            {
                let message = "readConcern afterClusterTime lies in the future of this server";
                return Err(Failure::new(Code::InvalidOptions, message));
            }
            if concern.get("atClusterTime").is_some() && (level != "snapshot" || self.in_transaction) {
                let message =
                    "atClusterTime is only allowed with readConcern level 'snapshot' outside of transactions";
                return Err(Failure::new(Code::InvalidOptions, message));
            }
        }
        if let Some(concern) = self.args.document("writeConcern")? {
            let concern = Args::statement("writeConcern", concern, WRITE_CONCERN)?;
            match concern.get("w") {
                None | Some(Value::String(_)) => {}
                Some(w) if matches!(w.as_integer(), Some(0..=50)) => {}
                Some(w) => {
                    let message = "w has to be a non-negative number and not greater than 50; found: ";
                    return Err(Failure::new(Code::FailedToParse, format!("{message}{w}")));
                }
            }
            concern.flag("j")?;
        }
        Ok(())
    }

    /// When a write is acknowledged: once it is durable, unless the client says that it need not be.
    pub(crate) fn durability(&self) -> Durability {
        let concern = self.args.get("writeConcern").and_then(Value::as_document);
        let says = |field: &str| concern.and_then(|concern| concern.get(field));
        let unjournaled = says("j").is_some_and(|j| !j.is_truthy());
        let unacknowledged = says("w").and_then(Value::as_integer) == Some(0);
        let majority = says("w").and_then(Value::as_str) == Some("majority");
        if (unjournaled && !majority) || unacknowledged { Durability::Buffered } else { Durability::Sync }
    }

    /// Only commands of the declared API version are accepted.
    pub(crate) fn is_strict(&self) -> bool {
        self.args.get("apiStrict").is_some_and(Value::is_truthy)
    }

    /// The level of the read concern, if one is named.
    pub(crate) fn read_level(&self) -> Option<&'a str> {
        let concern = self.args.get("readConcern").and_then(Value::as_document);
        concern.and_then(|concern| concern.get("level")).and_then(Value::as_str)
    }

    /// `readConcern: { level: "snapshot" }` outside of a transaction: the reply contains the snapshot time.
    pub(crate) fn wants_snapshot_time(&self) -> bool {
        !self.in_transaction && self.read_level() == Some("snapshot")
    }

    /// Key under which a retryable write stores its result.
    ///
    /// # Errors
    /// A number below the session's newest.
    pub(crate) fn retry(&self, statement: i32) -> Outcome<Option<Retry>> {
        let (Some(session), Some(number), false) = (&self.session, self.number, self.in_transaction) else {
            return Ok(None);
        };
        if let Some(state) = self.shared.sessions.find(session) {
            let mut state = session::lock(&state);
            state.touch();
            if number < state.number {
                return Err(too_old(number, state.number));
            }
            if number > state.number {
                // A higher number ends the transaction that was open.
                state.phase = Phase::None;
                state.number = number;
            }
        }
        Ok(Some(Retry { session: session.clone(), number, statement }))
    }

    /// The transaction that the command belongs to; `None` outside of one.
    ///
    /// # Errors
    /// There is no such transaction, or it cannot begin.
    pub(crate) fn transaction(&self) -> Outcome<Option<InTransaction<'_, 'a>>> {
        let (Some(id), Some(number), true) = (&self.session, self.number, self.in_transaction) else {
            return Ok(None);
        };
        if self.starts {
            let session = self.shared.sessions.enter(id)?;
            let mut state = session::lock(&session);
            state.touch();
            if number < state.number {
                return Err(too_old(number, state.number));
            }
            if number == state.number {
                let message = format!("transaction {number} of this session was started already");
                return Err(Failure::new(Code::ConflictingOperationInProgress, message));
            }
            let transaction = Box::new(self.shared.service.database().begin_with(Isolation::Snapshot));
            state.number = number;
            state.phase = Phase::Open { transaction, since: Instant::now(), wrote: false };
            drop(state);
            return Ok(Some(InTransaction { session, call: self }));
        }
        let session = self.shared.sessions.find(id).ok_or_else(|| no_transaction(number))?;
        {
            let mut state = session::lock(&session);
            state.touch();
            if number < state.number {
                return Err(too_old(number, state.number));
            }
            match state.phase {
                Phase::Open { .. } if number == state.number => {}
                Phase::Committed if number == state.number => {
                    let message = format!("Transaction with {{ txnNumber: {number} }} has been committed.");
                    return Err(Failure::new(Code::TransactionCommitted, message));
                }
                _ => return Err(no_transaction(number)),
            }
        }
        Ok(Some(InTransaction { session, call: self }))
    }

    /// The current snapshot, or the one that the read concern names.
    ///
    /// # Errors
    /// `SnapshotTooOld`: the snapshot is no longer held.
    pub(crate) fn snapshot(&self) -> Outcome<Snapshot> {
        let concern = self.args.get("readConcern").and_then(Value::as_document);
        match concern.and_then(|concern| concern.get("atClusterTime")) {
            Some(Value::Timestamp(at)) => self.shared.snapshots.at(Seq(at)),
            _ => {
                let snapshot = self.shared.service.database().snapshot();
                if self.wants_snapshot_time() {
                    self.shared.snapshots.keep(snapshot.clone());
                }
                Ok(snapshot)
            }
        }
    }

    /// The newest visible commit.
    pub(crate) fn seq(&self) -> Seq {
        self.shared.service.database().seq()
    }
}

/// Why a command must end, regardless of its client.
fn reason_to_end(stopping: bool, ended: bool, deadline: Option<Instant>) -> Option<LangError> {
    if stopping {
        Some(LangError::new(lang::Code::InterruptedAtShutdown, "the server is shutting down"))
    } else if ended {
        Some(LangError::new(lang::Code::Interrupted, "operation was interrupted"))
    } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        Some(LangError::new(lang::Code::MaxTimeMSExpired, "operation exceeded time limit"))
    } else {
        None
    }
}

/// The write concern error of a completed write that requested more members than exist.
pub(crate) fn unsatisfied(request: &Request) -> Option<Failure> {
    let concern = request.body().get("writeConcern")?.as_document()?;
    match concern.get("w")? {
        Value::String("majority") => None,
        Value::String(mode) => {
            let message = format!("No write concern mode named '{mode}' found in replica set configuration");
            Some(Failure::new(Code::UnknownReplWriteConcern, message))
        }
        w if w.as_integer().is_some_and(|members| members > 1) => {
            Some(Failure::new(Code::UnsatisfiableWriteConcern, "Not enough data-bearing nodes"))
        }
        _ => None,
    }
}

/// The session has already used a newer number.
pub(crate) fn too_old(number: i64, newest: i64) -> Failure {
    let message = format!(
        "Cannot start transaction {number} on session because a newer transaction {newest} has already started."
    );
    Failure::new(Code::TransactionTooOld, message)
}

/// No transaction in progress has that number.
pub(crate) fn no_transaction(number: i64) -> Failure {
    let message = format!("Given transaction number {number} does not match any in-progress transactions.");
    Failure::new(Code::NoSuchTransaction, message).label(TRANSIENT)
}

/// Key of a session: its id and user.
fn session_id(lsid: Doc<'_>, user: &str) -> Outcome<SessionId> {
    let args = Args::statement("lsid", lsid, &["id", "uid", "txnNumber", "txnUUID"])?;
    args.not_offered(&["txnNumber", "txnUUID"])?;
    match args.get("id") {
        Some(Value::Binary(4, id)) if id.len() == 16 => {
            let mut key = id.to_vec();
            key.extend_from_slice(user.as_bytes());
            Ok(key)
        }
        _ => Err(Failure::new(Code::TypeMismatch, "lsid.id has to be a UUID")),
    }
}

/// The session's id and its user within [`SessionId`].
pub(crate) fn session_parts(id: &SessionId) -> (&[u8], &[u8]) {
    id.split_at_checked(16).unwrap_or((id, &[]))
}

/// Session key of an id that a client names.
///
/// # Errors
/// As for `lsid`.
pub(crate) fn named_session(value: Value<'_>, user: &str) -> Outcome<SessionId> {
    let doc = value.as_document();
    session_id(doc.ok_or_else(|| Failure::new(Code::TypeMismatch, "a session is a document"))?, user)
}

/// A transaction in progress.
pub(crate) struct InTransaction<'c, 'a> {
    session: Arc<Mutex<State>>,
    call: &'c Call<'a>,
}

impl InTransaction<'_, '_> {
    fn state(&self) -> MutexGuard<'_, State> {
        session::lock(&self.session)
    }

    /// Runs `work` in the transaction; any failure ends the transaction. `writes`: it is more than a read.
    ///
    /// # Errors
    /// The error of `work`; the transaction is gone.
    pub(crate) fn run<R>(
        &self,
        writes: bool,
        work: impl FnOnce(&mut DocumentsTx<'_>) -> Outcome<R>,
    ) -> Outcome<R> {
        let mut state = self.state();
        let number = state.number;
        let Phase::Open { transaction, wrote, .. } = &mut state.phase else {
            return Err(no_transaction(number));
        };
        *wrote |= writes;
        let mut documents = transaction.documents();
        documents.act_for(self.call.asked());
        documents.share(&self.call.shared.transactions)?;
        let look = || self.call.may_go_on();
        let result = work(&mut documents.looking(&look));
        if result.is_err() {
            state.phase = Phase::Aborted;
        }
        result
    }

    /// Ends the transaction after a failure outside of [`InTransaction::run`].
    pub(crate) fn abort(&self) {
        let mut state = self.state();
        if matches!(state.phase, Phase::Open { .. }) {
            state.phase = Phase::Aborted;
        }
    }
}

/// Takes an open transaction out of its session.
pub(crate) fn take_open(state: &mut State) -> Option<(Box<Transaction>, bool)> {
    match std::mem::take(&mut state.phase) {
        Phase::Open { transaction, wrote, .. } => Some((transaction, wrote)),
        other => {
            state.phase = other;
            None
        }
    }
}

impl Shared {
    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.service.database().engine().env().clock.wall_micros().div_euclid(1000)
    }

    /// An unpredictable number.
    pub(crate) fn random(&self) -> u64 {
        self.service.database().engine().env().random.next_u64()
    }

    /// Appends the fields that every member of a replica set adds to a reply.
    pub(crate) fn put_times(&self, out: &mut Writer) {
        let time = Value::Timestamp(self.service.database().seq().0);
        out.open_document("$clusterTime");
        out.put("clusterTime", time);
        out.open_document("signature");
        out.put("hash", Value::Binary(0, &[0; 20]));
        out.put("keyId", Value::Int64(0));
        out.close();
        out.close();
        out.put("operationTime", time);
    }

    /// How long the server has run.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}
