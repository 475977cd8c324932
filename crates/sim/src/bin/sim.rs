//! `sim`: runs seeds of the simulation; the last line is `N passed, N failed`.
//!
//! Reports progress after each tenth of the seeds. A failure prints the command that repeats it and the end
//! of its trace. With `--plant-lost-sync` one sync in every boot lies, and the run succeeds only if that is
//! found.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use clap::Parser;
use ropewalk_sim::{
    Counts, Run, Settings, exhaust, exhaust_documents, run, run_consumers, run_documents, run_series,
    run_tables,
};

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
    #[arg(long)]
    plant_lost_sync: bool,
    /// Instead: for each seed, a power cut at every operation of a workload of so many steps, and a kill there with a power
    /// cut after the next opening.
    #[arg(long, value_name = "STEPS", conflicts_with_all = ["tables", "series"])]
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
    /// Outcomes to try of each power cut of `--exhaust`.
    #[arg(long, default_value_t = 3)]
    tears: u64,
}

impl Arguments {
    /// The option that chose the world.
    fn world(&self) -> &'static str {
        match (self.tables, self.series, self.documents, self.consumers) {
            (true, ..) => " --tables",
            (_, true, ..) => " --series",
            (_, _, true, _) => " --documents",
            (.., true) => " --consumers",
            _ => "",
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
        let done = match arguments.documents {
            true => exhaust_documents(seed, steps, arguments.tears),
            false => exhaust(seed, steps, arguments.tears),
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
    let Arguments { boots, steps, plant_lost_sync, .. } = *arguments;
    let settings = Settings { boots, steps, plant_lost_sync, whole_trace: arguments.trace };
    let (mut passed, mut failed, mut total) = (0, 0, Counts::default());
    for seed in seeds.clone() {
        let run = match arguments.world() {
            " --tables" => run_tables(seed, boots),
            " --series" => run_series(seed, boots),
            " --documents" => run_documents(seed, boots),
            " --consumers" => run_consumers(seed, boots),
            _ => run(seed, &settings),
        };
        add(&mut total, &run.counts);
        let planted = if plant_lost_sync { " --plant-lost-sync" } else { "" };
        let world = arguments.world();
        let command = format!("sim --seed {seed} --boots {boots} --steps {steps}{planted}{world}");
        if run.bug.is_some() {
            failed += 1;
            println!("seed {seed} failed");
            if !plant_lost_sync || failed == 1 {
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
    let good = if arguments.plant_lost_sync {
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
