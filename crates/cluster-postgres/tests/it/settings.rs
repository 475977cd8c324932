//! Settings with which entries could be lost.

use std::time::Duration;

use ropewalk_cluster_postgres::{PostgresLog, PostgresOpenError};
use ropewalk_log::shared::{AppendError, EntryIndex, SharedError, SharedLog};

use crate::chain::fill;
use crate::server::{Server, needs_postgres, options};

fn refused(server: &Server) -> PostgresOpenError {
    PostgresLog::open(&server.connection(), options()).unwrap_err()
}

#[test]
fn unsafe_setting_is_refused_by_name() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open();
    fill(&log, &[b"1"]);
    for (name, value) in [
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("synchronous_commit", "off"),
        ("synchronous_commit", "local"),
        ("synchronous_commit", "remote_write"),
    ] {
        server.set(name, &format!("'{value}'"));
        let error = refused(&server);
        let PostgresOpenError::Setting { name: found, value: of, needed } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((*found, of.as_str()), (name, value));
        assert!(error.to_string().contains(name) && error.to_string().contains(needed));
        server.set(name, "'on'");
    }
    server.set("synchronous_commit", "'remote_apply'");
    assert_eq!(server.open().bounds().unwrap().newest, EntryIndex(1));
}

#[test]
fn setting_that_becomes_unsafe_ends_confirmations() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open();
    fill(&log, &[b"1"]);
    for name in ["fsync", "full_page_writes"] {
        server.set(name, "'off'");
        match log.append(EntryIndex(1), b"2") {
            Err(AppendError::Unknown { cause }) => assert!(cause.contains(name), "{cause}"),
            other => panic!("{other:?}"),
        }
        assert!(log.warnings().unwrap().iter().any(|warning| warning.starts_with(name)));
        server.set(name, "'on'");
    }
    // The session has its own value of this one.
    server.set("synchronous_commit", "'off'");
    assert_eq!(log.append(EntryIndex(1), b"2"), Ok(EntryIndex(2)));
    // A new session would have the value of the server.
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ropewalk'");
    let mut outcome = log.append(EntryIndex(2), b"3");
    while matches!(&outcome, Err(AppendError::Unknown { cause }) if !cause.contains("synchronous_commit")) {
        outcome = log.append(EntryIndex(2), b"3");
    }
    assert!(matches!(outcome, Err(AppendError::Unknown { .. })), "{outcome:?}");
    match log.bounds() {
        Err(SharedError::Unavailable { .. }) => {}
        other => panic!("{other:?}"),
    }
    server.set("synchronous_commit", "'on'");
    assert_eq!(log.append(EntryIndex(2), b"3"), Ok(EntryIndex(3)));
}

#[test]
fn settings_of_the_role_do_not_disturb_the_session() {
    needs_postgres!();
    let server = Server::start(&[]);
    for setting in [
        "statement_timeout = 300",
        "lock_timeout = 200",
        "idle_session_timeout = 300",
        "default_transaction_isolation = 'serializable'",
        "client_min_messages = 'error'",
        "plan_cache_mode = 'force_custom_plan'",
        "bytea_output = 'escape'",
    ] {
        server.sql(&format!("ALTER ROLE postgres SET {setting}"));
    }
    let log = server.open();
    fill(&log, &[b"1", b"2"]);
    let backends = "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity \
                    WHERE application_name = 'ropewalk'";
    let before = server.sql(backends);
    // The append waits for another transaction longer than the role may wait.
    let hold = "SET statement_timeout = 0; BEGIN; UPDATE ropewalk_head SET last = last; \
                SELECT pg_sleep(0.6); ROLLBACK";
    std::thread::scope(|scope| {
        let holding = scope.spawn(|| server.sql(hold));
        server.wait_for("SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
        assert_eq!(log.append(EntryIndex(2), b"3"), Ok(EntryIndex(3)));
        holding.join().unwrap();
    });
    assert_eq!(log.read(EntryIndex(0), 100, Duration::ZERO).unwrap().len(), 3);
    assert_eq!(server.sql(backends), before);
}

#[test]
fn unlogged_table_is_refused() {
    needs_postgres!();
    let server = Server::start(&[]);
    drop(server.open());
    server.sql("ALTER TABLE ropewalk_log SET UNLOGGED");
    assert_eq!(refused(&server), PostgresOpenError::Table { name: "ropewalk_log".to_owned() });
}

#[test]
fn risks_are_reported_one_line_each() {
    needs_postgres!();
    let server = Server::start(&["autovacuum=off"]);
    let log = server.open();
    let has = |start: &str| log.warnings().unwrap().iter().any(|warning| warning.starts_with(start));
    assert!(has("synchronous_standby_names is empty"));
    let is_unchecked = server.sql("SHOW data_checksums") == "off";
    assert_eq!(has("data_checksums is off"), is_unchecked);
    assert!(has("autovacuum is off"));
    server.set("synchronous_standby_names", "'ANY 1 (s1)'");
    while has("synchronous_standby_names is empty") {}
    assert!(has("no synchronous standby is connected"));
    let standby = server.standby();
    server.wait_for("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'quorum'");
    assert!(!has("no synchronous standby is connected"));
    drop(standby);
    while !has("no synchronous standby is connected") {}
    assert_eq!(log.warnings().unwrap().len(), 2 + usize::from(is_unchecked));
}

#[test]
fn role_that_may_not_create_tables_uses_existing_ones() {
    needs_postgres!();
    let server = Server::start(&[]);
    server.sql("CREATE ROLE node LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let connection = server.connection().replace("user=postgres", "user=node");
    let opened = PostgresLog::open(&connection, options());
    assert!(opened.unwrap_err().to_string().contains("permission denied"));
    drop(server.open());
    server.sql("GRANT SELECT, INSERT, UPDATE ON ropewalk_head TO node");
    server.sql("GRANT SELECT, INSERT, DELETE ON ropewalk_log TO node");
    let log = PostgresLog::open(&connection, options()).unwrap();
    fill(&log, &[b"1", b"2"]);
    log.trim(EntryIndex(2)).unwrap();
    assert!(log.warnings().is_ok());
    assert_eq!(log.read(EntryIndex(1), 100, Duration::ZERO).unwrap().len(), 1);
}
