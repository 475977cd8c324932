//! Functions over numbers: angles, divisors, factorials, scales of numerics, buckets.
//!
//! Source of the rules: PostgreSQL 15's documentation, "Mathematical Functions and Operators".

use ropewalk::tables::{Numeric, Type, Value};

use crate::expr::arith::{order, out_of_range};
use crate::expr::cast::to_f64;
use crate::functions::{Function, Resolved};
use crate::types::error::{Result, SqlError, state};
use crate::types::names::{common, is_integer, is_numeric};

/// The number function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const FLOAT: Type = Type::FLOAT8;
    const NUMBER: Type = Type::NUMERIC;
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let of_floats = match (name, types.len()) {
        ("acos", 1) => Some(F::Acos),
        ("acosh", 1) => Some(F::Acosh),
        ("asin", 1) => Some(F::Asin),
        ("asinh", 1) => Some(F::Asinh),
        ("atan", 1) => Some(F::Atan),
        ("atan2", 2) => Some(F::Atan2),
        ("atanh", 1) => Some(F::Atanh),
        ("cos", 1) => Some(F::Cos),
        ("cosh", 1) => Some(F::Cosh),
        ("cot", 1) => Some(F::Cot),
        ("degrees", 1) => Some(F::Degrees),
        ("radians", 1) => Some(F::Radians),
        ("sin", 1) => Some(F::Sin),
        ("sinh", 1) => Some(F::Sinh),
        ("tan", 1) => Some(F::Tan),
        ("tanh", 1) => Some(F::Tanh),
        _ => None,
    };
    if let Some(function) = of_floats {
        return resolved(function, &vec![FLOAT; types.len()], FLOAT);
    }
    let known = |place: usize| types.get(place).copied().flatten();
    match (name, types.len()) {
        ("factorial", 1) => resolved(F::Factorial, &[Type::INT8], NUMBER),
        ("gcd" | "lcm", 2) => {
            let ty = match (known(0), known(1)) {
                (Some(a), Some(b)) => common(a, b)?,
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return None,
            };
            let ty = match ty {
                Type::INT2 | Type::INT4 => Type::INT4,
                Type::INT8 => Type::INT8,
                ty if is_numeric(ty) => NUMBER,
                _ => return None,
            };
            resolved(if name == "gcd" { F::Gcd } else { F::Lcm }, &[ty; 2], ty)
        }
        ("scale", 1) => resolved(F::Scale, &[NUMBER], Type::INT4),
        ("min_scale", 1) => resolved(F::MinScale, &[NUMBER], Type::INT4),
        ("trim_scale", 1) => resolved(F::TrimScale, &[NUMBER], NUMBER),
        ("width_bucket", 4) => {
            let is_exact = types.iter().flatten().all(|ty| is_integer(*ty) || is_numeric(*ty));
            let ty = if is_exact { NUMBER } else { FLOAT };
            resolved(F::WidthBucket, &[ty, ty, ty, Type::INT4], Type::INT4)
        }
        ("width_bucket", 2) => {
            let element = match (known(0), known(1)?) {
                (None, Type::Array(element)) => Type::Scalar(element),
                (Some(ty), Type::Array(element)) => common(ty, Type::Scalar(element))?,
                _ => return None,
            };
            resolved(F::WidthBucket, &[element, element.array()], Type::INT4)
        }
        _ => None,
    }
}

fn outside() -> SqlError {
    SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")
}

fn float(value: Option<&Value<'_>>) -> f64 {
    value.and_then(to_f64).unwrap_or(f64::NAN)
}

/// The greatest common divisor.
fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Mantissas of two numerics at the greater of their scales.
fn level(a: Numeric, b: Numeric) -> Option<(u128, u128, u8)> {
    let scale = a.scale().max(b.scale());
    let (a, b) = (a.rescale(scale)?, b.rescale(scale)?);
    Some((a.mantissa().unsigned_abs(), b.mantissa().unsigned_abs(), scale))
}

/// Minimum scale that represents the number exactly.
fn min_scale(number: Numeric) -> u8 {
    let (mut mantissa, mut scale) = (number.mantissa(), number.scale());
    while scale > 0 && mantissa % 10 == 0 {
        (mantissa, scale) = (mantissa / 10, scale - 1);
    }
    scale
}

fn bucket_error(message: &str) -> SqlError {
    SqlError::new(state::INVALID_ARGUMENT_FOR_WIDTH_BUCKET, message)
}

