//! Values as JSON: MongoDB's Extended JSON, version 2.
//!
//! Types of JSON are written directly: strings, booleans, null, arrays, documents, and in the relaxed form
//! numbers. Any other type is an object whose only field begins with `$` and names the type. Fields of a
//! document preserve their order; those of a type are sorted.
//!
//! Not here: the parser, which needs a JSON library.

use core::fmt::Arguments;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use ropewalk_base::hex;

use crate::lang::{Doc, Value};

/// The form of numbers and dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Readable; an int64 that would fit an int32 loses its type.
    #[default]
    Relaxed,
    /// Every type round-trips.
    Canonical,
}

/// First fields of objects that name a type; any other name that begins with `$` is an ordinary field, such as
/// an operator.
pub const TYPE_NAMES: [&str; 16] = [
    "$oid",
    "$symbol",
    "$numberInt",
    "$numberLong",
    "$numberDouble",
    "$numberDecimal",
    "$binary",
    "$uuid",
    "$code",
    "$timestamp",
    "$regularExpression",
    "$dbPointer",
    "$date",
    "$minKey",
    "$maxKey",
    "$undefined",
];

/// The subtype of binary data whose bytes begin with their length.
const BINARY_OLD: u8 = 2;

/// Returns a value as text.
pub fn to_text(value: Value<'_>, form: Form) -> String {
    let mut out = Vec::new();
    put_value(&mut out, value, form);
    String::from_utf8(out).expect("names and texts of a document are UTF-8")
}

/// Writes a document.
pub fn put_document(out: &mut Vec<u8>, doc: Doc<'_>, form: Form) {
    out.push(b'{');
    for (place, (name, value)) in doc.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        put_text(out, name);
        out.push(b':');
        put_value(out, value, form);
    }
    out.push(b'}');
}

