//! Cache of the steps of range queries, so that a moving window evaluates its new steps only.
//!
//! ```text
//! cached     ├──┼──┼──┼──┤              same expression, same step, same phase
//! requested        ├──┼──┼──┼──┼──┤
//!                  └─ taken ─┘└ new ┘   taken: cached steps whose input has not changed since
//! ```
//! A step of a range query has the value of an instant query at that time, independent of the other steps,
//! unless an `@` ties the expression to a fixed time or it depends on where the query begins and ends. An
//! expression reads equally far ahead at every step, so the oldest change since the evaluation limits which
//! cached steps are valid. Results with warnings or infos are not cached: their steps are not known.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use ropewalk::Seq;
use ropewalk::promql::ast::{Duration, DurationExpr, DurationKind, Expr, Selector};
use ropewalk::promql::{Answer, Options, Sample, Series, Share, Usage, Value};
use ropewalk::series::SeriesStore;

/// Larger results are not cached.
const RESULT_BYTES_MAX: u64 = 8 << 20;
/// Rough size of one result.
const BYTES_USUAL: u64 = 64 << 10;

/// The steps of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) step_ms: i64,
}

impl Steps {
    /// The last step at or before `end_ms`.
    fn last(self) -> i64 {
        self.start_ms + (self.end_ms - self.start_ms) / self.step_ms * self.step_ms
    }

    /// Offset of the step grid; equal grids have equal phases. `None` where sums would overflow.
    fn phase(self) -> Option<i64> {
        let small = self.start_ms.unsigned_abs().max(self.end_ms.unsigned_abs()) < 1 << 60;
        (small && self.step_ms > 0).then(|| self.start_ms.rem_euclid(self.step_ms))
    }
}

/// Evaluated steps of one query.
#[derive(Debug, Clone)]
struct Kept {
    start_ms: i64,
    last_ms: i64,
    /// Last commit visible to its snapshot.
    seq: Seq,
    /// Distance from each step back to the latest time it read; negative when it read ahead.
    behind_ms: i64,
    series: Arc<Vec<Series>>,
}

#[derive(Debug, Clone)]
struct Bytewise;

fn bytes(series: &[Series]) -> u64 {
    let one =
        |series: &Series| series.labels.bytes() + series.samples.len() * size_of::<(i64, Sample)>() + 64;
    series.iter().map(one).sum::<usize>() as u64
}

impl Weighter<String, Kept> for Bytewise {
    fn weight(&self, question: &String, kept: &Kept) -> u64 {
        question.len() as u64 + bytes(&kept.series) + size_of::<Kept>() as u64
    }
}

/// Results by query; evicts the least used first.
#[derive(Debug)]
pub(crate) struct Evaluated(Option<Cache<String, Kept, Bytewise>>);

/// Division of a query into cached steps and steps to evaluate.
#[derive(Debug)]
pub(crate) struct Plan {
    question: String,
    asked: Steps,
    taken: Option<(Kept, i64)>,
    slack_ms: i64,
    /// Steps to evaluate; `None` when all are cached.
    pub(crate) missing: Option<Steps>,
}

impl Plan {
    /// The result when all steps are cached.
    pub(crate) fn whole(&self) -> Answer {
        let Some((kept, last_ms)) = &self.taken else {
            return Answer {
                value: Value::Matrix(Vec::new()),
                annotations: Vec::new(),
                spent: Usage::default(),
                share: Share::default(),
            };
        };
        let series = joined(&kept.series, (self.asked.start_ms, *last_ms), Vec::new());
        let spent = Usage { latest_ms: Some(last_ms.saturating_sub(kept.behind_ms)), ..Usage::default() };
        Answer { value: Value::Matrix(series), annotations: Vec::new(), spent, share: Share::default() }
    }
}

/// True when every step has the value of an instant query at its time.
fn is_free(expr: &Expr) -> bool {
    let selector = |selector: &Selector| selector.at.is_none() && is_fixed(&selector.offset);
    let own = match expr {
        Expr::Selector(e) => selector(e),
        Expr::Matrix(e) => selector(&e.selector) && is_fixed(&e.range),
        // The step width of a subquery has to be known here.
        Expr::Subquery(e) => {
            e.at.is_none()
                && is_fixed(&e.offset)
                && is_fixed(&e.range)
                && matches!(e.step, Duration::Fixed(_))
        }
        Expr::WithOffset(e) => e.at.is_none() && is_fixed(&e.offset),
        Expr::Call(e) => !matches!(e.function.name, "start" | "end" | "range" | "step"),
        _ => true,
    };
    own && !expr.across_steps() && expr.children().into_iter().all(is_free)
}

/// True for a duration that does not depend on where the query begins and ends.
fn is_fixed(duration: &Duration) -> bool {
    fn all(expr: &DurationExpr) -> bool {
        match &expr.kind {
            DurationKind::Number(_) | DurationKind::Step | DurationKind::Window => true,
            DurationKind::Range => false,
            DurationKind::Negative(one) => all(one),
            DurationKind::Binary(_, one, other)
            | DurationKind::MinOf(one, other)
            | DurationKind::MaxOf(one, other) => all(one) && all(other),
        }
    }
    match duration {
        Duration::Fixed(_) => true,
        Duration::Expr(expr) => all(expr),
    }
}

