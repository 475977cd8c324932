//! Functions over bytes: digests, encodings, single bits and bytes, and the hashes that PostgreSQL's clients
//! use for locks.
//!
//! Source of the rules: PostgreSQL 15's documentation, "Binary String Functions and Operators".

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use ropewalk::hooks::hex;
use ropewalk::tables::{Type, Value};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use crate::error::{Result, SqlError, state};
use crate::expr::bounds::check_text;
use crate::expr::function::Function;
use crate::functions::{Resolved, int4, integer_of, text_of};

/// The bytes function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const BYTES: Type = Type::BYTEA;
    const TEXT: Type = Type::TEXT;
    const INT: Type = Type::INT4;
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let is_bytes = types.first() == Some(&Some(BYTES));
    let text_or_bytes = if is_bytes { BYTES } else { TEXT };
    match (name, types.len()) {
        ("md5", 1) => resolved(F::Md5, &[text_or_bytes], TEXT),
        ("sha224", 1) => resolved(F::Sha224, &[BYTES], BYTES),
        ("sha256", 1) => resolved(F::Sha256, &[BYTES], BYTES),
        ("sha384", 1) => resolved(F::Sha384, &[BYTES], BYTES),
        ("sha512", 1) => resolved(F::Sha512, &[BYTES], BYTES),
        // Those of PostgreSQL's extension pgcrypto.
        ("digest", 2) => resolved(F::Digest, &[text_or_bytes, TEXT], BYTES),
        ("hmac", 3) => resolved(F::Hmac, &[text_or_bytes, text_or_bytes, TEXT], BYTES),
        ("encode", 2) => resolved(F::Encode, &[BYTES, TEXT], TEXT),
        ("decode", 2) => resolved(F::Decode, &[TEXT; 2], BYTES),
        ("convert_from", 2) => resolved(F::ConvertFrom, &[BYTES, TEXT], TEXT),
        ("convert_to", 2) => resolved(F::ConvertTo, &[TEXT; 2], BYTES),
        ("bit_length", 1) => resolved(F::BitLength, &[text_or_bytes], INT),
        ("bit_count", 1) => resolved(F::BitCount, &[BYTES], Type::INT8),
        ("get_bit", 2) => resolved(F::GetBit, &[BYTES, Type::INT8], INT),
        ("get_byte", 2) => resolved(F::GetByte, &[BYTES, INT], INT),
        ("set_bit", 3) => resolved(F::SetBit, &[BYTES, Type::INT8, INT], BYTES),
        ("set_byte", 3) => resolved(F::SetByte, &[BYTES, INT, INT], BYTES),
        ("*bytes_concat", 2) => resolved(F::BytesConcat, &[BYTES; 2], BYTES),
        ("substr" | "substring", 2) if is_bytes => resolved(F::BytesSubstr, &[BYTES, INT], BYTES),
        ("substr" | "substring", 3) if is_bytes => resolved(F::BytesSubstr, &[BYTES, INT, INT], BYTES),
        ("btrim", 2) if is_bytes => resolved(F::BytesTrim, &[BYTES; 2], BYTES),
        ("ltrim", 2) if is_bytes => resolved(F::BytesLtrim, &[BYTES; 2], BYTES),
        ("rtrim", 2) if is_bytes => resolved(F::BytesRtrim, &[BYTES; 2], BYTES),
        ("strpos", 2) if is_bytes => resolved(F::BytesPosition, &[BYTES; 2], INT),
        ("overlay", 3) => resolved(F::Overlay, &[text_or_bytes, text_or_bytes, INT], text_or_bytes),
        ("overlay", 4) => resolved(F::Overlay, &[text_or_bytes, text_or_bytes, INT, INT], text_or_bytes),
        ("hashtext", 1) => resolved(F::HashText, &[TEXT], INT),
        ("hashtextextended", 2) => resolved(F::HashTextExtended, &[TEXT, Type::INT8], Type::INT8),
        _ => None,
    }
}

