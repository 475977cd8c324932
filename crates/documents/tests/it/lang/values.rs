//! Random values of every type.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp};
use proptest::prelude::*;

fn number() -> impl Strategy<Value = Bson> {
    let near = prop_oneof![Just(0i64), Just(1), Just(1 << 53), Just(i64::MAX), Just(i64::MIN)];
    prop_oneof![
        (-3i32..4).prop_map(Bson::Int32),
        any::<i32>().prop_map(Bson::Int32),
        (near, -3i64..4).prop_map(|(base, plus)| Bson::Int64(base.saturating_add(plus))),
        (-3i32..4).prop_map(|n| Bson::Double(f64::from(n) / 2.0)),
        any::<f64>().prop_map(Bson::Double),
        (any::<i64>(), -400i32..400).prop_map(|(c, e)| decimal(&format!("{c}E{e}"))),
        (-30i64..40, -2i32..2).prop_map(|(c, e)| decimal(&format!("{c}E{e}"))),
        (9_007_199_254_740_980i64..9_007_199_254_741_000).prop_map(|c| decimal(&format!("{c}.5"))),
        prop_oneof![Just("NaN"), Just("Infinity"), Just("-Infinity")].prop_map(decimal),
    ]
}

pub(super) fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

fn scalar() -> impl Strategy<Value = Bson> {
    let text = prop_oneof!["[ab\u{0}]{0,3}", "\\PC{0,4}"];
    prop_oneof![
        5 => number(),
        3 => text.clone().prop_map(Bson::String),
        1 => text.clone().prop_map(Bson::Symbol),
        1 => text.clone().prop_map(Bson::JavaScriptCode),
        1 => text.prop_map(|code| Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope: Document::new() })),
        1 => any::<bool>().prop_map(Bson::Boolean),
        2 => prop_oneof![Just(Bson::Null), Just(Bson::Undefined), Just(Bson::MinKey), Just(Bson::MaxKey)],
        1 => (-2i64..3).prop_map(|ms| Bson::DateTime(DateTime::from_millis(ms))),
        1 => (0u32..3, 0u32..3).prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        1 => any::<[u8; 12]>().prop_map(|id| Bson::ObjectId(ObjectId::from_bytes(id))),
        1 => proptest::collection::vec(0u8..3, 0..4).prop_map(|bytes| {
            Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes })
        }),
        1 => "[ab]{0,2}".prop_map(|pattern| {
            Bson::RegularExpression(Regex { pattern: pattern.try_into().unwrap(), options: "i".try_into().unwrap() })
        }),
    ]
}

/// A value with shallow nesting.
pub(super) fn value() -> impl Strategy<Value = Bson> {
    scalar().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            proptest::collection::vec(("[ab]{1,2}", inner), 0..4)
                .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
        ]
    })
}
