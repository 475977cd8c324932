//! Non-blocking execution for servers: statements of a text one by one, and commits as futures.
//!
//! ```text
//! script(text) ─▶ next_of ─▶ submit ─▶ outcome, commit pending ─▶ await ─▶ conflict? submit again
//!                   └─ begins one transaction for several statements        end_implicit ─▶ its commit
//! ```

use std::sync::Arc;

use ropewalk::tables::{Type, Value};
use ropewalk::transaction::{Committed, PendingCommit};

use crate::access::peers::{Known, SessionRegistry};
use crate::error::Result;
use crate::session::prepared::Prepared;
use crate::session::row_lock_retry::RowWait;
use crate::session::{Session, begins_or_ends};
use crate::syntax::parse::{self, Statement};
use crate::types::outcome::Outcome;

/// The remaining statements of one text. See [`Session::script`].
#[derive(Debug)]
pub struct Script {
    statements: std::vec::IntoIter<Statement>,
    are_several: bool,
}

impl Script {
    /// Number of remaining statements.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// True when no statement is left.
    pub fn is_empty(&self) -> bool {
        self.statements.len() == 0
    }
}

/// The result of a statement that ran. It is valid once `commit` succeeded.
pub struct Submitted {
    /// The statement's result.
    pub outcome: Outcome,
    /// The pending commit; `None` when the statement wrote nothing, or its transaction is still open.
    pub commit: Option<PendingCommit>,
}

/// The state of a submitted statement.
#[allow(clippy::large_enum_variant)] // short-lived
pub enum Progress {
    /// The statement ran.
    Ran(Submitted),
    /// Another transaction holds a row that the statement writes. Wait, then submit the same statement again,
    /// or call [`Session::give_up`].
    Waits(RowWait),
}

impl Session {
    /// Parses the statements of a text.
    ///
    /// # Errors
    /// Syntax.
    pub fn script(&mut self, sql: &str) -> Result<Script> {
        let statements = self.failing(parse::statements(sql))?;
        Ok(Script { are_several: statements.len() > 1, statements: statements.into_iter() })
    }

    /// Plans the next statement of a script; `None` after the last. Several statements outside of a
    /// transaction begin an implicit one, to be ended with [`Session::end_implicit`].
    pub fn next_of(&mut self, script: &mut Script, types: &[Option<Type>]) -> Option<Result<Prepared>> {
        let statement = script.statements.next()?;
        if script.are_several && !begins_or_ends(&statement) {
            self.begin_implicit();
        }
        Some(self.prepare_statement(Arc::new(statement), types))
    }

    /// Begins an implicit transaction for several statements, unless one is open.
    pub fn begin_implicit(&mut self) {
        if self.status() == crate::session::Status::Idle {
            self.begin(self.settings().isolation, false, true);
        }
    }

    /// Ends the implicit transaction, if there is one: commits it, or rolls it back after an error.
    ///
    /// # Errors
    /// Errors that are found before the commit is submitted.
    pub fn end_implicit(&mut self) -> Result<Option<PendingCommit>> {
        if !self.is_implicit() {
            return Ok(None);
        }
        self.submits = true;
        let ended = self.commit();
        self.submits = false;
        let commit = self.pending.take();
        ended.map(|_| commit)
    }

    /// Reports an awaited commit to the session, so that `last_event_position()` returns its position.
    pub fn committed(&mut self, committed: &Committed) {
        self.given.note_events(Some(committed));
    }

    /// As [`Session::run`], without waiting for the disk: the commit is returned as a future. A statement
    /// outside of a transaction is run once; when its commit fails with a conflict, run it again. Check
    /// [`Session::unsettled`] before sending the result.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn submit(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Progress> {
        self.submits = true;
        let outcome = self.run(prepared, params);
        self.submits = false;
        let commit = self.pending.take();
        if let Some(wait) = self.waits.take() {
            return Ok(Progress::Waits(wait));
        }
        Ok(Progress::Ran(Submitted { outcome: outcome?, commit }))
    }

    /// Replans a statement if a definition that it depends on has changed.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn renew(&mut self, prepared: &mut Prepared) -> Result<()> {
        let renewed = self.renewed(prepared);
        self.failing(renewed)
    }

    /// Reports an error of the caller: an open transaction fails.
    pub fn fail(&mut self) {
        // `failing` returns the error that was passed to it.
        let _: Result<()> = self.failing(Err(crate::expr::bug("an error of the caller's")));
    }

    /// Sets the number that `pg_backend_pid()` returns.
    pub fn set_number(&mut self, number: i32) {
        self.settings_mut().number = number;
    }

    /// Sets the list of the server's sessions, for `pg_stat_activity` and session control functions.
    pub fn set_peers(&mut self, peers: Arc<dyn SessionRegistry>) {
        self.peers = Known(Some(peers));
    }

    /// Changes a setting, as SET does.
    ///
    /// # Errors
    /// 42704, 22023.
    pub fn configure(&mut self, name: &str, value: &str) -> Result<()> {
        self.settings_mut().set(&name.to_ascii_lowercase(), value)
    }
}
