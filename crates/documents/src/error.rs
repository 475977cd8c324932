//! Errors of documents. Each has MongoDB's error code and name.

use ropewalk_base::Seq;
use ropewalk_engine::{EngineError, StoreError};

use crate::lang::{Code, DocBuf, LangError};

/// The result of most functions of this crate.
pub(crate) type Result<T, E = DocumentsError> = core::result::Result<T, E>;

/// An error of an operation on documents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentsError {
    /// A filter, update, projection or pipeline that is invalid, or does not fit a document.
    #[error(transparent)]
    Language(LangError),
    /// As [`DocumentsError::Language`], for a write to a collection.
    #[error("collection {collection:?}: {source}")]
    InCollection {
        /// The collection.
        collection: String,
        /// The error.
        source: LangError,
    },
    /// A stored document does not decode as the application's type.
    #[error("collection {collection:?}, document {id} cannot be read as {wanted}: {source}")]
    Undecoded {
        /// The collection.
        collection: String,
        /// The document's `_id`.
        id: String,
        /// The Rust type.
        wanted: &'static str,
        /// The error of the decoder.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operation was cancelled or timed out; it had no effect.
    #[error(transparent)]
    Interrupted(LangError),
    /// A document with the same `_id`, or the same values in a unique index, exists.
    #[error("duplicate key in collection {collection:?}, index {index:?}: {shown}")]
    Duplicate {
        /// The collection.
        collection: String,
        /// `_id_`, or the name of the unique index.
        index: String,
        /// The index's fields and their directions.
        pattern: Box<DocBuf>,
        /// The duplicate fields and values.
        key: Box<DocBuf>,
        /// The same, as text.
        shown: String,
    },
    /// No such collection.
    #[error("there is no collection {collection:?} in database {database:?}")]
    UnknownCollection {
        /// The database.
        database: String,
        /// The requested name.
        collection: String,
    },
    /// No such index.
    #[error("collection {collection:?} has no index {index:?}")]
    UnknownIndex {
        /// The collection.
        collection: String,
        /// The requested name or pattern.
        index: String,
    },
    /// A collection with that name exists with other options.
    #[error("collection {collection:?} exists already in database {database:?}")]
    CollectionExists {
        /// The database.
        database: String,
        /// The name.
        collection: String,
    },
    /// An index with that name, or on those fields, exists with other options.
    #[error("collection {collection:?}: an index {index:?} exists already with other options")]
    IndexExists {
        /// The collection.
        collection: String,
        /// The index.
        index: String,
        /// True when the name is the same and the fields differ.
        same_name: bool,
    },
    /// A name that is empty, too long, or contains a forbidden character.
    #[error("{name:?} is not a valid {kind} name: {what}")]
    InvalidName {
        /// Database, collection or index.
        kind: &'static str,
        /// The name.
        name: String,
        /// The reason.
        what: &'static str,
    },
    /// An invalid index definition.
    #[error("collection {collection:?}, index: {what}")]
    InvalidIndex {
        /// The collection.
        collection: String,
        /// The reason.
        what: String,
    },
    /// Invalid options.
    #[error("{what}")]
    InvalidOptions {
        /// The reason.
        what: String,
    },
    /// An update or replacement that would give a document another `_id`.
    #[error("a document keeps its _id: it cannot be changed by an update or replacement")]
    ImmutableId,
    /// A document, key or result over its limit.
    #[error("{what} of {bytes} bytes exceeds the limit of {max}")]
    TooLarge {
        /// Document, `_id`, index key.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A compound index would need entries for two arrays of one document.
    #[error(
        "collection {collection:?}, index {index:?}: two of its fields are arrays in one document: {first}, {second}"
    )]
    ParallelArrays {
        /// The collection.
        collection: String,
        /// The index.
        index: String,
        /// One path.
        first: String,
        /// The other.
        second: String,
    },
    /// A document violates the collection's schema.
    #[error("document failed validation in collection {collection:?}: {what}")]
    Validation {
        /// The collection.
        collection: String,
        /// The violated rule.
        what: String,
    },
    /// A document refers to a missing document, or would do so after the write.
    #[error("collection {collection:?}, reference {field:?}: {what}")]
    Reference {
        /// The collection that refers.
        collection: String,
        /// The field.
        field: String,
        /// The referenced document.
        what: String,
    },
    /// A rule of the collection denies the operation to the caller.
    #[error("the rules of collection {collection:?} do not let this caller {access} a document")]
    Denied {
        /// The collection.
        collection: String,
        /// The denied operation: read, list, create, update, delete.
        access: &'static str,
    },
    /// The write would exceed the quota of the database.
    #[error("database {database:?} would hold {bytes} bytes, its quota is {max}")]
    Quota {
        /// The database.
        database: String,
        /// Bytes with the write.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The schema of the collection may not be replaced.
    #[error("the schema of collection {collection:?} is protected")]
    Protected {
        /// The collection.
        collection: String,
    },
    /// A sort exceeds its memory limit; an index on the sort's fields needs no memory.
    #[error("a sort of more than {max} bytes needs an index on its fields, or a limit")]
    SortMemory {
        /// The limit.
        max: usize,
    },
    /// A retry with a number older than the newest one of its session.
    #[error("transaction number {number} is older than {newest}, the newest of its session")]
    TransactionTooOld {
        /// The number of the retry.
        number: i64,
        /// The newest number of the session.
        newest: i64,
    },
    /// A conflict with another commit; nothing was written. Run the transaction again.
    #[error("{what} was changed by commit {seq} while the transaction ran; retry")]
    Conflict {
        /// Collection and key, or whose definition.
        what: String,
        /// The other commit.
        seq: Seq,
    },
    /// A change stream cannot resume at a position: the log no longer holds it, or the token is invalid.
    #[error("the change stream cannot resume: {what}")]
    ResumeLost {
        /// The reason.
        what: String,
    },
    /// The last document that a tail has read is gone, or the collection is.
    #[error("the position in capped collection {collection:?} is gone")]
    PlaceLost {
        /// The collection.
        collection: String,
    },
    /// Stored bytes passed their checksum but are invalid.
    #[error("documents, {place}: {what}")]
    Damaged {
        /// Where.
        place: String,
        /// The expected content.
        what: String,
    },
    /// The writes of open transactions would exceed their memory limit.
    #[error("the writes of open transactions hold {max} bytes, their limit; commit or abort some of them")]
    TransactionMemory {
        /// The limit.
        max: u64,
    },
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<LangError> for DocumentsError {
    /// An error that ends a command is `Interrupted`, wherever it was noticed.
    fn from(error: LangError) -> Self {
        match error.code {
            Code::MaxTimeMSExpired
            | Code::Interrupted
            | Code::InterruptedAtShutdown
            | Code::ClientDisconnect
            | Code::ExceededMemoryLimit => Self::Interrupted(error),
            _ => Self::Language(error),
        }
    }
}

impl From<StoreError> for DocumentsError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl DocumentsError {
    pub(crate) fn damaged(place: impl Into<String>, what: impl std::fmt::Display) -> Self {
        Self::Damaged { place: place.into(), what: what.to_string() }
    }

    /// The same error without values of documents, for callers whom the collection's rules restrict.
    #[must_use]
    pub fn without_values(self) -> Self {
        match self {
            Self::Duplicate { collection, index, pattern, .. } => {
                let (key, shown) = (Box::new(DocBuf::empty()), "{ }".to_owned());
                Self::Duplicate { collection, index, pattern, key, shown }
            }
            other => other,
        }
    }

    /// True for [`DocumentsError::Conflict`]: the only error after which a retry of the transaction may
    /// succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// MongoDB's code of the error.
    pub fn code(&self) -> i32 {
        match self {
            Self::Language(error) | Self::Interrupted(error) | Self::InCollection { source: error, .. } => {
                error.code.number()
            }
            Self::Undecoded { .. } => Code::TypeMismatch.number(),
            Self::Duplicate { .. } => 11000,
            Self::UnknownCollection { .. } => 26,
            Self::UnknownIndex { .. } => 27,
            Self::CollectionExists { .. } => 48,
            Self::IndexExists { same_name: true, .. } => 86,
            Self::IndexExists { .. } => 85,
            Self::InvalidName { .. } => 73,
            Self::InvalidIndex { .. } => 67,
            Self::InvalidOptions { .. } => 72,
            Self::ImmutableId => 66,
            Self::TooLarge { .. } => 10334,
            Self::ParallelArrays { .. } => 171,
            Self::Validation { .. } | Self::Reference { .. } => 121,
            Self::Denied { .. } => 13,
            Self::Quota { .. } => 14031,
            Self::Protected { .. } => 20,
            Self::SortMemory { .. } => 292,
            Self::TransactionTooOld { .. } => 225,
            Self::Conflict { .. } => 112,
            Self::ResumeLost { .. } => 286,
            Self::PlaceLost { .. } => 136,
            Self::TransactionMemory { .. } => 365,
            Self::Damaged { .. } | Self::Engine(_) => 1,
        }
    }

    /// True when a view was used as a collection; a pipeline can read it.
    pub fn is_view(&self) -> bool {
        match self {
            Self::Language(error) | Self::InCollection { source: error, .. } => {
                error.code == Code::CommandNotSupportedOnView
            }
            _ => false,
        }
    }

    /// MongoDB's name of [`DocumentsError::code`].
    pub fn code_name(&self) -> String {
        let name = match self {
            Self::Language(error) | Self::Interrupted(error) | Self::InCollection { source: error, .. } => {
                return error.code.to_string();
            }
            Self::Undecoded { .. } => "TypeMismatch",
            Self::Duplicate { .. } => "DuplicateKey",
            Self::UnknownCollection { .. } => "NamespaceNotFound",
            Self::UnknownIndex { .. } => "IndexNotFound",
            Self::CollectionExists { .. } => "NamespaceExists",
            Self::IndexExists { same_name: true, .. } => "IndexKeySpecsConflict",
            Self::IndexExists { .. } => "IndexOptionsConflict",
            Self::InvalidName { .. } => "InvalidNamespace",
            Self::InvalidIndex { .. } => "CannotCreateIndex",
            Self::InvalidOptions { .. } => "InvalidOptions",
            Self::ImmutableId => "ImmutableField",
            Self::TooLarge { .. } => "BSONObjectTooLarge",
            Self::ParallelArrays { .. } => "CannotIndexParallelArrays",
            Self::Validation { .. } | Self::Reference { .. } => "DocumentValidationFailure",
            Self::Denied { .. } => "Unauthorized",
            Self::Quota { .. } => "OutOfDiskSpace",
            Self::Protected { .. } => "IllegalOperation",
            Self::SortMemory { .. } => "QueryExceededMemoryLimitNoDiskUseAllowed",
            Self::TransactionTooOld { .. } => "TransactionTooOld",
            Self::Conflict { .. } => "WriteConflict",
            Self::ResumeLost { .. } => "ChangeStreamHistoryLost",
            Self::PlaceLost { .. } => "CappedPositionLost",
            Self::TransactionMemory { .. } => "TemporarilyUnavailable",
            Self::Damaged { .. } | Self::Engine(_) => "InternalError",
        };
        name.to_owned()
    }
}
