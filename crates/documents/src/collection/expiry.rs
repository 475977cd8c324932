//! TTL indexes: documents go when the date in their field has passed, by normal commits.
//!
//! A sweep walks each TTL index from its oldest date on and deletes in batches, each a transaction of its own in which every
//! document is looked at again: one whose date was moved meanwhile stays.

use core::time::Duration;

use ropewalk_engine::{Durability, Repeated};

use crate::catalog::definition::Index;
use crate::error::DocumentsError;
use crate::lang::{Filter, Options, Value, Writer};
use crate::model::Documents;
use crate::model::handle::Collection;
use crate::query::plan::Hint;
use crate::query::read::Find;

/// How long a session is remembered, as in MongoDB: half an hour; and how many are forgotten at once.
const SESSION_MS: i64 = 30 * 60 * 1000;
const SESSIONS: usize = 10_000;
/// Documents of one commit of a sweep.
const BATCH: usize = 256;

impl Documents {
    /// Deletes what TTL indexes say has expired by now; answers how many documents went.
    ///
    /// # Errors
    /// The engine's; a reference that forbids it.
    pub fn sweep_expired(&self) -> Result<u64, DocumentsError> {
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

    fn sweep(&self, collection: &Collection, index: &Index, seconds: i64) -> Result<u64, DocumentsError> {
        let Some(field) = index.fields().first() else { return Ok(0) };
        let now_ms = self.now_ms();
        let mut filter = Writer::new();
        filter.open_document(&field.path);
        filter.put("$lte", Value::DateTime(now_ms.saturating_sub(seconds.saturating_mul(1000))));
        filter.close();
        let filter = filter.finish();
        let mut find = Find::matching(Filter::parse(filter.doc(), &Options::default())?).limit(BATCH);
        // An index that leaves documents out leaves them out of expiry, too.
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

    /// Sweeps in the background, with `pause` between two sweeps, for as long as the answer lives. Answers of retryable writes
    /// are forgotten by the way, half an hour after their session was used last.
    pub fn sweep_in_background(&self, pause: Duration) -> Repeated {
        let documents = self.clone();
        Repeated::start("rope-expiry", self.engine.clone(), pause, move |_| {
            // A failure is met again in the next sweep, and by whoever writes; this one has nobody to tell.
            let _ = documents.sweep_expired();
            let _ = documents.forget_sessions(documents.now_ms() - SESSION_MS, SESSIONS);
        })
    }
}
