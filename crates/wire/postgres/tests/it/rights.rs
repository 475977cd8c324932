//! A statement of every kind, by every caller of the matrix. `ropewalk_sql` has a test of many statements of
//! each kind.

use ropewalk_auth::{Needs, Operation, Resource};
use ropewalk_sql::StatementKind;

use crate::client::{Client, Server, framed, texts};
use crate::matrix::{self, Matrix, MatrixCaller, PASSWORD};
use crate::opening::login;

/// A statement of a kind. A kind without one does not compile.
fn statement(kind: StatementKind) -> &'static str {
    use StatementKind as K;
    match kind {
        K::Query => "SELECT * FROM t",
        K::LockingQuery => "SELECT * FROM t FOR UPDATE",
        K::WritingQuery => "WITH w AS (DELETE FROM t RETURNING *) SELECT * FROM w",
        K::AppendEvent => "SELECT append_event('Made', ARRAY['a'], '{}')",
        K::NotifyCall => "SELECT pg_notify('c', 'x')",
        K::Insert => "INSERT INTO t VALUES (8)",
        K::Update => "UPDATE t SET id = id",
        K::Delete => "DELETE FROM t",
        K::Merge => "MERGE INTO t USING u ON false WHEN NOT MATCHED THEN INSERT VALUES (1)",
        K::CopyTo => "COPY t TO STDOUT",
        K::CopyFrom => "COPY t FROM STDIN",
        K::Explain => "EXPLAIN SELECT * FROM t",
        K::ExplainAnalyze => "EXPLAIN ANALYZE SELECT * FROM t",
        K::Declare => "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t",
        K::Fetch => "FETCH ALL FROM missing",
        K::Move => "MOVE 1 FROM missing",
        K::Close => "CLOSE ALL",
        K::Prepare => "PREPARE p AS VALUES (1)",
        K::Execute => "EXECUTE missing",
        K::Deallocate => "DEALLOCATE ALL",
        K::Discard => "DISCARD ALL",
        K::Begin => "BEGIN",
        K::Commit => "COMMIT",
        K::Rollback => "ROLLBACK",
        K::Savepoint => "SAVEPOINT s",
        K::Release => "RELEASE s",
        K::Set => "SET statement_timeout = 1000",
        K::SetConstraints => "SET CONSTRAINTS ALL IMMEDIATE",
        K::Reset => "RESET ALL",
        K::Show => "SHOW server_version",
        K::ShowAll => "SHOW ALL",
        K::Listen => "LISTEN c",
        K::Unlisten => "UNLISTEN c",
        K::Notify => "NOTIFY c, 'x'",
        K::Vacuum => "VACUUM t",
        K::LockTable => "LOCK TABLE t IN ACCESS SHARE MODE",
        K::CreateTable => "CREATE TABLE n (id int PRIMARY KEY)",
        K::CreateTableAs => "CREATE TABLE m AS SELECT * FROM t",
        K::CreateView => "CREATE VIEW v AS SELECT * FROM t",
        K::CreateIndex => "CREATE INDEX i ON t (id)",
        K::CreateExtension => "CREATE EXTENSION IF NOT EXISTS pgcrypto",
        K::CreateSchema => "CREATE SCHEMA s",
        K::CreateSequence => "CREATE SEQUENCE q",
        K::CreateType => "CREATE TYPE e AS ENUM ('a')",
        K::AlterIndex => "ALTER INDEX missing RENAME TO other",
        K::AlterTable => "ALTER TABLE t ADD COLUMN n int",
        K::AlterSchema => "ALTER SCHEMA missing RENAME TO other",
        K::AlterSequence => "ALTER SEQUENCE missing RESTART",
        K::AlterType => "ALTER TYPE missing ADD VALUE 'b'",
        K::SetSchema => "ALTER TABLE t SET SCHEMA missing",
        K::Comment => "COMMENT ON TABLE t IS 'x'",
        K::Drop => "DROP TABLE missing",
        K::Truncate => "TRUNCATE t",
        K::CreateProjection => "CREATE PROJECTION p FROM EVENTS s INTO t ON 'A' DO (DELETE FROM t)",
        K::AlterProjection => "ALTER PROJECTION missing PAUSE",
    }
}

/// Runs a statement; the SQLSTATE of its error.
async fn state(client: &mut Client, sql: &str) -> Option<String> {
    client.send(&framed(b'Q', &texts(&[sql]))).await;
    let mut state = None;
    loop {
        let answer = client.answer().await.expect("the server has hung up");
        match answer.tag {
            'E' => state = answer.field(b'C'),
            'G' => client.send(&framed(b'f', &texts(&["no rows"]))).await,
            'Z' => return state,
            _ => {}
        }
    }
}

/// The caller's connection; `None` when the login was rejected.
async fn connected(server: &Server, caller: &MatrixCaller) -> Option<Client> {
    let mut client = server.dial();
    let password = if caller.roles.is_some() { PASSWORD } else { "" };
    let answer = login(&mut client, caller.name, password).await;
    if answer.tag == 'E' {
        return None;
    }
    client.until_ready().await;
    Some(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_kind_is_rejected_exactly_without_its_rights() {
    let operations = ropewalk_postgres::operations();
    let mut matrix = Matrix::new("postgres");
    for caller in matrix::callers() {
        let server = Server::new();
        state(&mut server.connect().await, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int)")
            .await;
        matrix::create_users(server.service.access()).await;
        let mut client = connected(&server, &caller).await;
        for (kind, Operation { name, needs }) in StatementKind::ALL.iter().zip(&operations) {
            let outcome = match &mut client {
                // The login was rejected.
                None => Some("28P01".to_owned()),
                Some(client) => {
                    let outcome = state(client, statement(*kind)).await;
                    state(client, "ROLLBACK").await;
                    outcome
                }
            };
            // The prepared statement reads.
            let prepares = *kind == StatementKind::Prepare;
            let needs = if prepares { Needs::read(Resource::AllStores) } else { *needs };
            let is_refused = ["42501", "28P01"].iter().any(|state| outcome.as_deref() == Some(state));
            matrix.note(name, &caller, caller.is_allowed(needs), (is_refused, outcome));
        }
    }
    matrix.finish(operations.len());
}
