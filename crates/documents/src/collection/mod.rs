//! Changes of collections and indexes by name: create, alter, cap, rename, drop, build an index, expire documents.
//!
//! Above the writes, since they move documents. The definition is guarded in each commit that changes it.

pub(crate) mod capped;
pub(crate) mod ddl;
pub(crate) mod expiry;
pub(crate) mod indexes;
