//! The language rules of `docs/style.md` that a program can check.
//!
//!   docs/glossary.md ─▶ words ─┐
//!   git ls-files ─▶ texts ─────┴─▶ findings by crate and kind ─▶ limits in xtask/words.txt
//!
//! Rules
//! 1. Documentation, module headers, string literals and test names have no word of the glossary's list and no sentence
//!    that starts with `What` or `Who` as a noun.
//! 2. Other comments may have as many findings as `xtask/words.txt` allows for their crate. A smaller number is written
//!    there by `cargo xtask words --update`; a larger one fails, so the numbers only fall.
//!
//! Not checked: code, text in backticks, code blocks, targets of links, placeholders of format strings, byte strings,
//! string literals without a space, literals of tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo;
use crate::prose::{self, Kind};

const GLOSSARY: &str = "docs/glossary.md";
const HEADING: &str = "## Words that are not used";
const LIMITS: &str = "xtask/words.txt";

/// A word at a place where it is not used.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    kind: Kind,
    word: String,
}

/// Checks every text of the project, or prints the findings below `prefix`.
pub(crate) fn check(root: &Path, prefix: Option<&str>, update: bool) -> Result<()> {
    let glossary = fs::read_to_string(root.join(GLOSSARY)).context(GLOSSARY)?;
    let words = banned(&glossary)?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut rejected = 0;
    for file in cargo::tracked_files(root)? {
        let Some(texts) = prose::texts(root, &file)? else { continue };
        for finding in texts.iter().flat_map(|text| findings(text, &words)) {
            let comment = finding.kind == Kind::Comment;
            if comment {
                *counts.entry(part(&file)).or_default() += 1;
            } else {
                rejected += 1;
            }
            let listed = prefix.is_some_and(|prefix| file.starts_with(prefix));
            if listed || (prefix.is_none() && !comment) {
                println!("{file}:{}: {:?}: {}", finding.line, finding.kind, finding.word);
            }
        }
    }
    if prefix.is_some() {
        return Ok(());
    }
    let path = root.join(LIMITS);
    let limits = read_limits(&fs::read_to_string(&path).unwrap_or_default())?;
    let exceeded = exceeded(&limits, &counts);
    for problem in &exceeded {
        println!("{problem}");
    }
    if update {
        fs::write(&path, write_limits(&counts)).context(LIMITS)?;
    }
    let problems = rejected + if update { 0 } else { exceeded.len() };
    ensure!(problems == 0, "words: {problems} problems; `cargo xtask words PATH` lists findings");
    println!(
        "words: 0 in documentation, headers, strings and test names; {} in comments",
        counts.values().sum::<usize>()
    );
    Ok(())
}

/// The words of the glossary's list, in lower case.
fn banned(glossary: &str) -> Result<Vec<String>> {
    let Some((_, list)) = glossary.split_once(HEADING) else {
        bail!("{GLOSSARY} has no heading {HEADING:?}")
    };
    let rows = list.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |")).skip(1);
    let words: Vec<String> = rows
        .flat_map(|(cell, _)| cell.split(", "))
        .map(|word| word.trim_matches('`').to_lowercase())
        .collect();
    ensure!(!words.is_empty(), "{GLOSSARY} lists no words");
    Ok(words)
}

/// The unit of counting: a crate, or the folder at the root.
fn part(file: &str) -> String {
    let mut parts =
        file.split("/src/").next().unwrap_or(file).split("/tests/").next().unwrap_or(file).split('/');
    let first = parts.next().unwrap_or_default();
    let rest = if first == "crates" { parts.take(2).collect::<Vec<_>>() } else { Vec::new() };
    rest.iter()
        .filter(|name| !name.contains('.') && **name != "examples")
        .fold(first.to_owned(), |path, name| path + "/" + name)
}

fn findings(text: &prose::Text, words: &[String]) -> Vec<Finding> {
    let plain = prose::without_code(&text.text).to_lowercase();
    let line = |at: usize| text.line + plain.get(..at).unwrap_or_default().matches('\n').count();
    let mut found = Vec::new();
    for word in words {
        for (at, _) in plain.match_indices(word.as_str()) {
            let before = plain.get(..at).and_then(|text| text.chars().next_back());
            let after = plain.get(at + word.len()..).and_then(|text| text.chars().next());
            if ![before, after].into_iter().flatten().any(char::is_alphanumeric) {
                found.push(Finding { line: line(at), kind: text.kind, word: word.clone() });
            }
        }
    }
    for (at, sentence) in prose::sentences(&plain) {
        let first = sentence.split_whitespace().next().unwrap_or_default();
        let noun =
            matches!(first, "what" | "who" | "whoever") && sentence.contains(' ') && !sentence.ends_with('?');
        if noun && !words.iter().any(|word| word == first) {
            found.push(Finding {
                line: line(at),
                kind: text.kind,
                word: format!("a sentence that starts with {first:?}"),
            });
        }
    }
    found
}

