//! Creating, changing and dropping collections and indexes.

pub(crate) mod capped;
pub(crate) mod ddl;
pub(crate) mod expiry;
pub(crate) mod indexes;
