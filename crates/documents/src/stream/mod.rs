//! Streams: the events of commits from the log, and the tail of a capped collection.
//!
//! Both continue at a position that the reader holds; a lost position is an error, never a gap.

pub(crate) mod tail;
pub(crate) mod watch;
