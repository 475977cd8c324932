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
