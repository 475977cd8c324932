//! Statistical aggregates: variance, standard deviation, correlation, regression.
//!
//! Over integers and numerics sums are exact, and so is the quotient except for its last digit, as in
//! PostgreSQL; over floats, and where the sums exceed 38 digits, running means and squares are used (Youngs
//! and Cramer, Technometrics 1971).

use ropewalk::tables::{Numeric, Type, Value};

use crate::expr::cast::{to_f64, to_numeric};
use crate::types::names::is_integer;

/// A statistic of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    VarPop,
    VarSamp,
    StddevPop,
    StddevSamp,
}

impl Spread {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "var_pop" => Self::VarPop,
            "var_samp" | "variance" => Self::VarSamp,
            "stddev_pop" => Self::StddevPop,
            "stddev_samp" | "stddev" => Self::StddevSamp,
            _ => return None,
        })
    }

    fn is_of_sample(self) -> bool {
        matches!(self, Self::VarSamp | Self::StddevSamp)
    }

    fn is_root(self) -> bool {
        matches!(self, Self::StddevPop | Self::StddevSamp)
    }
}

/// A statistic of two columns: the first one depends on the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    Corr,
    CovarPop,
    CovarSamp,
    Slope,
    Intercept,
    R2,
    AvgX,
    AvgY,
    Count,
    Sxx,
    Syy,
    Sxy,
}

impl Pair {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "corr" => Self::Corr,
            "covar_pop" => Self::CovarPop,
            "covar_samp" => Self::CovarSamp,
            "regr_slope" => Self::Slope,
            "regr_intercept" => Self::Intercept,
            "regr_r2" => Self::R2,
            "regr_avgx" => Self::AvgX,
            "regr_avgy" => Self::AvgY,
            "regr_count" => Self::Count,
            "regr_sxx" => Self::Sxx,
            "regr_syy" => Self::Syy,
            "regr_sxy" => Self::Sxy,
            _ => return None,
        })
    }

    pub(crate) fn result(self) -> Type {
        if self == Self::Count { Type::INT8 } else { Type::FLOAT8 }
    }
}

/// The sums of one column.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sums {
    count: i64,
    /// Sums of the values and of their squares, as long as both are exact.
    exact: Option<(Numeric, Numeric)>,
    mean: f64,
    squares: f64,
}

impl Sums {
    pub(crate) fn take(&mut self, value: &Value<'_>) {
        let next = to_f64(value).unwrap_or(f64::NAN);
        let before =
            if self.count == 0 { Some((Numeric::from(0_i64), Numeric::from(0_i64))) } else { self.exact };
        self.exact = before.and_then(|(sum, squares)| {
            let number = to_numeric(value)?;
            Some((sum.checked_add(number)?, squares.checked_add(number.checked_mul(number)?)?))
        });
        self.count += 1;
        let distance = next - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (next - self.mean);
    }

    pub(crate) fn finish(&self, asked: Spread, ty: Type) -> Value<'static> {
        let count = self.count;
        let divisor = if asked.is_of_sample() { count - 1 } else { count };
        if divisor < 1 {
            return Value::Null;
        }
        if ty == Type::NUMERIC
            && let Some(exact) = self.exactly(asked, divisor)
        {
            return Value::Numeric(exact);
        }
        let variance = self.squares / divisor as f64;
        let result = if asked.is_root() { variance.sqrt() } else { variance };
        if ty == Type::NUMERIC {
            return Value::Numeric(Numeric::from_f64(result).unwrap_or(Numeric::NAN));
        }
        Value::Float8(result)
    }

    /// (n Σx² - (Σx)²) / (n divisor)
    fn exactly(&self, asked: Spread, divisor: i64) -> Option<Numeric> {
        let (sum, squares) = self.exact?;
        let count = Numeric::from(self.count);
        let above = count.checked_mul(squares)?.checked_sub(sum.checked_mul(sum)?)?;
        let variance = above.checked_div(count.checked_mul(Numeric::from(divisor))?)?;
        if asked.is_root() { root(variance) } else { Some(variance) }
    }
}

/// The square root with the same scale as the number, rounded; `None` for a negative number, or beyond 38 digits.
fn root(number: Numeric) -> Option<Numeric> {
    let (mantissa, scale) = (u128::try_from(number.mantissa()).ok()?, number.scale());
    let Some(square) = mantissa.checked_mul(10_u128.pow(u32::from(scale))) else {
        // The root of doubles, refined by one Newton step.
        let near = Numeric::from_f64(number.to_f64().sqrt())?;
        let nearer = near.checked_add(number.checked_div(near)?)?.checked_div(Numeric::from(2_i64))?;
        return nearer.rescale(scale);
    };
    let below = square.isqrt();
    // Halfway between two integers is no square of an integer: `below² + below + ¼`.
    let root = below + u128::from(square - below * below > below);
    Numeric::new(i128::try_from(root).ok()?, scale)
}

/// The sums of two columns.
#[derive(Debug, Clone, Default)]
pub(crate) struct PairSums {
    count: i64,
    mean_x: f64,
    mean_y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl PairSums {
    pub(crate) fn take(&mut self, y: &Value<'_>, x: &Value<'_>) {
        let (Some(y), Some(x)) = (to_f64(y), to_f64(x)) else { return };
        self.count += 1;
        let count = self.count as f64;
        let (distance_x, distance_y) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += distance_x / count;
        self.mean_y += distance_y / count;
        self.xx += distance_x * (x - self.mean_x);
        self.yy += distance_y * (y - self.mean_y);
        self.xy += distance_x * (y - self.mean_y);
    }

    pub(crate) fn finish(&self, asked: Pair) -> Value<'static> {
        let count = self.count as f64;
        let among = |least: i64, value: f64| {
            if self.count < least { Value::Null } else { Value::Float8(value) }
        };
        match asked {
            Pair::Count => Value::Int8(self.count),
            Pair::CovarPop => among(1, self.xy / count),
            Pair::CovarSamp => among(2, self.xy / (count - 1.0)),
            Pair::AvgX => among(1, self.mean_x),
            Pair::AvgY => among(1, self.mean_y),
            Pair::Sxx => among(1, self.xx),
            Pair::Syy => among(1, self.yy),
            Pair::Sxy => among(1, self.xy),
            Pair::Corr if self.xx == 0.0 || self.yy == 0.0 => Value::Null,
            Pair::Corr => among(1, self.xy / (self.xx * self.yy).sqrt()),
            Pair::R2 | Pair::Slope | Pair::Intercept if self.xx == 0.0 => Value::Null,
            Pair::R2 if self.yy == 0.0 => among(1, 1.0),
            Pair::R2 => among(1, self.xy * self.xy / (self.xx * self.yy)),
            Pair::Slope => among(1, self.xy / self.xx),
            Pair::Intercept => among(1, self.mean_y - self.mean_x * self.xy / self.xx),
        }
    }
}

/// The type in which a column is summed: floats, or exact numbers.
pub(crate) fn carried(ty: Type) -> Type {
    if is_integer(ty) || crate::types::names::is_numeric(ty) { Type::NUMERIC } else { Type::FLOAT8 }
}