fn bytes_of<'v>(value: Option<&'v Value<'_>>) -> &'v [u8] {
    match value {
        Some(Value::Bytea(bytes)) => bytes,
        Some(Value::Text(text)) => text.as_bytes(),
        _ => &[],
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message.into())
}

/// Encodes in lines of 76 characters.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for line in bytes.chunks(57) {
        if !out.is_empty() {
            out.push('\n');
        }
        STANDARD.encode_string(line, &mut out);
    }
    out
}

/// Decodes base64 as leniently as PostgreSQL.
///
/// White space is skipped, and once padding has begun, every group of four letters has as many bytes as the
/// first padded one.
fn from_base64(text: &str) -> Result<Vec<u8>> {
    let mut letters = String::with_capacity(text.len());
    let mut padding = None;
    for c in text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')) {
        let place = letters.len();
        match c {
            '=' if padding.is_none() && place % 4 < 2 => {
                return Err(invalid("unexpected \"=\" while decoding base64 sequence"));
            }
            '=' => {
                padding.get_or_insert(place);
                letters.push('A');
            }
            'A'..='Z' | 'a'..='z' | '0'..='9' | '+' | '/' => letters.push(c),
            _ => {
                return Err(invalid(format!("invalid symbol \"{c}\" found while decoding base64 sequence")));
            }
        }
    }
    let decoded = STANDARD.decode(letters).map_err(|_| {
        invalid("invalid base64 end sequence")
            .hint("input data is missing padding, is truncated, or is otherwise corrupted")
    })?;
    let Some(padding) = padding else { return Ok(decoded) };
    let size = |group: usize| if group < padding / 4 { 3 } else { padding % 4 - 1 };
    let groups = decoded.chunks(3).enumerate();
    Ok(groups.flat_map(|(group, bytes)| bytes.iter().take(size(group))).copied().collect())
}

fn decode_hex(text: &str) -> Result<Vec<u8>> {
    let mut digits = Vec::with_capacity(text.len());
    for c in text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')) {
        let digit = c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        digits.push(digit.ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{c}\"")))?);
    }
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Ok(high << 4 | low),
        _ => Err(invalid("invalid hexadecimal data: odd number of digits")),
    });
    pairs.collect()
}

/// Zero and bytes with the high bit as `\ooo`, a backslash doubled, all others unchanged.
fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0 | 128.. => out += &format!("\\{byte:03o}"),
            b'\\' => out += "\\\\",
            byte => out.push(char::from(*byte)),
        }
    }
    out
}

fn from_escaped(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, behind) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), behind)
            }
            (b'\\', [b'\\', behind @ ..]) => (b'\\', behind),
            (b'\\', _) => {
                let message = "invalid input syntax for type bytea";
                return Err(SqlError::new(state::INVALID_TEXT_REPRESENTATION, message));
            }
            (byte, behind) => (*byte, behind),
        };
        out.push(byte);
        rest = behind;
    }
    Ok(out)
}

/// The digest of bytes by an algorithm of the extension pgcrypto, with a key for HMAC.
fn digest(bytes: &[u8], key: Option<&[u8]>, algorithm: &str) -> Result<Vec<u8>> {
    macro_rules! digest_by {
        ($kind:ty) => {
            match key {
                None => <$kind>::digest(bytes).to_vec(),
                Some(key) => {
                    let mut mac = Hmac::<$kind>::new_from_slice(key)
                        .map_err(|_| invalid("a key of this length is not supported"))?;
                    mac.update(bytes);
                    mac.finalize().into_bytes().to_vec()
                }
            }
        };
    }
    Ok(match algorithm.to_ascii_lowercase().as_str() {
        "md5" => digest_by!(Md5),
        "sha1" => digest_by!(Sha1),
        "sha224" => digest_by!(Sha224),
        "sha256" => digest_by!(Sha256),
        "sha384" => digest_by!(Sha384),
        "sha512" => digest_by!(Sha512),
        _ => return Err(invalid(format!("Cannot use \"{algorithm}\": No such hash algorithm"))),
    })
}

