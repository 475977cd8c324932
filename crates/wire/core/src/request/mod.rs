//! Memory and limits of requests.

pub(crate) mod bounds;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod page;
pub(crate) mod stop;
