//! Makes a checkpoint of an open database.
//!
//! ```text
//! backup (hard links) ─▶ each file ─▶ its blocks: of the two newest checkpoints? else create, read back ─▶ manifest
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ropewalk::Database;
use ropewalk_base::Seq;
use ropewalk_log::shared::Place;
use ropewalk_vfs::{OpenMode, Vfs};

use crate::checkpoint::error::{CheckpointError, io};
use crate::checkpoint::manifest::{Block, Manifest, StoredFile};
use crate::checkpoint::{Checkpoints, tree};

/// Where the copy is made, in the directory of the database: then it shares the runs.
const COPY: &str = "checkpoint";
/// ... while the engine makes it.
const COPY_PARTIAL: &str = "checkpoint.partial";
/// A block gets a number that is greater by at most so much than that of its checkpoint.
const NAMES_MAX: u64 = 16;

/// A checkpoint that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointMade {
    /// Its number.
    pub number: u64,
    /// The newest commit in it.
    pub seq: Seq,
    /// Where it is in the shared log.
    pub place: Place,
    /// Its files.
    pub files: u64,
    /// Sum of their lengths.
    pub bytes: u64,
    /// Bytes that were stored for it: the others are in earlier checkpoints.
    pub stored_bytes: u64,
}

/// Makes the checkpoints of one open database.
///
/// Remembers the contents of runs, which never change: each is read once after the database was opened.
pub struct Maker {
    checkpoints: Checkpoints,
    db: Database,
    dir: PathBuf,
    node: [u8; 16],
    address: String,
    runs: HashMap<String, Run>,
}

/// Size and block hashes of a run.
struct Run {
    bytes: u64,
    /// Hashes of its blocks.
    blocks: Vec<[u8; 16]>,
}

/// A checkpoint in the making.
struct Making<'a> {
    checkpoints: &'a Checkpoints,
    vfs: &'a dyn Vfs,
    number: u64,
    /// Blocks that are stored and stay, with their checkpoints.
    stored: HashMap<[u8; 16], u64>,
    stored_bytes: u64,
}

impl Maker {
    /// Makes checkpoints of `db`, which is open in the directory `dir` as node `node`.
    pub fn new(
        checkpoints: Checkpoints,
        db: Database,
        dir: &Path,
        node: [u8; 16],
        address: impl Into<String>,
    ) -> Self {
        Self { checkpoints, db, dir: dir.to_owned(), node, address: address.into(), runs: HashMap::new() }
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// The checkpoints of its cluster.
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Name of the node.
    pub(super) fn node(&self) -> [u8; 16] {
        self.node
    }

    /// Address that the node advertises.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Makes a checkpoint. Commits, following and reading continue meanwhile; files that compaction drops take space until it
    /// is done.
    ///
    /// Cost: the log after the last flush, and the blocks of new runs, are written to the store and read back.
    ///
    /// # Errors
    /// [`CheckpointError::Outrun`]; [`CheckpointError::Behind`]; [`CheckpointError::NoPlace`]; [`CheckpointError::Damaged`] when what was read back differs;
    /// the store, the engine, a file.
    pub fn make(&mut self) -> Result<CheckpointMade, CheckpointError> {
        self.clear()?;
        let made = self.make_from_copy();
        let cleared = self.clear();
        let made = made?;
        cleared?;
        Ok(made)
    }

    /// Removes the copy of an earlier call that was interrupted. It keeps runs on the disk that are no longer used.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn clear(&self) -> Result<(), CheckpointError> {
        let vfs = &*self.db.engine().env().vfs;
        tree::remove(vfs, &self.dir.join(COPY_PARTIAL))?;
        tree::remove(vfs, &self.dir.join(COPY))
    }

    fn make_from_copy(&mut self) -> Result<CheckpointMade, CheckpointError> {
        let env = self.db.engine().env().clone();
        // Before the copy: what is stored from here on is of the next number, or of no checkpoint.
        let bases = self.checkpoints.list()?;
        let there = self.checkpoints.block_names()?;
        let number = bases.first().map_or(1, |newest| newest.number.saturating_add(1));
        let own = self.db.engine().saved_place().ok_or(CheckpointError::NoPlace)?;
        let mut stored = HashMap::new();
        for base in bases.iter().filter_map(|base| base.manifest.as_ref().ok()) {
            // So that the two newest are never older than the log, by whichever node they are made.
            let (number, newest, place) = (base.number, base.place.place.index, own.place.index);
            if base.place.log == own.log && newest > place {
                return Err(CheckpointError::Behind { number, newest, place });
            }
            let blocks = base.blocks().filter(|block| there.contains(&block.name()));
            stored.extend(blocks.map(|block| (block.hash, block.number)));
        }
        let copy = self.dir.join(COPY);
        let backup = self.db.engine().backup_node(&copy)?;
        let place = backup.place.ok_or(CheckpointError::NoPlace)?;
        let mut making =
            Making { checkpoints: &self.checkpoints, vfs: &*env.vfs, number, stored, stored_bytes: 0 };
        let mut files = Vec::new();
        for name in tree::files(&*env.vfs, &copy)? {
            files.push(making.take(&copy, name, &mut self.runs)?);
        }
        let stored_bytes = making.stored_bytes;
        let (seq, place_of) = (backup.seq, place.place);
        let manifest = Manifest {
            number,
            node: self.node,
            address: self.address.clone(),
            time_micros: env.clock.wall_micros(),
            seq,
            place,
            block_bytes: self.checkpoints.block_bytes,
            files,
        };
        self.checkpoints.publish(&manifest)?;
        let (files, bytes) = (manifest.files.len() as u64, manifest.bytes());
        Ok(CheckpointMade { number, seq, place: place_of, files, bytes, stored_bytes })
    }
}

