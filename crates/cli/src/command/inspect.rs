//! `ropewalk stats` and `ropewalk verify`: engine statistics, and a check of all files.

use ropewalk::engine::EngineStats;
use ropewalk::{Database, Seq};

use super::tail;
use crate::database::context::Context;
use crate::database::place::Place;
use crate::database::remote::StatsAnswer;
use crate::output::cell::Cell;
use crate::output::failure::{Exit, Failure, Result};

/// Statistics as rows: part, name, value, unit.
struct Figures(Vec<[Cell; 4]>);

impl Figures {
    fn add(&mut self, part: &str, name: impl Into<String>, value: impl Into<Cell>, unit: &str) {
        let unit = if unit.is_empty() { Cell::None } else { unit.into() };
        self.0.push([part.into(), name.into().into(), value.into(), unit]);
    }
}

pub(crate) fn stats(context: &Context) -> Result {
    let mut figures = Figures(Vec::new());
    match context.place()? {
        Place::Local(db) => {
            let stats = db.stats();
            engine(&mut figures, &db, &stats);
            events(&mut figures, &Place::Local(db))?;
            keyspaces(&mut figures, &stats);
        }
        Place::Remote(remote) => {
            let stats = remote.stats()?;
            served(&mut figures, &stats);
            events(&mut figures, &Place::Remote(remote))?;
            served_keyspaces(&mut figures, &stats);
        }
    }
    let mut report = context.report(&["part", "name", "value", "unit"])?;
    for cells in figures.0 {
        report.row(cells.into())?;
    }
    Ok(report.finish()?)
}

/// Engine statistics of a server, under the same names.
fn served(figures: &mut Figures, stats: &StatsAnswer) {
    figures.add("engine", "newest commit", stats.seq, "");
    figures.add("engine", "checkpointed commit", stats.checkpoint, "");
    figures.add("engine", "memtables", stats.memtable_bytes, "bytes");
    figures.add("engine", "memtables at most", stats.memtable_bytes_max, "bytes");
    figures.add("engine", "memtables waiting for their flush", stats.memtables_frozen, "");
    figures.add("engine", "snapshots", stats.snapshots, "");
    if let Some(error) = &stats.flush_error {
        figures.add("engine", "last flush failed", error.as_str(), "");
    }
    figures.add("log", "segments", stats.log.segments, "");
    figures.add("log", "spare segments", stats.log.spare_segments, "");
    figures.add("log", "appended since open", stats.log.appended_bytes, "bytes");
    figures.add("log", "written since open", stats.log.written_bytes, "bytes");
    figures.add("log", "syncs since open", stats.log.syncs, "");
    figures.add("files", "cache", stats.cache_bytes, "bytes");
    figures.add("files", "cache at most", stats.cache_bytes_max, "bytes");
    figures.add("files", "memory of indexes, filters and cache", stats.run_memory_bytes, "bytes");
}

fn served_keyspaces(figures: &mut Figures, stats: &StatsAnswer) {
    for keyspace in &stats.keyspaces {
        let part = format!("keyspace {}", keyspace.name);
        let mut add = |name: String, value: Cell, unit: &str| figures.add(&part, name, value, unit);
        add("files".into(), keyspace.file_bytes.into(), "bytes");
        if keyspace.file_bytes == 0 {
            continue;
        }
        add("entries".into(), keyspace.entries.into(), "");
        for (level, held) in keyspace.levels.iter().enumerate().filter(|(_, held)| held.runs > 0) {
            add(format!("level {level} runs"), held.runs.into(), "");
            add(format!("level {level}"), held.bytes.into(), "bytes");
        }
        add("keys and values".into(), keyspace.raw_bytes.into(), "bytes");
        add("space amplification".into(), ratio(keyspace.file_bytes, keyspace.raw_bytes), "");
        let written = keyspace.flushed_bytes + keyspace.compacted_bytes;
        add("write amplification since open".into(), ratio(written, keyspace.flushed_bytes), "");
    }
}

