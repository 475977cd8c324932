//! Every model as a relation, at the snapshot of the statement.
//!
//! ```text
//! events, events.store         position, type, tags, data, json, metadata, recorded_at, id
//! database.collection          _id, doc
//! metrics.name                 time, value, labels, one column for each existing label
//! promql('expr', from, to, step)   time, value, labels
//! ```
//! A table of the same name takes precedence. Conditions on position, type and tags use the postings of the
//! events, those on time and labels the index of the series, and those on `_id` the keys of the documents.
//! Reads of events, documents and tables include the transaction's own writes; a transaction that has written
//! samples cannot read them. A serializable transaction guards its reads by the conditions that were pushed
//! down. `crate::dml::model` writes these relations.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use ropewalk::documents::lang::{Budget as Command, COMMAND_BYTES_MAX, DocBuf, Filter, Owned, Value as Bson};
use ropewalk::documents::{Collection, DocumentsError, Find};
use ropewalk::events::{QueryItem, ReadOptions, SequencedEventRef};
use ropewalk::series::{Matcher, Samples, SeriesStore};
use ropewalk::tables::{Array, Jsonb, Scalar, Type, Value};
use ropewalk::{EventStore, Position, Query, promql};

use crate::access::rights::Acting;
use crate::access::row_source::Access;
use crate::access::standing::Standing;
use crate::error::{Result, SqlError, state};
use crate::exec::relations::promql::{PromqlPart, sharing};
use crate::exec::relations::{Computed, Part, RowSink, Rows, Scan};
use crate::expr::arith::Compare;
use crate::expr::function::Function;
use crate::expr::{Expr, bug};
use crate::limits::interrupt::Watch;
use crate::plan::Planner;
use crate::syntax::projections::EVENT_COLUMNS;
use crate::types::json;
use crate::types::json_bson::{id_text, json_of, object_id, value_of};

/// The default store, as in every other protocol.
const DEFAULT_STORE: &str = "default";
/// The label that holds a metric's name.
const NAME: &str = "__name__";
/// Number of columns that every metric has before those of its labels.
const FIXED: usize = 3;
/// Maximum number of columns of a relation.
const COLUMNS_MAX: usize = 1_000;
/// Number of events read before the snapshot may release resources.
const EVENTS_AT_A_TIME: usize = 1_024;

/// The kind of model.
#[derive(Clone)]
pub(crate) enum Kind {
    Events(EventStore),
    Documents(Collection, Acting),
    Metric(SeriesStore, String),
    Promql { store: SeriesStore, query: Arc<promql::Query>, from_ms: i64, to_ms: i64, step_ms: i64 },
}

/// A model's data under a name.
pub(crate) struct ModelRelation {
    name: String,
    kind: Kind,
    fields: Vec<(String, Type)>,
}

impl std::fmt::Debug for ModelRelation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

fn named(fields: &[(&str, Type)]) -> Vec<(String, Type)> {
    fields.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect()
}

/// The columns that every metric has.
pub(crate) fn metric_fields() -> Vec<(String, Type)> {
    named(&[("time", Type::TIMESTAMPTZ), ("value", Type::FLOAT8), ("labels", Type::JSONB)])
}

/// The label of a column: a label with the name of a column of every metric has an underscore there.
pub(crate) fn label_of(column: &str) -> &str {
    match column {
        "time_" | "value_" | "labels_" => column.trim_end_matches('_'),
        name => name,
    }
}

impl Planner<'_> {
    /// As [`ModelRelation::find`], with the collections of the settings in place of others.
    pub(crate) fn model_relation(
        &mut self,
        parts: &[String],
        is_schema: bool,
    ) -> Result<Option<ModelRelation>> {
        let Standing { settings, acting, .. } = &self.standing;
        let replaced = match parts {
            [database, name] => {
                settings.collection(database, name).map(|used| [database.clone(), used.to_owned()])
            }
            _ => None,
        };
        let parts = replaced.as_ref().map_or(parts, |parts| parts.as_slice());
        ModelRelation::find(parts, is_schema, &mut self.access, acting)
    }
}

