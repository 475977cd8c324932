//! Errors of opening, and how failures of a call are classified.

use std::error::Error as _;

use ropewalk_log::shared::{AppendError, SharedError};
use tokio_postgres::error::SqlState;

/// Why the log could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostgresOpenError {
    /// The connection string, the name of the log or the certificates cannot be used.
    #[error("the shared log in PostgreSQL is not configured correctly: {cause}")]
    Configuration {
        /// The setting, and the rule that it breaks.
        cause: String,
    },
    /// The server is older than the oldest supported version.
    #[error("PostgreSQL {found} cannot store the shared log: the oldest supported version is 14")]
    Version {
        /// Version of the server.
        found: String,
    },
    /// A setting of the server allows a confirmed entry to be lost.
    #[error("setting {name} of PostgreSQL is {value}, but the shared log needs {needed}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// Values with which no confirmed entry is lost.
        needed: &'static str,
    },
    /// A table is not written to the log of PostgreSQL, so a crash empties it.
    #[error("table {name} of the shared log is unlogged or temporary: PostgreSQL may lose its contents")]
    Table {
        /// The table.
        name: String,
    },
    /// The server does not respond, or the log is damaged.
    #[error(transparent)]
    Log(#[from] SharedError),
}

impl PostgresOpenError {
    pub(crate) fn unavailable(cause: impl Into<String>) -> Self {
        Self::Log(SharedError::Unavailable { cause: cause.into() })
    }

    /// The same error for a call on an open log: the server may be configured correctly again later.
    pub(crate) fn into_shared(self) -> SharedError {
        match self {
            Self::Log(error) => error,
            other => SharedError::Unavailable { cause: other.to_string() },
        }
    }
}

/// The same error for an append. Nothing of this attempt was stored when the log is damaged.
pub(crate) fn append_error(error: SharedError) -> AppendError {
    match error {
        SharedError::Unavailable { cause } => AppendError::Unknown { cause },
        other => AppendError::Refused { cause: other.to_string() },
    }
}

/// Classifies an error of the client.
pub(crate) fn shared_error(error: &tokio_postgres::Error) -> SharedError {
    let what = describe(error);
    match error.code() {
        Some(&SqlState::UNDEFINED_TABLE) => SharedError::Lost { what },
        // The head row says that the place is free, and it is not.
        Some(&SqlState::UNIQUE_VIOLATION) => SharedError::Lost { what },
        _ => SharedError::Unavailable { cause: what },
    }
}

/// The message of an error with those of its causes.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
