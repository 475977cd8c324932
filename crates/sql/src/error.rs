//! Errors in the form of PostgreSQL's clients: a code of five characters, a message, sometimes a hint.

use ropewalk::documents::DocumentsError;
use ropewalk::documents::lang::Code;
use ropewalk::engine::EngineError;
use ropewalk::events::EventsError;
use ropewalk::hooks::LockError;
use ropewalk::series::SeriesError;
use ropewalk::tables::{TablesError, ValueError, schema_and_name, shown};
use ropewalk::{Class, Error};

use sqlparser::tokenizer::Span;

/// A stored name without its schema.
fn own(stored: &str) -> &str {
    schema_and_name(stored).1
}

/// A code of five characters; see [`state`] for those used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

impl std::fmt::Display for SqlState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// The codes, named as in PostgreSQL's manual.
#[allow(missing_docs)] // the names say it
pub mod state {
    use crate::error::SqlState;

    pub const SUCCESSFUL_COMPLETION: SqlState = SqlState("00000");
    pub const TRANSACTION_RESOLUTION_UNKNOWN: SqlState = SqlState("08007");
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState("0A000");
    pub const CARDINALITY_VIOLATION: SqlState = SqlState("21000");
    pub const NUMERIC_VALUE_OUT_OF_RANGE: SqlState = SqlState("22003");
    pub const INVALID_DATETIME_FORMAT: SqlState = SqlState("22007");
    pub const DATETIME_FIELD_OVERFLOW: SqlState = SqlState("22008");
    pub const SUBSTRING_ERROR: SqlState = SqlState("22011");
    pub const DIVISION_BY_ZERO: SqlState = SqlState("22012");
    pub const INVALID_ESCAPE_SEQUENCE: SqlState = SqlState("22025");
    pub const INVALID_ESCAPE_CHARACTER: SqlState = SqlState("22019");
    pub const INVALID_PARAMETER_VALUE: SqlState = SqlState("22023");
    pub const CHARACTER_NOT_IN_REPERTOIRE: SqlState = SqlState("22021");
    pub const UNTRANSLATABLE_CHARACTER: SqlState = SqlState("22P05");
    pub const ARRAY_SUBSCRIPT_ERROR: SqlState = SqlState("2202E");
    pub const BAD_COPY_FILE_FORMAT: SqlState = SqlState("22P04");
    pub const INVALID_BINARY_REPRESENTATION: SqlState = SqlState("22P03");
    pub const INVALID_TEXT_REPRESENTATION: SqlState = SqlState("22P02");
    pub const INVALID_REGULAR_EXPRESSION: SqlState = SqlState("2201B");
    pub const INVALID_ARGUMENT_FOR_LOGARITHM: SqlState = SqlState("2201E");
    pub const INVALID_ARGUMENT_FOR_POWER: SqlState = SqlState("2201F");
    pub const INVALID_ARGUMENT_FOR_WIDTH_BUCKET: SqlState = SqlState("2201G");
    pub const INVALID_ROW_COUNT_IN_LIMIT: SqlState = SqlState("2201W");
    pub const INVALID_ROW_COUNT_IN_OFFSET: SqlState = SqlState("2201X");
    pub const NULL_VALUE_NOT_ALLOWED: SqlState = SqlState("22004");
    pub const SEQUENCE_LIMIT_EXCEEDED: SqlState = SqlState("2200H");
    pub const NOT_NULL_VIOLATION: SqlState = SqlState("23502");
    pub const FOREIGN_KEY_VIOLATION: SqlState = SqlState("23503");
    pub const UNIQUE_VIOLATION: SqlState = SqlState("23505");
    pub const CHECK_VIOLATION: SqlState = SqlState("23514");
    /// A text is longer than its type allows.
    pub const STRING_DATA_RIGHT_TRUNCATION: SqlState = SqlState("22001");
    pub const ACTIVE_SQL_TRANSACTION: SqlState = SqlState("25001");
    pub const READ_ONLY_SQL_TRANSACTION: SqlState = SqlState("25006");
    pub const NO_ACTIVE_SQL_TRANSACTION: SqlState = SqlState("25P01");
    pub const IN_FAILED_SQL_TRANSACTION: SqlState = SqlState("25P02");
    pub const INVALID_CURSOR_NAME: SqlState = SqlState("34000");
    pub const INVALID_CURSOR_STATE: SqlState = SqlState("24000");
    pub const INVALID_SQL_STATEMENT_NAME: SqlState = SqlState("26000");
    pub const DEPENDENT_OBJECTS_STILL_EXIST: SqlState = SqlState("2BP01");
    pub const INVALID_SAVEPOINT: SqlState = SqlState("3B001");
    pub const INVALID_SCHEMA_NAME: SqlState = SqlState("3F000");
    pub const SERIALIZATION_FAILURE: SqlState = SqlState("40001");
    pub const DEADLOCK_DETECTED: SqlState = SqlState("40P01");
    pub const INVALID_NAME: SqlState = SqlState("42602");
    pub const INSUFFICIENT_PRIVILEGE: SqlState = SqlState("42501");
    pub const SYNTAX_ERROR: SqlState = SqlState("42601");
    pub const DUPLICATE_COLUMN: SqlState = SqlState("42701");
    pub const AMBIGUOUS_COLUMN: SqlState = SqlState("42702");
    pub const AMBIGUOUS_ALIAS: SqlState = SqlState("42P09");
    pub const UNDEFINED_COLUMN: SqlState = SqlState("42703");
    pub const UNDEFINED_OBJECT: SqlState = SqlState("42704");
    pub const WRONG_OBJECT_TYPE: SqlState = SqlState("42809");
    pub const DUPLICATE_OBJECT: SqlState = SqlState("42710");
    pub const DUPLICATE_ALIAS: SqlState = SqlState("42712");
    pub const GROUPING_ERROR: SqlState = SqlState("42803");
    pub const INVALID_FOREIGN_KEY: SqlState = SqlState("42830");
    pub const WINDOWING_ERROR: SqlState = SqlState("42P20");
    pub const DATATYPE_MISMATCH: SqlState = SqlState("42804");
    pub const CANNOT_COERCE: SqlState = SqlState("42846");
    pub const UNDEFINED_FUNCTION: SqlState = SqlState("42883");
    pub const GENERATED_ALWAYS: SqlState = SqlState("428C9");
    pub const UNDEFINED_TABLE: SqlState = SqlState("42P01");
    pub const UNDEFINED_PARAMETER: SqlState = SqlState("42P02");
    pub const DUPLICATE_PREPARED_STATEMENT: SqlState = SqlState("42P05");
    pub const RESERVED_NAME: SqlState = SqlState("42939");
    pub const DUPLICATE_SCHEMA: SqlState = SqlState("42P06");
    pub const DUPLICATE_TABLE: SqlState = SqlState("42P07");
    pub const INVALID_COLUMN_REFERENCE: SqlState = SqlState("42P10");
    pub const INVALID_RECURSION: SqlState = SqlState("42P19");
    pub const INVALID_TABLE_DEFINITION: SqlState = SqlState("42P16");
    pub const CONFIGURATION_LIMIT_EXCEEDED: SqlState = SqlState("53400");
    pub const TOO_MANY_COLUMNS: SqlState = SqlState("54011");
    pub const DISK_FULL: SqlState = SqlState("53100");
    pub const OUT_OF_MEMORY: SqlState = SqlState("53200");
    pub const PROGRAM_LIMIT_EXCEEDED: SqlState = SqlState("54000");
    pub const STATEMENT_TOO_COMPLEX: SqlState = SqlState("54001");
    pub const DUPLICATE_CURSOR: SqlState = SqlState("42P03");
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: SqlState = SqlState("55000");
    pub const OBJECT_IN_USE: SqlState = SqlState("55006");
    pub const LOCK_NOT_AVAILABLE: SqlState = SqlState("55P03");
    pub const QUERY_CANCELED: SqlState = SqlState("57014");
    pub const CANT_CHANGE_RUNTIME_PARAM: SqlState = SqlState("55P02");
    pub const IO_ERROR: SqlState = SqlState("58030");
    pub const INTERNAL_ERROR: SqlState = SqlState("XX000");
    pub const DATA_CORRUPTED: SqlState = SqlState("XX001");
}

