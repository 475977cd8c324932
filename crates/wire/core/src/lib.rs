//! What every protocol of the server shares.
//!
//!   http, grpc, … ─▶ Caller (who) ─▶ Service: right? limit? ─▶ Database
//!                                       └─▶ Reading, Following: streams in batches; Metrics; Stop
//!
//! A protocol decodes its requests, calls [`Service`], and encodes what comes back; it holds no state of the database and
//! makes no decision about access, limits or errors. Read `service` for the calls, `access` for who may do what,
//! `reading` and `follow` for streams, `error` for the codes that clients may rely on, `extjson` for documents as JSON.
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
