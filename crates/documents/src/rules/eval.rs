//! Evaluation of rules.
//!
//! As in CEL, an error makes the result an error, unless the other operand of `&&` or `||` decides alone.
//! Numbers of all types compare by value; integer overflow is an error. The number of steps bounds the work
//! of a rule.

use std::cell::Cell;

use super::parse::{Each, Expr, Function, Operator};
use crate::lang::display::hex;
use crate::lang::val::Val;
use crate::lang::{Owned, Value, Writer, order};

/// Steps of one evaluation.
const STEPS_MAX: u32 = 100_000;

/// Names and their values; a macro's variable hides outer variables of the same name.
#[derive(Clone, Copy)]
pub(super) struct Scope<'s> {
    name: &'s str,
    value: Value<'s>,
    outer: Option<&'s Scope<'s>>,
}

impl<'s> Scope<'s> {
    pub(super) fn new(name: &'s str, value: Value<'s>, outer: Option<&'s Scope<'s>>) -> Self {
        Self { name, value, outer }
    }

    fn find(&self, name: &str) -> Option<Value<'s>> {
        if self.name == name { Some(self.value) } else { self.outer?.find(name) }
    }
}

type Answer<'e> = Result<Val<'e>, String>;

/// Evaluates a rule to true, false, or an error.
pub(super) fn decides(expr: &Expr, scope: &Scope<'_>) -> Result<bool, String> {
    truth(&Run { steps: Cell::new(0) }.of(expr, scope)?)
}

struct Run {
    steps: Cell<u32>,
}

fn truth(value: &Val<'_>) -> Result<bool, String> {
    match value.get() {
        Some(Value::Bool(truth)) => Ok(truth),
        _ => Err(format!("expected true or false, found {}", value.type_name())),
    }
}

fn bool(truth: bool) -> Val<'static> {
    Val::Ref(Value::Bool(truth))
}

/// Applies `find` to a temporary or borrowed value.
fn within<'e>(value: Val<'e>, find: impl for<'v> Fn(Value<'v>) -> Result<Value<'v>, String>) -> Answer<'e> {
    match value {
        Val::Ref(value) => Ok(Val::Ref(find(value)?)),
        Val::Own(owned) => Ok(Val::Own(find(owned.value())?.into())),
        Val::Missing => Err("the value is missing".into()),
    }
}

