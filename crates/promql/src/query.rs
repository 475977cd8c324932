//! Queries: an expression, evaluated at one time or at steps.

use std::cell::RefCell;
use std::sync::Arc;

use ropewalk_labels::{Histogram, Labels};

use crate::annotations::{Annotation, Annotations};
use crate::budget::{Budget, Share, SharedMemory, StopReason, Usage};
use crate::data::patterns::Patterns;
use crate::data::source::Source;
use crate::error::{Error, Result, refused};
use crate::eval::{Around, Cell, Eval, Rows, Steps};
use crate::options::Options;
use crate::plan::{Times, plan};
use crate::syntax::ast::{Expr, RangeEdges, ValueType};
use crate::syntax::parser::{self, ParseError, ParseFault};
use crate::syntax::position::Span;

/// A sample of a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Sample {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

/// A series of a result, with the times of its samples in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// Its samples, times rising.
    pub samples: Vec<(i64, Sample)>,
}

/// The value of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// One number.
    Scalar(f64),
    /// One string.
    Text(Vec<u8>),
    /// Series with one sample each, at the query's time. In the order the query returns them.
    Vector(Vec<(Labels, Sample)>),
    /// Series with samples, ordered by labels.
    Matrix(Vec<Series>),
}

/// The result of a query.
#[derive(Debug)]
pub struct Answer {
    /// The value.
    pub value: Value,
    /// Warnings and infos.
    pub annotations: Vec<Annotation>,
    /// Its cost.
    pub spent: Usage,
    /// The reservation of the value's memory in what queries share. Drop it with the value.
    pub share: Share,
}

/// A parsed query.
#[derive(Debug, Clone)]
pub struct Query {
    text: String,
    expr: Expr,
    /// Bytes of the tree, its copy for evaluation, and its regular expressions.
    bytes: usize,
    options: Options,
    memory: Option<Arc<SharedMemory>>,
}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// The first syntax error.
    pub fn parse(text: &str, options: Options) -> Result<Self, ParseError> {
        Self::parse_until(text, options, &|| None).map_err(|error| match error {
            Error::Parse(error) => error,
            other => ParseError { message: other.to_string(), span: Span::default(), place: String::new() },
        })
    }

    /// As [`Query::parse`]; `stop` is called before each regular expression is compiled.
    ///
    /// # Errors
    /// The first syntax error; a stop.
    pub fn parse_until(text: &str, options: Options, stop: &dyn Fn() -> Option<StopReason>) -> Result<Self> {
        let parsed = parser::parse_until(text, options.parse, stop).map_err(|fault| match fault {
            ParseFault::Parse(error) => Error::Parse(error),
            ParseFault::Budget(error) => Error::Budget(error),
        })?;
        Ok(Self { text: text.to_owned(), expr: parsed.expr, bytes: parsed.bytes, options, memory: None })
    }

    /// The same query, with its memory and that of its result counted in `memory`.
    #[must_use]
    pub fn sharing(self, memory: Arc<SharedMemory>) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// The expression.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// Evaluates at one time. `stop` is called regularly and ends the query when it returns a reason; cost:
    /// reading the selected samples.
    ///
    /// # Errors
    /// No value on this data, a limit, a stop, the storage.
    pub fn instant(
        &self,
        source: &dyn Source,
        at_ms: i64,
        stop: &dyn Fn() -> Option<StopReason>,
    ) -> Result<Answer> {
        let times = self.times(at_ms, at_ms, 0);
        self.run(source, times, stop, |eval, expr| instant(eval, expr, at_ms))
    }

    /// Evaluates from `start_ms` to `end_ms`, every `step_ms`. Scalars become a series without labels.
    ///
    /// # Errors
    /// As [`Query::instant`]; too many steps; an expression of another type than scalar or instant vector.
    pub fn range(
        &self,
        source: &dyn Source,
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
        stop: &dyn Fn() -> Option<StopReason>,
    ) -> Result<Answer> {
        if step_ms <= 0 {
            return refused(
                "zero or negative query resolution step widths are not accepted. Try a positive integer",
            );
        }
        let kind = self.expr.value_type();
        if !matches!(kind, ValueType::Scalar | ValueType::Vector) {
            return Err(Error::Times(format!(
                "invalid expression type \"{}\" for range query, must be Scalar or instant Vector",
                kind.documented()
            )));
        }
        let times = self.times(start_ms, end_ms, step_ms);
        self.run(source, times, stop, |eval, expr| {
            let steps = Steps::new(start_ms, end_ms, step_ms);
            eval.budget.steps(steps.count as u64)?;
            range(eval, expr, steps)
        })
    }

    fn times(&self, start_ms: i64, end_ms: i64, step_ms: i64) -> Times {
        Times { start_ms, end_ms, step_ms, lookback_ms: self.options.lookback_ms }
    }

    fn run(
        &self,
        source: &dyn Source,
        times: Times,
        stop: &dyn Fn() -> Option<StopReason>,
        evaluate: impl FnOnce(&Eval<'_>, &Expr) -> Result<Value>,
    ) -> Result<Answer> {
        let budget = Budget::new(self.options.limits, stop).sharing(Share::new(self.memory.clone()));
        budget.check()?;
        let held = budget.holding(self.bytes)?;
        let expr = plan(self.expr.clone(), times)?;
        let (notes, patterns) = (RefCell::new(Annotations::default()), RefCell::new(Patterns::default()));
        let eval = Eval {
            source,
            budget: &budget,
            options: &self.options,
            notes: &notes,
            patterns: &patterns,
            keep_name: false,
        };
        let value = evaluate(&eval, &expr)?;
        drop(held);
        let annotations = notes.into_inner().into_list(&self.text);
        let (spent, bytes) = (budget.spent(), value.bytes());
        Ok(Answer { value, annotations, spent, share: budget.into_share(bytes)? })
    }
}

