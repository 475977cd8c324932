//! Shared parts of the server's protocols.
//!
//!   http, grpc, … ─▶ Caller (who) ─▶ Service: right? limit? ─▶ Database
//!                                       └─▶ Reading, Following: streams in batches; Metrics; Stop
//!
//! A protocol decodes its requests, calls [`Service`], and encodes the result; it holds no state of the
//! database and makes no decision about limits or errors. `calls` has the operations, `live` subscriptions,
//! `request` limits and memory, `error` the codes that clients may rely on.
//!
//! Not here: users, tokens and rights, which are in `ropewalk-auth`.
#![deny(missing_docs)]

mod calls;
mod cluster;
mod error;
pub mod extjson_parser;
mod live;
mod metrics;
mod request;

pub use calls::backups::NamedBackup;
pub use calls::blocking::{committed, run_unpinned};
pub use calls::groups::{TAKE_MAX, TAKE_WAIT_MAX};
pub use calls::processor::{Processors, pin_to_cpu};
pub use calls::reading::Reading;
pub use calls::{AskedStore, InFlight, Service, StoreInfo};
pub use cluster::{
    CheckpointStatus, Cluster, ClusterStatus, ContentsCheck, ContentsStatus, Member, MemberReport,
    NodeAddresses, RemovedMember, SteppedDown, TakenReport,
};
pub use error::{Code, Conflict, WireError};
pub use live::follow::{EncodedBatch, Followed, Following, Frame};
pub use metrics::{Connections, Gauge, Metrics, OpenConnection, OperationStats, RequestTimer, Requests};
pub use request::bounds::Bounds;
pub use request::limits::{Limits, ServiceSettings, TransactionLimits};
pub use request::memory::{ConnectionMemory, RequestMemory, Reservation};
pub use request::page::Page;
pub use request::stop::Stop;
