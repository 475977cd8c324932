//! Decompresses the buffers of a batch: each separately, after eight bytes with its length.

use std::borrow::Cow;
use std::io::Read;

use arrow_ipc::{CompressionType, RecordBatch};
use lz4_flex::frame::FrameDecoder;
use ropewalk_http_kit::encoding::zstd_reader;

use crate::request::response::{ApiError, Kind};

/// Length that marks an uncompressed buffer in a compressed batch.
const AS_IT_IS: i64 = -1;

/// The body of a message, and the positions of its buffers.
pub(super) struct Unpacked<'a> {
    pub(super) body: Cow<'a, [u8]>,
    /// Offset and length of each buffer.
    pub(super) places: Vec<(i64, i64)>,
}

impl<'a> Unpacked<'a> {
    /// # Errors
    /// A compressed buffer is malformed, or they exceed the limit of `bytes_max` bytes together.
    pub(super) fn new(batch: &RecordBatch<'_>, body: &'a [u8], bytes_max: usize) -> Result<Self, ApiError> {
        let places = batch.buffers().into_iter().flatten().map(|buffer| (buffer.offset(), buffer.length()));
        let places: Vec<(i64, i64)> = places.collect();
        let Some(compression) = batch.compression() else {
            return Ok(Self { body: Cow::Borrowed(body), places });
        };
        let mut unpacked = Self { body: Cow::Owned(Vec::new()), places: Vec::with_capacity(places.len()) };
        for place in places {
            unpacked.add(compression.codec(), cut(body, place)?, bytes_max)?;
        }
        Ok(unpacked)
    }

    fn add(&mut self, codec: CompressionType, packed: &[u8], bytes_max: usize) -> Result<(), ApiError> {
        let all = self.body.to_mut();
        let begin = all.len();
        if !packed.is_empty() {
            let head = packed.split_first_chunk::<8>();
            let (head, packed) = head.ok_or_else(|| bad("it has no length in front"))?;
            let length = match i64::from_le_bytes(*head) {
                AS_IT_IS => packed.len(),
                length => usize::try_from(length).map_err(|_| bad("its length is below zero"))?,
            };
            if length > bytes_max.saturating_sub(begin) {
                let what = format!("the buffers of a batch have over {bytes_max} bytes");
                return Err(ApiError::new(Kind::TooLarge, what));
            }
            // One byte more than allowed, to detect data beyond the declared length.
            let most = length as u64 + 1;
            let read = if *head == AS_IT_IS.to_le_bytes() || length == 0 {
                all.extend_from_slice(packed.get(..length).unwrap_or_default());
                Ok(length)
            } else if codec == CompressionType::LZ4_FRAME {
                FrameDecoder::new(packed).take(most).read_to_end(all)
            } else if codec == CompressionType::ZSTD {
                zstd_reader(packed).and_then(|reader| reader.take(most).read_to_end(all))
            } else {
                return Err(bad("only LZ4_FRAME and ZSTD are known"));
            };
            match read {
                Ok(read) if read == length => {}
                Ok(_) => return Err(bad("it has another length than it says")),
                Err(error) => return Err(bad(&error.to_string())),
            }
        }
        // Both are below the limit of a message.
        self.places.push((begin as i64, (self.body.len() - begin) as i64));
        Ok(())
    }
}

/// A part of the body.
///
/// # Errors
/// It lies outside the body.
pub(super) fn cut(body: &[u8], (offset, length): (i64, i64)) -> Result<&[u8], ApiError> {
    let from = usize::try_from(offset).ok();
    let to = from.zip(usize::try_from(length).ok()).and_then(|(from, length)| from.checked_add(length));
    let part = from.zip(to).and_then(|(from, to)| body.get(from..to));
    part.ok_or_else(|| ApiError::bad("a buffer lies outside the body of its message"))
}

fn bad(what: &str) -> ApiError {
    ApiError::bad(format!("a compressed buffer cannot be unpacked: {what}"))
}
