//! Differences made by an update, for change streams: dotted paths with new values, and removed paths.
//!
//! `{ updatedFields: { "a.b": 1, "list.2": 5 }, removedFields: [ "c" ], truncatedArrays: [ { field: "list",
//! newSize: 3 } ] }` A path would be ambiguous below a name that contains a dot or is a number; there the
//! complete value is reported.

use crate::lang::{Doc, DocBuf, Value, Writer};

/// Levels that are compared field by field; below that complete values are reported.
const DEPTH_MAX: usize = 20;
/// Upper bound of an empty difference. The reported values take no more bytes than the old and the new
/// document.
pub(crate) const OVERHEAD: usize = 128;

#[derive(Default)]
struct Changes<'d> {
    updated: Vec<(String, Value<'d>)>,
    removed: Vec<String>,
    truncated: Vec<(String, usize)>,
}

/// The difference from `old` to `new`.
pub(crate) fn difference(old: Doc<'_>, new: Doc<'_>) -> DocBuf {
    let mut changes = Changes::default();
    documents(old, new, "", 0, &mut changes);
    let told = write(&changes);
    if told.bytes().len() <= new.bytes().len() + OVERHEAD {
        return told;
    }
    // Many changes below long names: reporting whole top-level fields is shorter.
    let mut whole = Changes::default();
    documents(old, new, "", DEPTH_MAX, &mut whole);
    write(&whole)
}

fn write(changes: &Changes<'_>) -> DocBuf {
    let mut out = Writer::new();
    out.open_document("updatedFields");
    for (path, value) in &changes.updated {
        out.put(path, *value);
    }
    out.close();
    out.open_array("removedFields");
    for (place, path) in changes.removed.iter().enumerate() {
        out.put(&place.to_string(), Value::String(path));
    }
    out.close();
    out.open_array("truncatedArrays");
    for (place, (path, size)) in changes.truncated.iter().enumerate() {
        out.open_document(&place.to_string());
        out.put("field", Value::String(path));
        out.put("newSize", Value::Int32(i32::try_from(*size).unwrap_or(i32::MAX)));
        out.close();
    }
    out.close();
    out.finish()
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// True for identical bytes; stricter than equal value and type.
fn identical(a: Value<'_>, b: Value<'_>) -> bool {
    let bytes = |value: Value<'_>| {
        let mut out = Writer::new();
        out.put("", value);
        out.finish()
    };
    bytes(a) == bytes(b)
}

fn documents<'d>(old: Doc<'_>, new: Doc<'d>, prefix: &str, depth: usize, out: &mut Changes<'d>) {
    for (name, _) in old.iter() {
        if new.get(name).is_none() {
            out.removed.push(join(prefix, name));
        }
    }
    for (name, now) in new.iter() {
        match old.get(name) {
            Some(was) => value(was, now, &join(prefix, name), depth, out),
            None => out.updated.push((join(prefix, name), now)),
        }
    }
}

fn value<'d>(was: Value<'_>, now: Value<'d>, path: &str, depth: usize, out: &mut Changes<'d>) {
    let plain = |doc: Doc<'_>| {
        doc.iter().all(|(name, _)| {
            !name.is_empty() && !name.contains('.') && !name.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    match (was, now) {
        (Value::Document(was), Value::Document(now))
            if depth < DEPTH_MAX && plain(was) && plain(now) && !was.is_empty() =>
        {
            documents(was, now, path, depth + 1, out);
        }
        (Value::Array(was), Value::Array(now)) if depth < DEPTH_MAX && !now.is_empty() => {
            let (old_size, new_size) = (was.values().count(), now.values().count());
            let mut changed = Changes::default();
            for (place, (before, after)) in was.values().zip(now.values()).enumerate() {
                value(before, after, &format!("{path}.{place}"), depth + 1, &mut changed);
            }
            for (place, added) in now.values().enumerate().skip(old_size) {
                changed.updated.push((format!("{path}.{place}"), added));
            }
            if changed.updated.len() + changed.removed.len() > new_size {
                out.updated.push((path.to_owned(), Value::Array(now)));
                return;
            }
            if new_size < old_size {
                out.truncated.push((path.to_owned(), new_size));
            }
            out.updated.extend(changed.updated);
            out.removed.extend(changed.removed);
            out.truncated.extend(changed.truncated);
        }
        _ if identical(was, now) => {}
        _ => out.updated.push((path.to_owned(), now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(build: impl FnOnce(&mut Writer)) -> DocBuf {
        let mut out = Writer::new();
        build(&mut out);
        out.finish()
    }

    #[test]
    fn a_difference_is_never_longer_than_both_documents() {
        let name = "n".repeat(500);
        let nested = |value: i32, last: i32| {
            of(|out| {
                out.open_document(&name);
                for field in 0..last {
                    out.put(&format!("f{field}"), Value::Int32(value));
                }
                out.close();
            })
        };
        for (old, new) in
            [(nested(1, 300), nested(2, 300)), (nested(1, 300), nested(1, 1)), (nested(1, 1), nested(1, 300))]
        {
            let told = difference(old.doc(), new.doc());
            let size = told.bytes().len();
            assert!(size <= old.bytes().len() + new.bytes().len() + OVERHEAD, "{size}");
        }
        let whole = difference(nested(1, 300).doc(), nested(2, 300).doc());
        assert_eq!(
            whole.doc().get("updatedFields").and_then(Value::as_document).map(|d| d.iter().count()),
            Some(1)
        );
    }
}
