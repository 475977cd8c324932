//! Errors of native calls, and the exceptions of `ropewalk.errors` that Python sees.

use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use ropewalk::documents::DocumentsError;
use ropewalk::documents::lang::{Code, LangError};
use ropewalk::engine::EngineError;
use ropewalk::events::EventsError;
use ropewalk::groups::GroupError;
use ropewalk::series::LabelError;
use ropewalk::tables::TablesError;
use ropewalk::transaction::IdempotencyError;
use ropewalk::{Class, Database, Error, promql};
use ropewalk_sql::{SqlError, state};

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

/// Longest wait for the commit that a call conflicted with.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);

/// The error of a native call.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Of events, samples, groups, the engine, or of a commit.
    Database(Box<Error>),
    /// Of documents.
    Documents(Box<DocumentsError>),
    /// Of an SQL statement, or of rows.
    Sql(Box<SqlError>),
    /// Of a PromQL query.
    Metrics(Box<promql::Error>),
    /// The call or its arguments are invalid.
    Invalid(String),
    /// The named object does not exist.
    Unknown(String),
    /// A precondition or an `expect` does not hold.
    Unmet(String),
    /// The database was closed.
    Closed,
    /// The reader or transaction was closed.
    Ended,
    /// The process is a fork of the one that opened the database.
    Forked,
    /// An exception of Python code.
    Python(PyErr),
}

impl Fault {
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    /// After a conflict, waits until the other commit is visible: a repetition would fail again before.
    pub(crate) fn settled(error: Error, db: &Database) -> Self {
        if let Some(seq) = error.conflict_seq() {
            db.engine().wait_visible(seq, CONFLICT_WAIT);
        }
        error.into()
    }

    /// The stable name of the error.
    fn code(&self) -> &'static str {
        match self {
            Self::Database(error) => code_of(error),
            Self::Documents(error) => code_of_documents(error),
            Self::Sql(error) => code_of_statement(error),
            Self::Metrics(error) => match &**error {
                promql::Error::Budget(_) => "resource_exhausted",
                promql::Error::Storage(_) => "internal",
                _ => "invalid_argument",
            },
            Self::Unknown(_) => "not_found",
            Self::Unmet(_) => "precondition_failed",
            _ => "invalid_argument",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Database(error) => error.to_string(),
            Self::Documents(error) => error.to_string(),
            Self::Sql(error) => error.message.clone(),
            Self::Metrics(error) => error.to_string(),
            Self::Invalid(what) | Self::Unknown(what) | Self::Unmet(what) => what.clone(),
            Self::Closed => "the database is closed".to_owned(),
            Self::Ended => "the reader is closed".to_owned(),
            Self::Forked => "the database was opened before a fork; open it in the child process".to_owned(),
            Self::Python(error) => error.to_string(),
        }
    }

    /// The fields of an error response of the server.
    fn problem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let problem = PyDict::new(py);
        problem.set_item("code", self.code())?;
        problem.set_item("detail", self.detail())?;
        if let Self::Sql(error) = self {
            problem.set_item("sqlstate", error.state.0)?;
            problem
                .set_item("constraint", error.about.as_ref().and_then(|about| about.constraint.as_deref()))?;
            problem.set_item("hint", error.hint.as_deref())?;
        }
        if let Self::Database(error) = self
            && let Error::Events(EventsError::AppendConditionFailed { condition, position, item, .. }) =
                &**error
        {
            let conflict = PyDict::new(py);
            conflict.set_item("condition", condition)?;
            conflict.set_item("position", position.0)?;
            if let Some(item) = item {
                conflict.set_item("item", item)?;
            }
            problem.set_item("conflict", conflict)?;
        }
        Ok(problem)
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        static FROM_PROBLEM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        match fault {
            Fault::Python(error) => error,
            Fault::Closed | Fault::Ended | Fault::Forked => PyRuntimeError::new_err(fault.detail()),
            fault => Python::attach(|py| {
                let made = || {
                    let from_problem = FROM_PROBLEM.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
                        Ok(py.import("ropewalk.errors")?.getattr("from_problem")?.unbind())
                    })?;
                    from_problem.bind(py).call1((0, fault.problem(py)?))
                };
                match made() {
                    Ok(exception) => Self::from_value(exception),
                    Err(error) => error,
                }
            }),
        }
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Documents(error) => error.into(),
            Error::Tables(_) => Self::Sql(Box::new(error.into())),
            error => Self::Database(Box::new(error)),
        }
    }
}

