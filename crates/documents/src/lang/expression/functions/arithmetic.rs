use super::{Function, arg, between, fixed};
use crate::lang::error::{LangResult, refuse};
use crate::lang::value::decimal::{Decimal, Rounding};
use crate::lang::value::number::{self, Arithmetic, calculate};
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::{TWO_63, Value};

pub(super) const TABLE: &[Function] = &[
    between("$add", 0, usize::MAX, add),
    between("$multiply", 0, usize::MAX, multiply),
    fixed("$subtract", 2, subtract),
    fixed("$divide", 2, divide),
    fixed("$mod", 2, remainder),
    fixed("$abs", 1, absolute),
    fixed("$ceil", 1, |args| whole("$ceil", arg(args, 0), f64::ceil, Rounding::Ceiling)),
    fixed("$floor", 1, |args| whole("$floor", arg(args, 0), f64::floor, Rounding::Floor)),
    between("$round", 1, 2, |args| places("$round", args, f64::round_ties_even, Rounding::HalfEven)),
    between("$trunc", 1, 2, |args| places("$trunc", args, f64::trunc, Rounding::Truncate)),
    fixed("$sqrt", 1, |args| real("$sqrt", args, |x| x >= 0.0, f64::sqrt)),
    fixed("$exp", 1, |args| real("$exp", args, |_| true, f64::exp)),
    fixed("$ln", 1, |args| real("$ln", args, |x| x > 0.0, f64::ln)),
    fixed("$log10", 1, |args| real("$log10", args, |x| x > 0.0, f64::log10)),
    fixed("$log", 2, logarithm),
    fixed("$pow", 2, power),
    fixed("$sin", 1, |args| real("$sin", args, f64::is_finite, f64::sin)),
    fixed("$cos", 1, |args| real("$cos", args, f64::is_finite, f64::cos)),
    fixed("$tan", 1, |args| real("$tan", args, f64::is_finite, f64::tan)),
    fixed("$asin", 1, |args| real("$asin", args, |x| x.abs() <= 1.0, f64::asin)),
    fixed("$acos", 1, |args| real("$acos", args, |x| x.abs() <= 1.0, f64::acos)),
    fixed("$atan", 1, |args| real("$atan", args, |_| true, f64::atan)),
    fixed("$sinh", 1, |args| real("$sinh", args, |_| true, f64::sinh)),
    fixed("$cosh", 1, |args| real("$cosh", args, |_| true, f64::cosh)),
    fixed("$asinh", 1, |args| real("$asinh", args, |_| true, f64::asinh)),
    fixed("$acosh", 1, |args| real("$acosh", args, |x| x >= 1.0, f64::acosh)),
    fixed("$atanh", 1, |args| real("$atanh", args, |x| x.abs() <= 1.0, f64::atanh)),
    fixed("$atan2", 2, arc_tangent),
    fixed("$tanh", 1, |args| real("$tanh", args, |_| true, f64::tanh)),
    fixed("$degreesToRadians", 1, |args| real("$degreesToRadians", args, |_| true, f64::to_radians)),
    fixed("$radiansToDegrees", 1, |args| real("$radiansToDegrees", args, |_| true, f64::to_degrees)),
    fixed("$isNumber", 1, |args| Ok(val::bool(arg(args, 0).get().is_some_and(Value::is_number)))),
    between("$bitAnd", 0, usize::MAX, |args| bits("$bitAnd", args, -1, |a, b| a & b)),
    between("$bitOr", 0, usize::MAX, |args| bits("$bitOr", args, 0, |a, b| a | b)),
    between("$bitXor", 0, usize::MAX, |args| bits("$bitXor", args, 0, |a, b| a ^ b)),
    fixed("$bitNot", 1, |args| {
        Ok(match arg(args, 0).or_null() {
            Value::Int32(n) => Val::Ref(Value::Int32(!n)),
            Value::Int64(n) => Val::Ref(Value::Int64(!n)),
            value if value.is_nullish() => Val::NULL,
            value => refuse!(TypeMismatch, "$bitNot only supports int and long, not: {}.", value.type_name()),
        })
    }),
];

/// The result in the wider of the types; longs that overflow become doubles, as they do in MongoDB.
fn widened(a: Value<'_>, b: Value<'_>, how: Arithmetic) -> Value<'static> {
    calculate(a, b, how).unwrap_or_else(|| {
        let (a, b) = (a.as_double().unwrap_or(f64::NAN), b.as_double().unwrap_or(f64::NAN));
        Value::Double(match how {
            Arithmetic::Add => a + b,
            Arithmetic::Subtract => a - b,
            Arithmetic::Multiply => a * b,
        })
    })
}

