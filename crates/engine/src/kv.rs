//! Ordered keyspaces as a model: optimistic transactions over keys and ranges.
//!
//! Section of a commit record, repeated to the end:
//! ```text
//! keyspace u16 | kind u8 (0 put, 1 delete, 2 delete range) | key bytes | put: value bytes; delete range: end bytes
//! ```
//! (`bytes` is a varint length and that many bytes.)

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, Seq, hex, put_bytes};
use ropewalk_store::{Keyspace, Store, StoreError};

use crate::commit::locks::Held;
use crate::error::{EngineError, Rejection, Result};
use crate::model::version::{ReadView, Snapshot};
use crate::model::watched::WatchedKeyspaces;
use crate::model::{Apply, KV, Model, ModelId, Operation, Outcome, Verdict};

/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Condition on a transaction's reads and writes, checked at its place in the commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Keys and ranges read are unchanged, keys written and ranges deleted were not written by others: as if run alone.
    #[default]
    Serializable,
    /// Keys written and ranges deleted were not written by others since the snapshot.
    Snapshot,
    /// No checks except the guards of the models.
    ReadCommitted,
}

/// Another commit got there first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key {} of keyspace {} was changed by commit {seq} after the transaction's snapshot; retry", hex(key.get(..32).unwrap_or(key)), keyspace.0)]
pub struct KeyConflict {
    /// Keyspace of the key.
    pub keyspace: Keyspace,
    /// The key, or the start of the range that was read or deleted.
    pub key: Vec<u8>,
    /// The commit that changed it.
    pub seq: Seq,
}

/// A refused key: longer than [`KEY_BYTES_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key of {bytes} bytes exceeds the limit of {KEY_BYTES_MAX}")]
pub struct KeyTooLong {
    /// Its length.
    pub bytes: usize,
}

struct RangeRead {
    keyspace: Keyspace,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

/// A written key, or the start and end of a deleted range, by their offsets within the section.
struct Written {
    keyspace: Keyspace,
    key: Range<usize>,
    end: Option<Range<usize>>,
}

/// Conditions that must hold at commit, at every isolation level.
#[derive(Debug, Clone)]
pub(crate) enum Guard {
    /// The key has no other write after `since`.
    Unchanged(Keyspace, Vec<u8>, Seq),
    /// No other commit wrote into the range after `since`.
    RangeUnchanged(Keyspace, Vec<u8>, Option<Vec<u8>>, Seq),
    /// The key is there.
    Exists(Keyspace, Vec<u8>),
}

/// Bytes of a commit's number at the end of a stamped value.
pub(crate) const STAMP_BYTES: usize = 8;

/// The writes and reads of one transaction, to be committed as one operation.
#[derive(Default)]
pub struct KvBatch {
    since: Seq,
    isolation: Isolation,
    keys_read: Vec<(Keyspace, Vec<u8>)>,
    ranges_read: Vec<RangeRead>,
    guards: Vec<Guard>,
    /// Preserves the distinction between commits after the read until the batch is judged: without a snapshot
    /// that has not seen them, a flush may forget which commit wrote what.
    pinned: Option<Snapshot>,
    /// Locks held until the batch has its place in the order, or is refused.
    held: Option<Held>,
    section: Vec<u8>,
    /// Offsets within the section of the numbers that become that of the commit.
    stamps: Vec<usize>,
    /// Keys and ranges for the write-write check.
    written: Vec<Written>,
    /// The highest keyspace written to.
    highest: Option<Keyspace>,
    too_long: Option<usize>,
}

impl KvBatch {
    /// Blind writes: nothing is checked.
    pub fn new() -> Self {
        Self { isolation: Isolation::ReadCommitted, ..Self::default() }
    }

    /// Writes that require the reads noted here to be unchanged since commit `since`, of which the caller
    /// holds a snapshot.
    pub fn validated(since: Seq, isolation: Isolation) -> Self {
        Self { since, isolation, ..Self::default() }
    }

