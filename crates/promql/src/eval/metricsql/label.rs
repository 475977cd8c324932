//! Functions that change the labels of series, or choose series by them.

use std::sync::Arc;

use regex::Regex;
use ropewalk_labels::{LABEL_VALUE_BYTES_MAX, METRIC_NAME, Part, Pattern};

use super::super::Around;
use super::super::Eval;
use super::super::Sink;
use super::super::Steps;
use super::super::check_label_value;
use super::super::row::Row;
use crate::data::patterns;
use crate::error::{Result, refused};
use crate::syntax::ast::*;

impl Eval<'_> {
    pub(super) fn change_labels(
        &self,
        name: &str,
        vector: &Expr,
        texts: &[&str],
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<()> {
        let change = Change::new(self, name, texts)?;
        let mut rows = self.rows(vector, steps, Around::default())?;
        let mut changed = Vec::new();
        for mut row in std::mem::take(&mut rows.list) {
            // A search costs at least one step for each byte.
            self.budget.work(1 + texts.len() + row.labels.bytes())?;
            let before = row.labels.clone();
            if change.apply(self, &mut row)? {
                if row.labels != before {
                    rows.held.grow(row.labels.bytes())?;
                }
                changed.push(row);
            }
        }
        rows.list = changed;
        self.put_together(rows, sink)
    }

    /// Sets a label, or removes it.
    fn set_label(&self, row: &mut Row, label: &str, value: &str) -> Result<()> {
        if row.labels.get(label) == value {
            return Ok(());
        }
        row.labels = self.relabeled(&row.labels, label, value)?;
        // A name that was set explicitly is retained.
        row.drop_name &= label != METRIC_NAME;
        Ok(())
    }
}

/// A change of a series' labels.
enum Change<'t> {
    /// Label names alternating with their new values.
    Set(Vec<(&'t str, &'t str)>),
    /// Source and destination labels, alternating, and whether the source is removed.
    Copy(Vec<(&'t str, &'t str)>, bool),
    Delete(&'t [&'t str]),
    Keep(&'t [&'t str]),
    Case(&'t [&'t str], fn(&str) -> String),
    /// A label, and the mapping of its values.
    Map(&'t str, Vec<(&'t str, &'t str)>),
    Match(&'t str, Arc<Pattern>, bool),
    Replace(&'t str, Arc<Pattern>, &'t str),
    Value(&'t str),
    Equal(&'t [&'t str]),
}

impl<'t> Change<'t> {
    fn new(eval: &Eval<'_>, name: &str, texts: &'t [&'t str]) -> Result<Self> {
        let pairs = |texts: &'t [&'t str]| {
            let (pairs, rest) = texts.as_chunks::<2>();
            if !rest.is_empty() {
                return refused(format!("{name}() takes labels in pairs"));
            }
            Ok(pairs.iter().map(|[one, other]| (*one, *other)).collect::<Vec<_>>())
        };
        Ok(match (name, texts) {
            ("alias", [to]) => Self::Set(vec![(METRIC_NAME, to)]),
            ("label_set", texts) => Self::Set(pairs(texts)?),
            ("label_copy", texts) => Self::Copy(pairs(texts)?, false),
            ("label_move", texts) => Self::Copy(pairs(texts)?, true),
            ("label_del", texts) => Self::Delete(texts),
            ("label_keep", texts) => Self::Keep(texts),
            ("label_lowercase", texts) => Self::Case(texts, str::to_lowercase),
            ("label_uppercase", texts) => Self::Case(texts, str::to_uppercase),
            ("label_map", [label, texts @ ..]) => Self::Map(label, pairs(texts)?),
            ("label_match", [label, pattern]) => {
                Self::Match(label, eval.pattern(name, Part::Whole, pattern)?, true)
            }
            ("label_mismatch", [label, pattern]) => {
                Self::Match(label, eval.pattern(name, Part::Whole, pattern)?, false)
            }
            ("label_transform", [label, pattern, to]) => {
                Self::Replace(label, eval.pattern(name, Part::Any, pattern)?, to)
            }
            ("label_value", [label]) => Self::Value(label),
            ("labels_equal", texts) => Self::Equal(texts),
            _ => return refused(format!("function {name} gives no vector")),
        })
    }

    /// Changes a series; false when it is dropped.
    fn apply(&self, eval: &Eval<'_>, row: &mut Row) -> Result<bool> {
        let set = |row: &mut Row, label: &str, value: &str| eval.set_label(row, label, value);
        match self {
            Self::Set(pairs) => pairs.iter().try_for_each(|(label, value)| set(row, label, value))?,
            Self::Copy(pairs, moves) => {
                for (from, to) in pairs {
                    let value = row.labels.get(from).to_owned();
                    if !value.is_empty() {
                        set(row, to, &value)?;
                        if *moves && from != to {
                            set(row, from, "")?;
                        }
                    }
                }
            }
            Self::Delete(names) => row.labels = row.labels.filter(|name| !is_listed(names, name)),
            Self::Keep(names) => row.labels = row.labels.filter(|name| is_listed(names, name)),
            Self::Case(names, case) => {
                for name in *names {
                    let value = case(row.labels.get(name));
                    set(row, name, &value)?;
                }
            }
            Self::Map(label, pairs) => {
                let value = row.labels.get(label);
                if let Some((_, to)) = pairs.iter().find(|(from, _)| *from == value) {
                    set(row, label, to)?;
                }
            }
            Self::Match(label, pattern, wanted) => {
                return Ok(pattern.is_match(row.labels.get(label)) == *wanted);
            }
            Self::Replace(label, pattern, to) => {
                let value = replace_all(pattern.regex(), row.labels.get(label), to)?;
                set(row, label, &value)?;
            }
            Self::Value(label) => {
                let Ok(value) = row.labels.get(label).trim().parse::<f64>() else { return Ok(false) };
                for step in 0..row.steps() {
                    if row.has(step) {
                        row.clear(step);
                        row.set(step, super::super::row::Cell::Float(value));
                    }
                }
            }
            Self::Equal(names) => {
                let mut values = names.iter().map(|name| row.labels.get(name));
                let first = values.next();
                return Ok(values.all(|value| Some(value) == first));
            }
        }
        Ok(true)
    }
}

fn is_listed(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|listed| listed.as_bytes() == name)
}

/// The text with every match replaced, as [`Regex::replace_all`] does it, within the limit of a label value.
fn replace_all(regex: &Regex, text: &str, template: &str) -> Result<String> {
    let (mut value, mut copied) = (String::new(), 0);
    for captures in regex.captures_iter(text) {
        let Some(found) = captures.get(0) else { continue };
        value.push_str(text.get(copied..found.start()).unwrap_or_default());
        copied = found.end();
        patterns::expand(&captures, template, &mut value, LABEL_VALUE_BYTES_MAX);
        check_label_value(&value)?;
    }
    value.push_str(text.get(copied..).unwrap_or_default());
    Ok(value)
}
