//! Functions over text: case, parts, trimming, padding, search, quotation and concatenation.
//!
//! Source of the rules: PostgreSQL 15's documentation, "String Functions and Operators".

use std::collections::{HashMap, HashSet};

use ropewalk::tables::{Array, Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::function::Function;
use crate::expr::pattern::lower;
use crate::expr::{bounds, bug};
use crate::functions::bytes::cut;
use crate::functions::format::format;
use crate::functions::{Resolved, int4, integer_of, text_of};
use crate::types::text_format::to_text;

/// The text function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const TEXT: Type = Type::TEXT;
    const INT: Type = Type::INT4;
    let first = types.first().copied().flatten();
    let among = |function, arguments: &[Type], result, least: usize| {
        (least..=arguments.len()).contains(&types.len()).then(|| Resolved {
            function,
            arguments: arguments.iter().take(types.len()).copied().collect(),
            result,
        })
    };
    let many = |function, arguments: &[Type], result| among(function, arguments, result, arguments.len());
    match (name, types.len()) {
        ("lower", _) => many(F::Lower, &[TEXT], TEXT),
        ("upper", _) => many(F::Upper, &[TEXT], TEXT),
        ("initcap", _) => many(F::Initcap, &[TEXT], TEXT),
        ("reverse", _) => many(F::Reverse, &[TEXT], TEXT),
        ("length" | "octet_length", 1) if first == Some(Type::BYTEA) => {
            many(F::OctetLength, &[Type::BYTEA], INT)
        }
        ("length" | "char_length" | "character_length", _) => many(F::Length, &[TEXT], INT),
        ("octet_length", _) => many(F::OctetLength, &[TEXT], INT),
        ("substr" | "substring", _) => among(F::Substr, &[TEXT, INT, INT], TEXT, 2),
        ("left", _) => many(F::Left, &[TEXT, INT], TEXT),
        ("right", _) => many(F::Right, &[TEXT, INT], TEXT),
        ("btrim", _) => among(F::Trim, &[TEXT, TEXT], TEXT, 1),
        ("ltrim", _) => among(F::Ltrim, &[TEXT, TEXT], TEXT, 1),
        ("rtrim", _) => among(F::Rtrim, &[TEXT, TEXT], TEXT, 1),
        ("lpad", _) => among(F::Lpad, &[TEXT, INT, TEXT], TEXT, 2),
        ("rpad", _) => among(F::Rpad, &[TEXT, INT, TEXT], TEXT, 2),
        ("repeat", _) => many(F::Repeat, &[TEXT, INT], TEXT),
        ("replace", _) => many(F::Replace, &[TEXT, TEXT, TEXT], TEXT),
        ("translate", _) => many(F::Translate, &[TEXT, TEXT, TEXT], TEXT),
        ("split_part", _) => many(F::SplitPart, &[TEXT, TEXT, INT], TEXT),
        ("starts_with", _) => many(F::StartsWith, &[TEXT, TEXT], Type::BOOL),
        ("strpos", _) => many(F::Strpos, &[TEXT, TEXT], INT),
        ("ascii", _) => many(F::Ascii, &[TEXT], INT),
        ("chr", _) => many(F::Chr, &[INT], TEXT),
        ("to_hex", 1) => {
            let ty = if matches!(first, Some(Type::INT2 | Type::INT4)) { INT } else { Type::INT8 };
            many(F::ToHex, &[ty], TEXT)
        }
        ("concat", 1..) => many(F::Concat, &shown_arguments(types), TEXT),
        ("concat_ws", 2..) => many(F::ConcatWs, &after_text(types), TEXT),
        ("format", 1..) => many(F::Format, &after_text(types), TEXT),
        ("quote_ident", _) => many(F::QuoteIdent, &[TEXT], TEXT),
        ("quote_literal", _) => many(F::QuoteLiteral, &[TEXT], TEXT),
        ("quote_nullable", _) => many(F::QuoteNullable, &[TEXT], TEXT),
        _ => None,
    }
}

/// The types in which arguments are concatenated, as in output: a bool as a letter, whereas a cast to text
/// writes a word.
fn shown_arguments(types: &[Option<Type>]) -> Vec<Type> {
    types.iter().map(|ty| if *ty == Some(Type::BOOL) { Type::BOOL } else { Type::TEXT }).collect()
}

/// The types of a text and of arguments that are shown.
fn after_text(types: &[Option<Type>]) -> Vec<Type> {
    [vec![Type::TEXT], shown_arguments(types.get(1..).unwrap_or_default())].concat()
}

