//! Compressed bodies, inflated within a bound, whatever length they declare.

use std::cell::RefCell;
use std::io::Read;

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use crate::request::body::inflated_bytes_max;

/// Largest window of a zstd body, as a power of two: 8 MiB, as RFC 8878 requires of every decoder.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Buffer for unpacked bodies that a thread retains for its next request.
const RETAINED_BYTES_MAX: usize = 1 << 20;

/// Compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// No compression.
    Identity,
    /// One or more members.
    Gzip,
    /// With a window of at most [`ZSTD_WINDOW_LOG_MAX`].
    Zstd,
    /// The block format, without frames.
    Snappy,
}

/// The reason why a body was not inflated.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// It has more bytes than allowed.
    #[error("the body is over the limit of {0} bytes")]
    TooLarge(usize),
    /// The compressed bytes are invalid.
    #[error("the body could not be inflated: {0}")]
    Malformed(String),
}

impl InflateError {
    fn malformed(error: impl std::fmt::Display) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl Encoding {
    /// Reads the `Content-Encoding` header; `None` for an unknown encoding.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
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

/// Decompresses a snappy body into a buffer that the thread reuses, and passes it to `look`. A fresh buffer
/// would be zeroed by the system for each request.
///
/// # Errors
/// Malformed, or over the limit of `bytes_max` bytes.
pub fn with_snappy<T>(
    bytes: &[u8],
    bytes_max: usize,
    look: impl FnOnce(&[u8]) -> T,
) -> Result<T, InflateError> {
    thread_local! {
        static RETAINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    // The length comes first, so that a decompression bomb is rejected before it is unpacked.
    let length = snap::raw::decompress_len(bytes).map_err(InflateError::malformed)?;
    if length > bytes_max {
        return Err(InflateError::TooLarge(bytes_max));
    }
    RETAINED.with_borrow_mut(|retained| {
        if retained.len() < length {
            retained.resize(length, 0);
        }
        let out = retained.get_mut(..length).unwrap_or_default();
        let done = snap::raw::Decoder::new().decompress(bytes, out).map_err(InflateError::malformed);
        let done = done.map(|length| look(out.get(..length).unwrap_or_default()));
        if retained.len() > RETAINED_BYTES_MAX {
            *retained = Vec::new();
        }
        done
    })
}

/// Decompresses a body to at most `bytes_max` bytes, whatever length it declares.
///
/// # Errors
/// Malformed, or over the limit.
pub fn inflate(encoding: Encoding, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, InflateError> {
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
            decoder.read_to_end(&mut inflated).map_err(InflateError::malformed)?;
        }
        Encoding::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(bytes);
            let mut decoder = decoder.map_err(InflateError::malformed)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(InflateError::malformed)?;
            decoder.take(most).read_to_end(&mut inflated).map_err(InflateError::malformed)?;
        }
        Encoding::Snappy => {
            inflated = with_snappy(bytes, bytes_max, <[u8]>::to_vec)?;
        }
    }
    if inflated.len() > bytes_max { Err(InflateError::TooLarge(bytes_max)) } else { Ok(inflated) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let zeros = vec![0; 1 << 20];
        let too_large =
            |encoding, bytes: &[u8], max| inflate(encoding, bytes, max) == Err(InflateError::TooLarge(max));
        let snappy = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
        assert_eq!(inflate(Encoding::Snappy, &snappy, 1 << 20).unwrap().len(), 1 << 20);
        assert!(too_large(Encoding::Snappy, &snappy, 1 << 19));
        let zstd = zstd::encode_all(&zeros[..], 1).unwrap();
        assert!(too_large(Encoding::Zstd, &zstd, 1 << 19));
        // Declares four gigabytes and contains nothing.
        assert!(too_large(Encoding::Snappy, b"\xff\xff\xff\xff\x0f", 1 << 20));
        for bytes in [&b""[..], b"\x05", b"\x05\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff"] {
            let inflated = inflate(Encoding::Snappy, bytes, 1 << 20);
            assert!(matches!(inflated, Err(InflateError::Malformed(_))), "{bytes:?}");
        }
    }
}
