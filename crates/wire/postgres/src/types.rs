//! Type OIDs of PostgreSQL's catalog, which drivers have built in.

use ropewalk::tables::{Scalar, Type};

/// Description of a type for PostgreSQL's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Oid {
    pub(crate) oid: u32,
    /// Bytes of a value; -1 where they vary.
    pub(crate) bytes: i16,
    /// Limits of the type; -1 for none.
    pub(crate) modifier: i32,
}

/// Scalar, its OID, the OID of its array, bytes of a value.
const SCALARS: [(Scalar, u32, u32, i16); 19] = [
    (Scalar::Bool, 16, 1000, 1),
    (Scalar::Int2, 21, 1005, 2),
    (Scalar::Int4, 23, 1007, 4),
    (Scalar::Int8, 20, 1016, 8),
    (Scalar::Float4, 700, 1021, 4),
    (Scalar::Float8, 701, 1022, 8),
    (Scalar::Numeric(None), 1700, 1231, -1),
    (Scalar::Text, 25, 1009, -1),
    (Scalar::Bytea, 17, 1001, -1),
    (Scalar::Date, 1082, 1182, 4),
    (Scalar::Time, 1083, 1183, 8),
    (Scalar::Timestamp, 1114, 1115, 8),
    (Scalar::Timestamptz, 1184, 1185, 8),
    (Scalar::Uuid, 2950, 2951, 16),
    (Scalar::Json, 114, 199, -1),
    (Scalar::Jsonb, 3802, 3807, -1),
    (Scalar::Interval, 1186, 1187, 16),
    (Scalar::Inet, 869, 1041, -1),
    (Scalar::Cidr, 650, 651, -1),
];

/// OIDs of other types that clients send, and the types used for them: name, bpchar, varchar and their
/// arrays.
const OTHERS: [(u32, Type); 6] = [
    (19, Type::TEXT),
    (1042, Type::TEXT),
    (1043, Type::TEXT),
    (1003, Type::Array(Scalar::Text)),
    (1014, Type::Array(Scalar::Text)),
    (1015, Type::Array(Scalar::Text)),
];

/// Bytes of a value of an enum type, as in PostgreSQL.
const ENUM_BYTES: i16 = 4;

/// The OID of a type.
pub(crate) fn oid_of(ty: Type) -> Oid {
    let (scalar, is_array) = match ty {
        Type::Scalar(scalar) => (scalar, false),
        Type::Array(scalar) => (scalar, true),
    };
    let (plain, modifier) = match scalar {
        // As PostgreSQL packs them: both numbers and the four bytes of a length.
        Scalar::Numeric(Some(limits)) => {
            (Scalar::Numeric(None), (i32::from(limits.precision) << 16 | i32::from(limits.scale)) + 4)
        }
        Scalar::Enum(_) if is_array => {
            return Oid { oid: ropewalk_sql::oid(ty), bytes: -1, modifier: -1 };
        }
        Scalar::Enum(_) => return Oid { oid: ropewalk_sql::oid(ty), bytes: ENUM_BYTES, modifier: -1 },
        scalar => (scalar, -1),
    };
    let found = SCALARS.iter().find(|(scalar, ..)| *scalar == plain);
    let (oid, array, bytes) = found.map_or((25, 1009, -1), |(_, oid, array, bytes)| (*oid, *array, *bytes));
    if is_array { Oid { oid: array, bytes: -1, modifier } } else { Oid { oid, bytes, modifier } }
}

/// The OID of oid, and of its arrays.
pub(crate) const OID: u32 = 26;
const OIDS: u32 = 1028;

/// The OID of a catalog column's type: object ids are bigint there, and drivers that query arrays of them
/// expect PostgreSQL's oid type.
pub(crate) fn oid_in_catalogs(ty: Type) -> Oid {
    match ty {
        Type::Array(Scalar::Int8) => Oid { oid: OIDS, bytes: -1, modifier: -1 },
        ty => oid_of(ty),
    }
}

/// The type that a client names; `None` for an unknown OID. Whether an enum type of an OID exists is checked
/// when the statement is planned.
pub(crate) fn type_of(oid: u32) -> Option<Type> {
    let ours = SCALARS.iter().find_map(|(scalar, plain, array, _)| match oid {
        oid if oid == *plain => Some(Type::Scalar(*scalar)),
        oid if oid == *array => Some(Type::Array(*scalar)),
        _ => None,
    });
    let other = || OTHERS.iter().find(|(other, _)| *other == oid).map(|(_, ty)| *ty);
    ours.or_else(other).or_else(|| ropewalk_sql::enum_of_oid(oid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_an_oid_and_round_trips() {
        for (scalar, oid, array, bytes) in SCALARS {
            let ty = Type::Scalar(scalar);
            assert_eq!(oid_of(ty), Oid { oid, bytes, modifier: -1 });
            assert_eq!(type_of(oid), Some(ty));
            assert_eq!(oid_of(ty.array()).oid, array);
            assert_eq!(type_of(array), Some(ty.array()));
        }
        assert_eq!(type_of(1043), Some(Type::TEXT));
        assert_eq!(type_of(600), None);
        let mood = Type::Scalar(Scalar::Enum(7));
        assert_eq!(type_of(oid_of(mood).oid), Some(mood));
        assert_eq!(type_of(oid_of(mood.array()).oid), Some(mood.array()));
    }
}
