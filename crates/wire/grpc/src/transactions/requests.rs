//! Converts messages to operations. Invalid messages become errors here, with their place, or when they run.

use prost::Message as _;
use ropewalk::documents::Find;
use ropewalk::documents::lang::Options;
use ropewalk::events::ReadOptions;
use ropewalk::series::{Labels, SampleBatch};
use ropewalk::{AppendOptions, Isolation, Position, Seq};
use ropewalk_auth::Caller;
use ropewalk_transactions::{
    Documents, DocumentsWork, EventsUnchanged, IdempotencyKey, Modes, Operation, Parameter, Request, Samples,
    Statement, check_operations,
};
use ropewalk_wire::{Bounds, WireError};

use super::documents;
use super::failure::Failed;
use crate::convert;
use crate::proto::ropewalk::v1 as proto;
use crate::proto::ropewalk::v1::operation::Operation as OperationIn;
use crate::proto::ropewalk::v1::precondition::Precondition as PreconditionIn;
use crate::proto::ropewalk::v1::sql_value::Kind;
use crate::proto::ropewalk::v1::transaction_error::Place;
use crate::status::number;

/// The series store and the database of documents of operations that name none.
const DEFAULT: &str = "default";
/// Before the message in the content of a key: the bytes of no request over HTTP begin so.
const CONTENT: &[u8] = b"ropewalk.v1.CommitRequest\0";

/// A transaction in one request, ready to run.
pub(crate) struct Parsed {
    pub(crate) request: Request,
    pub(crate) encoding: proto::DocumentEncoding,
    /// The first so many operations are preconditions.
    pub(crate) preconditions: usize,
}

/// Converts messages within the bounds of their request.
pub(crate) struct Parser<'a> {
    /// The event store of operations that name none.
    store: &'a str,
    bounds: &'a Bounds,
    options: Options,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(store: &'a str, bounds: &'a Bounds) -> Self {
        Self { store, bounds, options: bounds.options() }
    }

    /// # Errors
    /// An operation or precondition that cannot be converted, with its place.
    pub(crate) fn transaction(
        &self,
        caller: &Caller,
        message: proto::CommitRequest,
    ) -> Result<Parsed, Failed> {
        let key = match &message.idempotency_key {
            None => None,
            Some(key) => {
                let content = [CONTENT, &message.encode_to_vec()].concat();
                Some(IdempotencyKey::new(caller, key, &content)?)
            }
        };
        let modes = modes(message.isolation, message.durability, message.async_interval_millis, message.at)?;
        let encoding = encoding(message.document_encoding)?;
        let (includes, preconditions) = (message.includes.map(Seq), message.preconditions.len());
        let operations = self.operations(message.preconditions, message.operations)?;
        let request = Request { operations, modes, includes, key };
        Ok(Parsed { request, encoding, preconditions })
    }

    /// The preconditions, then the operations.
    ///
    /// # Errors
    /// As [`Parser::transaction`].
    pub(crate) fn operations(
        &self,
        preconditions: Vec<proto::Precondition>,
        operations: Vec<proto::Operation>,
    ) -> Result<Vec<Operation>, Failed> {
        check_operations(operations.len(), preconditions.len())?;
        let mut parsed = Vec::with_capacity(preconditions.len() + operations.len());
        self.bounds.run(|| {
            for (place, precondition) in preconditions.into_iter().enumerate() {
                let failed = |error| Failed::at(Place::Precondition(number(place)), error);
                parsed.push(self.precondition(precondition).map_err(failed)?);
            }
            for (place, operation) in operations.into_iter().enumerate() {
                let failed = |error| Failed::at(Place::Operation(number(place)), error);
                parsed.push(self.operation(operation).map_err(failed)?);
            }
            Ok(parsed)
        })
    }

    fn precondition(&self, precondition: proto::Precondition) -> Result<Operation, WireError> {
        let missing = || WireError::invalid("one of events, documents, sql and seq is needed");
        match precondition.precondition.ok_or_else(missing)? {
            PreconditionIn::Events(events) => Ok(Operation::EventsUnchanged(EventsUnchanged {
                store: self.store(events.store),
                query: convert::query(events.query),
                after: Position(events.after),
            })),
            PreconditionIn::Documents(documents) => {
                let filter = documents::required_filter(documents.filter, &self.options)?;
                let count = documents.count.unwrap_or(1);
                // One more tells that there are too many.
                let most = documents::count("count", count.saturating_add(1))?;
                Ok(Operation::Documents(Documents {
                    database: or_default(documents.database),
                    collection: documents.collection,
                    work: DocumentsWork::Count(Find::matching(filter).limit(most)),
                    expected: Some(count),
                }))
            }
            PreconditionIn::Sql(sql) => Ok(Operation::Sql(statement(sql, true))),
            PreconditionIn::Seq(seq) => Ok(Operation::Newest(Seq(seq))),
        }
    }

    fn operation(&self, operation: proto::Operation) -> Result<Operation, WireError> {
        let missing =
            || WireError::invalid("one of append, read, documents, sql, samples and checkpoint is needed");
        Ok(match operation.operation.ok_or_else(missing)? {
            OperationIn::Append(append) => Operation::Append {
                store: self.store(append.store),
                events: convert::events(append.events)?,
                options: AppendOptions {
                    conditions: convert::conditions(append.conditions)?,
                    tracking: append.tracking.map(convert::tracking),
                    ..AppendOptions::default()
                },
            },
            OperationIn::Read(read) => Operation::ReadEvents {
                store: self.store(read.store),
                query: convert::query(read.query),
                options: ReadOptions {
                    after: read.after.map(Position),
                    backwards: read.backwards,
                    limit: read.limit,
                    ..ReadOptions::default()
                },
            },
            OperationIn::Documents(operation) => Operation::Documents(Documents {
                database: or_default(operation.database),
                collection: operation.collection,
                work: documents::work(operation.operation, &self.options)?,
                expected: operation.expect,
            }),
            OperationIn::Sql(sql) => Operation::Sql(statement(sql, false)),
            OperationIn::Samples(samples) => Operation::Samples(self::samples(samples)?),
            OperationIn::Checkpoint(checkpoint) => Operation::Checkpoint {
                store: self.store(checkpoint.store),
                consumer: checkpoint.consumer,
                position: Position(checkpoint.position),
                expected: checkpoint.expect.map(Position),
            },
        })
    }

    fn store(&self, name: String) -> String {
        if name.is_empty() { self.store.to_owned() } else { name }
    }
}

