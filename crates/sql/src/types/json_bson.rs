//! Documents as MongoDB's Extended JSON: both forms are read, the relaxed one is written.
//!
//! ```text
//! {"n": 1, "at": {"$date": "2026-11-26T00:00:00Z"}}  ─document_of▶  BSON  ─json_of▶  the same
//! ```
//! An integer becomes an int32 where it fits, else an int64; a point or an exponent makes a double. JSON text
//! does not distinguish the two integers, and `jsonb` has its own order of members. A document that replaces
//! another one therefore takes both from it: an integer at the place of an int64 is an int64, and the members
//! of a `jsonb` have the order of the stored fields.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk::documents::lang::extjson::{self, Form, TYPE_NAMES};
use ropewalk::documents::lang::{DEPTH_MAX, Decimal, Doc, DocBuf, Owned, Value, Writer};
use ropewalk::hooks::{from_hex, hex};
use ropewalk::tables::{Type, Value as Cell};

use crate::error::{Result, SqlError, state};
use crate::types::json;
use crate::types::text_format::from_text;

/// The subtype of binary data whose bytes begin with their length, which JSON omits.
const BINARY_OLD: u8 = 2;

/// The document as JSON.
pub(crate) fn json_of(doc: Doc<'_>) -> String {
    extjson::to_text(Value::Document(doc), Form::Relaxed)
}

/// `_id` as a string: strings unchanged, ObjectIds as hex, other types as JSON.
pub(crate) fn id_text(id: Value<'_>) -> String {
    match id {
        Value::String(text) => text.to_owned(),
        Value::ObjectId(bytes) => hex(&bytes),
        other => extjson::to_text(other, Form::Relaxed),
    }
}

fn invalid(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(state::INVALID_TEXT_REPRESENTATION, format!("invalid document: {what}"))
}

/// The stored document that a new one replaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replaced<'d> {
    pub(crate) stored: Doc<'d>,
    /// The new document is a `jsonb`: its fields take the order of the stored ones.
    pub(crate) takes_order: bool,
}

/// The document of a JSON object; `id` is its `_id` if it has none. The `_id` comes first.
///
/// # Errors
/// 22P02: not an object, a repeated name, an object that does not fit the type that it names. 22003.
pub(crate) fn document_of(
    text: &str,
    id: Option<Value<'_>>,
    replaced: Option<Replaced<'_>>,
) -> Result<DocBuf> {
    let members = json::members(text).filter(|members| !is_typed(members));
    let members =
        members.ok_or_else(|| invalid(format!("a JSON object is needed, not {}", json::kind(text))))?;
    let mut reader =
        Reader { out: Writer::new(), takes_order: replaced.is_some_and(|known| known.takes_order) };
    let own = members.iter().position(|(name, _)| name == "_id");
    let mut members = members;
    let stored = replaced.map(|known| Value::Document(known.stored));
    match own {
        Some(own) => {
            let id = members.remove(own);
            let stored = replaced.and_then(|known| known.stored.get("_id"));
            reader.value("_id", id.1, stored, 1)?;
        }
        None => {
            if let Some(id) = id {
                reader.out.put("_id", id);
            }
        }
    }
    if own.is_some() && members.iter().any(|(name, _)| name == "_id") {
        return Err(invalid("the name \"_id\" occurs twice in one object"));
    }
    reader.members(members, stored, 1)?;
    Ok(reader.out.finish())
}

/// The value of a JSON text, such as an `_id`.
///
/// # Errors
/// As [`document_of`].
pub(crate) fn value_of(text: &str) -> Result<Owned> {
    let mut reader = Reader { out: Writer::new(), takes_order: false };
    reader.value("v", text, None, 1)?;
    Ok(Owned::from(reader.out.finish().doc().get("v").unwrap_or(Value::Null)))
}

fn is_typed(members: &[(String, &str)]) -> bool {
    members.first().is_some_and(|(name, _)| TYPE_NAMES.contains(&name.as_str()))
}

struct Reader {
    out: Writer,
    takes_order: bool,
}

