//! The OmenDB report's benchmark: load small rows by an integer key, then read a thousand of them, right after.
//!
//! As in its source (archive/old-binaries/benchmark_honest_comparison.rs): a row is an integer key and the
//! text `value_KEY`; formatting the value is inside the timed region; all rows are inserted in one
//! transaction into a store that was opened before; a second store, loaded the same way, reads each
//! (n/1000)-th key once, in the order of insertion, on one thread. The report lists the ratio of the load
//! times, the ratio of the query times, and their mean.
//!
//! Two things differ: every system ends its load with a sync, and random keys come from our generator.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::harness::random::SplitMix;
use crate::harness::report::{BySystem, OURS, median};
use crate::harness::worker::{Figure, Outcome, Task};
use crate::workloads::kernel::rows::Order;

/// Keys of one query pass.
pub const QUERIES: usize = 1000;
/// The report's baseline, driven as the report drove it.
pub const BASELINE: &str = "sqlite_report_shape";

/// A store of rows by integer key.
pub trait IntegerRows: Sized {
    /// A new store in the empty directory `dir`.
    fn create(dir: &Path) -> Result<Self>;
    /// Inserts a row for each key in one transaction, its value made by [`value`]; all are durable when it returns.
    fn insert(&mut self, keys: &[i64], order: Order) -> Result<()>;
    /// Reads the row of each key, which must be there, and adds up what [`crate::workloads::kernel::ordered::touch`] sees.
    fn query(&mut self, keys: &[i64]) -> Result<u64>;
    /// Figures that only this store has.
    fn extra(&mut self, _keys: &[i64], _task: &Task, _outcome: &mut Outcome) -> Result<()> {
        Ok(())
    }
}

/// The value of a key; replaces the contents of `out`.
#[inline]
pub fn value(key: i64, out: &mut String) {
    out.clear();
    write!(out, "value_{key}").expect("a string takes everything");
}

/// The keys in the order of insertion. Random ones are drawn from all 64-bit numbers.
pub fn keys(count: u64, order: Order) -> Vec<i64> {
    let mut random = SplitMix::new(42);
    match order {
        Order::Seq => (0..count.cast_signed()).collect(),
        Order::Rand => (0..count).map(|_| random.next_u64().cast_signed()).collect(),
    }
}

/// Loads one store per pass; the last one is queried.
pub fn run<S: IntegerRows>(task: &Task) -> Result<Outcome> {
    let keys = keys(task.rows, task.order);
    let step = (keys.len() / QUERIES).max(1);
    let asked: Vec<i64> = keys.iter().copied().step_by(step).take(QUERIES).collect();
    ensure!(asked.len() == QUERIES, "{} rows are too few", keys.len());
    let (mut outcome, mut insert) = (Outcome::default(), Figure::default());
    let mut loaded: Option<(S, PathBuf)> = None;
    for pass in 0..task.passes {
        if let Some((store, dir)) = loaded.take() {
            drop(store);
            std::fs::remove_dir_all(dir)?;
        }
        let dir = task.dir.join(pass.to_string());
        std::fs::create_dir_all(&dir)?;
        let mut store = S::create(&dir)?;
        let started = Instant::now();
        store.insert(&keys, task.order)?;
        insert.samples.push(started.elapsed().as_secs_f64() * 1e3);
        loaded = Some((store, dir));
    }
    let Some((mut store, _)) = loaded else { return Ok(outcome) };
    let started = Instant::now();
    let sum = store.query(&asked)?;
    let mut query = Figure::default();
    query.per(started, asked.len(), 1e6);
    outcome.figure("insert", insert);
    outcome.figure("query", query);
    outcome.digest("query", sum);
    store.extra(&keys, task, &mut outcome)?;
    Ok(outcome)
}

/// Adds the figure `mean` to every system: the mean of its two speedups over SQLite as the report drove it.
pub fn score(figures: &mut BySystem) {
    let middle = |system: &str, figure: &str, figures: &BySystem| {
        let found = figures.get(system)?.get(figure)?;
        median(&mut found.iter().flat_map(|f| f.samples.iter().copied()).collect::<Vec<_>>())
    };
    let scores: Vec<(String, f64)> = figures
        .keys()
        .filter_map(|system| {
            let ratio = |figure| Some(middle(BASELINE, figure, figures)? / middle(system, figure, figures)?);
            Some((system.clone(), f64::midpoint(ratio("insert")?, ratio("query")?)))
        })
        .collect();
    for (system, score) in scores {
        debug_assert!(system != BASELINE || (score - 1.0).abs() < 1e-9, "{OURS} and peers are scored alike");
        figures.entry(system).or_default().insert("mean".into(), vec![Figure::one(score)]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn inputs_are_pinned() {
        assert_eq!(keys(3, Order::Seq), [0, 1, 2]);
        assert_eq!(keys(2, Order::Rand), [-4767286540954276203, 2949826092126892291]);
        let mut text = String::new();
        value(-7, &mut text);
        assert_eq!(text, "value_-7");
    }

    #[test]
    fn the_score_is_the_mean_of_both_ratios() {
        let system = |insert: f64, query: f64| {
            let figures = [("insert", insert), ("query", query)];
            figures.map(|(name, value)| (name.to_owned(), vec![Figure::one(value)])).into()
        };
        let mut figures: BySystem = BTreeMap::from([
            (BASELINE.to_owned(), system(100.0, 9.0)),
            (OURS.to_owned(), system(10.0, 0.3)),
            ("broken".to_owned(), BTreeMap::new()),
        ]);
        score(&mut figures);
        assert_eq!(figures[OURS]["mean"][0].samples, [20.0]);
        assert_eq!(figures[BASELINE]["mean"][0].samples, [1.0]);
        assert!(!figures["broken"].contains_key("mean"));
    }
}
