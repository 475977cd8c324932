//! Change feeds on a log that is trimmed meanwhile, and on one whose sync fails.

use super::*;

/// A log of small segments, and nothing retained that recovery does not need.
fn trimmed_early(env: &Env) -> (Engine, Keyspace) {
    let mut options = EngineOptions { log_retention_bytes: 0, ..manual() };
    options.log.segment_bytes_first = 64 << 10;
    options.log.segment_bytes_max = 64 << 10;
    let engine = open(env, options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    (engine, keys)
}

fn write(engine: &Engine, keys: Keyspace, numbers: std::ops::RangeInclusive<u32>) {
    for number in numbers {
        put(engine, keys, &number.to_be_bytes(), &[3; 1000], Durability::Buffered).unwrap();
    }
}

#[test]
fn feed_created_before_a_trim_delivers_commits_that_the_log_still_holds() {
    let (disk, clock) = (FaultyVfs::new(6), Arc::default());
    let (engine, keys) = trimmed_early(&env(&disk, &clock));
    write(&engine, keys, 1..=300);
    let mut present = engine.changes(Seq(299)).unwrap();
    let mut future = engine.changes(Seq(690)).unwrap();
    let mut gone = engine.changes(Seq(10)).unwrap();
    assert!(future.next().unwrap().is_none());
    engine.checkpoint().unwrap();
    assert_eq!(present.next().unwrap().map(|change| change.seq), Some(Seq(299)));
    let error = gone.next().map(|_| ()).unwrap_err();
    assert!(matches!(error, EngineError::FeedTrimmed { asked: Seq(10), .. }), "{error}");
    write(&engine, keys, 301..=700);
    engine.checkpoint().unwrap();
    assert_eq!(future.next().unwrap().map(|change| change.seq), Some(Seq(690)));
    // A feed that was trimmed while it read gets the error in terms of commits, too.
    let error = present.next().map(|_| ()).unwrap_err();
    let EngineError::FeedTrimmed { asked: Seq(300), oldest } = error else { panic!("{error}") };
    let mut resumed = engine.changes(oldest).unwrap();
    for seq in oldest.0..=engine.seq().0 {
        assert_eq!(resumed.next().unwrap().map(|change| change.seq), Some(Seq(seq)));
    }
    assert!(resumed.next().unwrap().is_none());
}

#[test]
fn feed_at_the_end_of_a_trimmed_segment_continues_with_the_next() {
    let (disk, clock) = (FaultyVfs::new(8), Arc::default());
    let (engine, keys) = trimmed_early(&env(&disk, &clock));
    // Commit 1 defines the keyspace.
    let mut feed = engine.changes(Seq(2)).unwrap();
    for round in 0..20 {
        write(&engine, keys, round * 40 + 1..=round * 40 + 40);
        for number in round * 40 + 1..=round * 40 + 40 {
            let seq = Seq(u64::from(number) + 1);
            assert_eq!(feed.next().unwrap().map(|change| change.seq), Some(seq));
        }
        assert!(feed.next().unwrap().is_none());
        engine.checkpoint().unwrap();
    }
}

#[test]
fn feed_resumed_near_the_end_reads_one_segment() {
    let (disk, clock) = (FaultyVfs::new(9), Arc::default());
    let mut options = manual();
    options.log.segment_bytes_first = 64 << 10;
    options.log.segment_bytes_max = 64 << 10;
    let engine = open(&env(&disk, &clock), options).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    write(&engine, keys, 1..=1500);
    let reads_from = |seq| {
        let before = disk.count(DiskOp::Read);
        let mut feed = engine.changes(seq).unwrap();
        assert_eq!(feed.next().unwrap().map(|change| change.seq), Some(seq));
        disk.count(DiskOp::Read) - before
    };
    let (first, last) = (reads_from(Seq(1)), reads_from(Seq(1500)));
    assert!(last <= first + 4, "{first} reads for the first commit, {last} for the last");
}

#[test]
fn feed_after_a_failed_sync_delivers_no_commit_that_was_not_acknowledged() {
    let (disk, clock) = (FaultyVfs::new(10), Arc::default());
    let engine = open(&env(&disk, &clock), manual()).unwrap();
    let keys = engine.keyspace("k", KeyspaceOptions::default()).unwrap();
    let good = put(&engine, keys, b"good", b"1", Durability::Sync).unwrap();
    let mut feed = engine.changes(good).unwrap();
    // The next commit is written and not synced: any reader of the file finds it there.
    disk.fail(DiskOp::Sync, 0);
    put(&engine, keys, b"lost", b"2", Durability::Sync).unwrap_err();
    assert_eq!(feed.next().unwrap().map(|change| change.seq), Some(good));
    assert!(feed.next().unwrap().is_none());
    assert!(engine.changes(good.next()).unwrap().next().unwrap().is_none());
}

#[test]
fn feed_of_commits_that_were_all_trimmed_is_refused() {
    let mut refused = 0;
    // A kill between a segment and its first record leaves a segment of which no commit is there.
    for operation in 50..90 {
        let (disk, clock) = (FaultyVfs::new(9), Arc::default());
        let (engine, keys) = trimmed_early(&env(&disk, &clock));
        disk.crash_at(disk.operations() + operation);
        while put(&engine, keys, b"key", &[3; 1000], Durability::Buffered).is_ok() {}
        disk.kill();
        drop(engine);
        let (engine, keys) = trimmed_early(&env(&disk, &clock));
        engine.checkpoint().unwrap();
        let last = engine.seq();
        match engine.changes(last).unwrap().next().map(|change| change.map(|change| change.seq)) {
            Ok(found) => assert_eq!(found, Some(last)),
            Err(EngineError::FeedTrimmed { asked, oldest }) => {
                assert_eq!((asked, oldest), (last, last.next()));
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        let mut feed = engine.changes(last.next()).unwrap();
        assert!(feed.next().unwrap().is_none());
        put(&engine, keys, b"key", b"value", Durability::Buffered).unwrap();
        assert_eq!(feed.next().unwrap().map(|change| change.seq), Some(last.next()));
    }
    assert!(refused > 0);
}
