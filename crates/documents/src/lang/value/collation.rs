//! Collations: text ordered by the rules of a language instead of by its bytes.
//!
//! ```text
//! { locale: "en_US", strength: 2 }  ─▶  sort key of "Ann" = sort key of "ANN"
//! ```
//!
//! A collation maps each text to a sort key (Unicode Technical Standard 10, by ICU4X). Keys of values under a
//! collation are those of [`super::key`], with the sort key in place of the text; two values compare as
//! their keys do. Text takes more memory while it is compared than its bytes; see [`Collation::charge`].
//!
//! Sort keys change with the version of the collation data, so an index stores that version, and a stored
//! collation of another version is rejected.
//!
//! Rejected: variants for which ICU4X has no data (`search`, `big5han`, `gb2312han`), and a `backwards` other than
//! the locale's, which ICU4X sets for the French of Canada only. Text is always normalized, whatever
//! `normalization` says.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use icu_locale_core::{LanguageIdentifier, Locale};

use crate::lang::budget::{Held, held, steps};
use crate::lang::error::{LangResult, refuse};
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

/// Variants of collations and the languages that have them: MongoDB's name, and that of the Unicode locale.
const VARIANTS: &[(&str, &str, &[&str])] = &[
    ("compat", "compat", &["ar"]),
    ("dictionary", "dict", &["si"]),
    ("eor", "eor", &["de"]),
    ("phonebook", "phonebk", &["de"]),
    ("phonetic", "phonetic", &["ln"]),
    ("pinyin", "pinyin", &["zh"]),
    ("stroke", "stroke", &["zh"]),
    ("traditional", "trad", &["bn", "es", "fi", "kn", "sv", "vi"]),
    ("zhuyin", "zhuyin", &["zh"]),
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

/// Size of text that is compared without counting its memory.
const UNCOUNTED_BYTES: usize = 4 << 10;
/// Memory for each byte of text while it is compared or its sort key is made: a letter has a collation element
/// of eight bytes in a list that may be twice as long. Other characters have up to 18 of them for three bytes.
const ASCII_BYTES_PER_BYTE: usize = 16;
const BYTES_PER_BYTE: usize = 128;

/// A collation other than the simple one, which compares bytes. Cheap to clone.
#[derive(Clone)]
pub struct Collation(Arc<Inner>);

struct Inner {
    /// All options, in MongoDB's order.
    spec: DocBuf,
    collator: CollatorBorrowed<'static>,
}

impl fmt::Debug for Collation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Collation({})", self.spec())
    }
}

/// Equal options.
impl PartialEq for Collation {
    fn eq(&self, other: &Self) -> bool {
        self.0.spec.bytes() == other.0.spec.bytes()
    }
}

impl Collation {
    /// Parses a command's or an index's `collation`; `None` for the simple one.
    ///
    /// # Errors
    /// `BadValue` for an unknown locale or option, `IncompatibleCollationVersion` for sort keys of another
    /// version, `CommandNotSupported` for `backwards`.
    pub fn parse(collation: Option<Value<'_>>) -> LangResult<Option<Self>> {
        let spec = match collation {
            None => return Ok(None),
            Some(Value::Document(spec)) if spec.is_empty() => return Ok(None),
            Some(Value::Document(spec)) => spec,
            Some(other) => refuse!(TypeMismatch, "collation must be an object, not {}", other.type_name()),
        };
        if let Some((name, _)) = spec.iter().find(|(name, _)| !FIELDS.contains(name)) {
            refuse!(40415, "BSON field 'collation.{name}' is an unknown field.");
        }
        let locale = match spec.get("locale") {
            Some(Value::String(locale)) => locale,
            Some(other) => refuse!(
                TypeMismatch,
                "BSON field 'collation.locale' is the wrong type '{}', expected type 'string'",
                other.type_name()
            ),
            None => refuse!(40414, "BSON field 'collation.locale' is missing but a required field"),
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
            refuse!(
                IncompatibleCollationVersion,
                "Requested collation version {other} but the only available version is {VERSION:?}"
            );
        }
        let Some(preferences) = preferences(locale) else {
            refuse!(BadValue, "Field 'locale' is invalid in: {spec}");
        };
        let backwards = has_backwards(locale);
        if flag(spec, "backwards")?.is_some_and(|wanted| wanted != backwards) {
            refuse!(
                CommandNotSupported,
                "the locale {locale:?} has 'backwards: {backwards}'; the other one is not offered"
            );
        }
        let normalization = flag(spec, "normalization")?.unwrap_or(false);
        let (preferences, options) = (preferred(spec, preferences)?, options(spec)?);
        let Ok(collator) = CollatorBorrowed::try_new(preferences, options) else {
            refuse!(BadValue, "Field 'locale' is invalid in: {spec}");
        };
        let spec = resolved(locale, &collator, normalization);
        Ok(Some(Self(Arc::new(Inner { spec, collator }))))
    }

