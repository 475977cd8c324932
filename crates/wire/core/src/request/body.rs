//! Bodies of HTTP requests, received within bounds of bytes, memory and time.
//!
//! ```text
//! announced length ≤ limit? ─▶ frame ─▶ total ≤ limit? ─▶ memory covers it ─▶ next frame … all before the deadline
//! ```

use core::fmt::Display;
use core::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use crate::error::WireError;
use crate::request::memory::{ConnectionMemory, Reservation};

/// A compressed body may inflate to this many bytes whatever its size, …
const INFLATED_BYTES_FREE: usize = 1 << 20;
/// … and to this many for each compressed byte.
const INFLATION_RATIO_MAX: usize = 200;

/// A beginning of a body up to this size is copied while the rest is waited for.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// Bounds of one body.
#[derive(Debug, Clone, Copy)]
pub struct BodyBounds {
    /// Most bytes.
    pub bytes_max: usize,
    /// `Content-Length`, if there is one.
    pub announced: Option<u64>,
    /// Time for the entire body.
    pub time: Duration,
}

/// The reason why a body was not received.
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
    /// No memory for it.
    #[error(transparent)]
    Memory(#[from] WireError),
}

/// Receives `body`, with the reservation of its memory, which grew with the bytes that arrived.
///
/// # Errors
/// [`BodyError`].
pub async fn receive_body<B>(
    body: B,
    bounds: BodyBounds,
    memory: &ConnectionMemory,
) -> Result<(Bytes, Reservation), BodyError>
where
    B: BodyExt<Data = Bytes> + Unpin,
    B::Error: Display,
{
    if bounds.announced.is_some_and(|bytes| bytes > bounds.bytes_max as u64) {
        return Err(BodyError::TooLarge(bounds.bytes_max));
    }
    let received = receive(body, bounds, memory.reservation());
    tokio::time::timeout(bounds.time, received).await.map_err(|_| BodyError::TooSlow(bounds.time))?
}

async fn receive<B>(
    mut body: B,
    bounds: BodyBounds,
    mut reservation: Reservation,
) -> Result<(Bytes, Reservation), BodyError>
where
    B: BodyExt<Data = Bytes> + Unpin,
    B::Error: Display,
{
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        let total = first.len() + all.len() + data.len();
        if total > bounds.bytes_max {
            return Err(BodyError::TooLarge(bounds.bytes_max));
        }
        reservation.cover(total).await?;
        if total == data.len() {
            // Most bodies are one frame, which needs no copy. A small frame would otherwise hold the whole
            // read buffer.
            let is_copied = data.len() <= COPIED_BYTES_MAX && !body.is_end_stream();
            first = if is_copied { Bytes::copy_from_slice(&data) } else { data };
            continue;
        }
        if !first.is_empty() {
            let announced = bounds.announced.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
            all.reserve(announced.max(total));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    Ok((if all.is_empty() { first } else { all.freeze() }, reservation))
}

/// Most bytes that a body of `compressed` bytes may inflate to: 1 MiB and 200 for each compressed byte, at
/// most `bytes_max`.
pub fn inflated_bytes_max(compressed: usize, bytes_max: usize) -> usize {
    compressed.saturating_mul(INFLATION_RATIO_MAX).saturating_add(INFLATED_BYTES_FREE).min(bytes_max)
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;
    use crate::request::memory::RequestMemory;

    #[tokio::test]
    async fn d1_24_small_beginning_of_a_body_does_not_hold_its_buffer() {
        let buffer = Bytes::from(vec![b'x'; 8 << 10]);
        let body = Box::pin(Full::new(buffer.slice(..10)).with_trailers(core::future::pending()));
        let bounds = BodyBounds { bytes_max: 100, announced: None, time: Duration::from_secs(5) };
        let memory = RequestMemory::new(1 << 20, 1 << 10).connection();
        let mut received = core::pin::pin!(receive_body(body, bounds, &memory));
        tokio::select! {
            biased;
            _ = &mut received => panic!("the body has no end"),
            () = tokio::task::yield_now() => {}
        }
        assert!(buffer.is_unique());
    }
}
