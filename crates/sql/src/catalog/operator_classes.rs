//! The operator classes of indexes, with PostgreSQL's numbers. All indexes have the method `btree`.

use ropewalk::tables::{OperatorClass, Scalar, Type, Value};

use super::relations::row;
use super::{BTREE, OWNER, PG_CATALOG, show};
use crate::expr::Record;

const ANY_ARRAY: i64 = 2277;
const ANY_ENUM: i64 = 3500;
const TEXT: i64 = 25;
/// Also for networks.
const INET: i64 = 869;
/// `char(n)`, which is text here.
const PADDED: i64 = 1042;

/// An operator class.
pub(crate) struct ClassOf {
    pub(crate) oid: i64,
    pub(crate) name: &'static str,
    family: i64,
    /// The number of the type that it is for.
    input: i64,
    is_default: bool,
    /// The class that an index column stores.
    pub(crate) class: OperatorClass,
}

macro_rules! classes {
    ($($oid:literal $name:literal $family:literal $input:expr, $default:literal $class:ident;)*) => {
        /// All operator classes.
        pub(crate) const OPERATOR_CLASSES: &[ClassOf] = &[$(ClassOf {
            oid: $oid, name: $name, family: $family, input: $input, is_default: $default,
            class: OperatorClass::$class,
        }),*];
    };
}

classes! {
    1978 "int4_ops" 1976 23, true Default;
    1979 "int2_ops" 1976 21, true Default;
    3122 "date_ops" 434 1082, true Default;
    3123 "float8_ops" 1970 701, true Default;
    3124 "int8_ops" 1976 20, true Default;
    3125 "numeric_ops" 1988 1700, true Default;
    3126 "text_ops" 1994 TEXT, true Default;
    3127 "timestamptz_ops" 434 1184, true Default;
    3128 "timestamp_ops" 434 1114, true Default;
    4217 "text_pattern_ops" 2095 TEXT, false TextPattern;
    4218 "varchar_pattern_ops" 2095 TEXT, false VarcharPattern;
    4219 "bpchar_pattern_ops" 2097 PADDED, false BpcharPattern;
    10000 "array_ops" 397 ANY_ARRAY, true Default;
    10003 "bool_ops" 424 16, true Default;
    10004 "bpchar_ops" 426 PADDED, true Default;
    10006 "bytea_ops" 428 17, true Default;
    10009 "cidr_ops" 1974 INET, false Default;
    10012 "float4_ops" 1970 700, true Default;
    10015 "inet_ops" 1974 INET, true Default;
    10022 "interval_ops" 1982 1186, true Default;
    10038 "time_ops" 1996 1083, true Default;
    10044 "varchar_ops" 1994 TEXT, false Default;
    10065 "uuid_ops" 2968 2950, true Default;
    10069 "enum_ops" 3522 ANY_ENUM, true Default;
    10088 "jsonb_ops" 4033 3802, true Default;
}

impl ClassOf {
    /// True for a type that the class can index.
    pub(crate) fn takes(&self, ty: Type) -> bool {
        match self.input {
            ANY_ARRAY => matches!(ty, Type::Array(_)),
            ANY_ENUM => matches!(ty, Type::Scalar(Scalar::Enum(_))),
            PADDED => ty == Type::TEXT,
            INET => matches!(ty, Type::INET | Type::CIDR),
            input => show::type_and_modifier(ty).0 == input,
        }
    }
}

/// The class of an index column.
pub(crate) fn class_of(ty: Type, class: OperatorClass) -> Option<&'static ClassOf> {
    let fits = |known: &&ClassOf| {
        known.class == class && (known.is_default || class != OperatorClass::Default) && known.takes(ty)
    };
    OPERATOR_CLASSES.iter().find(fits)
}

/// The rows of `pg_opclass`.
pub(super) fn rows() -> Vec<Record> {
    let row = |class: &ClassOf| {
        row![
            class.oid,
            BTREE,
            class.name,
            PG_CATALOG,
            OWNER,
            class.family,
            class.input,
            class.is_default,
            0_i64
        ]
    };
    OPERATOR_CLASSES.iter().map(row).collect()
}
