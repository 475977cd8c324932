use ropewalk_base::DecodeError;

use crate::error::Class;

/// Error of a consumer group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The store has no group with this name.
    #[error("event store {store:?} has no consumer group {name:?}")]
    Unknown {
        /// The store.
        store: String,
        /// The group.
        name: String,
    },
    /// The group never handed out this lease.
    #[error("consumer group {name:?} has no lease {lease}; a lease comes from ConsumerGroup::take")]
    UnknownLease {
        /// The group.
        name: String,
        /// The lease.
        lease: u64,
    },
    /// The store was deleted since, so its positions no longer refer to the same events.
    #[error("event store {store:?} was deleted after consumer group {name:?} read it; delete the group, too")]
    StoreReplaced {
        /// The store.
        store: String,
        /// The group.
        name: String,
    },
    /// The settings are invalid.
    #[error("consumer group: {what}")]
    Settings {
        /// The violated rule.
        what: String,
    },
    /// A record of the group cannot be decoded.
    #[error("a record of consumer group {name:?} is damaged: {source}")]
    Damaged {
        /// The group.
        name: String,
        /// The decoding error.
        source: DecodeError,
    },
}

impl GroupError {
    /// The category of the error.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Unknown { .. } | Self::UnknownLease { .. } => Class::NotFound,
            Self::Damaged { .. } => Class::Corrupt,
            _ => Class::Invalid,
        }
    }
}
