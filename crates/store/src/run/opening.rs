//! Opening a run, in two steps: the footer at once, index and filter at their first use.
//!
//!   open ─▶ length, last bytes of the file ─▶ trailer, footer
//!   first read of a block ─▶ index, mapping ─▶ BlockAccess        first question to the filter ─▶ filter
//!
//! So an opening makes three calls per run (open, length, read), whatever the size of the run.
//!
//! Invariants
//! 1. A missing file and a wrong length are found by the opening; only damage inside the file is found later.
//! 2. A part that cannot be loaded is an error of the read that needs it. The failure is not stored: the next use
//!    loads again.
//! 3. After the first load, readers share the part without a lock. Threads that load it at the same time all read the
//!    file; one result is stored.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ropewalk_base::sync::Mutex;
use ropewalk_base::{DecodeError, Decoder, crc32c};
use ropewalk_vfs::{File, OpenMode};

use crate::error::StoreError;
use crate::options::Compression;
use crate::run::files::Files;
use crate::run::filter::Filter;
use crate::run::footer::{Footer, Parts, TRAILER_BYTES, Trailer, TrailerError, VERSION};
use crate::run::index::Index;
use crate::run::{BlockAccess, DATA_BYTES_MAX, INDEX_BYTES, Run, block};

/// Bytes read at the end of a file at once. A footer takes about 100 bytes, two keys and the range tombstones; one
/// that is longer is read separately.
const TAIL_BYTES: usize = 1024;

impl Run {
    /// Takes over a file that this process has just written and synced.
    pub(crate) fn written(
        files: &Arc<Files>,
        id: u64,
        file: Arc<dyn File>,
        bytes: u64,
        parts: Parts,
    ) -> Result<Self, StoreError> {
        let run = Self::assemble(files, id, file, bytes, parts, true)?;
        if let Some(mapping) = run.mapping()
            && files.runs_fit_memory()
        {
            mapping.populate();
        }
        run.doomed.store(true, Ordering::Release);
        Ok(run)
    }

