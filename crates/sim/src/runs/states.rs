//! The state of a model after every commit, which defines the contents of any snapshot.

use std::collections::BTreeMap;
use std::fmt::Debug;

use ropewalk::{Database, Durability, Error};
use ropewalk_sql::SqlError;

use crate::events::scenario::{Bug, Check, ensure};
use crate::runs::restarts::Boots;

/// The states of a model.
pub(crate) struct States<S> {
    /// After each commit that changed one, ascending.
    committed: Vec<(u64, S)>,
    /// States that a commit without a response may have left.
    doubts: Vec<S>,
}

impl<S: Default> Default for States<S> {
    fn default() -> Self {
        Self { committed: vec![(0, S::default())], doubts: Vec::new() }
    }
}

impl<S: Debug + PartialEq> States<S> {
    /// The state that a snapshot of commit `at` shows.
    pub(crate) fn at(&self, at: u64) -> Check<&S> {
        let found = self.committed.iter().rev().find(|(seq, _)| *seq <= at);
        found.map(|(_, state)| state).ok_or_else(|| Bug(format!("no state at commit {at}")))
    }

    pub(crate) fn latest(&self) -> Check<&S> {
        self.at(u64::MAX)
    }

    /// True if a commit after `seq` is known, or one without a response may exist.
    pub(crate) fn may_exceed(&self, seq: u64) -> bool {
        self.last() > seq || !self.doubts.is_empty()
    }

    fn last(&self) -> u64 {
        self.committed.last().map_or(0, |(seq, _)| *seq)
    }

    /// Records an acknowledged commit.
    pub(crate) fn commit(&mut self, boots: &mut Boots, seq: u64, durability: Durability, state: S) {
        boots.acknowledged(seq, durability);
        self.committed.push((seq, state));
    }

    /// Records a commit that was refused or got no response, and would leave `state`.
    pub(crate) fn fail(&mut self, boots: &mut Boots, what: &str, error: &Error, state: S) -> Check {
        if error.is_conflict() {
            boots.counts.refusals += 1;
        } else {
            boots.excuse(what, error)?;
            self.doubts.push(state);
        }
        Ok(())
    }

    /// After opening at commit `seq`: forgets lost commits, and decides about those without a response.
    pub(crate) fn reopen(&mut self, seq: u64, state: S) {
        let last = self.last();
        self.committed.retain(|(of, _)| *of <= seq);
        if seq > last && self.doubts.contains(&state) {
            self.committed.push((seq, state));
        }
        self.doubts.clear();
    }

    /// Checks the contents that readers of commit `at` find.
    pub(crate) fn check(&self, boots: &mut Boots, at: u64, found: &S) -> Check {
        boots.counts.reads += 1;
        let expected = self.at(at)?;
        ensure!(found == expected, "at commit {at}: expected {expected:?}, found {found:?}");
        Ok(())
    }

    /// Reads the newest contents, and checks them.
    pub(crate) fn read_now(&self, boots: &mut Boots, read: fn(&Database) -> Result<S, Error>) -> Check {
        let db = boots.db()?;
        let at = db.seq().0;
        match read(&db) {
            Ok(found) => self.check(boots, at, &found),
            Err(error) => boots.excuse("read", &error),
        }
    }
}

/// Stores a row or document of a model's state; `None` deletes it.
pub(crate) fn set<V: Clone>(map: &mut BTreeMap<i64, V>, key: i64, value: Option<&V>) {
    match value {
        Some(value) => map.insert(key, value.clone()),
        None => map.remove(&key),
    };
}

/// Why a statement ended the step.
pub(crate) enum Trouble {
    Bug(Bug),
    Disk(Error),
    Sql(SqlError),
}

impl Trouble {
    /// Ends the step: the disk must explain a failure. A caller would not continue with the transaction.
    pub(crate) fn excuse(self, boots: &mut Boots) -> Check {
        match self {
            Self::Bug(bug) => Err(bug),
            Self::Disk(error) => boots.excuse("statement", &error),
            Self::Sql(error) => boots.excuse_sql(&error),
        }
    }
}

impl From<Bug> for Trouble {
    fn from(bug: Bug) -> Self {
        Self::Bug(bug)
    }
}

impl<E: Into<Error>> From<E> for Trouble
where
    E: std::error::Error,
{
    fn from(error: E) -> Self {
        Self::Disk(error.into())
    }
}
