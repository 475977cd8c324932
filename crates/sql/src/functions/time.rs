//! Functions over intervals, and functions that make times of their parts or of texts.

use ropewalk::hooks::civil;
use ropewalk::tables::{Interval, Precision, SECOND_DIGITS_MAX, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::Context;
use crate::expr::arith::too_long;
use crate::expr::cast::{cast, to_f64};
use crate::expr::function::Function;
use crate::functions::{Resolved, datetime_template, number_template, parse_template, text_of};
use crate::types::datetime::DAY;
use crate::types::interval;
use crate::types::names::{interval_precision, rank};
use crate::types::zone::Zone;

/// The interval or time function with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const LENGTH: Type = Type::INTERVAL;
    const INT: Type = Type::INT4;
    let known = |place: usize| types.get(place).copied().flatten();
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let moment = |ty: Option<Type>| match ty {
        None | Some(Type::TIMESTAMPTZ) => Some(Type::TIMESTAMPTZ),
        Some(Type::TIMESTAMP | Type::DATE) => Some(Type::TIMESTAMP),
        Some(_) => None,
    };
    match (name, types.len()) {
        ("*shifted", 2) => resolved(F::Shifted, &[known(0)?, LENGTH], known(0)?),
        ("*between", 2) => resolved(F::Between, &[known(0)?, known(0)?], LENGTH),
        ("*interval_add", 2) => resolved(F::IntervalAdd, &[LENGTH, LENGTH], LENGTH),
        ("*interval_times", 2) => resolved(F::IntervalTimes, &[LENGTH, Type::FLOAT8], LENGTH),
        ("*interval_divided", 2) => resolved(F::IntervalDivided, &[LENGTH, Type::FLOAT8], LENGTH),
        ("age", 1) => {
            let ty = moment(known(0))?;
            resolved(F::Age, &[ty], LENGTH)
        }
        ("age", 2) => {
            let ty = match (moment(known(0))?, moment(known(1))?) {
                (Type::TIMESTAMP, Type::TIMESTAMP) => Type::TIMESTAMP,
                _ => Type::TIMESTAMPTZ,
            };
            resolved(F::Age, &[ty, ty], LENGTH)
        }
        ("date_bin", 3) => {
            moment(known(1)).and(moment(known(2)))?;
            let is = |ty| [known(1), known(2)].contains(&Some(ty));
            // Of the two types that a date can be cast to, PostgreSQL prefers the one with a zone.
            let is_plain = is(Type::TIMESTAMP) && !is(Type::TIMESTAMPTZ);
            let ty = if is_plain { Type::TIMESTAMP } else { Type::TIMESTAMPTZ };
            resolved(F::DateBin, &[LENGTH, ty, ty], ty)
        }
        ("isfinite", 1) => match known(0)? {
            ty @ (Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ | LENGTH) => {
                resolved(F::IsFinite, &[ty], Type::BOOL)
            }
            _ => None,
        },
        ("to_char", 2) => {
            let ty = match known(0)? {
                ty @ (Type::TIMESTAMP | Type::TIMESTAMPTZ | LENGTH) => ty,
                Type::DATE => Type::TIMESTAMPTZ,
                Type::TIME => LENGTH,
                Type::FLOAT4 | Type::FLOAT8 => Type::FLOAT8,
                ty if rank(ty).is_some() => Type::NUMERIC,
                _ => return None,
            };
            resolved(F::ToChar, &[ty, Type::TEXT], Type::TEXT)
        }
        ("to_date", 2) => resolved(F::ToDate, &[Type::TEXT; 2], Type::DATE),
        ("to_timestamp", 1) => resolved(F::ToTimestamp, &[Type::FLOAT8], Type::TIMESTAMPTZ),
        ("to_timestamp", 2) => resolved(F::ToTimestampBy, &[Type::TEXT; 2], Type::TIMESTAMPTZ),
        ("to_number", 2) => resolved(F::ToNumber, &[Type::TEXT; 2], Type::NUMERIC),
        ("justify_hours", 1) => resolved(F::JustifyHours, &[LENGTH], LENGTH),
        ("justify_days", 1) => resolved(F::JustifyDays, &[LENGTH], LENGTH),
        ("justify_interval", 1) => resolved(F::JustifyInterval, &[LENGTH], LENGTH),
        ("make_interval", 7) => {
            resolved(F::MakeInterval, &[INT, INT, INT, INT, INT, INT, Type::FLOAT8], LENGTH)
        }
        ("make_date", 3) => resolved(F::MakeDate, &[INT, INT, INT], Type::DATE),
        ("make_time", 3) => resolved(F::MakeTime, &[INT, INT, Type::FLOAT8], Type::TIME),
        ("make_timestamp", 6) => {
            resolved(F::MakeTimestamp, &[INT, INT, INT, INT, INT, Type::FLOAT8], Type::TIMESTAMP)
        }
        ("make_timestamptz", 6) => {
            resolved(F::MakeTimestamptz, &[INT, INT, INT, INT, INT, Type::FLOAT8], Type::TIMESTAMPTZ)
        }
        ("make_timestamptz", 7) => resolved(
            F::MakeTimestamptz,
            &[INT, INT, INT, INT, INT, Type::FLOAT8, Type::TEXT],
            Type::TIMESTAMPTZ,
        ),
        _ => None,
    }
}

