//! Expressions over the columns of one row: checks, filters of partial indexes, indexed expressions.
//!
//!   built with column names ─▶ bind: names to ids, types checked ─▶ stored in the catalog ─▶ eval per row
//!
//! NULL is unknown, as in SQL: comparisons with it are NULL, `and`/`or` use three-valued logic. Arithmetic
//! overflow and division by zero are errors; nothing wraps. Depth is bounded at bind, so that no stored
//! expression exhausts the stack.

use std::cmp::Ordering;

use ropewalk_base::{DecodeError, Decoder, put_bytes, put_varint};

use crate::value::Value;
use crate::value::numeric::Numeric;
use crate::value::types::{Scalar, Type};

/// Deepest nesting.
const DEPTH_MAX: usize = 64;

/// Reference to a column.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnRef {
    /// By name, until it is bound.
    Name(String),
    /// By the column's permanent id.
    Id(u16),
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Unary {
    Not,
    Negate,
    IsNull,
    IsNotNull,
}

/// Operators with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Binary {
    And,
    Or,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Concat,
}

/// Functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Function {
    Lower,
    Upper,
    /// Characters of a text, or of the longest one in an array; bytes of a bytea.
    Length,
    Abs,
    /// The first argument that is not NULL.
    Coalesce,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A column of the row.
    Column(ColumnRef),
    /// A constant.
    Literal(Value<'static>),
    /// One operand.
    Unary(Unary, Box<Expr>),
    /// Two operands.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// A function.
    Call(Function, Vec<Expr>),
}

macro_rules! binary {
    ($($name:ident => $op:ident: $doc:literal),*) => {
        $(#[doc = $doc]
        #[must_use]
        #[allow(clippy::should_implement_trait)] // builders, next to comparisons that no operator trait can build
        pub fn $name(self, other: impl Into<Expr>) -> Self {
            Self::Binary(Binary::$op, Box::new(self), Box::new(other.into()))
        })*
    };
}

impl Expr {
    /// The column `name`.
    pub fn column(name: impl Into<String>) -> Self {
        Self::Column(ColumnRef::Name(name.into()))
    }

    /// A constant.
    pub fn value(value: impl Into<Value<'static>>) -> Self {
        Self::Literal(value.into())
    }

    binary!(and => And: "Both.", or => Or: "Either.", eq => Eq: "Equal.", ne => Ne: "Different.", lt => Lt: "Less.",
        le => Le: "Less or equal.", gt => Gt: "Greater.", ge => Ge: "Greater or equal.", add => Add: "Sum.",
        sub => Sub: "Difference.", mul => Mul: "Product.", div => Div: "Quotient.", rem => Rem: "Remainder.",
        concat => Concat: "Concatenation of two texts.");

    /// Negation.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // as above
    pub fn not(self) -> Self {
        Self::Unary(Unary::Not, Box::new(self))
    }

    /// True for NULL.
    #[must_use]
    pub fn is_null(self) -> Self {
        Self::Unary(Unary::IsNull, Box::new(self))
    }

    /// True for everything but NULL.
    #[must_use]
    pub fn is_not_null(self) -> Self {
        Self::Unary(Unary::IsNotNull, Box::new(self))
    }

    /// A function of one argument.
    #[must_use]
    pub fn call(self, function: Function) -> Self {
        Self::Call(function, vec![self])
    }

    /// Resolves names by `resolve` and checks types; returns the type, `None` when the value is always NULL.
    ///
    /// # Errors
    /// A description of the error.
    pub(crate) fn bind(
        &mut self,
        resolve: &dyn Fn(&ColumnRef) -> Option<(u16, Type)>,
    ) -> Result<Option<Type>, String> {
        self.bind_at(resolve, 0)
    }

