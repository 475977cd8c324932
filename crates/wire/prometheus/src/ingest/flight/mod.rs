//! Columnar ingest: the call `DoPut` of Arrow Flight, on the gRPC port.
//!
//! ```text
//! FlightData: schema ─▶ Layout      dictionaries ─▶ Layout      batch ─▶ columns ─▶ SampleBatch ─▶ one commit ─▶ PutResult
//! ```
//!
//! Columns: `timestamp` (of any unit), `value` (float64); every other column is a label, as string or
//! dictionary of strings, or holds the labels of each row, as a map of strings to strings. The metric's name
//! is the only element of the descriptor's path, or a column `__name__`, or in the map. Buffers may be
//! compressed. A batch is durable when a response counts it. Responses count everything since the stream
//! began, as JSON: `{"batches":2,"samples":4000,"rejected":0}`; if the client does not read them, some are
//! skipped, but never the last.
//!
//! The messages of gRPC and Flight have a few fields each and are decoded by hand. Arrow's are read with its
//! own crate's flatbuffers only: buffers are read in place and every offset is checked here.
//! Source: Arrow's columnar format (IPC) and Flight's protocol definition.

mod columns;
mod unpack;

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::BytesMut;
use futures_util::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use ropewalk_auth::Caller;
use ropewalk_http_kit::encoding::{Encoding, inflated_bytes_max};
use ropewalk_wire::{ConnectionMemory, Reservation, WireError};
use tokio::sync::mpsc;

use crate::app::App;
use crate::ingest::otlp::grpc;
use crate::ingest::otlp::grpc::{FRAME_HEAD, GRPC};
use crate::ingest::protobuf::{Fields, put_bytes};
use crate::ingest::{self, Read};
use crate::request::response::{ApiError, Kind};

use columns::Layout;

/// The route of the call.
pub(crate) const PATH: &str = "/arrow.flight.protocol.FlightService/DoPut";

/// Responses queued for the client.
const ANSWERS_MAX: usize = 64;
/// Field of a message that holds the buffers.
const DATA_BODY: u32 = 1000;

/// Items of the response stream.
enum Said {
    /// A message, framed.
    Counted(Bytes),
    End(Result<(), ApiError>),
}

