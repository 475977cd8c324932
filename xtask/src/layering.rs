//! Allowed dependencies between crates, and access to the machine. The table below is the picture of
//! ARCHITECTURE.md in a form that can be checked.
//!
//!   base ─▶ vfs ─▶ log, store ─▶ engine ─▶ models ─▶ ropewalk ─▶ sql, auth ─▶ projector, wire ─▶ server ─▶ cli
//!   base ─▶ learned ─▶ store          base ─▶ labels ─▶ series, promql ─▶ ropewalk
//!   ropewalk ─▶ cluster ─▶ server     log ─▶ cluster-nats, cluster-postgres ─▶ server
//!   wire ─▶ http-kit ─▶ monitoring ─▶ prometheus
//!
//! Rules
//! 1. A crate uses only the crates its row names; a crate without a row is refused.
//! 2. From the facade down, only `vfs` names `std::fs`, `std::time` (a `Duration` is only a number) or maps files.
//! 3. From the facade down there is no async runtime, no JSON and no socket.
//! 4. `unsafe` is used only in the files that ARCHITECTURE.md lists, and every file listed there has some.
//! 5. Every crate takes the workspace's lints.
//! 6. Inside a crate the rooms keep their order: [`crate::rooms`].
//! 7. A function has at most 120 lines: [`crate::lengths`].
//!
//! A new row or edge is a decision: write the record in `docs/decisions/` first.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cargo::{Kind, Package};
use crate::lengths;
use crate::rooms;
use crate::source::{paths_from, tokens, without_tests};

/// Role of a crate, which decides its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Part of the embedded database: rules 2 and 3 hold.
    Embedded,
    /// Touches the machine on behalf of all embedded crates: rule 3 holds.
    Machine,
    /// Programs and protocols: free in what they use from outside.
    Outer,
    /// Tests, simulation and measurement: may use every embedded crate, and anything from outside.
    Tool,
}

impl Role {
    /// True from the facade down, where rules 2 and 3 apply.
    fn embedded(self) -> bool {
        matches!(self, Role::Embedded | Role::Machine)
    }
}

struct Row {
    name: &'static str,
    role: Role,
    may_use: &'static [&'static str],
}

impl Row {
    fn find(name: &str) -> Option<&'static Row> {
        ROWS.iter().find(|row| row.name == name)
    }

    fn allows(&self, name: &str, kind: Kind) -> bool {
        self.may_use.contains(&name)
            // A crate's tests may turn on its own features.
            || kind == Kind::Dev && self.name == name
            || self.role == Role::Tool && Row::find(name).is_some_and(|row| row.role.embedded())
    }
}

