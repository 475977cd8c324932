//! Functions over regular expressions: search, count, position, replace and split.
//!
//! Source of the rules: PostgreSQL 15's documentation, "POSIX Regular Expressions".

use regex::{Captures, Regex};
use ropewalk::tables::{Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::bounds;
use crate::expr::function::Function;
use crate::expr::pattern::{RegexFlags, compile, compile_with, similar_pattern};
use crate::functions::{Resolved, text_of};

/// The regular expression function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const TEXT: Type = Type::TEXT;
    const INT: Type = Type::INT4;
    let among = |function, arguments: &[Type], result, least: usize| {
        (least..=arguments.len()).contains(&types.len()).then(|| Resolved {
            function,
            arguments: arguments.iter().take(types.len()).copied().collect(),
            result,
        })
    };
    let is_number =
        |place: usize| matches!(types.get(place), Some(Some(Type::INT2 | Type::INT4 | Type::INT8)));
    match name {
        "regexp_count" => among(F::RegexpCount, &[TEXT, TEXT, INT, TEXT], INT, 2),
        "regexp_instr" => among(F::RegexpInstr, &[TEXT, TEXT, INT, INT, INT, TEXT, INT], INT, 2),
        "regexp_like" => among(F::RegexpLike, &[TEXT, TEXT, TEXT], Type::BOOL, 2),
        "regexp_match" => among(F::RegexpMatch, &[TEXT, TEXT, TEXT], TEXT.array(), 2),
        "regexp_split_to_array" => among(F::RegexpSplit, &[TEXT, TEXT, TEXT], TEXT.array(), 2),
        "regexp_substr" => among(F::RegexpSubstr, &[TEXT, TEXT, INT, INT, TEXT, INT], TEXT, 2),
        "regexp_replace" if is_number(3) => {
            among(F::RegexpReplaceFrom, &[TEXT, TEXT, TEXT, INT, INT, TEXT], TEXT, 4)
        }
        "regexp_replace" => among(F::RegexpReplace, &[TEXT, TEXT, TEXT, TEXT], TEXT, 3),
        "*substring" => among(F::RegexpSubstring, &[TEXT, TEXT], TEXT, 2),
        "*similar" => among(F::SimilarPattern, &[TEXT, TEXT], TEXT, 1),
        _ => None,
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, message.into())
}

/// The flags of a function that finds one match, or always implies `g`.
fn flags_without_g(letters: &str, function: &str) -> Result<RegexFlags> {
    let flags = RegexFlags::read(letters)?;
    match flags.global {
        true => Err(invalid(format!("{function}() does not support the \"global\" option"))),
        false => Ok(flags),
    }
}

/// An integer argument with a lower bound.
fn at_least(value: Option<&Value<'_>>, otherwise: i64, least: i64, name: &str) -> Result<usize> {
    let number = value.and_then(Value::as_integer).unwrap_or(otherwise);
    match usize::try_from(number) {
        Ok(size) if number >= least => Ok(size),
        _ => Err(invalid(format!("invalid value for parameter \"{name}\": {number}"))),
    }
}

/// The byte offset of a character by its number, counted from one; `None` after the end.
fn byte_of(text: &str, number: usize) -> Option<usize> {
    let mut starts = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    starts.nth(number.saturating_sub(1))
}

/// The matches in `text` from a byte on, one after the other. An empty match advances the next search by a
/// character.
fn matches<'t>(regex: &Regex, text: &'t str, from: usize) -> impl Iterator<Item = Captures<'t>> {
    let mut next = Some(from);
    std::iter::from_fn(move || {
        let found = regex.captures_at(text, next?)?;
        let whole = found.get(0)?;
        next = match whole.is_empty() {
            false => Some(whole.end()),
            true => text.get(whole.end()..).and_then(|rest| {
                let width = rest.chars().next()?.len_utf8();
                Some(whole.end() + width)
            }),
        };
        Some(found)
    })
}

