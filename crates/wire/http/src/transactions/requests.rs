//! Bodies of transactions, and their parsing.

use std::collections::BTreeMap;

use ropewalk::documents::Find;
use ropewalk::documents::lang::Options;
use ropewalk::documents::lang::extjson::Form;
use ropewalk::events::ReadOptions;
use ropewalk::series::{Labels, SampleBatch};
use ropewalk::{Isolation, Position, Query, Seq};
use ropewalk_transactions::{
    Documents, DocumentsWork, EventsUnchanged, Modes, Operation, Parameter, Samples, Statement,
    check_operations,
};
use ropewalk_wire::{Bounds, extjson_parser};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::documents::requests::{self, DeleteIn, FindIn, UpdateIn};
use crate::documents::responses;
use crate::kit::json::{AppendPartIn, DurabilityIn, Object, QueryIn, Text};
use crate::kit::problem::{Problem, Result};

/// The series store and the database of documents of operations that name none.
const DEFAULT: &str = "default";

/// Isolation of a transaction.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Isolation)]
enum IsolationIn {
    /// The data that it reads has not changed at its commit.
    #[default]
    Serializable,
    /// It reads one snapshot; only its writes are checked.
    Snapshot,
}

impl From<IsolationIn> for Isolation {
    fn from(isolation: IsolationIn) -> Self {
        match isolation {
            IsolationIn::Serializable => Self::Serializable,
            IsolationIn::Snapshot => Self::Snapshot,
        }
    }
}

/// A transaction in one request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionOfModels)]
pub(crate) struct TransactionIn<'a> {
    /// Checked before the operations, in the same snapshot. Otherwise: 412, and nothing is written.
    #[serde(borrow, default)]
    #[schema(value_type = Vec<PreconditionIn<'a>>)]
    preconditions: Vec<Object<PreconditionIn<'a>>>,
    /// In this order; each sees the writes of those before it.
    #[serde(borrow)]
    #[schema(value_type = Vec<ModelOperationIn<'a>>)]
    operations: Vec<Object<ModelOperationIn<'a>>>,
    #[serde(default)]
    #[schema(value_type = Option<IsolationIn>)]
    isolation: IsolationIn,
    /// As for appends.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    durability: DurabilityIn,
    /// A commit that the snapshot of the transaction has to include, such as the `seq` of an earlier response.
    includes: Option<u64>,
    /// Reads as of this commit, and writes nothing. The server waits until it is visible; one that cannot be
    /// read any more is 410 with the oldest that can.
    at: Option<u64>,
}

/// Modes of a transaction over several requests.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BeginTransaction)]
pub(crate) struct BeginIn {
    #[serde(default)]
    #[schema(value_type = Option<IsolationIn>)]
    isolation: IsolationIn,
    /// As for appends.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    durability: DurabilityIn,
    /// Reads as of this commit, and writes nothing. While it is open, other transactions can read it, too.
    at: Option<u64>,
}

impl BeginIn {
    pub(crate) fn modes(&self) -> Modes {
        Modes { isolation: self.isolation.into(), durability: self.durability.0, at: self.at.map(Seq) }
    }
}

/// Operations of an open transaction.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionOperations)]
pub(crate) struct OperationsIn<'a> {
    /// In this order; each sees the writes of those before it.
    #[serde(borrow)]
    #[schema(value_type = Vec<ModelOperationIn<'a>>)]
    operations: Vec<Object<ModelOperationIn<'a>>>,
}

/// One of `seq`, `events`, `documents` and `sql`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionPrecondition)]
struct PreconditionIn<'a> {
    /// This commit is the newest of the database: none comes between it and that of the transaction.
    seq: Option<u64>,
    /// No event after the position matches.
    #[serde(default)]
    #[schema(value_type = Option<EventsUnchangedIn>)]
    events: Option<Object<EventsUnchangedIn>>,
    /// So many documents match.
    #[serde(borrow, default)]
    #[schema(value_type = Option<DocumentsMatchIn<'a>>)]
    documents: Option<Object<DocumentsMatchIn<'a>>>,
    /// The query returns so many rows.
    #[serde(borrow, default)]
    #[schema(value_type = Option<StatementIn<'a>>)]
    sql: Option<Object<StatementIn<'a>>>,
}

/// No event after `after` matches the query.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EventsUnchanged)]
struct EventsUnchangedIn {
    store: String,
    /// Absent: every event.
    #[serde(default)]
    #[schema(value_type = Option<QueryIn>)]
    query: Object<QueryIn>,
    /// Events up to this position do not count. Absent: all count.
    #[serde(default)]
    after: u64,
}

