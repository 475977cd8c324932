//! The tables of the README, made from stored results.
//!
//! A block `<!-- figures FILE ROW... -->` … `<!-- end -->` holds the rows at and below the named ids of
//! `bench/results/FILE.json`. Filling it again with the same results changes nothing; a test checks this.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::report::Report;
use crate::table::{self, Style};

const BEGIN: &str = "<!-- figures ";
const END: &str = "<!-- end -->";

/// `text` with every block filled; `result` returns the report with a name.
///
/// # Errors
/// An unterminated block, a missing result, or a row that is not in the result.
pub fn fill(text: &str, result: impl Fn(&str) -> Result<Report>) -> Result<String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(at);
        let line = block.lines().next().unwrap_or_default();
        let end = block.find(END).with_context(|| format!("{line} has no {END}"))?;
        let words = line.trim_start_matches(BEGIN).trim_end_matches("-->");
        let (name, rows) = words.trim().split_once(' ').unwrap_or((words.trim(), ""));
        let mut report = result(name)?;
        report.retain(&rows.split_whitespace().collect::<Vec<_>>());
        ensure!(!report.rows.is_empty(), "{line}: {name} has none of these rows");
        filled += before;
        filled += &format!("{line}\n{}\n", table::render(&report, Style::Markdown).trim_end());
        rest = block.get(end..).unwrap_or_default();
        // The end mark must not be read as the start of another block.
        filled += rest.get(..END.len()).unwrap_or_default();
        rest = rest.get(END.len()..).unwrap_or_default();
    }
    Ok(filled + rest)
}

/// Reads a stored result by name.
///
/// # Errors
/// The file does not exist, or is not a result.
pub fn stored(folder: &Path, name: &str) -> Result<Report> {
    Report::read(&folder.join(name).with_extension("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_shows_the_stored_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = std::fs::read_to_string(root.join("README.md")).unwrap();
        let filled = fill(&text, |name| stored(&root.join("bench/results"), name)).unwrap();
        assert!(filled == text, "README.md differs from bench/results: run `ropewalk-bench figures`");
    }

    #[test]
    fn blocks_need_an_end_a_result_and_rows() {
        let none = |name: &str| -> Result<Report> { anyhow::bail!("no {name}") };
        assert_eq!(fill("nothing <!-- end --> to fill", none).unwrap(), "nothing <!-- end --> to fill");
        let error = |text: &str| fill(text, none).unwrap_err().to_string();
        assert!(error("<!-- figures a b -->").contains("has no <!-- end -->"));
        assert_eq!(error("<!-- figures a b -->\n<!-- end -->"), "no a");
    }
}
