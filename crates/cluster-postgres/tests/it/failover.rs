//! Standbys that are promoted, with and without the end of the log.

use std::time::Duration;

use ropewalk_cluster_postgres::PostgresLog;
use ropewalk_log::shared::{AppendError, EntryIndex, SharedError, SharedLog};

use crate::chain::{bytes_of, fill};
use crate::faults::{check, wait_for_more, write_during};
use crate::server::{Server, needs_postgres, options};
use crate::writer::read_all;

const NOW: Duration = Duration::ZERO;

/// Opens the log on whichever of two servers is the primary.
fn open_pair(first: &Server, second: &Server) -> PostgresLog {
    let (first, second) = (first.folder().display(), second.folder().display());
    let connection = format!("host={first},{second} user=postgres dbname=postgres");
    PostgresLog::open(&connection, options()).unwrap()
}

fn promote(standby: &Server) {
    assert_eq!(standby.sql("SELECT pg_promote()"), "t");
}

/// The outcome of a call once a server responds.
fn settled<T>(mut call: impl FnMut() -> Result<T, SharedError>) -> Result<T, SharedError> {
    loop {
        match call() {
            Err(SharedError::Unavailable { .. }) => std::thread::sleep(Duration::from_millis(20)),
            outcome => return outcome,
        }
    }
}

#[test]
fn promoted_synchronous_standby_has_every_confirmed_entry() {
    needs_postgres!();
    let mut primary = Server::start(&[]);
    let standby = primary.standby();
    let logs = [open_pair(&primary, &standby), open_pair(&standby, &primary)];
    primary.set("synchronous_standby_names", "'ANY 1 (s1)'");
    primary.wait_for("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'quorum'");
    let writers = write_during(&logs, |confirmed| {
        wait_for_more(confirmed, 200);
        primary.kill();
        promote(&standby);
        wait_for_more(confirmed, 100);
    });
    assert!(writers.iter().any(|writer| writer.unknown > 0));
    check(&writers, &standby.open());
}

#[test]
fn paused_primary_does_not_hide_the_promoted_standby() {
    needs_postgres!();
    let primary = Server::start(&[]);
    let standby = primary.standby();
    let log = open_pair(&primary, &standby);
    primary.set("synchronous_standby_names", "'ANY 1 (s1)'");
    primary.wait_for("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'quorum'");
    fill(&log, &[b"1", b"2"]);
    primary.pause();
    promote(&standby);
    let mut outcome = log.append(EntryIndex(2), b"3");
    while matches!(outcome, Err(AppendError::Unknown { .. })) {
        outcome = log.append(EntryIndex(2), b"3");
    }
    assert_eq!(outcome, Ok(EntryIndex(3)));
    assert_eq!(bytes_of(&read_all(&log)), [b"1", b"2", b"3"]);
    primary.resume();
    // The old primary had received the first attempt. Without a standby it cannot confirm it.
    assert_eq!(log.bounds().unwrap().newest, EntryIndex(3));
}

#[test]
fn standby_without_the_end_of_the_log_is_found_by_nodes_that_had_it() {
    needs_postgres!();
    let mut primary = Server::start(&[]);
    let mut standby = primary.standby();
    let log = open_pair(&primary, &standby);
    let reader = open_pair(&primary, &standby);
    fill(&log, &[b"1", b"2", b"3"]);
    primary.wait_for("SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication");
    standby.kill();
    fill(&log, &[b"4", b"5"]);
    assert_eq!(read_all(&reader).len(), 5);
    primary.kill();
    standby.launch();
    promote(&standby);

    for log in [&log, &reader] {
        let lost = |outcome: Result<(), SharedError>| match outcome {
            Err(SharedError::Lost { what }) => assert!(what.contains("ends at entry 3"), "{what}"),
            other => panic!("{other:?}"),
        };
        lost(settled(|| log.bounds().map(drop)));
        lost(settled(|| log.read(EntryIndex(5), 1, NOW).map(drop)));
        lost(settled(|| log.read(EntryIndex(2), 1, NOW).map(drop)));
        assert!(matches!(log.append(EntryIndex(5), b"6"), Err(AppendError::Refused { .. })));
        assert!(matches!(log.append(EntryIndex(3), b"4"), Err(AppendError::Refused { .. })));
    }
    // A process that was started later knows the place from its local copy.
    let restarted = standby.open();
    assert!(matches!(restarted.read(EntryIndex(5), 1, NOW), Err(SharedError::Lost { .. })));

    // Others write to the log until it has the same length, with other entries.
    fill(&restarted, &[b"four", b"five", b"six"]);
    for log in [&log, &reader] {
        match settled(|| log.read(EntryIndex(5), 1, NOW)) {
            Err(SharedError::Lost { what }) => assert!(what.contains("entry 5 is not the one"), "{what}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(log.append(EntryIndex(6), b"7"), Err(AppendError::Refused { .. })));
    }
    assert_eq!(restarted.bounds().unwrap().newest, EntryIndex(6));
}

#[test]
fn standby_alone_is_unavailable() {
    needs_postgres!();
    let primary = Server::start(&[]);
    fill(&primary.open(), &[b"1"]);
    let standby = primary.standby();
    let opened = PostgresLog::open(&standby.connection(), options());
    assert!(opened.unwrap_err().to_string().contains("standby"));
}
