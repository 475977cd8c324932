//! The script language of Prometheus' query tests: `load` adds series to a storage, `eval` runs a query and
//! lists the expected result.
//!
//!   text ─▶ commands ─▶ Storage (under test) ─▶ Query ─▶ compared with the expected result, ± 1e-6
//!
//! Each instant query is run in several ways that must agree: unchanged, as the middle step of a range query,
//! and with all selectors pinned by `@` to the time of the query and evaluated at other times.
//!
//! Public, so that crates with a storage run the same scripts over it.

mod check;
mod memory;
mod nhcb;
mod values;

use ropewalk_labels::{Labels, Samples};

use crate::data::source::Source;
use crate::data::text::{parse_duration, parse_number, unquote};
use crate::error::Result;
use crate::options::Options;
use crate::plan::TIME_DEPENDENT;
use crate::query::{Answer, Query, Value};
use crate::syntax::ast::{Aggregate, AtModifier, Expr};
use crate::syntax::parser::{ParseOptions, parse};

use check::Expected;
pub use memory::Memory;
use values::Item;

/// A storage that a script can fill and query.
pub trait Storage {
    /// Removes all series.
    ///
    /// # Errors
    /// A description of the failure.
    fn clear(&mut self) -> Result<(), String>;

    /// Adds samples. Those of one series rise in time.
    ///
    /// # Errors
    /// A description of the failure.
    fn load(&mut self, series: &[(Labels, Samples)]) -> Result<(), String>;

    /// Calls `ask` with the current state.
    ///
    /// # Errors
    /// A description of the failure.
    fn read(&self, ask: &mut dyn FnMut(&dyn Source)) -> Result<(), String>;
}

/// The options that scripts assume: the complete language, all features.
pub fn options() -> Options {
    Options {
        parse: ParseOptions::ALL,
        delayed_name_removal: true,
        start_timestamps: true,
        ..Options::default()
    }
}

/// An `eval` with another result than expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Line of the script, from 1.
    pub line: usize,
    /// Description of the difference.
    pub message: String,
}

/// The outcome of a script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// How many `eval`s passed.
    pub passed: usize,
    /// Those that did not, and lines that could not be parsed.
    pub failures: Vec<Failure>,
}

/// Runs a script.
pub fn run(script: &str, storage: &mut dyn Storage) -> Report {
    let lines: Vec<&str> =
        script.lines().map(str::trim).map(|line| if line.starts_with('#') { "" } else { line }).collect();
    let mut report = Report::default();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let first = at;
        at += 1;
        if line.is_empty() {
            continue;
        }
        let body_end = (at..lines.len())
            .find(|i| lines.get(*i).is_none_or(|line| line.is_empty()))
            .unwrap_or(lines.len());
        let word = line.split_whitespace().next().unwrap_or_default();
        let result = if word == "clear" {
            storage.clear()
        } else {
            let body: Vec<&str> = lines.get(at..body_end).unwrap_or_default().to_vec();
            at = body_end;
            match word.split('_').next() {
                Some("load") => load(line, &body).and_then(|series| storage.load(&series)),
                Some("eval") => eval(line, &body, storage).map(|()| report.passed += 1),
                _ => Err(format!("unknown command {line:?}")),
            }
        };
        if let Err(message) = result {
            report.failures.push(Failure { line: first + 1, message });
        }
    }
    report
}

fn load(line: &str, body: &[&str]) -> Result<Vec<(Labels, Samples)>, String> {
    let (word, step) = line.split_once(char::is_whitespace).ok_or("load needs a step")?;
    let step_ms = parse_duration(step.trim())?;
    let mut all: Vec<(Labels, Samples)> = Vec::new();
    let mut starts: Option<Vec<Option<i64>>> = None;
    for line in body {
        if let Some((metric, offsets)) =
            line.split_once("@st").filter(|(m, rest)| is_metric(m) && rest.starts_with(' '))
        {
            let _ = metric;
            starts = Some(values::start_offsets(offsets)?);
            continue;
        }
        let (labels, items) = values::series(line)?;
        let starts = starts.take().unwrap_or_default();
        let mut samples = Samples::default();
        for (index, item) in items.iter().enumerate() {
            let time_ms = step_ms * index as i64;
            match item {
                Item::Omitted => continue,
                Item::Float(value) => samples.push(time_ms, *value),
                Item::Histogram { histogram, .. } => samples.push_histogram(time_ms, histogram.clone()),
            }
            if let Some(Some(offset)) = starts.get(index) {
                samples.set_start(time_ms + offset);
            }
        }
        all.retain(|(other, _)| *other != labels);
        all.push((labels, samples));
    }
    if word == "load_with_nhcb" {
        let more = nhcb::convert(&all)?;
        all.extend(more);
    }
    for (_, samples) in &mut all {
        values::give_hints(samples);
    }
    Ok(all)
}

/// True for text that ends where a metric ends.
fn is_metric(text: &str) -> bool {
    !text.contains(' ') || text.ends_with('}')
}

/// The query of an `eval`.
struct Ask<'s> {
    expr: &'s str,
    start_ms: i64,
    end_ms: i64,
    /// 0 for an instant query.
    step_ms: i64,
    fail: bool,
}

