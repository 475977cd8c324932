//! Query results as JSON, as Prometheus prints them.
//!
//! ```text
//! scalar, string  [time,"value"]
//! vector          {"metric":{…},"value":[time,"value"]}               or "histogram":[time,{…}]
//! matrix          {"metric":{…},"values":[[time,"value"],…]}          and "histograms":[[time,{…}],…]
//! histogram       {"count":"…","sum":"…","buckets":[[inclusive,"lower","upper","count"],…]}
//! ```
//! `inclusive` says which bounds belong to the bucket: 0 the upper, 1 the lower, 2 none, 3 both.

use ropewalk::promql::{Sample, Series};
use ropewalk::series::{Bounded, Histogram, Labels};
use ropewalk_http_kit::json::put_list;
use ropewalk_monitoring::notation::{put_float, put_time};

use crate::request::response::put_labels;

/// `"value"`.
pub(crate) fn put_value(out: &mut Vec<u8>, value: f64) {
    out.push(b'"');
    put_float(out, value);
    out.push(b'"');
}

/// `[time,"value"]`.
pub(crate) fn put_point(out: &mut Vec<u8>, time_ms: i64, value: f64) {
    out.push(b'[');
    put_time(out, time_ms);
    out.push(b',');
    put_value(out, value);
    out.push(b']');
}

fn put_histogram_point(out: &mut Vec<u8>, time_ms: i64, histogram: &Histogram) {
    out.push(b'[');
    put_time(out, time_ms);
    out.push(b',');
    put_histogram(out, histogram);
    out.push(b']');
}

fn put_histogram(out: &mut Vec<u8>, histogram: &Histogram) {
    out.extend_from_slice(b"{\"count\":");
    put_value(out, histogram.count);
    out.extend_from_slice(b",\"sum\":");
    put_value(out, histogram.sum);
    let buckets: Vec<Bounded> =
        histogram.buckets().into_iter().filter(|bucket| bucket.count != 0.0).collect();
    if !buckets.is_empty() {
        out.extend_from_slice(b",\"buckets\":");
        put_list(out, buckets, |out, bucket| {
            let inclusive = match (bucket.lower_inclusive, bucket.upper_inclusive) {
                (false, true) => b'0',
                (true, false) => b'1',
                (false, false) => b'2',
                (true, true) => b'3',
            };
            out.extend_from_slice(&[b'[', inclusive]);
            for number in [bucket.lower, bucket.upper, bucket.count] {
                out.push(b',');
                put_value(out, number);
            }
            out.push(b']');
        });
    }
    out.push(b'}');
}

/// One series of a vector at the query's time.
pub(crate) fn put_vector_row(out: &mut Vec<u8>, (time_ms, labels, sample): &(i64, Labels, Sample)) {
    out.extend_from_slice(b"{\"metric\":");
    put_labels(out, labels.iter());
    match sample {
        Sample::Float(value) => {
            out.extend_from_slice(b",\"value\":");
            put_point(out, *time_ms, *value);
        }
        Sample::Histogram(histogram) => {
            out.extend_from_slice(b",\"histogram\":");
            put_histogram_point(out, *time_ms, histogram);
        }
    }
    out.push(b'}');
}

/// One series of a matrix.
pub(crate) fn put_matrix_row(out: &mut Vec<u8>, series: &Series) {
    out.extend_from_slice(b"{\"metric\":");
    put_labels(out, series.labels.iter());
    let floats = || {
        series.samples.iter().filter_map(|(time, sample)| match sample {
            Sample::Float(value) => Some((*time, *value)),
            Sample::Histogram(_) => None,
        })
    };
    let histograms = || {
        series.samples.iter().filter_map(|(time, sample)| match sample {
            Sample::Histogram(histogram) => Some((*time, histogram)),
            Sample::Float(_) => None,
        })
    };
    if floats().next().is_some() {
        out.extend_from_slice(b",\"values\":");
        put_list(out, floats(), |out, (time, value)| put_point(out, time, value));
    }
    if histograms().next().is_some() {
        out.extend_from_slice(b",\"histograms\":");
        put_list(out, histograms(), |out, (time, histogram)| put_histogram_point(out, time, histogram));
    }
    out.push(b'}');
}
