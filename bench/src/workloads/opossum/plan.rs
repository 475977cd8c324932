//! `bench opossum`: the rows of the Opossum report (C#, BenchmarkDotNet) with its published figures next to
//! ours.
//!
//! The report's machine differs and its store writes a file per event, so its column shows orders of
//! magnitude.

use crate::harness::plan::Better;
use crate::harness::plan::Better::Lower;
use crate::harness::plan::{Plan, Row, Step, short};
use crate::harness::worker::{Group, Task};
use crate::workloads::opossum::data::{query_cases, read_cases};

/// As far as the report states it.
pub const MACHINE: &str = "Opossum 0.5, .NET 10 on Windows, machine not named, January 2025";

/// The report's append rows: name, what, milliseconds.
const APPENDS: [(&str, &str, f64); 11] = [
    ("single", "1 event, no flush", 5.026),
    ("batch2", "2 events, no flush", 7.675),
    ("batch5", "5 events, no flush", 18.060),
    ("batch10", "10 events, no flush", 37.771),
    ("batch20", "20 events, no flush", 78.921),
    ("batch50", "50 events, no flush", 209.700),
    ("batch100", "100 events, no flush", 421.156),
    ("single_flush", "open, 1 event, flush", 10.669),
    ("batch5_flush", "open, 5 events, flush", 32.0),
    ("batch10_flush", "open, 10 events, flush", 65.192),
    ("condition", "1 event if its tag is new, no flush", 4.020),
];

/// The report's allocations per event of an append: batch, bytes.
const APPEND_BYTES: [(&str, f64); 4] =
    [("single", 56e3), ("batch5", 274e3 / 5.0), ("batch10", 592e3 / 10.0), ("batch100", 7e6 / 100.0)];

/// The report's allocations of the query rows, and how many events they return as coded.
const QUERY_BYTES: [(&str, f64, f64); 2] =
    [("low_selectivity", 7.5e6, 1200.0), ("payments_of_tenant", 252e3, 8.0)];

/// The plan; `quick` stops at 1M preloaded events and spends a tenth of a second on a row.
pub fn plan(quick: bool) -> Plan {
    let seconds = if quick { 0.1 } else { 0.5 };
    let rounds = if quick { 0 } else { 2 };
    let task = Task { seconds, ..Task::new(Group::Opossum) };
    let mut steps = vec![Step { task, victim: None, peers: &[], rounds, rows: small() }];
    let sizes: &[u64] = if quick { &[1_000_000] } else { &[1_000_000, 10_000_000] };
    for &size in sizes {
        let task = Task { rows: size, seconds, ..Task::new(Group::OpossumAt) };
        let mut rows = honest_reads(size);
        rows.extend(honest_appends(
            &format!("@{}", short(size)),
            &format!(", {} events before", short(size)),
        ));
        steps.push(Step { task, victim: None, peers: &[], rounds: rounds.min(1), rows });
    }
    Plan { name: "opossum", steps }
}

fn small() -> Vec<Row> {
    let mut rows = report_rows();
    rows.extend(honest_appends("", ""));
    for (name, what) in
        [("100B_0tags", "100 B, no tags"), ("1KB_3tags", "1 KB, 3 tags"), ("10KB_5tags", "10 KB, 5 tags")]
    {
        rows.push(
            time(format!("honest/size/{name}"), format!("append 1 event, {what}, flush")).durable("sync"),
        );
        rows.push(memory(format!("honest/memory/size/{name}"), format!("allocated per event, {what}")));
    }
    for case in query_cases() {
        let note = if case.never_hits { ", ten tags so that it finds some" } else { "" };
        let what = format!("{}{note}", case.what.split(',').next().unwrap_or(case.what));
        rows.extend(pair(&format!("honest/query/{}", case.name), &what));
        rows.push(memory(
            format!("honest/memory/query/{}", case.name),
            format!("allocated per event, {what}"),
        ));
    }
    for size in [100, 1000, 10_000] {
        rows.extend(honest_reads(size));
    }
    rows
}

