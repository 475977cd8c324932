//! Results of operations as bytes of messages, within the memory for responses.

use core::ops::ControlFlow;

use prost::Message as _;
use ropewalk::Position;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{Doc, DocBuf, Owned, Writer};
use ropewalk::events::{EventReader, SequencedEventRef};
use ropewalk::tables::Value;
use ropewalk_sql::{Outcome, to_text, type_name};
use ropewalk_transactions::{AppendPositions, Done, Encode, ResultMemory};
use ropewalk_wire::{Service, WireError};
use tonic::Response;

use super::failure::Failed;
use crate::frame::{Frame, put_bytes, put_event_element, put_message};
use crate::proto::ropewalk::v1 as proto;
use crate::proto::ropewalk::v1::DocumentEncoding;
use crate::proto::ropewalk::v1::document::Encoding;
use crate::proto::ropewalk::v1::operation_result::Kind;
use crate::proto::ropewalk::v1::sql_value::Kind as SqlKind;
use crate::request::ResponseMemory;

/// Fields of `OperationResult` whose messages are written piece by piece.
const EVENTS: u8 = 2;
const DOCUMENTS: u8 = 7;
const SQL: u8 = 8;

/// Encodes results for the response of one request.
pub(crate) struct Encoder {
    encoding: DocumentEncoding,
    memory: ResultMemory,
}

impl Encoder {
    pub(crate) fn new(service: &Service, encoding: DocumentEncoding) -> Self {
        Self { encoding, memory: ResultMemory::new(service) }
    }

    /// The response: the fields of `head`, then each result as an element of the field with this number.
    ///
    /// # Errors
    /// The responses of the server hold too much.
    pub(crate) fn respond(
        self,
        head: Vec<u8>,
        field: u8,
        results: &[Result<Vec<u8>, AppendPositions>],
    ) -> Result<Response<Frame>, Failed> {
        let mut out = head;
        for result in results {
            match result {
                Ok(encoded) => put_bytes(&mut out, field, encoded),
                Err(append) => put_message(&mut out, field, &result_of(Kind::Appended(appended(append)))),
            }
        }
        let memory = self.memory.finish(out.len())?;
        let mut response = Response::new(Frame(out.into()));
        response.extensions_mut().insert(ResponseMemory::new(memory));
        Ok(response)
    }

    fn result(&self, done: Done) -> Result<Vec<u8>, WireError> {
        let kind = match done {
            Done::Appended(append) => Kind::Appended(appended(&append)),
            Done::Events(events) => return self.events(events),
            // Results of preconditions are no part of the response.
            Done::Unchanged => return Ok(Vec::new()),
            Done::Inserted(id) => Kind::Inserted(proto::InsertedDocument { id: Some(self.id(&id)) }),
            Done::Updated(updated) => Kind::Updated(proto::UpdatedDocuments {
                matched: updated.matched,
                modified: updated.modified,
                upserted_id: updated.upserted.as_ref().map(|id| self.id(id)),
            }),
            Done::Deleted(deleted) => Kind::Deleted(proto::DeletedDocuments { deleted }),
            Done::Document(found) => Kind::Document(proto::FoundDocument {
                document: found.map(|found| self.document(found.doc())),
            }),
            Done::Documents(found) => return self.documents(&found),
            Done::Sql(outcome) => return self.sql(outcome),
            Done::Samples(samples) => Kind::Samples(proto::AppendedSamples { samples }),
            Done::Checkpoint => Kind::Checkpoint(proto::CheckpointSet {}),
        };
        Ok(result_of(kind).encode_to_vec())
    }

    fn events(&self, mut reader: EventReader) -> Result<Vec<u8>, WireError> {
        let (mut out, mut refused) = (Vec::new(), None);
        let visit = |event: &SequencedEventRef<'_>| {
            put_event_element(&mut out, event);
            refused = self.memory.cover(out.len()).err();
            if refused.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        reader.visit_while(usize::MAX, visit)?;
        match refused {
            Some(error) => Err(error),
            None => Ok(result_with(EVENTS, &out)),
        }
    }

