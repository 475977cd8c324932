//! Values and documents in messages, truncated.

use crate::lang::{Doc, Value};

/// Most characters of one value.
const SHOWN_MAX: usize = 200;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(48).map(|b| format!("{b:02x}")).collect()
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
