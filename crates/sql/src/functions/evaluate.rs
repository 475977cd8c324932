//! Evaluation of functions.

use crate::expr::arith::{negate, out_of_range};
use crate::expr::bounds::Operands;
use crate::expr::cast::{cast, to_f64};
use crate::expr::{Context, Expr, Input, bug};
use crate::expr::{arith, bounds};
use crate::functions::Function;
use crate::functions::date_part::{Part, date_trunc, part_of, unit_named, unknown_unit, zone_named};
use crate::types::error::{Result, SqlError, state};
use crate::types::text_format::to_text;
use crate::types::zone::Zone;
use crate::types::{datetime, interval, json};
use ropewalk::tables::{Array, Numeric, Scalar, Type, Value};
use std::collections::HashSet;
use std::time::Duration;

/// The lower case of a character: a single one, as in PostgreSQL, even where a language uses two.
pub(crate) fn lower(c: char) -> char {
    c.to_lowercase().next().unwrap_or(c)
}

/// The upper case of a character; unchanged where that is not a single character, such as `ß`.
pub(crate) fn upper(c: char) -> char {
    let mut capitals = c.to_uppercase();
    match (capitals.next(), capitals.next()) {
        (Some(capital), None) => capital,
        _ => c,
    }
}

pub(crate) fn text<'v>(value: &'v Value<'_>) -> &'v str {
    match value {
        Value::Text(text) | Value::Json(text) | Value::Jsonb(text) => text,
        _ => "",
    }
}

pub(crate) fn integer(value: Option<&Value<'_>>) -> i64 {
    value.and_then(Value::as_integer).unwrap_or_default()
}

pub(crate) fn int4(number: usize) -> Value<'static> {
    Value::Int4(i32::try_from(number).unwrap_or(i32::MAX))
}

