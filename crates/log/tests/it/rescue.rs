//! Salvage: which commits remain, what is reported, and that every byte is preserved.

use std::path::PathBuf;

use proptest::prelude::*;
use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LogError, inspect, salvage};
use ropewalk_vfs::Env;

use crate::disk::Disk;
use crate::help::*;

const RECORD: u64 = 56;
/// Records of 24 bytes that fit the first segment of 4096 bytes.
const FIRST: u64 = 72;

fn filled(env: &Env, n: u64) -> Vec<PathBuf> {
    let log = open(env).log;
    for seq in 1..=n {
        commit(&log, seq, &payload(seq, 24));
    }
    segments(env)
}

fn commits(range: std::ops::RangeInclusive<u64>) -> Vec<Commit> {
    range.map(|seq| (seq, payload(seq, 24))).collect()
}

fn at(record: u64) -> u64 {
    64 + (record - 1) * RECORD
}

fn save(env: &Env) -> ropewalk_log::Damage {
    let told = inspect(env, &dir(), Lsn(0), Seq(0), None).unwrap().expect("damage");
    let done = salvage(env, &dir(), Lsn(0), Seq(0), None).unwrap().expect("damage");
    assert_eq!(told, ropewalk_log::Damage { set_aside: vec![], ..done.clone() });
    assert_eq!(salvage(env, &dir(), Lsn(0), Seq(0), None).unwrap(), None, "done once");
    done
}

#[test]
fn a_log_that_opens_is_left_alone() {
    let env = memory();
    drop(open(&env));
    assert_eq!(inspect(&env, &dir(), Lsn(0), Seq(0), None).unwrap(), None);
    filled(&env, 100);
    assert_eq!(salvage(&env, &dir(), Lsn(0), Seq(0), None).unwrap(), None);
    assert_eq!(open(&env).replayed, commits(1..=100));
}

#[test]
fn corruption_in_the_middle_preserves_earlier_records_and_counts_later_ones() {
    let env = memory();
    let paths = filled(&env, 100);
    flip(&env, &paths[0], at(10) + 40);
    flip(&env, &paths[0], at(11) + 3);
    flip(&env, &paths[1], at(5));
    let damaged = read_file(&env, &paths[0]);
    let done = save(&env);
    assert_eq!(done.refusal, "/db/log/log-0000000000000000.seg at byte 568: record checksum mismatch");
    assert_eq!((done.tail, done.seq), (Lsn(9 * RECORD), Seq(9)));
    assert_eq!(done.unreadable, [10..=11, 77..=77]);
    assert_eq!(done.cut_off, 100 - 9 - 3);
    assert_eq!(done.set_aside.len(), 2);
    assert_eq!(read_file(&env, &done.set_aside[0]), damaged, "kept as it was");
    let opened = open(&env);
    assert_eq!(opened.replayed, commits(1..=9));
    commit(&opened.log, 10, b"a new tenth");
    drop(opened);
    assert_eq!(open(&env).replayed.len(), 10);
}

#[test]
fn corrupted_segment_header_loses_nothing() {
    for (segment, offset) in [(0, 33), (0, 8 + 3), (1, 60), (1, 20), (0, 2)] {
        let env = memory();
        let paths = filled(&env, 100);
        let id = open(&env).log.identity();
        flip(&env, &paths[segment], offset);
        if offset == 8 + 3 {
            let refused = salvage(&env, &dir(), Lsn(0), Seq(0), None);
            assert!(
                matches!(refused, Err(LogError::Future { .. })),
                "what a newer version wrote is not damage"
            );
            continue;
        }
        let done = save(&env);
        assert_eq!((done.seq, done.cut_off, done.unreadable.len()), (Seq(100), 0, 0));
        let opened = open(&env);
        assert_eq!((opened.replayed, opened.log.identity()), (commits(1..=100), id));
    }
}

#[test]
fn corrupted_only_header_loses_no_record() {
    let env = memory();
    let paths = filled(&env, 10);
    flip(&env, &paths[0], 50);
    assert_eq!(save(&env).seq, Seq(10));
    assert_eq!(open(&env).replayed, commits(1..=10));
}

#[test]
fn a_truncated_or_lost_segment() {
    let env = memory();
    let paths = filled(&env, 600);
    let bytes = read_file(&env, &paths[1]);
    write_file(&env, &paths[1], &bytes[..at(5) as usize + 10]);
    let done = save(&env);
    assert_eq!(done.seq, Seq(FIRST + 4));
    assert_eq!(open(&env).replayed, commits(1..=FIRST + 4));

    let env = memory();
    let paths = filled(&env, 600);
    env.vfs.remove(&paths[1]).unwrap();
    let done = save(&env);
    assert_eq!(done.seq, Seq(FIRST));
    assert_eq!(done.unreadable, [FIRST + 1..=FIRST + 145]);
    assert_eq!(open(&env).replayed, commits(1..=FIRST));

    let env = memory();
    let paths = filled(&env, 600);
    env.vfs.remove(&paths[0]).unwrap();
    let done = save(&env);
    assert_eq!((done.seq, done.cut_off), (Seq(0), 600 - FIRST));
    assert_eq!(open(&env).replayed, []);
}

