//! `ropewalk bench`: executes the separate program `ropewalk-bench`.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::output::failure::{Exit, Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Passed on: NAME [--quick] [--json FILE] [--only ROW]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "NAME")]
    arguments: Vec<String>,
}

const PROGRAM: &str = "ropewalk-bench";

/// Executes `ropewalk-bench bench …`; returns only on failure.
pub(crate) fn bench(bench: &Bench) -> Result {
    let Some(program) = find() else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{PROGRAM} is neither next to this program nor on PATH"),
            "In a clone of the repository, `./run bench NAME` builds and runs it",
        ));
    };
    let error = Command::new(&program).arg("bench").args(&bench.arguments).exec();
    Err(Failure::file("run", &program, &error))
}

fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)).collect::<Vec<_>>();
    beside.into_iter().chain(on_path).find(|candidate| candidate.is_file())
}