/// The upper case of a character; unchanged where that is not a single character, such as `ß`.
fn upper(c: char) -> char {
    let mut capitals = c.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) => capital,
        _ => c,
    }
}

/// Writes the first letter of each word in upper case.
fn capitalize(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        out.push(if inside { lower(c) } else { upper(c) });
        inside = c.is_alphanumeric();
    }
    out
}

/// The number of characters that `left` and `right` keep of `all`. A negative count removes so many characters
/// at the other end.
fn count_kept(all: usize, count: i64) -> usize {
    let all = i64::try_from(all).unwrap_or(i64::MAX);
    usize::try_from(if count < 0 { (all + count).max(0) } else { count.min(all) }).unwrap_or_default()
}

fn take_left(text: &str, count: i64) -> String {
    text.chars().take(count_kept(text.chars().count(), count)).collect()
}

fn take_right(text: &str, count: i64) -> String {
    let all = text.chars().count();
    text.chars().skip(all - count_kept(all, count)).collect()
}

/// Truncates each element: a cast to `varchar(n)[]`.
fn take_left_of_each(texts: &Array<'_>, count: i64) -> Result<Value<'static>> {
    let mut cut = Vec::new();
    for item in texts.iter() {
        cut.push(match item.map_err(|_| bug("an element"))? {
            Value::Text(text) => Value::text(take_left(&text, count)),
            _ => Value::Null,
        });
    }
    Ok(Value::Array(Array::new(Scalar::Text, cut).map_err(|_| bug("texts that make no array"))?))
}

/// The part `substr(text, from [, count])`, in characters.
fn substring(text: &str, from: i64, count: Option<i64>) -> Result<&str> {
    let part = cut(usize::MAX, from, count)?;
    let place = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(place, _)| place);
    Ok(text.get(place(part.start)..place(part.end)).unwrap_or_default())
}

fn pad(text: &str, length: i64, fill: &str, left: bool) -> Result<String> {
    let length = usize::try_from(length).unwrap_or_default();
    let have = text.chars().count();
    if length <= have || fill.is_empty() {
        return Ok(text.chars().take(length).collect());
    }
    bounds::check_text(length.saturating_mul(4))?;
    let padding: String = fill.chars().cycle().take(length - have).collect();
    Ok(if left { padding + text } else { format!("{text}{padding}") })
}

fn repeat(text: &str, count: i64) -> Result<String> {
    let times = usize::try_from(count).unwrap_or_default();
    bounds::check_text(text.len().saturating_mul(times))?;
    Ok(text.repeat(times))
}

fn replace(text: &str, old: &str, new: &str) -> Result<String> {
    if old.is_empty() {
        return Ok(text.to_owned());
    }
    let mut replaced = bounds::Text::default();
    for (place, part) in text.split(old).enumerate() {
        if place > 0 {
            replaced.push(new)?;
        }
        replaced.push(part)?;
    }
    Ok(replaced.finish())
}

/// Replaces each character of `from` by that of `to` at the same place, or removes it.
fn translate(text: &str, from: &str, to: &str) -> String {
    let mut to = to.chars();
    let mut moves: HashMap<char, Option<char>> = HashMap::new();
    for c in from.chars() {
        let new = to.next();
        // The first of several occurrences counts.
        moves.entry(c).or_insert(new);
    }
    text.chars().filter_map(|c| moves.get(&c).map_or(Some(c), |new| *new)).collect()
}

/// The part with a number between separators; a negative number counts from the end.
fn split_part<'t>(text: &'t str, separator: &str, number: i64) -> Result<&'t str> {
    if number == 0 {
        let message = "field position must not be zero";
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
    }
    let parts: Vec<&str> = if separator.is_empty() { vec![text] } else { text.split(separator).collect() };
    let place = if number > 0 { number - 1 } else { parts.len() as i64 + number };
    let part = usize::try_from(place).ok().and_then(|place| parts.get(place));
    Ok(part.copied().unwrap_or_default())
}

/// The position of a part in characters, counted from 1; 0 if the text does not contain it.
fn find_part(text: &str, part: &str) -> usize {
    let before = text.find(part).and_then(|place| text.get(..place));
    before.map_or(0, |before| before.chars().count() + 1)
}

/// `chr(number)`.
fn character(number: i64) -> Result<String> {
    if number < 0 {
        let message = "character number must be positive";
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
    }
    let c = u32::try_from(number).ok().filter(|c| *c != 0).and_then(char::from_u32);
    let error = || SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "requested character is not a character");
    Ok(c.ok_or_else(error)?.to_string())
}

