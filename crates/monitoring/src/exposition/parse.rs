//! Parser of the text format 0.0.4 and OpenMetrics 1.0, with quoted names for non-ASCII characters.
//!
//! ```text
//! # TYPE name counter                     name{label="value"} 1.5 1435781451781
//! # EOF (OpenMetrics only, required)       {"näme", label="value"} 1 # {trace_id="x"} 0.5
//! ```
//! Times are milliseconds in the text format and seconds in OpenMetrics. Source: "Exposition formats" of the
//! Prometheus documentation, and the OpenMetrics 1.0 specification.

use std::borrow::Cow;

use ropewalk::series::{METRIC_NAME, MetricType};

use crate::notation::parse_float;

/// The two formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// One sample line.
#[derive(Debug, Default)]
pub struct SampleLine<'t> {
    /// In the order of the line, the metric name first.
    pub labels: Vec<(Cow<'t, str>, Cow<'t, str>)>,
    /// The value.
    pub value: f64,
    /// Its time, if the line has one.
    pub time_ms: Option<i64>,
    /// Its exemplar, if the line has one.
    pub exemplar: Option<Example<'t>>,
}

/// An exemplar after a sample.
#[derive(Debug)]
pub struct Example<'t> {
    /// In the order of the line.
    pub labels: Vec<(Cow<'t, str>, Cow<'t, str>)>,
    /// The value.
    pub value: f64,
    /// Its time, if the line has one.
    pub time_ms: Option<i64>,
}

/// The content of one line.
#[derive(Debug)]
pub enum Item<'i, 't> {
    /// A sample, which the reader of the next line reuses.
    Sample(&'i mut SampleLine<'t>),
    /// The type of a metric.
    Type(Cow<'t, str>, MetricType),
    /// The description of a metric.
    Help(Cow<'t, str>, String),
    /// The unit of a metric.
    Unit(Cow<'t, str>, &'t str),
}

/// Reads `text` line by line.
///
/// # Errors
/// The first line that breaks a rule, or that `take` rejects: its number, and why.
pub fn parse_lines<'t>(
    text: &'t str,
    format: Format,
    mut take: impl FnMut(Item<'_, 't>) -> Result<(), String>,
) -> Result<(), String> {
    let mut sample = SampleLine::default();
    let mut ended = false;
    for (index, line) in text.split('\n').enumerate() {
        let line = line.trim_end_matches('\r').trim_matches([' ', '\t']);
        let at = |why: String| format!("line {}: {why}", index + 1);
        if line.is_empty() {
            continue;
        }
        if ended {
            return Err(at("there is text after # EOF".to_owned()));
        }
        if let Some(comment) = line.strip_prefix('#') {
            match comment_line(comment, format).map_err(at)? {
                Comment::End => ended = true,
                Comment::Item(item) => take(item).map_err(at)?,
                Comment::Nothing => {}
            }
            continue;
        }
        Line { rest: line, format }.sample(&mut sample).map_err(at)?;
        take(Item::Sample(&mut sample)).map_err(at)?;
    }
    if format == Format::OpenMetrics && !ended {
        return Err("the text does not end with # EOF".to_owned());
    }
    Ok(())
}

enum Comment<'t> {
    Nothing,
    Item(Item<'t, 't>),
    /// Of an OpenMetrics text.
    End,
}

fn comment_line(comment: &str, format: Format) -> Result<Comment<'_>, String> {
    let comment = comment.trim_start_matches([' ', '\t']);
    if comment == "EOF" && format == Format::OpenMetrics {
        return Ok(Comment::End);
    }
    let Some((word, rest)) = comment.split_once([' ', '\t']) else { return Ok(Comment::Nothing) };
    if !["TYPE", "HELP", "UNIT"].contains(&word) {
        return Ok(Comment::Nothing);
    }
    let mut line = Line { rest, format };
    line.spaces();
    let name = if line.rest.starts_with('"') { line.quoted()? } else { Cow::Borrowed(line.token()) };
    line.spaces();
    let text = line.rest;
    Ok(Comment::Item(match word {
        "TYPE" if text == "untyped" => Item::Type(name, MetricType::Unknown),
        "TYPE" => {
            Item::Type(name, MetricType::from_name(text).ok_or_else(|| format!("there is no type {text:?}"))?)
        }
        "HELP" => Item::Help(name, unescape(text)),
        _ => Item::Unit(name, text),
    }))
}

