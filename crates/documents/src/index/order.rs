//! The order of a capped collection's documents.
//!
//! ```text
//! an object for each collection   0 number u64 ─▶ key of the `_id`      the documents in order; numbers rise and are never reused
//!                                 1 key of the `_id` ─▶ number u64      where a document is in it
//!                                 2 ─▶ first, next, documents, bytes    four u64; every write of the collection writes it
//! ```

use ropewalk_engine::ReadView;

use crate::catalog::Spaces;
use crate::catalog::capped::CappedLimits;
use crate::catalog::definition::Definition;
use crate::error::{DocumentsError, Result};
use crate::index::entry::KeyRange;
use crate::lang::display;

/// Summary of the order's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// No number below is in use.
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) documents: u64,
    pub(crate) bytes: u64,
}

impl Head {
    pub(crate) fn encode(self) -> Vec<u8> {
        [self.first, self.next, self.documents, self.bytes].map(u64::to_le_bytes).concat()
    }

    pub(crate) fn decode(stored: &[u8]) -> Option<Self> {
        let mut words = stored.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let head = Self {
            first: words.next()?,
            next: words.next()?,
            documents: words.next()?,
            bytes: words.next()?,
        };
        (stored.len() == 32).then_some(head)
    }

    pub(crate) fn fits(self, capped: CappedLimits) -> bool {
        self.bytes <= capped.bytes && capped.documents.is_none_or(|max| self.documents <= max)
    }
}

pub(crate) fn key(order: u32, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut key = order.to_be_bytes().to_vec();
    key.push(kind);
    key.extend_from_slice(rest);
    key
}

pub(crate) fn numbered(order: u32, number: u64) -> Vec<u8> {
    key(order, 0, &number.to_be_bytes())
}

pub(crate) fn number_of(key: &[u8]) -> Option<u64> {
    key.get(5..)?.try_into().ok().map(u64::from_be_bytes)
}

pub(crate) fn damaged(definition: &Definition) -> DocumentsError {
    DocumentsError::damaged(format!("collection {:?}", definition.name), "the order of its documents")
}

/// The key range of a capped collection's documents in their order.
pub(crate) fn range(order: u32) -> KeyRange {
    (key(order, 0, &[]), key(order, 1, &[]))
}

/// The key of the document that an entry of the order refers to.
pub(crate) fn document_of(definition: &Definition, entry: &[u8]) -> Vec<u8> {
    [&definition.id.to_be_bytes(), entry].concat()
}

/// Checks the order of a collection that has `count` documents.
pub(crate) fn verify(
    spaces: Spaces,
    read: ReadView<'_>,
    (definition, order): (&Definition, u32),
    count: u64,
    mut tell: impl FnMut(String),
) -> Result<()> {
    let name = &definition.name;
    let (start, end) = range(order);
    let mut cursor = read.cursor(spaces.documents);
    cursor.seek(&start)?;
    let mut head = Head { first: 1, next: 1, documents: 0, bytes: 0 };
    while cursor.valid() && cursor.key() < end.as_slice() {
        let (entry, id) = (cursor.key(), cursor.value());
        head.documents += 1;
        head.next = number_of(entry).map_or(head.next, |number| number + 1);
        match read.get(spaces.documents, &document_of(definition, id))? {
            Some(stored) => head.bytes += stored.len() as u64,
            None => tell(format!(
                "collection {name:?}: its order refers to a missing document at {}",
                display::key(entry)
            )),
        }
        let back = read.get(spaces.documents, &key(order, 1, id))?;
        if back.as_deref() != entry.get(5..) {
            tell(format!("collection {name:?}: {} has another position in its order", display::key(id)));
        }
        cursor.next()?;
    }
    if head.documents != count {
        tell(format!("collection {name:?}: its order has {} documents, not {count}", head.documents));
    }
    let stored = read.get(spaces.documents, &key(order, 2, &[]))?;
    let stored = stored.and_then(|stored| Head::decode(&stored));
    let right = stored.map_or(count == 0, |stored| {
        (stored.documents, stored.bytes) == (head.documents, head.bytes) && stored.next >= head.next
    });
    if !right {
        tell(format!("collection {name:?}: its order records {stored:?}, but holds {head:?}"));
    }
    Ok(())
}
