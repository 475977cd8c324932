use crate::error::Class;

/// Error of the idempotency key of a transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdempotencyError {
    /// The key is not allowed.
    #[error("an idempotency key has 1 to {max} bytes and no control characters")]
    Key {
        /// The limit.
        max: usize,
    },
    /// The key was used for another request.
    #[error("the idempotency key was used for another request")]
    Mismatch,
    /// The results of the transaction are too large to be stored.
    #[error("{bytes} bytes of results of a transaction with an idempotency key; at most {max} are allowed")]
    TooLarge {
        /// Size of the record.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A stored record cannot be decoded.
    #[error("the record of an idempotency key is damaged")]
    Damaged,
}

impl IdempotencyError {
    /// The category of the error.
    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Key { .. } | Self::TooLarge { .. } => Class::Invalid,
            Self::Mismatch => Class::Refused,
            Self::Damaged => Class::Corrupt,
        }
    }
}
