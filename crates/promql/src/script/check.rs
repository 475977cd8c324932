//! The expectations of an `eval`, and their comparison with a result.

use regex::Regex;
use ropewalk_labels::{Bucket, Histogram, Labels, is_stale};

use super::Ask;
use super::number;
use super::text_of;
use super::values::{self, Item};
use crate::annotations::Severity;
use crate::data::text::parse_duration;
use crate::eval::nearly_equal;
use crate::query::{Answer, Sample, Series, Value};

/// Allowed relative difference.
const EPSILON: f64 = 1e-6;

/// Expected text of a message.
#[derive(Debug)]
enum Pattern {
    Any,
    Text(String),
    Regex(Regex),
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Text(wanted) => wanted == text,
            Pattern::Regex(regex) => regex.is_match(text),
        }
    }
}

/// The expectations of an `eval`.
#[derive(Debug, Default)]
pub(super) struct Expected {
    fail: Option<Pattern>,
    warnings: Vec<Pattern>,
    infos: Vec<Pattern>,
    no_warnings: bool,
    no_infos: bool,
    /// The order of the series matters.
    pub(super) ordered: bool,
    /// The result has a type that range queries do not return.
    pub(super) only_instant: bool,
    text: Option<Vec<u8>>,
    scalar: Option<f64>,
    series: Vec<(Labels, Vec<Item>)>,
    /// Times of the values of a matrix: first, last, step.
    times: (i64, i64, i64),
}

impl Expected {
    pub(super) fn parse(ask: &Ask<'_>, body: &[&str]) -> Result<Self, String> {
        let mut expected = Self { times: (ask.start_ms, ask.end_ms, ask.step_ms), ..Self::default() };
        if ask.fail {
            expected.fail = Some(Pattern::Any);
        }
        for line in body {
            if let Some(rest) = line.strip_prefix("expected_fail_message") {
                expected.fail = Some(Pattern::Text(rest.trim().to_owned()));
            } else if let Some(rest) = line.strip_prefix("expected_fail_regexp") {
                expected.fail = Some(Pattern::Regex(Regex::new(rest.trim()).map_err(|e| e.to_string())?));
            } else if let Some(rest) = line.strip_prefix("expect range vector") {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let ["from", from, "to", to, "step", step] = words.as_slice() else {
                    return Err(format!("{line:?} is not understood"));
                };
                expected.times = (parse_duration(from)?, parse_duration(to)?, parse_duration(step)?);
                expected.only_instant = true;
            } else if let Some(rest) = line.strip_prefix("expect string") {
                expected.text = Some(text_of(rest.trim())?);
                expected.only_instant = true;
            } else if let Some(rest) = line.strip_prefix("expect ") {
                expected.expect(rest.trim())?;
            } else if let Some(value) = number(line) {
                expected.scalar = Some(value);
            } else {
                let (labels, items) = values::series(line)?;
                expected.series.retain(|(other, _)| *other != labels);
                expected.series.push((labels, items));
            }
        }
        Ok(expected)
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let pattern = match rest.trim().split_once(':') {
            None => Pattern::Any,
            Some(("msg", text)) => Pattern::Text(text.trim().to_owned()),
            Some(("regex", text)) => Pattern::Regex(Regex::new(text.trim()).map_err(|e| e.to_string())?),
            Some(_) => return Err(format!("{text:?} is not understood")),
        };
        match word {
            "fail" => self.fail = Some(pattern),
            "warn" => self.warnings.push(pattern),
            "info" => self.infos.push(pattern),
            "no_warn" => self.no_warnings = true,
            "no_info" => self.no_infos = true,
            "ordered" => self.ordered = true,
            _ => return Err(format!("cannot expect {word:?}")),
        }
        Ok(())
    }

    /// Compares a result.
    pub(super) fn check(&self, answer: Result<Answer, String>) -> Result<(), String> {
        let answer = match (answer, &self.fail) {
            (Err(message), Some(pattern)) if pattern.matches(&message) => return Ok(()),
            (Err(message), Some(pattern)) => {
                return Err(format!("expected failure {pattern:?}, got {message:?}"));
            }
            (Err(message), None) => return Err(message),
            (Ok(_), Some(_)) => return Err("expected a failure".to_owned()),
            (Ok(answer), None) => answer,
        };
        self.check_annotations(&answer, Severity::Warning, &self.warnings, self.no_warnings)?;
        self.check_annotations(&answer, Severity::Info, &self.infos, self.no_infos)?;
        match answer.value {
            Value::Scalar(value) => match self.scalar {
                Some(wanted) if close(wanted, value) => Ok(()),
                wanted => Err(format!("expected {wanted:?}, got scalar {value}")),
            },
            Value::Text(text) => {
                if self.text.clone().unwrap_or_default() == text {
                    return Ok(());
                }
                Err(format!("expected {:?}, got text {text:?}", self.text))
            }
            Value::Vector(samples) => self.check_vector(&samples),
            Value::Matrix(series) => self.check_matrix(&series),
        }
    }