/// Hint of errors about unsupported queries.
const QUERY_HINT: &str = "one table and joins by key are served: WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, and subqueries \
                               that read nothing of the enclosing query";

/// Message of a write on a follower.
const FOLLOWS: &str = "cannot write on this node, which follows another one";

/// The error of a statement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// The code for programs.
    pub state: SqlState,
    /// The message for people.
    pub message: String,
    /// Details, such as the offending values.
    pub detail: Option<String>,
    /// A suggestion how to fix it.
    pub hint: Option<String>,
    /// The database objects that it concerns, for programs.
    pub about: Option<Box<About>>,
    /// Position in the text of the statement.
    pub location: Option<Box<Location>>,
}

/// The database objects that an error concerns; those that do not apply are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The schema of the table.
    pub schema: Option<String>,
    /// The table, without its schema.
    pub table: Option<String>,
    /// The column.
    pub column: Option<String>,
    /// The primary key, unique index, check or foreign key.
    pub constraint: Option<String>,
}

/// A place in a text: lines and characters count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The line.
    pub line: u64,
    /// The character of the line.
    pub column: u64,
    /// The character of the whole text, once [`SqlError::located_in`] was called.
    pub position: Option<usize>,
}

impl Location {
    fn position_in(self, text: &str) -> Option<usize> {
        let line = usize::try_from(self.line).ok()?.checked_sub(1)?;
        let before: usize = text.split_inclusive('\n').take(line).map(|line| line.chars().count()).sum();
        let position = before + usize::try_from(self.column).ok()?;
        (position <= text.chars().count() + 1).then_some(position)
    }
}