/// The bucket of a number among `count` buckets between two bounds; 0 and `count + 1` are outside.
fn bucket(values: &[Value<'_>]) -> Result<i64> {
    let [value, low, high, count] = values else { return Ok(0) };
    let count = count.as_integer().unwrap_or_default();
    if count <= 0 {
        return Err(bucket_error("count must be greater than zero"));
    }
    let is_nan = |value: &Value<'_>| to_f64(value).is_some_and(f64::is_nan);
    if [value, low, high].iter().any(|value| is_nan(value)) {
        return Err(bucket_error("operand, lower bound, and upper bound cannot be NaN"));
    }
    let upward = match order(low, high) {
        std::cmp::Ordering::Equal => return Err(bucket_error("lower bound cannot equal upper bound")),
        bounds => bounds.is_lt(),
    };
    let before = |a, b| if upward { order(a, b).is_lt() } else { order(a, b).is_gt() };
    if before(value, low) {
        return Ok(0);
    }
    if !before(value, high) {
        return Ok(count + 1);
    }
    if let (Value::Numeric(value), Value::Numeric(low), Value::Numeric(high)) = (value, low, high) {
        let part = || {
            let (above, whole) = (value.checked_sub(*low)?, high.checked_sub(*low)?);
            let (above, whole, _) = level(above, whole)?;
            let place = above.checked_mul(u128::try_from(count).ok()?)? / whole;
            i64::try_from(place).ok()
        };
        if let Some(place) = part() {
            return Ok((place + 1).min(count));
        }
    }
    let (value, low, high) = (float(Some(value)), float(Some(low)), float(Some(high)));
    Ok((((value - low) / (high - low) * count as f64) as i64 + 1).min(count))
}

impl Function {
    /// Evaluates a number function; `None` for other functions. No argument is NULL.
    pub(crate) fn of_numbers(self, values: &[Value<'_>]) -> Result<Option<Value<'static>>> {
        use Function as F;
        let (first, second) = (values.first(), values.get(1));
        let of_float = |f: fn(f64) -> f64, is_inside: fn(f64) -> bool| {
            let x = float(first);
            if !x.is_nan() && !is_inside(x) {
                return Err(outside());
            }
            let y = f(x);
            if y.is_infinite() && x.is_finite() && !matches!(self, F::Cot | F::Tan | F::Atanh) {
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
            }
            Ok(Some(Value::Float8(y)))
        };
        let in_one = |x: f64| (-1.0..=1.0).contains(&x);
        match self {
            F::Acos => return of_float(f64::acos, in_one),
            F::Asin => return of_float(f64::asin, in_one),
            F::Atanh => return of_float(f64::atanh, in_one),
            F::Acosh => return of_float(f64::acosh, |x| x >= 1.0),
            F::Cos => return of_float(f64::cos, f64::is_finite),
            F::Sin => return of_float(f64::sin, f64::is_finite),
            F::Tan => return of_float(f64::tan, f64::is_finite),
            F::Cot => return of_float(|x| 1.0 / x.tan(), f64::is_finite),
            F::Asinh => return of_float(f64::asinh, |_| true),
            F::Atan => return of_float(f64::atan, |_| true),
            F::Cosh => return of_float(f64::cosh, |_| true),
            F::Sinh => return of_float(f64::sinh, |_| true),
            F::Tanh => return of_float(f64::tanh, |_| true),
            F::Degrees => return of_float(|x| x / (std::f64::consts::PI / 180.0), |_| true),
            F::Radians => return of_float(|x| x * (std::f64::consts::PI / 180.0), |_| true),
            _ => {}
        }
        let numeric = match first {
            Some(Value::Numeric(number)) => *number,
            _ => Numeric::ZERO,
        };
        Ok(Some(match self {
            F::Atan2 => Value::Float8(float(first).atan2(float(second))),
            F::Factorial => {
                let number = first.and_then(Value::as_integer).unwrap_or_default();
                if number < 0 {
                    let message = "factorial of a negative number is undefined";
                    return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message));
                }
                // A product beyond a numeric's digits ends the loop at once.
                let product =
                    (2..=i128::from(number)).try_fold(1_i128, |product, next| product.checked_mul(next));
                let product = product.and_then(|product| Numeric::new(product, 0));
                Value::Numeric(product.ok_or_else(|| out_of_range(Type::NUMERIC))?)
            }
            F::Gcd | F::Lcm => {
                let of = |a: u128, b: u128| match (self, gcd(a, b)) {
                    (_, 0) => Some(0),
                    (F::Gcd, divisor) => Some(divisor),
                    (_, divisor) => (a / divisor).checked_mul(b),
                };
                match (first, second) {
                    (Some(Value::Numeric(a)), Some(Value::Numeric(b))) if a.is_nan() || b.is_nan() => {
                        Value::Numeric(Numeric::NAN)
                    }
                    (Some(Value::Numeric(a)), Some(Value::Numeric(b))) => {
                        let found = level(*a, *b)
                            .and_then(|(a, b, scale)| Numeric::new(i128::try_from(of(a, b)?).ok()?, scale));
                        Value::Numeric(found.ok_or_else(|| out_of_range(Type::NUMERIC))?)
                    }
                    (first, second) => {
                        let size = |value: Option<&Value<'_>>| {
                            u128::from(value.and_then(Value::as_integer).unwrap_or_default().unsigned_abs())
                        };
                        let ty = first.and_then(Value::value_type).unwrap_or(Type::INT8);
                        let found = of(size(first), size(second)).and_then(|found| i64::try_from(found).ok());
                        let found = found.ok_or_else(|| out_of_range(ty))?;
                        Value::Int8(found).assign(ty).map_err(|_| out_of_range(ty))?
                    }
                }
            }
            F::Scale | F::MinScale if numeric.is_nan() => Value::Null,
            F::Scale => Value::Int4(numeric.scale().into()),
            F::MinScale => Value::Int4(min_scale(numeric).into()),
            F::TrimScale if numeric.is_nan() => Value::Numeric(numeric),
            F::TrimScale => Value::Numeric(numeric.rescale(min_scale(numeric)).unwrap_or(numeric)),
            F::WidthBucket => {
                let place = match (first, second) {
                    (Some(value), Some(Value::Array(bounds))) => {
                        let mut below = 0;
                        for bound in bounds.iter() {
                            let bound = bound
                                .map_err(|error| SqlError::new(state::DATA_CORRUPTED, error.to_string()))?;
                            if bound.is_null() {
                                let message = "thresholds array must not contain NULLs";
                                return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
                            }
                            below += i64::from(order(&bound, value).is_le());
                        }
                        below
                    }
                    _ => bucket(values)?,
                };
                Value::Int4(i32::try_from(place).map_err(|_| out_of_range(Type::INT4))?)
            }
            _ => return Ok(None),
        }))
    }
}
