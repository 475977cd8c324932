//! The server that the jobs run in, as they see it.

use std::collections::HashMap;
use std::future::Future;

use ropewalk::promql::{Query, Value};
use ropewalk::series::{Metadata, SampleBatch, SeriesAt, SeriesError};
use ropewalk_wire::Service;

/// The server that the jobs run in, and its series store.
pub trait Host: Clone + Send + Sync + 'static {
    /// Limits, metrics, and the signal to stop.
    fn service(&self) -> &Service;

    /// Stores samples, and descriptions of metrics by name; durable when it returns.
    ///
    /// # Errors
    /// As text. No sample was stored, or the samples were stored without the descriptions.
    fn append(
        &self,
        batch: SampleBatch,
        described: HashMap<String, Metadata>,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Evaluates a query at one time.
    ///
    /// # Errors
    /// As text, such as a limit that the query exceeds.
    fn evaluate(&self, query: Query, at_ms: i64) -> impl Future<Output = Result<Value, String>> + Send;

    /// Runs `work` on a snapshot of the series, on a thread that may block.
    ///
    /// # Errors
    /// As text, that of `work`.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SeriesAt<'_>) -> Result<T, SeriesError> + Send + 'static,
    ) -> impl Future<Output = Result<T, String>> + Send;
}
