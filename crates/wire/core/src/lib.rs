//! Shared parts of the server's protocols.
//!
//!   http, grpc, … ─▶ Caller (who) ─▶ Service: right? limit? ─▶ Database
//!                                       └─▶ Reading, Following: streams in batches; Metrics; Stop
//!
//! A protocol decodes its requests, calls [`Service`], and encodes the result; it holds no state of the
//! database and makes no decision about access, limits or errors. `service` has the calls, `access` users and
//! rights, `reading` and `follow` streams, `error` the codes that clients may rely on, `extjson` documents as
//! JSON.
#![deny(missing_docs)]

mod access;
mod calls;
mod error;
pub mod extjson;
mod live;
mod metrics;
mod request;

pub use access::{
    Access, Caller, Credentials, Needs, Operation, Resource, Right, Roles, ScramExchange, ScramVerifier,
    TokenInfo, UserInfo,
};
pub use calls::backups::NamedBackup;
pub use calls::blocking::{blocking, committed};
pub use calls::groups::{TAKE_MAX, TAKE_WAIT_MAX};
pub use calls::processor::{Processors, stay_on};
pub use calls::reading::Reading;
pub use calls::{AskedStore, InFlight, Service, StoreInfo};
pub use error::{Code, Conflict, WireError};
pub use live::follow::{EncodedBatch, Followed, Following, Frame};
pub use metrics::{Metrics, RequestTimer, Requests};
pub use request::limits::{Limits, ServiceSettings};
pub use request::memory::{ConnectionMemory, RequestMemory, Reservation};
pub use request::newcomer::{Newcomer, Newcomers};
pub use request::stop::Stop;
