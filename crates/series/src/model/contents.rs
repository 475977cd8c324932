//! Hashes of samples, for nodes of a cluster that compare what they have written and what they store.
//!
//! A slice of the contents consists of whole series, in the order of store and series. The samples of a series are read some
//! partitions at a time, so that a long series needs little memory; the order in which samples are hashed does not matter.

use std::sync::Arc;

use ropewalk_engine::{Apply, EngineError, ReadView, SliceHasher};
use ropewalk_labels::Samples;

use crate::error::to_engine;
use crate::memory::Deletion;
use crate::model::{StoreState, damaged};
use crate::sample::histogram::put_histogram;
use crate::storage::chunk_keys::{base_of, partition_of, partitions};
use crate::storage::read::{Place, SeriesReader};
use crate::storage::section::Group;

/// Partitions that are read at a time.
const PARTITIONS: usize = 16;

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
            let bytes: Vec<u8> = floats
                .iter()
                .flat_map(|(time, bits)| [time.to_le_bytes(), bits.to_le_bytes()])
                .flatten()
                .collect();
            apply.note_effect(&[b"f", &place, &bytes]);
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

/// Hashes the samples of `stores`, ascending, from the series of `start` on. See
/// [`Model::hash_contents`](ropewalk_engine::Model::hash_contents).
pub(crate) fn hash(
    read: ReadView<'_>,
    place: impl Fn(u32) -> Place,
    stores: &[Arc<StoreState>],
    start: &[u8],
    into: &mut SliceHasher,
) -> Result<Option<Vec<u8>>, EngineError> {
    let start = match start {
        [] => 0,
        key => u64::from_be_bytes(key.try_into().map_err(|_| damaged("position of a slice"))?),
    };
    let (first_store, first_series) = ((start >> 32) as u32, start as u32);
    for state in stores.iter().filter(|state| state.id >= first_store) {
        let first = if state.id == first_store { first_series } else { 0 };
        if let Some(series) = hash_store(read, place(state.id), (state, first), into)? {
            return Ok(Some((u64::from(state.id) << 32 | u64::from(series)).to_be_bytes().to_vec()));
        }
    }
    Ok(None)
}

/// Hashes the series of a store from `first` on; returns the first one of the next slice.
fn hash_store(
    read: ReadView<'_>,
    place: Place,
    (state, first): (&StoreState, u32),
    into: &mut SliceHasher,
) -> Result<Option<u32>, EngineError> {
    let head = state.head_at(read.at());
    let mut ids = state.posted(head).select(&[], read.at(), head);
    ids.remove_range(..first);
    if ids.is_empty() {
        return Ok(None);
    }
    let mut readers = readers(read, place, state)?;
    let mut samples = Samples::default();
    for id in ids {
        for reader in &mut readers {
            samples.clear();
            reader.read(id, &mut samples).map_err(to_engine)?;
            add(into, (place.store, id), &samples);
        }
        if into.is_full() {
            return Ok(id.checked_add(1));
        }
    }
    Ok(None)
}

/// Readers of all times, each of a few partitions.
fn readers<'a>(
    read: ReadView<'a>,
    place: Place,
    state: &StoreState,
) -> Result<Vec<SeriesReader<'a>>, EngineError> {
    let all = (partition_of(i64::MIN), partition_of(i64::MAX));
    let stored = partitions(&mut read.cursor(place.chunks), place.store, all.0, all.1).map_err(to_engine)?;
    let mut readers = Vec::new();
    let mut from = i64::MIN;
    for next in stored.iter().skip(PARTITIONS).step_by(PARTITIONS) {
        let begin = base_of(*next);
        readers.push(SeriesReader::new(read, place, state.duplicate_rules(), (from, begin - 1)));
        from = begin;
    }
    readers.push(SeriesReader::new(read, place, state.duplicate_rules(), (from, i64::MAX)));
    readers.into_iter().collect::<Result<_, _>>().map_err(to_engine)
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
