//! The rights of statements: every statement kind with every set of rights, from one table.

use ropewalk::documents::CollectionOptions;
use ropewalk::documents::lang::{DocBuf, Value as Bson, Writer};
use ropewalk::{Database, Durability};
use ropewalk_sql::{Rights, Session, StatementKind};

/// The columns of the table: `+` succeeds, `-` is 42501.
const HELD: [Rights; 5] = [Rights::NONE, Rights::READ, Rights::APPEND, Rights::READ_APPEND, Rights::ADMIN];
const ANY: &str = "+++++";
const READ: &str = "-+-++";
const APPEND: &str = "--+++";
const BOTH: &str = "---++";
const ADMIN: &str = "----+";

/// Statements of a kind, each with its outcomes. The part after the last `;` is the statement; an
/// administrator first runs the others. A kind without a row does not compile.
fn rows(kind: StatementKind) -> &'static [(&'static str, &'static str)] {
    use StatementKind as K;
    match kind {
        K::Query => &[
            ("SELECT 1", READ),
            ("VALUES (1)", READ),
            ("SELECT * FROM t", READ),
            ("SELECT v FROM t WHERE id = 1", READ),
            ("SELECT count(*) FROM t a JOIN t b ON a.id = b.id", READ),
            ("SELECT (SELECT v FROM t WHERE id = 1)", READ),
            ("WITH x AS (SELECT * FROM t) SELECT * FROM x", READ),
            ("SELECT v FROM t UNION SELECT v FROM t", READ),
            ("SELECT relname FROM pg_class", READ),
            ("SELECT * FROM ropewalk_projections", READ),
            ("SELECT * FROM ropewalk_parked_events", READ),
            ("SELECT 't'::regclass", READ),
            ("SELECT * FROM events", READ),
            ("SELECT * FROM metrics.load", READ),
            ("SELECT * FROM promql('load', '2026-01-01', '2026-01-02', 3600)", READ),
            ("SELECT doc FROM shop.docs", READ),
            ("SELECT nextval('sq'); SELECT currval('sq')", READ),
            ("SELECT nextval('sq'); SELECT lastval()", READ),
            ("SELECT last_value FROM sq", READ),
            ("SELECT * FROM plain", READ),
            ("SELECT nextval('sq')", APPEND),
            ("SELECT setval('sq', 5)", APPEND),
            ("SELECT pg_advisory_lock(1)", APPEND),
            ("SELECT pg_try_advisory_xact_lock(1, 2)", APPEND),
            ("SELECT nextval('sq'), v FROM t", BOTH),
            ("SELECT nextval('sq'), doc FROM shop.docs", BOTH),
            ("SELECT nextval('sq'), (SELECT v FROM t WHERE id = 1)", BOTH),
            ("SELECT nextval('sq'), currval('sq')", BOTH),
            ("SELECT nextval('sq'), relname FROM pg_class", BOTH),
            ("SELECT nextval('sq') WHERE EXISTS (SELECT 1 FROM t)", BOTH),
            ("SELECT nextval('sq'), 't'::regclass", BOTH),
            ("SELECT pg_advisory_lock(id) FROM t", BOTH),
            ("SELECT * FROM drawing", BOTH),
            ("SELECT * FROM (SELECT * FROM t FOR UPDATE) AS x", BOTH),
            ("SELECT v FROM t ORDER BY id LIMIT 1 OFFSET 0", READ),
        ],
        K::LockingQuery => &[
            ("SELECT * FROM t FOR UPDATE", BOTH),
            ("SELECT * FROM t FOR SHARE", BOTH),
            ("SELECT * FROM t WHERE id = 1 FOR NO KEY UPDATE NOWAIT", BOTH),
        ],
        K::WritingQuery => &[
            ("WITH w AS (DELETE FROM t RETURNING *) SELECT * FROM w", BOTH),
            ("WITH w AS (INSERT INTO t VALUES (9, 9) RETURNING id) SELECT id FROM w", BOTH),
            ("WITH x AS (SELECT 7 AS id) INSERT INTO t SELECT id, id FROM x", BOTH),
            ("WITH x AS (SELECT 1 AS id) UPDATE t SET v = 0 FROM x WHERE t.id = x.id", BOTH),
        ],
        K::AppendEvent => &[("SELECT append_event('Made', ARRAY['a'], '{}')", APPEND)],
        K::NotifyCall => &[("SELECT pg_notify('c', 'x')", APPEND)],
        K::Insert => &[
            ("INSERT INTO t VALUES (8, 8)", APPEND),
            ("INSERT INTO numbered DEFAULT VALUES", APPEND),
            ("INSERT INTO t SELECT 8, 8", APPEND),
            ("INSERT INTO t VALUES (nextval('sq') + 100, 8)", APPEND),
            ("INSERT INTO t VALUES (8, 8) RETURNING *", BOTH),
            ("INSERT INTO t VALUES (8, (SELECT max(v) FROM t))", BOTH),
            ("INSERT INTO t SELECT id + 10, v FROM t", BOTH),
            ("INSERT INTO texts SELECT doc::text FROM shop.docs", BOTH),
            ("INSERT INTO t VALUES (1, 8) ON CONFLICT DO NOTHING", BOTH),
            ("INSERT INTO t VALUES (1, 8) ON CONFLICT (id) DO UPDATE SET v = t.v + 1", BOTH),
            ("SELECT nextval('sq'); INSERT INTO t VALUES (8, currval('sq'))", BOTH),
            ("INSERT INTO shop.docs (doc) VALUES ('{}')", APPEND),
            ("INSERT INTO shop.fresh (doc) VALUES ('{}')", APPEND),
            ("INSERT INTO shop.docs (_id, doc) VALUES ('a', '{}') RETURNING doc", BOTH),
            ("INSERT INTO shop.docs (_id, doc) VALUES ('a', '{}') ON CONFLICT DO NOTHING", BOTH),
            ("INSERT INTO shop.docs (doc) SELECT '{}'::json FROM t", BOTH),
            ("INSERT INTO metrics.load (value) VALUES (1)", APPEND),
            ("INSERT INTO metrics.load (value) VALUES (1) RETURNING value", BOTH),
            ("INSERT INTO events (type) VALUES ('A')", APPEND),
            ("INSERT INTO events.other (type) SELECT type FROM events", BOTH),
        ],
        K::Update => &[
            ("UPDATE t SET v = 0", BOTH),
            ("UPDATE t SET v = v RETURNING *", BOTH),
            ("UPDATE t SET v = o.v FROM t o WHERE o.id = t.id", BOTH),
            ("UPDATE shop.docs SET doc = doc", BOTH),
            ("UPDATE shop.docs SET doc = '{}' WHERE _id = 'x' RETURNING _id", BOTH),
        ],
        K::Delete => &[
            ("DELETE FROM t", BOTH),
            ("DELETE FROM t WHERE id = 1 RETURNING v", BOTH),
            ("DELETE FROM t USING t o WHERE o.id = t.id", BOTH),
            ("DELETE FROM shop.docs", BOTH),
            ("DELETE FROM shop.docs USING t WHERE t.id = 1 RETURNING doc", BOTH),
        ],
        K::Merge => &[(
            "MERGE INTO texts USING (SELECT doc FROM shop.docs) s ON false \
             WHEN NOT MATCHED THEN INSERT VALUES (s.doc::text)",
            BOTH,
        )],
        K::CopyTo => &[
            ("COPY t TO STDOUT", READ),
            ("COPY (SELECT * FROM t) TO STDOUT", READ),
            ("COPY (SELECT setval('sq', 1)) TO STDOUT", BOTH),
            ("COPY (SELECT pg_advisory_xact_lock(1)) TO STDOUT", BOTH),
        ],
        K::CopyFrom => &[("COPY t FROM STDIN", APPEND)],
        K::Explain => &[("EXPLAIN SELECT * FROM t", READ), ("EXPLAIN DELETE FROM t", READ)],
        K::ExplainAnalyze => &[
            ("EXPLAIN ANALYZE SELECT * FROM t", READ),
            ("EXPLAIN ANALYZE SELECT setval('sq', 77)", BOTH),
            ("EXPLAIN ANALYZE SELECT pg_advisory_lock(1)", BOTH),
        ],
        K::Declare => &[
            ("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t", READ),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT nextval('sq'), v FROM t", BOTH),
        ],
        K::Fetch => &[("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t; FETCH ALL FROM c", READ)],
        K::Move => &[("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t; MOVE 1 FROM c", READ)],
        K::Close => &[("CLOSE ALL", ANY)],
        K::Prepare => &[
            ("PREPARE p AS SELECT * FROM t", READ),
            ("PREPARE p AS INSERT INTO t VALUES (8, 8)", APPEND),
            ("PREPARE p AS UPDATE t SET v = v RETURNING *", BOTH),
        ],
        K::Execute => &[
            ("PREPARE p AS SELECT * FROM t; EXECUTE p", READ),
            ("PREPARE p AS INSERT INTO t VALUES (8, 8); EXECUTE p", APPEND),
            ("PREPARE p AS DELETE FROM t RETURNING *; EXECUTE p", BOTH),
            ("PREPARE p(bigint) AS SELECT v FROM t WHERE id = $1; EXECUTE p(nextval('sq'))", BOTH),
        ],
        K::Deallocate => &[("DEALLOCATE ALL", ANY)],
        K::Discard => &[("DISCARD ALL", ANY), ("DISCARD SEQUENCES", ANY)],
        K::Begin => &[("BEGIN", ANY), ("START TRANSACTION READ ONLY", ANY)],
        K::Commit => &[("BEGIN; COMMIT", ANY)],
        K::Rollback => &[("BEGIN; ROLLBACK", ANY), ("BEGIN; SAVEPOINT s; ROLLBACK TO s", ANY)],
        K::Savepoint => &[("BEGIN; SAVEPOINT s", ANY)],
        K::Release => &[("BEGIN; SAVEPOINT s; RELEASE s", ANY)],
        K::Set => &[("SET statement_timeout = 1000", ANY), ("SET TIME ZONE 'UTC'", ANY)],
        K::SetConstraints => &[("BEGIN; SET CONSTRAINTS ALL DEFERRED", APPEND)],
        K::Reset => &[("RESET ALL", ANY)],
        K::Show => &[("SHOW server_version", ANY)],
        K::ShowAll => &[("SHOW ALL", READ)],
        K::Listen => &[("LISTEN c", READ)],
        K::Unlisten => &[("UNLISTEN c", READ)],
        K::Notify => &[("NOTIFY c, 'x'", APPEND)],
        K::Vacuum => &[("VACUUM t", READ), ("ANALYZE t", READ)],
        K::LockTable => &[("BEGIN; LOCK TABLE t IN ACCESS SHARE MODE", READ)],
        K::CreateTable => &[("CREATE TABLE n (id int PRIMARY KEY)", ADMIN)],
        K::CreateTableAs => &[("CREATE TABLE n AS SELECT * FROM t", ADMIN)],
        K::CreateView => &[("CREATE VIEW n AS SELECT * FROM t", ADMIN)],
        K::CreateIndex => {
            &[("CREATE INDEX n ON t (v)", ADMIN), ("CREATE INDEX CONCURRENTLY n ON t (v)", ADMIN)]
        }
        K::CreateExtension => &[("CREATE EXTENSION IF NOT EXISTS pgcrypto", ADMIN)],
        K::CreateSchema => &[("CREATE SCHEMA n", ADMIN)],
        K::CreateSequence => &[("CREATE SEQUENCE n", ADMIN)],
        K::CreateType => &[("CREATE TYPE n AS ENUM ('a')", ADMIN)],
        K::CreateProjection => &[
            ("CREATE PROJECTION p FROM EVENTS s ON 'A' DO (INSERT INTO t VALUES (event.position, 1))", ADMIN),
            (
                "CREATE PROJECTION p FROM EVENTS s INTO COLLECTION shop.fresh \
                 ON 'A' DO (INSERT INTO shop.fresh (doc) VALUES (event.json))",
                ADMIN,
            ),
        ],
        K::AlterProjection => &[(
            "CREATE PROJECTION p FROM EVENTS s ON 'A' DO (INSERT INTO t VALUES (event.position, 1)); \
             ALTER PROJECTION p PAUSE",
            ADMIN,
        )],
        K::AlterIndex => &[("CREATE INDEX n ON t (v); ALTER INDEX n RENAME TO m", ADMIN)],
        K::AlterTable => &[
            ("ALTER TABLE t ADD COLUMN n int", ADMIN),
            ("ALTER TABLE numbered ALTER COLUMN id SET GENERATED BY DEFAULT", ADMIN),
        ],
        K::AlterSchema => &[("CREATE SCHEMA n; ALTER SCHEMA n RENAME TO m", ADMIN)],
        K::AlterSequence => &[("ALTER SEQUENCE sq RESTART", ADMIN)],
        K::AlterType => &[("CREATE TYPE n AS ENUM ('a'); ALTER TYPE n ADD VALUE 'b'", ADMIN)],
        K::SetSchema => &[("CREATE SCHEMA n; ALTER TABLE t SET SCHEMA n", ADMIN)],
        K::Comment => &[("COMMENT ON TABLE t IS 'x'", ADMIN)],
        K::Drop => &[
            ("DROP TABLE t CASCADE", ADMIN),
            ("DROP VIEW plain", ADMIN),
            ("DROP INDEX IF EXISTS n", ADMIN),
            ("CREATE SEQUENCE n; DROP SEQUENCE n", ADMIN),
            ("DROP PROJECTION IF EXISTS n", ADMIN),
            ("DROP EXTENSION IF EXISTS n", ADMIN),
        ],
        K::Truncate => &[("TRUNCATE t", ADMIN)],
    }
}

