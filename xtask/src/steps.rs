//! Every check and test of the project, in the order of `./run test`.
//!
//! `cargo xtask test` runs the list without the steps that are [`When::Commit`], `cargo xtask check` runs it without
//! those that are [`When::Test`]. [`crate::runner`] runs and counts them.

use self::Environment::{Doc, Linted, Plain, Shuttle};
use self::Kind::{Tests, Whole};
use self::When::{Always, Commit, Test};

/// Which of the two commands runs a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// `test` and `check`.
    Always,
    /// `test` only: the step takes minutes.
    Test,
    /// `check` only.
    Commit,
}

/// How the result of a step counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Passes or fails as a whole.
    Whole,
    /// Runs tests: the lines `test result:` of its output count.
    Tests,
}

/// Variables that a step sets in addition to those it inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Environment {
    Plain,
    /// Clippy's compiler; its warnings are errors. As `cargo clippy -- -D warnings`, but the linted crates are
    /// compiled, and not a second time for the tests.
    Linted,
    /// The engine on the seeded scheduler, in a separate target directory.
    Shuttle,
    /// Warnings of rustdoc are errors.
    Doc,
}

/// One step: a command line, and how its result counts.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) when: When,
    pub(crate) kind: Kind,
    pub(crate) environment: Environment,
    pub(crate) name: &'static str,
    /// Words without quotes, run in the root of the workspace; `target/` is the target directory.
    pub(crate) command: &'static str,
}

const fn step(
    when: When,
    kind: Kind,
    environment: Environment,
    name: &'static str,
    command: &'static str,
) -> Step {
    Step { when, kind, environment, name, command }
}

/// The steps. Programs in `target/debug` are those that the step "tests" has built.
#[rustfmt::skip]
pub(crate) const STEPS: &[Step] = &[
    step(Always, Whole, Plain, "format", "cargo fmt --all --check"),
    step(Always, Whole, Linted, "clippy", "cargo build --locked --all-targets"),
    step(Commit, Whole, Doc, "documentation", "cargo doc --locked --no-deps"),
    step(Always, Whole, Plain, "layering", "cargo xtask layering"),
    step(Always, Whole, Plain, "words", "cargo xtask words"),
    step(Always, Whole, Plain, "links", "cargo xtask links"),
    step(Always, Whole, Plain, "features", "cargo xtask features"),
    step(Always, Tests, Linted, "tests", "cargo test --locked --no-fail-fast"),
    step(Test, Tests, Plain, "SQL without the analytic executor", "cargo test --locked --config xtask/unoptimised.toml -p ropewalk-sql --no-default-features --test sql_by_key"),
    step(Test, Tests, Shuttle, "commit path under shuttle", "cargo test --locked -p ropewalk-engine --lib shuttle"),
    step(Test, Tests, Shuttle, "threads of the engine under shuttle", "cargo test --locked -p ropewalk-engine --test engine threads::"),
    step(Always, Whole, Plain, "simulation, 200 seeds", "target/debug/sim --seeds 200"),
    step(Test, Whole, Plain, "simulation of tables, 200 seeds", "target/debug/sim --tables --seeds 200"),
    step(Test, Whole, Plain, "simulation of documents, 100 seeds", "target/debug/sim --documents --seeds 100"),
    step(Test, Whole, Plain, "simulation of series, 200 seeds", "target/debug/sim --series --seeds 200"),
    step(Test, Whole, Plain, "simulation of consumers, 100 seeds", "target/debug/sim --consumers --seeds 100"),
    step(Test, Whole, Plain, "simulation of all four models, 100 seeds", "target/debug/sim --audit --seeds 100"),
    step(Test, Whole, Plain, "histories over all four models, 100 seeds", "target/debug/sim --mixed --seeds 100"),
    step(Test, Whole, Plain, "kill -9 loop, 10 rounds", "target/debug/kill --rounds 10"),
    step(Test, Whole, Plain, "kill -9 loop over documents, 20 rounds", "target/debug/kill --documents --rounds 20"),
    step(Test, Whole, Plain, "demo", "target/debug/ropewalk demo --once"),
    // The tests that other projects have for their clients, against our server, which the step "tests" has built.
    step(Test, Tests, Plain, "clients of others", "python3 tests/clients/run.py"),
];
