//! Runs the scripts of `tests/golden`. A record is a statement, what it answers behind `--->`, and rows below: columns apart
//! by `|`, NULL for NULL, an empty text as quotes. An error is its SQLSTATE and message.
//!
//! ```text
//! -- ann                            the session that it runs in, when there are several
//! SELECT id, name FROM users
//! ---> id|name
//! 1|Ann
//! ```
//!
//! `UPDATE_GOLDENFILES=1` writes the answers anew, to be read.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use ropewalk::Database;
use ropewalk_sql::{Outcome, Session, SqlError, Zone, to_text_in};

/// The rows of an answer, one a line.
pub(crate) fn shown(outcome: &Outcome) -> Vec<String> {
    shown_in(outcome, &Zone::UTC)
}

fn shown_in(outcome: &Outcome, zone: &Zone) -> Vec<String> {
    let cell = |value: &_| match to_text_in(value, zone) {
        None => "NULL".to_owned(),
        Some(text) if text.is_empty() => "''".to_owned(),
        Some(text) => text.replace('\n', "\\n"),
    };
    outcome.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}

pub(crate) fn answer(kind: &str, result: &Result<Outcome, SqlError>, zone: &Zone) -> (String, Vec<String>) {
    match result {
        Err(error) => {
            let hint = error.hint.as_ref().filter(|_| error.state.0 == "0A000");
            let hint = hint.map_or_else(String::new, |_| " with a hint".into());
            (format!("{kind} error {}{hint}: {}", error.state, error.message), Vec::new())
        }
        Ok(outcome) if outcome.columns.is_some() => {
            let names = outcome.columns.iter().flat_map(|c| c.iter()).map(|c| c.name.clone());
            (format!("{kind} {}", names.collect::<Vec<_>>().join("|")), shown_in(outcome, zone))
        }
        Ok(outcome) => {
            let notice =
                outcome.notice.as_ref().map_or_else(String::new, |n| format!(", notice {}", n.state));
            (format!("{kind} {}{notice}", outcome.tag()), Vec::new())
        }
    }
}

/// Runs a script and answers what it would be with the answers of this run.
fn replay(script: &str) -> String {
    let db = Database::in_memory().unwrap();
    let mut sessions: HashMap<String, Session> = HashMap::new();
    let mut out = Vec::new();
    for record in script.split("\n\n").filter(|record| !record.trim().is_empty()) {
        let mut lines: Vec<&str> = record.trim_matches('\n').lines().collect();
        let mut head = Vec::new();
        while lines.first().is_some_and(|line| line.starts_with('#') || line.starts_with("-- ")) {
            head.push(lines.remove(0));
        }
        let name = head.iter().find_map(|line| line.strip_prefix("-- ")).unwrap_or("main");
        out.extend(head.iter().map(|line| (*line).to_owned()));
        if !lines.is_empty() {
            let sql: Vec<&str> = lines.iter().copied().take_while(|line| !line.starts_with("--->")).collect();
            let session = sessions.entry(name.to_owned()).or_insert_with(|| Session::new(db.clone()));
            let result = session.execute(&sql.join("\n"), &[]);
            let (head, rows) = answer("--->", &result, &session.settings().zone);
            out.extend(sql.iter().map(|line| (*line).to_owned()));
            out.push(head.trim_end().to_owned());
            out.extend(rows);
        }
        out.push(String::new());
    }
    out.join("\n")
}

#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut scripts: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    for path in scripts {
        let script = fs::read_to_string(&path).unwrap();
        let found = replay(&script);
        if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
            fs::write(&path, &found).unwrap();
            continue;
        }
        for (number, (want, have)) in script.trim_end().lines().zip(found.lines()).enumerate() {
            assert_eq!(want, have, "{}:{}", path.display(), number + 1);
        }
        assert_eq!(script.trim_end().lines().count(), found.trim_end().lines().count(), "{}", path.display());
    }
}
