use std::collections::HashSet;

use super::dates::iso_text;
use super::{Function, arg, between, fixed, named};
use crate::lang::budget::steps;
use crate::lang::error::{LangError, LangResult, refuse};
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::writer::Writer;
use crate::lang::value::{DOCUMENT_BYTES_MAX, Value};

pub(super) const TABLE: &[Function] = &[
    between("$concat", 0, usize::MAX, concat),
    fixed("$toLower", 1, |args| val::text(&coerced("$toLower", arg(args, 0))?.to_ascii_lowercase())),
    fixed("$toUpper", 1, |args| val::text(&coerced("$toUpper", arg(args, 0))?.to_ascii_uppercase())),
    fixed("$strcasecmp", 2, |args| {
        let (a, b) = (coerced("$strcasecmp", arg(args, 0))?, coerced("$strcasecmp", arg(args, 1))?);
        Ok(Val::Ref(Value::Int32(a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase()) as i32)))
    }),
    fixed("$strLenBytes", 1, |args| Ok(val::int(strict("$strLenBytes", arg(args, 0), 34473)?.len()))),
    fixed("$binarySize", 1, |args| match arg(args, 0).or_null() {
        Value::String(text) => Ok(val::int(text.len())),
        Value::Binary(_, bytes) => Ok(val::int(bytes.len())),
        value if value.is_nullish() => Ok(Val::NULL),
        value => {
            refuse!(51276, "$binarySize requires a string or BinData argument, found: {}", value.type_name())
        }
    }),
    fixed("$strLenCP", 1, |args| Ok(val::int(strict("$strLenCP", arg(args, 0), 34471)?.chars().count()))),
    fixed("$substr", 3, substr_bytes),
    fixed("$substrBytes", 3, substr_bytes),
    fixed("$substrCP", 3, substr_characters),
    between("$indexOfBytes", 2, 4, |args| index(args, false)),
    between("$indexOfCP", 2, 4, |args| index(args, true)),
    fixed("$split", 2, split),
    named("$trim", &["input", "chars"], 1, |args| trim("$trim", args, true, true)),
    named("$ltrim", &["input", "chars"], 1, |args| trim("$ltrim", args, true, false)),
    named("$rtrim", &["input", "chars"], 1, |args| trim("$rtrim", args, false, true)),
    named("$replaceOne", &["input", "find", "replacement"], 3, |args| replace("$replaceOne", args, 1)),
    named("$replaceAll", &["input", "find", "replacement"], 3, |args| {
        replace("$replaceAll", args, usize::MAX)
    }),
];

fn strict<'v>(name: &str, value: &'v Val<'_>, code: i32) -> LangResult<&'v str> {
    match value.get() {
        Some(Value::String(text)) => Ok(text),
        _ => Err(LangError::new(
            crate::lang::error::Code::Location(code),
            format!("{name} requires a string argument, found: {}", value.type_name()),
        )),
    }
}

/// Text of a text, number or date; none for null.
fn coerced(name: &str, value: &Val<'_>) -> LangResult<String> {
    Ok(match value.or_null() {
        Value::String(text) | Value::Symbol(text) | Value::Code(text) => text.to_owned(),
        Value::DateTime(ms) => iso_text(ms),
        value if value.is_number() => super::convert::number_text(value),
        value if value.is_nullish() => String::new(),
        value => refuse!(16007, "{name}: can't convert from BSON type {} to String", value.type_name()),
    })
}

