//! Events, queries and conditions of Python.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyString, PyTuple};
use ropewalk::events::{QueryItem, ReadOptions, Tracking};
use ropewalk::{AppendCondition, AppendOptions, Event, Position, Query};
use uuid::Uuid;

use crate::error::{Fault, Result};
use crate::value::body::{Body, expected, list, number, object, text, texts};
use crate::value::{Helper, json};

static B64DECODE: Helper = Helper::new("base64", "b64decode");

/// The events, conditions and tracking of an append.
pub(crate) fn append(body: &mut Body<'_, '_>) -> Result<(Vec<Event>, AppendOptions)> {
    let events = match body.get("events")? {
        Some(given) => events(&given)?,
        None => Vec::new(),
    };
    let conditions = body.list("conditions")?;
    let mut options = AppendOptions {
        conditions: conditions.iter().map(condition).collect::<Result<_>>()?,
        ..AppendOptions::default()
    };
    if let Some(tracking) = body.object("tracking")? {
        let mut fields = Body::new(&tracking);
        let (source, position) = (fields.need_text("source")?, fields.number("position")?);
        fields.finish()?;
        options.tracking = Some(Tracking { source, position: position.unwrap_or_default() });
    }
    Ok((events, options))
}

fn events(given: &Bound<'_, PyAny>) -> Result<Vec<Event>> {
    let mut events = Vec::with_capacity(given.len().unwrap_or_default());
    for (ordinal, one) in list("events", given)?.iter().enumerate() {
        let event = match (one.cast::<PyTuple>(), one.cast::<PyDict>()) {
            (Ok(parts), _) => of_tuple(parts),
            (_, Ok(fields)) => of_fields(fields),
            _ => Err(expected("event", "a tuple or a dictionary", one)),
        };
        events.push(event.map_err(|fault| at(ordinal, fault))?);
    }
    Ok(events)
}

/// Adds the place of an event to the error about it.
fn at(ordinal: usize, fault: Fault) -> Fault {
    match fault {
        Fault::Invalid(what) => Fault::Invalid(format!("events[{ordinal}]: {what}")),
        fault => fault,
    }
}

/// `(type, tags, data)`
fn of_tuple(parts: &Bound<'_, PyTuple>) -> Result<Event> {
    let mut parts = parts.iter();
    let (Some(kind), Some(tags), Some(data), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Fault::invalid("an event is a tuple of type, tags and data"));
    };
    let mut event = Event::new(text("type", &kind)?);
    event.tags = texts("tags", &tags)?;
    put_data(&data, &mut event.data)?;
    Ok(event)
}

/// `{"type", "tags", "data" or "data_base64", "id", "metadata"}`
fn of_fields(fields: &Bound<'_, PyDict>) -> Result<Event> {
    let mut body = Body::new(fields);
    let mut event = Event::new(body.need_text("type")?);
    if let Some(tags) = body.get("tags")? {
        event.tags = texts("tags", &tags)?;
    }
    let data = body.get_any("data")?;
    if let Some(data) = &data {
        put_data(data, &mut event.data)?;
    }
    if let Some(encoded) = body.get("data_base64")? {
        if data.is_some() {
            return Err(Fault::invalid("both data and data_base64"));
        }
        event.data = B64DECODE.get(encoded.py())?.call1((encoded,))?.extract::<Vec<u8>>()?;
    }
    event.id = body.text("id")?.map(|id| uuid(&id)).transpose()?;
    if let Some(metadata) = body.object("metadata")? {
        for (name, value) in metadata.iter() {
            event.metadata.push((text("metadata", &name)?, text("metadata", &value)?));
        }
    }
    body.finish()?;
    Ok(event)
}

/// Bytes as they are, other values as JSON.
fn put_data(data: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<()> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        out.extend_from_slice(bytes.as_bytes());
        Ok(())
    } else if let Ok(bytes) = data.cast::<PyByteArray>() {
        *out = bytes.to_vec();
        Ok(())
    } else {
        json::put(data, out)
    }
}

fn uuid(id: &str) -> Result<Uuid> {
    Uuid::parse_str(id).map_err(|error| Fault::invalid(format!("id {id:?}: {error}")))
}

fn condition(given: &Bound<'_, PyAny>) -> Result<AppendCondition> {
    let fields = object("condition", given)?;
    let mut body = Body::new(&fields);
    let query = query_of(&body.need("fail_if_events_match")?)?;
    let after = body.number("after")?.map(Position);
    body.finish()?;
    Ok(AppendCondition { fail_if_events_match: query, after })
}

/// The field `query` of a body; without it, every event.
pub(crate) fn query(body: &mut Body<'_, '_>) -> Result<Query> {
    body.get("query")?.map_or_else(|| Ok(Query::all()), |given| query_of(&given))
}

/// `{"items": [{"types", "tags", "type_prefixes", "tag_prefixes"}]}`
fn query_of(given: &Bound<'_, PyAny>) -> Result<Query> {
    let fields = object("query", given)?;
    let mut body = Body::new(&fields);
    let items = body.list("items")?;
    body.finish()?;
    Ok(Query::from_items(items.iter().map(item).collect::<Result<Vec<_>>>()?))
}

fn item(given: &Bound<'_, PyAny>) -> Result<QueryItem> {
    let fields = object("item of a query", given)?;
    let mut body = Body::new(&fields);
    let mut words = |name| match body.get(name)? {
        Some(given) => texts(name, &given),
        None => Ok(Vec::new()),
    };
    let item = QueryItem {
        types: words("types")?,
        tags: words("tags")?,
        type_prefixes: words("type_prefixes")?,
        tag_prefixes: words("tag_prefixes")?,
    };
    body.finish()?;
    Ok(item)
}

/// `query`, `from`, `after`, `before`, `backwards` and `limit` of a read.
pub(crate) fn read(body: &mut Body<'_, '_>) -> Result<(Query, ReadOptions)> {
    let options = ReadOptions {
        from: body.number("from")?.map(Position),
        after: body.number("after")?.map(Position),
        before: body.number("before")?.map(Position),
        backwards: body.flag("backwards")?,
        limit: body.number("limit")?,
    };
    Ok((query(body)?, options))
}

/// Positions of events; `None` means all.
pub(crate) fn positions(body: &mut Body<'_, '_>) -> Result<Option<Vec<Position>>> {
    let Some(given) = body.get("positions")? else { return Ok(None) };
    let positions = list("positions", &given)?;
    positions.iter().map(|one| number("positions", one).map(Position)).collect::<Result<_>>().map(Some)
}

/// The position after which a subscription begins: a number; `"head"` is the last event.
pub(crate) fn start(given: &Bound<'_, PyAny>, head: impl FnOnce() -> Result<Position>) -> Result<Position> {
    match given.cast::<PyString>() {
        Ok(word) if word.to_str()? == "head" => head(),
        Ok(word) => {
            Err(Fault::invalid(format!("after: a position or \"head\" is needed, not {:?}", word.to_str()?)))
        }
        Err(_) => Ok(Position(number("after", given)?)),
    }
}
