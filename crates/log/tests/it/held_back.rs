//! A log that is held back: its files have what was released, and nothing more.

use proptest::prelude::*;
use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, Record};

use crate::help::*;

/// The commits that a restart finds, and where the log ends then.
fn found(env: &ropewalk_vfs::Env) -> (Vec<Commit>, Lsn) {
    let opened = open(&copy(env));
    (opened.replayed, opened.log.tail())
}

#[test]
fn held_back_records_reach_no_file_before_their_release() {
    let env = memory();
    let log = open(&env).log;
    commit(&log, 1, b"before");
    log.hold_back();
    let first = append(&log, 2, &payload(2, 6000));
    let second = append(&log, 3, &payload(3, 6000));
    let (files, before) = (segments(&env), log.durable());
    assert_eq!((log.flush().unwrap(), log.barrier().unwrap()), (before, before));
    assert_eq!(
        log.write_durable_mark(log.tail()).unwrap(),
        second,
        "no mark after records that are held back"
    );
    assert_eq!((log.flushed(), log.durable(), segments(&env)), (before, before, files));
    assert_eq!(found(&env).0, [(1, b"before".to_vec())]);
    // One of two records that are in the buffer, in a separate segment.
    log.release(first);
    assert_eq!(log.flush().unwrap(), first);
    assert_eq!(found(&env), (vec![(1, b"before".to_vec()), (2, payload(2, 6000))], first));
    log.release(second);
    assert_eq!(log.barrier().unwrap(), second);
    let marked = log.write_durable_mark(second).unwrap();
    assert!(marked > second);
    assert_eq!(found(&env).1, marked);
    // The mark did not open the way for what comes after it.
    append(&log, 4, b"after");
    assert_eq!(log.barrier().unwrap(), marked);
}

#[test]
fn seal_of_a_log_without_held_back_records_is_durable() {
    let env = memory();
    let log = open(&env).log;
    log.hold_back();
    log.release(append(&log, 1, b"a"));
    log.seal().unwrap();
    let other = copy(&env);
    assert!(open(&other).log.append(&[], Lsn(0)).is_err());
    assert_eq!(open(&other).replayed, [(1, b"a".to_vec())]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn files_have_exactly_what_was_released(steps in prop::collection::vec((0..6_u8, 0..5000_usize), 1..40)) {
        let env = memory();
        let log = open(&env).log;
        log.hold_back();
        let (mut commits, mut ends, mut released): (Vec<Commit>, Vec<Lsn>, usize) = (vec![], vec![], 0);
        for (step, length) in steps {
            match step {
                0 | 1 => {
                    let seq = commits.len() as u64 + 1;
                    let payload = payload(seq, length);
                    let record = Record { seq: Seq(seq), payload: &payload };
                    ends.push(log.append(&[record], log.tail()).unwrap());
                    commits.push((seq, payload));
                }
                2 => {
                    released += (commits.len() - released) * length / 5000;
                    released.checked_sub(1).map(|last| log.release(ends[last])).unwrap_or_default();
                }
                3 => drop(log.flush().unwrap()),
                4 => drop(log.barrier().unwrap()),
                // Addresses move by the mark.
                _ => {
                    let marked = log.write_durable_mark(log.tail()).unwrap();
                    ends.last_mut().map(|end| *end = marked).unwrap_or_default();
                }
            }
            let on_disk = found(&env).0;
            prop_assert!(on_disk.len() <= released);
            prop_assert_eq!(&on_disk[..], &commits[..on_disk.len()]);
        }
        log.barrier().unwrap();
        prop_assert_eq!(&found(&env).0[..], &commits[..released]);
    }
}
