//! Converts OTLP's JSON to the protobuf of the same message while parsing, so that both use one decoder.
//!
//!   {"resourceMetrics": [{"resource": …}]} ─▶ tables of (name, number, kind) ─▶ protobuf ─▶ `decode`
//!
//! The mapping is that of protobuf with OTLP's changes: ids are hexadecimal, enumerations are numbers, names
//! are camel case only, and unknown fields are skipped, as OTLP requires. Integers of 64 bits are strings or
//! numbers.
//! Source: OpenTelemetry Protocol Specification, "JSON Protobuf Encoding"; the JSON mapping of protobuf.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk::hooks::{from_hex, put_varint};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::ingest::protobuf::{put_bytes, put_double, put_integer, put_signed};

/// Type of a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Hex,
    Base64,
    Bool,
    Integer,
    /// A zigzag integer.
    Signed,
    Fixed64,
    Double,
    Message(&'static Message),
}

struct Field {
    name: &'static str,
    number: u32,
    kind: Kind,
    /// True for a repeated field.
    many: bool,
}

struct Message(&'static [Field]);

const fn one(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, many: false }
}

const fn many(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, many: true }
}

use Kind::{Base64, Bool, Double, Fixed64, Hex, Integer, Signed, Text};

static EXPORT: Message = Message(&[many("resourceMetrics", 1, Kind::Message(&RESOURCE_METRICS))]);
static RESOURCE_METRICS: Message = Message(&[
    one("resource", 1, Kind::Message(&RESOURCE)),
    many("scopeMetrics", 2, Kind::Message(&SCOPE_METRICS)),
]);
static RESOURCE: Message = Message(&[many("attributes", 1, Kind::Message(&ATTRIBUTE))]);
static SCOPE_METRICS: Message = Message(&[many("metrics", 2, Kind::Message(&METRIC))]);
static ATTRIBUTE: Message = Message(&[one("key", 1, Text), one("value", 2, Kind::Message(&ANY))]);
static ANY: Message = Message(&[
    one("stringValue", 1, Text),
    one("boolValue", 2, Bool),
    one("intValue", 3, Integer),
    one("doubleValue", 4, Double),
    one("arrayValue", 5, Kind::Message(&ARRAY)),
    one("kvlistValue", 6, Kind::Message(&MAP)),
    one("bytesValue", 7, Base64),
]);
static ARRAY: Message = Message(&[many("values", 1, Kind::Message(&ANY))]);
static MAP: Message = Message(&[many("values", 1, Kind::Message(&ATTRIBUTE))]);
static METRIC: Message = Message(&[
    one("name", 1, Text),
    one("description", 2, Text),
    one("unit", 3, Text),
    one("gauge", 5, Kind::Message(&NUMBERS)),
    one("sum", 7, Kind::Message(&NUMBERS)),
    one("histogram", 9, Kind::Message(&HISTOGRAMS)),
    one("exponentialHistogram", 10, Kind::Message(&EXPONENTIALS)),
    one("summary", 11, Kind::Message(&SUMMARIES)),
]);
static NUMBERS: Message = Message(&[
    many("dataPoints", 1, Kind::Message(&NUMBER)),
    one("aggregationTemporality", 2, Integer),
    one("isMonotonic", 3, Bool),
]);
static HISTOGRAMS: Message =
    Message(&[many("dataPoints", 1, Kind::Message(&HISTOGRAM)), one("aggregationTemporality", 2, Integer)]);
static EXPONENTIALS: Message =
    Message(&[many("dataPoints", 1, Kind::Message(&EXPONENTIAL)), one("aggregationTemporality", 2, Integer)]);
