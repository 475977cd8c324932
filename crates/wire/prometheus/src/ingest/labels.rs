//! Label sets on ingest: slices of the request, converted to the stored form without intermediate strings.
//!
//!   (name, value) slices ─▶ sorted? unique? UTF-8? ─▶ `length name length value` … ─▶ `series_bytes`
//!
//! Clients send labels in order, so that sorting is the exception. Empty values are the same as no label.

use ropewalk::hooks::put_bytes;
use ropewalk::series::{LABEL_NAME_BYTES_MAX, LABEL_SET_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX};

/// The name of the label that holds the metric's name.
pub(crate) const METRIC_NAME: &str = "__name__";

/// Why a series is rejected. The others of its request are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejected(pub(crate) String);

/// Labels of one series, collected and sorted. Reused for many series.
#[derive(Debug, Default)]
pub(crate) struct LabelSet<'a> {
    pairs: Vec<(&'a [u8], &'a [u8])>,
    bytes: Vec<u8>,
}

impl<'a> LabelSet<'a> {
    pub(crate) fn clear(&mut self) {
        self.pairs.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, name: &'a [u8], value: &'a [u8]) {
        self.pairs.push((name, value));
    }

    /// The value of a label, as it was pushed.
    pub(crate) fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.pairs.iter().find(|(n, _)| *n == name.as_bytes()).map(|(_, value)| *value)
    }

    /// The labels as strings, in the order in which they were pushed.
    ///
    /// # Errors
    /// Bytes that are not UTF-8.
    pub(crate) fn texts(&self) -> Result<Vec<(&'a str, &'a str)>, Rejected> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| self.rejected("a label is not UTF-8"));
        self.pairs.iter().map(|(name, value)| Ok((text(name)?, text(value)?))).collect()
    }

    /// The stored form.
    ///
    /// # Errors
    /// An empty or repeated name, bytes that are not UTF-8, or no metric name.
    pub(crate) fn stored(&mut self) -> Result<&[u8], Rejected> {
        if !self.pairs.is_sorted_by(|a, b| a.0 < b.0) {
            self.pairs.sort_by(|a, b| a.0.cmp(b.0));
            let mut pairs = self.pairs.windows(2);
            if pairs.any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
                return Err(self.rejected("a label name occurs twice"));
            }
        }
        if self.pairs.len() > LABELS_MAX {
            return Err(self.rejected("there are too many labels"));
        }
        self.bytes.clear();
        let mut named = false;
        let mut short = true;
        for (name, value) in &self.pairs {
            if name.is_empty() {
                return Err(self.rejected("a label name is empty"));
            }
            if value.is_empty() {
                continue;
            }
            if name.len() > LABEL_NAME_BYTES_MAX || value.len() > LABEL_VALUE_BYTES_MAX {
                return Err(self.rejected("a label is too long"));
            }
            named |= *name == METRIC_NAME.as_bytes();
            short &= name.len() < 0x80 && value.len() < 0x80;
            put_bytes(&mut self.bytes, name);
            put_bytes(&mut self.bytes, value);
        }
        if self.bytes.len() > LABEL_SET_BYTES_MAX {
            return Err(self.rejected("the labels are too long in all"));
        }
        if !named {
            return Err(self.rejected("there is no metric name"));
        }
        // Lengths below 128 are ASCII and separate the strings, so one check of all bytes equals one check
        // per string.
        let valid = match short {
            true => std::str::from_utf8(&self.bytes).is_ok(),
            false => self.pairs.iter().all(|(name, value)| is_utf8(name) && is_utf8(value)),
        };
        if !valid {
            return Err(self.rejected("a label is not UTF-8"));
        }
        Ok(&self.bytes)
    }

    fn rejected(&self, why: &str) -> Rejected {
        let mut text = String::from("series {");
        for (index, (name, value)) in self.pairs.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let short = |bytes: &[u8]| {
                String::from_utf8_lossy(bytes.get(..bytes.len().min(100)).unwrap_or_default()).into_owned()
            };
            let (name, value) = (short(name), short(value));
            text.push_str(&format!("{comma}{name}={value:?}"));
            if text.len() > 300 {
                text.push('…');
                break;
            }
        }
        Rejected(format!("{text}}}: {why}"))
    }
}

fn is_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(pairs: &[(&'static [u8], &'static [u8])]) -> Result<Vec<u8>, String> {
        let mut set = LabelSet::default();
        pairs.iter().for_each(|(name, value)| set.push(name, value));
        set.stored().map(<[u8]>::to_vec).map_err(|Rejected(why)| why)
    }

    #[test]
    fn the_stored_form() {
        let up: &[u8] = b"\x08__name__\x02up\x03job\x01a";
        assert_eq!(stored(&[(b"__name__", b"up"), (b"job", b"a")]).unwrap(), up);
        assert_eq!(stored(&[(b"job", b"a"), (b"x", b""), (b"__name__", b"up")]).unwrap(), up);
        let (set, long) = (stored(&[(b"__name__", "ö".repeat(64).leak().as_bytes())]).unwrap(), 128);
        assert_eq!(ropewalk::series::Labels::from_bytes(&set).unwrap().get("__name__").len(), long);
    }

    #[test]
    fn rejects_invalid_labels() {
        let refused = |pairs: &[(&'static [u8], &'static [u8])]| stored(pairs).unwrap_err();
        assert!(refused(&[(b"job", b"a")]).contains("no metric name"));
        assert!(refused(&[(b"__name__", b"")]).contains("no metric name"));
        assert!(refused(&[(b"__name__", b"a"), (b"__name__", b"b")]).contains("twice"));
        assert!(refused(&[(b"__name__", b"a"), (b"", b"b")]).contains("empty"));
        assert!(refused(&[(b"__name__", b"a\xff")]).contains("UTF-8"));
        // Each half of the letter is in a separate string.
        assert!(refused(&[(b"__name__", b"a\xc3"), (b"b", b"\xb6")]).contains("UTF-8"));
        let long = [0xff; 200].to_vec().leak();
        assert!(refused(&[(b"__name__", long)]).contains("UTF-8"));
    }
}
