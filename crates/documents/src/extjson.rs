//! Documents as JSON text, in the relaxed form of MongoDB's Extended JSON: types of JSON are plain, others
//! name their type.

use ropewalk::documents::lang::{Doc, Value};

use crate::types::json::quoted;

/// The document as JSON.
pub(crate) fn json_of(doc: Doc<'_>) -> String {
    let mut out = String::with_capacity(doc.bytes().len() * 2);
    put_document(doc, &mut out);
    out
}

/// `_id` as a string: strings unchanged, ObjectIds as hex, other types as JSON.
pub(crate) fn id_text(id: Value<'_>) -> String {
    match id {
        Value::String(text) => text.to_owned(),
        Value::ObjectId(bytes) => hex(&bytes),
        other => {
            let mut out = String::new();
            put(other, &mut out);
            out
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS.get((bits >> (18 - 6 * place) & 63) as usize).copied().unwrap_or(b'=');
            out.push(if place > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

fn put_document(doc: Doc<'_>, out: &mut String) {
    out.push('{');
    for (place, (name, value)) in doc.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        out.push_str(&quoted(name));
        out.push(':');
        put(value, out);
    }
    out.push('}');
}

fn put(value: Value<'_>, out: &mut String) {
    let tagged = |tag: &str, inner: &str| format!("{{\"{tag}\":{inner}}}");
    match value {
        Value::Double(v) if v.is_finite() => {
            let text = v.to_string();
            let is_whole = !text.contains(['.', 'e', 'E']);
            out.push_str(&text);
            if is_whole {
                out.push_str(".0");
            }
        }
        Value::Double(v) => {
            let name = if v.is_nan() {
                "NaN"
            } else if v > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            out.push_str(&tagged("$numberDouble", &quoted(name)));
        }
        Value::String(v) => out.push_str(&quoted(v)),
        Value::Document(doc) => put_document(doc, out),
        Value::Array(array) => {
            out.push('[');
            for (place, value) in array.values().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                put(value, out);
            }
            out.push(']');
        }
        Value::Binary(subtype, bytes) => {
            let inner = format!("{{\"base64\":\"{}\",\"subType\":\"{subtype:02x}\"}}", base64(bytes));
            out.push_str(&tagged("$binary", &inner));
        }
        Value::Undefined => out.push_str(&tagged("$undefined", "true")),
        Value::ObjectId(bytes) => out.push_str(&tagged("$oid", &quoted(&hex(&bytes)))),
        Value::Bool(v) => out.push_str(if v { "true" } else { "false" }),
        Value::DateTime(millis) => {
            let text = crate::types::text_format::to_text(&ropewalk::tables::Value::Timestamp(
                millis.saturating_mul(1000),
            ));
            let text = text.unwrap_or_default().replace(' ', "T") + "Z";
            out.push_str(&tagged("$date", &quoted(&text)));
        }
        Value::Null => out.push_str("null"),
        Value::Regex(pattern, options) => {
            let inner = format!("{{\"pattern\":{},\"options\":{}}}", quoted(pattern), quoted(options));
            out.push_str(&tagged("$regularExpression", &inner));
        }
        Value::DbPointer(namespace, id) => {
            let inner = format!("{{\"$ref\":{},\"$id\":{{\"$oid\":\"{}\"}}}}", quoted(namespace), hex(&id));
            out.push_str(&tagged("$dbPointer", &inner));
        }
        Value::Code(text) => out.push_str(&tagged("$code", &quoted(text))),
        Value::Symbol(text) => out.push_str(&tagged("$symbol", &quoted(text))),
        Value::CodeWithScope(text, scope) => {
            out.push_str(&format!("{{\"$code\":{},\"$scope\":{}}}", quoted(text), json_of(scope)));
        }
        Value::Int32(v) => out.push_str(&v.to_string()),
        Value::Int64(v) => out.push_str(&v.to_string()),
        Value::Timestamp(v) => {
            let inner = format!("{{\"t\":{},\"i\":{}}}", v >> 32, v & 0xffff_ffff);
            out.push_str(&tagged("$timestamp", &inner));
        }
        Value::Decimal(v) => out.push_str(&tagged("$numberDecimal", &quoted(&v.to_string()))),
        Value::MinKey => out.push_str(&tagged("$minKey", "1")),
        Value::MaxKey => out.push_str(&tagged("$maxKey", "1")),
    }
}
