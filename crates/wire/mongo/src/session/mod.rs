//! Commands of sessions and transactions. Their state is in `state::sessions`.

pub(crate) mod sessions;
pub(crate) mod transaction;