    fn bind_at(
        &mut self,
        resolve: &dyn Fn(&ColumnRef) -> Option<(u16, Type)>,
        depth: usize,
    ) -> Result<Option<Type>, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the expression is nested deeper than {DEPTH_MAX}"));
        }
        match self {
            Self::Column(column) => {
                let (id, ty) = resolve(column).ok_or_else(|| format!("there is no column {column:?}"))?;
                *column = ColumnRef::Id(id);
                Ok(Some(ty))
            }
            Self::Literal(value) => Ok(value.value_type()),
            Self::Unary(op, inner) => {
                let ty = inner.bind_at(resolve, depth + 1)?;
                match op {
                    Unary::IsNull | Unary::IsNotNull => Ok(Some(Type::BOOL)),
                    Unary::Not => expect(ty, Kind::Bool).map(|()| Some(Type::BOOL)),
                    Unary::Negate => expect(ty, Kind::Number).map(|()| ty),
                }
            }
            Self::Binary(op, left, right) => {
                let (left, right) = (left.bind_at(resolve, depth + 1)?, right.bind_at(resolve, depth + 1)?);
                binary_type(*op, left, right)
            }
            Self::Call(function, arguments) => {
                let types: Result<Vec<_>, _> =
                    arguments.iter_mut().map(|a| a.bind_at(resolve, depth + 1)).collect();
                call_type(*function, &types?)
            }
        }
    }

    /// Evaluates the expression for one row; `column` returns the values of its columns.
    ///
    /// # Errors
    /// Overflow, division by zero, or an error of `column`.
    pub(crate) fn eval<'a>(
        &'a self,
        column: &dyn Fn(u16) -> Result<Value<'a>, String>,
    ) -> Result<Value<'a>, String> {
        match self {
            Self::Column(ColumnRef::Id(id)) => column(*id),
            Self::Column(ColumnRef::Name(name)) => Err(format!("column {name:?} is not bound")),
            Self::Literal(value) => Ok(value.borrowed()),
            Self::Unary(op, inner) => {
                let value = inner.eval(column)?;
                Ok(match op {
                    Unary::IsNull => Value::Bool(value.is_null()),
                    Unary::IsNotNull => Value::Bool(!value.is_null()),
                    Unary::Not => truth(&value).map_or(Value::Null, |t| Value::Bool(!t)),
                    Unary::Negate => arithmetic(Binary::Sub, &zero_like(&value), &value)?,
                })
            }
            Self::Binary(op @ (Binary::And | Binary::Or), left, right) => {
                let decisive = *op == Binary::Or;
                let left = truth(&left.eval(column)?);
                if left == Some(decisive) {
                    return Ok(Value::Bool(decisive));
                }
                let right = truth(&right.eval(column)?);
                Ok(match (left, right) {
                    (_, Some(r)) if r == decisive => Value::Bool(decisive),
                    (Some(_), Some(_)) => Value::Bool(!decisive),
                    _ => Value::Null,
                })
            }
            Self::Binary(op, left, right) => {
                let (left, right) = (left.eval(column)?, right.eval(column)?);
                if left.is_null() || right.is_null() {
                    return Ok(Value::Null);
                }
                match op {
                    Binary::Concat => match (&left, &right) {
                        (Value::Text(a), Value::Text(b)) => Ok(Value::text(format!("{a}{b}"))),
                        _ => Err("only texts are joined".into()),
                    },
                    Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => {
                        Ok(left.compare(&right).map_or(Value::Null, |order| Value::Bool(holds(*op, order))))
                    }
                    _ => arithmetic(*op, &left, &right),
                }
            }
            Self::Call(function, arguments) => {
                let mut arguments = arguments.iter().map(|argument| argument.eval(column));
                if *function == Function::Coalesce {
                    for value in arguments {
                        let value = value?;
                        if !value.is_null() {
                            return Ok(value);
                        }
                    }
                    return Ok(Value::Null);
                }
                let value = arguments.next().ok_or("a function needs an argument")??;
                call(*function, value)
            }
        }
    }

    /// Calls `each` with every constant.
    pub(crate) fn for_literals(&mut self, each: &mut dyn FnMut(&mut Value<'static>)) {
        match self {
            Self::Column(_) => {}
            Self::Literal(value) => each(value),
            Self::Unary(_, inner) => inner.for_literals(each),
            Self::Binary(_, left, right) => {
                left.for_literals(each);
                right.for_literals(each);
            }
            Self::Call(_, arguments) => arguments.iter_mut().for_each(|part| part.for_literals(each)),
        }
    }

    /// True when it reads the column with this id.
    pub fn reads(&self, id: u16) -> bool {
        match self {
            Self::Column(column) => *column == ColumnRef::Id(id),
            Self::Literal(_) => false,
            Self::Unary(_, inner) => inner.reads(id),
            Self::Binary(_, left, right) => left.reads(id) || right.reads(id),
            Self::Call(_, arguments) => arguments.iter().any(|a| a.reads(id)),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Column(ColumnRef::Id(id)) => {
                out.push(1);
                out.extend_from_slice(&id.to_le_bytes());
            }
            // Only bound expressions are stored.
            Self::Column(ColumnRef::Name(name)) => {
                out.push(2);
                put_bytes(out, name.as_bytes());
            }
            Self::Literal(value) => {
                out.push(3);
                value.encode(out);
            }
            Self::Unary(op, inner) => {
                out.extend_from_slice(&[4, *op as u8]);
                inner.encode(out);
            }
            Self::Binary(op, left, right) => {
                out.extend_from_slice(&[5, *op as u8]);
                left.encode(out);
                right.encode(out);
            }
            Self::Call(function, arguments) => {
                out.extend_from_slice(&[6, *function as u8]);
                put_varint(out, arguments.len() as u64);
                arguments.iter().for_each(|a| a.encode(out));
            }
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Self::decode_at(decoder, 0)
    }

    fn decode_at(decoder: &mut Decoder<'_>, depth: usize) -> Result<Self, DecodeError> {
        let offset = decoder.offset();
        let unknown = DecodeError { what: "known expression", offset };
        if depth > DEPTH_MAX {
            return Err(DecodeError { what: "expression of bounded depth", offset });
        }
        let inner = |decoder: &mut Decoder<'_>| Self::decode_at(decoder, depth + 1).map(Box::new);
        Ok(match decoder.u8("expression")? {
            1 => Self::Column(ColumnRef::Id(u16::from_le_bytes(decoder.array("column id")?))),
            2 => Self::Column(ColumnRef::Name(decoder.str("column name")?.to_owned())),
            3 => Self::Literal(Value::decode(decoder)?.into_owned()),
            4 => {
                let op = nth(&UNARY, decoder.u8("operator")?).ok_or(unknown)?;
                Self::Unary(op, inner(decoder)?)
            }
            5 => {
                let op = nth(&BINARY, decoder.u8("operator")?).ok_or(unknown)?;
                Self::Binary(op, inner(decoder)?, inner(decoder)?)
            }
            6 => {
                let function = nth(&FUNCTIONS, decoder.u8("function")?).ok_or(unknown)?;
                let count = decoder.varint("count of arguments")?;
                let arguments = (0..count).map(|_| Self::decode_at(decoder, depth + 1));
                Self::Call(function, arguments.collect::<Result<_, _>>()?)
            }
            _ => return Err(unknown),
        })
    }
}

fn nth<T: Copy>(all: &[T], number: u8) -> Option<T> {
    all.get(usize::from(number)).copied()
}

// The order is part of the format.
const UNARY: [Unary; 4] = [Unary::Not, Unary::Negate, Unary::IsNull, Unary::IsNotNull];
const BINARY: [Binary; 14] = [
    Binary::And,
    Binary::Or,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Rem,
    Binary::Concat,
];
const FUNCTIONS: [Function; 5] =
    [Function::Lower, Function::Upper, Function::Length, Function::Abs, Function::Coalesce];

impl<T: Into<Value<'static>>> From<T> for Expr {
    fn from(value: T) -> Self {
        Self::Literal(value.into())
    }
}

