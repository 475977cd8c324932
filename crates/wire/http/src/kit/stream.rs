//! Responses of any length in bounded memory: a read becomes chunks of JSON as fast as the client reads them.
//!
//!   Reading ─▶ batch (≤ 64 KiB of payload) ─▶ JSON in one buffer ─▶ socket
//!                 ▲                                                   │
//!                 └──────────── only when the socket has room ────────┘
//!
//! The first batch is read before the status is sent, so most errors still get an error status; a result that
//! ends within it is sent completely, with its length. When a later batch fails, the connection is cut off,
//! so that no client can take a part for the complete result.

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use ropewalk::events::SequencedEventRef;
use ropewalk_http_kit::json::put_number;
use ropewalk_http_kit::media::accepted;
use ropewalk_http_kit::response::{chunks, json};
use ropewalk_wire::{Reading, WireError};

use crate::kit::encode::{EXACT, put_event, put_exact_event, put_plain_event};
use crate::kit::problem::{Problem, Refusal, Result};
use crate::settings::HEAD;

/// Most events and payload bytes of one chunk.
const BATCH_EVENTS: usize = 1_000;
const BATCH_BYTES: usize = 64 << 10;

/// Format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `{"head":9,"events":[…]}`
    Object,
    /// One event per line.
    Lines,
    /// One event per line, every payload in base64.
    ExactLines,
    /// `[…]`, the payloads as texts: the compatible `GET /read`.
    PlainArray,
}

impl Form {
    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Lines => NDJSON,
            Self::ExactLines => EXACT,
            Self::Object | Self::PlainArray => "application/json",
        })
    }
}

pub(crate) const NDJSON: &str = "application/x-ndjson";

/// The media type that the client prefers.
///
/// # Errors
/// The client accepts none of `offers`.
pub(crate) fn preferred<'o>(headers: &HeaderMap, offers: &[&'o str]) -> Result<&'o str> {
    let refuse = || {
        Problem::refused(
            Refusal::NotAcceptable,
            format!("Accept names none of the available formats: {}", offers.join(", ")),
        )
    };
    accepted(headers, offers).ok_or_else(refuse)
}

/// Writes events one after the other.
struct Writer {
    form: Form,
    written: u64,
}

impl Writer {
    fn begin(&self, out: &mut Vec<u8>, head: Option<u64>) {
        match self.form {
            Form::Object => {
                out.extend_from_slice(b"{\"head\":");
                match head {
                    Some(head) => put_number(out, head),
                    None => out.extend_from_slice(b"null"),
                }
                out.extend_from_slice(b",\"events\":[");
            }
            Form::PlainArray => out.push(b'['),
            Form::Lines | Form::ExactLines => {}
        }
    }

    fn event(&mut self, out: &mut Vec<u8>, event: &SequencedEventRef<'_>) {
        if self.written > 0 && !matches!(self.form, Form::Lines | Form::ExactLines) {
            out.push(b',');
        }
        self.written += 1;
        match self.form {
            Form::Object => put_event(out, event),
            Form::PlainArray => put_plain_event(out, event),
            Form::Lines => {
                put_event(out, event);
                out.push(b'\n');
            }
            Form::ExactLines => {
                put_exact_event(out, event);
                out.push(b'\n');
            }
        }
    }

    fn end(&self, out: &mut Vec<u8>) {
        match self.form {
            Form::Object => out.extend_from_slice(b"]}"),
            Form::PlainArray => out.push(b']'),
            Form::Lines | Form::ExactLines => {}
        }
    }
}

/// A result being sent.
struct Answer {
    reading: Reading,
    writer: Writer,
    more: bool,
}

impl Answer {
    /// The next chunk; `None` at the end.
    async fn chunk(&mut self, mut out: Vec<u8>) -> Result<Option<Bytes>, WireError> {
        if !self.more {
            return Ok(None);
        }
        let writer = &mut self.writer;
        self.more =
            self.reading.next(BATCH_EVENTS, BATCH_BYTES, |event| writer.event(&mut out, event)).await?;
        if !self.more {
            self.writer.end(&mut out);
        }
        Ok(Some(out.into()))
    }
}

/// Responds to a read: completely when it is short, as a stream when it is long.
pub(crate) async fn answer(reading: Reading, form: Form) -> Result<Response> {
    let head = reading.head().map(|head| head.0);
    let mut answer = Answer { reading, writer: Writer { form, written: 0 }, more: true };
    let mut first = Vec::with_capacity(1 << 10);
    answer.writer.begin(&mut first, head);
    let first = answer.chunk(first).await?.unwrap_or_default();
    let rest = answer.more.then(|| {
        stream::try_unfold(answer, |mut answer| async move {
            let chunk = answer.chunk(Vec::with_capacity(BATCH_BYTES)).await?;
            Ok::<_, WireError>(chunk.map(|chunk| (chunk, answer)))
        })
    });
    let mut response = chunks(first, rest).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, form.content_type());
    headers.insert(HEAD, HeaderValue::from(head.unwrap_or(0)));
    Ok(response)
}

/// Responds with the first event of a read: `{"event":…}`, null when nothing matches.
pub(crate) async fn newest(mut reading: Reading) -> Result<Response> {
    let mut out = b"{\"event\":".to_vec();
    let empty = out.len();
    while reading.next(1, BATCH_BYTES, |event| put_event(&mut out, event)).await? {}
    if out.len() == empty {
        out.extend_from_slice(b"null");
    }
    out.push(b'}');
    Ok(json(out))
}
