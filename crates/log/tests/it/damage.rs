//! Torn or corrupted: what recovery cuts, what it refuses, and the error texts.

use std::path::PathBuf;

use proptest::prelude::*;
use ropewalk_base::{Lsn, Seq};
use ropewalk_log::{CommitLog, LogError, Record, format, inspect, salvage};
use ropewalk_vfs::{Env, OpenMode};

use crate::help::*;

const RECORD: u64 = 32 + 24;
const HEADER: u64 = 64;

/// A log of `n` synced commits of 24 bytes.
fn synced(n: u64) -> Env {
    let env = memory();
    let log = open(&env).log;
    for seq in 1..=n {
        commit(&log, seq, &payload(seq, 24));
    }
    env
}

fn commits(n: u64) -> Vec<Commit> {
    (1..=n).map(|seq| (seq, payload(seq, 24))).collect()
}

fn only_segment(env: &Env) -> PathBuf {
    segments(env).pop().unwrap()
}

/// The bytes of the `n`th record (from 1) of 24 bytes.
fn record(env: &Env, n: u64) -> Vec<u8> {
    let at = (HEADER + (n - 1) * RECORD) as usize;
    read_file(env, &only_segment(env))[at..at + RECORD as usize].to_vec()
}

fn put(env: &Env, n: u64, bytes: &[u8]) {
    let file = env.vfs.open(&only_segment(env), OpenMode::ReadWrite).unwrap();
    file.write_all_at(bytes, HEADER + (n - 1) * RECORD).unwrap();
}

#[test]
fn every_flipped_byte_is_damage_or_lies_in_the_unclaimed_tail() {
    // Two segments: the first one is full, and its successor proves that all of it was durable.
    let original = synced(100);
    let paths = segments(&original);
    assert_eq!(paths.len(), 2);
    for (path, last) in paths.iter().zip([false, true]) {
        let records = if last { 100 - 72 } else { 72 };
        for offset in 0..read_file(&original, path).len() as u64 {
            let env = copy(&original);
            flip(&env, path, offset);
            let tail_record = HEADER + (records - 1) * RECORD;
            match open_from(&env, &dir(), Lsn(0), Seq(0)) {
                Ok(opened) if offset >= HEADER + records * RECORD => {
                    assert_eq!((opened.replayed, opened.recovery.cut), (commits(100), None), "{offset}");
                }
                Ok(opened) => {
                    assert!(last && offset >= tail_record, "{offset} was claimed");
                    assert_eq!(opened.replayed, commits(99));
                }
                Err(LogError::Foreign { offset: 0, .. }) => assert!(offset < 8),
                Err(LogError::Future { offset: 8, .. }) => assert!((8..12).contains(&offset)),
                Err(LogError::Corrupt { path: p, offset: at, .. }) => {
                    let expected = offset.checked_sub(HEADER).map_or(0, |o| HEADER + o / RECORD * RECORD);
                    assert_eq!((&p, at), (path, expected), "{offset}");
                    assert!(offset < tail_record || !last);
                }
                Err(error) => panic!("{offset}: {error}"),
            }
        }
    }
}

#[test]
fn a_file_that_was_cut_short_is_damage_wherever_it_ends() {
    let original = synced(100);
    for path in segments(&original) {
        let bytes = read_file(&original, &path);
        for length in (0..bytes.len()).step_by(24) {
            let env = copy(&original);
            write_file(&env, &path, &bytes[..length]);
            match open_from(&env, &dir(), Lsn(0), Seq(0)).err() {
                Some(LogError::Corrupt { path: p, offset, .. }) => {
                    assert_eq!((&p, offset), (&path, length as u64))
                }
                other => panic!("{length}: {other:?}"),
            }
        }
    }
}

#[test]
fn unsynced_records_that_arrived_out_of_order_are_cut() {
    // Three groups, written but never synced; every subset of them may have reached the disk.
    for subset in 0..8_u64 {
        let env = synced(5);
        {
            let log = open(&env).log;
            for seq in 6..=8 {
                append(&log, seq, &payload(seq, 24));
                log.flush().unwrap();
            }
        }
        for lost in (0..3).filter(|n| subset & (1 << n) == 0) {
            put(&env, 6 + lost, &[0; RECORD as usize]);
        }
        let whole = u64::from(subset.trailing_ones());
        let opened = open(&env);
        assert_eq!(opened.replayed, commits(5 + whole));
        assert_eq!(opened.recovery.cut.is_some(), subset >> whole != 0, "{subset:b}");
    }
}

#[test]
fn a_torn_record_is_cut_at_any_byte() {
    for kept in 0..RECORD as usize {
        let env = synced(5);
        let torn = record(&env, 5);
        put(&env, 5, &[&torn[..kept], &vec![0; RECORD as usize - kept]].concat());
        let opened = open(&env);
        assert_eq!(opened.replayed, commits(4));
        if kept >= 16 {
            let cut = opened.recovery.cut.unwrap();
            assert_eq!((cut.path, cut.offset), (only_segment(&env), HEADER + 4 * RECORD));
        }
        assert_eq!(open(&env).recovery.cut, None, "the cut is done once");
    }
}

