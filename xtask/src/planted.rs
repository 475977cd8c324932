//! Old bugs and forgotten rules, planted one at a time in a copy of the sources, to prove that the simulation finds each.
//!
//!   copy of the workspace ─▶ one edit ─▶ build (must succeed) ─▶ the simulation (must fail)
//!
//! An edit contains the text that it replaces, which must occur exactly once: when the code changes, the
//! table has to follow. The sources of the project have no switches for this.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo;

/// Where a planted bug has to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finder {
    /// The threads of the engine under the seeded scheduler; the test's name.
    Threads(&'static str),
    /// The seeded simulation; its arguments.
    Simulation(&'static [&'static str]),
    /// A test: its package, its target, its name.
    Test(&'static str, &'static str, &'static str),
}

/// One bug: its description, and the edits that bring it back.
struct Bug {
    name: &'static str,
    edits: &'static [Edit],
    finder: Finder,
}

struct Edit {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

const EVERY_PROMISE: Finder = Finder::Threads("threads_and_faults_keep_every_promise");
const PANICS: Finder = Finder::Threads("a_panicking_model_stops_the_engine_and_shows_no_half_transaction");

const POWER_CUTS: Finder = Finder::Simulation(&["--exhaust", "80", "--start", "16", "--seeds", "4"]);
const CLUSTER: Finder = Finder::Simulation(&["--cluster", "--seeds", "10"]);
/// For bugs that only rare faults show.
const MANY_CLUSTERS: Finder = Finder::Simulation(&["--cluster", "--seeds", "200"]);

const FOLLOWER: &str = "crates/log/src/shared/follower.rs";
const BROKEN_CHAIN: &str = "        if entry.previous != self.place.chain {\n";

const BUGS: &[Bug] = &[
    Bug {
        name: "a group stores the size of memory as it was before a flush",
        edits: &[edit(
            "crates/engine/src/commit/mod.rs",
            "        self.versions.set_active_bytes(active);\n",
            "        let frozen: u64 = version.frozen.iter().map(|generation| generation.bytes()).sum();\n        self.versions.set_active_bytes(active + frozen);\n",
        )],
        finder: EVERY_PROMISE,
    },
    Bug {
        name: "two threads flush the same generation",
        edits: &[
            edit(
                "crates/engine/src/engine/background.rs",
                "        let _one_at_a_time = self.flushing.lock();\n",
                "",
            ),
            edit(
                "crates/engine/src/engine/background.rs",
                "version.frozen.last().is_some_and(|flushed| Arc::ptr_eq(flushed, oldest)),",
                "version.frozen.last().is_some() || true,",
            ),
        ],
        finder: EVERY_PROMISE,
    },
    Bug {
        name: "a panic while sequencing leaves the engine running",
        edits: &[
            edit(
                "crates/engine/src/commit/mod.rs",
                "        self.core.fail(&format_args!(\"panic during {}\", self.during));\n",
                "        let _ = (self.core, self.during);\n",
            ),
            edit(
                "crates/engine/src/commit/mod.rs",
                "        self.0.fail(&cause);\n",
                "        let _ = cause;\n",
            ),
        ],
        finder: PANICS,
    },
    Bug {
        name: "a record that does not decode is appended all the same",
        edits: &[edit(
            "crates/engine/src/commit/mod.rs",
            "if sequencer.ends.is_empty() || core.stopped().is_some() {",
            "if sequencer.ends.is_empty() {",
        )],
        finder: PANICS,
    },
    Bug {
        name: "opening removes files before the manifest's rename is durable",
        edits: &[edit(
            "crates/store/src/store.rs",
            "        env.vfs.sync_dir(dir).map_err(StoreError::io(\"sync directory\", dir))?;\n        let files",
            "        let files",
        )],
        finder: POWER_CUTS,
    },
    Bug {
        name: "a manifest whose directory sync failed loses its runs",
        edits: &[edit(
            "crates/store/src/manifest/mod.rs",
            "(StoreError::Io { op: \"sync the directory of\", path, source }, true))",
            "(StoreError::Io { op: \"sync the directory of\", path, source }, false))",
        )],
        finder: Finder::Test(
            "ropewalk-store",
            "store",
            "failed_directory_sync_keeps_the_runs_of_a_manifest_that_may_survive",
        ),
    },
    Bug {
        name: "a feed delivers commits that are not durable",
        edits: &[edit(
            "crates/engine/src/engine/feed.rs",
            "self.next > self.core.versions.visible()",
            "self.next > self.core.versions.ordered()",
        )],
        finder: engine_test("feed_after_a_failed_sync_delivers_no_commit_that_was_not_acknowledged"),
    },
    Bug {
        name: "guards of earlier statements do not pin their snapshot",
        edits: &[edit(
            "crates/engine/src/kv_transaction.rs",
            "batch.pin(self.oldest.unwrap_or(self.snapshot));",
            "batch.pin(self.snapshot);",
        )],
        finder: engine_test("guard_of_an_earlier_statement_holds_when_the_change_was_flushed_and_merged"),
    },
    Bug {
        name: "opening relies on names in the log directory that are not durable",
        edits: &[edit(
            "crates/log/src/local.rs",
            "        env.vfs.sync_dir(dir).map_err(io(\"sync directory\", dir))?;\n        let names",
            "        let names",
        )],
        finder: engine_test("opening_an_existing_database_syncs_only_its_own_directories"),
    },
    Bug {
        name: "a new database has no manifest before its first commit",
        edits: &[edit(
            "crates/engine/src/engine/mod.rs",
            "            store.publish_first_manifest()?;\n",
            "",
        )],
        finder: engine_test("database_without_keyspaces_reopens_with_its_first_commits"),
    },
    Bug {
        name: "a leader answers before the shared log has the commit",
        edits: &[edit(
            "crates/engine/src/commit/mod.rs",
            "        let written = if ticket.sync || shared {\n",
            "        let written = if shared {\n            Ok(())\n        } else if ticket.sync {\n",
        )],
        finder: CLUSTER,
    },
    Bug {
        name: "a leader takes the entry of another one for its own",
        edits: &[edit(
            "crates/log/src/shared/replicated.rs",
            "Ok(stored) => return Ok(Appended::Other(Some(stored))),",
            "Ok(_) => return Ok(Appended::Stored(expected.next())),",
        )],
        finder: CLUSTER,
    },
    Bug {
        name: "a follower skips a gap of the shared log",
        edits: &[
            edit(FOLLOWER, "        if index != self.place.index.next() {\n", "        if false {\n"),
            edit(FOLLOWER, BROKEN_CHAIN, "        if false {\n"),
            edit(FOLLOWER, "        if entry.first != self.place.seq.next() {\n", "        if false {\n"),
        ],
        finder: MANY_CLUSTERS,
    },
    Bug {
        name: "a follower does not compare the hashes of entries",
        edits: &[edit(FOLLOWER, BROKEN_CHAIN, "        if false {\n")],
        finder: MANY_CLUSTERS,
    },
    Bug {
        name: "a node applies one value wrongly",
        edits: &[edit(
            "crates/engine/src/kv.rs",
            "                    apply.put(keyspace, key, Some(value));\n",
            "                    static PUTS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);\n                    let mut value = value.to_vec();\n                    if PUTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2000 == 1999 {\n                        value.iter_mut().take(1).for_each(|byte| *byte ^= 1);\n                    }\n                    apply.put(keyspace, key, Some(&value));\n",
        )],
        finder: CLUSTER,
    },
    Bug {
        name: "a node whose effects differ continues",
        edits: &[edit(
            "crates/engine/src/model/effects.rs",
            "            Some(own) => Compared::Differs(own),",
            "            Some(_) => Compared::Equal,",
        )],
        finder: CLUSTER,
    },
    Bug {
        name: "a restarted node forgets the sum of its effects",
        edits: &[edit(
            "crates/engine/src/engine/mod.rs",
            "Effects::new(saved, shared.hash_interval)",
            "Effects::new(saved.filter(|_| false), shared.hash_interval)",
        )],
        finder: CLUSTER,
    },
    Bug {
        name: "a node whose stored contents differ continues",
        edits: &[edit(
            "crates/engine/src/engine/hashes.rs",
            "                if own.hash == *hash {\n",
            "                if own.hash == *hash || true {\n",
        )],
        finder: CLUSTER,
    },
    Bug {
        name: "a load of a leader goes around the shared log",
        edits: &[edit(
            "crates/engine/src/engine/mod.rs",
            "        options.log_everything |= options.shared.is_some();\n",
            "",
        )],
        finder: CLUSTER,
    },
];

const fn engine_test(name: &'static str) -> Finder {
    Finder::Test("ropewalk-engine", "engine", name)
}

/// Plants each bug whose name contains `filter`. Fails when one is not found.
pub(crate) fn check(root: &Path, target: &Path, filter: &str) -> Result<()> {
    let copy = target.join("planted");
    let mut missed = Vec::new();
    let wanted: Vec<&Bug> = BUGS.iter().filter(|bug| bug.name.contains(filter)).collect();
    ensure!(!wanted.is_empty(), "no planted bug has {filter:?} in its name");
    for bug in &wanted {
        copy_sources(root, &copy)?;
        for edit in bug.edits {
            plant(&copy, edit).with_context(|| bug.name)?;
        }
        let is_found = is_found(&copy, target, bug.finder).with_context(|| bug.name)?;
        println!("{}: {}", if is_found { "found" } else { "NOT FOUND" }, bug.name);
        if !is_found {
            missed.push(bug.name);
        }
    }
    let (found, all) = (wanted.len() - missed.len(), wanted.len());
    println!("{found} of {all} planted bugs found");
    if missed.is_empty() { Ok(()) } else { bail!("not found: {}", missed.join("; ")) }
}

/// Makes `copy` a copy of the sources that git knows or would add. Files that are the same stay untouched, and with them
/// what cargo has built of them.
fn copy_sources(root: &Path, copy: &Path) -> Result<()> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(listing.status.success(), "git ls-files: {}", listing.status);
    for name in String::from_utf8(listing.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(name), copy.join(name));
        // A file that was deleted and not committed yet.
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|same| same == bytes) {
            continue;
        }
        let dir = to.parent().map_or_else(PathBuf::new, Path::to_owned);
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        fs::write(&to, bytes).with_context(|| format!("write {}", to.display()))?;
    }
    Ok(())
}

