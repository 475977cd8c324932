use std::path::PathBuf;
use std::sync::Arc;

use ropewalk_base::hash64;

use crate::error::StoreError;
use crate::run::Run;
use crate::run::block::{Block, head};
use crate::run::fences::Place;
use crate::run::filter::Filter;
use crate::run::index::Index;
use crate::store::Store;

/// One place of damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The expected content.
    pub what: String,
}

/// Result of [`Store::verify`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Runs checked.
    pub runs: u64,
    /// Blocks checked.
    pub blocks: u64,
    /// Entries checked.
    pub entries: u64,
    /// All damage, file by file. Empty: the store is intact.
    pub damage: Vec<Damage>,
}

impl Store {
    /// Reads every run in force and checks everything that a reader relies on: checksums, order within and across
    /// blocks, fences, that filters pass every key, counts, version bounds, and that the runs of a level are disjoint.
    /// Continues after damage and lists all of it; without its index, the blocks of a run cannot be found. Cost: one
    /// read of all data.
    ///
    /// # Errors
    /// I/O errors that say nothing about the content.
    pub fn verify(&self) -> Result<VerifyReport, StoreError> {
        let mut report = VerifyReport::default();
        for keyspace in &self.view().keyspaces {
            for sorted in keyspace.sources() {
                if let Some((a, b)) = sorted.overlapping() {
                    let what = format!("runs of one level overlap: this one and {}", b.path.display());
                    report.damage.push(Damage { path: a.path.clone(), offset: 0, what });
                }
                for run in &sorted.runs {
                    verify_run(run, &mut report)?;
                }
            }
        }
        Ok(report)
    }
}

/// Collects the damage of one run. Index and filter are those of the file, whatever is in memory.
struct Check<'r> {
    run: &'r Run,
    index: Index,
    filter: Filter,
    report: &'r mut VerifyReport,
}

impl Check<'_> {
    fn wrong(&mut self, block: usize, what: impl Into<String>) {
        let offset = self.index.block_at(block).map_or(self.run.bytes, |(at, _)| at);
        self.report.damage.push(Damage { path: self.run.path.clone(), offset, what: what.into() });
    }
}

impl VerifyReport {
    /// The part that was read, or `None` if it is damaged.
    fn note<T>(&mut self, read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match read {
            Ok(part) => Ok(Some(part)),
            Err(StoreError::Corrupt { path, offset, what }) => {
                self.damage.push(Damage { path, offset, what: what.to_owned() });
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }
}

#[derive(Default)]
struct Seen {
    entries: u64,
    tombstones: u64,
    superseded: u64,
    raw_bytes: u64,
}

fn verify_run(run: &Arc<Run>, report: &mut VerifyReport) -> Result<(), StoreError> {
    report.runs += 1;
    let footer = &run.footer;
    let mut seen = Seen::default();
    let mut before: Option<Vec<u8>> = None;
    let mut continued = false;
    let mut damaged = false;
    let Some(parts) = report.note(run.read_parts())? else { return Ok(()) };
    let filter = report.note(parts.filter.map_or_else(|| run.read_filter(), Ok))?.unwrap_or_default();
    let index = report.note(parts.index.map_or_else(|| run.read_index(), Ok))?;
    let Some(index) = index else { return Ok(()) };
    let check = &mut Check { run, index, filter, report };
    for index in 0..run.blocks() {
        check.report.blocks += 1;
        let bytes = match run.load(&check.index, index) {
            Ok(bytes) => bytes,
            Err(StoreError::Corrupt { what, .. }) => {
                check.wrong(index, what);
                (damaged, before, continued) = (true, None, false);
                continue;
            }
            Err(other) => return Err(other),
        };
        let block = match Block::parse(&bytes).and_then(|block| block.check().map(|()| block)) {
            Ok(block) => block,
            Err(what) => {
                check.wrong(index, what);
                (damaged, before, continued) = (true, None, false);
                continue;
            }
        };
        verify_block(check, index, &block, &mut before, continued, &mut seen);
        continued = block.layout().continues();
    }
    if damaged {
        return Ok(());
    }
    let counts = [
        ("entries", seen.entries, footer.entries),
        ("tombstones", seen.tombstones, footer.tombstones),
        ("superseded entries", seen.superseded, footer.superseded),
        ("raw bytes", seen.raw_bytes, footer.raw_bytes),
        ("pieces of the model", check.index.fences.pieces().unwrap_or(0) as u64, footer.model_pieces),
    ];
    for (what, found, said) in counts {
        if found != said {
            check.wrong(run.blocks(), format!("the footer counts {said} {what}, the file has {found}"));
        }
    }
    if before.is_some_and(|last| last != footer.max_key) {
        check.wrong(run.blocks(), "the footer's last key is not the last key");
    }
    Ok(())
}

fn verify_block(
    check: &mut Check<'_>,
    index: usize,
    block: &Block<'_>,
    before: &mut Option<Vec<u8>>,
    continued: bool,
    seen: &mut Seen,
) {
    let footer = &check.run.footer;
    let mut key = Vec::new();
    for position in 0..block.layout().count {
        check.report.entries += 1;
        seen.entries += 1;
        let Ok(value) = block.read(position, &mut key) else { return };
        let same = before.as_ref() == Some(&key);
        seen.superseded += u64::from(same);
        seen.tombstones += u64::from(value.is_none());
        seen.raw_bytes += key.len() as u64 + value.map_or(0, |(_, len)| len as u64);
        if position == 0 {
            if before.as_ref().is_some_and(|b| *b > key || same != continued) {
                check.wrong(index, "the block does not follow the one before");
            }
            let fences = &check.index.fences;
            let (fence, tail) = fences.get(index);
            let after = key.get(fences.shared()..).unwrap_or_default();
            if fence > head(after) || !continued && tail > after {
                check.wrong(index, "the fence lies above the first key");
            }
            if index == 0 && key != footer.min_key {
                check.wrong(index, "the footer's first key is not the first key");
            }
        }
        let seq = block.seq(position);
        if seq < footer.min_seq || seq > footer.max_seq {
            check.wrong(index, "a version outside the bounds of the footer");
        }
        let located = check.index.fences.locate(&key);
        if !same && located != Place::Block(index) {
            check.wrong(index, format!("the fences lead to {located:?} instead"));
        }
        if !check.filter.may_contain(hash64(check.run.filtered(&key))) {
            check.wrong(index, "the filter denies a key");
        }
        before.get_or_insert_default().clone_from(&key);
    }
}
