//! Writes sorted entries into run files, each synced once, when it is full.
//!
//!   add(key, seq, value) ─▶ block ─▶ 1 MiB buffer ─▶ file ─▶ index, filter, footer, sync ─▶ NewRun ─▶ Store::install
//!
//! A new run has no owner until it is installed: dropping it, or the writer, removes its file.

use std::sync::Arc;

use ropewalk_base::{Seq, crc32c, hash64, put_u32};
use ropewalk_vfs::{File, OpenMode};

use crate::error::StoreError;
use crate::options::{Compression, Keyspace, KeyspaceOptions};
use crate::run::block::ENTRY_BYTES_MAX;
use crate::run::block_builder::BlockBuilder;
use crate::run::fences::FenceBuilder;
use crate::run::files::Files;
use crate::run::filter::Filter;
use crate::run::footer::{Footer, Parts, VERSION, put_trailer};
use crate::run::index::Index;
use crate::run::range_tombstones::RangeSet;
use crate::run::section::Section;
use crate::run::{ENVELOPE_BYTES, Run};

/// Bytes written at a time, at multiples of themselves: the kernel then keeps the file in pages of 2 MiB where it can,
/// and a mapped run costs few misses of the address translation. Random hits over 1 GB take 0.6 of the time.
const BUFFER_BYTES: usize = 2 << 20;
/// A block that compression does not shrink below this share is stored as it is: reading it is then free of charge.
const COMPRESSED_MAX_EIGHTHS: usize = 7;

/// A run that is complete and synced but not yet named by the manifest.
#[derive(Debug)]
pub struct NewRun(pub(crate) Arc<Run>);

impl NewRun {
    /// Length of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Entries, tombstones included.
    pub fn entries(&self) -> u64 {
        self.0.footer.entries
    }
}

/// Writes entries into one or more runs of a keyspace.
pub struct RunWriter {
    files: Arc<Files>,
    keyspace: Keyspace,
    options: KeyspaceOptions,
    filter: bool,
    ranges: RangeSet,
    build: Option<Build>,
    last_key: Vec<u8>,
    last_seq: Seq,
    started: bool,
    done: Vec<NewRun>,
}

impl std::fmt::Debug for RunWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RunWriter(keyspace {}, {} runs done)", self.keyspace.0, self.done.len())
    }
}

impl RunWriter {
    pub(crate) fn new(
        files: &Arc<Files>,
        keyspace: Keyspace,
        options: KeyspaceOptions,
        filter: bool,
    ) -> Self {
        Self {
            files: files.clone(),
            keyspace,
            options,
            filter,
            ranges: RangeSet::default(),
            build: None,
            last_key: Vec::new(),
            last_seq: Seq::ZERO,
            started: false,
            done: Vec::new(),
        }
    }

    /// Adds a tombstone over `start .. end` (half-open). All of them come before the first [`RunWriter::add`].
    ///
    /// # Errors
    /// [`StoreError::Order`] after the first entry.
    pub fn add_range_tombstone(&mut self, start: &[u8], end: &[u8], seq: Seq) -> Result<(), StoreError> {
        if self.started {
            return Err(StoreError::Order("range tombstones must come before the first entry"));
        }
        self.ranges.insert(start, end, seq);
        Ok(())
    }

    pub(crate) fn set_ranges(&mut self, ranges: RangeSet) {
        self.ranges = ranges;
    }

    /// Adds one version of a key; `None` is a tombstone. Keys ascend, the versions of a key descend. About 50 ns for
    /// an entry of 100 bytes.
    ///
    /// # Errors
    /// [`StoreError::Order`], [`StoreError::TooLarge`] above 1 GiB, or the file cannot be written.
    #[inline]
    pub fn add(&mut self, key: &[u8], seq: Seq, value: Option<&[u8]>) -> Result<(), StoreError> {
        let bytes = key.len() as u64 + value.map_or(0, |v| v.len() as u64);
        if bytes > ENTRY_BYTES_MAX {
            return Err(StoreError::TooLarge { bytes, max: ENTRY_BYTES_MAX });
        }
        let mut same_key = false;
        if self.started {
            match self.last_key.as_slice().cmp(key) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal if self.last_seq > seq => same_key = true,
                _ => return Err(StoreError::Order("keys must ascend and the versions of a key descend")),
            }
        }
        loop {
            let build = match &mut self.build {
                Some(build) => build,
                none => {
                    let lower = self.started.then(|| key.to_vec());
                    none.insert(Build::start(
                        &self.files,
                        self.keyspace,
                        self.options,
                        self.filter,
                        lower,
                        key,
                    )?)
                }
            };
            if build.block.try_push(key, seq, value, self.options.block_bytes as usize) {
                build.note(key, seq, value, bytes, same_key);
                break;
            }
            build.finish_block(same_key)?;
            if !same_key && build.bytes() >= self.files.options.run_bytes {
                self.finish_run(Some(key))?;
            } else {
                build.fences.between(&self.last_key, key);
            }
        }
        self.started = true;
        self.last_seq = seq;
        if !same_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        Ok(())
    }

    fn finish_run(&mut self, upper: Option<&[u8]>) -> Result<(), StoreError> {
        if let Some(build) = self.build.take() {
            let ranges = self.ranges.clip(build.lower.as_deref(), upper);
            self.done.push(NewRun(Arc::new(build.finish(ranges, &self.last_key)?)));
        }
        Ok(())
    }

    /// Writes out what is pending and returns the runs, in key order. Empty when nothing was added.
    ///
    /// # Errors
    /// A file cannot be written or synced; all files of this writer are removed then.
    pub fn finish(mut self) -> Result<Vec<NewRun>, StoreError> {
        if self.build.is_none() && !self.ranges.is_empty() {
            self.build =
                Some(Build::start(&self.files, self.keyspace, self.options, self.filter, None, &[])?);
        }
        self.finish_run(None)?;
        Ok(self.done)
    }
}

