//! Passwords: typed at the terminal without an echo, or read from standard input; never from the command line.

use std::io::{self, BufRead as _, IsTerminal as _};

use crate::output::failure::{Exit, Failure, Result};

/// The password of an existing user: `ROPEWALK_PASSWORD`, or typed.
pub(crate) fn existing_password(user: &str) -> Result<String> {
    match std::env::var("ROPEWALK_PASSWORD") {
        Ok(password) => Ok(password),
        Err(_) if io::stdin().is_terminal() => ask(&format!("Password of {user}: ")),
        Err(_) => Err(Failure::new(
            Exit::Invalid,
            format!("the password of {user} is required, and standard input is not a terminal"),
            "ROPEWALK_PASSWORD holds it for scripts",
        )),
    }
}

/// A new password: typed twice, or the first line of standard input.
pub(crate) fn new_password(user: &str) -> Result<String> {
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map_err(|error| reading(&error))?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let first = ask(&format!("New password of {user}: "))?;
    if ask("Again: ")? != first {
        return Err(Failure::invalid("the two passwords differ"));
    }
    Ok(first)
}

fn ask(prompt: &str) -> Result<String> {
    rpassword::prompt_password(prompt).map_err(|error| reading(&error))
}

fn reading(error: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("read the password: {error}"), "")
}
