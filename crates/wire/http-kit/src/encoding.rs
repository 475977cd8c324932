//! Compression of bodies: `Content-Encoding`, and inflating within limits of bytes and ratio.

use std::cell::RefCell;
use std::io::{self, Read};

use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use flate2::read::MultiGzDecoder;

/// A compressed body may inflate to this many bytes whatever its size, …
const INFLATED_BYTES_FREE: usize = 1 << 20;
/// … and to this many for each compressed byte.
const INFLATION_RATIO_MAX: usize = 200;
/// Largest window of a zstd body, as a power of two: 8 MiB, which RFC 8878 requires of every decoder.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Largest buffer for inflated bodies that a thread retains for its next request.
const RETAINED_BYTES_MAX: usize = 1 << 20;

/// Compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// No compression.
    Identity,
    /// Gzip, of any number of members.
    Gzip,
    /// Zstandard.
    Zstd,
    /// The block format of Snappy, without frames.
    Snappy,
}

/// A `Content-Encoding` that is not allowed, as the client spelled it.
#[derive(Debug)]
pub struct UnknownEncoding(pub String);

/// The reason why a body could not be inflated.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// More bytes than allowed.
    #[error("the body inflates to more than {0} bytes, its limit by size and ratio")]
    TooLarge(usize),
    /// The compressed bytes are invalid.
    #[error("the body could not be inflated: {0}")]
    Malformed(String),
}

impl Encoding {
    /// The encodings of texts.
    pub const TEXTS: [Self; 3] = [Self::Identity, Self::Gzip, Self::Zstd];

    /// Reads the header `Content-Encoding`, which may occur once.
    ///
    /// # Errors
    /// It is not one of `allowed`.
    pub fn of(headers: &HeaderMap, allowed: &[Self]) -> Result<Self, UnknownEncoding> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Self::Identity) };
        let text = value.to_str().unwrap_or("?");
        let known = match text.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            "snappy" => Some(Self::Snappy),
            _ => None,
        };
        let known = known.filter(|known| allowed.contains(known) && values.next().is_none());
        known.ok_or_else(|| UnknownEncoding(text.to_owned()))
    }

    /// Bytes of memory that inflating `bytes` may need.
    pub(crate) fn reserved_bytes(self, bytes: &[u8], bytes_max: usize) -> usize {
        match self {
            Self::Identity => 0,
            Self::Snappy => snap::raw::decompress_len(bytes).unwrap_or(0).min(bytes_max),
            Self::Gzip | Self::Zstd => inflated_bytes_max(bytes.len(), bytes_max),
        }
    }

    /// Inflates a body to at most `bytes_max` bytes, whatever length it declares.
    ///
    /// # Errors
    /// [`InflateError`].
    pub fn inflate(self, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, InflateError> {
        let mut inflated = Vec::new();
        let bytes_max = match self {
            Self::Gzip | Self::Zstd => inflated_bytes_max(bytes.len(), bytes_max),
            Self::Identity | Self::Snappy => bytes_max,
        };
        // One byte more than allowed, to detect a longer body.
        let most = bytes_max as u64 + 1;
        let read = match self {
            Self::Identity => bytes.take(most).read_to_end(&mut inflated),
            Self::Gzip => MultiGzDecoder::new(bytes).take(most).read_to_end(&mut inflated),
            Self::Zstd => zstd_reader(bytes).and_then(|reader| reader.take(most).read_to_end(&mut inflated)),
            Self::Snappy => return with_snappy(bytes, bytes_max, <[u8]>::to_vec),
        };
        read.map_err(|error| malformed(&error))?;
        if inflated.len() > bytes_max { Err(InflateError::TooLarge(bytes_max)) } else { Ok(inflated) }
    }
}

/// Most bytes that a body of `compressed` bytes may inflate to.
///
/// They are 1 MiB and 200 for each compressed byte, at most `bytes_max`.
pub fn inflated_bytes_max(compressed: usize, bytes_max: usize) -> usize {
    compressed.saturating_mul(INFLATION_RATIO_MAX).saturating_add(INFLATED_BYTES_FREE).min(bytes_max)
}

/// Decompresses zstd within the memory that a decoder may use.
///
/// # Errors
/// No decoder can be made.
pub fn zstd_reader(bytes: &[u8]) -> io::Result<impl Read> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

/// Decompresses a snappy body into a buffer of the thread, and passes it to `look`.
///
/// The buffer is reused: a fresh one would be zeroed by the system for each request.
///
/// # Errors
/// [`InflateError`].
pub fn with_snappy<T>(
    bytes: &[u8],
    bytes_max: usize,
    look: impl FnOnce(&[u8]) -> T,
) -> Result<T, InflateError> {
    thread_local! {
        static RETAINED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    // The length comes first, so that a decompression bomb is rejected before it is unpacked.
    let length = snap::raw::decompress_len(bytes).map_err(|error| malformed(&error))?;
    if length > bytes_max {
        return Err(InflateError::TooLarge(bytes_max));
    }
    RETAINED.with_borrow_mut(|retained| {
        if retained.len() < length {
            retained.resize(length, 0);
        }
        let out = retained.get_mut(..length).unwrap_or_default();
        let done = snap::raw::Decoder::new().decompress(bytes, out).map_err(|error| malformed(&error));
        let done = done.map(|length| look(out.get(..length).unwrap_or_default()));
        if retained.len() > RETAINED_BYTES_MAX {
            *retained = Vec::new();
        }
        done
    })
}

fn malformed(error: &dyn std::fmt::Display) -> InflateError {
    InflateError::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let zeros = vec![0; 1 << 20];
        let snappy = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
        assert_eq!(Encoding::Snappy.inflate(&snappy, 1 << 20).unwrap().len(), 1 << 20);
        let too_large = Err(InflateError::TooLarge(1 << 19));
        assert_eq!(Encoding::Snappy.inflate(&snappy, 1 << 19), too_large);
        let zstd = zstd::encode_all(&zeros[..], 1).unwrap();
        assert_eq!(Encoding::Zstd.inflate(&zstd, 1 << 19), too_large);
        // Declares four gigabytes and contains nothing.
        let empty = Encoding::Snappy.inflate(b"\xff\xff\xff\xff\x0f", 1 << 20);
        assert_eq!(empty, Err(InflateError::TooLarge(1 << 20)));
        for bytes in [&b""[..], b"\x05", b"\x05\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff"] {
            let inflated = Encoding::Snappy.inflate(bytes, 1 << 20);
            assert!(matches!(inflated, Err(InflateError::Malformed(_))), "{inflated:?}");
        }
    }

    #[test]
    fn content_encoding_occurs_once_and_is_allowed() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, value.parse().unwrap());
            }
            Encoding::of(&headers, &Encoding::TEXTS).map_err(|UnknownEncoding(text)| text)
        };
        assert_eq!(of(&[]), Ok(Encoding::Identity));
        assert_eq!(of(&[" X-GZIP"]), Ok(Encoding::Gzip));
        for refused in [&["Snappy"][..], &["br"], &["gzip, zstd"], &["gzip", "zstd"], &["identity", "gzip"]] {
            assert_eq!(of(refused), Err(refused[0].to_owned()));
        }
    }
}
