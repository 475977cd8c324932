//! A simulated disk with the failures of a real one. The same seed and the same calls give the same disk.
//!
//!   FaultyVfs ─▶ names (durable after `sync_dir`) ─▶ inodes (bytes durable after `sync_data`)
//!       │ crash()            unsynced changes survive, vanish or tear; locks fall; open files are dead
//!       │ crash_at(n)        the power fails instead of operation n, and stays off until `crash()`
//!       │ fail(op, n), set_faults(…)         refused calls, and reads that lie
//!       │ set_space(…), set_descriptors(…)   a full disk, a process without descriptors
//!       │ flip_bit(…), overwrite(…)          bit corruption; writes that were lost, stale or sent elsewhere
//!       └ lie_about_sync(k)  sync number k returns Ok, does nothing: the bug that a simulation has to find
//!
//! ```
//! use ropewalk_vfs::{FaultyVfs, OpenMode, Vfs};
//! let disk = FaultyVfs::new(7);
//! let file = disk.open("/a".as_ref(), OpenMode::CreateNew)?;
//! file.write_all_at(b"safe", 0)?;
//! file.sync_data()?;
//! disk.sync_dir("/".as_ref())?;
//! file.write_all_at(b"perhaps", 4)?;
//! disk.crash();
//! assert!(file.len().is_err(), "the process that held the file is gone");
//! assert_eq!(disk.bytes("/a".as_ref()).unwrap()[..4], *b"safe");
//! # Ok::<(), std::io::Error>(())
//! ```

mod inode;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{File, LockGuard, Mapping, OpenMode, Random, SeededRandom, Vfs};
use inode::Inode;
use names::{Names, Node};

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
    /// `open` with [`OpenMode::CreateNew`], `hard_link`, and each directory that `create_dir_all` makes.
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

/// The simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct FaultyVfs {
    disk: Arc<Mutex<Disk>>,
    /// Number of the boot after which this handle fails.
    process: Option<u64>,
}

struct Disk {
    random: SeededRandom,
    names: Names,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// Counts crashes; files and locks of an earlier boot are dead.
    boot: u64,
    locks: BTreeMap<PathBuf, String>,
    /// Changes so far; reads do not count.
    operations: u64,
    counts: BTreeMap<DiskOp, u64>,
    crash_at: Option<u64>,
    crash_at_call: Option<(DiskOp, u64)>,
    off: bool,
    faults: Faults,
    plan: Vec<(DiskOp, u64)>,
    space: Option<u64>,
    /// An overwrite needs free space, too, as on a file system that copies on write.
    copies_on_write: bool,
    /// Files that the process may have open.
    descriptors: Option<usize>,
    open_files: usize,
    /// Files can be mapped.
    maps: bool,
    lies: Vec<u64>,
    injected: u64,
    bytes_read: u64,
    fingerprint: u64,
    trace: Option<Vec<String>>,
}

/// `EMFILE`, the same on every system that the project runs on.
const TOO_MANY_OPEN_FILES: i32 = 24;

fn power_is_off() -> io::Error {
    io::Error::other("simulated: the power is off")
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {}", path.display()))
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "simulated: no space left")
}

fn too_large<T>(_: T) -> io::Error {
    io::ErrorKind::FileTooLarge.into()
}

/// Outcome of a call.
enum Decision {
    Go,
    /// Do it, or part of it, and return this error.
    Fail(io::Error),
}

impl Disk {
    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n.max(1)
    }

    /// Counts a call and decides its outcome.
    fn begin(&mut self, op: DiskOp, what: fmt::Arguments<'_>) -> io::Result<Decision> {
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
    fn need_descriptor(&mut self) -> io::Result<()> {
        if self.descriptors.is_none_or(|most| self.open_files < most) {
            return Ok(());
        }
        self.injected += 1;
        Err(io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES))
    }

    /// Passes correctly read bytes to the reader, perhaps with a fault.
    fn pass_on(&mut self, bytes: &mut [u8]) {
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

    fn inode(&mut self, id: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(path) {
            Some(Node::File(id)) => Ok(id),
            _ => Err(not_found(path)),
        }
    }

    fn used(&self) -> u64 {
        let inodes: BTreeSet<u64> = self.names.files().map(|(_, id)| id).collect();
        inodes.iter().filter_map(|id| self.inodes.get(id)).map(|inode| inode.len() as u64).sum()
    }

    fn free(&self) -> usize {
        let free = self.space.map_or(u64::MAX, |space| space.saturating_sub(self.used()));
        usize::try_from(free).unwrap_or(usize::MAX)
    }

    /// How far a file of `len` bytes may grow.
    fn room(&self, len: usize) -> usize {
        len.saturating_add(self.free())
    }
}