/// Writes a value.
pub fn put_value(out: &mut Vec<u8>, value: Value<'_>, form: Form) {
    let is_relaxed = form == Form::Relaxed;
    match value {
        Value::Document(doc) => put_document(out, doc, form),
        Value::Array(array) => {
            out.push(b'[');
            for (place, value) in array.values().enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                put_value(out, value, form);
            }
            out.push(b']');
        }
        Value::String(text) => put_text(out, text),
        Value::Bool(truth) => put(out, format_args!("{truth}")),
        Value::Null => put(out, format_args!("null")),
        Value::Int32(number) if is_relaxed => put(out, format_args!("{number}")),
        Value::Int64(number) if is_relaxed => put(out, format_args!("{number}")),
        // Shortest form that parses to the same number; with a point, so that it parses as a double.
        Value::Double(number) if is_relaxed && number.is_finite() => put(out, format_args!("{number:?}")),
        Value::Int32(number) => put(out, format_args!(r#"{{"$numberInt":"{number}"}}"#)),
        Value::Int64(number) => put(out, format_args!(r#"{{"$numberLong":"{number}"}}"#)),
        Value::Double(number) => put(out, format_args!(r#"{{"$numberDouble":"{}"}}"#, double_text(number))),
        Value::Decimal(number) => put(out, format_args!(r#"{{"$numberDecimal":"{number}"}}"#)),
        Value::DateTime(millis) => match readable_time(millis).filter(|_| is_relaxed) {
            Some(time) => put(out, format_args!(r#"{{"$date":"{time}Z"}}"#)),
            None => put(out, format_args!(r#"{{"$date":{{"$numberLong":"{millis}"}}}}"#)),
        },
        Value::ObjectId(id) => put(out, format_args!(r#"{{"$oid":"{}"}}"#, hex(&id))),
        Value::Binary(subtype, bytes) => {
            let bytes = if subtype == BINARY_OLD { bytes.get(4..).unwrap_or(bytes) } else { bytes };
            let base64 = STANDARD.encode(bytes);
            put(out, format_args!(r#"{{"$binary":{{"base64":"{base64}","subType":"{subtype:02x}"}}}}"#));
        }
        Value::Timestamp(time) => {
            let (seconds, ordinal) = (time >> 32, time & 0xffff_ffff);
            put(out, format_args!(r#"{{"$timestamp":{{"i":{ordinal},"t":{seconds}}}}}"#));
        }
        Value::Regex(pattern, options) => {
            let mut options: Vec<char> = options.chars().collect();
            options.sort_unstable();
            put(out, format_args!(r#"{{"$regularExpression":{{"options":"#));
            put_text(out, &String::from_iter(options));
            put(out, format_args!(r#","pattern":"#));
            put_text(out, pattern);
            put(out, format_args!("}}}}"));
        }
        Value::DbPointer(namespace, id) => {
            put(out, format_args!(r#"{{"$dbPointer":{{"$id":{{"$oid":"{}"}},"$ref":"#, hex(&id)));
            put_text(out, namespace);
            put(out, format_args!("}}}}"));
        }
        Value::Code(code) => put_typed(out, "$code", Value::String(code), form),
        Value::Symbol(text) => put_typed(out, "$symbol", Value::String(text), form),
        Value::CodeWithScope(code, scope) => {
            put(out, format_args!(r#"{{"$code":"#));
            put_text(out, code);
            put(out, format_args!(r#","$scope":"#));
            put_document(out, scope, form);
            out.push(b'}');
        }
        Value::Undefined => put(out, format_args!(r#"{{"$undefined":true}}"#)),
        Value::MinKey => put(out, format_args!(r#"{{"$minKey":1}}"#)),
        Value::MaxKey => put(out, format_args!(r#"{{"$maxKey":1}}"#)),
    }
}

fn put(out: &mut Vec<u8>, text: Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every write");
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(place) = rest.iter().position(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\')) {
        let (plain, special) = rest.split_at(place);
        out.extend_from_slice(plain);
        let Some((byte, after)) = special.split_first() else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            byte => put(out, format_args!("\\u{byte:04x}")),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Writes a value of a type that JSON lacks.
fn put_typed(out: &mut Vec<u8>, kind: &str, value: Value<'_>, form: Form) {
    put(out, format_args!(r#"{{"{kind}":"#));
    put_value(out, value, form);
    out.push(b'}');
}

/// A number as `$numberDouble` has it: without an exponent.
fn double_text(number: f64) -> String {
    let sign = if number.is_sign_negative() { "-" } else { "" };
    match number {
        _ if number.is_nan() => format!("{sign}NaN"),
        _ if number.is_infinite() => format!("{sign}Infinity"),
        _ if number.fract() == 0.0 => format!("{number}.0"),
        _ => number.to_string(),
    }
}

/// The time in UTC if its year is 1970 to 9999; other years are not readable text.
fn readable_time(millis: i64) -> Option<DateTime> {
    let since = SignedDuration::from_millis(millis);
    DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(since).ok().filter(|_| millis >= 0)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};
    use serde_json::json;

    use super::*;

    #[test]
    fn date_outside_1970_to_9999_is_a_number() {
        // The bson crate writes the year 10000 as text; the specification ends at 9999.
        for millis in [253_402_300_800_000, -1] {
            let text = to_text(Value::DateTime(millis), Form::Relaxed);
            assert_eq!(text, format!(r#"{{"$date":{{"$numberLong":"{millis}"}}}}"#));
        }
    }

    #[test]
    fn every_type_is_written_as_the_bson_crate_writes_it() {
        let values = [
            json!({"z": 1, "a": [1.5, -2.0, 1e300, 1e-7, true, null, "ä\u{1}\u{8}\u{c}\u{7f}\r\n\t\"\\/"]}),
            json!({"a": 9_007_199_254_740_993_i64, "b": {}, "c": [], "d": ""}),
            json!(
                [0, 1, 500, 1_790_000_000_500_i64, 253_402_300_799_999_i64, -1]
                    .map(|millis| json!({"$date": {"$numberLong": millis.to_string()}}))
            ),
            json!(
                ["0", "-0", "1.5", "1e300", "1e23", "NaN", "-Infinity", "Infinity"]
                    .map(|number| json!({"$numberDouble": number}))
            ),
            json!(
                [
                    "0",
                    "-1.50",
                    "1E+3",
                    "1E-7",
                    "0.001",
                    "NaN",
                    "-Infinity",
                    "1234567890123456789012345678901234"
                ]
                .map(|number| json!({"$numberDecimal": number}))
            ),
            json!(
                ["", "AQ==", "AQI=", "AQID", "+/+/"]
                    .map(|bytes| json!({"$binary": {"base64": bytes, "subType": "80"}}))
            ),
            json!({"$binary": {"base64": "AQI=", "subType": "02"}}),
            json!({"$uuid": "00000000-0000-0000-0000-000000000001"}),
            json!({"$oid": "0123456789abcdef01234567"}),
            json!({"$regularExpression": {"pattern": "^\"a", "options": "mi"}}),
            json!({"$timestamp": {"t": 4_294_967_295_u32, "i": 2}}),
            json!({"$dbPointer": {"$ref": "db.c", "$id": {"$oid": "0123456789abcdef01234567"}}}),
            json!({"$code": "f()", "$scope": {"x": {"$numberLong": "5"}}}),
            json!([{"$code": "f()"}, {"$symbol": "s"}, {"$undefined": true}, {"$minKey": 1}, {"$maxKey": 1}]),
        ];
        for value in values {
            let value = Bson::try_from(value).unwrap();
            let bytes = doc! {"v": value.clone()}.to_vec().unwrap();
            let ours = Doc::check(&bytes).unwrap().get("v").unwrap();
            // JSON allows several spellings of an exponent.
            let relaxed: serde_json::Value = serde_json::from_str(&to_text(ours, Form::Relaxed)).unwrap();
            assert_eq!(relaxed, value.clone().into_relaxed_extjson());
            assert_eq!(to_text(ours, Form::Canonical), value.into_canonical_extjson().to_string());
        }
    }

    #[test]
    fn fields_preserve_their_order_and_control_characters_are_escaped() {
        let bytes = doc! {"z": "\u{1}\u{8}\"", "a": {"$code": "f", "b": 1_i64}}.to_vec().unwrap();
        let value = Value::Document(Doc::check(&bytes).unwrap());
        assert_eq!(to_text(value, Form::Relaxed), r#"{"z":"\u0001\b\"","a":{"$code":"f","b":1}}"#);
        let canonical = r#"{"z":"\u0001\b\"","a":{"$code":"f","b":{"$numberLong":"1"}}}"#;
        assert_eq!(to_text(value, Form::Canonical), canonical);
    }
}