static SUMMARIES: Message = Message(&[many("dataPoints", 1, Kind::Message(&SUMMARY))]);
static NUMBER: Message = Message(&[
    one("startTimeUnixNano", 2, Fixed64),
    one("timeUnixNano", 3, Fixed64),
    one("asDouble", 4, Double),
    many("exemplars", 5, Kind::Message(&EXEMPLAR)),
    one("asInt", 6, Fixed64),
    many("attributes", 7, Kind::Message(&ATTRIBUTE)),
    one("flags", 8, Integer),
]);
static HISTOGRAM: Message = Message(&[
    one("startTimeUnixNano", 2, Fixed64),
    one("timeUnixNano", 3, Fixed64),
    one("count", 4, Fixed64),
    one("sum", 5, Double),
    many("bucketCounts", 6, Fixed64),
    many("explicitBounds", 7, Double),
    many("exemplars", 8, Kind::Message(&EXEMPLAR)),
    many("attributes", 9, Kind::Message(&ATTRIBUTE)),
    one("flags", 10, Integer),
]);
static EXPONENTIAL: Message = Message(&[
    many("attributes", 1, Kind::Message(&ATTRIBUTE)),
    one("startTimeUnixNano", 2, Fixed64),
    one("timeUnixNano", 3, Fixed64),
    one("count", 4, Fixed64),
    one("sum", 5, Double),
    one("scale", 6, Signed),
    one("zeroCount", 7, Fixed64),
    one("positive", 8, Kind::Message(&BUCKETS)),
    one("negative", 9, Kind::Message(&BUCKETS)),
    one("flags", 10, Integer),
    many("exemplars", 11, Kind::Message(&EXEMPLAR)),
    one("zeroThreshold", 14, Double),
]);
static BUCKETS: Message = Message(&[one("offset", 1, Signed), many("bucketCounts", 2, Integer)]);
static SUMMARY: Message = Message(&[
    one("startTimeUnixNano", 2, Fixed64),
    one("timeUnixNano", 3, Fixed64),
    one("count", 4, Fixed64),
    one("sum", 5, Double),
    many("quantileValues", 6, Kind::Message(&QUANTILE)),
    many("attributes", 7, Kind::Message(&ATTRIBUTE)),
    one("flags", 8, Integer),
]);
static QUANTILE: Message = Message(&[one("quantile", 1, Double), one("value", 2, Double)]);
static EXEMPLAR: Message = Message(&[
    one("timeUnixNano", 2, Fixed64),
    one("asDouble", 3, Double),
    one("spanId", 4, Hex),
    one("traceId", 5, Hex),
    one("asInt", 6, Fixed64),
    many("filteredAttributes", 7, Kind::Message(&ATTRIBUTE)),
]);

/// Converts an `ExportMetricsServiceRequest` to protobuf.
///
/// # Errors
/// It is not JSON, or a field has a value of another type.
pub(crate) fn to_protobuf(json: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::with_capacity(json.len() / 2);
    let mut reader = serde_json::Deserializer::from_slice(json);
    Whole { message: &EXPORT, out: &mut out }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(out)
}

/// Deserializes the fields of one message.
struct Whole<'o> {
    message: &'static Message,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(Name(self.message))? {
            match field {
                Some(field) => map.next_value_seed(Content { field, many: field.many, out: self.out })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Deserializes a field name to the field.
struct Name(&'static Message);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.0.iter().find(|field| field.name == name))
    }
}

/// Deserializes the value of one field.
struct Content<'o> {
    field: &'static Field,
    /// True where a list is allowed.
    many: bool,
    out: &'o mut Vec<u8>,
}

