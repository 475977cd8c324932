//! A reader far from the end.

use std::time::Instant;

use ropewalk_log::shared::{EntryIndex, SharedLog};

use crate::server::{Server, needs_postgres};
use crate::writer::read_all;

#[test]
fn reader_far_from_the_end_reads_every_entry_by_the_index() {
    needs_postgres!();
    let server = Server::start(&[]);
    let log = server.open();
    // The connections plan their statements on an empty table.
    assert!(read_all(&log).is_empty());
    const ENTRIES: u64 = 100_000;
    server.sql(&format!(
        "INSERT INTO ropewalk_log SELECT 'ropewalk', g, decode(repeat(lpad(to_hex(g), 8, '0'), 64), 'hex') \
         FROM generate_series(1, {ENTRIES}) g; UPDATE ropewalk_head SET last = {ENTRIES}"
    ));
    let start = Instant::now();
    let found = read_all(&log);
    let elapsed = start.elapsed().as_secs_f64();
    assert_eq!(found.len() as u64, ENTRIES);
    for entry in &found {
        assert_eq!(entry.bytes, (entry.index.0 as u32).to_be_bytes().repeat(64));
    }
    println!("{:.0} entries/s, {:.1} MB/s", ENTRIES as f64 / elapsed, ENTRIES as f64 * 256.0 / 1e6 / elapsed);
    assert_eq!(log.append(EntryIndex(ENTRIES), b"next"), Ok(EntryIndex(ENTRIES + 1)));
    drop(log);
    // Statistics are complete when a session has ended.
    server.wait_for("SELECT idx_scan > 0 FROM pg_stat_user_tables WHERE relname = 'ropewalk_log'");
    assert_eq!(
        server.sql("SELECT idx_tup_fetch < 150000 FROM pg_stat_user_tables WHERE relname = 'ropewalk_log'"),
        "t"
    );
}
