//! `sim`: runs seeds of the simulation; the last line is `N passed, N failed`.
//!
//! Reports progress after each tenth of the seeds. A failure prints the command that repeats it and the end
//! of its trace. With an option `--plant-...` the run has a bug, and succeeds only if that is found.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use clap::Parser;
use ropewalk::Isolation;
use ropewalk_sim::checker::{Level, check};
use ropewalk_sim::{
    Counts, Plant, Run, Settings, exhaust, exhaust_audit, exhaust_documents, race, run, run_audit,
    run_cluster, run_consumers, run_documents, run_mixed, run_series, run_tables,
};

/// Transactions of each thread of `--threads`, for one seed.
const TRANSACTIONS_OF_THREADS: u64 = 200;

/// Seeded simulation of the whole engine on a disk that fails.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    start: u64,
    /// Run this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// Boots of one seed, each with one kind of injected fault.
    #[arg(long, default_value_t = Settings::default().boots)]
    boots: u64,
    /// Longest boot, in steps.
    #[arg(long, default_value_t = Settings::default().steps)]
    steps: u64,
    /// Print the complete trace, also without a failure.
    #[arg(long)]
    trace: bool,
    /// Let one sync of every boot do nothing. The run succeeds if that is found.
    #[arg(long, conflicts_with_all = ["tables", "series", "documents", "consumers", "mixed", "exhaust", "cluster"])]
    plant_lost_sync: bool,
    /// Let some transfers of --audit not write their documents. The run succeeds if that is found.
    #[arg(long, requires = "audit", conflicts_with_all = ["plant_lost_sync", "exhaust"])]
    plant_forgotten_document: bool,
    /// Let the transactions of --mixed have snapshot isolation. The run succeeds if write skew is found.
    #[arg(long, requires = "mixed")]
    plant_write_skew: bool,
    /// Instead: for each seed, a power cut at every operation of a workload of so many steps, and a kill there with a power
    /// cut after the next opening.
    #[arg(long, value_name = "STEPS", conflicts_with_all = ["tables", "series", "mixed"])]
    exhaust: Option<u64>,
    /// Instead: transactions, definitions and loads over tables.
    #[arg(long)]
    tables: bool,
    /// Instead: samples in any order, deletions and snapshots over series.
    #[arg(long, conflicts_with = "tables")]
    series: bool,
    /// Instead: transactions, statements, definitions and sweeps over documents.
    #[arg(long, conflicts_with_all = ["tables", "series"])]
    documents: bool,
    /// Instead: a consumer group and a projection over events.
    #[arg(long, conflicts_with_all = ["tables", "series", "documents", "exhaust"])]
    consumers: bool,
    /// Instead: a bank in all models, whose auditors check that the models agree.
    #[arg(long, conflicts_with_all = ["tables", "series", "documents", "consumers"])]
    audit: bool,
    /// Instead: transactions across models, whose history an independent checker finds strictly serializable.
    #[arg(long, conflicts_with_all = ["tables", "series", "documents", "consumers", "audit"])]
    mixed: bool,
    /// Instead: three nodes that share a log, with faults of each node, of the network and of the log.
    #[arg(long, conflicts_with_all = ["tables", "series", "documents", "consumers", "audit", "mixed", "exhaust"])]
    cluster: bool,
    /// With --mixed: run the transactions on so many threads, without faults and not repeatable.
    #[arg(long, value_name = "N", requires = "mixed")]
    threads: Option<u64>,
    /// Outcomes to try of each power cut of `--exhaust`.
    #[arg(long, default_value_t = 3)]
    tears: u64,
}

impl Arguments {
    /// The option that chose the world.
    fn world(&self) -> &'static str {
        let worlds = [
            (self.tables, " --tables"),
            (self.series, " --series"),
            (self.documents, " --documents"),
            (self.consumers, " --consumers"),
            (self.audit, " --audit"),
            (self.mixed, " --mixed"),
            (self.cluster, " --cluster"),
        ];
        worlds.into_iter().find_map(|(is_chosen, name)| is_chosen.then_some(name)).unwrap_or("")
    }

    /// The bug of a bank.
    fn plant(&self) -> Plant {
        match (self.plant_lost_sync, self.plant_forgotten_document) {
            (true, _) => Plant::LostSync,
            (_, true) => Plant::ForgottenDocument,
            _ => Plant::Nothing,
        }
    }

    /// The isolation of a history, and the level that it must have.
    fn isolation(&self) -> (Isolation, Level) {
        match self.plant_write_skew {
            true => (Isolation::Snapshot, Level::Serializable),
            false => (Isolation::Serializable, Level::StrictSerializable),
        }
    }

    /// The option that plants a bug.
    fn planted(&self) -> Option<&'static str> {
        let bugs = [
            (self.plant_lost_sync, " --plant-lost-sync"),
            (self.plant_forgotten_document, " --plant-forgotten-document"),
            (self.plant_write_skew, " --plant-write-skew"),
        ];
        bugs.into_iter().find_map(|(is_planted, name)| is_planted.then_some(name))
    }

    /// A history of threads.
    fn race(&self, seed: u64, threads: u64) -> Run {
        let (isolation, level) = self.isolation();
        let history = race(seed, threads, TRANSACTIONS_OF_THREADS, isolation);
        let found = history.map(|history| {
            let commits = history.len() as u64;
            (commits, check(&history, level).first().map(ToString::to_string))
        });
        let (commits, bug) = found.unwrap_or_else(|error| (0, Some(error.to_string())));
        Run { hash: 0, counts: Counts { commits, ..Counts::default() }, bug, tail: Vec::new() }
    }

    fn run(&self, seed: u64) -> Run {
        let Self { boots, steps, plant_lost_sync, trace: whole_trace, .. } = *self;
        let settings = Settings { boots, steps, plant_lost_sync, whole_trace };
        match (self.world(), self.threads) {
            (" --tables", _) => run_tables(seed, boots),
            (" --series", _) => run_series(seed, boots),
            (" --documents", _) => run_documents(seed, boots),
            (" --consumers", _) => run_consumers(seed, boots),
            (" --cluster", _) => run_cluster(seed, boots.div_ceil(2), whole_trace),
            (" --audit", _) => run_audit(seed, boots, self.plant()),
            (" --mixed", Some(threads)) => self.race(seed, threads),
            (" --mixed", None) => {
                let (isolation, level) = self.isolation();
                run_mixed(seed, boots, isolation, level)
            }
            _ => run(seed, &settings),
        }
    }
}

