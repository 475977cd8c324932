//! Events as JSON, written directly from the stored bytes, without an intermediate tree or copy.
//!
//!   SequencedEventRef ─▶ {"position":7,"seq":9,"recorded_at":"…","type":"…","tags":[…],"data":…} in the buffer that is sent
//!
//! `data` is the client's own JSON as it is spelled (numbers, key order, duplicates) when the payload is
//! valid JSON; any other payload is in `data_base64`. A payload is scanned once, never parsed into values.
//! Only white space between its tokens may change: line breaks become spaces, because NDJSON and SSE end a
//! record there (a JSON string cannot contain a raw line break), and surrounding white space is removed. A
//! client that needs every byte requests [`EXACT`].

use std::fmt::Write as _;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk::events::SequencedEventRef;
use ropewalk::hooks::{BodyRef, civil};
use ropewalk::{Position, Seq};
use ropewalk_http_kit::json::{put_list, put_number, put_texts};
use serde::de::IgnoredAny;

/// Media type of lines whose payloads are all base64.
pub(crate) const EXACT: &str = "application/x-ndjson; payload=base64";

/// True when the client requests [`EXACT`].
pub(crate) fn exact_asked(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| value == EXACT)
}

/// Encoding of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// As JSON where it is JSON, else as base64.
    Json,
    /// As base64, so that every byte arrives.
    Exact,
}

/// Writes one event as a JSON object without line breaks.
pub(crate) fn put_event(out: &mut Vec<u8>, event: &SequencedEventRef<'_>) {
    put_event_of(out, event.position, event.seq, event.time_micros, event, Payload::Json);
}

/// The same with every byte of the payload.
pub(crate) fn put_exact_event(out: &mut Vec<u8>, event: &SequencedEventRef<'_>) {
    put_event_of(out, event.position, event.seq, event.time_micros, event, Payload::Exact);
}

/// The same from the parts of a commit.
pub(crate) fn put_event_of(
    out: &mut Vec<u8>,
    position: Position,
    seq: Seq,
    time_micros: i64,
    event: &BodyRef<'_>,
    payload: Payload,
) {
    out.extend_from_slice(b"{\"position\":");
    put_number(out, position.0);
    out.extend_from_slice(b",\"seq\":");
    put_number(out, seq.0);
    out.extend_from_slice(b",\"recorded_at\":\"");
    put_time(out, time_micros);
    out.extend_from_slice(b"\",\"type\":");
    put_string(out, event.event_type());
    put_tags(out, event.tags());
    if let Some(id) = event.id() {
        out.extend_from_slice(b",\"id\":\"");
        out.extend_from_slice(id.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).as_bytes());
        out.push(b'"');
    }
    let metadata = event.metadata();
    if metadata.len() > 0 {
        out.extend_from_slice(b",\"metadata\":");
        put_texts(out, metadata, put_string);
    }
    if let Some((source, position)) = event.tracking() {
        out.extend_from_slice(b",\"tracking\":{\"source\":");
        put_string(out, source);
        out.extend_from_slice(b",\"position\":");
        put_number(out, position);
        out.push(b'}');
    }
    match payload {
        Payload::Json => put_data(out, event.data()),
        Payload::Exact if event.data().is_empty() => {}
        Payload::Exact => put_base64(out, "data_base64", event.data()),
    }
    out.push(b'}');
}

/// Writes one event for the compatible `GET /read`: the payload is a text.
pub(crate) fn put_plain_event(out: &mut Vec<u8>, event: &SequencedEventRef<'_>) {
    out.extend_from_slice(b"{\"position\":");
    put_number(out, event.position.0);
    out.extend_from_slice(b",\"type\":");
    put_string(out, event.event_type());
    put_tags(out, event.tags());
    match std::str::from_utf8(event.data()) {
        Ok(text) => {
            out.extend_from_slice(b",\"data\":");
            put_string(out, text);
        }
        Err(_) => put_base64(out, "data_base64", event.data()),
    }
    out.push(b'}');
}

fn put_tags<'a>(out: &mut Vec<u8>, tags: impl Iterator<Item = &'a str>) {
    out.extend_from_slice(b",\"tags\":");
    put_list(out, tags, put_string);
}

fn put_data(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let Some(json) = as_json(data) else { return put_base64(out, "data_base64", data) };
    out.extend_from_slice(b",\"data\":");
    let start = out.len();
    out.extend_from_slice(json.as_bytes());
    if json.contains(['\n', '\r']) {
        for byte in out.iter_mut().skip(start).filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
    }
}

/// Writes a field whose value is bytes.
pub(crate) fn put_base64(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    out.push(b',');
    put_string(out, name);
    out.extend_from_slice(b":\"");
    out.extend_from_slice(STANDARD.encode(data).as_bytes());
    out.push(b'"');
}

/// The payload as JSON text, without the white space around it, if it is valid JSON.
fn as_json(data: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(data).ok()?.trim_ascii();
    serde_json::from_str::<IgnoredAny>(text).is_ok().then_some(text)
}

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a Vec takes every write");
}

/// Formats a time as a separate string.
pub(crate) fn time(micros: i64) -> String {
    let mut out = Vec::new();
    put_time(&mut out, micros);
    String::from_utf8(out).unwrap_or_default()
}

/// Writes microseconds since 1970 as RFC 3339 in UTC, always with six decimals.
pub(crate) fn put_time(out: &mut Vec<u8>, micros: i64) {
    let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil::from_days(days);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let mut text = Text(out);
    let second = second % 60;
    write!(text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
        .expect("a Vec takes every write");
}

/// `fmt::Write` onto bytes.
struct Text<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        put_data(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(time(1_709_164_800_000_001), "2024-02-29T00:00:00.000001Z");
        assert_eq!(time(1_798_761_599_999_999), "2026-12-31T23:59:59.999999Z");
        assert_eq!(time(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(time(4_107_542_400_000_000), "2100-03-01T00:00:00.000000Z");
        time(i64::MIN);
        time(i64::MAX);
    }

    #[test]
    fn json_stays_as_it_is_spelled_and_the_rest_is_base64() {
        assert_eq!(data(b""), "");
        assert_eq!(
            data(br#"{"b":1.50,"a":12345678901234567890123}"#),
            r#","data":{"b":1.50,"a":12345678901234567890123}"#
        );
        assert_eq!(data(b"{\n \"a\":\r\n\"x\\n\"}"), ",\"data\":{  \"a\":  \"x\\n\"}");
        assert_eq!(data(b"null"), ",\"data\":null");
        assert_eq!(data(b"hello"), ",\"data_base64\":\"aGVsbG8=\"");
        assert_eq!(data(b" 1\n"), ",\"data\":1");
        assert_eq!(data(b"\"\xff\""), ",\"data_base64\":\"Iv8i\"");
        assert_eq!(data(&[b'['; 100_000]).len(), ",\"data_base64\":\"\"".len() + 133_336);
    }
}
