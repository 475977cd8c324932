//! Servers and connections that end at any time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ropewalk_cluster_postgres::PostgresLog;
use ropewalk_log::shared::{AppendError, EntryIndex, SharedError, SharedLog};

use crate::chain::{appended, bytes_of, fill, settled};
use crate::server::{Server, needs_postgres};
use crate::writer::{Writer, read_all};

/// An append that waits for a synchronous standby.
pub(crate) const WAITS: &str = "wait_event = 'SyncRep' AND application_name = 'ropewalk'";

/// Runs one writer for each log while `fault` runs, which is given the number of confirmed entries.
pub(crate) fn write_during(logs: &[PostgresLog], fault: impl FnOnce(&AtomicUsize)) -> Vec<Writer> {
    let (stop, confirmed) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let running: Vec<_> = logs
            .iter()
            .enumerate()
            .map(|(name, log)| {
                let (stop, confirmed) = (&stop, &confirmed);
                scope.spawn(move || {
                    let mut writer = Writer::new(name);
                    while !stop.load(Ordering::Relaxed) {
                        let before = writer.confirmed.len();
                        writer.step(log);
                        confirmed.fetch_add(writer.confirmed.len() - before, Ordering::Relaxed);
                    }
                    writer
                })
            })
            .collect();
        fault(&confirmed);
        stop.store(true, Ordering::Relaxed);
        running.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

/// Waits until so many more entries are confirmed.
pub(crate) fn wait_for_more(confirmed: &AtomicUsize, entries: usize) {
    let goal = confirmed.load(Ordering::Relaxed) + entries;
    while confirmed.load(Ordering::Relaxed) < goal {
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn check(writers: &[Writer], log: &PostgresLog) {
    let found = read_all(log);
    writers.iter().for_each(|writer| writer.check(&found));
    assert_eq!(found.len(), writers.iter().map(|writer| writer.confirmed.len()).sum::<usize>());
}

#[test]
fn killed_server_keeps_confirmed_entries_and_unknown_outcomes_resolve() {
    needs_postgres!();
    let mut server = Server::start(&[]);
    let logs = [server.open(), server.open()];
    let writers = write_during(&logs, |confirmed| {
        for _ in 0..4 {
            wait_for_more(confirmed, 50);
            server.kill();
            server.launch();
        }
        wait_for_more(confirmed, 50);
    });
    assert!(writers.iter().any(|writer| writer.unknown > 0));
    check(&writers, &server.open());
}

#[test]
fn terminated_backends_lose_and_repeat_nothing() {
    needs_postgres!();
    let server = Server::start(&[]);
    let logs = [server.open(), server.open()];
    let writers = write_during(&logs, |confirmed| {
        for _ in 0..30 {
            wait_for_more(confirmed, 3);
            server.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ropewalk'",
            );
        }
        wait_for_more(confirmed, 10);
    });
    assert!(writers.iter().any(|writer| writer.unknown > 0));
    check(&writers, &server.open());
}

#[test]
fn paused_server_leaves_the_outcome_unknown_until_it_responds() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open_impatient();
    fill(&log, &[b"1"]);
    assert_eq!(settled(|| log.read(EntryIndex::ZERO, 1, Duration::ZERO)).unwrap().len(), 1);
    server.pause();
    assert!(matches!(log.append(EntryIndex(1), b"2"), Err(AppendError::Unknown { .. })));
    assert!(matches!(log.read(EntryIndex(1), 1, Duration::MAX), Err(SharedError::Unavailable { .. })));
    assert!(matches!(log.bounds(), Err(SharedError::Unavailable { .. })));
    server.resume();
    // The first attempt was received by the kernel, so it is executed now, before or after the second one.
    let outcome = appended(&log, EntryIndex(1), b"2");
    let fenced = Err(AppendError::Fenced { newest: EntryIndex(2) });
    assert!(outcome == Ok(EntryIndex(2)) || outcome == fenced, "{outcome:?}");
    assert_eq!(bytes_of(&read_all(&server.open())), [b"1", b"2"]);
}

#[test]
fn cancelled_wait_for_the_standby_is_not_a_confirmation() {
    needs_postgres!();
    for end in ["pg_cancel_backend", "pg_terminate_backend"] {
        let server = Server::start(&[]);
        let (log, impatient) = (server.open(), server.open_impatient());
        fill(&log, &[b"1"]);
        server.set("synchronous_standby_names", "'ANY 1 (s1)'");
        thread::scope(|scope| {
            let appending = scope.spawn(|| log.append(EntryIndex(1), b"2"));
            server.wait_for(&format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE {WAITS}"));
            server.sql(&format!("SELECT {end}(pid) FROM pg_stat_activity WHERE {WAITS}"));
            assert!(matches!(appending.join().unwrap(), Err(AppendError::Unknown { .. })), "{end}");
        });
        // Visible on the primary only: `Fenced` would let the caller take it for confirmed.
        assert_eq!(server.sql("SELECT count(*) FROM ropewalk_log"), "2");
        assert!(matches!(impatient.append(EntryIndex(1), b"2"), Err(AppendError::Unknown { .. })), "{end}");
        server.set("synchronous_standby_names", "''");
        let fenced = Err(AppendError::Fenced { newest: EntryIndex(2) });
        assert_eq!(appended(&log, EntryIndex(1), b"2"), fenced);
        assert_eq!(bytes_of(&read_all(&log)), [b"1", b"2"]);
    }
}

#[test]
fn retries_while_the_standby_is_away_use_few_connections() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open_impatient();
    server.set("synchronous_standby_names", "'ANY 1 (s1)'");
    for _ in 0..4 {
        assert!(matches!(log.append(EntryIndex::ZERO, b"1"), Err(AppendError::Unknown { .. })));
    }
    // The first attempt waits for the standby; the later ones share a connection and wait for its lock.
    let connections = server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ropewalk'");
    assert!(connections.parse::<u32>().unwrap() <= 3, "{connections}");
    server.set("synchronous_standby_names", "''");
    server.wait_for("SELECT last = 1 FROM ropewalk_head");
    let fenced = Err(AppendError::Fenced { newest: EntryIndex(1) });
    assert_eq!(appended(&log, EntryIndex::ZERO, b"1"), fenced);
}
