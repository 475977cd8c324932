//! Access to stored rows and definitions, and the state of a session that planning depends on.

pub(crate) mod access_path;
pub(crate) mod comments;
pub(crate) mod cursors;
pub(crate) mod enums;
pub(crate) mod peers;
pub(crate) mod projections;
pub(crate) mod rights;
pub(crate) mod row_source;
pub(crate) mod schemas;
pub(crate) mod sequences;
pub(crate) mod standing;
pub(crate) mod views;