const fn row(name: &'static str, role: Role, may_use: &'static [&'static str]) -> Row {
    Row { name, role, may_use }
}

const UNDER_MODELS: &[&str] = &["ropewalk-base", "ropewalk-vfs", "ropewalk-store", "ropewalk-engine"];
const UNDER_SERIES: &[&str] =
    &["ropewalk-base", "ropewalk-vfs", "ropewalk-store", "ropewalk-engine", "ropewalk-labels"];

/// In the order in which a newcomer would read them.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("ropewalk-base", Role::Embedded, &[]),
    row("ropewalk-vfs", Role::Machine, &["ropewalk-base"]),
    row("ropewalk-log", Role::Embedded, &["ropewalk-base", "ropewalk-vfs"]),
    row("ropewalk-learned", Role::Embedded, &["ropewalk-base"]),
    row("ropewalk-store", Role::Embedded, &["ropewalk-base", "ropewalk-vfs", "ropewalk-learned"]),
    row("ropewalk-engine", Role::Embedded, &["ropewalk-base", "ropewalk-vfs", "ropewalk-log", "ropewalk-store"]),
    row("ropewalk-labels", Role::Embedded, &["ropewalk-base"]),
    row("ropewalk-events", Role::Embedded, UNDER_MODELS),
    row("ropewalk-documents", Role::Embedded, UNDER_MODELS),
    row("ropewalk-series", Role::Embedded, UNDER_SERIES),
    row("ropewalk-tables", Role::Embedded, UNDER_MODELS),
    row("ropewalk-promql", Role::Embedded, &["ropewalk-base", "ropewalk-labels"]),
    row("ropewalk-derive", Role::Embedded, &[]),
    row("ropewalk", Role::Embedded, &[
        "ropewalk-base", "ropewalk-derive", "ropewalk-vfs", "ropewalk-log", "ropewalk-store", "ropewalk-engine", "ropewalk-events",
        "ropewalk-documents", "ropewalk-labels", "ropewalk-series", "ropewalk-tables", "ropewalk-promql",
    ]),
    row("ropewalk-cluster", Role::Embedded, &["ropewalk-base", "ropewalk-vfs", "ropewalk-log", "ropewalk-engine", "ropewalk"]),
    row("ropewalk-cluster-nats", Role::Outer, &["ropewalk-base", "ropewalk-log"]),
    row("ropewalk-cluster-postgres", Role::Outer, &["ropewalk-base", "ropewalk-log"]),
    row("ropewalk-sql", Role::Embedded, &["ropewalk"]),
    row("ropewalk-projector", Role::Embedded, &["ropewalk-vfs", "ropewalk", "ropewalk-sql"]),
    row("ropewalk-auth", Role::Outer, &["ropewalk"]),
    row("ropewalk-wire", Role::Outer, &["ropewalk", "ropewalk-auth"]),
    row("ropewalk-transactions", Role::Outer, &["ropewalk", "ropewalk-sql", "ropewalk-auth", "ropewalk-wire"]),
    row("ropewalk-http-kit", Role::Outer, &["ropewalk-auth", "ropewalk-wire"]),
    row("ropewalk-monitoring", Role::Outer, &["ropewalk", "ropewalk-wire", "ropewalk-http-kit"]),
    row("ropewalk-http", Role::Outer, &["ropewalk", "ropewalk-sql", "ropewalk-auth", "ropewalk-transactions", "ropewalk-wire", "ropewalk-http-kit"]),
    row("ropewalk-grpc", Role::Outer, &["ropewalk", "ropewalk-sql", "ropewalk-auth", "ropewalk-transactions", "ropewalk-wire", "ropewalk-http-kit"]),
    row("ropewalk-postgres", Role::Outer, &["ropewalk", "ropewalk-sql", "ropewalk-auth", "ropewalk-transactions", "ropewalk-wire", "ropewalk-http-kit"]),
    row("ropewalk-mongo", Role::Outer, &["ropewalk", "ropewalk-sql", "ropewalk-auth", "ropewalk-transactions", "ropewalk-wire"]),
    row("ropewalk-prometheus", Role::Outer, &["ropewalk", "ropewalk-auth", "ropewalk-wire", "ropewalk-http-kit", "ropewalk-monitoring"]),
    row("ropewalk-server", Role::Outer, &[
        "ropewalk", "ropewalk-cluster", "ropewalk-cluster-nats", "ropewalk-cluster-postgres", "ropewalk-auth", "ropewalk-monitoring", "ropewalk-projector", "ropewalk-sql", "ropewalk-transactions", "ropewalk-wire", "ropewalk-http-kit", "ropewalk-http", "ropewalk-grpc", "ropewalk-postgres", "ropewalk-mongo", "ropewalk-prometheus",
    ]),
    row("ropewalk-cli", Role::Outer, &["ropewalk", "ropewalk-sql", "ropewalk-auth", "ropewalk-wire", "ropewalk-grpc", "ropewalk-server", "ropewalk-bench"]),
    row("ropewalk-python", Role::Outer, &["ropewalk", "ropewalk-sql"]),
    row("ropewalk-sim", Role::Tool, &[]),
    row("ropewalk-bench", Role::Tool, &["ropewalk-grpc", "ropewalk-sql"]),
    row("ropewalk-rivals", Role::Outer, &["ropewalk-base", "ropewalk-bench"]),
    row("ropewalk-crablet-sql", Role::Outer, &[]),
    row("ropewalk-fuzz", Role::Tool, &["ropewalk-postgres"]),
    row("xtask", Role::Outer, &[]),
];

