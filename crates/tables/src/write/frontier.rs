//! The end of a table's rows: a row with a greater key is new, without a lookup.
//!
//! Rows often arrive in the order of their keys, such as one for each event. From the [`ROWS_MIN`]th insertion of
//! a transaction on, one search for the last row of the table replaces the lookup of each key.
//!
//! Invariant: `stored` and `written` together are at or after every row that the transaction can read. A rollback
//! leaves `written` too great, which costs lookups only.

use std::collections::BTreeMap;

/// Insertions into a table before the search, which passes the deletions after its last row.
const ROWS_MIN: u32 = 64;

/// The frontiers of the tables that a transaction writes, by the object of their rows.
#[derive(Default)]
pub(crate) struct Frontiers {
    /// Rows were written that are not counted here.
    is_off: bool,
    tables: BTreeMap<u32, Frontier>,
}

/// The greatest keys of a table's rows.
#[derive(Default)]
pub(crate) struct Frontier {
    /// Insertions that looked for their key.
    looked: u32,
    /// The greatest key of the snapshot, empty without rows; `None` before the search.
    stored: Option<Vec<u8>>,
    /// The greatest key that the transaction has written; empty without any.
    written: Vec<u8>,
}

impl Frontiers {
    /// To be called when rows are written that are not [noted](Frontiers::note).
    pub(crate) fn turn_off(&mut self) {
        self.is_off = true;
    }

    /// Forgets what was found at an earlier snapshot.
    pub(super) fn forget_stored(&mut self) {
        for frontier in self.tables.values_mut() {
            (frontier.looked, frontier.stored) = (0, None);
        }
    }

    /// Notes that the transaction writes a row.
    pub(super) fn note(&mut self, rows: u32, key: &[u8]) {
        let written = &mut self.tables.entry(rows).or_default().written;
        if written.as_slice() < key {
            written.clear();
            written.extend_from_slice(key);
        }
    }

    /// The frontier of a table, once it is worth the search.
    pub(super) fn worthwhile(&mut self, rows: u32) -> Option<&mut Frontier> {
        if self.is_off {
            return None;
        }
        let frontier = self.tables.entry(rows).or_default();
        if frontier.stored.is_none() {
            frontier.looked += 1;
        }
        (frontier.looked >= ROWS_MIN).then_some(frontier)
    }
}

impl Frontier {
    /// True if the row's key is after that of every other row; `last` finds the last one of the snapshot, if any.
    pub(super) fn is_before<E>(
        &mut self,
        key: &[u8],
        last: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<bool, E> {
        if self.stored.is_none() {
            self.stored = Some(last()?);
        }
        let stored = self.stored.as_deref();
        Ok(stored.is_some_and(|stored| stored < key) && self.written.as_slice() < key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_begins_after_some_rows_and_is_not_repeated() {
        let mut frontiers = Frontiers::default();
        for _ in 1..ROWS_MIN {
            assert!(frontiers.worthwhile(7).is_none());
        }
        let frontier = frontiers.worthwhile(7).unwrap();
        let found = |last: &'static [u8]| move || Ok::<_, ()>(last.to_vec());
        assert_eq!(frontier.is_before(b"b", found(b"b")), Ok(false));
        assert_eq!(frontier.is_before(b"c", || Err(())), Ok(true));
        frontiers.note(7, b"d");
        frontiers.note(7, b"c");
        let frontier = frontiers.worthwhile(7).unwrap();
        assert_eq!(frontier.is_before(b"d", || Err(())), Ok(false));
        assert_eq!(frontier.is_before(b"e", || Err(())), Ok(true));
        assert!(frontiers.worthwhile(8).is_none());
        frontiers.forget_stored();
        assert!(frontiers.worthwhile(7).is_none());
        for _ in 0..ROWS_MIN {
            frontiers.worthwhile(7);
        }
        // Another snapshot is searched; own writes are not forgotten.
        let frontier = frontiers.worthwhile(7).unwrap();
        assert_eq!(frontier.is_before(b"d", found(b"")), Ok(false));
        frontiers.turn_off();
        assert!(frontiers.worthwhile(7).is_none());
    }
}
