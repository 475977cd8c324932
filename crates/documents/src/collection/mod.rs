//! Changes of collections and indexes by name: create, alter, cap, rename, drop, build an index, expire
//! documents.
//!
//! Above the write modules, because these changes write documents. Each commit that changes a definition
//! guards it.

pub(crate) mod capped;
pub(crate) mod ddl;
pub(crate) mod expiry;
pub(crate) mod indexes;
pub(crate) mod views;