/// Outside crates that rule 2 keeps to `vfs`.
const MACHINE_CRATES: &[&str] = &["memmap2", "rustix", "libc", "nix", "fs2", "fs4"];

/// Outside crates that rule 3 keeps out; names ending in `*` match all with that prefix.
const SERVER_CRATES: &[&str] = &[
    "tokio*",
    "async-*",
    "smol",
    "futures*",
    "mio",
    "socket2",
    "hyper*",
    "axum*",
    "tonic*",
    "tower*",
    "reqwest",
    "rustls*",
    "serde_json",
    "sonic-rs",
    "simd-json",
];

/// Exceptions to the list above, each with a decision record: the query engine inside SQL (0009).
const SERVER_CRATES_ALLOWED: &[(&str, &[&str])] =
    &[("ropewalk-sql", &["async-trait", "futures-util", "tokio"])];

const MACHINE_PATHS: &[&str] = &["std::fs", "std::time"];
const SOCKET_PATHS: &[&str] = &["std::net", "std::os::unix::net"];
const PATHS_ALLOWED: &[&str] = &["std::time::Duration"];

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const UNSAFE_HEADING: &str = "## Unsafe code";

/// One broken rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    place: String,
    what: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Checks every rule on the workspace below `root` and returns all that is broken.
pub(crate) fn check(root: &Path, packages: &[Package]) -> Result<Vec<Problem>> {
    let mut problems = edges(packages);
    for package in packages {
        problems.extend(lints_taken(package)?);
        problems.extend(rooms::check(root, package)?);
        problems.extend(lengths::check(root, package)?);
        let role = Row::find(&package.name).map_or(Role::Outer, |row| row.role);
        if role.embedded() {
            for file in rust_files(&package.dir.join("src"))? {
                let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
                if !is_test_only(&file) {
                    problems.extend(paths(&relative(root, &file), role, &text));
                }
            }
        }
    }
    let architecture = fs::read_to_string(root.join(ARCHITECTURE)).context(ARCHITECTURE)?;
    let mut with_unsafe = BTreeSet::new();
    for file in rust_files(root)? {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        if tokens(&text).iter().any(|t| t.text == "unsafe") {
            with_unsafe.insert(relative(root, &file));
        }
    }
    problems.extend(unsafe_files(&unsafe_listed(&architecture), &with_unsafe));
    Ok(problems)
}