/// The number of documents that match a filter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DocumentsMatch)]
struct DocumentsMatchIn<'a> {
    /// Absent: `default`.
    database: Option<String>,
    collection: String,
    /// In MongoDB's language, such as `{"_id": 7, "version": 3}`.
    #[serde(borrow)]
    #[schema(value_type = Object)]
    filter: &'a RawValue,
    /// Absent: 1.
    count: Option<u64>,
}

/// One of `append`, `read`, `documents`, `sql`, `samples` and `checkpoint`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ModelOperation)]
pub(crate) struct ModelOperationIn<'a> {
    /// Appends events.
    #[serde(borrow, default)]
    #[schema(value_type = Option<AppendPartIn<'a>>)]
    append: Option<Object<AppendPartIn<'a>>>,
    /// Reads events, including those of the transaction.
    #[serde(default)]
    #[schema(value_type = Option<ReadEventsIn>)]
    read: Option<Object<ReadEventsIn>>,
    /// Reads or writes documents.
    #[serde(borrow, default)]
    #[schema(value_type = Option<DocumentsIn<'a>>)]
    documents: Option<Object<DocumentsIn<'a>>>,
    /// Runs a statement.
    #[serde(borrow, default)]
    #[schema(value_type = Option<StatementIn<'a>>)]
    sql: Option<Object<StatementIn<'a>>>,
    /// Appends samples.
    #[serde(borrow, default)]
    #[schema(value_type = Option<SamplesIn<'a>>)]
    samples: Option<Object<SamplesIn<'a>>>,
    /// Records the position up to which a consumer has processed the events of a store.
    #[serde(default)]
    #[schema(value_type = Option<CheckpointIn>)]
    checkpoint: Option<Object<CheckpointIn>>,
}

/// A read of events.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReadEvents)]
struct ReadEventsIn {
    /// A store that does not exist is empty.
    store: String,
    /// Absent: every event.
    #[serde(default)]
    #[schema(value_type = Option<QueryIn>)]
    query: Object<QueryIn>,
    /// Only events after this position.
    after: Option<u64>,
    /// Newest first.
    #[serde(default)]
    backwards: bool,
    /// At most so many.
    limit: Option<u64>,
}

/// One of `insert`, `update`, `delete`, `get`, `find` on a collection.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DocumentsOperation)]
pub(crate) struct DocumentsIn<'a> {
    /// Absent: `default`, or the database of the path.
    pub(crate) database: Option<String>,
    collection: String,
    /// A document.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    insert: Option<&'a RawValue>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<UpdateIn<'a>>)]
    update: Option<Object<UpdateIn<'a>>>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<DeleteIn<'a>>)]
    delete: Option<Object<DeleteIn<'a>>>,
    /// The `_id` of a document.
    #[serde(borrow, default)]
    #[schema(value_type = Option<serde_json::Value>)]
    get: Option<&'a RawValue>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<FindIn<'a>>)]
    find: Option<Object<FindIn<'a>>>,
    /// How many documents it has to match, delete or find: otherwise the entire transaction is rejected
    /// (412).
    expect: Option<u64>,
}

/// An SQL statement.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionStatement)]
struct StatementIn<'a> {
    /// A single statement. It begins or ends no transaction.
    #[schema(example = "UPDATE stock SET n = n - $1 WHERE sku = $2 AND n >= $1")]
    sql: String,
    /// Values of `$1`, `$2`, …
    #[serde(borrow, default)]
    #[schema(value_type = Vec<serde_json::Value>)]
    params: Vec<&'a RawValue>,
    /// How many rows it has to write or return: otherwise the entire transaction is rejected (412).
    expect: Option<u64>,
}

/// Samples to append.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SamplesToAppend)]
struct SamplesIn<'a> {
    /// The series store. Absent: `default`, which SQL and PromQL read.
    store: Option<String>,
    #[serde(borrow)]
    #[schema(value_type = Vec<SeriesIn<'a>>)]
    series: Vec<Object<SeriesIn<'a>>>,
}

/// The samples of one series.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SeriesSamples)]
struct SeriesIn<'a> {
    /// With `__name__`, the metric.
    #[serde(borrow)]
    #[schema(value_type = BTreeMap<String, String>, example = json!({"__name__": "order_cents", "customer": "ann"}))]
    labels: BTreeMap<Text<'a>, Text<'a>>,
    /// Pairs of milliseconds since 1970 and a value.
    #[schema(example = json!([[1_732_406_400_000_u64, 2000]]))]
    samples: Vec<(i64, f64)>,
}

/// The progress of a consumer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionCheckpoint)]
struct CheckpointIn {
    store: String,
    consumer: String,
    /// It has processed every event up to this position.
    position: u64,
    /// The position that has to be recorded until now, 0 for none: otherwise the entire transaction is
    /// rejected (412). It fences a second worker of the same consumer.
    expect: Option<u64>,
}

/// Where the operations of a request come from, for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// The first so many operations are preconditions.
    pub(crate) preconditions: usize,
}

