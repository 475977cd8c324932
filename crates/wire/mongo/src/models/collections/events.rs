//! Events as documents.

use core::ops::ControlFlow;

use ropewalk::documents::lang::{Doc, DocBuf, Sort, Value, Writer};
use ropewalk::events::{EventReader, QueryItem, ReadOptions, SequencedEventRef};
use ropewalk::hooks::hex;
use ropewalk::{AppendOptions, Error, Event, EventStore, Position, Query, Snapshot, Transaction};
use ropewalk_wire::extjson_parser;

use super::AT_ONCE;
use crate::call::Call;
use crate::crud::write::int;
use crate::models::change::Change;
use crate::models::events::{EVENT_BYTES, EVENT_FIELDS, UUID, event};
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::made::{Each, Feed};

/// Most types or tags of a query, and their longest text.
const TERMS_MAX: usize = 1_000;
const TERM_BYTES_MAX: usize = 65_535;
/// Metadata of an event with the `_id` that a driver has given its document.
const ID: &str = "_id";

/// The events that may match a filter.
pub(super) struct Scan {
    store: EventStore,
    query: Query,
    options: ReadOptions,
}

impl Scan {
    pub(super) fn new(call: &Call<'_>, store: &str, filter: Doc<'_>, sort: Option<&Sort>) -> Outcome<Self> {
        let store = call.shared.service.database().events(store)?;
        let (query, options) = selection(filter);
        Ok(Self { store, query, options: ReadOptions { backwards: order(sort) == Some(true), ..options } })
    }

    /// True when the events come in the requested order.
    pub(super) fn is_sorted(&self, sort: Option<&Sort>) -> bool {
        order(sort).is_some()
    }

    /// In a transaction, with its appends.
    pub(super) fn within(&self, tx: &mut Transaction) -> Outcome<Events> {
        Ok(Events(tx.read_events(&self.store, &self.query, self.options)?))
    }

    /// At a snapshot.
    pub(super) fn at(self, snapshot: &Snapshot) -> Outcome<Events> {
        Ok(Events(snapshot.events(&self.store, &self.query, self.options)?))
    }
}

/// The order of the store: `None` for another one, else true for newest first.
fn order(sort: Option<&Sort>) -> Option<bool> {
    let Some(sort) = sort else { return Some(false) };
    sort.natural().or_else(|| sort.only().filter(|field| field.path == "_id").map(|field| field.descending))
}

/// Events read as documents.
pub(super) struct Events(EventReader);

