//! Conversion of collections to capped ones.

use ropewalk_engine::{Durability, KeySpan};

use crate::catalog::capped::CappedLimits;
use crate::catalog::definition::Definition;
use crate::catalog::object_range;
use crate::error::{DocumentsError, Result};
use crate::index::entry::id_part;
use crate::index::order::{Head, key, numbered};
use crate::model::handle::Collection;
use crate::transaction::source::Source;
use crate::transaction::tx::DocumentsTx;

/// Most documents of a collection that is converted.
const CONVERTED_MAX: usize = 1_000_000;
impl DocumentsTx<'_> {
    /// Makes a collection capped. Its documents are ordered by `_id`; the first ones are deleted to fit. Its
    /// indexes remain.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownCollection`]; a reference that forbids deleting a document.
    pub fn set_capped(&mut self, collection: &Collection, capped: CappedLimits) -> Result<()> {
        self.statement(|tx| {
            let definition = tx.definition_of(collection)?.ok_or_else(|| collection.unknown())?;
            let mut changed = definition.edit()?;
            let given = changed.order.is_none();
            if given {
                changed.order = Some(tx.documents.model.new_number(&tx.documents.engine)?);
            }
            changed.options.capped = Some(capped);
            let order = changed.order;
            let mut changed = tx.put_modified(changed)?;
            if given {
                tx.put_in_order(&changed)?;
            }
            tx.make_room(&mut changed, order.expect("a capped collection has an order"), capped)
        })
    }

    /// Numbers all documents in the order.
    fn put_in_order(&mut self, definition: &Definition) -> Result<()> {
        let order = definition.order.expect("the collection was just given an order");
        let (start, end) = object_range(definition.id);
        let documents = self.spaces().documents;
        // A document inserted concurrently on the fast path would have no number in the order.
        self.kv.guard_range(documents, &start, Some(&end));
        let (mut ids, mut bytes) = (Vec::new(), 0);
        self.walk(KeySpan::forward(&start, Some(&end)), &mut |key, stored| {
            ids.push(id_part(key).to_vec());
            bytes += stored.len() as u64;
            ids.len() <= CONVERTED_MAX
        })?;
        if ids.len() > CONVERTED_MAX {
            let what = format!("a collection of more than {CONVERTED_MAX} documents cannot be capped");
            return Err(DocumentsError::InvalidOptions { what });
        }
        for (number, id) in (1_u64..).zip(&ids) {
            self.put(documents, &numbered(order, number), id)?;
            self.put(documents, &key(order, 1, id), &number.to_be_bytes())?;
        }
        let count = ids.len() as u64;
        self.put_head(order, Head { first: 1, next: count + 1, documents: count, bytes })
    }
}

impl Collection {
    /// Makes the collection capped.
    ///
    /// # Errors
    /// As [`DocumentsTx::set_capped`].
    pub fn set_capped(&self, capped: CappedLimits) -> Result<()> {
        self.documents().transact(Durability::Sync, |tx| tx.set_capped(self, capped))
    }
}
