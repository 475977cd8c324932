//! Series in scripts: `metric{label="value"} 1 2+1x3 _ stale {{schema:0 count:1 buckets:[1]}}x2`.

use std::sync::Arc;

use ropewalk_labels::{Bucket, CUSTOM_SCHEMA, Histogram, Labels, ResetHint, STALE, Samples};

use crate::data::text::{parse_duration, parse_number};
use crate::syntax::parser::parse_selector;

/// One entry in a sequence of values.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Omitted,
    Float(f64),
    Histogram {
        histogram: Arc<Histogram>,
        /// The hint was written and is to be compared.
        hinted: bool,
    },
}

/// A metric and the rest of the line.
fn metric(line: &str) -> Result<(Labels, &str), String> {
    let (mut quote, mut escaped, mut depth) = (None, false, 0);
    let mut end = line.len();
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(q), '\\') if q != '`' => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, '}') => {
                depth -= 1;
                if depth == 0 {
                    end = at + 1;
                    break;
                }
            }
            (None, ' ' | '\t') if depth == 0 => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    let (metric, rest) = line.split_at(end);
    let matchers = parse_selector(metric).map_err(|error| format!("{metric}: {error}"))?;
    Ok((Labels::from_pairs(matchers.iter().map(|m| (m.name(), m.value()))), rest))
}

/// A line of series and values.
pub(super) fn series(line: &str) -> Result<(Labels, Vec<Item>), String> {
    let (labels, rest) = metric(line)?;
    let mut items = Vec::new();
    for word in words(rest) {
        items_of(word, &mut items).map_err(|error| format!("{word}: {error}"))?;
    }
    Ok((labels, items))
}

/// Splits at white space, except in `{{ }}`.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut depth) = (Vec::new(), None, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        let blank = c.is_whitespace() && depth == 0;
        match (start, blank) {
            (None, false) => start = Some(at),
            (Some(from), true) => {
                words.extend(text.get(from..at));
                start = None;
            }
            _ => {}
        }
    }
    words.extend(start.and_then(|from| text.get(from..)));
    words
}

fn items_of(word: &str, items: &mut Vec<Item>) -> Result<(), String> {
    if word == "_" {
        items.push(Item::Omitted);
        return Ok(());
    }
    if let Some(count) = word.strip_prefix("_x") {
        items.extend(std::iter::repeat_n(Item::Omitted, repetition(count)?));
        return Ok(());
    }
    if word == "stale" {
        items.push(Item::Float(STALE));
        return Ok(());
    }
    if word.starts_with("{{") {
        return histograms_of(word, items);
    }
    // No hexadecimal numbers here: `x` separates the count.
    let (value, count) = match word.split_once('x') {
        Some((value, count)) => (value, Some(repetition(count)?)),
        None => (word, None),
    };
    let Some(count) = count else {
        items.push(Item::Float(number(value)?));
        return Ok(());
    };
    let (mut now, step) = match split_step(value) {
        Some((base, step)) => (number(base)?, Some(number(step)?)),
        None => (number(value)?, None),
    };
    for _ in 0..=count {
        items.push(Item::Float(now));
        if let Some(step) = step {
            now += step;
        }
    }
    Ok(())
}

fn repetition(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text:?} is no repetition"))
}

fn number(text: &str) -> Result<f64, String> {
    parse_number(text).ok_or_else(|| format!("{text:?} is no number"))
}

/// Splits `1+2` before the sign of the step, which is neither the first character nor that of an exponent.
fn split_step(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let at = (1..bytes.len()).find(|i| {
        matches!(bytes.get(*i), Some(b'+' | b'-')) && !matches!(bytes.get(i - 1), Some(b'e' | b'E'))
    })?;
    text.split_at_checked(at)
}

fn histograms_of(word: &str, items: &mut Vec<Item>) -> Result<(), String> {
    let (first, rest) = described(word)?;
    if rest.is_empty() {
        items.push(first);
        return Ok(());
    }
    if let Some(count) = rest.strip_prefix('x') {
        items.extend(std::iter::repeat_n(first, repetition(count)? + 1));
        return Ok(());
    }
    let (sign, more) = rest.split_at_checked(1).ok_or("text is missing after a histogram")?;
    let (step, rest) = described(more)?;
    let count = repetition(rest.strip_prefix('x').ok_or("a step needs a repetition")?)?;
    let (Item::Histogram { histogram, .. }, Item::Histogram { histogram: step, hinted }) = (first, step)
    else {
        return Err("a step needs histograms".to_owned());
    };
    let mut now = (*histogram).clone();
    for index in 0..=count {
        if index > 0 {
            let result = if sign == "-" { now.subtract(&step) } else { now.add(&step) };
            result.map_err(|_| "the step has another layout")?;
        }
        items.push(Item::Histogram { histogram: Arc::new(now.clone()), hinted });
    }
    Ok(())
}

