//! `info()`: adds to each series the labels of the info series (such as `target_info`) with the same
//! `instance` and `job`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ropewalk_labels::{Labels, METRIC_NAME, MatchOp, Matcher, Part, Pattern};

use super::Around;
use super::Eval;
use super::KNOWN_BYTES;
use super::LABEL_BYTES_PER_WORK;
use super::SERIES_LABELS_BYTES_MAX;
use super::Sink;
use super::row::{Cell, Row, Rows, Steps};
use super::select::Reference;
use crate::budget::Holding;
use crate::data::source::{Hints, Select};
use crate::error::{Result, SAME_LABELS, refused};
use crate::syntax::ast::*;

/// Labels that match an info series to a series.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

/// Longest list of values that is selected by a regular expression.
const VALUES_BYTES_MAX: usize = 32 << 10;

/// The time at which a vector reads its series: `@` (if any) and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LooksAt {
    at: Option<i64>,
    offset_ms: i64,
}

impl LooksAt {
    fn same(self, other: LooksAt) -> bool {
        match (self.at, other.at) {
            (None, None) => self.offset_ms == other.offset_ms,
            (Some(a), Some(b)) => a.saturating_sub(self.offset_ms) == b.saturating_sub(other.offset_ms),
            _ => false,
        }
    }
}

/// The time at which all selectors of a vector read, if it is the same for all.
pub(crate) fn reference(expr: &Expr) -> Option<LooksAt> {
    let (mut found, mut free) = (Vec::new(), false);
    collect(expr, &mut Vec::new(), &mut found, &mut free);
    let first = *found.first()?;
    (!free && found.iter().all(|other| first.same(*other))).then_some(first)
}

/// Collects the times of selectors; true when there are any. `free` is set when a vector has none.
fn collect<'e>(
    expr: &'e Expr,
    around: &mut Vec<&'e Subquery>,
    found: &mut Vec<LooksAt>,
    free: &mut bool,
) -> bool {
    if !matches!(expr.value_type(), ValueType::Vector | ValueType::Matrix) {
        return false;
    }
    let selector = match expr {
        Expr::Selector(e) => Some(&**e),
        Expr::Matrix(e) => Some(&e.selector),
        _ => None,
    };
    if let Some(selector) = selector {
        let mut time = LooksAt { at: fixed(selector.at), offset_ms: selector.offset.ms() };
        for subquery in around.iter().rev() {
            if time.at.is_some() {
                break;
            }
            time.offset_ms = time.offset_ms.saturating_add(subquery.offset.ms());
            time.at = fixed(subquery.at);
        }
        found.push(time);
        return true;
    }
    let any = match expr {
        Expr::Call(call) if call.function.name == "info" => {
            return call.args.first().is_some_and(|arg| collect(arg, around, found, free));
        }
        // The times at which it reads are not analysed.
        Expr::WithOffset(_) => false,
        Expr::Subquery(subquery) => {
            around.push(subquery);
            let any = collect(&subquery.expr, around, found, free);
            around.pop();
            any
        }
        other => {
            let mut any = false;
            for child in other.children() {
                any |= collect(child, around, found, free);
            }
            any
        }
    };
    if !any {
        *free = true;
    }
    any
}

fn fixed(at: Option<AtModifier>) -> Option<i64> {
    match at {
        Some(AtModifier::Time(ms)) => Some(ms),
        _ => None,
    }
}

/// The matchers on the names of info series: `target_info` by default, none of the excluded ones.
fn name_matchers(given: Vec<Matcher>) -> Vec<Matcher> {
    if given.is_empty() {
        return vec![Matcher::equal(METRIC_NAME, "target_info")];
    }
    let positive = given.iter().any(|m| matches!(m.op(), MatchOp::Equal | MatchOp::Regex));
    let all = if positive { None } else { Matcher::new(METRIC_NAME, MatchOp::Regex, ".+_info").ok() };
    all.into_iter().chain(given).collect()
}

/// An info series over all steps: its labels, and the time of the sample seen at each step.
struct Info {
    labels: Labels,
    times: Vec<Option<i64>>,
}

