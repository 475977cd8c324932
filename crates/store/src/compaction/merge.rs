//! Compaction: limits the number of sources per read, and drops versions that no snapshot sees.
//!
//! ```text
//!   level 0   flush 9 │ flush 8 │ flush 7      ranges overlap; more than `l0_runs_max` of them: all move down
//!   level 1   ▬▬▬▬ ▬▬▬▬ ▬▬▬▬                   ranges are disjoint; may hold `run_bytes × fanout` bytes,
//!   level 2   ▬▬▬▬ ▬▬▬▬ ▬▬▬▬ ▬▬▬▬ ▬▬▬▬         then each level `fanout` times the one above
//! ```
//!
//! A job splits runs of neighbouring levels into clusters that overlap. A cluster of one run with nothing to
//! drop is moved by the manifest alone (so append-only data is written once); the others are merged, a
//! quantum at a time.
//! Everything takes effect in one manifest switch at the end; until then a crash or an error leaves only orphans.
//!
//! Invariants
//! 1. Of two sources that hold the same key the newer one lies above. So a job that takes a run also takes
//!    every overlapping run below it, down to its output level; and all of level 0 when it takes any of it.
//! 2. All versions of a key end in one run (the writer splits between keys only).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::compaction::gc::{Gc, Snapshots};
use crate::error::StoreError;
use crate::options::{FilterPolicy, Keyspace, StoreOptions};
use crate::read::flush::Flush;
use crate::read::scan::SourceScanner;
use crate::read::view::{KeyspaceView, StoreView};
use crate::run::Run;
use crate::run::files::Files;
use crate::run::range_tombstones::RangeSet;
use crate::run::writer::{NewRun, RunWriter};

/// So many flushes that no reader reads count as one that is read: they cost space and a longer merge only.
const HIDDEN_PER_RUN: usize = 3;

/// Input and output of a job: the runs it takes, newest source first, and their target level.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) keyspace: Keyspace,
    /// Index into `KeyspaceView::levels`.
    pub(crate) output: usize,
    pub(crate) sources: Vec<Vec<Arc<Run>>>,
}

/// Bytes that level `index` (0 = level 1) may hold.
fn level_bytes_max(options: &StoreOptions, index: usize) -> u64 {
    let exponent = u32::try_from(index + 1).unwrap_or(u32::MAX);
    options.run_bytes.saturating_mul(options.fanout.saturating_pow(exponent))
}

impl Plan {
    /// The most urgent job, if any level is too full. Flushes that readers do not read count less.
    pub(crate) fn pick(view: &StoreView, options: &StoreOptions, hidden: &[Arc<Flush>]) -> Option<Self> {
        let mut best: Option<(f64, usize, Option<usize>)> = None;
        let mut offer = |score: f64, keyspace, level| {
            if score > 1.0 && best.is_none_or(|(other, ..)| score > other) {
                best = Some((score, keyspace, level));
            }
        };
        for (index, keyspace) in view.keyspaces.iter().enumerate() {
            let l0 = keyspace.l0.len();
            let unread = keyspace.l0.iter().filter(|sorted| sorted.is_of(hidden)).count();
            let runs = (l0 - unread).max(l0 / HIDDEN_PER_RUN);
            offer(runs as f64 / options.l0_runs_max as f64, index, None);
            for (level, sorted) in keyspace.levels.iter().enumerate() {
                offer(sorted.bytes() as f64 / level_bytes_max(options, level) as f64, index, Some(level));
            }
        }
        let (_, index, level) = best?;
        let (keyspace, view) = (Keyspace(index as u16), view.keyspaces.get(index)?);
        Some(match level {
            None => Self::level_zero(keyspace, view),
            Some(level) => Self::one_run(keyspace, view, level)?,
        })
    }

    /// All flushes, with what they overlap in level 1.
    fn level_zero(keyspace: Keyspace, view: &KeyspaceView) -> Self {
        let mut sources: Vec<Vec<Arc<Run>>> = view.l0.iter().map(|s| s.runs.clone()).collect();
        let taken: Vec<Arc<Run>> = sources.iter().flatten().cloned().collect();
        sources.push(overlapping(view, 0, &taken));
        Self { keyspace, output: 0, sources }
    }

