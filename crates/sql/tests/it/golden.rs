//! Runs the scripts of `tests/golden`. A record is a statement, its result after `--->`, and the rows below:
//! columns separated by `|`, NULL for NULL, an empty text as quotes. An error is its SQLSTATE and message.
//!
//! ```text
//! -- ann                            the session that runs it, when there are several
//! SELECT id, name FROM users
//! ---> id|name
//! 1|Ann
//! ```
//!
//! `UPDATE_GOLDENFILES=1` rewrites the results, to be reviewed.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use ropewalk::Database;
use ropewalk_sql::{Outcome, Session, Settings, SqlError, Zone, to_text_in};

/// The rows of a result, one per line.
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
            let detail = error.detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
            (format!("{kind} error {}{hint}: {}{detail}", error.state, error.message), Vec::new())
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

/// A record of a script: its comments, session, statement and result.
pub(crate) struct Record<'s> {
    head: Vec<&'s str>,
    session: &'s str,
    pub(crate) sql: String,
    /// Lines: the one with the arrow, then the rows.
    pub(crate) answer: Vec<&'s str>,
}

pub(crate) fn records(script: &str) -> impl Iterator<Item = Record<'_>> {
    script.split("\n\n").filter(|record| !record.trim().is_empty()).map(|record| {
        let lines: Vec<&str> = record.trim_matches('\n').lines().collect();
        let is_head = |line: &&&str| line.starts_with('#') || line.starts_with("-- ");
        let (head, lines) = lines.split_at(lines.iter().take_while(is_head).count());
        let (sql, answer) = lines.split_at(lines.iter().take_while(|line| !line.starts_with("--->")).count());
        let session = head.iter().find_map(|line| line.strip_prefix("-- ")).unwrap_or("main");
        Record { head: head.to_vec(), session, sql: sql.join("\n"), answer: answer.to_vec() }
    })
}

/// The sessions of a script.
pub(crate) struct Sessions {
    db: Database,
    settings: Settings,
    open: HashMap<String, Session>,
}

impl Sessions {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { db: Database::in_memory().unwrap(), settings, open: HashMap::new() }
    }

    /// Runs a record in its session by `run`; returns its result lines.
    pub(crate) fn answer(
        &mut self,
        record: &Record<'_>,
        run: impl FnOnce(&mut Session, &str) -> Result<Outcome, SqlError>,
    ) -> Vec<String> {
        let (db, settings) = (&self.db, &self.settings);
        let session = self
            .open
            .entry(record.session.to_owned())
            .or_insert_with(|| Session::with_settings(db.clone(), settings.clone()));
        let result = run(session, &record.sql);
        let (head, rows) = answer("--->", &result, &session.settings().zone);
        std::iter::once(head.trim_end().to_owned()).chain(rows).collect()
    }
}

/// Runs a script; returns it with the results of this run.
fn replay(script: &str) -> String {
    let mut sessions = Sessions::new(Settings::default());
    let mut out = Vec::new();
    for record in records(script) {
        out.extend(record.head.iter().map(|line| (*line).to_owned()));
        if !record.sql.is_empty() {
            let answer = sessions.answer(&record, |session, sql| session.execute(sql, &[]));
            out.push(record.sql);
            out.extend(answer);
        }
        out.push(String::new());
    }
    out.join("\n")
}

/// The scripts of a folder: paths and contents.
pub(crate) fn scripts(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// Compares the scripts of a folder with their replays, or updates them.
pub(crate) fn check_scripts(folder: &str, replay: fn(&str) -> String) {
    for (path, script) in scripts(folder) {
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

#[test]
fn golden_scripts_match() {
    check_scripts("tests/golden", replay);
}
