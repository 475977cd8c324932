//! The operations of a transaction, their rights and their results.

use ropewalk::documents::lang::{DocBuf, Owned};
use ropewalk::documents::{Find, UpdateSpec, Updated};
use ropewalk::events::EventReader;
pub use ropewalk::hooks::idempotency::AppendPositions;
use ropewalk::series::SampleBatch;
use ropewalk::{AppendOptions, Event, Position, Query, Seq};
use ropewalk_auth::{Caller, Right};
use ropewalk_sql::Outcome;
use ropewalk_wire::WireError;

/// An operation of a transaction.
pub enum Operation {
    /// Appends events to a store.
    Append {
        /// The event store, which the first append creates.
        store: String,
        /// The events, in order.
        events: Vec<Event>,
        /// Conditions and tracking. Durability and idempotency key are those of the transaction.
        options: AppendOptions,
    },
    /// Reads matching events, including those of the transaction.
    ReadEvents {
        /// The event store; one that does not exist is empty.
        store: String,
        /// Which events.
        query: Query,
        /// Where the read begins and ends.
        options: ropewalk::events::ReadOptions,
    },
    /// Requires that no event matches.
    EventsUnchanged(EventsUnchanged),
    /// Requires that this commit is the newest one, also when the transaction commits.
    Newest(Seq),
    /// Reads or writes documents of one collection.
    Documents(Documents),
    /// Runs an SQL statement.
    Sql(Statement),
    /// Appends samples.
    Samples(Samples),
    /// Records the position that a consumer has processed, as a fenced step.
    Checkpoint {
        /// The event store.
        store: String,
        /// The consumer's name.
        consumer: String,
        /// The position up to which it has processed all events.
        position: Position,
        /// The position that must be recorded until now: zero for none. Without it any is overwritten.
        expected: Option<Position>,
    },
}

/// A precondition: no event after `after` matches.
pub struct EventsUnchanged {
    /// The event store; one that does not exist is empty.
    pub store: String,
    /// Which events.
    pub query: Query,
    /// Events up to this position do not count.
    pub after: Position,
}

/// An operation on documents.
pub struct Documents {
    /// The database of documents.
    pub database: String,
    /// The collection.
    pub collection: String,
    /// The read or write.
    pub work: DocumentsWork,
    /// Number of documents that it must match, delete or find.
    pub expected: Option<u64>,
}

/// A read or write of documents.
pub enum DocumentsWork {
    /// Inserts a document.
    Insert(DocBuf),
    /// Updates the first match, or all of them.
    Update {
        /// Filter and change.
        spec: UpdateSpec,
        /// All matches.
        many: bool,
    },
    /// Deletes the matches, at most as many as the limit says.
    Delete(Find),
    /// Reads a document by its `_id`.
    Get(Owned),
    /// Reads the matches.
    Find(Find),
    /// Counts the matches, at most one more than are expected, and returns nothing.
    Count(Find),
}

/// An SQL statement.
pub struct Statement {
    /// A single statement.
    pub text: String,
    /// Values of `$1`, `$2`, …
    pub parameters: Vec<Parameter>,
    /// Number of rows that it must write or return.
    pub expected: Option<u64>,
    /// A precondition: only a query, whose rows are not returned.
    pub is_check: bool,
}

/// The value of an SQL parameter, which is converted to the type of the parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// NULL.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// In PostgreSQL's text format of the type.
    Text(String),
    /// For `bytea` only.
    Bytes(Vec<u8>),
}

/// Samples to append.
pub struct Samples {
    /// The series store, which the first append creates.
    pub store: String,
    /// The samples.
    pub batch: SampleBatch,
}

/// A store or database of documents that an operation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// Its name.
    pub name: &'a str,
    /// The rights that the operation needs on it.
    pub rights: &'static [Right],
}

impl Operation {
    /// The store that the operation names, with the rights that it needs there; `None` for SQL, whose
    /// statements are checked by the session, and for a number of a commit, which every response has.
    pub fn needs(&self) -> Option<Store<'_>> {
        const READ: &[Right] = &[Right::Read];
        const APPEND: &[Right] = &[Right::Append];
        const BOTH: &[Right] = &[Right::Read, Right::Append];
        // A checkpoint belongs to the reader of the events, as in its own route.
        const CHECKPOINT: &[Right] = READ;
        let (name, rights) = match self {
            Self::Append { store, .. } => (store, APPEND),
            Self::ReadEvents { store, .. } => (store, READ),
            Self::EventsUnchanged(unchanged) => (&unchanged.store, READ),
            Self::Samples(samples) => (&samples.store, APPEND),
            Self::Checkpoint { store, .. } => (store, CHECKPOINT),
            Self::Documents(documents) => {
                let rights = match &documents.work {
                    DocumentsWork::Insert(_) => APPEND,
                    DocumentsWork::Update { .. } | DocumentsWork::Delete(_) => BOTH,
                    DocumentsWork::Get(_) | DocumentsWork::Find(_) | DocumentsWork::Count(_) => READ,
                };
                (&documents.database, rights)
            }
            Self::Sql(_) | Self::Newest(_) => return None,
        };
        Some(Store { name, rights })
    }

    /// True unless it writes. SQL statements are checked when they run.
    pub(crate) fn only_reads(&self) -> bool {
        match self {
            Self::Append { .. } | Self::Samples(_) | Self::Checkpoint { .. } => false,
            Self::ReadEvents { .. } | Self::EventsUnchanged(_) | Self::Newest(_) | Self::Sql(_) => true,
            Self::Documents(documents) => match documents.work {
                DocumentsWork::Get(_) | DocumentsWork::Find(_) | DocumentsWork::Count(_) => true,
                DocumentsWork::Insert(_) | DocumentsWork::Update { .. } | DocumentsWork::Delete(_) => false,
            },
        }
    }

    /// Rejects a caller without the rights.
    ///
    /// # Errors
    /// [`ropewalk_wire::Code::PermissionDenied`].
    pub(crate) fn check(&self, caller: &Caller) -> Result<(), WireError> {
        let Some(Store { name, rights }) = self.needs() else { return Ok(()) };
        Ok(rights.iter().try_for_each(|right| caller.check(*right, Some(name)))?)
    }

    /// Approximate bytes of its part of the commit record.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Append { events, .. } => {
                events.iter().map(|event| event.data.len() + event.event_type.len() + 64).sum()
            }
            Self::Samples(samples) => samples.batch.len() * 16,
            Self::Documents(Documents { work: DocumentsWork::Insert(document), .. }) => {
                document.bytes().len()
            }
            _ => 0,
        }
    }
}

/// The result of an operation.
pub enum Done {
    /// Events will be appended at the commit.
    Appended(AppendPositions),
    /// A reader of the matching events at the snapshot of the transaction, with its own.
    Events(EventReader),
    /// The precondition holds.
    Unchanged,
    /// The `_id` of the inserted document.
    Inserted(Owned),
    /// Documents were updated.
    Updated(Updated),
    /// So many documents were deleted.
    Deleted(u64),
    /// The document, if there is one.
    Document(Option<DocBuf>),
    /// The documents found.
    Documents(Vec<DocBuf>),
    /// The result of the statement.
    Sql(Outcome),
    /// So many samples will be appended at the commit.
    Samples(u64),
    /// The checkpoint was recorded.
    Checkpoint,
}
