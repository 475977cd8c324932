//! Request bodies: bounded in bytes before and after inflating, bounded in time and memory.

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use ropewalk_wire::{BodyBounds, BodyError, ConnectionMemory, Encoding, inflated_bytes_max, receive_body};

use crate::App;
use crate::request::response::{ApiError, Kind};

/// The encoding of a text body, that is, of anything but remote write.
///
/// # Errors
/// The header names an encoding that text bodies do not support.
pub(crate) fn text_encoding(headers: &HeaderMap) -> Result<Encoding, ApiError> {
    let refuse = || ApiError::new(Kind::MediaType, "Content-Encoding: gzip and zstd are possible");
    Encoding::of(headers).filter(|encoding| *encoding != Encoding::Snappy).ok_or_else(refuse)
}

/// Reads the body as received, without decompressing it.
///
/// # Errors
/// Over the limit of bytes or time.
pub(crate) async fn read(app: &App, request: Request) -> Result<Bytes, ApiError> {
    let limits = app.service.limits();
    let bytes_max = limits.request_bytes;
    let (parts, body) = request.into_parts();
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let bounds = BodyBounds { bytes_max, announced, time: limits.request_time };
    let memory = parts.extensions.get::<ConnectionMemory>().cloned();
    let memory = memory.unwrap_or_else(|| app.service.request_memory().connection());
    let (bytes, mut reservation) =
        receive_body(body, bounds, &memory).await.map_err(|error| match error {
            BodyError::Memory(error) => error.into(),
            BodyError::TooLarge(_) => ApiError::new(Kind::TooLarge, error.to_string()),
            BodyError::TooSlow(_) => ApiError::new(Kind::Timeout, error.to_string()),
            BodyError::Broken(_) => ApiError::bad(error.to_string()),
        })?;
    let inflated = match Encoding::of(&parts.headers) {
        None | Some(Encoding::Identity) => 0,
        Some(Encoding::Snappy) => snap::raw::decompress_len(&bytes).unwrap_or(0).min(bytes_max),
        Some(Encoding::Gzip | Encoding::Zstd) => inflated_bytes_max(bytes.len(), bytes_max),
    };
    reservation.cover(bytes.len() + inflated).await?;
    Ok(reservation.hold(bytes))
}
