//! The transaction of a session: begun, committed, rolled back, its savepoints.

use std::sync::Arc;

use ropewalk::{Durability, Isolation, Transaction};
use sqlparser::ast;

use crate::announce::Announcement;
use crate::error::{Result, SqlError, state};
use crate::prepared::Outcome;
use crate::session::Session;
use crate::settings::Settings;

pub(crate) struct Open {
    pub(crate) transaction: Transaction,
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    /// When it began, microseconds since 1970.
    pub(crate) now: i64,
    /// Names of savepoints in order; a released one has none and still stands in the transaction's own list.
    pub(crate) savepoints: Vec<Option<String>>,
    /// Tables that it created.
    pub(crate) created: Vec<String>,
    /// The session's settings when it began: what a rollback goes back to.
    pub(crate) before: Arc<Settings>,
    /// Its settings after a commit: without those of SET LOCAL.
    pub(crate) lasting: Arc<Settings>,
    /// A statement ran: the isolation stands.
    pub(crate) has_run: bool,
    /// Begun by several statements in one text, not by BEGIN.
    pub(crate) is_implicit: bool,
}

impl Session {
    pub(crate) fn begin(&mut self, isolation: Isolation, read_only: bool, is_implicit: bool) {
        self.open = Some(Box::new(Open {
            transaction: self.db.begin_with(isolation),
            isolation,
            read_only,
            now: self.db.engine().env().clock.wall_micros(),
            savepoints: Vec::new(),
            created: Vec::new(),
            before: self.settings.clone(),
            lasting: self.settings.clone(),
            has_run: false,
            is_implicit,
        }));
        self.has_failed = false;
    }

    /// Forgets the transaction.
    pub(crate) fn end(&mut self) -> Option<Box<Open>> {
        self.has_failed = false;
        self.announcements.take();
        self.advisory.end_transaction();
        self.cursors.end(false);
        let open = self.open.take()?;
        self.settings = open.before.clone();
        Some(open)
    }

    pub(crate) fn commit(&mut self) -> Result<Outcome> {
        let failed = self.has_failed;
        let said = self.announcements.take();
        let durability = self.settings.durability;
        let mut cursors = std::mem::take(&mut self.cursors);
        let ended = match self.end() {
            None => Ok(no_transaction("COMMIT")),
            Some(_) if failed => Ok(Outcome::of("ROLLBACK")),
            Some(open) => self.commit_open(*open, said, durability),
        };
        cursors.end(matches!(&ended, Ok(outcome) if outcome.command == "COMMIT"));
        self.cursors = cursors;
        ended
    }

    fn commit_open(
        &mut self,
        open: Open,
        said: Vec<(usize, Announcement)>,
        durability: Durability,
    ) -> Result<Outcome> {
        match self.submits {
            true => self.pending = open.transaction.submit_with(durability)?,
            false => self.given.note_events(open.transaction.commit_with(durability)?.as_ref()),
        }
        self.announcements.commit(said);
        self.settings = open.lasting;
        Ok(Outcome::of("COMMIT"))
    }

    pub(crate) fn inside(&mut self, what: &str) -> Result<&mut Open> {
        self.open.as_deref_mut().ok_or_else(|| {
            let message = format!("{what} can only be used in transaction blocks");
            SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message)
        })
    }

    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<Outcome> {
        let open = self.inside("ROLLBACK TO SAVEPOINT")?;
        let place = open.savepoints.iter().rposition(|known| known.as_deref() == Some(name));
        let place = place.ok_or_else(|| no_savepoint(name))?;
        while open.savepoints.len() > place {
            open.savepoints.pop();
            open.transaction.rollback_to_savepoint();
        }
        // It stays, to be rolled back to again.
        open.transaction.savepoint();
        open.savepoints.push(Some(name.to_owned()));
        self.announcements.back_to(place);
        self.cursors.back_to(place);
        self.has_failed = false;
        Ok(Outcome::of("ROLLBACK"))
    }

    pub(crate) fn release(&mut self, name: &str) -> Result<Outcome> {
        let open = self.inside("RELEASE SAVEPOINT")?;
        let place = open.savepoints.iter().rposition(|known| known.as_deref() == Some(name));
        let place = place.ok_or_else(|| no_savepoint(name))?;
        open.savepoints.iter_mut().skip(place).for_each(|known| *known = None);
        Ok(Outcome::of("RELEASE"))
    }
}

pub(crate) fn modes_of(modes: &[ast::TransactionMode]) -> Result<(Option<Isolation>, Option<bool>)> {
    let (mut isolation, mut read_only) = (None, None);
    for mode in modes {
        match mode {
            ast::TransactionMode::AccessMode(mode) => {
                read_only = Some(*mode == ast::TransactionAccessMode::ReadOnly)
            }
            ast::TransactionMode::IsolationLevel(level) => {
                isolation = Some(match level {
                    ast::TransactionIsolationLevel::Serializable => Isolation::Serializable,
                    ast::TransactionIsolationLevel::RepeatableRead
                    | ast::TransactionIsolationLevel::Snapshot => Isolation::Snapshot,
                    ast::TransactionIsolationLevel::ReadCommitted
                    | ast::TransactionIsolationLevel::ReadUncommitted => Isolation::ReadCommitted,
                });
            }
        }
    }
    Ok((isolation, read_only))
}

pub(crate) fn no_transaction(command: &'static str) -> Outcome {
    let notice = SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
    Outcome { notice: Some(notice), ..Outcome::of(command) }
}

fn no_savepoint(name: &str) -> SqlError {
    SqlError::new(state::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
}
