//! Runs the same random statements in PostgreSQL 15 and SQLite, as Debian ships them: all three return the
//! same rows, or all an error. Without them the test prints a notice and passes. Our side runs in each
//! executor.
//!
//! The generator avoids intended differences: division, the order of text, casts.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ropewalk_sql::{Executor, to_text};

use crate::executor_setting::session_in;
use crate::random::{Expressions, Random, Table, chosen, tables};

const POSTGRES: &str = "/usr/lib/postgresql/15/bin";
const SQLITE: &str = "/usr/bin/sqlite3";

/// Statements that create the tables of a seed, and the queries over them.
fn script(seed: u64) -> (Vec<String>, Vec<String>) {
    let mut random = Random::new(seed ^ 0xd1ff);
    let (all, statements) = tables(&mut random);
    let [t, u] = <[Table; 2]>::try_from(all).unwrap();
    let mut questions = Vec::new();
    for _ in 0..6 {
        let mut of = |tables: &[&Table], inner: Option<&Table>, what: usize| {
            let tables = tables.iter().map(|table| (*table).clone()).collect();
            let mut expressions = Expressions { random: &mut random, tables, inner: inner.cloned() };
            match what {
                0 => expressions.condition(3),
                1 => expressions.number(3),
                _ => expressions.text(2),
            }
        };
        let (c, n, s) = (of(&[&t], Some(&u), 0), of(&[&t], Some(&u), 1), of(&[&t], None, 2));
        let both = of(&[&t, &u], None, 0);
        let truth = |c: &str| format!("CASE WHEN {c} THEN 1 WHEN NOT {c} THEN 0 END");
        questions.push(format!("SELECT t.a0, {n}, {s}, {} FROM t", truth(&c)));
        questions.push(format!("SELECT * FROM t WHERE {c}"));
        questions.push(format!("SELECT t.*, u.* FROM t LEFT JOIN u ON {both}"));
        questions.push(format!("SELECT count(*), sum(t.a1), min(u.c0), max(t.b0) FROM t, u WHERE {both}"));
        questions.push(format!(
            "SELECT {s} || '', count(*), count(DISTINCT t.a1), max({n}) FROM t WHERE {c} GROUP BY {s} || ''"
        ));
        questions.push(format!("SELECT DISTINCT {n} FROM t WHERE {c} UNION SELECT u.c0 FROM u"));
        questions.push(format!("SELECT {n} FROM t EXCEPT SELECT u.c1 FROM u WHERE u.c0 > 0"));
        questions.push(format!(
            "SELECT t.a0, row_number() OVER (ORDER BY t.a0), sum(t.a1) OVER (PARTITION BY t.b0 ORDER BY t.a0) FROM t WHERE {c}"
        ));
        questions.push(format!("SELECT t.a0, (SELECT count(*) FROM u WHERE {both}) FROM t"));
        questions.push(format!("UPDATE t SET a1 = {n} WHERE {c} RETURNING a0, a1"));
        questions.push(format!("DELETE FROM t WHERE {} RETURNING a0", of(&[&t], Some(&u), 0)));
    }
    (statements, questions)
}

/// The result of each query: sorted rows, or `None` for an error.
type Answers = Vec<Option<Vec<String>>>;

fn ours(executor: Executor, statements: &[String], questions: &[String]) -> Answers {
    let mut session = session_in(executor);
    for statement in statements {
        session.execute(statement, &[]).unwrap();
    }
    let answer = |question: &String| match session.execute(question, &[]) {
        Ok(outcome) => {
            let cell = |value: &_| to_text(value).unwrap_or_else(|| "NULL".into());
            let rows = outcome.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|"));
            let mut rows: Vec<String> = rows.collect();
            rows.sort();
            Some(rows)
        }
        Err(error) => {
            assert!(!error.state.0.starts_with("XX"), "{question}: {}", error.message);
            (error.state.0 == "0A000").then(|| vec![format!("not served: {}", error.message)])
        }
    };
    questions.iter().map(answer).collect()
}

