//! The tables of the README and of `docs/benchmarks/`, generated from stored results.
//!
//! Two kinds of block, each up to `<!-- end -->`:
//!
//!   `<!-- figures FILE ROW... -->`        the rows of `bench/results/FILE.json` at and below the given ids
//!   `<!-- summary FILE:ROW FILE:ROW -->`  one line for each row, from any files, with the best peer alone
//!
//! Filling a page again from the same results changes nothing; a test does so.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::harness::report::Report;
use crate::harness::table;
use crate::harness::table::Style;

const FIGURES: &str = "<!-- figures ";
const SUMMARY: &str = "<!-- summary ";
const END: &str = "<!-- end -->";

/// Fills every block of `text`; `result` returns the report of a name.
///
/// # Errors
/// A block without end, a missing result, or a row that its result does not have.
pub fn fill(text: &str, result: impl Fn(&str) -> Result<Report>) -> Result<String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = [FIGURES, SUMMARY].into_iter().filter_map(|begin| rest.find(begin)).min() {
        let (before, block) = rest.split_at(at);
        let line = block.lines().next().unwrap_or_default();
        let end = block.find(END).with_context(|| format!("{line} has no {END}"))?;
        let arguments =
            |begin| line.strip_prefix(begin).map(|words: &str| words.trim_end_matches("-->").trim());
        let body = match (arguments(FIGURES), arguments(SUMMARY)) {
            (Some(words), _) => figures(words, &result),
            (_, Some(words)) => summary(words, &result),
            _ => Ok(String::new()),
        };
        filled += before;
        filled += &format!("{line}\n{}\n", body.with_context(|| line.to_owned())?.trim_end());
        rest = block.get(end..).unwrap_or_default();
        // The end mark must not be read as the begin of another block.
        filled += rest.get(..END.len()).unwrap_or_default();
        rest = rest.get(END.len()..).unwrap_or_default();
    }
    Ok(filled + rest)
}

/// `FILE ROW...` as the table of one result.
fn figures(words: &str, result: &impl Fn(&str) -> Result<Report>) -> Result<String> {
    let (name, rows) = words.split_once(' ').unwrap_or((words, ""));
    let mut report = result(name)?;
    report.retain(&rows.split_whitespace().collect::<Vec<_>>());
    ensure!(!report.rows.is_empty(), "{name} has none of these rows");
    Ok(table::render(&report, Style::Markdown))
}

/// `FILE:ROW...` as one table, a line for each row.
fn summary(words: &str, result: &impl Fn(&str) -> Result<Report>) -> Result<String> {
    let mut rows = Vec::new();
    for word in words.split_whitespace() {
        let (name, id) = word.split_once(':').with_context(|| format!("{word} is not FILE:ROW"))?;
        let report = result(name)?;
        let row = report.rows.into_iter().find(|row| row.id == id);
        rows.push((name.to_owned(), row.with_context(|| format!("{name} has no row {id}"))?));
    }
    Ok(table::summary(&rows).to_string())
}

/// The report of a name in the folder of stored results.
///
/// # Errors
/// The file is missing or not a result.
pub fn stored(folder: &Path, name: &str) -> Result<Report> {
    Report::read(&folder.join(name).with_extension("json"))
}

/// The pages with tables: the README and `docs/benchmarks/*.md`.
///
/// # Errors
/// The folder cannot be listed.
pub fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join("docs/benchmarks");
    let listing = std::fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))?;
    let mut pages = vec![root.join("README.md")];
    for entry in listing {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_show_the_stored_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let pages = pages(root).unwrap();
        assert!(pages.len() > 10, "{pages:?}");
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            let filled = fill(&text, |name| stored(&root.join("bench/results"), name)).unwrap();
            let page = page.display();
            assert!(filled == text, "{page} differs from bench/results: run `ropewalk-bench figures`");
        }
    }

    #[test]
    fn block_without_end_result_or_row_is_rejected() {
        let none = |name: &str| -> Result<Report> { anyhow::bail!("no {name}") };
        assert_eq!(fill("nothing <!-- end --> to fill", none).unwrap(), "nothing <!-- end --> to fill");
        let error = |text: &str| format!("{:#}", fill(text, none).unwrap_err());
        assert!(error("<!-- figures a b -->").contains("has no <!-- end -->"));
        assert_eq!(error("<!-- figures a b -->\n<!-- end -->"), "<!-- figures a b -->: no a");
        assert_eq!(error("<!-- summary a:b -->\n<!-- end -->"), "<!-- summary a:b -->: no a");
        assert_eq!(error("<!-- summary a -->\n<!-- end -->"), "<!-- summary a -->: a is not FILE:ROW");
    }
}