fn out_of_range() -> SqlError {
    SqlError::new(state::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

fn wrong_field() -> SqlError {
    SqlError::new(state::DATETIME_FIELD_OVERFLOW, "date/time field value out of range")
}

fn length(value: Option<&Value<'_>>) -> Interval {
    match value {
        Some(Value::Interval(interval)) => *interval,
        _ => Interval::default(),
    }
}

fn float(value: Option<&Value<'_>>) -> f64 {
    value.and_then(to_f64).unwrap_or_default()
}

fn shifted(moment: &Value<'_>, by: Interval, zone: &Zone) -> Result<Value<'static>> {
    Ok(match moment {
        Value::Time(micros) => Value::Time((micros + by.micros % DAY).rem_euclid(DAY)),
        Value::Timestamp(micros) => Value::Timestamp(interval::after(by, *micros).ok_or_else(out_of_range)?),
        Value::Timestamptz(micros) => {
            Value::Timestamptz(interval::after_in(by, *micros, zone).ok_or_else(out_of_range)?)
        }
        _ => Value::Null,
    })
}

fn between(later: &Value<'_>, earlier: &Value<'_>) -> Result<Value<'static>> {
    let infinite = || SqlError::new(state::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite timestamps");
    Ok(match (later, earlier) {
        (Value::Time(a), Value::Time(b)) => Value::Interval(Interval { months: 0, days: 0, micros: a - b }),
        (Value::Timestamp(a), Value::Timestamp(b)) | (Value::Timestamptz(a), Value::Timestamptz(b)) => {
            if [a, b].iter().any(|micros| matches!(**micros, i64::MAX | i64::MIN)) {
                return Err(infinite());
            }
            Value::Interval(interval::between(*a, *b).ok_or_else(too_long)?)
        }
        _ => Value::Null,
    })
}

/// The operands of `age`: local times, without their zone.
fn clock(value: &Value<'_>, zone: &Zone) -> Result<i64> {
    match value {
        Value::Timestamp(i64::MAX | i64::MIN) | Value::Timestamptz(i64::MAX | i64::MIN) => {
            Err(out_of_range())
        }
        Value::Timestamp(micros) => Ok(*micros),
        Value::Timestamptz(micros) => Ok(zone.local(*micros)),
        _ => Err(crate::expr::bug("an age of a value that is not a time")),
    }
}

/// Microseconds of a time of day.
fn time_of(hour: i64, minute: i64, second: f64) -> Result<i64> {
    let fits = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    let micros = (hour * 60 + minute) * 60_000_000 + (second * 1e6).round() as i64;
    if fits && micros <= DAY { Ok(micros) } else { Err(wrong_field()) }
}

fn make_date(year: i64, month: i64, day: i64) -> Result<Value<'static>> {
    // Years before our era are counted without a year 0.
    let of_calendar = if year < 0 { year + 1 } else { year };
    let fits = year != 0
        && (-4713..=5_874_897).contains(&year)
        && (1..=12).contains(&month)
        && (1..=civil::days_in_month(of_calendar, month)).contains(&day);
    match i32::try_from(civil::to_days(of_calendar, month, day)) {
        Ok(days) if fits => Ok(Value::Date(days)),
        _ => {
            let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
            Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, message))
        }
    }
}

