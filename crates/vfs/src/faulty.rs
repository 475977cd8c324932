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

mod calls;
mod disk;
mod file;
mod inode;
mod names;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::{Disk, power_is_off, too_large};
pub use disk::{DiskOp, Faults};

/// The simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct FaultyVfs {
    disk: Arc<Mutex<Disk>>,
    /// Number of the boot after which this handle fails.
    process: Option<u64>,
}

impl FaultyVfs {
    /// An empty disk with the root directory `/`.
    pub fn new(seed: u64) -> Self {
        Self { disk: Arc::new(Mutex::new(Disk::new(seed))), process: None }
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

#[cfg(test)]
mod tests {
    use super::disk::TOO_MANY_OPEN_FILES;
    use super::*;
    use crate::{File, OpenMode, Vfs};

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
