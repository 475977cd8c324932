//! `bench series-embedded`: durable ingest in the shape of the mytsdb report and of scrapes, bytes per
//! sample, and a million series: creating, writing and reopening them, and their memory.

use crate::harness::plan::Better::{Higher, Lower};
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};

/// The report's machine, as far as it states it.
pub const MACHINE: &str =
    "mytsdb report (2025-12-06): a macOS laptop, cores unknown, writes neither acknowledged nor durable";
/// Samples per second of the report.
const REPORTED: f64 = 1_577_572.0;

/// The plan.
pub fn plan(quick: bool) -> Plan {
    let seconds = if quick { 2.0 } else { 10.0 };
    let many = if quick { 100_000 } else { 1_000_000 };
    let size = short(many);
    let step = |group: Group, threads: usize, batch: usize, rows: u64, lines: Vec<Row>| Step {
        task: Task { threads, batch, rows, seconds, ..Task::new(group) },
        victim: None,
        peers: &[],
        rounds: 1,
        rows: lines,
    };
    let write =
        |id: &str, what: &str, figure: &str| Row::new(id, what, "samples/s", Higher, figure).durable("sync");
    let report = "16 writers, 2,000 random samples of one of 102,000 series each";
    let of = |what: &str, unit: &'static str, better, figure: &str| {
        let words = match figure {
            "create" => format!("{size} new series, 20,000 a commit"),
            "write" => format!("one sample of each of {size} series, 20,000 a commit"),
            "beside" => "the same, p99 of a concurrent writer of ten samples".to_owned(),
            "beside_create" => "creation of series, p99 of a concurrent writer of ten samples".to_owned(),
            "resident" => format!("memory of the process with {size} series written to"),
            _ => format!("opening a store of {size} series again"),
        };
        Row::new(format!("many/{size}/{what}"), words, unit, better, figure)
    };
    Plan {
        name: "series-embedded",
        steps: vec![
            step(
                Group::SeriesReport,
                16,
                2_000,
                102_000,
                vec![write("report/write", report, "write").reported(REPORTED)],
            ),
            step(
                Group::SeriesScrapes,
                4,
                10_000,
                40_000,
                vec![write("scrape/write", "4 writers, scrapes of 10,000 series, one sample each", "write")],
            ),
            step(
                Group::SeriesMixed,
                1,
                1,
                if quick { 1_000 } else { 5_000 },
                vec![
                    Row::new(
                        "mixed/bytes",
                        "bytes per sample, labels and index with them",
                        "B/sample",
                        Lower,
                        "bytes",
                    ),
                    Row::new("mixed/chunks", "bytes per sample, chunks alone", "B/sample", Lower, "chunks"),
                    Row::new("mixed/read", "all samples read, one thread", "samples/s", Higher, "read"),
                ],
            ),
            step(
                Group::SeriesMany,
                1,
                20_000,
                many,
                vec![
                    of("create", "series/s", Higher, "create").durable("sync"),
                    of("create/beside", "ms", Lower, "beside_create").durable("sync"),
                    of("write", "samples/s", Higher, "write").durable("sync"),
                    of("write/beside", "ms", Lower, "beside").durable("sync"),
                    of("resident", "MB", Lower, "resident"),
                    of("reopen", "s", Lower, "reopen"),
                ],
            ),
        ],
    }
}
