//! Wildcard indexes: `{ "$**": 1 }` holds every field of every document, `{ "a.$**": 1 }` those below `a`.
//!
//! ```text
//! { a: { b: 1 }, c: [2, "x"] }  ─▶  "a.b" 1 │ "c" 2 │ "c" "x"
//! entry   index u32 | key of the path | key of the value | key of _id
//! ```
//! Only values that are not documents, arrays or nulls are looked up in it: a missing field has no entry,
//! nor has a document as a whole. Elements of arrays are indexed under the path of the array, so a path with
//! a position in it is not served. As with every index the filter decides; superfluous entries only cost
//! time.

use crate::catalog::definition::{Index, wildcard_root};
use crate::index::entry::KEY_BYTES_MAX;
use crate::index::entry::KeyRange;
use crate::lang::order::{self, class};
use crate::lang::{self, Doc, Filter, Value};

/// The path below which a wildcard index holds everything; `None` for another index.
pub(crate) fn root(index: &Index) -> Option<&str> {
    match index.fields() {
        [only] => wildcard_root(&only.path),
        _ => None,
    }
}

/// The keys of a document, sorted and distinct.
pub(crate) fn keys(root: &str, doc: Doc<'_>) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut path = String::new();
    walk(Value::Document(doc), root, &mut path, &mut keys);
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn walk(value: Value<'_>, root: &str, path: &mut String, keys: &mut Vec<Vec<u8>>) {
    match value {
        Value::Document(doc) => {
            for (name, value) in doc {
                let before = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                // On the way to the root, or below it.
                if is_below(path, root) || is_below(root, path) {
                    walk(value, root, path, keys);
                }
                path.truncate(before);
            }
        }
        Value::Array(array) => array.values().for_each(|value| walk(value, root, path, keys)),
        // The caller rejects a key that exceeds the index limit, so the others, which may be as long, are
        // not built.
        _ if keys.last().is_some_and(|key| key.len() > KEY_BYTES_MAX) => {}
        value if is_below(path, root) && is_held(order::class(value)) => {
            let mut key = prefix(path);
            lang::key::encode(value, false, &mut key);
            keys.push(key);
        }
        _ => {}
    }
}

fn prefix(path: &str) -> Vec<u8> {
    lang::key::key_of(Value::String(path))
}

/// `path` is `root` or lies below it.
fn is_below(path: &str, root: &str) -> bool {
    root.is_empty() || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn is_held(of: u8) -> bool {
    let whole = [order::class(Value::Document(Doc::empty())), class::ARRAY];
    of > class::NULL && !whole.contains(&of)
}

/// The ranges of a wildcard index that contain the matches of `filter`, by its conditions on `path`.
pub(crate) fn ranges(index: &Index, root: &str, filter: &Filter, path: &str) -> Option<Vec<KeyRange>> {
    let position = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    if !is_below(path, root) || path.split('.').any(position) {
        return None;
    }
    let bounds = filter.bounds(path, true)?;
    // Each within one class of values that the index holds.
    let served =
        bounds.intervals.iter().all(|interval| match (interval.start.first(), interval.end.as_slice()) {
            (Some(start), [end]) => *end == start + 1 && is_held(*start),
            (Some(start), [end, ..]) => end == start && is_held(*start),
            _ => false,
        });
    if !served {
        return None;
    }
    let front = [index.object.to_be_bytes().as_slice(), &prefix(path)].concat();
    let range = |start: &[u8], end: &[u8]| ([&front, start].concat(), [&front, end].concat());
    Some(bounds.intervals.iter().map(|interval| range(&interval.start, &interval.end)).collect())
}