impl Value {
    /// Bytes of memory.
    fn bytes(&self) -> usize {
        let histogram = |sample: &Sample| match sample {
            Sample::Float(_) => 0,
            Sample::Histogram(histogram) => histogram.bytes(),
        };
        match self {
            Value::Scalar(_) => 0,
            Value::Text(text) => text.len(),
            Value::Vector(list) => {
                let one =
                    |(labels, sample): &(Labels, Sample)| VECTOR_BYTES + labels.bytes() + histogram(sample);
                list.iter().map(one).sum()
            }
            Value::Matrix(list) => list.iter().map(|s| s.bytes()).sum(),
        }
    }
}

/// A sample of a vector in a list that has grown.
const VECTOR_BYTES: usize = 2 * size_of::<(Labels, Sample)>();

impl Series {
    /// Bytes of memory, in a list that has grown.
    fn bytes(&self) -> usize {
        let histograms = self.samples.iter().filter_map(|(_, sample)| match sample {
            Sample::Float(_) => None,
            Sample::Histogram(histogram) => Some(histogram.bytes()),
        });
        2 * size_of::<Self>()
            + self.labels.bytes()
            + self.samples.capacity() * size_of::<(i64, Sample)>()
            + histograms.sum::<usize>()
    }
}

/// The rows of a result: with names removed where delayed, and each label set once.
fn answer_rows<'a>(eval: &Eval<'a>, expr: &Expr, steps: Steps) -> Result<Rows<'a>> {
    let mut rows = eval.rows(expr, steps, Around::default())?;
    for row in rows.list.iter_mut().filter(|row| row.drop_name) {
        row.labels = row.labels.without_name();
        row.drop_name = false;
    }
    rows.merge()?;
    Ok(rows)
}

fn sample(cell: Cell) -> Sample {
    match cell {
        Cell::Float(value) => Sample::Float(value),
        Cell::Histogram(histogram) => Sample::Histogram(histogram),
    }
}

