//! A client session: runs statements, and holds the transaction that they run in.
//!
//! ```text
//!  idle ──BEGIN──▶ open ──error──▶ failed        idle: each statement is its own transaction,
//!   ▲               │  ▲              │                retried after a conflict
//!   └─COMMIT,ROLLBACK  └─ROLLBACK TO──┤          failed: only ROLLBACK, ROLLBACK TO and COMMIT,
//!   └────────────ROLLBACK, COMMIT─────┘                  which rolls back
//! ```

pub(crate) mod async_statements;
pub(crate) mod auto_parameters;
pub(crate) mod borrowed;
pub(crate) mod commands;
pub(crate) mod constraints;
pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod event_statement;
pub(crate) mod explain;
mod explain_formats;
pub(crate) mod notify;
pub(crate) mod parsed;
pub(crate) mod plan_cache;
pub(crate) mod prepared;
pub(crate) mod projections;
pub(crate) mod reuse;
pub(crate) mod rights;
pub(crate) mod row_lock_retry;
pub(crate) mod set;
pub(crate) mod transaction;

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk::tables::{Type, Value};
use ropewalk::transaction::PendingCommit;
use ropewalk::{Database, Isolation, Seq, Transaction};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::access::standing::Standing;
use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::limits::budget::Budget;
use crate::limits::interrupt::{Canceller, Interrupt};
use crate::limits::quota::Hold;
use crate::session::cursor::Cursors;
use crate::session::notify::Announcements;
use crate::session::plan_cache::PlanCache;
use crate::session::prepared::{Plan, Prepared};
use crate::session::rights::StatementKind;
use crate::session::row_lock_retry::{Resuming, RowWait};
use crate::session::transaction::Open;
use crate::syntax::parse::{self, Statement};
use crate::types::outcome::Outcome;
use crate::types::settings::{Settings, isolation_name};

/// Maximum number of plans that a session caches, by statement text.
const CACHED_MAX: usize = 512;
/// Longest statement text whose plan is cached.
const CACHED_BYTES_MAX: usize = 16 << 10;

/// Transaction status of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Outside of a transaction.
    Idle,
    /// In a transaction.
    Open,
    /// In a transaction that met an error.
    Failed,
}

/// One client's session over a database. Not shared between threads; make one per client, they are cheap.
pub struct Session {
    pub(crate) db: Database,
    pub(crate) settings: Arc<Settings>,
    pub(crate) open: Option<Box<Open>>,
    pub(crate) has_failed: bool,
    pub(crate) cached: PlanCache,
    pub(crate) named: HashMap<String, Prepared>,
    canceller: Canceller,
    pub(crate) announcements: Announcements,
    /// Values that this session got from sequences (`currval`, `lastval`).
    pub(crate) given: crate::expr::sequence_call::Given,
    pub(crate) cursors: Cursors,
    /// True while commits are put into `pending` instead of being waited for.
    pub(crate) submits: bool,
    pub(crate) pending: Option<PendingCommit>,
    pub(crate) advisory: crate::expr::advisory::Held,
    pub(crate) peers: crate::access::peers::Known,
    pub(crate) acting: crate::access::rights::Acting,
    pub(crate) shares: crate::limits::quota::Shares,
    /// The row wait that blocks the submitted statement; `resuming` holds the state to resume it with.
    pub(crate) waits: Option<RowWait>,
    pub(crate) resuming: Option<Resuming>,
    /// Newest commit that the session read before it was visible.
    pub(crate) latest_read_seq: Seq,
}

impl Session {
    /// A session with default settings.
    pub fn new(db: Database) -> Self {
        Self::with_settings(db, Settings::default())
    }