    /// Opens a run that the manifest names, reading its footer only.
    pub(crate) fn open(files: &Arc<Files>, id: u64, bytes: u64) -> Result<Self, StoreError> {
        let path = files.path(id);
        let file = files.env.vfs.open(&path, OpenMode::Read).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => StoreError::Missing { path: path.clone() },
            _ => StoreError::Io { op: "open", path: path.clone(), source },
        })?;
        let found = file.len().map_err(StoreError::io("length of", &path))?;
        let parts = read_parts(&path, &*file, found)?;
        if found != bytes {
            return Err(StoreError::corrupt(&path, found.min(bytes), "file length as in the manifest"));
        }
        Self::assemble(files, id, file, bytes, parts, false)
    }

    fn assemble(
        files: &Arc<Files>,
        id: u64,
        file: Arc<dyn File>,
        bytes: u64,
        parts: Parts,
        is_own: bool,
    ) -> Result<Self, StoreError> {
        let Parts { footer, index, filter } = parts;
        // Compressed blocks are unpacked into the cache; mapping them would keep both.
        let may_map = files.add_run(bytes) && footer.options.compression == Compression::None;
        let run = Self {
            id,
            path: files.path(id),
            bytes,
            footer,
            file,
            may_map,
            is_own,
            access: OnceLock::new(),
            filter: filter.map_or_else(OnceLock::new, OnceLock::from),
            walked: Mutex::default(),
            files: files.clone(),
            doomed: AtomicBool::new(false),
        };
        if let Some(index) = index {
            let access = run.access_through(index)?;
            run.access.get_or_init(|| access);
        }
        Ok(run)
    }

    /// Reads footer and trailer again; for `verify`.
    pub(crate) fn read_parts(&self) -> Result<Parts, StoreError> {
        read_parts(&self.path, &*self.file, self.bytes)
    }

    /// Reads the index. Not in version 1, where it is a part of the footer.
    pub(crate) fn read_index(&self) -> Result<Index, StoreError> {
        let section = self.footer.index;
        let bytes = section.read(&*self.file, &self.path, "checksum of the index of a run")?;
        let decoder = &mut Decoder::new(&bytes);
        let index = Index::decode(&self.footer, section.at, decoder).and_then(|index| {
            let end = DecodeError { what: "end of the index", offset: decoder.offset() };
            decoder.is_empty().then_some(index).ok_or(end)
        });
        index.map_err(|e| StoreError::corrupt(&self.path, section.at + e.offset as u64, e.what))
    }

    /// Reads the filter. Not in version 1, where it is a part of the footer.
    pub(crate) fn read_filter(&self) -> Result<Filter, StoreError> {
        let bytes = self.footer.filter.read(&*self.file, &self.path, "checksum of the filter of a run")?;
        Ok(Filter::decode(&bytes))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn load_access(&self) -> Result<&BlockAccess, StoreError> {
        let access = self.access_through(self.read_index()?)?;
        Ok(self.access.get_or_init(|| access))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn load_filter(&self) -> Result<&Filter, StoreError> {
        let filter = self.read_filter()?;
        Ok(self.filter.get_or_init(|| filter))
    }

    fn access_through(&self, mut index: Index) -> Result<BlockAccess, StoreError> {
        if !self.files.options.learned_index {
            index.fences.drop_model();
        }
        let mapping =
            if self.may_map { self.file.map().map_err(StoreError::io("map", &self.path))? } else { None };
        let words = self.footer.blocks.div_ceil(64);
        let verified =
            (!self.is_own).then(|| std::iter::repeat_with(AtomicU64::default).take(words).collect());
        let block_entries = self.footer.entries / self.footer.blocks.max(1) as u64;
        let block_entries = block_entries.min(u64::from(u32::MAX)) as usize;
        let block_bytes = index.block_at(0).map_or(0, |(_, bytes)| bytes);
        let beside_data = block::HEADER_BYTES + index.fences.shared() + INDEX_BYTES * block_entries;
        let data_bytes = block_bytes.saturating_sub(beside_data).checked_div(block_entries).unwrap_or(0);
        let data_bytes = if data_bytes > DATA_BYTES_MAX { 0 } else { data_bytes };
        Ok(BlockAccess { index, mapping, verified, block_entries, data_bytes })
    }
}

/// Reads the end of a file of this length.
fn read_parts(path: &Path, file: &dyn File, bytes: u64) -> Result<Parts, StoreError> {
    let trailer_at = bytes
        .checked_sub(TRAILER_BYTES as u64)
        .ok_or_else(|| StoreError::corrupt(path, bytes, "run trailer (the file is too short)"))?;
    let mut tail = [0; TAIL_BYTES];
    let (tail, _) = tail.split_at_mut(bytes.min(TAIL_BYTES as u64) as usize);
    file.read_exact_at(tail, bytes - tail.len() as u64).map_err(StoreError::io("read", path))?;
    let (tail, trailer) = tail.split_last_chunk().expect("the file is longer than a trailer");
    let trailer = Trailer::decode(trailer).map_err(|error| match error {
        TrailerError::Foreign(found) => StoreError::Foreign { path: path.to_owned(), kind: "run", found },
        TrailerError::Version(found) => {
            StoreError::Version { path: path.to_owned(), found, supported: VERSION }
        }
        TrailerError::Damaged => StoreError::corrupt(path, trailer_at, "checksum of the run trailer"),
    })?;
    if trailer.footer_at.checked_add(trailer.footer_len) != Some(trailer_at) {
        return Err(StoreError::corrupt(path, trailer_at, "footer that ends at the trailer"));
    }
    let long;
    let footer = match tail.len().checked_sub(trailer.footer_len as usize).and_then(|at| tail.get(at..)) {
        Some(footer) => footer,
        None => {
            let mut bytes = vec![0; trailer.footer_len as usize];
            file.read_exact_at(&mut bytes, trailer.footer_at).map_err(StoreError::io("read", path))?;
            long = bytes;
            &long
        }
    };
    if crc32c(footer) != trailer.footer_crc {
        return Err(StoreError::corrupt(path, trailer.footer_at, "checksum of the run footer"));
    }
    Footer::decode(trailer.version, footer, trailer.footer_at)
        .map_err(|e| StoreError::corrupt(path, trailer.footer_at + e.offset as u64, e.what))
}