/// One file that is being written.
struct Build {
    files: Arc<Files>,
    id: u64,
    file: Arc<dyn File>,
    /// The file is complete: it belongs to a [`Run`] now.
    complete: bool,
    keyspace: Keyspace,
    options: KeyspaceOptions,
    out: Vec<u8>,
    written: u64,
    block: BlockBuilder,
    raw_block: Vec<u8>,
    fences: FenceBuilder,
    offsets: Vec<u64>,
    uniform: bool,
    hashes: Option<Vec<u64>>,
    /// Range tombstones from here on belong to this file.
    lower: Option<Vec<u8>>,
    min_key: Vec<u8>,
    entries: u64,
    tombstones: u64,
    superseded: u64,
    raw_bytes: u64,
    min_seq: Seq,
    max_seq: Seq,
}

impl Drop for Build {
    fn drop(&mut self) {
        if !self.complete {
            // A file that is in no manifest; if it cannot be removed now, the next open does it.
            let _ = self.files.env.vfs.remove(&self.files.path(self.id));
        }
    }
}

impl Build {
    fn start(
        files: &Arc<Files>,
        keyspace: Keyspace,
        options: KeyspaceOptions,
        filter: bool,
        lower: Option<Vec<u8>>,
        first_key: &[u8],
    ) -> Result<Self, StoreError> {
        let id = files.take_id();
        let path = files.path(id);
        let file = files.env.vfs.open(&path, OpenMode::CreateNew).map_err(StoreError::io("create", &path))?;
        let mut fences = FenceBuilder::default();
        fences.first(first_key);
        Ok(Self {
            files: files.clone(),
            id,
            file,
            complete: false,
            keyspace,
            options,
            out: Vec::with_capacity(BUFFER_BYTES + options.block_bytes as usize),
            written: 0,
            block: BlockBuilder::default(),
            raw_block: Vec::new(),
            fences,
            offsets: vec![0],
            uniform: options.compression == Compression::None,
            hashes: filter.then(Vec::new),
            lower,
            min_key: first_key.to_vec(),
            entries: 0,
            tombstones: 0,
            superseded: 0,
            raw_bytes: 0,
            min_seq: Seq::MAX,
            max_seq: Seq::ZERO,
        })
    }

