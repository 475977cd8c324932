//! Standbys that are promoted, with and without the end of the log.

use std::time::Duration;

use ropewalk_cluster_postgres::PostgresLog;
use ropewalk_log::shared::{AppendError, EntryIndex, SharedError, SharedLog, SharedResult};

use crate::chain::{appended, bytes_of, fill, settled};
use crate::faults::{check, wait_for_more, write_during};
use crate::server::{Server, impatient, needs_postgres, open, options};
use crate::writer::read_all;

const NOW: Duration = Duration::ZERO;

/// The connection string of two servers.
fn pair(first: &Server, second: &Server) -> String {
    let (first, second) = (first.folder().display(), second.folder().display());
    format!("host={first},{second} user=postgres dbname=postgres")
}

fn promote(standby: &Server) {
    assert_eq!(standby.sql("SELECT pg_promote()"), "t");
}

#[test]
fn promoted_synchronous_standby_has_every_confirmed_entry() {
    needs_postgres!();
    let mut primary = Server::start(&[]);
    let standby = primary.standby();
    let logs = [&pair(&primary, &standby), &pair(&standby, &primary)].map(|servers| open(servers, options()));
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
    let log = open(&pair(&primary, &standby), impatient());
    primary.set("synchronous_standby_names", "'ANY 1 (s1)'");
    primary.wait_for("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'quorum'");
    fill(&log, &[b"1", b"2"]);
    primary.pause();
    promote(&standby);
    let fenced = Err(AppendError::Fenced { newest: EntryIndex(3) });
    let outcome = appended(&log, EntryIndex(2), b"3");
    assert!(outcome == Ok(EntryIndex(3)) || outcome == fenced, "{outcome:?}");
    assert_eq!(bytes_of(&read_all(&standby.open())), [b"1", b"2", b"3"]);
    // The old primary continues, and shows entries that no standby has.
    primary.resume();
    primary.set("synchronous_standby_names", "''");
    primary.sql(
        "INSERT INTO ropewalk_log SELECT 'ropewalk', last + 1, 'x' FROM ropewalk_head; \
         UPDATE ropewalk_head SET last = last + 1",
    );
    standby.pause();
    for _ in 0..2 {
        assert!(matches!(log.append(EntryIndex(3), b"4"), Err(AppendError::Unknown { .. })));
        match log.bounds() {
            Err(SharedError::Unavailable { cause }) => assert!(cause.contains("timeline 2"), "{cause}"),
            other => panic!("{other:?}"),
        }
    }
    standby.resume();
    // The promoted server may have received the first of these appends.
    assert!([3, 4].contains(&settled(|| log.bounds()).unwrap().newest.0));
    assert_eq!(bytes_of(&read_all(&standby.open()))[..3], [b"1", b"2", b"3"]);
}

#[test]
fn standby_without_the_end_of_the_log_is_found_by_nodes_that_had_it() {
    needs_postgres!();
    let mut primary = Server::start(&[]);
    let mut standby = primary.standby();
    let log = open(&pair(&primary, &standby), options());
    let reader = open(&pair(&primary, &standby), options());
    fill(&log, &[b"1", b"2", b"3"]);
    primary.wait_for("SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication");
    standby.kill();
    fill(&log, &[b"4", b"5"]);
    assert_eq!(read_all(&reader).len(), 5);
    primary.kill();
    standby.launch();
    promote(&standby);

    for log in [&log, &reader] {
        let lost = |outcome: SharedResult<()>| match outcome {
            Err(SharedError::Lost { what }) => assert!(what.contains("ends at entry 3"), "{what}"),
            other => panic!("{other:?}"),
        };
        lost(settled(|| log.bounds().map(drop)));
        lost(settled(|| log.read(EntryIndex(5), 1, NOW).map(drop)));
        lost(settled(|| log.read(EntryIndex(2), 1, NOW).map(drop)));
        assert!(matches!(appended(log, EntryIndex(5), b"6"), Err(AppendError::Refused { .. })));
        assert!(matches!(appended(log, EntryIndex(3), b"4"), Err(AppendError::Refused { .. })));
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
        assert!(matches!(appended(log, EntryIndex(6), b"7"), Err(AppendError::Refused { .. })));
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
