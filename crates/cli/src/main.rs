//! The program `ropewalk`: parses the command line, runs one command, and exits with the code of its result.
//!
//! ```text
//! main ─▶ command (arguments, one file each) ─▶ database (directory or server) ─▶ output (rows, failures)
//! ```
//! Standard output carries data only; messages go to standard error. The exception is `demo`, whose entire
//! text goes to standard output.
#![allow(clippy::print_stderr)] // messages of commands

mod command;
mod database;
mod output;
mod values;

use std::process::ExitCode;

use clap::Parser as _;

use crate::command::Arguments;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match command::run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