/// `to_timestamp(seconds)`.
fn from_epoch(seconds: &Value<'_>) -> Result<Value<'static>> {
    let seconds = to_f64(seconds).unwrap_or(f64::NAN);
    let micros = cast(Value::Float8(seconds * 1e6), Type::INT8)?.as_integer();
    Ok(Value::Timestamptz(micros.unwrap_or_default()))
}

/// `to_char(value, template)`.
fn to_char(value: &Value<'_>, template: &str, zone: &Zone) -> Result<Value<'static>> {
    Ok(Value::text(match value {
        Value::Timestamp(micros) => datetime_template::to_char(*micros, None, template)?,
        Value::Timestamptz(micros) => datetime_template::to_char(*micros, Some(zone), template)?,
        Value::Interval(interval) => datetime_template::interval_to_char(*interval, template)?,
        Value::Numeric(_) | Value::Float8(_) => number_template::to_char(value, template)?,
        _ => return Ok(Value::Null),
    }))
}

/// `date_bin(stride, time, origin)`: the start of the bin that contains the time.
fn start_of_bin(
    stride: Option<&Value<'_>>,
    time: Option<&Value<'_>>,
    origin: Option<&Value<'_>>,
) -> Result<Value<'static>> {
    let (stride, micros, origin) = match (stride, time, origin) {
        (
            Some(Value::Interval(stride)),
            Some(Value::Timestamp(micros) | Value::Timestamptz(micros)),
            Some(Value::Timestamp(origin) | Value::Timestamptz(origin)),
        ) => (*stride, *micros, *origin),
        _ => return Err(crate::expr::bug("bins of no times")),
    };
    let wrap = |micros| match time {
        Some(Value::Timestamp(_)) => Value::Timestamp(micros),
        _ => Value::Timestamptz(micros),
    };
    if [micros, origin].iter().any(|at| matches!(at, &i64::MAX | &i64::MIN)) {
        return Ok(wrap(micros));
    }
    if stride.months != 0 {
        let message = "timestamps cannot be binned into intervals containing months or years";
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    }
    let width = i64::from(stride.days).checked_mul(DAY).and_then(|days| days.checked_add(stride.micros));
    let width = width.ok_or_else(too_long)?;
    if width <= 0 {
        let message = "stride must be greater than zero";
        return Err(SqlError::new(state::DATETIME_FIELD_OVERFLOW, message));
    }
    let since = micros.checked_sub(origin).ok_or_else(too_long)?;
    Ok(wrap(origin + since.div_euclid(width) * width))
}

impl Function {
    /// Evaluates a function of this module for arguments that are not NULL; `None` for other functions.
    pub(crate) fn of_times(self, values: &[Value<'_>], cx: &Context<'_>) -> Result<Option<Value<'static>>> {
        use Function as F;
        let (first, second) = (values.first(), values.get(1));
        let number = |place: usize| values.get(place).and_then(Value::as_integer).unwrap_or_default();
        let answer = |interval: Option<Interval>| interval.map(Value::Interval).ok_or_else(too_long);
        let date = || {
            let (year, month, day) = (number(0), number(1), number(2));
            let fits = (1..=294_275).contains(&year)
                && (1..=12).contains(&month)
                && (1..=civil::days_in_month(year, month)).contains(&day);
            if fits { Ok(civil::to_days(year, month, day) * DAY) } else { Err(wrong_field()) }
        };
        let nothing = Value::Null;
        let (a, b) = (first.unwrap_or(&nothing), second.unwrap_or(&nothing));
        Ok(Some(match self {
            F::Shifted => shifted(a, length(second), cx.zone)?,
            F::Between => between(a, b)?,
            F::IntervalAdd => answer(interval::add(length(first), length(second)))?,
            F::IntervalTimes => answer(interval::times(length(first), float(second)))?,
            F::IntervalDivided if float(second) == 0.0 => {
                return Err(SqlError::new(state::DIVISION_BY_ZERO, "division by zero"));
            }
            F::IntervalDivided => answer(interval::divided(length(first), float(second)))?,
            F::Age => {
                let (later, earlier) = match second {
                    Some(earlier) => (clock(a, cx.zone)?, clock(earlier, cx.zone)?),
                    // From the argument to the start of today.
                    None => {
                        let today = cx.zone.local(cx.now).div_euclid(DAY) * DAY;
                        (today, clock(a, cx.zone)?)
                    }
                };
                answer(interval::age(later, earlier))?
            }
            F::Keep => {
                let digits = u8::try_from(number(1)).unwrap_or(SECOND_DIGITS_MAX);
                let precision = match first {
                    Some(Value::Interval(_)) => interval_precision(number(1)),
                    _ => Precision::digits(digits),
                };
                precision.keep(a.clone()).into_owned()
            }
            F::DateBin => start_of_bin(first, second, values.get(2))?,
            F::IsFinite => Value::Bool(!matches!(
                first,
                Some(
                    Value::Date(i32::MAX | i32::MIN)
                        | Value::Timestamp(i64::MAX | i64::MIN)
                        | Value::Timestamptz(i64::MAX | i64::MIN)
                )
            )),
            F::ToChar => to_char(a, text_of(second), cx.zone)?,
            F::ToTimestamp => from_epoch(a)?,
            F::ToDate => parse_template::to_date(text_of(first), text_of(second))?,
            F::ToTimestampBy => parse_template::to_timestamp(text_of(first), text_of(second), cx.zone)?,
            F::ToNumber if text_of(second).is_empty() => Value::Null,
            F::ToNumber => parse_template::to_number(text_of(first), text_of(second))?,
            F::JustifyHours => answer(interval::justify_hours(length(first)))?,
            F::JustifyDays => answer(interval::justify_days(length(first)))?,
            F::JustifyInterval => answer(interval::justify(length(first)))?,
            F::MakeInterval => {
                let months = number(0).checked_mul(12).and_then(|months| months.checked_add(number(1)));
                let days = number(2).checked_mul(7).and_then(|days| days.checked_add(number(3)));
                let seconds = float(values.get(6)) * 1e6;
                let clock = (number(4) * 60 + number(5)).checked_mul(60_000_000);
                let micros = clock.filter(|_| seconds.is_finite() && seconds.abs() < 9e18);
                let micros = micros.and_then(|clock| clock.checked_add(seconds.round() as i64));
                let made = || {
                    Some(Interval {
                        months: i32::try_from(months?).ok()?,
                        days: i32::try_from(days?).ok()?,
                        micros: micros?,
                    })
                };
                answer(made())?
            }
            F::MakeDate => make_date(number(0), number(1), number(2))?,
            F::MakeTime => Value::Time(time_of(number(0), number(1), float(values.get(2)))?),
            F::MakeTimestamp | F::MakeTimestamptz => {
                let local = date()? + time_of(number(3), number(4), float(values.get(5)))?;
                match (self, values.get(6)) {
                    (F::MakeTimestamp, _) => Value::Timestamp(local),
                    (_, Some(Value::Text(name))) => {
                        Value::Timestamptz(crate::functions::zone_named(name)?.moment(local))
                    }
                    _ => Value::Timestamptz(cx.zone.moment(local)),
                }
            }
            _ => return Ok(None),
        }))
    }
}
