//! Errors and notices as messages: severity, SQLSTATE, text, hint. Paths of the server's files appear only in
//! the log.

use ropewalk_sql::{About, SqlError, SqlState, state};
pub(crate) use ropewalk_transactions::{code_of, told};
use ropewalk_wire::{Code, WireError};

use crate::frame::{Malformed, Out};

pub(crate) const PROTOCOL_VIOLATION: SqlState = SqlState("08P01");
pub(crate) const INVALID_AUTHORIZATION: SqlState = SqlState("28000");
pub(crate) const INVALID_PASSWORD: SqlState = SqlState("28P01");
pub(crate) const INVALID_CATALOG_NAME: SqlState = SqlState("3D000");
pub(crate) const INVALID_CURSOR_NAME: SqlState = SqlState("34000");
pub(crate) const DUPLICATE_CURSOR: SqlState = SqlState("42P03");
pub(crate) const INSUFFICIENT_PRIVILEGE: SqlState = SqlState("42501");
pub(crate) const INSUFFICIENT_RESOURCES: SqlState = SqlState("53000");
pub(crate) const TOO_MANY_CONNECTIONS: SqlState = SqlState("53300");
pub(crate) const NOT_IN_PREREQUISITE_STATE: SqlState = SqlState("55000");
pub(crate) const ADMIN_SHUTDOWN: SqlState = SqlState("57P01");
pub(crate) const IDLE_IN_TRANSACTION: SqlState = SqlState("25P03");

/// Consequence of an error for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// Nothing failed.
    Warning,
    Notice,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }
}

impl Out {
    /// An error or a notice.
    pub(crate) fn failure(&mut self, severity: Severity, error: &SqlError) {
        let tag = match severity {
            Severity::Error | Severity::Fatal => b'E',
            Severity::Warning | Severity::Notice => b'N',
        };
        self.message(tag, |body| {
            let mut field = |field: u8, text: &str| {
                body.byte(field);
                body.text(text);
            };
            field(b'S', severity.as_str());
            field(b'V', severity.as_str());
            field(b'C', error.state.0);
            field(b'M', &error.message);
            if let Some(detail) = &error.detail {
                field(b'D', detail);
            }
            if let Some(hint) = &error.hint {
                field(b'H', hint);
            }
            if let Some(position) = error.location.as_ref().and_then(|location| location.position) {
                field(b'P', &position.to_string());
            }
            if let Some(about) = &error.about {
                let About { schema, table, column, constraint } = &**about;
                let objects = [(b's', schema), (b't', table), (b'c', column), (b'n', constraint)];
                for (name, object) in objects {
                    if let Some(object) = object {
                        field(name, object);
                    }
                }
            }
            body.byte(0);
        });
    }

    /// Writes a notice that accompanies success.
    pub(crate) fn notice(&mut self, notice: &SqlError) {
        // PostgreSQL warns about transactions and sends notices about skipped objects.
        let severity = if notice.state.0.starts_with("25") { Severity::Warning } else { Severity::Notice };
        self.failure(severity, notice);
    }
}

/// Converts an error of the server's parts that all protocols share.
pub(crate) fn refused(error: &WireError) -> SqlError {
    let state = match error.code {
        Code::PermissionDenied => INSUFFICIENT_PRIVILEGE,
        Code::Unauthenticated => INVALID_PASSWORD,
        Code::NotFound => state::UNDEFINED_OBJECT,
        Code::AlreadyExists => state::DUPLICATE_OBJECT,
        Code::KeyConflict | Code::ConditionFailed => state::SERIALIZATION_FAILURE,
        Code::TooLarge => state::PROGRAM_LIMIT_EXCEEDED,
        Code::ResourceExhausted => INSUFFICIENT_RESOURCES,
        Code::Stopping => ADMIN_SHUTDOWN,
        Code::Timeout => state::QUERY_CANCELED,
        Code::NotLeader => state::READ_ONLY_SQL_TRANSACTION,
        Code::OutcomeUnknown => state::TRANSACTION_RESOLUTION_UNKNOWN,
        Code::Corrupt => state::DATA_CORRUPTED,
        Code::Io => state::IO_ERROR,
        Code::Internal => state::INTERNAL_ERROR,
        _ => state::INVALID_PARAMETER_VALUE,
    };
    let refused = SqlError::new(state, error.message.clone());
    match &error.leader {
        Some(leader) => refused.hint(format!("the leader is at {leader}")),
        None => refused,
    }
}

pub(crate) fn malformed(error: Malformed) -> SqlError {
    SqlError::new(PROTOCOL_VIOLATION, error.to_string())
}