#[test]
fn records_after_a_lost_one_do_not_reappear() {
    let env = synced(5);
    {
        let log = open(&env).log;
        for seq in 6..=8 {
            append(&log, seq, &payload(seq, 24));
        }
        log.flush().unwrap();
    }
    // The crash lost 6; 7 and 8 are there, whole, and would follow any new record of 6's length.
    put(&env, 6, &[0; RECORD as usize]);
    let log = open(&env).log;
    assert_eq!(log.tail(), Lsn(5 * RECORD));
    commit(&log, 6, &[6; 24]);
    let opened = open(&copy(&env));
    assert_eq!(opened.replayed.len(), 6);
    assert_eq!(opened.replayed[5], (6, vec![6; 24]));
}

#[test]
fn a_lost_record_below_a_claim_is_damage_not_a_torn_tail() {
    let env = synced(5);
    put(&env, 3, &[0; RECORD as usize]);
    let text = refusal(&env);
    assert_eq!(text, "/db/log/log-0000000000000000.seg at byte 176: the record's address is not its own");
    assert_eq!(refusal(&env), text, "refusing changes nothing");
}

#[test]
fn a_full_segment_is_vouched_for_by_its_successor() {
    let env = synced(73);
    let [first, second] = &segments(&env)[..] else { panic!("two segments") };
    // The last record of the first segment: no record after it in that file.
    flip(&env, first, HEADER + 71 * RECORD + 40);
    assert!(refusal(&env).contains("log-0000000000000000.seg at byte 4040: record checksum mismatch"));
    env.vfs.remove(second).unwrap();
    assert_eq!(open(&env).replayed, commits(71), "without the successor it is a torn tail");
}

#[test]
fn files_that_are_not_ours_are_named() {
    let env = synced(73);
    let [first, second] = &segments(&env)[..] else { panic!("two segments") };
    let with_header = |change: fn(&mut format::SegmentHeader)| {
        let env = copy(&env);
        let mut bytes = read_file(&env, second);
        let mut header = format::SegmentHeader::decode(bytes.first_chunk().unwrap()).unwrap();
        change(&mut header);
        bytes[..64].copy_from_slice(&header.encode());
        write_file(&env, second, &bytes);
        refusal(&env)
    };
    assert!(with_header(|h| h.id.0[3] ^= 1).ends_with(".seg at byte 16: the segment belongs to another log"));
    assert!(with_header(|h| h.start.0 += 8).ends_with("disagrees with the file's name"));
    assert!(
        with_header(|h| h.seq.0 += 1).ends_with("at byte 40: the segment does not continue the one before")
    );
    assert!(with_header(|h| h.bytes += 1).ends_with("the file is shorter than its header says"));

    let future = copy(&env);
    let mut bytes = read_file(&future, first);
    bytes[8] = 2;
    write_file(&future, first, &bytes);
    let text =
        "log-0000000000000000.seg at byte 8: format version 2 is from the future, this build reads up to 1";
    assert!(refusal(&future).ends_with(text));

    let foreign = copy(&env);
    write_file(&foreign, first, &[b'#'; 4096]);
    assert!(refusal(&foreign).ends_with("log-0000000000000000.seg at byte 0: not a Ropewalk log segment"));

    write_file(&env, &dir().join("notes.txt"), b"not ours, not touched");
    assert_eq!(open(&env).replayed.len(), 73);
    assert!(env.vfs.exists(&dir().join("notes.txt")).unwrap());
}

#[test]
fn a_missing_segment_is_named_by_its_address() {
    let env = synced(600);
    let paths = segments(&env);
    assert!(paths.len() > 3);
    let without = |n: usize| {
        let env = copy(&env);
        env.vfs.remove(&paths[n]).unwrap();
        refusal(&env)
    };
    assert_eq!(without(0), "/db/log: no segment holds log address 0");
    assert_eq!(without(1), "/db/log: no segment holds log address 4032");
    let empty = memory();
    let opened = open_from(&empty, &dir(), Lsn(56), Seq(1));
    assert!(matches!(opened.err(), Some(LogError::Missing { lsn: Lsn(56), .. })));
}

