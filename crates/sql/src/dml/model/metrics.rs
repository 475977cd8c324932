//! INSERT of samples: each row is a sample of the series that its labels name.

use ropewalk::series::{Labels, METRIC_NAME, SampleBatch, SeriesStore};
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use super::{ModelInsert, null_in, text_of, unsupported};
use crate::access::row_source::Access;
use crate::dml::write::{Proposed, Written};
use crate::error::{Result, SqlError, state};
use crate::exec::relations::models::{label_of, labels_json, metric_fields};
use crate::expr::{Context, Record, bug};
use crate::limits::budget::Budget;
use crate::syntax::names::parts;
use crate::types::json;

/// Number of columns that every metric has before those of its labels.
const FIXED: usize = 3;

fn invalid(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("labels: {what}"))
}

/// The columns of every metric, followed by the labels that the statement lists.
pub(super) fn columns(listed: &[ast::ObjectName]) -> Result<Vec<(String, Type)>> {
    let mut columns = metric_fields();
    for name in listed {
        let [column]: [String; 1] =
            parts(name)?.try_into().map_err(|_| unsupported(format!("the column {name}")))?;
        if !columns.iter().any(|(known, _)| *known == column) {
            columns.push((column, Type::TEXT));
        }
    }
    Ok(columns)
}

/// The pairs of a JSON object of strings.
fn pairs(text: &str) -> Result<Vec<(String, String)>> {
    let pair = |(name, value): (String, &str)| {
        let text = json::as_text(value).filter(|_| json::kind(value) == "string");
        let text = text.ok_or_else(|| invalid(format!("the value of {name:?} is no string")))?;
        Ok((name, text.into_owned()))
    };
    json::members(text).ok_or_else(|| invalid("a JSON object is needed"))?.into_iter().map(pair).collect()
}

impl ModelInsert {
    /// Appends the rows as one batch of samples.
    pub(super) fn append_samples(
        &self,
        (store, metric): (&SeriesStore, &str),
        rows: Vec<Proposed>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let (mut batch, mut written) = (SampleBatch::new(), Written::default());
        for row in rows {
            cx.interrupt.check(cx.env)?;
            let time_ms = match row.first() {
                Some(Some(Value::Timestamptz(micros))) => micros.div_euclid(1000),
                Some(None) => cx.now.div_euclid(1000),
                _ => return Err(null_in(&self.relation, "time")),
            };
            let Some(Some(Value::Float8(value))) = row.get(1) else {
                return Err(null_in(&self.relation, "value"));
            };
            let labels = self.labels(metric, &row)?;
            batch.push(&labels, time_ms, *value);
            let row = match &self.returning {
                None => Record::new(),
                Some(_) => self.shown(&labels, time_ms, *value),
            };
            written.row(&row, self.returning.as_ref(), cx, budget)?;
        }
        if !batch.is_empty() {
            access.transaction()?.append_samples(store, &batch)?;
        }
        Ok(written)
    }

    /// The labels of a row: those of the column `labels`, and one for each other column that is not NULL.
    fn labels(&self, metric: &str, row: &Proposed) -> Result<Labels> {
        let mut labels = vec![(METRIC_NAME.to_owned(), metric.to_owned())];
        match row.get(2) {
            None | Some(None | Some(Value::Null)) => {}
            Some(Some(object)) => labels.extend(pairs(&text_of(object)?)?),
        }
        for ((column, _), value) in self.columns.iter().zip(row).skip(FIXED) {
            match value {
                None | Some(Value::Null) => {}
                Some(Value::Text(text)) => {
                    labels.push((label_of(column).to_owned(), text.clone().into_owned()))
                }
                Some(_) => return Err(bug("a label that is no text")),
            }
        }
        Ok(Labels::new(labels).map_err(ropewalk::Error::from)?)
    }

    /// The columns of a sample, for RETURNING.
    fn shown(&self, labels: &Labels, time_ms: i64, value: f64) -> Record {
        let all = labels_json(labels.iter().filter(|(name, _)| *name != METRIC_NAME));
        let fixed = [
            Value::Timestamptz(time_ms.saturating_mul(1000)),
            Value::Float8(value),
            Value::Jsonb(all.into()),
        ];
        let label = |(column, _): &(String, Type)| match labels.get(label_of(column)) {
            "" => Value::Null,
            text => Value::text(text.to_owned()),
        };
        fixed.into_iter().chain(self.columns.iter().skip(FIXED).map(label)).collect()
    }
}