fn unrecognized(form: &str) -> SqlError {
    invalid(format!("unrecognized encoding: \"{form}\""))
}

fn encode(bytes: &[u8], form: &str) -> Result<String> {
    match form.to_ascii_lowercase().as_str() {
        "hex" => Ok(hex(bytes)),
        "base64" => Ok(base64(bytes)),
        "escape" => Ok(escaped(bytes)),
        _ => Err(unrecognized(form)),
    }
}

fn decode(text: &str, form: &str) -> Result<Vec<u8>> {
    match form.to_ascii_lowercase().as_str() {
        "hex" => decode_hex(text),
        "base64" => from_base64(text),
        "escape" => from_escaped(text),
        _ => Err(unrecognized(form)),
    }
}

/// A character set for conversions.
#[derive(Clone, Copy, PartialEq)]
enum Charset {
    Utf8,
    Latin1,
    /// ASCII bytes, unchanged.
    Ascii,
}

impl Charset {
    /// Finds a character set by name, ignoring all but letters and digits.
    fn named(name: &str, end: &str) -> Result<Self> {
        let plain: String =
            name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        match plain.as_str() {
            "utf8" | "unicode" => Ok(Self::Utf8),
            "latin1" | "iso88591" => Ok(Self::Latin1),
            "sqlascii" => Ok(Self::Ascii),
            _ => Err(invalid(format!("invalid {end} encoding name \"{name}\"")).hint("use UTF8 or LATIN1")),
        }
    }
}

/// Decodes bytes to text.
///
/// # Errors
/// 22021: the bytes are not valid in the character set.
fn text_from(bytes: &[u8], charset: Charset) -> Result<String> {
    let text = match charset {
        Charset::Latin1 => bytes.iter().copied().map(char::from).collect(),
        Charset::Utf8 | Charset::Ascii => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(error) => {
                let wrong = bytes.get(error.valid_up_to()..).unwrap_or_default();
                let count = error.error_len().unwrap_or(wrong.len());
                let shown: Vec<String> =
                    wrong.iter().take(count).map(|byte| format!("0x{byte:02x}")).collect();
                let message = format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" "));
                return Err(SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, message));
            }
        },
    };
    if text.contains('\0') {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(SqlError::new(state::CHARACTER_NOT_IN_REPERTOIRE, message));
    }
    Ok(text)
}

fn text_to(text: &str, charset: Charset) -> Result<Vec<u8>> {
    if charset != Charset::Latin1 {
        return Ok(text.as_bytes().to_vec());
    }
    let byte = |c: char| {
        u8::try_from(u32::from(c)).map_err(|_| {
            let mut buffer = [0; 4];
            let shown: Vec<String> =
                c.encode_utf8(&mut buffer).bytes().map(|byte| format!("0x{byte:02x}")).collect();
            let message = format!(
                "character with byte sequence {} in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\"",
                shown.join(" ")
            );
            SqlError::new(state::UNTRANSLATABLE_CHARACTER, message)
        })
    };
    text.chars().map(byte).collect()
}

fn outside(at: i64, count: usize) -> SqlError {
    let last = i64::try_from(count).unwrap_or(i64::MAX) - 1;
    SqlError::new(state::ARRAY_SUBSCRIPT_ERROR, format!("index {at} out of valid range, 0..{last}"))
}

fn place(at: i64, count: usize) -> Result<usize> {
    usize::try_from(at).ok().filter(|place| *place < count).ok_or_else(|| outside(at, count))
}

