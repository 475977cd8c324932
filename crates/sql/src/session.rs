//! A session: statements in, answers out, and the transaction they run in.
//!
//! ```text
//!  idle ──BEGIN──▶ open ──error──▶ failed        idle: every statement is a transaction of its own,
//!   ▲               │  ▲              │                run again when another commit got there first
//!   └─COMMIT,ROLLBACK  └─ROLLBACK TO──┤          failed: nothing but ROLLBACK, ROLLBACK TO and COMMIT,
//!   └────────────ROLLBACK, COMMIT─────┘                  which rolls back
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use ropewalk::tables::{Type, Value};
use ropewalk::{Database, Error, Isolation, PendingCommit, Transaction};
use sqlparser::ast;

use crate::access::Access;
use crate::announce::Announcements;
use crate::budget::Budget;
use crate::ddl::{Ddl, create_index_concurrently};
use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::interrupt::{Canceller, Interrupt};
use crate::parse::{self, Statement};
use crate::plan::{ResultColumn, Standing};
use crate::prepared::{Outcome, Plan, Prepared};
use crate::scope::{folded, parts};
use crate::settings::{Settings, isolation_name, shown_name};
use crate::utility::Utility;

/// Statements that a session keeps planned, by their text.
const CACHED_MAX: usize = 512;
/// Longest text that is kept.
const CACHED_BYTES_MAX: usize = 16 << 10;

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Outside of a transaction.
    Idle,
    /// In a transaction.
    Open,
    /// In a transaction that met an error.
    Failed,
}

struct Open {
    transaction: Transaction,
    isolation: Isolation,
    read_only: bool,
    /// When it began, microseconds since 1970.
    now: i64,
    /// Names of savepoints in order; a released one has none and still stands in the transaction's own list.
    savepoints: Vec<Option<String>>,
    /// Tables that it created.
    created: Vec<String>,
    /// The session's settings when it began: what a rollback goes back to.
    before: Arc<Settings>,
    /// Its settings after a commit: without those of SET LOCAL.
    pub(crate) lasting: Arc<Settings>,
    /// A statement ran: the isolation stands.
    has_run: bool,
    /// Begun by several statements in one text, not by BEGIN.
    is_implicit: bool,
}

/// One client's session over a database. Not shared between threads; make one per client, they are cheap.
pub struct Session {
    db: Database,
    pub(crate) settings: Arc<Settings>,
    open: Option<Box<Open>>,
    has_failed: bool,
    cached: HashMap<String, Prepared>,
    named: HashMap<String, Prepared>,
    canceller: Canceller,
    announcements: Announcements,
    /// Commits are handed over, into `pending`, instead of waited for.
    pub(crate) submits: bool,
    pub(crate) pending: Option<PendingCommit>,
}

impl Session {
    /// A session with default settings.
    pub fn new(db: Database) -> Self {
        Self::with_settings(db, Settings::default())
    }

    /// A session with settings of its own.
    pub fn with_settings(db: Database, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        Self {
            db,
            settings,
            open: None,
            has_failed: false,
            cached: HashMap::new(),
            named: HashMap::new(),
            canceller: Canceller::default(),
            announcements: Announcements::default(),
            submits: false,
            pending: None,
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

    pub(crate) fn interrupt(&self) -> Interrupt {
        Interrupt::begin(&self.canceller, self.settings.statement_millis, self.db.engine().env())
    }

    /// The settings as they stand.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where the session stands.
    pub fn status(&self) -> Status {
        match (&self.open, self.has_failed) {
            (None, _) => Status::Idle,
            (Some(_), false) => Status::Open,
            (Some(_), true) => Status::Failed,
        }
    }

    /// Runs one statement. Parameters `$1`, `$2` take their types from where they stand; a text is read as that type.
    /// Its plan is kept for the next call with the same text.
    ///
    /// # Errors
    /// Each with its SQLSTATE. Within a transaction an error makes all further statements fail (25P02) until ROLLBACK.
    pub fn execute(&mut self, sql: &str, params: &[Value<'_>]) -> Result<Outcome> {
        if let Some((text, mut prepared)) = self.cached.remove_entry(sql) {
            let outcome = self.run(&mut prepared, params);
            self.cached.insert(text, prepared);
            return outcome;
        }
        let mut prepared = self.prepare(sql)?;
        let outcome = self.run(&mut prepared, params);
        if sql.len() <= CACHED_BYTES_MAX && !matches!(prepared.plan, Plan::Other) {
            if self.cached.len() >= CACHED_MAX {
                self.cached.clear();
            }
            self.cached.insert(sql.to_owned(), prepared);
        }
        outcome
    }

    /// Runs all statements of a text, without parameters. Several are one transaction unless the text itself says otherwise, as
    /// in PostgreSQL's simple protocol.
    ///
    /// # Errors
    /// The first; what ran before it in the same transaction is rolled back.
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
            commit.wait()?;
        }
        Ok(outcomes)
    }

    /// Parses and plans one statement, to be run with [`Session::run`].
    ///
    /// # Errors
    /// What is known before a run: syntax, names, types.
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared> {
        self.prepare_typed(sql, &[])
    }

    /// As [`Session::prepare`], with types for parameters; `None` takes the type from where the parameter stands.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare_typed(&mut self, sql: &str, types: &[Option<Type>]) -> Result<Prepared> {
        let statement = self.failing(parse::one(sql))?;
        self.prepare_statement(Arc::new(statement), types)
    }

