//! Responses with documents: a cursor becomes chunks of JSON as fast as the client reads them, as in
//! [`crate::kit::stream`].

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{Code as LangCode, DocBuf, LangError, Value};
use ropewalk::documents::{DocumentCursor, DocumentsError};
use ropewalk_http_kit::json::put_list;
use ropewalk_http_kit::response::{chunks, json};
use ropewalk_wire::{Bounds, Code, Reservation, Service, WireError};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;

use super::refused;
use crate::kit::problem::{Problem, Result};
use crate::kit::stream::{NDJSON, preferred};

/// Most documents and bytes of one chunk.
const BATCH_DOCUMENTS: usize = 1_000;
const BATCH_BYTES: usize = 64 << 10;

/// The parameter that [`form`] takes. Only described here.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)]
pub(super) struct Canonical {
    /// Shows every type as it is, numbers too.
    canonical: Option<bool>,
}

/// The requested form of Extended JSON.
pub(crate) fn form(canonical: bool) -> Form {
    if canonical { Form::Canonical } else { Form::Relaxed }
}

/// True when the client prefers lines to one object.
pub(super) fn lines(headers: &HeaderMap) -> Result<bool> {
    Ok(preferred(headers, &["application/json", NDJSON])? == NDJSON)
}

/// Memory of a response that is built completely: it counts until the client has read it.
pub(crate) struct Memory(Reservation);

impl Memory {
    pub(crate) fn new(service: &Service) -> Self {
        Self(service.answer_memory().connection().reservation())
    }

    /// Covers so many bytes of documents and text.
    ///
    /// # Errors
    /// The responses of the server hold too much.
    pub(super) fn cover(&mut self, bytes: usize) -> Result<(), DocumentsError> {
        self.0.try_cover(bytes).map_err(|error| {
            DocumentsError::Interrupted(LangError::new(LangCode::ExceededMemoryLimit, error.message))
        })
    }

    /// The response.
    ///
    /// # Errors
    /// As [`Memory::cover`].
    pub(crate) fn json(mut self, text: Vec<u8>) -> Result<Response> {
        self.cover(text.len()).map_err(refused)?;
        self.0.shrink_to(text.len());
        Ok(json(self.0.hold(text)))
    }
}

/// `{"NAME":VALUE}`
pub(crate) fn named(name: &str, value: Option<Value<'_>>, form: Form) -> Vec<u8> {
    let mut out = format!("{{\"{name}\":").into_bytes();
    extjson::put_value(&mut out, value.unwrap_or(Value::Null), form);
    out.push(b'}');
    out
}

/// `{"NAME":[VALUE,…]}`
pub(crate) fn listed<'v>(name: &str, values: impl IntoIterator<Item = Value<'v>>, form: Form) -> Vec<u8> {
    let mut out = format!("{{\"{name}\":").into_bytes();
    put_list(&mut out, values, |out, value| extjson::put_value(out, value, form));
    out.push(b'}');
    out
}

/// A result being sent.
pub(super) struct Answer {
    cursor: DocumentCursor,
    service: Service,
    lines: bool,
    form: Form,
    written: u64,
    _permit: OwnedSemaphorePermit,
}

impl Answer {
    pub(super) fn new(
        cursor: DocumentCursor,
        service: Service,
        permit: OwnedSemaphorePermit,
        (lines, form): (bool, Form),
    ) -> Self {
        Self { cursor, service, lines, form, written: 0, _permit: permit }
    }

    fn put(&mut self, out: &mut Vec<u8>, batch: &[DocBuf]) {
        for document in batch {
            if self.written > 0 && !self.lines {
                out.push(b',');
            }
            self.written += 1;
            extjson::put_document(out, document.doc(), self.form);
            if self.lines {
                out.push(b'\n');
            }
        }
    }

    /// The next chunk.
    async fn chunk(&mut self, mut out: Vec<u8>) -> Result<Bytes> {
        let (service, cursor) = (self.service.clone(), &mut self.cursor);
        // A stream lasts as long as its client reads; each chunk has the time of a request.
        let bounds = Bounds::new(&service);
        let look = || bounds.look();
        let next = || bounds.run(|| cursor.next_batch_while(BATCH_DOCUMENTS, BATCH_BYTES, &look));
        let batch = service.run_blocking_limited(next).await;
        self.put(&mut out, &batch.map_err(refused)?);
        if self.cursor.is_done() && !self.lines {
            out.extend_from_slice(b"]}");
        }
        Ok(out.into())
    }

    /// Responds completely if the result is short, else as a stream; a stream that fails is cut off.
    pub(super) async fn send(mut self) -> Result<Response> {
        let begin = if self.lines { Vec::new() } else { b"{\"documents\":[".to_vec() };
        let first = self.chunk(begin).await?;
        let kind = if self.lines { NDJSON } else { "application/json" };
        let rest = (!self.cursor.is_done()).then(|| {
            stream::try_unfold(self, |mut answer| async move {
                if answer.cursor.is_done() {
                    return Ok(None);
                }
                let broken = |problem: Problem| WireError::new(Code::Internal, problem.detail());
                let chunk = answer.chunk(Vec::with_capacity(BATCH_BYTES)).await.map_err(broken)?;
                Ok::<_, WireError>(Some((chunk, answer)))
            })
        });
        Ok(([(CONTENT_TYPE, kind)], chunks(first, rest)).into_response())
    }
}
