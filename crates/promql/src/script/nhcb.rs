//! `load_with_nhcb`: classic histograms also as native ones with custom bounds, in a series of the base name.

use std::collections::BTreeMap;
use std::sync::Arc;

use ropewalk_labels::{BUCKET, Bucket, CUSTOM_SCHEMA, Histogram, Labels, METRIC_NAME, Samples};

use crate::data::text::parse_number;

#[derive(Default)]
struct Classic {
    /// Cumulative counts by upper bound, rising.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

pub(super) fn convert(series: &[(Labels, Samples)]) -> Result<Vec<(Labels, Samples)>, String> {
    let mut found: BTreeMap<Labels, BTreeMap<i64, Classic>> = BTreeMap::new();
    for (labels, samples) in series {
        let name = labels.name();
        let parts = ["_bucket", "_count", "_sum"].into_iter().find_map(|s| Some((s, name.strip_suffix(s)?)));
        let Some((suffix, base)) = parts else { continue };
        let bound = parse_number(labels.get(BUCKET)).filter(|bound| !bound.is_nan());
        if suffix == "_bucket" && bound.is_none() {
            continue;
        }
        let histograms = found.entry(labels.with(BUCKET, "").with(METRIC_NAME, base)).or_default();
        for (index, (time, value)) in samples.times_ms.iter().zip(&samples.values).enumerate() {
            if matches!(samples.histograms.get(index), Some(Some(_))) {
                continue;
            }
            let classic = histograms.entry(*time).or_default();
            match (suffix, bound) {
                ("_bucket", Some(bound)) => {
                    if let Err(at) = classic.buckets.binary_search_by(|(upper, _)| upper.total_cmp(&bound)) {
                        classic.buckets.insert(at, (bound, *value));
                    }
                }
                ("_count", _) => classic.count = Some(*value),
                _ => classic.sum = *value,
            }
        }
    }
    found.into_iter().map(|(labels, histograms)| Ok((labels, samples_of(histograms)?))).collect()
}

fn samples_of(histograms: BTreeMap<i64, Classic>) -> Result<Samples, String> {
    let mut samples = Samples::default();
    for (time, mut classic) in histograms {
        let count = classic.count.or(classic.buckets.last().map(|(_, count)| *count)).unwrap_or(0.0);
        if classic.buckets.last().is_none_or(|(upper, _)| *upper != f64::INFINITY) {
            classic.buckets.push((f64::INFINITY, count));
        }
        let (mut before, mut positive) = (0.0, Vec::new());
        for ((_, cumulative), index) in classic.buckets.iter().zip(0..) {
            if *cumulative < before {
                return Err(format!("count is not cumulative: {cumulative} < {before}"));
            }
            positive.push(Bucket { index, count: cumulative - before });
            before = *cumulative;
        }
        if before != count {
            return Err(format!("count mismatch: {count} and {before}"));
        }
        let custom =
            classic.buckets.iter().map(|(upper, _)| *upper).filter(|upper| upper.is_finite()).collect();
        let histogram = Histogram {
            schema: CUSTOM_SCHEMA,
            count,
            sum: classic.sum,
            positive,
            custom,
            ..Histogram::default()
        };
        samples.push_histogram(time, Arc::new(histogram.compacted()));
    }
    Ok(samples)
}
