//! The prompt: a statement ends at its semicolon, over as many lines as it takes; a command of the shell at the end of its line.

use std::io::{self, BufRead as _, Write as _};

use ropewalk_sql::Status;

use super::{Runner, split};
use crate::failure::Result;

/// Asks for statements until there are no more.
pub(crate) fn run(runner: &mut Runner, place: &str) -> Result {
    eprintln!("{place}: .help says what there is beside SQL, Ctrl-D ends");
    let mut text = String::new();
    loop {
        let prompt = match (text.is_empty(), runner.session.status()) {
            (false, _) => "        … ",
            (true, Status::Idle) => "ropewalk> ",
            (true, Status::Open) => "ropewalk*> ",
            (true, Status::Failed) => "ropewalk!> ",
        };
        eprint!("{prompt}");
        io::stderr().flush()?;
        if io::stdin().lock().read_line(&mut text).map_err(|error| super::unread(&error))? == 0 {
            eprintln!();
            return Ok(());
        }
        if is_end(&text) {
            return Ok(());
        }
        if split::is_blank(&text) {
            text.clear();
        } else if split::is_command(&text) || split::is_whole(&text) {
            // What fails is said; the shell goes on.
            if let Err((_, failure)) = runner.script(&text) {
                failure.report();
            }
            text.clear();
        }
    }
}

fn is_end(text: &str) -> bool {
    matches!(text.trim().trim_end_matches(';'), ".quit" | ".exit" | "\\q" | "quit" | "exit")
}
