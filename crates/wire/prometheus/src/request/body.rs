//! Request bodies: bounded in bytes before and after inflating, bounded in time and memory.

use std::cell::RefCell;
use std::io::Read;

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use ropewalk_wire::{BodyBounds, BodyError, ConnectionMemory, inflated_bytes_max, receive_body};

use crate::App;
use crate::request::response::{ApiError, Kind};

/// Largest window of a zstd body, as a power of two: 8 MiB, what RFC 8878 asks every decoder to have.
pub(crate) const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Buffer for unpacked bodies that a thread retains for its next request.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Zstd,
    /// The block format, without frames.
    Snappy,
}

impl Encoding {
    /// Reads the `Content-Encoding` header; `None` for an unknown encoding.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Some(Self::Identity) };
        if values.next().is_some() {
            return None;
        }
        match value.to_str().ok()?.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            "snappy" => Some(Self::Snappy),
            _ => None,
        }
    }
}

impl Encoding {
    /// The encoding of a text body, that is, of anything but remote write.
    ///
    /// # Errors
    /// The header names an encoding that text bodies do not support.
    pub(crate) fn of_text(headers: &HeaderMap) -> Result<Self, ApiError> {
        let refuse = || ApiError::new(Kind::MediaType, "Content-Encoding: gzip and zstd are possible");
        Self::of(headers).filter(|encoding| *encoding != Self::Snappy).ok_or_else(refuse)
    }
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::new(Kind::TooLarge, format!("the body is over the limit of {bytes_max} bytes"))
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
            BodyError::TooLarge(bytes_max) => too_large(bytes_max),
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

/// Decompresses a snappy body into a buffer that the thread reuses, and passes it to `look`. A fresh buffer
/// would be zeroed by the system for each request.
///
/// # Errors
/// Malformed, or over the limit of `bytes_max` bytes.
pub(crate) fn with_snappy<T>(
    bytes: &[u8],
    bytes_max: usize,
    look: impl FnOnce(&[u8]) -> T,
) -> Result<T, ApiError> {
    thread_local! {
        static KEPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    // The length comes first, so that a decompression bomb is rejected before it is unpacked.
    let length = snap::raw::decompress_len(bytes).map_err(|error| failed(&error))?;
    if length > bytes_max {
        return Err(too_large(bytes_max));
    }
    KEPT.with_borrow_mut(|kept| {
        if kept.len() < length {
            kept.resize(length, 0);
        }
        let out = kept.get_mut(..length).unwrap_or_default();
        let done = snap::raw::Decoder::new().decompress(bytes, out).map_err(|error| failed(&error));
        let done = done.map(|length| look(out.get(..length).unwrap_or_default()));
        if kept.len() > KEPT_BYTES_MAX {
            *kept = Vec::new();
        }
        done
    })
}

fn failed(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::bad(format!("the body could not be inflated: {error}"))
}

/// Decompresses a body to at most `bytes_max` bytes, whatever length it declares.
///
/// # Errors
/// Malformed, or over the limit.
pub(crate) fn inflate(encoding: Encoding, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, ApiError> {
    let mut inflated = Vec::new();
    let bytes_max = match encoding {
        Encoding::Gzip | Encoding::Zstd => inflated_bytes_max(bytes.len(), bytes_max),
        Encoding::Identity | Encoding::Snappy => bytes_max,
    };
    let most = bytes_max as u64 + 1;
    match encoding {
        Encoding::Identity => inflated.extend_from_slice(bytes),
        Encoding::Gzip => {
            let mut decoder = flate2::read::MultiGzDecoder::new(bytes).take(most);
            decoder.read_to_end(&mut inflated).map_err(|error| failed(&error))?;
        }
        Encoding::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes);
            let mut decoder = decoder.map_err(|error| failed(&error))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|error| failed(&error))?;
            decoder.take(most).read_to_end(&mut inflated).map_err(|error| failed(&error))?;
        }
        Encoding::Snappy => {
            inflated = with_snappy(bytes, bytes_max, <[u8]>::to_vec)?;
        }
    }
    if inflated.len() > bytes_max { Err(too_large(bytes_max)) } else { Ok(inflated) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let zeros = vec![0; 1 << 20];
        let snappy = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
        assert_eq!(inflate(Encoding::Snappy, &snappy, 1 << 20).unwrap().len(), 1 << 20);
        assert_eq!(inflate(Encoding::Snappy, &snappy, 1 << 19).unwrap_err().kind, Kind::TooLarge);
        let zstd = zstd::encode_all(&zeros[..], 1).unwrap();
        assert_eq!(inflate(Encoding::Zstd, &zstd, 1 << 19).unwrap_err().kind, Kind::TooLarge);
        // Declares four gigabytes and contains nothing.
        assert_eq!(
            inflate(Encoding::Snappy, b"\xff\xff\xff\xff\x0f", 1 << 20).unwrap_err().kind,
            Kind::TooLarge
        );
        for bytes in [&b""[..], b"\x05", b"\x05\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff"] {
            assert_eq!(inflate(Encoding::Snappy, bytes, 1 << 20).unwrap_err().kind, Kind::BadData);
        }
    }
}
