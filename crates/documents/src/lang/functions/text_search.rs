use super::super::error::{LangError, refuse};
use super::super::regex::Pattern;
use super::super::val::{self, Val};
use super::super::value::Value;
use super::super::writer::Writer;
use super::{Function, arg, named};

const NAMES: &[&str] = &["input", "regex", "options"];

pub(super) const TABLE: &[Function] = &[
    named("$regexMatch", NAMES, 2, |args| {
        Ok(val::bool(
            prepared("$regexMatch", args)?.is_some_and(|(text, pattern)| pattern.regex.is_match(text)),
        ))
    }),
    named("$regexFind", NAMES, 2, |args| {
        let Some((text, pattern)) = prepared("$regexFind", args)? else { return Ok(Val::NULL) };
        let Some(captures) = pattern.regex.captures(text) else { return Ok(Val::NULL) };
        let mut writer = Writer::new();
        put_match(&mut writer, text, &captures);
        val::built(writer.into_owned())
    }),
    named("$regexFindAll", NAMES, 2, |args| {
        let mut writer = Writer::array();
        if let Some((text, pattern)) = prepared("$regexFindAll", args)? {
            for captures in pattern.regex.captures_iter(text) {
                writer.open_document("");
                put_match(&mut writer, text, &captures);
                writer.close();
                if writer.size() > super::super::value::DOCUMENT_BYTES_MAX {
                    refuse!(BSONObjectTooLarge, "$regexFindAll found more than 16 MiB");
                }
            }
        }
        val::built(writer.into_owned())
    }),
];

fn prepared<'v>(name: &str, args: &'v [Val<'_>]) -> Result<Option<(&'v str, Pattern)>, LangError> {
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

fn put_match(writer: &mut Writer, text: &str, captures: &regex::Captures<'_>) {
    let whole = captures.get(0);
    let start = whole.map_or(0, |found| found.start());
    writer.put("match", Value::String(whole.map_or("", |found| found.as_str())));
    let characters = text.get(..start).unwrap_or_default().chars().count();
    writer.put("idx", super::super::number::narrow(characters as i64, true));
    writer.open_array("captures");
    for group in captures.iter().skip(1) {
        writer.put("", group.map_or(Value::Null, |group| Value::String(group.as_str())));
    }
    writer.close();
}
