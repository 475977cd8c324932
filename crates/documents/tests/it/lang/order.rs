//! The order of values: comparison and key bytes agree.

use std::cmp::Ordering;

use bson::{Bson, doc};
use proptest::prelude::*;
use ropewalk_documents::lang::key::{self, IndexField, Interval};
use ropewalk_documents::lang::{Value, order};

use super::values::value;
use super::{buf, json};

fn encoded(value: Value<'_>, descending: bool) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode(value, descending, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn keys_sort_as_values_do(a in value(), b in value()) {
        let (a, b) = (buf(&doc! { "v": a }), buf(&doc! { "v": b }));
        let (a, b) = (a.doc().get("v").unwrap(), b.doc().get("v").unwrap());
        let order = order::compare(a, b);
        prop_assert_eq!(encoded(a, false).cmp(&encoded(b, false)), order);
        prop_assert_eq!(encoded(a, true).cmp(&encoded(b, true)), order.reverse());
        prop_assert_eq!(order::compare(b, a), order.reverse());
    }

    #[test]
    fn no_key_is_the_beginning_of_another(a in value(), b in value()) {
        let (a, b) = (buf(&doc! { "v": a }), buf(&doc! { "v": b }));
        let (a, b) = (a.doc().get("v").unwrap(), b.doc().get("v").unwrap());
        let (x, y) = (encoded(a, false), encoded(b, false));
        prop_assert!(x == y || !x.starts_with(&y));
        prop_assert!((0x01..0xFF).contains(&x[0]) && (0x01..0xFF).contains(&!x[0]));
        // An interval of one value contains only that value, also when descending.
        let point = Interval::point(a);
        prop_assert_eq!(point.contains(&y), order::equal(a, b));
        prop_assert_eq!(point.descending().contains(&encoded(b, true)), order::equal(a, b));
    }

    #[test]
    fn the_order_is_transitive(values in proptest::collection::vec(value(), 3)) {
        let doc = buf(&doc! { "v": values });
        let mut sorted: Vec<_> = doc.doc().get("v").unwrap().as_array().unwrap().values().collect();
        sorted.sort_by(|a, b| order::compare(*a, *b));
        prop_assert!(order::compare(sorted[0], sorted[2]).is_le());
    }
}

/// One value of every type, from the least to the greatest.
#[test]
fn types_in_order() {
    let rising = json(
        r#"{ "v": [ {"$minKey": 1}, {"$undefined": true}, null, {"$numberDouble": "NaN"}, {"$numberDouble": "-Infinity"}, -1, 0,
            {"$numberDecimal": "0.5"}, {"$numberLong": "1"}, "", "a", "a\u0000", "b", {}, {"a": 1}, {"a": 2}, {"b": 0}, {"a": "x"}, [], [1], [1, 1], [2],
            {"$binary": {"base64": "AAA=", "subType": "00"}}, {"$oid": "000000000000000000000001"}, false, true,
            {"$date": {"$numberLong": "-5"}}, {"$date": {"$numberLong": "5"}}, {"$timestamp": {"t": 1, "i": 1}},
            {"$regularExpression": {"pattern": "a", "options": ""}}, {"$code": "f"}, {"$maxKey": 1} ] }"#,
    );
    let values: Vec<_> = rising.doc().get("v").unwrap().as_array().unwrap().values().collect();
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            assert_eq!(order::compare(*a, *b), i.cmp(&j), "{a} against {b}");
        }
    }
}

#[test]
fn equal_numbers_have_equal_keys() {
    let same = |values: &[Bson]| {
        let keys: Vec<_> = values
            .iter()
            .map(|value| encoded(buf(&doc! { "v": value }).doc().get("v").unwrap(), false))
            .collect();
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]), "{values:?}");
    };
    let decimal = super::values::decimal;
    same(&[Bson::Int32(7), Bson::Int64(7), Bson::Double(7.0), decimal("7"), decimal("7.000")]);
    same(&[Bson::Double(-0.0), Bson::Int32(0), decimal("-0"), decimal("0E+20")]);
    same(&[Bson::Int64(i64::MAX), decimal("9223372036854775807")]);
    same(&[Bson::Double(0.5), decimal("0.5")]);
    same(&[Bson::Double(f64::NAN), decimal("NaN")]);
    let tenth = encoded(Value::Double(0.1), false);
    assert_eq!(
        tenth.cmp(&encoded(buf(&doc! { "v": decimal("0.1") }).doc().get("v").unwrap(), false)),
        Ordering::Greater
    );
}