pub(crate) fn float_function(f: impl Fn(f64) -> f64, value: &Value<'_>) -> Result<Value<'static>> {
    let x = to_f64(value).unwrap_or(f64::NAN);
    let y = f(x);
    if x.is_finite() && y.is_infinite() {
        return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    Ok(Value::Float8(y))
}

/// Truncates a numeric after `digits` decimal places, then adds one in direction `away` if any digits were
/// removed.
pub(crate) fn cut(number: Numeric, digits: i64, away: i8) -> Option<Numeric> {
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
pub(crate) fn scaled(whole: i128, digits: i64) -> Option<Numeric> {
    match u8::try_from(digits) {
        Ok(scale) => Numeric::new(whole, scale),
        Err(_) => Numeric::new(whole.checked_mul(10_i128.checked_pow(u32::try_from(-digits).ok()?)?)?, 0),
    }
}

pub(crate) fn rounded(number: Numeric, digits: i64) -> Option<Numeric> {
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
pub(crate) fn truncated(value: &Value<'_>) -> Result<Value<'static>> {
    match value {
        Value::Numeric(number) => numeric_result(cut(*number, 0, 0)),
        _ => Ok(Value::Null),
    }
}

pub(crate) fn numeric_result(number: Option<Numeric>) -> Result<Value<'static>> {
    number.map(Value::Numeric).ok_or_else(|| out_of_range(Type::NUMERIC))
}

/// The part `substr(text, from [, count])`, in characters.
pub(crate) fn substring(text: &str, from: i64, count: Option<i64>) -> Result<&str> {
    let end = match count {
        Some(count) if count < 0 => {
            return Err(SqlError::new(state::SUBSTRING_ERROR, "negative substring length not allowed"));
        }
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let start = usize::try_from(from.max(1) - 1).unwrap_or_default();
    let end = usize::try_from(end.max(1) - 1).unwrap_or_default();
    let place = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(place, _)| place);
    Ok(text.get(place(start)..place(end.max(start))).unwrap_or_default())
}

pub(crate) fn pad(text: &str, length: i64, fill: &str, left: bool) -> Result<String> {
    let length = usize::try_from(length).unwrap_or_default();
    let have = text.chars().count();
    if length <= have || fill.is_empty() {
        return Ok(text.chars().take(length).collect());
    }
    bounds::check_text(length.saturating_mul(4))?;
    let padding: String = fill.chars().cycle().take(length - have).collect();
    Ok(if left { padding + text } else { format!("{text}{padding}") })
}

/// Sleeps, and checks for interrupts regularly.
pub(crate) fn sleep(seconds: f64, cx: &Context<'_>) -> Result<Value<'static>> {
    const LOOK: Duration = Duration::from_millis(10);
    let clock = &cx.env.clock;
    let start = clock.monotonic_nanos();
    loop {
        cx.interrupt.check_now(cx.env)?;
        let passed = clock.monotonic_nanos().saturating_sub(start) as f64 / 1e9;
        match Duration::try_from_secs_f64(seconds - passed) {
            Ok(left) if !left.is_zero() => clock.sleep(left.min(LOOK)),
            // The time has passed, or the duration is not a number.
            _ if seconds - passed > 1.0 => clock.sleep(LOOK),
            _ => return Ok(Value::text("")),
        }
    }
}

impl Function {
    /// True for functions that only operators and keywords call.
    #[cfg(test)]
    pub(crate) fn is_of_operators(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::ArrayContained
                | F::ArrayContains
                | F::ArrayOverlaps
                | F::Between
                | F::Greatest
                | F::IntervalAdd
                | F::IntervalDivided
                | F::IntervalTimes
                | F::JsonbConcat
                | F::JsonbContained
                | F::JsonbContains
                | F::JsonbDelete
                | F::JsonbDeleteAll
                | F::JsonbDeleteAt
                | F::JsonbDeletePath
                | F::ArraySlice
                | F::BytesConcat
                | F::JsonRow
                | F::Keep
                | F::Least
                | F::RegexpSubstring
                | F::SimilarPattern
                | F::Shifted
        )
    }

    pub(crate) fn is_volatile(self) -> bool {
        matches!(self, Self::NewUuid | Self::Random | Self::Sleep | Self::ClockTimestamp)
    }

    fn takes_nulls(self) -> bool {
        matches!(self, Self::Concat | Self::ConcatWs | Self::Greatest | Self::Least | Self::JsonbSetLax)
            || self.is_of_lists()
    }

    /// True when it returns NULL if one of its arguments is NULL.
    pub(crate) fn is_strict(self) -> bool {
        if self.is_of_more() { !self.more_takes_nulls() } else { !self.takes_nulls() }
    }

    pub(crate) fn call<'a>(
        self,
        arguments: &'a [Expr],
        cx: &Context<'a>,
        input: &'a dyn Input,
    ) -> Result<Value<'a>> {
        let mut values = Vec::with_capacity(arguments.len());
        let mut operands = Operands::new(cx.interrupt);
        let stops_at_null = !self.is_of_more() && !self.takes_nulls();
        for argument in arguments {
            let value = argument.eval(cx, input)?;
            if stops_at_null && value.is_null() {
                return Ok(Value::Null);
            }
            operands.hold(&value)?;
            values.push(value);
        }
        if operands.are_large() {
            cx.interrupt.check_now(cx.env)?;
        }
        let made = if self.is_of_more() { self.more(&values, cx)? } else { self.of_values(&values, cx)? };
        bounds::check_made(&made)?;
        Ok(made)
    }

    fn of_values(self, values: &[Value<'_>], cx: &Context<'_>) -> Result<Value<'static>> {
        if let Some(value) = self.by_kind(values, cx)? {
            return Ok(value);
        }
        if let Some(value) = self.of_times(values, cx)? {
            return Ok(value);
        }
        if let Some(value) = self.of_jsonb(values)? {
            return Ok(value);
        }
        let result = match values {
            [] => self.without_arguments(cx)?,
            [seconds] if self == Self::Sleep => sleep(to_f64(seconds).unwrap_or_default(), cx)?,
            [first, rest @ ..] => match first {
                _ if self.takes_nulls() => self.of_many(values)?,
                // A cast to `varchar(n)[]` truncates each element.
                Value::Array(texts) if self == Self::Left => {
                    let mut cut = Vec::new();
                    for item in texts.iter() {
                        cut.push(match item.map_err(|_| bug("an element"))? {
                            Value::Text(text) => self.of_text(&text, rest, cx.zone)?,
                            _ => Value::Null,
                        });
                    }
                    Value::Array(Array::new(Scalar::Text, cut).map_err(|_| bug("texts that make no array"))?)
                }
                Value::Text(_) | Value::Json(_) => self.of_text(text(first), rest, cx.zone)?,
                _ => self.of_others(first, rest)?,
            },
        };
        Ok(result)
    }

    /// Evaluates a function over bytes, patterns, numbers or lists; `None` for other functions.
    fn by_kind(self, values: &[Value<'_>], cx: &Context<'_>) -> Result<Option<Value<'static>>> {
        if let found @ Some(_) = self.of_bytes(values)? {
            return Ok(found);
        }
        if let found @ Some(_) = self.of_regex(values)? {
            return Ok(found);
        }
        if let found @ Some(_) = self.of_numbers(values)? {
            return Ok(found);
        }
        self.of_lists(values, cx.zone)
    }

    fn without_arguments(self, cx: &Context<'_>) -> Result<Value<'static>> {
        Ok(match self {
            Self::Now => Value::Timestamptz(cx.now),
            Self::Pi => Value::Float8(std::f64::consts::PI),
            // 53 random bits cover all evenly spaced doubles in [0, 1).
            Self::Random => Value::Float8((cx.env.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64),
            Self::NewUuid => {
                let (high, low) = (cx.env.random.next_u64(), cx.env.random.next_u64());
                let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
                Value::Uuid(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
            }
            _ => return Err(bug("a function without its arguments")),
        })
    }

    fn of_many(self, values: &[Value<'_>]) -> Result<Value<'static>> {
        let given = values.iter().filter(|value| !value.is_null());
        Ok(match self {
            Self::Concat => {
                let mut joined = bounds::Text::default();
                joined.join(given.filter_map(to_text), "")?;
                Value::text(joined.finish())
            }
            Self::ConcatWs => match values.split_first() {
                Some((Value::Text(separator), rest)) => {
                    let mut joined = bounds::Text::default();
                    joined.join(rest.iter().filter_map(to_text), separator)?;
                    Value::text(joined.finish())
                }
                _ => Value::Null,
            },
            Self::Greatest => {
                given.max_by(|a, b| arith::order(a, b)).cloned().map_or(Value::Null, Value::into_owned)
            }
            _ => given.min_by(|a, b| arith::order(a, b)).cloned().map_or(Value::Null, Value::into_owned),
        })
    }

    /// The characters that a function trims.
    fn trimmed(self, given: &str, is_blank: bool) -> HashSet<char> {
        match self {
            Self::Trim | Self::Ltrim | Self::Rtrim if is_blank => HashSet::from([' ']),
            Self::Trim | Self::Ltrim | Self::Rtrim => given.chars().collect(),
            _ => HashSet::new(),
        }
    }

    fn of_text(self, subject: &str, rest: &[Value<'_>], zone: &Zone) -> Result<Value<'static>> {
        let second = rest.first().map(text).unwrap_or_default();
        let trimmed = self.trimmed(second, rest.is_empty());
        let is_trimmed = |c: char| trimmed.contains(&c);
        let count = integer(rest.first());
        // A negative count removes so many characters at the other end.
        let kept = |all: usize| {
            let all = i64::try_from(all).unwrap_or(i64::MAX);
            usize::try_from(if count < 0 { (all + count).max(0) } else { count.min(all) }).unwrap_or_default()
        };
        Ok(match self {
            Self::Lower => Value::text(subject.chars().map(lower).collect::<String>()),
            Self::Upper => Value::text(subject.chars().map(upper).collect::<String>()),
            Self::Initcap => {
                let mut inside = false;
                let mut out = String::with_capacity(subject.len());
                for c in subject.chars() {
                    out.push(if inside { lower(c) } else { upper(c) });
                    inside = c.is_alphanumeric();
                }
                Value::text(out)
            }
            Self::Reverse => Value::text(subject.chars().rev().collect::<String>()),
            Self::Length => int4(subject.chars().count()),
            Self::OctetLength => int4(subject.len()),
            Self::Substr => {
                let length = rest.get(1).map(|v| integer(Some(v)));
                Value::text(substring(subject, count, length)?.to_owned())
            }
            Self::Left => {
                Value::text(subject.chars().take(kept(subject.chars().count())).collect::<String>())
            }
            Self::Right => {
                let all = subject.chars().count();
                Value::text(subject.chars().skip(all - kept(all)).collect::<String>())
            }
            Self::Trim => Value::text(subject.trim_matches(is_trimmed).to_owned()),
            Self::Ltrim => Value::text(subject.trim_start_matches(is_trimmed).to_owned()),
            Self::Rtrim => Value::text(subject.trim_end_matches(is_trimmed).to_owned()),
            Self::Lpad | Self::Rpad => {
                let fill = rest.get(1).map_or(" ", text);
                Value::text(pad(subject, count, fill, self == Self::Lpad)?)
            }
            Self::Repeat => {
                let times = usize::try_from(count).unwrap_or_default();
                bounds::check_text(subject.len().saturating_mul(times))?;
                Value::text(subject.repeat(times))
            }
            Self::Replace if second.is_empty() => Value::text(subject.to_owned()),
            Self::Replace => {
                let mut replaced = bounds::Text::default();
                let new = rest.get(1).map(text).unwrap_or_default();
                for (place, part) in subject.split(second).enumerate() {
                    if place > 0 {
                        replaced.push(new)?;
                    }
                    replaced.push(part)?;
                }
                Value::text(replaced.finish())
            }
            Self::SplitPart => {
                let number = integer(rest.get(1));
                if number == 0 {
                    let message = "field position must not be zero";
                    return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
                }
                let parts: Vec<&str> =
                    if second.is_empty() { vec![subject] } else { subject.split(second).collect() };
                let place = if number > 0 { number - 1 } else { parts.len() as i64 + number };
                let part = usize::try_from(place).ok().and_then(|place| parts.get(place));
                Value::text(part.copied().unwrap_or_default().to_owned())
            }
            Self::StartsWith => Value::Bool(subject.starts_with(second)),
            Self::Strpos => {
                let found = subject.find(second).and_then(|place| subject.get(..place));
                int4(found.map_or(0, |before| before.chars().count() + 1))
            }
            Self::Ascii => {
                Value::Int4(subject.chars().next().map_or(0, |c| i32::try_from(u32::from(c)).unwrap_or(0)))
            }
            Self::DatePart | Self::Extract => {
                let Some(value) = rest.first() else { return Ok(Value::Null) };
                let field = subject.to_ascii_lowercase();
                match (self, part_of(&field, value, zone)?) {
                    (_, Part::Unknown) => Value::Null,
                    (Self::DatePart, Part::Number(number)) => Value::Float8(number.to_f64()),
                    (Self::DatePart, Part::Infinite(float)) => Value::Float8(float),
                    (_, Part::Number(number)) => Value::Numeric(number),
                    (_, Part::Infinite(_)) => {
                        let message = format!("extract({field}) of infinity: numerics have no infinity");
                        return Err(SqlError::unsupported(message, "use date_part, which returns a double"));
                    }
                }
            }
            Self::DateTrunc => {
                let field = subject.to_ascii_lowercase();
                let field = unit_named(&field).to_owned();
                match rest.first() {
                    Some(value @ Value::Timestamp(micros)) => Value::Timestamp(
                        date_trunc(&field, *micros).ok_or_else(|| unknown_unit(&field, value))?,
                    ),
                    Some(value @ Value::Interval(interval)) => Value::Interval(
                        interval::truncated(*interval, &field).ok_or_else(|| unknown_unit(&field, value))?,
                    ),
                    Some(value @ Value::Timestamptz(micros)) => {
                        let named = rest.get(1).map(|name| zone_named(text(name))).transpose()?;
                        let zone = named.as_ref().unwrap_or(zone);
                        // Time fields are truncated on the instant itself: a local hour that occurs twice
                        // stays the same hour.
                        let is_clock = matches!(
                            field.as_str(),
                            "microseconds" | "milliseconds" | "second" | "minute" | "hour"
                        );
                        let local = date_trunc(&field, zone.local(*micros));
                        let local = local.ok_or_else(|| unknown_unit(&field, value))?;
                        Value::Timestamptz(match is_clock {
                            true => micros.saturating_sub(zone.local(*micros).saturating_sub(local)),
                            false => zone.moment(local),
                        })
                    }
                    _ => Value::Null,
                }
            }
            Self::InZone => match rest.first() {
                Some(Value::Timestamptz(micros)) => Value::Timestamp(zone_named(subject)?.local(*micros)),
                Some(Value::Timestamp(micros)) => Value::Timestamptz(zone_named(subject)?.moment(*micros)),
                _ => Value::Null,
            },
            Self::JsonArrayLength => int4(json::array_length(subject).ok_or_else(|| {
                SqlError::new(state::INVALID_PARAMETER_VALUE, "cannot get array length of a non-array")
            })?),
            Self::JsonTypeof => Value::text(json::kind(subject)),
            _ => return Err(bug("a function of something else")),
        })
    }

    fn of_others(self, first: &Value<'_>, rest: &[Value<'_>]) -> Result<Value<'static>> {
        let digits = integer(rest.first());
        let numeric = match first {
            Value::Numeric(number) => Some(*number),
            _ => None,
        };
        Ok(match (self, numeric) {
            (Self::OctetLength, _) => match first {
                Value::Bytea(bytes) => int4(bytes.len()),
                _ => Value::Null,
            },
            (Self::Chr, _) if integer(Some(first)) < 0 => {
                let message = "character number must be positive";
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
            }
            (Self::Chr, _) => {
                let c = u32::try_from(integer(Some(first))).ok().filter(|c| *c != 0).and_then(char::from_u32);
                let error =
                    || SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, "requested character is not a character");
                Value::text(c.ok_or_else(error)?.to_string())
            }
            // Also removes the sign of negative zero.
            (Self::Abs, _) if let Value::Float8(value) = first => Value::Float8(value.abs()),
            (Self::Abs, _) if let Value::Float4(value) = first => Value::Float4(value.abs()),
            (Self::Abs, _) => match first.compare(&Value::Int2(0)) {
                Some(std::cmp::Ordering::Less) => negate(first)?,
                _ => first.clone().into_owned(),
            },
            (Self::Ceil, Some(number)) => return numeric_result(cut(number, 0, 1)),
            (Self::Floor, Some(number)) => return numeric_result(cut(number, 0, -1)),
            (Self::Trunc, Some(number)) => return numeric_result(cut(number, digits, 0)),
            (Self::Round, Some(number)) => return numeric_result(rounded(number, digits)),
            (Self::Sign, Some(number)) => Value::Numeric(Numeric::from(number.mantissa().signum() as i64)),
            (Self::Ceil, None) => return float_function(f64::ceil, first),
            (Self::Floor, None) => return float_function(f64::floor, first),
            (Self::Trunc, None) => return float_function(f64::trunc, first),
            (Self::Round, None) => return float_function(f64::round_ties_even, first),
            (Self::Sign, None) => return float_function(|x| if x == 0.0 { 0.0 } else { x.signum() }, first),
            (Self::Sqrt, _) if to_f64(first).is_some_and(|x| x < 0.0) => {
                let message = "cannot take square root of a negative number";
                return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_POWER, message));
            }
            (Self::Sqrt, _) => return float_function(f64::sqrt, first),
            (Self::Exp, _) => return float_function(f64::exp, first),
            (Self::Ln | Self::Log, _) if to_f64(first).is_some_and(|x| x <= 0.0) => {
                let message = "cannot take logarithm of zero or a negative number";
                return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_LOGARITHM, message));
            }
            (Self::Ln, _) => return float_function(f64::ln, first),
            (Self::Log, _) => return float_function(f64::log10, first),
            (Self::Power, _) => {
                let exponent = rest.first().and_then(to_f64).unwrap_or(f64::NAN);
                let base = to_f64(first).unwrap_or(f64::NAN);
                if base == 0.0 && exponent < 0.0 || base < 0.0 && base.is_finite() && exponent.fract() != 0.0
                {
                    let message = "zero raised to a negative power, or a negative number to a fraction";
                    return Err(SqlError::new(state::INVALID_ARGUMENT_FOR_POWER, message));
                }
                return float_function(|x| x.powf(exponent), first);
            }
            (Self::Mod, _) => {
                let ty = first.value_type().unwrap_or(Type::INT8);
                return arith::arithmetic(arith::Arith::Rem, first, rest.first().unwrap_or(&Value::Null), ty);
            }
            (Self::MakeDate, _) => {
                let (year, month, day) = (integer(Some(first)), integer(rest.first()), integer(rest.get(1)));
                // Years before our era are counted without a year 0.
                let of_calendar = if year < 0 { year + 1 } else { year };
                let fits = year != 0
                    && (-4713..=5_874_897).contains(&year)
                    && (1..=12).contains(&month)
                    && (1..=datetime::days_in_month(of_calendar, month)).contains(&day);
                match i32::try_from(datetime::days(of_calendar, month, day)) {
                    Ok(days) if fits => Value::Date(days),
                    _ => {
                        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
                        return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, message));
                    }
                }
            }
            (Self::ToTimestamp, _) => {
                let seconds = to_f64(first).unwrap_or(f64::NAN);
                let micros = cast(Value::Float8(seconds * 1e6), Type::INT8)?.as_integer();
                Value::Timestamptz(micros.unwrap_or_default())
            }
            (Self::ArrayLength, _) => match first {
                // Arrays here have one dimension; an empty array has no dimension.
                Value::Array(array) if rest.is_empty() => int4(array.len()),
                Value::Array(array) if digits == 1 && !array.is_empty() => int4(array.len()),
                _ => Value::Null,
            },
            _ => return Err(bug("a function of something else")),
        })
    }
}
