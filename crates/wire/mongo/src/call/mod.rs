//! One command in execution: its client, database, session, transaction, durability and deadline.

pub(crate) mod client;
pub(crate) mod concerns;
pub(crate) mod transaction;

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ropewalk::Seq;
use ropewalk::documents::lang::{
    self, Budget, COMMAND_BYTES_MAX, Filter, LangError, Options, Patterns, Value, Writer,
};
use ropewalk::documents::{Caller as Asked, Collection, Documents, DocumentsError};
use ropewalk_auth::{Caller, Right};

use crate::call::client::{Client, Line};
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::protocol::frame::Request;
use crate::state::Shared;
use crate::state::guard::Reader;
use crate::state::operations::Running;
use crate::state::sessions::{SessionId, session_id};

/// The database whose collections are event stores and tables. It has no documents.
pub(crate) const RESERVED: &str = "ropewalk";

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
    /// It has begun its transaction.
    has_begun: AtomicBool,
    /// The deadline.
    pub(crate) deadline: Option<Instant>,
    /// The time until it, and the name of the setting that it comes from.
    limit: (Duration, &'static str),
    /// Its entry among the running operations.
    pub(crate) running: Running,
    /// Its regular expressions, set with its first parser.
    patterns: OnceLock<Patterns>,
    /// Its memory and time, set with its first evaluation.
    budget: OnceLock<Budget>,
    /// The client's connection.
    line: &'a dyn Line,
}

impl<'a> Call<'a> {
    /// Collects the fields that every command may have. `running`: its entry in the client's seat.
    ///
    /// # Errors
    /// Invalid session, transaction or concern.
    pub(crate) fn new(
        shared: &'a Shared,
        client: &'a mut Client,
        request: &'a Request,
        line: &'a dyn Line,
        name: &'static str,
        running: Running,
    ) -> Outcome<Self> {
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
        let limit = match args.max_time()? {
            Some(time) => (time, "maxTimeMS"),
            None => (shared.settings.command_time, "the setting mongo.command_time"),
        };
        let deadline = Instant::now().checked_add(limit.0);
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
            has_begun: AtomicBool::new(false),
            deadline,
            limit,
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

    /// The filter of the command; without one everything matches.
    pub(crate) fn filter(&self) -> Outcome<Filter> {
        let options = self.options(&self.args)?;
        match self.args.document("filter")? {
            Some(filter) => Ok(Filter::parse(filter, &options)?),
            None => Ok(Filter::all()),
        }
    }

    /// The regular expressions of the command: compiling them is bounded by the command's deadline.
    fn patterns(&self) -> &Patterns {
        self.patterns.get_or_init(|| Patterns::with_cancellation(self.stop()))
    }

    /// The memory and time of the command: evaluation inside [`Budget::run`] counts.
    pub(crate) fn budget(&self) -> &Budget {
        let shared = || Some(self.shared.service.commands().clone());
        self.budget.get_or_init(|| Budget::new(COMMAND_BYTES_MAX, shared(), self.stop()))
    }

    /// Checks whether the command may continue, regardless of its client; for code that outlives this borrow.
    pub(crate) fn stop(&self) -> impl Fn() -> Result<(), LangError> + Send + Sync + 'static {
        let (deadline, limit, stop) = (self.deadline, self.limit, self.shared.service.stop().clone());
        let is_ended = self.running.watched();
        move || match reason_to_end(stop.stopping(), is_ended(), deadline, limit) {
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
            && let Err(error) = self.shared.service.access().revalidate(caller, &mut seen)
        {
            return Err(Failure::new(Code::Unauthorized, error.to_string()));
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
        self.reader().may(right, database)
    }

    /// The caller as a reader of cursors.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { caller: self.caller.as_ref(), documents: self.documents(), database: self.database }
    }

    /// The collection that the command's first field names.
    ///
    /// # Errors
    /// Not a string, or not a valid collection name.
    pub(crate) fn collection(&self) -> Outcome<Collection> {
        Ok(self.documents().collection(self.database, self.collection_name()?)?)
    }

    /// The name of the collection that the command's first field names.
    ///
    /// # Errors
    /// Not a string.
    pub(crate) fn collection_name(&self) -> Outcome<&'a str> {
        let name = self.args.text(self.args.doc().first().map_or("", |(name, _)| name))?;
        name.ok_or_else(|| {
            Failure::new(Code::InvalidNamespace, format!("{} needs the name of a collection", self.args.name))
        })
    }

    /// Checks whether a long command may continue: fails when the server stops, the operation was killed, the
    /// deadline has passed, or the client has disconnected.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn may_go_on(&self) -> Result<(), DocumentsError> {
        let stopping = self.shared.service.stop().stopping();
        let why = match reason_to_end(stopping, self.running.is_ended(), self.deadline, self.limit) {
            Some(why) => why,
            None if self.line.is_dead() => {
                LangError::new(lang::Code::ClientDisconnect, "the client has disconnected")
            }
            None => return Ok(()),
        };
        Err(DocumentsError::Interrupted(why))
    }

    /// Only commands of the declared API version are accepted.
    pub(crate) fn is_strict(&self) -> bool {
        self.args.get("apiStrict").is_some_and(Value::is_truthy)
    }

    /// The newest visible commit.
    pub(crate) fn seq(&self) -> Seq {
        self.shared.service.database().seq()
    }
}

/// Why a command must end, regardless of its client.
fn reason_to_end(
    stopping: bool,
    ended: bool,
    deadline: Option<Instant>,
    (time, setting): (Duration, &str),
) -> Option<LangError> {
    if stopping {
        Some(LangError::new(lang::Code::InterruptedAtShutdown, "the server is shutting down"))
    } else if ended {
        Some(LangError::new(lang::Code::Interrupted, "operation was interrupted"))
    } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        let what = format!("operation exceeded time limit: {time:?}, {setting}");
        Some(LangError::new(lang::Code::MaxTimeMSExpired, what))
    } else {
        None
    }
}
