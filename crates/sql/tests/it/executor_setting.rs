//! Every executor returns the same: the scripts of `tests/golden` run once in each (`ropewalk.executor`).
//!
//! A query without ORDER BY may return its rows in another order. Every other difference fails the test,
//! unless `tests/executors_known.txt` lists it with a reason; an entry whose difference no longer exists
//! fails the test, too.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ropewalk::Database;
use ropewalk_sql::{Executor, Session, Settings, state};

use crate::golden::{Record, Sessions, records, scripts, shown};

/// The executors that a session can set.
const FORCED: [Executor; 3] = [Executor::Rows, Executor::Engine, Executor::Nested];

fn settings(executor: Executor) -> Settings {
    Settings { executor, ..Settings::default() }
}

/// A session over an empty database, with an executor set.
pub(crate) fn session_in(executor: Executor) -> Session {
    Session::with_settings(Database::in_memory().unwrap(), settings(executor))
}

/// True when both are the same except for the order of rows without ORDER BY.
fn is_same(record: &Record<'_>, found: &[String]) -> bool {
    let (mut want, mut found) = (record.answer.clone(), found.iter().map(String::as_str).collect::<Vec<_>>());
    if !record.sql.to_uppercase().contains("ORDER BY") {
        want.sort_unstable();
        found.sort_unstable();
    }
    want == found
}

/// A statement whose result depends on its executor or the setting.
fn tells_of_executor(sql: &str) -> bool {
    sql.starts_with("EXPLAIN") || sql == "SHOW ALL"
}

#[test]
fn golden_scripts_answer_the_same_in_each_executor() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/executors_known.txt");
    let list = fs::read_to_string(list).unwrap();
    let mut known: BTreeMap<&str, bool> = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| (line.split(" # ").next().unwrap(), false))
        .collect();
    let (mut differences, mut taken) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for (path, script) in scripts("tests/golden") {
        for executor in FORCED {
            let mut sessions = Sessions::new(settings(executor));
            for record in records(&script).filter(|record| !record.sql.is_empty()) {
                let found = sessions.answer(&record, |session, sql| {
                    let mut prepared = session.prepare(sql)?;
                    if prepared.executor() == Some(executor) {
                        *taken.entry(executor.name()).or_default() += 1;
                    }
                    session.run(&mut prepared, &[])
                });
                if is_same(&record, &found) || tells_of_executor(&record.sql) {
                    continue;
                }
                let name = path.file_stem().unwrap().to_str().unwrap();
                let entry = format!("{name} {}: {}", executor.name(), record.sql.replace('\n', " "));
                match known.get_mut(entry.as_str()) {
                    Some(seen) => *seen = true,
                    None => {
                        differences.push(format!("{entry}\n  want {:?}\n  have {found:?}", record.answer))
                    }
                }
            }
        }
    }
    println!("queries by executor: {taken:?}");
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    let gone: Vec<_> = known.iter().filter(|(_, seen)| !**seen).map(|(entry, _)| entry).collect();
    assert!(gone.is_empty(), "listed differences that are gone: {gone:#?}");
}

#[test]
fn executor_setting_plans_again_and_rejects_unknown_names() {
    let mut session = session_in(Executor::Auto);
    session.execute("CREATE TABLE t (id int PRIMARY KEY, a int)", &[]).unwrap();
    session.execute("INSERT INTO t VALUES (1, 10), (2, 20)", &[]).unwrap();
    let mut by_key = session.prepare("SELECT a FROM t WHERE id = 2").unwrap();
    for (name, executor) in Executor::ALL {
        session.execute(&format!("SET ropewalk.executor = {name}"), &[]).unwrap();
        assert_eq!(shown(&session.execute("SHOW ropewalk.executor", &[]).unwrap()), [name]);
        assert_eq!(shown(&session.run(&mut by_key, &[]).unwrap()), ["20"]);
        let want = if executor == Executor::Auto { Executor::Rows } else { executor };
        assert_eq!(by_key.executor(), Some(want));
    }
    let error = session.execute("SET ropewalk.executor = 'fast'", &[]).unwrap_err();
    assert_eq!(error.state, state::INVALID_PARAMETER_VALUE);
    session.execute("RESET ropewalk.executor", &[]).unwrap();
    assert_eq!(session.settings().executor, Executor::Auto);
}