fn report(run: &Run, command: &str) {
    for line in &run.tail {
        println!("{line}");
    }
    match &run.bug {
        Some(bug) => println!("BUG: {bug}\nrepeat: {command}"),
        None => println!("hash {:016x} {:?}", run.hash, run.counts),
    }
}

fn add(total: &mut Counts, counts: &Counts) {
    total.steps += counts.steps;
    total.commits += counts.commits;
    total.refusals += counts.refusals;
    total.reads += counts.reads;
    total.opens += counts.opens;
    total.power_cuts += counts.power_cuts;
    total.faults += counts.faults;
    total.copies += counts.copies;
    total.flips += counts.flips;
    total.flushed_bytes += counts.flushed_bytes;
    total.compacted_bytes += counts.compacted_bytes;
    total.rolls += counts.rolls;
    total.leaders += counts.leaders;
    total.ends += counts.ends;
    total.unknown += counts.unknown;
    total.checkpoints += counts.checkpoints;
    total.trims += counts.trims;
    total.statements += counts.statements;
    total.distortions += counts.distortions;
}

/// Reports progress, about ten times.
fn progress(seeds: &std::ops::Range<u64>, seed: u64, failed: u64) {
    let (all, done) = (seeds.end - seeds.start, seed + 1 - seeds.start);
    if done < all && done * 10 / all > (done - 1) * 10 / all {
        println!("{done} of {all} seeds, {failed} failed");
    }
}

fn exhaust_all(arguments: &Arguments, seeds: std::ops::Range<u64>, steps: u64) -> (u64, u64) {
    let (mut passed, mut failed, mut runs) = (0, 0, 0);
    for seed in seeds.clone() {
        let done = match arguments.world() {
            " --documents" => exhaust_documents(seed, steps, arguments.tears),
            " --audit" => exhaust_audit(seed, steps, arguments.tears),
            _ => exhaust(seed, steps, arguments.tears),
        };
        runs += done.runs;
        match done.failure {
            None => passed += 1,
            Some((point, disk_seed, run)) => {
                failed += 1;
                println!("seed {seed}: ended at operation {point}, disk seed {disk_seed}");
                let world = arguments.world();
                report(
                    &run,
                    &format!("sim --exhaust {steps} --tears {} --seed {seed}{world}", arguments.tears),
                );
            }
        }
        progress(&seeds, seed, failed);
    }
    println!(
        "{runs} runs, each but one for a seed with an end at another operation or another outcome of it"
    );
    (passed, failed)
}

fn run_all(arguments: &Arguments, seeds: std::ops::Range<u64>) -> (u64, u64) {
    let Arguments { boots, steps, .. } = *arguments;
    let (mut passed, mut failed, mut total) = (0, 0, Counts::default());
    for seed in seeds.clone() {
        let run = arguments.run(seed);
        add(&mut total, &run.counts);
        let (planted, world) = (arguments.planted().unwrap_or_default(), arguments.world());
        let threads = arguments.threads.map_or_else(String::new, |threads| format!(" --threads {threads}"));
        let command = format!("sim --seed {seed} --boots {boots} --steps {steps}{planted}{world}{threads}");
        if run.bug.is_some() {
            failed += 1;
            println!("seed {seed} failed");
            if planted.is_empty() || failed == 1 {
                report(&run, &command);
            }
        } else {
            passed += 1;
            if arguments.trace {
                report(&run, &command);
            }
        }
        progress(&seeds, seed, failed);
    }
    println!("{total:?}");
    (passed, failed)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Panics are caught and reported as bugs, with the seed.
    std::panic::set_hook(Box::new(|info| println!("{info}")));
    let first = arguments.seed.unwrap_or(arguments.start);
    let seeds = first..first + if arguments.seed.is_some() { 1 } else { arguments.seeds };
    let (passed, failed) = match arguments.exhaust {
        Some(steps) => exhaust_all(&arguments, seeds, steps),
        None => run_all(&arguments, seeds),
    };
    let good = if arguments.planted().is_some() {
        println!(
            "{}",
            if failed > 0 { "the planted bug was found" } else { "the planted bug was NOT found" }
        );
        failed > 0
    } else {
        failed == 0
    };
    println!("{passed} passed, {failed} failed");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
