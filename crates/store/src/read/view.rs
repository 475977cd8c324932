//! The set of runs in force: for each keyspace its flushes, newest first, and the levels below. Immutable; a
//! reader holds one and sees the same runs for as long as it likes.

use std::sync::Arc;

use ropewalk_base::{Seq, hash64};

use crate::error::StoreError;
use crate::memtable::Memtable;
use crate::options::{FilterPolicy, Keyspace, KeyspaceOptions};
use crate::read::cursor::Cursor;
use crate::read::flush::Flush;
use crate::read::sorted::Sorted;
use crate::run::value::{Entry, Value};
use crate::run::{Probe, Run};

/// One keyspace at one instant.
#[derive(Debug, Clone)]
pub(crate) struct KeyspaceView {
    pub(crate) name: String,
    pub(crate) options: KeyspaceOptions,
    /// The commit that defined its number; zero without one: made at an opening, or listed by the manifest then.
    pub(crate) defined: Seq,
    /// Flushes, newest first; their key ranges may overlap.
    pub(crate) l0: Vec<Arc<Sorted>>,
    /// Level 1 first. The last is not empty.
    pub(crate) levels: Vec<Arc<Sorted>>,
}

impl KeyspaceView {
    pub(crate) fn empty(name: &str, options: KeyspaceOptions, defined: Seq) -> Self {
        Self { name: name.to_owned(), options, defined, l0: Vec::new(), levels: Vec::new() }
    }

    /// All sorted sources, newest first.
    #[inline]
    pub(crate) fn sources(&self) -> impl DoubleEndedIterator<Item = &Arc<Sorted>> {
        self.l0.iter().chain(&self.levels)
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.sources().flat_map(|s| &s.runs)
    }
}

/// An immutable set of runs. Pins their files while it lives.
#[derive(Debug, Clone, Default)]
pub struct StoreView {
    pub(crate) keyspaces: Vec<Arc<KeyspaceView>>,
}

impl StoreView {
    #[inline]
    pub(crate) fn keyspace(&self, keyspace: Keyspace) -> Result<&KeyspaceView, StoreError> {
        let view = self.keyspaces.get(usize::from(keyspace.0));
        view.map(|v| &**v).ok_or(StoreError::UnknownKeyspace(keyspace.0))
    }

    /// The view before `flushes`, whose entries the reader has in memory. Only the newest flushes of a keyspace may be left
    /// out: older ones would be read instead of what they hide.
    #[must_use]
    pub fn without(&self, flushes: &[Arc<Flush>]) -> Self {
        let mut view = self.clone();
        for keyspace in &mut view.keyspaces {
            if keyspace.l0.iter().any(|sorted| sorted.is_of(flushes)) {
                Arc::make_mut(keyspace).l0.retain(|sorted| !sorted.is_of(flushes));
            }
        }
        view
    }

    /// True while no compaction has taken a run of `flush`.
    pub fn holds(&self, flush: &Flush) -> bool {
        let group = flush.group();
        let l0 = self.keyspaces.iter().flat_map(|keyspace| &keyspace.l0);
        let runs = l0.filter(|sorted| sorted.group == group).map(|sorted| sorted.runs.len()).sum::<usize>();
        group > 0 && runs == flush.runs()
    }

    /// Number of keyspaces that a manifest with a checkpoint at commit `at` lists. The definitions of the others are
    /// in the log after it; one with a run is durable, because its number was given out.
    pub(crate) fn listed(&self, at: Seq) -> usize {
        let is_listed =
            |keyspace: &Arc<KeyspaceView>| keyspace.defined <= at || keyspace.runs().next().is_some();
        self.keyspaces.iter().rposition(is_listed).map_or(0, |last| last + 1)
    }

    /// True for the number of a keyspace that the view has.
    #[inline]
    pub fn contains(&self, keyspace: Keyspace) -> bool {
        usize::from(keyspace.0) < self.keyspaces.len()
    }

