//! Parts of dates and times: `extract`, `date_part`, `date_trunc`.

use ropewalk::hooks::civil;
use ropewalk::tables::{Numeric, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::function::Function;
use crate::functions::{Resolved, text_of};
use crate::types::datetime::DAY;
use crate::types::interval;
use crate::types::zone::Zone;

/// The function over parts of times with this name, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const TEXT: Type = Type::TEXT;
    let resolved = |function, arguments: &[Type], result| {
        Some(Resolved { function, arguments: arguments.to_vec(), result })
    };
    let second = types.get(1).copied().flatten();
    match (name, types.len()) {
        ("date_trunc", 2) => {
            let ty = match second.unwrap_or(Type::TIMESTAMPTZ) {
                ty @ (Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::INTERVAL) => ty,
                // A time is cast to an interval.
                Type::TIME => Type::INTERVAL,
                // Of the two types that a date can be cast to, PostgreSQL prefers the one with a zone.
                Type::DATE => Type::TIMESTAMPTZ,
                _ => return None,
            };
            resolved(F::DateTrunc, &[TEXT, ty], ty)
        }
        ("date_trunc", 3) => resolved(F::DateTrunc, &[TEXT, Type::TIMESTAMPTZ, TEXT], Type::TIMESTAMPTZ),
        ("timezone", 2) => match second {
            Some(Type::TIMESTAMP) => resolved(F::InZone, &[TEXT, Type::TIMESTAMP], Type::TIMESTAMPTZ),
            None | Some(Type::TIMESTAMPTZ | Type::DATE) => {
                resolved(F::InZone, &[TEXT, Type::TIMESTAMPTZ], Type::TIMESTAMP)
            }
            Some(_) => None,
        },
        ("date_part" | "extract", 2) => {
            let ty = second.unwrap_or(Type::TIMESTAMP);
            matches!(ty, Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::DATE | Type::TIME | Type::INTERVAL)
                .then_some(())?;
            match (name, ty) {
                ("extract", ty) => resolved(F::Extract, &[TEXT, ty], Type::NUMERIC),
                (_, Type::DATE) => resolved(F::DatePart, &[TEXT, Type::TIMESTAMP], Type::FLOAT8),
                (_, ty) => resolved(F::DatePart, &[TEXT, ty], Type::FLOAT8),
            }
        }
        _ => None,
    }
}

/// A date or time as days since 1970 and microseconds of the day.
pub(crate) fn moment(value: &Value<'_>) -> (i64, i64) {
    match value {
        Value::Date(days) => (i64::from(*days), 0),
        Value::Time(micros) => (0, *micros),
        Value::Timestamp(micros) => (micros.div_euclid(DAY), micros.rem_euclid(DAY)),
        _ => (0, 0),
    }
}

/// The zone with this name.
pub(crate) fn zone_named(name: &str) -> Result<Zone> {
    Zone::named(name).ok_or_else(|| {
        let cut: String = name.chars().take(64).collect();
        SqlError::new(state::INVALID_PARAMETER_VALUE, format!("time zone \"{cut}\" not recognized"))
    })
}

pub(crate) fn unknown_unit(field: &str, value: &Value<'_>) -> SqlError {
    let kind = value.value_type().map_or_else(String::new, crate::types::names::type_name);
    let message = format!("unit \"{field}\" not recognized for type {kind}");
    SqlError::new(state::INVALID_PARAMETER_VALUE, message)
}

/// The value of a field.
pub(crate) enum Part {
    Number(Numeric),
    /// Infinity: a field that grows with time, of an infinite value.
    Infinite(f64),
    /// NULL: a cyclic field of an infinite value.
    Unknown,
}

/// `extract(field from value)`, also for infinite values.
pub(crate) fn part_of(field: &str, value: &Value<'_>, zone: &Zone) -> Result<Part> {
    let infinity = match value {
        Value::Date(i32::MAX) | Value::Timestamp(i64::MAX) | Value::Timestamptz(i64::MAX) => f64::INFINITY,
        Value::Date(i32::MIN) | Value::Timestamp(i64::MIN) | Value::Timestamptz(i64::MIN) => {
            f64::NEG_INFINITY
        }
        _ => return date_part(field, value, zone).map(Part::Number),
    };
    // Whether the field exists does not depend on the value.
    let like = match value {
        Value::Date(_) => Value::Date(0),
        Value::Timestamp(_) => Value::Timestamp(0),
        _ => Value::Timestamptz(0),
    };
    date_part(field, &like, zone)?;
    Ok(match unit_named(field) {
        "year" | "isoyear" | "decade" | "century" | "millennium" | "epoch" | "julian" => {
            Part::Infinite(infinity)
        }
        _ => Part::Unknown,
    })
}

