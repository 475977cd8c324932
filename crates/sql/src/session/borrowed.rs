//! Statements in a transaction that the session does not own.

use std::borrow::Cow;

use ropewalk::tables::Value;
use ropewalk::{Isolation, Transaction};

use crate::access::row_source::Access;
use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::limits::budget::Budget;
use crate::session::Session;
use crate::session::prepared::{Plan, Prepared};
use crate::types::outcome::Outcome;
use crate::types::settings::isolation_name;

impl Session {
    /// Runs a prepared statement in `transaction`, which the caller commits.
    ///
    /// The transaction must be of the session's database. After an error the statement may have written some
    /// of its rows: roll back to a savepoint, or drop the transaction.
    ///
    /// ```
    /// use ropewalk::tables::Value;
    /// use ropewalk::{AppendOptions, Database, Event};
    /// use ropewalk_sql::Session;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = Database::in_memory()?;
    /// let orders = db.events("orders")?;
    /// let mut session = Session::new(db.clone());
    /// session.execute("CREATE TABLE stock (item text PRIMARY KEY, pieces int)", &[])?;
    /// let mut insert = session.prepare("INSERT INTO stock VALUES ($1, $2)")?;
    ///
    /// let mut transaction = db.begin();
    /// for (item, pieces) in [("pen", 5), ("ink", 2)] {
    ///     session.execute_in(&mut transaction, &mut insert, &[Value::text(item), Value::Int4(pieces)])?;
    /// }
    /// transaction.append(&orders, &[Event::new("Stocked")], AppendOptions::default())?;
    /// transaction.commit()?; // the rows and the event, in one commit
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Session::run`]; 25001 in a transaction of the session; 0A000 for statements that change the session
    /// or definitions, and for FOR UPDATE in a transaction that is not serializable.
    pub fn execute_in(
        &mut self,
        transaction: &mut Transaction,
        prepared: &mut Prepared,
        params: &[Value<'_>],
    ) -> Result<Outcome> {
        self.run_in(transaction, prepared, |prepared| prepared.bound(params).map(Cow::Owned))
    }

    /// As [`Session::execute_in`]; `bind` returns the parameters for the plan, which may have been renewed.
    pub(crate) fn run_in<'v>(
        &mut self,
        transaction: &mut Transaction,
        prepared: &mut Prepared,
        bind: impl FnOnce(&Prepared) -> Result<Cow<'v, [Value<'static>]>>,
    ) -> Result<Outcome> {
        if self.open.is_some() {
            let message = "the session has an open transaction";
            return Err(SqlError::new(state::ACTIVE_SQL_TRANSACTION, message).hint("end it first"));
        }
        let is_of_session =
            matches!(prepared.plan, Plan::Other | Plan::Notify(_) | Plan::Declare(_) | Plan::Copy(_))
                || !prepared.sets.is_empty();
        if is_of_session {
            return Err(SqlError::unsupported(
                format!("{} in a transaction of the caller", prepared.statement),
                "run queries, INSERT, UPDATE, DELETE and MERGE",
            ));
        }
        self.acting.check(prepared.needs())?;
        if (prepared.locks() || prepared.locks_in_parts())
            && transaction.isolation() != Isolation::Serializable
        {
            return Err(SqlError::unsupported(
                format!(
                    "FOR UPDATE at {} in a transaction of the caller",
                    isolation_name(transaction.isolation())
                ),
                "a serializable transaction validates its reads at commit",
            ));
        }
        if prepared.is_fleeting() || !prepared.is_of(&self.settings) {
            prepared.stand_in(self.standing());
        }
        let interrupt = &self.interrupt();
        transaction.begin_statement();
        prepared.renew(Access::Transaction(&self.db, transaction))?;
        let bound = bind(prepared)?;
        let (env, zone) = (self.db.engine().env(), &self.settings.zone);
        let now = env.clock.wall_micros();
        let cx = Context { params: &bound, answers: &[], now, env, zone, interrupt, nested: None };
        let budget = Budget::new(self.settings.memory_bytes_max);
        // The statement acts for the caller of the session, what follows for that of the transaction.
        let caller = transaction.documents().acting();
        let outcome = prepared.run(&mut Access::Transaction(&self.db, transaction), &cx, &budget);
        transaction.documents().act_for(caller);
        outcome
    }
}