    /// The run of `level` that overlaps least of the next level, for its size.
    fn one_run(keyspace: Keyspace, view: &KeyspaceView, level: usize) -> Option<Self> {
        let runs = &view.levels.get(level)?.runs;
        let cost = |run: &Arc<Run>| {
            let below: u64 =
                overlapping(view, level + 1, std::slice::from_ref(run)).iter().map(|r| r.bytes).sum();
            (below as f64 / run.bytes.max(1) as f64 * 1e6) as u64
        };
        let run = runs.iter().min_by_key(|run| (cost(run), run.id))?.clone();
        let below = overlapping(view, level + 1, std::slice::from_ref(&run));
        Some(Self { keyspace, output: level + 1, sources: vec![vec![run], below] })
    }

    /// Everything of a keyspace into its last level, if that changes anything.
    pub(crate) fn everything(keyspace: Keyspace, view: &KeyspaceView) -> Option<Self> {
        let sources: Vec<Vec<Arc<Run>>> =
            view.sources().map(|s| s.runs.clone()).filter(|r| !r.is_empty()).collect();
        let output = view.levels.len().saturating_sub(1);
        let settled = view.l0.is_empty() && sources.len() <= 1;
        if sources.is_empty() || settled && !sources.iter().flatten().any(|r| r.has_garbage()) {
            return None;
        }
        Some(Self { keyspace, output, sources })
    }

    /// Splits the runs into clusters whose ranges do not overlap: per cluster its sources, newest first.
    fn clusters(&self) -> Vec<Vec<Vec<Arc<Run>>>> {
        let tagged = self.sources.iter().enumerate();
        let mut runs: Vec<(usize, &Arc<Run>)> =
            tagged.flat_map(|(i, s)| s.iter().map(move |r| (i, r))).collect();
        runs.sort_by(|a, b| a.1.start().cmp(b.1.start()));
        let mut clusters: Vec<Vec<(usize, &Arc<Run>)>> = Vec::new();
        for (source, run) in runs {
            match clusters.last_mut() {
                Some(last) if last.iter().any(|(_, other)| !other.ends_before(run.start())) => {
                    last.push((source, run))
                }
                _ => clusters.push(vec![(source, run)]),
            }
        }
        let by_source = |cluster: Vec<(usize, &Arc<Run>)>| {
            let mut sources = vec![Vec::new(); self.sources.len()];
            for (source, run) in cluster {
                sources.get_mut(source).expect("a cluster has a place for each source").push(run.clone());
            }
            sources.retain(|s: &Vec<Arc<Run>>| !s.is_empty());
            sources
        };
        clusters.into_iter().map(by_source).collect()
    }
}

/// The runs of level index `level` that overlap any of `runs`.
fn overlapping(view: &KeyspaceView, level: usize, runs: &[Arc<Run>]) -> Vec<Arc<Run>> {
    let below = view.levels.get(level).map_or(&[][..], |s| &s.runs);
    below.iter().filter(|b| runs.iter().any(|r| r.overlaps(b))).cloned().collect()
}

/// A running plan.
pub(crate) struct Job {
    pub(crate) keyspace: Keyspace,
    pub(crate) output: usize,
    snapshots: Snapshots,
    /// Clusters still to be merged.
    waiting: VecDeque<Vec<Vec<Arc<Run>>>>,
    merge: Option<Merge>,
    /// Files that the job replaces or moves.
    pub(crate) taken: BTreeSet<u64>,
    pub(crate) moved: Vec<Arc<Run>>,
    pub(crate) written: Vec<NewRun>,
}

impl Job {
    /// `rewrite`: a run alone with something to drop is rewritten, not moved.
    pub(crate) fn new(plan: &Plan, snapshots: Snapshots, rewrite: bool) -> Self {
        let (merged, moved): (Vec<_>, Vec<_>) = plan.clusters().into_iter().partition(|sources| {
            let count = sources.iter().flatten().count();
            count > 1 || rewrite && sources.iter().flatten().any(|r| r.has_garbage())
        });
        let taken: BTreeSet<u64> = plan.sources.iter().flatten().map(|r| r.id).collect();
        let moved: Vec<Arc<Run>> = moved.into_iter().flatten().flatten().collect();
        let merged_runs = merged.iter().flatten().flatten().count();
        // Any other run would leave the store with the job's input.
        assert_eq!(merged_runs + moved.len(), taken.len(), "each run of a job is merged or moved");
        Self {
            keyspace: plan.keyspace,
            output: plan.output,
            snapshots,
            waiting: merged.into(),
            merge: None,
            taken,
            moved,
            written: Vec::new(),
        }
    }

