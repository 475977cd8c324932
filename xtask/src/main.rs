//! `cargo xtask COMMAND`: the chores of the project that are more than one cargo call.
//!
//! ```text
//!   test                every check and every test; ends with "N passed, N failed"
//!   check               the steps of `test` to run before a commit, and the documentation
//!   bench NAME          one benchmark in release; `--peers` builds the other databases first
//!   layering            which crate and which room may use which, who may touch files, time, sockets and `unsafe`;
//!                       how long a function may be
//!   words [PATH]        which words the texts may not use: docs/glossary.md; with PATH the findings below it
//!   links               every link between Markdown pages leads to a file and a heading
//!   features            the program and the tests share every compiled dependency
//!   sim --seeds N       the seeded simulation of the whole engine (`--seed S` repeats one)
//!   kill --rounds N     the kill -9 loop on a real process
//!   planted [TEXT]      plants bugs, those with TEXT in their names, and shows that the simulation finds each
//!   golden --update     writes the golden scripts again, to be reviewed as text
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod cargo;
mod features;
mod layering;
mod lengths;
mod links;
mod peers;
mod planted;
mod prose;
mod rooms;
mod runner;
mod source;
mod steps;
mod words;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::steps::When;

const USAGE: &str = "usage: cargo xtask test | check | bench NAME | layering | words [--update | PATH] | links | features | sim --seeds N [--seed S] | kill --rounds N | planted [TEXT] | golden --update";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["test"] => runner::run(When::Commit),
        ["check"] => runner::run(When::Test),
        ["bench", rest @ ..] => bench::run(rest),
        ["layering"] => layering(),
        ["words"] => words(None, false),
        ["words", "--update"] => words(None, true),
        ["words", prefix] => words(Some(prefix), false),
        ["links"] => links(),
        ["features"] => features::check(),
        ["sim", rest @ ..] => simulator("sim", rest),
        ["kill", rest @ ..] => simulator("kill", rest),
        ["planted"] => planted(""),
        ["planted", filter] => planted(filter),
        ["golden", "--update"] => golden_update(),
        _ => bail!(USAGE),
    }
}

fn layering() -> Result<()> {
    let workspace = cargo::workspace()?;
    let problems = layering::check(Path::new(&workspace.root), &workspace.packages)?;
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => {
            println!("layering: {} crates, every edge and every file allowed", workspace.packages.len());
            Ok(())
        }
        n => bail!("layering: {n} problems"),
    }
}

fn words(prefix: Option<&str>, update: bool) -> Result<()> {
    let workspace = cargo::workspace()?;
    words::check(Path::new(&workspace.root), prefix, update)
}

fn links() -> Result<()> {
    let workspace = cargo::workspace()?;
    links::check(Path::new(&workspace.root))
}

fn planted(filter: &str) -> Result<()> {
    let workspace = cargo::workspace()?;
    planted::check(&workspace.root, &workspace.target, filter)
}

fn simulator(binary: &str, arguments: &[&str]) -> Result<()> {
    let start = ["run", "--locked", "-p", "ropewalk-sim", "--bin", binary, "--"];
    cargo::run(&[&start, arguments].concat(), &[])
}

/// Golden scripts live next to the crates that depend on `goldenscript`; an environment variable makes its
/// runner write files.
fn golden_update() -> Result<()> {
    let workspace = cargo::workspace()?;
    let mut found = false;
    for package in workspace.packages.iter().filter(|p| p.uses("goldenscript")) {
        found = true;
        cargo::run(&["test", "--locked", "-p", &package.name], &[("UPDATE_GOLDENFILES", "1")])?;
    }
    if found { Ok(()) } else { bail!("no crate has golden scripts") }
}