    fn check_annotations(
        &self,
        answer: &Answer,
        severity: Severity,
        wanted: &[Pattern],
        none: bool,
    ) -> Result<(), String> {
        let found: Vec<&str> =
            answer.annotations.iter().filter(|a| a.severity == severity).map(|a| a.text.as_str()).collect();
        if none && !found.is_empty() {
            return Err(format!("unexpected {severity:?}: {found:?}"));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        if let Some(missing) = wanted.iter().find(|pattern| !found.iter().any(|text| pattern.matches(text))) {
            return Err(format!("expected {severity:?} {missing:?}, found {found:?}"));
        }
        match found.iter().find(|text| !wanted.iter().any(|pattern| pattern.matches(text))) {
            Some(more) => Err(format!("unexpected {severity:?}: {more:?}")),
            None => Ok(()),
        }
    }

    /// Compares the middle step of a range query.
    pub(super) fn check_middle(&self, samples: Vec<(Labels, Sample)>) -> Result<(), String> {
        match (self.scalar, samples.as_slice()) {
            (Some(wanted), [(_, Sample::Float(value))]) if close(wanted, *value) => Ok(()),
            (Some(wanted), other) => Err(format!("expected scalar {wanted}, got {other:?}")),
            (None, samples) => self.check_vector(samples),
        }
    }

    fn check_vector(&self, samples: &[(Labels, Sample)]) -> Result<(), String> {
        if let Some(wanted) = self.scalar {
            return Err(format!("expected scalar {wanted}, got a vector"));
        }
        for (position, (labels, sample)) in samples.iter().enumerate() {
            let found = self.series.iter().position(|(wanted, _)| wanted == labels);
            let Some((at, (_, items))) = found.and_then(|at| Some((at, self.series.get(at)?))) else {
                return Err(format!("unexpected {labels:#} {}", shown(sample)));
            };
            if self.ordered && at != position {
                return Err(format!("expected {labels:#} at position {at}, it is at {position}"));
            }
            let wanted = items.first().unwrap_or(&Item::Omitted);
            if !same(wanted, sample) {
                return Err(format!("expected {labels:#} {}, got {}", shown_item(wanted), shown(sample)));
            }
        }
        match self.series.iter().find(|(labels, _)| !samples.iter().any(|(other, _)| other == labels)) {
            Some((missing, _)) => Err(format!("expected {missing:#}, which is missing")),
            None => Ok(()),
        }
    }

    fn check_matrix(&self, series: &[Series]) -> Result<(), String> {
        if self.ordered || self.scalar.is_some() {
            return Err("expected no matrix".to_owned());
        }
        if !series.is_sorted_by(|a, b| a.labels <= b.labels) {
            return Err("the series of a matrix are not in order".to_owned());
        }
        let (start, end, step) = self.times;
        for Series { labels, samples } in series {
            let Some((_, items)) = self.series.iter().find(|(wanted, _)| wanted == labels) else {
                return Err(format!("unexpected {labels:#} {}", shown_all(samples)));
            };
            let wanted: Vec<(i64, &Item)> = items
                .iter()
                .enumerate()
                .map(|(index, item)| (start + step * index as i64, item))
                .filter(|(_, item)| !matches!(item, Item::Omitted))
                .collect();
            if let Some((time, _)) = wanted.iter().find(|(time, _)| *time > end) {
                return Err(format!("{labels:#} is expected at {time}, after the end"));
            }
            let fits = wanted.len() == samples.len()
                && wanted
                    .iter()
                    .zip(samples)
                    .all(|((t, item), (time, sample))| t == time && same(item, sample));
            if !fits {
                let wanted: Vec<String> =
                    wanted.iter().map(|(t, item)| format!("{t}={}", shown_item(item))).collect();
                return Err(format!("expected {labels:#} {}, got {}", wanted.join(" "), shown_all(samples)));
            }
        }
        match self.series.iter().find(|(labels, _)| !series.iter().any(|other| other.labels == *labels)) {
            Some((missing, _)) => Err(format!("expected {missing:#}, which is missing")),
            None => Ok(()),
        }
    }
}

fn shown(sample: &Sample) -> String {
    match sample {
        Sample::Float(value) => value.to_string(),
        Sample::Histogram(histogram) => {
            format!("{:?} {} {:?} {histogram}", histogram.hint, histogram.schema, histogram.custom)
        }
    }
}

fn shown_all(samples: &[(i64, Sample)]) -> String {
    samples.iter().map(|(time, sample)| format!("{time}={}", shown(sample))).collect::<Vec<_>>().join(" ")
}

fn shown_item(item: &Item) -> String {
    match item {
        Item::Omitted => "nothing".to_owned(),
        Item::Float(value) => value.to_string(),
        Item::Histogram { histogram, .. } => shown(&Sample::Histogram(histogram.clone())),
    }
}

fn close(a: f64, b: f64) -> bool {
    if is_stale(a) || is_stale(b) {
        return is_stale(a) && is_stale(b);
    }
    nearly_equal(a, b, EPSILON)
}

fn same(wanted: &Item, sample: &Sample) -> bool {
    match (wanted, sample) {
        (Item::Float(wanted), Sample::Float(value)) => close(*wanted, *value),
        (Item::Histogram { histogram, hinted }, Sample::Histogram(other)) => {
            same_histogram(histogram, other) && (!hinted || histogram.hint == other.hint)
        }
        _ => false,
    }
}

fn same_histogram(a: &Histogram, b: &Histogram) -> bool {
    let populated =
        |buckets: &[Bucket]| -> Vec<Bucket> { buckets.iter().filter(|b| b.count != 0.0).copied().collect() };
    let same_buckets = |a: &[Bucket], b: &[Bucket]| {
        let (a, b) = (populated(a), populated(b));
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.index == b.index && close(a.count, b.count))
    };
    a.schema == b.schema
        && close(a.count, b.count)
        && close(a.sum, b.sum)
        && (!a.is_custom() || a.custom == b.custom)
        && a.zero_threshold == b.zero_threshold
        && close(a.zero_count, b.zero_count)
        && same_buckets(&a.positive, &b.positive)
        && same_buckets(&a.negative, &b.negative)
}