impl Feed for Events {
    fn next(&mut self, each: Each<'_>) -> Outcome<bool> {
        let mut ended = Ok(true);
        let visited = self.0.visit_while(AT_ONCE, |event| {
            ended = each(document(event));
            if let Ok(true) = ended { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        visited.map_err(Error::from)?;
        ended?;
        Ok(!self.0.ended())
    }
}

fn document(event: &SequencedEventRef<'_>) -> DocBuf {
    let mut out = Writer::new();
    out.put("_id", Value::Int64(event.position.0 as i64));
    out.put("seq", Value::Int64(event.seq.0 as i64));
    out.put("recordedAt", Value::DateTime(event.time_micros.div_euclid(1_000)));
    out.put("type", Value::String(event.event_type()));
    out.open_array("tags");
    event.tags().for_each(|tag| out.put("", Value::String(tag)));
    out.close();
    if let Some(id) = event.id() {
        out.put("id", Value::Binary(UUID, id.as_bytes()));
    }
    let metadata = event.metadata();
    if metadata.len() > 0 {
        out.open_document("metadata");
        metadata.for_each(|(key, value)| out.put(key, Value::String(value)));
        out.close();
    }
    if let Some((source, position)) = event.tracking() {
        out.open_document("tracking");
        out.put("source", Value::String(source));
        out.put("position", Value::Int64(position as i64));
        out.close();
    }
    let data = event.data();
    if !data.is_empty() {
        let json = std::str::from_utf8(data).ok().and_then(|text| extjson_parser::parse_value(text).ok());
        match &json {
            Some(value) => out.put("data", value.value()),
            None => out.put("data", Value::Binary(0, data)),
        }
    }
    out.finish()
}

/// Query and range of the events that may match the filter.
fn selection(filter: Doc<'_>) -> (Query, ReadOptions) {
    let (mut types, mut tags, mut any_tags) = (Vec::new(), Vec::new(), Vec::new());
    let mut options = ReadOptions::default();
    for (path, condition) in filter {
        match path {
            "_id" => bound(&mut options, condition),
            // One condition on a field is enough: the documents are tested against all.
            "type" if types.is_empty() => types = one_of(condition).unwrap_or_default(),
            "tags" => match condition {
                Value::Document(operators) if let Some(all) = texts(operators.get("$all")) => {
                    tags.extend(all)
                }
                Value::Document(_) if any_tags.is_empty() => any_tags = one_of(condition).unwrap_or_default(),
                condition => tags.extend(one_of(condition).unwrap_or_default()),
            },
            _ => {}
        }
    }
    tags.sort_unstable();
    tags.dedup();
    if types.len().max(tags.len() + 1).max(any_tags.len()) > TERMS_MAX {
        return (Query::all(), options);
    }
    let item = |more: Option<&String>| QueryItem::new(types.clone(), tags.iter().chain(more).cloned());
    let items: Vec<QueryItem> = match any_tags.as_slice() {
        [] => vec![item(None)],
        // A tag that is in both lists is in the item once.
        any => any.iter().map(|tag| item(Some(tag).filter(|tag| !tags.contains(tag)))).collect(),
    };
    let is_everything = items.iter().any(QueryItem::is_empty);
    (if is_everything { Query::all() } else { Query::from_items(items) }, options)
}

/// Narrows the range by a condition on the position.
fn bound(options: &mut ReadOptions, condition: Value<'_>) {
    match condition {
        Value::Document(operators) => {
            operators.iter().for_each(|(operator, number)| narrow(options, operator, number));
        }
        number => narrow(options, "$eq", number),
    }
}

fn narrow(options: &mut ReadOptions, operator: &str, number: Value<'_>) {
    let Some(number) = number.as_integer() else { return };
    let (below, above) = (number.saturating_sub(1), number.saturating_add(1));
    // Both are excluded.
    let (low, high) = match operator {
        "$eq" => (Some(below), Some(above)),
        "$gt" => (Some(number), None),
        "$gte" => (Some(below), None),
        "$lt" => (None, Some(number)),
        "$lte" => (None, Some(above)),
        _ => return,
    };
    options.after = options.after.max(low.and_then(|low| u64::try_from(low).ok()).map(Position));
    if let Some(high) = high.map(|high| Position(u64::try_from(high).unwrap_or(0))) {
        options.before = Some(options.before.map_or(high, |before| before.min(high)));
    }
}

/// The texts of which a value equals one, by an equality or `$in`; `None` for other conditions.
fn one_of(condition: Value<'_>) -> Option<Vec<String>> {
    match condition {
        Value::String(text) => term(text).map(|text| vec![text]),
        Value::Document(operators) => match operators.get("$eq") {
            Some(Value::String(text)) => term(text).map(|text| vec![text]),
            _ => texts(operators.get("$in")),
        },
        _ => None,
    }
}

/// The elements of an array of texts.
fn texts(array: Option<Value<'_>>) -> Option<Vec<String>> {
    array?.as_array()?.values().map(|value| value.as_str().and_then(term)).collect()
}

/// A text that can be in a query.
fn term(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= TERM_BYTES_MAX).then(|| text.to_owned())
}

/// Appends documents as events.
pub(super) fn insert<'a>(call: &mut Call<'a>, store: &str, documents: &[Doc<'a>]) -> Outcome<Change<'a>> {
    let store = call.shared.service.database().events(store)?;
    let max = call.shared.service.limits().append_events;
    if documents.len() > max {
        let message = format!("{} events in one insert; at most {max} are allowed", documents.len());
        return Err(Failure::new(Code::InvalidLength, message));
    }
    let events = documents.iter().map(|document| event_of(*document)).collect::<Outcome<Vec<Event>>>()?;
    let bytes = events.iter().map(|event| event.data.len() + event.event_type.len() + EVENT_BYTES).sum();
    Ok(Change::new(bytes, move |_, tx| {
        tx.append(&store, &events, AppendOptions::default())?;
        let mut out = Writer::new();
        out.put("n", int(events.len() as i64));
        Ok(out.finish())
    }))
}

/// The event of a document. Its `_id` is the position, which the commit assigns; the ObjectId that drivers
/// give every document is stored as metadata.
fn event_of(document: Doc<'_>) -> Outcome<Event> {
    let known: Vec<&str> = EVENT_FIELDS.iter().copied().chain([ID]).collect();
    let args = Args::statement("insert.documents", document, &known)?;
    let mut event = event(&args)?;
    match args.get(ID) {
        None => {}
        Some(Value::ObjectId(id)) => event.metadata.push((ID.to_owned(), hex(&id))),
        Some(_) => {
            let message = "the _id of an event is its position, which its commit assigns";
            return Err(Failure::new(Code::BadValue, message));
        }
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(write: impl FnOnce(&mut Writer)) -> (Query, Option<u64>, Option<u64>) {
        let mut filter = Writer::new();
        write(&mut filter);
        let filter = filter.finish();
        let (query, options) = selection(filter.doc());
        (query, options.after.map(|after| after.0), options.before.map(|before| before.0))
    }

    fn condition(out: &mut Writer, path: &str, operator: &str, value: Value<'_>) {
        out.open_document(path);
        out.put(operator, value);
        out.close();
    }

    #[test]
    fn equalities_select_types_and_tags() {
        let found = selected(|out| {
            out.put("type", Value::String("A"));
            out.put("tags", Value::String("x"));
            out.put("data.n", Value::Int32(1));
        });
        assert_eq!(found, (Query::from_items([QueryItem::new(["A"], ["x"])]), None, None));
        assert_eq!(selected(|out| out.put("data.n", Value::Int32(1))), (Query::all(), None, None));
        assert_eq!(selected(|out| out.put("type", Value::Int32(1))).0, Query::all());
        assert_eq!(selected(|out| out.put("type", Value::String(""))).0, Query::all());
    }

    #[test]
    fn lists_select_any_or_all() {
        let list = |texts: &[&str]| {
            let mut out = Writer::array();
            texts.iter().for_each(|text| out.put("", Value::String(text)));
            out.into_owned()
        };
        let two = list(&["x", "y"]);
        let any = selected(|out| condition(out, "tags", "$in", two.value())).0;
        assert_eq!(any, Query::from_items([QueryItem::new([""; 0], ["x"]), QueryItem::new([""; 0], ["y"])]));
        let all = selected(|out| condition(out, "tags", "$all", two.value())).0;
        assert_eq!(all, Query::from_items([QueryItem::new([""; 0], ["x", "y"])]));
        let types = selected(|out| condition(out, "type", "$in", two.value())).0;
        assert_eq!(types, Query::from_types(["x", "y"]));
    }

    #[test]
    fn positions_bound_the_range() {
        let range = |operator: &str, number: Value<'static>| {
            let (_, after, before) = selected(|out| condition(out, "_id", operator, number));
            (after, before)
        };
        assert_eq!(range("$gt", Value::Int32(5)), (Some(5), None));
        assert_eq!(range("$gte", Value::Int64(5)), (Some(4), None));
        assert_eq!(range("$lt", Value::Double(5.0)), (None, Some(5)));
        assert_eq!(range("$lte", Value::Int32(5)), (None, Some(6)));
        assert_eq!(range("$lt", Value::Int32(-5)), (None, Some(0)));
        assert_eq!(range("$gt", Value::Int32(-5)), (None, None));
        assert_eq!(range("$ne", Value::Int32(5)), (None, None));
        let equal = selected(|out| out.put("_id", Value::Int32(5)));
        assert_eq!((equal.1, equal.2), (Some(4), Some(6)));
    }
}
