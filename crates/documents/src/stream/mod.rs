//! Reading what commits change: change streams.

pub(crate) mod watch;
