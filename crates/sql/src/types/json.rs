//! Access to parts of JSON text: `->`, `->>`, array lengths. The text was validated when it became a value,
//! so these functions only skip; for unexpected text they return `None`.

use std::borrow::Cow;

use ropewalk::tables::{Value, json_error};

fn skip_space(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r'])
}

/// Splits off the string literal at the start of `text`, including its quotes.
fn string(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (place, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return text.split_at_checked(place + 1),
            _ => {}
        }
    }
    None
}

/// Splits off the value at the start of `text`. Counts the nesting instead of recursing.
fn value(text: &str) -> Option<(&str, &str)> {
    match text.bytes().next()? {
        b'"' => string(text),
        b'{' | b'[' => {
            let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
            for (place, byte) in text.bytes().enumerate() {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if in_string => escaped = true,
                    b'"' => in_string = !in_string,
                    b'{' | b'[' if !in_string => depth += 1,
                    b'}' | b']' if !in_string => depth = depth.checked_sub(1)?,
                    _ => {}
                }
                if depth == 0 {
                    return text.split_at_checked(place + 1);
                }
            }
            None
        }
        _ => {
            let end = text.find([',', '}', ']', ' ', '\t', '\n', '\r']).unwrap_or(text.len());
            text.split_at_checked(end)
        }
    }
}

/// The data of an event as JSON; NULL when it is not JSON.
pub(crate) fn of_data(data: &[u8]) -> Value<'_> {
    match std::str::from_utf8(data) {
        Ok(text) if !text.is_empty() && json_error(text).is_none() => Value::json(text),
        _ => Value::Null,
    }
}

/// The metadata of an event as a JSON object.
pub(crate) fn of_metadata<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Value<'static> {
    let parts: Vec<String> = pairs.map(|(key, value)| format!("{}:{}", quoted(key), quoted(value))).collect();
    Value::json(format!("{{{}}}", parts.join(",")))
}

/// The text as a JSON string literal.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The contents of a string literal.
fn unescaped(literal: &str) -> Option<Cow<'_, str>> {
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    let hex = |chars: &mut std::str::Chars<'_>| -> Option<u32> {
        (0..4).try_fold(0, |sum, _| Some(sum * 16 + chars.next()?.to_digit(16)?))
    };
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let unit = hex(&mut chars)?;
                if (0xd800..0xdc00).contains(&unit) {
                    let mut ahead = chars.clone();
                    if (ahead.next(), ahead.next()) != (Some('\\'), Some('u')) {
                        return None;
                    }
                    let low = hex(&mut ahead)?;
                    chars = ahead;
                    char::from_u32(0x10000 + ((unit - 0xd800) << 10) + low.checked_sub(0xdc00)?)?
                } else {
                    char::from_u32(unit)?
                }
            }
            same => same,
        });
    }
    Some(Cow::Owned(out))
}

/// The elements of an array, as JSON.
fn elements(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = skip_space(text).strip_prefix('[').map(skip_space).unwrap_or_default();
    std::iter::from_fn(move || {
        if rest.is_empty() || rest.starts_with(']') {
            return None;
        }
        let (element, behind) = value(rest)?;
        let behind = skip_space(behind);
        rest = skip_space(behind.strip_prefix(',').unwrap_or(behind));
        Some(element)
    })
}

/// The member `name` of an object; the last one of several, as in PostgreSQL.
pub(crate) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = skip_space(skip_space(text).strip_prefix('{')?);
    let mut found = None;
    while rest.starts_with('"') {
        let (key, behind) = string(rest)?;
        let (member, behind) = value(skip_space(skip_space(behind).strip_prefix(':')?))?;
        if unescaped(key)? == name {
            found = Some(member);
        }
        let behind = skip_space(behind);
        rest = skip_space(behind.strip_prefix(',').unwrap_or(behind));
    }
    found
}

/// Element `index` of a jsonb array; a scalar counts as an array of one element.
pub(crate) fn element_of_jsonb(text: &str, index: i64) -> Option<&str> {
    let is_alone = !text.starts_with(['[', '{']) && matches!(index, 0 | -1);
    if is_alone { Some(text) } else { element(text, index) }
}