/// Runs a script through a shell that prints marks and omits errors from its rows.
fn asked(command: &mut Command, script: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the shell starts");
    let mut input = child.stdin.take().unwrap();
    let script = script.to_owned();
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Parses rows between marks. A failed query prints its first mark and then directly the second; the count
/// after its rows distinguishes it from a query without rows.
fn parsed(output: &str, questions: usize) -> Answers {
    let parts: Vec<&str> = output.split("@@\n").collect();
    assert_eq!(parts.len(), questions + 1, "one mark for each question");
    let rows = |part: &&str| {
        let mut rows: Vec<String> = part.lines().map(str::to_owned).collect();
        rows.sort();
        Some(rows)
    };
    parts[1..].iter().map(rows).collect()
}

fn compare(
    name: &str,
    seed: u64,
    questions: &[String],
    ours: &Answers,
    theirs: &Answers,
    served: &mut (usize, usize),
) {
    for ((question, ours), theirs) in questions.iter().zip(ours).zip(theirs) {
        served.0 += 1;
        match (ours, theirs) {
            (Some(rows), _) if rows.first().is_some_and(|row| row.starts_with("not served: ")) => {
                served.1 += 1
            }
            // An error appears as no rows there.
            (None, Some(theirs)) => {
                assert!(theirs.is_empty(), "seed {seed}: {question}: we fail, {name}: {theirs:?}")
            }
            (ours, theirs) => assert_eq!(ours, theirs, "seed {seed}, ours beside {name}'s: {question}"),
        }
    }
}

/// `ROPEWALK_SEED` and `ROPEWALK_ROUNDS` override the default seeds.
fn seeds() -> std::ops::Range<u64> {
    let first = chosen("ROPEWALK_SEED", 0);
    first..first + chosen("ROPEWALK_ROUNDS", 25)
}

#[test]
fn sqlite_answers_the_same() {
    if !Path::new(SQLITE).is_file() {
        eprintln!("SKIPPED: {SQLITE} is not installed");
        return;
    }
    let mut served = (0, 0);
    for seed in seeds() {
        let (statements, questions) = script(seed);
        let mut text = ".mode list\n.nullvalue NULL\nPRAGMA case_sensitive_like = ON;\n".to_owned();
        statements.iter().for_each(|statement| text += &format!("{statement};\n"));
        questions.iter().for_each(|question| text += &format!(".print @@\n{question};\n"));
        let theirs = parsed(&asked(Command::new(SQLITE).arg(":memory:"), &text), questions.len());
        for (name, executor) in Executor::ALL {
            let ours = ours(executor, &statements, &questions);
            compare(&format!("SQLite, {name}"), seed, &questions, &ours, &theirs, &mut served);
        }
    }
    println!("{} questions, {} not served", served.0, served.1);
    assert!(served.1 * 20 < served.0);
}

/// A temporary PostgreSQL server; stopped on drop.
struct Cluster(Child, tempdir::Folder);

/// A temporary folder that is deleted on drop.
mod tempdir {
    use std::path::PathBuf;

    pub(super) struct Folder(pub(super) PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGINT requests a fast shutdown, which also stops the server's child processes.
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Runs a program as another user: PostgreSQL refuses to run as root.
fn as_postgres(program: &str) -> Command {
    let path = format!("{POSTGRES}/{program}");
    let is_root = fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if !is_root {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--", &path]);
    command.current_dir("/");
    command
}

fn cluster() -> Cluster {
    let folder = std::env::temp_dir().join(format!("ropewalk-diff-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let folder = tempdir::Folder(folder);
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let data = folder.0.join("data");
    let mut initdb = as_postgres("initdb");
    initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data);
    let said = initdb.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let mut postgres = as_postgres("postgres");
    postgres.arg("-D").arg(&data).arg("-k").arg(&folder.0).args(["-p", "5432", "-c", "listen_addresses="]);
    postgres.args(["-c", "fsync=off"]).stdout(Stdio::null()).stderr(Stdio::null());
    let cluster = Cluster(postgres.spawn().unwrap(), folder);
    for _ in 0..200 {
        if psql(&cluster)
            .args(["-c", "SELECT 1"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
        {
            return cluster;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("PostgreSQL does not answer");
}

fn psql(cluster: &Cluster) -> Command {
    let mut psql = Command::new(format!("{POSTGRES}/psql"));
    psql.args(["-U", "postgres", "-p", "5432", "-AtqX", "-P", "null=NULL", "-h"]).arg(&cluster.1.0);
    psql
}

#[test]
fn postgresql_answers_the_same() {
    if !Path::new(POSTGRES).join("initdb").is_file() {
        eprintln!("SKIPPED: PostgreSQL 15 is not installed in {POSTGRES}");
        return;
    }
    let cluster = cluster();
    let mut served = (0, 0);
    for seed in seeds() {
        let (statements, questions) = script(seed);
        let mut text = "DROP TABLE IF EXISTS t, u;\n".to_owned();
        statements.iter().for_each(|statement| text += &format!("{statement};\n"));
        questions.iter().for_each(|question| text += &format!("\\echo @@\n{question};\n"));
        let theirs = parsed(&asked(&mut psql(&cluster), &text), questions.len());
        for (name, executor) in Executor::ALL {
            let ours = ours(executor, &statements, &questions);
            compare(&format!("PostgreSQL, {name}"), seed, &questions, &ours, &theirs, &mut served);
        }
    }
    println!("{} questions, {} not served", served.0, served.1);
    assert!(served.1 * 20 < served.0);
}
