//! The prompt: a statement ends at its semicolon, over as many lines as it takes; a command of the shell at the end of its line.

use std::io::{self, BufRead as _, IsTerminal as _};

use ropewalk_sql::{Session, Status};

use super::editor::Editor;
use super::watch::Watch;
use super::{Runner, say, split};
use crate::output::failure::Result;

/// Before every line of a statement but its first.
pub(crate) const GOES_ON: &str = "        … ";

/// Who gives statements.
pub(crate) trait Source {
    /// What was typed next, whole; `None` at the end.
    fn next(&mut self, status: Status) -> Result<Option<String>>;
}

/// Asks for statements until there are no more.
pub(crate) fn run(runner: &mut Runner, place: &str) -> Result {
    say(&format!("{place}: .help says what there is beside SQL, Ctrl-D ends"), "\n");
    // A line editor wants a terminal for both directions that can move its cursor.
    let is_plain = !io::stdout().is_terminal() || std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let mut source: Box<dyn Source> = match is_plain {
        true => Box::new(Lines),
        false => Box::new(Editor::new(Session::new(runner.session.database().clone()))),
    };
    while let Some(text) = next(runner, source.as_mut())? {
        if is_end(&text) {
            break;
        }
        // What fails is said; the shell goes on.
        if let Err((_, failure)) = runner.script(&text) {
            failure.report();
        }
    }
    Ok(())
}

/// What was typed next; `None` at the end, and when the terminal has gone while a statement ran.
fn next(runner: &Runner, source: &mut dyn Source) -> Result<Option<String>> {
    let asking = runner.watch.as_ref().map(Watch::ask);
    match asking {
        Some(None) => Ok(None),
        _ => source.next(runner.session.status()),
    }
}

/// What stands before the first line of a statement.
pub(crate) fn prompt(status: Status) -> &'static str {
    match status {
        Status::Idle => "ropewalk> ",
        Status::Open => "ropewalk*> ",
        Status::Failed => "ropewalk!> ",
    }
}

/// True when a text is to be run as it is, false when its statement goes on in the next line.
pub(crate) fn is_done(text: &str) -> bool {
    split::is_blank(text) || split::is_command(text) || split::is_whole(text) || is_end(text)
}

fn is_end(text: &str) -> bool {
    matches!(text.trim().trim_end_matches(';'), ".quit" | ".exit" | "\\q" | "quit" | "exit")
}

/// Lines as they come, for terminals that cannot do more.
struct Lines;

impl Source for Lines {
    fn next(&mut self, status: Status) -> Result<Option<String>> {
        let mut text = String::new();
        loop {
            say(if text.is_empty() { prompt(status) } else { GOES_ON }, "");
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
