//! Series reads of a transaction: at its snapshot, recorded for validation at commit.

use ropewalk_base::Seq;
use ropewalk_engine::{Isolation, Operation};
use ropewalk_series::{SeriesAt, SeriesError, SeriesReads, SeriesStore};

use super::Transaction;
use crate::database::metrics::Metrics;
use crate::error::Error;

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
    pub fn series(&mut self, store: &SeriesStore) -> Result<SeriesAt<'_>, Error> {
        self.kv.begin_statement();
        if self.samples.iter().any(|(other, _)| other.name() == store.name()) {
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
    pub fn metrics(&mut self, store: &SeriesStore) -> Result<Metrics<'_>, Error> {
        Ok(Metrics::new(self.series(store)?))
    }
}
