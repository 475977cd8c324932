//! Runs a plan: starts workers as alternating child processes, compares answers, collects figures.

pub mod closed_loop;
pub mod counting;
pub mod figures;
pub mod machine;
pub mod plan;
pub mod probe;
pub mod random;
pub mod report;
pub mod table;
pub mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::harness::machine::{Machine, git_commit};
use crate::harness::plan::{Plan, Step};
use crate::harness::report::{BySystem, OURS, Report, RowResult, median};
use crate::harness::worker::{Figure, Group, Outcome, Task};
use crate::workloads::omendb::run;

/// How long a victim appends before it is killed.
const VICTIM_RUNS: Duration = Duration::from_millis(300);

/// The disk is measured again before each of our durable workers: on a shared machine its speed varies.
const PROBE_AGAIN: Duration = Duration::from_millis(150);

/// Paths of the programs and the data.
#[derive(Debug)]
pub struct Harness {
    /// Directory for the data; on the disk that is to be measured.
    pub data: PathBuf,
    /// This program, which runs our workers.
    pub ours: PathBuf,
    /// The peers' program, when it is built.
    pub rivals: PathBuf,
    /// Short form.
    pub quick: bool,
}

/// The peers that each of the two programs can measure.
struct Built {
    here: Vec<String>,
    rivals: Vec<String>,
}

impl Built {
    fn has(&self, group: Group, peer: &str) -> bool {
        let list = if group.has_peers_here() { &self.here } else { &self.rivals };
        list.iter().any(|name| name == peer)
    }
}

impl Harness {
    /// Runs all steps; `say` gets one line per worker.
    pub fn run(
        &self,
        plan: &Plan,
        machine: Option<&'static str>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Report> {
        fs::create_dir_all(&self.data).with_context(|| format!("creating {}", self.data.display()))?;
        let mut report = Report {
            bench: plan.name.to_owned(),
            commit: git_commit(),
            date: jiff::Timestamp::now().to_string(),
            quick: self.quick,
            machine: Machine::here(&self.data),
            probe: probe::run(&self.data, Duration::from_secs(if self.quick { 1 } else { 3 }))?,
            notes: Vec::new(),
            rows: Vec::new(),
        };
        if report.machine.fs == "tmpfs" {
            report.notes.push("the data lies in memory (tmpfs): no durable figure means anything".into());
        }
        if let Some(load) = report.machine.load.filter(|&load| load > 0.5) {
            let note = format!(
                "the machine was busy before it began (load {load}): repeat on a quiet one before you quote a figure"
            );
            report.notes.push(note);
        }
        let built = self.peers_built(plan, &mut report.notes);
        for (number, step) in plan.steps.iter().enumerate() {
            say(&format!("step {} of {}: {}", number + 1, plan.steps.len(), step.task.arguments().join(" ")));
            self.step(step, &built, machine, &mut report, say)?;
        }
        Ok(report)
    }