impl Reader {
    /// Writes a field, or the next element of an array; `stored` is the value that it replaces.
    fn value(&mut self, name: &str, text: &str, stored: Option<Value<'_>>, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            let message = format!("a document nested deeper than {DEPTH_MAX}");
            return Err(SqlError::new(state::STATEMENT_TOO_COMPLEX, message));
        }
        let broken = || invalid("it is not JSON");
        match json::kind(text) {
            "object" => {
                let members = json::members(text).ok_or_else(broken)?;
                if is_typed(&members) {
                    return self.typed(name, &members);
                }
                self.out.open_document(name);
                self.members(members, stored, depth)?;
                self.out.close();
            }
            "array" => {
                let known: Vec<Value<'_>> = stored
                    .and_then(Value::as_array)
                    .map(|array| array.values().collect())
                    .unwrap_or_default();
                self.out.open_array(name);
                for (place, element) in json::all_elements(text).ok_or_else(broken)?.into_iter().enumerate() {
                    self.value("", element, known.get(place).copied(), depth + 1)?;
                }
                self.out.close();
            }
            "string" => self.out.put(name, Value::String(&json::as_text(text).ok_or_else(broken)?)),
            "boolean" => self.out.put(name, Value::Bool(text.starts_with('t'))),
            "null" => self.out.put(name, Value::Null),
            _ => self.out.put(name, number(text, stored)?),
        }
        Ok(())
    }

    /// Writes the members of an object.
    fn members(
        &mut self,
        mut members: Vec<(String, &str)>,
        stored: Option<Value<'_>>,
        depth: usize,
    ) -> Result<()> {
        let stored = stored.and_then(Value::as_document).unwrap_or(Doc::empty());
        let known: HashMap<&str, (usize, Value<'_>)> =
            stored.iter().enumerate().map(|(place, (name, value))| (name, (place, value))).collect();
        let mut seen = HashSet::with_capacity(members.len());
        for (name, _) in &members {
            if name.contains('\0') {
                return Err(invalid(format!("the name {name:?} has a zero byte")));
            }
            if !seen.insert(name.as_str()) {
                return Err(invalid(format!("the name {name:?} occurs twice in one object")));
            }
        }
        if self.takes_order {
            let place = |name: &str| known.get(name).map_or(usize::MAX, |(place, _)| *place);
            members.sort_by_key(|(name, _)| place(name));
        }
        for (name, text) in &members {
            self.value(name, text, known.get(name.as_str()).map(|(_, value)| *value), depth + 1)?;
        }
        Ok(())
    }

    /// Writes the value of an object that names its type.
    fn typed(&mut self, name: &str, members: &[(String, &str)]) -> Result<()> {
        let kind = members.first().map_or("", |(kind, _)| kind.as_str());
        let refuse = || invalid(format!("{kind:?} does not have its form"));
        let inner = match members {
            [(_, inner)] => *inner,
            [(_, code), (scope, inner)] if (kind, scope.as_str()) == ("$code", "$scope") => {
                let scope = document_of(inner, None, None)?;
                self.out.put(name, Value::CodeWithScope(&string(code).ok_or_else(refuse)?, scope.doc()));
                return Ok(());
            }
            _ => return Err(refuse()),
        };
        let text = || string(inner).ok_or_else(refuse);
        match kind {
            "$symbol" => self.out.put(name, Value::Symbol(&text()?)),
            "$code" => self.out.put(name, Value::Code(&text()?)),
            "$binary" => {
                let [bytes, subtype] = strings(inner, ["base64", "subType"]).ok_or_else(refuse)?;
                let mut bytes = STANDARD.decode(bytes).map_err(|_| refuse())?;
                let subtype = u8::from_str_radix(&subtype, 16).map_err(|_| refuse())?;
                if subtype == BINARY_OLD {
                    let len = u32::try_from(bytes.len()).map_err(|_| refuse())?;
                    bytes = [len.to_le_bytes().as_slice(), &bytes].concat();
                }
                self.out.put(name, Value::Binary(subtype, &bytes));
            }
            "$uuid" => {
                let uuid = uuid::Uuid::parse_str(&text()?).map_err(|_| refuse())?;
                self.out.put(name, Value::Binary(4, uuid.as_bytes()));
            }
            "$regularExpression" => {
                let [pattern, options] = strings(inner, ["pattern", "options"]).ok_or_else(refuse)?;
                if pattern.contains('\0') || options.contains('\0') {
                    return Err(refuse());
                }
                self.out.put(name, Value::Regex(&pattern, &options));
            }
            "$dbPointer" => {
                let (namespace, id) = pair(inner, ["$ref", "$id"]).ok_or_else(refuse)?;
                let id = value_of(id)?;
                let Value::ObjectId(id) = id.value() else { return Err(refuse()) };
                self.out.put(name, Value::DbPointer(&string(namespace).ok_or_else(refuse)?, id));
            }
            _ => self.out.put(name, plain(kind, inner).ok_or_else(refuse)?),
        }
        Ok(())
    }
}