    /// The newest version of `key` that `at` sees, tombstones included (their value is `None`). One block is touched
    /// in each sorted source until one has the key; nothing is copied or allocated where runs are mapped.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], I/O errors, unknown keyspace.
    #[inline]
    pub fn get<'a>(
        &'a self,
        keyspace: Keyspace,
        key: &[u8],
        at: Seq,
    ) -> Result<Option<Entry<'a>>, StoreError> {
        let keyspace = self.keyspace(keyspace)?;
        let mut left = keyspace.l0.len() + keyspace.levels.len();
        let mut hashed: Option<(u8, u64)> = None;
        for sorted in keyspace.sources() {
            left -= 1;
            let Some(run) = sorted.find(key).and_then(|i| sorted.runs.get(i)) else { continue };
            let probe = match (keyspace.options.filter, left) {
                (FilterPolicy::None, _) | (FilterPolicy::UpperLevels, 0) => Probe::Skip,
                (_, left) => {
                    let ignored = run.footer.options.filter_ignores_last;
                    let hash = match hashed {
                        Some((same, hash)) if same == ignored => hash,
                        _ => hash64(run.filtered(key)),
                    };
                    hashed = Some((ignored, hash));
                    // Where the key is likely to be, the fences are searched while the filter's line arrives.
                    if left == 0 { Probe::Late(hash) } else { Probe::Early(hash) }
                }
            };
            let point = run.get(key, at, probe)?;
            if sorted.has_ranges
                && let Some(deleted) = run.footer.ranges.newest(key, at)
                && point.as_ref().is_none_or(|entry| entry.seq < deleted)
            {
                return Ok(Some(Entry { seq: deleted, value: None }));
            }
            if point.is_some() {
                return Ok(point);
            }
        }
        Ok(None)
    }

    /// False when no key that starts with `prefix` and has exactly [`KeyspaceOptions::filter_ignores_last`] more bytes
    /// is in any run. Checks filters only; true for runs without a filter.
    ///
    /// # Errors
    /// A filter that is needed for the first time cannot be read, or is damaged.
    pub fn may_contain_prefix(&self, keyspace: Keyspace, prefix: &[u8]) -> Result<bool, StoreError> {
        let Ok(keyspace) = self.keyspace(keyspace) else { return Ok(false) };
        let ignored = keyspace.options.filter_ignores_last;
        let hash = hash64(prefix);
        let end = ropewalk_base::keys::prefix_end(prefix);
        for run in keyspace.runs() {
            let apart =
                run.ends_before(prefix) || end.as_ref().is_some_and(|end| run.start() >= end.as_slice());
            if !apart && (run.footer.options.filter_ignores_last != ignored || run.may_contain(hash)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A cursor over the runs alone, see [`Cursor::merged`].
    pub fn cursor(&self, keyspace: Keyspace, at: Seq) -> Cursor<'_> {
        Cursor::merged(&[], self, keyspace, at)
    }

    /// The newest version in the runs of the keyspace; zero when all are at or before the oldest snapshot
    /// that was live when the runs were written.
    pub fn max_seq(&self, keyspace: Keyspace) -> Seq {
        self.keyspace(keyspace)
            .map_or(Seq::ZERO, |k| k.sources().map(|s| s.max_seq).max().unwrap_or_default())
    }

    /// Entries in the runs of the keyspace, all versions and tombstones counted.
    pub fn entries(&self, keyspace: Keyspace) -> u64 {
        self.keyspace(keyspace).map_or(0, |k| k.runs().map(|r| r.footer.entries).sum())
    }
}

/// The value of `key` at `at`, from `memtables` (newest first) and then `view`.
///
/// # Errors
/// As [`StoreView::get`].
#[inline]
pub fn get<'a>(
    memtables: &[&'a Memtable],
    view: &'a StoreView,
    keyspace: Keyspace,
    key: &[u8],
    at: Seq,
) -> Result<Option<Value<'a>>, StoreError> {
    for memtable in memtables {
        if let Some(entry) = memtable.get(key, at) {
            return Ok(entry.value);
        }
    }
    Ok(view.get(keyspace, key, at)?.and_then(|entry| entry.value))
}

/// The newest change of `key` (value, tombstone or range tombstone) if it is newer than `after`.
///
/// # Errors
/// As [`StoreView::get`].
pub fn newest_seq<'m>(
    memtables: impl IntoIterator<Item = &'m Memtable>,
    view: &StoreView,
    keyspace: Keyspace,
    key: &[u8],
    after: Seq,
) -> Result<Option<Seq>, StoreError> {
    for memtable in memtables {
        if memtable.max_seq() <= after {
            continue;
        }
        if let Some(seq) = memtable.newest(key) {
            return Ok((seq > after).then_some(seq));
        }
    }
    if view.max_seq(keyspace) <= after {
        return Ok(None);
    }
    Ok(view.get(keyspace, key, Seq::MAX)?.map(|entry| entry.seq).filter(|&seq| seq > after))
}

/// The newest change after `after` to any key in `start .. end` (no end: everything from `start`). Cost: the changed
/// stretches of the memtables; and the range in those runs that hold anything newer than `after`.
///
/// # Errors
/// As [`StoreView::get`].
pub fn changed_in_range(
    memtables: &[&Memtable],
    view: &StoreView,
    keyspace: Keyspace,
    start: &[u8],
    end: Option<&[u8]>,
    after: Seq,
) -> Result<Option<Seq>, StoreError> {
    let newest = memtables.iter().filter_map(|m| m.changed_in(start, end, after)).max();
    if newest.is_some() {
        return Ok(newest);
    }
    let mut newest = None;
    for sorted in view.keyspace(keyspace)?.sources().filter(|s| s.max_seq > after) {
        newest = newest.max(sorted.changed_in(start, end, after)?);
    }
    Ok(newest)
}
