//! Rows of a PromQL query, within the statement's time and the memory of all PromQL queries.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use ropewalk::series::SeriesStore;
use ropewalk::tables::Value;
use ropewalk::{Database, promql};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::exec::relations::models::labels_json;
use crate::exec::relations::{Computed, Part, RowSink};
use crate::limits::interrupt::Watch;

/// The memory shared by the PromQL queries of a database, if any.
#[derive(Debug, Default)]
struct PromqlMemory(OnceLock<Arc<promql::SharedMemory>>);

/// Counts the memory of `promql()` against the memory shared by all PromQL queries of the database. The first
/// call wins.
pub fn share_promql_memory(db: &Database, memory: Arc<promql::SharedMemory>) {
    db.extension::<PromqlMemory>().0.get_or_init(|| memory);
}

/// The query, counting its memory there.
pub(super) fn sharing(db: &Database, query: promql::Query) -> promql::Query {
    match db.extension::<PromqlMemory>().0.get() {
        Some(shared) => query.sharing(shared.clone()),
        None => query,
    }
}

/// Samples of a query between two times, at a step, in milliseconds.
pub(super) struct PromqlPart {
    pub(super) store: SeriesStore,
    pub(super) query: Arc<promql::Query>,
    pub(super) times: (i64, i64, i64),
}

impl Part for PromqlPart {
    fn read(&self, access: &mut Access<'_>, watch: &Watch, row: &mut RowSink<'_>) -> Result<()> {
        let metrics = access.metrics(&self.store)?;
        let (from, to, step) = self.times;
        let failed = |error: promql::Error| match error {
            promql::Error::Budget(
                error @ (promql::BudgetError::Memory { .. } | promql::BudgetError::Shared { .. }),
            ) => SqlError::new(state::OUT_OF_MEMORY, format!("promql: {error}"))
                .hint("select fewer series, fewer steps, or give the session more memory"),
            error => SqlError::new(state::INVALID_PARAMETER_VALUE, format!("promql: {error}")),
        };
        let answer = self
            .query
            .range(&metrics, from, to, step, &|| watch.query())
            .map_err(|error| watch.check().err().unwrap_or_else(|| failed(error)))?;
        let promql::Value::Matrix(all) = answer.value else {
            return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "promql: no series"));
        };
        for series in &all {
            let labels = labels_json(series.labels.iter());
            for (time, sample) in &series.samples {
                let input = Computed(&|column| {
                    Ok(match (column, sample) {
                        (0, _) => Value::Timestamptz(time.saturating_mul(1000)),
                        (1, promql::Sample::Float(value)) => Value::Float8(*value),
                        (1, promql::Sample::Histogram(_)) => Value::Null,
                        _ => Value::Jsonb(Cow::Borrowed(&labels)),
                    })
                });
                if !row(&input)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