impl ModelRelation {
    /// The relation of a model with a name of one or two parts, if any. Stores and metrics that do not exist
    /// yet are empty, unless `is_schema` says that the first part names a schema of tables.
    pub(crate) fn find(
        parts: &[String],
        is_schema: bool,
        access: &mut Access<'_>,
        acting: &Acting,
    ) -> Result<Option<Self>> {
        let db = access.database().clone();
        let (space, name) = match parts {
            [name] if name == "events" => ("events", DEFAULT_STORE),
            [space, name] => (space.as_str(), name.as_str()),
            _ => return Ok(None),
        };
        let shown = parts.join(".");
        match space {
            "events" => {
                let store = db.events(name)?;
                if is_schema && store.id().is_none() {
                    return Ok(None);
                }
                let fields = named(&EVENT_COLUMNS);
                Ok(Some(Self { name: shown, kind: Kind::Events(store), fields }))
            }
            "metrics" => {
                let store = db.series(DEFAULT_STORE)?;
                let matchers = [Matcher::equal(NAME, name)];
                let snapshot = access.snapshot();
                let at = snapshot.series(&store);
                if is_schema && at.count(&matchers) == 0 {
                    return Ok(None);
                }
                let mut fields = metric_fields();
                let labels = at.label_names(&matchers);
                if labels.len() > COLUMNS_MAX {
                    let message = format!("{shown} has more than {COLUMNS_MAX} labels");
                    return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
                }
                let labels = labels.into_iter().filter(|label| label != NAME);
                // A label with the name of a fixed column gets an underscore.
                fields.extend(labels.map(|label| match label.as_str() {
                    "time" | "value" | "labels" => (format!("{label}_"), Type::TEXT),
                    _ => (label, Type::TEXT),
                }));
                Ok(Some(Self { name: shown, kind: Kind::Metric(store, name.to_owned()), fields }))
            }
            database => {
                let Ok(collection) = db.documents().collection(database, name) else { return Ok(None) };
                let known = match access {
                    Access::Transaction(_, transaction) => {
                        let mut documents = transaction.documents();
                        documents.has_collection(&collection).map_err(ropewalk::Error::from)?
                    }
                    Access::Snapshot(..) => collection.definition().map_err(ropewalk::Error::from)?.is_some(),
                };
                Ok(known.then(|| Self::of_collection(collection, acting)))
            }
        }
    }

