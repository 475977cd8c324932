//! The server as the jobs of [`ropewalk_monitoring`] see it.

use std::collections::HashMap;

use ropewalk::promql::{Query, Value};
use ropewalk::series::{Metadata, SampleBatch, SeriesAt, SeriesError};
use ropewalk_monitoring::Host;
use ropewalk_wire::Service;

use crate::app::App;
use crate::ingest::metadata::Descriptions;
use crate::ingest::{self, Read};
use crate::query::{self, names};

impl Host for App {
    fn service(&self) -> &Service {
        &self.service
    }

    async fn append(&self, batch: SampleBatch, described: HashMap<String, Metadata>) -> Result<(), String> {
        let read = Read { batch, metadata: Descriptions(described), ..Read::default() };
        ingest::store_own(self, read).await.map_err(|error| error.message)
    }

    async fn evaluate(&self, query: Query, at_ms: i64) -> Result<Value, String> {
        query::evaluate_at(self, query, at_ms).await.map(|answer| answer.value).map_err(|error| error.message)
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&SeriesAt<'_>) -> Result<T, SeriesError> + Send + 'static,
    ) -> Result<T, String> {
        names::on_snapshot(self, |series| Ok(work(series)?)).await.map_err(|error| error.message)
    }
}
