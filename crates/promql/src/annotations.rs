//! Annotations of a result: warnings (the result may be wrong) and infos (it may not be what was meant). Each
//! names its position in the query; the same one from many series and steps is reported once.

use std::collections::BTreeMap;

use ropewalk_labels::text::{float_g, quote};

use crate::syntax::ast::BinaryOp;
use crate::syntax::position::Span;

/// Severity of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The result may be wrong.
    Warning,
    /// The result may surprise.
    Info,
}

/// A histogram operation, in annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Addition,
    Subtraction,
    Aggregation,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Addition => "addition",
            Operation::Subtraction => "subtraction",
            Operation::Aggregation => "aggregation",
        }
    }
}

/// Kinds of annotations. `name` is the metric's, empty when it is not known any more.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Note<'a> {
    InvalidQuantile { value: f64 },
    InvalidRatio { value: f64, capped: f64 },
    BadBucketLabel { name: &'a str, value: &'a str },
    MixedFloatsHistograms { name: &'a str },
    MixedFloatsHistogramsAggregation,
    MixedClassicNative { name: &'a str },
    NotCounter { name: &'a str },
    NotGauge { name: &'a str },
    MixedSchemas { name: &'a str },
    IncompatibleBuckets { op: BinaryOp },
    SortInRange,
    PossibleNonCounter { name: &'a str },
    PossibleNonCounterLabel { name: &'a str, kind: &'a str },
    IncompatibleTypes { left: &'static str, op: BinaryOp, right: &'static str },
    HistogramIgnored { aggregation: &'static str },
    HistogramIgnoredInRange { name: &'a str },
    QuantileOfNan { name: &'a str },
    QuantileSkewed { name: &'a str },
    FractionOfNan { name: &'a str },
    CounterResetCollision { operation: Operation },
    BucketsReconciled { operation: Operation },
}

fn named(text: &str, name: &str) -> String {
    if name.is_empty() { text.to_owned() } else { format!("{text} for metric name {}", quote(name)) }
}

impl Note<'_> {
    fn text(&self) -> (Severity, String) {
        use Severity::{Info, Warning};
        match *self {
            Note::InvalidQuantile { value } => {
                (Warning, format!("quantile value should be between 0 and 1, got {}", float_g(value)))
            }
            Note::InvalidRatio { value, capped } => (
                Warning,
                format!(
                    "ratio value should be between -1 and 1, got {}, capping to {}",
                    float_g(value),
                    float_g(capped)
                ),
            ),
            Note::BadBucketLabel { name, value } => {
                let text =
                    format!("bucket label \"le\" is missing or has a malformed value of {}", quote(value));
                (Warning, named(&text, name))
            }
            Note::MixedFloatsHistograms { name } => (
                Warning,
                format!("encountered a mix of histograms and floats for metric name {}", quote(name)),
            ),
            Note::MixedFloatsHistogramsAggregation => {
                (Warning, "encountered a mix of histograms and floats for aggregation".to_owned())
            }
            Note::MixedClassicNative { name } => {
                (Warning, named("vector contains a mix of classic and native histograms", name))
            }
            Note::NotCounter { name } => {
                (Warning, format!("this native histogram metric is not a counter: {}", quote(name)))
            }
            Note::NotGauge { name } => {
                (Warning, format!("this native histogram metric is not a gauge: {}", quote(name)))
            }
            Note::MixedSchemas { name } => (
                Warning,
                format!(
                    "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {}",
                    quote(name)
                ),
            ),
            Note::IncompatibleBuckets { op } => {
                (Warning, format!("incompatible bucket layout encountered for binary operator {}", op.name()))
            }
            Note::SortInRange => (
                Warning,
                "sort is ineffective for range queries since results are always ordered by labels".to_owned(),
            ),
            Note::PossibleNonCounter { name } => (
                Info,
                format!(
                    "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {}",
                    quote(name)
                ),
            ),
            Note::PossibleNonCounterLabel { name, kind } => (
                Info,
                format!(
                    "metric might not be a counter, __type__ label is not set to \"counter\" or \"histogram\", got {}: {}",
                    quote(kind),
                    quote(name)
                ),
            ),
            Note::IncompatibleTypes { left, op, right } => {
                let op = op.name();
                let text = format!(
                    "incompatible sample types encountered for binary operator {}: {left} {op} {right}",
                    quote(op)
                );
                (Info, text)
            }
            Note::HistogramIgnored { aggregation } => {
                (Info, format!("ignored histogram in {aggregation} aggregation"))
            }
            Note::HistogramIgnoredInRange { name } => (
                Info,
                format!(
                    "ignored histograms in a range containing both floats and histograms for metric name {}",
                    quote(name)
                ),
            ),
            Note::QuantileOfNan { name } => {
                (Info, named("input to histogram_quantile has NaN observations, result is NaN", name))
            }
            Note::QuantileSkewed { name } => (
                Info,
                named("input to histogram_quantile has NaN observations, result is skewed higher", name),
            ),
            Note::FractionOfNan { name } => (
                Info,
                named(
                    "input to histogram_fraction has NaN observations, which are excluded from all fractions",
                    name,
                ),
            ),
            Note::CounterResetCollision { operation } => {
                (Warning, format!("conflicting counter resets during histogram {}", operation.name()))
            }
            Note::BucketsReconciled { operation } => {
                (Info, format!("mismatched custom buckets were reconciled during {}", operation.name()))
            }
        }
    }
}

/// Repairs of the buckets of classic histograms, over all series and steps of one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Forced {
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    pub(crate) bucket_min: f64,
    pub(crate) bucket_max: f64,
    pub(crate) diff_max: f64,
    pub(crate) count: u64,
}

/// An annotation, as clients receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// Its severity.
    pub severity: Severity,
    /// The text, with the position at its end.
    pub text: String,
}

/// Limit of different annotations of one kind: a query over a million names has as many.
const NOTES_MAX: usize = 10_000;
/// Longest text of an annotation; label values are as long as queries make them.
const NOTE_BYTES_MAX: usize = 1024;

fn cut(text: &mut String) {
    if text.len() > NOTE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(NOTE_BYTES_MAX));
        text.push_str("...");
    }
}

/// The entry of `key`, created unless the limit is reached.
fn insert<K: Ord, V>(notes: &mut BTreeMap<K, V>, key: K, new: impl FnOnce() -> V) -> Option<&mut V> {
    if notes.len() >= NOTES_MAX {
        return notes.get_mut(&key);
    }
    Some(notes.entry(key).or_insert_with(new))
}

/// The annotations of one query, without repetitions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Annotations {
    /// The first position of a text is the one that is reported.
    notes: BTreeMap<(Severity, String), Span>,
    forced: BTreeMap<String, (Span, Forced)>,
    overlaps: BTreeMap<String, (Span, u64)>,
}

impl Annotations {
    pub(crate) fn add(&mut self, note: &Note<'_>, span: Span) {
        let (severity, mut text) = note.text();
        cut(&mut text);
        insert(&mut self.notes, (severity, text), || span);
    }

    /// Counts of a classic histogram that decreased and were raised.
    pub(crate) fn add_forced(&mut self, name: &str, span: Span, more: Forced) {
        let mut text = named(
            "input to histogram_quantile needed to be fixed for monotonicity (see \
             https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)",
            name,
        );
        cut(&mut text);
        let Some((_, all)) = insert(&mut self.forced, text, || (span, Forced { count: 0, ..more })) else {
            return;
        };
        all.first_ms = all.first_ms.min(more.first_ms);
        all.last_ms = all.last_ms.max(more.last_ms);
        all.bucket_min = all.bucket_min.min(more.bucket_min);
        all.bucket_max = all.bucket_max.max(more.bucket_max);
        all.diff_max = all.diff_max.max(more.diff_max);
        all.count += more.count;
    }

    /// A start timestamp before the previous sample.
    pub(crate) fn add_overlap(&mut self, name: &str, span: Span) {
        let mut name = name.to_owned();
        cut(&mut name);
        if let Some((_, count)) = insert(&mut self.overlaps, name, || (span, 0)) {
            *count += 1;
        }
    }

    /// Warnings, then infos, each in alphabetical order.
    pub(crate) fn into_list(self, query: &str) -> Vec<Annotation> {
        let place = |span: Span| span.line_column(query);
        let notes = self
            .notes
            .into_iter()
            .map(|((severity, text), span)| (severity, format!("{text} ({})", place(span))));
        let forced = self.forced.into_iter().map(|(text, (span, all))| {
            let text = format!(
                "{text}, from buckets {} to {}, with a max diff of {}, over {} samples from {} to {} ({})",
                float_g(all.bucket_min),
                float_g(all.bucket_max),
                two_digits(all.diff_max),
                all.count,
                crate::data::calendar::rfc3339(all.first_ms),
                crate::data::calendar::rfc3339(all.last_ms),
                place(span)
            );
            (Severity::Info, text)
        });
        let overlaps = self.overlaps.into_iter().map(|(name, (span, count))| {
            let times = if count > 1 { format!(" ({count} occurrences)") } else { String::new() };
            let text = format!(
                "sample has start time that overlaps with previous sample timestamp for metric {}{times} ({})",
                quote(&name),
                place(span)
            );
            (Severity::Warning, text)
        });
        let mut list: Vec<Annotation> = notes
            .chain(forced)
            .chain(overlaps)
            .map(|(severity, text)| {
                let word = match severity {
                    Severity::Warning => "warning",
                    Severity::Info => "info",
                };
                Annotation { severity, text: format!("PromQL {word}: {text}") }
            })
            .collect();
        list.sort_by(|a, b| (a.severity, &a.text).cmp(&(b.severity, &b.text)));
        list
    }
}

/// Two significant digits.
fn two_digits(value: f64) -> String {
    format!("{value:.1e}").parse::<f64>().map_or_else(|_| float_g(value), float_g)
}