impl Eval<'_> {
    pub(super) fn info(
        &self,
        vector: &Expr,
        selector: Option<&Expr>,
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let time = reference(vector);
        let mut base = self.rows(vector, steps, Around { func: Some("info"), ..Around::default() })?;
        let given: &[Matcher] = match selector {
            Some(Expr::Selector(selector)) => &selector.matchers,
            _ => &[],
        };
        let (names, data): (Vec<Matcher>, Vec<Matcher>) =
            given.iter().cloned().partition(|m| m.name() == METRIC_NAME);
        let names = name_matchers(names);
        let ignored: Vec<bool> =
            base.list.iter().map(|row| names.iter().all(|m| m.matches(row.labels.name()))).collect();
        let (infos, _held) = self.info_series(&base.list, &ignored, &names, &data, time, steps)?;
        let by_identity = Identities::new(&infos);

        let mut results = Rows::new(self.budget)?;
        let mut places: HashMap<(Labels, bool), usize> = HashMap::new();
        for (row, ignored) in base.list.iter_mut().zip(ignored) {
            self.budget.work(steps.count)?;
            for step in 0..steps.count {
                let Some(cell) = row.cell(step) else { continue };
                self.budget.work(row.labels.bytes() / LABEL_BYTES_PER_WORK)?;
                let labels = if ignored {
                    Some(row.labels.clone())
                } else {
                    enriched(&row.labels, &by_identity.at(&row.labels, step, &infos)?, &data)?
                };
                let Some(labels) = labels else { continue };
                let next = places.len();
                let place = *places.entry((labels.clone(), row.drop_name)).or_insert(next);
                if place == next {
                    results.push(Row::new(labels, row.drop_name, steps.count))?;
                }
                if results.list.get(place).is_some_and(|result| result.has(step)) {
                    return refused(SAME_LABELS);
                }
                results.set(place, step, cell)?;
            }
        }
        self.give(std::mem::take(&mut results.list), sink)
    }

    /// The info series that may belong to any of the base series.
    fn info_series(
        &self,
        base: &[Row],
        ignored: &[bool],
        names: &[Matcher],
        data: &[Matcher],
        time: Option<LooksAt>,
        steps: Steps,
    ) -> Result<(Vec<Info>, Holding<'_>)> {
        let time = time.unwrap_or(LooksAt { at: None, offset_ms: 0 });
        let reference =
            Reference::new(time.at.map(AtModifier::Time), &Duration::Fixed(time.offset_ms), steps);
        let (mut infos, mut held) = (Vec::new(), self.budget.holding(0)?);
        for identity in identities(base, ignored) {
            let mut matchers = Vec::new();
            for (name, values) in identity {
                if values.is_empty() {
                    matchers.push(Matcher::equal(name, ""));
                    continue;
                }
                matchers.push(self.any_of(name, &values)?);
            }
            matchers.extend(data.iter().chain(names).cloned());
            let select = Select {
                matchers: &matchers,
                start_ms: reference.first().saturating_sub(self.options.lookback_ms).saturating_add(1),
                end_ms: reference.last(),
                hints: Hints { step_ms: steps.step_ms, func: Some("info"), ..Hints::default() },
            };
            self.each_series(&select, (&[], false), &mut |labels, samples| {
                held.grow(labels.bytes() + 4 * KNOWN_BYTES + steps.count * size_of::<Option<i64>>())?;
                let mut times = vec![None; steps.count];
                let mut histogram = false;
                self.look_back(&reference, samples, |step, seen| {
                    histogram |= matches!(seen.cell, Cell::Histogram(_));
                    if let Some(place) = times.get_mut(step) {
                        *place = Some(seen.time_ms);
                    }
                });
                if histogram {
                    return refused(format!("this should be an info metric, with float samples: {labels:#}"));
                }
                infos.push(Info { labels: labels.clone(), times });
                Ok(())
            })?;
        }
        Ok((infos, held))
    }
}