/// `extract(field from value)`; in microseconds of the field where it has fractions.
pub(crate) fn date_part(field: &str, value: &Value<'_>, zone: &Zone) -> Result<Numeric> {
    let field = unit_named(field);
    if let Value::Timestamptz(at) = value {
        let offset = i64::from(zone.offset_at(*at));
        return match field {
            "timezone" => Ok(offset.into()),
            "timezone_hour" => Ok((offset / 3600).into()),
            "timezone_minute" => Ok((offset / 60 % 60).into()),
            "epoch" => Ok(Numeric::new(i128::from(*at), 6).unwrap_or(Numeric::NAN)),
            _ => date_part(field, &Value::Timestamp(zone.local(*at)), zone),
        };
    }
    if let Value::Interval(interval) = value {
        return interval::part(*interval, field).ok_or_else(|| unknown_unit(field, value));
    }
    let (days, micros) = moment(value);
    let (year, month, day) = civil::from_days(days);
    let whole = |number: i64| Numeric::from(number);
    let timed = |field: &str| {
        matches!(field, "hour" | "minute" | "second" | "milliseconds" | "microseconds" | "epoch")
    };
    let unknown = || unknown_unit(field, value);
    // A time has no date fields, and a date no time fields.
    let is_absent = match value {
        Value::Time(_) => !timed(field),
        Value::Date(_) => timed(field) && field != "epoch",
        _ => false,
    };
    if is_absent || field.starts_with("timezone") {
        date_part(field, &Value::Timestamptz(0), zone).map_err(|_| unknown())?;
        let kind = value.value_type().map_or_else(String::new, crate::types::names::type_name);
        let message = format!("unit \"{field}\" not supported for type {kind}");
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    }
    let of_micros = |micros: i64, scale: u8| Numeric::new(i128::from(micros), scale).unwrap_or(Numeric::NAN);
    Ok(match field {
        "year" => whole(if year > 0 { year } else { year - 1 }),
        "month" => whole(month),
        "day" => whole(day),
        "hour" => whole(micros / 3_600_000_000),
        "minute" => whole(micros / 60_000_000 % 60),
        "second" => of_micros(micros % 60_000_000, 6),
        "milliseconds" => of_micros(micros % 60_000_000, 3),
        "microseconds" => whole(micros % 60_000_000),
        "dow" => whole(civil::weekday(days)),
        "isodow" => whole(days - civil::monday(days) + 1),
        "doy" => whole(days - civil::to_days(year, 1, 1) + 1),
        "week" => whole(civil::iso_week(days).1),
        "isoyear" => whole(civil::iso_week(days).0),
        "quarter" => whole((month + 2) / 3),
        "decade" => whole(year.div_euclid(10)),
        "century" => whole((year + 99).div_euclid(100) - i64::from(year <= 0)),
        "millennium" => whole((year + 999).div_euclid(1000) - i64::from(year <= 0)),
        "julian" if micros == 0 => whole(days + 2_440_588),
        "julian" => {
            let day = Numeric::new(i128::from(micros), 6)
                .and_then(|part| part.checked_div(Numeric::from(86_400_i64)));
            day.and_then(|day| day.rescale(20)?.checked_add(Numeric::from(days + 2_440_588)))
                .unwrap_or(Numeric::NAN)
        }
        "epoch" if matches!(value, Value::Date(_)) => whole(days * 86_400),
        "epoch" => {
            Numeric::new(i128::from(days) * i128::from(DAY) + i128::from(micros), 6).unwrap_or(Numeric::NAN)
        }
        _ => return Err(unknown()),
    })
}

/// The canonical name of a unit: PostgreSQL accepts several for some.
pub(crate) fn unit_named(field: &str) -> &str {
    match field {
        "years" | "yr" | "yrs" | "y" => "year",
        "months" | "mon" | "mons" => "month",
        "weeks" | "w" => "week",
        "days" | "d" => "day",
        "hours" | "hr" | "hrs" | "h" => "hour",
        "minutes" | "min" | "mins" | "m" => "minute",
        "seconds" | "sec" | "secs" | "s" => "second",
        "millisecond" | "msec" | "msecs" | "ms" => "milliseconds",
        "microsecond" | "usec" | "usecs" | "us" => "microseconds",
        "decades" | "dec" | "decs" => "decade",
        "centuries" | "cent" | "c" => "century",
        "millennia" | "mil" | "mils" => "millennium",
        "qtr" => "quarter",
        other => other,
    }
}