impl Making<'_> {
    /// Stores a file of the copy, as far as it is not stored yet.
    fn take(
        &mut self,
        copy: &Path,
        name: String,
        runs: &mut HashMap<String, Run>,
    ) -> Result<StoredFile, CheckpointError> {
        let is_run = name.ends_with(".run");
        if let Some(file) = runs.get(&name).and_then(|run| self.known(&name, run)) {
            return Ok(file);
        }
        let file = self.store(copy, name)?;
        if is_run {
            let blocks = file.blocks.iter().map(|block| block.hash).collect();
            runs.insert(file.name.clone(), Run { bytes: file.bytes, blocks });
        }
        Ok(file)
    }

    /// A run of which every block is stored.
    fn known(&self, name: &str, run: &Run) -> Option<StoredFile> {
        let find =
            |hash: &[u8; 16]| self.stored.get(hash).map(|number| Block { number: *number, hash: *hash });
        let blocks = run.blocks.iter().map(find).collect::<Option<Vec<_>>>()?;
        Some(StoredFile { name: name.to_owned(), bytes: run.bytes, blocks })
    }

    fn store(&mut self, copy: &Path, name: String) -> Result<StoredFile, CheckpointError> {
        let path = copy.join(&name);
        let file = self.vfs.open(&path, OpenMode::Read).map_err(io("open", &path))?;
        let bytes = file.len().map_err(io("measure", &path))?;
        let mut stored = StoredFile { name, bytes, blocks: Vec::new() };
        let mut buffer = Vec::new();
        for range in stored.ranges(self.checkpoints.block_bytes) {
            buffer.resize(usize::try_from(range.end - range.start).unwrap_or(usize::MAX), 0);
            file.read_exact_at(&mut buffer, range.start).map_err(io("read", &path))?;
            stored.blocks.push(self.store_block(&buffer)?);
        }
        Ok(stored)
    }

    fn store_block(&mut self, bytes: &[u8]) -> Result<Block, CheckpointError> {
        let block = Block::of(self.number, bytes);
        if let Some(number) = self.stored.get(&block.hash) {
            return Ok(Block { number: *number, ..block });
        }
        let block = self.checkpoints.store_block(block, bytes)?;
        self.stored.insert(block.hash, block.number);
        self.stored_bytes += bytes.len() as u64;
        Ok(block)
    }
}

impl Checkpoints {
    /// Creates a block of the checkpoint in the making, and reads it back. Its number is greater than that of the checkpoint when
    /// an earlier attempt, or another node, has left a damaged object with its name. That one is not deleted: another node may
    /// have replaced it and published a checkpoint since it was read.
    fn store_block(&self, mut block: Block, bytes: &[u8]) -> Result<Block, CheckpointError> {
        let checkpoint = block.number;
        loop {
            let is_created = self.store.create(&block.name(), bytes)?;
            let damage = match self.block(&block) {
                Ok(_) => return Ok(block),
                Err(error @ CheckpointError::Damaged { .. }) => error,
                Err(error) => return Err(error),
            };
            // Then others have deleted what they do not need.
            if self.numbers()?.first() >= Some(&checkpoint) {
                return Err(CheckpointError::Outrun { number: checkpoint });
            }
            if is_created || block.number >= checkpoint.saturating_add(NAMES_MAX) {
                return Err(damage);
            }
            block.number += 1;
        }
    }

    /// Creates a manifest, and reads it back: the checkpoint exists when this returns.
    fn publish(&self, manifest: &Manifest) -> Result<(), CheckpointError> {
        let (number, name) = (manifest.number, Manifest::name(manifest.number));
        let is_created = self.store.create(&name, &manifest.encode());
        // An error may mean that it was created.
        let found = self.store.read(&name)?;
        let is_ours = found.as_ref().is_some_and(|object| *object == manifest.encode());
        let was_created = is_ours || is_created == Ok(true);
        match (is_created, found) {
            // A newer one: this node was slow. The blocks of this checkpoint may be gone, and its manifest deleted, or created
            // again by another slow node.
            _ if was_created && self.numbers()?.first() != Some(&number) => {
                Err(CheckpointError::Outrun { number })
            }
            _ if is_ours => Ok(()),
            (Ok(true), _) => {
                let what = "the bytes read back differ from the bytes stored".to_owned();
                Err(CheckpointError::Damaged { name, what })
            }
            (Ok(false), _) | (Err(_), Some(_)) => Err(CheckpointError::Outrun { number }),
            (Err(error), None) => Err(error.into()),
        }
    }
}

impl core::fmt::Debug for Maker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Maker({} with {:?})", self.dir.display(), self.checkpoints)
    }
}