/// The value of a type that holds no text.
fn plain(kind: &str, inner: &str) -> Option<Value<'static>> {
    let text = string(inner);
    Some(match (kind, text.as_deref()) {
        ("$oid", Some(hex)) => Value::ObjectId(object_id(hex)?),
        ("$numberInt", Some(digits)) => Value::Int32(digits.parse().ok()?),
        ("$numberLong", Some(digits)) => Value::Int64(digits.parse().ok()?),
        ("$numberDouble", Some(digits)) => Value::Double(digits.parse().ok()?),
        ("$numberDecimal", Some(digits)) => Value::Decimal(Decimal::parse(digits)?),
        ("$date", Some(text)) => Value::DateTime(date(text)?),
        ("$date", None) => match json::members(inner)?.as_slice() {
            [(kind, digits)] if kind == "$numberLong" => Value::DateTime(string(digits)?.parse().ok()?),
            _ => return None,
        },
        ("$timestamp", None) => {
            let (time, number) = pair(inner, ["t", "i"])?;
            let (time, number): (u32, u32) = (time.parse().ok()?, number.parse().ok()?);
            Value::Timestamp(u64::from(time) << 32 | u64::from(number))
        }
        ("$undefined", None) if inner == "true" => Value::Undefined,
        ("$minKey", None) if inner == "1" => Value::MinKey,
        ("$maxKey", None) if inner == "1" => Value::MaxKey,
        _ => return None,
    })
}

/// A number of JSON; `stored` is the value that it replaces.
fn number(text: &str, stored: Option<Value<'_>>) -> Result<Value<'static>> {
    let beyond = |hint: &str| {
        let message = format!("the number {text} of a document is out of range");
        SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message).hint(hint)
    };
    if text.contains(['.', 'e', 'E']) {
        let double: f64 = text.parse().map_err(|_| invalid("it is not JSON"))?;
        return match stored {
            // A jsonb has no negative zero.
            Some(Value::Double(zero)) if zero == 0.0 && double == 0.0 => Ok(Value::Double(zero)),
            _ if double.is_finite() => Ok(Value::Double(double)),
            _ => Err(beyond("use \"$numberDecimal\"")),
        };
    }
    let Ok(integer) = text.parse::<i64>() else {
        // A jsonb writes a large double without its exponent.
        return match text.parse::<f64>() {
            Ok(double) if double.is_finite() && double.to_string() == text => Ok(Value::Double(double)),
            _ => Err(beyond("use \"$numberDouble\" or \"$numberDecimal\"")),
        };
    };
    Ok(match (stored, i32::try_from(integer)) {
        (Some(Value::Int64(_)), _) | (_, Err(_)) => Value::Int64(integer),
        (_, Ok(small)) => Value::Int32(small),
    })
}

/// The text of a JSON string; `None` for other values.
fn string(text: &str) -> Option<String> {
    (json::kind(text) == "string").then(|| json::as_text(text)).flatten().map(std::borrow::Cow::into_owned)
}

/// The two members of an object, which may be in either order.
fn pair<'t>(text: &'t str, [first, second]: [&str; 2]) -> Option<(&'t str, &'t str)> {
    let members = json::members(text).filter(|members| members.len() == 2)?;
    let member = |wanted: &str| members.iter().find(|(name, _)| name == wanted).map(|(_, text)| *text);
    Some((member(first)?, member(second)?))
}

fn strings(text: &str, names: [&str; 2]) -> Option<[String; 2]> {
    let (first, second) = pair(text, names)?;
    Some([string(first)?, string(second)?])
}

/// The ObjectId of 24 hexadecimal digits.
pub(crate) fn object_id(hex: &str) -> Option<[u8; 12]> {
    from_hex(hex)?.try_into().ok()
}

