//! Memory and limits of requests.

pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod newcomer;
pub(crate) mod stop;
