//! Parsers of values typed on the command line: queries, durability, positions, sizes, times.

use std::time::Duration;

use ropewalk::events::{QueryItem, Tracking};
use ropewalk::{Durability, Query};
use serde::Deserialize;

/// One item of a query as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// Every event.
    Any,
    /// Events with these types and tags.
    Matching(QueryItem),
}

/// A query of these items; one [`Item::Any`] makes it match every event.
pub(crate) fn query(items: impl Iterator<Item = Item>) -> Query {
    let mut query = Query::all();
    for item in items {
        match item {
            Item::Any => return Query::all(),
            Item::Matching(item) => query.items.push(item),
        }
    }
    query
}

/// Parses `type=A,tag=x`, a JSON object with the same names in the plural, or `any`.
pub(crate) fn item(text: &str) -> Result<Item, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Json {
        #[serde(default)]
        types: Vec<String>,
        #[serde(default)]
        tags: Vec<String>,
        #[serde(default)]
        type_prefixes: Vec<String>,
        #[serde(default)]
        tag_prefixes: Vec<String>,
    }
    if text == "any" {
        return Ok(Item::Any);
    }
    let mut found = QueryItem::default();
    if text.starts_with('{') {
        let json: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Json { types, tags, type_prefixes, tag_prefixes } = json;
        found = QueryItem { types, tags, type_prefixes, tag_prefixes };
    } else {
        for term in text.split(',') {
            match term.split_once('=') {
                Some(("type", value)) => found.types.push(value.to_owned()),
                Some(("tag", value)) => found.tags.push(value.to_owned()),
                Some(("type-prefix", value)) => found.type_prefixes.push(value.to_owned()),
                Some(("tag-prefix", value)) => found.tag_prefixes.push(value.to_owned()),
                _ => {
                    return Err(format!(
                        "{term:?} is neither type=… nor tag=…, type-prefix=… nor tag-prefix=…"
                    ));
                }
            }
        }
    }
    if found.is_empty() {
        return Err("names neither a type nor a tag; `any` means every event".to_owned());
    }
    Ok(Item::Matching(found))
}

/// Parses `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("has no `=`")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses `SOURCE:POSITION`; a source may contain colons.
pub(crate) fn tracking(text: &str) -> Result<Tracking, String> {
    let (source, position) = text.rsplit_once(':').ok_or("has no `:` before the position")?;
    let position = position.parse().map_err(|_| format!("{position:?} is not a position"))?;
    Ok(Tracking { source: source.to_owned(), position })
}

/// Parses `sync`, `buffered` or `async:MILLISECONDS`.
pub(crate) fn durability(text: &str) -> Result<Durability, String> {
    let wrong = || "is not sync, buffered or async:MILLISECONDS".to_owned();
    Ok(match text {
        "sync" => Durability::Sync,
        "buffered" => Durability::Buffered,
        _ => {
            let millis = text.strip_prefix("async:").ok_or_else(wrong)?;
            Durability::Async { interval: Duration::from_millis(millis.parse().map_err(|_| wrong())?) }
        }
    })
}

/// Parses a number of bytes with an optional unit, such as `256MiB`; at least 1 MiB.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text.strip_prefix(digits).unwrap_or_default() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        other => return Err(format!("unit {other:?} is not B, KiB, MiB or GiB")),
    };
    let number: u64 = digits.parse().map_err(|_| "is not a number of bytes".to_owned())?;
    let bytes = number.checked_mul(unit).ok_or("is too large")?;
    if bytes < 1 << 20 { Err("is below the least, 1MiB".to_owned()) } else { Ok(bytes) }
}

/// Parses seconds with an optional fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "is not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_parser_accepts_both_spellings() {
        let expected = Item::Matching(QueryItem::new(["A", "B"], ["k:1"]));
        assert_eq!(item("type=A,type=B,tag=k:1").unwrap(), expected);
        assert_eq!(item(r#"{"types":["A","B"],"tags":["k:1"]}"#).unwrap(), expected);
        assert_eq!(item("any").unwrap(), Item::Any);
        for wrong in ["", "A", "type=A,x=1", "{}", r#"{"type":["A"]}"#, "{"] {
            assert!(item(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn query_with_any_item_matches_all_events() {
        let some = item("type=A").unwrap();
        assert!(query([some.clone(), Item::Any].into_iter()).is_all());
        assert_eq!(query([some.clone(), some].into_iter()).items.len(), 2);
    }

    #[test]
    fn bytes_and_seconds_reject_malformed_numbers() {
        assert_eq!(bytes("4MiB").unwrap(), 4 << 20);
        assert_eq!(bytes("2097152").unwrap(), 2 << 20);
        for wrong in ["", "MiB", "1", "12 MB", "99999999999999999999", "99999999999GiB", "-5MiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.25").unwrap(), Duration::from_millis(250));
        assert!(seconds("-1").is_err() && seconds("NaN").is_err() && seconds("1e300").is_err());
    }

    #[test]
    fn tracking_parser_splits_at_last_colon() {
        assert_eq!(tracking("git:/a:7").unwrap(), Tracking { source: "git:/a".into(), position: 7 });
        assert!(tracking("7").is_err() && tracking("a:x").is_err());
    }
}
