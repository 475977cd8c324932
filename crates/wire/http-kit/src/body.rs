//! Request bodies: bounded in bytes before and after inflating, in memory and in time.
//!
//! ```text
//! announced length ≤ limit? ─▶ frame ─▶ total ≤ limit? ─▶ memory covers it ─▶ next frame … ─▶ memory to inflate it
//! └──────────────────────────────── all before the deadline ───────────────────────────────────────────────────┘
//! ```

use core::ops::Deref;
use core::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use ropewalk_auth::Caller;
use ropewalk_wire::{ConnectionMemory, Reservation, Service, WireError};
use tokio::time::{Instant, timeout};

use crate::encoding::{Encoding, InflateError};

/// Largest body of a caller without any right: enough to change the own password.
const BYTES_MAX_WITHOUT_RIGHTS: usize = 64 << 10;
/// A beginning of a body up to this size is copied while the rest is waited for.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// The reason why a body was rejected.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// More bytes than allowed, announced or received.
    #[error("the body is over the limit of {0} bytes")]
    TooLarge(usize),
    /// The deadline passed.
    #[error("the body did not arrive within {0:?}")]
    TooSlow(Duration),
    /// The stream failed.
    #[error("the body could not be read: {0}")]
    Broken(String),
    /// It cannot be inflated.
    #[error(transparent)]
    Inflate(#[from] InflateError),
    /// No memory for it.
    #[error(transparent)]
    Memory(#[from] WireError),
}

/// A body and the memory that it holds; dereferences to its bytes.
#[derive(Debug)]
pub struct RequestBody {
    bytes: Bytes,
    encoding: Encoding,
    bounds: Bounds,
    memory: Reservation,
}

impl RequestBody {
    /// Receives the body of `request`, and reserves the memory to inflate it.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn read(
        service: &Service,
        request: Request,
        encoding: Encoding,
    ) -> impl Future<Output = Result<Self, BodyError>> + use<> {
        let (parts, body) = request.into_parts();
        let bounds = Bounds::new(service, &parts);
        let announced = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let memory = parts.extensions.get::<ConnectionMemory>().cloned();
        let mut memory = memory.unwrap_or_else(|| service.request_memory().connection()).reservation();
        // Headers hold the buffer that they were read into. The future has no bytes for them either: many of
        // these wait for slow clients.
        drop(parts);
        async move {
            let bytes = bounds.in_time(receive(body, announced, bounds.bytes_max, &mut memory)).await?;
            Self { bytes, encoding, bounds, memory }.reserved().await
        }
    }

    /// The part after `start` bytes, compressed with `encoding`: for protocols that frame their messages.
    ///
    /// # Errors
    /// No memory to inflate it.
    pub async fn message(mut self, start: usize, encoding: Encoding) -> Result<Self, BodyError> {
        self.bytes = self.bytes.split_off(start.min(self.bytes.len()));
        self.encoding = encoding;
        self.reserved().await
    }

    async fn reserved(mut self) -> Result<Self, BodyError> {
        let inflated = self.encoding.reserved_bytes(&self.bytes, self.bounds.bytes_max);
        let covered = self.memory.cover(self.bytes.len() + inflated);
        self.bounds.in_time(async { Ok(covered.await?) }).await?;
        Ok(self)
    }

    /// Inflates the body, which may take long; releases the memory that the result does not need.
    ///
    /// # Errors
    /// [`BodyError::Inflate`].
    pub fn inflate(mut self) -> Result<Self, BodyError> {
        if self.encoding != Encoding::Identity {
            let inflated = self.encoding.inflate(&self.bytes, self.bounds.bytes_max)?;
            self.memory.shrink_to(inflated.len());
            self.bytes = inflated.into();
            self.encoding = Encoding::Identity;
        }
        Ok(self)
    }

    /// The bytes, which hold the memory for as long as parts of them live.
    pub fn into_bytes(self) -> Bytes {
        self.memory.hold(self.bytes)
    }
}

impl Deref for RequestBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bounds of one body.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    bytes_max: usize,
    /// Time for the entire body.
    time: Duration,
    begun: Instant,
}

impl Bounds {
    fn new(service: &Service, parts: &Parts) -> Self {
        let (bytes_max, time) = (service.limits().request_bytes, service.limits().request_time);
        let bytes_max = match parts.extensions.get::<Caller>() {
            // Such a caller gets here only by routes that need no right.
            Some(caller) if !caller.has_any_right() => bytes_max.min(BYTES_MAX_WITHOUT_RIGHTS),
            _ => bytes_max,
        };
        Self { bytes_max, time, begun: Instant::now() }
    }

    fn in_time<T>(
        self,
        work: impl Future<Output = Result<T, BodyError>>,
    ) -> impl Future<Output = Result<T, BodyError>> {
        let left = self.time.saturating_sub(self.begun.elapsed());
        timeout(left, work).map(move |done| done.unwrap_or(Err(BodyError::TooSlow(self.time))))
    }
}

/// Receives `body`; `memory` grows with the bytes that arrived.
async fn receive(
    mut body: Body,
    announced: Option<u64>,
    bytes_max: usize,
    memory: &mut Reservation,
) -> Result<Bytes, BodyError> {
    if announced.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(BodyError::TooLarge(bytes_max));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        let total = first.len() + all.len() + data.len();
        if total > bytes_max {
            return Err(BodyError::TooLarge(bytes_max));
        }
        memory.cover(total).await?;
        if total == data.len() {
            // Most bodies are one frame, which needs no copy. A small frame would otherwise hold the whole
            // read buffer.
            let is_copied = data.len() <= COPIED_BYTES_MAX && !body.is_end_stream();
            first = if is_copied { Bytes::copy_from_slice(&data) } else { data };
            continue;
        }
        if !first.is_empty() {
            let announced = announced.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
            all.reserve(announced.max(total));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use ropewalk_wire::RequestMemory;

    use super::*;

    #[tokio::test]
    async fn d1_24_small_beginning_of_a_body_does_not_hold_its_buffer() {
        let buffer = Bytes::from(vec![b'x'; 8 << 10]);
        let body = Body::new(Full::new(buffer.slice(..10)).with_trailers(core::future::pending()));
        let mut memory = RequestMemory::new(1 << 20, 1 << 10).connection().reservation();
        let mut received = core::pin::pin!(receive(body, None, 100, &mut memory));
        tokio::select! {
            biased;
            _ = &mut received => panic!("the body has no end"),
            () = tokio::task::yield_now() => {}
        }
        assert!(buffer.is_unique());
    }
}
