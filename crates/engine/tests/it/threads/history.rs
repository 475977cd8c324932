//! Requests of the threads and their results, and the database contents that follow from them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ropewalk_base::Seq;
use ropewalk_engine::{Durability, Engine, EngineError, KeySpan, Keyspace, ReadView};

/// The key that a writer's commit writes, in both keyspaces.
pub(super) type Name = (u8, u16);

/// Outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Submitted, and not completed yet or failed: it may be there or not.
    Unknown,
    /// Committed.
    Acknowledged(Seq, Durability),
    /// Refused: it must not be there.
    Refused,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) fate: Fate,
    pub(super) bytes: usize,
    /// It counted one up.
    pub(super) counts: bool,
}

/// The keyspaces: what is large, and what is small and written with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) large: Keyspace,
    pub(super) small: Keyspace,
}

pub(super) const COUNTER: &[u8] = b"counter";

#[derive(Default)]
pub(super) struct History(Mutex<BTreeMap<Name, Attempt>>);

pub(super) fn key((writer, number): Name) -> [u8; 3] {
    let [high, low] = number.to_be_bytes();
    [writer, high, low]
}

pub(super) fn value((writer, number): Name, bytes: usize) -> Vec<u8> {
    vec![(number as u8).wrapping_mul(31).wrapping_add(writer); bytes]
}

impl History {
    fn attempts(&self) -> MutexGuard<'_, BTreeMap<Name, Attempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, name: Name, bytes: usize, counts: bool) {
        self.attempts().insert(name, Attempt { fate: Fate::Unknown, bytes, counts });
    }

    pub(super) fn end(&self, name: Name, fate: Fate) {
        self.attempts().get_mut(&name).expect("it was begun").fate = fate;
    }

    fn acknowledged(&self, counts: impl Fn(Durability) -> bool) -> Seq {
        let attempts = self.attempts();
        let seqs = attempts.values().filter_map(|attempt| match attempt.fate {
            Fate::Acknowledged(seq, durability) if counts(durability) => Some(seq),
            _ => None,
        });
        seqs.max().unwrap_or(Seq::ZERO)
    }

    /// The newest commit that a power cut must leave.
    pub(super) fn durable(&self) -> Seq {
        self.acknowledged(|durability| durability == Durability::Sync)
    }

    /// The newest commit that the end of the process must leave.
    pub(super) fn written(&self) -> Seq {
        self.acknowledged(|durability| !matches!(durability, Durability::Async { .. }))
    }

    /// The newest acknowledged commit.
    pub(super) fn newest(&self) -> Seq {
        self.acknowledged(|_| true)
    }

    /// A snapshot of commit `at` holds each commit up to it, nothing of a later one, and no part of any other.
    pub(super) fn check(
        &self,
        read: ReadView<'_>,
        places: Places,
        at: Seq,
        when: &str,
    ) -> Result<(), EngineError> {
        // Check only attempts before this; commits found meanwhile may have been submitted later.
        let attempts = self.attempts().clone();
        let mut counted = (0, 0);
        for (name, attempt) in attempts {
            let large = read.get(places.large, &key(name))?.map(|value| value.to_vec());
            let small = read.get(places.small, &key(name))?.map(|value| value.to_vec());
            assert_eq!(large.is_some(), small.is_some(), "{when}: half of {name:?} is there at {at:?}");
            let there = large.is_some();
            match attempt.fate {
                Fate::Acknowledged(seq, _) => {
                    assert_eq!(there, seq <= at, "{when}: {name:?} of commit {seq:?}, read at {at:?}");
                }
                Fate::Refused => assert!(!there, "{when}: {name:?} was refused and is there at {at:?}"),
                Fate::Unknown => {}
            }
            if let Some(large) = large {
                assert!(large == value(name, attempt.bytes), "{when}: {name:?} has another value");
            }
            counted.0 += u64::from(there && attempt.counts && attempt.fate != Fate::Unknown);
            counted.1 += u64::from(attempt.counts && attempt.fate == Fate::Unknown);
        }
        let counter = counter(read, places)?;
        // The counter may already include commits that are unacknowledged in the copy of the history.
        let most = counted.0 + counted.1;
        assert!(
            (counted.0..=most).contains(&counter),
            "{when}: {counted:?} were counted, {counter} is there"
        );
        Ok(())
    }
}

pub(super) fn counter(read: ReadView<'_>, places: Places) -> Result<u64, EngineError> {
    let found = read.get(places.small, COUNTER)?;
    Ok(found.map_or(0, |value| u64::from_le_bytes((*value).try_into().expect("eight bytes"))))
}

/// Everything in a keyspace: keys and lengths of values.
pub(super) fn listing(read: ReadView<'_>, keyspace: Keyspace) -> Result<Vec<(Vec<u8>, usize)>, EngineError> {
    let mut rows = Vec::new();
    read.visit(keyspace, KeySpan::ALL, |key, value| {
        rows.push((key.to_vec(), value.len()));
        true
    })?;
    Ok(rows)
}

/// Both keyspaces of an engine.
pub(super) fn places(engine: &Engine) -> Option<Places> {
    let large = engine.keyspace("large", Default::default()).ok()?;
    let small = engine.keyspace("small", Default::default()).ok()?;
    Some(Places { large, small })
}