/// Resolves `\n` and `\\` in a help text.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some(next @ ('\\' | '"'))) => out.push(next),
            _ => {
                out.push(c);
                continue;
            }
        }
        chars.next();
    }
    out
}

struct Line<'t> {
    rest: &'t str,
    format: Format,
}

impl<'t> Line<'t> {
    fn sample(mut self, sample: &mut SampleLine<'t>) -> Result<(), String> {
        sample.labels.clear();
        let name = self.identifier();
        if !name.is_empty() {
            sample.labels.push((Cow::Borrowed(METRIC_NAME), Cow::Borrowed(name)));
        }
        self.spaces();
        if self.take('{') {
            self.labels(&mut sample.labels)?;
        }
        if sample.labels.first().is_none_or(|(name, _)| name != METRIC_NAME) {
            return Err("a metric name is needed".to_owned());
        }
        let value = self.token();
        sample.value = parse_float(value).ok_or_else(|| format!("{value:?} is no number"))?;
        (sample.time_ms, sample.exemplar) = (None, None);
        self.spaces();
        if !self.rest.is_empty() && !self.rest.starts_with('#') {
            sample.time_ms = Some(self.time()?);
            self.spaces();
        }
        if self.format == Format::OpenMetrics && self.take('#') {
            sample.exemplar = Some(self.exemplar()?);
        }
        if self.rest.is_empty() { Ok(()) } else { Err(format!("{:?} follows the sample", self.rest)) }
    }

