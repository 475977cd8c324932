use ropewalk_engine as engine;

/// An ordered map from bytes to bytes inside the database: what the richer models stand on, open to applications too.
/// Read it through a [`crate::Snapshot`] or [`crate::Transaction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Keyspace(pub(crate) engine::Keyspace);

impl Keyspace {
    /// Its number in commit records and statistics.
    pub fn id(self) -> u16 {
        self.0.0
    }
}