/// Groups of types that compare with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Number,
    Text,
    Other(Type),
}

fn kind(ty: Type) -> Kind {
    match ty {
        Type::BOOL => Kind::Bool,
        Type::INT2
        | Type::INT4
        | Type::INT8
        | Type::FLOAT4
        | Type::FLOAT8
        | Type::Scalar(Scalar::Numeric(_)) => Kind::Number,
        Type::TEXT => Kind::Text,
        other => Kind::Other(other),
    }
}

fn expect(ty: Option<Type>, wanted: Kind) -> Result<(), String> {
    match ty {
        Some(ty) if kind(ty) != wanted => Err(format!("{ty} where {wanted:?} is needed").to_lowercase()),
        _ => Ok(()),
    }
}

fn binary_type(op: Binary, left: Option<Type>, right: Option<Type>) -> Result<Option<Type>, String> {
    match op {
        Binary::And | Binary::Or => {
            expect(left, Kind::Bool)?;
            expect(right, Kind::Bool)?;
            Ok(Some(Type::BOOL))
        }
        Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => match (left, right) {
            (Some(a), Some(b)) if kind(a) != kind(b) => Err(format!("{a} does not compare with {b}")),
            (Some(a), _) | (_, Some(a)) if !a.is_ordered() => Err(format!("{a} has no order")),
            _ => Ok(Some(Type::BOOL)),
        },
        Binary::Concat => {
            expect(left, Kind::Text)?;
            expect(right, Kind::Text)?;
            Ok(Some(Type::TEXT))
        }
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Rem => {
            expect(left, Kind::Number)?;
            expect(right, Kind::Number)?;
            Ok(match (left, right) {
                (Some(a), Some(b)) => Some(number_type(a, b)),
                _ => None,
            })
        }
    }
}

