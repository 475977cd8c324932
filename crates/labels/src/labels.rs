//! Label sets. One form everywhere, in requests, records, files, memory and queries: for each label, in the order
//! of the names' bytes, name and value, each a varint length and that many bytes of UTF-8. Two sets are equal
//! exactly when their bytes are, so a series is found by one hash and one comparison.
//!
//! A label with an empty value is the same as no label, and is left out.
//!
//! Bytes are checked as UTF-8 when a name or a value is read as a string. Queries therefore group, match and
//! compare sets by their bytes.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use ropewalk_base::{Decoder, hash64, put_bytes};

use crate::error::LabelError;
use crate::text::{is_label_name, quote};

/// Name of the label that holds the metric's name.
pub const METRIC_NAME: &str = "__name__";
/// Name of the label that holds the metric's type, where type and unit are labels.
pub const METRIC_TYPE: &str = "__type__";
/// Name of the label that holds the metric's unit, where type and unit are labels.
pub const METRIC_UNIT: &str = "__unit__";
/// Upper bound of a bucket of a classic histogram.
pub const BUCKET: &str = "le";

/// Most labels of a stored series.
pub const LABELS_MAX: usize = 256;
/// Longest label name, bytes.
pub const LABEL_NAME_BYTES_MAX: usize = 1024;
/// Longest label value, bytes.
pub const LABEL_VALUE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of the label set of a stored series.
pub const LABEL_SET_BYTES_MAX: usize = 128 << 10;

/// An immutable label set, sorted by name, each name once.
///
/// Clones share memory, and so does a set without its first labels: the metric name is almost always one of
/// those.
#[derive(Clone)]
pub struct Labels {
    bytes: Arc<[u8]>,
    /// Offset of the set in the bytes.
    start: usize,
}

impl Default for Labels {
    fn default() -> Self {
        static EMPTY: OnceLock<Arc<[u8]>> = OnceLock::new();
        Self { bytes: Arc::clone(EMPTY.get_or_init(|| Arc::from([]))), start: 0 }
    }
}

