//! Statements of projections: planned once, run for each event.

use ropewalk::Transaction;
use ropewalk::events::SequencedEvent;
use ropewalk::tables::{Array, Scalar, Type, Value};

use crate::error::Result;
use crate::expr::bug;
use crate::session::Session;
use crate::session::prepared::Prepared;
use crate::syntax::projections::{EVENT_COLUMNS, with_parameters};
use crate::types::json;

/// A statement that reads an event as `event.position`, `event.type` and so on.
#[derive(Debug)]
pub struct EventStatement {
    prepared: Prepared,
    /// The event column of each parameter.
    columns: Vec<usize>,
    text: String,
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
    /// As [`Session::prepare`]; 42703 for a column that events do not have.
    pub fn prepare_for_events(&mut self, text: &str) -> Result<EventStatement> {
        let (parameterized, columns) = with_parameters(text)?;
        let types: Vec<Option<Type>> =
            columns.iter().map(|column| EVENT_COLUMNS.get(*column).map(|(_, ty)| *ty)).collect();
        let prepared = self.prepare_typed(&parameterized, &types)?;
        Ok(EventStatement { prepared, columns, text: text.to_owned() })
    }

    /// Runs a statement for `event` in a transaction that the caller commits.
    ///
    /// # Errors
    /// As [`Session::execute_in`].
    pub fn apply_event(
        &mut self,
        transaction: &mut Transaction,
        statement: &mut EventStatement,
        event: &SequencedEvent,
    ) -> Result<()> {
        let mut params = Vec::with_capacity(statement.columns.len());
        for column in &statement.columns {
            params.push(event_value(event, *column)?);
        }
        self.execute_in(transaction, &mut statement.prepared, &params).map(|_| ())
    }
}

/// The value of a column of an event.
fn event_value(event: &SequencedEvent, column: usize) -> Result<Value<'_>> {
    Ok(match column {
        0 => Value::Int8(i64::try_from(event.position.0).unwrap_or(i64::MAX)),
        1 => Value::text(event.event_type()),
        2 => {
            let tags = Array::new(Scalar::Text, event.tags().map(Value::text));
            Value::Array(tags.map_err(|error| bug(&error.to_string()))?)
        }
        3 => Value::bytea(event.data()),
        4 => json::of_data(event.data()),
        5 => json::of_metadata(event.metadata()),
        6 => Value::Timestamptz(event.time_micros),
        7 => event.id().map_or(Value::Null, |id| Value::Uuid(*id.as_bytes())),
        _ => return Err(bug("a column of events")),
    })
}