impl Run {
    fn of<'e>(&self, expr: &'e Expr, scope: &'e Scope<'e>) -> Answer<'e> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX {
            return Err(format!("more than {STEPS_MAX} steps"));
        }
        Ok(match expr {
            Expr::Literal(value) => Val::Ref(value.value()),
            Expr::Variable(name) => {
                Val::Ref(scope.find(name).ok_or_else(|| format!("there is no variable {name:?}"))?)
            }
            Expr::Field(target, name) => within(self.of(target, scope)?, |value| field(value, name))?,
            Expr::Has(target, name) => bool(field(self.of(target, scope)?.or_null(), name).is_ok()),
            Expr::Index(target, index) => {
                let index = self.of(index, scope)?;
                within(self.of(target, scope)?, |value| element(value, index.or_null()))?
            }
            Expr::List(items) => {
                let items = items.iter().map(|item| self.of(item, scope)).collect::<Result<Vec<_>, _>>()?;
                Val::Own(Owned::array(items.iter().map(Val::or_null)))
            }
            Expr::Map(fields) => {
                let mut out = Writer::new();
                for (key, value) in fields {
                    let key = self.of(key, scope)?;
                    let name = key.get().and_then(Value::as_str).ok_or("the keys of a map are texts")?;
                    out.put(name, self.of(value, scope)?.or_null());
                }
                Val::Own(Owned::document(out.finish()))
            }
            Expr::Not(inner) => bool(!truth(&self.of(inner, scope)?)?),
            Expr::Negative(inner) => negative(self.of(inner, scope)?.or_null())?,
            Expr::And(left, right) => bool(self.either(left, right, scope, false)?),
            Expr::Or(left, right) => bool(self.either(left, right, scope, true)?),
            Expr::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                self.of(if truth(&self.of(condition, scope)?)? { yes } else { no }, scope)?
            }
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.of(left, scope)?, self.of(right, scope)?);
                binary(*operator, left.or_null(), right.or_null())?
            }
            Expr::Call(function, arguments) => {
                let arguments = arguments
                    .iter()
                    .map(|argument| self.of(argument, scope))
                    .collect::<Result<Vec<_>, _>>()?;
                call(*function, &arguments)?
            }
            Expr::Matches(target, pattern) => match self.of(target, scope)?.get() {
                Some(Value::String(text)) => bool(pattern.is_match(text).map_err(|error| error.message)?),
                _ => return Err("matches() takes a text".into()),
            },
            Expr::Each(each, range, name, body) => self.each(*each, (range, name, body), scope)?,
        })
    }

    /// `&&` (decided by false) and `||` (decided by true): one operand may decide even if the other fails.
    fn either<'e>(
        &self,
        left: &'e Expr,
        right: &'e Expr,
        scope: &'e Scope<'e>,
        deciding: bool,
    ) -> Result<bool, String> {
        let left = self.of(left, scope).and_then(|value| truth(&value));
        if left == Ok(deciding) {
            return Ok(deciding);
        }
        let right = self.of(right, scope).and_then(|value| truth(&value));
        if right == Ok(deciding) { Ok(deciding) } else { left.and(right) }
    }

    fn each<'e>(
        &self,
        each: Each,
        (range, name, body): (&'e Expr, &'e str, &'e Expr),
        scope: &'e Scope<'e>,
    ) -> Answer<'static> {
        let range = self.of(range, scope)?;
        let items: Vec<Owned> = match range.get() {
            Some(Value::Array(array)) => array.values().map(Owned::from).collect(),
            Some(Value::Document(map)) => map.iter().map(|(name, _)| Value::String(name).into()).collect(),
            _ => return Err(format!("expected a list or a map, found {}", range.type_name())),
        };
        let (mut found, mut kept, mut failure) = (0_usize, Vec::new(), None);
        for item in &items {
            let inner = Scope::new(name, item.value(), Some(scope));
            let value = self.of(body, &inner);
            if each == Each::Map {
                kept.push(Owned::from(value?.or_null()));
                continue;
            }
            match value.and_then(|value| truth(&value)) {
                Ok(true) if each == Each::Exists => return Ok(bool(true)),
                Ok(false) if each == Each::All => return Ok(bool(false)),
                Ok(true) => {
                    found += 1;
                    kept.push(item.clone());
                }
                Ok(false) => {}
                // Another element may still decide.
                Err(error) if matches!(each, Each::All | Each::Exists) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        Ok(match each {
            Each::All => bool(true),
            Each::Exists => bool(false),
            Each::ExistsOne => bool(found == 1),
            Each::Map | Each::Filter => Val::Own(Owned::array(kept.iter().map(Owned::value))),
        })
    }
}

fn field<'v>(value: Value<'v>, name: &str) -> Result<Value<'v>, String> {
    match value {
        Value::Document(doc) => doc.get(name).ok_or_else(|| format!("there is no field {name:?}")),
        other => Err(format!("{} has no field {name:?}", other.type_name())),
    }
}

fn element<'v>(value: Value<'v>, index: Value<'_>) -> Result<Value<'v>, String> {
    match (value, index) {
        (Value::Document(_), Value::String(name)) => field(value, name),
        (Value::Array(array), index) => {
            let at = index.as_integer().and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| array.values().nth(at)).ok_or_else(|| format!("there is no element {index}"))
        }
        (other, _) => Err(format!("{} has no elements", other.type_name())),
    }
}

fn negative(value: Value<'_>) -> Answer<'static> {
    match value {
        Value::Int32(_) | Value::Int64(_) => binary(Operator::Subtract, Value::Int64(0), value),
        Value::Double(number) => Ok(Val::Ref(Value::Double(-number))),
        other => Err(format!("{} cannot be negated", other.type_name())),
    }
}

fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Int32(number) => Some(number.into()),
        Value::Int64(number) => Some(number),
        _ => None,
    }
}

fn binary(operator: Operator, left: Value<'_>, right: Value<'_>) -> Answer<'static> {
    let unfit = || format!("the operator does not accept {} and {}", left.type_name(), right.type_name());
    // A path to a missing field is an error; values of different types are simply unequal.
    Ok(match operator {
        Operator::Equal => bool(order::equal(left, right)),
        Operator::NotEqual => bool(!order::equal(left, right)),
        Operator::In => match right {
            Value::Array(array) => bool(array.values().any(|value| order::equal(left, value))),
            Value::Document(map) => {
                bool(left.as_str().ok_or_else(unfit).map(|name| map.get(name).is_some())?)
            }
            _ => return Err(unfit()),
        },
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            if order::class(left) != order::class(right) {
                return Err(unfit());
            }
            let found = order::compare(left, right);
            bool(match operator {
                Operator::Less => found.is_lt(),
                Operator::LessOrEqual => found.is_le(),
                Operator::Greater => found.is_gt(),
                _ => found.is_ge(),
            })
        }
        _ => return arithmetic(operator, left, right),
    })
}

