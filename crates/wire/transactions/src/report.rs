//! The error of a transaction, as every protocol reports it to its clients.

use ropewalk::Seq;
use ropewalk::documents::DocumentsError;
use ropewalk_wire::{Code, Service, WireError};

use crate::failure::Cause;
use crate::sql::error::{code_of, told};

/// An error as clients see it. Protocols add their status, and the place of the failed operation.
#[derive(Debug)]
pub struct Report {
    /// Code and message.
    pub error: WireError,
    /// More precise than the code.
    pub kind: ReportKind,
    /// With an error of an SQL statement.
    pub statement: Option<StatementReport>,
    /// With [`ReportKind::CommitUnreadable`]: the oldest commit from which on every commit can be read.
    pub oldest_readable: Option<Seq>,
}

/// Kinds of errors that a code does not distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportKind {
    /// The code says everything.
    Code,
    /// A precondition, or the number of documents or rows that an operation expects, does not hold.
    PreconditionFailed,
    /// A document violates a rule of its collection.
    ValidationFailed,
    /// The database of documents is as large as it may be.
    QuotaExceeded,
    /// The commit to read cannot be read any more.
    CommitUnreadable,
}

/// Further parts of an error of an SQL statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementReport {
    /// The SQLSTATE.
    pub sqlstate: &'static str,
    /// The violated constraint.
    pub constraint: Option<String>,
    /// The remedy.
    pub hint: Option<String>,
}

impl Report {
    /// The report of a cause. Messages do not show the directory of the database.
    pub fn new(cause: Cause, service: &Service) -> Self {
        let report =
            |kind, what: String| Self { kind, ..Self::from(WireError::new(Code::InvalidArgument, what)) };
        let unmet = |what: String| report(ReportKind::PreconditionFailed, what);
        match cause {
            Cause::Wire(error) => error.into(),
            Cause::Documents(error) => {
                let kind = match &error {
                    DocumentsError::Validation { .. } | DocumentsError::Reference { .. } => {
                        ReportKind::ValidationFailed
                    }
                    DocumentsError::Quota { .. } => ReportKind::QuotaExceeded,
                    _ => ReportKind::Code,
                };
                Self { kind, ..Self::from(WireError::from(error)) }
            }
            Cause::Sql(error) => {
                let error = told(&error, service.database().engine().dir());
                let constraint = error.about.as_ref().and_then(|about| about.constraint.clone());
                let statement =
                    StatementReport { sqlstate: error.state.0, constraint, hint: error.hint.clone() };
                let error = WireError::new(code_of(&error), error.message.clone());
                Self { statement: Some(statement), ..Self::from(error) }
            }
            Cause::Unexpected { what, found, expected } => {
                unmet(format!("it is about {found} {what}, {expected} are expected"))
            }
            Cause::EventsChanged { position } => unmet(format!("the event at position {position} matches")),
            Cause::CheckpointMoved { recorded } => {
                let recorded = recorded.map_or("none".to_owned(), |position| position.to_string());
                unmet(format!("the recorded position is {recorded}"))
            }
            Cause::NotNewest { expected, newest } => {
                unmet(format!("the newest commit is {newest}, {expected} is expected"))
            }
            Cause::Unreadable { asked, oldest, newest } => {
                let what = format!(
                    "commit {asked} cannot be read any more: every commit from {oldest} to {newest} can, and an \
                     older one while a transaction that reads it is open"
                );
                Self { oldest_readable: Some(oldest), ..report(ReportKind::CommitUnreadable, what) }
            }
            Cause::UnknownTransaction => {
                let limits = &service.limits().transactions;
                let what = format!(
                    "there is no such open transaction; it ends by its commit or rollback, by an error, {:?} after \
                     its last request, and {:?} after its begin",
                    limits.idle_time, limits.lifetime
                );
                WireError::not_found(what).into()
            }
        }
    }

    /// The stable name of the error, the same in every protocol.
    pub fn name(&self) -> &'static str {
        match self.kind {
            ReportKind::Code => self.error.code.as_str(),
            ReportKind::PreconditionFailed => "precondition_failed",
            ReportKind::ValidationFailed => "validation_failed",
            ReportKind::QuotaExceeded => "quota_exceeded",
            ReportKind::CommitUnreadable => "commit_unreadable",
        }
    }
}

impl From<WireError> for Report {
    fn from(error: WireError) -> Self {
        Self { error, kind: ReportKind::Code, statement: None, oldest_readable: None }
    }
}
