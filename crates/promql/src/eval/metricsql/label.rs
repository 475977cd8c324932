//! Functions that change the labels of series, or choose series by them.

use regex::Regex;

use super::super::row::Row;
use super::super::{Around, Eval, Sink, Steps};
use crate::ast::*;
use crate::error::{Error, refused};
use crate::labels::METRIC_NAME;
use crate::matcher;

impl Eval<'_> {
    pub(super) fn change_labels(
        &self,
        name: &str,
        vector: &Expr,
        texts: &[&str],
        steps: Steps,
        sink: Sink<'_>,
    ) -> Result<(), Error> {
        let change = Change::new(name, texts)?;
        let mut rows = self.rows(vector, steps, Around::default())?;
        rows.list.retain_mut(|row| change.apply(row));
        self.put_together(rows, sink)
    }
}

/// What becomes of a series.
enum Change<'t> {
    /// Labels, in turn, with what they are set to.
    Set(Vec<(&'t str, &'t str)>),
    /// From one label to another, in turn, and whether the first one goes.
    Copy(Vec<(&'t str, &'t str)>, bool),
    Delete(&'t [&'t str]),
    Keep(&'t [&'t str]),
    Case(&'t [&'t str], fn(&str) -> String),
    /// A label, and which values of it become which others.
    Map(&'t str, Vec<(&'t str, &'t str)>),
    Match(&'t str, Regex, bool),
    Replace(&'t str, Regex, &'t str),
    Value(&'t str),
    Equal(&'t [&'t str]),
}

impl<'t> Change<'t> {
    fn new(name: &str, texts: &'t [&'t str]) -> Result<Self, Error> {
        let pairs = |texts: &'t [&'t str]| {
            let (pairs, rest) = texts.as_chunks::<2>();
            if !rest.is_empty() {
                return refused(format!("{name}() takes labels in pairs"));
            }
            Ok(pairs.iter().map(|[one, other]| (*one, *other)).collect::<Vec<_>>())
        };
        let regex = |pattern: &str, regex: fn(&str) -> Result<Regex, matcher::RegexError>| {
            regex(pattern).or_else(|_| refused(format!("invalid regular expression in {name}(): {pattern}")))
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
            ("label_match", [label, pattern]) => Self::Match(label, regex(pattern, matcher::whole)?, true),
            ("label_mismatch", [label, pattern]) => {
                Self::Match(label, regex(pattern, matcher::whole)?, false)
            }
            ("label_transform", [label, pattern, to]) => {
                Self::Replace(label, regex(pattern, matcher::anywhere)?, to)
            }
            ("label_value", [label]) => Self::Value(label),
            ("labels_equal", texts) => Self::Equal(texts),
            _ => return refused(format!("function {name} gives no vector")),
        })
    }

    /// Changes a series; false when it goes.
    fn apply(&self, row: &mut Row) -> bool {
        match self {
            Self::Set(pairs) => pairs.iter().for_each(|(label, value)| set(row, label, value)),
            Self::Copy(pairs, moves) => {
                for (from, to) in pairs {
                    let value = row.labels.get(from).to_owned();
                    if !value.is_empty() {
                        set(row, to, &value);
                        if *moves && from != to {
                            set(row, from, "");
                        }
                    }
                }
            }
            Self::Delete(names) => row.labels = row.labels.filter(|name| !names.contains(&name)),
            Self::Keep(names) => row.labels = row.labels.filter(|name| names.contains(&name)),
            Self::Case(names, case) => names.iter().for_each(|name| {
                let value = case(row.labels.get(name));
                set(row, name, &value);
            }),
            Self::Map(label, pairs) => {
                let value = row.labels.get(label);
                if let Some((_, to)) = pairs.iter().find(|(from, _)| *from == value) {
                    set(row, label, to);
                }
            }
            Self::Match(label, regex, wanted) => return regex.is_match(row.labels.get(label)) == *wanted,
            Self::Replace(label, regex, to) => {
                let value = regex.replace_all(row.labels.get(label), *to).into_owned();
                set(row, label, &value);
            }
            Self::Value(label) => {
                let Ok(value) = row.labels.get(label).trim().parse::<f64>() else { return false };
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
                return values.all(|value| Some(value) == first);
            }
        }
        true
    }
}

/// Sets a label, or takes it away.
fn set(row: &mut Row, label: &str, value: &str) {
    if row.labels.get(label) == value {
        return;
    }
    row.labels = row.labels.with(label, value);
    // A name that was made on purpose stays.
    row.drop_name &= label != METRIC_NAME;
}
