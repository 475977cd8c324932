//! Ropewalk's event store: append events under conditions, read them by type and tag, follow them, decide on
//! them.
//!
//! It implements the complete DCB specification (Dynamic Consistency Boundary, dcb.events). Read `event` for
//! the types, `store` for the operations, `index` for how queries cost only what they return, `append` for
//! how a condition is checked in the commit order.

mod append;
mod error;
mod event;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod model;
mod read;
mod store;

pub use append::conditions::{EventReads, ReadGuard};
pub use append::{AppendOperation, AppendOptions, Appended};
pub use error::{ApplyError, EventsError};
pub use event::batch::EventBatch;
pub use event::codec::{AppendSection, BodyRef, SequencedEvent, SequencedEventRef};
pub use event::personal::{PersonalData, Redacted};
pub use event::typed::{FromEvent, Recorded, ToEvent, VERSION_KEY, event_version, to_events};
pub use event::types::{
    AppendCondition, Event, NAME_BYTES_MAX, QUERY_TERMS_MAX, Query, QueryItem, ReadOptions, TEXT_BYTES_MAX,
    Tracking,
};
pub use model::{EVENTS, EventsModel};
pub use read::projection::{
    FnProjection, Projection, count, exists, projection, try_projection, typed_projection,
};
pub use read::{EventReader, Scan};
pub use store::decide::{Decision, DecisionError, RetryPolicy};
pub use store::subscribe::{Delivery, Subscription};
pub use store::{EventStore, PendingAppend, StoreMark};
