//! A disk that forgets: unsynced bytes survive a crash by chance, sector by sector, and so do unsynced names. It can also
//! fail one operation, or be full.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ropewalk_vfs::{Env, File, LockGuard, Mapping, OpenMode, Random, SeededRandom, Vfs};

use crate::help::env_on;

const SECTOR: usize = 512;

#[derive(Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Unsynced writes, none crossing a sector.
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone)]
enum NameChange {
    Add(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<NameChange>,
    /// The operation that fails, counted down.
    fails_in: Option<u32>,
    room: Option<usize>,
}

#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: NameChange) {
    match change {
        NameChange::Add(path, inode) => drop(names.insert(path, inode)),
        NameChange::Remove(path) => drop(names.remove(&path)),
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(&from) {
                names.insert(to, inode);
            }
        }
    }
}

fn write(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    bytes.resize(bytes.len().max(offset + new.len()), 0);
    bytes[offset..offset + new.len()].copy_from_slice(new);
}

impl Disk {
    pub(crate) fn env(&self) -> Env {
        env_on(Arc::new(self.clone()))
    }

    /// The `n`th changing operation from now on fails, counted from zero.
    pub(crate) fn fail_in(&self, n: u32) {
        self.0.lock().fails_in = Some(n);
    }

    /// Cancels a planned failure; false when no failure was pending.
    pub(crate) fn disarm(&self) -> bool {
        self.0.lock().fails_in.take().is_some()
    }

    /// The disk takes `bytes` more.
    pub(crate) fn set_room(&self, bytes: Option<usize>) {
        self.0.lock().room = bytes;
    }

    /// The disk after a power cut. Each unsynced sector and name survives with the chance `keep` of 256.
    pub(crate) fn crash(&self, seed: u64, keep: u64) -> Disk {
        let state = self.0.lock();
        let random = SeededRandom::new(seed);
        let kept = || random.next_u64() % 256 < keep;
        let mut names = state.durable_names.clone();
        for change in state.pending_names.iter().filter(|_| kept()) {
            apply(&mut names, change.clone());
        }
        let inodes = state.inodes.iter().map(|inode| {
            let mut bytes = inode.durable.clone();
            for (offset, new) in inode.pending.iter().filter(|_| kept()) {
                write(&mut bytes, *offset, new);
            }
            Inode { live: bytes.clone(), durable: bytes, pending: vec![] }
        });
        let inodes = inodes.collect();
        let state = State { inodes, names: names.clone(), durable_names: names, ..State::default() };
        Disk(Arc::new(Mutex::new(state)))
    }
}

impl State {
    fn may_fail(&mut self) -> io::Result<()> {
        match self.fails_in {
            Some(0) => {
                self.fails_in = None;
                Err(io::Error::other("planted failure"))
            }
            n => {
                self.fails_in = n.map(|n| n - 1);
                Ok(())
            }
        }
    }

    fn change(&mut self, change: NameChange) -> io::Result<()> {
        self.may_fail()?;
        if let NameChange::Rename(path, _) | NameChange::Remove(path) = &change
            && !self.names.contains_key(path)
        {
            return Err(io::ErrorKind::NotFound.into());
        }
        apply(&mut self.names, change.clone());
        self.pending_names.push(change);
        Ok(())
    }
}

impl Vfs for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut state = self.0.lock();
        if mode == OpenMode::CreateNew {
            if state.names.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let inode = state.inodes.len();
            state.inodes.push(Inode::default());
            state.change(NameChange::Add(path.to_owned(), inode))?;
        }
        let inode = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(DiskFile { disk: self.clone(), inode }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.0.lock();
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    }

    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.0.lock().names.contains_key(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.lock().change(NameChange::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.lock().change(NameChange::Remove(path.to_owned()))
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.may_fail()?;
        state.pending_names.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn lock(&self, _path: &Path, _holder: &str) -> io::Result<Box<dyn LockGuard>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

struct DiskFile {
    disk: Disk,
    inode: usize,
}

impl File for DiskFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.disk.0.lock();
        let bytes = state.inodes[self.inode].live.get(offset as usize..offset as usize + buf.len());
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let failure = state.may_fail();
        // A failed write may have written a part.
        let bytes = if failure.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        let mut at = offset as usize;
        let grows = (at + bytes.len()).saturating_sub(state.inodes[self.inode].live.len());
        if let Some(room) = &mut state.room {
            *room = room.checked_sub(grows).ok_or(io::ErrorKind::StorageFull)?;
        }
        let inode = &mut state.inodes[self.inode];
        write(&mut inode.live, at, bytes);
        let (first, rest) = bytes.split_at((SECTOR - at % SECTOR).min(bytes.len()));
        for piece in std::iter::once(first).chain(rest.chunks(SECTOR)) {
            inode.pending.push((at, piece.to_vec()));
            at += piece.len();
        }
        failure
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let failure = state.may_fail();
        let inode = &mut state.inodes[self.inode];
        if failure.is_ok() {
            inode.durable = inode.live.clone();
        }
        // After a failed sync the system believes the pages clean: no later sync will write them.
        inode.pending.clear();
        failure
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().inodes[self.inode].live.len() as u64)
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(None)
    }
}
