//! Functions over numbers: rounding, roots, powers, angles, divisors, factorials, scales of numerics, buckets.
//!
//! Source of the rules: PostgreSQL 15's documentation, "Mathematical Functions and Operators".

use std::cmp::Ordering;

use ropewalk::tables::{Array, Numeric, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::arith::{Arith, arithmetic, negate, order, out_of_range};
use crate::expr::cast::to_f64;
use crate::expr::function::Function;
use crate::functions::resolve::widest;
use crate::functions::{Resolved, integer_of};
use crate::types::names::{common, is_integer, is_numeric, rank};

/// The number function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const FLOAT: Type = Type::FLOAT8;
    const NUMBER: Type = Type::NUMERIC;
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let of_floats = match (name, types.len()) {
        ("sqrt", 1) => Some(F::Sqrt),
        ("cbrt", 1) => Some(F::Cbrt),
        ("exp", 1) => Some(F::Exp),
        ("ln", 1) => Some(F::Ln),
        ("log" | "log10", 1) => Some(F::Log),
        ("power" | "pow", 2) => Some(F::Power),
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
    // Numbers keep their type; an untyped argument is a double.
    let number = known(0).filter(|ty| rank(*ty).is_some()).unwrap_or(FLOAT);
    let exact = if is_numeric(number) { NUMBER } else { FLOAT };
    match (name, types.len()) {
        ("abs", 1) => resolved(F::Abs, &[number], number),
        ("ceil" | "ceiling", 1) => resolved(F::Ceil, &[exact], exact),
        ("floor", 1) => resolved(F::Floor, &[exact], exact),
        ("round", 1) => resolved(F::Round, &[exact], exact),
        ("trunc", 1) => resolved(F::Trunc, &[exact], exact),
        ("round", 2) => resolved(F::Round, &[NUMBER, Type::INT4], NUMBER),
        ("trunc", 2) => resolved(F::Trunc, &[NUMBER, Type::INT4], NUMBER),
        ("sign", 1) => resolved(F::Sign, &[exact], exact),
        ("div", 2) => resolved(F::Div, &[NUMBER; 2], NUMBER),
        ("mod", 2) => {
            let ty = widest(types, Type::INT4)?;
            let ty = (is_integer(ty) || is_numeric(ty)).then_some(ty)?;
            resolved(F::Mod, &[ty, ty], ty)
        }
        ("pg_size_pretty", 1) => resolved(F::SizePretty, &[Type::INT8], Type::TEXT),
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

/// A function of floats that fails instead of overflowing.
fn float_function(f: impl Fn(f64) -> f64, value: &Value<'_>) -> Result<Value<'static>> {
    let x = to_f64(value).unwrap_or(f64::NAN);
    let y = f(x);
    if x.is_finite() && y.is_infinite() {
        return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    Ok(Value::Float8(y))
}

/// Truncates a numeric after `digits` decimal places, then adds one in direction `away` if any digits were
/// removed.
fn cut(number: Numeric, digits: i64, away: i8) -> Option<Numeric> {
    if number.is_nan() {
        return Some(number);
    }
    let scale = i64::from(number.scale());
    if digits >= scale {
        return Some(number);
    }
    let unit = 10_i128.checked_pow(u32::try_from(scale - digits).ok()?);
    let Some(unit) = unit else { return Some(Numeric::ZERO) };
    let whole = number.mantissa() / unit;
    let rest = number.mantissa() % unit;
    let step = match away {
        1 if rest > 0 => 1,
        -1 if rest < 0 => -1,
        _ => 0,
    };
    scaled(whole + step, digits)
}

/// `whole * 10^-digits`.
fn scaled(whole: i128, digits: i64) -> Option<Numeric> {
    match u8::try_from(digits) {
        Ok(scale) => Numeric::new(whole, scale),
        Err(_) => Numeric::new(whole.checked_mul(10_i128.checked_pow(u32::try_from(-digits).ok()?)?)?, 0),
    }
}

fn rounded(number: Numeric, digits: i64) -> Option<Numeric> {
    if number.is_nan() {
        return Some(number);
    }
    if let Ok(scale @ 0..=38) = u8::try_from(digits) {
        return number.rescale(scale);
    }
    if digits > 0 {
        return Some(number);
    }
    let unit = 10_i128.checked_pow(u32::try_from(i64::from(number.scale()) - digits).ok()?);
    let Some(unit) = unit else { return Some(Numeric::ZERO) };
    let (whole, rest) = (number.mantissa() / unit, number.mantissa() % unit);
    let away = if rest.unsigned_abs() >= unit.unsigned_abs() / 2 { number.mantissa().signum() } else { 0 };
    scaled(whole + away, digits)
}

/// Truncates a numeric to an integer.
fn truncated(value: &Value<'_>) -> Result<Value<'static>> {
    match value {
        Value::Numeric(number) => numeric_result(cut(*number, 0, 0)),
        _ => Ok(Value::Null),
    }
}

fn numeric_result(number: Option<Numeric>) -> Result<Value<'static>> {
    number.map(Value::Numeric).ok_or_else(|| out_of_range(Type::NUMERIC))
}

fn power(base: &Value<'_>, exponent: Option<&Value<'_>>) -> Result<Value<'static>> {
    let exponent = float(exponent);
    let x = float(Some(base));
    if x == 0.0 && exponent < 0.0 || x < 0.0 && x.is_finite() && exponent.fract() != 0.0 {
        let message = "zero raised to a negative power, or a negative number to a fraction";
        return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_POWER, message));
    }
    float_function(|x| x.powf(exponent), base)
}

/// `div`: the quotient of two numerics without its fraction.
fn divide_whole(a: Option<&Value<'_>>, b: Option<&Value<'_>>) -> Result<Value<'static>> {
    match (a, b) {
        (Some(a @ Value::Numeric(_)), Some(b @ Value::Numeric(_))) => {
            truncated(&arithmetic(Arith::Div, a, b, Type::NUMERIC)?)
        }
        _ => Ok(Value::Null),
    }
}

/// A number of bytes with the unit in which it has few digits.
fn show_size(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let (mut size, mut place) = (bytes as f64, 0);
    while size.abs() >= 10_240.0 && place + 1 < UNITS.len() {
        size /= 1024.0;
        place += 1;
    }
    format!("{} {}", size.round(), UNITS.get(place).copied().unwrap_or_default())
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

/// The number of sorted bounds that are at most `value`.
fn bucket_among(value: &Value<'_>, bounds: &Array<'_>) -> Result<i64> {
    let mut below = 0;
    for bound in bounds.iter() {
        let bound = bound.map_err(|error| SqlError::new(state::DATA_CORRUPTED, error.to_string()))?;
        if bound.is_null() {
            let message = "thresholds array must not contain NULLs";
            return Err(SqlError::new(state::NULL_VALUE_NOT_ALLOWED, message));
        }
        below += i64::from(order(&bound, value).is_le());
    }
    Ok(below)
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

/// The greatest common divisor, or the least common multiple.
fn divisor_or_multiple(
    a: Option<&Value<'_>>,
    b: Option<&Value<'_>>,
    is_multiple: bool,
) -> Result<Value<'static>> {
    let of = |a: u128, b: u128| match gcd(a, b) {
        0 => Some(0),
        divisor if is_multiple => (a / divisor).checked_mul(b),
        divisor => Some(divisor),
    };
    Ok(match (a, b) {
        (Some(Value::Numeric(a)), Some(Value::Numeric(b))) if a.is_nan() || b.is_nan() => {
            Value::Numeric(Numeric::NAN)
        }
        (Some(Value::Numeric(a)), Some(Value::Numeric(b))) => {
            let found =
                level(*a, *b).and_then(|(a, b, scale)| Numeric::new(i128::try_from(of(a, b)?).ok()?, scale));
            Value::Numeric(found.ok_or_else(|| out_of_range(Type::NUMERIC))?)
        }
        (a, b) => {
            let size = |value: Option<&Value<'_>>| u128::from(integer_of(value).unsigned_abs());
            let ty = a.and_then(Value::value_type).unwrap_or(Type::INT8);
            let found = of(size(a), size(b)).and_then(|found| i64::try_from(found).ok());
            let found = found.ok_or_else(|| out_of_range(ty))?;
            Value::Int8(found).assign(ty).map_err(|_| out_of_range(ty))?
        }
    })
}

fn factorial(number: i64) -> Result<Value<'static>> {
    if number < 0 {
        let message = "factorial of a negative number is undefined";
        return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    // A product beyond a numeric's digits ends the loop at once.
    let product = (2..=i128::from(number)).try_fold(1_i128, |product, next| product.checked_mul(next));
    numeric_result(product.and_then(|product| Numeric::new(product, 0)))
}

impl Function {
    /// Evaluates a number function; `None` for other functions. No argument is NULL.
    pub(crate) fn of_numbers(self, values: &[Value<'_>]) -> Result<Option<Value<'static>>> {
        use Function as F;
        let [first, rest @ ..] = values else { return Ok(None) };
        if let found @ Some(_) = self.of_rounding_and_powers(first, rest)? {
            return Ok(found);
        }
        if let found @ Some(_) = self.of_angles(first)? {
            return Ok(found);
        }
        let second = rest.first();
        let numeric = match first {
            Value::Numeric(number) => *number,
            _ => Numeric::ZERO,
        };
        Ok(Some(match self {
            F::Atan2 => Value::Float8(float(Some(first)).atan2(float(second))),
            F::Div => divide_whole(Some(first), second)?,
            F::Mod => {
                let ty = first.value_type().unwrap_or(Type::INT8);
                arithmetic(Arith::Rem, first, second.unwrap_or(&Value::Null), ty)?
            }
            F::Factorial => factorial(integer_of(Some(first)))?,
            F::Gcd => divisor_or_multiple(Some(first), second, false)?,
            F::Lcm => divisor_or_multiple(Some(first), second, true)?,
            F::Scale | F::MinScale if numeric.is_nan() => Value::Null,
            F::Scale => Value::Int4(numeric.scale().into()),
            F::MinScale => Value::Int4(min_scale(numeric).into()),
            F::TrimScale if numeric.is_nan() => Value::Numeric(numeric),
            F::TrimScale => Value::Numeric(numeric.rescale(min_scale(numeric)).unwrap_or(numeric)),
            F::WidthBucket => {
                let place = match second {
                    Some(Value::Array(bounds)) => bucket_among(first, bounds)?,
                    _ => bucket(values)?,
                };
                Value::Int4(i32::try_from(place).map_err(|_| out_of_range(Type::INT4))?)
            }
            F::SizePretty => Value::text(show_size(integer_of(Some(first)))),
            _ => return Ok(None),
        }))
    }

    /// Evaluates a function that rounds, or is made of powers; `None` for other functions.
    fn of_rounding_and_powers(self, first: &Value<'_>, rest: &[Value<'_>]) -> Result<Option<Value<'static>>> {
        let numeric = match first {
            Value::Numeric(number) => Some(*number),
            _ => None,
        };
        let digits = integer_of(rest.first());
        Ok(Some(match (self, numeric) {
            // Also removes the sign of negative zero.
            (Self::Abs, _) if let Value::Float8(value) = first => Value::Float8(value.abs()),
            (Self::Abs, _) if let Value::Float4(value) = first => Value::Float4(value.abs()),
            (Self::Abs, _) => match first.compare(&Value::Int2(0)) {
                Some(Ordering::Less) => negate(first)?,
                _ => first.clone().into_owned(),
            },
            (Self::Ceil, Some(number)) => numeric_result(cut(number, 0, 1))?,
            (Self::Floor, Some(number)) => numeric_result(cut(number, 0, -1))?,
            (Self::Trunc, Some(number)) => numeric_result(cut(number, digits, 0))?,
            (Self::Round, Some(number)) => numeric_result(rounded(number, digits))?,
            (Self::Sign, Some(number)) => Value::Numeric(Numeric::from(number.mantissa().signum() as i64)),
            (Self::Ceil, None) => float_function(f64::ceil, first)?,
            (Self::Floor, None) => float_function(f64::floor, first)?,
            (Self::Trunc, None) => float_function(f64::trunc, first)?,
            (Self::Round, None) => float_function(f64::round_ties_even, first)?,
            (Self::Sign, None) => float_function(|x| if x == 0.0 { 0.0 } else { x.signum() }, first)?,
            (Self::Sqrt, _) if float(Some(first)) < 0.0 => {
                let message = "cannot take square root of a negative number";
                return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_POWER, message));
            }
            (Self::Sqrt, _) => float_function(f64::sqrt, first)?,
            (Self::Cbrt, _) => Value::Float8(float(Some(first)).cbrt()),
            (Self::Exp, _) => float_function(f64::exp, first)?,
            (Self::Ln | Self::Log, _) if float(Some(first)) <= 0.0 => {
                let message = "cannot take logarithm of zero or a negative number";
                return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_LOGARITHM, message));
            }
            (Self::Ln, _) => float_function(f64::ln, first)?,
            (Self::Log, _) => float_function(f64::log10, first)?,
            (Self::Power, _) => power(first, rest.first())?,
            _ => return Ok(None),
        }))
    }

    /// Evaluates a function of an angle; `None` for other functions.
    fn of_angles(self, angle: &Value<'_>) -> Result<Option<Value<'static>>> {
        use Function as F;
        let of_float = |f: fn(f64) -> f64, is_inside: fn(f64) -> bool| {
            let x = float(Some(angle));
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
            F::Acos => of_float(f64::acos, in_one),
            F::Asin => of_float(f64::asin, in_one),
            F::Atanh => of_float(f64::atanh, in_one),
            F::Acosh => of_float(f64::acosh, |x| x >= 1.0),
            F::Cos => of_float(f64::cos, f64::is_finite),
            F::Sin => of_float(f64::sin, f64::is_finite),
            F::Tan => of_float(f64::tan, f64::is_finite),
            F::Cot => of_float(|x| 1.0 / x.tan(), f64::is_finite),
            F::Asinh => of_float(f64::asinh, |_| true),
            F::Atan => of_float(f64::atan, |_| true),
            F::Cosh => of_float(f64::cosh, |_| true),
            F::Sinh => of_float(f64::sinh, |_| true),
            F::Tanh => of_float(f64::tanh, |_| true),
            F::Degrees => of_float(|x| x / (std::f64::consts::PI / 180.0), |_| true),
            F::Radians => of_float(|x| x * (std::f64::consts::PI / 180.0), |_| true),
            _ => Ok(None),
        }
    }
}