impl Labels {
    /// From pairs in any order, checked as the labels of a stored series. Empty values are left out.
    ///
    /// # Errors
    /// [`LabelError::InvalidLabels`]: no label is left, an empty or repeated name, or over the limits.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, LabelError> {
        let mut pairs: Vec<(N, V)> = pairs.into_iter().filter(|(_, v)| !v.as_ref().is_empty()).collect();
        pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let labels = Self::from_sorted(pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref())));
        check_labels(labels.as_bytes())?;
        Ok(labels)
    }

    /// From the form that [`Labels::as_bytes`] returns, checked as the labels of a stored series.
    ///
    /// # Errors
    /// [`LabelError::InvalidLabels`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LabelError> {
        check_labels(bytes)?;
        Ok(LabelsRef(bytes).to_owned())
    }

    /// From pairs in any order, unchecked; of equal names the last wins; empty values are left out.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut pairs: Vec<(N, V)> = pairs.into_iter().collect();
        pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let mut rest = pairs.iter().peekable();
        Self::from_sorted(std::iter::from_fn(|| {
            loop {
                let (name, value) = rest.next()?;
                let again = rest.peek().is_some_and(|(next, _)| next.as_ref() == name.as_ref());
                if !again && !value.as_ref().is_empty() {
                    return Some((name.as_ref(), value.as_ref()));
                }
            }
        }))
    }

    /// From pairs that are sorted by name, without equal names and without empty values.
    pub fn from_sorted<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self::collect(pairs.into_iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    fn collect<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut bytes = Vec::with_capacity(256);
        for (name, value) in pairs {
            put_bytes(&mut bytes, name);
            put_bytes(&mut bytes, value);
        }
        LabelsRef(&bytes).to_owned()
    }

    /// Names and values, each after its length.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Read in place.
    #[inline]
    pub fn as_ref(&self) -> LabelsRef<'_> {
        LabelsRef(self.as_bytes())
    }

    /// Names and values, by name.
    pub fn iter(&self) -> LabelsIter<'_> {
        self.as_ref().iter()
    }

    /// The value of `name`; empty when there is no such label.
    #[inline]
    pub fn get(&self, name: &str) -> &str {
        self.as_ref().get(name)
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
        self.as_bytes().is_empty()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + 16
    }

    /// A hash of all labels.
    pub fn hash64(&self) -> u64 {
        hash64(self.as_bytes())
    }

    /// The labels whose name `keep` accepts. Shares memory when all are retained.
    pub fn filter(&self, mut keep: impl FnMut(&[u8]) -> bool) -> Self {
        if self.as_ref().byte_pairs().all(|(name, _)| keep(name)) {
            return self.clone();
        }
        Self::collect(self.as_ref().byte_pairs().filter(|(name, _)| keep(name)))
    }

    /// Writes the labels whose name `keep` accepts into `key`, in the form of [`Labels::as_bytes`]. `keep` is
    /// not called for names after `last`.
    pub fn write_key(&self, key: &mut Vec<u8>, last: Option<&str>, mut keep: impl FnMut(&[u8]) -> bool) {
        key.clear();
        let is_at_most = |name: &[u8]| last.is_none_or(|last| name <= last.as_bytes());
        let labels = self.as_ref().byte_pairs().take_while(|(name, _)| is_at_most(name));
        for (name, value) in labels.filter(|(name, _)| keep(name)) {
            put_bytes(key, name);
            put_bytes(key, value);
        }
    }

    /// The set with `name` set to `value`, or removed when `value` is empty.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        let before = self.as_ref().byte_pairs().take_while(|(n, _)| *n < name);
        let after = self.as_ref().byte_pairs().skip_while(|(n, _)| *n <= name);
        let this = (!value.is_empty()).then_some((name, value));
        Self::collect(before.chain(this).chain(after))
    }

    /// The set without metric name, type and unit: the labels of a value that is no longer that metric's.
    pub fn without_name(&self) -> Self {
        let mut rest = self.as_ref().byte_pairs();
        let mut tail = rest.clone();
        while rest.next().is_some_and(|(name, _)| is_metadata(name)) {
            tail = rest.clone();
        }
        // Names are sorted, and those of metadata are adjacent: none comes after the last of them.
        let mut others = tail.clone().take_while(|(name, _)| *name <= METRIC_UNIT.as_bytes());
        if others.any(|(name, _)| is_metadata(name)) {
            return self.filter(|name| !is_metadata(name));
        }
        Self { bytes: Arc::clone(&self.bytes), start: self.bytes.len() - tail.0.rest().len() }
    }
}

/// True for the labels that describe the metric itself: name, type, unit.
pub fn is_metadata(name: &[u8]) -> bool {
    [METRIC_NAME, METRIC_TYPE, METRIC_UNIT].iter().any(|of| of.as_bytes() == name)
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
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
        self.as_ref().byte_pairs().cmp(other.as_ref().byte_pairs())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

/// A label set, read in place.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LabelsRef<'a>(&'a [u8]);

impl<'a> LabelsRef<'a> {
    /// Reads bytes as [`Labels::as_bytes`] returns them, unchecked: bytes that do not decode end the set.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Names and values, each after its length.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Names and values, by name.
    pub fn iter(self) -> LabelsIter<'a> {
        LabelsIter(Decoder::new(self.0))
    }

    /// Names and values as bytes, without checking that they are UTF-8.
    #[inline]
    pub fn byte_pairs(self) -> BytePairs<'a> {
        BytePairs(Decoder::new(self.0))
    }

    /// The value of `name`; empty when there is no such label.
    #[inline]
    pub fn get(self, name: &str) -> &'a str {
        let name = name.as_bytes();
        let found = self.byte_pairs().take_while(|(n, _)| *n <= name).find(|(n, _)| *n == name);
        found.and_then(|(_, value)| std::str::from_utf8(value).ok()).unwrap_or_default()
    }

    /// An owned copy. Cost: one allocation.
    pub fn to_owned(self) -> Labels {
        if self.0.is_empty() { Labels::default() } else { Labels { bytes: self.0.into(), start: 0 } }
    }
}

