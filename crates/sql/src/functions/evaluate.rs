//! Evaluation of functions: arguments, NULLs and the families of functions.

use std::time::Duration;

use ropewalk::tables::Value;

use crate::error::{Result, SqlError, state};
use crate::expr::bounds::Operands;
use crate::expr::cast::to_f64;
use crate::expr::function::Function;
use crate::expr::{Context, Expr, Input, arith, bounds, bug};
use crate::functions::{int4, integer_of};

/// Sleeps, and checks for interrupts regularly.
fn sleep(seconds: f64, cx: &Context<'_>) -> Result<Value<'static>> {
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

/// Most bytes of `gen_random_bytes`, as in PostgreSQL.
const RANDOM_BYTES_MAX: i64 = 1024;

fn random_bytes(count: i64, cx: &Context<'_>) -> Result<Value<'static>> {
    if !(1..=RANDOM_BYTES_MAX).contains(&count) {
        return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, "Length not in range"));
    }
    let words = (0..count).step_by(8).map(|_| cx.env.random.next_u64().to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(usize::try_from(count).unwrap_or_default());
    Ok(Value::bytea(bytes))
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
                | F::InetOverlaps
                | F::InetWithin
                | F::InetWithinOrEqual
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
        matches!(self, Self::NewUuid | Self::Random | Self::RandomBytes | Self::Sleep | Self::ClockTimestamp)
    }

    /// True for functions that may return another value than NULL for a NULL argument.
    fn takes_nulls(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::ArrayAppend
                | F::ArrayCat
                | F::ArrayFill
                | F::ArrayPosition
                | F::ArrayPositionFrom
                | F::ArrayPositions
                | F::ArrayPrepend
                | F::ArrayRemove
                | F::ArrayReplace
                | F::ArraySlice
                | F::ArrayToString
                | F::Concat
                | F::ConcatWs
                | F::Format
                | F::Greatest
                | F::JsonBuildArray
                | F::JsonBuildObject
                | F::JsonRow
                | F::JsonbSetLax
                | F::Least
                | F::NumNonnulls
                | F::NumNulls
                | F::QuoteNullable
                | F::StringToArray
        )
    }

    /// True when it returns NULL if one of its arguments is NULL.
    pub(crate) fn is_strict(self) -> bool {
        !self.takes_nulls()
    }

    /// True for strict functions that evaluate the arguments after a NULL, whose errors are then reported.
    fn evaluates_all(self) -> bool {
        use Function as F;
        matches!(
            self,
            F::ArrayContained
                | F::ArrayContains
                | F::ArrayLower
                | F::ArrayOverlaps
                | F::ArrayUpper
                | F::Div
                | F::JsonPath
                | F::JsonPathText
                | F::ToChar
                | F::Translate
        )
    }

    pub(crate) fn call<'a>(
        self,
        arguments: &'a [Expr],
        cx: &Context<'a>,
        input: &'a dyn Input,
    ) -> Result<Value<'a>> {
        let mut values = Vec::with_capacity(arguments.len());
        let mut operands = Operands::new(cx.interrupt);
        let stops_at_null = self.is_strict() && !self.evaluates_all();
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
        if self.evaluates_all() && values.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let made = self.of_values(&values, cx)?;
        bounds::check_made(&made)?;
        Ok(made)
    }

    /// Evaluates a function by its family. Not inlined: the recursive `call` needs no stack for this.
    #[inline(never)]
    fn of_values(self, values: &[Value<'_>], cx: &Context<'_>) -> Result<Value<'static>> {
        if let Some(value) = self.of_text(values)? {
            return Ok(value);
        }
        if let Some(value) = self.of_numbers(values)? {
            return Ok(value);
        }
        if let Some(value) = self.of_date_parts(values, cx.zone)? {
            return Ok(value);
        }
        if let Some(value) = self.of_times(values, cx)? {
            return Ok(value);
        }
        if let Some(value) = self.of_arrays(values, cx.zone)? {
            return Ok(value);
        }
        if let Some(value) = self.of_json(values, cx.zone)? {
            return Ok(value);
        }
        if let Some(value) = self.of_jsonb(values)? {
            return Ok(value);
        }
        if let Some(value) = self.of_bytes(values)? {
            return Ok(value);
        }
        if let Some(value) = self.of_inets(values)? {
            return Ok(value);
        }
        if let Some(value) = self.of_regex(values)? {
            return Ok(value);
        }
        self.of_any_values(values, cx)
    }

    /// Evaluates a function without arguments, or of arguments of any type.
    fn of_any_values(self, values: &[Value<'_>], cx: &Context<'_>) -> Result<Value<'static>> {
        let given = values.iter().filter(|value| !value.is_null());
        Ok(match self {
            Self::Now => Value::Timestamptz(cx.now),
            Self::ClockTimestamp => Value::Timestamptz(cx.env.clock.wall_micros()),
            Self::Pi => Value::Float8(std::f64::consts::PI),
            // 53 random bits cover all evenly spaced doubles in [0, 1).
            Self::Random => Value::Float8((cx.env.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64),
            Self::NewUuid => {
                let (high, low) = (cx.env.random.next_u64(), cx.env.random.next_u64());
                let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
                Value::Uuid(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
            }
            Self::RandomBytes => random_bytes(integer_of(values.first()), cx)?,
            Self::Sleep => sleep(values.first().and_then(to_f64).unwrap_or_default(), cx)?,
            Self::Greatest => {
                given.max_by(|a, b| arith::order(a, b)).cloned().map_or(Value::Null, Value::into_owned)
            }
            Self::Least => {
                given.min_by(|a, b| arith::order(a, b)).cloned().map_or(Value::Null, Value::into_owned)
            }
            Self::NumNulls => int4(values.iter().filter(|value| value.is_null()).count()),
            Self::NumNonnulls => int4(given.count()),
            _ => return Err(bug("a function without a family")),
        })
    }
}
