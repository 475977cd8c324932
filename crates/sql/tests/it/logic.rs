//! Runs the sample of SQLite's sqllogictest corpus in place, as the label `postgresql`, and counts. The files
//! follow SQLite's semantics, so a statement may be rejected; but every result must be right.
//!
//! Source: the format, sqlite.org/sqllogictest. The files are not part of the project; without them the test
//! prints a notice and passes.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use ropewalk::tables::Value;
use ropewalk_sql::{Executor, to_text};

use crate::executor_setting::session_in;

const LABEL: &str = "postgresql";

/// MD5 (RFC 1321), by which the files identify long results.
fn md5(text: &[u8]) -> String {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut padded = text.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if text.len() % 64 >= 56 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&(text.len() as u64 * 8).to_le_bytes());
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded.chunks(64) {
        let words: Vec<u32> = block.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64_usize {
            let (mixed, word) = match i / 16 {
                0 => (b & c | !b & d, i),
                1 => (d & b | !d & c, (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), 7 * i % 16),
            };
            let sine = (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a.wrapping_add(mixed).wrapping_add(sine).wrapping_add(words[word]);
            let turned = b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4]));
            (a, d, c, b) = (d, c, b, turned);
        }
        for (whole, part) in state.iter_mut().zip([a, b, c, d]) {
            *whole = whole.wrapping_add(part);
        }
    }
    ropewalk::hooks::hex(&state.map(u32::to_le_bytes).concat())
}

/// A value in the files' format for a column of type I, R or T.
fn cell(value: &Value<'_>, kind: char) -> String {
    let Some(text) = to_text(value) else { return "NULL".into() };
    let number = || text.parse::<f64>().ok();
    match kind {
        'I' if matches!(value, Value::Bool(_)) => (if text == "t" { "1" } else { "0" }).into(),
        'I' => number().map_or(text.clone(), |n| format!("{}", n.trunc() as i64)),
        'R' => number().map_or(text.clone(), |n| format!("{n:.3}")),
        _ if text.is_empty() => "(empty)".into(),
        _ => text.chars().map(|c| if (' '..='~').contains(&c) { c } else { '@' }).collect(),
    }
}

#[derive(Default)]
struct Counts {
    passed: usize,
    skipped: usize,
    refused: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        other
            .refused
            .into_iter()
            .for_each(|(reason, count)| *self.refused.entry(reason).or_default() += count);
        self.wrong.extend(other.wrong);
    }

    fn refuse(&mut self, error: &ropewalk_sql::SqlError) {
        // Removes names and numbers, so that equal reasons are counted together.
        let words = error
            .message
            .split(' ')
            .filter(|word| !word.contains(['"', '_', '(', ')', '.']) && !word.contains(char::is_numeric));
        let reason = format!("{} {}", error.state, words.take(8).collect::<Vec<_>>().join(" "));
        *self.refused.entry(reason).or_default() += 1;
    }
}

fn expected(body: &[&str], values: &[String], sort: &str, width: usize) -> Result<(), String> {
    let mut values = values.to_vec();
    match sort {
        "rowsort" => {
            let mut rows: Vec<Vec<String>> = values.chunks(width.max(1)).map(<[String]>::to_vec).collect();
            rows.sort();
            values = rows.concat();
        }
        "valuesort" => values.sort(),
        _ => {}
    }
    if let [hash] = body
        && let Some((count, hash)) = hash.split_once(" values hashing to ")
    {
        let all: String = values.iter().map(|value| value.clone() + "\n").collect();
        let same = count == values.len().to_string() && md5(all.as_bytes()) == hash;
        return if same { Ok(()) } else { Err(format!("{} values, another hash", values.len())) };
    }
    if body == values { Ok(()) } else { Err(format!("{values:?} where {body:?} is expected")) }
}

