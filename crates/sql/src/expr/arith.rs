//! Arithmetic and comparison of values.

use std::cmp::Ordering;

use ropewalk::tables::{Numeric, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::cast::{to_f64, to_numeric};
use crate::types::interval;
use crate::types::names::{is_integer, is_numeric, type_name};

/// Operators on numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arith {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

impl Arith {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Rem => "%",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "#",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
        }
    }

    pub(crate) fn is_bitwise(self) -> bool {
        matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor | Self::ShiftLeft | Self::ShiftRight)
    }
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Compare {
    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Eq => order.is_eq(),
            Self::Ne => order.is_ne(),
            Self::Lt => order.is_lt(),
            Self::Le => order.is_le(),
            Self::Gt => order.is_gt(),
            Self::Ge => order.is_ge(),
        }
    }

    /// The same comparison with its sides exchanged.
    pub(crate) fn turned(self) -> Self {
        match self {
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
            same => same,
        }
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Eq => "=",
            Self::Ne => "<>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }
}

pub(crate) fn out_of_range(ty: Type) -> SqlError {
    SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, format!("{} out of range", type_name(ty)))
}

fn zero() -> SqlError {
    SqlError::new(state::DIVISION_BY_ZERO, "division by zero")
}

/// `left op right` as numbers of type `ty`, which fits both. NULL if one is NULL.
pub(crate) fn arithmetic(op: Arith, left: &Value<'_>, right: &Value<'_>, ty: Type) -> Result<Value<'static>> {
    if left.is_null() || right.is_null() {
        return Ok(Value::Null);
    }
    if let (Value::Date(a), Value::Date(b)) = (left, right) {
        return a.checked_sub(*b).map(Value::Int4).ok_or_else(|| out_of_range(ty));
    }
    if is_integer(ty) {
        let (Some(a), Some(b)) = (left.as_integer(), right.as_integer()) else {
            return Err(out_of_range(ty));
        };
        return integers(op, a, b, ty);
    }
    if is_numeric(ty) {
        let (Some(a), Some(b)) = (to_numeric(left), to_numeric(right)) else { return Err(out_of_range(ty)) };
        return numerics(op, a, b);
    }
    if let (Value::Date(a), true) = (left, ty == Type::DATE) {
        let days = right.as_integer().unwrap_or_default();
        let moved =
            if op == Arith::Sub { i64::from(*a).checked_sub(days) } else { i64::from(*a).checked_add(days) };
        let date = moved.and_then(|days| i32::try_from(days).ok());
        return date.map(Value::Date).ok_or_else(|| out_of_range(ty));
    }
    let (Some(a), Some(b)) = (to_f64(left), to_f64(right)) else { return Err(out_of_range(ty)) };
    if matches!(op, Arith::Div | Arith::Rem) && b == 0.0 {
        return Err(zero());
    }
    let result = match op {
        Arith::Add => a + b,
        Arith::Sub => a - b,
        Arith::Mul => a * b,
        Arith::Div => a / b,
        _ => a % b,
    };
    let result = if ty == Type::FLOAT4 { f64::from(result as f32) } else { result };
    if a.is_finite() && b.is_finite() && !result.is_finite() {
        return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    Ok(if ty == Type::FLOAT4 { Value::Float4(result as f32) } else { Value::Float8(result) })
}

fn integers(op: Arith, a: i64, b: i64, ty: Type) -> Result<Value<'static>> {
    if matches!(op, Arith::Div | Arith::Rem) && b == 0 {
        return Err(zero());
    }
    let bits: u32 = match ty {
        Type::INT2 | Type::INT4 => 32,
        _ => 64,
    };
    let shift = u32::try_from(b.rem_euclid(i64::from(bits))).unwrap_or_default();
    let result = match op {
        Arith::Add => a.checked_add(b),
        Arith::Sub => a.checked_sub(b),
        Arith::Mul => a.checked_mul(b),
        Arith::Div => a.checked_div(b),
        // The remainder of the least number by -1 is 0, though the quotient overflows.
        Arith::Rem => Some(a.wrapping_rem(b)),
        Arith::BitAnd => Some(a & b),
        Arith::BitOr => Some(a | b),
        Arith::BitXor => Some(a ^ b),
        Arith::ShiftLeft => Some(match ty {
            Type::INT2 => i64::from((a << shift) as i16),
            Type::INT4 => i64::from((a << shift) as i32),
            _ => a << shift,
        }),
        Arith::ShiftRight => Some(a >> shift),
    };
    result.and_then(|wide| Value::Int8(wide).assign(ty).ok()).ok_or_else(|| out_of_range(ty))
}

