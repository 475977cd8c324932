//! Values and documents in messages, truncated.

use ropewalk_base::hex;

use crate::lang::{Doc, Value};

/// Most characters of one value.
const SHOWN_MAX: usize = 200;

/// Most bytes of a key.
const KEY_SHOWN_MAX: usize = 48;

/// A key, in hexadecimal.
pub(crate) fn key(bytes: &[u8]) -> String {
    hex(bytes.get(..KEY_SHOWN_MAX).unwrap_or(bytes))
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A value.
pub(crate) fn value(value: Value<'_>) -> String {
    cut(value.to_string())
}

/// A document.
pub(crate) fn document(doc: Doc<'_>) -> String {
    cut(doc.to_string())
}
