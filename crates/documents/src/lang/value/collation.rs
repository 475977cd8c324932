//! Collations: text ordered by the rules of a language instead of by its bytes.
//!
//! ```text
//! { locale: "en_US", strength: 2 }  ─▶  sort key of "Ann" = sort key of "ANN"
//! ```
//!
//! A collation maps each text to a sort key (Unicode Technical Standard 10, by ICU4X). Keys of values under a
//! collation are those of [`super::key`], with the sort key in place of the text; two values compare as
//! their keys do.
//!
//! Sort keys change with the version of the collation data, so an index stores that version, and a stored
//! collation of another version is rejected.
//!
//! Rejected: the variant `search`, for which ICU4X has no data, and `backwards: true`, which ICU4X offers for
//! French of Canada only, by its locale. Text is always normalized, whatever `normalization` says.

use std::fmt;
use std::sync::Arc;

use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale;

use crate::lang::error::{LangError, refuse};
use crate::lang::value::{Doc, DocBuf, Value, Writer};

/// Version of the sort keys: that of the crate `icu_collator`, which `Cargo.toml` pins.
const VERSION: &str = "icu4x-2.4";

/// Languages with a collation, as in MongoDB.
const LANGUAGES: &[&str] = &[
    "af", "am", "ar", "as", "az", "be", "bg", "bn", "bo", "bs", "ca", "chr", "cs", "cy", "da", "de", "dsb",
    "dz", "ee", "el", "en", "eo", "es", "et", "fa", "fi", "fil", "fo", "fr", "ga", "gl", "gu", "ha", "haw",
    "he", "hi", "hr", "hsb", "hu", "hy", "id", "ig", "is", "it", "ja", "ka", "kk", "kl", "km", "kn", "ko",
    "kok", "ky", "lb", "ln", "lo", "lt", "lv", "mk", "ml", "mn", "mr", "ms", "mt", "my", "nb", "ne", "nl",
    "nn", "om", "or", "pa", "pl", "ps", "pt", "ro", "ru", "se", "si", "sk", "sl", "smn", "sq", "sr", "sv",
    "sw", "ta", "te", "th", "to", "tr", "ug", "uk", "ur", "vi", "wae", "yi", "yo", "zh", "zu",
];

const FIELDS: &[&str] = &[
    "locale",
    "caseLevel",
    "caseFirst",
    "strength",
    "numericOrdering",
    "alternate",
    "maxVariable",
    "normalization",
    "backwards",
    "version",
];

/// A collation other than the simple one, which compares bytes. Cheap to clone.
#[derive(Clone)]
pub struct Collation {
    /// All options, in MongoDB's order.
    spec: DocBuf,
    collator: Arc<CollatorBorrowed<'static>>,
}

impl fmt::Debug for Collation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Collation({})", self.spec.doc())
    }
}

/// Equal options.
impl PartialEq for Collation {
    fn eq(&self, other: &Self) -> bool {
        self.spec.bytes() == other.spec.bytes()
    }
}

impl Collation {
    /// Parses a command's or an index's `collation`; `None` for the simple one.
    ///
    /// # Errors
    /// `BadValue` for an unknown locale or option, `CommandNotSupported` for `backwards: true` and for sort
    /// keys of another version.
    pub fn parse(collation: Option<Value<'_>>) -> Result<Option<Self>, LangError> {
        let spec = match collation {
            None => return Ok(None),
            Some(Value::Document(spec)) if spec.is_empty() => return Ok(None),
            Some(Value::Document(spec)) => spec,
            Some(other) => refuse!(TypeMismatch, "collation must be an object, not {}", other.type_name()),
        };
        if let Some((name, _)) = spec.iter().find(|(name, _)| !FIELDS.contains(name)) {
            refuse!(40415, "BSON field 'collation.{name}' is an unknown field.");
        }
        let Some(locale) = spec.get("locale").and_then(Value::as_str) else {
            refuse!(40414, "BSON field 'collation.locale' is missing but a required field");
        };
        if locale == "simple" {
            return match spec.iter().count() {
                1 => Ok(None),
                _ => refuse!(BadValue, "the collation 'simple' takes no other option: {spec}"),
            };
        }
        if let Some(other) = spec.get("version")
            && other.as_str() != Some(VERSION)
        {
            refuse!(CommandNotSupported, "sort keys of version {other}; this server has {VERSION}");
        }
        let parsed = Parsed::of(spec)?;
        let Some(preferences) = preferences(locale) else {
            refuse!(BadValue, "Field 'locale' is invalid in: {spec}");
        };
        let Ok(collator) = CollatorBorrowed::try_new(parsed.preferences(preferences), parsed.options()) else {
            refuse!(BadValue, "Field 'locale' is invalid in: {spec}");
        };
        Ok(Some(Self { spec: parsed.spec(locale), collator: Arc::new(collator) }))
    }

    /// Its options, all of them, as MongoDB lists them.
    #[must_use]
    pub fn spec(&self) -> Doc<'_> {
        self.spec.doc()
    }

    /// The sort key of a text: bytes that compare as the texts do.
    pub(crate) fn sort_key(&self, text: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(2 * text.len() + 8);
        let Ok(()) = self.collator.write_sort_key_to(text, &mut key);
        key
    }
}

/// Options of a collation, with the defaults of those that are not given.
struct Parsed {
    case_level: bool,
    case_first: &'static str,
    strength: i64,
    numeric: bool,
    alternate: &'static str,
    max_variable: &'static str,
    normalization: bool,
}