/// One `{{...}}`, and what follows it.
fn described(text: &str) -> Result<(Item, &str), String> {
    let body = text.strip_prefix("{{").ok_or("no histogram")?;
    let (body, rest) = body.split_once("}}").ok_or("a histogram does not end")?;
    let mut h = Histogram::default();
    let (mut hinted, mut offset, mut negative_offset) = (false, 0, 0);
    let (mut positive, mut negative) = (Vec::new(), Vec::new());
    let mut left = body.trim();
    while !left.is_empty() {
        let (key, value) = left.split_once(':').ok_or_else(|| format!("{left:?} has no value"))?;
        let (value, after) = match value.strip_prefix('[') {
            Some(list) => list.split_once(']').ok_or("a list does not end")?,
            None => value.split_once(char::is_whitespace).unwrap_or((value, "")),
        };
        let index = || value.parse::<i32>().map_err(|_| format!("{value:?} is no index"));
        let list = || value.split_whitespace().map(number).collect::<Result<Vec<f64>, String>>();
        match key.trim() {
            "schema" => h.schema = value.parse().map_err(|_| format!("{value:?} is no schema"))?,
            "sum" => h.sum = number(value)?,
            "count" => h.count = number(value)?,
            "z_bucket" => h.zero_count = number(value)?,
            "z_bucket_w" => h.zero_threshold = number(value)?,
            "custom_values" => h.custom = list()?.into(),
            "buckets" => positive = list()?,
            "n_buckets" => negative = list()?,
            "offset" => offset = index()?,
            "n_offset" => negative_offset = index()?,
            "counter_reset_hint" => {
                hinted = true;
                h.hint = match value {
                    "unknown" => ResetHint::Unknown,
                    "reset" => ResetHint::Reset,
                    "not_reset" => ResetHint::NotReset,
                    "gauge" => ResetHint::Gauge,
                    _ => return Err(format!("{value:?} is no hint")),
                };
            }
            other => return Err(format!("{other:?} is no part of a histogram")),
        }
        left = after.trim_start();
    }
    let buckets = |counts: Vec<f64>, offset: i32| {
        counts.into_iter().zip(offset..).map(|(count, index)| Bucket { index, count }).collect()
    };
    h.positive = buckets(positive, offset);
    h.negative = buckets(negative, negative_offset);
    Ok((Item::Histogram { histogram: Arc::new(h), hinted }, rest))
}

/// Start timestamps, relative to their samples, in milliseconds.
pub(super) fn start_offsets(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut offsets = Vec::new();
    for word in text.split_whitespace() {
        if word == "_" {
            offsets.push(None);
            continue;
        }
        if let Some(count) = word.strip_prefix("_x") {
            offsets.extend(std::iter::repeat_n(None, repetition(count)?));
            continue;
        }
        let (value, count) = match word.split_once('x') {
            Some((value, count)) => (value, repetition(count)?),
            None => (word, 0),
        };
        let (base, step) = split_step(value).map_or((value, None), |(base, step)| (base, Some(step)));
        let step = step.map_or(Ok(0), signed_duration)?;
        let mut now = signed_duration(base)?;
        for _ in 0..=count {
            offsets.push(Some(now));
            now += step;
        }
    }
    Ok(offsets)
}

fn signed_duration(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(rest) => Ok(-parse_duration(rest)?),
        None => parse_duration(text.strip_prefix('+').unwrap_or(text)),
    }
}

/// How long a chunk of histograms lasts in Prometheus' head.
const CHUNK_MS: i64 = 2 * 3_600_000;

/// Sets the reset hints of histograms as Prometheus' storage would: no reset within a chunk, unknown at its
/// beginning. A chunk ends where the layout changes, at a reset, at any sample that is not a histogram, and
/// every two hours.
pub(super) fn give_hints(samples: &mut Samples) {
    let mut before: Option<(i64, Arc<Histogram>)> = None;
    for (time, place) in samples.times_ms.iter().zip(&mut samples.histograms) {
        let Some(histogram) = place else {
            before = None;
            continue;
        };
        if histogram.hint == ResetHint::Gauge {
            before = None;
            continue;
        }
        let continues = before.as_ref().is_some_and(|(since, last)| {
            let explicit = histogram.hint == ResetHint::Reset;
            let plain = Histogram { hint: ResetHint::Unknown, ..(**histogram).clone() };
            !explicit
                && since.div_euclid(CHUNK_MS) == time.div_euclid(CHUNK_MS)
                && histogram.schema == last.schema
                && (histogram.schema != CUSTOM_SCHEMA || histogram.custom == last.custom)
                && histogram.zero_threshold == last.zero_threshold
                && !plain.is_reset_from(last)
        });
        let hint = if continues { ResetHint::NotReset } else { ResetHint::Unknown };
        *place = Some(Arc::new(Histogram { hint, ..(**histogram).clone() }));
        before = place.clone().map(|h| (*time, h));
    }
}