impl FaultyVfs {
    /// An empty disk with the root directory `/`.
    pub fn new(seed: u64) -> Self {
        let disk = Disk {
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
        };
        Self { disk: Arc::new(Mutex::new(disk)), process: None }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for a process that starts now: after the next crash or kill, every call through the handle
    /// fails. So code of an old database that still runs, its clean-up for example, cannot reach the disk.
    pub fn process(&self) -> Self {
        Self { disk: self.disk.clone(), process: Some(self.disk().boot) }
    }

    /// The disk, for a call of a process that is alive.
    fn live(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk();
        let dead = disk.off || self.process.is_some_and(|boot| boot != disk.boot);
        if dead { Err(power_is_off()) } else { Ok(disk) }
    }

    /// A power cut, now: each change that was not synced survives, is dropped or torn; locks are released;
    /// files that were open return errors forever. Then the machine is on again, without planned faults;
    /// probabilities and space stay.
    pub fn crash(&self) {
        let disk = &mut *self.disk();
        disk.names.crash(&disk.random);
        for inode in disk.inodes.values_mut() {
            inode.crash(&disk.random);
        }
        let linked: Vec<u64> = disk.names.files().map(|(_, id)| id).collect();
        disk.inodes.retain(|id, _| linked.contains(id));
        self.restarted(disk);
    }

    /// The process ends, the machine does not (`kill -9`): nothing written is lost, locks are released, open files are dead.
    pub fn kill(&self) {
        self.restarted(&mut self.disk());
    }

    /// An unused copy of the disk's files with another seed; planned faults are not copied.
    pub fn copy(&self, seed: u64) -> Self {
        let copy = Self::new(seed);
        {
            let (disk, mut other) = (self.disk(), copy.disk());
            other.names = disk.names.clone();
            other.inodes = disk.inodes.clone();
            other.next_inode = disk.next_inode;
        }
        copy
    }

    /// Cancels everything planned: power cut, faults, probabilities, lies, a full disk, spent descriptors.
    pub fn calm(&self) {
        let mut disk = self.disk();
        (disk.crash_at, disk.crash_at_call) = (None, None);
        disk.faults = Faults::default();
        disk.plan.clear();
        disk.lies.clear();
        (disk.space, disk.copies_on_write, disk.descriptors) = (None, false, None);
    }

    fn restarted(&self, disk: &mut Disk) {
        disk.boot += 1;
        disk.open_files = 0;
        disk.locks.clear();
        (disk.crash_at, disk.crash_at_call) = (None, None);
        disk.off = false;
        disk.plan.clear();
        disk.lies.clear();
        if let Some(trace) = &mut disk.trace {
            trace.push("===== restart".to_owned());
        }
    }

    /// Makes the power fail instead of the change that brings [`FaultyVfs::operations`] to `operation`; a
    /// write or a change of a name may still have reached the disk, a sync did nothing. Everything fails
    /// until [`FaultyVfs::crash`].
    pub fn crash_at(&self, operation: u64) {
        self.disk().crash_at = Some(operation);
    }

    /// As [`FaultyVfs::crash_at`], instead of a future change of one kind: the next for `skip` zero.
    pub fn crash_at_call(&self, op: DiskOp, skip: u64) {
        let mut disk = self.disk();
        let number = disk.counts.get(&op).copied().unwrap_or(0) + skip;
        disk.crash_at_call = Some((op, number));
    }

    /// True after the planned power cut.
    pub fn is_off(&self) -> bool {
        self.disk().off
    }

    /// Changes so far: every call but reads.
    pub fn operations(&self) -> u64 {
        self.disk().operations
    }

    /// Calls of one kind so far.
    pub fn count(&self, op: DiskOp) -> u64 {
        self.disk().counts.get(&op).copied().unwrap_or(0)
    }

    /// Faults that were injected so far, power cuts not among them.
    pub fn injected(&self) -> u64 {
        self.disk().injected
    }

    /// Makes one future call of a kind fail: the next for `skip` zero, the one after for one…
    pub fn fail(&self, op: DiskOp, skip: u64) {
        let mut disk = self.disk();
        let number = disk.counts.get(&op).copied().unwrap_or(0) + skip;
        disk.plan.push((op, number));
    }

    /// Makes calls fail at random.
    pub fn set_faults(&self, faults: Faults) {
        self.disk().faults = faults;
    }

    /// Bytes that all files together may have; `None` for no limit. Growing beyond fails with
    /// [`io::ErrorKind::StorageFull`]; overwriting does not, unless the disk [copies on write](Self::set_copies_on_write).
    pub fn set_space(&self, bytes: Option<u64>) {
        self.disk().space = bytes;
    }

    /// Makes an overwrite need as much free space as its bytes, released when it is done.
    pub fn set_copies_on_write(&self, copies: bool) {
        self.disk().copies_on_write = copies;
    }

    /// Files that may be open at once, those of dead processes not counted; `None` for no limit. Opening one more, listing and
    /// syncing a directory fail with `EMFILE` then.
    pub fn set_descriptors(&self, most: Option<usize>) {
        self.disk().descriptors = most;
    }

    /// Files that are open.
    pub fn open_files(&self) -> usize {
        self.disk().open_files
    }

    /// Offers mappings of whole files, each a copy of the current bytes.
    pub fn set_maps(&self, maps: bool) {
        self.disk().maps = maps;
    }

    /// Bytes that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.disk().bytes_read
    }

