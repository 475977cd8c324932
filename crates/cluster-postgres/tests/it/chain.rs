//! The log without faults.

use std::thread;
use std::time::Duration;

use ropewalk_cluster_postgres::{PostgresLog, PostgresOpenError, PostgresOptions};
use ropewalk_log::shared::{
    AppendError, EntryIndex, SharedBounds, SharedEntry, SharedError, SharedLog, SharedResult,
};

use crate::server::{Server, needs_postgres};
use crate::writer::{Writer, read_all, read_from};

const NOW: Duration = Duration::ZERO;

pub(crate) fn bytes_of(entries: &[SharedEntry]) -> Vec<&[u8]> {
    entries.iter().map(|entry| entry.bytes.as_slice()).collect()
}

/// Appends these entries.
pub(crate) fn fill(log: &PostgresLog, entries: &[&[u8]]) {
    let mut last = settled(|| log.bounds()).unwrap().newest;
    for entry in entries {
        last = match appended(log, last, entry) {
            // An earlier attempt took longer than the time limit.
            Err(AppendError::Fenced { newest }) if newest == last.next() => newest,
            outcome => outcome.unwrap(),
        };
    }
}

/// The outcome of an append once it is known.
pub(crate) fn appended(
    log: &PostgresLog,
    expected: EntryIndex,
    entry: &[u8],
) -> Result<EntryIndex, AppendError> {
    loop {
        match log.append(expected, entry) {
            Err(AppendError::Unknown { .. }) => thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

/// The outcome of a call once the server responds.
pub(crate) fn settled<T>(mut call: impl FnMut() -> SharedResult<T>) -> SharedResult<T> {
    loop {
        match call() {
            Err(SharedError::Unavailable { .. }) => thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

#[test]
fn appended_entries_are_read_in_order_on_every_node() {
    needs_postgres!();
    let server = Server::start(&[]);
    let (leader, follower) = (server.open(), server.open());
    assert_eq!(leader.identity().unwrap(), follower.identity().unwrap());
    let empty = SharedBounds { oldest: EntryIndex(1), newest: EntryIndex::ZERO };
    assert_eq!(follower.bounds().unwrap(), empty);
    assert!(follower.read(EntryIndex::ZERO, 1, NOW).unwrap().is_empty());

    let largest = vec![7; leader.entry_bytes_max()];
    let entries: [&[u8]; 4] = [b"one", b"", b"\0\xff", &largest];
    for (place, entry) in entries.iter().enumerate() {
        let expected = EntryIndex(place as u64);
        assert_eq!(leader.append(expected, entry), Ok(expected.next()));
    }
    let found = read_all(&follower);
    assert_eq!(bytes_of(&found), entries);
    assert_eq!(found.iter().map(|entry| entry.index.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(follower.bounds().unwrap(), SharedBounds { oldest: EntryIndex(1), newest: EntryIndex(4) });
}

#[test]
fn append_after_another_entry_is_fenced_with_the_newest() {
    needs_postgres!();
    let server = Server::start(&[]);
    let (first, second) = (server.open(), server.open());
    fill(&first, &[b"1", b"2", b"3"]);
    for expected in [0, 2, 4, u64::MAX] {
        let fenced = Err(AppendError::Fenced { newest: EntryIndex(3) });
        assert_eq!(second.append(EntryIndex(expected), b"x"), fenced);
    }
    assert_eq!(second.append(EntryIndex(3), b"4"), Ok(EntryIndex(4)));
    assert_eq!(first.append(EntryIndex(3), b"x"), Err(AppendError::Fenced { newest: EntryIndex(4) }));
    assert_eq!(bytes_of(&read_all(&first)), [b"1", b"2", b"3", b"4"]);
}

#[test]
fn too_large_entry_is_refused() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open();
    let entry = vec![0; log.entry_bytes_max() + 1];
    assert!(matches!(log.append(EntryIndex::ZERO, &entry), Err(AppendError::Refused { .. })));
    assert_eq!(log.bounds().unwrap().newest, EntryIndex::ZERO);
}

#[test]
fn read_returns_about_the_requested_bytes() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open();
    let entries: Vec<Vec<u8>> = (0..50).map(|i| vec![i; 1000 * (1 + usize::from(i % 3))]).collect();
    fill(&log, &entries.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for bytes_max in [0, 1, 1000, 10_000, usize::MAX] {
        let mut after = EntryIndex::ZERO;
        while let Some(last) = log.read(after, bytes_max, NOW).unwrap().last() {
            let found = log.read(after, bytes_max, NOW).unwrap();
            let bytes: usize = found.iter().map(|entry| entry.bytes.len()).sum();
            assert!(bytes - last.bytes.len() <= bytes_max, "{bytes} of {bytes_max}");
            assert!(bytes_max < 100_000 || found.len() == 50);
            after = last.index;
        }
        assert_eq!(after, EntryIndex(50));
    }
}

#[test]
fn waiting_read_returns_when_an_entry_is_appended() {
    needs_postgres!();
    let server = Server::start(&[]);
    let (leader, follower) = (server.open(), server.open());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| follower.read(EntryIndex::ZERO, 1, Duration::MAX));
        thread::sleep(Duration::from_millis(200));
        leader.append(EntryIndex::ZERO, b"news").unwrap();
        assert_eq!(bytes_of(&waiting.join().unwrap().unwrap()), [b"news"]);
    });
    assert!(follower.read(EntryIndex(1), 1, Duration::from_millis(120)).unwrap().is_empty());
}

#[test]
fn reader_without_notifications_finds_entries_by_polling() {
    needs_postgres!();
    let server = Server::start(&[]);
    let follower = server.open();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| follower.read(EntryIndex::ZERO, 1, Duration::MAX));
        server.wait_for("SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%LEFT JOIN LATERAL%' AND pid <> pg_backend_pid()");
        server.sql("WITH head AS (UPDATE ropewalk_head SET last = 1) INSERT INTO ropewalk_log VALUES ('ropewalk', 1, 'x')");
        assert_eq!(bytes_of(&waiting.join().unwrap().unwrap()), [b"x"]);
    });
}

#[test]
fn rivals_form_one_chain_and_each_entry_has_one_writer() {
    needs_postgres!();
    let server = Server::start(&[]);
    let logs: Vec<PostgresLog> = (0..3).map(|_| server.open()).collect();
    let writers: Vec<Writer> = thread::scope(|scope| {
        let running: Vec<_> = logs
            .iter()
            .enumerate()
            .map(|(name, log)| {
                scope.spawn(move || {
                    let mut writer = Writer::new(name);
                    for _ in 0..100 {
                        writer.step(log);
                    }
                    writer
                })
            })
            .collect();
        running.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let found = read_all(&logs[0]);
    assert_eq!(found.len(), writers.iter().map(|writer| writer.confirmed.len()).sum::<usize>());
    writers.iter().for_each(|writer| writer.check(&found));
}

#[test]
fn bounds_that_are_read_during_appends_are_no_loss() {
    needs_postgres!();
    let server = Server::start(&[]);
    let logs = [server.open(), server.open()];
    thread::scope(|scope| {
        let writing = [0, 1].map(|name| {
            let log = &logs[name];
            scope.spawn(move || {
                let mut writer = Writer::new(name);
                (0..1000).for_each(|_| writer.step(log));
            })
        });
        while !writing.iter().all(thread::ScopedJoinHandle::is_finished) {
            for log in &logs {
                let newest = settled(|| log.bounds()).unwrap().newest;
                settled(|| log.read(newest, 1, NOW)).unwrap();
            }
        }
    });
}

#[test]
fn trimmed_log_begins_later_and_continues() {
    needs_postgres!();
    let server = Server::start(&[]);
    let (log, other) = (server.open(), server.open());
    let entries: Vec<Vec<u8>> = (1..=300_u32).map(|i| i.to_be_bytes().to_vec()).collect();
    fill(&log, &entries.iter().map(Vec::as_slice).collect::<Vec<_>>());
    log.trim(EntryIndex(0)).unwrap();
    log.trim(EntryIndex(270)).unwrap();
    other.trim(EntryIndex(100)).unwrap();
    let bounds = SharedBounds { oldest: EntryIndex(270), newest: EntryIndex(300) };
    assert_eq!(other.bounds().unwrap(), bounds);
    assert_eq!(server.sql("SELECT count(*), min(index) FROM ropewalk_log"), "31|270");
    for after in [0, 268] {
        let trimmed = Err(SharedError::Trimmed { oldest: EntryIndex(270) });
        assert_eq!(other.read(EntryIndex(after), 100, NOW), trimmed);
    }
    assert_eq!(read_from(&other, EntryIndex(269)).len(), 31);

    // The whole log, and not more than it has.
    log.trim(EntryIndex(u64::MAX)).unwrap();
    assert_eq!(log.bounds().unwrap(), SharedBounds { oldest: EntryIndex(301), newest: EntryIndex(300) });
    assert_eq!(log.append(EntryIndex(300), b"next"), Ok(EntryIndex(301)));
    // A new connection of a process whose newest entry was trimmed.
    assert_eq!(bytes_of(&read_from(&server.open(), EntryIndex(300))), [b"next"]);
}

#[test]
fn logs_of_other_names_are_separate() {
    needs_postgres!();
    let server = Server::start(&[]);
    let named = |shard: &str| {
        let options = PostgresOptions { shard: shard.to_owned(), ..crate::server::options() };
        PostgresLog::open(&server.connection(), options).unwrap()
    };
    let (a, b) = (named("a"), named("it's \"b\""));
    assert_ne!(a.identity().unwrap(), b.identity().unwrap());
    fill(&a, &[b"a1", b"a2"]);
    fill(&b, &[b"b1"]);
    assert_eq!(bytes_of(&read_all(&a)), [b"a1", b"a2"]);
    assert_eq!(bytes_of(&read_all(&b)), [b"b1"]);
    b.trim(EntryIndex(2)).unwrap();
    assert_eq!(a.bounds().unwrap().oldest, EntryIndex(1));
}

#[test]
fn nodes_that_start_together_create_one_log() {
    needs_postgres!();
    let server = Server::start(&[]);
    let identities: Vec<_> = thread::scope(|scope| {
        let opened: Vec<_> = (0..6).map(|_| scope.spawn(|| server.open().identity().unwrap())).collect();
        opened.into_iter().map(|identity| identity.join().unwrap()).collect()
    });
    assert!(identities.iter().all(|identity| *identity == identities[0]));
}

#[test]
fn missing_log_is_created_only_on_request() {
    needs_postgres!();
    let server = Server::start(&[]);
    let existing = PostgresOptions { create: false, ..crate::server::options() };
    let open = || PostgresLog::open(&server.connection(), existing.clone());
    assert!(matches!(open(), Err(PostgresOpenError::Log(SharedError::Lost { .. }))));
    assert_eq!(server.sql("SELECT count(*) FROM pg_class WHERE relname LIKE 'ropewalk%'"), "0");
    let created = server.open();
    assert_eq!(open().unwrap().identity(), created.identity());
    // The tables exist, but not the log.
    server.sql("DELETE FROM ropewalk_head");
    assert!(matches!(open(), Err(PostgresOpenError::Log(SharedError::Lost { .. }))));
}

#[test]
fn log_that_was_created_again_has_another_identity() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open();
    let identity = log.identity().unwrap();
    fill(&log, &[b"1", b"2"]);
    server.sql("DROP TABLE ropewalk_log, ropewalk_head");
    assert!(matches!(log.read(EntryIndex(2), 1, NOW), Err(SharedError::Lost { .. })));
    assert!(matches!(log.append(EntryIndex(2), b"3"), Err(AppendError::Refused { .. })));

    let again = server.open();
    assert_ne!(again.identity().unwrap(), identity);
    fill(&again, &[b"1", b"2"]);
    for _ in 0..2 {
        assert!(matches!(log.identity(), Err(SharedError::Lost { .. })));
        assert!(matches!(log.bounds(), Err(SharedError::Lost { .. })));
        assert!(matches!(log.read(EntryIndex(0), 1, NOW), Err(SharedError::Lost { .. })));
        assert!(matches!(log.trim(EntryIndex(1)), Err(SharedError::Lost { .. })));
        assert!(matches!(log.append(EntryIndex(2), b"3"), Err(AppendError::Refused { .. })));
    }
    assert_eq!(again.bounds().unwrap().newest, EntryIndex(2));

    // Entries without a head row are not taken for a new log.
    server.sql("DELETE FROM ropewalk_head");
    let opened = PostgresLog::open(&server.connection(), crate::server::options());
    assert!(opened.unwrap_err().to_string().contains("no head row"));
}

#[test]
fn missing_and_changed_entries_are_found() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open();
    fill(&log, &[b"1", b"2", b"3", b"4"]);
    let lost = |outcome: SharedResult<Vec<SharedEntry>>, what: &str| match outcome {
        Err(SharedError::Lost { what: found }) => assert!(found.contains(what), "{found}"),
        other => panic!("{other:?}"),
    };
    // The newest entry that this process confirmed was replaced, which a new connection finds.
    server.sql("UPDATE ropewalk_log SET entry = 'x' WHERE index = 4");
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ropewalk'");
    while log.read(EntryIndex(4), 1, NOW).is_ok_and(|entries| entries.is_empty()) {}
    lost(settled(|| log.read(EntryIndex(4), 1, NOW)), "entry 4 is not the one");

    let other = server.open();
    server.sql("DELETE FROM ropewalk_log WHERE index = 2");
    lost(other.read(EntryIndex(0), 100, NOW), "entry 2 is missing");
    server.sql("DELETE FROM ropewalk_log WHERE index > 2");
    lost(other.read(EntryIndex(2), 100, NOW), "entry 3 is missing");
    server.sql("UPDATE ropewalk_head SET last = 0");
    lost(other.read(EntryIndex(0), 100, NOW), "ends at entry 0");
    lost(other.read(EntryIndex(2), 100, NOW), "ends at entry 0");
    // The place that the head row calls free is in use.
    assert!(matches!(other.append(EntryIndex(0), b"1"), Err(AppendError::Refused { .. })));
}

#[test]
fn calls_work_on_a_thread_of_an_async_runtime() {
    needs_postgres!();
    let server = Server::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let log = server.open();
        assert_eq!(log.append(EntryIndex::ZERO, b"1"), Ok(EntryIndex(1)));
        drop(log);
    });
}

#[test]
fn debug_output_names_the_log_without_the_password() {
    needs_postgres!();
    let server = Server::start(&[]);
    let connection = format!("{} password=secret", server.connection());
    let text = format!("{:?}", PostgresLog::open(&connection, crate::server::options()).unwrap());
    assert!(text.contains("ropewalk") && !text.contains("secret"), "{text}");
}
