//! Checkpoints: copies of the database in a store that all nodes reach, and what they allow.
//!
//! ```text
//! a follower:  backup ─▶ new blocks ─▶ read back ─▶ manifest        checkpoint store
//!                                                                     ├── checkpoints/NUMBER      a manifest
//! a new node:  manifest ─▶ blocks ─▶ database ─▶ follow               ├── blocks/NUMBER-HASH      pieces of files
//!                                                                     ├── nodes/NODE-ENTRY        what a node still needs
//! the leader:  trims the shared log before what checkpoints and       └── withdrawn/NODE-NUMBER   checkpoints that are wrong
//!              nodes need
//! ```
//!
//! Invariants
//! 1. An object never changes. A manifest is created last, after everything that it names was read back and compared.
//! 2. The checkpoints are the newest manifest N, and N-1. Of two nodes that make N+1 at the same time, one creates the
//!    manifest. A node that sleeps until N+3 exists may create N+1 again, which was deleted: no node reads it.
//! 3. A node that makes N+1 stores blocks under that number or a greater one, and takes other blocks only from N and N-1.
//!    After checkpoint N, blocks up to number N are deleted that N and N-1 do not need; nothing else deletes one. So no block
//!    of a checkpoint, or of one in the making, is ever deleted, without clocks and without locks.
//! 4. A checkpoint continues at the same entry as the one before it, or at a later one.
//! 5. The shared log is trimmed only before the entries that the second newest checkpoint continues with, and those that a
//!    node needs that was seen within the grace time.
//!
//! Not here: what is in a copy (`ropewalk-engine`), applying entries, deciding what a trimmed node does.

mod collect;
mod directory;
mod error;
mod join;
mod make;
mod manifest;
mod rejoin;
mod reports;
mod running;
mod stoppable;
mod store;
mod tree;
mod upkeep;
mod withdraw;

use std::collections::HashSet;
use std::sync::Arc;

use crate::checkpoint::manifest::{BLOCKS, CHECKPOINTS};
pub use directory::DirectoryStore;
pub use error::CheckpointError;
pub use join::{JoinNotice, Joined, discard_copy};
pub use make::{CheckpointMade, Maker};
pub use manifest::{Block, Manifest, StoredFile};
pub use reports::NodeReport;
pub use running::RunningUpkeep;
pub use stoppable::StoppableStore;
pub use store::{CheckpointStore, OBJECT_BYTES_MAX, ObjectError, check_name};
pub use upkeep::{NewestCheckpoint, Upkeep, UpkeepDone, UpkeepSettings, UpkeepStatus, UpkeepStep};

/// Kind of the reports of nodes.
const NODES: &str = "nodes";
/// Kind of what was withdrawn.
const WITHDRAWN: &str = "withdrawn";
/// Length of a block by default: few requests, and little that is repeated after one failed.
const BLOCK_BYTES: u32 = 8 << 20;

/// The checkpoints of one cluster. A store has those of one cluster only. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    store: Arc<dyn CheckpointStore>,
    block_bytes: u32,
}

/// A checkpoint that was found.
#[derive(Debug, Clone)]
pub struct FoundCheckpoint {
    /// Its number.
    pub number: u64,
    /// The manifest, or the reason why it cannot be read.
    pub manifest: Result<Manifest, CheckpointError>,
}

impl Checkpoints {
    /// The checkpoints in `store`.
    pub fn new(store: Arc<dyn CheckpointStore>) -> Self {
        Self { store, block_bytes: BLOCK_BYTES }
    }

    /// New checkpoints have blocks of this length, at least 1. Default 8 MiB.
    #[must_use]
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.block_bytes = bytes.max(1);
        self
    }

    /// The two newest checkpoints, newest first, or as many as there are. Older ones are deleted, or about to be.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn list(&self) -> Result<Vec<FoundCheckpoint>, CheckpointError> {
        let mut found = Vec::new();
        for number in self.numbers()? {
            match self.manifest(number) {
                Err(CheckpointError::Store(error)) => return Err(error.into()),
                manifest => found.push(FoundCheckpoint { number, manifest }),
            }
        }
        Ok(found)
    }

    /// True when the store has no checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Store`].
    pub fn is_empty(&self) -> Result<bool, CheckpointError> {
        Ok(self.numbers()?.is_empty())
    }

    /// Reads and checks everything that a checkpoint names.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`]; [`CheckpointError::Store`].
    pub fn verify(&self, number: u64) -> Result<Manifest, CheckpointError> {
        let manifest = self.manifest(number)?;
        for block in manifest.blocks() {
            self.block(block)?;
        }
        Ok(manifest)
    }

    /// Numbers of the two newest checkpoints, newest first. Two checkpoints follow each other: a list that is read while others
    /// create and delete may have a gap.
    fn numbers(&self) -> Result<Vec<u64>, CheckpointError> {
        let names = self.store.list(CHECKPOINTS)?;
        let whole = |name: &String| Manifest::parse(name).filter(|(_, is_leftover)| !is_leftover);
        let mut numbers: Vec<u64> = names.iter().filter_map(whole).map(|(number, _)| number).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let before = numbers.first().map_or(0, |newest| newest.saturating_sub(1));
        numbers.retain(|number| *number >= before);
        Ok(numbers)
    }

    /// Names of all blocks that the store has.
    fn block_names(&self) -> Result<HashSet<String>, CheckpointError> {
        Ok(self.store.list(BLOCKS)?.into_iter().collect())
    }

    fn manifest(&self, number: u64) -> Result<Manifest, CheckpointError> {
        let name = Manifest::name(number);
        let object = self.object(&name)?;
        let damaged = |what: String| CheckpointError::Damaged { name: name.clone(), what };
        let manifest = Manifest::decode(&object).map_err(|error| damaged(error.to_string()))?;
        if manifest.number != number {
            return Err(damaged(format!("it is checkpoint {}", manifest.number)));
        }
        self.check_not_withdrawn(&manifest)?;
        Ok(manifest)
    }

    /// Contents of a block, checked.
    fn block(&self, block: &Block) -> Result<Vec<u8>, CheckpointError> {
        let name = block.name();
        let bytes = self.object(&name)?;
        let found = Block::of(block.number, &bytes);
        if found != *block {
            let what = format!("its contents have the hash {}", ropewalk_base::hex(&found.hash));
            return Err(CheckpointError::Damaged { name, what });
        }
        Ok(bytes)
    }

    fn object(&self, name: &str) -> Result<Vec<u8>, CheckpointError> {
        let found = self.store.read(name)?;
        found.ok_or_else(|| CheckpointError::Damaged {
            name: name.to_owned(),
            what: "it is missing".to_owned(),
        })
    }
}
