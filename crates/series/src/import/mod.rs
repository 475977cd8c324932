//! Reading block directories that Prometheus wrote, to import their samples.
//!
//!   DIR/index ─▶ symbols, series: labels and chunk references ─▶ DIR/chunks/NNNNNN ─▶ samples ─ minus DIR/tombstones
//!
//! Supported are format version 2 of the index, version 1 of chunk files and tombstones, and chunks of
//! floats, histograms and float histograms; everything else is a typed error with file and offset. Every
//! checksum is verified. Of the index only symbols and series are read; `meta.json` adds nothing to the
//! index.
//!
//! Memory: the index (as a map of the file where the disk gives one) and one chunk at a time.
//!
//! Source: the format pages of Prometheus, `tsdb/docs/format`.

mod bits;
mod chunk;
mod index;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_base::{crc32c, split_varint, unzigzag};
use ropewalk_labels::{Labels, Samples};
use ropewalk_vfs::{File, OpenMode, Vfs};

use crate::error::SeriesError;
use crate::sample::batch::SampleBatch;
use crate::store::SeriesStore;

use index::{ChunkRef, Index};

const CHUNKS_MAGIC: u32 = 0x85bd_40dd;
const TOMBSTONES_MAGIC: u32 = 0x0130_ba30;
/// Bytes before the first chunk of a file.
const CHUNKS_HEADER: u64 = 8;
/// Longest accepted chunk: those that Prometheus writes have a few kilobytes.
const CHUNK_BYTES_MAX: usize = 16 << 20;
/// Samples of one commit of an import.
const IMPORT_SAMPLES: usize = 100_000;

/// Why a block cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// An I/O error, or a missing file.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The bytes are damaged.
    #[error("{path} at byte {offset}: expected {what}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The expected content.
        what: &'static str,
    },
    /// An unsupported format or kind of chunk.
    #[error("{path}: {what} is not supported")]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// The unsupported format.
        what: String,
    },
    /// The store refused the samples.
    #[error(transparent)]
    Store(#[from] SeriesError),
}

/// Expected content and offset of damaged bytes, in a file that the caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault {
    offset: u64,
    what: &'static str,
}

/// A block directory of Prometheus, open for reading.
pub struct PrometheusBlock {
    index: Index,
    segments: Vec<(PathBuf, Arc<dyn File>)>,
    /// By series, the times that were deleted, inclusive.
    deleted: HashMap<u64, Vec<(i64, i64)>>,
}

/// Result of [`SeriesStore::import_block`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Series with samples.
    pub series: u64,
    /// Samples.
    pub samples: u64,
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> BlockError + '_ {
    move |source| BlockError::Io { path: path.to_path_buf(), source }
}

fn damaged(path: &Path, fault: Fault) -> BlockError {
    BlockError::Damaged { path: path.to_path_buf(), offset: fault.offset, what: fault.what }
}

/// A whole file: mapped where that is possible.
pub(super) enum Bytes {
    Mapped(ropewalk_vfs::Mapping),
    Read(Vec<u8>),
}

impl Bytes {
    pub(super) fn get(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping,
            Self::Read(bytes) => bytes,
        }
    }
}

fn read_whole(vfs: &dyn Vfs, path: &Path) -> Result<Bytes, BlockError> {
    let file = vfs.open(path, OpenMode::Read).map_err(io_error(path))?;
    if let Some(mapping) = file.map().map_err(io_error(path))? {
        return Ok(Bytes::Mapped(mapping));
    }
    let len = file.len().map_err(io_error(path))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0).map_err(io_error(path))?;
    Ok(Bytes::Read(bytes))
}