fn plant(copy: &Path, edit: &Edit) -> Result<()> {
    let path = copy.join(edit.file);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", edit.file))?;
    let count = text.matches(edit.from).count();
    ensure!(count == 1, "{} has {count} times: {:?}", edit.file, edit.from);
    fs::write(&path, text.replacen(edit.from, edit.to, 1)).with_context(|| format!("write {}", edit.file))
}

/// Builds the copy, which must succeed, and runs the test or simulation that must fail.
fn is_found(copy: &Path, target: &Path, finder: Finder) -> Result<bool> {
    let test = |package, target, name| {
        let test = ["test", "--locked", "-p", package, "--test", target];
        ([&test[..], &["--no-run"]].concat(), [&test[..], &[name]].concat())
    };
    let (build, run) = match finder {
        Finder::Threads(name) => test("ropewalk-engine", "engine", name),
        Finder::Test(package, target, name) => test(package, target, name),
        Finder::Simulation(arguments) => {
            let sim = ["--locked", "-p", "ropewalk-sim", "--bin", "sim"];
            ([&["build"], &sim[..]].concat(), [&["run"], &sim[..], &["--"], arguments].concat())
        }
    };
    // Separate: the program with the bug must not be where `./run` looks for the real one.
    let (flags, target) = match finder {
        Finder::Threads(_) => ("--cfg shuttle -A warnings", target.join("shuttle")),
        Finder::Test(..) | Finder::Simulation(_) => ("-A warnings", copy.join("target")),
    };
    let succeeds = |arguments: &[&str]| -> Result<bool> {
        let mut cargo = cargo::command();
        cargo.args(arguments).current_dir(copy).env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", &target);
        Ok(cargo.output().context("starting cargo")?.status.success())
    };
    ensure!(succeeds(&build)?, "it does not compile");
    Ok(!succeeds(&run)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise only the long run of all bugs reports that the code of one has changed.
    #[test]
    fn replaced_text_occurs_once_in_its_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for bug in BUGS {
            for edit in bug.edits {
                let text = fs::read_to_string(root.join(edit.file)).unwrap();
                assert_eq!(
                    text.matches(edit.from).count(),
                    1,
                    "{}: {:?} in {}",
                    bug.name,
                    edit.from,
                    edit.file
                );
            }
        }
    }
}
