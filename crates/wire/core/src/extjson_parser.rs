//! Parser of MongoDB's Extended JSON, version 2, in both forms; `ropewalk::documents::lang::extjson` writes it.
//!
//! An object whose only field begins with `$` may name a type. Integers are int32 where they fit, else int64;
//! a point or an exponent makes a double. So numbers preserve their type in the relaxed form, too, except an
//! int64 that would fit an int32.
//!
//! Fields preserve their order. A duplicate name in one object is rejected: some readers would take the
//! first, others the last.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use ropewalk::documents::lang::extjson::TYPE_NAMES;
use ropewalk::documents::lang::{Doc, DocBuf, Owned, Value, Writer};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::error::{Result, WireError};

/// Parses a document.
///
/// # Errors
/// Not JSON, not an object, not a document: with line and column.
pub fn parse(text: &str) -> Result<DocBuf> {
    match parsed(text)?.doc().get(FIELD).unwrap_or(Value::Null) {
        Value::Document(doc) => Ok(doc.to_buf()),
        other => Err(WireError::invalid(format!("a document is needed, not {}", other.type_name()))),
    }
}

/// Parses a value.
///
/// # Errors
/// As [`parse`].
pub fn parse_value(text: &str) -> Result<Owned> {
    Ok(Owned::from(parsed(text)?.doc().get(FIELD).unwrap_or(Value::Null)))
}

/// The field of a parsed value.
const FIELD: &str = "v";

/// A document with the value as its only field.
fn parsed(text: &str) -> Result<DocBuf> {
    let refuse = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Data => WireError::invalid(error.to_string()),
        _ => WireError::invalid(format!("it is not JSON: {error}")),
    };
    let mut out = Writer::new();
    let mut from = serde_json::Deserializer::from_str(text);
    Put { out: &mut out, name: FIELD }.deserialize(&mut from).map_err(refuse)?;
    from.end().map_err(refuse)?;
    Ok(out.finish())
}

/// A field's name, which borrows from the text unless it has escapes.
#[derive(PartialEq, Eq, Hash, Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The names of one object.
#[derive(Default)]
struct Names<'a> {
    /// Most objects have few names, which are compared faster than they are hashed.
    few: Vec<Name<'a>>,
    many: HashSet<Name<'a>>,
}

/// More names are hashed.
const FEW_NAMES: usize = 16;

impl<'a> Names<'a> {
    /// Adds a name; false when the object has it already.
    fn insert(&mut self, name: Name<'a>) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(name);
        }
        if self.few.contains(&name) {
            return false;
        }
        self.few.push(name);
        if self.few.len() > FEW_NAMES {
            self.many.extend(self.few.drain(..));
        }
        true
    }
}

/// Writes the next JSON value as a field.
struct Put<'w> {
    out: &'w mut Writer,
    name: &'w str,
}

impl<'de> DeserializeSeed<'de> for Put<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Put<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<(), E> {
        self.out.put(self.name, Value::Bool(truth));
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.out.put(self.name, i32::try_from(number).map_or(Value::Int64(number), Value::Int32));
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::custom(format!(
                "{number} is larger than an int64 can be; \"$numberDouble\" and \"$numberDecimal\" can"
            ))),
        }
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.out.put(self.name, Value::Double(number));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.out.put(self.name, Value::String(text));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.out.put(self.name, Value::Null);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        self.out.open_array(self.name);
        while elements.next_element_seed(Put { out: &mut *self.out, name: "" })?.is_some() {}
        self.out.close();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut name: Option<Name<'de>> = fields.next_key()?;
        if let Some(Name(name)) = &name
            && TYPE_NAMES.contains(&&**name)
        {
            return self.typed(name, fields);
        }
        self.out.open_document(self.name);
        let mut seen = Names::default();
        while let Some(own) = name {
            if own.0.contains('\0') {
                return Err(A::Error::custom(format!("the name {:?} holds a zero byte", own.0)));
            }
            fields.next_value_seed(Put { out: &mut *self.out, name: &own.0 })?;
            if !seen.insert(own) {
                return Err(A::Error::custom("a duplicate name in one object"));
            }
            name = fields.next_key()?;
        }
        self.out.close();
        Ok(())
    }
}

