//! A writer that resolves unknown outcomes as a node does, and what it must find later.

use std::collections::HashSet;
use std::time::Duration;

use ropewalk_log::shared::{AppendError, EntryIndex, SharedEntry, SharedError, SharedLog};

/// Appends numbered payloads, each until its outcome is certain.
pub(crate) struct Writer {
    name: usize,
    next: usize,
    expected: EntryIndex,
    /// Entries that are in the log for certain.
    pub(crate) confirmed: Vec<SharedEntry>,
    /// Outcomes that were unknown at first.
    pub(crate) unknown: usize,
}

impl Writer {
    pub(crate) fn new(name: usize) -> Self {
        Self { name, next: 0, expected: EntryIndex::ZERO, confirmed: Vec::new(), unknown: 0 }
    }

    /// Appends one payload, or moves to the newest entry when another writer was earlier.
    pub(crate) fn step(&mut self, log: &dyn SharedLog) {
        let bytes = format!("payload {} of writer {}", self.next, self.name).into_bytes();
        self.next += 1;
        loop {
            match log.append(self.expected, &bytes) {
                Ok(index) => {
                    assert_eq!(index, self.expected.next());
                    return self.confirm(index, bytes);
                }
                Err(AppendError::Fenced { newest }) => {
                    assert_ne!(newest, self.expected);
                    let place = self.expected;
                    let found = read_once(log, place).expect("the newest entry is later");
                    if found.bytes == bytes {
                        return self.confirm(found.index, bytes);
                    }
                    self.expected = newest;
                    return;
                }
                Err(AppendError::Unknown { .. }) => {
                    self.unknown += 1;
                    // Less load while the server starts.
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(AppendError::Refused { cause }) => panic!("{cause}"),
            }
        }
    }

    fn confirm(&mut self, index: EntryIndex, bytes: Vec<u8>) {
        self.confirmed.push(SharedEntry { index, bytes });
        self.expected = index;
    }

    /// Fails if a confirmed entry is missing or changed, or if a payload is in the log twice or unconfirmed.
    pub(crate) fn check(&self, found: &[SharedEntry]) {
        for entry in &self.confirmed {
            assert_eq!(found.get(entry.index.0 as usize - 1), Some(entry));
        }
        let mine = format!("of writer {}", self.name);
        let mine: Vec<&SharedEntry> = found.iter().filter(|e| e.bytes.ends_with(mine.as_bytes())).collect();
        assert_eq!(mine.len(), self.confirmed.len());
        assert_eq!(mine.iter().map(|entry| &entry.bytes).collect::<HashSet<_>>().len(), mine.len());
    }
}

/// The entry after `after`, as soon as the log responds.
fn read_once(log: &dyn SharedLog, after: EntryIndex) -> Option<SharedEntry> {
    loop {
        match log.read(after, 1, Duration::ZERO) {
            Ok(entries) => return entries.into_iter().next(),
            Err(SharedError::Unavailable { .. }) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The whole log.
pub(crate) fn read_all(log: &dyn SharedLog) -> Vec<SharedEntry> {
    read_from(log, EntryIndex::ZERO)
}

/// The entries after `after`.
pub(crate) fn read_from(log: &dyn SharedLog, after: EntryIndex) -> Vec<SharedEntry> {
    let mut found: Vec<SharedEntry> = Vec::new();
    loop {
        let after = found.last().map_or(after, |entry| entry.index);
        let entries = log.read(after, 1 << 20, Duration::ZERO).unwrap();
        if entries.is_empty() {
            return found;
        }
        found.extend(entries);
    }
}
