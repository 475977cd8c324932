//! Errors of commands: MongoDB's code, name and labels, by which drivers decide what to do next.
//!
//! | label | action of drivers |
//! |---|---|
//! | TransientTransactionError | run the whole transaction again |
//! | UnknownTransactionCommitResult | send the commit again |
//! | RetryableWriteError | send the write again, once |
//! | ResumableChangeStreamError | resume the change stream after its token |
//! | NonResumableChangeStreamError | give up the change stream |

use std::borrow::Cow;
use std::fmt;

use ropewalk::documents::DocumentsError;
use ropewalk::documents::lang::{DocBuf, LangError, Value, Writer};
use ropewalk::engine::EngineError;
use ropewalk::events::EventsError;
use ropewalk::{Class, Error};
use ropewalk_auth::AuthError;
use ropewalk_wire::{Code as WireCode, WireError};

macro_rules! codes {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// Error codes that this crate returns; the documents crate has its own.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)] // the names are the documentation
        pub(crate) enum Code { $($name),* }

        impl Code {
            /// The number on the wire.
            pub(crate) fn number(self) -> i32 {
                match self { $(Self::$name => $number),* }
            }

            /// The name on the wire.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

codes! {
    InternalError = 1, BadValue = 2, NoSuchKey = 4, FailedToParse = 9, UserNotFound = 11, Unauthorized = 13, TypeMismatch = 14,
    InvalidLength = 16, ProtocolError = 17, AuthenticationFailed = 18, IllegalOperation = 20, NamespaceNotFound = 26,
    RoleNotFound = 31,
    CursorNotFound = 43, MaxTimeMSExpired = 50, CommandNotSupported = 115, CommandNotFound = 59, CannotCreateIndex = 67, InvalidOptions = 72,
    InvalidNamespace = 73, UnknownReplWriteConcern = 79, ShutdownInProgress = 91, OperationFailed = 96, UnsatisfiableWriteConcern = 100,
    WriteConflict = 112, ConflictingOperationInProgress = 117, CommandFailed = 125, ExceededMemoryLimit = 146, OptionNotSupportedOnView = 167,
    TransactionTooOld = 225, NotImplemented = 238, SnapshotTooOld = 239, NoSuchTransaction = 251,
    TransactionCommitted = 256, TransactionTooLarge = 257, InvalidResumeToken = 260, TooManyLogicalSessions = 261,
    OperationNotSupportedInTransaction = 263, ChangeStreamFatalError = 280, APIVersionError = 322,
    APIStrictError = 323, MechanismUnavailable = 334, TemporarilyUnavailable = 365, SearchNotSupported = 31_082, MissingField = 40_414, UnknownField = 40_415,
    NotWritablePrimary = 10_107, NotPrimaryNoSecondaryOk = 13_435, NotEmptyIndexStats = 28_803, ForeignSession = 50_738, AppendConditionFailed = 940_001, ForeignTransaction = 50_740, UserExists = 51_003, Interrupted = 11_601, InvalidOpId = 26_823, DuplicateSequence = 40_431, OutOfBounds = 51_024,
}

/// Run the entire transaction again.
pub(crate) const TRANSIENT: &str = "TransientTransactionError";
/// Send the commit again.
pub(crate) const UNKNOWN_COMMIT: &str = "UnknownTransactionCommitResult";
/// Send the write again.
pub(crate) const RETRYABLE: &str = "RetryableWriteError";

/// A change stream can be resumed after its token.
pub(crate) const RESUMABLE: &str = "ResumableChangeStreamError";
/// A change stream cannot be resumed.
pub(crate) const NOT_RESUMABLE: &str = "NonResumableChangeStreamError";

/// Codes after which a command may be retried: the server was no longer primary, was stopping, or
/// unreachable.
const RETRIABLE: &[i32] = &[6, 7, 89, 91, 134, 189, 262, 9001, 10_107, 11_600, 11_602, 13_435, 13_436];
/// Codes after which a transaction may be run again.
const AGAIN: &[i32] = &[24, 112, 239, 246, 251, 267, 365];

/// True if the same command may be retried after `code`.
pub(crate) fn is_retriable(code: i32) -> bool {
    RETRIABLE.contains(&code)
}

/// True if an entire transaction may be run again after `code`.
pub(crate) fn is_transient(code: i32) -> bool {
    AGAIN.contains(&code)
}

/// MongoDB's name of a code that did not arise here, for the codes that clients check.
pub(crate) fn name_of(code: i32) -> Cow<'static, str> {
    let name = match code {
        1 => "InternalError",
        2 => "BadValue",
        6 => "HostUnreachable",
        7 => "HostNotFound",
        8 => "UnknownError",
        11 => "UserNotFound",
        13 => "Unauthorized",
        18 => "AuthenticationFailed",
        20 => "IllegalOperation",
        24 => "LockTimeout",
        26 => "NamespaceNotFound",
        43 => "CursorNotFound",
        50 => "MaxTimeMSExpired",
        64 => "WriteConcernFailed",
        89 => "NetworkTimeout",
        91 => "ShutdownInProgress",
        100 => "UnsatisfiableWriteConcern",
        112 => "WriteConflict",
        133 => "FailedToSatisfyReadPreference",
        134 => "ReadConcernMajorityNotAvailableYet",
        136 => "CappedPositionLost",
        150 => "StaleEpoch",
        189 => "PrimarySteppedDown",
        234 => "RetryChangeStream",
        237 => "CursorKilled",
        246 => "SnapshotUnavailable",
        251 => "NoSuchTransaction",
        262 => "ExceededTimeLimit",
        267 => "PreparedTransactionInProgress",
        279 => "ClientDisconnect",
        391 => "ReauthenticationRequired",
        9001 => "SocketException",
        10_107 => "NotWritablePrimary",
        11_000 => "DuplicateKey",
        11_600 => "InterruptedAtShutdown",
        11_601 => "Interrupted",
        11_602 => "InterruptedDueToReplStateChange",
        13_388 => "StaleConfig",
        13_435 => "NotPrimaryNoSecondaryOk",
        13_436 => "NotPrimaryOrSecondary",
        other => return format!("Location{other}").into(),
    };
    name.into()
}

/// Puts the labels of a reply, if there are any.
pub(crate) fn put_labels(labels: &[Cow<'static, str>], out: &mut Writer) {
    if !labels.is_empty() {
        out.open_array("errorLabels");
        labels.iter().for_each(|label| out.put("", Value::String(label)));
        out.close();
    }
}

/// Error of a command.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// MongoDB's number.
    pub(crate) code: i32,
    /// MongoDB's code.
    pub(crate) name: Cow<'static, str>,
    /// The error message.
    pub(crate) message: String,
    /// Labels: what drivers may do about it.
    pub(crate) labels: Vec<Cow<'static, str>>,
    /// Further fields, such as `keyPattern` and `keyValue` of a duplicate key.
    pub(crate) detail: Option<Box<DocBuf>>,
}

/// Result of a command.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.code, self.message)
    }
}

