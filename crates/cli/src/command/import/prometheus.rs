//! Samples from the block directories that Prometheus writes: one of them, or all below its data directory.
//!
//! Each block is read whole and checked, and goes in commits of about a hundred thousand samples. A second import of the same
//! block changes nothing, so that one that was broken off is simply run again. What Prometheus has in memory and in its own log
//! is in no block: its snapshot call writes it as one.

use std::fs;
use std::path::{Path, PathBuf};

use ropewalk::Env;
use ropewalk::series::{BlockError, PrometheusBlock};

use super::Progress;
use crate::database::context::Context;
use crate::output::cell::Cell;
use crate::output::failure::{Exit, Failure, Result};

impl From<BlockError> for Failure {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Store(error) => ropewalk::Error::from(error).into(),
            BlockError::Io { path, source } => Self::file("read", &path, &source),
            error => Self::new(Exit::Invalid, error.to_string(), "What was read before it is kept"),
        }
    }
}

fn is_block(path: &Path) -> bool {
    path.join("index").is_file()
}

/// The blocks that `path` means, in the order of their names, which is that in which they were made.
fn blocks(path: &Path) -> Result<Vec<PathBuf>> {
    if is_block(path) {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error: std::io::Error| Failure::file("read", path, &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if is_block(&path) {
            found.push(path);
        }
    }
    found.sort_unstable();
    if found.is_empty() {
        let what = format!("there is no block of Prometheus in {}", path.display());
        let todo = "A block is a directory with the files index and chunks/000001; Prometheus writes what it has in memory as one when asked for a snapshot";
        return Err(Failure::new(Exit::NotFound, what, todo));
    }
    Ok(found)
}

pub(super) fn prometheus(context: &Context, path: &Path) -> Result {
    let blocks = blocks(path)?;
    let (db, env, progress) = (context.open()?, Env::real(), Progress::stderr());
    let store = db.series(context.store_name())?;
    let mut rows = Vec::new();
    for (done, dir) in (0..).zip(&blocks) {
        progress.at(done, blocks.len() as u64, "blocks");
        let before = progress.elapsed();
        let imported = store.import_block(&PrometheusBlock::open(&*env.vfs, dir)?)?;
        rows.push((dir, imported, progress.elapsed() - before));
    }
    drop(progress);
    db.close()?;
    let mut report = context.report(&["block", "store", "series", "samples", "seconds"])?;
    for (dir, imported, took) in rows {
        let name = dir.file_name().unwrap_or(dir.as_os_str());
        report.row(vec![
            name.to_string_lossy().into_owned().into(),
            context.store_name().into(),
            imported.series.into(),
            imported.samples.into(),
            Cell::Decimal((took.as_secs_f64() * 1000.0).round() / 1000.0),
        ])?;
    }
    Ok(report.finish()?)
}