    /// Sum of the lengths of all files.
    pub fn used(&self) -> u64 {
        self.disk().used()
    }

    /// The planted bug: one future `sync_data` returns Ok and does nothing, the next for `skip` zero. The
    /// bytes stay unsynced; a later sync of the same file makes them durable.
    pub fn lie_about_sync(&self, skip: u64) {
        let mut disk = self.disk();
        let number = disk.counts.get(&DiskOp::Sync).copied().unwrap_or(0) + skip;
        disk.lies.push(number);
    }

    /// Flips one bit of a file, durably and for readers at once.
    ///
    /// # Errors
    /// No such file.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let disk = &mut *self.disk();
        let id = disk.file(path)?;
        disk.inode(id)?.flip(usize::try_from(offset).map_err(too_large)?, bit);
        Ok(())
    }

    /// Puts other bytes into a file, durably and for readers at once: what it has there was lost, or went elsewhere.
    ///
    /// # Errors
    /// No such file.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let disk = &mut *self.disk();
        let id = disk.file(path)?;
        disk.inode(id)?.overwrite(usize::try_from(offset).map_err(too_large)?, bytes);
        Ok(())
    }

    /// Removes a directory durably with all its contents, as if it never existed.
    pub fn wipe(&self, dir: &Path) {
        self.disk().names.wipe(dir);
    }

    /// All files with their lengths, sorted.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let disk = self.disk();
        let len = |id| disk.inodes.get(&id).map_or(0, |inode| inode.len() as u64);
        disk.names.files().map(|(path, id)| (path.to_owned(), len(id))).collect()
    }

    /// A file's bytes as a reader sees them.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.disk();
        let id = disk.file(path).ok()?;
        Some(disk.inodes.get(&id)?.bytes().to_vec())
    }

    /// Hash of every call so far: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        self.disk().fingerprint
    }

    /// Starts a trace of every call, or returns the trace when it is running.
    pub fn trace(&self) -> Vec<String> {
        std::mem::take(self.disk().trace.get_or_insert_default())
    }
}