impl From<EventsError> for Fault {
    fn from(error: EventsError) -> Self {
        Error::from(error).into()
    }
}

impl From<LabelError> for Fault {
    fn from(error: LabelError) -> Self {
        Error::from(error).into()
    }
}

impl From<DocumentsError> for Fault {
    fn from(error: DocumentsError) -> Self {
        match error {
            DocumentsError::Engine(error) => Error::from(error).into(),
            error => Self::Documents(Box::new(error)),
        }
    }
}

impl From<LangError> for Fault {
    fn from(error: LangError) -> Self {
        DocumentsError::from(error).into()
    }
}

impl From<TablesError> for Fault {
    fn from(error: TablesError) -> Self {
        Self::Sql(Box::new(error.into()))
    }
}

impl From<SqlError> for Fault {
    fn from(error: SqlError) -> Self {
        Self::Sql(Box::new(error))
    }
}

impl From<promql::Error> for Fault {
    fn from(error: promql::Error) -> Self {
        Self::Metrics(Box::new(error))
    }
}

fn code_of(error: &Error) -> &'static str {
    match (error, error.class()) {
        (
            Error::Events(EventsError::AppendConditionFailed { .. } | EventsError::OwnEventMatches { .. }),
            _,
        ) => "condition_failed",
        (Error::Events(EventsError::TrackingConflict { .. }), _) => "tracking_conflict",
        (Error::Events(EventsError::IdempotencyMismatch { .. }), _) => "idempotency_mismatch",
        (Error::Engine(EngineError::TooLarge { .. }), _) => "too_large",
        (Error::Group(GroupError::UnknownLease { .. }), _) => "no_such_lease",
        (Error::Idempotency(IdempotencyError::Mismatch), _) => "idempotency_mismatch",
        (Error::Idempotency(IdempotencyError::TooLarge { .. }), _) => "too_large",
        (_, Class::Invalid) => "invalid_argument",
        (_, Class::NotFound) => "not_found",
        (_, Class::Conflict) => "key_conflict",
        (_, Class::Refused) => "condition_failed",
        (_, Class::Busy) => "resource_exhausted",
        (_, Class::Corrupt) => "corrupt",
        (_, Class::Io) => "io",
        (_, Class::NotLeader) => "not_leader",
        (_, Class::Unknown) => "outcome_unknown",
        (_, Class::Internal) => "internal",
    }
}

fn code_of_documents(error: &DocumentsError) -> &'static str {
    match error {
        DocumentsError::Validation { .. } | DocumentsError::Reference { .. } => "validation_failed",
        DocumentsError::Quota { .. } => "quota_exceeded",
        DocumentsError::Damaged { .. } => "corrupt",
        DocumentsError::Duplicate { .. }
        | DocumentsError::CollectionExists { .. }
        | DocumentsError::IndexExists { .. } => "already_exists",
        DocumentsError::Denied { .. } | DocumentsError::Protected { .. } => "permission_denied",
        DocumentsError::UnknownCollection { .. }
        | DocumentsError::UnknownIndex { .. }
        | DocumentsError::ResumeLost { .. }
        | DocumentsError::PlaceLost { .. } => "not_found",
        DocumentsError::Conflict { .. } => "key_conflict",
        DocumentsError::TooLarge { .. } | DocumentsError::SortMemory { .. } => "too_large",
        DocumentsError::Language(error) | DocumentsError::InCollection { source: error, .. } => {
            match error.code {
                Code::BSONObjectTooLarge | Code::QueryExceededMemoryLimitNoDiskUseAllowed => "too_large",
                _ => "invalid_argument",
            }
        }
        _ => "invalid_argument",
    }
}

fn code_of_statement(error: &SqlError) -> &'static str {
    let state = error.state.0;
    match state.get(..2) {
        Some("28") => "unauthenticated",
        Some("40") => "key_conflict",
        Some("53") => "resource_exhausted",
        Some("54") => "too_large",
        Some("57") => "timeout",
        Some("58") => "io",
        Some("XX") if error.state == state::DATA_CORRUPTED => "corrupt",
        Some("XX") => "internal",
        _ => match state {
            "42501" => "permission_denied",
            "42P01" | "42703" | "42704" | "42883" | "3D000" => "not_found",
            "23505" | "42P07" | "42710" | "42P05" => "already_exists",
            _ => "invalid_argument",
        },
    }
}