impl Failure {
    /// A failure of `code` with `message`.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let name = match code {
            // Codes without an individual name.
            Code::UnknownField
            | Code::MissingField
            | Code::ForeignSession
            | Code::ForeignTransaction
            | Code::InvalidOpId
            | Code::DuplicateSequence
            | Code::OutOfBounds
            | Code::UserExists => format!("Location{}", code.number()).into(),
            code => Cow::Borrowed(code.name()),
        };
        Self { code: code.number(), name, message: message.into(), labels: Vec::new(), detail: None }
    }

    /// Adds a label.
    #[must_use]
    pub(crate) fn label(mut self, label: &'static str) -> Self {
        if !self.labels.iter().any(|other| other == label) {
            self.labels.push(label.into());
        }
        self
    }

    /// Adds further fields.
    #[must_use]
    pub(crate) fn detailed(self, fields: Writer) -> Self {
        Self { detail: Some(Box::new(fields.finish())), ..self }
    }

    /// The failure of an append whose condition an event matches; `None` for other errors.
    fn of_condition(error: &EventsError) -> Option<Self> {
        let (condition, item, position) = match error {
            EventsError::AppendConditionFailed { condition, item, position, .. } => {
                (condition, item, Some(position))
            }
            EventsError::OwnEventMatches { condition, item, .. } => (condition, item, None),
            _ => return None,
        };
        let mut fields = Writer::new();
        fields.open_document("errInfo");
        fields.put("condition", Value::Int64(*condition as i64));
        fields.put("item", item.map_or(Value::Null, |item| Value::Int64(item as i64)));
        fields.put("position", position.map_or(Value::Null, |position| Value::Int64(position.0 as i64)));
        fields.close();
        Some(Self::new(Code::AppendConditionFailed, error.to_string()).detailed(fields))
    }

    /// An internal failure: the client gets only its kind, the log all of it.
    fn ours(error: &dyn fmt::Display) -> Self {
        tracing::error!(%error, "a command failed");
        Self::new(Code::InternalError, "internal server error; see the server log")
    }

    /// Puts the fields of a failed reply.
    pub(crate) fn put(&self, out: &mut Writer) {
        out.put("ok", Value::Double(0.0));
        out.put("errmsg", Value::String(&self.message));
        out.put("code", Value::Int32(self.code));
        out.put("codeName", Value::String(&self.name));
        if let Some(detail) = &self.detail {
            detail.doc().iter().for_each(|(name, value)| out.put(name, value));
        }
        put_labels(&self.labels, out);
    }

    /// True for errors after which drivers ask for the role of the server.
    pub(crate) fn is_about_role(&self) -> bool {
        [10_107, 13_435].contains(&self.code)
    }

    /// Puts it as an entry of `writeErrors`.
    pub(crate) fn put_write_error(&self, index: usize, out: &mut Writer) {
        out.open_document("");
        out.put("index", Value::Int32(i32::try_from(index).unwrap_or(i32::MAX)));
        out.put("code", Value::Int32(self.code));
        out.put("errmsg", Value::String(&self.message));
        if let Some(detail) = &self.detail {
            detail.doc().iter().for_each(|(name, value)| out.put(name, value));
        }
        out.close();
    }
}