impl SqlError {
    /// An error without a hint.
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self { state, message: shown(&message), detail: None, hint: None, about: None, location: None }
    }

    /// Adds a table, by its stored name, and a column or constraint of it.
    fn about(mut self, table: &str, column: Option<&str>, constraint: Option<&str>) -> Self {
        let (schema, table) = schema_and_name(table);
        self.about = Some(Box::new(About {
            schema: Some(schema.to_owned()),
            table: Some(table.to_owned()),
            column: column.map(str::to_owned),
            constraint: constraint.map(str::to_owned),
        }));
        self
    }

    /// Adds a position in the text, unless an inner one is known.
    #[must_use]
    pub(crate) fn at(mut self, span: Span) -> Self {
        let Span { start, .. } = span;
        if self.location.is_none() && start.line > 0 {
            let location = Location { line: start.line, column: start.column, position: None };
            self.location = Some(Box::new(location));
        }
        self
    }

    /// Computes the character position of its location in the text of the statement.
    #[must_use]
    pub fn located_in(mut self, text: &str) -> Self {
        if let Some(location) = &mut self.location {
            location.position = location.position_in(text);
        }
        self
    }

    /// Adds a detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The error for SQL that is not supported.
    pub(crate) fn unsupported(what: impl std::fmt::Display, hint: &str) -> Self {
        Self::new(state::FEATURE_NOT_SUPPORTED, format!("{what} is not supported")).hint(hint)
    }

    /// The error for a query that the planner does not support.
    pub(crate) fn unsupported_query(what: impl std::fmt::Display) -> Self {
        Self::unsupported(what, QUERY_HINT)
    }

    /// True when running the complete transaction again may succeed.
    pub fn is_retryable(&self) -> bool {
        self.state == state::SERIALIZATION_FAILURE || self.state == state::DEADLOCK_DETECTED
    }

    /// True if this node did not lead when the statement was to be committed: nothing was written, and the leader accepts it.
    pub fn is_not_leader(&self) -> bool {
        self.state == state::READ_ONLY_SQL_TRANSACTION && self.message == FOLLOWS
    }
}

