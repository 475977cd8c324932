//! Results of transactions, and their errors.

use axum::response::Response;
use ropewalk::documents::lang::Value;
use ropewalk::documents::lang::extjson::Form;
use ropewalk::events::EventReader;
use ropewalk::{Position, Seq};
use ropewalk_http_kit::response::json;
use ropewalk_transactions::{
    Answer, AppendPositions, Cause, Done, Encode, Failure, Report, ReportKind, ResultMemory, TransactionId,
    put_outcome,
};
use ropewalk_wire::{Service, WireError};
use serde::Serialize;
use utoipa::ToSchema;

use super::requests::Places;
use crate::documents::{queries, responses};
use crate::kit::encode::put_event;
use crate::kit::problem::{Problem, Refusal, Result};

/// A committed transaction. Only its schema is used: the results are written by hand.
#[derive(Serialize, ToSchema)]
#[schema(as = TransactionResult)]
#[allow(dead_code)]
pub(crate) struct TransactionOut {
    /// The commit; for a transaction without writes, the newest commit that it read.
    #[schema(example = 77)]
    seq: u64,
    /// True when it is the result of an earlier request with the same key.
    repeated: bool,
    /// For `append` `{"first", "last"}`, for `read` `{"events"}`, for documents as their own routes, for `sql`
    /// `{"command", "columns", "rows"}`, for `samples` `{"samples"}`, for `checkpoint` `{}`.
    #[schema(value_type = Vec<utoipa::openapi::Object>)]
    results: Vec<serde_json::Value>,
}

/// Results of operations in an open transaction. Only its schema is used.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationResults)]
#[allow(dead_code)]
pub(crate) struct ResultsOut {
    /// As for a transaction in one request; the positions of appends are null.
    #[schema(value_type = Vec<utoipa::openapi::Object>)]
    results: Vec<serde_json::Value>,
}

/// An open transaction.
#[derive(Serialize, ToSchema)]
#[schema(as = BegunTransaction)]
pub(crate) struct BegunOut {
    /// The token for the paths of its requests.
    transaction: String,
    /// The newest commit that it reads.
    snapshot: u64,
    /// It is rolled back when there is no request for so long.
    idle_ms: u64,
}

impl BegunOut {
    pub(crate) fn new(service: &Service, id: TransactionId, snapshot: Seq) -> Self {
        let idle_time = service.limits().transactions.idle_time;
        let idle_ms = u64::try_from(idle_time.as_millis()).unwrap_or(u64::MAX);
        Self { transaction: id.to_string(), snapshot: snapshot.0, idle_ms }
    }
}

/// A committed transaction.
#[derive(Serialize, ToSchema)]
#[schema(as = CommittedTransaction)]
pub(crate) struct CommittedOut {
    /// The commit; for a transaction without writes, the newest commit that it read.
    seq: u64,
    /// The positions of each append, in order.
    appended: Vec<PositionsOut>,
}

/// The positions of an append.
#[derive(Serialize, ToSchema)]
#[schema(as = AppendedPositions)]
struct PositionsOut {
    store: String,
    /// Null without events.
    first: Option<u64>,
    last: Option<u64>,
}

impl CommittedOut {
    pub(crate) fn new(answer: &Answer) -> Self {
        let appends = answer.results.iter().filter_map(|result| result.as_ref().err());
        let positions = |appended: &AppendPositions| PositionsOut {
            store: appended.store.clone(),
            first: shown(appended.first),
            last: shown(appended.last),
        };
        Self { seq: answer.seq.0, appended: appends.map(positions).collect() }
    }
}

fn shown(position: Position) -> Option<u64> {
    (position != Position::ZERO).then_some(position.0)
}

/// Encodes results within the memory for responses.
pub(crate) struct Encoder {
    forms: Vec<Form>,
    memory: ResultMemory,
}

impl Encoder {
    pub(crate) fn new(service: &Service, forms: Vec<Form>) -> Self {
        Self { forms, memory: ResultMemory::new(service) }
    }

    fn json(&self, place: usize, done: Done) -> Result<Vec<u8>, WireError> {
        let form = self.forms.get(place).copied().unwrap_or(Form::Relaxed);
        let out = match done {
            Done::Appended(appended) => positions(&appended),
            Done::Events(events) => self.events(events)?,
            Done::Unchanged | Done::Checkpoint => b"{}".to_vec(),
            Done::Inserted(id) => responses::named("id", Some(id.value()), Form::Relaxed),
            Done::Updated(updated) => {
                let mut out = Vec::new();
                queries::put_updated(&mut out, &updated);
                out
            }
            Done::Deleted(deleted) => format!("{{\"deleted\":{deleted}}}").into_bytes(),
            Done::Document(found) => {
                let document = found.as_ref().map(|found| Value::Document(found.doc()));
                responses::named("document", document, form)
            }
            Done::Documents(found) => {
                let values = found.iter().map(|document| Value::Document(document.doc()));
                responses::listed("documents", values, form)
            }
            Done::Sql(outcome) => {
                let mut json = String::new();
                put_outcome(&mut json, &outcome, &mut |bytes| self.memory.cover(bytes))?;
                json.into_bytes()
            }
            Done::Samples(samples) => format!("{{\"samples\":{samples}}}").into_bytes(),
        };
        self.memory.add(out.len())?;
        Ok(out)
    }

