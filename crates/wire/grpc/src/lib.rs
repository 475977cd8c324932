//! gRPC: the protocol of UmaDB, so that its clients work unchanged, and our own with additional features.
//!
//!   admission: credentials, the rights of the call, then the body within bounds, which `decoded` measures
//!   routes ─┬─▶ umadb.v1.DCB, umadb.UmaDBService (its older path)
//!           ├─▶ ropewalk.events.v1.Events
//!           ├─▶ ropewalk.v1.Transactions ─▶ ropewalk-transactions
//!           └─▶ grpc.health.v1, grpc.reflection.v1 and v1alpha
//!
//! Read `rights` for the table of calls, `umadb`, `events` and `transactions` for their semantics, `frame` for
//! how events are encoded with one copy, `status` for the errors of failed calls, `request` for caller, store
//! and deadline. docs/grpc.md is the page for users.
#![deny(missing_docs)]

mod admission;
mod alias;
mod convert;
mod decoded;
mod events;
mod frame;
mod health;
mod request;
mod rights;
mod routes;
mod status;
mod streams;
mod transactions;
mod umadb;

pub use request::known_caller;
pub use rights::operations;
pub use routes::{GrpcSettings, routes};

/// Messages and clients of the protocols, generated from the files in `proto/`; a test compares them.
#[allow(missing_docs, clippy::pedantic, clippy::nursery, unreachable_pub)] // generated
pub mod proto {
    /// `umadb.v1`.
    pub mod umadb {
        /// `umadb.v1`.
        pub mod v1 {
            include!("../generated/umadb.v1.rs");
        }
    }
    /// `ropewalk.events.v1` and `ropewalk.v1`.
    pub mod ropewalk {
        /// `ropewalk.events.v1`.
        pub mod events {
            /// `ropewalk.events.v1`.
            pub mod v1 {
                include!("../generated/ropewalk.events.v1.rs");
            }
        }
        /// `ropewalk.v1`.
        pub mod v1 {
            include!("../generated/ropewalk.v1.rs");
        }
    }
}

/// Servers, some of whose responses are frames.
#[allow(missing_docs, unreachable_pub, dead_code, clippy::upper_case_acronyms)] // generated
mod server {
    pub(crate) mod umadb {
        include!("../generated/umadb.v1.DCB.rs");
    }
    pub(crate) mod events {
        include!("../generated/ropewalk.events.v1.Events.rs");
    }
    pub(crate) mod transactions {
        include!("../generated/ropewalk.v1.Transactions.rs");
    }
}
