//! Generators shared by several tests.

use std::cmp::Ordering;

use proptest::prelude::*;

use crate::value::enum_value::EnumValue;
use crate::value::inet::Inet;
use crate::value::interval::Interval;
use crate::value::key::KeyOrder;
use crate::value::numeric::Numeric;
use crate::value::types::{SCALARS, Scalar, Type};
use crate::value::{Array, Value};

pub(crate) fn any_scalar() -> impl Strategy<Value = Scalar> {
    let sortable = SCALARS.into_iter().filter(|scalar| *scalar != Scalar::Json);
    prop::sample::select(sortable.collect::<Vec<_>>())
}

/// Every type that has an order.
pub(crate) fn any_type() -> impl Strategy<Value = Type> {
    prop_oneof![4 => any_scalar().prop_map(Type::Scalar), 1 => any_scalar().prop_map(Type::Array)]
}

fn small_or_any<T: Arbitrary + Clone + 'static>(small: Vec<T>) -> BoxedStrategy<T> {
    prop_oneof![prop::sample::select(small), any::<T>()].boxed()
}

fn scalar_value(scalar: Scalar) -> BoxedStrategy<Value<'static>> {
    let wide = || small_or_any(vec![i64::MIN, -1, 0, 1, i64::MAX]);
    match scalar {
        Scalar::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Scalar::Int2 => small_or_any(vec![i16::MIN, -1, 0, 1]).prop_map(Value::Int2).boxed(),
        Scalar::Int4 => small_or_any(vec![i32::MIN, -1, 0, 1]).prop_map(Value::Int4).boxed(),
        Scalar::Int8 => wide().prop_map(Value::Int8).boxed(),
        Scalar::Float4 => {
            let float = prop_oneof![
                prop::sample::select(vec![0.0, -0.0, f32::NAN, 1.0]),
                any::<u32>().prop_map(f32::from_bits)
            ];
            float.prop_map(Value::Float4).boxed()
        }
        Scalar::Float8 => {
            let float = prop_oneof![
                prop::sample::select(vec![0.0, -0.0, f64::NAN, 1.0]),
                any::<u64>().prop_map(f64::from_bits)
            ];
            float.prop_map(Value::Float8).boxed()
        }
        Scalar::Numeric(_) => {
            let number = (-999..999_i128, 0..4_u8).prop_map(|(m, s)| Numeric::new(m, s).unwrap());
            prop_oneof![9 => number, 1 => Just(Numeric::NAN)].prop_map(Value::Numeric).boxed()
        }
        Scalar::Text => "[\\x00a\u{1}é]{0,4}".prop_map(Value::text).boxed(),
        Scalar::Jsonb => prop::sample::select(vec!["1", "[1, 2]", "{\"a\": 1}", "\"x\""])
            .prop_map(|text| Value::Jsonb(text.into()))
            .boxed(),
        Scalar::Json => Just(Value::json("{\"a\": [1]}")).boxed(),
        Scalar::Bytea => prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 0..5)
            .prop_map(Value::bytea)
            .boxed(),
        Scalar::Date => small_or_any(vec![i32::MIN, 0, i32::MAX]).prop_map(Value::Date).boxed(),
        Scalar::Time => (0..=86_400_000_000_i64).prop_map(Value::Time).boxed(),
        Scalar::Timestamp => wide().prop_map(Value::Timestamp).boxed(),
        Scalar::Timestamptz => wide().prop_map(Value::Timestamptz).boxed(),
        Scalar::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        // As stored in rows: without labels.
        Scalar::Enum(number) => {
            wide().prop_map(move |order| Value::Enum(EnumValue { number, order, label: "".into() })).boxed()
        }
        Scalar::Inet => any_inet().prop_map(Value::Inet).boxed(),
        Scalar::Cidr => any_inet().prop_map(|inet| Value::Cidr(inet.network())).boxed(),
        Scalar::Interval => (-2..3_i32, -61..62_i32, small_or_any(vec![i64::MIN, 0, 86_400_000_000]))
            .prop_map(|(months, days, micros)| Value::Interval(Interval { months, days, micros }))
            .boxed(),
    }
}

fn any_inet() -> impl Strategy<Value = Inet> {
    let v4 = (small_or_any(vec![0_u32, 0x0a00_0000, 0x0a01_0203]), 0..=32_u8)
        .prop_map(|(address, bits)| Inet::new(core::net::Ipv4Addr::from(address).into(), bits).unwrap());
    let v6 = (small_or_any(vec![0_u128, 1, 0x2001_0db8 << 96]), 0..=128_u8)
        .prop_map(|(address, bits)| Inet::new(core::net::Ipv6Addr::from(address).into(), bits).unwrap());
    prop_oneof![v4, v6]
}

/// Any value of a type, not NULL.
pub(crate) fn any_value(ty: Type) -> BoxedStrategy<Value<'static>> {
    match ty {
        Type::Scalar(scalar) => scalar_value(scalar),
        Type::Array(element) => {
            let item = prop_oneof![1 => Just(Value::Null), 5 => scalar_value(element)];
            prop::collection::vec(item, 0..4)
                .prop_map(move |items| Value::Array(Array::new(element, items).unwrap()))
                .boxed()
        }
    }
}

/// The expected order of a key column, by comparing the values.
pub(crate) fn sql_order(a: &Value<'_>, b: &Value<'_>, order: KeyOrder) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => {
            if order.nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if order.nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) => {
            let natural = a.compare(b).unwrap();
            if order.descending { natural.reverse() } else { natural }
        }
    }
}
