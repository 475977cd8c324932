//! Columns of small numbers in few bits, with exceptions.
//!
//!   128 numbers ─▶ width w that makes the frame smallest ─▶ w bits of each, then the high bits of those that need more
//!
//! ```text
//! frame, repeated (128 numbers each, fewer in the last)
//! u8 width │ u8 exceptions │ ⌈n·width/8⌉ bytes: the low bits, first number lowest │ each exception: index u8, high bits varint
//! ```
//! One outlier (a missed scrape, a counter that was reset) costs two or three bytes instead of widening all
//! numbers.
//! Source: patched frame of reference, Zukowski et al., ICDE 2006.

use ropewalk_base::{DecodeError, Decoder, put_varint, unzigzag, varint_len, zigzag};

/// Numbers per frame: an exception's index fits a byte.
pub(crate) const FRAME: usize = 128;

struct Plan {
    width: usize,
    exceptions: usize,
    bytes: usize,
}

fn bits_of(value: u64) -> usize {
    64 - value.leading_zeros() as usize
}

/// The width that makes the frame smallest. At most a quarter become exceptions, so that decoding stays a straight loop.
fn plan(frame: &[u64]) -> Plan {
    let mut counts = [0_usize; 65];
    for value in frame {
        if let Some(count) = counts.get_mut(bits_of(*value)) {
            *count += 1;
        }
    }
    let widest = bits_of(frame.iter().fold(0, |all, value| all | value));
    let packed = |width: usize| (frame.len() * width).div_ceil(8);
    let mut best = Plan { width: widest, exceptions: 0, bytes: packed(widest) };
    let mut above = 0;
    for width in (0..widest).rev() {
        above += counts.get(width + 1).copied().unwrap_or(0);
        if above * 4 > frame.len() {
            break;
        }
        if counts.get(width) == Some(&0) && width > 0 {
            // No number has exactly this width: the next width that occurs is at least as good.
            continue;
        }
        let patched = counts.iter().enumerate().skip(width + 1);
        let high: usize = patched.map(|(bits, n)| n * (1 + (bits - width).div_ceil(7))).sum();
        let bytes = packed(width) + high;
        if bytes < best.bytes {
            best = Plan { width, exceptions: above, bytes };
        }
    }
    best
}

/// Number of bytes that [`pack`] appends.
pub(crate) fn packed_len(values: &[u64]) -> usize {
    values.chunks(FRAME).map(|frame| 2 + plan(frame).bytes).sum()
}

fn mask(width: usize) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Appends `values`.
pub(crate) fn pack(values: &[u64], out: &mut Vec<u8>) {
    for frame in values.chunks(FRAME) {
        let Plan { width, exceptions, bytes } = plan(frame);
        let end = out.len() + 2 + bytes;
        out.push(width as u8);
        out.push(exceptions as u8);
        let (mut held, mut bits) = (0_u128, 0);
        for value in frame {
            held |= u128::from(value & mask(width)) << bits;
            bits += width;
            if bits >= 64 {
                out.extend_from_slice(&(held as u64).to_le_bytes());
                held >>= 64;
                bits -= 64;
            }
        }
        let tail = (held as u64).to_le_bytes();
        out.extend_from_slice(tail.get(..bits.div_ceil(8)).expect("fewer than 64 bits are left"));
        if exceptions > 0 {
            for (index, value) in frame.iter().enumerate() {
                if bits_of(*value) > width {
                    out.push(index as u8);
                    put_varint(out, value >> width);
                }
            }
        }
        debug_assert_eq!(out.len(), end, "a frame takes as many bytes as planned");
    }
}

/// Reads numbers that [`pack`] wrote, frame by frame. Unwanted frames are skipped without unpacking.
pub(crate) struct Frames<'d, 'a> {
    decoder: &'d mut Decoder<'a>,
    left: usize,
    values: [u64; FRAME],
}

/// A frame in its stored form.
struct Frame<'a> {
    len: usize,
    width: usize,
    exceptions: u8,
    packed: &'a [u8],
    /// The packed bytes and the bytes after them.
    ahead: &'a [u8],
}

