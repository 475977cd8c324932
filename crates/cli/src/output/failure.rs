//! The failure of a command: an exit code and one paragraph of text; silent if the reader of the output is
//! gone.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ropewalk::documents::DocumentsError;
use ropewalk::engine::EngineError;
use ropewalk::events::EventsError;
use ropewalk::{Class, Error};
use ropewalk_auth::AuthError;
use ropewalk_wire::WireError;

/// Exit codes. Documented in `docs/cli.md` and `ropewalk --help`; they never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Internal = 1,
    Invalid = 2,
    NotFound = 3,
    Conflict = 4,
    Busy = 5,
    Corrupt = 6,
    Io = 7,
    Denied = 8,
}

/// Hints after a conflict, the same for a directory and a server.
pub(crate) const CONDITION_TODO: &str =
    "Nothing was written; read again, decide again, and append with the new position";
pub(crate) const TRACKING_TODO: &str =
    "Nothing was written; the events up to this position were appended before";
const RECORD_TODO: &str = "Nothing was changed; a newer ropewalk may be able to apply the record. `ropewalk recover --cut-before COMMIT`, with the number of the record, reports what ending the log before it would lose";
const REFUSED_TODO: &str = "Nothing was written; the same request fails again";
const NOT_LEADER_TODO: &str = "Nothing was written; run it with --at and the address of the leader, which `ropewalk cluster status` shows";
const OUTCOME_UNKNOWN_TODO: &str =
    "Read what it would have written, to find out; then run it again if need be";
pub(crate) const CONFLICT_TODO: &str = "Nothing was written; read again and retry";

impl From<Class> for Exit {
    fn from(class: Class) -> Self {
        match class {
            Class::Invalid => Self::Invalid,
            Class::NotFound => Self::NotFound,
            Class::Conflict | Class::Refused => Self::Conflict,
            Class::Busy | Class::NotLeader | Class::Unknown => Self::Busy,
            Class::Corrupt => Self::Corrupt,
            Class::Io => Self::Io,
            Class::Internal => Self::Internal,
        }
    }
}

/// Cause of a failed command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The reader of the output is gone: the command ends without a message and with exit code 0.
    OutputClosed,
    /// The error with its place, and a hint.
    Said { exit: Exit, what: String, todo: &'static str },
}

pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>, todo: &'static str) -> Self {
        Self::Said { exit, what: what.into(), todo }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::new(Exit::Invalid, what, "")
    }

    /// An error of the operating system on a file that the user named.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Io };
        Self::new(exit, format!("{doing} {}: {error}", path.display()), "")
    }

    /// An error of a server, by its stable code. A rejection has the same text as from a directory.
    pub(crate) fn from_code(code: &str, detail: String, server: &str) -> Self {
        let (exit, todo) = match code {
            "condition_failed" => (Exit::Conflict, CONDITION_TODO),
            "tracking_conflict" => (Exit::Conflict, TRACKING_TODO),
            "key_conflict" => (Exit::Conflict, CONFLICT_TODO),
            "already_exists" => (Exit::Conflict, ""),
            "invalid_argument" | "idempotency_mismatch" | "too_large" => (Exit::Invalid, ""),
            "not_found" | "no_such_lease" => (Exit::NotFound, ""),
            "unauthenticated" => (
                Exit::Denied,
                "--at https://USER@HOST asks for a password; a token comes from ROPEWALK_TOKEN or --token",
            ),
            "permission_denied" => (Exit::Denied, "An administrator can grant it: `ropewalk user grant`"),
            "not_leader" => (Exit::Busy, NOT_LEADER_TODO),
            "outcome_unknown" => (Exit::Busy, OUTCOME_UNKNOWN_TODO),
            "resource_exhausted" | "stopping" | "timeout" | "request_timeout" => {
                (Exit::Busy, "Try again in a moment")
            }
            "corrupt" => (Exit::Corrupt, "The server's log says where"),
            "io" => (Exit::Io, "The server's log says more"),
            _ => (Exit::Internal, "The server's log says more"),
        };
        let ours = matches!(exit, Exit::Internal | Exit::Io | Exit::Corrupt);
        Self::new(exit, if ours { format!("{server}: {detail}") } else { detail }, todo)
    }

    /// Puts `place` in front of the message.
    pub(crate) fn at(self, place: &str) -> Self {
        match self {
            Self::OutputClosed => self,
            Self::Said { exit, what, todo } => Self::Said { exit, what: format!("{place}: {what}"), todo },
        }
    }

    /// Prints the message on standard error and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::OutputClosed => ExitCode::SUCCESS,
            Self::Said { exit, what, todo } => {
                let (stop, space) = if todo.is_empty() { ("", "") } else { (".", " ") };
                let what = crate::output::cell::printable(what);
                // Standard error may be closed; the exit code remains.
                let _ = writeln!(io::stderr(), "ropewalk: {what}{stop}{space}{todo}");
                ExitCode::from(*exit as u8)
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let class = error.class();
        let todo = match (&error, class) {
            (Error::Events(EventsError::AppendConditionFailed { .. }), _) => CONDITION_TODO,
            (Error::Events(EventsError::TrackingConflict { .. }), _) => TRACKING_TODO,
            (_, Class::Refused) => REFUSED_TODO,
            (_, Class::Conflict) => CONFLICT_TODO,
            (_, Class::Busy) => "--wait SECONDS waits longer",
            (_, Class::NotLeader) => NOT_LEADER_TODO,
            (_, Class::Unknown) => OUTCOME_UNKNOWN_TODO,
            (Error::Engine(EngineError::Record { .. } | EngineError::UnknownModel { .. }), _) => RECORD_TODO,
            (_, Class::Corrupt) => {
                "Nothing was changed; `ropewalk recover` reports what can be recovered of a damaged log, a damaged run needs a backup"
            }
            (_, Class::Io) => "Nothing acknowledged is lost; remove the cause and run it again",
            (_, Class::Internal) => "Please report this with the command that led to it",
            (_, Class::Invalid | Class::NotFound) => "",
        };
        Self::Said { exit: class.into(), what: error.to_string(), todo }
    }
}

impl From<EventsError> for Failure {
    fn from(error: EventsError) -> Self {
        Error::from(error).into()
    }
}

impl From<DocumentsError> for Failure {
    fn from(error: DocumentsError) -> Self {
        Error::from(error).into()
    }
}

impl From<AuthError> for Failure {
    fn from(error: AuthError) -> Self {
        let error = WireError::from(error);
        Self::from_code(error.code.as_str(), error.message, "this process")
    }
}

/// Errors of writing to standard output; errors of other files become failures by [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::new(Exit::Io, format!("writing the output: {error}"), ""),
        }
    }
}