    /// A session with the given settings.
    pub fn with_settings(db: Database, settings: Settings) -> Self {
        let settings = Arc::new(Settings { follows: !db.leads(), ..settings });
        let advisory = crate::expr::advisory::Held::of(&db);
        Self {
            db,
            settings,
            open: None,
            has_failed: false,
            cached: PlanCache::default(),
            named: HashMap::new(),
            canceller: Canceller::default(),
            announcements: Announcements::default(),
            given: crate::expr::sequence_call::Given::default(),
            cursors: Cursors::default(),
            advisory,
            peers: crate::access::peers::Known::default(),
            acting: crate::access::rights::Acting::default(),
            shares: crate::limits::quota::Shares::default(),
            submits: false,
            pending: None,
            waits: None,
            resuming: None,
            latest_read_seq: Seq::ZERO,
        }
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// Cancels what the session runs, from any thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Replaces the canceller of the session, so that several sessions may share one.
    pub fn use_canceller(&mut self, canceller: Canceller) {
        self.canceller = canceller;
    }

    pub(crate) fn interrupt(&self) -> Interrupt {
        Interrupt::begin(&self.canceller, self.settings.statement_millis, self.db.engine().env())
    }

    /// The current settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A shared copy of the current settings; pass it to [`Session::keeps`] to detect a later change.
    pub fn settings_held(&self) -> Arc<Settings> {
        self.settings.clone()
    }

    /// True if the settings have not changed since `held` was taken. Costs one comparison.
    pub fn keeps(&self, held: &Arc<Settings>) -> bool {
        Arc::ptr_eq(&self.settings, held)
    }

    /// The transaction status of the session.
    pub fn status(&self) -> Status {
        match (&self.open, self.has_failed) {
            (None, _) => Status::Idle,
            (Some(_), false) => Status::Open,
            (Some(_), true) => Status::Failed,
        }
    }

    /// Runs one statement. The types of parameters `$1`, `$2` follow from their context; a string is parsed
    /// as that type. The plan is cached for the next call with the same text.
    ///
    /// # Errors
    /// Each has its SQLSTATE. An error in a transaction makes all further statements fail (25P02) until
    /// ROLLBACK.
    pub fn execute(&mut self, sql: &str, params: &[Value<'_>]) -> Result<Outcome> {
        self.execute_by(sql, params, Self::run)
    }

    /// As [`Session::execute`]; rows remain in columns where they are in columns, see
    /// [`Session::run_columnar`].
    ///
    /// # Errors
    /// As [`Session::execute`].
    #[cfg(feature = "analytic")]
    pub fn execute_columnar(&mut self, sql: &str, params: &[Value<'_>]) -> Result<Outcome> {
        self.execute_by(sql, params, Self::run_columnar)
    }

    fn execute_by(
        &mut self,
        sql: &str,
        params: &[Value<'_>],
        run: fn(&mut Self, &mut Prepared, &[Value<'_>]) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let mut prepared = match self.cached.take(sql) {
            Some(prepared) => prepared,
            None => self.prepare(sql)?,
        };
        let outcome = run(self, &mut prepared, params);
        if sql.len() <= CACHED_BYTES_MAX && !matches!(prepared.plan, Plan::Other) {
            self.cached.put(sql, prepared, CACHED_MAX, Seq::ZERO);
        }
        outcome
    }

    /// Runs all statements of a text, without parameters. Several statements form one transaction unless the
    /// text itself begins or ends one, as in PostgreSQL's simple protocol.
    ///
    /// # Errors
    /// The first error. The statements before it in the same transaction are rolled back.
    pub fn execute_all(&mut self, sql: &str) -> Result<Vec<Outcome>> {
        let mut script = self.script(sql)?;
        let mut outcomes = Vec::with_capacity(script.len());
        while let Some(prepared) = self.next_of(&mut script, &[]) {
            match prepared.and_then(|mut prepared| self.run(&mut prepared, &[])) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    self.end_implicit()?;
                    return Err(error);
                }
            }
        }
        if let Some(commit) = self.end_implicit()? {
            self.given.note_events(Some(&commit.wait()?));
        }
        Ok(outcomes)
    }

    /// Parses and plans one statement, to be run with [`Session::run`].
    ///
    /// # Errors
    /// Errors that are found before a run: syntax, names, types.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared> {
        self.prepare_typed(sql, &[])
    }

    /// As [`Session::prepare`], with types for parameters; `None` infers the type from the parameter's
    /// context.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare_typed(&mut self, sql: &str, types: &[Option<Type>]) -> Result<Prepared> {
        let statement = parsed::parsed(&self.db, sql);
        let statement = self.failing(statement)?;
        self.prepare_statement(statement, types)
    }

    pub(crate) fn prepare_statement(
        &mut self,
        statement: Arc<Statement>,
        types: &[Option<Type>],
    ) -> Result<Prepared> {
        self.note_role();
        if self.has_failed && !ends_or_returns(&statement) {
            return Err(failed());
        }
        let prepared = self.plan(statement, types);
        self.failing(prepared)
    }

    /// Notes whether the node follows, which plans and settings show.
    fn note_role(&mut self) {
        let follows = !self.db.leads();
        if self.settings.follows != follows {
            self.settings_mut().follows = follows;
        }
    }

    /// Rejects a statement that writes while the node follows another one, as a server in recovery does.
    fn check_leads(&self, prepared: &Prepared) -> Result<()> {
        if self.db.leads() || !prepared.needs_leader() {
            return Ok(());
        }
        let refused = match prepared.kind() {
            Some(StatementKind::Listen | StatementKind::Notify | StatementKind::NotifyCall) => {
                during_recovery(&prepared.statement)
            }
            _ => read_only(&prepared.statement),
        };
        let error = self.db.not_leader();
        Err(match error.leader() {
            Some(leader) => refused.hint(format!("the leader is at {leader}")),
            None => refused.hint("this node follows, and no leader is known at the moment; try again"),
        })
    }

    /// Replans a statement with FOR UPDATE in subqueries of FROM: moves them to WITH, which locks their rows.
    /// Keeps the plan where that is not possible.
    fn lift_locks(&mut self, prepared: &mut Prepared) {
        let lifted = prepared.statement.sql().and_then(crate::plan::hoist_locks::lifted);
        let Some(query) = lifted else { return };
        let statement = parse::Statement::Sql(ast::Statement::Query(Box::new(query)));
        if let Ok(plan) = self.plan(Arc::new(statement), prepared.declared()) {
            prepared.replace(plan);
        }
    }

    pub(crate) fn plan(&mut self, statement: Arc<Statement>, types: &[Option<Type>]) -> Result<Prepared> {
        let standing = self.standing();
        match &mut self.open {
            Some(open) => {
                open.transaction.begin_statement();
                let access = Access::Transaction(&self.db, &mut open.transaction);
                Prepared::plan(statement, types, access, standing)
            }
            None => {
                let snapshot = self.db.snapshot();
                Prepared::plan(statement, types, Access::Snapshot(&self.db, &snapshot), standing)
            }
        }
    }

    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    pub(crate) fn renewed(&mut self, prepared: &mut Prepared) -> Result<()> {
        if self.has_failed && !ends_or_returns(&prepared.statement) {
            return Err(failed());
        }
        if prepared.is_fleeting() || !prepared.is_of(&self.settings) {
            prepared.stand_in(self.standing());
        }
        match &mut self.open {
            Some(open) => prepared.renew(Access::Transaction(&self.db, &mut open.transaction)),
            None => {
                let snapshot = self.db.snapshot();
                prepared.renew(Access::Snapshot(&self.db, &snapshot))
            }
        }
    }

    /// Returns the session state that plans depend on.
    pub(crate) fn standing(&self) -> Standing {
        let created = self.open.as_ref().map_or_else(Vec::new, |open| open.created.clone());
        Standing {
            settings: self.settings.clone(),
            created,
            given: self.given.clone(),
            cursors: self.cursors.shapes.clone(),
            advisory: self.advisory.clone(),
            heard: self.announcements.heard(),
            peers: self.peers.clone(),
            acting: self.acting.clone(),
            shares: self.shares.clone(),
        }
    }

    /// Marks an open transaction as failed if `result` is an error.
    pub(crate) fn failing<R, E>(&mut self, result: std::result::Result<R, E>) -> std::result::Result<R, E> {
        if result.is_err()
            && let Some(open) = &mut self.open
        {
            self.has_failed = true;
            // Every statement accepted from here on rolls back at least to the last savepoint.
            open.transaction.release_locks_since_savepoint();
        }
        result
    }

    /// As [`Session::run`]; the rows that the query engine returns remain in columns, see
    /// [`Outcome::batches`]. Rows of other executors are in [`Outcome::rows`].
    ///
    /// ```
    /// use ropewalk::Database;
    /// use ropewalk_sql::{Session, arrow_rows};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut session = Session::new(Database::in_memory()?);
    /// let mut query = session.prepare("SELECT n, n * 2 AS twice FROM generate_series(1, 3) AS g(n)")?;
    /// let outcome = session.run_columnar(&mut query, &[])?;
    /// let rows = arrow_rows(&outcome)?;
    /// assert_eq!(rows.schema.field(1).name(), "twice");
    /// assert_eq!(rows.batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Session::run`].
    #[cfg(feature = "analytic")]
    pub fn run_columnar(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        prepared.is_columnar = true;
        let outcome = self.run(prepared, params);
        prepared.is_columnar = false;
        outcome
    }

    /// Runs a prepared statement.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn run(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        self.note_role();
        if self.has_failed && !ends_or_returns(&prepared.statement) {
            return Err(failed());
        }
        let may = self.acting.check(prepared.needs()).and_then(|()| self.check_leads(prepared));
        self.failing(may)?;
        if prepared.is_fleeting() || !prepared.is_of(&self.settings) {
            prepared.stand_in(self.standing());
        }
        self.set_configs(prepared, params)?;
        let isolation = self.open.as_ref().map_or(self.settings.isolation, |open| open.isolation);
        if prepared.locks_within() && isolation == Isolation::ReadCommitted {
            self.lift_locks(prepared);
        }
        // Only a serializable transaction validates its reads, and only read committed locks rows.
        let is_unlocked = match isolation {
            Isolation::Serializable => false,
            Isolation::Snapshot => prepared.locks_in_parts(),
            Isolation::ReadCommitted => prepared.locks_within(),
        };
        let outcome = match (&prepared.plan, self.open.is_some()) {
            _ if is_unlocked => Err(SqlError::unsupported(
                format!("FOR UPDATE within another query at {}", isolation_name(isolation)),
                "lock rows by a separate SELECT; in a serializable transaction all rows read are checked at commit",
            )),
            (Plan::Notify(_), _) => self.notify(prepared, params),
            (Plan::Declare(_), _) => self.declare(prepared, params),
            (Plan::Other, _) => self.other(&prepared.statement.clone(), params),
            _ if self.is_waiting_kind(prepared) => self.run_waiting(prepared, params),
            (_, true) => self.run_inside(prepared, params),
            (_, false) if prepared.writes() => self.run_alone(prepared, params),
            (_, false) => self.read_alone(prepared, params),
        };
        if self.waits.is_some() {
            return outcome;
        }
        if self.open.is_none() {
            self.advisory.end_transaction();
        }
        if !self.submits
            && (self.open.is_none() || !matches!(&outcome, Ok(outcome) if outcome.columns.is_none()))
        {
            self.settle()?;
        }
        let outcome = outcome.map(|outcome| match &outcome.notice {
            Some(notice) if !self.settings.wants(notice) => Outcome { notice: None, ..outcome },
            _ => outcome,
        });
        self.failing(outcome)
    }