fn or_default(name: String) -> String {
    if name.is_empty() { DEFAULT.to_owned() } else { name }
}

fn statement(statement: proto::Statement, is_precondition: bool) -> Statement {
    Statement {
        text: statement.sql,
        parameters: statement.parameters.into_iter().map(parameter).collect(),
        expected: statement.expect.or(is_precondition.then_some(1)),
        is_check: is_precondition,
    }
}

fn parameter(value: proto::SqlValue) -> Parameter {
    match value.kind {
        None => Parameter::Null,
        Some(Kind::BoolValue(value)) => Parameter::Bool(value),
        Some(Kind::Int64Value(number)) => Parameter::Integer(number),
        Some(Kind::DoubleValue(number)) => Parameter::Float(number),
        Some(Kind::TextValue(text)) => Parameter::Text(text),
        Some(Kind::BytesValue(bytes)) => Parameter::Bytes(bytes),
    }
}

fn samples(samples: proto::AppendSamples) -> Result<Samples, WireError> {
    let mut batch = SampleBatch::new();
    for (place, series) in samples.series.into_iter().enumerate() {
        let invalid = |why: String| WireError::invalid(format!("samples.series[{place}]: {why}"));
        let labels = series.labels.iter().map(|label| (&label.name, &label.value));
        let labels = Labels::new(labels).map_err(|error| invalid(error.to_string()))?;
        if labels.name().is_empty() {
            return Err(invalid("the label __name__ is missing".to_owned()));
        }
        let mut group = batch.series(&labels);
        for sample in series.samples {
            group.push(sample.timestamp_millis, sample.value);
        }
    }
    Ok(Samples { store: or_default(samples.store), batch })
}

/// Isolation and durability of a transaction, and the commit that it reads.
///
/// # Errors
/// A number of no isolation or durability.
pub(crate) fn modes(
    isolation: i32,
    durability: i32,
    interval: Option<u32>,
    at: Option<u64>,
) -> Result<Modes, WireError> {
    let isolation = match proto::Isolation::try_from(isolation) {
        Ok(proto::Isolation::Serializable) => Isolation::Serializable,
        Ok(proto::Isolation::Snapshot) => Isolation::Snapshot,
        Err(_) => return Err(WireError::invalid(format!("isolation {isolation} is not known"))),
    };
    Ok(Modes { isolation, durability: convert::durability(durability, interval)?, at: at.map(Seq) })
}

/// # Errors
/// A number of no encoding.
pub(crate) fn encoding(number: i32) -> Result<proto::DocumentEncoding, WireError> {
    let unknown = |_| WireError::invalid(format!("document_encoding {number} is not known"));
    proto::DocumentEncoding::try_from(number).map_err(unknown)
}
