//! Behaviour of series stores.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod appending;
mod bad_input;
mod blocks;
mod compaction;
mod concurrency;
mod contents;
mod crashes;
mod deleting;
mod directories;
mod fixtures;
mod histograms;
mod many;
mod metadata;
mod model;
mod rules;
mod selecting;
mod snapshots;

use std::path::Path;
use std::sync::Arc;

use ropewalk_engine::{Background, Engine, EngineError, EngineOptions, Snapshot};
use ropewalk_labels::{Labels, MatchOp, Matcher, Samples};
use ropewalk_series::{SampleBatch, SeriesModel, SeriesStore};
use ropewalk_vfs::Env;

/// An engine with the series model and one store.
pub struct Db {
    pub engine: Arc<Engine>,
    pub model: Arc<SeriesModel>,
    pub store: SeriesStore,
}

impl Db {
    pub fn memory() -> Self {
        Self::open(&Env::memory())
    }

    /// Background work only on request, small memtables.
    pub fn open(env: &Env) -> Self {
        Self::try_open(env).unwrap()
    }

    pub fn try_open(env: &Env) -> Result<Self, EngineError> {
        let options = EngineOptions {
            memory_budget: 1 << 19,
            background: Background::Manual,
            ..EngineOptions::default()
        };
        let model = Arc::new(SeriesModel::new(1));
        let engine = Arc::new(Engine::open(env, Path::new("/db"), options, vec![model.clone()])?);
        let store = SeriesStore::new(engine.clone(), model.clone(), "main").unwrap();
        Ok(Self { engine, model, store })
    }

    pub fn checkpoint(&self) {
        self.engine.checkpoint().unwrap();
    }

    pub fn compact(&self) {
        self.engine.compact().unwrap();
    }

    pub fn append(&self, samples: &[(&str, i64, f64)]) {
        let mut batch = SampleBatch::new();
        for (text, time, value) in samples {
            batch.push(&labels(text), *time, *value);
        }
        self.store.append(&batch).unwrap();
    }

    /// Everything that the matchers find, as `labels: time=value …`, sorted.
    pub fn show(&self, selector: &str) -> String {
        self.show_at(&self.engine.snapshot(), selector, i64::MIN, i64::MAX)
    }

    pub fn show_at(&self, snapshot: &Snapshot, selector: &str, from: i64, to: i64) -> String {
        let at = self.store.at(snapshot);
        let mut selection = at.select(&matchers(selector), from, to).unwrap();
        let mut lines = Vec::new();
        while selection.next().is_some() {
            let mut samples = Samples::default();
            let count = selection.samples(&mut samples).unwrap();
            assert_eq!(count, samples.len());
            let shown: Vec<String> =
                samples.times_ms.iter().zip(&samples.values).map(|(t, v)| format!("{t}={v}")).collect();
            if count > 0 {
                lines.push(format!("{}: {}", selection.labels().unwrap(), shown.join(" ")));
            }
        }
        lines.sort();
        lines.join("\n")
    }
}

/// `up{job=a,env=b}`, for tests.
pub fn labels(text: &str) -> Labels {
    let (name, rest) = text.split_once('{').unwrap_or((text, "}"));
    let rest = rest.trim_end_matches('}');
    let pairs = rest.split(',').filter_map(|pair| pair.split_once('='));
    Labels::new(std::iter::once(("__name__", name)).chain(pairs)).unwrap()
}

/// `up job=~a.* env!=x`: a metric name (or nothing) and conditions.
pub fn matchers(selector: &str) -> Vec<Matcher> {
    let one = |word: &str| {
        for (sign, op) in [
            ("=~", MatchOp::Regex),
            ("!~", MatchOp::NotRegex),
            ("!=", MatchOp::NotEqual),
            ("=", MatchOp::Equal),
        ] {
            if let Some((name, value)) = word.split_once(sign) {
                return Matcher::new(name, op, value).unwrap();
            }
        }
        Matcher::equal("__name__", word)
    };
    selector.split_whitespace().map(one).collect()
}
