//! Output of the demo: chapters, commands, checks.

use std::io::{self, IsTerminal, Write};

use crate::output::cell::printable;
use crate::output::failure::{Exit, Failure, Result};
use crate::output::report;

/// Line width if there is no terminal.
const WIDTH: usize = 105;

/// Prints the demo to standard output.
pub(super) struct Story {
    colour: bool,
    chapter: u32,
}

impl Story {
    pub(super) fn new() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: io::stdout().is_terminal() && !plain, chapter: 0 }
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
        wrapped(text, WIDTH).iter().try_for_each(|line| self.line(line))
    }

    /// Prints a command. Its further lines are not indented, so that they can be copied.
    pub(super) fn command(&mut self, command: &str) -> Result {
        let lines: Vec<_> = command.lines().map(|line| self.styled("36", &printable(line))).collect();
        Ok(writeln!(io::stdout(), "$ {}", lines.join("\n"))?)
    }

    /// Prints the output of a command.
    pub(super) fn output(&mut self, text: &str) -> Result {
        text.lines().try_for_each(|line| self.line(line))
    }

    /// Prints the result of a check, and ends the demo if it failed.
    pub(super) fn check(&mut self, holds: bool, what: &str) -> Result {
        let mark = if holds { self.styled("32", "ok") } else { self.styled("1;31", "FAILED") };
        writeln!(io::stdout(), "   [{mark}] {}", printable(what))?;
        match holds {
            true => Ok(()),
            false => Err(Failure::new(
                Exit::Internal,
                format!("a check of the demo failed: {what}"),
                "Please report this",
            )),
        }
    }

    pub(super) fn table<const N: usize>(&mut self, header: &[&str; N], rows: &[[String; N]]) -> Result {
        let mut table = report::table(Some(WIDTH as u16));
        table.set_header(header.iter().copied());
        for row in rows {
            table.add_row(row.iter().map(|cell| printable(cell)));
        }
        self.output(&table.to_string())
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
