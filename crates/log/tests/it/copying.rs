//! A part of the log in another directory: complete records, up to one address, while records are appended
//! and trimmed.

use std::path::Path;

use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LogError, TrimGuard};

use crate::help::*;

fn copied(env: &ropewalk_vfs::Env, hold: &dyn TrimGuard, to: &str, from: Lsn, upto: Lsn) -> Seq {
    let to = Path::new(to);
    env.vfs.create_dir_all(to).unwrap();
    let copy = hold.copy_to(to, from, upto).unwrap();
    let names = env.vfs.list(to).unwrap();
    let bytes: usize = names.iter().map(|name| read_file(env, &to.join(name)).len()).sum();
    assert_eq!((copy.files, copy.bytes), (names.len() as u64, bytes as u64));
    copy.seq
}

#[test]
fn copy_of_any_part_opens_with_that_part_and_accepts_appends() {
    let env = memory();
    let log = open(&env).log;
    let mut ends = vec![Lsn::ZERO];
    for seq in 1..=60 {
        ends.push(commit(&log, seq, &payload(seq, (seq as usize * 53) % 700)));
    }
    assert!(log.stats().rolls > 1);
    for (number, (from, upto)) in
        [(0, 0), (0, 60), (7, 7), (7, 8), (20, 41), (59, 60), (60, 60)].into_iter().enumerate()
    {
        let dir = format!("/copy{number}/log");
        let seq = copied(&env, &*log.hold(), &dir, ends[from], ends[upto]);
        assert_eq!(seq, Seq(upto as u64));
        for goes_on in 0..2_u64 {
            let copy = open_from(&env, Path::new(&dir), ends[from], Seq(from as u64)).unwrap();
            let expected: Vec<Commit> = (from as u64 + 1..=upto as u64 + goes_on)
                .map(|seq| (seq, payload(seq, (seq as usize * 53) % 700)))
                .collect();
            assert_eq!((copy.replayed, copy.recovery.cut), (expected, None), "{from}..{upto}");
            assert_eq!(copy.log.identity(), log.identity());
            let next = upto as u64 + goes_on + 1;
            commit(&copy.log, next, &payload(next, (next as usize * 53) % 700));
        }
    }
    assert_eq!(read_all(&log, Lsn::ZERO).len(), 60, "the log is as it was");
}

#[test]
fn a_held_log_is_trimmed_afterwards() {
    let env = memory();
    let log = open(&env).log;
    for seq in 1..=100 {
        commit(&log, seq, &payload(seq, 200));
    }
    let (hold, upto, segments) = (log.hold(), log.durable(), log.stats().segments);
    let tail = commit(&log, 101, b"beside");
    log.trim(tail).unwrap();
    assert_eq!((log.oldest(), log.stats().segments), (Lsn::ZERO, segments));
    assert_eq!(copied(&env, &*hold, "/copy/log", Lsn::ZERO, upto), Seq(100));
    drop(hold);
    log.trim(tail).unwrap();
    assert_eq!(log.stats().segments, 1);
    assert_eq!(open_from(&env, Path::new("/copy/log"), Lsn::ZERO, Seq::ZERO).unwrap().replayed.len(), 100);
    env.vfs.create_dir_all(Path::new("/other")).unwrap();
    let below = log.hold().copy_to(Path::new("/other"), Lsn::ZERO, tail);
    assert!(matches!(below, Err(LogError::Trimmed { oldest }) if oldest == log.oldest()), "{below:?}");
}

#[test]
fn the_last_group_of_a_copy_is_vouched_for() {
    let env = memory();
    let log = open(&env).log;
    let upto = commit(&log, 1, &payload(1, 300));
    copied(&env, &*log.hold(), "/copy/log", Lsn::ZERO, upto);
    let file = Path::new("/copy/log").join("log-0000000000000000.seg");
    flip(&env, &file, 150);
    let error = open_from(&env, Path::new("/copy/log"), Lsn::ZERO, Seq::ZERO).err().unwrap();
    assert!(matches!(error, LogError::Corrupt { offset: 64, .. }), "{error}");
}

#[test]
fn damage_is_found_while_copying() {
    let env = memory();
    let log = open(&env).log;
    let upto = commit(&log, 1, &payload(1, 300));
    flip(&env, &segments(&env)[0], 150);
    env.vfs.create_dir_all(Path::new("/copy")).unwrap();
    let error = log.hold().copy_to(Path::new("/copy"), Lsn::ZERO, upto).unwrap_err();
    assert!(matches!(error, LogError::Corrupt { offset: 64, .. }), "{error}");
}
