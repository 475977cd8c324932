//! Loaded objects that belong to no table yet, and their removal. See `load::loader` for the steps.

use ropewalk_engine::{Isolation, Keyspace, KvTransaction, Operation};

use crate::catalog::tables::Tables;
use crate::catalog::{loading_key, object_key, object_range};
use crate::error::Result;

/// Most attempts to settle objects while others commit. The rest is settled when the database is opened
/// again.
const ATTEMPTS: usize = 100;

/// Declared objects, deleted unless a commit gave them to a table.
pub(crate) struct Loaded {
    pub(crate) tables: Tables,
    pub(crate) objects: Vec<u32>,
}

impl Loaded {
    /// Leaves the objects to the commit; they are settled later.
    pub(crate) fn hand_over(mut self) {
        let objects = std::mem::take(&mut self.objects);
        self.tables.model.handed_over.lock().extend(objects);
    }

    /// The catalog entries of the objects while they are being loaded.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (Keyspace, [u8; 5])> {
        let catalog = self.tables.model.spaces().catalog;
        self.objects.iter().map(move |object| (catalog, loading_key(*object)))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if !self.objects.is_empty() {
            // Objects that cannot be settled now are settled when the database is opened again.
            let _ = self.tables.settle(&self.objects);
        }
    }
}

impl Tables {
    /// Deletes objects left by finished loads, unless the commit gave them to a table. To be called after
    /// the commit; otherwise it happens before the next load. A load whose commit is still in progress would
    /// be rejected.
    ///
    /// # Errors
    /// The engine's.
    pub fn remove_orphaned_loads(&self) -> Result<()> {
        let objects = std::mem::take(&mut *self.model.handed_over.lock());
        if objects.is_empty() { Ok(()) } else { self.settle(&objects) }
    }

    /// Ends the loading of these objects: those of a table remain, the others are deleted. Serializable, to
    /// detect a concurrent commit that gives them to a table.
    pub(crate) fn settle(&self, objects: &[u32]) -> Result<()> {
        let spaces = self.model.spaces();
        for _ in 0..ATTEMPTS {
            let mut kv = KvTransaction::new(self.engine.clone(), Isolation::Serializable);
            for &object in objects {
                if kv.get(spaces.catalog, &loading_key(object))?.is_none() {
                    continue;
                }
                if kv.get(spaces.catalog, &object_key(object))?.is_none() {
                    let (start, end) = object_range(object);
                    kv.sweep_range(spaces.rows, &start, &end.unwrap_or([0xff; 4]));
                }
                kv.delete(spaces.catalog, &loading_key(object));
            }
            if !kv.has_writes() {
                return Ok(());
            }
            let operation: Box<dyn Operation> = Box::new(kv.into_batch());
            match self.commit(vec![operation]) {
                Err(error) if error.is_conflict() => {}
                result => return result,
            }
        }
        Ok(())
    }
}