fn exceeded(limits: &BTreeMap<String, usize>, counts: &BTreeMap<String, usize>) -> Vec<String> {
    let mut problems = Vec::new();
    for name in counts.keys().chain(limits.keys()).collect::<std::collections::BTreeSet<_>>() {
        let [count, limit] = [counts, limits].map(|of| of.get(name).copied().unwrap_or(0));
        match count.cmp(&limit) {
            std::cmp::Ordering::Greater => {
                problems.push(format!("{name}: {count} findings in comments, at most {limit}"))
            }
            std::cmp::Ordering::Less => {
                problems.push(format!(
                    "{name}: {count} findings in comments; run `cargo xtask words --update` ({limit} allowed)"
                ));
            }
            std::cmp::Ordering::Equal => {}
        }
    }
    problems
}

fn read_limits(text: &str) -> Result<BTreeMap<String, usize>> {
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.map(|line| {
        let (name, count) = line.split_once(' ').with_context(|| format!("{LIMITS}: {line:?}"))?;
        Ok((name.to_owned(), count.parse().with_context(|| format!("{LIMITS}: {line:?}"))?))
    })
    .collect()
}

fn write_limits(counts: &BTreeMap<String, usize>) -> String {
    let mut text =
        "# Findings of `cargo xtask words` in comments, by crate. The numbers only fall.\n".to_owned();
    for (name, count) in counts {
        let _ = writeln!(text, "{name} {count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let words = ["beside".to_owned(), "goes on".to_owned()];
        let text = prose::Text { line: 10, kind: Kind::Docs, text: text.to_owned() };
        findings(&text, &words).into_iter().map(|finding| (finding.line, finding.word)).collect()
    }

    #[test]
    fn listed_words_are_found_as_whole_words_outside_backticks() {
        assert_eq!(found("a\nBeside it `beside` besides"), [(11, "beside".to_owned())]);
        assert_eq!(found("it goes on and on"), [(10, "goes on".to_owned())]);
    }

    #[test]
    fn sentence_with_what_as_subject_is_found_and_a_question_is_not() {
        let opening = "a sentence that starts with \"what\"".to_owned();
        assert_eq!(found("It ends. What is written\nstays."), [(10, opening)]);
        assert_eq!(found("What is a run? It says what it is."), []);
    }

    #[test]
    fn words_come_from_the_table_of_the_glossary() {
        let glossary = "| x | y |\n## Words that are not used\n\n| Word | Write instead |\n|---|---|\n| `are none`, `is none` | absent |\n| `Anew` | again |\n";
        assert_eq!(banned(glossary).unwrap(), ["are none", "is none", "anew"]);
        assert!(banned("nothing").is_err());
    }

    #[test]
    fn limits_may_only_fall() {
        let limits = read_limits("# comment\ncrates/a 2\ncrates/b 1\n").unwrap();
        let counts = |a, b| BTreeMap::from([("crates/a".to_owned(), a), ("crates/b".to_owned(), b)]);
        assert_eq!(exceeded(&limits, &counts(2, 1)), Vec::<String>::new());
        assert_eq!(exceeded(&limits, &counts(3, 1)), ["crates/a: 3 findings in comments, at most 2"]);
        assert_eq!(exceeded(&limits, &counts(2, 0)).len(), 1);
        assert_eq!(read_limits(&write_limits(&counts(3, 1))).unwrap(), counts(3, 1));
    }

    #[test]
    fn part_of_a_file_is_its_crate() {
        let parts = [
            "crates/sql/src/a.rs",
            "crates/wire/core/tests/it/b.rs",
            "crates/log/examples/c.rs",
            "bench/src/d.rs",
            "docs/e.md",
        ];
        assert_eq!(parts.map(part), ["crates/sql", "crates/wire/core", "crates/log", "bench", "docs"]);
    }
}