    fn documents(&self, found: &[DocBuf]) -> Result<Vec<u8>, WireError> {
        let mut out = Vec::new();
        for document in found {
            put_message(&mut out, 1, &self.document(document.doc()));
            self.memory.cover(out.len())?;
        }
        Ok(result_with(DOCUMENTS, &out))
    }

    fn sql(&self, outcome: Outcome) -> Result<Vec<u8>, WireError> {
        let column = |column: &ropewalk_sql::ResultColumn| proto::Column {
            name: column.name.clone(),
            r#type: type_name(column.ty),
        };
        let head = proto::SqlResult {
            command: outcome.tag().to_string(),
            count: outcome.count,
            columns: outcome.columns.iter().flat_map(|columns| columns.iter()).map(column).collect(),
            rows: Vec::new(),
        };
        let mut out = head.encode_to_vec();
        for row in outcome.rows {
            let row = proto::Row { values: row.into_iter().map(sql_value).collect() };
            put_message(&mut out, 4, &row);
            self.memory.cover(out.len())?;
        }
        Ok(result_with(SQL, &out))
    }

    fn document(&self, document: Doc<'_>) -> proto::Document {
        let form = match self.encoding {
            DocumentEncoding::Bson => {
                return proto::Document { encoding: Some(Encoding::Bson(document.bytes().to_vec())) };
            }
            DocumentEncoding::ExtendedJson => Form::Relaxed,
            DocumentEncoding::CanonicalExtendedJson => Form::Canonical,
        };
        let text = extjson::to_text(ropewalk::documents::lang::Value::Document(document), form);
        proto::Document { encoding: Some(Encoding::ExtendedJson(text)) }
    }

    /// `{"_id": VALUE}`
    fn id(&self, id: &Owned) -> proto::Document {
        let mut named = Writer::new();
        named.put("_id", id.value());
        self.document(named.finish().doc())
    }
}

impl Encode for Encoder {
    fn restart(&self) {
        self.memory.clear();
    }

    fn encode(&self, _: usize, done: Done) -> Result<Vec<u8>, WireError> {
        let out = self.result(done)?;
        self.memory.add(out.len())?;
        Ok(out)
    }
}

fn result_of(kind: Kind) -> proto::OperationResult {
    proto::OperationResult { kind: Some(kind) }
}

/// The bytes of a result whose message, in this field, was encoded already.
fn result_with(field: u8, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 8);
    put_bytes(&mut out, field, message);
    out
}

/// The positions of an append.
pub(crate) fn appended(append: &AppendPositions) -> proto::AppendedEvents {
    let shown = |position: Position| (position != Position::ZERO).then_some(position.0);
    proto::AppendedEvents {
        store: append.store.clone(),
        first: shown(append.first),
        last: shown(append.last),
    }
}

fn sql_value(value: Value<'static>) -> proto::SqlValue {
    let kind = match value {
        Value::Null => None,
        Value::Bool(value) => Some(SqlKind::BoolValue(value)),
        Value::Int2(number) => Some(SqlKind::Int64Value(number.into())),
        Value::Int4(number) => Some(SqlKind::Int64Value(number.into())),
        Value::Int8(number) => Some(SqlKind::Int64Value(number)),
        Value::Float4(number) => Some(SqlKind::DoubleValue(number.into())),
        Value::Float8(number) => Some(SqlKind::DoubleValue(number)),
        Value::Text(text) => Some(SqlKind::TextValue(text.into_owned())),
        Value::Bytea(bytes) => Some(SqlKind::BytesValue(bytes.into_owned())),
        other => Some(SqlKind::TextValue(to_text(&other).unwrap_or_default())),
    };
    proto::SqlValue { kind }
}
