//! Resolution of functions by name and argument types.

use ropewalk::tables::Type;

use crate::expr::function::Function;
use crate::functions::{Resolved, array, bytes, date_part, inet, json, jsonb, number, regex, text, time};
use crate::types::names::common;

/// The function with this name for arguments of these types, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    // Functions over bytes have names of functions over text.
    bytes::resolve(name, types)
        .or_else(|| text::resolve(name, types))
        .or_else(|| regex::resolve(name, types))
        .or_else(|| number::resolve(name, types))
        .or_else(|| array::resolve(name, types))
        .or_else(|| date_part::resolve(name, types))
        .or_else(|| time::resolve(name, types))
        .or_else(|| json::resolve(name, types))
        .or_else(|| jsonb::resolve(name, types))
        .or_else(|| inet::resolve(name, types))
        .or_else(|| resolve_general(name, types))
}

/// A function without arguments, or of arguments of any type.
fn resolve_general(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    let resolved = |function, arguments: Vec<Type>, result| Some(Resolved { function, arguments, result });
    let shown = || types.iter().map(|ty| ty.unwrap_or(Type::TEXT)).collect::<Vec<Type>>();
    match (name, types.len()) {
        ("pi", 0) => resolved(F::Pi, Vec::new(), Type::FLOAT8),
        ("random", 0) => resolved(F::Random, Vec::new(), Type::FLOAT8),
        ("gen_random_bytes", 1) => resolved(F::RandomBytes, vec![Type::INT4], Type::BYTEA),
        ("gen_random_uuid", 0) => resolved(F::NewUuid, Vec::new(), Type::UUID),
        ("now" | "transaction_timestamp" | "current_timestamp", 0) => {
            resolved(F::Now, Vec::new(), Type::TIMESTAMPTZ)
        }
        ("clock_timestamp" | "statement_timestamp", 0) => {
            resolved(F::ClockTimestamp, Vec::new(), Type::TIMESTAMPTZ)
        }
        ("pg_sleep", 1) => resolved(F::Sleep, vec![Type::FLOAT8], Type::TEXT),
        ("greatest" | "least", 1..) => {
            let ty = widest(types, Type::TEXT).filter(|ty| ty.is_ordered())?;
            resolved(if name == "least" { F::Least } else { F::Greatest }, vec![ty; types.len()], ty)
        }
        ("num_nulls", 1..) => resolved(F::NumNulls, shown(), Type::INT4),
        ("num_nonnulls", 1..) => resolved(F::NumNonnulls, shown(), Type::INT4),
        _ => None,
    }
}

/// The common type of the arguments whose types are known; `otherwise` if no type is known.
pub(super) fn widest(types: &[Option<Type>], otherwise: Type) -> Option<Type> {
    let mut known = types.iter().flatten().copied();
    let first = known.next().unwrap_or(otherwise);
    known.try_fold(first, common)
}