    pub(crate) fn prepare_statement(
        &mut self,
        statement: Arc<Statement>,
        types: &[Option<Type>],
    ) -> Result<Prepared> {
        if self.has_failed && !ends_or_returns(&statement) {
            return Err(failed());
        }
        let prepared = self.plan(statement, types);
        self.failing(prepared)
    }

    fn plan(&mut self, statement: Arc<Statement>, types: &[Option<Type>]) -> Result<Prepared> {
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
        if prepared.is_fleeting() {
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

    /// What plans may ask about.
    fn standing(&self) -> Standing {
        let created = self.open.as_ref().map_or_else(Vec::new, |open| open.created.clone());
        Standing { settings: self.settings.clone(), created }
    }

    /// Notes that an error makes an open transaction fail.
    pub(crate) fn failing<R>(&mut self, result: Result<R>) -> Result<R> {
        if result.is_err() && self.open.is_some() {
            self.has_failed = true;
        }
        result
    }

    /// Runs a prepared statement.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn run(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        if self.has_failed && !ends_or_returns(&prepared.statement) {
            return Err(failed());
        }
        if prepared.is_fleeting() {
            prepared.stand_in(self.standing());
        }
        self.set_configs(prepared, params)?;
        let outcome = match (&prepared.plan, self.open.is_some()) {
            (Plan::Notify(_), _) => self.notify(prepared, params),
            (Plan::Other, _) => self.other(&prepared.statement.clone(), params),
            (_, true) => self.run_inside(prepared, params),
            (_, false) if prepared.writes() => self.run_alone(prepared, params),
            (_, false) => self.read_alone(prepared, params),
        };
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
        let cx = Context { params: &bound, answers: &[], now: self.now(), env, interrupt };
        let Plan::Notify(call) = &prepared.plan else { return Err(crate::expr::bug("no call of pg_notify")) };
        let said = call.said(&cx)?;
        self.say(said)?;
        Ok(prepared.one(Value::text("")))
    }

    /// A statement that reads, at a snapshot of its own.
    fn read_alone(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        let env = self.db.engine().env();
        let snapshot = self.db.snapshot();
        let interrupt = &self.interrupt();
        let bound = prepared.bound(params)?;
        let cx = Context { params: &bound, answers: &[], now: env.clock.wall_micros(), env, interrupt };
        if let Some(outcome) = prepared.point(&self.db, &snapshot, &cx)? {
            return Ok(outcome);
        }
        prepared.renew(Access::Snapshot(&self.db, &snapshot))?;
        let bound = prepared.bound(params)?;
        let cx = Context { params: &bound, ..cx };
        let budget = Budget::new(self.settings.memory_bytes_max);
        prepared.run(&mut Access::Snapshot(&self.db, &snapshot), &cx, &budget)
    }

