//! The JSON of a benchmark run. Tables and plots are made from this file and nothing else.

use std::collections::BTreeMap;

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::harness::machine::Machine;
use crate::harness::plan::{Better, Row, is_below};
use crate::harness::probe::Probe;
use crate::harness::worker::Figure;

/// A complete run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Name of the benchmark.
    pub bench: String,
    /// The commit that was measured.
    pub commit: String,
    /// When it started, RFC 3339.
    pub date: String,
    /// True for the short form.
    pub quick: bool,
    /// The machine of the run.
    pub machine: Machine,
    /// Speed of the disk.
    pub probe: Probe,
    /// Missing parts, and the reasons.
    pub notes: Vec<String>,
    /// The rows.
    pub rows: Vec<RowResult>,
}

impl Report {
    /// Reads a stored result.
    ///
    /// # Errors
    /// The file does not exist, or is not a result.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no result", file.display()))
    }

    /// Retains the rows that are one of `only` or below one; all if `only` is empty.
    pub fn retain<S: AsRef<str>>(&mut self, only: &[S]) {
        self.rows.retain(|row| only.is_empty() || only.iter().any(|only| is_below(&row.id, only.as_ref())));
    }
}

/// One row of the result.
#[derive(Debug, Serialize, Deserialize)]
pub struct RowResult {
    /// Stable id.
    pub id: String,
    /// Description in plain words.
    pub what: String,
    /// Unit of all values.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Our median.
    pub ours: Option<f64>,
    /// Our smallest repetition.
    pub min: Option<f64>,
    /// Our largest repetition.
    pub max: Option<f64>,
    /// Median latency of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 95th percentile of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_us: Option<f64>,
    /// 99th percentile of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Durability, for rows that write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
    /// Disk speed at that time: 4 KiB writes with fdatasync per second, for rows that write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fdatasync_per_s: Option<f64>,
    /// Medians of the peers that took part.
    pub peers: BTreeMap<String, f64>,
    /// Spread and latencies of the peers.
    pub peers_detail: BTreeMap<String, Detail>,
    /// The predecessor's published figure.
    pub report: Reported,
    /// False when the systems' answers differed: then no figure of the row is valid.
    pub answers_equal: bool,
}

/// Spread of one peer's figure.
#[derive(Debug, Serialize, Deserialize)]
pub struct Detail {
    min: f64,
    max: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_us: Option<f64>,
}

/// A published figure and the machine it was published for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reported {
    /// In the row's unit.
    pub value: Option<f64>,
    /// As far as the report states it.
    pub machine: Option<String>,
}

/// Figures by system; `ours` is ours.
pub type BySystem = BTreeMap<String, BTreeMap<String, Vec<Figure>>>;

/// The name of our own system.
pub const OURS: &str = "ours";

impl RowResult {
    /// Sums up one row.
    pub fn new(row: &Row, figures: &BySystem, answers_equal: bool, machine: Option<&'static str>) -> Self {
        let merged = |system: &str| Merged::of(figures.get(system)?.get(&row.figure)?);
        let ours = merged(OURS);
        let (mut peers, mut peers_detail) = (BTreeMap::new(), BTreeMap::new());
        for system in figures.keys().filter(|system| *system != OURS) {
            let Some(peer) = merged(system) else { continue };
            peers.insert(system.clone(), peer.median);
            let detail = Detail { min: peer.min, max: peer.max, p50_us: peer.p50_us, p99_us: peer.p99_us };
            peers_detail.insert(system.clone(), detail);
        }
        Self {
            id: row.id.clone(),
            what: row.what.clone(),
            unit: row.unit.to_owned(),
            better: row.better,
            ours: ours.as_ref().map(|m| m.median),
            min: ours.as_ref().map(|m| m.min),
            max: ours.as_ref().map(|m| m.max),
            p50_us: ours.as_ref().and_then(|m| m.p50_us),
            p95_us: ours.as_ref().and_then(|m| m.p95_us),
            p99_us: ours.as_ref().and_then(|m| m.p99_us),
            durability: row.durability.map(str::to_owned),
            fdatasync_per_s: None,
            peers,
            peers_detail,
            report: Reported { value: row.report, machine: row.report.and(machine).map(str::to_owned) },
            answers_equal,
        }
    }

    /// Ratio of ours to `other`; above 1 ours is better.
    pub fn ratio(&self, other: f64) -> Option<f64> {
        let ours = self.ours?;
        let ratio = match self.better {
            Better::Higher => ours / other,
            Better::Lower => other / ours,
        };
        ratio.is_finite().then_some(ratio)
    }
}

/// All repetitions of one figure, from all rounds.
struct Merged {
    median: f64,
    min: f64,
    max: f64,
    p50_us: Option<f64>,
    p95_us: Option<f64>,
    p99_us: Option<f64>,
}

impl Merged {
    fn of(figures: &[Figure]) -> Option<Self> {
        let mut samples: Vec<f64> =
            figures.iter().flat_map(|figure| figure.samples.iter().copied()).collect();
        let median = median(&mut samples)?;
        let over = |pick: fn(&Figure) -> Option<f64>| median_of(figures.iter().filter_map(pick));
        Some(Self {
            median,
            min: *samples.first()?,
            max: *samples.last()?,
            p50_us: over(|f| f.p50_us),
            p95_us: over(|f| f.p95_us),
            p99_us: over(|f| f.p99_us),
        })
    }
}

fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    median(&mut values.collect::<Vec<_>>())
}

/// Sorts and takes the middle; the mean of the two middle ones of an even number.
pub fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let upper = *samples.get(samples.len() / 2)?;
    if samples.len() % 2 == 1 {
        return Some(upper);
    }
    Some((samples.get(samples.len() / 2 - 1)? + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_even_odd_and_none() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn a_row_takes_all_rounds_and_knows_which_way_is_better() {
        let row = Row::new("id", "what", "ns", Better::Lower, "hit");
        let figure = |samples: &[f64]| Figure { samples: samples.to_vec(), ..Figure::default() };
        let system = |figures: Vec<Figure>| BTreeMap::from([("hit".to_owned(), figures)]);
        let figures = BTreeMap::from([
            (OURS.to_owned(), system(vec![figure(&[10.0, 30.0]), figure(&[20.0])])),
            ("peer".to_owned(), system(vec![figure(&[60.0])])),
            ("other".to_owned(), BTreeMap::new()),
        ]);
        let result = RowResult::new(&row, &figures, true, None);
        assert_eq!((result.ours, result.min, result.max), (Some(20.0), Some(10.0), Some(30.0)));
        assert_eq!(result.peers, BTreeMap::from([("peer".to_owned(), 60.0)]));
        assert_eq!(result.ratio(60.0), Some(3.0));
    }
}
