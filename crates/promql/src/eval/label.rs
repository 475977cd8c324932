//! `label_replace` and `label_join`: labels derived from labels.

use ropewalk_labels::{LABEL_VALUE_BYTES_MAX, Labels, METRIC_NAME, Part};

use super::Around;
use super::Eval;
use super::Sink;
use super::call::text;
use super::check_label_value;
use super::row::{Rows, Steps};
use crate::data::patterns;
use crate::error::{Result, refused};
use crate::syntax::ast::*;

impl Eval<'_> {
    pub(super) fn label_replace(&self, call: &Call, steps: Steps, sink: Sink<'_>) -> Result<()> {
        let [vector, target, template, source, pattern] = call.args.as_slice() else {
            return refused("label_replace() takes five arguments");
        };
        let (target, template, source, pattern) =
            (text(target)?, text(template)?, text(source)?, text(pattern)?);
        let compiled = self.pattern("label_replace", Part::Whole, pattern)?;
        if target.is_empty() {
            return refused(format!("invalid destination label name in label_replace(): {target}"));
        }
        self.relabel(vector, target, steps, sink, &mut |labels| {
            let Some(captures) = compiled.regex().captures(labels.get(source)) else { return Ok(None) };
            let mut value = String::new();
            if !patterns::expand(&captures, template, &mut value, LABEL_VALUE_BYTES_MAX) {
                check_label_value(&value)?;
            }
            Ok(Some(value))
        })
    }

    pub(super) fn label_join(&self, call: &Call, steps: Steps, sink: Sink<'_>) -> Result<()> {
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
            self.budget.work(sources.len())?;
            let mut value = String::new();
            for (index, source) in sources.iter().enumerate() {
                if index > 0 {
                    value.push_str(separator);
                }
                value.push_str(labels.get(source));
                check_label_value(&value)?;
            }
            Ok(Some(value))
        })
    }

    /// Sets a label of each series to the result of `value`, if any.
    fn relabel(
        &self,
        vector: &Expr,
        target: &str,
        steps: Steps,
        sink: Sink<'_>,
        value: &mut dyn FnMut(&Labels) -> Result<Option<String>>,
    ) -> Result<()> {
        let mut rows: Rows<'_> = self.rows(vector, steps, Around::default())?;
        let Rows { list, held } = &mut rows;
        for row in list {
            // A search costs at least one step for each byte.
            self.budget.work(1 + row.labels.bytes())?;
            if let Some(value) = value(&row.labels)? {
                row.labels = self.relabeled(&row.labels, target, &value)?;
                held.grow(row.labels.bytes())?;
                // A name that was set explicitly is retained.
                row.drop_name &= target != METRIC_NAME;
            }
        }
        rows.merge()?;
        self.give(std::mem::take(&mut rows.list), sink)
    }
}