    /// Merges about `max_bytes` of input; returns how many, and true when the job is complete.
    pub(crate) fn work(
        &mut self,
        files: &Arc<Files>,
        view: &KeyspaceView,
        max_bytes: u64,
    ) -> Result<(u64, bool), StoreError> {
        let mut bytes = 0;
        while bytes < max_bytes {
            let merge = match &mut self.merge {
                Some(merge) => merge,
                none => match self.waiting.pop_front() {
                    None => return Ok((bytes, true)),
                    Some(sources) => {
                        let target = (self.keyspace, self.output, &self.snapshots);
                        none.insert(Merge::start(files, view, target, sources)?)
                    }
                },
            };
            let complete;
            (bytes, complete) = merge.work(bytes, max_bytes)?;
            if complete && let Some(merge) = self.merge.take() {
                let (added, runs) = (merge.added, merge.writer.finish()?);
                assert_eq!(
                    runs.iter().map(NewRun::entries).sum::<u64>(),
                    added,
                    "the runs of a merge hold every entry that it retains"
                );
                self.written.extend(runs);
            }
        }
        Ok((bytes, self.merge.is_none() && self.waiting.is_empty()))
    }
}

/// A cluster that is being merged into new runs.
struct Merge {
    sources: Vec<SourceScanner>,
    ranges: Vec<RangeSet>,
    gc: Gc,
    writer: RunWriter,
    /// Entries passed to the writer.
    added: u64,
}

impl Merge {
    fn start(
        files: &Arc<Files>,
        view: &KeyspaceView,
        (keyspace, output, snapshots): (Keyspace, usize, &Snapshots),
        sources: Vec<Vec<Arc<Run>>>,
    ) -> Result<Self, StoreError> {
        let deeper = view.levels.get(output + 1..).unwrap_or_default();
        let bottom = sources
            .iter()
            .flatten()
            .all(|run| deeper.iter().flat_map(|s| &s.runs).all(|below| !run.overlaps(below)));
        let last_level = deeper.iter().all(|s| s.runs.is_empty());
        let filter = match view.options.filter {
            FilterPolicy::None => false,
            FilterPolicy::UpperLevels => !last_level,
            FilterPolicy::All => true,
        };
        let mut ranges = Vec::new();
        let mut all = RangeSet::default();
        for source in &sources {
            let mut own = RangeSet::default();
            for run in source {
                own.merge(&run.footer.ranges);
            }
            all.merge(&own);
            ranges.push(own);
        }
        let mut writer = RunWriter::new(files, keyspace, view.options, filter);
        writer.set_ranges(snapshots.keep_ranges(&all, bottom));
        let gc = Gc::new(snapshots.clone(), bottom);
        let sources = sources.into_iter().map(SourceScanner::start).collect::<Result<_, _>>()?;
        Ok(Self { sources, ranges, gc, writer, added: 0 })
    }

    /// Merges until `bytes` reaches `max_bytes`; true when all sources are at their end.
    fn work(&mut self, mut bytes: u64, max_bytes: u64) -> Result<(u64, bool), StoreError> {
        while bytes < max_bytes {
            let mut best: Option<(usize, &[u8])> = None;
            for (index, source) in self.sources.iter().enumerate() {
                if let Some(entry) = source.entry()
                    && best.is_none_or(|(_, key)| entry.key() < key)
                {
                    best = Some((index, entry.key()));
                }
            }
            let Some((index, key)) = best else { return Ok((bytes, true)) };
            let entry = self.sources.get(index).and_then(SourceScanner::entry);
            let entry = entry.expect("the nearest key is that of an entry");
            let value = entry.value();
            bytes += 16 + key.len() as u64 + value.map_or(0, |v| v.len() as u64);
            if let Some(seq) = self.gc.keep(key, entry.seq(), value.is_none(), index, &self.ranges) {
                self.writer.add(key, seq, value)?;
                self.added += 1;
            }
            self.sources.get_mut(index).expect("it has an entry").next()?;
        }
        Ok((bytes, false))
    }
}
