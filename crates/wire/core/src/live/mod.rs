//! Live subscriptions.

pub(crate) mod feed;
pub(crate) mod follow;
pub(crate) mod hub;
pub(crate) mod index;