impl<'d, 'a> Frames<'d, 'a> {
    /// The next `count` numbers.
    pub(crate) fn new(decoder: &'d mut Decoder<'a>, count: usize) -> Self {
        Self { decoder, left: count, values: [0; FRAME] }
    }

    /// Numbers that the next frame holds; 0 at the end.
    pub(crate) fn len(&self) -> usize {
        self.left.min(FRAME)
    }

    fn frame(&mut self) -> Result<Frame<'a>, DecodeError> {
        let len = self.len();
        self.left -= len;
        let offset = self.decoder.offset();
        let width = usize::from(self.decoder.u8("width of a frame")?);
        let exceptions = self.decoder.u8("exceptions of a frame")?;
        if width > 64 || usize::from(exceptions) > len {
            return Err(DecodeError { what: "a frame of at most 64 bits and its own exceptions", offset });
        }
        let ahead = self.decoder.rest();
        let packed = self.decoder.take((len * width).div_ceil(8), "packed numbers")?;
        Ok(Frame { len, width, exceptions, packed, ahead })
    }

    /// Skips the next frame.
    pub(crate) fn skip(&mut self) -> Result<(), DecodeError> {
        let frame = self.frame()?;
        for _ in 0..frame.exceptions {
            self.decoder.u8("index of an exception")?;
            self.decoder.varint("high bits of an exception")?;
        }
        Ok(())
    }

    /// The numbers of the next frame; empty at the end.
    pub(crate) fn next(&mut self) -> Result<&[u64], DecodeError> {
        let frame = self.frame()?;
        let width = frame.width;
        let values = self.values.get_mut(..frame.len).expect("a frame holds FRAME numbers at most");
        if width == 0 {
            values.fill(0);
        } else {
            unpack_frame(&frame, values);
        }
        for _ in 0..frame.exceptions {
            let offset = self.decoder.offset();
            let index = usize::from(self.decoder.u8("index of an exception")?);
            let high = self.decoder.varint("high bits of an exception")?;
            let slot = values.get_mut(index).filter(|_| width < 64 && high <= u64::MAX >> width);
            let slot = slot.ok_or(DecodeError { what: "an exception inside its frame", offset })?;
            *slot |= high << width;
        }
        Ok(values)
    }
}

/// Largest width at which any number fits into eight bytes, wherever in a byte it begins.
const WIDTH_OF_EIGHT_BYTES: usize = 57;

#[inline]
fn unpack_frame(frame: &Frame<'_>, out: &mut [u64]) {
    if frame.width > WIDTH_OF_EIGHT_BYTES {
        return unpack_wide(frame.packed, frame.width, out);
    }
    // The eight bytes of the last number extend beyond the frame: mostly into the following bytes, else into
    // zeros.
    if let Some(bytes) = frame.ahead.get(..frame.packed.len() + 8) {
        return unpack_narrow(bytes, frame.width, out);
    }
    let mut padded = [0; FRAME * 8 + 8];
    if let Some(front) = padded.get_mut(..frame.packed.len()) {
        front.copy_from_slice(frame.packed);
    }
    unpack_narrow(&padded, frame.width, out);
}

/// Unpacks as many numbers at a time as eight bytes hold wherever the first of them may begin: `width` bits
/// are at most this wide.
#[inline]
fn unpack_narrow(bytes: &[u8], width: usize, out: &mut [u64]) {
    match width {
        // Eight begin with a byte, four at a half of one, two at any even bit.
        0..=8 => unpack_by::<8>(bytes, width, out),
        9..=16 => unpack_by::<4>(bytes, width, out),
        17..=29 => unpack_by::<2>(bytes, width, out),
        _ => unpack_by::<1>(bytes, width, out),
    }
}