impl SqlError {
    /// The error of a rule of documents that PostgreSQL's constraints have, too; `None` for others.
    fn of_documents(error: &DocumentsError) -> Option<Self> {
        let about = |table: &str, constraint: &str| {
            let (table, constraint) = (Some(table.to_owned()), Some(constraint.to_owned()));
            Some(Box::new(About { table, constraint, ..About::default() }))
        };
        let state = match error {
            DocumentsError::Duplicate { collection, index, key, shown, .. } => {
                let message = format!("duplicate key value violates unique constraint \"{index}\"");
                // The rules of a collection can hide the key.
                let detail = (!key.doc().is_empty())
                    .then(|| format!("Key {shown} already exists in collection \"{collection}\"."));
                let about = about(collection, index);
                return Some(Self { detail, about, ..Self::new(state::UNIQUE_VIOLATION, message) });
            }
            DocumentsError::Validation { collection, .. } => {
                let about = about(collection, "validator");
                return Some(Self { about, ..Self::new(state::CHECK_VIOLATION, error.to_string()) });
            }
            DocumentsError::Reference { collection, field, .. } => {
                let about = about(collection, field);
                return Some(Self { about, ..Self::new(state::FOREIGN_KEY_VIOLATION, error.to_string()) });
            }
            DocumentsError::Denied { .. } => state::INSUFFICIENT_PRIVILEGE,
            DocumentsError::Quota { .. } => state::CONFIGURATION_LIMIT_EXCEEDED,
            DocumentsError::TooLarge { .. } => state::PROGRAM_LIMIT_EXCEEDED,
            DocumentsError::Language(source) | DocumentsError::InCollection { source, .. }
                if source.code == Code::BSONObjectTooLarge =>
            {
                state::PROGRAM_LIMIT_EXCEEDED
            }
            DocumentsError::TransactionMemory { .. } | DocumentsError::SortMemory { .. } => {
                state::OUT_OF_MEMORY
            }
            DocumentsError::InvalidName { .. } => state::INVALID_NAME,
            _ => return None,
        };
        Some(Self::new(state, error.to_string()))
    }
}