#[test]
fn corruption_before_the_checkpoint_loses_nothing() {
    let env = memory();
    let paths = filled(&env, 600);
    // The checkpoint lies in the second segment, after record 80; corrupt its records up to there, and the
    // last record.
    let (from, seq) = (Lsn(80 * RECORD), Seq(80));
    flip(&env, &paths[1], at(3) + 5);
    flip(&env, paths.last().unwrap(), 64 + 8);
    let last = segments(&env).len() as u64;
    assert!(last > 3);
    let done = salvage(&env, &dir(), from, seq, None).unwrap().unwrap();
    let opened = open_from(&env, &dir(), from, seq).unwrap();
    assert_eq!(opened.replayed, commits(81..=done.seq.0));
    assert!(done.seq > Seq(400), "everything up to the last segment");
    assert_eq!(opened.log.oldest(), from);
    assert_eq!(read_all(&opened.log, from), opened.replayed);
}

#[test]
fn an_interrupted_salvage_starts_again() {
    for n in 0..60 {
        let disk = Disk::default();
        let paths = filled(&disk.env(), 600);
        flip(&disk.env(), &paths[1], at(7) + 8);
        let disk = disk.crash(0, 256);
        disk.fail_in(n);
        let first = salvage(&disk.env(), &dir(), Lsn(0), Seq(0), None);
        if first.is_ok() {
            assert!(n > 8);
            return;
        }
        for keep in [0, 128, 256] {
            let disk = disk.crash(u64::from(n), keep);
            salvage(&disk.env(), &dir(), Lsn(0), Seq(0), None).unwrap();
            assert_eq!(open(&disk.env()).replayed, commits(1..=FIRST + 6), "{n} {keep}");
        }
    }
    panic!("salvage never ended");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    /// After any corruption and a salvage the log opens with the commits up to the first unreadable one, and
    /// accepts appends.
    #[test]
    fn salvage_always_ends_with_a_log_that_opens(
        lengths in prop::collection::vec(0..400_usize, 1..80),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..5),
        checkpoint in any::<prop::sample::Index>(),
    ) {
        let env = memory();
        let log = open(&env).log;
        let mut tails = vec![Lsn(0)];
        for (seq, length) in (1..).zip(&lengths) {
            tails.push(commit(&log, seq, &payload(seq, *length)));
        }
        let checkpoint = checkpoint.index(tails.len());
        let (from, seq) = (tails[checkpoint], Seq(checkpoint as u64));
        let paths = segments(&env);
        for (file, offset) in &flips {
            let path = file.get(&paths);
            let offset = offset.index(read_file(&env, path).len()) as u64;
            // The version is left alone: salvage refuses formats of a newer Ropewalk.
            if !(8..12).contains(&offset) {
                flip(&env, path, offset);
            }
        }
        let done = salvage(&env, &dir(), from, seq, None).unwrap();
        let opened = open_from(&env, &dir(), from, seq).unwrap();
        let kept = checkpoint + opened.replayed.len();
        if let Some(damage) = done {
            prop_assert_eq!((damage.tail, damage.seq), (tails[kept], Seq(kept as u64)));
            let told: u64 = damage.unreadable.iter().map(|r| r.end() - r.start() + 1).sum();
            prop_assert!(kept as u64 + told + damage.cut_off <= lengths.len() as u64);
        }
        for (index, (seq, bytes)) in (checkpoint..).zip(&opened.replayed) {
            prop_assert_eq!((*seq, bytes), (index as u64 + 1, &payload(*seq, lengths[index])));
        }
        commit(&opened.log, kept as u64 + 1, b"life goes on");
        drop(opened);
        prop_assert_eq!(checkpoint + open_from(&env, &dir(), from, seq).unwrap().replayed.len(), kept + 1);
    }
}

#[test]
fn cut_before_any_commit_keeps_exactly_the_commits_before_it() {
    // The first segment holds 72 records, so these are inside a segment, at its last, and at the next one's first.
    for before in [1, 2, 40, FIRST, FIRST + 1, FIRST + 2, 200] {
        let env = memory();
        filled(&env, 200);
        let done = salvage(&env, &dir(), Lsn(0), Seq(0), Some(Seq(before))).unwrap().expect("a cut");
        assert_eq!((done.seq, done.cut_off), (Seq(before - 1), 200 - (before - 1)), "before {before}");
        let opened = open(&env);
        assert_eq!(opened.replayed, commits(1..=before - 1), "before {before}");
        commit(&opened.log, before, b"a new one");
        drop(opened);
        assert_eq!(open(&env).replayed.len() as u64, before);
        assert_eq!(inspect(&env, &dir(), Lsn(0), Seq(0), Some(Seq(before + 1))).unwrap(), None);
    }
    let env = memory();
    filled(&env, 10);
    let refused = inspect(&env, &dir(), Lsn(5 * RECORD), Seq(5), Some(Seq(5))).unwrap_err();
    assert!(matches!(refused, LogError::Checkpointed { .. }), "{refused}");
}
