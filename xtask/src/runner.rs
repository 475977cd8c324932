//! Runs steps, shows their output as it arrives, and counts what passed and what failed.
//!
//! Lines of steps that run at the same time begin with the name of their step.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::Mutex;
use std::time::Instant;
use std::{env, io, thread};

use anyhow::{Context, Result};

use crate::cargo;
use crate::steps::{Environment, Kind, STEPS, Step, Turn, When};

/// Directory of the workspace, in which every step runs.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Where Go's installer puts it, which is often not in the search path.
const GO: &str = "/usr/local/go/bin";

/// Exit code of a shell for a program that does not start.
const NOT_STARTED: i32 = 127;

/// Added by a shell to the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

/// The turns of which steps run at the same time, each with the number of its steps that do.
const TURNS: [[(Turn, usize); 2]; 2] =
    [[(Turn::Build, 1), (Turn::Fetch, 1)], [(Turn::Run, 2), (Turn::Fill, 1)]];

const NO_PANIC: &str = "no step panics";

/// Runs every step except those of `other`.
///
/// A failure ends only its step: one run reports everything that needs repair.
pub(crate) fn run(other: When) -> Result<()> {
    env::set_current_dir(ROOT).context(ROOT)?;
    let start = Instant::now();
    let tally = Mutex::new(Tally::default());
    for turns in TURNS {
        let queues = turns.map(|(turn, workers)| {
            let steps = STEPS.iter().filter(move |step| step.turn == turn && step.when != other);
            (Mutex::new(steps), workers)
        });
        let tally = &tally;
        thread::scope(|scope| {
            for (queue, workers) in &queues {
                for _ in 0..*workers {
                    scope.spawn(move || work(queue, tally));
                }
            }
        });
    }
    say(&format!("all steps: {} s, of which", start.elapsed().as_secs()));
    let mut tally = tally.into_inner().expect(NO_PANIC);
    tally.times.sort_unstable();
    for (seconds, name) in tally.times.iter().rev() {
        println!("{seconds:>6} s  {name}");
    }
    // At the end, where one looks for it: of thousands of lines a log viewer may show only the last.
    for (name, excerpt) in &tally.excerpts {
        say(&format!("from the output of {name}"));
        print!("{excerpt}");
    }
    for failure in &tally.failures {
        println!("failed: {failure}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    // The counts are the last line: no error follows them.
    if tally.failed == 0 { Ok(()) } else { process::exit(1) }
}

/// Runs the steps of a queue until it is empty.
fn work(queue: &Mutex<impl Iterator<Item = &'static Step>>, tally: &Mutex<Tally>) {
    let next = || queue.lock().expect(NO_PANIC).next();
    while let Some(step) = next() {
        say(step.name);
        let start = Instant::now();
        let prefix = if step.turn == Turn::Build { String::new() } else { format!("{} | ", step.name) };
        let mut excerpt = Excerpt::default();
        let ran = output(command(step), &prefix, &mut io::stdout(), &mut excerpt);
        let (code, counts) = ran.unwrap_or_else(|error| {
            println!("{}: {error:#}", step.command);
            (NOT_STARTED, Counts::default())
        });
        let ending = if code == 0 { "ok".to_owned() } else { format!("failed ({code})") };
        let seconds = start.elapsed().as_secs();
        println!("--- {}: {ending}, {seconds} s", step.name);
        let mut tally = tally.lock().expect(NO_PANIC);
        tally.times.push((seconds, step.name));
        let failures = tally.failures.len();
        tally.add(step, code, &counts);
        if tally.failures.len() > failures {
            tally.excerpts.push((step.name, excerpt.finish()));
        }
    }
}

/// Prints the title of a step.
pub(crate) fn say(title: &str) {
    println!("\n==> {title}");
}

/// The target directory: `CARGO_TARGET_DIR`, or `target` in the workspace.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from(ROOT).join("target"), PathBuf::from)
}

/// The search path, with the directory of Go at its end.
pub(crate) fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":");
    path.push(GO);
    path
}

