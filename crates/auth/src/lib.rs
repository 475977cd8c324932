//! Users, API tokens and rights: who a caller is, and which operations it may run.
//!
//! ```text
//! Basic user:password ─▶ recently right? ─no─▶ throttled? ─▶ a turn ─▶ PBKDF2 off the async threads ─▶ Caller
//! Bearer rw_…         ─▶ SHA-256 ─▶ known, not expired? ─▶ Caller
//! SCRAM messages      ─▶ throttled? ─▶ challenge ─▶ proof ─▶ Caller
//! cookie of a browser ─▶ SHA-256 ─▶ session, not ended? ─▶ Caller
//!                                                              └─▶ Needs of an Operation: allowed?
//! ```
//! `access` checks credentials and changes users and tokens, `records` has their stored form, `scram` the
//! verifiers of passwords. `caller` has rights by store, `operation` the rows of the authorisation matrix.
//! `throttle`, `newcomer` and `password_cache` bound the cost of logins. `browser_sessions` has the sessions of
//! browsers.
//!
//! Not here: headers and messages of a protocol; rules of collections, which are in `ropewalk-documents`.
#![deny(missing_docs)]

mod access;
mod browser_sessions;
mod bytes;
mod caller;
mod error;
mod newcomer;
mod operation;
mod password_cache;
mod records;
mod scram;
mod throttle;

pub use access::manage::{TokenInfo, UserInfo};
pub use access::scram_exchange::ScramExchange;
pub use access::{Access, Credentials, Logins};
pub use browser_sessions::BrowserSession;
pub use caller::{Caller, Right, Roles};
pub use error::AuthError;
pub use newcomer::{Newcomer, Newcomers};
pub use operation::{Needs, Operation, Resource};
pub use scram::ScramVerifier;
