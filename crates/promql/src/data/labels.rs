//! Label sets: one allocation each, shared by counting, compared and hashed by their bytes.
//!
//! A set is one string: for each label, sorted by name, `length name length value`. A length is written in
//! base 64, lowest digit first, one ASCII character per digit, with 0x40 set on all but the last; so the set
//! is valid UTF-8 and is split without checks of encoding. A label with an empty value is absent and is never
//! stored.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Name of the label that holds the metric name.
pub const METRIC_NAME: &str = "__name__";
/// Name of the label that holds the metric's type, where type and unit are labels.
pub const METRIC_TYPE: &str = "__type__";
/// Name of the label that holds the metric's unit, where type and unit are labels.
pub const METRIC_UNIT: &str = "__unit__";
/// Upper bound of a bucket of a classic histogram.
pub const BUCKET: &str = "le";

/// Longest value that a query may give a label.
pub(crate) const LABEL_VALUE_BYTES_MAX: usize = 64 << 10;
/// Bytes of all labels of a series to which a query has added some: twice what a store takes.
pub(crate) const LABEL_SET_BYTES_MAX: usize = 256 << 10;

/// An immutable, sorted label set. Clones share memory, and so does a set without its first labels: the
/// metric name is almost always one of those.
#[derive(Clone)]
pub struct Labels {
    text: Arc<str>,
    /// Offset of the set in the string.
    start: usize,
}

impl Default for Labels {
    fn default() -> Self {
        static EMPTY: OnceLock<Arc<str>> = OnceLock::new();
        Self { text: Arc::clone(EMPTY.get_or_init(|| Arc::from(""))), start: 0 }
    }
}

impl From<String> for Labels {
    fn from(text: String) -> Self {
        if text.is_empty() { Self::default() } else { Self { text: Arc::from(text), start: 0 } }
    }
}

impl Labels {
    /// From pairs in any order; of equal names the last wins; empty values are left out.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut pairs: Vec<(N, V)> = pairs.into_iter().collect();
        pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let mut text =
            String::with_capacity(pairs.iter().map(|(n, v)| n.as_ref().len() + v.as_ref().len() + 4).sum());
        let mut pairs = pairs.iter().peekable();
        while let Some((name, value)) = pairs.next() {
            let again = pairs.peek().is_some_and(|(next, _)| next.as_ref() == name.as_ref());
            if !again && !value.as_ref().is_empty() {
                put(&mut text, name.as_ref());
                put(&mut text, value.as_ref());
            }
        }
        Self::from(text)
    }

    /// From pairs that are sorted by name, without equal names and without empty values. Cost: one
    /// allocation.
    pub fn from_sorted<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut text = String::with_capacity(256);
        for (name, value) in pairs {
            put(&mut text, name);
            put(&mut text, value);
        }
        Self::from(text)
    }

    fn text(&self) -> &str {
        self.text.get(self.start..).unwrap_or_default()
    }

    /// The labels in order of their names.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.text())
    }

    /// The value of `name`; empty when there is no such label.
    pub fn get(&self, name: &str) -> &str {
        self.iter().take_while(|(n, _)| *n <= name).find(|(n, _)| *n == name).map_or("", |(_, value)| value)
    }

    /// True when the set has the label.
    pub fn has(&self, name: &str) -> bool {
        !self.get(name).is_empty()
    }

    /// The metric name; empty when the set has none.
    pub fn name(&self) -> &str {
        self.get(METRIC_NAME)
    }

    /// True without labels.
    pub fn is_empty(&self) -> bool {
        self.text().is_empty()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.text.len() + 16
    }

    /// A hash of all labels.
    pub fn hash64(&self) -> u64 {
        ropewalk_base::hash64(self.text().as_bytes())
    }

    /// The labels for which `keep` returns true. Shares memory when all are retained.
    pub fn filter(&self, mut keep: impl FnMut(&str) -> bool) -> Self {
        if self.iter().all(|(name, _)| keep(name)) {
            return self.clone();
        }
        Self::from_sorted(self.iter().filter(|(name, _)| keep(name)))
    }

    /// Writes the labels for which `keep` returns true into `key`, in the form that [`Labels::is`] compares.
    /// `keep` is not called for names after `last`.
    pub(crate) fn key(&self, key: &mut String, last: Option<&str>, mut keep: impl FnMut(&str) -> bool) {
        key.clear();
        let labels = self.iter().take_while(|(name, _)| last.is_none_or(|last| *name <= last));
        for (name, value) in labels.filter(|(name, _)| keep(name)) {
            put(key, name);
            put(key, value);
        }
    }

    /// True when this is the set that [`Labels::key`] has written.
    pub(crate) fn is(&self, key: &str) -> bool {
        self.text() == key
    }

    /// The set that [`Labels::key`] has written.
    pub(crate) fn from_key(key: &str) -> Self {
        if key.is_empty() { Self::default() } else { Self { text: Arc::from(key), start: 0 } }
    }

    /// The set with `name` set to `value`, or removed when `value` is empty.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let before = self.iter().take_while(|(n, _)| *n < name);
        let after = self.iter().skip_while(|(n, _)| *n <= name);
        let this = (!value.is_empty()).then_some((name, value));
        Self::from_sorted(before.chain(this).chain(after))
    }

    /// The set without metric name, type and unit: the labels of a value that is no longer that metric's.
    pub fn without_name(&self) -> Self {
        let mut rest = self.iter();
        let mut behind = rest.clone();
        while rest.next().is_some_and(|(name, _)| is_metadata(name)) {
            behind = rest.clone();
        }
        // Names are sorted, and those of metadata are adjacent: none comes after the last of them.
        if behind.clone().take_while(|(name, _)| *name <= METRIC_UNIT).any(|(name, _)| is_metadata(name)) {
            return self.filter(|name| !is_metadata(name));
        }
        Self { text: Arc::clone(&self.text), start: self.text.len() - behind.0.len() }
    }
}

