use ropewalk_base::{DecodeError, Decoder, put_u32};

use crate::error::StoreError;

/// Names a keyspace inside one store. Stable for the life of the store's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keyspace(pub u16);

/// How blocks of a run are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// Blocks are read in place, without a copy.
    #[default]
    None,
    /// Fast; about half the size on text.
    Lz4,
    /// Smaller than Lz4, about three times the CPU (level 1).
    Zstd,
}

/// Which runs carry a filter. A filter costs 1.25 bytes per key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FilterPolicy {
    /// None.
    None,
    /// Every run but those of the last level: reads that hit pay nothing there.
    #[default]
    UpperLevels,
    /// Every run: choose it when many reads miss.
    All,
}

/// How one keyspace is written. Runs already written keep the options they were written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyspaceOptions {
    /// Compression of blocks.
    pub compression: Compression,
    /// Which runs carry a filter.
    pub filter: FilterPolicy,
    /// The filter hashes keys without their last so many bytes, so that the prefix can be probed.
    pub filter_ignores_last: u8,
    /// Size of a block, 512 to 1 MiB; larger only where one entry does not fit.
    pub block_bytes: u32,
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        Self {
            compression: Compression::None,
            filter: FilterPolicy::UpperLevels,
            filter_ignores_last: 0,
            block_bytes: 4096,
        }
    }
}

impl KeyspaceOptions {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`StoreError::Option`].
    pub fn check(&self) -> Result<(), StoreError> {
        if !(512..=1 << 20).contains(&self.block_bytes) {
            let value = u64::from(self.block_bytes);
            return Err(StoreError::Option { name: "block_bytes", value, what: "must be 512 to 1048576" });
        }
        Ok(())
    }

    /// The part of a key that the filter hashes.
    #[inline]
    pub(crate) fn filtered(ignores_last: u8, key: &[u8]) -> &[u8] {
        key.get(..key.len().saturating_sub(usize::from(ignores_last))).unwrap_or_default()
    }

    /// Appends the options as the manifest and log records hold them, 7 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.compression as u8);
        out.push(self.filter as u8);
        out.push(self.filter_ignores_last);
        put_u32(out, self.block_bytes);
    }

    /// Reads options that [`KeyspaceOptions::encode`] wrote.
    ///
    /// # Errors
    /// The bytes end early, or a value is unknown.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let compression = match decoder.u8("compression")? {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            _ => return Err(DecodeError { what: "known compression", offset }),
        };
        let filter = match decoder.u8("filter policy")? {
            0 => FilterPolicy::None,
            1 => FilterPolicy::UpperLevels,
            2 => FilterPolicy::All,
            _ => return Err(DecodeError { what: "known filter policy", offset: offset + 1 }),
        };
        let filter_ignores_last = decoder.u8("filter_ignores_last")?;
        let block_bytes = decoder.u32("block_bytes")?;
        Ok(Self { compression, filter, filter_ignores_last, block_bytes })
    }
}

/// How runs are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// Mapped while all runs together stay below half of the physical memory, with read calls above that.
    #[default]
    Auto,
    /// Mapped into memory where the file system offers it.
    Map,
    /// Read calls through the block cache.
    Pread,
}

/// How a store works. The defaults suit a database of one to a hundred gigabytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// A run is closed when it reaches this size, in bytes; at least 1.
    pub run_bytes: u64,
    /// Compaction starts when a keyspace has more unmerged flushes than this; at least 1.
    pub l0_runs_max: usize,
    /// Each level may hold this many times the bytes of the one above it; at least 2.
    pub fanout: u64,
    /// Bound of the cache of decoded blocks, in bytes. Mapped uncompressed blocks do not use it.
    pub cache_bytes: u64,
    /// How runs are read.
    pub read_mode: ReadMode,
    /// Find blocks through the models of the runs; false searches fences by halving, to measure the benefit
    /// of models.
    pub learned_index: bool,
}

impl StoreOptions {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let least = [
            ("run_bytes", self.run_bytes, 1),
            ("l0_runs_max", self.l0_runs_max as u64, 1),
            ("fanout", self.fanout, 2),
        ];
        match least.into_iter().find(|&(_, value, least)| value < least) {
            Some((name, value, 1)) => Err(StoreError::Option { name, value, what: "must be at least 1" }),
            Some((name, value, _)) => Err(StoreError::Option { name, value, what: "must be at least 2" }),
            None => Ok(()),
        }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            run_bytes: 64 << 20,
            l0_runs_max: 4,
            fanout: 8,
            cache_bytes: 64 << 20,
            read_mode: ReadMode::Auto,
            learned_index: true,
        }
    }
}