/// The start of the unit that contains the local time `micros`; `None` for an unknown unit.
pub(crate) fn date_trunc(field: &str, micros: i64) -> Option<i64> {
    if matches!(micros, i64::MAX | i64::MIN) {
        return date_trunc(field, 0).and(Some(micros));
    }
    let unit = |unit: i64| micros - micros.rem_euclid(unit);
    let days = micros.div_euclid(DAY);
    let (year, month, _) = civil::from_days(days);
    Some(match field {
        "microseconds" => micros,
        "milliseconds" => unit(1000),
        "second" => unit(1_000_000),
        "minute" => unit(60_000_000),
        "hour" => unit(3_600_000_000),
        "day" => unit(DAY),
        "week" => civil::monday(days) * DAY,
        "month" => civil::to_days(year, month, 1) * DAY,
        "quarter" => civil::to_days(year, (month - 1) / 3 * 3 + 1, 1) * DAY,
        "year" => civil::to_days(year, 1, 1) * DAY,
        "decade" => civil::to_days(year.div_euclid(10) * 10, 1, 1) * DAY,
        "century" => civil::to_days((year - 1).div_euclid(100) * 100 + 1, 1, 1) * DAY,
        "millennium" => civil::to_days((year - 1).div_euclid(1000) * 1000 + 1, 1, 1) * DAY,
        _ => return None,
    })
}

/// `date_part` as a double, and `extract` as a numeric when `is_exact`.
fn show_part(field: &str, value: &Value<'_>, is_exact: bool, zone: &Zone) -> Result<Value<'static>> {
    let field = field.to_ascii_lowercase();
    Ok(match (part_of(&field, value, zone)?, is_exact) {
        (Part::Unknown, _) => Value::Null,
        (Part::Number(number), false) => Value::Float8(number.to_f64()),
        (Part::Infinite(float), false) => Value::Float8(float),
        (Part::Number(number), true) => Value::Numeric(number),
        (Part::Infinite(_), true) => {
            let message = format!("extract({field}) of infinity: numerics have no infinity");
            return Err(SqlError::unsupported(message, "use date_part, which returns a double"));
        }
    })
}

/// `date_trunc(field, value)`, for an instant in local time of `zone`.
fn truncate(field: &str, value: &Value<'_>, zone: &Zone) -> Result<Value<'static>> {
    let field = field.to_ascii_lowercase();
    let field = unit_named(&field);
    let unknown = || unknown_unit(field, value);
    Ok(match value {
        Value::Timestamp(micros) => Value::Timestamp(date_trunc(field, *micros).ok_or_else(unknown)?),
        Value::Interval(interval) => {
            Value::Interval(interval::truncated(*interval, field).ok_or_else(unknown)?)
        }
        Value::Timestamptz(micros) => {
            // Time fields are truncated on the instant itself: a local hour that occurs twice stays the same
            // hour.
            let is_clock = matches!(field, "microseconds" | "milliseconds" | "second" | "minute" | "hour");
            let local = date_trunc(field, zone.local(*micros)).ok_or_else(unknown)?;
            Value::Timestamptz(match is_clock {
                true => micros.saturating_sub(zone.local(*micros).saturating_sub(local)),
                false => zone.moment(local),
            })
        }
        _ => Value::Null,
    })
}

impl Function {
    /// Evaluates a function over parts of times; `None` for other functions. No argument is NULL.
    pub(crate) fn of_date_parts(self, values: &[Value<'_>], zone: &Zone) -> Result<Option<Value<'static>>> {
        let [first, value, rest @ ..] = values else { return Ok(None) };
        let field = text_of(Some(first));
        Ok(Some(match (self, value) {
            (Self::DatePart | Self::Extract, _) => show_part(field, value, self == Self::Extract, zone)?,
            (Self::DateTrunc, _) => match rest.first() {
                Some(name) => truncate(field, value, &zone_named(text_of(Some(name)))?)?,
                None => truncate(field, value, zone)?,
            },
            (Self::InZone, Value::Timestamptz(micros)) => Value::Timestamp(zone_named(field)?.local(*micros)),
            (Self::InZone, Value::Timestamp(micros)) => {
                Value::Timestamptz(zone_named(field)?.moment(*micros))
            }
            (Self::InZone, _) => Value::Null,
            _ => return Ok(None),
        }))
    }
}