/// The type of an operation on two numbers.
fn number_type(a: Type, b: Type) -> Type {
    let rank = |ty| match ty {
        Type::INT2 => 0,
        Type::INT4 => 1,
        Type::INT8 => 2,
        Type::Scalar(Scalar::Numeric(_)) => 3,
        _ => 4,
    };
    match rank(a).max(rank(b)) {
        0 => Type::INT2,
        1 => Type::INT4,
        2 => Type::INT8,
        3 => Type::NUMERIC,
        _ => Type::FLOAT8,
    }
}

fn call_type(function: Function, arguments: &[Option<Type>]) -> Result<Option<Type>, String> {
    if function == Function::Coalesce {
        let mut types = arguments.iter().flatten();
        let Some(&first) = types.next() else { return Ok(None) };
        return match types.find(|&&ty| ty != first) {
            Some(other) => Err(format!("coalesce of {first} and {other}")),
            None => Ok(Some(first)),
        };
    }
    let &[argument] = arguments else {
        return Err(format!("{function:?} takes one argument").to_lowercase());
    };
    match function {
        Function::Lower | Function::Upper => expect(argument, Kind::Text).map(|()| Some(Type::TEXT)),
        Function::Abs => expect(argument, Kind::Number).map(|()| argument),
        Function::Length => match argument {
            None | Some(Type::TEXT | Type::BYTEA | Type::Array(Scalar::Text)) => Ok(Some(Type::INT4)),
            Some(other) => Err(format!("length of {other}")),
        },
        Function::Coalesce => Ok(None),
    }
}

fn truth(value: &Value<'_>) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        _ => None,
    }
}

fn holds(op: Binary, order: Ordering) -> bool {
    match op {
        Binary::Eq => order.is_eq(),
        Binary::Ne => order.is_ne(),
        Binary::Lt => order.is_lt(),
        Binary::Le => order.is_le(),
        Binary::Gt => order.is_gt(),
        _ => order.is_ge(),
    }
}