/// A request, ready to run.
pub(crate) struct Parsed {
    pub(crate) operations: Vec<Operation>,
    pub(crate) modes: Modes,
    pub(crate) includes: Option<u64>,
    /// The form of documents in the result of each operation.
    pub(crate) forms: Vec<Form>,
    pub(crate) places: Places,
}

/// Parses requests within their bounds.
pub(crate) struct Parser {
    bounds: Bounds,
    options: Options,
}

impl Parser {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self { bounds: bounds.clone(), options: bounds.options() }
    }

    /// # Errors
    /// An operation that cannot be parsed, with its place.
    pub(crate) fn transaction(&self, request: TransactionIn<'_>) -> Result<Parsed> {
        let TransactionIn { preconditions, operations, isolation, durability, includes, at } = request;
        let modes = Modes { isolation: isolation.into(), durability: durability.0, at: at.map(Seq) };
        let parsed = self.parse(preconditions, operations)?;
        Ok(Parsed { modes, includes, ..parsed })
    }

    /// # Errors
    /// As [`Parser::transaction`].
    pub(crate) fn operations(&self, request: OperationsIn<'_>) -> Result<Parsed> {
        self.parse(Vec::new(), request.operations)
    }

    fn parse(
        &self,
        preconditions: Vec<Object<PreconditionIn<'_>>>,
        operations: Vec<Object<ModelOperationIn<'_>>>,
    ) -> Result<Parsed> {
        let count = preconditions.len() + operations.len();
        check_operations(operations.len(), preconditions.len())?;
        let places = Places { preconditions: preconditions.len() };
        let (mut parsed, mut forms) = (Vec::with_capacity(count), Vec::with_capacity(count));
        self.bounds.run(|| {
            for (place, Object(precondition)) in preconditions.into_iter().enumerate() {
                let operation = self.precondition(precondition);
                parsed.push(operation.map_err(|problem| problem.within(&format!("preconditions[{place}]")))?);
                forms.push(Form::Relaxed);
            }
            for (place, Object(operation)) in operations.into_iter().enumerate() {
                let operation = self.operation(operation);
                let (operation, form) =
                    operation.map_err(|problem| problem.within(&format!("operations[{place}]")))?;
                parsed.push(operation);
                forms.push(form);
            }
            Ok::<_, Problem>(())
        })?;
        Ok(Parsed { operations: parsed, modes: Modes::default(), includes: None, forms, places })
    }

    /// The operations of a transaction over the documents of one database.
    ///
    /// # Errors
    /// As [`Parser::transaction`]; an operation on another database.
    pub(crate) fn documents_of(
        &self,
        operations: &[Object<DocumentsIn<'_>>],
        database: &str,
        modes: Modes,
    ) -> Result<Parsed> {
        check_operations(operations.len(), 0)?;
        let each = |(place, Object(operation)): (usize, &Object<DocumentsIn<'_>>)| {
            let parsed = match &operation.database {
                Some(other) if other != database => {
                    Err(Problem::invalid_field("database: it differs from the database of the path"))
                }
                _ => self.documents(operation, database),
            };
            let (documents, form) =
                parsed.map_err(|problem| problem.within(&format!("operations[{place}]")))?;
            Ok((Operation::Documents(documents), form))
        };
        let parsed = self.bounds.run(|| operations.iter().enumerate().map(each).collect::<Result<Vec<_>>>());
        let (operations, forms) = parsed?.into_iter().unzip();
        Ok(Parsed { operations, modes, includes: None, forms, places: Places { preconditions: 0 } })
    }

    fn precondition(&self, precondition: PreconditionIn<'_>) -> Result<Operation> {
        let PreconditionIn { seq, events, documents, sql } = precondition;
        match (seq, events, documents, sql) {
            (Some(seq), None, None, None) => Ok(Operation::Newest(Seq(seq))),
            (None, Some(Object(events)), None, None) => Ok(Operation::EventsUnchanged(EventsUnchanged {
                store: events.store,
                query: query(events.query),
                after: Position(events.after),
            })),
            (None, None, Some(Object(documents)), None) => {
                let filter = requests::filter(Some(documents.filter.get()), &self.options)?;
                let count = documents.count.unwrap_or(1);
                // One more tells that there are too many.
                let most = requests::number("count", count.saturating_add(1))?;
                Ok(Operation::Documents(Documents {
                    database: documents.database.unwrap_or_else(|| DEFAULT.to_owned()),
                    collection: documents.collection,
                    work: DocumentsWork::Count(Find::matching(filter).limit(most)),
                    expected: Some(count),
                }))
            }
            (None, None, None, Some(Object(sql))) => Ok(Operation::Sql(statement(sql, true)?)),
            _ => Err(Problem::invalid_field("one of seq, events, documents and sql is needed")),
        }
    }

    fn operation(&self, operation: ModelOperationIn<'_>) -> Result<(Operation, Form)> {
        let ModelOperationIn { append, read, documents, sql, samples, checkpoint } = operation;
        let mut found = Vec::new();
        if let Some(Object(append)) = append {
            let (store, events, options) = append.into_parts()?;
            found.push((Operation::Append { store, events, options }, Form::Relaxed));
        }
        if let Some(Object(read)) = read {
            let options = ReadOptions {
                after: read.after.map(Position),
                backwards: read.backwards,
                limit: read.limit,
                ..ReadOptions::default()
            };
            let operation = Operation::ReadEvents { store: read.store, query: query(read.query), options };
            found.push((operation, Form::Relaxed));
        }
        if let Some(Object(documents)) = documents {
            let (documents, form) = self.documents(&documents, DEFAULT)?;
            found.push((Operation::Documents(documents), form));
        }
        if let Some(Object(sql)) = sql {
            found.push((Operation::Sql(statement(sql, false)?), Form::Relaxed));
        }
        if let Some(Object(samples)) = samples {
            found.push((Operation::Samples(samples.parse()?), Form::Relaxed));
        }
        if let Some(Object(CheckpointIn { store, consumer, position, expect })) = checkpoint {
            let (position, expected) = (Position(position), expect.map(Position));
            found.push((Operation::Checkpoint { store, consumer, position, expected }, Form::Relaxed));
        }
        let one = found.pop().filter(|_| found.is_empty());
        one.ok_or_else(|| {
            Problem::invalid_field("one of append, read, documents, sql, samples and checkpoint is needed")
        })
    }

    /// An operation on documents, and the form of its result. `database`: for one that names none.
    ///
    /// # Errors
    /// Not exactly one operation, or one that cannot be parsed.
    pub(crate) fn documents(&self, operation: &DocumentsIn<'_>, database: &str) -> Result<(Documents, Form)> {
        let options = &self.options;
        let own_durability = operation.update.as_ref().is_some_and(|update| update.0.durability.is_some())
            || operation.delete.as_ref().is_some_and(|delete| delete.0.durability.is_some());
        if own_durability {
            return Err(Problem::invalid_field(
                "durability is a field of the transaction, not of its operations",
            ));
        }
        let mut form = Form::Relaxed;
        let mut works = Vec::new();
        if let Some(text) = operation.insert {
            works.push(DocumentsWork::Insert(requests::document("insert", text.get())?));
        }
        if let Some(Object(update)) = &operation.update {
            works.push(DocumentsWork::Update { spec: update.spec(options)?, many: update.many });
        }
        if let Some(Object(delete)) = &operation.delete {
            works.push(DocumentsWork::Delete(delete.find(options)?));
        }
        if let Some(text) = operation.get {
            let id = extjson_parser::parse_value(text.get())
                .map_err(|error| Problem::from(error).within("get"))?;
            works.push(DocumentsWork::Get(id));
        }
        if let Some(Object(find)) = &operation.find {
            form = responses::form(find.canonical);
            works.push(DocumentsWork::Find(find.find(options)?));
        }
        let work = works.pop().filter(|_| works.is_empty());
        let work = work
            .ok_or_else(|| Problem::invalid_field("one of insert, update, delete, get and find is needed"))?;
        let database = operation.database.clone().unwrap_or_else(|| database.to_owned());
        let collection = operation.collection.clone();
        Ok((Documents { database, collection, work, expected: operation.expect }, form))
    }
}