/// Rule 1, and the outside crates of rules 2 and 3.
fn edges(packages: &[Package]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in packages {
        let Some(row) = Row::find(&package.name) else {
            problems.push(Problem::new(
                &package.name,
                "has no row in xtask/src/layering.rs: decide where it belongs",
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let for_test = dependency.kind == Kind::Dev;
            let ours = name == "xtask" || name == "ropewalk" || name.starts_with("ropewalk-");
            let wrong = if ours {
                (!row.allows(name, dependency.kind))
                    .then_some("this edge is not in the table of xtask/src/layering.rs")
            } else if for_test || !row.role.embedded() {
                None
            } else if SERVER_CRATES.iter().any(|pattern| matches(pattern, name))
                && !SERVER_CRATES_ALLOWED
                    .iter()
                    .any(|(owner, names)| *owner == package.name && names.contains(&name))
            {
                Some("no async runtime, JSON or socket from the facade down")
            } else if row.role == Role::Embedded && MACHINE_CRATES.contains(&name) {
                Some("only vfs touches the machine")
            } else {
                None
            };
            problems.extend(wrong.map(|what| Problem::new(format!("{} -> {name}", package.name), what)));
        }
    }
    problems
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

/// Rules 2 and 3 in the source of one file.
fn paths(file: &str, role: Role, text: &str) -> Vec<Problem> {
    let below = |path: &str, roots: &[&str]| {
        roots
            .iter()
            .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
    };
    let mut problems = Vec::new();
    for (path, line) in paths_from(&without_tests(&tokens(text)), &["std"]) {
        let what = if below(&path, PATHS_ALLOWED) {
            continue;
        } else if below(&path, SOCKET_PATHS) {
            "no socket from the facade down"
        } else if role == Role::Embedded && below(&path, MACHINE_PATHS) {
            "only vfs touches files and time"
        } else {
            continue;
        };
        problems.push(Problem::new(format!("{file}:{line}"), format!("{path}: {what}")));
    }
    problems
}

/// Rule 5.
fn lints_taken(package: &Package) -> Result<Option<Problem>> {
    let manifest = package.dir.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    let taken = lines.next() == Some("workspace = true");
    Ok((!taken).then(|| Problem::new(&package.name, "Cargo.toml lacks [lints] workspace = true")))
}

/// The files of the table under "Unsafe code": the first cell of each row, in backticks.
fn unsafe_listed(architecture: &str) -> BTreeSet<String> {
    architecture
        .lines()
        .skip_while(|line| *line != UNSAFE_HEADING)
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(file, _)| file.to_owned())
        .collect()
}

/// Rule 4.
fn unsafe_files(listed: &BTreeSet<String>, found: &BTreeSet<String>) -> Vec<Problem> {
    let unlisted = found.difference(listed).map(|file| {
        Problem::new(file, format!("has `unsafe` and is not in the table \"Unsafe code\" of {ARCHITECTURE}"))
    });
    let stale = listed.difference(found).map(|file| {
        Problem::new(ARCHITECTURE, format!("lists {file}, which has no `unsafe`; take the row out"))
    });
    unlisted.chain(stale).collect()
}

/// All `.rs` files below `dir`, sorted; build output and hidden directories are left out.
pub(crate) fn rust_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // A folder of that name below `src` holds code.
            let build_output = name == "target" && dir.join("Cargo.toml").is_file();
            if path.is_dir() && !build_output && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// True for `tests.rs`, a test module in its own file.
pub(crate) fn is_test_only(file: &Path) -> bool {
    file.file_stem().is_some_and(|name| name == "tests")
}

pub(crate) fn relative(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).to_string_lossy().replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::Dependency;

    fn package(name: &str, dependencies: &[(&str, Kind)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).to_owned(), kind: *kind })
            .collect();
        Package { name: name.to_owned(), dir: PathBuf::new(), dependencies, rooms: None }
    }

    fn refused(name: &str, dependency: &str, kind: Kind) -> bool {
        !edges(&[package(name, &[(dependency, kind)])]).is_empty()
    }

    #[test]
    fn edges_run_one_way() {
        assert!(!refused("ropewalk-log", "ropewalk-vfs", Kind::Normal));
        assert!(refused("ropewalk-vfs", "ropewalk-log", Kind::Normal));
        assert!(refused("ropewalk-log", "ropewalk-store", Kind::Normal));
        assert!(refused("ropewalk-http", "ropewalk-engine", Kind::Normal));
        assert!(refused("ropewalk-log", "ropewalk-engine", Kind::Dev));
        assert!(!refused("ropewalk-sim", "ropewalk-engine", Kind::Normal));
        assert!(refused("ropewalk-sim", "ropewalk-server", Kind::Normal));
    }

    #[test]
    fn models_never_import_each_other() {
        let models = ["ropewalk-events", "ropewalk-documents", "ropewalk-series", "ropewalk-tables"];
        for model in models {
            for other in models {
                assert!(refused(model, other, Kind::Normal), "{model} -> {other}");
            }
        }
    }

    #[test]
    fn the_table_has_no_cycle() {
        let mut done: Vec<&str> = Vec::new();
        while done.len() < ROWS.len() {
            let next: Vec<&str> = ROWS
                .iter()
                .filter(|r| !done.contains(&r.name) && r.may_use.iter().all(|name| done.contains(name)))
                .map(|r| r.name)
                .collect();
            assert!(!next.is_empty(), "a cycle, or a name without a row, beside {done:?}");
            done.extend(next);
        }
    }

    #[test]
    fn an_unknown_crate_is_refused() {
        let problems = edges(&[package("ropewalk-extra", &[])]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().contains("no row"));
    }

    #[test]
    fn embedded_crates_have_no_runtime_json_or_mapping() {
        for name in ["tokio", "tokio-util", "serde_json", "memmap2", "rustix"] {
            assert!(refused("ropewalk-engine", name, Kind::Normal), "{name}");
        }
        assert!(refused("ropewalk-vfs", "tokio", Kind::Normal));
        assert!(!refused("ropewalk-vfs", "memmap2", Kind::Normal));
        assert!(!refused("ropewalk-engine", "serde_json", Kind::Dev));
        assert!(!refused("ropewalk-server", "tokio", Kind::Normal));
    }

    #[test]
    fn files_and_time_belong_to_vfs() {
        let text =
            "use std::{fs::File, time::{Duration, Instant}};\nfn f() { std::net::TcpStream::connect(x) }";
        let found: Vec<String> = paths("a.rs", Role::Embedded, text).iter().map(Problem::to_string).collect();
        assert_eq!(
            found,
            [
                "a.rs:1: std::fs::File: only vfs touches files and time",
                "a.rs:1: std::time::Instant: only vfs touches files and time",
                "a.rs:2: std::net::TcpStream::connect: no socket from the facade down",
            ]
        );
        assert_eq!(paths("a.rs", Role::Machine, text).len(), 1);
        assert!(
            paths("a.rs", Role::Embedded, "#[cfg(test)] mod tests { use std::fs; } // std::fs").is_empty()
        );
    }

    #[test]
    fn unsafe_is_listed_and_the_list_is_not_stale() {
        let text = "# A\n| `x.rs` | no |\n## Unsafe code\nWords.\n\n| File | Why |\n|---|---|\n| `a.rs` | why |\n| `b.rs` | why |\n\n## Next\n| `c.rs` | no |\n";
        let listed = unsafe_listed(text);
        assert_eq!(listed.iter().collect::<Vec<_>>(), ["a.rs", "b.rs"]);
        let found = BTreeSet::from(["b.rs".to_owned(), "c.rs".to_owned()]);
        let problems: Vec<String> = unsafe_files(&listed, &found).iter().map(Problem::to_string).collect();
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("c.rs: has `unsafe`"));
        assert!(problems[1].contains("lists a.rs"));
    }

    #[test]
    fn a_whole_tree_is_checked() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("crates/log");
        fs::create_dir_all(dir.join("src/deep")).unwrap();
        fs::create_dir_all(dir.join("tests")).unwrap();
        let write = |path: &str, text: &str| fs::write(root.path().join(path), text).unwrap();
        write("ARCHITECTURE.md", "## Unsafe code\n");
        write("crates/log/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n");
        write("crates/log/src/deep/a.rs", "use std::fs;");
        write("crates/log/src/tests.rs", "use std::fs;");
        write("crates/log/tests/it.rs", "use std::fs;\nunsafe fn f() {}");
        let packages = [Package {
            name: "ropewalk-log".to_owned(),
            dir: dir.clone(),
            dependencies: Vec::new(),
            rooms: None,
        }];
        let found: Vec<String> =
            check(root.path(), &packages).unwrap().iter().map(Problem::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/log/src/deep/a.rs:1: std::fs"));
        assert!(found[1].starts_with("crates/log/tests/it.rs: has `unsafe`"));

        write("crates/log/Cargo.toml", "[package]\n");
        let found = check(root.path(), &packages).unwrap();
        assert!(found.iter().any(|p| p.to_string().contains("[lints]")), "{found:?}");
    }
}