impl Parsed {
    fn of(spec: Doc<'_>) -> Result<Self, LangError> {
        let strength = match spec.get("strength") {
            None => 3,
            Some(value) => match value.as_integer() {
                Some(strength @ 1..=5) => strength,
                _ => refuse!(BadValue, "Field 'strength' must be an integer from 1 to 5: {value}"),
            },
        };
        if flag(spec, "backwards")? {
            refuse!(CommandNotSupported, "a collation with 'backwards: true' is not offered");
        }
        Ok(Self {
            case_level: flag(spec, "caseLevel")?,
            case_first: choice(spec, "caseFirst", &["off", "upper", "lower"])?,
            strength,
            numeric: flag(spec, "numericOrdering")?,
            alternate: choice(spec, "alternate", &["non-ignorable", "shifted"])?,
            max_variable: choice(spec, "maxVariable", &["punct", "space"])?,
            normalization: flag(spec, "normalization")?,
        })
    }

    fn preferences(&self, mut locale: CollatorPreferences) -> CollatorPreferences {
        locale.case_first = match self.case_first {
            "upper" => Some(CollationCaseFirst::Upper),
            "lower" => Some(CollationCaseFirst::Lower),
            _ => None,
        };
        locale.numeric_ordering = self.numeric.then_some(CollationNumericOrdering::True);
        locale
    }

    fn options(&self) -> CollatorOptions {
        let mut options = CollatorOptions::default();
        options.strength = Some(match self.strength {
            1 => Strength::Primary,
            2 => Strength::Secondary,
            3 => Strength::Tertiary,
            4 => Strength::Quaternary,
            _ => Strength::Identical,
        });
        options.case_level = Some(if self.case_level { CaseLevel::On } else { CaseLevel::Off });
        options.alternate_handling = Some(match self.alternate {
            "shifted" => AlternateHandling::Shifted,
            _ => AlternateHandling::NonIgnorable,
        });
        options.max_variable = Some(match self.max_variable {
            "space" => MaxVariable::Space,
            _ => MaxVariable::Punctuation,
        });
        options
    }

    fn spec(&self, locale: &str) -> DocBuf {
        let mut out = Writer::new();
        out.put("locale", Value::String(locale));
        out.put("caseLevel", Value::Bool(self.case_level));
        out.put("caseFirst", Value::String(self.case_first));
        out.put("strength", Value::Int32(self.strength as i32));
        out.put("numericOrdering", Value::Bool(self.numeric));
        out.put("alternate", Value::String(self.alternate));
        out.put("maxVariable", Value::String(self.max_variable));
        out.put("normalization", Value::Bool(self.normalization));
        out.put("backwards", Value::Bool(false));
        out.put("version", Value::String(VERSION));
        out.finish()
    }
}

fn flag(spec: Doc<'_>, name: &str) -> Result<bool, LangError> {
    match spec.get(name) {
        None => Ok(false),
        Some(Value::Bool(set)) => Ok(set),
        Some(other) => refuse!(TypeMismatch, "Field '{name}' must be a boolean: {other}"),
    }
}

/// One of the names; the first is the default.
fn choice(spec: Doc<'_>, name: &str, names: &[&'static str]) -> Result<&'static str, LangError> {
    let Some(value) = spec.get(name) else { return Ok(names.first().copied().unwrap_or_default()) };
    match names.iter().copied().find(|known| value.as_str() == Some(*known)) {
        Some(known) => Ok(known),
        None => refuse!(BadValue, "Field '{name}' must be one of {names:?}: {value}"),
    }
}

/// The preferences of a locale in ICU's notation: `de_AT`, `zh@collation=stroke`.
fn preferences(locale: &str) -> Option<CollatorPreferences> {
    let (name, variant) = match locale.split_once("@collation=") {
        Some((name, variant)) => (name, Some(variant)),
        None => (locale, None),
    };
    if !LANGUAGES.contains(&name.split('_').next()?) {
        return None;
    }
    let mut tag = name.replace('_', "-");
    if let Some(variant) = variant {
        let kind = match variant {
            "phonebook" => "phonebk",
            "traditional" => "trad",
            "dictionary" => "dict",
            "stroke" | "pinyin" | "zhuyin" | "unihan" | "compat" | "phonetic" | "eor" => variant,
            _ => return None,
        };
        tag = format!("{tag}-u-co-{kind}");
    }
    Some(CollatorPreferences::from(&tag.parse::<Locale>().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lang::value::order;

    fn collation(locale: &str, strength: i32) -> Collation {
        let mut spec = Writer::new();
        spec.put("locale", Value::String(locale));
        spec.put("strength", Value::Int32(strength));
        let spec = spec.finish();
        Collation::parse(Some(Value::Document(spec.doc()))).expect("valid").expect("not simple")
    }

    #[test]
    fn strength_decides_which_differences_count() {
        let same = |strength, one: &str, other: &str| {
            let collation = collation("en_US", strength);
            collation.sort_key(one) == collation.sort_key(other)
        };
        assert!(same(1, "resume", "Résumé"));
        assert!(!same(2, "resume", "résumé"));
        assert!(same(2, "Ann", "ANN"));
        assert!(!same(3, "Ann", "ANN"));
    }

    #[test]
    fn locale_decides_the_order() {
        // In Swedish ö is the last letter; in German it is a variant of o.
        let before = |locale, one: &str, other: &str| {
            let collation = collation(locale, 3);
            collation.sort_key(one) < collation.sort_key(other)
        };
        assert!(before("sv", "zebra", "öl"));
        assert!(before("de", "öl", "zebra"));
        assert!(order::compare(Value::String("Z"), Value::String("a")).is_lt());
        assert!(before("en", "a", "Z"));
    }

    #[test]
    fn stored_spec_parses_to_the_same_collation() {
        let one = collation("de@collation=phonebook", 2);
        let again = Collation::parse(Some(Value::Document(one.spec()))).expect("valid").expect("not simple");
        assert_eq!(one, again);
        assert_ne!(one, collation("de", 2));
    }
}