/// Milliseconds since 1970 of a date such as `2026-11-26T00:00:00.5Z`.
fn date(text: &str) -> Option<i64> {
    let is_instant = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('T');
    match from_text(text, Type::TIMESTAMPTZ).ok().filter(|_| is_instant)? {
        Cell::Timestamptz(micros) => Some(micros.div_euclid(1000)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_come_back_the_same() {
        for text in [
            r#"{"_id":1,"z":[1.5,-2.0,true,null,"ä\n",{"b":{}}],"l":9007199254740993}"#,
            r#"{"_id":{"$oid":"0123456789abcdef01234567"}}"#,
            r#"{"_id":"x","v":{"$date":"2026-11-22T00:00:00.5Z"},"w":{"$date":"1970-01-01T00:00:00Z"}}"#,
            r#"{"_id":"x","v":{"$date":{"$numberLong":"-1"}},"w":{"$date":{"$numberLong":"-62135596800001"}}}"#,
            r#"{"_id":"x","v":{"$binary":{"base64":"AQI=","subType":"00"}}}"#,
            r#"{"_id":"x","v":{"$binary":{"base64":"AQIDBA==","subType":"80"}}}"#,
            r#"{"_id":"x","v":{"$binary":{"base64":"AQI=","subType":"02"}}}"#,
            r#"{"_id":"x","v":{"$numberDecimal":"1.50"},"w":{"$numberDouble":"NaN"}}"#,
            r#"{"_id":"x","v":{"$regularExpression":{"options":"i","pattern":"^a"}}}"#,
            r#"{"_id":"x","v":{"$timestamp":{"i":2,"t":1}}}"#,
            r#"{"_id":"x","v":{"$minKey":1},"w":{"$maxKey":1},"x":{"$undefined":true}}"#,
            r#"{"_id":"x","v":{"$code":"f()"},"w":{"$code":"f()","$scope":{"a":1}},"x":{"$symbol":"s"}}"#,
            r#"{"_id":"x","v":{"$dbPointer":{"$id":{"$oid":"0123456789abcdef01234567"},"$ref":"a.b"}}}"#,
            r#"{"_id":"x","a":{"$gt":1}}"#,
        ] {
            let document = document_of(text, None, None).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(json_of(document.doc()), text);
        }
    }

    #[test]
    fn replaced_document_gives_types_and_order() {
        let stored = document_of(
            r#"{"_id":1,"zeta":{"$numberLong":"5"},"b":[{"$numberLong":"7"},{"d":1,"c":2}],"a":-0.0}"#,
            None,
            None,
        )
        .unwrap();
        let replaced = |takes_order| Some(Replaced { stored: stored.doc(), takes_order });
        let as_jsonb = r#"{"a": 0.0, "b": [7, {"c": 2, "d": 1}], "_id": 1, "zeta": 5}"#;
        let back = document_of(as_jsonb, None, replaced(true)).unwrap();
        assert_eq!(back.bytes(), stored.bytes());
        let changed =
            document_of(r#"{"b":[1],"zeta":6,"new":2}"#, Some(Value::Int32(1)), replaced(false)).unwrap();
        assert_eq!(format!("{changed}"), "{ _id: 1, b: [ NumberLong(1) ], zeta: NumberLong(6), new: 2 }");
    }

    #[test]
    fn invalid_documents_are_rejected() {
        for text in [
            "[1]",
            "1",
            r#"{"$oid":"0123456789abcdef01234567"}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"_id":1,"_id":2}"#,
            "{\"a\\u0000b\":1}",
            r#"{"v":{"$oid":"xyz"}}"#,
            r#"{"v":{"$oid":7}}"#,
            r#"{"v":{"$date":"yesterday"}}"#,
            r#"{"v":{"$numberInt":"1","x":2}}"#,
            r#"{"v":{"$binary":{"base64":"A","subType":"00"}}}"#,
        ] {
            let refused = document_of(text, None, None).unwrap_err();
            assert_eq!(refused.state, state::INVALID_TEXT_REPRESENTATION, "{text}: {refused}");
        }
        for text in [r#"{"v":9223372036854775808}"#, r#"{"v":1e999}"#] {
            let refused = document_of(text, None, None).unwrap_err();
            assert_eq!(refused.state, state::NUMERIC_VALUE_OUT_OF_RANGE, "{text}");
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(document_of(&deep, None, None).unwrap_err().state, state::STATEMENT_TOO_COMPLEX);
    }
}