impl From<LangError> for Failure {
    fn from(error: LangError) -> Self {
        let name = error.code.to_string().into();
        Self { code: error.code.number(), name, message: error.message, labels: Vec::new(), detail: None }
    }
}

impl From<DocumentsError> for Failure {
    fn from(error: DocumentsError) -> Self {
        let (code, name, message) = (error.code(), error.code_name().into(), error.to_string());
        let mut failure = Self { code, name, message, labels: Vec::new(), detail: None };
        match error {
            DocumentsError::Engine(error) => return Error::from(error).into(),
            // MongoDB's messages, which clients match on, name no collection.
            DocumentsError::InCollection { source, .. } => failure.message = source.message,
            DocumentsError::Damaged { .. } => return Self::ours(&error),
            DocumentsError::Validation { what, .. } => {
                failure.message = "Document failed validation".to_owned();
                let mut detail = Writer::new();
                detail.open_document("errInfo");
                detail.open_document("details");
                detail.put("reason", Value::String(&what));
                detail.close();
                detail.close();
                failure.detail = Some(Box::new(detail.finish()));
            }
            DocumentsError::Duplicate { collection, index, pattern, key, shown } => {
                // Some clients parse this message.
                failure.message = format!(
                    "E11000 duplicate key error collection: {collection} index: {index} dup key: {shown}"
                );
                let mut detail = Writer::new();
                detail.put("keyPattern", Value::Document(pattern.doc()));
                detail.put("keyValue", Value::Document(key.doc()));
                failure.detail = Some(Box::new(detail.finish()));
            }
            _ => {}
        }
        failure
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if let Error::Documents(error) = error {
            return error.into();
        }
        if let Error::Events(error) = &error
            && let Some(failure) = Self::of_condition(error)
        {
            return failure;
        }
        if let Error::Engine(EngineError::TooLarge { .. }) = &error {
            return Self::new(Code::TransactionTooLarge, error.to_string());
        }
        match error.class() {
            Class::Conflict => Self::new(Code::WriteConflict, error.to_string()),
            Class::Busy => {
                Self::new(Code::TemporarilyUnavailable, "the engine cannot accept more writes now")
            }
            Class::NotLeader => not_primary(),
            // With its session and number a driver repeats the write, and gets the stored result if it took place.
            Class::Unknown => Self::new(Code::ShutdownInProgress, error.to_string()),
            Class::Invalid | Class::Refused => Self::new(Code::BadValue, error.to_string()),
            Class::NotFound => Self::new(Code::NoSuchKey, error.to_string()),
            Class::Corrupt | Class::Io | Class::Internal => Self::ours(&error),
        }
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        let code = match error.code {
            WireCode::Unauthenticated => Code::AuthenticationFailed,
            WireCode::PermissionDenied => Code::Unauthorized,
            WireCode::Stopping => return shutting_down(),
            WireCode::NotLeader => return not_primary(),
            WireCode::OutcomeUnknown => Code::ShutdownInProgress,
            WireCode::Timeout => Code::MaxTimeMSExpired,
            WireCode::ResourceExhausted => Code::TemporarilyUnavailable,
            WireCode::InvalidArgument => Code::BadValue,
            _ => Code::InternalError,
        };
        Self::new(code, error.message)
    }
}

impl From<AuthError> for Failure {
    fn from(error: AuthError) -> Self {
        WireError::from(error).into()
    }
}

/// Error of a command or stage that the database of events and tables does not support.
pub(crate) fn not_on_reserved(what: &str) -> Failure {
    let message = format!(
        "{what} is not supported on the database ropewalk, whose collections are event stores and tables; find, \
         insert and listCollections are"
    );
    Failure::new(Code::CommandNotSupported, message)
}

/// Error of an operation that was killed.
pub(crate) fn interrupted() -> Failure {
    Failure::new(Code::Interrupted, "operation was interrupted")
}

/// Error of a write on a node that follows: drivers look for the primary.
pub(crate) fn not_primary() -> Failure {
    Failure::new(Code::NotWritablePrimary, "not primary")
}

/// Error of a read on a node that follows, from a client that does not allow it.
pub(crate) fn not_primary_no_secondary() -> Failure {
    Failure::new(Code::NotPrimaryNoSecondaryOk, "not primary and secondaryOk=false")
}

/// Error while the server stops: drivers look for another primary, and find this one after a restart.
pub(crate) fn shutting_down() -> Failure {
    Failure::new(Code::ShutdownInProgress, "the server is shutting down")
}
