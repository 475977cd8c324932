//! Random work on a store and on an obvious model, which stores every commit and searches all of them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ropewalk_base::Seq;
use ropewalk_engine::Snapshot;
use ropewalk_labels::Samples;
use ropewalk_series::{Duplicates, PARTITION_MS, SampleBatch, SeriesOptions};
use ropewalk_vfs::Env;

use crate::{Db, labels, matchers};

const SERIES: u8 = 4;

#[derive(Debug, Clone)]
enum Step {
    /// Series, time, value.
    Append(Vec<(u8, i64, u8)>),
    /// Series, first time, step, how many: travels as a chunk.
    Long(u8, i64, i64, u16),
    /// One series, first and last time.
    Delete(u8, i64, i64),
    Forget(u8),
    DropBefore(i64),
    /// From now on the first of two samples at one time stays, or the last.
    Configure(bool),
    Hold,
    Release,
    Checkpoint,
    Work(u8),
    Compact,
    Reopen,
}

fn any_time() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => -20..40_i64,
        2 => PARTITION_MS - 5..PARTITION_MS + 5,
        1 => prop::sample::select(vec![i64::MIN, i64::MAX, -PARTITION_MS]),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let append = prop::collection::vec((0..SERIES, any_time(), any::<u8>()), 1..12).prop_map(Step::Append);
    prop_oneof![
        8 => append,
        2 => (0..SERIES, any_time(), 1..2000_i64, 60..400_u16).prop_map(|(s, t, step, n)| Step::Long(s, t, step, n)),
        2 => (0..SERIES, any_time(), any_time()).prop_map(|(s, a, b)| Step::Delete(s, a.min(b), a.max(b))),
        1 => (0..SERIES).prop_map(Step::Forget),
        1 => (-2..2_i64).prop_map(|day| Step::DropBefore(day * PARTITION_MS + 7)),
        1 => any::<bool>().prop_map(Step::Configure),
        2 => Just(Step::Hold),
        1 => Just(Step::Release),
        2 => Just(Step::Checkpoint),
        1 => (1..5_u8).prop_map(Step::Work),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

/// Effect of one commit.
enum Change {
    Append(Vec<(u8, i64, u64)>),
    Delete(Option<u8>, i64, i64),
    /// Later commits leave the first of two samples at one time.
    KeepFirst(bool),
}

#[derive(Default)]
struct Model {
    commits: Vec<(Seq, Change)>,
    floor: Option<i64>,
}

impl Model {
    fn at(&self, seq: Seq, mut keep_first: bool) -> BTreeMap<(u8, i64), u64> {
        let mut seen = BTreeMap::new();
        for (at, change) in self.commits.iter().filter(|(at, _)| *at <= seq) {
            let _ = at;
            match change {
                Change::Append(samples) => {
                    for (series, time, bits) in samples {
                        let slot = seen.entry((*series, *time)).or_insert(*bits);
                        if !keep_first {
                            *slot = *bits;
                        }
                    }
                }
                Change::KeepFirst(changed) => keep_first = *changed,
                Change::Delete(series, from, to) => {
                    seen.retain(|(s, t), _| series.is_some_and(|x| x != *s) || t < from || t > to);
                }
            }
        }
        seen
    }
}

fn name(series: u8) -> String {
    format!("m{{s={series}}}")
}

fn found(db: &Db, snapshot: &Snapshot) -> BTreeMap<(u8, i64), u64> {
    let at = db.store.at(snapshot);
    let mut selection = at.select(&matchers("m"), i64::MIN, i64::MAX).unwrap();
    let mut all = BTreeMap::new();
    let mut samples = Samples::default();
    while selection.next().is_some() {
        samples.clear();
        selection.samples(&mut samples).unwrap();
        let series: u8 = selection.labels().unwrap().get("s").parse().unwrap();
        assert!(samples.times_ms.is_sorted_by(|a, b| a < b));
        all.extend(samples.bits().map(|(t, b)| ((series, t), b)));
    }
    all
}

fn run(steps: Vec<Step>, duplicates: Duplicates) -> Result<(), TestCaseError> {
    let keep_first = duplicates == Duplicates::KeepFirst;
    let env = Env::memory();
    let mut db = Db::open(&env);
    db.store.configure(SeriesOptions { duplicates, ..Default::default() }).unwrap();
    let mut model = Model::default();
    let mut held: Vec<Snapshot> = Vec::new();
    for step in steps {
        match step {
            Step::Append(samples) => {
                let mut batch = SampleBatch::new();
                let mut change = Vec::new();
                for (series, time, value) in samples {
                    if model.floor.is_none_or(|floor| time >= floor) {
                        batch.push(&labels(&name(series)), time, f64::from(value));
                        change.push((series, time, f64::from(value).to_bits()));
                    }
                }
                let seq = db.store.append(&batch).unwrap().seq;
                model.commits.push((seq, Change::Append(change)));
            }
            Step::Long(series, first, step, n) => {
                let times: Vec<i64> = (0..i64::from(n))
                    .filter_map(|i| first.checked_add(i * step))
                    .filter(|t| model.floor.is_none_or(|floor| *t >= floor))
                    .collect();
                let values: Vec<f64> = times.iter().map(|t| (*t % 1000) as f64 / 4.0).collect();
                let mut batch = SampleBatch::new();
                batch.series(&labels(&name(series))).extend(&times, &values);
                let seq = db.store.append(&batch).unwrap().seq;
                let change = times.iter().zip(&values).map(|(t, v)| (series, *t, v.to_bits())).collect();
                model.commits.push((seq, Change::Append(change)));
            }
            Step::Delete(series, from, to) => {
                db.store.delete(&matchers(&format!("s={series}")), from, to).unwrap();
                model.commits.push((db.engine.seq(), Change::Delete(Some(series), from, to)));
            }
            Step::Forget(series) => {
                db.store.delete(&matchers(&format!("s={series}")), i64::MIN, i64::MAX).unwrap();
                model.commits.push((db.engine.seq(), Change::Delete(Some(series), i64::MIN, i64::MAX)));
            }
            Step::DropBefore(time) => {
                let floor = db.store.drop_before(time).unwrap();
                if model.floor.is_none_or(|old| old < floor) {
                    model.floor = Some(floor);
                    model.commits.push((db.engine.seq(), Change::Delete(None, i64::MIN, floor - 1)));
                }
            }
            Step::Configure(keep_first) => {
                let duplicates = if keep_first { Duplicates::KeepFirst } else { Duplicates::KeepLast };
                let seq = db.store.configure(SeriesOptions { duplicates, ..db.store.options() }).unwrap();
                model.commits.push((seq, Change::KeepFirst(keep_first)));
            }
            Step::Hold => held.push(db.engine.snapshot()),
            Step::Release => {
                if !held.is_empty() {
                    held.remove(0);
                }
            }
            Step::Checkpoint => db.checkpoint(),
            Step::Work(n) => {
                for _ in 0..n {
                    db.engine.background_step().unwrap();
                }
            }
            Step::Compact => db.compact(),
            Step::Reopen => {
                held.clear();
                drop(db);
                db = Db::open(&env);
            }
        }
        for snapshot in &mut held {
            snapshot.refresh_sources();
        }
        for snapshot in held.iter().chain(std::iter::once(&db.engine.snapshot())) {
            let expected = model.at(snapshot.seq(), keep_first);
            prop_assert_eq!(found(&db, snapshot), expected, "at {}", snapshot.seq());
        }
    }
    prop_assert_eq!(db.engine.verify().unwrap().violations, Vec::<String>::new());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_store_equals_the_model(steps in prop::collection::vec(any_step(), 1..40)) {
        run(steps, Duplicates::KeepLast)?;
    }

    #[test]
    fn a_store_that_keeps_the_first_equals_the_model(steps in prop::collection::vec(any_step(), 1..40)) {
        run(steps, Duplicates::KeepFirst)?;
    }
}