/// Full path of a program in [`search_path`].
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&search_path()).map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn command(step: &Step) -> Command {
    let mut words = step.command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let program = match (program, program.strip_prefix("target/")) {
        ("cargo", _) => cargo::command().get_program().to_owned(),
        (_, Some(built)) => target().join(built).into(),
        _ => program.into(),
    };
    let mut command = match step.turn {
        Turn::Build | Turn::Run => Command::new(program),
        Turn::Fetch | Turn::Fill => {
            let mut nice = Command::new("nice");
            nice.arg(program);
            nice
        }
    };
    command.args(words);
    match step.environment {
        Environment::Plain => {}
        Environment::Linted => lint(&mut command),
        Environment::Nats => {
            lint(&mut command);
            let server = target().join("clients/nats-server");
            if server.is_file() {
                command.env("ROPEWALK_NATS_SERVER", server);
            } else if find("nats-server").is_none() {
                println!("SKIPPED: tests that need NATS, because nats-server could not be installed");
            }
        }
        Environment::Shuttle => {
            let flags = env::var("RUSTFLAGS").unwrap_or_default() + " --cfg shuttle";
            command.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", target().join("shuttle"));
        }
        Environment::Doc => {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
    }
    command
}

/// Compiles with Clippy, whose warnings are errors.
fn lint(command: &mut Command) {
    // Cargo hashes the wrapper's name, so the full path shares what other calls have compiled with it.
    let driver = find("clippy-driver").unwrap_or_else(|| "clippy-driver".into());
    command.env("RUSTC_WORKSPACE_WRAPPER", driver);
    command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
}

/// Runs a command and copies the lines of its output and errors to `shown`, each after `prefix`.
///
/// Returns its exit code and the counts of its tests.
fn output(
    mut command: Command,
    prefix: &str,
    shown: &mut dyn Write,
    excerpt: &mut Excerpt,
) -> Result<(i32, Counts)> {
    let (reader, writer) = io::pipe().context("pipe")?;
    let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // It holds our ends for writing; while they are open the reader finds no end.
    drop(command);
    let mut reader = BufReader::new(reader);
    let mut counts = Counts::default();
    loop {
        // One call writes the line and its prefix: no line of another step is between them.
        let mut line = prefix.as_bytes().to_vec();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        shown.write_all(&line)?;
        shown.flush()?;
        let line = line.get(prefix.len()..).unwrap_or_default();
        counts.add(line);
        excerpt.add(line);
    }
    let status = child.wait()?;
    Ok((status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or_default()), counts))
}

/// Sums of the lines `test result:` of an output.
#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    /// Counts the numbers in front of `passed` and `failed`, if the line is a result.
    fn add(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let Some(result) = line.strip_prefix("test result:") else { return };
        let mut number = 0;
        for word in result.split_whitespace() {
            if word.starts_with("passed") {
                self.passed += number;
            } else if word.starts_with("failed") {
                self.failed += number;
            }
            number = word.parse().unwrap_or(0);
        }
    }
}

/// The lines of an output that lead to a failure.
#[derive(Debug, Default)]
struct Excerpt {
    kept: String,
    /// The newest lines that are not in it yet.
    recent: VecDeque<String>,
    lines: usize,
}

impl Excerpt {
    /// Lines of one excerpt.
    const LINES_MAX: usize = 90;
    /// Lines before one that reports a failure, or at the end.
    const RECENT_MAX: usize = 25;

    fn add(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line).into_owned();
        let is_failure =
            ["FAILED", "FAIL: ", "ERROR: ", "panicked at"].iter().any(|word| line.contains(word));
        if self.recent.len() == Self::RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(line);
        if is_failure {
            self.keep();
        }
    }

    fn keep(&mut self) {
        for line in self.recent.drain(..) {
            if self.lines < Self::LINES_MAX {
                self.kept.push_str(&line);
            }
            self.lines += 1;
        }
    }

    /// Without a line that reports a failure: the last lines.
    fn finish(mut self) -> String {
        if self.kept.is_empty() {
            self.keep();
        }
        self.kept
    }
}

