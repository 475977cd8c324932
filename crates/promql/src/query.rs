//! Queries: an expression, evaluated at one time or at steps.

use std::cell::RefCell;
use std::sync::Arc;

use crate::annotations::{Annotation, Annotations};
use crate::ast::{Edges, Expr, ValueType};
use crate::budget::{Budget, Limits, Spent, Stop};
use crate::error::{Error, refused};
use crate::eval::{Around, Cell, Eval, Row, Steps};
use crate::histogram::Histogram;
use crate::labels::Labels;
use crate::parser::{ParseError, ParseOptions, parse};
use crate::plan::{Times, plan};
use crate::source::Source;

/// How queries are read and evaluated. The default understands the whole language, and evaluates as Prometheus does without feature
/// flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Which parts of the language are understood.
    pub parse: ParseOptions,
    /// How old a sample may be that an instant selector sees, in milliseconds.
    pub lookback_ms: i64,
    /// Step of subqueries that give none, in milliseconds.
    pub subquery_step_ms: i64,
    /// Names are taken away at the end of the query instead of by each function, so that labels can still be made from them.
    pub delayed_name_removal: bool,
    /// Rates know when a counter began.
    pub start_timestamps: bool,
    /// The labels `__type__` and `__unit__` are maintained by the storage.
    pub type_and_unit_labels: bool,
    /// What a query may cost.
    pub limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parse: ParseOptions::default(),
            lookback_ms: 300_000,
            subquery_step_ms: 60_000,
            delayed_name_removal: false,
            start_timestamps: false,
            type_and_unit_labels: false,
            limits: Limits::default(),
        }
    }
}

/// A sample of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Sample {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<Histogram>),
}

/// A series of an answer, with the times of its samples in milliseconds.
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
    /// One text.
    Text(Vec<u8>),
    /// Series with one sample each, at the query's time. In the order the query gives them.
    Vector(Vec<(Labels, Sample)>),
    /// Series with samples, ordered by labels.
    Matrix(Vec<Series>),
}

/// What a query gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The value.
    pub value: Value,
    /// What there is to say about it.
    pub annotations: Vec<Annotation>,
    /// What it has cost.
    pub spent: Spent,
}

/// A query that has been read.
#[derive(Debug, Clone)]
pub struct Query {
    text: String,
    expr: Expr,
    options: Options,
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(text: &str, options: Options) -> Result<Self, ParseError> {
        Ok(Self { text: text.to_owned(), expr: parse(text, options.parse)?, options })
    }

    /// A query from an expression. Places in annotations are those of the text that it prints as.
    pub fn from_expr(expr: Expr, options: Options) -> Self {
        Self { text: expr.to_string(), expr, options }
    }

    /// The expression.
    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    /// The value at one time. `stop` is asked now and then whether to go on; cost: what the selectors read.
    ///
    /// # Errors
    /// No value on this data, a limit, a stop, the storage.
    pub fn instant(
        &self,
        source: &dyn Source,
        at_ms: i64,
        stop: &dyn Fn() -> Option<Stop>,
    ) -> Result<Answer, Error> {
        let times = self.times(at_ms, at_ms, 0);
        self.run(source, times, stop, |eval, expr| instant(eval, expr, at_ms))
    }

    /// The values from `start_ms` to `end_ms`, every `step_ms`. Scalars become a series without labels.
    ///
    /// # Errors
    /// As [`Query::instant`]; too many steps; an expression of another type than scalar or instant vector.
    pub fn range(
        &self,
        source: &dyn Source,
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
        stop: &dyn Fn() -> Option<Stop>,
    ) -> Result<Answer, Error> {
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
        stop: &dyn Fn() -> Option<Stop>,
        evaluate: impl FnOnce(&Eval<'_>, &Expr) -> Result<Value, Error>,
    ) -> Result<Answer, Error> {
        let expr = plan(self.expr.clone(), times)?;
        let budget = Budget::new(self.options.limits, stop);
        budget.check()?;
        let notes = RefCell::new(Annotations::default());
        let eval = Eval { source, budget: &budget, options: &self.options, notes: &notes, keep_name: false };
        let value = evaluate(&eval, &expr)?;
        let annotations = notes.into_inner().into_list(&self.text);
        Ok(Answer { value, annotations, spent: budget.spent() })
    }
}

/// The rows of an answer: without names that were to go, and each label set once.
fn answer_rows(eval: &Eval<'_>, expr: &Expr, steps: Steps) -> Result<Vec<Row>, Error> {
    let mut rows = eval.rows(expr, steps, Around::default())?;
    for row in rows.list.iter_mut().filter(|row| row.drop_name) {
        row.labels = row.labels.without_name();
        row.drop_name = false;
    }
    rows.merge()?;
    Ok(std::mem::take(&mut rows.list))
}

fn sample(cell: Cell) -> Sample {
    match cell {
        Cell::Float(value) => Sample::Float(value),
        Cell::Histogram(histogram) => Sample::Histogram(histogram),
    }
}

fn instant(eval: &Eval<'_>, expr: &Expr, at_ms: i64) -> Result<Value, Error> {
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
            let rows = answer_rows(eval, expr, steps)?;
            let samples = rows
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

fn range(eval: &Eval<'_>, expr: &Expr, steps: Steps) -> Result<Value, Error> {
    if expr.value_type() == ValueType::Scalar {
        let values = eval.scalar(expr, steps)?;
        let samples: Vec<_> = steps.times().zip(values.into_iter().map(Sample::Float)).collect();
        let series =
            if samples.is_empty() { Vec::new() } else { vec![Series { labels: Labels::default(), samples }] };
        return Ok(Value::Matrix(series));
    }
    let mut series: Vec<Series> = answer_rows(eval, expr, steps)?
        .into_iter()
        .map(|row| Series {
            samples: steps
                .times()
                .enumerate()
                .filter_map(|(step, time)| row.cell(step).map(|cell| (time, sample(cell))))
                .collect(),
            labels: row.labels,
        })
        .collect();
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    Ok(Value::Matrix(series))
}

impl Eval<'_> {
    /// The samples of a range selector or subquery as they are.
    fn raw_range(&self, expr: &Expr, steps: Steps) -> Result<Vec<Series>, Error> {
        let Some(range) = crate::eval::Range::new(expr, steps) else {
            return refused("expected an expression of type range vector");
        };
        let (start_ms, end_ms) =
            (range.reference.first().saturating_sub(range.range_ms), range.reference.first());
        let mut list = Vec::new();
        self.each_range(&range, steps, Around::default(), false, &mut |labels, drop_name, samples| {
            crate::eval::drop_stale(samples);
            if range.edges != Edges::Plain && samples.histograms.iter().any(Option::is_some) {
                let word = if range.edges == Edges::Anchored { "anchored" } else { "smoothed" };
                return refused(format!("{word} modifier is not supported with histograms"));
            }
            let points = match range.edges {
                Edges::Plain => {
                    samples.times_ms.iter().copied().zip(samples.values.iter().copied()).collect()
                }
                edges => crate::eval::extended_points(samples, start_ms, end_ms, edges == Edges::Smoothed),
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
                self.budget.hold(samples.len() * size_of::<(i64, Sample)>())?;
                list.push(Series { labels, samples });
            }
            Ok(())
        })?;
        Ok(list)
    }
}