const SETUP: &str = "CREATE TABLE t (id bigint PRIMARY KEY, v bigint); INSERT INTO t VALUES (1, 1), (2, 2); \
                     CREATE TABLE texts (body text PRIMARY KEY); CREATE SEQUENCE sq; \
                     CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY); \
                     CREATE VIEW plain AS SELECT * FROM t; \
                     CREATE VIEW drawing AS SELECT nextval('sq') AS n, v FROM t";

fn document(owner: &str) -> DocBuf {
    let mut doc = Writer::new();
    doc.put("owner", Bson::String(owner));
    doc.finish()
}

fn database() -> Database {
    let db = Database::in_memory().unwrap();
    Session::new(db.clone()).execute_all(SETUP).unwrap();
    let docs = db.documents().collection("shop", "docs").unwrap();
    docs.insert_one(document("ann").bytes(), Durability::Buffered).unwrap();
    let labels = ropewalk::series::Labels::new([("__name__", "load")]).unwrap();
    let mut batch = ropewalk::series::SampleBatch::new();
    batch.push(&labels, 0, 1.0);
    db.series("default").unwrap().append(&batch).unwrap();
    db
}

/// Runs a row of the table with some rights; returns the SQLSTATE of its last statement.
fn run(db: &Database, script: &str, held: Rights) -> Result<Option<StatementKind>, &'static str> {
    let mut session = Session::new(db.clone());
    session.announces();
    let (before, last) = script.rsplit_once("; ").map_or((None, script), |(a, b)| (Some(a), b));
    for sql in before.iter().flat_map(|before| before.split("; ")) {
        session.execute(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    session.act_for(held, "ann");
    let mut prepared = session.prepare(last).map_err(|error| error.state.0)?;
    let kind = prepared.kind();
    let done = match kind {
        Some(StatementKind::CopyTo) => session.copy_out(&mut prepared, &mut |_| Ok(())).map(drop),
        Some(StatementKind::CopyFrom) => {
            session.copy_in(&mut prepared).and_then(|copy| session.copy_end(copy)).map(drop)
        }
        _ => session.run(&mut prepared, &[]).map(drop),
    };
    done.map(|()| kind).map_err(|error| error.state.0)
}

#[test]
fn h3_every_statement_kind_needs_the_rights_of_its_row() {
    let (mut wrong, mut cells) = (Vec::new(), 0);
    for kind in StatementKind::ALL {
        for (script, outcomes) in rows(*kind) {
            cells += HELD.len();
            // Each cell uses a new database, and the last column has to succeed.
            for (held, outcome) in HELD.iter().zip(outcomes.chars()) {
                let found = run(&database(), script, *held);
                let is_refused = found == Err("42501");
                let is_right = match outcome {
                    '-' => is_refused,
                    _ if *held == Rights::ADMIN => found == Ok(Some(*kind)),
                    _ => !is_refused && found != Err("XX000"),
                };
                if !is_right {
                    wrong.push(format!("{kind:?} {script:?} with {held:?}: {found:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("matrix sql: {} operations, {cells} cells", StatementKind::ALL.len());
}

/// The right of a kind is required by each of its statements: a caller without it is rejected.
#[test]
fn rights_of_kinds_are_the_least_of_their_statements() {
    // Without FROM, calls that draw from sequences or lock need only the right to append.
    let bare = |script: &str| script.starts_with("SELECT nextval") || script.starts_with("SELECT setval");
    let bare = |script: &str| bare(script) || script.starts_with("SELECT pg_");
    for kind in StatementKind::ALL {
        let needs = kind.needs();
        for (script, outcomes) in rows(*kind) {
            for (held, outcome) in HELD.iter().zip(outcomes.chars()) {
                let lacks = |needed: bool, has: bool| needed && !has && !held.admin;
                let is_short = lacks(needs.read, held.read)
                    || lacks(needs.append, held.append)
                    || lacks(needs.admin, held.admin);
                let is_bare = *kind == StatementKind::Query && bare(script);
                assert!(!is_short || outcome == '-' || is_bare, "{kind:?} {script:?} with {held:?}");
            }
        }
    }
}

#[test]
fn m1_refused_statements_leave_sequences_alone() {
    let db = database();
    let value = |db: &Database| {
        let rows =
            Session::new(db.clone()).execute("SELECT last_value, is_called FROM sq", &[]).unwrap().rows;
        format!("{rows:?}")
    };
    let before = value(&db);
    for script in [
        "COPY (SELECT setval('sq', 40)) TO STDOUT",
        "EXPLAIN ANALYZE SELECT setval('sq', 41)",
        "SELECT * FROM generate_series(1, setval('sq', 42))",
        "SELECT * FROM drawing",
        "SELECT v FROM t LIMIT setval('sq', 43)",
        "PREPARE p(bigint) AS SELECT $1; EXECUTE p(setval('sq', 44))",
        "SELECT set_config('application_name', setval('sq', 45)::text, false)",
    ] {
        assert_eq!(run(&db, script, Rights::READ), Err("42501"), "{script}");
        assert_eq!(value(&db), before, "{script}");
    }
}

#[test]
fn l2_names_are_looked_up_after_rights() {
    let db = database();
    for sql in [
        "SELECT * FROM missing",
        "INSERT INTO missing VALUES (1)",
        "SELECT 'missing'::regclass",
        "DROP TABLE missing",
    ] {
        assert_eq!(run(&db, sql, Rights::NONE), Err("42501"), "{sql}");
    }
}

#[test]
fn tables_of_definitions_accept_no_rows() {
    let mut session = Session::new(database());
    let declared = "CREATE PROJECTION p FROM EVENTS s ON 'A' DO (INSERT INTO t VALUES (event.position, 1))";
    session.execute(declared, &[]).unwrap();
    let before = session.execute("SELECT * FROM ropewalk_projection_definitions", &[]).unwrap().rows;
    assert_eq!(before.len(), 1);
    for held in [Rights::READ_APPEND, Rights::ADMIN] {
        session.act_for(held, "ann");
        for sql in [
            "UPDATE ropewalk_projection_definitions SET definition = 'x'",
            "UPDATE ropewalk_projection_definitions SET paused = true WHERE name = 'p'",
            "UPDATE ropewalk_projection_definitions AS d SET store = t.v::text FROM t",
            "DELETE FROM public.ropewalk_projection_definitions",
            "INSERT INTO ropewalk_views SELECT * FROM ropewalk_views",
            "WITH gone AS (DELETE FROM ropewalk_sequences RETURNING name) SELECT * FROM gone",
            "MERGE INTO ropewalk_projection_definitions d USING t ON d.requests = t.v \
             WHEN MATCHED THEN DELETE",
            "COPY ropewalk_views FROM STDIN",
        ] {
            assert_eq!(session.prepare(sql).unwrap_err().state.0, "42501", "{held:?} {sql}");
        }
    }
    for statement in ["DELETE FROM ropewalk_views", "UPDATE ropewalk_projection_definitions SET requests = 0"]
    {
        let sql = format!("CREATE PROJECTION q FROM EVENTS s ON 'A' DO ({statement})");
        assert_eq!(session.execute(&sql, &[]).unwrap_err().state.0, "42501", "{sql}");
    }
    let after = session.execute("SELECT * FROM ropewalk_projection_definitions", &[]).unwrap().rows;
    assert_eq!(after, before);
}

#[test]
fn h1_rules_of_collections_hold_in_every_executor() {
    let db = database();
    let docs = db.documents().collection("shop", "docs").unwrap();
    let mut session = Session::new(db.clone());
    session.act_for(Rights::READ, "ann");
    let all = "SELECT doc FROM shop.docs";
    let mut prepared = session.prepare(all).unwrap();
    assert_eq!(session.run(&mut prepared, &[]).unwrap().rows.len(), 1);
    let mut rules = Writer::new();
    rules.put("read", Bson::String("resource.owner == request.auth.uid"));
    docs.set_options(CollectionOptions { rules: Some(rules.finish()), ..Default::default() }).unwrap();
    // At this point Ann may see every document.
    assert_eq!(session.run(&mut prepared, &[]).unwrap().rows.len(), 1);
    docs.insert_one(document("bob").bytes(), Durability::Buffered).unwrap();
    for executor in ["auto", "engine", "nested", "rows"] {
        session.execute(&format!("SET ropewalk.executor = {executor}"), &[]).unwrap();
        for sql in [all, "SELECT count(*) FROM shop.docs", "SELECT v, doc FROM t, shop.docs"] {
            assert_eq!(session.execute(sql, &[]).unwrap_err().state.0, "42501", "{executor}: {sql}");
            session.execute("BEGIN", &[]).unwrap();
            assert_eq!(session.execute(sql, &[]).unwrap_err().state.0, "42501", "{executor}: {sql}");
            session.execute("ROLLBACK", &[]).unwrap();
        }
    }
    assert_eq!(session.run(&mut prepared, &[]).unwrap_err().state.0, "42501");
    session.act_for(Rights::ADMIN, "ann");
    assert_eq!(session.execute(all, &[]).unwrap().rows.len(), 2);
    // Revoking a right also affects existing plans.
    session.act_for(Rights::NONE, "ann");
    assert_eq!(session.run(&mut prepared, &[]).unwrap_err().state.0, "42501");
    assert_eq!(session.execute(all, &[]).unwrap_err().state.0, "42501");
}

#[test]
fn h8_memory_of_a_statement_is_raised_by_administrators_alone() {
    let mut session = Session::new(database());
    session.execute("SET work_mem = '2GB'", &[]).unwrap();
    session.act_for(Rights::READ_APPEND, "ann");
    let shown = session.execute("SHOW work_mem", &[]).unwrap().rows;
    assert_eq!(format!("{shown:?}"), "[[Text(\"512MB\")]]");
    session.execute("SET work_mem = '64MB'", &[]).unwrap();
    for sql in ["SET work_mem = '64GB'", "SELECT set_config('work_mem', '64GB', false)"] {
        assert_eq!(session.execute(sql, &[]).unwrap_err().state.0, "42501", "{sql}");
    }
}

#[test]
fn h8_settings_of_a_session_are_bounded() {
    let mut session = Session::new(database());
    let set = |session: &mut Session, name: &str| {
        session.execute(&format!("SELECT set_config('{name}', repeat('x', 400000), false)"), &[])
    };
    for name in ["a.one", "a.two"] {
        set(&mut session, name).unwrap();
    }
    assert_eq!(set(&mut session, "a.three").unwrap_err().state.0, "54000");
    session.execute("SET a.three = 'short'", &[]).unwrap();
}
