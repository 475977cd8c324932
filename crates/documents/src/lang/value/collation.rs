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
//! collation of another version is rejected. A change of `VERSION` needs code that rebuilds these indexes.
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

    fn parse(fields: &[(&str, Value<'_>)]) -> LangResult<Option<Collation>> {
        let mut spec = Writer::new();
        fields.iter().for_each(|(name, value)| spec.put(name, *value));
        let spec = spec.finish();
        Collation::parse(Some(Value::Document(spec.doc())))
    }

    fn with(locale: &str, more: &[(&str, Value<'_>)]) -> Collation {
        let fields = [&[("locale", Value::String(locale))], more].concat();
        parse(&fields).expect("valid").expect("not simple")
    }

    fn collation(locale: &str, strength: i32) -> Collation {
        with(locale, &[("strength", Value::Int32(strength))])
    }

    fn is_before(collation: &Collation, one: &str, other: &str) -> bool {
        collation.sort_key(one).unwrap() < collation.sort_key(other).unwrap()
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
        // Composed and decomposed text is the same, except for the last strength.
        assert!(same(4, "\u{e9}", "e\u{301}") && same(5, "\u{e9}", "e\u{301}"));
    }

    #[test]
    fn locale_decides_the_order() {
        // In Swedish ö is the last letter; in German it is a variant of o.
        assert!(is_before(&collation("sv", 3), "zebra", "öl"));
        assert!(is_before(&collation("de", 3), "öl", "zebra"));
        assert!(order::compare(Value::String("Z"), Value::String("a")).is_lt());
        assert!(is_before(&collation("en", 3), "a", "Z"));
        // In a phone book ö is oe.
        assert!(is_before(&collation("de", 3), "of", "öl"));
        assert!(is_before(&collation("de@collation=phonebook", 3), "öl", "of"));
    }

    #[test]
    fn options_change_the_order() {
        let on = Value::Bool(true);
        assert!(is_before(&with("en", &[]), "a10", "a2"));
        assert!(is_before(&with("en", &[("numericOrdering", on)]), "a2", "a10"));
        assert!(is_before(&with("en", &[]), "a", "A"));
        assert!(is_before(&with("en", &[("caseFirst", Value::String("upper"))]), "A", "a"));
        let level = with("en", &[("strength", Value::Int32(1)), ("caseLevel", on)]);
        assert!(is_before(&level, "a", "A") && level.sort_key("a").unwrap() == level.sort_key("á").unwrap());
        let shifted = [("strength", Value::Int32(1)), ("alternate", Value::String("shifted"))];
        let key = |fields: &[_], text: &str| with("en", fields).sort_key(text).unwrap();
        assert_eq!(key(&shifted, "co-op"), key(&shifted, "coop"));
        assert_ne!(key(&shifted[..1], "co-op"), key(&shifted[..1], "coop"));
        let spaces = [shifted[0], shifted[1], ("maxVariable", Value::String("space"))];
        assert_ne!(key(&spaces, "co-op"), key(&spaces, "coop"));
        assert_eq!(key(&spaces, "co op"), key(&spaces, "coop"));
    }

    #[test]
    fn stored_spec_parses_to_the_same_collation() {
        for locale in ["de@collation=phonebook", "da", "th", "fr_CA", "en_US_POSIX", "zh@collation=stroke"] {
            let one = collation(locale, 2);
            let again =
                Collation::parse(Some(Value::Document(one.spec()))).expect("valid").expect("not simple");
            assert_eq!(one, again);
        }
        assert_ne!(collation("de@collation=phonebook", 2), collation("de", 2));
    }

    #[test]
    fn options_of_the_locale_are_listed() {
        let option = |locale, name| with(locale, &[]).spec().get(name).map(|value| value.to_string());
        assert_eq!(option("da", "caseFirst"), Some("\"upper\"".to_owned()));
        assert_eq!(option("en", "caseFirst"), Some("\"off\"".to_owned()));
        assert_eq!(option("fr_CA", "backwards"), Some("true".to_owned()));
        assert_eq!(option("en", "strength"), Some("3".to_owned()));
    }

    #[test]
    fn invalid_collation_is_rejected_with_mongodbs_codes() {
        let text = Value::String;
        let en = ("locale", text("en"));
        for (fields, code) in [
            (vec![("strength", Value::Int32(1))], 40414),
            (vec![("locale", Value::Int32(1))], 14),
            (vec![("locale", text("klingon"))], 2),
            (vec![("locale", text(""))], 2),
            (vec![("locale", text("en-US"))], 2),
            (vec![("locale", text("en_u_ks_level1"))], 2),
            (vec![("locale", text("en@collation=phonebook"))], 2),
            (vec![("locale", text("de@collation=search"))], 2),
            (vec![("locale", text("en@collation="))], 2),
            (vec![("locale", text("simple")), ("strength", Value::Int32(1))], 2),
            (vec![en, ("colour", Value::Int32(1))], 40415),
            (vec![en, ("strength", Value::Int32(0))], 2),
            (vec![en, ("strength", Value::Int32(6))], 2),
            (vec![en, ("strength", Value::Double(1.5))], 2),
            (vec![en, ("strength", text("1"))], 2),
            (vec![en, ("caseLevel", Value::Int32(1))], 14),
            (vec![en, ("caseFirst", text("sideways"))], 2),
            (vec![en, ("alternate", Value::Null)], 2),
            (vec![en, ("maxVariable", text("symbol"))], 2),
            (vec![en, ("backwards", Value::Bool(true))], 115),
            (vec![en, ("version", text("57.1"))], 161),
        ] {
            let error = parse(&fields).unwrap_err();
            assert_eq!(error.code.number(), code, "{fields:?}: {error}");
        }
        assert_eq!(parse(&[]).unwrap(), None);
        assert_eq!(parse(&[("locale", text("simple"))]).unwrap(), None);
        assert_eq!(Collation::parse(Some(Value::Int32(1))).unwrap_err().code.number(), 14);
    }

    #[test]
    fn sort_key_has_the_bytes_of_its_version() {
        // A change of these bytes needs another version, and code that rebuilds indexes of this one.
        assert_eq!(VERSION, "icu4x-2.4");
        let key = |locale, strength, text| {
            let key = collation(locale, strength).sort_key(text).unwrap();
            key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(
            [key("en", 3, "Résumé 7"), key("en", 1, "Résumé 7"), key("sv", 2, "Öl"), key("zh", 3, "中文"),],
            ["4d334f534333042001448842880601dc0d", "4d334f5343330420", "5e7f04410106", "9c4c8a6701060106"]
        );
    }
}