    /// The peers that the two programs know; missing peers of the plan become notes.
    fn peers_built(&self, plan: &Plan, notes: &mut Vec<String>) -> Built {
        let list = |program: &Path| -> Vec<String> {
            let listed = Command::new(program).arg("list").output().ok();
            let said = listed.filter(|listed| listed.status.success()).map(|listed| listed.stdout);
            String::from_utf8_lossy(&said.unwrap_or_default()).lines().map(str::to_owned).collect()
        };
        let built = Built { here: list(&self.ours), rivals: list(&self.rivals) };
        let wanted =
            |step: &Step| step.peers.iter().map(move |peer| (step.task.group, *peer)).collect::<Vec<_>>();
        let mut missing: Vec<&str> = plan
            .steps
            .iter()
            .flat_map(wanted)
            .filter(|(group, peer)| !built.has(*group, peer))
            .map(|(_, peer)| peer)
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let names = missing.join(", ");
            notes.push(format!("not built: {names}; `./run bench {} --peers` builds the peers", plan.name));
        }
        built
    }

    fn step(
        &self,
        step: &Step,
        built: &Built,
        machine: Option<&'static str>,
        report: &mut Report,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut schedule = vec![OURS];
        for _ in 0..step.rounds {
            schedule.extend(step.peers.iter().copied().filter(|peer| built.has(step.task.group, peer)));
            schedule.push(OURS);
        }
        let durable = step.rows.iter().any(|row| row.durability.is_some());
        let mut figures = BySystem::new();
        let mut digests: BTreeMap<String, (String, String)> = BTreeMap::new();
        let mut answers_equal = true;
        let mut probes = Vec::new();
        for system in schedule {
            if system == OURS && durable {
                probes.push(probe::run(&self.data, PROBE_AGAIN)?.fdatasync_per_s);
            }
            let outcome = match self.measure(system, step) {
                Ok(outcome) => outcome,
                Err(error) => {
                    say(&format!("  {system}: {error:#}"));
                    report.notes.push(format!("{system}, {}: {error:#}", step.task.arguments().join(" ")));
                    continue;
                }
            };
            for (name, digest) in outcome.digests {
                let (first, expected) =
                    digests.entry(name.clone()).or_insert((system.into(), digest.clone()));
                if *expected != digest {
                    answers_equal = false;
                    report.notes.push(format!("{name}: {system} answered [{digest}], {first} [{expected}]"));
                }
            }
            say(&format!("  {system}: {}", summary(&outcome.figures)));
            for (name, figure) in outcome.figures {
                figures.entry(system.to_owned()).or_default().entry(name).or_default().push(figure);
            }
        }
        if step.task.group == Group::Omendb {
            run::score(&mut figures);
        }
        let fdatasync_per_s = median(&mut probes);
        for row in &step.rows {
            let result = RowResult {
                fdatasync_per_s: row.durability.and(fdatasync_per_s),
                ..RowResult::new(row, &figures, answers_equal, machine)
            };
            report.notes.extend(row.judge(result.ours));
            report.rows.push(result);
        }
        Ok(())
    }

    /// One worker, in an empty directory that is removed afterwards.
    fn measure(&self, system: &str, step: &Step) -> Result<Outcome> {
        let dir = self.data.join(system);
        remove(&dir)?;
        fs::create_dir_all(&dir)?;
        let outcome = self.measure_in(&dir, system, step);
        remove(&dir)?;
        outcome
    }

    fn measure_in(&self, dir: &Path, system: &str, step: &Step) -> Result<Outcome> {
        if let Some(victim) = &step.victim {
            self.kill_under_load(system, Task { dir: dir.into(), ..victim.clone() })?;
        }
        let output = self.command(system, &Task { dir: dir.into(), ..step.task.clone() }).output();
        let output = output.with_context(|| format!("starting the worker of {system}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", output.status, errors.trim());
        let answer = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(answer.lines().last().unwrap_or_default()).context("the worker's answer")
    }

    fn kill_under_load(&self, system: &str, victim: Task) -> Result<()> {
        let mut child = self.command(system, &victim).stdout(Stdio::piped()).spawn()?;
        let said = child.stdout.take().context("no pipe")?;
        let ready = BufReader::new(said).lines().map_while(Result::ok).any(|line| line == "ready");
        if ready {
            std::thread::sleep(VICTIM_RUNS);
        }
        child.kill()?;
        let status = child.wait()?;
        ensure!(ready, "the worker to be killed ended before that: {status}");
        Ok(())
    }

    fn command(&self, system: &str, task: &Task) -> Command {
        let is_here = system == OURS || task.group.has_peers_here();
        let mut command = Command::new(if is_here { &self.ours } else { &self.rivals });
        command.arg("worker").arg(system).args(task.arguments());
        command
    }
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

fn summary(figures: &BTreeMap<String, Figure>) -> String {
    let one = |(name, figure): (&String, &Figure)| {
        let middle = median(&mut figure.samples.clone());
        format!("{name} {}", crate::harness::table::number(middle))
    };
    figures.iter().map(one).collect::<Vec<_>>().join(", ")
}