/// Results of the steps so far.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    failures: Vec<String>,
    /// Names of failed steps, each with a part of its output.
    excerpts: Vec<(&'static str, String)>,
    /// Seconds and name of each step.
    times: Vec<(u64, &'static str)>,
}

impl Tally {
    fn add(&mut self, step: &Step, code: i32, counts: &Counts) {
        match step.kind {
            Kind::Whole if code == 0 => self.passed += 1,
            Kind::Whole => self.fail(step.name.to_owned(), 1),
            Kind::Tests => {
                self.passed += counts.passed;
                if counts.failed > 0 {
                    self.fail(step.name.to_owned(), counts.failed);
                } else if code != 0 || counts.passed == 0 {
                    // A runner that did not get as far as its result.
                    let Counts { passed, .. } = counts;
                    self.fail(format!("{} (ended with {code}, {passed} tests passed)", step.name), 1);
                }
            }
        }
    }

    fn fail(&mut self, failure: String, count: usize) {
        self.failed += count;
        self.failures.push(failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 20 passed; 1 failed; 3 ignored; 0 measured; finished in 0.01s\n";

    fn counts(lines: &[&str]) -> (usize, usize) {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.add(line.as_bytes()));
        (counts.passed, counts.failed)
    }

    fn tally(kind: Kind, code: i32, text: &str) -> (usize, usize, Vec<String>) {
        let (turn, environment) = (Turn::Build, Environment::Plain);
        let step = Step { when: When::Always, kind, turn, environment, name: "a", command: "" };
        let mut counts = Counts::default();
        counts.add(text.as_bytes());
        let mut tally = Tally::default();
        tally.add(&step, code, &counts);
        (tally.passed, tally.failed, tally.failures)
    }

    fn shell(script: &str) -> (i32, usize, String) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        // Not the output of this test, which is counted itself.
        let mut shown = Vec::new();
        let (code, counts) = output(command, "sh | ", &mut shown, &mut Excerpt::default()).unwrap();
        (code, counts.passed, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn results_are_summed() {
        assert_eq!(counts(&[OK, "running 3 tests\n", OK]), (40, 2));
        assert_eq!(counts(&[OK.trim_end()]), (20, 1), "a line without an end");
    }

    #[test]
    fn other_lines_do_not_count() {
        assert_eq!(
            counts(&["  test result: ok. 20 passed\n", "20 passed; 3 failed\n", "test result:\n"]),
            (0, 0)
        );
        assert_eq!(counts(&["test result: ok. passed\n", "test result: ok. many failed\n"]), (0, 0));
    }

    #[test]
    fn whole_step_counts_as_one() {
        assert_eq!(tally(Kind::Whole, 0, OK), (1, 0, vec![]));
        assert_eq!(tally(Kind::Whole, 1, OK), (0, 1, vec!["a".to_owned()]));
    }

    #[test]
    fn runner_without_result_is_a_failure() {
        assert_eq!(tally(Kind::Tests, 101, OK), (20, 1, vec!["a".to_owned()]));
        assert_eq!(tally(Kind::Tests, 0, ""), (0, 1, vec!["a (ended with 0, 0 tests passed)".to_owned()]));
        let passed = OK.replace("1 failed", "0 failed");
        assert_eq!(tally(Kind::Tests, 0, &passed), (20, 0, vec![]));
        let ended = vec!["a (ended with 134, 20 tests passed)".to_owned()];
        assert_eq!(tally(Kind::Tests, 134, &passed), (20, 1, ended));
    }

    #[test]
    fn excerpt_has_what_leads_to_failures_and_else_the_end() {
        let excerpt = |lines: &mut dyn Iterator<Item = String>| {
            let mut excerpt = Excerpt::default();
            lines.for_each(|line| excerpt.add(line.as_bytes()));
            excerpt.finish()
        };
        let numbers = |range: std::ops::Range<u32>| range.map(|number| format!("{number}\n"));
        assert_eq!(excerpt(&mut numbers(0..40)), numbers(15..40).collect::<String>());
        let failed = || std::iter::once("FAILED\n".to_owned());
        let kept = numbers(16..40).chain(failed()).collect::<String>();
        assert_eq!(excerpt(&mut numbers(0..40).chain(failed()).chain(numbers(0..40))), kept);
        let long = excerpt(&mut (0..200).flat_map(|_| failed()));
        assert_eq!(long.lines().count(), Excerpt::LINES_MAX);
    }

    #[test]
    fn exit_code_and_both_streams_of_a_command_are_read() {
        let script = "printf 'test result: ok. 2 pass'; sleep 0.1; printf 'ed\\n'; \
            printf 'test result: ok. 3 passed' >&2; exit 7";
        let shown = "sh | test result: ok. 2 passed\nsh | test result: ok. 3 passed";
        assert_eq!(shell(script), (7, 5, shown.to_owned()));
        assert_eq!(shell("kill -9 $$"), (137, 0, String::new()));
    }
}