    /// A statement that writes, in a transaction of its own, again when another commit got there first.
    fn run_alone(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        let Settings { isolation, durability, memory_bytes_max, attempts, .. } = *self.settings;
        let interrupt = &self.interrupt();
        self.alone(isolation, durability, attempts, |db, transaction| {
            let env = db.engine().env();
            transaction.begin_statement();
            prepared.renew(Access::Transaction(db, transaction))?;
            let bound = prepared.bound(params)?;
            let cx = Context { params: &bound, answers: &[], now: env.clock.wall_micros(), env, interrupt };
            let budget = Budget::new(memory_bytes_max);
            prepared.run(&mut Access::Transaction(db, transaction), &cx, &budget)
        })
    }

    fn alone<R>(
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
        let mut refused = None;
        let result = self.db.transact_with(isolation, durability, attempts.max(1), |transaction| {
            refused = None;
            work(&self.db, transaction).map_err(|error| {
                let message = error.message.clone();
                refused = Some(error);
                Error::Invalid(message)
            })
        });
        match (result, refused) {
            (_, Some(error)) => Err(error),
            (result, None) => Ok(result?),
        }
    }

    fn run_inside(&mut self, prepared: &mut Prepared, params: &[Value<'_>]) -> Result<Outcome> {
        let interrupt = &self.interrupt();
        let Some(open) = &mut self.open else { return Err(crate::expr::bug("no transaction")) };
        open.has_run = true;
        if open.read_only && prepared.writes() {
            return Err(read_only(&prepared.statement));
        }
        if open.isolation != Isolation::Serializable && prepared.locks() {
            let what = format!("FOR UPDATE at {}", isolation_name(open.isolation));
            return Err(SqlError::unsupported(
                what,
                "a serializable transaction, the default, keeps what it reads",
            ));
        }
        let env = self.db.engine().env();
        open.transaction.begin_statement();
        prepared.renew(Access::Transaction(&self.db, &mut open.transaction))?;
        let bound = prepared.bound(params)?;
        let cx = Context { params: &bound, answers: &[], now: open.now, env, interrupt };
        let budget = Budget::new(self.settings.memory_bytes_max);
        prepared.run(&mut Access::Transaction(&self.db, &mut open.transaction), &cx, &budget)
    }

    /// Refuses what the transaction does not take.
    pub(crate) fn may_run(&mut self, prepared: &Prepared) -> Result<()> {
        if self.has_failed && !ends_or_returns(&prepared.statement) {
            return Err(failed());
        }
        match &self.open {
            Some(open) if open.read_only && prepared.writes() => Err(read_only(&prepared.statement)),
            _ => Ok(()),
        }
    }

    /// The open transaction, in which a statement begins.
    pub(crate) fn transaction(&mut self) -> Option<&mut Transaction> {
        let open = self.open.as_deref_mut()?;
        open.has_run = true;
        open.transaction.begin_statement();
        Some(&mut open.transaction)
    }

    /// The time that the transaction began, or now; microseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.open.as_ref().map_or_else(|| self.db.engine().env().clock.wall_micros(), |open| open.now)
    }

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

