//! The newest entry that this process knows to be in the log.

use ropewalk_base::hash64;
use ropewalk_base::sync::Mutex;
use ropewalk_log::shared::{EntryIndex, SharedError, SharedResult};

/// Number and hash of the newest entry that was confirmed to this process or read by it.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Option<KnownEntry>>);

/// An entry, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownEntry {
    pub(crate) index: EntryIndex,
    hash: u64,
}

impl Known {
    /// The entry as of now. It is read before a statement whose result is compared with it: meanwhile, the other connection
    /// may learn an entry that the statement cannot have seen.
    pub(crate) fn get(&self) -> Option<KnownEntry> {
        *self.0.lock()
    }

    /// Remembers an entry unless a newer one is known.
    pub(crate) fn learn(&self, index: EntryIndex, bytes: &[u8]) {
        let hash = hash64(bytes);
        let mut known = self.0.lock();
        if known.is_none_or(|known| known.index < index) {
            *known = Some(KnownEntry { index, hash });
        }
    }
}

/// Fails if the log ended at `newest` after the entry was known.
pub(crate) fn check_end(known: Option<KnownEntry>, newest: EntryIndex) -> SharedResult<()> {
    match known {
        Some(known) if newest < known.index => Err(SharedError::Lost {
            what: format!(
                "it ends at entry {newest}, but entry {} was confirmed or read before",
                known.index
            ),
        }),
        _ => Ok(()),
    }
}

impl KnownEntry {
    /// Fails if the log has no such entry at this place, or another one.
    pub(crate) fn check(self, bytes: Option<&[u8]>) -> SharedResult<()> {
        let index = self.index;
        match bytes {
            Some(bytes) if hash64(bytes) == self.hash => Ok(()),
            Some(_) => Err(SharedError::Lost {
                what: format!("entry {index} is not the one that was confirmed or read before"),
            }),
            None => Err(SharedError::Lost { what: format!("entry {index} is missing") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_entry_is_remembered_and_compared() {
        let known = Known::default();
        assert_eq!(check_end(known.get(), EntryIndex::ZERO), Ok(()));
        known.learn(EntryIndex(2), b"two");
        known.learn(EntryIndex(1), b"one");
        let entry = known.get().unwrap();
        assert_eq!(entry.index, EntryIndex(2));
        assert_eq!(entry.check(Some(b"two")), Ok(()));
        assert!(matches!(entry.check(Some(b"one")), Err(SharedError::Lost { .. })));
        assert!(matches!(entry.check(None), Err(SharedError::Lost { .. })));
        assert_eq!(check_end(known.get(), EntryIndex(2)), Ok(()));
        assert!(matches!(check_end(known.get(), EntryIndex(1)), Err(SharedError::Lost { .. })));
    }
}
