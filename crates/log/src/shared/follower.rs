//! Checks that each entry of the shared log continues the one before, and puts the parts of a group together.
//!
//! Invariants
//! 1. An entry that is accepted has the next number, the chain hash of the one before, a term that is not lower, and the
//!    next commit.
//! 2. Commits are passed on in groups, each whole. A group of which the leader has not written the last part ends with the
//!    next [`EntryKind::Lead`], without a trace.
//!
//! Not here: reading entries, applying commits.

use std::borrow::Cow;

use ropewalk_base::{DecodeError, Seq};

use crate::LogError;
use crate::error::Result;
use crate::shared::{ChainHash, Entry, EntryIndex, EntryKind, FEATURE_LEVEL, Place, SharedEntry, commits};

/// A reader's place, and what it needs to check the next entry.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    place: Place,
    /// The newest place that is not in the middle of a group.
    whole: Place,
    /// Nothing is known of the entries before the next one: it is the oldest that the reader found.
    begins: bool,
    /// The leader of this term, once an entry of it was read.
    node: Option<[u8; 16]>,
    leader: Option<String>,
    parts: Option<Parts>,
    closed: bool,
}

/// The beginning of a group.
#[derive(Debug)]
struct Parts {
    first: Seq,
    count: u32,
    /// `None` when the first parts were trimmed.
    body: Option<Vec<u8>>,
}

/// An entry that continues the log.
#[derive(Debug)]
pub(crate) struct Checked<'a> {
    pub(crate) entry: Entry<'a>,
    /// The commits that it makes whole, in order, their numbers ascending from `entry.first`.
    pub(crate) group: Option<Cow<'a, [u8]>>,
}

/// The group that an entry makes whole.
enum Gathered<'a> {
    Nothing,
    Group(Cow<'a, [u8]>),
    /// Its first parts were trimmed.
    Trimmed,
}

impl Follower {
    /// A place before the first entry: it begins with the oldest one.
    pub(crate) fn new(place: Place, leader: Option<String>) -> Self {
        let begins = place.index == EntryIndex::ZERO;
        Self { place, whole: place, begins, leader, ..Self::default() }
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn whole(&self) -> Place {
        self.whole
    }

    pub(crate) fn leader(&self) -> Option<&str> {
        self.leader.as_deref()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// True when no entry was read, and none is known.
    pub(crate) fn begins(&self) -> bool {
        self.begins
    }

    /// Accepts the next entry. `recovered` is the newest commit of the local copy.
    ///
    /// # Errors
    /// [`LogError::Diverged`].
    pub(crate) fn next<'a>(&mut self, shared: &'a SharedEntry, recovered: Seq) -> Result<Checked<'a>> {
        let index = shared.index;
        let diverged = |what: String| LogError::Diverged { index, what };
        let entry = Entry::decode(&shared.bytes).map_err(|error| diverged(error.to_string()))?;
        self.check(index, &entry, recovered).map_err(diverged)?;
        let undecodable = |error: DecodeError| diverged(error.to_string());
        if entry.kind == EntryKind::Lead {
            // A log that was made from copies begins without a leader.
            let address = entry.address().map_err(undecodable)?;
            self.leader = Some(address).filter(|address| !address.is_empty()).map(str::to_owned);
            self.parts = None;
        }
        self.node = Some(entry.node);
        self.closed = entry.kind == EntryKind::Close;
        let begins = std::mem::take(&mut self.begins);
        let gathered = self.gather(&entry, begins).map_err(diverged)?;
        let (group, seq) = match gathered {
            Gathered::Nothing => (None, self.place.seq),
            Gathered::Group(body) => (Some(body), last(&entry).unwrap_or(self.place.seq)),
            Gathered::Trimmed => match last(&entry).filter(|last| *last <= recovered) {
                Some(last) => (None, last),
                None => return Err(diverged("its group begins before the oldest entry".into())),
            },
        };
        if let Some(body) = &group {
            commits(body, entry.count).map_err(undecodable)?;
        }
        self.place = Place { index, chain: ChainHash::of_entry(&shared.bytes), term: entry.term, seq };
        if self.parts.is_none() {
            self.whole = self.place;
        }
        Ok(Checked { entry, group })
    }