fn numerics(op: Arith, a: Numeric, b: Numeric) -> Result<Value<'static>> {
    if a.is_nan() || b.is_nan() {
        return Ok(Value::Numeric(Numeric::NAN));
    }
    if matches!(op, Arith::Div | Arith::Rem) && b == Numeric::ZERO {
        return Err(zero());
    }
    let result = match op {
        Arith::Add => a.checked_add(b),
        Arith::Sub => a.checked_sub(b),
        Arith::Mul => a.checked_mul(b),
        Arith::Div => a.checked_div(b),
        _ => a.checked_rem(b),
    };
    let error = || {
        SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
            .hint("numerics have at most 38 digits")
    };
    result.map(Value::Numeric).ok_or_else(error)
}

/// `-value`.
pub(crate) fn negate(value: &Value<'_>) -> Result<Value<'static>> {
    let wide = |ty| {
        move |v: Option<i64>| v.and_then(|v| Value::Int8(v).assign(ty).ok()).ok_or_else(|| out_of_range(ty))
    };
    match value {
        Value::Float4(v) => Ok(Value::Float4(-v)),
        Value::Float8(v) => Ok(Value::Float8(-v)),
        Value::Numeric(v) => Ok(Value::Numeric(v.negate())),
        Value::Null => Ok(Value::Null),
        Value::Interval(v) => interval::negate(*v).map(Value::Interval).ok_or_else(too_long),
        other => {
            let ty = other.value_type().unwrap_or(Type::INT8);
            wide(ty)(other.as_integer().and_then(i64::checked_neg))
        }
    }
}

/// The order of two values that are not NULL; the binder has ensured that they are comparable.
pub(crate) fn order(left: &Value<'_>, right: &Value<'_>) -> Ordering {
    left.compare(right).unwrap_or(Ordering::Equal)
}

/// The order of ORDER BY: NULLs at one end.
pub(crate) fn sort_order(
    left: &Value<'_>,
    right: &Value<'_>,
    descending: bool,
    nulls_first: bool,
) -> Ordering {
    let order = match (left.is_null(), right.is_null()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return if nulls_first { Ordering::Less } else { Ordering::Greater },
        (false, true) => return if nulls_first { Ordering::Greater } else { Ordering::Less },
        (false, false) => order(left, right),
    };
    if descending { order.reverse() } else { order }
}

/// Equality that treats NULLs as equal.
pub(crate) fn not_distinct(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left.is_null(), right.is_null()) {
        (false, false) => order(left, right).is_eq(),
        (a, b) => a && b,
    }
}

/// Appends bytes that are equal for equal values of one type, NULLs included: keys of groups and of DISTINCT.
pub(crate) fn put_identity(value: &Value<'_>, out: &mut Vec<u8>) {
    let bytes = |bytes: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Null => out.push(0),
        Value::Text(v) | Value::Json(v) | Value::Jsonb(v) => {
            out.push(1);
            bytes(v.as_bytes(), out);
        }
        Value::Bytea(v) => {
            out.push(1);
            bytes(v, out);
        }
        Value::Float4(_) | Value::Float8(_) => {
            let float = to_f64(value).unwrap_or_default();
            let float = if float == 0.0 { 0.0 } else { float };
            let float = if float.is_nan() { f64::NAN } else { float };
            out.push(1);
            out.extend_from_slice(&float.to_bits().to_le_bytes());
        }
        Value::Numeric(v) => {
            out.push(1);
            let text = v.to_string();
            let text =
                if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            bytes(if text == "-0" { b"0" } else { text.as_bytes() }, out);
        }
        Value::Array(array) => {
            out.push(1);
            for item in array.iter().flatten() {
                out.push(1);
                put_identity(&item, out);
            }
            out.push(0);
        }
        other => {
            out.push(1);
            match other {
                Value::Bool(v) => out.push(u8::from(*v)),
                Value::Date(v) => out.extend_from_slice(&v.to_le_bytes()),
                Value::Time(v) | Value::Timestamp(v) | Value::Timestamptz(v) => {
                    out.extend_from_slice(&v.to_le_bytes());
                }
                Value::Uuid(v) => out.extend_from_slice(v),
                Value::Interval(v) => out.extend_from_slice(&v.length().to_le_bytes()),
                Value::Enum(_) | Value::Inet(_) | Value::Cidr(_) => other.put_key(out),
                integer => out.extend_from_slice(&integer.as_integer().unwrap_or_default().to_le_bytes()),
            }
        }
    }
}

pub(crate) fn too_long() -> SqlError {
    SqlError::new(state::DATETIME_FIELD_OVERFLOW, "interval out of range")
}
