//! The answers of the 49 queries over all written samples, compared between systems: the same series, and
//! each value within a millionth of Prometheus'. Its answers are stored next to the data, under a name
//! derived from the written samples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ropewalk_bench::workloads::mytsdb::data::{MytsdbQuery, Writer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::http::Http;
use super::mytsdb::path;

/// Maximum relative deviation of a value.
const TOLERANCE: f64 = 1e-6;

/// The series of each query's answer, and their points.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answers(Vec<BTreeMap<String, Vec<(f64, String)>>>);

impl Answers {
    /// Runs all queries at `at` seconds.
    pub(crate) fn ask(client: &mut Http, queries: &[MytsdbQuery], at: i64) -> Result<Self> {
        let mut all = Vec::with_capacity(queries.len());
        for query in queries {
            // Without it VictoriaMetrics adjusts start and end; others ignore the parameter.
            client.ask(&format!("{}&nocache=1", path(query, at)))?;
            let answer: Value = serde_json::from_slice(&client.body).context("the answer is no JSON")?;
            all.push(series(&answer).with_context(|| format!("query {}", query.number))?);
        }
        Ok(Self(all))
    }

    /// A digest that is equal for equal series.
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for (number, answer) in self.0.iter().enumerate() {
            for (labels, points) in answer {
                let text = format!("{number} {labels} {}", points.len());
                // FNV-1a.
                digest = text
                    .bytes()
                    .fold(digest, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            }
        }
        digest
    }

    /// Number of answers equal to those of Prometheus; `None` if it has not run with this data. Stores its
    /// answers.
    pub(crate) fn equal_to_prometheus(
        &self,
        dir: &Path,
        is_prometheus: bool,
        writers: &[Writer],
    ) -> Result<Option<usize>> {
        let file = file(dir, writers);
        if is_prometheus {
            std::fs::write(&file, serde_json::to_vec(self)?)?;
            return Ok(Some(self.0.len()));
        }
        let Ok(kept) = std::fs::read(&file) else { return Ok(None) };
        let kept: Self = serde_json::from_slice(&kept)?;
        let pairs = self.0.iter().zip(&kept.0);
        let unequal: Vec<usize> = (1..)
            .zip(pairs)
            .filter(|(_, (ours, theirs))| !equal(ours, theirs))
            .map(|(number, _)| number)
            .collect();
        if !unequal.is_empty() {
            eprintln!("answers that are not those of Prometheus: {unequal:?}");
        }
        Ok(Some(self.0.len() - unequal.len()))
    }
}

/// File of Prometheus' answers to these requests.
fn file(dir: &Path, writers: &[Writer]) -> PathBuf {
    let bodies = writers.iter().flat_map(|writer| &writer.bodies);
    let mixed = bodies.fold(0_u64, |mixed, body| {
        mixed.rotate_left(7).wrapping_mul(31)
            ^ body.len() as u64
            ^ u64::from(body.last().copied().unwrap_or(0)) << 32
    });
    dir.join(format!("mytsdb-answers-{mixed:016x}.json"))
}

fn series(answer: &Value) -> Result<BTreeMap<String, Vec<(f64, String)>>> {
    let result = answer.pointer("/data/result").and_then(Value::as_array).context("no result")?;
    let mut all = BTreeMap::new();
    for one in result {
        let labels = one.get("metric").context("no labels")?;
        let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone())?;
        let points = match (one.get("value"), one.get("values")) {
            (Some(value), _) => vec![serde_json::from_value(value.clone())?],
            (None, Some(values)) => serde_json::from_value(values.clone())?,
            (None, None) => Vec::new(),
        };
        all.insert(format!("{labels:?}"), points);
    }
    Ok(all)
}

fn equal(ours: &BTreeMap<String, Vec<(f64, String)>>, theirs: &BTreeMap<String, Vec<(f64, String)>>) -> bool {
    let same = |(a, b): (&(f64, String), &(f64, String))| a.0 == b.0 && close(&a.1, &b.1);
    let rows = ours.iter().zip(theirs);
    ours.len() == theirs.len()
        && rows.into_iter().all(|((a, ours), (b, theirs))| {
            a == b && ours.len() == theirs.len() && ours.iter().zip(theirs).all(same)
        })
}

fn close(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= TOLERANCE * a.abs().max(b.abs())
        }
        _ => a == b,
    }
}
