//! PromQL over stored series: the test scripts of Prometheus, read from a separate folder, on four storage
//! paths, and one script of this project.

use ropewalk::engine::{Background, Env};
use ropewalk::promql::script::{Storage, run};
use ropewalk::promql::{
    Budget, Hints, Limits, Options as QueryOptions, Query, Sample, SampleRuns, Select, SeriesSet, Source,
    SourceError, Value,
};
use ropewalk::series::{Duplicates, Labels, STALE, SampleBatch, Samples, SeriesOptions};
use ropewalk::{Database, Options};

use crate::prometheus_scripts::conformance;

/// How the samples get to where queries read them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Memory,
    Restart,
    Compacted,
    OutOfOrder,
}

struct Stored {
    way: Way,
    env: Env,
    db: Option<Database>,
}

impl Stored {
    fn new(way: Way) -> Self {
        let mut stored = Self { way, env: Env::memory(), db: None };
        stored.clear().unwrap();
        stored
    }

    fn open(&mut self) -> Result<(), String> {
        // The previous handle must release the directory first.
        self.db = None;
        let options = Options::new().env(self.env.clone()).background(Background::Manual);
        self.db = Some(options.open("/db").map_err(|error| error.to_string())?);
        Ok(())
    }

    fn append(&self, batch: &SampleBatch) -> Result<(), String> {
        let db = self.db.as_ref().unwrap();
        db.series("m").unwrap().append(batch).map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Storage for Stored {
    fn clear(&mut self) -> Result<(), String> {
        self.db = None;
        self.env = Env::memory();
        self.open()?;
        // A script that loads a series twice appends the later samples.
        let options = SeriesOptions { duplicates: Duplicates::KeepFirst, ..Default::default() };
        let store = self.db.as_ref().unwrap().series("m").unwrap();
        store.configure(options).map(|_| ()).map_err(|error| error.to_string())
    }

    fn load(&mut self, series: &[(Labels, Samples)]) -> Result<(), String> {
        // Out of order: the last quarter first, so that every series is written backwards, by four commits.
        let parts = if self.way == Way::OutOfOrder { 4 } else { 1 };
        for part in (0..parts).rev() {
            let mut batch = SampleBatch::new();
            for (labels, samples) in series {
                let mut to = batch.series(labels);
                let length = samples.len();
                for at in length * part / parts..length * (part + 1) / parts {
                    let (time, start) =
                        (samples.times_ms[at], samples.starts_ms.get(at).copied().unwrap_or(0));
                    match samples.histograms.get(at) {
                        Some(Some(found)) => to.push_histogram(time, found, start),
                        _ => to.push_started(time, samples.values[at], start),
                    };
                }
            }
            self.append(&batch)?;
            if self.way == Way::OutOfOrder && part == 2 {
                self.db.as_ref().unwrap().checkpoint().map_err(|error| error.to_string())?;
            }
        }
        match self.way {
            Way::Memory | Way::OutOfOrder => Ok(()),
            Way::Restart => self.open(),
            Way::Compacted => self.db.as_ref().unwrap().compact().map_err(|error| error.to_string()),
        }
    }

    fn read(&self, ask: &mut dyn FnMut(&dyn Source)) -> Result<(), String> {
        let db = self.db.as_ref().unwrap();
        let (snapshot, store) = (db.snapshot(), db.series("m").unwrap());
        ask(&snapshot.metrics(&store));
        Ok(())
    }
}

#[test]
fn prometheus_own_scripts_from_memory() {
    conformance(|| Stored::new(Way::Memory));
}

#[test]
fn prometheus_own_scripts_after_a_restart() {
    conformance(|| Stored::new(Way::Restart));
}

#[test]
fn prometheus_own_scripts_after_compaction() {
    conformance(|| Stored::new(Way::Compacted));
}

#[test]
fn prometheus_own_scripts_loaded_out_of_order() {
    conformance(|| Stored::new(Way::OutOfOrder));
}

/// Runs on all paths even without that folder.
#[test]
fn a_script_of_our_own() {
    let script = "\
load 1m
  requests{pod=\"a\"} 0+10x10
  requests{pod=\"b\"} 5 5 stale 7
  latency{pod=\"a\"} {{schema:1 sum:4 count:4 buckets:[1 2 1]}}x3

eval instant at 10m sum(increase(requests{pod=~\"a|c\"}[5m]))
  {} 50

eval range from 0 to 3m step 1m requests{pod=\"b\"}
  requests{pod=\"b\"} 5 5 _ 7

eval instant at 3m histogram_count(latency)
  {pod=\"a\"} 4
";
    for way in [Way::Memory, Way::Restart, Way::Compacted, Way::OutOfOrder] {
        let report = run(script, &mut Stored::new(way));
        assert_eq!((report.passed, report.failures), (3, vec![]), "{way:?}");
    }
}

/// Three days of four series, every 15 s: a counter reset daily, one never reset, a gauge and a constant.
fn three_days(db: &Database) {
    let store = db.series("m").unwrap();
    let times: Vec<i64> = (0..3 * 5760).map(|i| i * 15_000).collect();
    let mut batch = SampleBatch::new();
    let mut series = |name: &str, value: fn(i64) -> f64| {
        let values: Vec<f64> = (0..times.len() as i64).map(value).collect();
        batch.series(&Labels::new([("__name__", name)]).unwrap()).extend(&times, &values);
    };
    series("resets_total", |i| ((i % 5000) * 7) as f64);
    series("rises_total", |i| (1_000_000 + i * 13 + i % 11) as f64);
    series("gauge", |i| (i * 7919 % 10_007) as f64 / 100.0 - 40.0);
    series("constant", |_| 0.1);
    // A counter with irregular times that disappears and reappears twice a day.
    let apart: Vec<i64> = times.iter().map(|time| time + time / 15_000 * 7919 % 997).collect();
    let values: Vec<f64> =
        (0..times.len()).map(|i| if i % 2880 == 2000 { STALE } else { (i * 3) as f64 }).collect();
    let mut gaps: Vec<f64> = (0..times.len()).map(|i| (i * 3) as f64).collect();
    gaps[3_000] = f64::NAN;
    gaps[3_001..].iter_mut().for_each(|value| *value -= 8_000.0);
    batch.series(&Labels::new([("__name__", "apart_total")]).unwrap()).extend(&apart, &values);
    batch.series(&Labels::new([("__name__", "nan_total")]).unwrap()).extend(&times, &gaps);
    store.append(&batch).unwrap();
}

/// Reads every sample.
struct Apart<S>(S);

impl<S: Source> Source for Apart<S> {
    fn select<'s>(
        &'s self,
        request: &Select<'_>,
        budget: &'s Budget<'_>,
    ) -> Result<Box<dyn SeriesSet + 's>, SourceError> {
        let hints = Hints { runs: SampleRuns::Apart, ..request.hints };
        self.0.select(&Select { hints, ..*request }, budget)
    }
}

#[test]
fn chunks_inside_one_window_are_not_read() {
    let asked = |source: &dyn Source, text: &str, (start, end, step): (i64, i64, i64)| {
        let query = Query::parse(text, QueryOptions::default()).unwrap();
        let answer = query.range(source, start, end, step, &|| None).unwrap();
        let Value::Matrix(series) = answer.value else { panic!("{text}: no matrix") };
        (series, answer.spent.samples)
    };
    let samples = |at: &Database, text: &str, steps: (i64, i64, i64)| {
        let (snapshot, store) = (at.snapshot(), at.series("m").unwrap());
        asked(&snapshot.metrics(&store), text, steps)
    };
    let every_sample = |at: &Database, text: &str, steps: (i64, i64, i64)| {
        let (snapshot, store) = (at.snapshot(), at.series("m").unwrap());
        asked(&Apart(snapshot.metrics(&store)), text, steps)
    };
    let memory = Options::new().env(Env::memory()).background(Background::Manual).open("/a").unwrap();
    let stored = Options::new().env(Env::memory()).background(Background::Manual).open("/b").unwrap();
    three_days(&memory);
    three_days(&stored);
    stored.compact().unwrap();
    let (hour, day) = (3_600_000, 86_400_000);
    let one = (3 * day - 15_000, 3 * day - 15_000, hour);
    for function in [
        "sum_over_time",
        "avg_over_time",
        "min_over_time",
        "max_over_time",
        "count_over_time",
        "first_over_time",
        "last_over_time",
        "present_over_time",
        "rate",
        "increase",
        "delta",
        "resets",
        "changes",
        "stddev_over_time",
        "quantile_over_time(0.9,",
        "irate",
        "idelta",
        "deriv",
        "",
    ] {
        let open = if function.is_empty() || function.ends_with(',') { "" } else { "(" };
        for (range, steps) in [
            ("3d", one),
            ("2d", one),
            ("1d", (day, 3 * day, 6 * hour)),
            ("50h", (2 * day, 3 * day, 7 * hour)),
            ("1h", (0, day, 6 * hour)),
            ("1d", (day - 15_000, 3 * day, day)),
            ("5m", (hour, day, hour)),
            ("1h", (7_001, day, 2 * hour)),
            ("20m", (40_000, day, 1_800_000)),
        ] {
            for name in ["resets_total", "rises_total", "gauge", "constant", "apart_total", "nan_total"] {
                let text = match function {
                    "" => format!("{name} offset {range}"),
                    _ => format!("{function}{open}{name}[{range}])"),
                };
                let (plain, all) = every_sample(&stored, &text, steps);
                let (found, read) = samples(&stored, &text, steps);
                assert!(read <= all, "{text}: {read} of {all}");
                let (in_memory, read) = samples(&memory, &text, steps);
                assert!(read <= all, "{text} in memory: {read} of {all}");
                assert_eq!(found.len(), plain.len(), "{text}");
                let found = found.iter().zip(&plain).chain(in_memory.iter().zip(&plain));
                assert_eq!(in_memory.len(), plain.len(), "{text}");
                for (found, plain) in found {
                    assert_eq!((&found.labels, found.samples.len()), (&plain.labels, plain.samples.len()));
                    for ((at, found), (_, plain)) in found.samples.iter().zip(&plain.samples) {
                        let (Sample::Float(found), Sample::Float(plain)) = (found, plain) else {
                            panic!("{text}: histograms")
                        };
                        let both = found.is_nan() && plain.is_nan();
                        let close = both || (found - plain).abs() <= 1e-13 * plain.abs();
                        assert!(close, "{text} at {at}: {found}, by samples {plain}");
                    }
                }
            }
        }
    }
    let read = |text: &str| samples(&stored, text, one).1;
    assert!(read("max_over_time(gauge[3d])") < 50, "{}", read("max_over_time(gauge[3d])"));
    assert!(read("increase(rises_total[3d])") < 50);
    // A counter reset inside a chunk: only its samples tell the increase.
    assert!(read("increase(resets_total[3d])") > 500);
    assert!(read("stddev_over_time(gauge[3d])") > 17_000);
    // Steps that are far apart: only the samples at steps or window borders are read.
    let every = |text: &str| samples(&stored, text, (hour, 3 * day - 15_000, hour)).1;
    assert!(every("gauge") < 200, "{}", every("gauge"));
    assert!(every("apart_total") < 250, "{}", every("apart_total"));
    assert!(every("increase(rises_total[5m])") < 500, "{}", every("increase(rises_total[5m])"));
    assert!(every("delta(gauge[2h])") < 300, "{}", every("delta(gauge[2h])"));
    assert!(every("deriv(gauge[5m])") > 1_000);
    // For integers, the samples between two borders become one row.
    assert!(every("sum_over_time(rises_total[1d])") < 250, "{}", every("sum_over_time(rises_total[1d])"));
    assert!(every("max_over_time(resets_total[7h])") < 250, "{}", every("max_over_time(resets_total[7h])"));
    assert!(every("sum_over_time(gauge[7h])") > 5_000);
}

/// Each series that a query reads counts once towards the limit.
#[test]
fn query_reads_as_many_series_as_its_limit_permits() {
    let db = Database::in_memory().unwrap();
    let store = db.series("m").unwrap();
    let mut batch = SampleBatch::new();
    for number in 0..10 {
        batch.push(&Labels::from_pairs([("__name__", "up"), ("n", &number.to_string())]), 1_000, 1.0);
    }
    store.append(&batch).unwrap();
    let snapshot = db.snapshot();
    let count = |series_max| {
        let limits = Limits { series_max, ..Limits::default() };
        let query = Query::parse("count(up)", QueryOptions { limits, ..QueryOptions::default() }).unwrap();
        query.instant(&snapshot.metrics(&store), 1_000, &|| None)
    };
    assert!(count(10).is_ok());
    assert!(count(9).is_err());
}