fn arithmetic(operator: Operator, left: Value<'_>, right: Value<'_>) -> Answer<'static> {
    let unfit = || format!("the operator does not accept {} and {}", left.type_name(), right.type_name());
    if let (Some(left), Some(right)) = (integer(left), integer(right)) {
        let number = match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => left.checked_div(right),
            _ => left.checked_rem(right),
        };
        return number.map(|number| Val::Ref(Value::Int64(number))).ok_or_else(|| "out of range".into());
    }
    match (operator, left, right) {
        (Operator::Add, Value::String(left), Value::String(right)) => {
            Ok(Val::Own(Value::String(&[left, right].concat()).into()))
        }
        (Operator::Add, Value::Array(left), Value::Array(right)) => {
            Ok(Val::Own(Owned::array(left.values().chain(right.values()))))
        }
        // A date plus milliseconds.
        (Operator::Add, Value::DateTime(ms), by) | (Operator::Add, by, Value::DateTime(ms)) => {
            let sum = integer(by).ok_or_else(unfit)?.checked_add(ms).ok_or("out of range")?;
            Ok(Val::Ref(Value::DateTime(sum)))
        }
        (Operator::Subtract, Value::DateTime(left), Value::DateTime(right)) => {
            Ok(Val::Ref(Value::Int64(left.checked_sub(right).ok_or("out of range")?)))
        }
        (Operator::Subtract, Value::DateTime(left), by) => {
            let by = integer(by).ok_or_else(unfit)?;
            Ok(Val::Ref(Value::DateTime(left.checked_sub(by).ok_or("out of range")?)))
        }
        _ => {
            let double = |value: Value<'_>| match value {
                Value::Double(_) | Value::Int32(_) | Value::Int64(_) => value.as_double(),
                _ => None,
            };
            let (Some(left), Some(right)) = (double(left), double(right)) else { return Err(unfit()) };
            Ok(Val::Ref(Value::Double(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                Operator::Divide => left / right,
                _ => return Err(unfit()),
            })))
        }
    }
}

fn call(function: Function, arguments: &[Val<'_>]) -> Answer<'static> {
    let value = |place: usize| arguments.get(place).map_or(Value::Null, Val::or_null);
    let text = |place: usize| {
        value(place).as_str().ok_or_else(|| format!("expected a text, found {}", value(place).type_name()))
    };
    let unfit = || format!("{} cannot be converted", value(0).type_name());
    Ok(match function {
        Function::Size => {
            let size = match value(0) {
                Value::String(text) => text.chars().count(),
                Value::Array(list) => list.values().count(),
                Value::Document(map) => map.iter().count(),
                Value::Binary(_, bytes) => bytes.len(),
                other => return Err(format!("{} has no size", other.type_name())),
            };
            Val::Ref(Value::Int64(size as i64))
        }
        Function::Contains => bool(text(0)?.contains(text(1)?)),
        Function::StartsWith => bool(text(0)?.starts_with(text(1)?)),
        Function::EndsWith => bool(text(0)?.ends_with(text(1)?)),
        Function::Int => {
            let number = match value(0) {
                Value::String(text) => text.parse().ok(),
                Value::Double(number) if number.abs() < 9.2e18 => Some(number.trunc() as i64),
                Value::DateTime(ms) => Some(ms.div_euclid(1000)),
                other => integer(other),
            };
            Val::Ref(Value::Int64(number.ok_or_else(unfit)?))
        }
        Function::Double => {
            let number = match value(0) {
                Value::String(text) => text.parse().ok(),
                other => other.as_double().filter(|_| other.is_number()),
            };
            Val::Ref(Value::Double(number.ok_or_else(unfit)?))
        }
        Function::Text => Val::Own(match value(0) {
            Value::String(text) => Value::String(text).into(),
            Value::Document(_) | Value::Array(_) => return Err(unfit()),
            Value::ObjectId(id) => Value::String(&hex(&id)).into(),
            Value::Bool(truth) => Value::String(if truth { "true" } else { "false" }).into(),
            other => match (integer(other), other.as_double().filter(|_| other.is_number())) {
                (Some(number), _) => Value::String(&number.to_string()).into(),
                (None, Some(number)) => Value::String(&number.to_string()).into(),
                _ => return Err(unfit()),
            },
        }),
        Function::Type => Val::Own(Value::String(value(0).type_name()).into()),
    })
}