impl Content<'_> {
    fn integer<E: Error>(self, value: i128) -> Result<(), E> {
        let number = self.field.number;
        let range = || E::custom(format_args!("{value} is out of range for {}", self.field.name));
        // Signed and unsigned integers have the same 64 bits on the wire.
        let bits = u64::try_from(value).or_else(|_| i64::try_from(value).map(|value| value as u64));
        match self.field.kind {
            Integer => put_integer(self.out, number, bits.map_err(|_| range())?),
            Signed => put_signed(self.out, number, i64::try_from(value).map_err(|_| range())?),
            Fixed64 => {
                put_varint(self.out, u64::from(number) << 3 | 1);
                self.out.extend_from_slice(&bits.map_err(|_| range())?.to_le_bytes());
            }
            Double => put_double(self.out, number, value as f64),
            _ => return Err(E::custom(format_args!("{} holds a number", self.field.name))),
        }
        Ok(())
    }

    fn bytes<E: Error>(self, bytes: Option<Vec<u8>>) -> Result<(), E> {
        let wrong = || E::custom(format_args!("{} cannot be read", self.field.name));
        put_bytes(self.out, self.field.number, &bytes.ok_or_else(wrong)?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Content<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value of the field {}", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.field.kind {
            Bool => put_integer(self.out, self.field.number, u64::from(value)),
            _ => return Err(E::custom(format_args!("{} holds a boolean", self.field.name))),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.integer(i128::from(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.integer(i128::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.field.kind {
            Double => put_double(self.out, self.field.number, value),
            // Integers may be written as 1.0 or 1e3.
            _ if value.fract() == 0.0 && value.abs() < 2_f64.powi(63) => return self.integer(value as i128),
            _ => return Err(E::custom(format_args!("{value} is out of range for {}", self.field.name))),
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.field.kind {
            Text => self.bytes(Some(text.as_bytes().to_vec())),
            Hex => self.bytes(from_hex(text)),
            Base64 => self.bytes(STANDARD.decode(text).ok()),
            Integer | Signed | Fixed64 => match text.parse() {
                Ok(value) => self.integer(value),
                Err(_) => self.bytes(None),
            },
            // JSON has no numbers for NaN, Infinity and -Infinity.
            Double => match text.parse() {
                Ok(value) => self.visit_f64(value),
                Err(_) => self.bytes(None),
            },
            Bool | Kind::Message(_) => self.bytes(None),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { field, many, out } = self;
        if !many {
            return Err(A::Error::custom(format_args!("{} holds a list", field.name)));
        }
        while list.next_element_seed(Content { field, many: false, out })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Kind::Message(message) = self.field.kind else {
            return Err(A::Error::custom(format_args!("{} holds an object", self.field.name)));
        };
        let mut inner = Vec::new();
        Whole { message, out: &mut inner }.visit_map(map)?;
        put_bytes(self.out, self.field.number, &inner);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_as_protobuf() {
        let json = br#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","later":[{}],"sum":{"isMonotonic":true,
            "aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"3","asInt":-1,"flags":null}]}}]}],"schemaUrl":"x"}]}"#;
        let nested = |number, inner: &[u8]| {
            let mut out = Vec::new();
            put_bytes(&mut out, number, inner);
            out
        };
        let mut point = b"\x19\x03\0\0\0\0\0\0\0\x31".to_vec();
        point.extend_from_slice(&[0xff; 8]);
        let sum = [b"\x18\x01\x10\x02".to_vec(), nested(1, &point)].concat();
        let metric = [nested(1, b"m"), nested(7, &sum)].concat();
        let expected = nested(1, &nested(2, &nested(2, &metric)));
        assert_eq!(to_protobuf(json).unwrap(), expected);
    }

    #[test]
    fn rejects_values_of_another_type() {
        for (metric, words) in [
            (r#"{"name":7}"#, "name holds a number"),
            (r#"{"name":["a"]}"#, "name holds a list"),
            (r#"{"name":true}"#, "boolean"),
            (r#"{"gauge":"x"}"#, "gauge cannot be read"),
            (r#"{"gauge":{"dataPoints":[{"asInt":"9223372036854775808000"}]}}"#, "out of range"),
            (r#"{"gauge":{"dataPoints":[{"timeUnixNano":"soon"}]}}"#, "timeUnixNano cannot be read"),
            (r#"{"gauge":{"dataPoints":[{"timeUnixNano":1.5}]}}"#, "out of range"),
            (r#"{"gauge":{"dataPoints":[{"exemplars":[{"traceId":"abc"}]}]}}"#, "traceId cannot be read"),
            (r#"{"name":"#, "expected value"),
        ] {
            let json = format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}"#);
            let error = to_protobuf(json.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(words), "{metric}: {error}");
        }
        let cut = to_protobuf(br#"{"resourceMetrics":[{"#).unwrap_err().to_string();
        assert!(cut.contains("EOF"), "{cut}");
        assert!(to_protobuf(b"[]").is_err() && to_protobuf(b"{} {}").is_err());
        let deep = format!("{}{}", r#"{"arrayValue":{"values":["#.repeat(100), "]}}".repeat(100));
        let deep = format!(r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"value":{deep}}}]}}}}]}}"#);
        assert!(to_protobuf(deep.as_bytes()).unwrap_err().to_string().contains("recursion"));
    }
}
