//! The state of the store at one instant, pinned, and written into another directory.

use std::path::Path;
use std::sync::Arc;

use ropewalk_vfs::OpenMode;

use crate::error::StoreError;
use crate::manifest::{Checkpoint, Manifest};
use crate::read::view::StoreView;
use crate::run::files::Files;

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// The manifest and runs in force at one instant. The files it names stay while it lives, regardless of
/// compaction. See [`crate::store::Store::pin`].
pub struct StorePin {
    pub(crate) manifest: Manifest,
    pub(crate) view: Arc<StoreView>,
    pub(crate) files: Arc<Files>,
}

/// Result of [`StorePin::copy_to`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCopy {
    /// Number of files, including the manifest.
    pub files: u64,
    /// Total length of the files.
    pub bytes: u64,
    /// Of these, bytes of files that are hard links to the store's files.
    pub linked_bytes: u64,
}

impl StorePin {
    /// Where recovery starts.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.manifest.checkpoint
    }

    /// Writes an independent store into the directory `dir`, which exists and holds none. Runs never change,
    /// so they are linked where the file system can, else copied. Durable when it returns, except for the
    /// name of `dir`. Cost: the manifest and a name per run, or reading and writing everything.
    ///
    /// # Errors
    /// I/O errors. Files already written stay.
    pub fn copy_to(&self, dir: &Path) -> Result<StoreCopy, StoreError> {
        let mut copy = StoreCopy::default();
        for run in self.view.keyspaces.iter().flat_map(|keyspace| keyspace.runs()) {
            let name = run.path.file_name().expect("a run lies in the store's directory");
            copy.linked_bytes += if self.take(&run.path, &dir.join(name))? { run.bytes } else { 0 };
            copy.files += 1;
            copy.bytes += run.bytes;
        }
        // The manifest is last and syncs the directory before it names anything in it.
        self.manifest.write(&*self.files.env.vfs, dir).map_err(|(error, _)| error)?;
        copy.files += 1;
        copy.bytes += self.manifest.encode().len() as u64;
        Ok(copy)
    }

    /// Links or copies a file; true for a link.
    fn take(&self, from: &Path, to: &Path) -> Result<bool, StoreError> {
        let vfs = &*self.files.env.vfs;
        // A copy may succeed where a link fails (another file system, restrictions); otherwise the copy
        // reports the error.
        if vfs.hard_link(from, to).is_ok() {
            return Ok(true);
        }
        let source = vfs.open(from, OpenMode::Read).map_err(StoreError::io("open", from))?;
        let target = vfs.open(to, OpenMode::CreateNew).map_err(StoreError::io("create", to))?;
        let len = source.len().map_err(StoreError::io("length of", from))?;
        let mut bytes = Vec::new();
        for at in (0..len).step_by(COPY_BYTES as usize) {
            bytes.resize((len - at).min(COPY_BYTES) as usize, 0);
            source.read_exact_at(&mut bytes, at).map_err(StoreError::io("read", from))?;
            target.write_all_at(&bytes, at).map_err(StoreError::io("write", to))?;
        }
        target.sync_data().map_err(StoreError::io("sync", to))?;
        Ok(false)
    }
}

impl std::fmt::Debug for StorePin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StorePin({} at {:?})", self.files.dir.display(), self.manifest.checkpoint.seq)
    }
}