impl Eval<'_> {
    /// A matcher for these values of a label. For too many values it only requires the label: other series
    /// find no partner.
    fn any_of(&self, name: &str, values: &BTreeSet<&str>) -> Result<Matcher> {
        let length: usize = values.iter().map(|value| 2 * value.len() + 1).sum();
        let pattern = if length > VALUES_BYTES_MAX {
            ".+".to_owned()
        } else {
            values.iter().map(|value| regex::escape(value)).collect::<Vec<_>>().join("|")
        };
        self.budget.check()?;
        let compile = |pattern: &str| Pattern::new(Part::Whole, pattern).map(Arc::new);
        Matcher::compiled_by((name.to_owned(), MatchOp::Regex, pattern), compile)
            .or_else(|error| refused(error.to_string()))
    }
}

/// One set of matchers per combination of identifying labels that occurs: their values, or the label's
/// absence.
fn identities<'r>(base: &'r [Row], ignored: &[bool]) -> Vec<Vec<(&'static str, BTreeSet<&'r str>)>> {
    let mut found: BTreeMap<[bool; 2], [BTreeSet<&'r str>; 2]> = BTreeMap::new();
    for (row, _) in base.iter().zip(ignored).filter(|(_, ignored)| !**ignored) {
        let values = IDENTIFYING.map(|name| row.labels.get(name));
        let present = values.map(|value| !value.is_empty());
        if present == [false; 2] {
            continue;
        }
        let sets = found.entry(present).or_default();
        for (set, value) in sets.iter_mut().zip(values).filter(|(_, value)| !value.is_empty()) {
            set.insert(value);
        }
    }
    found.into_values().map(|sets| IDENTIFYING.into_iter().zip(sets).collect()).collect()
}

/// Info series by identifying labels and name.
struct Identities {
    places: HashMap<Labels, BTreeMap<String, Vec<usize>>>,
}

fn identity(labels: &Labels) -> Labels {
    labels.filter(|name| IDENTIFYING.iter().any(|of| of.as_bytes() == name))
}

impl Identities {
    fn new(infos: &[Info]) -> Self {
        let mut places: HashMap<Labels, BTreeMap<String, Vec<usize>>> = HashMap::new();
        for (index, info) in infos.iter().enumerate() {
            let names = places.entry(identity(&info.labels)).or_default();
            names.entry(info.labels.name().to_owned()).or_default().push(index);
        }
        Self { places }
    }

    /// The info series of a series at a step: of each name the newest one.
    fn at<'i>(&self, base: &Labels, step: usize, infos: &'i [Info]) -> Result<Vec<&'i Labels>> {
        let Some(names) = self.places.get(&identity(base)) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for list in names.values() {
            let mut newest: Option<(&Labels, i64)> = None;
            for info in list.iter().filter_map(|index| infos.get(*index)) {
                let Some(time) = info.times.get(step).copied().flatten() else { continue };
                match newest {
                    Some((other, at)) if at == time => {
                        return refused(format!(
                            "found duplicate series for info metric: existing {other:#} @ {at}, new {:#} @ {time}",
                            info.labels
                        ));
                    }
                    Some((_, at)) if at > time => {}
                    _ => newest = Some((&info.labels, time)),
                }
            }
            found.extend(newest.map(|(labels, _)| labels));
        }
        Ok(found)
    }
}

/// The labels of a series with those of its info series; `None` when it has none and `data` requires some.
fn enriched(base: &Labels, infos: &[&Labels], data: &[Matcher]) -> Result<Option<Labels>> {
    let mut added: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, value) in infos.iter().flat_map(|info| info.iter()) {
        if name == METRIC_NAME || !data.is_empty() && !data.iter().any(|m| m.name() == name) {
            continue;
        }
        if added.get(name).is_some_and(|other| *other != value) {
            return refused(format!("conflicting label: {name}"));
        }
        if !base.has(name) {
            added.insert(name, value);
        }
    }
    if infos.is_empty() && data.iter().any(|m| !m.matches("")) {
        return Ok(None);
    }
    if added.is_empty() {
        return Ok(Some(base.clone()));
    }
    let labels = Labels::from_pairs(base.iter().chain(added));
    if labels.bytes() > SERIES_LABELS_BYTES_MAX {
        let bytes = labels.bytes();
        return refused(format!(
            "labels of {bytes} bytes exceed the limit of {SERIES_LABELS_BYTES_MAX} bytes for a series"
        ));
    }
    Ok(Some(labels))
}
