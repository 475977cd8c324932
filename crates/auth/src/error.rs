use core::time::Duration;

/// The result of most functions of this crate.
pub(crate) type Result<T, E = AuthError> = core::result::Result<T, E>;

/// Reason why a login, an operation or a change of users was rejected.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A name, password, role, time or message breaks a rule; the same request fails again.
    #[error("{0}")]
    Invalid(String),
    /// The caller is unknown, or the secret is wrong.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The caller lacks a right.
    #[error("{0}")]
    PermissionDenied(String),
    /// The named user, token or right does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A user of this name exists.
    #[error("{0}")]
    AlreadyExists(String),
    /// The user or the peer gave too many wrong passwords.
    #[error("too many wrong passwords")]
    Throttled {
        /// Pause after which a retry makes sense.
        pause: Duration,
    },
    /// A stored user or token is damaged.
    #[error("{0}")]
    Damaged(String),
    /// An error of the database.
    #[error(transparent)]
    Database(#[from] ropewalk::Error),
    /// The system has no random bytes.
    #[error(transparent)]
    Random(#[from] getrandom::Error),
    /// The check of a password or a change was aborted.
    #[error(transparent)]
    Aborted(#[from] tokio::task::JoinError),
}