    fn notify(&mut self, prepared: &Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        let bound = prepared.bound(params)?;
        let interrupt = &self.interrupt();
        let env = self.db.engine().env();
        let zone = &self.settings.zone;
        let cx =
            Context { params: &bound, answers: &[], now: self.now(), env, zone, interrupt, nested: None };
        let Plan::Notify(call) = &prepared.plan else { return Err(crate::expr::bug("no call of pg_notify")) };
        let said = call.said(&cx)?;
        self.say(said)?;
        Ok(prepared.one(Value::text("")))
    }

    /// Runs a reading statement at its own snapshot.
    fn read_alone(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        let env = self.db.engine().env();
        let snapshot = self.db.snapshot();
        let interrupt = &self.interrupt();
        let (now, zone) = (env.clock.wall_micros(), &self.settings.zone);
        let cx = Context { params: &[], answers: &[], now, env, zone, interrupt, nested: None };
        // An error of `bound` may disappear when the plan is renewed below.
        if let Ok(bound) = prepared.bound(params)
            && let Some(outcome) = prepared.point(&self.db, &snapshot, &Context { params: &bound, ..cx })?
        {
            return Ok(outcome);
        }
        prepared.renew(Access::Snapshot(&self.db, &snapshot))?;
        let bound = prepared.bound(params)?;
        let cx = Context { params: &bound, ..cx };
        let budget = Budget::new(self.settings.memory_bytes_max);
        prepared.run(&mut Access::Snapshot(&self.db, &snapshot), &cx, &budget)
    }

