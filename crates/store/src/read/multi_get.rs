//! Lookups of many keys, interleaved so that their cache misses overlap.
//!
//!   per source: prefetch filters ─▶ filters, fences, prefetch blocks ─▶ search blocks ─▶ prefetch values
//!
//! A single lookup waits for one cache miss after the other; a batch is bounded by the misses that memory
//! serves at a time.

use ropewalk_base::{Seq, hash64};

use crate::error::StoreError;
use crate::options::{FilterPolicy, Keyspace};
use crate::prefetch::prefetch;
use crate::read::sorted::Sorted;
use crate::read::view::StoreView;
use crate::run::Run;
use crate::run::fences::Spot;
use crate::run::value::Entry;

/// Number of interleaved lookups. Memory serves some twenty misses of a core at a time.
pub const MANY: usize = 32;

impl StoreView {
    /// As [`StoreView::get`] for each of `keys` whose entry in `found` is still `None`. Keys in no run stay
    /// `None`.
    ///
    /// # Errors
    /// As [`StoreView::get`].
    pub fn get_many<'a>(
        &'a self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        at: Seq,
        found: &mut [Option<Entry<'a>>],
    ) -> Result<(), StoreError> {
        let keyspace = self.keyspace(keyspace)?;
        for (keys, found) in keys.chunks(MANY).zip(found.chunks_mut(MANY)) {
            let mut left = keyspace.l0.len() + keyspace.levels.len();
            for sorted in keyspace.sources() {
                left -= 1;
                if found.iter().all(Option::is_some) {
                    break;
                }
                let filters = match keyspace.options.filter {
                    FilterPolicy::None => false,
                    FilterPolicy::UpperLevels => left > 0,
                    FilterPolicy::All => true,
                };
                sorted.get_many(keys, at, filters, found)?;
            }
        }
        Ok(())
    }
}

/// A lookup in progress in one source.
#[derive(Clone, Copy)]
struct Lookup<'a> {
    run: &'a Run,
    hash: u64,
    spot: Option<Spot>,
}

impl Sorted {
    /// At most [`MANY`] keys.
    fn get_many<'a>(
        &'a self,
        keys: &[&[u8]],
        at: Seq,
        filters: bool,
        found: &mut [Option<Entry<'a>>],
    ) -> Result<(), StoreError> {
        let mut lookups: [Option<Lookup<'a>>; MANY] = [None; MANY];
        for ((key, found), lookup) in keys.iter().zip(&*found).zip(&mut lookups) {
            if found.is_none()
                && let Some(run) = self.find(key).and_then(|i| self.runs.get(i))
            {
                let mut hash = 0;
                if filters {
                    hash = hash64(run.filtered(key));
                    run.prefetch_filter(hash);
                }
                *lookup = Some(Lookup { run, hash, spot: None });
            }
        }
        for (key, lookup) in keys.iter().zip(&mut lookups) {
            if let Some(lookup) = lookup
                && (!filters || lookup.run.may_contain(lookup.hash)?)
            {
                lookup.spot = lookup.run.locate(key)?;
            }
        }
        for ((key, found), lookup) in keys.iter().zip(found).zip(&lookups) {
            let Some(Lookup { run, spot, .. }) = *lookup else { continue };
            let point = match spot {
                Some(spot) => run.search(spot, key, at)?,
                None => None,
            };
            if self.has_ranges
                && let Some(deleted) = run.footer.ranges.newest(key, at)
                && point.as_ref().is_none_or(|entry| entry.seq < deleted)
            {
                *found = Some(Entry { seq: deleted, value: None });
                continue;
            }
            if let Some(value) = point.as_ref().and_then(|entry| entry.value.as_deref()) {
                prefetch(value, 0, 1);
            }
            *found = point;
        }
        Ok(())
    }
}