impl fmt::Display for LabelsRef<'_> {
    /// `name{job="a"}`, and with `{:#}` `{__name__="name", job="a"}`, as Prometheus writes sets in errors;
    /// unusual names are quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = if f.alternate() { "" } else { self.get(METRIC_NAME) };
        let metric = Some(metric).filter(|name| !name.is_empty() && is_plain(name));
        f.write_str(metric.unwrap_or_default())?;
        let mut rest = self.iter().filter(|(name, _)| metric.is_none() || *name != METRIC_NAME).peekable();
        if metric.is_some() && rest.peek().is_none() {
            return Ok(());
        }
        f.write_str("{")?;
        for (index, (name, value)) in rest.enumerate() {
            f.write_str(match (index, f.alternate()) {
                (0, _) => "",
                (_, true) => ", ",
                (_, false) => ",",
            })?;
            if is_label_name(name) {
                write!(f, "{name}={}", quote(value))?;
            } else {
                write!(f, "{}={}", quote(name), quote(value))?;
            }
        }
        f.write_str("}")
    }
}

impl fmt::Debug for LabelsRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn is_plain(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// See [`Labels::iter`].
#[derive(Debug, Clone)]
pub struct LabelsIter<'a>(Decoder<'a>);

impl<'a> Iterator for LabelsIter<'a> {
    type Item = (&'a str, &'a str);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let name = self.0.str("label name").ok()?;
        Some((name, self.0.str("label value").ok()?))
    }
}

/// See [`LabelsRef::byte_pairs`].
#[derive(Debug, Clone)]
pub struct BytePairs<'a>(Decoder<'a>);

impl<'a> Iterator for BytePairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let name = self.0.bytes("label name").ok()?;
        Some((name, self.0.bytes("label value").ok()?))
    }
}

/// Checks the labels of a stored series in their form as bytes.
///
/// # Errors
/// [`LabelError::InvalidLabels`].
pub fn check_labels(bytes: &[u8]) -> Result<(), LabelError> {
    fault(bytes).map_or(Ok(()), |what| {
        let mut labels = LabelsRef(bytes).to_string();
        if labels.len() > 200 {
            let cut = (0..=200).rev().find(|at| labels.is_char_boundary(*at)).unwrap_or(0);
            labels.truncate(cut);
            labels.push('…');
        }
        Err(LabelError::InvalidLabels { labels, what })
    })
}

