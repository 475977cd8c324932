//! The manual pages and the shell completions, generated from the definition of the command line.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::failure::{Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Directory for one page per command
    dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

pub(crate) fn man(man: &Man, command: Command) -> Result {
    match &man.dir {
        None => Ok(clap_mangen::Man::new(command).render(&mut io::stdout())?),
        Some(dir) => std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
            .map_err(|error| Failure::file("write the manual pages to", dir, &error)),
    }
}

pub(crate) fn completions(completions: &Completions, mut command: Command) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut command, "ropewalk", &mut script);
    Ok(io::Write::write_all(&mut io::stdout(), &script)?)
}