/// The range of `substr(.., from, count)` among `length` items.
pub(crate) fn cut(length: usize, from: i64, count: Option<i64>) -> Result<std::ops::Range<usize>> {
    let end = match count {
        Some(count) if count < 0 => {
            return Err(SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let at = |place: i64| usize::try_from(place.max(1) - 1).unwrap_or_default().min(length);
    Ok(at(from)..at(end).max(at(from)))
}

/// `whole` with `count` items from `from` replaced; `count` defaults to the number of new items.
fn overlaid<T: Clone>(whole: &[T], new: &[T], from: i64, count: Option<i64>) -> Result<Vec<T>> {
    if from <= 0 {
        return Err(SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let count = count.unwrap_or_else(|| i64::try_from(new.len()).unwrap_or(i64::MAX));
    let before = whole.get(cut(whole.len(), 1, Some(from - 1))?).unwrap_or_default();
    let behind = whole.get(cut(whole.len(), from.saturating_add(count), None)?).unwrap_or_default();
    check_text(before.len().saturating_add(new.len()).saturating_add(behind.len()))?;
    Ok([before, new, behind].concat())
}

/// Both halves of Bob Jenkins' hash "lookup3" of little-endian words, as PostgreSQL computes it.
///
/// Source: B. Jenkins, "lookup3.c", 2006 (public domain).
fn jenkins(key: &[u8], seed: u64) -> (u32, u32) {
    let start =
        0x9e37_79b9_u32.wrapping_add(u32::try_from(key.len()).unwrap_or(u32::MAX)).wrapping_add(3_923_095);
    let (mut a, mut b, mut c) = (start, start, start);
    let mix = |a: &mut u32, b: &mut u32, c: &mut u32| {
        let step = |x: &mut u32, y: &mut u32, z: &mut u32, turn: u32| {
            *x = x.wrapping_sub(*z) ^ z.rotate_left(turn);
            *z = z.wrapping_add(*y);
        };
        step(a, b, c, 4);
        step(b, c, a, 6);
        step(c, a, b, 8);
        step(a, b, c, 16);
        step(b, c, a, 19);
        step(c, a, b, 4);
    };
    if seed != 0 {
        a = a.wrapping_add((seed >> 32) as u32);
        b = b.wrapping_add(seed as u32);
        mix(&mut a, &mut b, &mut c);
    }
    let word = |bytes: &[u8], at: usize| {
        bytes.iter().skip(at).take(4).rev().fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
    };
    let mut rest = key;
    while let Some((twelve, behind)) = rest.split_at_checked(12) {
        a = a.wrapping_add(word(twelve, 0));
        b = b.wrapping_add(word(twelve, 4));
        c = c.wrapping_add(word(twelve, 8));
        mix(&mut a, &mut b, &mut c);
        rest = behind;
    }
    a = a.wrapping_add(word(rest, 0));
    b = b.wrapping_add(word(rest, 4));
    // The lowest byte of the last word belongs to the length.
    c = c.wrapping_add(word(rest, 8) << 8);
    let last = |x: &mut u32, y: u32, turn: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(turn));
    last(&mut c, b, 14);
    last(&mut a, c, 11);
    last(&mut b, a, 25);
    last(&mut c, b, 16);
    last(&mut a, c, 4);
    last(&mut b, a, 14);
    last(&mut c, b, 24);
    (b, c)
}

impl Function {
    /// Evaluates a bytes function; `None` for other functions. No argument is NULL.
    pub(crate) fn of_bytes(self, values: &[Value<'_>]) -> Result<Option<Value<'static>>> {
        use Function as F;
        let (first, second, third) = (values.first(), values.get(1), values.get(2));
        let bytes = bytes_of(first);
        let trimmed = |left: bool, right: bool| {
            let set: HashSet<u8> = bytes_of(second).iter().copied().collect();
            let is_off = |byte: &&u8| set.contains(*byte);
            let all = bytes.len();
            let from = if left { bytes.iter().take_while(is_off).count() } else { 0 };
            let off = bytes.iter().rev().take_while(is_off).count();
            let end = if right { all - off } else { all };
            Value::bytea(bytes.get(from..end.max(from)).unwrap_or_default().to_vec())
        };
        Ok(Some(match self {
            F::Md5 => Value::text(hex(Md5::digest(bytes).as_slice())),
            F::Sha224 => Value::bytea(Sha224::digest(bytes).to_vec()),
            F::Sha256 => Value::bytea(Sha256::digest(bytes).to_vec()),
            F::Sha384 => Value::bytea(Sha384::digest(bytes).to_vec()),
            F::Sha512 => Value::bytea(Sha512::digest(bytes).to_vec()),
            F::Digest => Value::bytea(digest(bytes, None, text_of(second))?),
            F::Hmac => Value::bytea(digest(bytes, Some(bytes_of(second)), text_of(third))?),
            F::Encode => Value::text(encode(bytes, text_of(second))?),
            F::Decode => Value::bytea(decode(text_of(first), text_of(second))?),
            F::ConvertFrom => Value::text(text_from(bytes, Charset::named(text_of(second), "source")?)?),
            F::ConvertTo => {
                Value::bytea(text_to(text_of(first), Charset::named(text_of(second), "destination")?)?)
            }
            F::BitLength => int4(bytes.len().saturating_mul(8)),
            F::BitCount => Value::Int8(bytes.iter().map(|byte| i64::from(byte.count_ones())).sum()),
            F::GetByte => {
                let at = place(integer_of(second), bytes.len())?;
                Value::Int4(bytes.get(at).copied().unwrap_or_default().into())
            }
            F::GetBit => {
                let at = place(integer_of(second), bytes.len().saturating_mul(8))?;
                Value::Int4((bytes.get(at / 8).copied().unwrap_or_default() >> (at % 8) & 1).into())
            }
            F::SetByte => {
                let at = place(integer_of(second), bytes.len())?;
                let mut changed = bytes.to_vec();
                if let Some(byte) = changed.get_mut(at) {
                    *byte = integer_of(third) as u8;
                }
                Value::bytea(changed)
            }
            F::SetBit => {
                let at = place(integer_of(second), bytes.len().saturating_mul(8))?;
                let bit = integer_of(third);
                if !matches!(bit, 0 | 1) {
                    return Err(invalid("new bit must be 0 or 1"));
                }
                let mut changed = bytes.to_vec();
                if let Some(byte) = changed.get_mut(at / 8) {
                    *byte = *byte & !(1 << (at % 8)) | (bit as u8) << (at % 8);
                }
                Value::bytea(changed)
            }
            F::BytesConcat => {
                check_text(bytes.len().saturating_add(bytes_of(second).len()))?;
                Value::bytea([bytes, bytes_of(second)].concat())
            }
            F::BytesSubstr => {
                let range = cut(bytes.len(), integer_of(second), third.and_then(Value::as_integer))?;
                Value::bytea(bytes.get(range).unwrap_or_default().to_vec())
            }
            F::BytesTrim => trimmed(true, true),
            F::BytesLtrim => trimmed(true, false),
            F::BytesRtrim => trimmed(false, true),
            F::BytesPosition => {
                // Converted to text, a letter for each byte: text search takes linear time.
                let letters = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
                let (whole, part) = (letters(bytes), letters(bytes_of(second)));
                let before = whole.find(&part).and_then(|place| whole.get(..place));
                int4(before.map_or(0, |before| before.chars().count() + 1))
            }
            F::Overlay => {
                let (from, count) = (integer_of(third), values.get(3).and_then(Value::as_integer));
                match first {
                    Some(Value::Bytea(bytes)) => {
                        Value::bytea(overlaid(bytes, bytes_of(second), from, count)?)
                    }
                    _ => {
                        let whole: Vec<char> = text_of(first).chars().collect();
                        let new: Vec<char> = text_of(second).chars().collect();
                        Value::text(overlaid(&whole, &new, from, count)?.into_iter().collect::<String>())
                    }
                }
            }
            F::HashText => Value::Int4(jenkins(bytes, 0).1.cast_signed()),
            F::HashTextExtended => {
                let (high, low) = jenkins(bytes, integer_of(second).cast_unsigned());
                Value::Int8((u64::from(high) << 32 | u64::from(low)).cast_signed())
            }
            _ => return Ok(None),
        }))
    }
}
