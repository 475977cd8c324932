//! A simulated disk and clock whose calls are places where the scheduler may switch threads.

use core::time::Duration;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ropewalk_base::sync::hint_switch;
use ropewalk_vfs::{
    Clock, Env, FaultyVfs, File, LockGuard, ManualClock, Mapping, OpenMode, SeededRandom, Vfs,
};

/// The environment of a process that starts now on `disk`.
pub(super) fn process(disk: &FaultyVfs, seed: u64) -> Env {
    Env {
        vfs: Arc::new(Switching(disk.process())),
        clock: Arc::new(Ticking(ManualClock::default())),
        random: Arc::new(SeededRandom::new(seed)),
    }
}

struct Switching(FaultyVfs);

impl Vfs for Switching {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        hint_switch();
        Ok(Arc::new(SwitchingFile(self.0.open(path, mode)?)))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.create_dir_all(dir)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        hint_switch();
        self.0.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        hint_switch();
        self.0.hard_link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        hint_switch();
        self.0.remove(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        hint_switch();
        self.0.sync_dir(dir)
    }
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Box<dyn LockGuard>> {
        self.0.lock(path, holder)
    }
}

struct SwitchingFile(Arc<dyn File>);

impl File for SwitchingFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        hint_switch();
        self.0.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        hint_switch();
        self.0.write_all_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        hint_switch();
        self.0.sync_data()?;
        // Code after the sync must tolerate changes made meanwhile.
        hint_switch();
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        hint_switch();
        self.0.set_len(len)
    }
    fn map(&self) -> io::Result<Option<Mapping>> {
        self.0.map()
    }
}

/// A millisecond passes with each reading of the clock, so that each deadline comes.
struct Ticking(ManualClock);

impl Clock for Ticking {
    fn wall_micros(&self) -> i64 {
        self.0.wall_micros()
    }
    fn monotonic_nanos(&self) -> u64 {
        self.0.advance(Duration::from_millis(1));
        self.0.monotonic_nanos()
    }
    fn sleep(&self, duration: Duration) {
        hint_switch();
        self.0.advance(duration);
    }
}
