//! Transactions over events, documents, samples and rows, as the protocols of the server offer them.
//!
//! ```text
//! protocol ─▶ operations ─▶ rights of each ─▶ one ropewalk::Transaction ─▶ one commit ─▶ a result for each operation
//!                 ▲                               └─ conflict: all operations again, on the newest state
//!                 └─ token of an open transaction: several requests, one commit, no second attempt
//! ```
//! `operation` has the operations and results, `running` the transaction in which they run, `sessions` the SQL
//! sessions that transactions reuse, `request` a transaction in one request, `brief` decides whether it may run
//! on the thread that received it, `idempotency` the keys of requests and `key_usage` the number of keys
//! of a caller, `open` transactions over several requests, `advisory` and `limits` their limits, `failure`
//! errors, `report` errors as clients see them, `memory` the memory of results. `sql` has parameters, results
//! and errors of SQL statements, which `ropewalk-postgres` and `ropewalk-mongo` also use.
//!
//! Not here: requests and encoding of results (`ropewalk-http`, `ropewalk-grpc`), and the transactions of
//! MongoDB's sessions (`ropewalk-mongo`).
//!
//! Invariants
//! 1. Each operation needs the same rights as in a separate request; they are checked before it runs.
//! 2. All operations of a transaction are one commit; an error rolls the whole transaction back.
//! 3. The result of an idempotency key is part of the commit that it describes.
//! 4. Each caller has a share of what lasts longer than a request: keys, open transactions, advisory locks.
#![deny(missing_docs)]

mod advisory;
mod brief;
mod failure;
mod idempotency;
mod key_usage;
mod limits;
mod memory;
mod open;
mod operation;
mod report;
mod request;
mod running;
mod sessions;
mod sql;

pub use failure::{Cause, Failure};
pub use idempotency::IdempotencyKey;
pub use limits::{KEY_BYTES_MAX, RETENTION};
pub use memory::ResultMemory;
pub use open::{OpenTransactions, TransactionId};
pub use operation::{
    AppendPositions, Documents, DocumentsWork, Done, EventsUnchanged, Operation, Parameter, Samples,
    Statement, Store,
};
pub use report::{Report, ReportKind, StatementReport};
pub use request::{Answer, Encode, OPERATIONS_MAX, Request, check_operations};
pub use running::Modes;
pub use sessions::{Sessions, UsedSession};
pub use sql::csv::put_csv;
pub use sql::error::{code_of, told};
pub use sql::json::{cover_results, put_ndjson, put_outcome};
pub use sql::parameters;