    /// Runs a writing statement in its own transaction; retries it after a conflict.
    fn run_alone(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        let Settings { isolation, durability, memory_bytes_max, attempts, .. } = *self.settings;
        let interrupt = &self.interrupt();
        let zone = &self.settings.zone.clone();
        self.alone(isolation, durability, attempts, |db, transaction| {
            let env = db.engine().env();
            transaction.begin_statement();
            prepared.renew(Access::Transaction(db, transaction))?;
            let bound = prepared.bound(params)?;
            let now = env.clock.wall_micros();
            let cx = Context { params: &bound, answers: &[], now, env, zone, interrupt, nested: None };
            let budget = Budget::new(memory_bytes_max);
            prepared.run(&mut Access::Transaction(db, transaction), &cx, &budget)
        })
    }

    pub(crate) fn alone<R>(
        &mut self,
        isolation: Isolation,
        durability: ropewalk::Durability,
        attempts: usize,
        mut work: impl FnMut(&Database, &mut Transaction) -> Result<R>,
    ) -> Result<R> {
        if self.submits {
            let db = self.db.clone();
            let mut transaction = db.begin_with(isolation);
            let result = work(&db, &mut transaction)?;
            self.pending = transaction.submit_with(durability)?;
            return Ok(result);
        }
        let work = |transaction: &mut Transaction| work(&self.db, transaction);
        let (result, committed) = self.db.transact_committed(isolation, durability, attempts, work)?;
        self.given.note_events(committed.as_ref());
        Ok(result)
    }

