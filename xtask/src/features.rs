//! The program and the tests are built from the same compiled dependencies.
//!
//! Cargo compiles a dependency once for each set of features. `./run demo` builds one package and `./run test` builds
//! all with their tests; a feature that only one of them turns on compiles the dependency, and everything above it, twice.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::cargo;

/// Compares the features of each dependency of the program with those in the build of the tests.
pub(crate) fn check() -> Result<()> {
    let program = tree(&["-p", "ropewalk-cli", "-e", "normal"])?;
    let tests = tree(&["-e", "normal,dev"])?;
    let mut problems = 0;
    for dependency in program.difference(&tests) {
        problems += 1;
        let name = dependency.split('|').next().unwrap_or_default();
        let others: Vec<&String> =
            tests.iter().filter(|other| other.split('|').next() == Some(name)).collect();
        println!("{dependency}: compiled twice, the tests have {others:?}; see crates/cli/Cargo.toml");
    }
    ensure!(problems == 0, "features: {problems} dependencies are compiled twice");
    println!("features: the program shares all {} dependencies with the tests", program.len());
    Ok(())
}

/// Each package with its features, as `name version|features`.
fn tree(arguments: &[&str]) -> Result<BTreeSet<String>> {
    let format = ["tree", "--locked", "--prefix", "none", "-f", "{p}|{f}"];
    let output = cargo::command().args(format).args(arguments).output().context("starting cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8(output.stdout).context("cargo tree")?;
    Ok(text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}
