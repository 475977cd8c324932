use ropewalk_engine as engine;

/// Ordered map from bytes to bytes, on which the richer models are built.
///
/// Applications may use it, too. Read it through a [`crate::Snapshot`] or [`crate::Transaction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keyspace(pub(crate) engine::Keyspace);

impl Keyspace {
    /// Keyspace number in commit records and statistics.
    pub fn id(self) -> u16 {
        self.0.0
    }
}
