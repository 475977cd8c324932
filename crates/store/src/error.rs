use std::io;
use std::path::{Path, PathBuf};

/// Errors of the store. Sorted by what the caller does next: retry, repair, or correct the call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system returned an error. The state before the call is intact and the call may be repeated.
    #[error("{op} {}: {source}", path.display())]
    Io {
        /// Operation that failed.
        op: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// The contents of a file are damaged.
    #[error("{} at byte {offset}: {what}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// The expected content.
        what: &'static str,
    },
    /// A run in the manifest is missing, or the manifest is missing although its runs or commits exist.
    #[error("{}: this file is missing, and others depend on it", path.display())]
    Missing {
        /// The missing file.
        path: PathBuf,
    },
    /// The file is not one of ours.
    #[error("{}: not a Ropewalk {kind} (it ends or starts with {found:02x?})", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The expected kind of file.
        kind: &'static str,
        /// The bytes where the magic should be.
        found: [u8; 8],
    },
    /// The file was written by a newer Ropewalk.
    #[error("{}: format version {found}, this program reads up to version {supported} (a format from the future)", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: u32,
        /// The newest version this program reads.
        supported: u32,
    },
    /// A keyspace number that no [`crate::store::Store::keyspace`] call gave.
    #[error("unknown keyspace {0}")]
    UnknownKeyspace(u16),
    /// More than 65 535 keyspaces.
    #[error("the store has no room for another keyspace (65535 at most)")]
    TooManyKeyspaces,
    /// A key and its value exceed 1 GiB.
    #[error("entry of {bytes} bytes exceeds the limit of {max}")]
    TooLarge {
        /// Bytes of key and value.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// An option outside its range.
    #[error("option {name} = {value}: {what}")]
    Option {
        /// The option.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The allowed values.
        what: &'static str,
    },
    /// Entries reached a run writer out of order: keys must ascend, versions of a key descend, range tombstones come first.
    #[error("run writer: {0}")]
    Order(&'static str),
}

impl StoreError {
    pub(crate) fn io(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { op, path: path.to_owned(), source }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: &'static str) -> Self {
        Self::Corrupt { path: path.to_owned(), offset, what }
    }
}
