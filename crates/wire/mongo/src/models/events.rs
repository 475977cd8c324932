//! `ropewalkAppend`: appends events under conditions.

use ropewalk::documents::RetryKey;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{Value, Writer};
use ropewalk::events::QueryItem;
use ropewalk::hooks::hex;
use ropewalk::{AppendCondition, AppendOptions, Event, Position, Query};
use ropewalk_auth::Right;
use uuid::Uuid;

use crate::call::Call;
use crate::crud::write::int;
use crate::models::change::{COUNT, Change};
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::sessions::session_parts;

/// Subtype of binary data that is a UUID.
pub(super) const UUID: u8 = 4;
/// Bytes of an event in addition to its type and data, approximately.
pub(super) const EVENT_BYTES: usize = 64;

/// `ropewalkAppend`
pub(crate) fn append<'a>(call: &mut Call<'a>) -> Outcome<Change<'a>> {
    let args = call.args;
    args.only(&["ropewalkAppend", "events", "conditions"])?;
    let name = args.needed("ropewalkAppend", args.text("ropewalkAppend")?)?;
    call.may(Right::Append, Some(name))?;
    let store = call.shared.service.database().events(name)?;
    let given = args.documents("events")?;
    let max = call.shared.service.limits().append_events;
    if given.len() > max {
        let message = format!("{} events in one append; at most {max} are allowed", given.len());
        return Err(Failure::new(Code::InvalidLength, message));
    }
    let mut events = Vec::with_capacity(given.len());
    for given in given {
        events.push(event(&Args::statement("ropewalkAppend.events", given, EVENT_FIELDS)?)?);
    }
    let mut conditions = Vec::new();
    for given in args.documents("conditions")? {
        conditions.push(condition(&Args::statement("ropewalkAppend.conditions", given, CONDITION_FIELDS)?)?);
    }
    let idempotency_key = call.retry(0)?.map(|retry| key(&retry));
    let options = AppendOptions { conditions, idempotency_key, ..AppendOptions::default() };
    let bytes = events.iter().map(|event| event.data.len() + event.event_type.len() + EVENT_BYTES).sum();
    let change = Change::new(bytes, move |_, tx| {
        tx.append(&store, &events, options.clone())?;
        let mut out = Writer::new();
        out.put(COUNT, int(events.len() as i64));
        Ok(out.finish())
    });
    Ok(change.appending())
}

/// The key by which a repeated append is recognized: a session's numbers are used once.
fn key(retry: &RetryKey) -> String {
    let (id, user) = session_parts(&retry.session);
    format!("mongo:{}:{}:{}", hex(id), retry.number, String::from_utf8_lossy(user))
}

/// Fields of an event.
pub(super) const EVENT_FIELDS: &[&str] = &["type", "tags", "data", "id", "metadata"];

/// The event of these fields.
///
/// # Errors
/// A field of another type.
pub(super) fn event(args: &Args<'_>) -> Outcome<Event> {
    let mut event = Event::new(args.needed("type", args.text("type")?)?);
    event.tags = args.texts("tags")?.into_iter().map(str::to_owned).collect();
    event.data = match args.get("data") {
        None => Vec::new(),
        Some(Value::Binary(_, bytes)) => bytes.to_vec(),
        Some(value) => {
            let mut json = Vec::new();
            extjson::put_value(&mut json, value, Form::Relaxed);
            json
        }
    };
    event.id = match args.get("id") {
        None => None,
        Some(value) => Some(id(value)?),
    };
    for (key, value) in args.document("metadata")?.into_iter().flatten() {
        let text = value.as_str().ok_or_else(|| {
            let message = format!("the value of metadata {key:?} has to be a string");
            Failure::new(Code::TypeMismatch, message)
        })?;
        event.metadata.push((key.to_owned(), text.to_owned()));
    }
    Ok(event)
}

/// The id of an event.
fn id(value: Value<'_>) -> Outcome<Uuid> {
    let id = match value {
        Value::Binary(UUID, bytes) => Uuid::from_slice(bytes).ok(),
        Value::String(text) => Uuid::try_parse(text).ok(),
        _ => None,
    };
    id.ok_or_else(|| {
        Failure::new(Code::BadValue, "the id of an event is a UUID: binary data of subtype 4, or its text")
    })
}

const CONDITION_FIELDS: &[&str] = &["failIfEventsMatch", "after"];

fn condition(args: &Args<'_>) -> Outcome<AppendCondition> {
    let name = "ropewalkAppend.conditions.failIfEventsMatch";
    let query = args.needed("failIfEventsMatch", args.document("failIfEventsMatch")?)?;
    let mut items = Vec::new();
    for item in Args::statement(name, query, &["items"])?.documents("items")? {
        let item = Args::statement(name, item, &["types", "tags"])?;
        items.push(QueryItem::new(item.texts("types")?, item.texts("tags")?));
    }
    let after = args.count("after")?.map(|after| Position(after as u64));
    Ok(AppendCondition { fail_if_events_match: Query::from_items(items), after })
}