    /// Its options, all of them, as MongoDB lists them.
    #[must_use]
    pub fn spec(&self) -> Doc<'_> {
        self.0.spec.doc()
    }

    /// The sort key of a text: bytes that compare as the texts do.
    ///
    /// # Errors
    /// More memory than the command may use; an end of the command.
    pub(crate) fn sort_key(&self, text: &str) -> LangResult<Vec<u8>> {
        let _held = charge(text.len(), text.is_ascii())?;
        let mut key = Vec::with_capacity(2 * text.len() + 8);
        let Ok(()) = self.0.collator.write_sort_key_to(text, &mut key);
        Ok(key)
    }

    /// Compares two texts as their sort keys do, without making these. The caller counts the memory, with
    /// [`Collation::charge`].
    pub(crate) fn compare(&self, a: &str, b: &str) -> Ordering {
        self.0.collator.compare(a, b)
    }

    /// Counts the time of comparing so many bytes of values, and their memory until the result is dropped.
    pub(crate) fn charge(bytes: usize) -> LangResult<Option<Held>> {
        charge(bytes, false)
    }
}

fn charge(bytes: usize, is_ascii: bool) -> LangResult<Option<Held>> {
    steps(bytes)?;
    if bytes <= UNCOUNTED_BYTES {
        return Ok(None);
    }
    let held = held("text under a collation");
    held.take(bytes.saturating_mul(if is_ascii { ASCII_BYTES_PER_BYTE } else { BYTES_PER_BYTE }))?;
    Ok(Some(held))
}

fn preferred(spec: Doc<'_>, mut locale: CollatorPreferences) -> LangResult<CollatorPreferences> {
    let cases = [
        ("upper", CollationCaseFirst::Upper),
        ("lower", CollationCaseFirst::Lower),
        ("off", CollationCaseFirst::False),
    ];
    locale.case_first = choice(spec, "caseFirst", cases)?;
    locale.numeric_ordering = flag(spec, "numericOrdering")?
        .map(|set| if set { CollationNumericOrdering::True } else { CollationNumericOrdering::False });
    Ok(locale)
}

/// The options of a collation; those that are not given are the locale's.
fn options(spec: Doc<'_>) -> LangResult<CollatorOptions> {
    let mut options = CollatorOptions::default();
    options.strength = match spec.get("strength") {
        None => None,
        Some(value) => match value.as_integer().filter(|_| value.is_number()) {
            Some(1) => Some(Strength::Primary),
            Some(2) => Some(Strength::Secondary),
            Some(3) => Some(Strength::Tertiary),
            Some(4) => Some(Strength::Quaternary),
            Some(5) => Some(Strength::Identical),
            _ => refuse!(BadValue, "Field 'strength' must be an integer from 1 to 5: {value}"),
        },
    };
    let levels = |set| if set { CaseLevel::On } else { CaseLevel::Off };
    options.case_level = flag(spec, "caseLevel")?.map(levels);
    let alternates =
        [("non-ignorable", AlternateHandling::NonIgnorable), ("shifted", AlternateHandling::Shifted)];
    options.alternate_handling = choice(spec, "alternate", alternates)?;
    let variables = [("punct", MaxVariable::Punctuation), ("space", MaxVariable::Space)];
    options.max_variable = choice(spec, "maxVariable", variables)?;
    Ok(options)
}

