//! Appending, flushing, syncing and reading at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LogError, Record};
use ropewalk_vfs::{Env, File, LockGuard, Mapping, MemoryVfs, OpenMode, Vfs};

use crate::help::*;

/// Counts a thread that ended, however it did.
struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn concurrent_commits_form_one_sequence() {
    let tmp = tempfile::tempdir().unwrap();
    let env = Env::real();
    let log = Arc::new(open_from(&env, tmp.path(), Lsn(0), Seq(0)).unwrap().log);
    const EACH: u64 = 300;
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|thread| {
                let (log, done) = (&log, &done);
                scope.spawn(move || {
                    let _counted = Counted(done);
                    for n in 0..EACH {
                        // The tail and the next number are guessed; a fence tells the loser.
                        let tail = loop {
                            let tail = log.tail();
                            let seq = Seq(tail.0 / 56 + 1);
                            match log.append(&[Record { seq, payload: &payload(seq.0, 24) }], tail) {
                                Ok(tail) => break tail,
                                Err(LogError::Fenced { .. }) => continue,
                                Err(error) => panic!("{error}"),
                            }
                        };
                        match (n + thread) % 3 {
                            0 => assert!(log.barrier().unwrap() >= tail && log.durable() >= tail),
                            _ => assert!(log.flush().unwrap() >= tail && log.flushed() >= tail),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while done.load(Ordering::Relaxed) < 4 {
                log.prepare_spare().unwrap();
                std::thread::yield_now();
            }
        });
        let mut reader = log.read(Lsn(0)).unwrap();
        for seq in 1..=4 * EACH {
            let found = loop {
                let ended = writers.iter().all(|writer| writer.is_finished());
                if let Some(found) = reader.next().unwrap() {
                    break (found.seq.0, found.payload.to_vec());
                }
                assert!(!ended, "commit {seq} was appended and flushed but never read");
                std::thread::yield_now();
            };
            assert_eq!(found, (seq, payload(seq, 24)));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    assert_eq!(log.flush().unwrap(), log.tail());
    drop(log);
    assert_eq!(open_from(&env, tmp.path(), Lsn(0), Seq(0)).unwrap().replayed.len() as u64, 4 * EACH);
}

/// Reports that a sync was entered, and blocks it until it may continue.
type Gate = Arc<Mutex<Option<(Sender<()>, Receiver<()>)>>>;

/// A memory disk whose syncs, once armed, report and wait for permission.
struct SlowSync {
    disk: MemoryVfs,
    gate: Gate,
}

struct SlowFile(Arc<dyn File>, Gate);

impl Vfs for SlowSync {
    fn open(&self, path: &std::path::Path, mode: OpenMode) -> std::io::Result<Arc<dyn File>> {
        Ok(Arc::new(SlowFile(self.disk.open(path, mode)?, self.gate.clone())))
    }
    fn list(&self, dir: &std::path::Path) -> std::io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn create_dir_all(&self, dir: &std::path::Path) -> std::io::Result<()> {
        self.disk.create_dir_all(dir)
    }
    fn exists(&self, path: &std::path::Path) -> std::io::Result<bool> {
        self.disk.exists(path)
    }
    fn rename(&self, from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &std::path::Path) -> std::io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_dir(&self, dir: &std::path::Path) -> std::io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn lock(&self, path: &std::path::Path, holder: &str) -> std::io::Result<Box<dyn LockGuard>> {
        self.disk.lock(path, holder)
    }
}

impl File for SlowFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        if let Some((entered, leave)) = self.1.lock().take() {
            entered.send(()).unwrap();
            leave.recv().unwrap();
        }
        self.0.sync_data()
    }
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn map(&self) -> std::io::Result<Option<Mapping>> {
        self.0.map()
    }
}

#[test]
fn the_next_group_forms_and_is_flushed_while_one_syncs() {
    let gate = Arc::new(Mutex::new(None));
    let env = env_on(Arc::new(SlowSync { disk: MemoryVfs::default(), gate: gate.clone() }));
    let log = open(&env).log;
    let first = append(&log, 1, b"first group");
    let ((entered, has_entered), (may_leave, leave)) = (channel(), channel());
    *gate.lock() = Some((entered, leave));
    std::thread::scope(|scope| {
        let barrier = scope.spawn(|| log.barrier().unwrap());
        has_entered.recv().unwrap();
        // The barrier is inside its sync and stays there until the last line of this block.
        let second = append(&log, 2, b"second group");
        assert_eq!((log.flush().unwrap(), log.flushed()), (second, second));
        assert_eq!(log.durable(), Lsn(0));
        assert_eq!(read_all(&log, Lsn(0)).len(), 2);
        may_leave.send(()).unwrap();
        assert_eq!(barrier.join().unwrap(), first);
    });
    assert_eq!(log.barrier().unwrap(), log.tail());
}