impl Put<'_> {
    /// Parses an object that names its type.
    fn typed<'de, A: MapAccess<'de>>(self, kind: &str, mut fields: A) -> Result<(), A::Error> {
        let mut object = serde_json::Map::new();
        object.insert(kind.to_owned(), fields.next_value()?);
        while let Some(name) = fields.next_key::<String>()? {
            if (kind, name.as_str()) != ("$code", "$scope") || object.len() > 1 {
                return Err(A::Error::custom(format!("{name:?} is not allowed next to {kind:?}")));
            }
            object.insert(name, fields.next_value()?);
        }
        let refuse = |what: String| A::Error::custom(format!("{kind:?}: {what}"));
        let value = bson::Bson::try_from(serde_json::Value::Object(object));
        let value = value.map_err(|error| refuse(error.to_string()))?;
        if matches!(value, bson::Bson::Document(_)) {
            return Err(refuse("not of its form".to_owned()));
        }
        let mut one = bson::Document::new();
        one.insert("v", value);
        let bytes = one.to_vec().map_err(|error| refuse(error.to_string()))?;
        let one = Doc::check(&bytes).map_err(|error| refuse(error.to_string()))?;
        self.out.put(self.name, one.get("v").unwrap_or(Value::Null));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::documents::lang::extjson::{Form, put_document};

    use super::*;

    fn back(text: &str, form: Form) -> String {
        let mut out = Vec::new();
        put_document(&mut out, parse(text).unwrap().doc(), form);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_types_are_written_directly_and_preserve_order() {
        let text = r#"{"z":1,"a":[1.5,-2.0,1e300,true,null,"ä\n"],"m":{"y":9007199254740993,"b":{}}}"#;
        assert_eq!(back(text, Form::Relaxed), text);
        let canonical = r#"{"n":{"$numberInt":"1"},"l":{"$numberLong":"5"},"d":{"$numberDouble":"1.5"}}"#;
        assert_eq!(back(canonical, Form::Canonical), canonical);
        assert_eq!(back(canonical, Form::Relaxed), r#"{"n":1,"l":5,"d":1.5}"#);
    }

    #[test]
    fn other_types_name_their_type() {
        for text in [
            r#"{"v":{"$oid":"0123456789abcdef01234567"}}"#,
            r#"{"v":{"$date":"2026-11-22T00:00:00Z"}}"#,
            r#"{"v":{"$binary":{"base64":"AQI=","subType":"00"}}}"#,
            r#"{"v":{"$numberDecimal":"1.50"}}"#,
            r#"{"v":{"$numberDouble":"NaN"}}"#,
            r#"{"v":{"$regularExpression":{"options":"i","pattern":"^a"}}}"#,
            r#"{"v":{"$timestamp":{"i":2,"t":1}}}"#,
            r#"{"v":{"$minKey":1}}"#,
            r#"{"v":{"$maxKey":1}}"#,
            r#"{"v":{"$undefined":true}}"#,
            r#"{"v":{"$code":"f()"}}"#,
            r#"{"v":{"$symbol":"s"}}"#,
        ] {
            assert_eq!(back(text, Form::Relaxed), text);
        }
        assert_eq!(
            back(r#"{"v":{"$uuid":"00000000-0000-0000-0000-000000000001"}}"#, Form::Relaxed),
            r#"{"v":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}}"#
        );
    }

    #[test]
    fn operators_are_ordinary_fields() {
        for text in [r#"{"$and":[{"a":{"$gt":1}}]}"#, r#"{"a":{"$regex":"^x","$options":"i"}}"#] {
            assert_eq!(back(text, Form::Relaxed), text);
        }
    }

    #[test]
    fn invalid_json_is_rejected_with_its_position() {
        for (text, why) in [
            ("", "not JSON"),
            ("{\"a\":1} x", "not JSON"),
            ("[1]", "a document is needed, not array"),
            (r#"{"$oid":"0123456789abcdef01234567"}"#, "a document is needed, not objectId"),
            (r#"{"a":1,"a":2}"#, "duplicate"),
            ("{\"a\\u0000b\":1}", "zero byte"),
            (r#"{"v":{"$oid":"xyz"}}"#, "$oid"),
            (r#"{"v":{"$oid":7}}"#, "$oid"),
            (r#"{"v":{"$date":"yesterday"}}"#, "$date"),
            (r#"{"v":{"$numberInt":"1","x":2}}"#, "next to"),
            (r#"{"v":18446744073709551615}"#, "int64"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(why), "{text}: {}", error.message);
        }
        assert!(parse(&format!("{{\"a\":{}1{}}}", "[".repeat(500), "]".repeat(500))).is_err());
        for count in [2, FEW_NAMES, FEW_NAMES + 1, 100] {
            for again in [0, count / 2, count - 1] {
                let fields = (0..count).chain([again]).map(|number| format!("\"f{number}\":1"));
                let fields: Vec<String> = fields.collect();
                assert!(parse(&format!("{{{}}}", fields.join(","))).is_err(), "{count} {again}");
                assert!(parse(&format!("{{{}}}", fields[..count].join(","))).is_ok());
            }
        }
    }
}
