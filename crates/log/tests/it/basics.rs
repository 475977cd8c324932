//! Contract of the `CommitLog` trait, one promise per test.

use std::path::Path;

use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LocalLog, LogError, LogOptions, Record};
use ropewalk_vfs::Env;

use crate::help::*;

#[test]
fn three_stages_of_a_record() {
    let env = memory();
    let log = open(&env).log;
    let tail = append(&log, 1, b"hello");
    assert_eq!((tail, log.flushed(), log.durable()), (Lsn(40), Lsn(0), Lsn(0)));
    assert_eq!(read_all(&log, Lsn(0)), [], "a reader sees only what was flushed");
    assert_eq!(log.flush().unwrap(), tail);
    assert_eq!((log.flushed(), log.durable()), (tail, Lsn(0)));
    assert_eq!(read_all(&log, Lsn(0)), [(1, b"hello".to_vec())]);
    assert_eq!(log.barrier().unwrap(), tail);
    assert_eq!(log.durable(), tail);
    assert_eq!((log.stats().syncs, log.stats().appended_bytes), (1, 40));
    assert_eq!(log.barrier().unwrap(), tail);
    assert_eq!(log.stats().syncs, 1, "nothing new, nothing to sync");
}

#[test]
fn reopening_replays_records_after_the_checkpoint() {
    let env = memory();
    let log = open(&env).log;
    let mut tails = vec![Lsn(0)];
    for seq in 1..=300 {
        tails.push(append(&log, seq, &payload(seq, seq as usize)));
    }
    log.barrier().unwrap();
    assert!(log.stats().rolls > 3);
    drop(log);
    for from in [0, 1, 150, 299, 300] {
        let opened = open_from(&env, &dir(), tails[from], Seq(from as u64)).unwrap();
        let expected: Vec<Commit> = (from as u64 + 1..=300).map(|s| (s, payload(s, s as usize))).collect();
        assert_eq!(opened.replayed, expected);
        assert_eq!(opened.log.tail(), tails[300]);
        assert_eq!(opened.recovery.cut, None);
    }
}

#[test]
fn all_or_nothing_under_an_expected_tail() {
    let log = open(&memory()).log;
    let record = |seq| Record { seq: Seq(seq), payload: b"x" };
    let tail = log.append(&[record(1), record(2)], Lsn(0)).unwrap();
    assert!(matches!(log.append(&[record(3)], Lsn(0)), Err(LogError::Fenced { tail: t, .. }) if t == tail));
    let gap = log.append(&[record(3), record(5)], tail);
    assert!(matches!(gap, Err(LogError::OutOfOrder { expected: Seq(4), found: Seq(5) })));
    assert_eq!(log.tail(), tail, "nothing of the refused batch is in the log");
    assert_eq!(log.append(&[], tail).unwrap(), tail);
    log.append(&[record(3)], tail).unwrap();
}

#[test]
fn a_record_over_the_limit_is_refused_whole() {
    let log = open(&memory()).log;
    let max = log.limits().record_bytes_max;
    let huge = vec![0; max as usize + 1];
    let small = Record { seq: Seq(1), payload: b"" };
    let refused = log.append(&[small, Record { seq: Seq(2), payload: &huge }], Lsn(0));
    assert!(matches!(refused, Err(LogError::TooLarge { bytes, max: m }) if bytes == max + 1 && m == max));
    assert_eq!(log.tail(), Lsn(0));
}

#[test]
fn huge_record_gets_a_separate_segment() {
    for before in [0, 1] {
        let env = memory();
        let log = open(&env).log;
        for seq in 1..=before {
            commit(&log, seq, b"before");
        }
        let huge = payload(9, 1_000_000);
        commit(&log, before + 1, &huge);
        commit(&log, before + 2, b"after");
        let expected = |commits: &[Commit]| {
            let (last, rest) = commits.split_last().unwrap();
            assert_eq!(last, &(before + 2, b"after".to_vec()));
            assert!(rest.last().unwrap() == &(before + 1, huge.clone()));
            assert_eq!(commits.len() as u64, before + 2);
        };
        expected(&read_all(&log, Lsn(0)));
        assert_eq!(log.stats().segments, before + 1);
        drop(log);
        expected(&open(&env).replayed);
    }
}

#[test]
fn a_sealed_log_takes_nothing_also_after_reopening() {
    let env = memory();
    let log = open(&env).log;
    commit(&log, 1, b"last words");
    let mut reader = log.read(Lsn(0)).unwrap();
    log.seal().unwrap();
    log.seal().unwrap();
    assert_eq!(log.durable(), log.tail());
    assert_eq!(rest_of(&mut *reader).len(), 1);
    assert_eq!(rest_of(&mut *reader).len(), 0);
    let (tail, sealed_tail) = (log.tail(), log.tail());
    drop(log);
    for (from, seq) in [(Lsn(0), Seq(0)), (Lsn(48), Seq(1)), (sealed_tail, Seq(1))] {
        let log = open_from(&env, &dir(), from, seq).unwrap().log;
        assert_eq!(log.tail(), tail);
        let record = Record { seq: Seq(2), payload: b"" };
        assert!(matches!(log.append(&[record], tail), Err(LogError::Sealed)));
        assert_eq!(log.tail(), tail);
    }
}

