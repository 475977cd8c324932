//! How long a function may be: a longer one consists of parts that deserve names.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cargo::Package;
use crate::layering::{Problem, is_test_only, relative, rust_files};
use crate::source::{after_item, tokens, without_tests};

/// Maximum number of lines of a function, from the line of `fn` to that of its closing brace.
const LINES_MAX: usize = 120;

/// The crates below this folder are checked; programs and benchmarks elsewhere are not.
const CRATES: &str = "crates/";

/// Returns the functions of a crate that are too long, those of its tests excepted.
pub(crate) fn check(root: &Path, package: &Package) -> Result<Vec<Problem>> {
    let source = package.dir.join("src");
    let mut problems = Vec::new();
    if !relative(root, &source).starts_with(CRATES) || !source.is_dir() {
        return Ok(problems);
    }
    for file in rust_files(&source)?.iter().filter(|file| !is_test_only(file)) {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        problems.extend(long_functions(&relative(root, file), &text));
    }
    Ok(problems)
}

fn long_functions(file: &str, text: &str) -> Vec<Problem> {
    let tokens = without_tests(&tokens(text));
    let mut problems = Vec::new();
    let mut rest = tokens.as_slice();
    while let Some((first, after)) = rest.split_first() {
        // A `fn` without a name is the type of a function pointer.
        let name = after.first().map(|next| next.text).filter(|name| *name != "(");
        if let Some(name) = name.filter(|_| first.text == "fn") {
            let end = rest.len() - after_item(rest).len();
            let last = rest.get(end - 1).map_or(first.line, |token| token.line);
            let lines = last - first.line + 1;
            if lines > LINES_MAX {
                let place = format!("{file}:{}", first.line);
                problems.push(Problem::new(
                    place,
                    format!("{name} has {lines} lines, at most {LINES_MAX}: split it into functions"),
                ));
            }
        }
        rest = after;
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of so many lines.
    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}(x: fn()) -> [u8; 2] {{{}}}\n", "\n".repeat(lines - 1))
    }

    fn found(text: &str) -> Vec<String> {
        long_functions("a.rs", text).iter().map(Problem::to_string).collect()
    }

    #[test]
    fn function_above_the_limit_is_rejected() {
        let text = function("fits", LINES_MAX) + &function("long", LINES_MAX + 1);
        assert_eq!(found(&text), ["a.rs:121: long has 121 lines, at most 120: split it into functions"]);
    }

    #[test]
    fn functions_inside_other_items_are_counted() {
        let text = format!("impl A {{\n{}}}", function("long", 121));
        assert_eq!(found(&text).len(), 1);
        let text = format!("fn outer() {{\n{}}}", function("inner", 121));
        assert_eq!(found(&text).len(), 2);
    }

    #[test]
    fn declarations_and_tests_are_not_counted() {
        let text = format!("trait A {{ fn short(&self); }}\n{}", "\n".repeat(200));
        assert!(found(&text).is_empty());
        let text = format!("#[cfg(test)]\nmod tests {{ {} }}", function("long", 500));
        assert!(found(&text).is_empty());
    }
}