/// Upper bound on how much the reach of steps differs: a subquery's steps lie on a separate grid.
fn slack_ms(expr: &Expr) -> i64 {
    let own = match expr {
        Expr::Subquery(subquery) => match subquery.step.ms() {
            0 => Options::default().subquery_step_ms,
            step_ms => step_ms,
        },
        _ => 0,
    };
    expr.children().into_iter().map(slack_ms).max().unwrap_or(0).saturating_add(own)
}

impl Evaluated {
    /// Caches at most `bytes`; with 0, nothing.
    pub(crate) fn new(bytes: u64) -> Self {
        let items = (bytes / BYTES_USUAL).clamp(16, 1 << 20) as usize;
        Self((bytes > 0).then(|| Cache::with_weighter(items, bytes, Bytewise)))
    }

    /// Divides a query into cached and missing steps. `None` for a query whose steps depend on each other.
    pub(crate) fn plan(
        &self,
        expr: &Expr,
        lookback_ms: i64,
        asked: Steps,
        store: &SeriesStore,
    ) -> Option<Plan> {
        let cache = self.0.as_ref()?;
        let phase = asked.phase().filter(|_| is_free(expr))?;
        let question = format!("{} {phase} {lookback_ms}\n{expr}", asked.step_ms);
        let mut plan = Plan { question, asked, taken: None, slack_ms: slack_ms(expr), missing: Some(asked) };
        let Some(kept) = cache.get(&plan.question) else { return Some(plan) };
        if kept.start_ms > asked.start_ms || kept.last_ms < asked.start_ms {
            return Some(plan);
        }
        let mut last_ms = kept.last_ms.min(asked.last());
        if let Some(oldest) = store.oldest_change(kept.seq) {
            // Valid steps read only times before the oldest change: step - `behind_ms` < oldest.
            let right = oldest.saturating_add(kept.behind_ms).saturating_sub(1);
            if right < asked.start_ms {
                return Some(plan);
            }
            let steps = (right - asked.start_ms) / asked.step_ms;
            last_ms = last_ms.min(asked.start_ms.saturating_add(steps.saturating_mul(asked.step_ms)));
        }
        let next_ms = last_ms + asked.step_ms;
        plan.missing = (next_ms <= asked.end_ms).then_some(Steps { start_ms: next_ms, ..asked });
        plan.taken = Some((kept, last_ms));
        Some(plan)
    }

    /// Joins the cached steps with those evaluated at commit `seq`, and caches the result.
    pub(crate) fn finish(&self, plan: Plan, answer: Answer, seq: Seq) -> Answer {
        let Plan { question, asked, taken, slack_ms, missing } = plan;
        let Answer { value, annotations: notes, mut spent, share } = answer;
        let Value::Matrix(new) = value else { return Answer { value, annotations: notes, spent, share } };
        let mut behind_ms = match (spent.latest_ms, missing) {
            (Some(latest), Some(steps)) => Some(steps.last().saturating_sub(latest).saturating_sub(slack_ms)),
            _ => None,
        };
        let mut all = new;
        if let Some((kept, last_ms)) = taken {
            behind_ms = Some(behind_ms.map_or(kept.behind_ms, |behind| behind.min(kept.behind_ms)));
            all = joined(&kept.series, (asked.start_ms, last_ms), all);
            spent.latest_ms = Some(asked.last() - kept.behind_ms).max(spent.latest_ms);
        }
        if let (Some(cache), Some(behind_ms)) = (&self.0, behind_ms)
            && notes.is_empty()
            && bytes(&all) <= RESULT_BYTES_MAX
        {
            let (start_ms, last_ms, series) = (asked.start_ms, asked.last(), Arc::new(all.clone()));
            cache.insert(question, Kept { start_ms, last_ms, seq, behind_ms, series });
        }
        Answer { value: Value::Matrix(all), annotations: notes, spent, share }
    }
}

/// The points of `kept` between two times, then those of `new`, series by series; both are ordered by labels.
fn joined(kept: &[Series], (from_ms, to_ms): (i64, i64), new: Vec<Series>) -> Vec<Series> {
    let cut = |series: &Series| {
        let start = series.samples.partition_point(|(time, _)| *time < from_ms);
        let end = series.samples.partition_point(|(time, _)| *time <= to_ms);
        series.samples.get(start..end).unwrap_or_default().to_vec()
    };
    let mut all = Vec::with_capacity(kept.len().max(new.len()));
    let mut new = new.into_iter().peekable();
    for series in kept {
        while let Some(before) = new.next_if(|new| new.labels < series.labels) {
            all.push(before);
        }
        let mut samples = cut(series);
        if let Some(same) = new.next_if(|new| new.labels == series.labels) {
            samples.extend(same.samples);
        }
        if !samples.is_empty() {
            all.push(Series { labels: series.labels.clone(), samples });
        }
    }
    all.extend(new);
    all
}