    /// Writes that require the reads noted here to be unchanged since `snapshot`, which the batch holds until
    /// it is judged.
    pub fn validated_at(snapshot: Snapshot, isolation: Isolation) -> Self {
        let since = snapshot.seq();
        Self { pinned: Some(snapshot), ..Self::validated(since, isolation) }
    }

    /// Notes that `key` was read (found or not).
    pub fn note_read(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.keys_read.push((keyspace, key.to_vec()));
    }

    /// Notes that the keys from `start` up to `end` were read.
    pub fn note_range(&mut self, keyspace: Keyspace, start: &[u8], end: Option<&[u8]>) {
        self.ranges_read.push(RangeRead { keyspace, start: start.to_vec(), end: end.map(<[u8]>::to_vec) });
    }

    /// Notes keys and ranges that were read, without a copy.
    pub(crate) fn note_all(
        &mut self,
        keys: Vec<(Keyspace, Vec<u8>)>,
        ranges: Vec<(Keyspace, Vec<u8>, Option<Vec<u8>>)>,
    ) {
        self.keys_read.extend(keys);
        let range = |(keyspace, start, end)| RangeRead { keyspace, start, end };
        self.ranges_read.extend(ranges.into_iter().map(range));
    }

    pub(crate) fn pin(&mut self, oldest: Snapshot) {
        self.pinned = Some(oldest);
    }

    pub(crate) fn hold(&mut self, held: Option<Held>) {
        self.held = held;
    }

    pub(crate) fn guard(&mut self, guard: Guard) {
        self.guards.push(guard);
    }

    fn check_guards(&self, latest: ReadView<'_>) -> Result<(), Rejection> {
        for guard in &self.guards {
            let (keyspace, key, seq) = match guard {
                Guard::Unchanged(keyspace, key, since) => {
                    (*keyspace, key, latest.changed(*keyspace, key, *since)?)
                }
                Guard::RangeUnchanged(keyspace, start, end, since) => {
                    (*keyspace, start, latest.changed_in(*keyspace, start, end.as_deref(), *since)?)
                }
                Guard::Exists(keyspace, key) if latest.get(*keyspace, key)?.is_some() => {
                    (*keyspace, key, None)
                }
                Guard::Exists(keyspace, key) => {
                    // Without any change the key was never there: commit zero is before all of them.
                    (*keyspace, key, Some(latest.changed(*keyspace, key, Seq::ZERO)?.unwrap_or_default()))
                }
            };
            if let Some(seq) = seq {
                return Err(Self::conflict(keyspace, key, seq));
            }
        }
        Ok(())
    }

    fn op(&mut self, keyspace: Keyspace, kind: u8, key: &[u8]) {
        if key.len() > KEY_BYTES_MAX {
            self.too_long = Some(key.len());
        }
        self.highest = self.highest.max(Some(keyspace));
        self.section.extend_from_slice(&keyspace.0.to_le_bytes());
        self.section.push(kind);
        put_bytes(&mut self.section, key);
        let key = self.section.len() - key.len()..self.section.len();
        self.written.push(Written { keyspace, key, end: None });
    }

    /// Writes `key`.
    pub fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        self.op(keyspace, 0, key);
        put_bytes(&mut self.section, value);
    }

    /// Writes `key` with `value` followed by the number of the commit: eight bytes, little endian.
    pub fn put_stamped(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        self.put(keyspace, key, &[value, &[0; STAMP_BYTES]].concat());
        self.stamps.push(self.section.len() - STAMP_BYTES);
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.op(keyspace, 1, key);
    }

    /// Takes the newest write out of the write-write check.
    pub(crate) fn exempt_last_write(&mut self) {
        self.written.pop();
    }

    /// Deletes `key` without a write-write check.
    pub(crate) fn delete_unconditionally(&mut self, keyspace: Keyspace, key: &[u8]) {
        self.delete(keyspace, key);
        self.exempt_last_write();
    }

