//! The interactive prompt. A statement ends at its semicolon and may span lines; a shell command ends with
//! its line.

use std::io::{self, BufRead as _, IsTerminal as _};

use ropewalk_sql::{Session, Status};

use super::editor::Editor;
use super::watch::Watch;
use super::{Runner, say, split};
use crate::output::failure::Result;

/// Prompt of the continuation lines of a statement.
pub(crate) const CONTINUED: &str = "        … ";

/// A source of statements.
pub(crate) trait Source {
    /// The next complete text; `None` at the end of the input.
    fn next(&mut self, status: Status) -> Result<Option<String>>;
}

/// Runs statements until the source ends.
pub(crate) fn run(runner: &mut Runner, place: &str) -> Result {
    say(&format!("{place}: .help lists the shell commands, Ctrl-D exits"), "\n");
    // A line editor needs a terminal for input and output that can move its cursor.
    let is_plain = !io::stdout().is_terminal() || std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let mut source: Box<dyn Source> = match is_plain {
        true => Box::new(Lines),
        false => Box::new(Editor::new(Session::new(runner.session.database().clone()))),
    };
    while let Some(text) = next(runner, source.as_mut())? {
        if is_end(&text) {
            break;
        }
        // A failure is reported and does not end the shell.
        if let Err((_, failure)) = runner.script(&text) {
            failure.report();
        }
    }
    Ok(())
}

/// The next text; `None` at the end of the input, and when the terminal closed while a statement ran.
fn next(runner: &Runner, source: &mut dyn Source) -> Result<Option<String>> {
    let asking = runner.watch.as_ref().map(Watch::ask);
    match asking {
        Some(None) => Ok(None),
        _ => source.next(runner.session.status()),
    }
}

/// Prompt of the first line of a statement.
pub(crate) fn prompt(status: Status) -> &'static str {
    match status {
        Status::Idle => "ropewalk> ",
        Status::Open => "ropewalk*> ",
        Status::Failed => "ropewalk!> ",
    }
}

/// True when the text can run, false when its statement continues on the next line.
pub(crate) fn is_done(text: &str) -> bool {
    split::is_blank(text) || split::is_command(text) || split::is_whole(text) || is_end(text)
}

fn is_end(text: &str) -> bool {
    matches!(text.trim().trim_end_matches(';'), ".quit" | ".exit" | "\\q" | "quit" | "exit")
}

/// Plain lines, for terminals without cursor control.
struct Lines;

impl Source for Lines {
    fn next(&mut self, status: Status) -> Result<Option<String>> {
        let mut text = String::new();
        loop {
            say(if text.is_empty() { prompt(status) } else { CONTINUED }, "");
            if io::stdin().lock().read_line(&mut text).map_err(|error| super::unread(&error))? == 0 {
                say("", "\n");
                return Ok(None);
            }
            if is_done(&text) {
                return Ok(Some(text));
            }
        }
    }
}
