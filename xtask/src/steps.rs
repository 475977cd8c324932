//! Every check and test of the project, and which of them run at the same time.
//!
//!   Build ──────────────▶ Run, two at a time ─────▶ counts and times
//!     └ Fetch, niced        └ Fill, niced
//!
//! `cargo xtask test` runs the list without the steps that are [`When::Commit`], `cargo xtask check` runs it without
//! those that are [`When::Test`]. [`crate::runner`] runs and counts them.

use self::Environment::{Doc, Linted, Nats, Plain, Shuttle};
use self::Kind::{Tests, Whole};
use self::Turn::{Build, Fetch, Fill, Run};
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

/// When a step runs in relation to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// First, one after the other: compiles the programs of the other steps.
    Build,
    /// During the steps of `Build`, at low priority: downloads.
    Fetch,
    /// After the steps above, two at a time: much of their time is waiting for clients, disks and clocks.
    Run,
    /// During the steps of `Run`, one after the other and at low priority: busy, and independent of clocks.
    Fill,
}

/// Variables that a step sets in addition to those it inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Environment {
    Plain,
    /// Clippy's compiler; its warnings are errors. As `cargo clippy -- -D warnings`, but the linted crates are
    /// compiled, and not a second time for the tests.
    Linted,
    /// As `Linted`, with the server of NATS that the step "packages of the clients" has installed.
    Nats,
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
    pub(crate) turn: Turn,
    pub(crate) environment: Environment,
    pub(crate) name: &'static str,
    /// Words without quotes, run in the root of the workspace; `target/` is the target directory.
    pub(crate) command: &'static str,
}

const fn step(
    when: When,
    kind: Kind,
    turn: Turn,
    environment: Environment,
    name: &'static str,
    command: &'static str,
) -> Step {
    Step { when, kind, turn, environment, name, command }
}

/// The steps. Programs in `target/debug` are those that the step "clippy" has built. Of the steps of `Run`, the long ones
/// are at places where two of them end at about the same time.
#[rustfmt::skip]
pub(crate) const STEPS: &[Step] = &[
    step(Always, Whole, Build, Plain, "format", "cargo fmt --all --check"),
    step(Always, Whole, Build, Linted, "clippy", "cargo build --locked --all-targets"),
    step(Commit, Whole, Build, Doc, "documentation", "cargo doc --locked --no-deps"),
    step(Test, Tests, Build, Plain, "SQL without the analytic executor", "cargo test --locked --config xtask/unoptimised.toml -p ropewalk-sql --no-default-features --test sql_by_key"),
    step(Test, Whole, Fetch, Plain, "packages of the clients", "python3 tests/clients/run.py --fetch"),
    step(Always, Tests, Run, Linted, "tests", "cargo test --locked --no-fail-fast"),
    step(Always, Whole, Run, Plain, "layering", "cargo xtask layering"),
    step(Always, Whole, Run, Plain, "words", "cargo xtask words"),
    step(Always, Whole, Run, Plain, "links", "cargo xtask links"),
    step(Always, Whole, Run, Plain, "features", "cargo xtask features"),
    step(Test, Whole, Run, Plain, "table of docs/scale.md", "python3 bench/python/shards.py --check"),
    step(Test, Whole, Run, Plain, "kill -9 loop, 10 rounds", "target/debug/kill --rounds 10"),
    step(Test, Whole, Run, Plain, "kill -9 loop over documents, 20 rounds", "target/debug/kill --documents --rounds 20"),
    step(Test, Whole, Run, Plain, "demo", "target/debug/ropewalk demo --once"),
    // The step "tests" runs only those that need no server.
    step(Test, Tests, Run, Nats, "shared log on NATS", "cargo test --locked --test cluster_nats"),
    // The tests that other projects have for their clients, and those of our own, against our server.
    step(Test, Tests, Run, Plain, "clients: Ropewalk", "python3 tests/clients/run.py ropewalk"),
    step(Test, Tests, Run, Plain, "clients: PostgreSQL", "python3 tests/clients/run.py postgres"),
    step(Test, Tests, Run, Plain, "clients: MongoDB", "python3 tests/clients/run.py mongo"),
    step(Test, Tests, Run, Plain, "clients: Prometheus", "python3 tests/clients/run.py prometheus"),
    step(Test, Tests, Run, Plain, "clients: events", "python3 tests/clients/run.py events"),
    step(Always, Whole, Fill, Plain, "simulation, 200 seeds", "target/debug/sim --seeds 200"),
    step(Test, Tests, Fill, Shuttle, "commit path under shuttle", "cargo test --locked -p ropewalk-engine --lib shuttle"),
    step(Test, Tests, Fill, Shuttle, "threads of the engine under shuttle", "cargo test --locked -p ropewalk-engine --test engine threads::"),
    step(Test, Whole, Fill, Plain, "simulation of tables, 200 seeds", "target/debug/sim --tables --seeds 200"),
    step(Test, Whole, Fill, Plain, "simulation of documents, 100 seeds", "target/debug/sim --documents --seeds 100"),
    step(Test, Whole, Fill, Plain, "simulation of series, 200 seeds", "target/debug/sim --series --seeds 200"),
    step(Test, Whole, Fill, Plain, "simulation of consumers, 100 seeds", "target/debug/sim --consumers --seeds 100"),
    step(Test, Whole, Fill, Plain, "simulation of all four models, 100 seeds", "target/debug/sim --audit --seeds 100"),
    step(Test, Whole, Fill, Plain, "simulation of a cluster, 20 seeds", "target/debug/sim --cluster --seeds 20"),
    step(Test, Whole, Fill, Plain, "histories over all four models, 100 seeds", "target/debug/sim --mixed --seeds 100"),
];