fn run_file(path: &Path, executor: Executor, counts: &mut Counts) {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap()).replace('\r', "");
    let mut session = session_in(executor);
    // After a rejected statement results may differ: the tables are not in the state that the file expects.
    let mut astray = false;
    for record in text.split("\n\n") {
        let lines: Vec<&str> = record.lines().filter(|line| !line.starts_with('#')).collect();
        let lines: Vec<&str> = lines.into_iter().skip_while(|line| line.trim().is_empty()).collect();
        let mut lines = lines.as_slice();
        let mut skip = false;
        while let [first, rest @ ..] = lines {
            let mut words = first.split_whitespace();
            match (words.next(), words.next()) {
                (Some("skipif"), Some(label)) => skip |= label == LABEL,
                (Some("onlyif"), Some(label)) => skip |= label != LABEL,
                (Some("hash-threshold"), _) => {}
                (Some("halt"), _) if !skip => return,
                _ => break,
            }
            lines = rest;
        }
        let [head, body @ ..] = lines else { continue };
        if skip {
            counts.skipped += 1;
            continue;
        }
        let words: Vec<&str> = head.split_whitespace().collect();
        match words.as_slice() {
            ["statement", wanted, ..] => match (session.execute(&body.join("\n"), &[]), *wanted) {
                (Ok(_), "ok") | (Err(_), "error") => counts.passed += 1,
                (Ok(_), _) => counts.wrong.push(format!("{}: no error: {}", path.display(), body.join(" "))),
                (Err(error), _) => {
                    astray = true;
                    counts.refuse(&error);
                }
            },
            ["query", kinds, rest @ ..] => {
                let place = body.iter().position(|line| *line == "----").unwrap_or(body.len());
                let sql = body[..place].join("\n");
                match session.execute(&sql, &[]) {
                    Err(error) => counts.refuse(&error),
                    Ok(outcome) => {
                        let kinds: Vec<char> = kinds.chars().collect();
                        let values: Vec<String> = outcome
                            .rows
                            .iter()
                            .flat_map(|row| row.iter().zip(&kinds).map(|(value, kind)| cell(value, *kind)))
                            .collect();
                        let sort = rest.first().copied().unwrap_or("nosort");
                        match expected(body.get(place + 1..).unwrap_or_default(), &values, sort, kinds.len())
                        {
                            Ok(()) => counts.passed += 1,
                            Err(_) if astray => {
                                *counts.refused.entry("behind a refused statement".into()).or_default() += 1
                            }
                            Err(what) => counts.wrong.push(format!("{}: {what}: {sql}", path.display())),
                        }
                    }
                }
            }
            _ => counts.skipped += 1,
        }
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "test") {
            found.push(path);
        }
    }
}

#[test]
fn hashes_are_md5() {
    assert_eq!(md5(b""), "d41d8cd98f00b204e9800998ecf8427e");
    assert_eq!(md5(b"abc"), "900150983cd24fb0d6963f7d28e17f72");
    assert_eq!(md5(&[b'a'; 60]), "cc7ed669cf88f201c3297c6a91e1d18d");
}

#[test]
fn results_of_sqllogictest_are_right() {
    println!("{}", is_right_in(Executor::Auto));
}

#[test]
fn results_of_sqllogictest_by_rows_are_right() {
    println!("{}", is_right_in(Executor::Rows));
}

#[test]
fn results_of_sqllogictest_in_the_engine_are_right() {
    println!("{}", is_right_in(Executor::Engine));
}

#[test]
fn results_of_sqllogictest_in_nested_loops_are_right() {
    println!("{}", is_right_in(Executor::Nested));
}

/// Runs all files in an executor; returns the counts to print.
fn is_right_in(executor: Executor) -> String {
    let above =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("shared/sqllogictest"));
    let Some(root) = above.into_iter().find(|folder| folder.is_dir()) else {
        return format!("SKIPPED: no folder shared/sqllogictest above {}", env!("CARGO_MANIFEST_DIR"));
    };
    let mut all = Vec::new();
    files(&root, &mut all);
    all.sort();
    let (next, done) = (AtomicUsize::new(0), Mutex::new((Counts::default(), BTreeMap::new())));
    let work = || {
        while let Some(path) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut counts = Counts::default();
            run_file(path, executor, &mut counts);
            let (passed, wrong) = (counts.passed, counts.wrong.len());
            let refused = counts.refused.values().sum::<usize>();
            let name = path.strip_prefix(&root).unwrap().display();
            let line = format!("{name}: {passed} passed, {refused} refused, {wrong} wrong\n");
            let mut done = done.lock().unwrap();
            done.0.add(counts);
            done.1.insert(path, line);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (counts, lines) = done.into_inner().unwrap();
    let mut report: String = lines.into_values().collect();
    report += &format!("{} passed, {} skipped, refused:\n", counts.passed, counts.skipped);
    counts.refused.iter().for_each(|(reason, count)| report += &format!("{count:6} {reason}\n"));
    // PostgreSQL rejects these, too: docs/sql.md has the list.
    let refused: usize = counts.refused.values().sum();
    assert!(refused <= 47, "{refused} records are refused:\n{report}");
    let wrong: Vec<String> =
        counts.wrong.iter().take(20).map(|wrong| wrong.chars().take(600).collect()).collect();
    assert!(wrong.is_empty(), "{} answers are wrong:\n{}", counts.wrong.len(), wrong.join("\n"));
    report
}
