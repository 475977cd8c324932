//! The order of the values of one command.
//!
//! Without a collation it is that of [`super::order`]. Keys of an order are those of [`super::key`].

use std::cmp::Ordering;

use crate::lang::budget::Held;
use crate::lang::error::LangResult;
use crate::lang::value::Value;
use crate::lang::value::collation::Collation;
use crate::lang::value::key;
use crate::lang::value::order::{compare, compare_by, holds_text};

/// The order of values: text by its bytes, or under a collation. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Order(Option<Collation>);

impl Order {
    pub(crate) fn of(collation: Option<&Collation>) -> Self {
        Self(collation.cloned())
    }

    pub(crate) fn collation(&self) -> Option<&Collation> {
        self.0.as_ref()
    }

    /// Compares two values.
    ///
    /// # Errors
    /// Under a collation: more memory than the command may use; an end of the command.
    pub(crate) fn compare(&self, a: Value<'_>, b: Value<'_>) -> LangResult<Ordering> {
        match &self.0 {
            Some(collation) if holds_text(a) && holds_text(b) => {
                let _held = Collation::charge(a.payload_bytes().saturating_add(b.payload_bytes()))?;
                Ok(compare_by(a, b, &|a, b| collation.compare(a, b)))
            }
            _ => Ok(compare(a, b)),
        }
    }

    /// Compares values of which either may be missing, like [`super::order::compare_options`].
    ///
    /// # Errors
    /// Those of [`Order::compare`].
    pub(crate) fn compare_options(&self, a: Option<Value<'_>>, b: Option<Value<'_>>) -> LangResult<Ordering> {
        self.compare(a.unwrap_or(Value::Undefined), b.unwrap_or(Value::Undefined))
    }

    /// The key of a value in this order.
    ///
    /// # Errors
    /// Those of [`Order::compare`].
    pub(crate) fn key(&self, value: Value<'_>) -> LangResult<Vec<u8>> {
        key::collated_key_of(value, self.0.as_ref())
    }

    /// Sorts values; equal ones remain in their order. `held` counts the memory of keys.
    ///
    /// # Errors
    /// Those of [`Order::compare`].
    pub(crate) fn sort(&self, values: &mut Vec<Value<'_>>, descending: bool, held: &Held) -> LangResult<()> {
        if self.0.is_none() {
            values.sort_by(|a, b| if descending { compare(*b, *a) } else { compare(*a, *b) });
            return Ok(());
        }
        let mut keyed = Vec::with_capacity(values.len());
        for value in values.iter() {
            let mut key = Vec::new();
            key::encode_collated(*value, self.0.as_ref(), descending, &mut key)?;
            held.take(2 * size_of::<(Vec<u8>, Value<'_>)>() + key.capacity())?;
            keyed.push((key, *value));
        }
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        values.clear();
        values.extend(keyed.into_iter().map(|(_, value)| value));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lang::value::Writer;

    fn order(locale: &str, strength: i32, is_numeric: bool) -> Order {
        let mut spec = Writer::new();
        spec.put("locale", Value::String(locale));
        spec.put("strength", Value::Int32(strength));
        spec.put("numericOrdering", Value::Bool(is_numeric));
        let spec = spec.finish();
        Order(Collation::parse(Some(Value::Document(spec.doc()))).expect("valid"))
    }

    /// Letters with and without accents, of several scripts, digits, marks, and what expands or is ignored.
    fn text() -> impl Strategy<Value = String> {
        let pieces = "aAbBzZäÄößéèñ中日ひアกเ0123 -_.'\u{0}\u{301}\u{308}\u{327}\u{fdfa}\u{ad}\u{200d}가ㄱ😀";
        let pieces: Vec<char> = pieces.chars().collect();
        let known = proptest::collection::vec(proptest::sample::select(pieces), 0..6);
        prop_oneof![9 => known.prop_map(String::from_iter), 1 => any::<String>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn values_compare_as_their_keys(
            one in text(),
            other in text(),
            locale in proptest::sample::select(vec!["en", "sv", "fr_CA", "th", "ja", "zh", "da", "lt"]),
            strength in 1..=5,
            is_numeric: bool,
        ) {
            let order = order(locale, strength, is_numeric);
            let compared = |a: Value<'_>, b: Value<'_>| {
                (order.compare(a, b).unwrap(), order.key(a).unwrap().cmp(&order.key(b).unwrap()))
            };
            let (a, b) = (Value::String(&one), Value::String(&other));
            let (by_values, by_keys) = compared(a, b);
            prop_assert_eq!(by_values, by_keys, "{:?} and {:?}", one, other);
            let list = |first, second| {
                let mut list = Writer::array();
                list.put("", first);
                list.put("", second);
                list.into_owned()
            };
            let (lists, reversed) = (list(a, b), list(b, a));
            let (by_values, by_keys) = compared(lists.value(), reversed.value());
            prop_assert_eq!(by_values, by_keys, "{:?} and {:?}", one, other);
        }
    }
}