#[inline]
fn unpack_by<const N: usize>(bytes: &[u8], width: usize, out: &mut [u64]) {
    let mask = mask(width);
    let fetch = |bit: usize| {
        let eight = bytes.get(bit / 8..).and_then(<[u8]>::first_chunk);
        eight.map_or(0, |eight| u64::from_le_bytes(*eight)) >> (bit % 8)
    };
    let (whole, rest) = out.as_chunks_mut::<N>();
    let mut bit = 0;
    for values in whole {
        let mut held = fetch(bit);
        for value in values {
            *value = held & mask;
            held >>= width;
        }
        bit += N * width;
    }
    for value in rest {
        *value = fetch(bit) & mask;
        bit += width;
    }
}

fn unpack_wide(packed: &[u8], width: usize, out: &mut [u64]) {
    let (words, tail) = packed.as_chunks::<8>();
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    let mut words = words.iter().chain(std::iter::once(&last)).map(|word| u64::from_le_bytes(*word));
    let (mut held, mut bits, mask) = (0_u128, 0, mask(width));
    for value in out {
        if bits < width {
            held |= u128::from(words.next().expect("the packed bytes hold every number")) << bits;
            bits += 64;
        }
        *value = held as u64 & mask;
        held >>= width;
        bits -= width;
    }
}

/// Bytes that a signed number takes as a varint.
pub(crate) fn signed_len(value: i64) -> usize {
    varint_len(zigzag(value))
}

/// Appends a signed number.
#[inline]
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

/// Takes a signed number.
///
/// # Errors
/// As [`Decoder::varint`].
#[inline]
pub(crate) fn take_signed(decoder: &mut Decoder<'_>, what: &'static str) -> Result<i64, DecodeError> {
    Ok(unzigzag(decoder.varint(what)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpack(decoder: &mut Decoder<'_>, count: usize, out: &mut Vec<u64>) -> Result<(), DecodeError> {
        let mut frames = Frames::new(decoder, count);
        while frames.len() > 0 {
            out.extend_from_slice(frames.next()?);
        }
        Ok(())
    }

    fn any_column() -> impl Strategy<Value = Vec<u64>> {
        let value = (any::<u64>(), 0..65_u32).prop_map(|(v, shift)| v.checked_shr(shift).unwrap_or(0));
        let mixed = prop_oneof![8 => 0..16_u64, 1 => value];
        prop_oneof![
            prop::collection::vec(any::<u64>(), 0..300),
            prop::collection::vec(mixed, 0..300),
            prop::collection::vec(0..2_u64, 0..300)
        ]
    }

    proptest! {
        #[test]
        fn columns_round_trip(values in any_column()) {
            let mut bytes = Vec::new();
            pack(&values, &mut bytes);
            prop_assert_eq!(bytes.len(), packed_len(&values));
            let mut decoder = Decoder::new(&bytes);
            let mut back = Vec::new();
            unpack(&mut decoder, values.len(), &mut back).unwrap();
            prop_assert!(decoder.is_empty());
            prop_assert_eq!(back, values.as_slice());
            let mut decoder = Decoder::new(&bytes);
            let mut frames = Frames::new(&mut decoder, values.len());
            for (number, frame) in values.chunks(FRAME).enumerate() {
                match number % 2 {
                    0 => frames.skip().unwrap(),
                    _ => prop_assert_eq!(frames.next().unwrap(), frame),
                }
            }
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn any_bytes_unpack_or_fail(bytes: Vec<u8>, count in 0..1000_usize) {
            let mut out = Vec::new();
            let _ = unpack(&mut Decoder::new(&bytes), count, &mut out);
            prop_assert!(out.len() <= count);
        }

        #[test]
        fn signs_round_trip(value: i64) {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            prop_assert_eq!(out.len(), signed_len(value));
            prop_assert_eq!(take_signed(&mut Decoder::new(&out), "a number"), Ok(value));
        }
    }

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        pack(&[1, 2, 3, 0, 1, 2, 3, 0, 1000], &mut bytes);
        assert_eq!(bytes, [2, 1, 0b0011_1001, 0b0011_1001, 0, 8, 0xfa, 0x01]);
        bytes.clear();
        pack(&[0; 130], &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0]);
    }
}
