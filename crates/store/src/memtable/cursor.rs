//! A cursor over a memtable, concurrent with its writer. Records are copied out in batches under the lock and
//! read without it: everything that the snapshot sees was there before the cursor, so a batch cannot miss
//! anything.

use ropewalk_base::Seq;

use crate::memtable::Memtable;
use crate::memtable::tree::Record;
use crate::prefetch::prefetch;

/// Records copied by a seek: a point read through a cursor should not copy much.
const FIRST_BATCH: usize = 16;
/// Records copied by a scan.
const BATCH: usize = 128;

pub(crate) struct MemCursor<'a> {
    memtable: &'a Memtable,
    at: Seq,
    /// Newest visible versions of consecutive keys, in the direction of the scan.
    batch: Vec<Record>,
    index: usize,
    backward: bool,
    /// Where the next batch continues, if there is more.
    more: Option<(&'a [u8], Seq)>,
    /// Records copied out by the last batch.
    raw: Vec<Record>,
}

impl<'a> MemCursor<'a> {
    pub(crate) fn new(memtable: &'a Memtable, at: Seq) -> Self {
        Self { memtable, at, batch: Vec::new(), index: 0, backward: false, more: None, raw: Vec::new() }
    }

    #[inline]
    fn record(&self) -> Option<Record> {
        self.batch.get(self.index).copied()
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.index < self.batch.len()
    }

    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        self.record().map_or(&[], |r| self.memtable.key(r))
    }

    /// `None` for a tombstone.
    #[inline]
    pub(crate) fn value(&self) -> Option<&'a [u8]> {
        self.record().and_then(|r| self.memtable.value(r))
    }

    #[inline]
    pub(crate) fn seq(&self) -> Seq {
        self.record().map_or(Seq::ZERO, |r| r.seq)
    }

    /// The newest range tombstone over `key` that the snapshot sees.
    pub(crate) fn range_over(&self, key: &[u8]) -> Option<Seq> {
        self.memtable.range_over(key, self.at)
    }

    pub(crate) fn has_ranges(&self) -> bool {
        self.memtable.has_ranges()
    }

    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.fill_forward((key, self.at), FIRST_BATCH, None);
    }

    pub(crate) fn first(&mut self) {
        self.fill_forward((&[], Seq::MAX), FIRST_BATCH, None);
    }

    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) {
        let mut after = key.to_vec();
        after.push(0);
        self.fill_backward(Some((&after, Seq::MAX)), FIRST_BATCH);
    }

    pub(crate) fn last(&mut self) {
        self.fill_backward(None, FIRST_BATCH);
    }

    #[inline]
    pub(crate) fn next(&mut self) {
        let shown = self.key();
        if self.backward {
            self.seek(shown);
        }
        self.index += 1;
        if self.index >= self.batch.len()
            && let Some(from) = self.more
        {
            self.fill_forward(from, BATCH, Some(shown));
        }
    }

    #[inline]
    pub(crate) fn prev(&mut self) {
        let shown = self.key();
        if !self.backward {
            self.fill_backward(Some((shown, Seq::MAX)), FIRST_BATCH);
            return;
        }
        self.index += 1;
        if self.index >= self.batch.len()
            && let Some(from) = self.more
        {
            self.fill_backward(Some(from), BATCH);
        }
    }

    /// Copies records from the first one at or after `from`, until a visible one is found whose key is not
    /// `shown`.
    fn fill_forward(&mut self, from: (&[u8], Seq), limit: usize, mut shown: Option<&'a [u8]>) {
        (self.index, self.backward) = (0, false);
        self.batch.clear();
        let mut more = None;
        loop {
            let (key, seq) = more.unwrap_or(from);
            self.raw.clear();
            self.memtable.records_from(key, seq, limit, &mut self.raw);
            self.prefetch();
            for &record in &self.raw {
                let key = self.memtable.key(record);
                if record.seq <= self.at && shown != Some(key) {
                    self.batch.push(record);
                    shown = Some(key);
                }
            }
            let last = self.raw.last().filter(|_| self.raw.len() >= limit);
            // The next copy starts with this record again; a key it returned is not returned twice. Older
            // versions of a returned key are skipped: a hot key may have very many.
            more = last.map(|r| {
                let key = self.memtable.key(*r);
                (key, if shown == Some(key) { Seq::ZERO } else { r.seq })
            });
            if more.is_none() || !self.batch.is_empty() {
                self.more = more;
                return;
            }
        }
    }

    /// Records adjacent in order are far apart in the arena: prefetches the bytes of all copied records.
    fn prefetch(&self) {
        for record in &self.raw {
            prefetch(self.memtable.key(*record), 0, 1);
            prefetch(self.memtable.value(*record).unwrap_or_default(), 0, 1);
        }
    }

    /// Copies from the last record before `before` on backwards, until something visible is found.
    fn fill_backward(&mut self, before: Option<(&[u8], Seq)>, limit: usize) {
        (self.index, self.backward) = (0, true);
        self.batch.clear();
        let mut more = None;
        loop {
            self.raw.clear();
            self.memtable.records_before(more.or(before), limit, &mut self.raw);
            self.prefetch();
            let mut shown = None;
            for &record in self.raw.iter().filter(|r| r.seq <= self.at) {
                let key = self.memtable.key(record);
                // Versions of a key come oldest first here: the last visible one wins.
                if shown == Some(key) {
                    self.batch.pop();
                }
                self.batch.push(record);
                shown = Some(key);
            }
            let last = self.raw.last().filter(|_| self.raw.len() >= limit);
            more = last.map(|r| (self.memtable.key(*r), Seq::MAX));
            if let Some((key, _)) = more
                && shown == Some(key)
            {
                // The copy may have ended between the versions of this key.
                self.batch.pop();
                self.batch.extend(self.memtable.point(key, self.at));
            }
            if more.is_none() || !self.batch.is_empty() {
                self.more = more;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_very_many_versions_is_shown_once_both_ways() {
        let memtable = Memtable::new();
        let mut seq = 0_u64;
        for round in 0..400_u64 {
            for key in [b"a".as_slice(), b"hot", b"hot", b"hot", b"z"] {
                seq += 1;
                memtable.put(key, Some(&seq.to_le_bytes()), Seq(seq));
            }
            if round % 100 == 0 {
                seq += 1;
                memtable.put(b"hot", None, Seq(seq));
            }
        }
        for at in [1, 2, 5, 7, 900, seq] {
            let newest = |key: &[u8]| memtable.get(key, Seq(at)).map(|entry| entry.seq);
            let expected: Vec<_> =
                [b"a".as_slice(), b"hot", b"z"].iter().filter_map(|key| Some((*key, newest(key)?))).collect();
            let mut cursor = MemCursor::new(&memtable, Seq(at));
            let mut found = Vec::new();
            cursor.first();
            while cursor.valid() {
                found.push((cursor.key(), cursor.seq()));
                cursor.next();
            }
            assert_eq!(found, expected, "at {at}");
            found.clear();
            cursor.last();
            while cursor.valid() {
                found.push((cursor.key(), cursor.seq()));
                cursor.prev();
            }
            found.reverse();
            assert_eq!(found, expected, "back at {at}");
        }
    }
}
