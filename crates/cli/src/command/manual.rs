//! The manual page and the completions, made from the definition of the command line.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::command::Arguments;
use crate::output::failure::{Failure, Result};

pub(crate) fn man(dir: Option<&Path>) -> Result {
    let command = Arguments::command();
    match dir {
        None => Ok(clap_mangen::Man::new(command).render(&mut io::stdout())?),
        Some(dir) => std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(command, dir))
            .map_err(|error| Failure::file("write the manual pages to", dir, &error)),
    }
}

pub(crate) fn completions(shell: Shell) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ropewalk", &mut script);
    Ok(io::Write::write_all(&mut io::stdout(), &script)?)
}
