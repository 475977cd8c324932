//! docs/features.md claims nothing that no test proves.

use std::fs;
use std::path::Path;

/// Cells of the rows of all tables, without the heads and the rules below them.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'))
        .map(|line| line.split(" |").map(str::trim).collect())
        .collect()
}

/// What is wrong with one reference to a test, `file::function` or a golden script.
fn broken(root: &Path, reference: &str) -> Option<String> {
    let (file, function) = reference.split_once("::").unwrap_or((reference, ""));
    let Ok(text) = fs::read_to_string(root.join(file)) else { return Some(format!("{file} does not exist")) };
    let found = function.is_empty() && !file.ends_with(".rs") || text.contains(&format!("fn {function}("));
    (!found).then(|| format!("{file} has no test {function}"))
}

#[test]
fn every_yes_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/features.md")).unwrap();
    let mut problems = Vec::new();
    for row in rows(&text) {
        let (state, proof) = match row.as_slice() {
            [.., state, proof] => (*state, *proof),
            _ => continue,
        };
        let references: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        match state {
            "yes" if references.is_empty() => problems.push(format!("yes without a test: {row:?}")),
            "yes" => problems.extend(references.iter().filter_map(|reference| broken(&root, reference))),
            "open" | "" | "State" => {}
            _ => problems.push(format!("neither yes nor open: {row:?}")),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_reference_to_nothing_is_noticed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let here = "xtask/tests/it/features.rs::a_reference_to_nothing_is_noticed";
    assert_eq!(broken(&root, here), None);
    assert_eq!(broken(&root, "docs/features.md"), None);
    assert!(broken(&root, "xtask/tests/it/features.rs").is_some());
    assert!(broken(&root, "xtask/tests/it/features.rs::gone").is_some());
    assert!(broken(&root, "nowhere.rs::gone").is_some());
    assert_eq!(
        rows("| a | yes | `x` |\n|---|---|---|\n| b | | |\n"),
        [vec!["a", "yes", "`x`"], vec!["b", "", ""]]
    );
}