/// True for the labels that describe the metric itself: name, type, unit.
pub(crate) fn is_metadata(name: &str) -> bool {
    matches!(name, METRIC_NAME | METRIC_TYPE | METRIC_UNIT)
}

fn put(text: &mut String, part: &str) {
    let mut left = part.len();
    while left >= 0x40 {
        text.push(char::from(0x40 | (left & 0x3f) as u8));
        left >>= 6;
    }
    text.push(char::from(left as u8));
    text.push_str(part);
}

fn take<'a>(text: &mut &'a str) -> Option<&'a str> {
    let (mut length, mut shift, mut at) = (0usize, 0u32, 0usize);
    loop {
        let digit = *text.as_bytes().get(at)?;
        at += 1;
        length |= usize::from(digit & 0x3f) << shift;
        if digit & 0x40 == 0 {
            break;
        }
        shift += 6;
    }
    let part = text.get(at..at + length)?;
    *text = text.get(at + length..)?;
    Some(part)
}

/// Name and value of each label, by [`Labels::iter`].
#[derive(Debug, Clone)]
pub struct Iter<'a>(&'a str);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let name = take(&mut self.0)?;
        let value = take(&mut self.0)?;
        Some((name, value))
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Labels {}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash64());
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    /// Label by label: names, then values; a set that ends first is the smaller.
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl fmt::Display for Labels {
    /// `{__name__="up", job="a"}`, as Prometheus writes label sets in errors.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("{")?;
        for (index, (name, value)) in self.iter().enumerate() {
            if index > 0 {
                out.write_str(", ")?;
            }
            if crate::data::text::is_label_name(name) {
                out.write_str(name)?;
            } else {
                out.write_str(&crate::data::text::quote(name))?;
            }
            write!(out, "={}", crate::data::text::quote(value))?;
        }
        out.write_str("}")
    }
}
