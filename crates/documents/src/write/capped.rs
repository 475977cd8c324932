//! Writes to capped collections: insertion order, within the limits; the oldest documents are deleted.
//!
//! All writers of a collection write the head of its order, so it follows the commit order and the limits
//! hold exactly.
//!
//! Source: MongoDB manual, "Capped Collections".

use std::sync::Arc;

use ropewalk_engine::KeySpan;

use crate::catalog::capped::CappedLimits;
use crate::catalog::definition::Definition;
use crate::error::{DocumentsError, Result};
use crate::index::entry::id_part;
use crate::index::order::{Head, damaged, document_of, key, number_of, numbered, range};
use crate::transaction::source::Source;
use crate::transaction::tx::DocumentsTx;

impl DocumentsTx<'_> {
    fn head(&self, definition: &Definition, order: u32) -> Result<Head> {
        match self.kv.peek(self.spaces().documents, &key(order, 2, &[]))? {
            Some(stored) => Head::decode(&stored).ok_or_else(|| damaged(definition)),
            None => Ok(Head { first: 1, next: 1, documents: 0, bytes: 0 }),
        }
    }

    pub(crate) fn put_head(&mut self, order: u32, head: Head) -> Result<()> {
        let (documents, key) = (self.spaces().documents, key(order, 2, &[]));
        self.guard(documents, &key);
        self.put(documents, &key, &head.encode())
    }

    /// Records a document inserted under `document_key` as the newest, and deletes the oldest beyond the
    /// limits.
    pub(crate) fn joined(
        &mut self,
        definition: &mut Arc<Definition>,
        document_key: &[u8],
        bytes: usize,
    ) -> Result<()> {
        // Other collections have no order.
        let Some((order, capped)) = definition.order.zip(definition.options.capped) else { return Ok(()) };
        if bytes as u64 > capped.bytes {
            let max = usize::try_from(capped.bytes).unwrap_or(usize::MAX);
            return Err(DocumentsError::TooLarge { what: "document for its capped collection", bytes, max });
        }
        let mut head = self.head(definition, order)?;
        let (number, id) = (head.next, id_part(document_key));
        head.next += 1;
        head.documents += 1;
        head.bytes += bytes as u64;
        let documents = self.spaces().documents;
        self.put(documents, &numbered(order, number), id)?;
        self.put(documents, &key(order, 1, id), &number.to_be_bytes())?;
        self.put_head(order, head)?;
        self.make_room(definition, order, capped)
    }

    /// Deletes the oldest documents until the rest fits.
    pub(crate) fn make_room(
        &mut self,
        definition: &mut Arc<Definition>,
        order: u32,
        capped: CappedLimits,
    ) -> Result<()> {
        loop {
            let mut head = self.head(definition, order)?;
            if head.fits(capped) {
                return Ok(());
            }
            let mut oldest = None;
            let (start, end) = (numbered(order, head.first), range(order).1);
            self.walk(KeySpan::forward(&start, Some(&end)), &mut |key, id| {
                oldest = Some((number_of(key), id.to_vec()));
                false
            })?;
            let Some((Some(number), id)) = oldest else { return Err(damaged(definition)) };
            head.first = number;
            self.put_head(order, head)?;
            let key = document_of(definition, &id);
            let stored = self.fetch(&key)?.ok_or_else(|| damaged(definition))?;
            self.delete_stored(definition, &key, &stored)?;
        }
    }

    /// Records the new size of a replaced document, which retains its place in the order.
    pub(crate) fn resized(&mut self, definition: &Definition, old: usize, new: usize) -> Result<()> {
        // Other collections have no order.
        let Some(order) = definition.order else { return Ok(()) };
        let mut head = self.head(definition, order)?;
        debug_assert!(head.bytes >= old as u64, "a document of {old} bytes is counted in {}", head.bytes);
        head.bytes = (head.bytes + new as u64).saturating_sub(old as u64);
        self.put_head(order, head)
    }

    /// Records that the document under `document_key` was deleted.
    pub(crate) fn left(&mut self, definition: &Definition, document_key: &[u8], bytes: usize) -> Result<()> {
        // Other collections have no order.
        let Some(order) = definition.order else { return Ok(()) };
        let (documents, place) = (self.spaces().documents, key(order, 1, id_part(document_key)));
        let number = self.kv.peek(documents, &place)?.and_then(|stored| stored.try_into().ok());
        let number = number.map(u64::from_be_bytes).ok_or_else(|| damaged(definition))?;
        self.remove(documents, &place)?;
        self.remove(documents, &numbered(order, number))?;
        let mut head = self.head(definition, order)?;
        debug_assert!(
            head.documents > 0 && head.bytes >= bytes as u64,
            "a document of {bytes} bytes is counted in {head:?}"
        );
        debug_assert!((head.first..head.next).contains(&number), "number {number} is in use by {head:?}");
        head.first += u64::from(head.first == number);
        head.documents = head.documents.saturating_sub(1);
        head.bytes = head.bytes.saturating_sub(bytes as u64);
        self.put_head(order, head)
    }
}