#[test]
fn a_checkpoint_that_the_log_does_not_reach_is_refused() {
    let refusal =
        |env: &Env, from, seq| open_from(env, &dir(), Lsn(from), Seq(seq)).err().unwrap().to_string();
    let env = synced(5);
    assert!(open_from(&env, &dir(), Lsn(5 * RECORD), Seq(5)).is_ok());
    assert!(refusal(&env, 5 * RECORD, 4).ends_with("the checkpoint's number is not the log's"));
    assert!(refusal(&env, 6 * RECORD, 6).ends_with("the log breaks off before the checkpoint"));
    assert!(refusal(&env, 2 * RECORD, 3).ends_with("the record's number does not continue the log"));
    assert!(refusal(&env, 1 << 20, 9).ends_with("no segment holds log address 1048576"));
    // Corruption of the last record is not a torn tail when a checkpoint proves that it was there.
    flip(&env, &only_segment(&env), HEADER + 4 * RECORD + 33);
    assert!(refusal(&env, 5 * RECORD, 5).ends_with("at byte 288: the log breaks off before the checkpoint"));
    assert!(refusal(&env, 4 * RECORD + 8, 4).contains("the log breaks off"));
}

#[test]
fn a_payload_cannot_pass_for_a_record() {
    // A client stores bytes that are a perfect record of this format at the address where they will lie, claiming that
    // everything before was durable. It cannot know the log's id, which is part of every checksum.
    let env = synced(1);
    let at = RECORD + 32;
    let mut fake = Vec::new();
    let seed = format::checksum_seed(ropewalk_log::LogId([0; 16]));
    format::encode_record(&mut fake, seed, format::Kind::Commit, Lsn(at), Seq(9), Lsn(at), b"trust me");
    {
        let log = open(&env).log;
        log.append(&[Record { seq: Seq(2), payload: &fake }], log.tail()).unwrap();
        log.flush().unwrap();
    }
    flip(&env, &only_segment(&env), HEADER + RECORD);
    assert_eq!(open(&env).replayed, commits(1), "torn, so cut");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    /// Files with any bytes, right checksums and absurd numbers included, are opened or refused.
    #[test]
    fn any_bytes_are_opened_or_refused(
        start in prop_oneof![Just(0_u64), Just(4032), any::<u64>(), Just(u64::MAX - 7), Just((1 << 62) - 8)],
        id in any::<bool>(),
        seq in prop_oneof![Just(0), Just(72), any::<u64>()],
        bytes in prop_oneof![Just(4096), any::<u64>()],
        records in prop::collection::vec((any::<u8>(), any::<u64>(), any::<u64>(), 0..100_usize), 0..6),
        noise in prop::collection::vec((0..4096_usize, any::<u8>()), 0..3),
        from in prop_oneof![Just(0), Just(72 * RECORD), any::<u64>().prop_map(|from| from >> 3)],
        checkpoint in prop_oneof![Just(0), Just(72), any::<u32>().prop_map(u64::from)],
    ) {
        let env = synced(73);
        let id = if id { open(&env).log.identity() } else { ropewalk_log::LogId([7; 16]) };
        let header = format::SegmentHeader { id, start: Lsn(start), seq: Seq(seq), bytes };
        let mut file = header.encode().to_vec();
        for (kind, lsn, durable, length) in records {
            let here = start.wrapping_add(file.len() as u64 - 64);
            let lsn = Lsn(if lsn % 3 == 0 { lsn } else { here });
            let kind = if kind % 4 == 0 { format::Kind::Seal } else { format::Kind::Commit };
            let durable = Lsn(lsn.0 - durable.min(lsn.0));
            format::encode_record(&mut file, format::checksum_seed(id), kind, lsn, Seq(seq), durable, &vec![1; length]);
        }
        file.resize(4096, 0);
        for (offset, byte) in noise {
            file[offset] = byte;
        }
        write_file(&env, &dir().join(format!("log-{start:016x}.seg")), &file);
        let from = (Lsn(from), Seq(checkpoint));
        let opened = open_from(&env, &dir(), from.0, from.1).is_ok();
        match inspect(&env, &dir(), from.0, from.1, None) {
            Ok(None) => prop_assert!(opened),
            Ok(Some(_)) => prop_assert!(!opened),
            Err(LogError::Future { .. }) => {}
            Err(error) => prop_assert!(matches!(error, LogError::Missing { .. }) && !from.0.0.is_multiple_of(8), "{}", error),
        }
        if !opened && salvage(&env, &dir(), from.0, from.1, None).is_ok() {
            prop_assert!(open_from(&env, &dir(), from.0, from.1).is_ok());
        }
    }
}

#[test]
fn leftovers_of_an_interrupted_preparation_are_removed() {
    let env = synced(3);
    write_file(&env, &dir().join("spare-7.tmp"), &[0; 1000]);
    for n in 0..4 {
        write_file(&env, &dir().join(format!("spare-{n}.seg")), &[0; 8192]);
    }
    let log = open(&env).log;
    assert_eq!(log.stats().spare_segments, 2);
    let names = env.vfs.list(&dir()).unwrap();
    assert_eq!(names, ["log-0000000000000000.seg", "spare-0.seg", "spare-1.seg"]);
}
