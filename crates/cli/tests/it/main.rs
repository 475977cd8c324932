//! Tests of the real binary, each in a separate directory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // clippy.toml allows it in test functions, not in their helpers

mod backups;
mod cluster;
mod commands;
mod damage;
mod demo;
mod documents;
mod hostile;
mod importing;
mod locking;
mod metrics;
mod remote;
mod serving;
mod sql;
mod tailing;
mod tls;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A temporary directory in which `ropewalk` runs.
struct Place(tempfile::TempDir);

/// The result of a command.
#[derive(Debug)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A directory with an initialised database.
    fn with_database() -> Self {
        let place = Self::new();
        place.ok(&["init"]);
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_remove("ROPEWALK_AT")
            .env_remove("ROPEWALK_TOKEN");
        command
    }

    fn run(&self, arguments: &[&str]) -> Answer {
        self.run_with(arguments, b"")
    }

    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Answer {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may have ended already.
        let _ = child.stdin.take().unwrap().write_all(input);
        answer(child)
    }

    /// Runs a command that must succeed without output on standard error.
    fn ok(&self, arguments: &[&str]) -> String {
        let answer = self.run(arguments);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{arguments:?}: {answer:?}");
        answer.out
    }

    /// Runs a command that must fail with `code` and one paragraph that contains all of `words`.
    fn refused(&self, arguments: &[&str], code: i32, words: &[&str]) {
        let answer = self.run(arguments);
        assert_eq!(answer.err.trim_end().lines().count(), 1, "{arguments:?}: {answer:?}");
        assert!(answer.err.starts_with("ropewalk: "), "{answer:?}");
        refused(&answer, code, words);
    }

    /// Files in a directory of the database, largest first.
    fn files(&self, dir: &str) -> Vec<PathBuf> {
        let dir = self.path().join("ropewalk.db").join(dir);
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
        files
    }
}

/// Checks that a command failed with `code` and a message that contains all of `words`.
fn refused(answer: &Answer, code: i32, words: &[&str]) {
    assert_eq!(answer.code, code, "{answer:?}");
    for word in words {
        assert!(answer.err.contains(word), "{word:?} is missing in {:?}", answer.err);
    }
}

fn answer(child: Child) -> Answer {
    let output = child.wait_with_output().unwrap();
    Answer {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Parses NDJSON.
fn rows(ndjson: &str) -> Vec<serde_json::Value> {
    ndjson.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
