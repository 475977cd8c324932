//! Payload of a commit record: the changes of one transaction, model by model. Drawn in
//! `docs/format/commit.md`.
//!
//! ```text
//! 0  1  version   1
//! 1  8  time      commit time, microseconds since 1970, little-endian; never below the previous commit's
//! 9  …  sections  repeated to the end: model u8 | length u32 | bytes
//! ```

use ropewalk_base::{DecodeError, Decoder, put_u32};

use crate::model::ModelId;

const VERSION: u8 = 1;
/// Bytes of a record in addition to the contents of its sections.
pub(crate) const RECORD_OVERHEAD: usize = 9;
/// Bytes of a section in addition to the model's contents.
pub(crate) const SECTION_OVERHEAD: usize = 5;

pub(crate) fn start(out: &mut Vec<u8>, time_micros: i64) {
    out.push(VERSION);
    out.extend_from_slice(&time_micros.to_le_bytes());
}

/// Writes the frame of a section around what `body` appends.
pub(crate) fn section<T>(out: &mut Vec<u8>, model: ModelId, body: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    out.push(model.0);
    let length_at = out.len();
    put_u32(out, 0);
    let start = out.len();
    let result = body(out);
    let length = out.len().checked_sub(start).and_then(|length| u32::try_from(length).ok());
    let length = length.expect("a section only grows, to less than the largest transaction");
    let field = out.get_mut(length_at..start).expect("the length was written before the body");
    field.copy_from_slice(&length.to_le_bytes());
    result
}

/// A decoded commit record: time and sections.
#[derive(Debug, Clone, Copy)]
pub struct RecordBody<'a> {
    /// Commit time, microseconds since 1970.
    pub time_micros: i64,
    sections: Decoder<'a>,
}

impl<'a> RecordBody<'a> {
    /// Reads the fixed part of a payload.
    ///
    /// # Errors
    /// The payload is too short or of another version.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(payload);
        if decoder.u8("record version")? != VERSION {
            return Err(DecodeError { what: "record version 1", offset: 0 });
        }
        let time_micros = i64::from_le_bytes(decoder.array("commit time")?);
        Ok(Self { time_micros, sections: decoder })
    }

    /// The section of each model, in order.
    pub fn sections(&self) -> impl Iterator<Item = Result<(ModelId, &'a [u8]), DecodeError>> + use<'a> {
        let mut decoder = self.sections;
        std::iter::from_fn(move || {
            if decoder.is_empty() {
                return None;
            }
            let section = next_section(&mut decoder);
            if section.is_err() {
                decoder = Decoder::new(&[]);
            }
            Some(section)
        })
    }
}

fn next_section<'a>(decoder: &mut Decoder<'a>) -> Result<(ModelId, &'a [u8]), DecodeError> {
    let model = ModelId(decoder.u8("model of a section")?);
    let length = decoder.u32("length of a section")?;
    Ok((model, decoder.take(length as usize, "bytes of a section")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        start(&mut out, 0x0102);
        section(&mut out, ModelId(3), |out| out.extend_from_slice(b"ab"));
        assert_eq!(out, [1, 2, 1, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0, 0, b'a', b'b']);
        let body = RecordBody::decode(&out).unwrap();
        assert_eq!(body.time_micros, 0x0102);
        assert_eq!(body.sections().collect::<Result<Vec<_>, _>>().unwrap(), [(ModelId(3), b"ab".as_slice())]);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>) {
            if let Ok(body) = RecordBody::decode(&bytes) {
                let _ = body.sections().count();
            }
        }
    }
}