impl fmt::Debug for FaultyVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.disk();
        write!(f, "FaultyVfs(boot {}, {} operations)", disk.boot, disk.operations)
    }
}

impl Vfs for FaultyVfs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let disk = &mut *self.live()?;
        disk.need_descriptor()?;
        if mode == OpenMode::CreateNew {
            let decision = disk.begin(DiskOp::Create, format_args!("{}", path.display()))?;
            if disk.names.get(path).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if !path.parent().is_some_and(|dir| disk.names.is_dir(dir)) {
                return Err(not_found(path));
            }
            // A refused create leaves no name; one in a power cut may.
            match decision {
                Decision::Fail(error) if !disk.off => return Err(error),
                _ => {}
            }
            let id = disk.next_inode;
            disk.next_inode += 1;
            disk.inodes.insert(id, Inode::default());
            disk.names.link(path, Node::File(id));
            if let Decision::Fail(error) = decision {
                return Err(error);
            }
        }
        let inode = disk.file(path)?;
        let name: Arc<Path> = path.into();
        disk.open_files += 1;
        Ok(Arc::new(FaultyFile {
            disk: self.clone(),
            boot: disk.boot,
            inode,
            name,
            writable: mode != OpenMode::Read,
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut disk = self.live()?;
        disk.need_descriptor()?;
        if disk.names.is_dir(dir) { Ok(disk.names.list(dir)) } else { Err(not_found(dir)) }
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let mut missing: Vec<&Path> = dir.ancestors().take_while(|dir| !disk.names.is_dir(dir)).collect();
        while let Some(dir) = missing.pop() {
            let decision = disk.begin(DiskOp::Create, format_args!("{}/", dir.display()))?;
            if disk.names.get(dir).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if let Decision::Fail(error) = decision {
                return Err(error);
            }
            disk.names.link(dir, Node::Dir);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.live()?.names.get(path).is_some())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let decision = disk.begin(DiskOp::Rename, format_args!("{} {}", from.display(), to.display()))?;
        let is_dir = disk.names.is_dir(from);
        if !is_dir {
            disk.file(from)?;
        }
        if disk.names.is_dir(to) || is_dir && disk.names.get(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match decision {
            Decision::Fail(error) if !disk.off => return Err(error),
            _ => disk.names.rename(from, to),
        }
        if disk.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let decision = disk.begin(DiskOp::Remove, format_args!("{}", path.display()))?;
        disk.file(path)?;
        match decision {
            Decision::Fail(error) if !disk.off => return Err(error),
            _ => disk.names.unlink(path),
        }
        if disk.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let decision = disk.begin(DiskOp::Create, format_args!("{} {}", from.display(), to.display()))?;
        let inode = disk.file(from)?;
        if disk.names.get(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !to.parent().is_some_and(|dir| disk.names.is_dir(dir)) {
            return Err(not_found(to));
        }
        match decision {
            Decision::Fail(error) if !disk.off => return Err(error),
            _ => disk.names.link(to, Node::File(inode)),
        }
        if disk.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        let decision = disk.begin(DiskOp::Remove, format_args!("{}/", dir.display()))?;
        if !disk.names.is_dir(dir) {
            return Err(not_found(dir));
        }
        if !disk.names.list(dir).is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        match decision {
            Decision::Fail(error) if !disk.off => return Err(error),
            _ => disk.names.unlink(dir),
        }
        if disk.off { Err(power_is_off()) } else { Ok(()) }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let disk = &mut *self.live()?;
        disk.need_descriptor()?;
        let decision = disk.begin(DiskOp::SyncDir, format_args!("{}", dir.display()))?;
        if !disk.names.is_dir(dir) {
            return Err(not_found(dir));
        }
        match decision {
            Decision::Fail(error) => Err(error),
            Decision::Go => {
                disk.names.sync(dir);
                Ok(())
            }
        }
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn LockGuard>> {
        let disk = &mut *self.live()?;
        if let Some(other) = disk.locks.get(path) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, other.clone()));
        }
        disk.locks.insert(path.to_owned(), holder.to_owned());
        Ok(Box::new(FaultyLock { disk: self.clone(), boot: disk.boot, path: path.to_owned() }))
    }
}

struct FaultyLock {
    disk: FaultyVfs,
    boot: u64,
    path: PathBuf,
}

impl LockGuard for FaultyLock {}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        let mut disk = self.disk.disk();
        if disk.boot == self.boot {
            disk.locks.remove(&self.path);
        }
    }
}

