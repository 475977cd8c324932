//! Keyspaces of the system, which the first node that writes to them defines.
//!
//! ```text
//! alone, leader ─▶ defined when its handle is made        follower ─▶ as the leader has defined it; until then it reads as empty
//! ```
//! Not here: the definition, which is a commit of the engine.

use std::sync::{Arc, OnceLock};

use ropewalk_engine::{KeyspaceOptions, KeyspaceWatch, WatchMark};

use crate::database::Database;
use crate::error::Result;
use crate::keyspace::Keyspace;

/// A keyspace of the system, with default options. Cheap to clone.
#[derive(Clone)]
pub struct SystemKeyspace {
    name: &'static str,
    found: Arc<OnceLock<Keyspace>>,
}

impl Database {
    /// The keyspace `name` of the system. No stable API.
    ///
    /// # Errors
    /// This node may write, and the commit that defines the keyspace fails.
    #[doc(hidden)]
    pub fn system_keyspace(&self, name: &'static str) -> Result<SystemKeyspace> {
        let keyspace = SystemKeyspace { name, found: Arc::default() };
        if self.leads() {
            keyspace.to_write(self)?;
        }
        Ok(keyspace)
    }
}

impl SystemKeyspace {
    /// The keyspace, if it is defined. Take the snapshot that reads it afterwards.
    pub fn to_read(&self, db: &Database) -> Option<Keyspace> {
        if let Some(found) = self.found.get() {
            return Some(*found);
        }
        let found = Keyspace(db.engine.find_keyspace(self.name)?);
        Some(*self.found.get_or_init(|| found))
    }

    /// The keyspace, which is defined if need be.
    ///
    /// # Errors
    /// The commit that defines it fails: on a follower with [`EngineError::NotLeader`](ropewalk_engine::EngineError).
    pub fn to_write(&self, db: &Database) -> Result<Keyspace> {
        if let Some(found) = self.found.get() {
            return Ok(*found);
        }
        let defined = db.keyspace(self.name, KeyspaceOptions::default())?;
        Ok(*self.found.get_or_init(|| defined))
    }
}

/// A keyspace of the system whose contents are cached: it notices commits that write to it.
pub struct WatchedKeyspace {
    keyspace: SystemKeyspace,
    watch: OnceLock<KeyspaceWatch>,
}

impl WatchedKeyspace {
    /// Watches `keyspace`, from its definition on.
    pub fn new(keyspace: SystemKeyspace) -> Self {
        Self { keyspace, watch: OnceLock::new() }
    }

    /// The keyspace.
    pub fn keyspace(&self) -> SystemKeyspace {
        self.keyspace.clone()
    }

    /// As [`SystemKeyspace::to_read`].
    pub fn to_read(&self, db: &Database) -> Option<Keyspace> {
        self.keyspace.to_read(db)
    }

    /// As [`SystemKeyspace::to_write`].
    ///
    /// # Errors
    /// As there.
    pub fn to_write(&self, db: &Database) -> Result<Keyspace> {
        self.keyspace.to_write(db)
    }

    fn watch(&self, db: &Database) -> Option<&KeyspaceWatch> {
        if let Some(watch) = self.watch.get() {
            return Some(watch);
        }
        let keyspace = self.to_read(db)?;
        Some(self.watch.get_or_init(|| db.watch_keyspace(keyspace)))
    }

    /// To be taken before the contents are read; `None` while the keyspace is not defined.
    pub fn mark(&self, db: &Database) -> Option<WatchMark> {
        self.watch(db).map(KeyspaceWatch::mark)
    }

    /// True when contents read after `mark` are those that readers see now.
    pub fn is_current(&self, db: &Database, mark: Option<WatchMark>) -> bool {
        match (self.watch(db), mark) {
            (Some(watch), Some(mark)) => watch.is_current(mark),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}