    /// True in a transaction that nobody began in so many words.
    pub(crate) fn is_implicit(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_implicit)
    }

    pub(crate) fn announcements_mut(&mut self) -> &mut Announcements {
        &mut self.announcements
    }

    /// How many savepoints the transaction has that is open.
    pub(crate) fn savepoints(&self) -> Option<usize> {
        self.open.as_ref().map(|open| open.savepoints.len())
    }

    /// Forgets the transaction.
    fn end(&mut self) -> Option<Box<Open>> {
        self.has_failed = false;
        self.announcements.take();
        let open = self.open.take()?;
        self.settings = open.before.clone();
        Some(open)
    }

    pub(crate) fn commit(&mut self) -> Result<Outcome> {
        let failed = self.has_failed;
        let said = self.announcements.take();
        let durability = self.settings.durability;
        match self.end() {
            None => Ok(no_transaction("COMMIT")),
            Some(_) if failed => Ok(Outcome::of("ROLLBACK")),
            Some(open) => {
                let lasting = open.lasting.clone();
                match self.submits {
                    true => self.pending = open.transaction.submit_with(durability)?,
                    false => drop(open.transaction.commit_with(durability)?),
                }
                self.announcements.commit(said);
                self.settings = lasting;
                Ok(Outcome::of("COMMIT"))
            }
        }
    }

    /// Everything but SELECT, INSERT, UPDATE and DELETE.
    fn other(&mut self, statement: &Statement, params: &[Value<'_>]) -> Result<Outcome> {
        use ast::Statement as S;
        if !params.is_empty() {
            let message = format!("the statement takes 0 parameters, {} were given", params.len());
            return Err(SqlError::new(state::UNDEFINED_PARAMETER, message));
        }
        let statement = match statement {
            Statement::Sql(statement) => statement,
            Statement::Utility(utility) => return self.utility(utility),
        };
        match statement {
            S::StartTransaction { modes, begin, modifier: None, statements, exception: None, .. }
                if statements.is_empty() =>
            {
                let command = if *begin { "BEGIN" } else { "START TRANSACTION" };
                let (isolation, read_only) = modes_of(modes)?;
                match &mut self.open {
                    None => self.begin(
                        isolation.unwrap_or(self.settings.isolation),
                        read_only.unwrap_or(self.settings.read_only),
                        false,
                    ),
                    Some(open) if open.is_implicit => open.is_implicit = false,
                    Some(_) => {
                        let message = "there is already a transaction in progress";
                        let notice = SqlError::new(state::ACTIVE_SQL_TRANSACTION, message);
                        return Ok(Outcome { notice: Some(notice), ..Outcome::of(command) });
                    }
                }
                Ok(Outcome::of(command))
            }
            S::Commit { chain: false, end: _, modifier: None } => self.commit(),
            S::Rollback { chain: false, savepoint: None } => Ok(match self.end() {
                Some(_) => Outcome::of("ROLLBACK"),
                None => no_transaction("ROLLBACK"),
            }),
            S::Rollback { chain: false, savepoint: Some(name) } => self.rollback_to(&folded(name)),
            S::Savepoint { name } => {
                let open = self.inside("SAVEPOINT")?;
                open.transaction.savepoint();
                open.savepoints.push(Some(folded(name)));
                Ok(Outcome::of("SAVEPOINT"))
            }
            S::ReleaseSavepoint { name } => self.release(&folded(name)),
            S::Set(set) => self.set(set),
            S::Reset(ast::ResetStatement { reset }) => {
                match reset {
                    ast::Reset::ALL => {
                        let fresh = self.settings.fresh();
                        self.change_settings(false, |settings| {
                            *settings = fresh.clone();
                            Ok(())
                        })?;
                    }
                    ast::Reset::ConfigurationParameter(name) => {
                        let name = parts(name)?.join(".");
                        let value = self.settings.fresh().show(&name)?;
                        self.change_settings(false, |settings| settings.set(&name, &value))?;
                    }
                }
                Ok(Outcome::of("RESET"))
            }
            S::ShowVariable { variable } => {
                let name = shown_name(variable);
                let value = match (name.as_str(), &self.open) {
                    ("transaction_isolation", Some(open)) => isolation_name(open.isolation).to_owned(),
                    ("transaction_read_only", Some(open)) => {
                        (if open.read_only { "on" } else { "off" }).to_owned()
                    }
                    (name, _) => self.settings.show(name)?,
                };
                let columns = Some(vec![ResultColumn { name, ty: Type::TEXT }].into());
                Ok(Outcome { columns, rows: vec![vec![Value::text(value)]], ..Outcome::of("SHOW") })
            }
            S::Prepare { name, data_types, statement } => {
                let name = folded(name);
                if self.named.contains_key(&name) {
                    let message = format!("prepared statement \"{name}\" already exists");
                    return Err(SqlError::new(state::DUPLICATE_PREPARED_STATEMENT, message));
                }
                let types: Result<Vec<_>> =
                    data_types.iter().map(|ty| crate::types::plain(ty).map(Some)).collect();
                let prepared = self.plan(Arc::new(Statement::Sql((**statement).clone())), &types?)?;
                self.named.insert(name, prepared);
                Ok(Outcome::of("PREPARE"))
            }
            S::Execute {
                name: Some(name),
                parameters,
                immediate: false,
                into,
                using,
                output: false,
                default: false,
                ..
            } if into.is_empty() && using.is_empty() => {
                self.execute_named(&parts(name)?.join("."), parameters)
            }
            S::Deallocate { name, prepare: _ } => {
                let name = folded(name);
                if name == "all" {
                    self.named.clear();
                } else if self.named.remove(&name).is_none() {
                    return Err(no_prepared(&name));
                }
                Ok(Outcome::of("DEALLOCATE"))
            }
            // There are no cursors but the portals of the protocol.
            S::Close { cursor: ast::CloseCursor::All } => Ok(Outcome::of("CLOSE CURSOR ALL")),
            S::Discard { object_type: ast::DiscardObject::ALL } if self.open.is_none() => {
                self.named.clear();
                self.cached.clear();
                self.settings = Arc::new(self.settings.fresh());
                self.announcements.leave();
                Ok(Outcome::of("DISCARD ALL"))
            }
            other => self.define(other),
        }
    }

    /// Statements that we read ourselves.
    fn utility(&mut self, utility: &Utility) -> Result<Outcome> {
        match utility {
            Utility::Copy(_) => Err(crate::expr::bug("a COPY without a plan")),
            Utility::Vacuum { command, tables } => {
                if *command == "VACUUM" && self.open.as_ref().is_some_and(|open| !open.is_implicit) {
                    let message = "VACUUM cannot run inside a transaction block";
                    return Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message));
                }
                // Space comes back by compaction, which runs by itself, and paths are chosen without statistics.
                self.known(tables)?;
                Ok(Outcome::of(command))
            }
            Utility::LockForReading(tables) => {
                self.inside("LOCK TABLE")?;
                // What this mode promises, that the tables stay as they are seen, a snapshot gives anyway.
                self.known(tables)?;
                Ok(Outcome::of("LOCK TABLE"))
            }
            Utility::ShowAll => {
                let rows = self.settings.all().into_iter();
                let row = |(name, value, about): (&str, String, &str)| {
                    vec![Value::text(name.to_owned()), Value::text(value), Value::text(about.to_owned())]
                };
                let rows: Vec<_> = rows.map(row).collect();
                let column = |name: &str| ResultColumn { name: name.into(), ty: Type::TEXT };
                let columns = Some(["name", "setting", "description"].map(column).to_vec().into());
                Ok(Outcome { columns, rows, ..Outcome::of("SHOW") })
            }
        }
    }

    /// These tables must be there.
    fn known(&mut self, tables: &[String]) -> Result<()> {
        let db = self.db.clone();
        let snapshot = db.snapshot();
        let mut access = match self.transaction() {
            Some(transaction) => Access::Transaction(&db, transaction),
            None => Access::Snapshot(&db, &snapshot),
        };
        tables.iter().try_for_each(|table| access.table(table).map(|_| ()))
    }

    fn inside(&mut self, what: &str) -> Result<&mut Open> {
        self.open.as_deref_mut().ok_or_else(|| {
            let message = format!("{what} can only be used in transaction blocks");
            SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message)
        })
    }

    fn rollback_to(&mut self, name: &str) -> Result<Outcome> {
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
        self.has_failed = false;
        Ok(Outcome::of("ROLLBACK"))
    }

    fn release(&mut self, name: &str) -> Result<Outcome> {
        let open = self.inside("RELEASE SAVEPOINT")?;
        let place = open.savepoints.iter().rposition(|known| known.as_deref() == Some(name));
        let place = place.ok_or_else(|| no_savepoint(name))?;
        open.savepoints.iter_mut().skip(place).for_each(|known| *known = None);
        Ok(Outcome::of("RELEASE"))
    }

    fn set(&mut self, set: &ast::Set) -> Result<Outcome> {
        let done = Ok(Outcome::of("SET"));
        match set {
            ast::Set::SetTransaction { modes, snapshot: None, session: false } => {
                let db = self.db.clone();
                let open = self.inside("SET TRANSACTION")?;
                let (isolation, read_only) = modes_of(modes)?;
                if let Some(isolation) = isolation.filter(|isolation| *isolation != open.isolation) {
                    if open.has_run || !open.savepoints.is_empty() {
                        let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                        return Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message));
                    }
                    open.isolation = isolation;
                    open.transaction = db.begin_with(isolation);
                }
                open.read_only = read_only.unwrap_or(open.read_only);
                done
            }
            ast::Set::SetTransaction { modes, snapshot: None, session: true } => {
                let (isolation, read_only) = modes_of(modes)?;
                self.change_settings(false, |settings| {
                    settings.isolation = isolation.unwrap_or(settings.isolation);
                    settings.read_only = read_only.unwrap_or(settings.read_only);
                    Ok(())
                })?;
                done
            }
            ast::Set::SingleAssignment {
                scope: scope @ (None | Some(ast::ContextModifier::Session | ast::ContextModifier::Local)),
                hivevar: false,
                variable,
                values,
            } => {
                let is_local = *scope == Some(ast::ContextModifier::Local);
                let text = |value: &ast::Expr| match value {
                    ast::Expr::Value(value) => match &value.value {
                        ast::Value::SingleQuotedString(text) => text.clone(),
                        other => other.to_string(),
                    },
                    ast::Expr::Identifier(ident) => folded(ident),
                    other => other.to_string(),
                };
                let name = parts(variable)?.join(".");
                let value = match values.as_slice() {
                    [ast::Expr::Identifier(word)]
                        if word.quote_style.is_none() && folded(word) == "default" =>
                    {
                        self.settings.fresh().show(&name)?
                    }
                    values => values.iter().map(text).collect::<Vec<_>>().join(", "),
                };
                self.set_one(&name, &value, is_local)
            }
            ast::Set::SetTimeZone { local, value } => {
                let value = value.to_string();
                self.set_one("timezone", value.trim_matches('\''), *local)
            }
            ast::Set::SetNames { charset_name, collation_name: None } => {
                self.set_one("client_encoding", &charset_name.value, false)
            }
            other => Err(unsupported(other)),
        }
    }

    /// Sets a variable by its name. Outside of a transaction LOCAL lasts for no time at all.
    pub(crate) fn set_one(&mut self, name: &str, value: &str, is_local: bool) -> Result<Outcome> {
        match name {
            "transaction_isolation" | "transaction_read_only" => {
                let mode = if name == "transaction_isolation" {
                    format!("ISOLATION LEVEL {value}")
                } else {
                    format!(
                        "READ {}",
                        if matches!(value, "on" | "true" | "1" | "yes") { "ONLY" } else { "WRITE" }
                    )
                };
                return match parse::one(&format!("SET TRANSACTION {mode}"))? {
                    Statement::Sql(ast::Statement::Set(set)) => self.set(&set),
                    _ => Err(crate::expr::bug("a SET TRANSACTION that is none")),
                };
            }
            _ => self.change_settings(is_local, |settings| settings.set(name, value))?,
        }
        if is_local && self.open.is_none() {
            let message = "SET LOCAL can only be used in transaction blocks";
            let notice = SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, message);
            return Ok(Outcome { notice: Some(notice), ..Outcome::of("SET") });
        }
        Ok(Outcome::of("SET"))
    }

    /// Changes the settings: for the transaction, or for the session from here on, if the transaction commits.
    fn change_settings(
        &mut self,
        is_local: bool,
        change: impl Fn(&mut Settings) -> Result<()>,
    ) -> Result<()> {
        let mut settings = (*self.settings).clone();
        change(&mut settings)?;
        match &mut self.open {
            None if is_local => return Ok(()),
            None => {}
            Some(_) if is_local => {}
            Some(open) => {
                let mut lasting = (*open.lasting).clone();
                change(&mut lasting)?;
                open.lasting = Arc::new(lasting);
            }
        }
        self.settings = Arc::new(settings);
        Ok(())
    }

    /// Does what the calls of `set_config` in a statement say, before it runs.
    fn set_configs(&mut self, prepared: &Prepared, params: &[Value<'_>]) -> Result<()> {
        if prepared.sets.is_empty() {
            return Ok(());
        }
        let db = self.db.clone();
        let bound = prepared.bound(params)?;
        let env = db.engine().env();
        let interrupt = &self.interrupt();
        let cx = Context { params: &bound, answers: &[], now: self.now(), env, interrupt };
        for set in &prepared.sets {
            let (name, value, local) =
                (set.name.constant(&cx)?, set.value.constant(&cx)?, set.is_local.constant(&cx)?);
            let (Value::Text(name), Value::Text(value)) = (&name, &value) else { continue };
            let done = self.set_one(&name.to_lowercase(), value, local == Value::Bool(true));
            self.failing(done)?;
        }
        Ok(())
    }

    fn execute_named(&mut self, name: &str, parameters: &[ast::Expr]) -> Result<Outcome> {
        let mut values = Vec::new();
        for parameter in parameters {
            let db = self.db.clone();
            let snapshot = db.snapshot();
            let access = Access::Snapshot(&db, &snapshot);
            let mut planner = crate::plan::Planner::new(access, crate::scope::Params::default());
            let scope = crate::scope::Scope::default();
            let (expr, _) =
                crate::bind::Binder::new(&mut planner, &scope, "EXECUTE").bind_closed(parameter)?;
            let env = db.engine().env();
            let interrupt = &self.interrupt();
            let cx = Context { params: &[], answers: &[], now: env.clock.wall_micros(), env, interrupt };
            values.push(expr.constant(&cx)?);
        }
        let Some((name, mut prepared)) = self.named.remove_entry(name) else { return Err(no_prepared(name)) };
        let outcome = self.run(&mut prepared, &values);
        self.named.insert(name, prepared);
        outcome
    }

    /// Statements that announce, and those that change definitions.
    fn define(&mut self, statement: &ast::Statement) -> Result<Outcome> {
        if let Some(outcome) = self.announce(statement)? {
            return Ok(outcome);
        }
        let interrupt = &self.interrupt();
        if let Some(open) = self.open.as_mut() {
            open.has_run = true;
            if open.read_only {
                return Err(read_only(statement));
            }
            let env = self.db.engine().env();
            let cx = Context { params: &[], answers: &[], now: open.now, env, interrupt };
            let (transaction, created) = (&mut open.transaction, &mut open.created);
            transaction.begin_statement();
            let mut ddl = Ddl { db: &self.db, transaction, cx, created, notice: None };
            return ddl.run(statement)?.ok_or_else(|| unsupported(statement));
        }
        let Settings { durability, attempts, .. } = *self.settings;
        if let ast::Statement::CreateIndex(create) = statement
            && create.concurrently
        {
            let mut transaction = self.db.begin();
            let env = self.db.engine().env();
            let cx = Context { params: &[], answers: &[], now: env.clock.wall_micros(), env, interrupt };
            create_index_concurrently(&self.db, &mut transaction, cx, create)?;
            return Ok(Outcome::of("CREATE INDEX"));
        }
        self.alone(Isolation::Serializable, durability, attempts, |db, transaction| {
            let env = db.engine().env();
            let cx = Context { params: &[], answers: &[], now: env.clock.wall_micros(), env, interrupt };
            let mut created = Vec::new();
            let mut ddl = Ddl { db, transaction, cx, created: &mut created, notice: None };
            ddl.run(statement)?.ok_or_else(|| unsupported(statement))
        })
    }
}

