//! For callers that must not wait, such as servers: statements of a text one by one, and commits that are awaited instead
//! of waited for.
//!
//! ```text
//! script(text) ─▶ next_of ─▶ submit ─▶ outcome, commit on its way ─▶ await ─▶ refused by another commit? submit again
//!                   └─ begins the transaction that several statements are    end_implicit ─▶ its commit
//! ```

use std::sync::Arc;

use ropewalk::tables::{Type, Value};
use ropewalk::{Committed, PendingCommit};

use crate::plan::prepared::{Outcome, Prepared};
use crate::session::registry::{Known, Peers};
use crate::session::row_lock_retry::RowWait;
use crate::session::{Session, begins_or_ends};
use crate::syntax::parse::{self, Statement};
use crate::types::error::Result;

/// The statements of one text that are still to be run. See [`Session::script`].
#[derive(Debug)]
pub struct Script {
    statements: std::vec::IntoIter<Statement>,
    are_several: bool,
}

impl Script {
    /// How many statements are left.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// True when none is left.
    pub fn is_empty(&self) -> bool {
        self.statements.len() == 0
    }
}

/// A statement that ran. What it answers is true once its commit is.
pub struct Submitted {
    /// What it did.
    pub outcome: Outcome,
    /// The commit that it made; `None` when it wrote nothing, or in a transaction that goes on.
    pub commit: Option<PendingCommit>,
}

/// How far a submitted statement came.
#[allow(clippy::large_enum_variant)] // it is looked at and gone
pub enum Progress {
    /// It ran.
    Ran(Submitted),
    /// Another transaction holds a row that it writes. Wait, then submit the same statement again, or [`Session::give_up`].
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

    /// Plans the next statement of a script; `None` after the last. Where there are several, outside of a transaction, one
    /// begins that is to be ended with [`Session::end_implicit`].
    pub fn next_of(&mut self, script: &mut Script, types: &[Option<Type>]) -> Option<Result<Prepared>> {
        let statement = script.statements.next()?;
        if script.are_several && !begins_or_ends(&statement) {
            self.begin_implicit();
        }
        Some(self.prepare_statement(Arc::new(statement), types))
    }

    /// Begins a transaction for what is run together, unless there is one.
    pub fn begin_implicit(&mut self) {
        if self.status() == crate::session::Status::Idle {
            self.begin(self.settings().isolation, false, true);
        }
    }

    /// Ends the transaction that nobody began in so many words, if there is one: commits it, or forgets it after an error.
    ///
    /// # Errors
    /// What is known before the commit is decided.
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

    /// Tells the session of a commit of its own that was awaited: `last_event_position()` answers by it.
    pub fn committed(&mut self, committed: &Committed) {
        self.given.note_events(Some(committed));
    }

    /// As [`Session::run`], and never waits for the disk: what was committed is on its way. A statement outside of a
    /// transaction is run once; when its commit is refused because another got there first, run it again. Before the answer goes
    /// out, ask [`Session::unsettled`].
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

    /// Plans a statement anew when a definition that it rests on changed.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn renew(&mut self, prepared: &mut Prepared) -> Result<()> {
        let renewed = self.renewed(prepared);
        self.failing(renewed)
    }

    /// Notes an error of the caller's: an open transaction fails.
    pub fn fail(&mut self) {
        // What `failing` answers is what it was given.
        let _: Result<()> = self.failing(Err(crate::expr::bug("an error of the caller's")));
    }

    /// Gives the session the number that `pg_backend_pid()` tells.
    pub fn set_number(&mut self, number: i32) {
        self.settings_mut().number = number;
    }

    /// Gives the session those beside it, for `pg_stat_activity` and its kin.
    pub fn set_peers(&mut self, peers: Arc<dyn Peers>) {
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
