//! INSERT of events: a plain append, without a condition.

use ropewalk::tables::Value;
use ropewalk::{AppendOptions, Event, EventStore};

use super::{ModelInsert, is_given, null_in, text_of};
use crate::access::row_source::Access;
use crate::dml::append_event::{append, metadata_of};
use crate::dml::write::{Proposed, Source, Written};
use crate::error::{Result, SqlError, state};
use crate::expr::{Context, bug};

/// The columns that the commit fills.
const GENERATED: [(usize, &str); 2] = [(0, "position"), (6, "recorded_at")];

fn invalid(what: &str) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("an event: {what}"))
}

/// Rejects values for the columns that the commit fills.
pub(super) fn check_columns(places: &[usize], source: &Source) -> Result<()> {
    for (place, column) in GENERATED {
        if places.iter().position(|given| *given == place).is_some_and(|number| is_given(source, number)) {
            let message = format!("cannot insert a non-DEFAULT value into column \"{column}\"");
            return Err(SqlError::new(state::GENERATED_ALWAYS, message)
                .detail(format!("Column \"{column}\" is GENERATED ALWAYS: the commit assigns its value."))
                .hint("list the other columns: INSERT INTO events (type, tags, json) ..."));
        }
    }
    Ok(())
}

impl ModelInsert {
    /// Appends the rows as events, in order.
    pub(super) fn append_events(
        &self,
        store: &EventStore,
        rows: Vec<Proposed>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
    ) -> Result<Written> {
        let mut events = Vec::with_capacity(rows.len());
        for row in rows {
            cx.interrupt.check(cx.env)?;
            events.push(self.event(row)?);
        }
        let count = events.len() as u64;
        if count > 0 {
            append(access, store, &events, AppendOptions::default())?;
        }
        Ok(Written { count, rows: Vec::new() })
    }

    fn event(&self, row: Proposed) -> Result<Event> {
        let mut values = row.into_iter().map(|value| value.filter(|value| *value != Value::Null));
        let mut next = || values.next().flatten();
        let (_, event_type, tags, data, json) = (next(), next(), next(), next(), next());
        let (metadata, _, id) = (next(), next(), next());
        let event_type = event_type.ok_or_else(|| null_in(&self.relation, "type"))?;
        let mut event = Event::new(text_of(&event_type)?);
        event = match (data, json) {
            (Some(_), Some(_)) => return Err(invalid("data and json are both given")),
            (Some(Value::Bytea(bytes)), None) => event.data(bytes.into_owned()),
            (Some(_), None) => return Err(bug("data that are no bytes")),
            (None, Some(json)) => event.data(text_of(&json)?.into_bytes()),
            (None, None) => event,
        };
        if let Some(Value::Array(tags)) = tags {
            for tag in tags.iter() {
                match tag {
                    Ok(Value::Text(tag)) => event = event.tag(tag.into_owned()),
                    _ => return Err(invalid("a tag is NULL")),
                }
            }
        }
        if let Some(metadata) = metadata {
            let pairs = metadata_of(&text_of(&metadata)?);
            for (key, value) in pairs.ok_or_else(|| invalid("metadata is a JSON object of texts"))? {
                event = event.metadata(key, value);
            }
        }
        if let Some(Value::Uuid(bytes)) = id {
            event = event.id(uuid::Uuid::from_bytes(bytes));
        }
        Ok(event)
    }
}
