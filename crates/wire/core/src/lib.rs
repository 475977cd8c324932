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
mod backups;
mod body;
mod error;
pub mod extjson;
mod feed;
mod follow;
mod groups;
mod hub;
mod index;
mod limits;
mod memory;
mod metrics;
mod newcomer;
mod processor;
mod reading;
mod service;
mod stop;
mod turn;

pub use access::{
    Access, Caller, Credentials, Needs, Operation, Resource, Right, Roles, ScramExchange, ScramVerifier,
    TokenInfo, UserInfo,
};
pub use backups::NamedBackup;
pub use body::{BodyBounds, BodyError, inflated_bytes_max, receive_body};
pub use error::{Code, Conflict, WireError};
pub use follow::{EncodedBatch, Followed, Following, Frame};
pub use groups::{TAKE_MAX, TAKE_WAIT_MAX};
pub use limits::{Limits, ServiceSettings};
pub use memory::{ConnectionMemory, RequestMemory, Reservation};
pub use metrics::{Metrics, RequestTimer, Requests};
pub use newcomer::{Newcomer, Newcomers};
pub use processor::{Processors, stay_on};
pub use reading::Reading;
pub use service::{AskedStore, InFlight, Service, StoreInfo};
pub use stop::Stop;
pub use turn::{blocking, committed};
