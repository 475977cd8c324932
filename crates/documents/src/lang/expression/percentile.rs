//! `$percentile` and `$median`: the numbers below which given shares of all numbers lie.
//!
//! The method `approximate` allows an error; these are exact. The percentile of share `p` of `n` numbers is
//! the one at position `ceil(p * n)` in sorted order, so it is one of the numbers.

use std::sync::Arc;

use crate::lang::budget::{Held, byte_steps, held};
use crate::lang::error::{LangError, refuse};
use crate::lang::expression::{Expression, Scope};
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::{Doc, Value};

/// Memory of a number while percentiles are computed: in a list whose capacity may be twice its length, and
/// in the sorted copy.
pub(crate) const NUMBER_BYTES: usize = 3 * size_of::<f64>();

/// Parsed shares. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Percentiles(Arc<Shares>);

#[derive(Debug)]
struct Shares {
    list: Vec<f64>,
    /// `$median`: the value itself, not an array of one.
    single: bool,
    /// The memory of the list.
    _held: Held,
}

impl Percentiles {
    /// The shares and the operand `input` of `$percentile` or `$median`.
    pub(crate) fn parse<'v>(
        name: &str,
        operand: Value<'v>,
        scope: &Scope<'_>,
    ) -> Result<(Self, Value<'v>), LangError> {
        let Value::Document(spec) = operand else {
            refuse!(7429703, "specification must be an object; found {name}: {operand}");
        };
        let single = name == "$median";
        let names: &[&str] = if single { &["input", "method"] } else { &["input", "p", "method"] };
        if let Some((other, _)) = spec.iter().find(|(own, _)| !names.contains(own)) {
            refuse!(40415, "BSON field '{name}.{other}' is an unknown field.");
        }
        let needed = |field: &str| match spec.get(field) {
            Some(value) => Ok(value),
            None => refuse!(40414, "BSON field '{name}.{field}' is missing but a required field"),
        };
        match needed("method")? {
            Value::String("approximate") => {}
            Value::String(_) => {
                refuse!(BadValue, "Currently only 'approximate' can be used as percentile 'method'.")
            }
            other => refuse!(
                TypeMismatch,
                "BSON field '{name}.method' is the wrong type '{}', expected type 'string'",
                other.type_name()
            ),
        }
        let input = needed("input")?;
        let held = held("$percentile");
        let list = if single { vec![0.5] } else { shares(needed("p")?, scope, &held)? };
        Ok((Self(Arc::new(Shares { list, single, _held: held })), input))
    }

    /// The percentiles of the numbers; null without numbers.
    pub(crate) fn of(&self, mut numbers: Vec<f64>) -> Answer {
        byte_steps(size_of_val(numbers.as_slice()))?;
        numbers.sort_unstable_by(f64::total_cmp);
        let at = |share: &f64| {
            let position = (share * numbers.len() as f64).ceil() as usize;
            numbers.get(position.saturating_sub(1)).map_or(Value::Null, |number| Value::Double(*number))
        };
        match self.0.list.first() {
            Some(only) if self.0.single => Ok(Val::Ref(at(only))),
            _ => val::array(self.0.list.iter().map(at)),
        }
    }
}

/// The number of a value that counts: NaN has no place in an order.
pub(crate) fn counted(value: Value<'_>) -> Option<f64> {
    value.as_double().filter(|number| !number.is_nan())
}

fn shares(value: Value<'_>, scope: &Scope<'_>, held: &Held) -> Result<Vec<f64>, LangError> {
    let expression = Expression::parse(value, scope)?;
    let constant = expression.evaluate_root(Doc::empty())?;
    let bad = |code: i32, found: Value<'_>| {
        let message = format!(
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {found}"
        );
        LangError::new(crate::lang::error::Code::Location(code), message)
    };
    let array = match constant.or_null() {
        Value::Array(array) if !array.is_empty() => array,
        other => return Err(bad(7750301, other)),
    };
    let share = |value: Value<'_>| {
        let number = value.as_double().ok_or_else(|| bad(7750302, value))?;
        if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(bad(7750303, value)) }
    };
    let count = array.values().count();
    held.take(count * size_of::<f64>())?;
    let mut list = Vec::with_capacity(count);
    for value in array.values() {
        list.push(share(value)?);
    }
    Ok(list)
}
