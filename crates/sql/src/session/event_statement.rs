//! Statements of projections: planned once, run for each event.

use std::borrow::Cow;

use ropewalk::Transaction;
use ropewalk::documents::Collection;
use ropewalk::events::SequencedEventRef;
use ropewalk::tables::{Type, Value, shown};

use crate::error::{Result, SqlError, state};
use crate::exec::relations::models::event_value;
use crate::expr::bug;
use crate::session::Session;
use crate::session::prepared::{Plan, Prepared};
use crate::session::projections::target;
use crate::syntax::names::table_name;
use crate::syntax::projections::{EVENT_COLUMNS, with_parameters};
use crate::types::settings::Settings;

/// A statement that reads an event as `event.position`, `event.type` and so on.
#[derive(Debug)]
pub struct EventStatement {
    prepared: Prepared,
    /// The event column of each parameter.
    columns: Vec<usize>,
    text: String,
    /// The table that it writes, as it names it.
    table: String,
    /// Values of the parameters; a buffer.
    values: Vec<Value<'static>>,
}

impl EventStatement {
    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Session {
    /// Plans a statement of a projection.
    ///
    /// # Errors
    /// As [`Session::prepare`]; 42703 for a column that events do not have; 42P01 if its table does not exist.
    pub fn prepare_for_events(&mut self, text: &str) -> Result<EventStatement> {
        let (parameterized, columns) = with_parameters(text)?;
        let types: Vec<Option<Type>> =
            columns.iter().map(|column| EVENT_COLUMNS.get(*column).map(|(_, ty)| *ty)).collect();
        let prepared = self.prepare_typed(&parameterized, &types)?;
        let name = target(&prepared.statement);
        let table = table_name(name.ok_or_else(|| bug("a statement of a projection without a table"))?)?;
        check_target(&prepared, &table, &self.settings)?;
        let values = Vec::with_capacity(columns.len());
        Ok(EventStatement { prepared, columns, text: text.to_owned(), table, values })
    }

    /// Runs a statement for `event` in a transaction that the caller commits.
    ///
    /// # Errors
    /// As [`Session::execute_in`]; 42P01 if its table does not exist.
    pub fn apply_event(
        &mut self,
        transaction: &mut Transaction,
        statement: &mut EventStatement,
        event: &SequencedEventRef<'_>,
    ) -> Result<()> {
        let EventStatement { prepared, columns, table, values, .. } = statement;
        values.clear();
        for column in columns.iter() {
            values.push(event_value(event, *column)?.into_owned());
        }
        let (table, values) = (table.as_str(), values.as_slice());
        let settings = self.settings_held();
        let bind = |prepared: &Prepared| {
            // It may have been planned again.
            check_target(prepared, table, &settings)?;
            match prepared.takes(values) {
                true => Ok(Cow::Borrowed(values)),
                false => prepared.bound(values).map(Cow::Owned),
            }
        };
        self.run_in(transaction, prepared, bind).map(drop)
    }
}

/// Rejects a plan that writes neither a table nor a declared collection: after a table was dropped, its name may denote
/// a relation of another model.
fn check_target(prepared: &Prepared, table: &str, settings: &Settings) -> Result<()> {
    let is_declared = |collection: &Collection| {
        let mut declared = settings.collections.iter().map(|((database, _), used)| (database, used));
        declared.any(|(database, used)| database == collection.database() && used == collection.name())
    };
    match &prepared.plan {
        Plan::Insert(_) | Plan::Update(_) | Plan::Delete(_) | Plan::Keyed(_) | Plan::Merge(_) => Ok(()),
        Plan::Model(write) if write.collection().is_some_and(is_declared) => Ok(()),
        _ => {
            let message = format!("relation \"{}\" does not exist", shown(table));
            Err(SqlError::new(state::UNDEFINED_TABLE, message).hint(
                "a projection writes its tables and collections; create the table again, and retry the event",
            ))
        }
    }
}