fn report_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, what, ms) in APPENDS {
        let flush = if name.ends_with("_flush") { "sync" } else { "buffered" };
        rows.push(
            time(format!("report/append/{name}"), format!("{what}, new store"))
                .durable(flush)
                .reported(ms * 1e3),
        );
    }
    for (i, size) in [100, 1000, 10_000].into_iter().enumerate() {
        for case in read_cases() {
            let (Some(&ms), Some(&bytes)) = (case.reported_ms.get(i), case.reported_bytes.get(i)) else {
                continue;
            };
            if ms == 0.0 {
                continue;
            }
            let (id, share) = (format!("{}/{}", case.name, short(size)), share(case.name));
            let what = format!("{} of {}", case.what, short(size));
            rows.push(time(format!("report/read/{id}"), format!("open, read {what}")).reported(ms * 1e3));
            rows.push(
                memory(format!("report/memory/read/{id}"), format!("allocated per event, {what}"))
                    .reported(bytes / (size as f64 * share)),
            );
        }
    }
    for case in query_cases() {
        rows.push(
            time(format!("report/query/{}", case.name), case.what.to_owned())
                .reported(case.reported_ms * 1e3),
        );
        if !case.never_hits {
            let row = memory(
                format!("report/memory/query/{}", case.name),
                format!("allocated per event, {}", case.what),
            );
            let known = QUERY_BYTES.iter().find(|(name, ..)| *name == case.name);
            rows.push(known.map_or(row.clone(), |(_, bytes, events)| row.reported(bytes / events)));
        }
    }
    for (name, ms) in [("ascending", 40.56), ("descending", 41.49)] {
        rows.push(
            time(format!("report/isolated/{name}"), format!("both types of 500, {name}")).reported(ms * 1e3),
        );
    }
    for size in [100, 1000, 10_000] {
        rows.extend(read_last("report", size));
    }
    for (count, ms) in [(50, 4.5), (250, 16.7), (500, 32.8)] {
        let what = format!("read and fold {count} of 800 events");
        rows.push(time(format!("report/rebuild/{count}"), what).reported(ms * 1e3));
    }
    rows
}

fn honest_appends(suffix: &str, note: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for n in [1, 2, 5, 10, 20, 50, 100] {
        let name = if n == 1 { "single".to_owned() } else { format!("batch{n}") };
        for (flush, durability, how) in [("", "buffered", "no flush"), ("_flush", "sync", "flush")] {
            let what = format!("append {n} at once, {how}{note}");
            rows.push(time(format!("honest/append/{name}{flush}{suffix}"), what.clone()).durable(durability));
            let row = memory(
                format!("honest/memory/append/{name}{flush}{suffix}"),
                format!("allocated per event, {what}"),
            );
            let known = APPEND_BYTES.iter().find(|(known, _)| flush.is_empty() && *known == name);
            rows.push(known.map_or(row.clone(), |(_, bytes)| row.reported(*bytes)));
        }
    }
    for (flush, durability, how) in [("", "buffered", "no flush"), ("_flush", "sync", "flush")] {
        let what = format!("append 1 event if its tag is new, {how}{note}");
        rows.push(time(format!("honest/append/condition{flush}{suffix}"), what).durable(durability));
    }
    rows
}

fn honest_reads(size: u64) -> Vec<Row> {
    let at = short(size);
    let mut rows = Vec::new();
    for case in read_cases() {
        let what = format!("read {} of {at}", case.what);
        rows.extend(pair(&format!("honest/read/{}/{at}", case.name), &what));
        rows.push(memory(
            format!("honest/memory/read/{}/{at}", case.name),
            format!("allocated per event, {what}"),
        ));
    }
    rows.extend(read_last("honest", size));
    rows
}

/// The project's claim of 0.93 to 1.16 ms is next to the report lane.
fn read_last(lane: &str, size: u64) -> Vec<Row> {
    let cases = [("type", "of a type"), ("tag", "with a tag"), ("all", "of all")];
    let row = |(name, what): (&str, &str)| {
        let row = time(
            format!("{lane}/read_last/{name}/{}", short(size)),
            format!("newest {what}, {} events", short(size)),
        );
        if lane == "report" { row.reported(1.0e3) } else { row }
    };
    cases.map(row).into()
}

/// The same query both ways, and what descending costs compared with ascending.
fn pair(id: &str, what: &str) -> [Row; 3] {
    [
        time(format!("{id}/ascending"), format!("{what}, ascending")),
        time(format!("{id}/descending"), format!("{what}, descending")),
        Row::new(
            format!("{id}/desc_to_asc"),
            format!("{what}, descending ÷ ascending"),
            "ratio",
            Lower,
            format!("{id}/desc_to_asc"),
        ),
    ]
}

fn share(case: &str) -> f64 {
    match case {
        "type" => 0.25,
        "tag" => 0.1,
        "types" => 0.75,
        "tags" => 0.01,
        _ => 1.0,
    }
}

fn time(id: String, what: String) -> Row {
    same(id, what, "µs", Lower)
}

fn memory(id: String, what: String) -> Row {
    same(id, what, "B/event", Lower)
}

/// A row whose figure has the row's name.
fn same(id: String, what: String, unit: &'static str, better: Better) -> Row {
    Row::new(id.clone(), what, unit, better, id)
}
