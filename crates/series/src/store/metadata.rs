//! Metadata, one per metric name, and exemplars, one per series and time: writing the former, reading both.
//!
//! Both are ordinary entries of keyspaces (see `storage::keys`), so they are part of every snapshot.

use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, Seq, keys};
use ropewalk_engine::{Durability, ModelId, Operation, Outcome, ReadView, Rejection, Verdict};
use ropewalk_labels::{LABEL_VALUE_BYTES_MAX, Labels, Matcher};

use crate::error::{Result, SeriesError};
use crate::model::{SERIES, SeriesModel};
use crate::query::select::SeriesAt;
use crate::sample::batch::Exemplar;
use crate::sample::metadata::{HELP_BYTES_MAX, Metadata, UNIT_BYTES_MAX};
use crate::storage::keys::{exemplar_key, metadata_key};
use crate::storage::section::put_metadata;
use crate::store::SeriesStore;

/// Sets the metadata of metrics.
struct MetadataOperation {
    model: Arc<SeriesModel>,
    store: String,
    all: Vec<(String, Metadata)>,
}

impl MetadataOperation {
    /// True when every entry is stored already.
    fn is_there(&self, latest: ReadView<'_>) -> Result<bool> {
        let Some(state) = self.model.find(&self.store) else { return Ok(false) };
        for (metric, metadata) in &self.all {
            let mut value = Vec::new();
            metadata.encode(&mut value);
            let found = latest.get(self.model.meta(), &metadata_key(state.id, metric))?;
            if found.is_none_or(|found| *found != *value) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Operation for MetadataOperation {
    fn model(&self) -> ModelId {
        SERIES
    }

    fn bytes_max(&self) -> usize {
        let entry = |(metric, m): &(String, Metadata)| metric.len() + m.unit.len() + m.help.len() + 32;
        self.store.len() + 64 + self.all.iter().map(entry).sum::<usize>()
    }

    fn validate(&mut self, latest: ReadView<'_>) -> Result<Verdict, Rejection> {
        self.model.check_new(&self.store)?;
        // Scrapers repeat the same metadata.
        let there = self.is_there(latest)?;
        Ok(if there { Verdict::Done((0, 0)) } else { Verdict::Write })
    }

    fn encode(&mut self, _seq: Seq, _time_micros: i64, out: &mut Vec<u8>) -> Outcome {
        let state = self.model.find(&self.store);
        let id = state.as_ref().map_or_else(|| self.model.new_id(), |state| state.id);
        let creates = state.is_none().then_some(self.store.as_str());
        put_metadata(out, (id, creates), &self.all);
        (self.all.len() as u64, 0)
    }
}

impl SeriesStore {
    /// Sets type, unit and help of metrics, in one commit. Writes nothing when they are stored already.
    ///
    /// # Errors
    /// [`SeriesError::Invalid`]: an empty name, or over the limits. The engine's.
    pub fn set_metadata(&self, all: &[(String, Metadata)]) -> Result<()> {
        for (metric, metadata) in all {
            let lengths = [
                ("a metric's name", metric.len(), LABEL_VALUE_BYTES_MAX),
                ("a unit", metadata.unit.len(), UNIT_BYTES_MAX),
                ("a help text", metadata.help.len(), HELP_BYTES_MAX),
            ];
            if metric.is_empty() {
                return Err(SeriesError::Invalid { what: "the name of a metric is empty".into() });
            }
            if let Some((what, len, max)) = lengths.into_iter().find(|(_, len, max)| len > max) {
                let what = format!("{what} has {len} bytes; at most {max} are allowed");
                return Err(SeriesError::Invalid { what });
            }
        }
        if all.is_empty() {
            return Ok(());
        }
        let (model, store) = (self.model.clone(), self.name().to_owned());
        let operation = MetadataOperation { model, store, all: all.to_vec() };
        self.engine.commit(vec![Box::new(operation)], Durability::Sync)?;
        Ok(())
    }
}

impl SeriesAt<'_> {
    /// Metadata of the metric `metric`, or of all metrics, by name, at most `limit`.
    ///
    /// # Errors
    /// Damage.
    pub fn metadata(&self, metric: Option<&str>, limit: usize) -> Result<Vec<(String, Metadata)>> {
        let mut found = Vec::new();
        self.each_metadata(metric, limit, |name, metadata| {
            found.push((name.to_owned(), metadata));
            Ok::<_, SeriesError>(())
        })?;
        Ok(found)
    }

    /// As [`SeriesAt::metadata`], passed to `each`, which can end the list by an error.
    ///
    /// # Errors
    /// Damage; those of `each`.
    pub fn each_metadata<E: From<SeriesError>>(
        &self,
        metric: Option<&str>,
        limit: usize,
        mut each: impl FnMut(&str, Metadata) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((read, model, state)) = self.parts() else { return Ok(()) };
        let mut cursor = read.cursor(model.meta());
        let prefix = metadata_key(state.id, "");
        let start = metadata_key(state.id, metric.unwrap_or_default());
        let mut left = limit;
        cursor.seek(&start).map_err(SeriesError::from)?;
        while cursor.valid() && left > 0 {
            let Some(name) = cursor.key().strip_prefix(prefix.as_slice()) else { break };
            if metric.is_some_and(|metric| metric.as_bytes() != name) {
                break;
            }
            let bad = |what: String| SeriesError::Damaged { place: "metadata of a metric".into(), what };
            let name = std::str::from_utf8(name).map_err(|error| bad(error.to_string()))?;
            let metadata = Metadata::decode(&mut Decoder::new(cursor.value()))
                .map_err(|error| bad(error.to_string()))?;
            each(name, metadata)?;
            left -= 1;
            cursor.next().map_err(SeriesError::from)?;
        }
        Ok(())
    }

    /// The exemplars from `from_ms` to `to_ms`, both inclusive, of the series for which all `matchers` hold, with their
    /// series, by series and time, at most `limit`.
    ///
    /// # Errors
    /// Damage.
    pub fn exemplars(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
        limit: usize,
    ) -> Result<Vec<(Labels, Exemplar)>> {
        let mut found = Vec::new();
        self.each_exemplar(matchers, (from_ms, to_ms), limit, |labels, exemplar| {
            found.push((labels.clone(), exemplar));
            Ok::<_, SeriesError>(())
        })?;
        Ok(found)
    }

    /// As [`SeriesAt::exemplars`], passed to `each`, which can end the list by an error.
    ///
    /// # Errors
    /// Damage; those of `each`.
    pub fn each_exemplar<E: From<SeriesError>>(
        &self,
        matchers: &[Matcher],
        (from_ms, to_ms): (i64, i64),
        limit: usize,
        mut each: impl FnMut(&Labels, Exemplar) -> Result<(), E>,
    ) -> Result<(), E> {
        let (Some((read, model, state)), ids) = (self.parts(), self.found(matchers).1) else {
            return Ok(());
        };
        let mut cursor = read.cursor(model.exemplars());
        let mut left = limit;
        for id in ids {
            if left == 0 {
                break;
            }
            let labels = state.index.read().labels(id).map(|labels| labels.to_owned());
            let (Some(labels), last) = (labels, exemplar_key(state.id, id, to_ms)) else { continue };
            cursor.seek(&exemplar_key(state.id, id, from_ms)).map_err(SeriesError::from)?;
            while cursor.valid() && cursor.key() <= last.as_slice() && left > 0 {
                let exemplar = take_exemplar(cursor.key(), cursor.value()).map_err(|error| {
                    SeriesError::Damaged { place: format!("exemplar of {labels}"), what: error.to_string() }
                })?;
                each(&labels, exemplar)?;
                left -= 1;
                cursor.next().map_err(SeriesError::from)?;
            }
        }
        Ok(())
    }
}

fn take_exemplar(key: &[u8], value: &[u8]) -> Result<Exemplar, DecodeError> {
    let (time_ms, _) = keys::take_i64(key.get(8..).unwrap_or_default())?;
    let mut decoder = Decoder::new(value);
    let value = f64::from_bits(decoder.u64("value of an exemplar")?);
    let labels = match decoder.rest() {
        [] => None,
        bytes => {
            let bad = |_| DecodeError { what: "labels of an exemplar", offset: 8 };
            Some(Labels::from_bytes(bytes).map_err(bad)?)
        }
    };
    Ok(Exemplar { time_ms, value, labels })
}
