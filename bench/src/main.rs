//! `ropewalk-bench bench NAME` runs a benchmark; `ropewalk-bench worker ours GROUP` is one measurement of it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod ours;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use ropewalk_bench::harness::Harness;
use ropewalk_bench::harness::counting::CountingAllocator;
use ropewalk_bench::harness::plan::Plan;
use ropewalk_bench::harness::report::{OURS, Report};
use ropewalk_bench::harness::table::Style;
use ropewalk_bench::harness::worker::Task;
use ropewalk_bench::harness::{figures, probe, table};
use ropewalk_bench::workloads::bundoc::plan as bundoc_plan;
use ropewalk_bench::workloads::cluster::plan as cluster_plan;
use ropewalk_bench::workloads::console::plan as console_plan;
use ropewalk_bench::workloads::crablet::plan as crablet_plan;
use ropewalk_bench::workloads::events::{plan as events_plan, wire_plan};
use ropewalk_bench::workloads::kernel::plan as kernel_plan;
use ropewalk_bench::workloads::mytsdb::plan as mytsdb_plan;
use ropewalk_bench::workloads::omendb::plan as omendb_plan;
use ropewalk_bench::workloads::one_tx::plan as one_tx_plan;
use ropewalk_bench::workloads::opossum::plan as opossum_plan;
use ropewalk_bench::workloads::projections::plan as projections_plan;
use ropewalk_bench::workloads::series::plan as series_plan;
use ropewalk_bench::workloads::sql::{copy_plan, sql_analytic_plan, sql_point_plan};
use ropewalk_bench::workloads::tpcb::plan as tpcb_plan;
use ropewalk_bench::workloads::ycsb::plan as ycsb_plan;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Benchmarks of Ropewalk and its peers.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one benchmark against every peer that is built.
    Bench {
        /// Name of the benchmark.
        #[arg(value_enum)]
        name: Name,
        /// Smaller sizes, fewer repetitions, under a minute.
        #[arg(long)]
        quick: bool,
        /// Writes the result as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Only this row, or the rows below it (`point/hit`).
        #[arg(long, value_name = "ROW")]
        only: Option<String>,
        /// Directory for the data; by default next to this program.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Displays a result that was written with `--json`.
    Show {
        /// The file.
        file: PathBuf,
        /// Prints Markdown, for a page.
        #[arg(long)]
        markdown: bool,
        /// Only these rows, or the rows below them.
        #[arg(long, value_name = "ROW")]
        only: Vec<String>,
    },
    /// Fills the tables of pages from stored results.
    Figures {
        /// The pages; by default the README and docs/benchmarks/*.md.
        pages: Vec<PathBuf>,
        /// Where the results lie.
        #[arg(long, default_value = "bench/results")]
        results: PathBuf,
    },
    /// Measures the disk: 4 KiB pwrite + fdatasync.
    Probe {
        /// Directory to measure.
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Lists the servers that can be measured here.
    #[command(hide = true)]
    List,
    /// One measurement; prints one line of JSON.
    #[command(hide = true)]
    Worker {
        /// The system: `ours`, or a server.
        system: String,
        #[command(flatten)]
        task: Task,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    Bundoc,
    Cluster,
    Console,
    Copy,
    Crablet,
    Kernel,
    EventsEmbedded,
    EventsWire,
    Mytsdb,
    Omendb,
    OneTx,
    Opossum,
    Projections,
    SeriesEmbedded,
    SqlAnalytic,
    SqlPoint,
    TpcbEmbedded,
    Ycsb,
}

impl Name {
    fn plan(self, quick: bool) -> Plan {
        match self {
            Name::Bundoc => bundoc_plan::plan(quick),
            Name::Cluster => cluster_plan::plan(quick),
            Name::Console => console_plan::plan(quick),
            Name::Copy => copy_plan::plan(quick),
            Name::Crablet => crablet_plan::plan(quick),
            Name::Kernel => kernel_plan::plan(quick),
            Name::EventsEmbedded => events_plan::plan(quick),
            Name::EventsWire => wire_plan::plan(quick),
            Name::Mytsdb => mytsdb_plan::plan(quick),
            Name::Omendb => omendb_plan::plan(quick),
            Name::OneTx => one_tx_plan::plan(quick),
            Name::Opossum => opossum_plan::plan(quick),
            Name::Projections => projections_plan::plan(quick),
            Name::SeriesEmbedded => series_plan::plan(quick),
            Name::SqlAnalytic => sql_analytic_plan::plan(quick),
            Name::SqlPoint => sql_point_plan::plan(quick),
            Name::TpcbEmbedded => tpcb_plan::plan(quick),
            Name::Ycsb => ycsb_plan::plan(quick),
        }
    }

    /// The machine of the report that the rows name.
    fn report_machine(self) -> Option<&'static str> {
        match self {
            Name::Bundoc => Some(bundoc_plan::MACHINE),
            Name::Crablet => Some(crablet_plan::MACHINE),
            Name::Mytsdb => Some(mytsdb_plan::MACHINE),
            Name::Omendb => Some(omendb_plan::MACHINE),
            Name::Opossum => Some(opossum_plan::MACHINE),
            Name::SeriesEmbedded => Some(series_plan::MACHINE),
            Name::Kernel | Name::EventsEmbedded | Name::EventsWire => None,
            Name::Cluster | Name::Console => None,
            Name::Copy | Name::SqlAnalytic | Name::SqlPoint => None,
            Name::OneTx | Name::Projections => None,
            Name::TpcbEmbedded | Name::Ycsb => None,
        }
    }
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Bench { name, quick, json, only, data } => {
            if matches!(name, Name::Cluster) {
                wire::ensure_log_servers()?;
            }
            let mut plan = name.plan(quick);
            if let Some(only) = only {
                plan.retain(&only);
                ensure!(!plan.steps.is_empty(), "no row {only} in this benchmark");
            }
            let ours = std::env::current_exe().context("finding this program")?;
            let beside = ours.parent().unwrap_or(Path::new(".")).to_path_buf();
            let data = data.unwrap_or_else(|| beside.join("bench-data"));
            fs::create_dir_all(&data)?;
            let lock = fs::File::create(data.join("lock"))?;
            ensure!(lock.try_lock().is_ok(), "another benchmark uses {}", data.display());
            let rivals = beside.join("ropewalk-rivals");
            let harness = Harness { data, rivals, ours, quick };
            let report = harness.run(&plan, name.report_machine(), &mut |line| eprintln!("{line}"))?;
            println!("{}", table::render(&report, Style::Terminal));
            if let Some(file) = json {
                fs::write(&file, serde_json::to_string_pretty(&report)? + "\n")
                    .with_context(|| format!("writing {}", file.display()))?;
            }
            let equal = report.rows.iter().all(|row| row.answers_equal);
            Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Show { file, markdown, only } => {
            let mut report = Report::read(&file)?;
            report.retain(&only);
            println!("{}", table::render(&report, if markdown { Style::Markdown } else { Style::Terminal }));
            Ok(ExitCode::SUCCESS)
        }
        Command::Figures { mut pages, results } => {
            if pages.is_empty() {
                pages = figures::pages(Path::new("."))?;
            }
            for page in pages {
                let text =
                    fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
                let filled = figures::fill(&text, |name| figures::stored(&results, name))
                    .with_context(|| format!("filling {}", page.display()))?;
                fs::write(&page, filled)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Probe { dir } => {
            println!("{}", serde_json::to_string(&probe::run(&dir, std::time::Duration::from_secs(3))?)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::List => {
            wire::peers().iter().for_each(|peer| println!("{peer}"));
            Ok(ExitCode::SUCCESS)
        }
        Command::Worker { system, task } => {
            let outcome = if task.group.is_of_servers() || (task.group.has_peers_here() && system != OURS) {
                wire::measure(&system, &task)?
            } else {
                ensure!(system == OURS, "{system} is not in this program");
                ours::measure(&task)?
            };
            println!("{}", serde_json::to_string(&outcome)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}