    fn events(&self, mut reader: EventReader) -> Result<Vec<u8>, WireError> {
        let mut out = b"{\"events\":[".to_vec();
        let mut refused = None;
        let visit = |event: &ropewalk::events::SequencedEventRef<'_>| {
            if !out.ends_with(b"[") {
                out.push(b',');
            }
            put_event(&mut out, event);
            refused = self.memory.cover(out.len()).err();
            match refused {
                None => core::ops::ControlFlow::Continue(()),
                Some(_) => core::ops::ControlFlow::Break(()),
            }
        };
        reader.visit_while(usize::MAX, visit)?;
        if let Some(error) = refused {
            return Err(error);
        }
        out.extend_from_slice(b"]}");
        Ok(out)
    }

    /// The response of a transaction. The results of the first `left_out` operations are not part of it.
    ///
    /// # Errors
    /// The results are too large.
    pub(crate) fn response(self, answer: &Answer, left_out: usize) -> Result<Response> {
        let head = format!("{{\"seq\":{},\"repeated\":{},\"results\":[", answer.seq.0, answer.is_repeated);
        self.send(head, answer, left_out)
    }

    /// The response of operations in an open transaction.
    ///
    /// # Errors
    /// As [`Encoder::response`].
    pub(crate) fn results(self, answer: &Answer) -> Result<Response> {
        self.send("{\"results\":[".to_owned(), answer, 0)
    }

    fn send(self, head: String, answer: &Answer, left_out: usize) -> Result<Response> {
        let mut out = head.into_bytes();
        let bytes = |result: &Result<Vec<u8>, AppendPositions>| result.as_ref().map_or(64, Vec::len) + 1;
        out.reserve(answer.results.iter().skip(left_out).map(bytes).sum::<usize>() + 2);
        for (place, result) in answer.results.iter().skip(left_out).enumerate() {
            if place > 0 {
                out.push(b',');
            }
            match result {
                Ok(encoded) => out.extend_from_slice(encoded),
                Err(appended) => out.extend_from_slice(&positions(appended)),
            }
        }
        out.extend_from_slice(b"]}");
        Ok(json(self.memory.finish(out.len())?.hold(out)))
    }
}

impl Encode for Encoder {
    fn restart(&self) {
        self.memory.clear();
    }

    fn encode(&self, place: usize, done: Done) -> Result<Vec<u8>, WireError> {
        self.json(place, done)
    }
}

/// `{"first":1,"last":2}`
fn positions(appended: &AppendPositions) -> Vec<u8> {
    let number = |position| shown(position).map_or("null".to_owned(), |position| position.to_string());
    format!("{{\"first\":{},\"last\":{}}}", number(appended.first), number(appended.last)).into_bytes()
}

/// The problem of a failed request.
pub(crate) fn failed(service: &Service, failure: Failure, places: &Places) -> Problem {
    let problem = problem(service, failure.cause);
    match failure.operation {
        None => problem,
        Some(place) => match place.checked_sub(places.preconditions) {
            None => problem.within(&format!("preconditions[{place}]")),
            Some(place) => problem.within(&format!("operations[{place}]")).of_operation(place),
        },
    }
}

/// The problem of a cause.
pub(crate) fn problem(service: &Service, cause: Cause) -> Problem {
    let Report { error, kind, statement, oldest_readable } = Report::new(cause, service);
    let problem = match kind {
        ReportKind::Code => Problem::from(error),
        ReportKind::PreconditionFailed => Problem::refused(Refusal::Precondition, error.message),
        ReportKind::ValidationFailed => Problem::refused(Refusal::Unfit, error.message),
        ReportKind::QuotaExceeded => Problem::refused(Refusal::Quota, error.message),
        ReportKind::CommitUnreadable => Problem::refused(Refusal::Gone, error.message),
    };
    let problem = match oldest_readable {
        None => problem,
        Some(seq) => problem.with_oldest_readable(seq.0),
    };
    match statement {
        None => problem,
        Some(statement) => problem.of_statement(statement.sqlstate, statement.constraint, statement.hint),
    }
}
