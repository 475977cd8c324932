use super::{Function, arg, named};
use crate::lang::budget::steps;
use crate::lang::error::{LangResult, refuse};
use crate::lang::regex::Pattern;
use crate::lang::value::Value;
use crate::lang::value::val::{self, Val};
use crate::lang::value::writer::Writer;

const NAMES: &[&str] = &["input", "regex", "options"];

pub(super) const TABLE: &[Function] = &[
    named("$regexMatch", NAMES, 2, |args| {
        let matches = match prepared("$regexMatch", args)? {
            Some((text, pattern)) => pattern.is_match(text)?,
            None => false,
        };
        Ok(val::bool(matches))
    }),
    named("$regexFind", NAMES, 2, |args| {
        let Some((text, pattern)) = prepared("$regexFind", args)? else { return Ok(Val::NULL) };
        pattern.check_groups(text)?;
        let Some(captures) = pattern.regex.captures(text) else { return Ok(Val::NULL) };
        let mut writer = Writer::new().bounded();
        put_match(&mut writer, &mut Counted { text, bytes: 0, characters: 0 }, &captures);
        val::built(writer)
    }),
    named("$regexFindAll", NAMES, 2, |args| {
        let mut writer = Writer::array().bounded();
        if let Some((text, pattern)) = prepared("$regexFindAll", args)? {
            pattern.check_groups(text)?;
            let mut counted = Counted { text, bytes: 0, characters: 0 };
            for captures in pattern.regex.captures_iter(text) {
                steps(captures.len())?;
                writer.open_document("");
                put_match(&mut writer, &mut counted, &captures);
                writer.close();
                if writer.is_full() {
                    break;
                }
            }
        }
        val::built(writer)
    }),
];

fn prepared<'v>(name: &str, args: &'v [Val<'_>]) -> LangResult<Option<(&'v str, Pattern)>> {
    if arg(args, 0).is_nullish() || arg(args, 1).is_nullish() {
        return Ok(None);
    }
    let Some(Value::String(text)) = arg(args, 0).get() else {
        refuse!(51104, "{name} needs 'input' to be of type string");
    };
    let options = match arg(args, 2).get() {
        None | Some(Value::Null) => None,
        Some(Value::String(options)) => Some(options),
        Some(_) => refuse!(51106, "{name} needs 'options' to be of type string"),
    };
    let pattern = match arg(args, 1).get() {
        Some(Value::String(pattern)) => Pattern::again(pattern, options.unwrap_or(""))?,
        Some(Value::Regex(_, own)) if !own.is_empty() && options.is_some() => {
            refuse!(51107, "{name}: found regex option(s) specified in both 'regex' and 'option' fields")
        }
        Some(Value::Regex(pattern, own)) => Pattern::again(pattern, options.unwrap_or(own))?,
        _ => refuse!(51105, "{name} needs 'regex' to be of type string or regex"),
    };
    Ok(Some((text, pattern)))
}

/// Counts characters of a text up to a position that only moves forward.
struct Counted<'t> {
    text: &'t str,
    bytes: usize,
    characters: usize,
}

impl Counted<'_> {
    fn until(&mut self, bytes: usize) -> usize {
        let passed = self.text.get(self.bytes..bytes).expect("positions are those of characters, and rise");
        self.characters += passed.chars().count();
        self.bytes = bytes;
        self.characters
    }
}

fn put_match(writer: &mut Writer, counted: &mut Counted<'_>, captures: &regex::Captures<'_>) {
    let whole = captures.get(0);
    let start = whole.map_or(0, |found| found.start());
    writer.put("match", Value::String(whole.map_or("", |found| found.as_str())));
    writer.put("idx", crate::lang::value::number::narrow(counted.until(start) as i64, true));
    writer.open_array("captures");
    for group in captures.iter().skip(1) {
        writer.put("", group.map_or(Value::Null, |group| Value::String(group.as_str())));
    }
    writer.close();
}