fn concat(args: &[Val<'_>]) -> Answer {
    let mut out = String::new();
    for value in args {
        match value.or_null() {
            Value::String(text) if out.len() + text.len() > DOCUMENT_BYTES_MAX => {
                refuse!(BSONObjectTooLarge, "$concat makes a text of more than {DOCUMENT_BYTES_MAX} bytes")
            }
            Value::String(text) => out.push_str(text),
            value if value.is_nullish() => return Ok(Val::NULL),
            value => refuse!(16702, "$concat only supports strings, not {}", value.type_name()),
        }
    }
    val::text(&out)
}

fn number(name: &str, value: &Val<'_>) -> LangResult<i64> {
    match value.get().and_then(crate::lang::value::number::truncated) {
        Some(number) => Ok(number),
        None => {
            refuse!(16034, "{name}: starting index and length must be numeric, found: {}", value.type_name())
        }
    }
}

fn substr_bytes(args: &[Val<'_>]) -> Answer {
    let text = coerced("$substrBytes", arg(args, 0))?;
    let start = number("$substrBytes", arg(args, 1))?;
    let length = number("$substrBytes", arg(args, 2))?;
    let Ok(start) = usize::try_from(start) else {
        refuse!(50752, "$substrBytes: starting index must be non-negative (got: {start})");
    };
    let end =
        usize::try_from(length).map_or(text.len(), |length| start.saturating_add(length).min(text.len()));
    if start >= text.len() {
        return val::text("");
    }
    match text.get(start..end) {
        Some(part) => val::text(part),
        None => refuse!(
            28656,
            "$substrBytes: Invalid range, starting or ending index is in the middle of a UTF-8 character."
        ),
    }
}

fn substr_characters(args: &[Val<'_>]) -> Answer {
    let text = coerced("$substrCP", arg(args, 0))?;
    let start = number("$substrCP", arg(args, 1))?;
    let length = number("$substrCP", arg(args, 2))?;
    let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(length)) else {
        refuse!(34455, "$substrCP: the starting index and the length must be non-negative integers");
    };
    val::text(&text.chars().skip(start).take(length).collect::<String>())
}

fn index(args: &[Val<'_>], characters: bool) -> Answer {
    let name = if characters { "$indexOfCP" } else { "$indexOfBytes" };
    if arg(args, 0).is_nullish() {
        return Ok(Val::NULL);
    }
    let text = strict(name, arg(args, 0), 40091)?;
    let token = strict(name, arg(args, 1), 40092)?;
    let bound = |at: usize, default: usize| match args.get(at) {
        None => Ok(default),
        Some(value) => match value.or_null().as_integer().and_then(|n| usize::try_from(n).ok()) {
            Some(n) => Ok(n),
            None => {
                refuse!(40097, "{name} requires non-negative integral indexes, found: {}", value.or_null())
            }
        },
    };
    // Converts a position from characters to bytes.
    let place =
        |n: usize| if characters { text.char_indices().nth(n).map_or(text.len(), |(at, _)| at) } else { n };
    let (start, end) = (place(bound(2, 0)?), place(bound(3, usize::MAX)?).min(text.len()));
    let found = text.get(start..end).and_then(|part| part.find(token)).map(|at| at + start);
    Ok(match found {
        None => Val::Ref(Value::Int32(-1)),
        Some(at) if characters => val::int(text.get(..at).unwrap_or_default().chars().count()),
        Some(at) => val::int(at),
    })
}

fn split(args: &[Val<'_>]) -> Answer {
    if arg(args, 0).is_nullish() || arg(args, 1).is_nullish() {
        return Ok(Val::NULL);
    }
    let text = strict("$split", arg(args, 0), 40085)?;
    let separator = strict("$split", arg(args, 1), 40086)?;
    if separator.is_empty() {
        refuse!(40087, "$split requires a non-empty separator");
    }
    let mut writer = Writer::array().bounded();
    for part in text.split(separator) {
        writer.put("", Value::String(part));
        if writer.is_full() {
            break;
        }
    }
    val::built(writer)
}

fn trim(name: &str, args: &[Val<'_>], left: bool, right: bool) -> Answer {
    if arg(args, 0).is_nullish() {
        return Ok(Val::NULL);
    }
    let mut text = strict(name, arg(args, 0), 50699)?;
    let chars = match args.get(1) {
        None | Some(Val::Missing) => None,
        Some(value) if value.is_nullish() => return Ok(Val::NULL),
        Some(value) => {
            let chars = strict(name, value, 50700)?;
            steps(chars.len())?;
            Some(chars.chars().collect::<HashSet<char>>())
        }
    };
    let goes =
        |c: char| chars.as_ref().map_or_else(|| c.is_whitespace() || c == '\0', |chars| chars.contains(&c));
    if left {
        text = text.trim_start_matches(goes);
    }
    if right {
        text = text.trim_end_matches(goes);
    }
    val::text(text)
}

fn replace(name: &str, args: &[Val<'_>], count: usize) -> Answer {
    if args.iter().any(Val::is_nullish) {
        return Ok(Val::NULL);
    }
    let input = strict(name, arg(args, 0), 51746)?;
    let find = strict(name, arg(args, 1), 51745)?;
    let replacement = strict(name, arg(args, 2), 51744)?;
    // Check the size of the result before it is built.
    let times = input.matches(find).count().min(count);
    if input.len().saturating_add(times.saturating_mul(replacement.len())) > DOCUMENT_BYTES_MAX {
        refuse!(BSONObjectTooLarge, "{name} would make a text above 16 MiB");
    }
    val::text(&input.replacen(find, replacement, count))
}