    /// Says why an entry does not continue the log.
    fn check(&mut self, index: EntryIndex, entry: &Entry<'_>, recovered: Seq) -> Result<(), String> {
        if entry.level > FEATURE_LEVEL {
            return Err(format!(
                "it needs feature level {}, and this version has {FEATURE_LEVEL}; a newer ropewalk reads it",
                entry.level
            ));
        }
        if entry.first.0 == 0 || last(entry).is_none() {
            return Err(format!("it has {} commits from number {} on", entry.count, entry.first));
        }
        if self.begins {
            if index != EntryIndex(1) {
                // The entries before it were trimmed, so nothing proves its chain hash, its term and its commits.
                (self.place.chain, self.place.term) = (entry.previous, entry.term);
                if entry.kind == EntryKind::Lead {
                    self.place.term = entry.term.saturating_sub(1);
                }
            }
            self.place.index = EntryIndex(index.0.saturating_sub(1));
            self.place.seq = Seq(entry.first.0 - 1);
            if self.place.seq > recovered {
                return Err(format!(
                    "it is the oldest and continues commit {}, while this database ends at commit {recovered}; \
                     a backup of a node that has more is needed",
                    self.place.seq
                ));
            }
        }
        if index != self.place.index.next() {
            return Err(format!("entry {} is next", self.place.index.next()));
        }
        if entry.previous != self.place.chain {
            return Err(format!(
                "it follows an entry with hash {}, and entry {} has {}",
                entry.previous, self.place.index, self.place.chain
            ));
        }
        self.check_order(entry)
    }

    /// Says why term, leader or commits of an entry are not those that are next.
    fn check_order(&self, entry: &Entry<'_>) -> Result<(), String> {
        let (term, newest) = (entry.term, self.place.term);
        if self.closed {
            return Err("the log was closed before it".into());
        }
        if entry.kind == EntryKind::Lead {
            if term <= newest {
                return Err(format!("its leader begins term {term} after term {newest}"));
            }
        } else if newest == 0 {
            return Err("the log does not begin with a leader".into());
        } else if term != newest || self.node.is_some_and(|node| node != entry.node) {
            return Err(format!("it is of term {term} of a node that does not lead in term {newest}"));
        }
        if entry.first != self.place.seq.next() {
            return Err(format!(
                "it continues with commit {}, and commit {} is next",
                entry.first,
                self.place.seq.next()
            ));
        }
        let is_part = matches!(entry.kind, EntryKind::Part { first: false, .. });
        if self.parts.is_some() && !is_part && entry.kind != EntryKind::Lead {
            return Err("the group before it is not whole".into());
        }
        Ok(())
    }

    /// Collects the parts of a group. `begins`: the entry is the oldest, so the parts before it may have been trimmed.
    fn gather<'a>(&mut self, entry: &Entry<'a>, begins: bool) -> Result<Gathered<'a>, String> {
        let EntryKind::Part { first, last } = entry.kind else {
            let commits = entry.kind == EntryKind::Commits;
            return Ok(if commits { Gathered::Group(Cow::Borrowed(entry.body)) } else { Gathered::Nothing });
        };
        let (begin, count) = (entry.first, entry.count);
        let mut parts = match self.parts.take() {
            None if first => Parts { first: begin, count, body: Some(Vec::new()) },
            None if begins => Parts { first: begin, count, body: None },
            Some(parts) if !first && (parts.first, parts.count) == (begin, count) => parts,
            _ => return Err("it does not continue the part before it".into()),
        };
        if let Some(body) = &mut parts.body {
            body.extend_from_slice(entry.body);
        }
        if last {
            return Ok(parts.body.map_or(Gathered::Trimmed, |body| Gathered::Group(Cow::Owned(body))));
        }
        self.parts = Some(parts);
        Ok(Gathered::Nothing)
    }

    /// Notes an entry that this node, which leads, has written; `seq` is its last commit.
    pub(crate) fn wrote(&mut self, index: EntryIndex, bytes: &[u8], (term, seq): (u64, Seq), is_whole: bool) {
        self.place = Place { index, chain: ChainHash::of_entry(bytes), term, seq };
        self.begins = false;
        (self.parts, self.leader) = (None, None);
        if is_whole {
            self.whole = self.place;
        }
    }
}

/// The last commit of an entry, or the one before it; `None` when the numbers end.
fn last(entry: &Entry<'_>) -> Option<Seq> {
    Some(Seq(entry.first.0.checked_add(u64::from(entry.count))?.checked_sub(1)?))
}