/// A zero of the same type, to implement negation as a subtraction.
fn zero_like(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::Int2(_) => Value::Int2(0),
        Value::Int4(_) => Value::Int4(0),
        Value::Int8(_) => Value::Int8(0),
        Value::Float4(_) | Value::Float8(_) => Value::Float8(-0.0),
        Value::Numeric(_) => Value::Numeric(Numeric::ZERO),
        _ => Value::Null,
    }
}

fn arithmetic(op: Binary, left: &Value<'_>, right: &Value<'_>) -> Result<Value<'static>, String> {
    let (Some(a), Some(b)) = (left.value_type(), right.value_type()) else { return Ok(Value::Null) };
    let overflow = || format!("{left} and {right} overflow");
    let zero = || "division by zero".to_owned();
    let divides = matches!(op, Binary::Div | Binary::Rem);
    match number_type(a, b) {
        Type::FLOAT8 => {
            let (Some(x), Some(y)) = (left.to_float(), right.to_float()) else { return Ok(Value::Null) };
            if divides && y == 0.0 {
                return Err(zero());
            }
            let result = match op {
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::Div => x / y,
                _ => x % y,
            };
            let finite = x.is_finite() && y.is_finite();
            if finite && !result.is_finite() { Err(overflow()) } else { Ok(Value::Float8(result)) }
        }
        Type::NUMERIC => {
            let (Some(x), Some(y)) = (left.to_numeric(), right.to_numeric()) else { return Ok(Value::Null) };
            if divides && y == Numeric::ZERO {
                return Err(zero());
            }
            let result = match op {
                Binary::Add => x.checked_add(y),
                Binary::Sub => x.checked_sub(y),
                Binary::Mul => x.checked_mul(y),
                Binary::Div => x.checked_div(y),
                _ => x.checked_rem(y),
            };
            result.map(Value::Numeric).ok_or_else(overflow)
        }
        integer => {
            let (Some(x), Some(y)) = (left.as_integer(), right.as_integer()) else { return Ok(Value::Null) };
            if divides && y == 0 {
                return Err(zero());
            }
            let result = match op {
                Binary::Add => x.checked_add(y),
                Binary::Sub => x.checked_sub(y),
                Binary::Mul => x.checked_mul(y),
                Binary::Div => x.checked_div(y),
                // The remainder of the least number by -1 is 0, though the quotient overflows.
                _ => Some(x.wrapping_rem(y)),
            };
            let result = Value::Int8(result.ok_or_else(overflow)?);
            result.assign(integer).map_err(|_| overflow())
        }
    }
}

fn length(text: &str) -> Value<'static> {
    Value::Int4(i32::try_from(text.chars().count()).unwrap_or(i32::MAX))
}

