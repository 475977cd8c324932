//! Samples of a transaction: its appends, and its reads at its snapshot, recorded for validation at commit.

use ropewalk_base::Seq;
use ropewalk_engine::{EngineError, Isolation, Operation, TRANSACTION_BYTES_MAX};
use ropewalk_series::{AppendSamples, SampleBatch, SeriesAt, SeriesError, SeriesReads, SeriesStore};

use super::Transaction;
use crate::database::metrics::Metrics;
use crate::error::Result;

/// Most memory of the samples that one transaction appends. The record of its commit has them compressed.
const APPENDS_BYTES_MAX: u64 = 4 * TRANSACTION_BYTES_MAX;
/// Memory of one append in addition to its labels and samples.
const APPEND_OVERHEAD: usize = 512;

/// Largest prepared append that is retained until the commit, next to its samples.
const PREPARED_BYTES_MAX: usize = 64 << 10;

/// Samples to append at commit.
struct Appended {
    store: SeriesStore,
    batch: SampleBatch,
    /// The append as it was checked. A large one is prepared again, since it would double the memory.
    prepared: Option<AppendSamples>,
    /// Memory of this append and the earlier ones.
    bytes: usize,
}

/// The appends of samples, in order.
#[derive(Default)]
pub(super) struct SamplesAppended(Vec<Appended>);

impl SamplesAppended {
    /// Number of appends, for [`Self::truncate`].
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes the appends after the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Approximate memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.last().map_or(0, |appended| appended.bytes)
    }

    fn has(&self, store: &SeriesStore) -> bool {
        self.0.iter().any(|appended| appended.store.name() == store.name())
    }

    /// Adds an append, if it fits the limit.
    pub(super) fn push(
        &mut self,
        store: &SeriesStore,
        batch: &SampleBatch,
        prepared: AppendSamples,
    ) -> Result<()> {
        let bytes = self.bytes() + batch.bytes() + APPEND_OVERHEAD;
        if bytes as u64 > APPENDS_BYTES_MAX {
            return Err(EngineError::TooLarge { bytes: bytes as u64, max: APPENDS_BYTES_MAX }.into());
        }
        let prepared = Some(prepared).filter(|prepared| prepared.bytes_max() <= PREPARED_BYTES_MAX);
        self.0.push(Appended { store: store.clone(), batch: batch.clone(), prepared, bytes });
        Ok(())
    }

    /// The operations of the commit: one for each store, with its name.
    pub(super) fn into_operations(self) -> Result<Vec<(String, Box<dyn Operation>)>> {
        let mut stores: Vec<Appended> = Vec::new();
        for appended in self.0 {
            match stores.iter_mut().find(|other| other.store.name() == appended.store.name()) {
                Some(all) => {
                    all.batch.extend(&appended.batch);
                    all.prepared = None;
                }
                None => stores.push(appended),
            }
        }
        let operation = |Appended { store, batch, prepared, .. }: Appended| -> Result<_> {
            let operation = match prepared.filter(AppendSamples::is_current) {
                Some(prepared) => prepared,
                None => store.operation(&batch)?,
            };
            Ok((store.name().to_owned(), Box::new(operation) as Box<dyn Operation>))
        };
        stores.into_iter().map(operation).collect()
    }
}

/// The recorded reads, by series store.
#[derive(Default)]
pub(super) struct SamplesRead(Vec<(SeriesStore, SeriesReads)>);

impl SamplesRead {
    /// Cost: see [`SeriesStore::read_guard`].
    pub(super) fn guards(&self) -> impl Iterator<Item = Box<dyn Operation>> {
        self.0.iter().map(|(store, reads)| Box::new(store.read_guard(reads)) as Box<dyn Operation>)
    }

    fn of(&mut self, store: &SeriesStore, since: Seq) -> &SeriesReads {
        let known = self.0.iter().position(|(known, _)| known.name() == store.name());
        let place = known.unwrap_or_else(|| {
            self.0.push((store.clone(), SeriesReads::new(since)));
            self.0.len() - 1
        });
        let (_, reads) = self.0.get(place).expect("the place was found or made");
        reads
    }
}

impl Transaction {
    /// Returns a series store at the snapshot of this transaction.
    ///
    /// With [`Isolation::Serializable`] the commit fails with a conflict if another transaction changed what
    /// was read: samples by their matchers and times, lists of series and labels by their matchers, including
    /// new series that match. Use [`crate::Snapshot::series`] of [`Transaction::snapshot`] to read without
    /// this validation.
    ///
    /// ```
    /// use ropewalk::series::{Labels, Matcher, SampleBatch};
    /// use ropewalk::{Database, Error, Isolation};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let db = Database::in_memory()?;
    /// let store = db.series("limits")?;
    /// let grants = [Matcher::equal("__name__", "grants")];
    /// db.transact(Isolation::Serializable, 10, |tx| {
    ///     if tx.series(&store)?.count(&grants) == 0 {
    ///         let mut batch = SampleBatch::new();
    ///         batch.push(&Labels::new([("__name__", "grants")])?, 1_000, 1.0);
    ///         tx.append_samples(&store, &batch)?;
    ///     }
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SeriesError::OwnSamples`] if this transaction has appended to the store: read first.
    pub fn series(&mut self, store: &SeriesStore) -> Result<SeriesAt<'_>> {
        self.kv.begin_statement();
        if self.samples.has(store) {
            return Err(SeriesError::OwnSamples { store: store.name().to_owned() }.into());
        }
        let snapshot = self.kv.snapshot();
        if self.kv.isolation() != Isolation::Serializable {
            return Ok(store.at(snapshot));
        }
        let reads = self.samples_read.of(store, snapshot.seq());
        Ok(store.at_noting(snapshot, reads))
    }

    /// Same as [`Transaction::series`], as a PromQL data source.
    ///
    /// # Errors
    /// As [`Transaction::series`].
    pub fn metrics(&mut self, store: &SeriesStore) -> Result<Metrics<'_>> {
        Ok(Metrics::new(self.series(store)?))
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_labels::Labels;

    use super::*;
    use crate::database::Database;
    use crate::error::Error;

    #[test]
    fn appended_samples_are_bounded_until_they_are_rolled_back() {
        let db = Database::in_memory().unwrap();
        let store = db.series("default").unwrap();
        let mut batch = SampleBatch::new();
        batch.push(&Labels::new([("__name__", "a")]).unwrap(), 1, 1.0);
        let mut tx = db.begin();
        tx.savepoint();
        tx.append_samples(&store, &batch).unwrap();
        let one = tx.write_bytes();
        assert!(one > APPEND_OVERHEAD, "{one}");
        // As if many samples had been appended.
        let bytes = APPENDS_BYTES_MAX as usize - one;
        tx.samples.0.push(Appended { store: store.clone(), batch: batch.clone(), prepared: None, bytes });
        tx.append_samples(&store, &batch).unwrap();
        let refused = tx.append_samples(&store, &batch).unwrap_err();
        assert!(matches!(refused, Error::Engine(EngineError::TooLarge { .. })), "{refused}");
        assert!(tx.rollback_to_savepoint());
        assert_eq!(tx.write_bytes(), 0);
        tx.append_samples(&store, &batch).unwrap();
        tx.commit().unwrap();
    }
}