    fn bytes(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    fn note(&mut self, key: &[u8], seq: Seq, value: Option<&[u8]>, bytes: u64, same_key: bool) {
        self.entries += 1;
        self.tombstones += u64::from(value.is_none());
        self.superseded += u64::from(same_key);
        self.raw_bytes += bytes;
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
        if let Some(hashes) = &mut self.hashes
            && !same_key
        {
            let hash = hash64(KeyspaceOptions::filtered(self.options.filter_ignores_last, key));
            // Keys that differ only in what the filter ignores follow each other.
            if hashes.last() != Some(&hash) {
                hashes.push(hash);
            }
        }
    }

    fn finish_block(&mut self, continues: bool) -> Result<(), StoreError> {
        if self.block.is_empty() {
            return Ok(());
        }
        if self.options.compression == Compression::None {
            self.block.finish(continues, self.options.block_bytes as usize, &mut self.out);
        } else {
            self.raw_block.clear();
            self.block.finish(continues, 1, &mut self.raw_block);
            self.pack()?;
        }
        let end = self.bytes();
        let block_bytes = u64::from(self.options.block_bytes);
        self.uniform &= end == self.offsets.len() as u64 * block_bytes;
        self.offsets.push(end);
        while self.out.len() >= BUFFER_BYTES {
            self.write_out(BUFFER_BYTES)?;
        }
        Ok(())
    }

    /// Compresses `raw_block` into the buffer.
    fn pack(&mut self) -> Result<(), StoreError> {
        let raw = self.raw_block.as_slice();
        let packed = match self.options.compression {
            Compression::Zstd => {
                zstd::bulk::compress(raw, 1).map_err(StoreError::io("compress", &self.files.path(self.id)))?
            }
            Compression::Lz4 | Compression::None => lz4_flex::block::compress(raw),
        };
        let shrunk = packed.len() * 8 <= raw.len() * COMPRESSED_MAX_EIGHTHS;
        let (raw_len, payload) = if shrunk { (raw.len() as u32, packed.as_slice()) } else { (0, raw) };
        let start = self.out.len();
        put_u32(&mut self.out, 0);
        put_u32(&mut self.out, raw_len);
        debug_assert_eq!(self.out.len() - start, ENVELOPE_BYTES);
        self.out.extend_from_slice(payload);
        let stored = self.out.get_mut(start..).and_then(<[u8]>::split_first_chunk_mut::<4>);
        let (crc, body) = stored.expect("the envelope was just written");
        *crc = crc32c(body).to_le_bytes();
        Ok(())
    }

    /// Writes the first `len` bytes of the buffer, or all if there are fewer.
    fn write_out(&mut self, len: usize) -> Result<(), StoreError> {
        let path = self.files.path(self.id);
        let len = len.min(self.out.len());
        let piece = self.out.get(..len).expect("no more than the buffer holds");
        self.file.write_all_at(piece, self.written).map_err(StoreError::io("write", &path))?;
        self.written += len as u64;
        self.out.drain(..len);
        Ok(())
    }

    fn finish(mut self, ranges: RangeSet, max_key: &[u8]) -> Result<Run, StoreError> {
        self.finish_block(false)?;
        let (fences, max_key) = if self.entries == 0 {
            (FenceBuilder::default().finish(&[], &[]), Vec::new())
        } else {
            (self.fences.finish(&self.min_key, max_key), max_key.to_vec())
        };
        assert_eq!(fences.len() + 1, self.offsets.len(), "each block has a fence");
        debug_assert!(self.min_key <= max_key, "the keys of a run ascend");
        let offsets = (!self.uniform).then(|| std::mem::take(&mut self.offsets));
        let index = Index::new(fences, offsets, self.options.block_bytes);
        let hashes = self.hashes.take().filter(|h| !h.is_empty());
        let filter = hashes.map_or_else(Filter::default, |hashes| Filter::build(&hashes));
        let index_at = self.put_section(|out| index.encode(out));
        let filter_at = self.put_section(|out| filter.encode(out));
        let range_seqs = ranges.iter().flat_map(|f| f.seqs.iter().copied());
        let footer = Footer {
            keyspace: self.keyspace,
            options: self.options,
            entries: self.entries,
            tombstones: self.tombstones,
            superseded: self.superseded,
            raw_bytes: self.raw_bytes,
            min_seq: range_seqs.clone().min().unwrap_or(Seq::MAX).min(self.min_seq),
            max_seq: range_seqs.max().unwrap_or(Seq::ZERO).max(self.max_seq),
            min_key: std::mem::take(&mut self.min_key),
            max_key,
            ranges,
            blocks: index.fences.len(),
            model_pieces: index.fences.pieces().unwrap_or(0) as u64,
            index: index_at,
            filter: filter_at,
        };
        self.put_footer(&footer);
        self.write_out(usize::MAX)?;
        let path = self.files.path(self.id);
        self.file.sync_data().map_err(StoreError::io("sync", &path))?;
        let parts = Parts { footer, index: Some(index), filter: Some(filter) };
        let run = Run::written(&self.files, self.id, self.file.clone(), self.written, parts)?;
        self.complete = true;
        Ok(run)
    }

    /// Puts the bytes of a section into the buffer.
    fn put_section(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Section {
        let (at, start) = (self.bytes(), self.out.len());
        encode(&mut self.out);
        Section::new(at, self.out.get(start..).unwrap_or_default())
    }

    fn put_footer(&mut self, footer: &Footer) {
        let footer_at = self.bytes();
        let mut bytes = Vec::new();
        footer.encode(&mut bytes);
        debug_assert_eq!(
            Footer::decode(VERSION, &bytes, footer_at).map(|parts| parts.footer).as_ref(),
            Ok(footer),
            "a reader accepts the footer"
        );
        self.out.extend_from_slice(&bytes);
        put_trailer(&mut self.out, footer_at, &bytes);
    }
}