pub(crate) fn sum_of(a: Value<'_>, b: Value<'_>) -> Value<'static> {
    widened(a, b, Arithmetic::Add)
}

pub(crate) fn product_of(a: Value<'_>, b: Value<'_>) -> Value<'static> {
    widened(a, b, Arithmetic::Multiply)
}

/// Milliseconds of a number that is added to a date.
fn milliseconds(value: Value<'_>) -> LangResult<i64> {
    let rounded = match value {
        Value::Double(d) => Value::Double(d.round()),
        Value::Decimal(d) => Value::Decimal(d.quantize(0, Rounding::HalfEven)),
        other => other,
    };
    match rounded.as_integer() {
        Some(ms) => Ok(ms),
        None => refuse!(Overflow, "date overflow: {value} milliseconds"),
    }
}

fn add(args: &[Val<'_>]) -> Answer {
    let mut total = Value::Int32(0);
    let mut date = None;
    for value in args {
        match value.or_null() {
            Value::DateTime(ms) if date.is_none() => date = Some(ms),
            Value::DateTime(_) => refuse!(16612, "only one date allowed in an $add expression"),
            value if value.is_number() => total = sum_of(total, value),
            value if value.is_nullish() => return Ok(Val::NULL),
            value => {
                refuse!(TypeMismatch, "$add only supports numeric or date types, not {}", value.type_name())
            }
        }
    }
    let Some(date) = date else { return Ok(Val::Ref(total)) };
    match date.checked_add(milliseconds(total)?) {
        Some(ms) => Ok(Val::Ref(Value::DateTime(ms))),
        None => refuse!(Overflow, "date overflow in $add"),
    }
}

fn multiply(args: &[Val<'_>]) -> Answer {
    let mut total = Value::Int32(1);
    for value in args {
        match value.or_null() {
            value if value.is_number() => total = widened(total, value, Arithmetic::Multiply),
            value if value.is_nullish() => return Ok(Val::NULL),
            value => {
                refuse!(TypeMismatch, "$multiply only supports numeric types, not {}", value.type_name())
            }
        }
    }
    Ok(Val::Ref(total))
}

fn subtract(args: &[Val<'_>]) -> Answer {
    let (a, b) = (arg(args, 0).or_null(), arg(args, 1).or_null());
    let difference = match (a, b) {
        _ if a.is_nullish() || b.is_nullish() => return Ok(Val::NULL),
        (Value::DateTime(a), Value::DateTime(b)) => a.checked_sub(b).map(Value::Int64),
        (Value::DateTime(a), b) if b.is_number() => a.checked_sub(milliseconds(b)?).map(Value::DateTime),
        (a, b) if a.is_number() && b.is_number() => Some(widened(a, b, Arithmetic::Subtract)),
        (a, b) => refuse!(TypeMismatch, "can't $subtract {} from {}", b.type_name(), a.type_name()),
    };
    match difference {
        Some(value) => Ok(Val::Ref(value)),
        None => refuse!(Overflow, "date overflow in $subtract"),
    }
}

fn divide(args: &[Val<'_>]) -> Answer {
    let (a, b) = (arg(args, 0).or_null(), arg(args, 1).or_null());
    if a.is_nullish() || b.is_nullish() {
        return Ok(Val::NULL);
    }
    Ok(Val::Ref(match quotient(a, b) {
        Some(Some(value)) => value,
        Some(None) => refuse!(BadValue, "can't $divide by zero"),
        None => refuse!(
            TypeMismatch,
            "$divide only supports numeric types, not {} and {}",
            a.type_name(),
            b.type_name()
        ),
    }))
}

/// `None` if an operand is not a number, `Some(None)` for a divisor of zero.
pub(crate) fn quotient(a: Value<'_>, b: Value<'_>) -> Option<Option<Value<'static>>> {
    if let (Value::Decimal(_), _) | (_, Value::Decimal(_)) = (a, b) {
        return Some(number::to_decimal(a)?.divide(number::to_decimal(b)?).map(Value::Decimal));
    }
    let (a, b) = (a.as_double()?, b.as_double()?);
    Some(if b == 0.0 { None } else { Some(Value::Double(a / b)) })
}

fn remainder(args: &[Val<'_>]) -> Answer {
    let (a, b) = (arg(args, 0).or_null(), arg(args, 1).or_null());
    let zero = || refuse!(BadValue, "can't $mod by zero");
    let value = match (a, b) {
        _ if a.is_nullish() || b.is_nullish() => return Ok(Val::NULL),
        _ if !a.is_number() || !b.is_number() => {
            refuse!(
                TypeMismatch,
                "$mod only supports numeric types, not {} and {}",
                a.type_name(),
                b.type_name()
            )
        }
        (Value::Decimal(_), _) | (_, Value::Decimal(_)) => {
            let pair = number::to_decimal(a).zip(number::to_decimal(b));
            match pair.and_then(|(a, b)| a.remainder(b)) {
                Some(rest) => Value::Decimal(rest),
                None => return zero(),
            }
        }
        (Value::Double(_), _) | (_, Value::Double(_)) => {
            let (a, b) = (a.as_double().unwrap_or(f64::NAN), b.as_double().unwrap_or(f64::NAN));
            if b == 0.0 {
                return zero();
            }
            Value::Double(a % b)
        }
        (a, b) => {
            let small = matches!((a, b), (Value::Int32(_), Value::Int32(_)));
            let (a, b) = (a.as_integer().unwrap_or(0), b.as_integer().unwrap_or(0));
            if b == 0 {
                return zero();
            }
            number::narrow(a.checked_rem(b).unwrap_or(0), small)
        }
    };
    Ok(Val::Ref(value))
}

fn absolute(args: &[Val<'_>]) -> Answer {
    Ok(Val::Ref(match arg(args, 0).or_null() {
        Value::Int32(n) => number::narrow(i64::from(n).abs(), true),
        Value::Int64(n) => match n.checked_abs() {
            Some(n) => Value::Int64(n),
            None => refuse!(28680, "can't take $abs of long long min"),
        },
        Value::Double(d) => Value::Double(d.abs()),
        Value::Decimal(d) => Value::Decimal(if d.is_negative() { d.negate() } else { d }),
        value if value.is_nullish() => Value::Null,
        value => refuse!(28765, "$abs only supports numeric types, not {}", value.type_name()),
    }))
}

fn whole(name: &str, value: &Val<'_>, double: fn(f64) -> f64, rounding: Rounding) -> Answer {
    Ok(Val::Ref(match value.or_null() {
        Value::Int32(n) => Value::Int32(n),
        Value::Int64(n) => Value::Int64(n),
        Value::Double(d) => Value::Double(double(d)),
        Value::Decimal(d) => Value::Decimal(d.quantize(0, rounding)),
        value if value.is_nullish() => Value::Null,
        value => refuse!(28765, "{name} only supports numeric types, not {}", value.type_name()),
    }))
}

fn places(name: &str, args: &[Val<'_>], double: fn(f64) -> f64, rounding: Rounding) -> Answer {
    let places = match args.get(1) {
        None => 0,
        Some(value) if value.is_nullish() => return Ok(Val::NULL),
        Some(value) => match value.or_null().as_integer() {
            Some(places) if (-20..=100).contains(&places) => places as i32,
            _ => refuse!(
                51083,
                "cannot apply {name} with precision value {}: it must be a whole number in [-20, 100]",
                value.or_null()
            ),
        },
    };
    if places == 0 {
        return whole(name, arg(args, 0), double, rounding);
    }
    Ok(Val::Ref(match arg(args, 0).or_null() {
        Value::Double(d) if !d.is_finite() || d == 0.0 => Value::Double(d),
        // Rounds the exact digits, so that 2.675 is what the double is: a little less.
        Value::Double(d) => Value::Double(round_digits(d, places, rounding)),
        Value::Decimal(d) => Value::Decimal(d.quantize(places, rounding)),
        value @ (Value::Int32(_) | Value::Int64(_)) if places > 0 => match value {
            Value::Int32(n) => Value::Int32(n),
            other => Value::Int64(other.as_integer().unwrap_or(0)),
        },
        value @ (Value::Int32(_) | Value::Int64(_)) => {
            let rounded = Decimal::from_i64(value.as_integer().unwrap_or(0)).quantize(places, rounding);
            match rounded.to_integer() {
                Some(n) => number::narrow(n, matches!(value, Value::Int32(_))),
                None => refuse!(51080, "invalid conversion from Decimal128 result in {name}"),
            }
        }
        value if value.is_nullish() => Value::Null,
        value => refuse!(51081, "{name} only supports numeric types, not {}", value.type_name()),
    }))
}

fn round_digits(d: f64, places: i32, rounding: Rounding) -> f64 {
    match Decimal::parse(&format!("{d:.33e}")) {
        Some(exact) => exact.quantize(places, rounding).to_double(),
        None => d,
    }
}

/// A function of reals. Decimals are converted to doubles and back, with the precision of doubles.
fn real(name: &str, args: &[Val<'_>], domain: fn(f64) -> bool, function: fn(f64) -> f64) -> Answer {
    let value = arg(args, 0).or_null();
    if value.is_nullish() {
        return Ok(Val::NULL);
    }
    let Some(x) = value.as_double() else {
        refuse!(28765, "{name} only supports numeric types, not {}", value.type_name());
    };
    if !x.is_nan() && !domain(x) {
        refuse!(28714, "{name}: {value} is outside of what it is defined for");
    }
    Ok(Val::Ref(like(value, function(x))))
}

fn like(value: Value<'_>, result: f64) -> Value<'static> {
    match value {
        Value::Decimal(_) => Value::Decimal(Decimal::from_double(result)),
        _ => Value::Double(result),
    }
}

fn arc_tangent(args: &[Val<'_>]) -> Answer {
    let (y, x) = (arg(args, 0).or_null(), arg(args, 1).or_null());
    if y.is_nullish() || x.is_nullish() {
        return Ok(Val::NULL);
    }
    let (Some(a), Some(b)) = (y.as_double(), x.as_double()) else {
        refuse!(51044, "$atan2 only supports numeric types, not {} and {}", y.type_name(), x.type_name());
    };
    let like_both = if let Value::Decimal(_) = x { x } else { y };
    Ok(Val::Ref(like(like_both, a.atan2(b))))
}

fn logarithm(args: &[Val<'_>]) -> Answer {
    let (x, base) = (arg(args, 0).or_null(), arg(args, 1).or_null());
    if x.is_nullish() || base.is_nullish() {
        return Ok(Val::NULL);
    }
    let (Some(a), Some(b)) = (x.as_double(), base.as_double()) else {
        refuse!(28756, "$log's argument must be numeric, not {} and {}", x.type_name(), base.type_name());
    };
    if a <= 0.0 || b <= 0.0 || b == 1.0 {
        refuse!(
            28758,
            "$log's argument must be a positive number, and its base positive and not 1: {x}, {base}"
        );
    }
    Ok(Val::Ref(like(x, a.ln() / b.ln())))
}

fn power(args: &[Val<'_>]) -> Answer {
    let (base, exponent) = (arg(args, 0).or_null(), arg(args, 1).or_null());
    if base.is_nullish() || exponent.is_nullish() {
        return Ok(Val::NULL);
    }
    let (Some(a), Some(b)) = (base.as_double(), exponent.as_double()) else {
        refuse!(
            28762,
            "$pow's base and exponent must be numeric, not {} and {}",
            base.type_name(),
            exponent.type_name()
        );
    };
    if a == 0.0 && b < 0.0 {
        refuse!(28764, "$pow cannot take a base of 0 and a negative exponent");
    }
    let integer = |value: Value<'_>| matches!(value, Value::Int32(_) | Value::Int64(_));
    if integer(base) && integer(exponent) {
        let exact = u32::try_from(exponent.as_integer().unwrap_or(-1)).ok();
        let exact = exact.and_then(|exponent| base.as_integer()?.checked_pow(exponent));
        let small = matches!((base, exponent), (Value::Int32(_), Value::Int32(_)));
        return Ok(Val::Ref(exact.map_or(Value::Double(a.powf(b)), |n| number::narrow(n, small))));
    }
    let decimal = matches!(base, Value::Decimal(_)) || matches!(exponent, Value::Decimal(_));
    let result = a.powf(b);
    Ok(Val::Ref(if decimal { Value::Decimal(Decimal::from_double(result)) } else { Value::Double(result) }))
}

fn bits(name: &str, args: &[Val<'_>], start: i64, operation: fn(i64, i64) -> i64) -> Answer {
    let (mut total, mut small) = (start, true);
    for value in args {
        match value.or_null() {
            Value::Int32(n) => total = operation(total, n.into()),
            Value::Int64(n) => {
                total = operation(total, n);
                small = false;
            }
            value if value.is_nullish() => return Ok(Val::NULL),
            value => {
                refuse!(TypeMismatch, "{name} only supports int and long operands, not {}", value.type_name())
            }
        }
    }
    Ok(Val::Ref(number::narrow(total, small)))
}

/// A double as a long, if it is in range.
pub(crate) fn fits_long(d: f64) -> Option<i64> {
    if (-TWO_63..TWO_63).contains(&d) { Some(d as i64) } else { None }
}
