//! TTL indexes: normal commits delete documents once the date in their field has passed.
//!
//! A sweep scans each TTL index from its oldest date on and deletes in batches. Each batch is one
//! transaction, which checks every document again: a document whose date was moved meanwhile remains.

use core::time::Duration;

use ropewalk_engine::{Durability, PeriodicTask};

use crate::catalog::definition::Index;
use crate::error::Result;
use crate::lang::{Filter, Options, Value, Writer};
use crate::model::Documents;
use crate::model::handle::Collection;
use crate::query::plan::Hint;
use crate::query::read::Find;

/// Lifetime of an unused session, as in MongoDB: half an hour; and sessions deleted at a time.
const SESSION_MS: i64 = 30 * 60 * 1000;
const SESSIONS: usize = 10_000;
/// Documents of one commit of a sweep.
const BATCH: usize = 256;

impl Documents {
    /// Deletes the documents that have expired according to TTL indexes; returns their number.
    ///
    /// # Errors
    /// The engine's; a reference that forbids it.
    pub fn sweep_expired(&self) -> Result<u64> {
        let mut deleted = 0;
        for database in self.databases()? {
            for name in self.collections(&database)? {
                let collection = self.handle(&database, &name);
                let Some(definition) = collection.definition()? else { continue };
                for index in definition.indexes.iter().filter(|index| index.ready) {
                    if let Some(seconds) = index.def.expire_after_seconds {
                        deleted += self.sweep(&collection, index, seconds)?;
                    }
                }
            }
        }
        Ok(deleted)
    }

    fn sweep(&self, collection: &Collection, index: &Index, seconds: i64) -> Result<u64> {
        // Only a damaged definition has an index without fields.
        let Some(field) = index.fields().first() else { return Ok(0) };
        let now_ms = self.now_ms();
        let mut filter = Writer::new();
        filter.open_document(&field.path);
        filter.put("$lte", Value::DateTime(now_ms.saturating_sub(seconds.saturating_mul(1000))));
        filter.close();
        let filter = filter.finish();
        let mut find = Find::matching(Filter::parse(filter.doc(), &Options::default())?).limit(BATCH);
        // An index that omits documents also excludes them from expiry.
        if !index.def.hidden {
            find = find.hint(Hint::Name(index.name.clone()));
        }
        let mut deleted = 0;
        loop {
            let batch = self.transact(Durability::Buffered, |tx| tx.delete(collection, &find))?;
            deleted += batch;
            if batch < BATCH as u64 {
                return Ok(deleted);
            }
        }
    }

    /// Sweeps in the background, with `pause` between two sweeps, until the returned handle is dropped. Also
    /// deletes stored results of retryable writes, half an hour after the last use of their session.
    pub fn sweep_in_background(&self, pause: Duration) -> PeriodicTask {
        let documents = self.clone();
        PeriodicTask::start("rope-expiry", self.engine.clone(), pause, move |_| {
            // The next sweep retries, and writers see the same failure; there is no caller to report this
            // one to.
            let _ = documents.sweep_expired();
            let _ = documents.forget_sessions(documents.now_ms() - SESSION_MS, SESSIONS);
        })
    }
}