impl From<TablesError> for SqlError {
    fn from(error: TablesError) -> Self {
        let state = match &error {
            TablesError::UnknownTable { name } => {
                return Self::new(state::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
            }
            TablesError::UnknownColumn { table, column } => {
                let table = own(table);
                let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
                return Self::new(state::UNDEFINED_COLUMN, message);
            }
            TablesError::UnknownConstraint { table, constraint } => {
                let table = own(table);
                let message = format!("constraint \"{constraint}\" of relation \"{table}\" does not exist");
                return Self::new(state::UNDEFINED_OBJECT, message);
            }
            TablesError::UnknownIndex { .. } => state::UNDEFINED_OBJECT,
            TablesError::Duplicate { kind: kind @ ("table" | "index"), name } => {
                let (kind, name) = (if *kind == "table" { "relation" } else { kind }, own(name));
                return Self::new(state::DUPLICATE_TABLE, format!("{kind} \"{name}\" already exists"));
            }
            TablesError::UnknownType { name } => {
                return Self::new(state::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"));
            }
            TablesError::UnknownLabel { label, .. } => {
                let message = format!("\"{label}\" is not an existing enum label");
                return Self::new(state::INVALID_PARAMETER_VALUE, message);
            }
            TablesError::EnumDefinition { .. } => state::PROGRAM_LIMIT_EXCEEDED,
            TablesError::Duplicate { kind: kind @ ("type" | "enum label"), name } => {
                let name = own(name);
                return Self::new(state::DUPLICATE_OBJECT, format!("{kind} \"{name}\" already exists"));
            }
            TablesError::Duplicate { kind: "column", .. } => state::DUPLICATE_COLUMN,
            TablesError::Duplicate { .. } => state::DUPLICATE_OBJECT,
            TablesError::Definition { .. } => state::INVALID_TABLE_DEFINITION,
            TablesError::ReservedName { name } => {
                return Self::new(state::RESERVED_NAME, format!("table name \"{}\" is reserved", own(name)))
                    .hint("rebuilds of projections use names that end in __g and a number");
            }
            TablesError::Dependent { .. } => state::DEPENDENT_OBJECTS_STILL_EXIST,
            TablesError::Value { source, .. } => match source {
                ValueError::Type { .. } => state::DATATYPE_MISMATCH,
                ValueError::Range { .. } => state::NUMERIC_VALUE_OUT_OF_RANGE,
                ValueError::Json { .. } => state::INVALID_TEXT_REPRESENTATION,
                ValueError::Label { .. } => {
                    return Self::new(state::INVALID_TEXT_REPRESENTATION, source.to_string());
                }
            },
            TablesError::Arity { .. } => state::SYNTAX_ERROR,
            TablesError::NotNull { table, column } => {
                let message = format!(
                    "null value in column \"{column}\" of relation \"{}\" violates not-null constraint",
                    own(table)
                );
                return Self::new(state::NOT_NULL_VIOLATION, message).about(table, Some(column), None);
            }
            TablesError::Unique { table, constraint, key } => {
                let message = format!("duplicate key value violates unique constraint \"{constraint}\"");
                return Self::new(state::UNIQUE_VIOLATION, message)
                    .detail(format!("Key {key} already exists."))
                    .about(table, None, Some(constraint));
            }
            // The length of a `varchar(n)` is a check.
            TablesError::Check { table, constraint, longest: Some(longest) }
                if constraint.ends_with("_length") =>
            {
                let message = format!("value too long for type character varying({longest})");
                let error = Self::new(state::STRING_DATA_RIGHT_TRUNCATION, message);
                return error.about(table, None, Some(constraint));
            }
            TablesError::Check { table, constraint, .. } => {
                let message = format!(
                    "new row for relation \"{}\" violates check constraint \"{constraint}\"",
                    own(table)
                );
                return Self::new(state::CHECK_VIOLATION, message).about(table, None, Some(constraint));
            }
            TablesError::ForeignKey { table, constraint, what } => {
                let message = format!(
                    "foreign key constraint \"{constraint}\" of table \"{}\" does not hold",
                    own(table)
                );
                let error = Self::new(state::FOREIGN_KEY_VIOLATION, message).detail(what.as_str());
                return error.about(table, None, Some(constraint));
            }
            TablesError::ChecksWait { table } => {
                let message =
                    format!("cannot ALTER TABLE \"{}\" because it has pending trigger events", own(table));
                return Self::new(state::OBJECT_IN_USE, message)
                    .hint("deferred constraints of the table are violated: SET CONSTRAINTS ALL IMMEDIATE checks them");
            }
            TablesError::Generated { .. } => {
                return Self::new(state::GENERATED_ALWAYS, error.to_string())
                    .hint("leave the column out, or use OVERRIDING SYSTEM VALUE");
            }
            TablesError::Evaluation { what, .. } if what.contains("zero") => state::DIVISION_BY_ZERO,
            TablesError::Evaluation { .. } => state::NUMERIC_VALUE_OUT_OF_RANGE,
            TablesError::TooLarge { .. } => state::PROGRAM_LIMIT_EXCEEDED,
            TablesError::Conflict { .. } => {
                return Self::new(state::SERIALIZATION_FAILURE, error.to_string())
                    .hint("run the transaction again");
            }
            TablesError::Lock(LockError::Deadlock) => {
                return Self::new(state::DEADLOCK_DETECTED, "deadlock detected")
                    .hint("another transaction waits for this one, which would wait for it; run it again");
            }
            TablesError::Lock(LockError::TooMany) => state::OUT_OF_MEMORY,
            TablesError::Lock(_) => state::LOCK_NOT_AVAILABLE,
            TablesError::OutOfBounds { .. } => state::NUMERIC_VALUE_OUT_OF_RANGE,
            TablesError::Exhausted { .. } => state::SEQUENCE_LIMIT_EXCEEDED,
            TablesError::Damaged { .. } => state::DATA_CORRUPTED,
            _ => return Error::from(error).into(),
        };
        Self::new(state, error.to_string())
    }
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        let state = match &error {
            Error::Tables(_) => {
                return match error {
                    Error::Tables(TablesError::Engine(error)) => Error::Engine(error).into(),
                    Error::Tables(error) => error.into(),
                    other => Self::new(state::INTERNAL_ERROR, other.to_string()),
                };
            }
            Error::Events(EventsError::AppendConditionFailed {
                condition, position, item, after, ..
            }) => {
                let item = item.map_or_else(|| "null".to_owned(), |item| item.to_string());
                let detail = format!(r#"{{"condition":{condition},"position":{position},"item":{item}}}"#);
                let error = match after {
                    Some(_) => Self::new(state::SERIALIZATION_FAILURE, error.to_string())
                        .hint("run the transaction again"),
                    None => Self::new(state::UNIQUE_VIOLATION, error.to_string()).hint(
                        "running it again fails again: the condition allows no such event at any position",
                    ),
                };
                return error.detail(detail);
            }
            Error::Documents(error) if let Some(error) = Self::of_documents(error) => return error,
            Error::Series(SeriesError::OwnSamples { .. }) => {
                return Self::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, error.to_string())
                    .hint("read the metrics before the first INSERT of samples, or after the COMMIT");
            }
            Error::Series(SeriesError::DuplicateSample { .. }) => state::UNIQUE_VIOLATION,
            Error::Series(SeriesError::MetricLimit { .. } | SeriesError::CardinalityLimit { .. }) => {
                state::PROGRAM_LIMIT_EXCEEDED
            }
            Error::Engine(EngineError::TooLarge { .. }) => {
                return Self::new(state::PROGRAM_LIMIT_EXCEEDED, error.to_string())
                    .hint("write less in one transaction, or load an empty table by COPY");
            }
            other => match other.class() {
                Class::Conflict => {
                    return Self::new(state::SERIALIZATION_FAILURE, error.to_string())
                        .hint("run the transaction again");
                }
                Class::Refused => {
                    return Self::new(state::UNIQUE_VIOLATION, error.to_string())
                        .hint("running it again fails again");
                }
                Class::NotLeader => {
                    let refused = Self::new(state::READ_ONLY_SQL_TRANSACTION, FOLLOWS);
                    return match error.leader() {
                        Some(leader) => refused.hint(format!("the leader is at {leader}")),
                        None => refused.hint("no leader is known at the moment; try again"),
                    };
                }
                Class::Unknown => {
                    return Self::new(state::TRANSACTION_RESOLUTION_UNKNOWN, error.to_string())
                        .hint("read what the transaction would have written, to find out");
                }
                Class::Invalid => state::INVALID_PARAMETER_VALUE,
                Class::NotFound => state::UNDEFINED_OBJECT,
                Class::Busy => state::LOCK_NOT_AVAILABLE,
                Class::Corrupt => state::DATA_CORRUPTED,
                Class::Io => state::IO_ERROR,
                Class::Internal => state::INTERNAL_ERROR,
            },
        };
        Self::new(state, error.to_string())
    }
}

/// Result type of the crate.
pub(crate) type Result<T> = std::result::Result<T, SqlError>;