    /// Deletes the keys from `start` up to, not including, `end`. A write by others anywhere in the range is a conflict.
    pub fn delete_range(&mut self, keyspace: Keyspace, start: &[u8], end: &[u8]) {
        self.op(keyspace, 2, start);
        put_bytes(&mut self.section, end);
        let written = self.written.last_mut().expect("the deletion has just been noted");
        written.end = Some(self.section.len() - end.len()..self.section.len());
    }

    /// Deletes the keys from `start` up to `end` without a write-write check.
    pub(crate) fn sweep_range(&mut self, keyspace: Keyspace, start: &[u8], end: &[u8]) {
        self.delete_range(keyspace, start, end);
        self.exempt_last_write();
    }

    /// A commit after the snapshot that wrote what `written` writes, and the key to report.
    fn overwritten(&self, latest: ReadView<'_>, written: &Written) -> Result<Option<(&[u8], Seq)>> {
        let bytes = |range: &Range<usize>| {
            self.section.get(range.clone()).expect("ranges were noted while writing the section")
        };
        let (keyspace, key) = (written.keyspace, bytes(&written.key));
        let seq = match written.end.as_ref().map(bytes) {
            None => latest.changed(keyspace, key, self.since)?,
            Some(end) if end <= key => None,
            Some(end) => latest.changed_in(keyspace, key, Some(end), self.since)?,
        };
        Ok(seq.map(|seq| (key, seq)))
    }

    /// True when nothing was written.
    pub fn is_empty(&self) -> bool {
        self.section.is_empty()
    }

    fn conflict(keyspace: Keyspace, key: &[u8], seq: Seq) -> Rejection {
        Box::new(KeyConflict { keyspace, key: key.to_vec(), seq })
    }
}

impl Operation for KvBatch {
    fn model(&self) -> ModelId {
        KV
    }

    fn bytes_max(&self) -> usize {
        self.section.len()
    }

    fn is_awaited(&self) -> bool {
        self.held.is_some()
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        if let Some(bytes) = self.too_long {
            return Err(Box::new(KeyTooLong { bytes }));
        }
        // Numbers are given out without gaps, so all below the highest exist.
        if let Some(keyspace) = self.highest.filter(|keyspace| !latest.runs().contains(*keyspace)) {
            return Err(EngineError::from(StoreError::UnknownKeyspace(keyspace.0)).into());
        }
        self.check_guards(latest)?;
        if self.isolation == Isolation::ReadCommitted {
            return Ok(Verdict::Write);
        }
        for written in &self.written {
            if let Some((key, seq)) = self.overwritten(latest, written)? {
                return Err(Self::conflict(written.keyspace, key, seq));
            }
        }
        if self.isolation == Isolation::Serializable {
            for (keyspace, key) in &self.keys_read {
                if let Some(seq) = latest.changed(*keyspace, key, self.since)? {
                    return Err(Self::conflict(*keyspace, key, seq));
                }
            }
            for range in &self.ranges_read {
                let changed =
                    latest.changed_in(range.keyspace, &range.start, range.end.as_deref(), self.since)?;
                if let Some(seq) = changed {
                    return Err(Self::conflict(range.keyspace, &range.start, seq));
                }
            }
        }
        Ok(Verdict::Write)
    }

    fn encode(&mut self, seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        for stamp in &self.stamps {
            let number = self.section.get_mut(*stamp..*stamp + STAMP_BYTES);
            number
                .expect("stamps were noted while writing the section")
                .copy_from_slice(&seq.0.to_le_bytes());
        }
        out.extend_from_slice(&self.section);
        (0, 0)
    }
}

/// One write of a key-value section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvWrite<'a> {
    /// Key and value.
    Put(&'a [u8], &'a [u8]),
    /// Key.
    Delete(&'a [u8]),
    /// Start and end.
    DeleteRange(&'a [u8], &'a [u8]),
}

