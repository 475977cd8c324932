//! Extensions of PostgreSQL whose functions are built in. They are always installed.

use ropewalk::tables::Value;

use super::relations::row;
use super::{OWNER, PG_CATALOG};
use crate::expr::Record;

/// An extension.
pub(crate) struct Extension {
    oid: i64,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Its functions that are built in.
    pub(crate) has: &'static str,
}

/// The built-in extensions.
pub(crate) const EXTENSIONS: [Extension; 1] = [Extension {
    oid: 15_000,
    name: "pgcrypto",
    version: "1.3",
    has: "digest, hmac, gen_random_bytes and gen_random_uuid",
}];

/// The rows of `pg_extension`.
pub(super) fn installed() -> Vec<Record> {
    let row = |extension: &Extension| {
        let Extension { oid, name, version, .. } = *extension;
        row![oid, name, OWNER, PG_CATALOG, false, version, Value::Null, Value::Null]
    };
    EXTENSIONS.iter().map(row).collect()
}

/// The rows of `pg_available_extensions`.
pub(super) fn available() -> Vec<Record> {
    let row = |extension: &Extension| {
        let Extension { name, version, has, .. } = *extension;
        row![name, version, version, format!("built in: {has}")]
    };
    EXTENSIONS.iter().map(row).collect()
}