/// Element `index` of an array, counted from the end when negative.
pub(crate) fn element(text: &str, index: i64) -> Option<&str> {
    match usize::try_from(index) {
        Ok(index) => elements(text).nth(index),
        Err(_) => {
            let place = i64::try_from(elements(text).count()).ok()?.checked_add(index)?;
            elements(text).nth(usize::try_from(place).ok()?)
        }
    }
}

/// All elements of an array; `None` for other values.
pub(crate) fn all_elements(text: &str) -> Option<Vec<&str>> {
    skip_space(text).starts_with('[').then(|| elements(text).collect())
}

/// Names, as written, and values of an object's members, in order; `None` for other values.
fn raw_members(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut rest = skip_space(skip_space(text).strip_prefix('{')?);
    let mut members = Vec::new();
    while rest.starts_with('"') {
        let (key, behind) = string(rest)?;
        let (member, behind) = value(skip_space(skip_space(behind).strip_prefix(':')?))?;
        members.push((key, member));
        let behind = skip_space(behind);
        rest = skip_space(behind.strip_prefix(',').unwrap_or(behind));
    }
    Some(members)
}

/// Names and values of an object's members, in order; `None` for other values.
pub(crate) fn members(text: &str) -> Option<Vec<(String, &str)>> {
    let members = raw_members(text)?;
    members.into_iter().map(|(key, member)| Some((unescaped(key)?.into_owned(), member))).collect()
}

/// A part of a document as a value: JSON, or its text.
pub(crate) fn shown(part: &str, is_text: bool) -> Value<'static> {
    if is_text {
        as_text(part).map_or(Value::Null, |text| Value::text(text.into_owned()))
    } else {
        Value::json(part.to_owned())
    }
}

/// The document without null members, at any depth, and without blanks.
pub(crate) fn without_nulls(text: &str) -> String {
    let text = skip_space(text);
    if let Some(members) = raw_members(text) {
        let kept = members.into_iter().filter(|(_, member)| kind(member) != "null");
        let kept: Vec<String> =
            kept.map(|(key, member)| format!("{key}:{}", without_nulls(member))).collect();
        return format!("{{{}}}", kept.join(","));
    }
    match all_elements(text) {
        Some(elements) => {
            let kept: Vec<String> = elements.into_iter().map(without_nulls).collect();
            format!("[{}]", kept.join(","))
        }
        None => text.trim_end().to_owned(),
    }
}

/// Number of elements; `None` for other values than arrays.
pub(crate) fn array_length(text: &str) -> Option<usize> {
    skip_space(text).starts_with('[').then(|| elements(text).count())
}

/// A JSON value as text: strings without quotes, `None` for null.
pub(crate) fn as_text(value: &str) -> Option<Cow<'_, str>> {
    match value.bytes().next()? {
        b'"' => unescaped(value),
        b'n' => None,
        _ => Some(Cow::Borrowed(value)),
    }
}

/// The kind of value, as `json_typeof` names it.
pub(crate) fn kind(text: &str) -> &'static str {
    match skip_space(text).bytes().next() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') | None => "null",
        _ => "number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps() {
        let text =
            r#" { "a" : [1, "x\"]y", {"b": null}], "c" : "d\u00e4\ud83d\ude00", "e":-1.5e3 , "a b":true } "#;
        assert_eq!(member(text, "e"), Some("-1.5e3"));
        assert_eq!(member(text, "a b"), Some("true"));
        assert_eq!(member(text, "x"), None);
        let array = member(text, "a").unwrap();
        assert_eq!(array_length(array), Some(3));
        assert_eq!(element(array, 0), Some("1"));
        assert_eq!(as_text(element(array, 1).unwrap()).unwrap(), "x\"]y");
        assert_eq!(element(array, -1), Some("{\"b\": null}"));
        assert_eq!(as_text(member(element(array, 2).unwrap(), "b").unwrap()), None);
        assert_eq!(as_text(member(text, "c").unwrap()).unwrap(), "dä😀");
        assert_eq!(element(array, 3), None);
        assert_eq!(element(array, -4), None);
        assert_eq!(member("[1]", "a"), None);
        for broken in ["{", "{\"a\"", "{\"a\":", "[1,", "\"", "{\"a\":\"\\u12\"}"] {
            let _ = (member(broken, "a"), element(broken, 0), as_text(broken));
        }
    }
}