/// The groups of a match; the complete match where the pattern has no groups.
pub(crate) fn groups(found: &Captures<'_>) -> Result<Value<'static>> {
    let group = |place| {
        found.get(place).map_or(Value::Null, |part: regex::Match<'_>| Value::text(part.as_str().to_owned()))
    };
    let places = usize::from(found.len() > 1)..found.len();
    let length = |place| found.get(place).map_or(0, |part: regex::Match<'_>| part.len());
    bounds::check_list(places.clone().map(length).sum())?;
    bounds::array(Scalar::Text, places.map(group).collect())
}

/// `regexp_matches`: the groups of the first match, or with `g` of each match.
pub(crate) fn all_groups(
    text: &str,
    pattern: &str,
    letters: &str,
    each: &mut dyn FnMut(Value<'static>) -> Result<()>,
) -> Result<()> {
    let flags = RegexFlags::read(letters)?;
    let regex = compile_with(pattern, flags)?;
    let most = if flags.global { usize::MAX } else { 1 };
    matches(&regex, text, 0).take(most).try_for_each(|found| each(groups(&found)?))
}

/// The parts between the matches; empty matches at the ends and directly after another match separate
/// nothing.
pub(crate) fn split<'t>(text: &'t str, pattern: &str, letters: &str, function: &str) -> Result<Vec<&'t str>> {
    let regex = compile_with(pattern, flags_without_g(letters, function)?)?;
    let (mut parts, mut from, mut before) = (Vec::new(), 0, 0);
    for found in matches(&regex, text, 0) {
        let Some(whole) = found.get(0) else { break };
        if whole.start() < text.len() && whole.end() > before {
            parts.push(text.get(from..whole.start()).unwrap_or_default());
            from = whole.end();
        }
        before = whole.end();
    }
    parts.push(text.get(from..).unwrap_or_default());
    Ok(parts)
}

/// Appends the replacement of one match: `\1` is a group, `\&` the complete match, `\\` a backslash.
fn put(replacement: &str, found: &Captures<'_>, out: &mut bounds::Text) -> Result<()> {
    let group =
        |place: usize, out: &mut bounds::Text| out.push(found.get(place).map_or("", |part| part.as_str()));
    let literal = |c: char, out: &mut bounds::Text| out.push(c.encode_utf8(&mut [0; 4]));
    let mut chars = replacement.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            literal(c, out)?;
            continue;
        }
        match chars.clone().next() {
            Some(digit @ '1'..='9') => {
                group(digit.to_digit(10).map_or(0, |digit| digit as usize), out)?;
                chars.next();
            }
            Some('&') => {
                group(0, out)?;
                chars.next();
            }
            Some('\\') => {
                literal('\\', out)?;
                chars.next();
            }
            _ => literal('\\', out)?,
        }
    }
    Ok(())
}

/// `text` with matches from a byte on replaced: only match `number`, or with 0 all.
fn replaced(regex: &Regex, text: &str, replacement: &str, from: usize, number: usize) -> Result<String> {
    let mut out = bounds::Text::default();
    let mut kept = 0;
    for (place, found) in matches(regex, text, from).enumerate() {
        if number != 0 && place + 1 != number {
            continue;
        }
        let Some(whole) = found.get(0) else { break };
        out.push(text.get(kept..whole.start()).unwrap_or_default())?;
        put(replacement, &found, &mut out)?;
        kept = whole.end();
        if number != 0 {
            break;
        }
    }
    out.push(text.get(kept..).unwrap_or_default())?;
    Ok(out.finish())
}