fn engine(figures: &mut Figures, db: &Database, stats: &EngineStats) {
    figures.add("engine", "newest commit", stats.seq.0, "");
    figures.add("engine", "checkpointed commit", stats.checkpoint.0, "");
    figures.add("engine", "memtables", stats.write_bytes, "bytes");
    figures.add("engine", "memtables at most", stats.write_bytes_max, "bytes");
    figures.add("engine", "memtables waiting for their flush", stats.frozen as u64, "");
    figures.add("engine", "snapshots", stats.snapshots as u64, "");
    if let Some(error) = &stats.flush_error {
        figures.add("engine", "last flush failed", error.as_str(), "");
    }
    let recovery = db.engine().recovery();
    figures.add("recovery", "commits replayed", recovery.records, "");
    figures.add("recovery", "log read", recovery.bytes, "bytes");
    let cut = recovery.cut.as_ref().map_or(0, |cut| cut.bytes);
    figures.add("recovery", "torn tail cut", cut, "bytes");
    figures.add("log", "segments", stats.log.segments, "");
    figures.add("log", "spare segments", stats.log.spare_segments, "");
    figures.add("log", "appended since open", stats.log.appended_bytes, "bytes");
    figures.add("log", "written since open", stats.log.written_bytes, "bytes");
    figures.add("log", "syncs since open", stats.log.syncs, "");
    figures.add("files", "cache", stats.store.cache_bytes, "bytes");
    figures.add("files", "cache at most", stats.store.cache_bytes_max, "bytes");
    figures.add("files", "memory of indexes, filters and cache", stats.store.memory_bytes, "bytes");
}

fn events(figures: &mut Figures, place: &Place) -> Result {
    for store in place.stores()? {
        figures.add(&format!("events {}", store.name), "events", store.events, "");
    }
    Ok(())
}

fn keyspaces(figures: &mut Figures, stats: &EngineStats) {
    for keyspace in &stats.store.keyspaces {
        let part = format!("keyspace {}", keyspace.name);
        let mut add = |name: String, value: Cell, unit: &str| figures.add(&part, name, value, unit);
        add("files".into(), keyspace.file_bytes.into(), "bytes");
        if keyspace.file_bytes == 0 {
            continue;
        }
        add("entries".into(), keyspace.entries.into(), "");
        add("tombstones".into(), (keyspace.tombstones + keyspace.range_tombstones).into(), "");
        for (level, held) in keyspace.levels.iter().enumerate().filter(|(_, held)| held.runs > 0) {
            add(format!("level {level} runs"), held.runs.into(), "");
            add(format!("level {level}"), held.bytes.into(), "bytes");
        }
        add("flushes to merge".into(), keyspace.flushes.into(), "");
        add("keys and values".into(), keyspace.raw_bytes.into(), "bytes");
        add("space amplification".into(), ratio(keyspace.file_bytes, keyspace.raw_bytes), "");
        let written = keyspace.flushed_bytes + keyspace.compacted_bytes;
        add("write amplification since open".into(), ratio(written, keyspace.flushed_bytes), "");
        add("model pieces".into(), keyspace.model_pieces.into(), "");
        add("runs without model".into(), keyspace.runs_without_model.into(), "");
        add("runs read in place".into(), keyspace.runs_mapped.into(), "");
        add("memory of indexes and filters".into(), keyspace.memory_bytes.into(), "bytes");
    }
}

/// A ratio with two decimals; no value if `whole` is 0.
fn ratio(part: u64, whole: u64) -> Cell {
    if whole == 0 { Cell::None } else { Cell::Decimal((part as f64 / whole as f64 * 100.0).round() / 100.0) }
}

pub(crate) fn verify(context: &Context) -> Result {
    let db = context.open()?;
    let found = db.verify()?;
    let mut commits = 0;
    let log = tail::each_change(&db, Seq(1), false, |change| {
        commits += 1;
        tail::check(change)
    });
    let mut report = context.report(&["checked", "result", "offset", "what"])?;
    let mut wrong = 0;
    for damage in &found.store.damage {
        wrong += 1;
        let path = damage.path.display().to_string();
        report.row(vec![path.into(), "damaged".into(), damage.offset.into(), damage.what.clone().into()])?;
    }
    for violation in &found.violations {
        wrong += 1;
        report.row(vec!["models".into(), "violated".into(), Cell::None, violation.clone().into()])?;
    }
    if let Err(Failure::Said { what, .. }) = &log {
        wrong += 1;
        report.row(vec!["log".into(), "damaged".into(), Cell::None, what.clone().into()])?;
    }
    if wrong == 0 {
        let files = &found.store;
        let what = format!("{} runs, {} blocks, {} entries", files.runs, files.blocks, files.entries);
        report.row(vec!["files".into(), "ok".into(), Cell::None, what.into()])?;
        report.row(vec!["log".into(), "ok".into(), Cell::None, format!("{commits} commits").into()])?;
        report.row(vec!["models".into(), "ok".into(), Cell::None, "every invariant holds".into()])?;
    }
    report.finish()?;
    if wrong == 0 {
        return Ok(());
    }
    let what = format!("{wrong} findings in {}", context.at.display());
    Err(Failure::new(
        Exit::Corrupt,
        what,
        "Copy the directory before anything else; a damaged run needs a backup",
    ))
}
