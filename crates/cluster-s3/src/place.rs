//! The place of the objects: a bucket and a prefix of keys.

/// How a place in S3 begins.
const SCHEME: &str = "s3://";

/// Longest key prefix. Names of objects add at most 64 bytes, and S3 has keys of at most 1,024.
const PREFIX_BYTES_MAX: usize = 512;

/// A bucket and a key prefix, from `s3://BUCKET` or `s3://BUCKET/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Place {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix of all keys, without a slash at its ends; may be empty.
    pub prefix: String,
}

impl S3Place {
    /// True if `text` names a place in S3, which [`S3Place::parse`] may refuse.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Parses the text of a place.
    ///
    /// # Errors
    /// It does not begin with `s3://`, the bucket is empty, or a name has other characters than letters, digits and `-_.`, or is
    /// `.` or `..`, or too long. The reason, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| format!("{text} does not begin with {SCHEME}"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !is_plain(bucket) {
            return Err(format!("{text} names no bucket: write {SCHEME}BUCKET/PREFIX"));
        }
        let has_plain_parts = prefix.is_empty() || prefix.split('/').all(is_plain);
        if !has_plain_parts || prefix.len() > PREFIX_BYTES_MAX {
            return Err(format!(
                "the prefix of {text} must have at most {PREFIX_BYTES_MAX} letters, digits and characters of -_. between slashes"
            ));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// The key of the object `name`.
    pub(crate) fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }
}

fn is_plain(part: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_and_prefix_are_parsed() {
        let parsed = |text| S3Place::parse(text).map(|place| (place.bucket.clone(), place.key("a/1")));
        assert_eq!(parsed("s3://b"), Ok(("b".to_owned(), "a/1".to_owned())));
        assert_eq!(parsed("s3://b/"), Ok(("b".to_owned(), "a/1".to_owned())));
        assert_eq!(parsed("s3://b/x/y/"), Ok(("b".to_owned(), "x/y/a/1".to_owned())));
    }

    #[test]
    fn other_places_are_refused() {
        for text in [
            "b",
            "s3:/b",
            "s3://",
            "s3:///x",
            "s3://b//x",
            "s3://b/..",
            "s3://b/a b",
            "s3://b/x?y",
            "s3://u@b/x",
        ] {
            assert!(S3Place::parse(text).is_err(), "{text}");
        }
        assert!(S3Place::parse(&format!("s3://b/{}", "x".repeat(PREFIX_BYTES_MAX + 1))).is_err());
    }
}