/// Decodes a key-value section, write by write.
///
/// # Errors
/// `each` is called for the writes before the one that does not decode.
pub fn decode_section<'a>(
    section: &'a [u8],
    mut each: impl FnMut(Keyspace, KvWrite<'a>),
) -> Result<(), DecodeError> {
    let mut decoder = Decoder::new(section);
    while !decoder.is_empty() {
        let offset = decoder.offset();
        let keyspace = Keyspace(u16::from_le_bytes(decoder.array("keyspace")?));
        let kind = decoder.u8("kind of write")?;
        let key = decoder.bytes("key")?;
        let write = match kind {
            0 => KvWrite::Put(key, decoder.bytes("value")?),
            1 => KvWrite::Delete(key),
            2 => KvWrite::DeleteRange(key, decoder.bytes("end of range")?),
            _ => return Err(DecodeError { what: "kind of write 0, 1 or 2", offset: offset + 2 }),
        };
        each(keyspace, write);
    }
    Ok(())
}

/// Keys that a commit has put.
type OwnPuts<'a> = BTreeSet<(Keyspace, &'a [u8])>;

/// The keys put by the first `writes` writes of a section, which decode.
fn first_puts(section: &[u8], writes: usize) -> OwnPuts<'_> {
    let (mut own, mut index) = (OwnPuts::new(), 0);
    let decoded = decode_section(section, |keyspace, write| {
        if let KvWrite::Put(key, _) = write
            && index < writes
        {
            own.insert((keyspace, key));
        }
        index += 1;
    });
    // Damage lies after the first `writes` writes; the caller, who is decoding the section, reports it.
    decoded.unwrap_or_default();
    own
}

/// Takes the keys in `range` out of `own`, so that a later range delete does not visit them again.
fn take_range<'a>(own: &mut OwnPuts<'a>, range: Range<(Keyspace, &'a [u8])>) -> Vec<&'a [u8]> {
    let found: Vec<_> = own.range(range).copied().collect();
    found.iter().for_each(|key| {
        own.remove(key);
    });
    found.into_iter().map(|(_, key)| key).collect()
}

#[derive(Default)]
pub(crate) struct KvModel {
    /// Keyspaces whose writes are noted.
    pub(crate) watched: Arc<WatchedKeyspaces>,
}

impl Model for KvModel {
    fn id(&self) -> ModelId {
        KV
    }

    fn name(&self) -> &'static str {
        "keyspaces"
    }

    fn open(&self, _store: &Store) -> Result<()> {
        Ok(())
    }

    fn apply(&self, apply: &Apply<'_>, section: &[u8]) -> Result<(), DecodeError> {
        let (known, mut unknown) = (apply.store.keyspace_count(), false);
        let watched = self.watched.list();
        let (mut applied, mut puts) = (0, 0);
        // Keys put by this commit, collected at its first range delete that follows a put. A range delete
        // covers older commits only; the commit's own earlier puts are deleted key by key.
        let mut own: Option<OwnPuts<'_>> = None;
        decode_section(section, |keyspace, write| {
            unknown |= usize::from(keyspace.0) >= known;
            for (_, last) in watched.iter().filter(|(watched, _)| *watched == keyspace) {
                last.note(apply.seq);
            }
            match write {
                KvWrite::Put(key, value) => {
                    apply.put(keyspace, key, Some(value));
                    puts += 1;
                    if let Some(own) = &mut own {
                        own.insert((keyspace, key));
                    }
                }
                KvWrite::Delete(key) => apply.put(keyspace, key, None),
                KvWrite::DeleteRange(start, end) => {
                    apply.delete_range(keyspace, start, end);
                    if puts > 0 && start < end {
                        let own = own.get_or_insert_with(|| first_puts(section, applied));
                        for key in take_range(own, (keyspace, start)..(keyspace, end)) {
                            apply.put(keyspace, key, None);
                        }
                    }
                }
            }
            applied += 1;
        })?;
        if unknown {
            return Err(DecodeError { what: "keyspaces that an earlier commit defines", offset: 0 });
        }
        Ok(())
    }

    fn verify(&self, _read: ReadView<'_>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
