//! Bytes that are not BSON: rejected with a code, and harmless even when unchecked.

use bson::doc;
use ropewalk_documents::lang::{DEPTH_MAX, DOCUMENT_BYTES_MAX, Doc, DocBuf, Value, Writer, key, order, path};

use super::{buf, json};

/// One of every type.
fn everything() -> DocBuf {
    json(
        r#"{ "double": 1.5, "text": "téxt", "doc": {"a": {"b": [1, [2]]}}, "array": [1, "x"], "binary": {"$binary": {"base64": "AQID", "subType": "02"}},
             "undefined": {"$undefined": true}, "oid": {"$oid": "00112233445566778899aabb"}, "bool": true, "date": {"$date": {"$numberLong": "5"}}, "null": null,
             "regex": {"$regularExpression": {"pattern": "a", "options": "i"}}, "pointer": {"$dbPointer": {"$ref": "c", "$id": {"$oid": "00112233445566778899aabb"}}},
             "code": {"$code": "f()"}, "symbol": {"$symbol": "s"}, "scope": {"$code": "f()", "$scope": {"x": 1}}, "int": 1,
             "stamp": {"$timestamp": {"t": 1, "i": 2}}, "long": {"$numberLong": "9"}, "decimal": {"$numberDecimal": "1.10"}, "min": {"$minKey": 1}, "max": {"$maxKey": 1} }"#,
    )
}

fn use_it(doc: Doc<'_>) {
    let _ = (doc.to_string(), doc.get("max").is_some(), path::each_at(doc, "doc.a.b", &mut |_| Ok(())));
    let _ = key::key_of(Value::Document(doc));
    let _ = order::compare(Value::Document(doc), Value::Document(everything().doc()));
}

#[test]
fn every_type_is_read() {
    let doc = everything();
    let shown = doc.to_string();
    for part in [
        "double: 1.5",
        "\"téxt\"",
        "[ 1, [ 2 ] ]",
        "NumberDecimal(1.10)",
        "Timestamp(1, 2)",
        "/a/i",
        "MaxKey",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let mut writer = Writer::new();
    doc.doc().iter().for_each(|(name, value)| writer.put(name, value));
    assert_eq!(writer.finish(), doc);
}

#[test]
fn a_change_of_any_byte_is_refused_or_harmless() {
    let whole = everything().into_bytes();
    for at in 0..whole.len() {
        for change in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = change;
            use_it(Doc::trusted(&bytes));
            if let Ok(doc) = Doc::check(&bytes) {
                // Accepted bytes can be read to the end.
                let mut writer = Writer::new();
                doc.iter().for_each(|(name, value)| writer.put(name, value));
                assert_eq!(writer.finish().bytes(), bytes, "byte {at}");
            }
        }
        use_it(Doc::trusted(&whole[..at]));
        assert_eq!(Doc::check(&whole[..at]).unwrap_err().code.number(), 22);
    }
}

#[test]
fn text_that_is_not_utf8() {
    let mut bytes = buf(&doc! { "name": "ab" }).into_bytes();
    let at = bytes.iter().position(|&byte| byte == b'a' && byte != b'n').unwrap();
    bytes[at] = 0xFF;
    let error = Doc::check(&bytes).unwrap_err();
    assert_eq!(error.code.to_string(), "InvalidBSON");
}

#[test]
fn too_deep_and_too_large() {
    let nested = |depth: usize| {
        let mut bytes = vec![5, 0, 0, 0, 0];
        for _ in 1..depth {
            let mut outer = ((bytes.len() + 8) as u32).to_le_bytes().to_vec();
            outer.extend([3, b'a', 0]);
            outer.extend(bytes);
            outer.push(0);
            bytes = outer;
        }
        bytes
    };
    Doc::check(&nested(DEPTH_MAX)).unwrap();
    assert_eq!(Doc::check(&nested(DEPTH_MAX + 1)).unwrap_err().code.to_string(), "Overflow");
    assert_eq!(Doc::check(&nested(4_000)).unwrap_err().code.to_string(), "Overflow");
    let of_size = |size: usize| buf_of("x".repeat(size - 14));
    Doc::check(&of_size(DOCUMENT_BYTES_MAX)).unwrap();
    assert_eq!(Doc::check(&of_size(DOCUMENT_BYTES_MAX + 1)).unwrap_err().code.number(), 10334);
}

fn buf_of(text: String) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.put("ab", Value::String(&text));
    writer.finish().into_bytes()
}
