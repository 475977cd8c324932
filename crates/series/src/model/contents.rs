//! Hashes of samples, for nodes of a cluster that compare what they have written and what they store.
//!
//! ```text
//! order of contents:  store │ day │ series          position: the first key of a series within a partition
//! ```
//! The samples of one series and one day are hashed together: a slice ends after them, or before them. That follows from the
//! samples alone, so nodes make the same slices, whatever they have flushed. The work for a slice is limited by its samples, not by
//! the number of series or of days.

use std::sync::Arc;

use ropewalk_engine::{Apply, Cursor, ReadView, SliceHasher};
use ropewalk_labels::Samples;

use crate::chunk::ChunkHead;
use crate::error::{Result, SeriesError};
use crate::memory::{Deletion, Head, Sealed, SeriesMemory};
use crate::model::StoreState;
use crate::sample::histogram::put_histogram;
use crate::storage::chunk_keys::{ChunkKey, PARTITION_MS, damaged, partition_of, series_start};
use crate::storage::read::{Place, SeriesReader};
use crate::storage::section::Group;

/// Time and bits of a float sample, and how many are hashed together.
const SAMPLE_BYTES: usize = 16;
const PIECE_SAMPLES: usize = 32;

/// A day, and a series that may have samples in it.
type DayOfSeries = (i64, u32);

/// Before every other one.
const FIRST: DayOfSeries = (i64::MIN, 0);

/// Hashes what a group of samples has written.
pub(crate) fn note_group(
    apply: &Apply<'_>,
    (store, series): (u32, u32),
    group: &Group<'_>,
    floats: &[(i64, u64)],
) {
    let place = (u64::from(store) << 32 | u64::from(series)).to_le_bytes();
    match group {
        Group::Floats => {
            // In pieces of a fixed length, without a copy of all.
            let mut bytes = [0; PIECE_SAMPLES * SAMPLE_BYTES];
            for piece in floats.chunks(PIECE_SAMPLES) {
                for (slot, (time, bits)) in bytes.as_chunks_mut::<SAMPLE_BYTES>().0.iter_mut().zip(piece) {
                    let (first, second) = slot.split_at_mut(SAMPLE_BYTES / 2);
                    first.copy_from_slice(&time.to_le_bytes());
                    second.copy_from_slice(&bits.to_le_bytes());
                }
                let used = bytes.get(..piece.len() * SAMPLE_BYTES).expect("a piece is no longer");
                apply.note_effect(&[b"f", &place, used]);
            }
        }
        Group::Chunk(bytes) => apply.note_effect(&[b"c", &place, bytes]),
        Group::Rich(time, payload) => apply.note_effect(&[b"r", &place, &time.to_le_bytes(), payload]),
        // It is an entry of a keyspace.
        Group::Exemplar(..) => {}
    }
}

/// Hashes a deletion of samples.
pub(crate) fn note_deletion(apply: &Apply<'_>, store: u32, deletion: &Deletion) {
    let ids: Option<Vec<u8>> =
        deletion.ids.as_ref().map(|ids| ids.iter().flat_map(|id| id.to_le_bytes()).collect());
    let (from, to) = (deletion.from.to_le_bytes(), deletion.to.to_le_bytes());
    let of_all: &[u8] = if ids.is_some() { b"d" } else { b"D" };
    apply.note_effect(&[of_all, &store.to_le_bytes(), &from, &to, ids.as_deref().unwrap_or_default()]);
}

/// Hashes the samples of `stores`, ascending, from position `start` on. See
/// [`Model::hash_contents`](ropewalk_engine::Model::hash_contents).
pub(crate) fn hash(
    read: ReadView<'_>,
    place: impl Fn(u32) -> Place,
    stores: &[Arc<StoreState>],
    start: &[u8],
    into: &mut SliceHasher,
) -> Result<Option<Vec<u8>>> {
    let (first_store, first) = match start {
        [] => (0, FIRST),
        key => {
            let (store, key) = ChunkKey::decode(key).map_err(|error| SeriesError::Damaged {
                place: "position of a slice".into(),
                what: error.to_string(),
            })?;
            (store, (key.partition, key.id))
        }
    };
    for state in stores.iter().filter(|state| state.id >= first_store) {
        let first = if state.id == first_store { first } else { FIRST };
        if let Some((day, series)) = hash_store(read, place(state.id), (state, first), into)? {
            return Ok(Some(series_start(state.id, day, series).to_vec()));
        }
    }
    Ok(None)
}

