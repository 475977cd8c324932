//! Where checkpoints are stored: named objects that never change.

use core::fmt;

/// Largest object that is read. A manifest of a terabyte has three megabytes.
pub const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// A call of a checkpoint store failed. It may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} {name} in the checkpoint store: {cause}")]
pub struct ObjectError {
    /// The call that failed.
    pub call: &'static str,
    /// Name of the object, or what the names begin with.
    pub name: String,
    /// Cause of the failure.
    pub cause: String,
}

/// Objects that all nodes of a cluster can read and create. Every call blocks.
///
/// A name is `KIND/REST`, of lower-case letters, digits and hyphens. No object is ever replaced: a newer one has another
/// name, so the only condition that a store has to offer is "if there is no such object". A service such as S3 has it
/// (`If-None-Match: *`).
///
/// Guarantees that a store owes: of two creations of one name at most one succeeds; an object is whole or absent; a created
/// object is durable, and every later call of every node finds it.
pub trait CheckpointStore: Send + Sync + fmt::Debug {
    /// Creates an object; false if there is one with this name already, which stays as it is.
    ///
    /// # Errors
    /// [`ObjectError`]: the object may be there now or later.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError>;

    /// Contents of an object; `None` if no object has this name.
    ///
    /// # Errors
    /// [`ObjectError`]; larger than [`OBJECT_BYTES_MAX`].
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectError>;

    /// Names of all objects of a kind, in any order. May contain leftovers of interrupted creations, whose names continue
    /// that of an object with a dot.
    ///
    /// # Errors
    /// [`ObjectError`].
    fn list(&self, kind: &str) -> Result<Vec<String>, ObjectError>;

    /// Deletes an object. Succeeds if the object does not exist.
    ///
    /// # Errors
    /// [`ObjectError`].
    fn delete(&self, name: &str) -> Result<(), ObjectError>;
}

/// Checks the name of an object, which may be that of a leftover.
///
/// # Errors
/// It is not a name.
pub fn check_name(call: &'static str, name: &str) -> Result<(), ObjectError> {
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(is_plain)
    };
    let whole = name.split_once('.').map_or(name, |(whole, _)| whole);
    match whole.split_once('/') {
        Some((kind, rest)) if is_part(kind) && is_part(rest) && !name.contains("..") => Ok(()),
        _ => Err(ObjectError { call, name: name.to_owned(), cause: "it is not a name".to_owned() }),
    }
}