#[test]
fn a_reader_follows_the_writer_across_segments() {
    let log = open(&memory()).log;
    let mut reader = log.read(Lsn(0)).unwrap();
    for seq in 1..=200 {
        assert!(reader.next().unwrap().is_none());
        let tail = append(&log, seq, &payload(seq, 100));
        assert!(reader.next().unwrap().is_none(), "not flushed yet");
        log.flush().unwrap();
        let found = reader.next().unwrap().unwrap();
        assert_eq!((found.seq.0, found.payload, found.next), (seq, &payload(seq, 100)[..], tail));
    }
    assert!(log.stats().rolls > 1);
}

#[test]
fn trimmed_segments_are_reused_and_readers_get_an_error() {
    let env = memory();
    let log = open(&env).log;
    let mut slow = log.read(Lsn(0)).unwrap();
    assert!(slow.next().unwrap().is_none());
    let mut tails = vec![];
    for seq in 1..=2000 {
        tails.push(commit(&log, seq, &payload(seq, 100)));
        if seq % 100 == 0 {
            log.trim(tails[seq as usize - 50]).unwrap();
        }
    }
    let stats = log.stats();
    assert!(stats.rolls > 10 && stats.segments + stats.spare_segments <= 4, "{stats:?}");
    let oldest = log.oldest();
    assert!(oldest > Lsn(0));
    let late = std::iter::from_fn(|| Some(slow.next().map(drop))).find_map(Result::err);
    assert!(matches!(late, Some(LogError::Trimmed { oldest: o }) if o == oldest));
    assert!(matches!(log.read(Lsn(0)), Err(LogError::Trimmed { oldest: o }) if o == oldest));
    let (tail, beyond) = (log.tail(), Lsn(log.tail().0 + 8));
    assert!(matches!(log.read(beyond), Err(LogError::Beyond { lsn, tail: t }) if lsn == beyond && t == tail));
    let first = read_all(&log, oldest)[0].0;
    drop(log);
    let opened = open_from(&env, &dir(), tails[1959], Seq(1960)).unwrap();
    assert_eq!(
        opened.replayed.len(),
        40,
        "recycled files hold old records that nobody mistakes for new ones"
    );
    assert_eq!(opened.log.oldest(), oldest);
    assert_eq!(read_all(&opened.log, oldest)[0].0, first);
    assert_eq!(opened.log.stats().spare_segments, stats.spare_segments);
    let below = open_from(&env, &dir(), Lsn(0), Seq(0));
    assert!(matches!(below.err(), Some(LogError::Missing { lsn: Lsn(0), .. })));
}

#[test]
fn trimming_everything_keeps_the_last_segment() {
    let log = open(&memory()).log;
    for seq in 1..=100 {
        commit(&log, seq, &payload(seq, 200));
    }
    log.trim(Lsn::MAX).unwrap();
    assert_eq!(log.stats().segments, 1);
    commit(&log, 101, b"goes on");
}

#[test]
fn a_spare_is_prepared_when_the_segment_is_half_full() {
    let env = memory();
    let log = open(&env).log;
    assert!(!log.prepare_spare().unwrap(), "an empty log needs none");
    commit(&log, 1, &payload(1, 2100));
    assert!(log.prepare_spare().unwrap());
    assert!(!log.prepare_spare().unwrap(), "one is enough");
    assert_eq!(log.stats().spare_segments, 1);
    commit(&log, 2, &payload(2, 3000));
    assert_eq!((log.stats().spare_segments, log.stats().rolls), (0, 1));
    drop(log);
    assert_eq!(open(&env).replayed.len(), 2);
}

#[test]
fn options_that_contradict_themselves_are_refused() {
    let open = |segment_bytes_first, segment_bytes_max| {
        let options = LogOptions { segment_bytes_first, segment_bytes_max, spare_segments_max: 0 };
        LocalLog::open(&memory(), &dir(), options, Lsn(0), Seq(0), &mut |_| Ok(())).map(|_| ())
    };
    assert!(matches!(open(0, 4096), Err(LogError::Options { .. })));
    assert!(matches!(open(5000, 8192), Err(LogError::Options { .. })));
    assert!(matches!(open(8192, 4096), Err(LogError::Options { .. })));
    assert!(open(4096, 4096).is_ok());
}

#[test]
fn failed_replay_of_a_record_stops_the_recovery() {
    let env = memory();
    commit(&open(&env).log, 1, b"what is this");
    let opened = LocalLog::open(&env, &dir(), SMALL, Lsn(0), Seq(0), &mut |_| Err("no idea".into()));
    assert_eq!(opened.err().unwrap().to_string(), "replay of record 1 at log address 0: no idea");
}

#[test]
fn on_a_real_disk() {
    let tmp = tempfile::tempdir().unwrap();
    let (env, dir) = (Env::real(), tmp.path().join("a/log"));
    let log = open_from(&env, &dir, Lsn(0), Seq(0)).unwrap().log;
    let id = log.identity();
    for seq in 1..=200 {
        commit(&log, seq, &payload(seq, 150));
    }
    log.trim(Lsn(20_000)).unwrap();
    let (oldest, tail) = (log.oldest(), log.tail());
    assert!(oldest > Lsn(0));
    let kept = read_all(&log, oldest);
    drop(log);
    let opened = open_from(&env, &dir, oldest, Seq(kept[0].0 - 1)).unwrap();
    assert_eq!(opened.replayed, kept);
    assert_eq!((opened.log.tail(), opened.log.identity()), (tail, id));
    assert!(open_from(&env, Path::new("/proc/nowhere"), Lsn(0), Seq(0)).is_err());
}