struct FaultyFile {
    disk: FaultyVfs,
    boot: u64,
    inode: u64,
    name: Arc<Path>,
    writable: bool,
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        let mut disk = self.disk.disk();
        if disk.boot == self.boot {
            disk.open_files -= 1;
        }
    }
}

impl FaultyFile {
    fn disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.disk.disk();
        if disk.boot == self.boot && !disk.off { Ok(disk) } else { Err(power_is_off()) }
    }

    fn writable(&self) -> io::Result<MutexGuard<'_, Disk>> {
        if self.writable { self.disk() } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl File for FaultyFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let disk = &mut *self.disk()?;
        let what = format_args!("{} {offset}+{}", self.name.display(), buf.len());
        let failure = match disk.begin(DiskOp::Read, what)? {
            Decision::Go => None,
            Decision::Fail(error) => Some((disk.below(buf.len() as u64) as usize, error)),
        };
        let inode = disk.inode(self.inode)?;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        match failure {
            Some((part, error)) => {
                inode.read(buf.get_mut(..part).unwrap_or(&mut []), offset);
                Err(error)
            }
            None if inode.read(buf, offset) < buf.len() => Err(io::ErrorKind::UnexpectedEof.into()),
            None => {
                disk.pass_on(buf);
                Ok(())
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let disk = &mut *self.writable()?;
        let what = format_args!("{} {offset}+{}", self.name.display(), bytes.len());
        let decision = disk.begin(DiskOp::Write, what)?;
        let start = usize::try_from(offset).map_err(too_large)?;
        start.checked_add(bytes.len()).ok_or(()).map_err(too_large)?;
        let len = disk.inode(self.inode)?.len();
        let mut fits = disk.room(len).max(len).saturating_sub(start).min(bytes.len());
        if disk.copies_on_write {
            fits = fits.min(disk.free());
        }
        let (written, result) = match decision {
            // Of a write in a power cut everything may arrive; of a refused one, a part.
            Decision::Fail(error) if disk.off => (fits, Err(error)),
            Decision::Fail(error) => (disk.below(fits as u64 + 1) as usize, Err(error)),
            Decision::Go if fits < bytes.len() => (fits, Err(full())),
            Decision::Go => (fits, Ok(())),
        };
        if let Some(part) = bytes.get(..written).filter(|part| !part.is_empty()) {
            disk.inode(self.inode)?.write(part, start);
        }
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        let disk = &mut *self.disk()?;
        let number = disk.counts.get(&DiskOp::Sync).copied().unwrap_or(0);
        let decision = disk.begin(DiskOp::Sync, format_args!("{}", self.name.display()))?;
        let lie = disk.lies.contains(&number);
        let inode = disk.inodes.get_mut(&self.inode).ok_or(io::ErrorKind::NotFound)?;
        match decision {
            Decision::Fail(error) if disk.off => Err(error),
            Decision::Fail(error) => {
                inode.fail_sync(&disk.random);
                Err(error)
            }
            Decision::Go => {
                if !lie {
                    inode.sync();
                }
                Ok(())
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk()?.inode(self.inode)?.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let disk = &mut *self.writable()?;
        let decision = disk.begin(DiskOp::SetLen, format_args!("{} {len}", self.name.display()))?;
        let len = usize::try_from(len).map_err(too_large)?;
        let old = disk.inode(self.inode)?.len();
        match decision {
            Decision::Fail(error) if !disk.off => Err(error),
            _ if len > old && len > disk.room(old) => Err(full()),
            decision => {
                disk.inode(self.inode)?.set_len(len);
                match decision {
                    Decision::Go => Ok(()),
                    Decision::Fail(error) => Err(error),
                }
            }
        }
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        let disk = &mut *self.disk()?;
        if !disk.maps {
            return Ok(None);
        }
        let mut bytes = disk.inode(self.inode)?.bytes().to_vec();
        disk.pass_on(&mut bytes);
        Ok(Some(Mapping::from_heap(bytes.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(disk: &FaultyVfs, path: &str) -> Arc<dyn File> {
        disk.open(path.as_ref(), OpenMode::CreateNew).unwrap()
    }

    #[test]
    fn a_crash_kills_open_files_and_releases_locks() {
        let disk = FaultyVfs::new(1);
        let file = create(&disk, "/a");
        disk.sync_dir("/".as_ref()).unwrap();
        let old = disk.lock("/LOCK".as_ref(), "pid 1").unwrap();
        assert_eq!(disk.lock("/LOCK".as_ref(), "pid 2").err().unwrap().to_string(), "pid 1");
        disk.crash();
        let _new = disk.lock("/LOCK".as_ref(), "pid 2").unwrap();
        drop(old);
        assert!(disk.lock("/LOCK".as_ref(), "pid 3").is_err(), "the old guard must not release the new lock");
        assert!(file.write_all_at(b"x", 0).is_err() && file.len().is_err());
        assert!(disk.open("/a".as_ref(), OpenMode::Read).is_ok());
    }

    #[test]
    fn a_kill_loses_nothing_and_ends_the_process() {
        let disk = FaultyVfs::new(1);
        let process = disk.process();
        create(&process, "/a").write_all_at(b"unsynced", 0).unwrap();
        disk.kill();
        assert!(
            process.exists("/a".as_ref()).is_err()
                && process.open("/b".as_ref(), OpenMode::CreateNew).is_err()
        );
        assert_eq!(disk.bytes("/a".as_ref()).unwrap(), b"unsynced");
    }

    #[test]
    fn the_power_fails_at_the_planned_operation_and_stays_off() {
        let disk = FaultyVfs::new(1);
        let file = create(&disk, "/a");
        disk.sync_dir("/".as_ref()).unwrap();
        disk.crash_at(disk.operations() + 2);
        file.write_all_at(b"one", 0).unwrap();
        assert!(!disk.is_off());
        file.sync_data().unwrap_err();
        assert!(disk.is_off());
        file.read_exact_at(&mut [0], 0).unwrap_err();
        disk.exists("/a".as_ref()).unwrap_err();
        disk.crash();
        assert!(disk.exists("/a".as_ref()).unwrap());
    }

    #[test]
    fn the_power_fails_at_the_planned_call_of_one_kind() {
        let disk = FaultyVfs::new(1);
        let file = create(&disk, "/a");
        disk.crash_at_call(DiskOp::Sync, 1);
        file.write_all_at(b"one", 0).unwrap();
        file.sync_data().unwrap();
        file.write_all_at(b"two", 0).unwrap();
        file.sync_data().unwrap_err();
        assert!(disk.is_off());
    }

    #[test]
    fn planned_faults_hit_the_call_they_name() {
        let disk = FaultyVfs::new(3);
        let file = create(&disk, "/a");
        disk.fail(DiskOp::Write, 1);
        disk.fail(DiskOp::Sync, 0);
        file.write_all_at(&[1; 64], 0).unwrap();
        file.write_all_at(&[2; 64], 64).unwrap_err();
        assert!(file.len().unwrap() <= 128);
        file.write_all_at(&[2; 64], 64).unwrap();
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        disk.fail(DiskOp::Read, 0);
        file.read_exact_at(&mut [0; 4], 0).unwrap_err();
        assert_eq!((disk.injected(), disk.count(DiskOp::Write)), (3, 3));
    }

    #[test]
    fn a_full_disk_refuses_growth_only() {
        let disk = FaultyVfs::new(1);
        let file = create(&disk, "/a");
        disk.set_space(Some(100));
        file.set_len(60).unwrap();
        file.write_all_at(&[1; 60], 0).unwrap();
        let error = create(&disk, "/b").write_all_at(&[1; 50], 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.used(), 100);
        assert_eq!(file.set_len(61).unwrap_err().kind(), io::ErrorKind::StorageFull);
        disk.remove("/b".as_ref()).unwrap();
        file.set_len(100).unwrap();
    }

    #[test]
    fn overwrites_need_space_on_a_disk_that_copies_on_write() {
        let disk = FaultyVfs::new(1);
        let file = create(&disk, "/a");
        file.write_all_at(&[1; 100], 0).unwrap();
        disk.set_space(Some(140));
        disk.set_copies_on_write(true);
        file.write_all_at(&[2; 40], 0).unwrap();
        assert_eq!(file.write_all_at(&[3; 41], 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        disk.calm();
        file.write_all_at(&[4; 100], 0).unwrap();
    }

    #[test]
    fn open_files_are_limited_until_they_are_closed() {
        let disk = FaultyVfs::new(1);
        let (first, second) = (create(&disk, "/a"), create(&disk, "/b"));
        disk.set_descriptors(Some(2));
        let refused = disk.open("/a".as_ref(), OpenMode::Read).err().unwrap();
        assert_eq!(refused.raw_os_error(), Some(TOO_MANY_OPEN_FILES));
        assert!(disk.sync_dir("/".as_ref()).is_err() && disk.list("/".as_ref()).is_err());
        drop(second);
        let third = disk.open("/a".as_ref(), OpenMode::Read).unwrap();
        assert_eq!(disk.open_files(), 2);
        disk.kill();
        assert_eq!(disk.open_files(), 0);
        drop((first, third));
        assert_eq!(disk.open_files(), 0);
    }

    #[test]
    fn lying_reads_flip_one_bit_and_leave_the_file_intact() {
        let disk = FaultyVfs::new(1);
        let file = create(&disk, "/a");
        file.write_all_at(&[0; 64], 0).unwrap();
        disk.set_faults(Faults { lie: 1, ..Faults::default() });
        disk.set_maps(true);
        let mut read = [0; 64];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        let mapped = file.map().unwrap().unwrap();
        assert_eq!(mapped.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
        assert_eq!(disk.bytes("/a".as_ref()).unwrap(), [0; 64]);
        assert_eq!((disk.bytes_read(), disk.injected()), (128, 2));
    }

    #[test]
    fn lying_sync_loses_bytes_in_a_crash() {
        let lost = (0..50).any(|seed| {
            let disk = FaultyVfs::new(seed);
            let file = create(&disk, "/a");
            disk.sync_dir("/".as_ref()).unwrap();
            disk.lie_about_sync(0);
            file.write_all_at(b"promised", 0).unwrap();
            file.sync_data().unwrap();
            disk.crash();
            disk.bytes("/a".as_ref()).unwrap() != b"promised"
        });
        assert!(lost);
    }

    #[test]
    fn the_same_seed_and_calls_give_the_same_disk() {
        let run = |seed| {
            let disk = FaultyVfs::new(seed);
            disk.set_faults(Faults { write: 3, sync: 3, read: 3, name: 3, lie: 3 });
            for round in 0..20_u8 {
                disk.create_dir_all("/d".as_ref()).ok();
                let name = PathBuf::from(format!("/d/{}", round % 4));
                if let Ok(file) = disk.open(&name, OpenMode::CreateNew) {
                    file.write_all_at(&[round; 3000], 0).ok();
                    file.sync_data().ok();
                }
                disk.sync_dir("/d".as_ref()).ok();
                if round % 7 == 6 {
                    disk.crash();
                }
            }
            let files: Vec<_> = disk.files().into_iter().map(|(path, _)| disk.bytes(&path)).collect();
            (disk.fingerprint(), files)
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5).0, run(6).0);
    }

    #[test]
    fn a_flipped_bit_is_seen_at_once_and_survives() {
        let disk = FaultyVfs::new(1);
        let file = create(&disk, "/a");
        file.write_all_at(&[0; 8], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir("/".as_ref()).unwrap();
        disk.flip_bit("/a".as_ref(), 5, 3).unwrap();
        disk.crash();
        assert_eq!(disk.bytes("/a".as_ref()).unwrap(), [0, 0, 0, 0, 0, 8, 0, 0]);
    }
}