impl PrometheusBlock {
    /// Opens the block in `dir`.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn open(vfs: &dyn Vfs, dir: &Path) -> Result<Self, BlockError> {
        let path = dir.join("index");
        let bytes = read_whole(vfs, &path)?;
        let index = Index::new(bytes).map_err(|fault| match fault {
            index::Refusal::Fault(fault) => damaged(&path, fault),
            index::Refusal::Version(version) => BlockError::Unsupported {
                path: path.clone(),
                what: format!("version {version} of the index"),
            },
        })?;
        let chunks = dir.join("chunks");
        let mut segments = Vec::new();
        for name in vfs.list(&chunks).map_err(io_error(&chunks))? {
            let path = chunks.join(name);
            let file = vfs.open(&path, OpenMode::Read).map_err(io_error(&path))?;
            let mut header = [0; CHUNKS_HEADER as usize];
            file.read_exact_at(&mut header, 0).map_err(io_error(&path))?;
            let [a, b, c, d, version, ..] = header;
            if u32::from_be_bytes([a, b, c, d]) != CHUNKS_MAGIC {
                return Err(damaged(&path, Fault { offset: 0, what: "a file of chunks" }));
            }
            if version != 1 {
                let what = format!("version {version} of chunk files");
                return Err(BlockError::Unsupported { path, what });
            }
            segments.push((path, file));
        }
        let path = dir.join("tombstones");
        let deleted = match vfs.exists(&path).map_err(io_error(&path))? {
            true => tombstones(read_whole(vfs, &path)?.get()).map_err(|fault| damaged(&path, fault))?,
            false => HashMap::new(),
        };
        Ok(Self { index, segments, deleted })
    }

    /// Passes every series to `each`: its labels, and its samples in order of time, one for each time.
    ///
    /// # Errors
    /// [`BlockError`], after the series before it; errors of `each`.
    pub fn each_series(
        &self,
        mut each: impl FnMut(&Labels, &Samples) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let path = self.segments.first().map_or_else(PathBuf::new, |(path, _)| path.clone());
        let index = path.parent().and_then(Path::parent).map_or_else(PathBuf::new, |dir| dir.join("index"));
        let (mut samples, mut bytes) = (Samples::default(), Vec::new());
        let mut cursor = self.index.series();
        while let Some(series) = cursor.next().map_err(|fault| damaged(&index, fault))? {
            let labels = Labels::new(series.labels.iter().copied()).map_err(SeriesError::from)?;
            samples.clear();
            for chunk in &series.chunks {
                self.read_chunk(*chunk, &mut bytes, &mut samples)?;
            }
            if let Some(ranges) = self.deleted.get(&series.reference) {
                forget(&mut samples, ranges);
            }
            each(&labels, &samples)?;
        }
        Ok(())
    }

    /// Appends the samples of a chunk that are later than the existing ones: chunks of old blocks may overlap
    /// by one.
    fn read_chunk(&self, at: ChunkRef, bytes: &mut Vec<u8>, samples: &mut Samples) -> Result<(), BlockError> {
        let (segment, offset) = (at.0 >> 32, at.0 & u64::from(u32::MAX));
        let found = usize::try_from(segment).ok().and_then(|segment| self.segments.get(segment));
        let (path, file) = found.ok_or_else(|| BlockError::Damaged {
            path: PathBuf::from("chunks"),
            offset,
            what: "the file of a chunk that the index names",
        })?;
        let fault = |what| damaged(path, Fault { offset, what });
        let len = file.len().map_err(io_error(path))?;
        let head_len = usize::try_from(len.saturating_sub(offset).min(5)).unwrap_or(0);
        bytes.clear();
        bytes.resize(head_len, 0);
        file.read_exact_at(bytes, offset).map_err(io_error(path))?;
        let (data_len, rest) = split_varint(bytes).ok_or_else(|| fault("the length of a chunk"))?;
        let head = head_len - rest.len();
        let data_len = usize::try_from(data_len).ok().filter(|len| *len <= CHUNK_BYTES_MAX);
        let data_len = data_len.ok_or_else(|| fault("a chunk of at most 16 MiB"))?;
        if offset < CHUNKS_HEADER || offset.saturating_add((head + data_len + 5) as u64) > len {
            return Err(fault("a whole chunk"));
        }
        bytes.clear();
        bytes.resize(1 + data_len + 4, 0);
        file.read_exact_at(bytes, offset + head as u64).map_err(io_error(path))?;
        let (content, crc) = bytes.split_at(1 + data_len);
        if crc != crc32c(content).to_be_bytes() {
            return Err(fault("the checksum of a chunk"));
        }
        let Some((encoding, data)) = content.split_first() else { return Err(fault("a chunk")) };
        match chunk::decode(*encoding, data, samples) {
            Ok(()) => Ok(()),
            Err(chunk::Refusal::Damaged(what)) => Err(fault(what)),
            Err(chunk::Refusal::Encoding(encoding)) => {
                let what = format!("encoding {encoding} of the chunk at byte {offset}");
                Err(BlockError::Unsupported { path: path.clone(), what })
            }
        }
    }
}

