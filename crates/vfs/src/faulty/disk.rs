//! State of a simulated disk: files, planned faults, and the outcome of each call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::faulty::inode::Inode;
use crate::faulty::names::{Names, Node};
use crate::{Random, SeededRandom};

/// The calls that can be counted and made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskOp {
    /// `read_exact_at`. Fails with part of the buffer filled.
    Read,
    /// `write_all_at`. Fails with part of the bytes written.
    Write,
    /// `set_len`.
    SetLen,
    /// `sync_data`. A failure leaves unsynced bytes in an unknown state, and the next sync proves nothing.
    Sync,
    /// `sync_dir`.
    SyncDir,
    /// `open` with [`OpenMode::CreateNew`](crate::OpenMode::CreateNew), `hard_link`, and each directory that `create_dir_all` makes.
    Create,
    /// `rename`.
    Rename,
    /// `remove` and `remove_dir`.
    Remove,
}

/// Probabilities of random failures: one call in so many, zero for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Reads.
    pub read: u32,
    /// Writes and changes of length.
    pub write: u32,
    /// Syncs of files and directories.
    pub sync: u32,
    /// Creating, renaming, removing.
    pub name: u32,
    /// Reads that return Ok, with one bit wrong.
    pub lie: u32,
}

impl Faults {
    fn one_in(&self, op: DiskOp) -> u32 {
        match op {
            DiskOp::Read => self.read,
            DiskOp::Write | DiskOp::SetLen => self.write,
            DiskOp::Sync | DiskOp::SyncDir => self.sync,
            DiskOp::Create | DiskOp::Rename | DiskOp::Remove => self.name,
        }
    }
}

/// State of a disk, and the decision about each call.
pub(super) struct Disk {
    pub(super) random: SeededRandom,
    pub(super) names: Names,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) next_inode: u64,
    /// Counts crashes; files and locks of an earlier boot are dead.
    pub(super) boot: u64,
    pub(super) locks: BTreeMap<PathBuf, String>,
    /// Changes so far; reads do not count.
    pub(super) operations: u64,
    pub(super) counts: BTreeMap<DiskOp, u64>,
    pub(super) crash_at: Option<u64>,
    pub(super) crash_at_call: Option<(DiskOp, u64)>,
    pub(super) off: bool,
    pub(super) faults: Faults,
    pub(super) plan: Vec<(DiskOp, u64)>,
    pub(super) space: Option<u64>,
    /// An overwrite needs free space, too, as on a file system that copies on write.
    pub(super) copies_on_write: bool,
    /// Files that the process may have open.
    pub(super) descriptors: Option<usize>,
    pub(super) open_files: usize,
    /// Files can be mapped.
    pub(super) maps: bool,
    pub(super) lies: Vec<u64>,
    pub(super) injected: u64,
    pub(super) bytes_read: u64,
    pub(super) fingerprint: u64,
    pub(super) trace: Option<Vec<String>>,
}

/// `EMFILE`, the same on every system that the project runs on.
pub(super) const TOO_MANY_OPEN_FILES: i32 = 24;

pub(super) fn power_is_off() -> io::Error {
    io::Error::other("simulated: the power is off")
}

pub(super) fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {}", path.display()))
}

pub(super) fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "simulated: no space left")
}

pub(super) fn too_large<T>(_: T) -> io::Error {
    io::ErrorKind::FileTooLarge.into()
}

/// Outcome of a call.
pub(super) enum Decision {
    Go,
    /// Do it, or part of it, and return this error.
    Fail(io::Error),
}

impl Disk {
    /// An empty disk.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: SeededRandom::new(seed),
            names: Names::default(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            boot: 0,
            locks: BTreeMap::new(),
            operations: 0,
            counts: BTreeMap::new(),
            crash_at: None,
            crash_at_call: None,
            off: false,
            faults: Faults::default(),
            plan: Vec::new(),
            space: None,
            copies_on_write: false,
            descriptors: None,
            open_files: 0,
            maps: false,
            lies: Vec::new(),
            injected: 0,
            bytes_read: 0,
            fingerprint: 0xcbf2_9ce4_8422_2325,
            trace: None,
        }
    }

    pub(super) fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n.max(1)
    }

    /// Counts a call and decides its outcome.
    pub(super) fn begin(&mut self, op: DiskOp, what: fmt::Arguments<'_>) -> io::Result<Decision> {
        if self.off {
            return Err(power_is_off());
        }
        let count = self.counts.entry(op).or_default();
        let number = *count;
        *count += 1;
        if op != DiskOp::Read {
            self.operations += 1;
        }
        let line = format!("{:>5} {op:?} {what}", self.operations);
        for byte in line.bytes() {
            self.fingerprint = (self.fingerprint ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(trace) = &mut self.trace {
            trace.push(line);
        }
        let ends = self.crash_at.is_some_and(|at| self.operations >= at);
        if op != DiskOp::Read && (ends || self.crash_at_call == Some((op, number))) {
            self.off = true;
            return Ok(Decision::Fail(power_is_off()));
        }
        let planned = self.plan.iter().position(|planned| *planned == (op, number));
        let one_in = self.faults.one_in(op);
        if let Some(index) = planned {
            self.plan.swap_remove(index);
        } else if one_in == 0 || self.below(u64::from(one_in)) != 0 {
            return Ok(Decision::Go);
        }
        self.injected += 1;
        let error = io::Error::other(format!("simulated: {op:?} failed"));
        if let Some(trace) = &mut self.trace {
            trace.push("      ^ fails".to_owned());
        }
        Ok(Decision::Fail(error))
    }

    /// Takes a free descriptor for the time of a call; the caller counts it if it stays open.
    pub(super) fn need_descriptor(&mut self) -> io::Result<()> {
        if self.descriptors.is_none_or(|most| self.open_files < most) {
            return Ok(());
        }
        self.injected += 1;
        Err(io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES))
    }

    /// Passes correctly read bytes to the reader, perhaps with a fault.
    pub(super) fn pass_on(&mut self, bytes: &mut [u8]) {
        self.bytes_read += bytes.len() as u64;
        let one_in = self.faults.lie;
        if one_in == 0 || bytes.is_empty() || self.below(u64::from(one_in)) != 0 {
            return;
        }
        let (at, bit) = (self.below(bytes.len() as u64) as usize, self.below(8));
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
            self.injected += 1;
        }
    }

    pub(super) fn inode(&mut self, id: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(path) {
            Some(Node::File(id)) => Ok(id),
            _ => Err(not_found(path)),
        }
    }

    pub(super) fn used(&self) -> u64 {
        let inodes: BTreeSet<u64> = self.names.files().map(|(_, id)| id).collect();
        inodes.iter().filter_map(|id| self.inodes.get(id)).map(|inode| inode.len() as u64).sum()
    }

    pub(super) fn free(&self) -> usize {
        let free = self.space.map_or(u64::MAX, |space| space.saturating_sub(self.used()));
        usize::try_from(free).unwrap_or(usize::MAX)
    }

    /// How far a file of `len` bytes may grow.
    pub(super) fn room(&self, len: usize) -> usize {
        len.saturating_add(self.free())
    }
}