fn call<'a>(function: Function, value: Value<'a>) -> Result<Value<'a>, String> {
    Ok(match (function, value) {
        (_, Value::Null) => Value::Null,
        (Function::Lower, Value::Text(text)) => Value::text(text.to_lowercase()),
        (Function::Upper, Value::Text(text)) => Value::text(text.to_uppercase()),
        (Function::Length, Value::Text(text)) => length(&text),
        (Function::Length, Value::Array(texts)) => {
            let mut longest = Value::Int4(0);
            for item in texts.iter() {
                if let Value::Text(text) = item.map_err(|error| error.to_string())? {
                    let length = length(&text);
                    if length.compare(&longest) == Some(Ordering::Greater) {
                        longest = length;
                    }
                }
            }
            longest
        }
        (Function::Length, Value::Bytea(bytes)) => {
            Value::Int4(i32::try_from(bytes.len()).unwrap_or(i32::MAX))
        }
        (Function::Abs, value) => match value.compare(&Value::Int2(0)) {
            Some(Ordering::Less) => arithmetic(Binary::Sub, &zero_like(&value), &value)?,
            _ => value,
        },
        (function, value) => return Err(format!("{function:?} of {value}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(mut expr: Expr) -> Result<Value<'static>, String> {
        expr.bind(&|column| (*column == ColumnRef::Name("n".into())).then_some((7, Type::INT4)))?;
        let mut bytes = Vec::new();
        expr.encode(&mut bytes);
        assert_eq!(Expr::decode(&mut Decoder::new(&bytes)).unwrap(), expr);
        let column = |id| if id == 7 { Ok(Value::Null) } else { Err("column".to_owned()) };
        expr.eval(&column).map(Value::into_owned)
    }

    fn int(v: i32) -> Expr {
        Expr::value(v)
    }

    #[test]
    fn three_values() {
        let null = || Expr::column("n").eq(1);
        let (yes, no) = (Value::Bool(true), Value::Bool(false));
        assert_eq!(eval(null()).unwrap(), Value::Null);
        assert_eq!(eval(null().and(false)).unwrap(), no);
        assert_eq!(eval(Expr::value(false).and(null())).unwrap(), no);
        assert_eq!(eval(null().and(true)).unwrap(), Value::Null);
        assert_eq!(eval(null().or(true)).unwrap(), yes);
        assert_eq!(eval(null().or(false)).unwrap(), Value::Null);
        assert_eq!(eval(null().not()).unwrap(), Value::Null);
        assert_eq!(eval(Expr::column("n").is_null()).unwrap(), yes);
        assert_eq!(
            eval(Expr::Call(Function::Coalesce, vec![Expr::column("n"), int(4)])).unwrap(),
            Value::Int4(4)
        );
    }

    #[test]
    fn arithmetic_of_mixed_types_widens() {
        assert_eq!(eval(int(7).div(2)).unwrap(), Value::Int4(3));
        assert_eq!(eval(int(7).div(Expr::value(2.0))).unwrap(), Value::Float8(3.5));
        let half: Numeric = "0.5".parse().unwrap();
        assert_eq!(eval(int(1).add(half)).unwrap(), Value::Numeric("1.5".parse().unwrap()));
        assert_eq!(eval(int(1).lt(half)).unwrap(), Value::Bool(false));
        assert!(eval(int(i32::MAX).add(1)).unwrap_err().contains("overflow"));
        assert!(eval(int(1).rem(0)).unwrap_err().contains("zero"));
        assert_eq!(eval(int(-3).call(Function::Abs)).unwrap(), Value::Int4(3));
        assert!(eval(Expr::value(i64::MIN).call(Function::Abs)).is_err());
        assert_eq!(eval(Expr::value("Äb").call(Function::Upper).concat("c")).unwrap(), Value::text("ÄBc"));
    }

    #[test]
    fn the_longest_of_an_array_counts() {
        let length = |texts: &[Option<&'static str>]| {
            let items = texts.iter().map(|text| text.map_or(Value::Null, Value::text));
            let array = crate::value::Array::new(Scalar::Text, items.collect::<Vec<_>>()).unwrap();
            eval(Expr::value(Value::Array(array)).call(Function::Length)).unwrap()
        };
        assert_eq!(length(&[Some("ab"), Some("äöü"), None, Some("")]), Value::Int4(3));
        assert_eq!(length(&[None]), Value::Int4(0));
        assert_eq!(length(&[]), Value::Int4(0));
    }

    #[test]
    fn types_are_checked_when_bound() {
        for bad in [
            Expr::value("a").eq(1),
            Expr::column("x").eq(1),
            Expr::value("a").and(true),
            int(1).concat("a"),
            int(1).call(Function::Lower),
            Expr::Literal(Value::json("1")).eq(Value::json("1")),
            Expr::Call(Function::Coalesce, vec![int(1), Expr::value("a")]),
            Expr::Call(Function::Abs, vec![]),
            (0..100).fold(Expr::value(true), |e, _| e.not()),
        ] {
            assert!(eval(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
