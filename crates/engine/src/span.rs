//! The keys that a read passes over, and its direction.

use ropewalk_store::{Cursor, StoreError};

/// The keys from `start` up to, not including, `end` (none: to the last), in either direction.
#[derive(Debug, Clone, Copy)]
pub struct KeySpan<'k> {
    /// The least key.
    pub start: &'k [u8],
    /// The end, which is excluded.
    pub end: Option<&'k [u8]>,
    /// From the greatest key to the least.
    pub backward: bool,
}

/// Takes keys and their values until it returns false.
pub type EachEntry<'e> = dyn FnMut(&[u8], &[u8]) -> bool + 'e;

impl<'k> KeySpan<'k> {
    /// Every key.
    pub const ALL: Self = Self { start: &[], end: None, backward: false };

    /// The keys from the least to the greatest.
    pub fn forward(start: &'k [u8], end: Option<&'k [u8]>) -> Self {
        Self { start, end, backward: false }
    }

    pub(crate) fn contains(self, key: &[u8]) -> bool {
        self.start <= key && self.end.is_none_or(|end| key < end)
    }

    /// Moves a cursor to the first key in the direction. It may lie outside of the span.
    pub(crate) fn seek(self, cursor: &mut Cursor<'_>) -> Result<(), StoreError> {
        match self.end {
            _ if !self.backward => cursor.seek(self.start),
            None => cursor.last(),
            Some(end) => {
                cursor.seek_for_prev(end)?;
                if cursor.valid() && cursor.key() == end { cursor.prev() } else { Ok(()) }
            }
        }
    }

    /// Moves a cursor to the next key in the direction.
    pub(crate) fn advance(self, cursor: &mut Cursor<'_>) -> Result<(), StoreError> {
        if self.backward { cursor.prev() } else { cursor.next() }
    }
}