/// By series, the deleted ranges of times.
fn tombstones(bytes: &[u8]) -> Result<HashMap<u64, Vec<(i64, i64)>>, Fault> {
    let fault = |offset: usize, what| Fault { offset: offset as u64, what };
    let (content, crc) = bytes.split_last_chunk::<4>().ok_or(fault(0, "tombstones"))?;
    let (head, mut rest) = content.split_at_checked(5).ok_or(fault(0, "tombstones"))?;
    let [a, b, c, d, 1] = *head else { return Err(fault(4, "version 1 of tombstones")) };
    if u32::from_be_bytes([a, b, c, d]) != TOMBSTONES_MAGIC {
        return Err(fault(0, "a file of tombstones"));
    }
    if *crc != crc32c(rest).to_be_bytes() {
        return Err(fault(content.len(), "the checksum of the tombstones"));
    }
    let mut deleted: HashMap<u64, Vec<(i64, i64)>> = HashMap::new();
    while !rest.is_empty() {
        let at = content.len() - rest.len();
        let mut next = || {
            let (number, after) = split_varint(rest).ok_or(fault(at, "a tombstone"))?;
            rest = after;
            Ok::<u64, Fault>(number)
        };
        let (series, from, to) = (next()?, unzigzag(next()?), unzigzag(next()?));
        deleted.entry(series).or_default().push((from, to));
    }
    Ok(deleted)
}

/// Removes the samples that lie in one of the ranges.
fn forget(samples: &mut Samples, ranges: &[(i64, i64)]) {
    let old = std::mem::take(samples);
    for (at, time) in old.times_ms.iter().enumerate() {
        if ranges.iter().any(|(from, to)| from <= time && time <= to) {
            continue;
        }
        samples.times_ms.push(*time);
        samples.values.push(*old.values.get(at).expect("every time has a value"));
        if !old.histograms.is_empty() {
            samples.histograms.push(old.histograms.get(at).cloned().flatten());
        }
    }
}

/// For the fuzz targets: false when the chunk does not decode.
pub(crate) fn decode_chunk(encoding: u8, data: &[u8], samples: &mut Samples) -> bool {
    chunk::decode(encoding, data, samples).is_ok()
}

/// For the fuzz targets: reads an index to its end.
pub(crate) fn count_series(bytes: &[u8]) -> Option<u64> {
    let index = Index::new(Bytes::Read(bytes.to_vec())).ok()?;
    let (mut cursor, mut count) = (index.series(), 0);
    while cursor.next().ok()?.is_some() {
        count += 1;
    }
    Some(count)
}

impl SeriesStore {
    /// Appends everything of a Prometheus block, in commits of about a hundred thousand samples, each
    /// durable. Repeating an interrupted import is harmless unless the store refuses duplicates.
    ///
    /// # Errors
    /// [`BlockError`]; samples committed before it stay.
    pub fn import_block(&self, block: &PrometheusBlock) -> Result<Imported, BlockError> {
        let (mut done, mut batch) = (Imported::default(), SampleBatch::new());
        block.each_series(|labels, samples| {
            if samples.is_empty() {
                return Ok(());
            }
            done.series += 1;
            done.samples += samples.len() as u64;
            let mut to = batch.series(labels);
            for (at, (time, value)) in samples.times_ms.iter().zip(&samples.values).enumerate() {
                match samples.histograms.get(at).and_then(Option::as_ref) {
                    Some(histogram) => to.push_histogram(*time, histogram, 0),
                    None => to.push(*time, *value),
                };
            }
            if batch.len() >= IMPORT_SAMPLES {
                self.append(&batch)?;
                batch.clear();
            }
            Ok(())
        })?;
        if !batch.is_empty() {
            self.append(&batch)?;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstones_are_read_and_checked() {
        let mut bytes = vec![0x01, 0x30, 0xba, 0x30, 1];
        let stones = [5, 3, 40, 5, 200, 1, 220, 1];
        bytes.extend_from_slice(&stones);
        bytes.extend_from_slice(&crc32c(&stones).to_be_bytes());
        let found = tombstones(&bytes).unwrap();
        assert_eq!(found[&5], [(-2, 20), (100, 110)]);
        bytes[6] ^= 1;
        assert_eq!(tombstones(&bytes).unwrap_err().what, "the checksum of the tombstones");
        for len in 0..bytes.len() {
            assert!(tombstones(&bytes[..len]).is_err());
        }
    }
}
