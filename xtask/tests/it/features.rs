//! Every `yes` in docs/features names tests that exist, and its README counts the rows.

use std::fs;
use std::path::Path;

/// Cells of all table rows, heads included; separator lines are skipped.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'))
        .map(|line| line.split(" |").map(str::trim).collect())
        .collect()
}

/// Number of table rows in this state.
fn count(text: &str, state: &str) -> usize {
    rows(text).iter().filter(|row| matches!(row.as_slice(), [.., cell, _] if *cell == state)).count()
}

/// Describes what is wrong with a reference to a test, `file::function` or a file; `None` if it exists.
fn broken(root: &Path, reference: &str) -> Option<String> {
    let (file, function) = reference.split_once("::").unwrap_or((reference, ""));
    let Ok(text) = fs::read_to_string(root.join(file)) else { return Some(format!("{file} does not exist")) };
    let found = function.is_empty() && !file.ends_with(".rs") || text.contains(&format!("fn {function}("));
    (!found).then(|| format!("{file} has no test {function}"))
}

/// Name and text of each chapter in docs/features, sorted by name. The README is not a chapter.
fn chapters(root: &Path) -> Vec<(String, String)> {
    let mut chapters = Vec::new();
    for entry in fs::read_dir(root.join("docs/features")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name != "README.md" {
            chapters.push((name, fs::read_to_string(entry.path()).unwrap()));
        }
    }
    chapters.sort();
    chapters
}

#[test]
fn every_yes_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let chapters = chapters(&root);
    assert!(!chapters.is_empty());
    let mut problems = Vec::new();
    for (name, text) in &chapters {
        for row in rows(text) {
            let (state, proof) = match row.as_slice() {
                [.., state, proof] => (*state, *proof),
                _ => continue,
            };
            let references: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
            match state {
                "yes" if references.is_empty() => problems.push(format!("{name}: yes without test: {row:?}")),
                "yes" => problems.extend(references.iter().filter_map(|reference| broken(&root, reference))),
                "open" | "" | "State" => {}
                _ => problems.push(format!("{name}: neither yes nor open: {row:?}")),
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn readme_counts_the_rows_of_every_chapter() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("docs/features/README.md")).unwrap();
    let mut missing = Vec::new();
    for (name, text) in chapters(&root) {
        let line = format!("]({name}) | {} | {} |", count(&text, "yes"), count(&text, "open"));
        if !readme.contains(&line) {
            missing.push(line);
        }
    }
    assert!(missing.is_empty(), "docs/features/README.md lacks:\n{}", missing.join("\n"));
}

#[test]
fn a_reference_to_nothing_is_noticed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let here = "xtask/tests/it/features.rs::a_reference_to_nothing_is_noticed";
    assert_eq!(broken(&root, here), None);
    assert_eq!(broken(&root, "docs/features/README.md"), None);
    assert!(broken(&root, "xtask/tests/it/features.rs").is_some());
    assert!(broken(&root, "xtask/tests/it/features.rs::gone").is_some());
    assert!(broken(&root, "nowhere.rs::gone").is_some());
    assert_eq!(
        rows("| a | yes | `x` |\n|---|---|---|\n| b | | |\n"),
        [vec!["a", "yes", "`x`"], vec!["b", "", ""]]
    );
}

#[test]
fn readme_is_read_in_minutes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let bytes = fs::metadata(root.join("README.md")).unwrap().len();
    assert!(bytes <= 12 << 10, "README.md has {bytes} bytes");
}