    /// The relation of a collection, which need not exist.
    pub(crate) fn of_collection(collection: Collection, acting: &Acting) -> Self {
        let name = format!("{}.{}", collection.database(), collection.name());
        let fields = named(&[("_id", Type::TEXT), ("doc", Type::JSON)]);
        Self { name, kind: Kind::Documents(collection, acting.clone()), fields }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The relation of `promql(expr, from, to, step)`: times are timestamps, the step is in seconds.
    /// A query holds at most `memory` bytes.
    pub(crate) fn promql(arguments: &[Value<'static>], access: &Access<'_>, memory: usize) -> Result<Self> {
        let wrong = || {
            SqlError::new(
                state::UNDEFINED_FUNCTION,
                "promql takes a query, two timestamps and a step in seconds",
            )
            .hint("promql('rate(requests[5m])', '2026-01-01', '2026-01-02', 60)")
        };
        let [Value::Text(text), from, to, step] = arguments else { return Err(wrong()) };
        let millis = |value: &Value<'_>| match value {
            Value::Timestamptz(micros) | Value::Timestamp(micros) => Ok(micros.div_euclid(1000)),
            Value::Text(text) => match crate::types::text_format::from_text(text, Type::TIMESTAMPTZ)? {
                Value::Timestamptz(micros) => Ok(micros.div_euclid(1000)),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        };
        let (from_ms, to_ms) = (millis(from)?, millis(to)?);
        let seconds = crate::expr::cast::to_f64(step).ok_or_else(wrong)?;
        let step_ms = (seconds * 1000.0) as i64;
        let mut options = promql::Options::default();
        options.limits.memory_bytes_max = options.limits.memory_bytes_max.min(memory as u64);
        let query = promql::Query::parse(text, options)
            .map_err(|error| SqlError::new(state::INVALID_PARAMETER_VALUE, format!("promql: {error}")))?;
        let db = access.database();
        let query = sharing(db, query);
        let store = db.series(DEFAULT_STORE)?;
        let fields = metric_fields();
        let kind = Kind::Promql { store, query: Arc::new(query), from_ms, to_ms, step_ms };
        Ok(Self { name: "promql".into(), kind, fields })
    }
}

impl ModelRelation {
    /// The error of a statement that cannot write the relation.
    pub(crate) fn not_written(&self) -> SqlError {
        let message = format!("this statement cannot write relation \"{}\"", self.name);
        let instead = match &self.kind {
            Kind::Events(_) => "append events by INSERT or append_event; events never change",
            Kind::Documents(..) => {
                "write documents by INSERT, UPDATE and DELETE that are not part of WITH, and define collections \
                 by the MongoDB port, the HTTP API or the library"
            }
            Kind::Metric(..) | Kind::Promql { .. } => {
                "append samples by INSERT; samples never change, and the Prometheus API deletes them"
            }
        };
        SqlError::new(state::FEATURE_NOT_SUPPORTED, message).hint(instead)
    }
}

impl Rows for ModelRelation {
    fn name(&self) -> &str {
        &self.name
    }

    fn fields(&self) -> &[(String, Type)] {
        &self.fields
    }

    fn narrows(&self, conjunct: &Expr) -> bool {
        match &self.kind {
            Kind::Events(_) => {
                EventsPart::narrowed(std::slice::from_ref(conjunct)).is_some_and(|part| part.narrow)
            }
            Kind::Metric(..) => {
                let mut part = MetricPart::all(&self.fields);
                part.narrow(conjunct)
            }
            Kind::Documents(..) => id_of(conjunct).is_some(),
            Kind::Promql { .. } => false,
        }
    }

    fn scan(&self, conjuncts: &[Expr], _: bool, _: usize, _: Option<&mut Access<'_>>) -> Result<Scan> {
        let (part, shown): (Box<dyn Part>, String) = match &self.kind {
            Kind::Events(store) => {
                let narrowed = EventsPart::narrowed(conjuncts).unwrap_or_default();
                let shown = narrowed.shown();
                (Box::new((store.clone(), narrowed)), shown)
            }
            Kind::Documents(collection, acting) => {
                let id = conjuncts.iter().find_map(id_of);
                let shown = if id.is_some() { "documents by _id" } else { "documents" };
                (
                    Box::new(DocumentsPart { collection: collection.clone(), id, acting: acting.clone() }),
                    shown.into(),
                )
            }
            Kind::Metric(store, name) => {
                let mut part = MetricPart::all(&self.fields);
                for conjunct in conjuncts {
                    part.narrow(conjunct);
                }
                part.matchers.push(Matcher::equal(NAME, name.as_str()));
                let shown = format!("samples, {} matchers", part.matchers.len());
                (Box::new((store.clone(), part)), shown)
            }
            Kind::Promql { store, query, from_ms, to_ms, step_ms } => {
                let part = PromqlPart {
                    store: store.clone(),
                    query: query.clone(),
                    times: (*from_ms, *to_ms, *step_ms),
                };
                (Box::new(part), "samples of a PromQL query".into())
            }
        };
        Ok(Scan { parts: vec![part], shown, estimate: None })
    }
}

/// The constant string or strings that a column is compared with.
fn texts(conjunct: &Expr, column: usize) -> Option<Vec<String>> {
    let text = |expr: &Expr| match expr {
        Expr::Const(Value::Text(text)) => Some(text.clone().into_owned()),
        _ => None,
    };
    match conjunct {
        Expr::Compare(Compare::Eq, left, right) if **left == Expr::Column(column) => Some(vec![text(right)?]),
        Expr::Compare(Compare::Eq, left, right) if **right == Expr::Column(column) => Some(vec![text(left)?]),
        Expr::In(left, list) if **left == Expr::Column(column) => list.iter().map(text).collect(),
        _ => None,
    }
}

/// The bounds that a comparison sets for an integer column: least and greatest, both inclusive.
fn bounds(conjunct: &Expr, column: usize, number: impl Fn(&Value<'_>) -> Option<i64>) -> Option<(i64, i64)> {
    let Expr::Compare(op, left, right) = conjunct else { return None };
    let (op, constant) = if **left == Expr::Column(column) {
        (*op, right)
    } else if **right == Expr::Column(column) {
        (op.turned(), left)
    } else {
        return None;
    };
    let Expr::Const(value) = constant.as_ref() else { return None };
    let value = number(value)?;
    Some(match op {
        Compare::Eq => (value, value),
        Compare::Lt => (i64::MIN, value.saturating_sub(1)),
        Compare::Le => (i64::MIN, value),
        Compare::Gt => (value.saturating_add(1), i64::MAX),
        Compare::Ge => (value, i64::MAX),
        Compare::Ne => return None,
    })
}

/// The restriction of a read of events.
#[derive(Default)]
struct EventsPart {
    types: Vec<String>,
    tags: Vec<String>,
    low: Option<i64>,
    high: Option<i64>,
    narrow: bool,
}

impl EventsPart {
    /// The restriction set by conditions; `None` when no condition narrows the read.
    fn narrowed(conjuncts: &[Expr]) -> Option<Self> {
        let mut part = Self::default();
        for conjunct in conjuncts {
            part.take(conjunct);
        }
        part.narrow.then_some(part)
    }

    fn take(&mut self, conjunct: &Expr) {
        match conjunct {
            Expr::And(parts) => parts.iter().for_each(|part| self.take(part)),
            Expr::Any(Compare::Eq, value, array, false) if **array == Expr::Column(2) => {
                self.take_tag(value);
            }
            Expr::Call(Function::ArrayContains, sides) => {
                if let [Expr::Column(2), Expr::ArrayOf(_, tags)] = sides.as_slice() {
                    tags.iter().for_each(|tag| self.take_tag(tag));
                }
                if let [Expr::Column(2), Expr::Const(Value::Array(tags))] = sides.as_slice() {
                    tags.iter().flatten().for_each(|tag| self.take_tag(&Expr::Const(tag.into_owned())));
                }
            }
            other => {
                if let Some((low, high)) = bounds(other, 0, |value| value.as_integer()) {
                    self.low = self.low.max(Some(low).filter(|low| *low != i64::MIN));
                    let high = Some(high).filter(|high| *high != i64::MAX);
                    self.high = match (self.high, high) {
                        (Some(a), Some(b)) => Some(a.min(b)),
                        (a, b) => a.or(b),
                    };
                    self.narrow = true;
                } else if self.types.is_empty()
                    && let Some(types) = texts(other, 1)
                {
                    self.types = types;
                    self.narrow = true;
                }
            }
        }
    }

    fn take_tag(&mut self, tag: &Expr) {
        if let Expr::Const(Value::Text(tag)) = tag {
            self.tags.push(tag.clone().into_owned());
            self.narrow = true;
        }
    }

    fn shown(&self) -> String {
        let mut shown = "events".to_owned();
        if !self.types.is_empty() {
            shown += &format!(", types [{}]", self.types.join(", "));
        }
        if !self.tags.is_empty() {
            shown += &format!(", tags [{}]", self.tags.join(", "));
        }
        if self.low.is_some() || self.high.is_some() {
            shown += ", a range of positions";
        }
        shown
    }

    /// The query, or `None` when nothing can match.
    fn query(&self) -> Option<(Query, ReadOptions)> {
        let plain = self.types.is_empty() && self.tags.is_empty();
        // Conditions that the postings cannot evaluate are evaluated for every row.
        let askable = |text: &&String| !text.is_empty() && text.len() <= 65_535;
        let tags: Vec<&str> = self.tags.iter().filter(askable).map(String::as_str).collect();
        let types: Vec<&str> = self.types.iter().map(String::as_str).collect();
        let types = if self.types.iter().all(|text| askable(&text)) { types } else { Vec::new() };
        let query = if plain || types.is_empty() && tags.is_empty() {
            Query::all()
        } else {
            Query::from_items([QueryItem::new(types, tags)])
        };
        let mut options = ReadOptions::default();
        if let Some(low) = self.low {
            options = options.from(Position(u64::try_from(low).unwrap_or(0).max(1)));
        }
        if let Some(high) = self.high {
            let high = u64::try_from(high).ok().filter(|high| *high > 0)?;
            options = options.before(Position(high.saturating_add(1)));
        }
        Some((query, options))
    }
}

/// The value of a column of an event.
pub(crate) fn event_value<'a>(event: &SequencedEventRef<'a>, column: usize) -> Result<Value<'a>> {
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

impl Part for (EventStore, EventsPart) {
    fn read(&self, access: &mut Access<'_>, _: &Watch, row: &mut RowSink<'_>) -> Result<()> {
        let (store, part) = self;
        let Some((query, options)) = part.query() else { return Ok(()) };
        let mut reader = access.events(store, &query, options)?;
        let mut outcome = Ok(true);
        loop {
            let read = reader.visit_while(EVENTS_AT_A_TIME, |event| {
                outcome = row(&Computed(&|column| event_value(event, column)));
                if matches!(outcome, Ok(true)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            let read = read.map_err(ropewalk::Error::from)?;
            if !matches!(outcome, Ok(true)) || read < EVENTS_AT_A_TIME {
                return outcome.map(|_| ());
            }
        }
    }
}

/// The string that `_id` is compared with.
fn id_of(conjunct: &Expr) -> Option<String> {
    texts(conjunct, 0).filter(|ids| ids.len() == 1)?.pop()
}

struct DocumentsPart {
    collection: Collection,
    id: Option<String>,
    /// The access rules of the collection are evaluated for this caller when it is read.
    acting: Acting,
}

impl DocumentsPart {
    fn find(&self) -> Find {
        self.id.as_deref().map_or_else(Find::all, |id| Find::matching(shown_as(id)))
    }
}

/// A filter that finds every document whose `_id` is displayed as this text: a string, an ObjectId as its
/// digits, another type as its JSON.
fn shown_as(id: &str) -> Filter {
    let mut ids = vec![Owned::from(Bson::String(id))];
    ids.extend(object_id(id).map(|id| Owned::from(Bson::ObjectId(id))));
    if ropewalk::tables::json_error(id).is_none()
        && let Ok(value) = value_of(id)
    {
        let is_id =
            !matches!(value.value(), Bson::String(_) | Bson::Array(_) | Bson::Regex(..) | Bson::Undefined);
        ids.extend(is_id.then_some(value));
    }
    let ids: Vec<Bson<'_>> = ids.iter().map(Owned::value).collect();
    match ids.as_slice() {
        [only] => Filter::equals("_id", *only),
        several => Filter::among("_id", several),
    }
}

impl Part for DocumentsPart {
    fn read(&self, access: &mut Access<'_>, watch: &Watch, row: &mut RowSink<'_>) -> Result<()> {
        let find = self.find();
        let mut outcome = Ok(true);
        let mut each = |document: DocBuf| {
            outcome = row(&Computed(&|column| match column {
                0 => Ok(document.doc().get("_id").map_or(Value::Null, |id| Value::text(id_text(id)))),
                _ => Ok(Value::json(json_of(document.doc()))),
            }));
            Ok::<bool, ropewalk::documents::DocumentsError>(matches!(outcome, Ok(true)))
        };
        let look = || watch.documents().map_err(DocumentsError::Interrupted);
        let inner = watch.clone();
        let command = Command::new(COMMAND_BYTES_MAX, None, move || inner.documents());
        let visited = command.run(|| match access {
            Access::Transaction(_, transaction) => {
                let mut documents = transaction.documents();
                documents.act_for(self.acting.caller());
                documents.with_cancellation(&look).visit(&self.collection, &find, &mut each)
            }
            Access::Snapshot(db, snapshot) => snapshot
                .documents(db)
                .as_caller(self.acting.caller())
                .with_cancellation(&look)
                .visit(&self.collection, &find, &mut each),
        });
        if let Err(error) = visited {
            watch.check()?;
            return Err(ropewalk::Error::from(error).into());
        }
        outcome.map(|_| ())
    }
}

/// The restriction of a read of a metric.
struct MetricPart {
    labels: Vec<String>,
    matchers: Vec<Matcher>,
    from_ms: i64,
    to_ms: i64,
}

impl MetricPart {
    fn all(fields: &[(String, Type)]) -> Self {
        let label = |(name, _): &(String, Type)| label_of(name).to_owned();
        let labels = fields.iter().skip(FIXED).map(label).collect();
        Self { labels, matchers: Vec::new(), from_ms: i64::MIN, to_ms: i64::MAX }
    }

    /// Applies a condition, if it narrows the read.
    fn narrow(&mut self, conjunct: &Expr) -> bool {
        if let Expr::And(parts) = conjunct {
            return parts.iter().fold(false, |any, part| self.narrow(part) | any);
        }
        let micros = |value: &Value<'_>| match value {
            Value::Timestamptz(micros) => Some(*micros),
            _ => None,
        };
        if let Some((low, high)) = bounds(conjunct, 0, micros) {
            self.from_ms = self.from_ms.max(low.div_euclid(1000));
            self.to_ms = self.to_ms.min(high.div_euclid(1000));
            return true;
        }
        for (place, label) in self.labels.iter().enumerate() {
            if let Some(values) = texts(conjunct, place + FIXED)
                && let [value] = values.as_slice()
                && !value.is_empty()
            {
                self.matchers.push(Matcher::equal(label.as_str(), value.as_str()));
                return true;
            }
        }
        false
    }
}

impl Part for (SeriesStore, MetricPart) {
    fn read(&self, access: &mut Access<'_>, _: &Watch, row: &mut RowSink<'_>) -> Result<()> {
        let (store, part) = self;
        let at = access.series(store)?;
        let mut selection =
            at.select(&part.matchers, part.from_ms, part.to_ms).map_err(ropewalk::Error::from)?;
        let mut samples;
        while selection.next().is_some() {
            let all = selection.labels().unwrap_or_default();
            let value = |name: &String| Some(all.get(name)).filter(|value| !value.is_empty());
            let labels: Vec<Option<String>> =
                part.labels.iter().map(|name| value(name).map(str::to_owned)).collect();
            let all = labels_json(all.iter().filter(|(name, _)| *name != NAME));
            samples = Samples::default();
            selection.samples(&mut samples).map_err(ropewalk::Error::from)?;
            for (place, (time, value)) in samples.times_ms.iter().zip(&samples.values).enumerate() {
                let histogram = samples.histograms.get(place).is_some_and(Option::is_some);
                let input = Computed(&|column| {
                    Ok(match column {
                        0 => Value::Timestamptz(time.saturating_mul(1000)),
                        1 if histogram => Value::Null,
                        1 => Value::Float8(*value),
                        2 => Value::Jsonb(Cow::Borrowed(&all)),
                        label => labels
                            .get(label - FIXED)
                            .and_then(Option::as_deref)
                            .map_or(Value::Null, Value::text),
                    })
                });
                if !row(&input)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Labels as the text of a `jsonb`.
pub(crate) fn labels_json<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let members = labels.map(|(name, value)| (name.to_owned(), Jsonb::String(value.to_owned())));
    Jsonb::object(members.collect()).to_string()
}

#[cfg(test)]
mod tests {
    use ropewalk::documents::CollectionOptions;
    use ropewalk::documents::lang::Writer;
    use ropewalk::{Database, Durability};

    use super::*;
    use crate::limits::interrupt::{Canceller, Interrupt};

    fn object(name: &str, value: Bson<'_>) -> Writer {
        let mut object = Writer::new();
        object.put(name, value);
        object
    }

    #[test]
    fn scan_of_documents_with_rules_ends_when_the_statement_is_cancelled() {
        let db = Database::in_memory().unwrap();
        let collection = db.documents().collection("shop", "notes").unwrap();
        for number in 0..100 {
            let document = object("_id", Bson::Int32(number)).finish();
            collection.insert_one(document.bytes(), Durability::Buffered).unwrap();
        }
        let rules = Some(object("read", Bson::String("resource._id >= 0")).finish());
        collection.set_options(CollectionOptions { rules, ..Default::default() }).unwrap();
        let mut session = crate::session::Session::new(db.clone());
        session.act_for(crate::access::rights::Rights::READ, "ann");
        let acting = session.acting.clone();
        let part = DocumentsPart { collection, id: None, acting };
        let asked = Canceller::default();
        let env = db.engine().env();
        let read = |access: &mut Access<'_>| {
            let watch = Interrupt::begin(&asked, 0, env).watch(env);
            part.read(access, &watch, &mut |_| Ok(true))
        };
        let snapshot = db.snapshot();
        read(&mut Access::Snapshot(&db, &snapshot)).unwrap();
        asked.cancel();
        let cancelled = read(&mut Access::Snapshot(&db, &snapshot)).unwrap_err();
        assert_eq!(cancelled.state, state::QUERY_CANCELED);
        let mut transaction = db.begin();
        let cancelled = read(&mut Access::Transaction(&db, &mut transaction)).unwrap_err();
        assert_eq!(cancelled.state, state::QUERY_CANCELED);
    }
}