/// Hashes the samples of a store from `first` on; returns where the next slice begins.
fn hash_store(
    read: ReadView<'_>,
    place: Place,
    (state, first): (&StoreState, DayOfSeries),
    into: &mut SliceHasher,
) -> Result<Option<DayOfSeries>> {
    let mut in_memory = in_memory(read, place, first)?.into_iter().peekable();
    let mut cursor = read.cursor(place.chunks);
    let mut reader: Option<(i64, SeriesReader<'_>)> = None;
    let mut samples = Samples::default();
    let mut next = first;
    loop {
        while in_memory.next_if(|pair| *pair < next).is_some() {}
        let stored = stored(&mut cursor, place.store, next)?;
        let Some((day, series)) = stored.into_iter().chain(in_memory.peek().copied()).min() else {
            return Ok(None);
        };
        let reader = match &mut reader {
            Some((of, reader)) if *of == day => reader,
            other => {
                let new = SeriesReader::new(read, place, state.duplicate_rules(), times_of(day))?;
                &mut other.insert((day, new)).1
            }
        };
        samples.clear();
        reader.read(series, &mut samples)?;
        add(into, (place.store, series), &samples);
        next = series.checked_add(1).map_or((day + 1, 0), |after| (day, after));
        if into.is_full() {
            return Ok(Some(next));
        }
    }
}

/// The first day and series from `from` on with stored chunks. The cursor is new, or has found an earlier one.
fn stored(cursor: &mut Cursor<'_>, store: u32, (day, series): DayOfSeries) -> Result<Option<DayOfSeries>> {
    let start = series_start(store, day, series);
    if cursor.valid() && cursor.key() < start.as_slice() {
        // A step is less work than a search.
        cursor.next()?;
    }
    if !cursor.valid() || cursor.key() < start.as_slice() {
        cursor.seek(&start)?;
    }
    while cursor.valid() {
        let (of, key) = ChunkKey::decode(cursor.key()).map_err(|error| damaged(cursor.key(), &error))?;
        if of != store {
            return Ok(None);
        }
        if !key.is_of_bounds() {
            return Ok(Some((key.partition, key.id)));
        }
        cursor.next()?;
    }
    Ok(None)
}

/// The days and series from `first` on with samples in memory, of any commit, ascending.
fn in_memory(read: ReadView<'_>, place: Place, first: DayOfSeries) -> Result<Vec<DayOfSeries>> {
    let mut pairs = Vec::new();
    for memory in read.memories::<SeriesMemory>(place.slot).filter_map(|m| m.store(place.store)) {
        for series in memory.ids() {
            let (mut days, long) = memory.with(series, days).unwrap_or_default();
            for sealed in long {
                let (mut times, mut bits) = (Vec::new(), Vec::new());
                ChunkHead::decode(&sealed.bytes, 0)
                    .and_then(|head| head.samples(&mut times, &mut bits))
                    .map_err(|error| SeriesError::Damaged {
                        place: "chunk in memory".into(),
                        what: error.to_string(),
                    })?;
                days.extend(times.into_iter().map(partition_of));
                days.dedup();
            }
            pairs.extend(days.into_iter().map(|day| (day, series)).filter(|pair| *pair >= first));
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    Ok(pairs)
}

/// The days of samples in memory, and the chunks whose times have to be read to know theirs.
fn days(head: &Head) -> (Vec<i64>, Vec<Arc<Sealed>>) {
    let open = head.open().into_iter().flatten().map(|sample| sample.time);
    let mut days: Vec<i64> =
        open.chain(head.rich().iter().map(|sample| sample.time)).map(partition_of).collect();
    let mut long = Vec::new();
    for sealed in head.sealed_within(i64::MIN, i64::MAX) {
        let (first, last) = (partition_of(sealed.first), partition_of(sealed.last));
        days.extend([first, last]);
        if last - first > 1 {
            long.push(sealed.clone());
        }
    }
    days.dedup();
    (days, long)
}

/// The first and the last time of a day.
fn times_of(day: i64) -> (i64, i64) {
    let from = day.checked_mul(PARTITION_MS).unwrap_or(i64::MIN);
    let after = (day + 1).checked_mul(PARTITION_MS);
    (from, after.map_or(i64::MAX, |after| after - 1))
}

fn add(into: &mut SliceHasher, (store, series): (u32, u32), samples: &Samples) {
    let place = (u64::from(store) << 32 | u64::from(series)).to_le_bytes();
    let mut histogram = Vec::new();
    for (row, (time, value)) in samples.times_ms.iter().zip(&samples.values).enumerate() {
        let start = samples.starts_ms.get(row).copied().unwrap_or(0);
        histogram.clear();
        let bits = match samples.histograms.get(row).and_then(Option::as_ref) {
            Some(found) => {
                put_histogram(&mut histogram, found);
                0
            }
            None => value.to_bits(),
        };
        let mut numbers = [0; 24];
        for (slot, number) in numbers.chunks_exact_mut(8).zip([*time as u64, bits, start as u64]) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        into.add(&[&place, &numbers, &histogram]);
    }
}
