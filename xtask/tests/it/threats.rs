//! docs/security.md has every id of the review of the ports, and each test that it names exists.

use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/security.md";

/// Ids of the review: a letter and the highest number.
const IDS: [(char, u32); 4] = [('C', 3), ('H', 12), ('M', 10), ('L', 8)];

/// Files below these folders, with their contents.
fn files(root: &Path) -> Vec<(PathBuf, String)> {
    let mut folders: Vec<PathBuf> =
        ["crates", "tests", "console/test"].map(|folder| root.join(folder)).to_vec();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_text =
                path.extension().is_some_and(|ending| ["rs", "py", "tsx"].iter().any(|e| ending == *e));
            if path.is_dir() {
                folders.push(path);
            } else if is_text {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    files
}

/// True if a file has the test: `name.py`, a path, or `modules::test`, where a star ends the beginning of a name.
fn exists(files: &[(PathBuf, String)], reference: &str) -> bool {
    let mut modules: Vec<&str> = reference.split("::").collect();
    let name = modules.pop().unwrap_or_default();
    if modules.is_empty() && name.contains('.') {
        return files.iter().any(|(path, _)| path.ends_with(name));
    }
    let function = match name.strip_suffix('*') {
        Some(beginning) => format!("fn {beginning}"),
        None => format!("fn {name}("),
    };
    let is_in = |path: &Path, module: &str| {
        let parts = path.iter().filter_map(|part| part.to_str());
        module == "tests" || parts.map(|part| part.trim_end_matches(".rs")).any(|part| part == module)
    };
    files
        .iter()
        .any(|(path, text)| text.contains(&function) && modules.iter().all(|module| is_in(path, module)))
}

#[test]
fn every_threat_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (page, files) = (fs::read_to_string(root.join(PAGE)).unwrap(), files(&root));
    let mut problems = Vec::new();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Id |"));
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let references: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if references.is_empty() {
            problems.push(format!("no test: {row}"));
        }
        let missing = references.into_iter().filter(|reference| !exists(&files, reference));
        problems.extend(missing.map(|reference| format!("{PAGE}: {reference} does not exist")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let named = |id: &str| page.split([' ', ',', ':', '\n']).any(|word| word == id);
    let ids =
        IDS.into_iter().flat_map(|(letter, last)| (1..=last).map(move |number| format!("{letter}{number}")));
    let missing: Vec<String> = ids.filter(|id| !named(id)).collect();
    assert!(missing.is_empty(), "{PAGE} lacks {missing:?}");
}

#[test]
fn threat_without_its_test_is_noticed() {
    let files = [(PathBuf::from("a/tests/it/limits.rs"), "fn h6_sum() {}".to_owned())];
    for reference in ["limits::h6_sum", "limits::h6_*", "h6_sum", "limits.rs", "limits::tests::h6_sum"] {
        assert!(exists(&files, reference), "{reference}");
    }
    for reference in ["limits::h6", "other::h6_sum", "limits::h7_*", "limits.py"] {
        assert!(!exists(&files, reference), "{reference}");
    }
}
