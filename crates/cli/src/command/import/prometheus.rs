//! Imports samples from Prometheus block directories: one block, or all in a data directory.
//!
//! Each block is read completely and verified, then written in commits of about a hundred thousand samples.
//! Importing a block twice changes nothing, so an interrupted import is simply repeated. Samples in the
//! memory and log of Prometheus are in no block; its snapshot API writes them as one.

use std::fs;
use std::path::{Path, PathBuf};

use ropewalk::engine::Env;
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
            error => Self::new(Exit::Invalid, error.to_string(), "Samples read before it are stored"),
        }
    }
}

fn is_block(path: &Path) -> bool {
    path.join("index").is_file()
}

/// The blocks that `path` refers to, in order of their names, which is the order of their creation.
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
        let what = format!("there is no Prometheus block in {}", path.display());
        let todo = "A block is a directory with the files index and chunks/000001; the snapshot API of Prometheus writes the samples in memory as one";
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
