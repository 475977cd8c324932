//! State shared by all runs of a store: the directory, the file numbers, and the cache of decoded blocks.

use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::DefaultLifecycle;
use ropewalk_vfs::Env;

use crate::options::{ReadMode, StoreOptions};

/// A run's file number and the index of the block.
type BlockKey = (u64, u32);

/// Decoded blocks, weighed by their bytes. Shards and hash are fixed: the same reads give the same evictions in every
/// process, which a simulated disk relies on.
type Cache = quick_cache::sync::Cache<BlockKey, Arc<Vec<u8>>, BlockBytes, FixedHash>;

const CACHE_SHARDS: usize = 8;
/// Memory that the cache spends on an entry in addition to the block.
const CACHE_ENTRY_BYTES: u64 = 64;

#[derive(Clone)]
pub(crate) struct BlockBytes;

impl quick_cache::Weighter<BlockKey, Arc<Vec<u8>>> for BlockBytes {
    fn weight(&self, _: &BlockKey, block: &Arc<Vec<u8>>) -> u64 {
        block.len() as u64 + CACHE_ENTRY_BYTES
    }
}

#[derive(Clone, Default)]
pub(crate) struct FixedHash;

impl BuildHasher for FixedHash {
    type Hasher = Mix;

    fn build_hasher(&self) -> Mix {
        Mix(0)
    }
}

/// A hasher that mixes in one number after the other and folds the halves; keys are internal numbers, so it
/// needs no protection against chosen keys.
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(b.into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = mixed as u64 ^ (mixed >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) struct Files {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: StoreOptions,
    pub(crate) cache: Cache,
    next_file: AtomicU64,
    /// Bytes of all open runs, for the choice of the read mode.
    run_bytes: AtomicU64,
    mapped_bytes_max: u64,
}

impl Files {
    pub(crate) fn new(env: &Env, dir: &Path, options: StoreOptions) -> Self {
        let mapped_bytes_max = match options.read_mode {
            ReadMode::Map => u64::MAX,
            ReadMode::Pread => 0,
            ReadMode::Auto => env.vfs.physical_memory().map_or(0, |bytes| bytes / 2),
        };
        let cache_options = quick_cache::OptionsBuilder::new()
            .estimated_items_capacity((options.cache_bytes / 4096).max(64) as usize)
            .weight_capacity(options.cache_bytes)
            .shards(CACHE_SHARDS)
            .build()
            .expect("both capacities are given");
        let cache = Cache::with_options(cache_options, BlockBytes, FixedHash, DefaultLifecycle::default());
        Self {
            env: env.clone(),
            dir: dir.to_owned(),
            options,
            cache,
            next_file: AtomicU64::new(1),
            run_bytes: AtomicU64::new(0),
            mapped_bytes_max,
        }
    }

    pub(crate) fn name(id: u64) -> String {
        format!("{id:016x}.run")
    }

    pub(crate) fn path(&self, id: u64) -> PathBuf {
        self.dir.join(Self::name(id))
    }

    /// The number that the next file will get.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_file.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next_id(&self, id: u64) {
        self.next_file.store(id, Ordering::Relaxed);
    }

    /// A number for a new file.
    pub(crate) fn take_id(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a run in; true when it may be mapped.
    pub(crate) fn add_run(&self, bytes: u64) -> bool {
        self.run_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.mapped_bytes_max
    }

    /// True when all open runs together are within the share of memory that reads may hold: then new ones are mapped in full.
    pub(crate) fn runs_fit_memory(&self) -> bool {
        self.run_bytes.load(Ordering::Relaxed) <= self.options.cache_bytes
    }

    pub(crate) fn remove_run(&self, bytes: u64) {
        let before = self.run_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "a run was counted when it was opened");
    }
}
