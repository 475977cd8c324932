use std::sync::Arc;

use crate::read::view::KeyspaceView;
use crate::run::Run;
use crate::store::Store;

/// Numbers about a store, per keyspace and in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// The keyspaces: all of them by number, or some of them by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Bytes of decoded blocks in the cache.
    pub cache_bytes: u64,
    /// Bound of the cache, in bytes.
    pub cache_bytes_max: u64,
    /// Bytes of memory held in all: the cache, and of the runs read so far the indexes and filters. Mapped pages are
    /// not counted.
    pub memory_bytes: u64,
}

/// Numbers about one keyspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// Level 0 first. In level 0 `flushes` of them overlap.
    pub levels: Vec<LevelStats>,
    /// Flushes that are not merged yet: sources that a read may have to search besides the levels.
    pub flushes: u64,
    /// Entries, all versions and tombstones counted.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Range tombstones, as disjoint fragments.
    pub range_tombstones: u64,
    /// Bytes of keys and values.
    pub raw_bytes: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Straight lines of all models.
    pub model_pieces: u64,
    /// Runs whose blocks are found through a model.
    pub runs_with_model: u64,
    /// Runs whose keys no model fits, so that fences are searched by halving.
    pub runs_without_model: u64,
    /// Runs that are read in place, or may be once they are read.
    pub runs_mapped: u64,
    /// Bytes written by flushes since the store was opened.
    pub flushed_bytes: u64,
    /// Bytes written by compaction since the store was opened; write amplification is
    /// (flushed + compacted) / flushed.
    pub compacted_bytes: u64,
    /// Bytes of memory held by indexes and filters: those that this process wrote, and those that reads needed so far.
    pub memory_bytes: u64,
}

/// Numbers about one level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Files.
    pub runs: u64,
    /// Bytes of files.
    pub bytes: u64,
}

impl LevelStats {
    fn of<'r>(runs: impl Iterator<Item = &'r Arc<Run>>) -> Self {
        runs.fold(Self::default(), |sum, r| Self { runs: sum.runs + 1, bytes: sum.bytes + r.bytes })
    }
}

impl Store {
    /// Counts what the footers of all runs say. Touches no block.
    pub fn stats(&self) -> StoreStats {
        self.stats_with(|keyspaces| (0..keyspaces.len()).collect())
    }

    /// As [`Store::stats`], with the first `limit` keyspaces whose names come after `after`, by name.
    pub fn stats_after(&self, after: Option<&str>, limit: usize) -> StoreStats {
        self.stats_with(|keyspaces| {
            let name = |index: &usize| keyspaces.get(*index).map_or("", |keyspace| keyspace.name.as_str());
            let mut found: Vec<usize> = (0..keyspaces.len()).collect();
            found.retain(|index| after.is_none_or(|after| name(index) > after));
            found.sort_unstable_by(|a, b| name(a).cmp(name(b)));
            found.truncate(limit);
            found
        })
    }

    /// The totals, and the keyspaces at the indexes that `choose` returns.
    fn stats_with(&self, choose: impl FnOnce(&[Arc<KeyspaceView>]) -> Vec<usize>) -> StoreStats {
        let (written, view) = (self.written(), self.view());
        let stats = |index: usize| {
            let written = written.get(index).copied().unwrap_or_default();
            Some(KeyspaceStats {
                number: u16::try_from(index).ok()?,
                flushed_bytes: written.flushed,
                compacted_bytes: written.compacted,
                ..KeyspaceStats::of(view.keyspaces.get(index)?)
            })
        };
        let cache_bytes = self.files().cache.weight();
        let runs = view.keyspaces.iter().flat_map(|keyspace| keyspace.runs());
        StoreStats {
            memory_bytes: cache_bytes + runs.map(|run| run.memory_bytes() as u64).sum::<u64>(),
            keyspaces: choose(&view.keyspaces).into_iter().filter_map(stats).collect(),
            cache_bytes,
            cache_bytes_max: self.files().options.cache_bytes,
        }
    }
}

impl KeyspaceStats {
    /// Sources that a point read may have to search: flushes that are not merged yet, and non-empty levels.
    pub fn read_amplification(&self) -> u64 {
        self.flushes + self.levels.iter().skip(1).filter(|level| level.runs > 0).count() as u64
    }

    /// Bytes written into runs for each byte that was flushed or loaded since the store was opened; `None` before the first.
    pub fn write_amplification(&self) -> Option<f64> {
        let all = self.flushed_bytes + self.compacted_bytes;
        (self.flushed_bytes > 0).then(|| all as f64 / self.flushed_bytes as f64)
    }

    /// Bytes of files for each byte of keys and values in them, old versions and tombstones counted; `None`
    /// when empty. [`KeyspaceStats::tombstones`] and [`KeyspaceStats::range_tombstones`] indicate how much
    /// compaction would free.
    pub fn space_amplification(&self) -> Option<f64> {
        (self.raw_bytes > 0).then(|| self.file_bytes as f64 / self.raw_bytes as f64)
    }

    fn of(keyspace: &KeyspaceView) -> Self {
        let l0 = LevelStats::of(keyspace.l0.iter().flat_map(|s| &s.runs));
        let below = keyspace.levels.iter().map(|s| LevelStats::of(s.runs.iter()));
        let mut stats = Self {
            name: keyspace.name.clone(),
            levels: std::iter::once(l0).chain(below).collect(),
            flushes: keyspace.l0.len() as u64,
            ..Self::default()
        };
        for run in keyspace.runs() {
            let footer = &run.footer;
            stats.entries += footer.entries;
            stats.tombstones += footer.tombstones;
            stats.range_tombstones += footer.ranges.len() as u64;
            stats.raw_bytes += footer.raw_bytes;
            stats.file_bytes += run.bytes;
            stats.model_pieces += run.model_pieces();
            stats.runs_with_model += u64::from(run.model_pieces() > 0);
            stats.runs_without_model += u64::from(run.model_pieces() == 0);
            stats.runs_mapped += u64::from(run.is_mapped());
            stats.memory_bytes += run.memory_bytes() as u64;
        }
        stats
    }
}