fn query(Object(query): Object<QueryIn>) -> Query {
    query.into()
}

fn statement(statement: StatementIn<'_>, is_precondition: bool) -> Result<Statement> {
    let StatementIn { sql, params, expect } = statement;
    let parameter = |param: &RawValue| {
        Parameter::from_json(param.get())
            .map_err(|error| Problem::invalid_field(error.message).within("params"))
    };
    Ok(Statement {
        text: sql,
        parameters: params.into_iter().map(parameter).collect::<Result<_, _>>()?,
        expected: expect.or(is_precondition.then_some(1)),
        is_check: is_precondition,
    })
}

impl SamplesIn<'_> {
    fn parse(self) -> Result<Samples> {
        let mut batch = SampleBatch::new();
        for (place, Object(SeriesIn { labels, samples })) in self.series.into_iter().enumerate() {
            let invalid = |why: String| Problem::invalid_field(format!("samples.series[{place}]: {why}"));
            let labels = Labels::new(&labels).map_err(|error| invalid(error.to_string()))?;
            if labels.name().is_empty() {
                return Err(invalid("the label __name__ is missing".to_owned()));
            }
            let mut series = batch.series(&labels);
            for (time_ms, value) in samples {
                series.push(time_ms, value);
            }
        }
        Ok(Samples { store: self.store.unwrap_or_else(|| DEFAULT.to_owned()), batch })
    }
}
