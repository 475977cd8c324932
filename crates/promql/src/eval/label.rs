//! `label_replace` and `label_join`: labels made from labels.

use super::call::text;
use super::row::{Rows, Steps};
use super::{Around, Eval, Sink};
use crate::ast::*;
use crate::error::{Error, refused};
use crate::labels::{Labels, METRIC_NAME};
use crate::matcher;

impl Eval<'_> {
    pub(super) fn label_replace(&self, call: &Call, steps: Steps, sink: Sink<'_>) -> Result<(), Error> {
        let [vector, target, template, source, pattern] = call.args.as_slice() else {
            return refused("label_replace() takes five arguments");
        };
        let (target, template, source, pattern) =
            (text(target)?, text(template)?, text(source)?, text(pattern)?);
        let regex = matcher::whole(pattern)
            .or_else(|_| refused(format!("invalid regular expression in label_replace(): {pattern}")))?;
        if target.is_empty() {
            return refused(format!("invalid destination label name in label_replace(): {target}"));
        }
        self.relabel(vector, target, steps, sink, &mut |labels| {
            let captures = regex.captures(labels.get(source))?;
            let mut value = String::new();
            captures.expand(template, &mut value);
            Some(value)
        })
    }

    pub(super) fn label_join(&self, call: &Call, steps: Steps, sink: Sink<'_>) -> Result<(), Error> {
        let [vector, target, separator, sources @ ..] = call.args.as_slice() else {
            return refused("label_join() takes at least three arguments");
        };
        let (target, separator) = (text(target)?, text(separator)?);
        let sources = sources.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        if sources.contains(&"") {
            return refused("invalid source label name in label_join(): ");
        }
        if target.is_empty() {
            return refused(format!("invalid destination label name in label_join(): {target}"));
        }
        self.relabel(vector, target, steps, sink, &mut |labels| {
            let parts: Vec<&str> = sources.iter().map(|source| labels.get(source)).collect();
            Some(parts.join(separator))
        })
    }

    /// Sets a label of each series to what `value` makes of its labels, if anything.
    fn relabel(
        &self,
        vector: &Expr,
        target: &str,
        steps: Steps,
        sink: Sink<'_>,
        value: &mut dyn FnMut(&Labels) -> Option<String>,
    ) -> Result<(), Error> {
        let mut rows: Rows<'_> = self.rows(vector, steps, Around::default())?;
        for row in &mut rows.list {
            if let Some(value) = value(&row.labels) {
                row.labels = row.labels.with(target, &value);
                // A name that was made on purpose stays.
                row.drop_name &= target != METRIC_NAME;
            }
        }
        rows.merge()?;
        self.give(std::mem::take(&mut rows.list), sink)
    }
}
