//! Per-partition upper time bound and maximum chunk span, used to skip partitions that cannot contain newer
//! samples, and most chunks when reading the last hour of a day.
//!
//!   open: as stored with each partition     flush ─▶ the greatest time and the longest chunk written: noted
//!         (see `chunk_keys`), else unknown           before they are readable, stored together with them
//!
//! Most queries are about the last minutes, which are in memory; finding out that a stored chunk ends before
//! them costs more than reading them. A bound is never below the true value, whatever a reader's snapshot;
//! deletions leave it too high.

use std::collections::HashMap;

use parking_lot::RwLock;
use ropewalk_base::{DecodeError, Decoder, put_varint};

use crate::storage::chunk_keys::{PARTITION_MS, base_of};

/// Bounds of the chunks of a partition: the last time, and the most milliseconds from the first sample of one
/// to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) last: i64,
    pub(crate) span: i64,
}

/// Form of the value, in the place of a chunk's form.
const FORM: u8 = 4;

impl Bounds {
    /// Bounds that always hold.
    pub(crate) const UNKNOWN: Bounds = Bounds { last: i64::MAX, span: i64::MAX };

    /// Of one chunk, by the times of its first and last sample.
    pub(crate) fn of(first: i64, last: i64) -> Self {
        debug_assert!(first <= last, "a chunk from {first} to {last}");
        Self { last, span: last - first }
    }

    /// Bounds of both.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self { last: self.last.max(other.last), span: self.span.max(other.span) }
    }

    /// Stored form for a partition; `None` when the bounds are unknown.
    pub(crate) fn encode(self, partition: i64) -> Option<Vec<u8>> {
        if self == Self::UNKNOWN {
            return None;
        }
        let mut out = vec![FORM];
        put_varint(&mut out, self.last.wrapping_sub(base_of(partition)) as u64);
        put_varint(&mut out, self.span as u64);
        debug_assert_eq!(
            Self::decode(partition, &out),
            Ok(self),
            "bounds lie in their partition {partition}"
        );
        Some(out)
    }

    pub(crate) fn decode(partition: i64, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let form = decoder.u8("form")?;
        let (last, span) = (decoder.varint("last time")?, decoder.varint("span")?);
        if form != FORM || last >= PARTITION_MS as u64 || span > last || !decoder.is_empty() {
            return Err(DecodeError { what: "bounds of a partition", offset: 0 });
        }
        Ok(Self { last: base_of(partition).wrapping_add(last as i64), span: span as i64 })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reach(RwLock<HashMap<i64, Bounds>>);

impl Reach {
    /// Bounds of a store that has these partitions.
    pub(crate) fn new(partitions: impl IntoIterator<Item = (i64, Option<Bounds>)>) -> Self {
        let of = |(partition, bounds): (_, Option<Bounds>)| (partition, bounds.unwrap_or(Bounds::UNKNOWN));
        Self(RwLock::new(partitions.into_iter().map(of).collect()))
    }

    /// Records that chunks within `more` are about to be written, and returns the bounds of the complete
    /// partition.
    pub(crate) fn note(&self, partition: i64, more: Bounds) -> Bounds {
        let mut all = self.0.write();
        let of = all.entry(partition).or_insert(more);
        *of = of.and(more);
        *of
    }

    /// `None` when no stored chunk of the partition has a sample at `from` or later; otherwise a time before
    /// which no such chunk begins.
    pub(crate) fn since(&self, partition: i64, from: i64) -> Option<i64> {
        match self.0.read().get(&partition) {
            Some(of) if of.last < from => None,
            // A span that is not known is longer than all times.
            Some(of) => Some(from.saturating_sub(of.span)),
            None => Some(i64::MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ropewalk_engine::{Background, Engine, EngineOptions};
    use ropewalk_vfs::Env;

    use super::*;
    use crate::model::SeriesModel;
    use crate::sample::batch::SampleBatch;
    use crate::storage::chunk_keys::partition_of;
    use crate::store::SeriesStore;
    use ropewalk_labels::Labels;

    #[test]
    fn unknown_bounds_exclude_nothing() {
        let reach = Reach::new([(1, None), (3, Some(Bounds { last: 70, span: 5 }))]);
        assert_eq!((reach.since(1, 5), reach.since(2, 0)), (Some(5 - i64::MAX), Some(i64::MIN)));
        assert_eq!((reach.since(3, 70), reach.since(3, 71)), (Some(65), None));
        reach.note(2, Bounds { last: 50, span: 10 });
        assert_eq!(reach.note(2, Bounds { last: 40, span: 20 }), Bounds { last: 50, span: 20 });
        assert_eq!(reach.note(1, Bounds { last: 40, span: 7 }), Bounds::UNKNOWN);
        assert_eq!((reach.since(1, 90), reach.since(2, 51)), (Some(90 - i64::MAX), None));
        assert_eq!((reach.since(2, 50), reach.since(2, i64::MIN)), (Some(30), Some(i64::MIN)));
    }

    #[test]
    fn golden_bytes() {
        let bounds = Bounds::of(PARTITION_MS + 100, PARTITION_MS + 300);
        assert_eq!(bounds.encode(1).unwrap(), [4, 0xac, 2, 0xc8, 1]);
        assert_eq!(Bounds::UNKNOWN.encode(1), None);
        for (first, last) in [(i64::MIN, i64::MIN + 9), (i64::MAX - 9, i64::MAX), (-5, -1), (0, 0)] {
            let (bounds, partition) = (Bounds::of(first, last), partition_of(last));
            assert_eq!(Bounds::decode(partition, &bounds.encode(partition).unwrap()), Ok(bounds));
        }
        // Another form, beyond the day, longer than from its beginning, too short, too long.
        for bytes in [&[3, 1, 1][..], &[4, 0x80, 0xb8, 0x99, 0x29, 0], &[4, 1, 2], &[4, 1], &[4, 1, 1, 0]] {
            assert!(Bounds::decode(0, bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn bounds_are_known_after_reopening() {
        let env = Env::memory();
        // Appends samples at these times, writes them out, and opens again.
        let reopen_with = |times: &[i64]| {
            let open = || {
                let options = EngineOptions { background: Background::Manual, ..EngineOptions::default() };
                let model = Arc::new(SeriesModel::new(1));
                let engine = Engine::open(&env, Path::new("/db"), options, vec![model.clone()]).unwrap();
                SeriesStore::new(Arc::new(engine), model, "main").unwrap()
            };
            let store = open();
            let mut batch = SampleBatch::new();
            times.iter().for_each(|time| batch.push(&Labels::new([("__name__", "m")]).unwrap(), *time, 1.0));
            store.append(&batch).unwrap();
            store.engine.checkpoint().unwrap();
            assert_eq!(store.engine.verify().unwrap().violations, Vec::<String>::new());
            drop(store);
            let store = open();
            let state = store.model.find("main").unwrap();
            move |from: i64| state.reach.since(partition_of(from), from)
        };
        let since = reopen_with(&[1000, 5000]);
        assert_eq!((since(5000), since(5001)), (Some(1000), None));
        // Small chunks become one, which is longer than either.
        let since = reopen_with(&[9000]);
        assert_eq!((since(9000), since(9001)), (Some(1000), None));
        // Another day; and an older time changes nothing about later samples.
        let since = reopen_with(&[7000, PARTITION_MS + 1, PARTITION_MS + 2]);
        assert_eq!((since(9000), since(9001)), (Some(1000), None));
        assert_eq!((since(PARTITION_MS + 2), since(PARTITION_MS + 3)), (Some(PARTITION_MS + 1), None));
    }
}
