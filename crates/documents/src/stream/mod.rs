//! Reading what commits change: change streams.

pub(crate) mod tail;
pub(crate) mod watch;