/// All options of a collator.
fn resolved(locale: &str, collator: &CollatorBorrowed<'static>, normalization: bool) -> DocBuf {
    let options = collator.resolved_options();
    let mut out = Writer::new();
    out.put("locale", Value::String(locale));
    out.put("caseLevel", Value::Bool(options.case_level == CaseLevel::On));
    let case_first = match options.case_first {
        CollationCaseFirst::Upper => "upper",
        CollationCaseFirst::Lower => "lower",
        _ => "off",
    };
    out.put("caseFirst", Value::String(case_first));
    let strength = match options.strength {
        Strength::Primary => 1,
        Strength::Secondary => 2,
        Strength::Quaternary => 4,
        Strength::Identical => 5,
        _ => 3,
    };
    out.put("strength", Value::Int32(strength));
    out.put("numericOrdering", Value::Bool(options.numeric == CollationNumericOrdering::True));
    let alternate = match options.alternate_handling {
        AlternateHandling::Shifted => "shifted",
        _ => "non-ignorable",
    };
    out.put("alternate", Value::String(alternate));
    let max_variable = match options.max_variable {
        MaxVariable::Space => "space",
        _ => "punct",
    };
    out.put("maxVariable", Value::String(max_variable));
    out.put("normalization", Value::Bool(normalization));
    out.put("backwards", Value::Bool(has_backwards(locale)));
    out.put("version", Value::String(VERSION));
    out.finish()
}

/// Whether accents are compared from the end of the text.
fn has_backwards(locale: &str) -> bool {
    locale == "fr_CA"
}

fn flag(spec: Doc<'_>, name: &str) -> LangResult<Option<bool>> {
    match spec.get(name) {
        None => Ok(None),
        Some(Value::Bool(set)) => Ok(Some(set)),
        Some(other) => refuse!(
            TypeMismatch,
            "BSON field 'collation.{name}' is the wrong type '{}', expected type 'bool'",
            other.type_name()
        ),
    }
}

/// One of the named values.
fn choice<T: Copy, const N: usize>(
    spec: Doc<'_>,
    name: &str,
    values: [(&str, T); N],
) -> LangResult<Option<T>> {
    let Some(value) = spec.get(name) else { return Ok(None) };
    match values.iter().find(|(known, _)| value.as_str() == Some(*known)) {
        Some((_, known)) => Ok(Some(*known)),
        None => {
            let names = values.map(|(known, _)| known).join(", ");
            refuse!(BadValue, "Field '{name}' must be one of {names}: {value}")
        }
    }
}

/// The preferences of a locale in ICU's notation: `de_AT`, `zh@collation=stroke`.
fn preferences(locale: &str) -> Option<CollatorPreferences> {
    let (name, variant) = match locale.split_once("@collation=") {
        Some((name, variant)) => (name, Some(variant)),
        None => (locale, None),
    };
    let language = name.split('_').next().filter(|language| LANGUAGES.contains(language))?;
    // Extensions of the Unicode locale would override the options.
    let tag = name.replace('_', "-").parse::<LanguageIdentifier>().ok()?;
    let locale = match variant {
        None => Locale::from(tag),
        Some(variant) => {
            let has = |known: &&(&str, &str, &[&str])| known.0 == variant && known.2.contains(&language);
            let (_, kind, _) = VARIANTS.iter().find(has)?;
            format!("{tag}-u-co-{kind}").parse().ok()?
        }
    };
    Some(CollatorPreferences::from(&locale))
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
            collation.sort_key(one).unwrap() == collation.sort_key(other).unwrap()
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
            collation.sort_key(one).unwrap() < collation.sort_key(other).unwrap()
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