/// `DoPut`.
pub(crate) async fn do_put(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let (say, said) = mpsc::channel(ANSWERS_MAX);
    let encoding = grpc::encoding(request.headers());
    let limits = app.service.limits();
    let memory = request.extensions().get::<ConnectionMemory>().cloned();
    let memory = memory.unwrap_or_else(|| app.service.request_memory().connection());
    let messages = Messages {
        reservation: memory.reservation(),
        time: limits.request_time,
        bytes_max: limits.request_bytes,
        body: request.into_body(),
        held: BytesMut::new(),
        retained: 0,
        encoding,
    };
    // A separate task, so that batches are stored whether or not the client reads the responses.
    tokio::spawn(async move {
        let outcome = take_all(&app, &caller, messages, &say).await;
        // The client may have disconnected.
        let _ = say.send(Said::End(outcome)).await;
    });
    let frames = unfold(said, |mut said| async move {
        let frame = match said.recv().await? {
            Said::Counted(message) => Frame::data(message),
            Said::End(outcome) => Frame::trailers(grpc::trailers(outcome.err().as_ref())),
        };
        Some((Ok::<_, Infallible>(frame), said))
    });
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// Totals since the stream began.
#[derive(Default)]
struct Counts {
    batches: u64,
    samples: u64,
    rejected: u64,
    /// The reason of the first rejection.
    why: Option<String>,
}

impl Counts {
    /// A framed `PutResult`.
    fn message(&self) -> Bytes {
        let mut counts = serde_json::json!({
            "batches": self.batches, "samples": self.samples, "rejected": self.rejected,
        });
        if let (Some(why), Some(object)) = (&self.why, counts.as_object_mut()) {
            object.insert("why".to_owned(), why.as_str().into());
        }
        let mut message = Vec::new();
        put_bytes(&mut message, 1, counts.to_string().as_bytes());
        grpc::frame(&message)
    }
}

async fn take_all(
    app: &App,
    caller: &Caller,
    mut messages: Messages,
    say: &mpsc::Sender<Said>,
) -> Result<(), ApiError> {
    let _admitted = app.service.admit_stream()?;
    let (mut counts, mut incoming, mut unsaid) = (Counts::default(), Incoming::default(), false);
    let bytes_max = messages.bytes_max;
    loop {
        let message = tokio::select! {
            message = messages.next() => message?,
            () = app.service.stop().wait() => return Err(WireError::stopping().into()),
        };
        let Some((is_packed, message)) = message else { break };
        let work = move || {
            let read = incoming.take(is_packed, &message, bytes_max);
            (incoming, read)
        };
        let (back, read) = app.off_thread(work).await?;
        incoming = back;
        let Some((read, rows)) = read? else {
            messages.release(incoming.bytes());
            continue;
        };
        counts.batches += 1;
        counts.samples += rows;
        if let Some((rejected, why)) = ingest::store_pushed(app, caller, read).await?.into_parts() {
            counts.rejected += rejected;
            counts.samples -= rejected.min(rows);
            counts.why.get_or_insert(why);
        }
        messages.release(incoming.bytes());
        unsaid = match say.try_send(Said::Counted(counts.message())) {
            Ok(()) => false,
            Err(mpsc::error::TrySendError::Full(_)) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
        };
    }
    if unsaid {
        let _ = say.send(Said::Counted(counts.message())).await;
    }
    Ok(())
}

/// The messages of a call: each with a deadline, and with memory that grows with the bytes that arrived.
struct Messages {
    body: Body,
    held: BytesMut,
    /// Covers a message until it is stored, and the state that later messages need.
    reservation: Reservation,
    /// Bytes of that state.
    retained: usize,
    /// Time from one message to the end of the next.
    time: Duration,
    bytes_max: usize,
    encoding: Option<Encoding>,
}

impl Messages {
    /// The next message and its compression, if any; `None` at the end.
    ///
    /// # Errors
    /// It is too large, too late, or there is no memory for it.
    async fn next(&mut self) -> Result<Option<(Option<Encoding>, Bytes)>, ApiError> {
        let time = self.time;
        let late = || ApiError::new(Kind::Timeout, format!("no whole message arrived within {time:?}"));
        tokio::time::timeout(time, self.receive()).await.map_err(|_| late())?
    }

    /// Releases the memory of a stored message, but for the `retained` bytes that later messages need.
    fn release(&mut self, retained: usize) {
        self.retained = retained;
        self.reservation.shrink_to(retained + self.held.len());
    }

    async fn receive(&mut self) -> Result<Option<(Option<Encoding>, Bytes)>, ApiError> {
        loop {
            if let Some(&[flag, a, b, c, d]) = self.held.first_chunk::<FRAME_HEAD>() {
                let length = u32::from_be_bytes([a, b, c, d]) as usize;
                if length > self.bytes_max {
                    let what = format!("a message of {length} bytes; at most {} are allowed", self.bytes_max);
                    return Err(ApiError::new(Kind::TooLarge, what));
                }
                if self.held.len() >= FRAME_HEAD + length {
                    let message = self.held.split_to(FRAME_HEAD + length).freeze().slice(FRAME_HEAD..);
                    let refuse =
                        || ApiError::new(Kind::MediaType, "grpc-encoding: gzip and zstd are possible");
                    let encoding = match flag {
                        0 => None,
                        _ => Some(self.encoding.ok_or_else(refuse)?),
                    };
                    let inflated = encoding.map_or(0, |_| inflated_bytes_max(length, self.bytes_max));
                    let bytes = self.retained + self.held.len() + length + inflated;
                    self.reservation.cover(bytes).await?;
                    return Ok(Some((encoding, message)));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.reservation.cover(self.retained + self.held.len() + data.len()).await?;
                        self.held.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(ApiError::bad(format!("the stream broke off: {error}"))),
                None if self.held.is_empty() => return Ok(None),
                None => return Err(ApiError::bad("the stream ends within a message")),
            }
        }
    }
}

/// State of a stream that later messages need.
#[derive(Default)]
struct Incoming {
    /// Name of the metric from the descriptor.
    metric: Option<String>,
    described: bool,
    layout: Option<Layout>,
}

impl Incoming {
    /// Bytes that later messages need.
    fn bytes(&self) -> usize {
        self.layout.as_ref().map_or(0, Layout::bytes)
    }

    /// The samples of a message, if it is a record batch, and how many rows they came from.
    fn take(
        &mut self,
        packed: Option<Encoding>,
        message: &[u8],
        bytes_max: usize,
    ) -> Result<Option<(Read, u64)>, ApiError> {
        let inflated = packed.map(|encoding| encoding.inflate(message, bytes_max)).transpose()?;
        let (mut header, mut buffers) = (&[][..], &[][..]);
        let mut fields = Fields(inflated.as_deref().unwrap_or(message));
        let malformed = |error: crate::ingest::protobuf::Malformed| ApiError::bad(error.to_string());
        while let Some((number, value)) = fields.next().map_err(malformed)? {
            match number {
                1 if !self.described => self.describe(value.message().map_err(malformed)?)?,
                2 => header = value.bytes().map_err(malformed)?,
                DATA_BODY => buffers = value.bytes().map_err(malformed)?,
                _ => {}
            }
        }
        if header.is_empty() {
            return Ok(None);
        }
        let message = arrow_ipc::root_as_message(header)
            .map_err(|error| ApiError::bad(format!("the header is no message of Arrow: {error}")))?;
        if let Some(schema) = message.header_as_schema() {
            if self.layout.is_some() {
                return Err(ApiError::bad("a stream has one schema"));
            }
            self.layout = Some(Layout::new(&schema, self.metric.clone())?);
            return Ok(None);
        }
        let layout = self.layout.as_mut();
        let layout = layout.ok_or_else(|| ApiError::bad("the first message has to be a schema"))?;
        if let Some(dictionary) = message.header_as_dictionary_batch() {
            layout.dictionary(&dictionary, buffers, bytes_max)?;
            return Ok(None);
        }
        match message.header_as_record_batch() {
            Some(batch) => layout.samples(&batch, buffers, bytes_max).map(Some),
            None => Err(ApiError::bad("a message is neither schema, dictionary nor batch")),
        }
    }

    /// Reads a `FlightDescriptor`.
    fn describe(&mut self, mut fields: Fields<'_>) -> Result<(), ApiError> {
        let malformed = |error: crate::ingest::protobuf::Malformed| ApiError::bad(error.to_string());
        let mut path = Vec::new();
        while let Some((number, value)) = fields.next().map_err(malformed)? {
            match number {
                2 => {
                    return Err(ApiError::bad(
                        "the descriptor is a command; a path with the metric's name is needed",
                    ));
                }
                3 => path.push(value.text().map_err(malformed)?),
                _ => {}
            }
        }
        if let [_, second, ..] = path.as_slice() {
            let what =
                format!("the descriptor's path has the extra element {second:?} after the metric's name");
            return Err(ApiError::bad(what));
        }
        self.metric = path.first().filter(|name| !name.is_empty()).map(|name| (*name).to_owned());
        self.described = true;
        Ok(())
    }
}