fn fields(names: &[&str]) -> Vec<IndexField> {
    let field = |name: &&str| match name.strip_prefix('-') {
        Some(name) => IndexField { path: name.to_owned(), descending: true },
        None => IndexField { path: (*name).to_owned(), descending: false },
    };
    names.iter().map(field).collect()
}

/// The keys of a document in an index, compared with the values that they encode.
fn keys(doc: &str, names: &[&str], expected: &[&[&str]]) -> Vec<bool> {
    let doc = json(doc);
    let fields = fields(names);
    let entries = key::entries(doc.doc(), &fields).unwrap();
    let mut wanted: Vec<Vec<u8>> = expected
        .iter()
        .map(|values| {
            let mut out = Vec::new();
            for (value, field) in values.iter().zip(&fields) {
                let value = json(&format!(r#"{{"v": {value}}}"#));
                key::encode(value.doc().get("v").unwrap(), field.descending, &mut out);
            }
            out
        })
        .collect();
    wanted.sort();
    assert_eq!(entries.keys, wanted, "{doc} in {names:?}");
    entries.multikey
}

#[test]
fn entries_of_a_document() {
    let undefined = r#"{"$undefined": true}"#;
    assert_eq!(keys(r#"{"a": 1, "b": "x"}"#, &["a", "-b"], &[&["1", r#""x""#]]), [false, false]);
    assert_eq!(keys(r#"{"a": 1}"#, &["b"], &[&["null"]]), [false]);
    assert_eq!(keys(r#"{"a": [3, 1, 3]}"#, &["a"], &[&["1"], &["3"]]), [true]);
    assert_eq!(keys(r#"{"a": []}"#, &["a"], &[&[undefined]]), [true]);
    assert_eq!(keys(r#"{"a": [[1, 2], 5]}"#, &["a"], &[&["[1, 2]"], &["5"]]), [true]);
    assert_eq!(
        keys(r#"{"a": {"b": [1, 2]}, "c": 9}"#, &["c", "a.b"], &[&["9", "1"], &["9", "2"]]),
        [false, true]
    );
    // Two fields below the same array expand its elements together.
    assert_eq!(
        keys(
            r#"{"a": [{"b": 1, "c": 2}, {"b": 3}, 7]}"#,
            &["a.b", "a.c"],
            &[&["1", "2"], &["3", "null"], &["null", "null"]]
        ),
        [true, true]
    );
    assert_eq!(keys(r#"{"a": [{"b": [1, 2]}, {"b": 3}]}"#, &["a.b"], &[&["1"], &["2"], &["3"]]), [true]);
    assert_eq!(keys(r#"{"a": [10, 20]}"#, &["a.1"], &[&["20"]]), [true]);
    assert_eq!(keys(r#"{"a": [{"b": 1}, {"b": 2}]}"#, &["a.1.b"], &[&["2"]]), [true]);
    assert_eq!(keys(r#"{"a": []}"#, &["a.b"], &[&["null"]]), [true]);
    let missing =
        |doc: &str, names: &[&str]| key::entries(json(doc).doc(), &fields(names)).unwrap().missing_all;
    assert!(missing(r#"{"a": 1}"#, &["b", "c.d"]) && !missing(r#"{"b": null}"#, &["b", "c.d"]));
}

#[test]
fn parallel_arrays_are_refused() {
    let doc = json(r#"{"a": [1, 2], "b": [3, 4]}"#);
    let error = key::entries(doc.doc(), &fields(&["a", "b"])).unwrap_err();
    assert_eq!((error.code.number(), error.code.to_string().as_str()), (171, "CannotIndexParallelArrays"));
    let doc = json(r#"{"a": [{"0": 1}]}"#);
    assert_eq!(key::entries(doc.doc(), &fields(&["a.0"])).unwrap_err().code.number(), 16746);
}
