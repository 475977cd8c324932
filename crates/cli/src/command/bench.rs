//! Hands over to the benchmark program, which is a binary of its own: nobody who only uses the database needs it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::output::failure::{Exit, Failure, Result};

const PROGRAM: &str = "ropewalk-bench";

/// Becomes `ropewalk-bench bench …`; returns only when that is impossible.
pub(crate) fn bench(arguments: &[String]) -> Result {
    let Some(program) = find() else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("{PROGRAM} is neither beside this program nor on PATH"),
            "In a clone of the repository, `./run bench NAME` builds and runs it",
        ));
    };
    let error = Command::new(&program).arg("bench").args(arguments).exec();
    Err(Failure::file("run", &program, &error))
}

fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)).collect::<Vec<_>>();
    beside.into_iter().chain(on_path).find(|candidate| candidate.is_file())
}
