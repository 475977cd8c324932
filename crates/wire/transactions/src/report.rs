//! The error of a transaction, as every protocol reports it to its clients.

use std::path::Path;

use ropewalk::documents::DocumentsError;
use ropewalk_wire::{Code, WireError};

use crate::failure::Cause;
use crate::sql_error::{code_of, told};

/// An error as clients see it. Protocols add their status, and the place of the failed operation.
#[derive(Debug)]
pub struct Report {
    /// Code and message.
    pub error: WireError,
    /// More precise than the code.
    pub kind: ReportKind,
    /// With an error of an SQL statement.
    pub statement: Option<StatementReport>,
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
    /// The report of a cause. `database`: the directory, which messages do not show.
    pub fn new(cause: Cause, database: &Path) -> Self {
        let unmet = |what: String| Self {
            kind: ReportKind::PreconditionFailed,
            ..Self::from(WireError::new(Code::InvalidArgument, what))
        };
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
                let error = told(&error, database);
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
            Cause::UnknownTransaction => WireError::not_found(
                "there is no such open transaction; it may have ended by an error or by its idle time",
            )
            .into(),
        }
    }

    /// The stable name of the error, the same in every protocol.
    pub fn name(&self) -> &'static str {
        match self.kind {
            ReportKind::Code => self.error.code.as_str(),
            ReportKind::PreconditionFailed => "precondition_failed",
            ReportKind::ValidationFailed => "validation_failed",
            ReportKind::QuotaExceeded => "quota_exceeded",
        }
    }
}

impl From<WireError> for Report {
    fn from(error: WireError) -> Self {
        Self { error, kind: ReportKind::Code, statement: None }
    }
}