impl<'s> Ask<'s> {
    fn parse(line: &'s str) -> Result<Self, String> {
        let (word, rest) = line.split_once(char::is_whitespace).ok_or("eval what?")?;
        let fail = word == "eval_fail";
        let mut rest = rest.trim_start();
        let mut take = |keyword: &str| -> Result<&'s str, String> {
            let after =
                rest.strip_prefix(keyword).ok_or_else(|| format!("expected {keyword:?} in {line:?}"))?;
            let (value, after) = after.trim_start().split_once(char::is_whitespace).unwrap_or((after, ""));
            rest = after.trim_start();
            Ok(value)
        };
        if take("instant").is_ok_and(|at| at == "at") {
            let (at, expr) = rest.split_once(char::is_whitespace).ok_or("no expression")?;
            let at = parse_duration(at)?;
            return Ok(Self { expr: expr.trim(), start_ms: at, end_ms: at, step_ms: 0, fail });
        }
        let from = take("range")
            .and_then(|word| if word == "from" { take("") } else { Err("no from".to_owned()) })?;
        let (from, to, step) = (from, take("to")?, take("step")?);
        Ok(Self {
            expr: rest,
            start_ms: parse_duration(from)?,
            end_ms: parse_duration(to)?,
            step_ms: parse_duration(step)?,
            fail,
        })
    }
}

fn eval(line: &str, body: &[&str], storage: &dyn Storage) -> Result<(), String> {
    let ask = Ask::parse(line)?;
    let expected = Expected::parse(&ask, body)?;
    if ask.step_ms > 0 {
        let answer = query(ask.expr, storage, |query, source| {
            query.range(source, ask.start_ms, ask.end_ms, ask.step_ms, &|| None)
        });
        return expected.check(answer).map_err(|message| format!("{}: {message}", ask.expr));
    }
    instant(ask.expr, ask.start_ms, &expected, storage)?;
    for (text, at_ms) in pinned(ask.expr, ask.start_ms)? {
        instant(&text, at_ms, &expected, storage)?;
    }
    Ok(())
}

fn query(
    text: &str,
    storage: &dyn Storage,
    mut run: impl FnMut(&Query, &dyn Source) -> Result<Answer>,
) -> Result<Answer, String> {
    let query = Query::parse(text, options()).map_err(|error| error.to_string())?;
    let mut answer = Err("the storage was not read".to_owned());
    storage.read(&mut |source| answer = run(&query, source).map_err(|error| error.to_string()))?;
    answer
}

/// An instant query, and the same as the middle step of a range query.
fn instant(text: &str, at_ms: i64, expected: &Expected, storage: &dyn Storage) -> Result<(), String> {
    let answer = query(text, storage, |query, source| query.instant(source, at_ms, &|| None));
    let failed = answer.is_err();
    expected.check(answer).map_err(|message| format!("{text} at {at_ms}: {message}"))?;
    let depends_on_times = ["start()", "end()", "range()", "step()"].iter().any(|call| text.contains(call));
    if failed || expected.only_instant || expected.ordered || depends_on_times {
        return Ok(());
    }
    let answer = query(text, storage, |query, source| {
        query.range(source, at_ms - 60_000, at_ms + 60_000, 60_000, &|| None)
    })
    .map_err(|message| format!("{text} in range mode around {at_ms}: {message}"))?;
    let Value::Matrix(series) = answer.value else {
        return Err(format!("{text}: a range query gave no matrix"));
    };
    let mut middle = Vec::new();
    for series in series {
        middle.extend(
            series.samples.into_iter().find(|(t, _)| *t == at_ms).map(|(_, sample)| (series.labels, sample)),
        );
    }
    expected.check_middle(middle).map_err(|message| format!("{text} in range mode around {at_ms}: {message}"))
}

/// The expression with all selectors pinned to the time of the query, and the times at which its result must
/// be the same.
fn pinned(text: &str, at_ms: i64) -> Result<Vec<(String, i64)>, String> {
    let Ok(mut expr) = parse(text, ParseOptions::ALL) else { return Ok(Vec::new()) };
    if pin(&mut expr, at_ms) {
        return Ok(Vec::new());
    }
    let text = expr.to_string();
    let times =
        if at_ms == 0 { vec![-1000, 0, 1000] } else { vec![-10 * at_ms, 0, at_ms / 5, at_ms, 10 * at_ms] };
    Ok(times.into_iter().map(|time| (text.clone(), time)).collect())
}

/// Pins selectors; true when a function depends on the time of the step regardless.
fn pin(expr: &mut Expr, at_ms: i64) -> bool {
    let set = |at: &mut Option<AtModifier>| {
        if !matches!(at, Some(AtModifier::Time(_))) {
            *at = Some(AtModifier::Time(at_ms));
        }
    };
    let across = expr.across_steps();
    match expr {
        Expr::Number(_) | Expr::Text(_) => false,
        Expr::Selector(e) => {
            set(&mut e.at);
            false
        }
        Expr::Matrix(e) => {
            set(&mut e.selector.at);
            false
        }
        Expr::Subquery(e) => {
            // The inner expression is as pinned as the subquery itself; only its functions matter.
            set(&mut e.at);
            false
        }
        Expr::Call(e) => {
            let depends = TIME_DEPENDENT.contains(&e.function.name) || across;
            e.args.iter_mut().fold(depends, |depends, arg| pin(arg, at_ms) | depends)
        }
        Expr::Aggregate(e) => {
            let Aggregate { param, expr, more, .. } = &mut **e;
            param
                .iter_mut()
                .chain([expr])
                .chain(more)
                .fold(across, |depends, part| pin(part, at_ms) | depends)
        }
        Expr::WithOffset(e) => {
            // As with a subquery.
            set(&mut e.at);
            false
        }
        Expr::Binary(e) => pin(&mut e.left, at_ms) | pin(&mut e.right, at_ms) | across,
        Expr::Unary(e) => pin(&mut e.expr, at_ms),
        Expr::Paren(e) => pin(&mut e.expr, at_ms),
        Expr::Invariant(e) => pin(e, at_ms),
    }
}

fn number(text: &str) -> Option<f64> {
    parse_number(text)
}

fn text_of(quoted: &str) -> Result<Vec<u8>, String> {
    unquote(quoted).map_err(str::to_owned)
}