impl Function {
    /// Evaluates a regular expression function; `None` for other functions. No argument is NULL.
    pub(crate) fn of_regex(self, values: &[Value<'_>]) -> Result<Option<Value<'static>>> {
        use Function as F;
        let text = text_of(values.first());
        let pattern = text_of(values.get(1));
        let letters = |place: usize| text_of(values.get(place));
        let value = |place: usize| values.get(place);
        Ok(Some(match self {
            F::RegexpLike => {
                let flags = flags_without_g(letters(2), "regexp_like")?;
                Value::Bool(compile_with(pattern, flags)?.is_match(text))
            }
            F::RegexpCount => {
                let start = at_least(value(2), 1, 1, "start")?;
                let flags = flags_without_g(letters(3), "regexp_count")?;
                let regex = compile_with(pattern, flags)?;
                let count = byte_of(text, start).map_or(0, |from| matches(&regex, text, from).count());
                Value::Int4(i32::try_from(count).unwrap_or(i32::MAX))
            }
            F::RegexpInstr => {
                let start = at_least(value(2), 1, 1, "start")?;
                let number = at_least(value(3), 1, 1, "n")?;
                let end = at_least(value(4), 0, 0, "endoption")?;
                if end > 1 {
                    return Err(invalid(format!("invalid value for parameter \"endoption\": {end}")));
                }
                let flags = flags_without_g(letters(5), "regexp_instr")?;
                let group = at_least(value(6), 0, 0, "subexpr")?;
                let regex = compile_with(pattern, flags)?;
                let found = byte_of(text, start).and_then(|from| matches(&regex, text, from).nth(number - 1));
                let part = found.as_ref().and_then(|found| found.get(group));
                let byte = part.map(|part| if end == 1 { part.end() } else { part.start() });
                let place =
                    byte.and_then(|byte| text.get(..byte)).map_or(0, |before| before.chars().count() + 1);
                Value::Int4(i32::try_from(place).unwrap_or(i32::MAX))
            }
            F::RegexpSubstr => {
                let start = at_least(value(2), 1, 1, "start")?;
                let number = at_least(value(3), 1, 1, "n")?;
                let flags = flags_without_g(letters(4), "regexp_substr")?;
                let group = at_least(value(5), 0, 0, "subexpr")?;
                let regex = compile_with(pattern, flags)?;
                let found = byte_of(text, start).and_then(|from| matches(&regex, text, from).nth(number - 1));
                let part = found.as_ref().and_then(|found| found.get(group));
                part.map_or(Value::Null, |part| Value::text(part.as_str().to_owned()))
            }
            F::RegexpSubstring => {
                let found = compile(pattern, false)?.regex.captures(text);
                let part = found.as_ref().and_then(|found| found.get(usize::from(found.len() > 1)));
                part.map_or(Value::Null, |part| Value::text(part.as_str().to_owned()))
            }
            F::RegexpMatch => {
                let flags = flags_without_g(letters(2), "regexp_match")
                    .map_err(|error| error.hint("use the regexp_matches function instead"))?;
                match compile_with(pattern, flags)?.captures(text) {
                    Some(found) => groups(&found)?,
                    None => Value::Null,
                }
            }
            F::RegexpSplit => {
                let parts = split(text, pattern, letters(2), "regexp_split_to_array")?;
                let bytes = parts.len().saturating_mul(std::mem::size_of::<Value<'_>>());
                bounds::check_list(bytes.saturating_add(text.len()))?;
                bounds::array(Scalar::Text, parts.into_iter().map(Value::text).collect())?
            }
            F::RegexpReplace => {
                let flags = RegexFlags::read(letters(3))?;
                let regex = compile_with(pattern, flags)?;
                Value::text(replaced(&regex, text, letters(2), 0, usize::from(!flags.global))?)
            }
            F::RegexpReplaceFrom => {
                let start = at_least(value(3), 1, 1, "start")?;
                let number = at_least(value(4), 1, 0, "n")?;
                let regex = compile_with(pattern, RegexFlags::read(letters(5))?)?;
                Value::text(match byte_of(text, start) {
                    Some(from) => replaced(&regex, text, letters(2), from, number)?,
                    None => text.to_owned(),
                })
            }
            F::SimilarPattern => {
                let escape = values.get(1).map_or("\\", |value| text_of(Some(value)));
                Value::text(similar_pattern(text, escape)?)
            }
            _ => return Ok(None),
        }))
    }
}