fn modes_of(modes: &[ast::TransactionMode]) -> Result<(Option<Isolation>, Option<bool>)> {
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

/// Statements that decide themselves about transactions.
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

/// Statements that a failed transaction takes.
fn ends_or_returns(statement: &Statement) -> bool {
    matches!(statement, Statement::Sql(ast::Statement::Commit { .. } | ast::Statement::Rollback { .. }))
}

fn failed() -> SqlError {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    SqlError::new(state::IN_FAILED_SQL_TRANSACTION, message)
}

fn read_only(statement: impl std::fmt::Display) -> SqlError {
    let text = statement.to_string();
    let command = text.split(' ').next().unwrap_or_default();
    let message = format!("cannot execute {command} in a read-only transaction");
    SqlError::new(state::READ_ONLY_SQL_TRANSACTION, message)
}

fn no_transaction(command: &'static str) -> Outcome {
    let notice = SqlError::new(state::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
    Outcome { notice: Some(notice), ..Outcome::of(command) }
}

fn no_savepoint(name: &str) -> SqlError {
    SqlError::new(state::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
}

fn no_prepared(name: &str) -> SqlError {
    SqlError::new(state::INVALID_SQL_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
}

fn unsupported(statement: impl std::fmt::Display) -> SqlError {
    let text: String = statement.to_string().chars().take(80).collect();
    SqlError::unsupported(text, "it is not served yet")
}