    fn run_inside(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        let interrupt = &self.interrupt();
        let Some(open) = &mut self.open else { return Err(crate::expr::bug("no transaction")) };
        open.has_run = true;
        if open.read_only && prepared.writes() {
            return Err(read_only(&prepared.statement));
        }
        if open.isolation == Isolation::Snapshot && prepared.locks() {
            let what = format!("FOR UPDATE at {}", isolation_name(open.isolation));
            return Err(SqlError::unsupported(
                what,
                "a serializable transaction, the default, checks its reads at commit; read committed locks rows",
            ));
        }
        let env = self.db.engine().env();
        open.transaction.begin_statement();
        prepared.renew(Access::Transaction(&self.db, &mut open.transaction))?;
        let bound = prepared.bound(params)?;
        let zone = &self.settings.zone;
        let cx = Context { params: &bound, answers: &[], now: open.now, env, zone, interrupt, nested: None };
        let budget = Budget::new(self.settings.memory_bytes_max);
        let outcome = prepared.run(&mut Access::Transaction(&self.db, &mut open.transaction), &cx, &budget);
        let seq = open.transaction.latest_read_seq();
        self.latest_read_seq(seq);
        outcome
    }

    /// Rejects a statement that the transaction does not accept.
    pub(crate) fn may_run(&mut self, prepared: &Prepared) -> Result<()> {
        if self.has_failed && !ends_or_returns(&prepared.statement) {
            return Err(failed());
        }
        self.acting.check(prepared.needs())?;
        self.check_leads(prepared)?;
        match &self.open {
            Some(open) if open.read_only && prepared.writes() => Err(read_only(&prepared.statement)),
            _ => Ok(()),
        }
    }

    /// The open transaction, marked as having run a statement.
    pub(crate) fn transaction(&mut self) -> Option<&mut Transaction> {
        let open = self.open.as_deref_mut()?;
        open.has_run = true;
        open.transaction.begin_statement();
        Some(&mut open.transaction)
    }

    /// Start time of the transaction, or the current time; microseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.open.as_ref().map_or_else(|| self.db.engine().env().clock.wall_micros(), |open| open.now)
    }

    /// True in a transaction that was begun implicitly, by several statements in one text.
    pub fn is_implicit(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_implicit)
    }

    pub(crate) fn announcements_mut(&mut self) -> &mut Announcements {
        &mut self.announcements
    }

    /// Number of savepoints of the open transaction.
    pub(crate) fn savepoints(&self) -> Option<usize> {
        self.open.as_ref().map(|open| open.savepoints.len())
    }
}

/// True for statements that begin or end a transaction themselves.
pub(crate) fn begins_or_ends(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Sql(
            ast::Statement::StartTransaction { .. }
                | ast::Statement::Commit { .. }
                | ast::Statement::Rollback { .. }
        )
    )
}

/// True for statements that a failed transaction accepts.
fn ends_or_returns(statement: &Statement) -> bool {
    matches!(statement, Statement::Sql(ast::Statement::Commit { .. } | ast::Statement::Rollback { .. }))
}

pub(crate) fn failed() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(state::IN_FAILED_SQL_TRANSACTION, message)
}

pub(crate) fn read_only(statement: impl std::fmt::Display) -> SqlError {
    let text = statement.to_string();
    let command = text.split(' ').next().unwrap_or_default();
    let message = format!("cannot execute {command} in a read-only transaction");
    SqlError::new(state::READ_ONLY_SQL_TRANSACTION, message)
}

/// The error of a statement that a node does not run while it follows another one.
fn during_recovery(statement: impl std::fmt::Display) -> SqlError {
    let text = statement.to_string();
    let command = text.split(' ').next().unwrap_or_default();
    let message = format!("cannot execute {command} during recovery");
    SqlError::new(state::READ_ONLY_SQL_TRANSACTION, message)
}

pub(crate) fn unsupported(statement: impl std::fmt::Display) -> SqlError {
    let text: String = statement.to_string().chars().take(80).collect();
    SqlError::unsupported(text, "this statement is not implemented")
}

impl Session {
    /// Reserves memory for rows that a client has not fetched yet, or parameters of a statement that it has
    /// not run yet.
    ///
    /// # Errors
    /// 53200: more than the session's `work_mem`, or than all sessions may hold.
    pub fn hold(&self, rows: &[Vec<Value<'static>>]) -> Result<Hold> {
        self.shares.answers.hold(rows, self.settings.memory_bytes_max)
    }
}
