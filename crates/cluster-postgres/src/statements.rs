//! The SQL of the log.

/// Creates the tables. The lock serializes nodes that start at the same time: two `CREATE TABLE IF NOT EXISTS` may
/// both find no table. Entries are not compressed, because the engine decides about compression.
pub(crate) const CREATE: &str = "\
BEGIN;
SELECT pg_advisory_xact_lock(8103536204);
CREATE TABLE IF NOT EXISTS ropewalk_head (
    shard text PRIMARY KEY,
    nonce bytea NOT NULL,
    last bigint NOT NULL,
    oldest bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS ropewalk_log (
    shard text NOT NULL,
    index bigint NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (shard, index)
) WITH (fillfactor = 100);
ALTER TABLE ropewalk_log ALTER COLUMN entry SET STORAGE EXTERNAL;
COMMIT";

/// True when both tables exist.
pub(crate) const EXISTS: &str =
    "SELECT to_regclass('ropewalk_head') IS NOT NULL AND to_regclass('ropewalk_log') IS NOT NULL";

/// Adds the log $1 unless there is one, or entries of one. Its nonce is 16 random bytes.
pub(crate) const ADD: &str = "\
INSERT INTO ropewalk_head (shard, nonce, last, oldest)
SELECT $1::text, uuid_send(gen_random_uuid()), 0, 1
WHERE NOT EXISTS (SELECT FROM ropewalk_log WHERE shard = $1)
ON CONFLICT DO NOTHING";

/// Version of the server, its timeline unless it is a standby, and its settings as they are before [`session`].
/// Each promotion begins a timeline; its number is the first part of the names of WAL files.
pub(crate) const SERVER: &str = "\
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
    CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
    current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes')";

/// The state of the log $1, its entry $2, and its tables that a crash would empty.
pub(crate) const STATE: &str = "\
SELECT nonce, last, oldest, (SELECT entry FROM ropewalk_log WHERE shard = $1 AND index = $2),
    (SELECT min(relname::text) FROM pg_class
     WHERE oid IN ('ropewalk_head'::regclass, 'ropewalk_log'::regclass) AND relpersistence <> 'p')
FROM ropewalk_head WHERE shard = $1";

/// Appends $4 to the log $1 with the nonce $2 if $3 is its newest entry, and wakes the readers on the channel $5.
/// Returns the number of the entry, or no row when nothing was stored.
pub(crate) const APPEND: &str = "\
WITH head AS (
    UPDATE ropewalk_head SET last = last + 1
    WHERE shard = $1 AND nonce = $2 AND last = $3
        AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
        AND current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'
    RETURNING last
), stored AS (
    INSERT INTO ropewalk_log (shard, index, entry) SELECT $1::text, last, $4::bytea FROM head
)
SELECT last, pg_notify($5, '') FROM head";

/// Writes the head row of the log $1 with the nonce $2 without a change. Its commit waits for the standbys, so that
/// they have every entry up to the returned one, the newest. Also returns the settings.
pub(crate) const FENCE: &str = "\
UPDATE ropewalk_head SET last = last WHERE shard = $1 AND nonce = $2
RETURNING last, current_setting('synchronous_commit'), current_setting('fsync'),
    current_setting('full_page_writes')";

/// The bounds of the log $1 with the nonce $2, in each row an entry after $3: at most $5, of about $4 bytes together.
/// The sum of sizes is taken from the pointers to long entries, which reads none of them.
pub(crate) const READ: &str = "\
SELECT h.last, h.oldest, l.index, l.entry
FROM ropewalk_head h LEFT JOIN LATERAL (
    SELECT index, entry FROM (
        SELECT index, entry,
            sum(octet_length(entry)) OVER (ORDER BY index ROWS UNBOUNDED PRECEDING) - octet_length(entry) AS before
        FROM ropewalk_log WHERE shard = $1 AND index > $3 ORDER BY index LIMIT $5
    ) sized WHERE before < $4::bigint
) l ON true
WHERE h.shard = $1 AND h.nonce = $2";

/// Moves the beginning of the log $1 with the nonce $2 to the entry $3, at most after its end, and never back.
/// Returns the beginning.
pub(crate) const TRIM: &str = "\
UPDATE ropewalk_head SET oldest = greatest(oldest, least($3, last + 1)) WHERE shard = $1 AND nonce = $2
RETURNING oldest";

/// The first stored entry of the log $1, trimmed or not.
pub(crate) const FIRST: &str = "SELECT min(index) FROM ropewalk_log WHERE shard = $1";

/// Deletes the entries from $2 to before $3 of the log $1.
pub(crate) const DELETE: &str = "DELETE FROM ropewalk_log WHERE shard = $1 AND index >= $2 AND index < $3";

/// Settings that an operator should know, and the synchronous standbys: their number and whether it is visible.
pub(crate) const RISKS: &str = "\
SELECT current_setting('synchronous_standby_names'), current_setting('data_checksums'),
    current_setting('autovacuum'), current_setting('fsync'), current_setting('full_page_writes'),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
    (SELECT count(*) = 0 FROM pg_stat_replication WHERE sync_state IS NULL)";

/// Settings of a session.
///
/// * A statement is never cancelled by the server, because that would end the wait for a standby. A wait for a lock
///   ends before the caller gives up: another append, which waits for a standby, may hold the head row for long.
/// * Warnings are sent: one of them says that a commit may be missing on the standby.
/// * The plans are made once, without statistics: the planner must not choose a scan of the table while it is small.
pub(crate) fn session(synchronous_commit: &str, version: i32, lock_timeout_ms: u128) -> String {
    let transaction_timeout = if version >= 170_000 { "SET transaction_timeout = 0;" } else { "" };
    format!(
        "SET synchronous_commit = {synchronous_commit}; \
         SET statement_timeout = 0; SET lock_timeout = {lock_timeout_ms}; SET idle_session_timeout = 0; \
         SET idle_in_transaction_session_timeout = 0; {transaction_timeout} \
         SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; \
         SET client_min_messages = warning; \
         SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; \
         SET enable_sort = off"
    )
}