fn fault(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return Some("at least one label with a value is needed".into());
    }
    if bytes.len() > LABEL_SET_BYTES_MAX {
        return Some(format!("{} bytes; at most {LABEL_SET_BYTES_MAX} are allowed", bytes.len()));
    }
    let mut decoder = Decoder::new(bytes);
    let (mut before, mut count) = ("", 0);
    while !decoder.is_empty() {
        let (name, value) = match (decoder.str("a name in UTF-8"), decoder.str("a value in UTF-8")) {
            (Ok(name), Ok(value)) => (name, value),
            (Err(error), _) | (_, Err(error)) => return Some(error.to_string()),
        };
        let what = if name.is_empty() {
            "a label name is empty".to_owned()
        } else if name.len() > LABEL_NAME_BYTES_MAX {
            format!("a label name has {} bytes; at most {LABEL_NAME_BYTES_MAX} are allowed", name.len())
        } else if name == before {
            format!("the label {name:?} occurs twice")
        } else if name < before {
            format!("the label {name:?} follows {before:?}; labels must be sorted by name")
        } else if value.is_empty() {
            format!("the label {name:?} has an empty value, which is the same as no label")
        } else if value.len() > LABEL_VALUE_BYTES_MAX {
            format!(
                "the value of label {name:?} has {} bytes; at most {LABEL_VALUE_BYTES_MAX} are allowed",
                value.len()
            )
        } else {
            count += 1;
            before = name;
            continue;
        };
        return Some(what);
    }
    (count > LABELS_MAX).then(|| format!("{count} labels; at most {LABELS_MAX} are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes_and_text() {
        let labels = Labels::new([("job", "a"), ("__name__", "up"), ("empty", "")]).unwrap();
        assert_eq!(labels.as_bytes(), b"\x08__name__\x02up\x03job\x01a");
        assert_eq!(labels.to_string(), "up{job=\"a\"}");
        assert_eq!(format!("{labels:#}"), "{__name__=\"up\", job=\"a\"}");
        assert_eq!((labels.get("job"), labels.get("absent")), ("a", ""));
        let odd = Labels::new([("a.b", "x\"y"), ("__name__", "ä")]).unwrap();
        assert_eq!(odd.to_string(), "{__name__=\"ä\",\"a.b\"=\"x\\\"y\"}");
    }

    #[test]
    fn labels_are_changed_and_left_out() {
        let labels = Labels::from_pairs([("job", "a"), ("__name__", "up"), ("env", ""), ("job", "b")]);
        assert_eq!(labels, Labels::new([("__name__", "up"), ("job", "b")]).unwrap());
        let unnamed = labels.without_name();
        assert_eq!((&unnamed, unnamed.name()), (&Labels::from_pairs([("job", "b")]), ""));
        assert!(Arc::ptr_eq(&labels.bytes, &unnamed.bytes));
        assert_eq!(unnamed.with("__name__", "up"), labels);
        let typed = unnamed.with("__type__", "counter").with("__a__", "1");
        assert_eq!(typed.without_name(), unnamed.with("__a__", "1"));
        assert!(labels.with("__name__", "").with("job", "").is_empty());
        let (mut key, long) = (Vec::new(), labels.with("long", &"x".repeat(300)));
        long.write_key(&mut key, None, |name| name != b"job");
        assert_eq!(long.filter(|name| name != b"job").as_bytes(), key);
        long.write_key(&mut key, Some("job"), |_| true);
        assert_eq!(labels.as_bytes(), key);
        assert!(labels > unnamed.with("__name__", "down") && labels < long && unnamed > labels);
    }

    #[test]
    fn invalid_label_sets_are_refused() {
        let refused = |bytes: &[u8], why: &str| {
            let error = Labels::from_bytes(bytes).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(b"", "at least one label");
        refused(b"\x01b\x011\x01a\x011", "sorted by name");
        refused(b"\x01a\x011\x01a\x012", "occurs twice");
        refused(b"\x00\x011", "name is empty");
        refused(b"\x01a\x00", "empty value");
        refused(b"\x01a\x05x", "value in UTF-8 at byte");
        refused(b"\x01\xff\x011", "name in UTF-8 at byte 0");
        let many: Vec<_> = (0..=LABELS_MAX).map(|i| (format!("l{i:04}"), "x")).collect();
        assert!(Labels::new(many).unwrap_err().to_string().contains("257 labels"));
        assert!(Labels::new([("a", "1"), ("a", "2")]).is_err());
        let long = "x".repeat(LABEL_VALUE_BYTES_MAX + 1);
        assert!(Labels::new([("a", &long)]).unwrap_err().to_string().len() < 400);
    }

    proptest! {
        #[test]
        fn any_bytes_are_labels_or_refused(bytes: Vec<u8>) {
            if let Ok(labels) = Labels::from_bytes(&bytes) {
                let again = Labels::new(labels.iter()).unwrap();
                prop_assert_eq!(again, labels);
            }
        }
    }
}