fn instant(eval: &Eval<'_>, expr: &Expr, at_ms: i64) -> Result<Value> {
    let steps = Steps::one(at_ms);
    match expr.value_type() {
        ValueType::Scalar => {
            let value = eval.scalar(expr, steps)?.first().copied().unwrap_or(f64::NAN);
            Ok(Value::Scalar(value))
        }
        ValueType::String => match expr.bare() {
            Expr::Text(text) => Ok(Value::Text(text.value.clone())),
            _ => refused("expected an expression of type string"),
        },
        ValueType::Vector => {
            let mut rows = answer_rows(eval, expr, steps)?;
            rows.held.grow(rows.list.len() * VECTOR_BYTES)?;
            let samples = std::mem::take(&mut rows.list)
                .into_iter()
                .filter_map(|row| row.cell(0).map(|cell| (row.labels, sample(cell))))
                .collect();
            Ok(Value::Vector(samples))
        }
        ValueType::Matrix => {
            let mut series = eval.raw_range(expr, steps)?;
            series.sort_by(|a, b| a.labels.cmp(&b.labels));
            Ok(Value::Matrix(series))
        }
    }
}

fn range(eval: &Eval<'_>, expr: &Expr, steps: Steps) -> Result<Value> {
    if expr.value_type() == ValueType::Scalar {
        let values = eval.scalar(expr, steps)?;
        let _held = eval.budget.holding(steps.count * size_of::<(i64, Sample)>())?;
        let samples: Vec<_> = steps.times().zip(values.iter().copied().map(Sample::Float)).collect();
        let series =
            if samples.is_empty() { Vec::new() } else { vec![Series { labels: Labels::default(), samples }] };
        return Ok(Value::Matrix(series));
    }
    let Rows { list, mut held } = answer_rows(eval, expr, steps)?;
    let mut all = Vec::with_capacity(list.len());
    for row in list {
        eval.budget.work(steps.count)?;
        let (present, bytes) = ((0..steps.count).filter(|step| row.has(*step)).count(), row.bytes());
        held.grow(present * size_of::<(i64, Sample)>())?;
        let mut samples = Vec::with_capacity(present);
        samples.extend(
            steps
                .times()
                .enumerate()
                .filter_map(|(step, time)| row.cell(step).map(|cell| (time, sample(cell)))),
        );
        all.push(Series { labels: row.labels, samples });
        // The labels and part of the rest remain in the result's lists.
        held.shrink(bytes.saturating_sub(LISTED_BYTES + all.last().map_or(0, |s| s.labels.bytes())));
    }
    all.sort_by(|a, b| a.labels.cmp(&b.labels));
    Ok(Value::Matrix(all))
}

/// Bytes that remain counted for a row once it is a series of the result.
const LISTED_BYTES: usize = 160;

impl Eval<'_> {
    /// The samples of a range selector or subquery, without a function.
    fn raw_range(&self, expr: &Expr, steps: Steps) -> Result<Vec<Series>> {
        let Some(range) = crate::eval::Range::new(expr, steps) else {
            return refused("expected an expression of type range vector");
        };
        let (start_ms, end_ms) =
            (range.reference.first().saturating_sub(range.range_ms), range.reference.first());
        let mut list = Vec::new();
        self.each_range(&range, steps, Around::default(), false, &mut |labels, drop_name, samples| {
            crate::eval::drop_stale(samples);
            if range.edges != RangeEdges::Plain && samples.histograms.iter().any(Option::is_some) {
                let word = if range.edges == RangeEdges::Anchored { "anchored" } else { "smoothed" };
                return refused(format!("{word} modifier is not supported with histograms"));
            }
            let points = match range.edges {
                RangeEdges::Plain => {
                    samples.times_ms.iter().copied().zip(samples.values.iter().copied()).collect()
                }
                edges => {
                    crate::eval::extended_points(samples, start_ms, end_ms, edges == RangeEdges::Smoothed)
                }
            };
            let samples: Vec<(i64, Sample)> = points
                .into_iter()
                .enumerate()
                .map(|(index, (time, value))| match samples.histograms.get(index) {
                    Some(Some(histogram)) => (time, Sample::Histogram(Arc::clone(histogram))),
                    _ => (time, Sample::Float(value)),
                })
                .collect();
            if !samples.is_empty() {
                let labels = if drop_name { labels.without_name() } else { labels.clone() };
                let series = Series { labels, samples };
                // Counted until the query ends: it is the result.
                self.budget.hold(series.bytes())?;
                list.push(series);
            }
            Ok(())
        })?;
        Ok(list)
    }
}
