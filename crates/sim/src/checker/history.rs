//! A history: what each transaction read and wrote, in the order of its calls, and when it ran.

use std::collections::BTreeSet;
use std::fmt;

/// Number of a version, unique among the versions of a key.
pub type Version = u64;

/// Result of a read of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The newest version of a register; `None` before the first.
    Newest(Option<Version>),
    /// All versions of a list, in the order in which they were appended.
    List(Vec<Version>),
    /// All versions of a set that only grows.
    Set(BTreeSet<Version>),
}

impl Seen {
    /// The versions that the read returned.
    pub(super) fn versions(&self) -> impl Iterator<Item = Version> {
        let (newest, list, set) = match self {
            Self::Newest(newest) => (newest.as_ref(), None, None),
            Self::List(list) => (None, Some(list), None),
            Self::Set(set) => (None, None, Some(set)),
        };
        newest.into_iter().chain(list.into_iter().flatten()).chain(set.into_iter().flatten()).copied()
    }

    /// True unless the read contradicts the earlier writes `own` of its transaction.
    pub(super) fn agrees_with(&self, own: &[Version]) -> bool {
        match (self, own.last()) {
            (_, None) => true,
            (Self::Newest(newest), last) => newest.as_ref() == last,
            (Self::List(list), _) => list.ends_with(own),
            (Self::Set(set), _) => own.iter().all(|version| set.contains(version)),
        }
    }

    /// The part of the read that other transactions wrote; `None` if own writes hide it.
    pub(super) fn without(&self, own: &[Version]) -> Option<Self> {
        match self {
            Self::Newest(newest) => own.is_empty().then_some(Self::Newest(*newest)),
            Self::List(list) => {
                let others = list.len().saturating_sub(own.len());
                Some(Self::List(list.iter().take(others).copied().collect()))
            }
            Self::Set(set) => {
                Some(Self::Set(set.iter().filter(|version| !own.contains(version)).copied().collect()))
            }
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest(None) => f.write_str("nothing"),
            Self::Newest(Some(version)) => write!(f, "{version}"),
            Self::List(list) => write!(f, "{list:?}"),
            Self::Set(set) => write!(f, "{set:?}"),
        }
    }
}

/// A read or a write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A read of a key, own writes included.
    Read(String, Seen),
    /// A write that installs a version of a key.
    Write(String, Version),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(key, seen) => write!(f, "read {key} = {seen}"),
            Self::Write(key, version) => write!(f, "write {key} = {version}"),
        }
    }
}

/// End of a transaction, as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The commit was acknowledged.
    Committed,
    /// The transaction was rolled back or rejected.
    Aborted,
    /// The commit got no response: it counts if a committed transaction read one of its versions.
    Unknown,
}

/// A transaction that was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Time before its first call; only the order of times matters.
    pub begin: u64,
    /// Time after its last call returned.
    pub end: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Its reads and writes, in order. Writes that were rolled back to a savepoint are left out.
    pub operations: Vec<Operation>,
}

/// One line about a transaction.
pub(super) fn line(history: &[Executed], number: usize) -> String {
    let Some(executed) = history.get(number) else { return format!("T{number}") };
    let operations: Vec<String> = executed.operations.iter().map(Operation::to_string).collect();
    let Executed { begin, end, outcome, .. } = executed;
    format!("T{number} [{begin}, {end}] {outcome:?}: {}", operations.join("; "))
}
