//! Statements that the session runs itself: everything but SELECT, INSERT, UPDATE and DELETE.

use std::sync::Arc;

use ropewalk::Isolation;
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use crate::access::rights::Rights;
use crate::access::row_source::Access;
use crate::ddl::{Ddl, create_index_concurrently};
use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::limits::budget::{Budget, value_bytes};
use crate::session::prepared::Prepared;
use crate::session::rights::StatementKind;
use crate::session::transaction::{modes_of, no_transaction};
use crate::session::{Session, read_only, unsupported};
use crate::syntax::names::{folded, parts};
use crate::syntax::parse::Statement;
use crate::syntax::statements::Utility;
use crate::types::outcome::{Outcome, ResultColumn};
use crate::types::settings::{Settings, isolation_name, shown_name};

impl Session {
    /// Everything but SELECT, INSERT, UPDATE and DELETE.
    pub(crate) fn other(&mut self, statement: &Statement, params: &[Value<'_>]) -> Result<Outcome> {
        use ast::Statement as S;
        if !params.is_empty() {
            let message = format!("the statement takes 0 parameters, {} were given", params.len());
            return Err(SqlError::new(state::UNDEFINED_PARAMETER, message));
        }
        if StatementKind::of(statement).is_none() {
            return Err(unsupported(statement));
        }
        let whole = statement;
        let statement = match statement {
            Statement::Sql(statement) => statement,
            Statement::Utility(utility) => return self.utility(utility),
        };
        match statement {
            S::StartTransaction { modes, begin, modifier: None, statements, exception: None, .. }
                if statements.is_empty() =>
            {
                self.start_transaction(modes, if *begin { "BEGIN" } else { "START TRANSACTION" })
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
            S::Reset(ast::ResetStatement { reset }) => self.reset_settings(reset),
            S::ShowVariable { variable } => self.show_variable(variable),
            S::Prepare { name, data_types, statement } => {
                self.prepare_named(folded(name), data_types, statement)
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
            S::Deallocate { name, prepare: _ } => self.deallocate_named(&folded(name)),
            S::Close { cursor: ast::CloseCursor::All } => {
                self.cursors.close_all();
                Ok(Outcome::of("CLOSE CURSOR ALL"))
            }
            S::Close { cursor: ast::CloseCursor::Specific { name } } => {
                let name = folded(name);
                match self.close_cursor(&name) {
                    true => Ok(Outcome::of("CLOSE CURSOR")),
                    false => Err(crate::access::cursors::unknown(&name)),
                }
            }
            S::Discard { object_type: ast::DiscardObject::SEQUENCES } => {
                self.given.forget();
                Ok(Outcome::of("DISCARD SEQUENCES"))
            }
            S::Discard { object_type: ast::DiscardObject::ALL } if self.open.is_none() => {
                Ok(self.discard_all())
            }
            _ => self.define(whole),
        }
    }

    /// BEGIN: makes the implicit transaction explicit, or begins one; `command` is its name in the result.
    fn start_transaction(
        &mut self,
        modes: &[ast::TransactionMode],
        command: &'static str,
    ) -> Result<Outcome> {
        let (isolation, read_only) = modes_of(modes)?;
        self.check_mode(read_only)?;
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

    fn reset_settings(&mut self, reset: &ast::Reset) -> Result<Outcome> {
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

    fn show_variable(&self, variable: &[ast::Ident]) -> Result<Outcome> {
        let name = shown_name(variable);
        let value = match (name.as_str(), &self.open) {
            ("transaction_isolation", Some(open)) => isolation_name(open.isolation).to_owned(),
            ("transaction_read_only", Some(open)) => (if open.read_only { "on" } else { "off" }).to_owned(),
            (name, _) => self.settings.show(name)?,
        };
        let columns = Some(vec![ResultColumn { name, ty: Type::TEXT }].into());
        Ok(Outcome { columns, rows: vec![vec![Value::text(value)]], ..Outcome::of("SHOW") })
    }

    fn prepare_named(
        &mut self,
        name: String,
        data_types: &[ast::DataType],
        statement: &ast::Statement,
    ) -> Result<Outcome> {
        if self.named.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(SqlError::new(state::DUPLICATE_PREPARED_STATEMENT, message));
        }
        let types: Result<Vec<_>> = data_types.iter().map(|ty| self.data_type(ty).map(Some)).collect();
        let mut prepared = self.plan(Arc::new(Statement::Sql(statement.clone())), &types?)?;
        prepared.reserve(&statement.to_string())?;
        self.named.insert(name, prepared);
        Ok(Outcome::of("PREPARE"))
    }

    fn deallocate_named(&mut self, name: &str) -> Result<Outcome> {
        if name == "all" {
            self.named.clear();
        } else if self.named.remove(name).is_none() {
            return Err(no_prepared(name));
        }
        Ok(Outcome::of("DEALLOCATE"))
    }

    /// DISCARD ALL: returns the session to its initial state.
    fn discard_all(&mut self) -> Outcome {
        self.cached.clear();
        self.forget(Arc::new(self.settings.fresh()));
        Outcome::of("DISCARD ALL")
    }

    /// Statements that our own parser reads, not sqlparser.
    fn utility(&mut self, utility: &Utility) -> Result<Outcome> {
        match utility {
            Utility::Fetch(fetch) => self.fetch(fetch),
            Utility::Copy(_) | Utility::Merge(_) | Utility::Declare(_) => {
                Err(crate::expr::bug("a statement without its plan"))
            }
            Utility::Vacuum { command, tables } => {
                if *command == "VACUUM" && self.open.as_ref().is_some_and(|open| !open.is_implicit) {
                    let message = "VACUUM cannot run inside a transaction block";
                    return Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message));
                }
                // No action needed: compaction frees space by itself, and access paths are chosen without
                // statistics.
                self.known(tables)?;
                Ok(Outcome::of(command))
            }
            Utility::LockForReading(tables) => {
                self.inside("LOCK TABLE")?;
                // A snapshot already gives the guarantee of this mode: the tables do not change for the
                // reader.
                self.known(tables)?;
                Ok(Outcome::of("LOCK TABLE"))
            }
            Utility::Sequence(_)
            | Utility::Comment { .. }
            | Utility::Identity(_)
            | Utility::Generation(_)
            | Utility::RenameIndex { .. }
            | Utility::CreateExtension(_)
            | Utility::DropExtension { .. }
            | Utility::TypeOwner(_)
            | Utility::Move(_) => self.define(&Statement::Utility(utility.clone())),
            Utility::Projection(statement) => self.projection(statement),
            Utility::SetConstraints(statement) => self.set_constraints(statement),
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

    /// The type of a parameter that PREPARE names.
    fn data_type(&mut self, wanted: &ast::DataType) -> Result<Type> {
        let (db, settings) = (self.db.clone(), self.settings.clone());
        let snapshot = db.snapshot();
        let mut access = match self.transaction() {
            Some(transaction) => Access::Transaction(&db, transaction),
            None => Access::Snapshot(&db, &snapshot),
        };
        match crate::access::enums::data_type(&mut access, &settings, wanted)? {
            (ty, _, Some(_)) => Ok(ty),
            _ => crate::types::names::plain(wanted),
        }
    }

    /// Checks that these tables exist.
    fn known(&mut self, tables: &[String]) -> Result<()> {
        let (db, settings) = (self.db.clone(), self.settings.clone());
        let snapshot = db.snapshot();
        let mut access = match self.transaction() {
            Some(transaction) => Access::Transaction(&db, transaction),
            None => Access::Snapshot(&db, &snapshot),
        };
        tables.iter().try_for_each(|table| {
            let (kept, _) = crate::access::schemas::relation(&mut access, &settings, &[], table)?;
            access.table(&kept).map(|_| ())
        })
    }

    /// The rights that a statement needs; for EXECUTE those of the named statement.
    pub fn needs_of(&self, prepared: &Prepared) -> Rights {
        let named = match prepared.statement.sql() {
            Some(ast::Statement::Execute { name: Some(name), .. }) => parts(name).ok(),
            _ => None,
        };
        let named = named.and_then(|parts| self.named.get(&parts.join(".")));
        named.map_or(prepared.needs(), Prepared::needs)
    }

    fn execute_named(&mut self, name: &str, parameters: &[ast::Expr]) -> Result<Outcome> {
        let expected = self.named.get(name).ok_or_else(|| no_prepared(name))?;
        self.acting.check(expected.needs())?;
        let expected = expected.parameters().len();
        if parameters.len() != expected {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {expected} parameters but got {}.", parameters.len());
            return Err(SqlError::new(state::SYNTAX_ERROR, message).detail(detail));
        }
        let budget = Budget::new(self.settings.memory_bytes_max);
        let interrupt = &self.interrupt();
        let mut values = Vec::new();
        for parameter in parameters {
            let db = self.db.clone();
            let snapshot = db.snapshot();
            let access = Access::Snapshot(&db, &snapshot);
            let standing = self.standing();
            let mut planner =
                crate::plan::Planner::beside(access, crate::plan::bind::scope::Params::default(), standing);
            let scope = crate::plan::bind::scope::Scope::default();
            let (expr, _) =
                crate::plan::bind::Binder::new(&mut planner, &scope, "EXECUTE").bind_closed(parameter)?;
            let is_read = planner.reads || planner.catalog.is_some();
            self.acting.check(if is_read { Rights::READ } else { Rights::NONE })?;
            let env = db.engine().env();
            let zone = &self.settings.zone;
            let now = env.clock.wall_micros();
            let cx = Context { params: &[], answers: &[], now, env, zone, interrupt, nested: None };
            let value = expr.constant(&cx)?;
            budget.take(value_bytes(&value))?;
            values.push(value);
        }
        let Some((name, mut prepared)) = self.named.remove_entry(name) else { return Err(no_prepared(name)) };
        let outcome = self.run(&mut prepared, &values);
        self.named.insert(name, prepared);
        outcome
    }

    /// Runs LISTEN, UNLISTEN, NOTIFY, and statements that change definitions.
    fn define(&mut self, statement: &Statement) -> Result<Outcome> {
        if let Some(sql) = statement.sql()
            && let Some(outcome) = self.announce(sql)?
        {
            return Ok(outcome);
        }
        let interrupt = &self.interrupt();
        if let Some(open) = self.open.as_mut() {
            open.has_run = true;
            if open.read_only {
                return Err(read_only(statement));
            }
            let env = self.db.engine().env();
            let zone = &self.settings.zone;
            let cx = Context { params: &[], answers: &[], now: open.now, env, zone, interrupt, nested: None };
            let (transaction, created) = (&mut open.transaction, &mut open.created);
            transaction.begin_statement();
            let settings = self.settings.clone();
            let mut ddl = Ddl { db: &self.db, transaction, cx, settings, created, notice: None };
            return ddl.run(statement)?.ok_or_else(|| unsupported(statement));
        }
        let Settings { durability, attempts, .. } = *self.settings;
        let (zone, settings) = (&self.settings.zone.clone(), self.settings.clone());
        if let Statement::Sql(ast::Statement::CreateIndex(create)) = statement
            && create.concurrently
        {
            let mut transaction = self.db.begin();
            let env = self.db.engine().env();
            let now = env.clock.wall_micros();
            let cx = Context { params: &[], answers: &[], now, env, zone, interrupt, nested: None };
            create_index_concurrently(&self.db, &mut transaction, cx, self.settings.clone(), create)?;
            return Ok(Outcome::of("CREATE INDEX"));
        }
        self.alone(Isolation::Serializable, durability, attempts, |db, transaction| {
            let env = db.engine().env();
            let now = env.clock.wall_micros();
            let cx = Context { params: &[], answers: &[], now, env, zone, interrupt, nested: None };
            let mut created = Vec::new();
            let settings = settings.clone();
            let mut ddl = Ddl { db, transaction, cx, settings, created: &mut created, notice: None };
            ddl.run(statement)?.ok_or_else(|| unsupported(statement))
        })
    }
}

fn no_prepared(name: &str) -> SqlError {
    SqlError::new(state::INVALID_SQL_STATEMENT_NAME, format!("prepared statement \"{name}\" does not exist"))
}
