//! Label sets. One form everywhere, in requests, records, files and memory: for each label, in the order of the names'
//! bytes, name and value, each a varint length and that many bytes of UTF-8. Two sets are equal exactly when their bytes
//! are, so a series is found by one hash and one comparison.
//!
//! A label with an empty value is the same as no label, and is left out.

use std::fmt;

use ropewalk_base::{Decoder, put_bytes};

use crate::error::SeriesError;

/// Name of the label that holds the metric's name.
pub const METRIC_NAME: &str = "__name__";
/// Most labels of a series.
pub const LABELS_MAX: usize = 256;
/// Longest label name, bytes.
pub const LABEL_NAME_BYTES_MAX: usize = 1024;
/// Longest label value, bytes.
pub const LABEL_VALUE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a label set in its stored form.
pub const LABEL_SET_BYTES_MAX: usize = 128 << 10;

/// A label set: sorted, without duplicates, checked. At least one label.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Box<[u8]>);

impl Labels {
    /// From pairs in any order. Labels with empty values are left out.
    ///
    /// # Errors
    /// [`SeriesError::InvalidLabels`]: no label is left, an empty or repeated name, or over the limits.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, SeriesError> {
        let mut pairs: Vec<(N, V)> = pairs.into_iter().filter(|(_, v)| !v.as_ref().is_empty()).collect();
        pairs.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let mut bytes = Vec::new();
        for (name, value) in &pairs {
            put_bytes(&mut bytes, name.as_ref().as_bytes());
            put_bytes(&mut bytes, value.as_ref().as_bytes());
        }
        check(&bytes)?;
        Ok(Self(bytes.into()))
    }

    /// From the stored form, as [`Labels::as_bytes`] gives it.
    ///
    /// # Errors
    /// [`SeriesError::InvalidLabels`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SeriesError> {
        check(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Read in place.
    pub fn as_ref(&self) -> LabelsRef<'_> {
        LabelsRef(&self.0)
    }

    /// Names and values, by name.
    pub fn iter(&self) -> LabelsIter<'_> {
        self.as_ref().iter()
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.as_ref().get(name)
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
pub struct LabelsRef<'a>(pub(crate) &'a [u8]);

impl<'a> LabelsRef<'a> {
    /// The stored form.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Names and values, by name.
    pub fn iter(self) -> LabelsIter<'a> {
        LabelsIter(Decoder::new(self.0))
    }

    /// Names and values as bytes, without checking that they are UTF-8.
    pub(crate) fn bytes(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut decoder = Decoder::new(self.0);
        std::iter::from_fn(move || {
            let name = decoder.bytes("label name").ok()?;
            Some((name, decoder.bytes("label value").ok()?))
        })
    }

    /// The value of `name`.
    pub fn get(self, name: &str) -> Option<&'a str> {
        self.iter().take_while(|(n, _)| *n <= name).find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// An owned copy.
    pub fn to_owned(self) -> Labels {
        Labels(self.0.into())
    }
}

impl fmt::Display for LabelsRef<'_> {
    /// `name{job="a"}`; unusual names and values are quoted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = self.get(METRIC_NAME).filter(|name| is_plain(name));
        f.write_str(metric.unwrap_or_default())?;
        let mut rest = self.iter().filter(|(name, _)| metric.is_none() || *name != METRIC_NAME).peekable();
        if metric.is_some() && rest.peek().is_none() {
            return Ok(());
        }
        f.write_str("{")?;
        for (index, (name, value)) in rest.enumerate() {
            let comma = if index > 0 { "," } else { "" };
            if is_plain(name) {
                write!(f, "{comma}{name}={value:?}")?;
            } else {
                write!(f, "{comma}{name:?}={value:?}")?;
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

    fn next(&mut self) -> Option<Self::Item> {
        let name = self.0.str("label name").ok()?;
        Some((name, self.0.str("label value").ok()?))
    }
}

/// Checks a label set in its stored form, and describes the error.
pub(crate) fn check(bytes: &[u8]) -> Result<(), SeriesError> {
    fault(bytes).map_or(Ok(()), |what| {
        let mut labels = LabelsRef(bytes).to_string();
        if labels.len() > 200 {
            let cut = (0..=200).rev().find(|at| labels.is_char_boundary(*at)).unwrap_or(0);
            labels.truncate(cut);
            labels.push('…');
        }
        Err(SeriesError::InvalidLabels { labels, what })
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
        assert_eq!(labels.get("job"), Some("a"));
        assert_eq!(labels.get("absent"), None);
        let odd = Labels::new([("a.b", "x\"y"), ("__name__", "ä")]).unwrap();
        assert_eq!(odd.to_string(), "{__name__=\"ä\",\"a.b\"=\"x\\\"y\"}");
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