    fn exemplar(&mut self) -> Result<Example<'t>, String> {
        self.spaces();
        if !self.take('{') {
            return Err("an exemplar begins with {".to_owned());
        }
        let mut labels = Vec::new();
        self.labels(&mut labels)?;
        let text = self.token();
        let value = parse_float(text).ok_or_else(|| format!("exemplar: {text:?} is no number"))?;
        let time_ms = if self.rest.is_empty() { None } else { Some(self.time()?) };
        Ok(Example { labels, value, time_ms })
    }

    fn time(&mut self) -> Result<i64, String> {
        let text = self.token();
        let ms = match self.format {
            Format::Text => text.parse().ok(),
            Format::OpenMetrics => parse_float(text)
                .map(|s| (s * 1000.0).round())
                .filter(|ms| ms.abs() < 9e18)
                .map(|ms| ms as i64),
        };
        ms.ok_or_else(|| format!("{text:?} is no time"))
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn take(&mut self, what: char) -> bool {
        let rest = self.rest.strip_prefix(what);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Reads letters, digits, `_` and `:`, as many as there are.
    fn identifier(&mut self) -> &'t str {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let length = self.rest.find(|c| !inside(c)).unwrap_or(self.rest.len());
        let length = if self.rest.starts_with(|c: char| c.is_ascii_digit()) { 0 } else { length };
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        name
    }

    fn token(&mut self) -> &'t str {
        self.spaces();
        let (token, rest) = self.rest.split_at(self.rest.find([' ', '\t']).unwrap_or(self.rest.len()));
        self.rest = rest;
        self.spaces();
        token
    }

    /// The labels between braces; a quoted string without a value is the metric's name.
    fn labels(&mut self, into: &mut Vec<(Cow<'t, str>, Cow<'t, str>)>) -> Result<(), String> {
        loop {
            self.spaces();
            if self.take('}') {
                return Ok(());
            }
            let quoted = self.rest.starts_with('"');
            let name = if quoted { self.quoted()? } else { Cow::Borrowed(self.identifier()) };
            self.spaces();
            if self.take('=') {
                if name.is_empty() {
                    return Err("a label name is empty".to_owned());
                }
                self.spaces();
                let value = self.quoted()?;
                into.push((name, value));
            } else if quoted && into.is_empty() {
                into.push((Cow::Borrowed(METRIC_NAME), name));
            } else {
                return Err(format!("label {name:?} has no value"));
            }
            self.spaces();
            if !self.take(',') && !self.rest.starts_with('}') {
                return Err("labels are parted by commas and end with }".to_owned());
            }
        }
    }

    fn quoted(&mut self) -> Result<Cow<'t, str>, String> {
        if !self.take('"') {
            return Err("a text in quotes is needed".to_owned());
        }
        let open = || "a text has no end".to_owned();
        let mut owned = String::new();
        loop {
            let at = self.rest.find(['"', '\\']).ok_or_else(open)?;
            let (part, rest) = self.rest.split_at(at);
            if let Some(rest) = rest.strip_prefix('"') {
                self.rest = rest;
                if owned.is_empty() {
                    return Ok(Cow::Borrowed(part));
                }
                owned.push_str(part);
                return Ok(Cow::Owned(owned));
            }
            owned.push_str(part);
            let mut rest = rest.chars();
            rest.next();
            match rest.next().ok_or_else(open)? {
                'n' => owned.push('\n'),
                c @ ('"' | '\\') => owned.push(c),
                // As Prometheus reads it: a backslash before something else is a backslash.
                other => owned.extend(['\\', other]),
            }
            self.rest = rest.as_str();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, format: Format) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        parse_lines(text, format, |item| {
            let Item::Sample(sample) = item else { return Ok(()) };
            let labels: Vec<_> = sample.labels.iter().map(|(n, v)| format!("{n}={v:?}")).collect();
            lines.push(format!("{} {} {:?}", labels.join(","), sample.value, sample.time_ms));
            Ok(())
        })?;
        Ok(lines)
    }

    #[test]
    fn the_text_format() {
        let text = "# HELP up Is it?\n# TYPE up gauge\nup 1\n\n  up{job=\"a\",} 0 123\nup { job = \"a b\" , x=\"q\\\"\\\\\\n\" } -Inf\t5\r\n\
                    {\"näme.x\", \"läbel\"=\"w\"} 1e3\n# EOF\nafter NaN\n";
        assert_eq!(
            read(text, Format::Text).unwrap(),
            [
                "__name__=\"up\" 1 None",
                "__name__=\"up\",job=\"a\" 0 Some(123)",
                "__name__=\"up\",job=\"a b\",x=\"q\\\"\\\\\\n\" -inf Some(5)",
                "__name__=\"näme.x\",läbel=\"w\" 1000 None",
                "__name__=\"after\" NaN None",
            ]
        );
    }

    #[test]
    fn open_metrics() {
        let text =
            "# TYPE a counter\na_total{x=\"1\"} 5 1.5 # {trace_id=\"t\"} 0.3 1.4\na_created 3\n# EOF\n";
        let lines = ["__name__=\"a_total\",x=\"1\" 5 Some(1500)", "__name__=\"a_created\" 3 None"];
        assert_eq!(read(text, Format::OpenMetrics).unwrap(), lines);
        assert!(read("a 1\n", Format::OpenMetrics).unwrap_err().contains("# EOF"));
        assert!(read("# EOF\na 1\n", Format::OpenMetrics).unwrap_err().starts_with("line 2: "));
    }

    #[test]
    fn rejects_malformed_input() {
        for (line, why) in [
            ("up", "\"\" is no number"),
            ("up x", "\"x\" is no number"),
            ("up 1 x", "\"x\" is no time"),
            ("up 1 1 1", "follows the sample"),
            ("up 1 1.5", "is no time"),
            ("{job=\"a\"} 1", "a metric name is needed"),
            ("0up 1", "a metric name is needed"),
            ("up{job=\"a} 1", "no end"),
            ("up{job=\"a\\", "no end"),
            ("up{job} 1", "has no value"),
            ("up{=\"a\"} 1", "label name is empty"),
            ("up{job=\"a\" x=\"b\"} 1", "commas"),
            ("up{\"x\",\"y\"} 1", "has no value"),
            ("up{job=a} 1", "in quotes"),
            ("# TYPE up thing", "no type \"thing\""),
            ("up 1 # {a=\"b\"} 1", "follows the sample"),
        ] {
            let error = read(&format!("ok 1\n{line}\n"), Format::Text).unwrap_err();
            assert!(error.starts_with("line 2: ") && error.contains(why), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends(text in "[a{}\"\\\\#=, 1\\n.]{0,60}") {
            let _ = read(&text, Format::Text);
            let _ = read(&text, Format::OpenMetrics);
        }
    }
}
