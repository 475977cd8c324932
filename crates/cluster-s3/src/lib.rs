//! Checkpoints of a cluster in S3 or a compatible service: [`S3Store`] is a [`ropewalk_cluster::checkpoint::CheckpointStore`]
//! in a bucket.
//!
//! ```text
//! create KIND/REST ──PUT PREFIX/KIND/REST, If-None-Match: *──▶ bucket   stored, or there is one already
//! ```
//!
//! The crate `object_store` signs, sends and repeats the requests. When the store is opened, it checks the condition, and
//! refuses a service that ignores it. `docs/cluster-checkpoints.md` describes the use.
#![deny(missing_docs)]

mod place;
mod store;

pub use place::S3Place;
pub use store::S3Store;
