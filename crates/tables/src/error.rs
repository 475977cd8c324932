use ropewalk_base::{DecodeError, Seq};
use ropewalk_engine::{EngineError, LockError, StoreError};

use crate::value::ValueError;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = TablesError> = core::result::Result<T, E>;

/// An error of an operation on tables.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TablesError {
    /// No such table.
    #[error("there is no table {name:?}")]
    UnknownTable {
        /// The requested name.
        name: String,
    },
    /// No such column.
    #[error("table {table:?} has no column {column:?}")]
    UnknownColumn {
        /// The table.
        table: String,
        /// The requested name.
        column: String,
    },
    /// No such index.
    #[error("table {table:?} has no index {index:?}")]
    UnknownIndex {
        /// The table.
        table: String,
        /// The requested name.
        index: String,
    },
    /// No such check or foreign key.
    #[error("table {table:?} has no constraint {constraint:?}")]
    UnknownConstraint {
        /// The table.
        table: String,
        /// The requested name.
        constraint: String,
    },
    /// No such enum type.
    #[error("there is no type {name:?}")]
    UnknownType {
        /// The requested name.
        name: String,
    },
    /// No such label of an enum type.
    #[error("type {name:?} has no label {label:?}")]
    UnknownLabel {
        /// The type.
        name: String,
        /// The requested label.
        label: String,
    },
    /// An enum type that is invalid or exceeds a limit.
    #[error("type {name:?}: {what}")]
    EnumDefinition {
        /// The type.
        name: String,
        /// The reason.
        what: String,
    },
    /// A name that only rebuilds of projections give to a table.
    #[error(
        "the table name {name:?} is reserved: rebuilds of projections use names that end in __g and a number"
    )]
    ReservedName {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("{kind} {name:?} exists already")]
    Duplicate {
        /// Table, column, index, constraint, type or label.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A definition that is invalid or exceeds a limit.
    #[error("table {table:?}: {what}")]
    Definition {
        /// The table.
        table: String,
        /// The reason.
        what: String,
    },
    /// An object cannot be dropped because others depend on it.
    #[error("{what} cannot be dropped: {dependent} depends on it")]
    Dependent {
        /// The object to drop.
        what: String,
        /// The dependent object.
        dependent: String,
    },
    /// A value does not fit its column.
    #[error("table {table:?}, column {column:?}: the value {source}")]
    Value {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The reason.
        source: ValueError,
    },
    /// A value cannot be read as the Rust type that the caller wants.
    #[error("table {table:?}, column {column:?}: {found} cannot be read as {wanted}")]
    WrongType {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The value and its type, or NULL.
        found: String,
        /// The Rust type.
        wanted: &'static str,
    },
    /// Too few or too many values.
    #[error("table {table:?} takes {expected} values, {found} were given")]
    Arity {
        /// The table.
        table: String,
        /// The number of columns.
        expected: usize,
        /// The number of given values.
        found: usize,
    },
    /// NULL into a NOT NULL column.
    #[error("table {table:?}, column {column:?}: NULL is not allowed")]
    NotNull {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A row with the same key exists.
    #[error("table {table:?}: a row with {key} exists already, {constraint:?} allows one")]
    Unique {
        /// The table.
        table: String,
        /// The primary key or unique index.
        constraint: String,
        /// Columns and values.
        key: String,
    },
    /// A row violates a check.
    #[error("table {table:?}: the row breaks check {constraint:?}")]
    Check {
        /// The table.
        table: String,
        /// The check.
        constraint: String,
    },
    /// A row refers to a missing row, or would do so after the statement.
    #[error("table {table:?}, foreign key {constraint:?}: {what}")]
    ForeignKey {
        /// The table that refers.
        table: String,
        /// The foreign key.
        constraint: String,
        /// The referenced row.
        what: String,
    },
    /// A value was given for a column that is always generated.
    #[error("table {table:?}, column {column:?}: its values are always generated")]
    Generated {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// An expression could not be evaluated.
    #[error("table {table:?}: {what}")]
    Evaluation {
        /// The table.
        table: String,
        /// The error, such as overflow or division by zero.
        what: String,
    },
    /// A key or row that exceeds a limit.
    #[error("table {table:?}: {what} of {bytes} bytes exceeds the limit of {max}")]
    TooLarge {
        /// The table.
        table: String,
        /// Key or row.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A conflict with another commit; nothing was written. Retry the transaction.
    #[error("{what} was changed by commit {seq} while the transaction ran; retry")]
    Conflict {
        /// Table and key, or whose definition.
        what: String,
        /// The other commit.
        seq: Seq,
    },
    /// A row cannot be locked, or not yet.
    #[error(transparent)]
    Lock(LockError),
    /// A sequence cannot be set to this number.
    #[error("{number} is out of the bounds of the sequence, {least} to {greatest}")]
    OutOfBounds {
        /// The requested number.
        number: i64,
        /// Its least number.
        least: i64,
        /// Its greatest number.
        greatest: i64,
    },
    /// A sequence is exhausted.
    #[error("the numbers of sequence {sequence} are used up")]
    Exhausted {
        /// Object number of the sequence.
        sequence: u32,
    },
    /// Stored bytes passed their checksum but are invalid.
    #[error("tables, {place}: {what}")]
    Damaged {
        /// Where.
        place: String,
        /// The expected content.
        what: String,
    },
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<LockError> for TablesError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Engine(error) => Self::Engine(error),
            other => Self::Lock(other),
        }
    }
}

impl From<StoreError> for TablesError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl TablesError {
    pub(crate) fn damaged(place: impl Into<String>) -> impl FnOnce(DecodeError) -> Self {
        let place = place.into();
        move |error| Self::Damaged { place, what: error.to_string() }
    }

    /// True for [`TablesError::Conflict`]: the only error after which a retry of the transaction may
    /// succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

/// An error for an invalid definition of `table`.
pub(crate) fn invalid(table: &str, what: impl Into<String>) -> TablesError {
    TablesError::Definition { table: table.to_owned(), what: what.into() }
}
