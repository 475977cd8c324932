//! Makes [blocks](crate::run::block): collects entries until one more would not fit, then lays all of them out at once.

use ropewalk_base::{Seq, crc32c, put_u32, put_u64, put_varint, varint_len};

use crate::run::block::{
    CONTINUED, CONTINUES, HEADER_BYTES, NARROW_MAX, NO_SEQS, REST_DIFFERS, VERSIONS, WIDE, head, shared,
};

struct Item {
    key_at: usize,
    key_len: usize,
    /// `None` for a tombstone.
    value_len: Option<usize>,
    seq: Seq,
}

/// Collects entries until a block is full.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    /// Keys and values, back to back.
    bytes: Vec<u8>,
    items: Vec<Item>,
    shared: usize,
    /// Data bytes of all entries if `rest` differs: length varints, tails and values.
    data_if_differs: usize,
    value_bytes: usize,
    same_len: bool,
    versions: bool,
    /// The last block finished with a key that continues in this one.
    continued: bool,
    seq_min: u64,
    seq_max: u64,
}

fn entry_overhead(rest: usize) -> usize {
    varint_len(rest as u64) + rest.saturating_sub(8)
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.items.last().map(|item| self.key(item))
    }

    fn key(&self, item: &Item) -> &[u8] {
        self.bytes.get(item.key_at..item.key_at + item.key_len).expect("keys are pushed whole")
    }

    /// Adds an entry if the block stays within `limit` bytes, or if it is the first.
    pub(crate) fn try_push(&mut self, key: &[u8], seq: Seq, value: Option<&[u8]>, limit: usize) -> bool {
        let value_len = value.map_or(0, <[u8]>::len);
        let Some(first) = self.items.first() else {
            self.shared = key.len();
            self.data_if_differs = entry_overhead(0) + value_len;
            self.value_bytes = value_len;
            self.same_len = true;
            self.versions = false;
            (self.seq_min, self.seq_max) = (seq.0, seq.0);
            self.append(key, seq, value);
            return true;
        };
        let first_len = first.key_len;
        let front = self.bytes.get(first.key_at..first.key_at + self.shared).expect("shared bytes of a key");
        let shared = if key.starts_with(front) { self.shared } else { shared(front, key) };
        let mut differs = self.data_if_differs;
        if shared < self.shared {
            differs = self.value_bytes
                + self.items.iter().map(|i| entry_overhead(i.key_len - shared)).sum::<usize>();
        }
        differs += entry_overhead(key.len() - shared) + value_len;
        let same_len = self.same_len && key.len() == first_len;
        let (seq_min, seq_max) = (self.seq_min.min(seq.0), self.seq_max.max(seq.0));
        let size = Size {
            count: self.items.len() + 1,
            shared,
            rest: (same_len && first_len - shared < 255).then_some(first_len - shared),
            data_if_differs: differs,
            value_bytes: self.value_bytes + value_len,
            seq_min,
            seq_max,
        };
        if size.total() > limit {
            return false;
        }
        self.versions |= self.last_key() == Some(key);
        self.shared = shared;
        self.data_if_differs = differs;
        self.value_bytes += value_len;
        self.same_len = same_len;
        (self.seq_min, self.seq_max) = (seq_min, seq_max);
        self.append(key, seq, value);
        true
    }

    fn append(&mut self, key: &[u8], seq: Seq, value: Option<&[u8]>) {
        self.items.push(Item {
            key_at: self.bytes.len(),
            key_len: key.len(),
            value_len: value.map(<[u8]>::len),
            seq,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// Appends the block to `out`, padded to a multiple of `align` bytes, and starts a new one. `continues`: the next
    /// entry has the key of the last one here.
    pub(crate) fn finish(&mut self, continues: bool, align: usize, out: &mut Vec<u8>) {
        // A run that has only range tombstones has no block.
        let Some(first) = self.items.first() else { return };
        let rest_len = first.key_len - self.shared;
        let rest = (self.same_len && rest_len < 255).then_some(rest_len);
        let size = Size {
            count: self.items.len(),
            shared: self.shared,
            rest,
            data_if_differs: self.data_if_differs,
            value_bytes: self.value_bytes,
            seq_min: self.seq_min,
            seq_max: self.seq_max,
        };
        let start = out.len();
        let (total, wide, width) = (size.total(), size.wide(), size.width());
        out.reserve(total.next_multiple_of(align));
        put_u32(out, 0);
        put_u32(out, self.items.len() as u32);
        put_u32(out, self.shared as u32);
        let flags =
            [(wide, WIDE), (self.versions, VERSIONS), (continues, CONTINUES), (self.continued, CONTINUED)];
        out.push(flags.iter().map(|&(set, flag)| if set { flag } else { 0 }).sum());
        out.push(rest.map_or(REST_DIFFERS, |r| r as u8));
        out.push(width);
        out.push(0);
        if width != NO_SEQS {
            put_u64(out, self.seq_min);
        }
        out.extend_from_slice(self.key(first).get(..self.shared).expect("shared bytes of a key"));
        for item in &self.items {
            let after = self.key(item).get(self.shared..).expect("every key has the shared bytes");
            put_u64(out, head(after));
        }
        if !matches!(width, 0 | NO_SEQS) {
            for item in &self.items {
                let delta = (item.seq.0 - self.seq_min).to_le_bytes();
                out.extend_from_slice(delta.get(..usize::from(width)).expect("width is at most 8"));
            }
        }
        let mut end = out.len() - start + self.items.len() * if wide { 4 } else { 2 };
        for item in &self.items {
            let after = item.key_len - self.shared;
            let key_bytes = if rest.is_some() { after.saturating_sub(8) } else { entry_overhead(after) };
            end += key_bytes + item.value_len.unwrap_or(0);
            let tombstone = item.value_len.is_none();
            if wide {
                put_u32(out, end as u32 | u32::from(tombstone) << 31);
            } else {
                out.extend_from_slice(&(end as u16 | u16::from(tombstone) << 15).to_le_bytes());
            }
        }
        for item in &self.items {
            let after = item.key_len - self.shared;
            if rest.is_none() {
                put_varint(out, after as u64);
            }
            // Key tail and value lie side by side in `bytes`, so one copy takes both.
            let from = item.key_at + self.shared + after.min(8);
            let to = item.key_at + item.key_len + item.value_len.unwrap_or(0);
            out.extend_from_slice(self.bytes.get(from..to).expect("entries are pushed whole"));
        }
        debug_assert_eq!(out.len() - start, total, "the size estimate is exact");
        out.resize(start + (out.len() - start).next_multiple_of(align), 0);
        let (crc, body) = out
            .get_mut(start..)
            .and_then(<[u8]>::split_first_chunk_mut::<4>)
            .expect("the header was just written");
        *crc = crc32c(body).to_le_bytes();
        self.items.clear();
        self.bytes.clear();
        self.continued = continues;
    }
}

/// The values that determine how many bytes a block takes.
struct Size {
    count: usize,
    shared: usize,
    rest: Option<usize>,
    data_if_differs: usize,
    value_bytes: usize,
    seq_min: u64,
    seq_max: u64,
}

impl Size {
    fn width(&self) -> u8 {
        match self.seq_max - self.seq_min {
            0 if self.seq_max == 0 => NO_SEQS,
            0 => 0,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xffff_ffff => 4,
            _ => 8,
        }
    }

    fn narrow(&self) -> usize {
        let width = self.width();
        let seqs = if width == NO_SEQS { 0 } else { 8 + usize::from(width) * self.count };
        let data = match self.rest {
            Some(rest) => self.count * rest.saturating_sub(8) + self.value_bytes,
            None => self.data_if_differs,
        };
        HEADER_BYTES + seqs + self.shared + self.count * 10 + data
    }

    fn wide(&self) -> bool {
        self.narrow() > NARROW_MAX
    }

    fn total(&self) -> usize {
        self.narrow() + if self.wide() { 2 * self.count } else { 0 }
    }
}
