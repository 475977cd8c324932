//! Output of the demo: chapters, checks, results.

use std::io::{self, IsTerminal, Write};

use crate::output::cell::printable;
use crate::output::failure::Result;
use crate::output::report;

/// Line width if there is no terminal.
const WIDTH: usize = 105;

/// Prints the demo to standard output, and collects its results and failed checks.
pub(super) struct Story {
    colour: bool,
    chapter: u32,
    figures: Vec<(String, String)>,
    failed: Vec<String>,
}

impl Story {
    pub(super) fn new() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = io::stdout().is_terminal() && !plain;
        Self { colour, chapter: 0, figures: Vec::new(), failed: Vec::new() }
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Prints a line, with control characters escaped.
    pub(super) fn line(&mut self, text: &str) -> Result {
        Ok(writeln!(io::stdout(), "   {}", printable(text))?)
    }

    pub(super) fn title(&mut self, title: &str, text: &str) -> Result {
        Ok(writeln!(io::stdout(), "{}\n{text}", self.styled("1", title))?)
    }

    /// Begins a numbered chapter.
    pub(super) fn chapter(&mut self, title: &str) -> Result {
        self.chapter += 1;
        let title = self.styled("1", &format!("{}. {title}", self.chapter));
        Ok(writeln!(io::stdout(), "\n{title}")?)
    }

    /// Prints wrapped text.
    pub(super) fn say(&mut self, text: &str) -> Result {
        for line in wrapped(&printable(text), WIDTH) {
            self.line(&line)?;
        }
        Ok(())
    }

    /// Prints the result of a check.
    pub(super) fn check(&mut self, holds: bool, what: &str) -> Result {
        let mark = if holds { self.styled("32", "ok") } else { self.styled("1;31", "FAILED") };
        if !holds {
            self.failed.push(what.to_owned());
        }
        Ok(writeln!(io::stdout(), "   [{mark}] {}", printable(what))?)
    }

    /// Records a result for the summary.
    pub(super) fn figure(&mut self, name: &str, value: impl Into<String>) {
        self.figures.push((name.to_owned(), value.into()));
    }

    pub(super) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) -> Result {
        let mut table = report::table(Some(WIDTH as u16));
        table.set_header(header.iter().copied());
        for row in rows {
            table.add_row(row.iter().map(|cell| printable(cell)));
        }
        for line in table.to_string().lines() {
            writeln!(io::stdout(), "   {line}")?;
        }
        Ok(())
    }

    /// Prints the results and returns the failed checks.
    pub(super) fn end(&mut self) -> Result<Vec<String>> {
        self.chapter("Results")?;
        let rows: Vec<_> = self.figures.drain(..).map(|(name, value)| vec![name, value]).collect();
        self.table(&["what", "measured"], &rows)?;
        let end = match self.failed.len() {
            0 => self.styled("32", "Every check held."),
            n => self.styled("1;31", &format!("{n} checks FAILED.")),
        };
        writeln!(io::stdout(), "   {end}")?;
        Ok(std::mem::take(&mut self.failed))
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
