//! Failures of the disk.

use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LogError, Record};

use crate::disk::Disk;
use crate::help::*;

#[test]
fn after_a_failed_sync_nothing_is_accepted_until_reopened() {
    let disk = Disk::default();
    let log = open(&disk.env()).log;
    let first = commit(&log, 1, b"durable");
    append(&log, 2, b"doubtful");
    disk.fail_in(1);
    let error = log.barrier().unwrap_err();
    assert!(matches!(error, LogError::Io { op: "sync", .. }));
    assert_eq!(log.durable(), first);
    let stopped = "the log has stopped, reopen to recover: \
                   sync /db/log/log-0000000000000000.seg: planted failure";
    let tail = log.tail();
    let append = log.append(&[Record { seq: Seq(3), payload: b"" }], tail);
    for error in
        [append, log.flush(), log.barrier(), log.seal().map(|()| Lsn(0)), log.trim(tail).map(|()| tail)]
    {
        assert_eq!(error.unwrap_err().to_string(), stopped);
    }
    assert_eq!(read_all(&log, Lsn(0)).len(), 2, "reading goes on");
    drop(log);
    // The pages of the second commit count as clean in the page cache now, though the disk never got them.
    let opened = open(&disk.env());
    assert_eq!(opened.replayed.len(), 2);
    let after_power_cut = open(&disk.crash(1, 0).env());
    assert_eq!(after_power_cut.replayed.len(), 2, "what was replayed was made durable");
}

#[test]
fn after_a_failed_write_nothing_is_accepted_until_reopened() {
    let disk = Disk::default();
    let log = open(&disk.env()).log;
    commit(&log, 1, b"whole");
    append(&log, 2, &payload(2, 1000));
    disk.fail_in(0);
    assert!(matches!(log.flush(), Err(LogError::Io { op: "write", .. })));
    assert!(matches!(log.barrier(), Err(LogError::Stopped { .. })));
    assert_eq!(read_all(&log, Lsn(0)).len(), 1, "half a record is not flushed");
    drop(log);
    let opened = open(&disk.env());
    assert_eq!(opened.replayed.len(), 1);
    assert!(opened.recovery.cut.is_some());
}

#[test]
fn a_full_disk_stops_the_roll_and_loses_nothing_that_was_flushed() {
    let disk = Disk::default();
    let log = open(&disk.env()).log;
    disk.set_room(Some(3000));
    let mut flushed = 0;
    let error = loop {
        append(&log, flushed + 1, &payload(flushed + 1, 500));
        match log.barrier() {
            Ok(_) => flushed += 1,
            Err(error) => break error,
        }
    };
    let LogError::Io { op, source, .. } = &error else { panic!("{error}") };
    assert_eq!((*op, source.kind()), ("preallocate", std::io::ErrorKind::StorageFull));
    assert_eq!(flushed, 7);
    assert!(matches!(log.flush(), Err(LogError::Stopped { .. })));
    drop(log);
    disk.set_room(None);
    assert_eq!(open(&disk.env()).replayed.len() as u64, flushed);
}

#[test]
fn a_full_disk_while_preparing_is_only_a_warning() {
    let disk = Disk::default();
    let log = open(&disk.env()).log;
    commit(&log, 1, &payload(1, 3000));
    disk.set_room(Some(100));
    assert!(matches!(log.prepare_spare(), Err(LogError::Io { .. })));
    commit(&log, 2, b"goes on while there is room in the segment");
    disk.set_room(None);
    assert!(log.prepare_spare().unwrap());
    drop(log);
    assert_eq!(open(&disk.env()).replayed.len(), 2);
}

/// Commits until operation `point` of the disk fails, with several rolls on the way; returns the last acknowledged commit.
fn commit_until_failure(disk: &Disk, point: u32) -> u64 {
    let log = open(&disk.env()).log;
    disk.fail_in(point);
    for seq in 1..=30 {
        append(&log, seq, &payload(seq, 1500));
        if log.barrier().is_err() {
            return seq - 1;
        }
    }
    30
}

#[test]
fn power_cut_after_reopening_a_failed_roll_keeps_acknowledged_commits() {
    for point in 0.. {
        let disk = Disk::default();
        let acknowledged = commit_until_failure(&disk, point);
        if disk.disarm() {
            assert!(point > 50, "the commits cross several segments: {point}");
            return;
        }
        let opened = open(&disk.env());
        let last = opened.replayed.len() as u64 + 1;
        assert!(last > acknowledged, "commit {acknowledged} was acknowledged");
        commit(&opened.log, last, b"acknowledged after the reopening");
        drop(opened);
        for (seed, keep) in [(1, 0), (2, 128), (3, 128), (4, 256)] {
            let after = open(&disk.crash(seed, keep).env()).replayed.len() as u64;
            assert_eq!(after, last, "failure of operation {point}, {keep} of 256 unsynced changes kept");
        }
    }
}
