//! Links and paths in Markdown lead to something.
//!
//! Rules
//! 1. The file of a relative link exists, and so does the heading that its `#anchor` names.
//! 2. In the code map of ARCHITECTURE.md the paths of a row exist, below the crate of the row or below the root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cargo;

const MAP: &str = "ARCHITECTURE.md";

/// Checks all pages of the project and prints each broken link.
pub(crate) fn check(root: &Path) -> Result<()> {
    let files = cargo::tracked_files(root)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.ends_with(".md")) {
        let text = fs::read_to_string(root.join(file)).with_context(|| file.clone())?;
        pages.insert(file.clone(), without_code_blocks(&text));
    }
    let mut problems = Vec::new();
    for (page, text) in &pages {
        for link in links(text) {
            problems.extend(broken(root, page, link, &pages).map(|what| format!("{page}: ({link}): {what}")));
        }
    }
    let map = pages.get(MAP).with_context(|| format!("no {MAP}"))?;
    problems.extend(missing_places(root, map));
    for problem in &problems {
        println!("{problem}");
    }
    ensure!(problems.is_empty(), "links: {} problems", problems.len());
    println!("links: every link of {} pages leads to a file and a heading", pages.len());
    Ok(())
}

fn without_code_blocks(text: &str) -> String {
    let mut in_code = false;
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        if !fence && !in_code {
            plain.push_str(line);
        }
        plain.push('\n');
    }
    plain
}

/// Targets of `[text](target)` that are neither addresses nor empty.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:") && !target.contains(' '))
}

/// Why the link does not lead anywhere.
fn broken(root: &Path, page: &str, link: &str, pages: &BTreeMap<String, String>) -> Option<&'static str> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { PathBuf::from(page) } else { joined(page, path)? };
    if !root.join(&target).exists() {
        return Some("no such file");
    }
    if anchor.is_empty() {
        return None;
    }
    let text = pages.get(&target.to_string_lossy().into_owned())?;
    (!anchors(text).contains(anchor)).then_some("no such heading")
}

/// `path` as seen from the folder of `page`, without `..`.
fn joined(page: &str, path: &str) -> Option<PathBuf> {
    let mut target = Path::new(page).parent()?.to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                target.pop();
            }
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    Some(target)
}

/// The anchors of a page's headings as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// Rule 2.
fn missing_places(root: &Path, map: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let rows = map.lines().skip_while(|line| *line != "## Code map").filter(|line| line.starts_with("| `"));
    for row in rows.take_while(|row| !row.contains(".rs` | ")) {
        let paths: Vec<&str> = row.split('`').skip(1).step_by(2).filter(|path| path.contains('/')).collect();
        let Some((folder, rest)) = paths.split_first() else { continue };
        let exists = |path: &str| root.join(folder).join(path).exists() || root.join(path).exists();
        let named = std::iter::once(folder).chain(rest.iter().filter(|path| path.contains('.')));
        missing.extend(
            named
                .filter(|path| !exists(path))
                .map(|path| format!("{MAP}: `{path}` of {folder} does not exist")),
        );
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_needs_its_file_and_heading() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        let page = "# A page, *really*\n## Twice\n## Twice\n";
        fs::write(root.path().join("docs/a.md"), page).unwrap();
        fs::write(root.path().join("b.md"), "").unwrap();
        let pages = BTreeMap::from([("docs/a.md".to_owned(), page.to_owned())]);
        let of = |page: &str, link: &str| broken(root.path(), page, link, &pages);
        assert_eq!(of("b.md", "docs/a.md#a-page-really"), None);
        assert_eq!(of("docs/a.md", "#twice-1"), None);
        assert_eq!(of("docs/a.md", "../b.md"), None);
        assert_eq!(of("docs/a.md", "b.md"), Some("no such file"));
        assert_eq!(of("docs/a.md", "#twice-2"), Some("no such heading"));
    }

    #[test]
    fn links_are_relative_targets_outside_code_blocks() {
        let text = without_code_blocks("[a](b.md) [c](https://d)\n```\n[e](f.md)\n```\n[g](#h)\n");
        assert_eq!(links(&text).collect::<Vec<_>>(), ["b.md", "#h"]);
    }

    #[test]
    fn places_of_the_code_map_exist() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("crates/a/src")).unwrap();
        fs::write(root.path().join("crates/a/src/lib.rs"), "").unwrap();
        let map = "## Code map\n| Place |\n| `crates/a` | words | `src/lib.rs`, `src/gone.rs` |\n";
        assert_eq!(
            missing_places(root.path(), map),
            ["ARCHITECTURE.md: `src/gone.rs` of crates/a does not exist"]
        );
    }
}