/// Concatenates the values that are not NULL.
fn join(values: &[Value<'_>], separator: &str) -> Result<Value<'static>> {
    let mut joined = bounds::Text::default();
    joined.join(values.iter().filter_map(to_text), separator)?;
    Ok(Value::text(joined.finish()))
}

/// Text as an SQL literal that is independent of `standard_conforming_strings`.
pub(crate) fn quoted_literal(text: &str) -> String {
    let quoted = crate::syntax::names::literal(text);
    if quoted.contains('\\') { format!("E{}", quoted.replace('\\', "\\\\")) } else { quoted }
}

impl Function {
    /// Evaluates a text function; `None` for other functions. Only functions that accept NULLs get them.
    pub(crate) fn of_text(self, values: &[Value<'_>]) -> Result<Option<Value<'static>>> {
        use Function as F;
        let (first, second, third) = (values.first(), values.get(1), values.get(2));
        let text = text_of(first);
        Ok(Some(match self {
            F::Lower => Value::text(text.chars().map(lower).collect::<String>()),
            F::Upper => Value::text(text.chars().map(upper).collect::<String>()),
            F::Initcap => Value::text(capitalize(text)),
            F::Reverse => Value::text(text.chars().rev().collect::<String>()),
            F::Length => int4(text.chars().count()),
            F::OctetLength => match first {
                Some(Value::Bytea(bytes)) => int4(bytes.len()),
                _ => int4(text.len()),
            },
            F::Substr => {
                let count = third.map(|count| integer_of(Some(count)));
                Value::text(substring(text, integer_of(second), count)?.to_owned())
            }
            F::Left => match first {
                Some(Value::Array(texts)) => take_left_of_each(texts, integer_of(second))?,
                _ => Value::text(take_left(text, integer_of(second))),
            },
            F::Right => Value::text(take_right(text, integer_of(second))),
            F::Trim | F::Ltrim | F::Rtrim => Value::text(self.trimmed(text, second).to_owned()),
            F::Lpad | F::Rpad => {
                let fill = third.map_or(" ", |fill| text_of(Some(fill)));
                Value::text(pad(text, integer_of(second), fill, self == F::Lpad)?)
            }
            F::Repeat => Value::text(repeat(text, integer_of(second))?),
            F::Replace => Value::text(replace(text, text_of(second), text_of(third))?),
            F::Translate => Value::text(translate(text, text_of(second), text_of(third))),
            F::SplitPart => Value::text(split_part(text, text_of(second), integer_of(third))?.to_owned()),
            F::StartsWith => Value::Bool(text.starts_with(text_of(second))),
            F::Strpos => int4(find_part(text, text_of(second))),
            F::Ascii => {
                Value::Int4(text.chars().next().map_or(0, |c| i32::try_from(u32::from(c)).unwrap_or(0)))
            }
            F::Chr => Value::text(character(integer_of(first))?),
            F::ToHex if let Some(Value::Int4(number)) = first => Value::text(format!("{number:x}")),
            F::ToHex => Value::text(format!("{:x}", integer_of(first))),
            F::Concat => join(values, "")?,
            F::ConcatWs => match values.split_first() {
                Some((Value::Text(separator), rest)) => join(rest, separator)?,
                _ => Value::Null,
            },
            F::Format if first.is_none_or(Value::is_null) => Value::Null,
            F::Format => Value::text(format(text, values.get(1..).unwrap_or_default())?),
            F::QuoteIdent => Value::text(crate::syntax::names::ident(text)),
            F::QuoteNullable if first.is_none_or(Value::is_null) => Value::text("NULL"),
            F::QuoteLiteral | F::QuoteNullable => Value::text(quoted_literal(text)),
            _ => return Ok(None),
        }))
    }

    /// The text without the characters that a trimming function removes: the given ones, or blanks.
    fn trimmed<'t>(self, text: &'t str, given: Option<&Value<'_>>) -> &'t str {
        let trimmed: HashSet<char> = given.map_or(" ", |given| text_of(Some(given))).chars().collect();
        let is_trimmed = |c: char| trimmed.contains(&c);
        match self {
            Self::Ltrim => text.trim_start_matches(is_trimmed),
            Self::Rtrim => text.trim_end_matches(is_trimmed),
            _ => text.trim_matches(is_trimmed),
        }
    }
}
