//! Ropewalk's event store: append events under conditions, read them by type and tag, follow them, decide on them.
//!
//! It implements the whole DCB specification (Dynamic Consistency Boundary, dcb.events). Read `types` for the words,
//! `store` for the calls, `postings` and `search` for how queries cost only what they return, `append` for how a
//! condition is decided in the commit order.

mod admin;
mod append;
mod batch;
mod codec;
mod conditions;
mod decide;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod memory;
mod model;
mod postings;
mod read;
mod search;
mod store;
mod subscribe;
mod typed;
mod types;

pub use append::{AppendOperation, AppendOptions, Appended};
pub use batch::EventBatch;
pub use codec::{AppendSection, BodyRef, SequencedEvent, SequencedEventRef};
pub use conditions::{EventReads, ReadGuard};
pub use decide::{
    Decision, DecisionError, FnProjection, Projection, RetryPolicy, any, counter, projection, try_projection,
    typed_projection,
};
pub use error::{ApplyError, EventsError};
pub use model::{EVENTS, EventsModel};
pub use read::{EventReader, Scan};
pub use store::{EventStore, PendingAppend, StoreMark};
pub use subscribe::{Delivery, Subscription};
pub use typed::{FromEvent, Recorded, ToEvent, to_events};
pub use types::{
    AppendCondition, Event, NAME_BYTES_MAX, QUERY_TERMS_MAX, Query, QueryItem, ReadOptions, TEXT_BYTES_MAX,
    Tracking,
};

#[cfg(test)]
mod collisions;
