//! Resolution of functions by name and argument types.

use crate::functions::{Function, Resolved};
use crate::types::names::{common, is_integer, is_numeric, rank};
use ropewalk::tables::Type;

/// The function with this name for arguments of these types, if any.
pub(crate) fn resolve(name: &str, types: &[Option<Type>]) -> Option<Resolved> {
    use Function as F;
    const TEXT: Type = Type::TEXT;
    const INT: Type = Type::INT4;
    let first = types.first().copied().flatten();
    let one = |function, argument, result| Some(Resolved { function, arguments: vec![argument], result });
    let many = |function, arguments: &[Type], result| {
        (arguments.len() == types.len()).then(|| Resolved { function, arguments: arguments.to_vec(), result })
    };
    let among = |function, arguments: &[Type], result, least: usize| {
        (least..=arguments.len()).contains(&types.len()).then(|| Resolved {
            function,
            arguments: arguments.iter().take(types.len()).copied().collect(),
            result,
        })
    };
    // Numbers keep their type; an untyped argument is a double.
    let number = first.filter(|ty| rank(*ty).is_some()).unwrap_or(Type::FLOAT8);
    let exact = if is_numeric(number) { Type::NUMERIC } else { Type::FLOAT8 };
    let widest = || {
        types.iter().flatten().copied().try_fold(None, |all: Option<Type>, ty| match all {
            None => Some(Some(ty)),
            Some(all) => common(all, ty).map(Some),
        })
    };
    let count = types.len();
    if let Some(resolved) = crate::functions::bytes::resolve(name, types)
        .or_else(|| crate::functions::regex::resolve(name, types))
        .or_else(|| crate::functions::number::resolve(name, types))
        .or_else(|| crate::functions::array::resolve(name, types))
    {
        return Some(resolved);
    }
    match (name, count) {
        ("lower", 1) => one(F::Lower, TEXT, TEXT),
        ("upper", 1) => one(F::Upper, TEXT, TEXT),
        ("initcap", 1) => one(F::Initcap, TEXT, TEXT),
        ("reverse", 1) => one(F::Reverse, TEXT, TEXT),
        ("length", 1) if first == Some(Type::BYTEA) => one(F::OctetLength, Type::BYTEA, INT),
        ("length" | "char_length" | "character_length", 1) => one(F::Length, TEXT, INT),
        ("octet_length", 1) if first == Some(Type::BYTEA) => one(F::OctetLength, Type::BYTEA, INT),
        ("octet_length", 1) => one(F::OctetLength, TEXT, INT),
        ("substr" | "substring", _) => among(F::Substr, &[TEXT, INT, INT], TEXT, 2),
        ("left", _) => many(F::Left, &[TEXT, INT], TEXT),
        ("right", _) => many(F::Right, &[TEXT, INT], TEXT),
        ("btrim", _) => among(F::Trim, &[TEXT, TEXT], TEXT, 1),
        ("ltrim", _) => among(F::Ltrim, &[TEXT, TEXT], TEXT, 1),
        ("rtrim", _) => among(F::Rtrim, &[TEXT, TEXT], TEXT, 1),
        ("lpad", _) => among(F::Lpad, &[TEXT, INT, TEXT], TEXT, 2),
        ("rpad", _) => among(F::Rpad, &[TEXT, INT, TEXT], TEXT, 2),
        ("repeat", _) => many(F::Repeat, &[TEXT, INT], TEXT),
        ("replace", _) => many(F::Replace, &[TEXT, TEXT, TEXT], TEXT),
        ("split_part", _) => many(F::SplitPart, &[TEXT, TEXT, INT], TEXT),
        ("starts_with", _) => many(F::StartsWith, &[TEXT, TEXT], Type::BOOL),
        ("strpos", _) => many(F::Strpos, &[TEXT, TEXT], INT),
        ("ascii", 1) => one(F::Ascii, TEXT, INT),
        ("chr", 1) => one(F::Chr, INT, TEXT),
        ("concat", 1..) => many(F::Concat, &shown_arguments(types), TEXT),
        ("concat_ws", 2..) => {
            let arguments = [vec![TEXT], shown_arguments(types.get(1..).unwrap_or_default())].concat();
            many(F::ConcatWs, &arguments, TEXT)
        }
        ("abs", 1) => one(F::Abs, number, number),
        ("ceil" | "ceiling", 1) => one(F::Ceil, exact, exact),
        ("floor", 1) => one(F::Floor, exact, exact),
        ("round", 1) => one(F::Round, exact, exact),
        ("trunc", 1) => one(F::Trunc, exact, exact),
        ("round", 2) => many(F::Round, &[Type::NUMERIC, INT], Type::NUMERIC),
        ("trunc", 2) => many(F::Trunc, &[Type::NUMERIC, INT], Type::NUMERIC),
        ("sign", 1) => one(F::Sign, exact, exact),
        ("sqrt", 1) => one(F::Sqrt, Type::FLOAT8, Type::FLOAT8),
        ("exp", 1) => one(F::Exp, Type::FLOAT8, Type::FLOAT8),
        ("ln", 1) => one(F::Ln, Type::FLOAT8, Type::FLOAT8),
        ("log" | "log10", 1) => one(F::Log, Type::FLOAT8, Type::FLOAT8),
        ("power" | "pow", _) => many(F::Power, &[Type::FLOAT8, Type::FLOAT8], Type::FLOAT8),
        ("mod", 2) => {
            let ty = widest()?.unwrap_or(INT);
            let ty = (is_integer(ty) || is_numeric(ty)).then_some(ty)?;
            many(F::Mod, &[ty, ty], ty)
        }
        ("pi", 0) => many(F::Pi, &[], Type::FLOAT8),
        ("pg_sleep", 1) => one(F::Sleep, Type::FLOAT8, TEXT),
        ("random", 0) => many(F::Random, &[], Type::FLOAT8),
        ("gen_random_uuid", 0) => many(F::NewUuid, &[], Type::UUID),
        ("now" | "transaction_timestamp" | "current_timestamp", 0) => many(F::Now, &[], Type::TIMESTAMPTZ),
        ("greatest" | "least", 1..) => {
            let ty = widest()?.unwrap_or(TEXT);
            let function = if name == "least" { F::Least } else { F::Greatest };
            ty.is_ordered().then(|| Resolved { function, arguments: vec![ty; count], result: ty })
        }
        ("date_trunc", 2) => {
            let ty = types.get(1).copied().flatten().unwrap_or(Type::TIMESTAMPTZ);
            // Of the two types that a date can be cast to, PostgreSQL prefers the one with a zone.
            let ty = if ty == Type::DATE { Type::TIMESTAMPTZ } else { ty };
            matches!(ty, Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::INTERVAL).then_some(())?;
            many(F::DateTrunc, &[TEXT, ty], ty)
        }
        ("date_trunc", 3) => many(F::DateTrunc, &[TEXT, Type::TIMESTAMPTZ, TEXT], Type::TIMESTAMPTZ),
        ("timezone", 2) => match types.get(1).copied().flatten() {
            Some(Type::TIMESTAMP) => many(F::InZone, &[TEXT, Type::TIMESTAMP], Type::TIMESTAMPTZ),
            None | Some(Type::TIMESTAMPTZ | Type::DATE) => {
                many(F::InZone, &[TEXT, Type::TIMESTAMPTZ], Type::TIMESTAMP)
            }
            Some(_) => None,
        },
        ("date_part" | "extract", 2) => {
            let ty = types.get(1).copied().flatten().unwrap_or(Type::TIMESTAMP);
            matches!(ty, Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::DATE | Type::TIME | Type::INTERVAL)
                .then_some(())?;
            match (name, ty) {
                ("extract", ty) => many(F::Extract, &[TEXT, ty], Type::NUMERIC),
                (_, Type::DATE) => many(F::DatePart, &[TEXT, Type::TIMESTAMP], Type::FLOAT8),
                (_, ty) => many(F::DatePart, &[TEXT, ty], Type::FLOAT8),
            }
        }
        ("make_date", 3) => many(F::MakeDate, &[INT, INT, INT], Type::DATE),
        ("to_timestamp", 1) => one(F::ToTimestamp, Type::FLOAT8, Type::TIMESTAMPTZ),
        ("json_array_length", 1) => one(F::JsonArrayLength, Type::JSON, INT),
        ("json_typeof", 1) => one(F::JsonTypeof, Type::JSON, TEXT),
        ("array_length", 2) => match first? {
            array @ Type::Array(_) => many(F::ArrayLength, &[array, INT], INT),
            Type::Scalar(_) => None,
        },
        ("cardinality", 1) => match first? {
            array @ Type::Array(_) => one(F::ArrayLength, array, INT),
            Type::Scalar(_) => None,
        },
        _ => crate::types::jsonb::resolve(name, types)
            .or_else(|| crate::functions::more::resolve(name, types))
            .or_else(|| crate::functions::time::resolve(name, types)),
    }
}

/// The types in which arguments are concatenated, as in output: a bool as a letter, whereas a cast to text
/// writes a word.
pub(crate) fn shown_arguments(types: &[Option<Type>]) -> Vec<Type> {
    types.iter().map(|ty| if *ty == Some(Type::BOOL) { Type::BOOL } else { Type::TEXT }).collect()
}
