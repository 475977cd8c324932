//! Properties of any filter, update and document: an index finds what a scan finds, and client input cannot
//! do harm.

use proptest::prelude::*;
use ropewalk_documents::lang::key::{self, IndexField};
use ropewalk_documents::lang::{
    Applied, Doc, DocBuf, Filter, LangError, Options, Pipeline, Projection, Sort, Source, Stream, Update,
    UpdateContext, Value,
};

use super::notation::doc;

/// Values that often satisfy conditions: few, of many types, nested in arrays.
pub(super) fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        6 => (0..4).prop_map(|n: i32| n.to_string()),
        1 => (0..4).prop_map(|n| format!("{n}.5")),
        1 => (0..3).prop_map(|n| format!("{n}L")),
        1 => (0..3).prop_map(|n| format!("{n}.5d")),
        2 => prop_oneof![Just("\"x\""), Just("\"xy\""), Just("\"\""), Just("\"z\"")].prop_map(str::to_owned),
        2 => prop_oneof![Just("null"), Just("undefined"), Just("true"), Just("NaN"), Just("MinKey"), Just("MaxKey"), Just("/x/"), Just("Date(1)")]
            .prop_map(str::to_owned),
    ];
    let list = |inner: BoxedStrategy<String>| {
        proptest::collection::vec(inner, 0..4).prop_map(|values| format!("[{}]", values.join(", ")))
    };
    let leaf = leaf.boxed();
    let flat = prop_oneof![3 => leaf.clone(), 2 => list(leaf.clone()), 2 => fields(leaf.clone())].boxed();
    prop_oneof![5 => leaf, 2 => list(flat.clone()), 2 => fields(flat)]
}

pub(super) fn fields(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let name = prop_oneof![4 => Just("a"), 4 => Just("b"), 1 => Just("c")];
    proptest::collection::btree_map(name, inner, 1..4).prop_map(|fields| {
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        format!("{{{}}}", fields.join(", "))
    })
}

fn path() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("a"), 2 => Just("b"), 3 => Just("a.b"), 1 => Just("a.0"), 1 => Just("a.1.b"), 1 => Just("a.b.a")]
}

fn operand() -> impl Strategy<Value = String> {
    value().prop_filter("undefined is refused", |text| !text.contains("undefined"))
}

/// `$gt: 2` and the like.
fn operator() -> impl Strategy<Value = String> {
    let simple = prop_oneof![
        8 => (prop_oneof![Just("$eq"), Just("$gt"), Just("$gte"), Just("$lt"), Just("$lte"), Just("$ne")], operand())
            .prop_filter("patterns have no order", |(_, operand)| !operand.starts_with('/'))
            .prop_map(|(name, operand)| format!("{name}: {operand}")),
        2 => (prop_oneof![Just("$in"), Just("$nin")], proptest::collection::vec(operand(), 0..3))
            .prop_map(|(name, operands)| format!("{name}: [{}]", operands.join(", "))),
        1 => any::<bool>().prop_map(|exists| format!("$exists: {exists}")),
        1 => prop_oneof![Just("\"number\""), Just("\"string\""), Just("\"array\""), Just("[\"null\", \"object\"]"), Just("\"long\"")]
            .prop_map(|kind| format!("$type: {kind}")),
        1 => (1..4, 0..3).prop_map(|(divisor, rest)| format!("$mod: [{divisor}, {rest}]")),
        1 => (0..3).prop_map(|size| format!("$size: {size}")),
        1 => prop_oneof![Just("\"^x\""), Just("\"y\""), Just("\"^xy*\"")].prop_map(|pattern| format!("$regex: {pattern}")),
        1 => (0..4).prop_map(|mask| format!("$bitsAnySet: {mask}")),
        1 => proptest::collection::vec(operand(), 0..3).prop_map(|operands| format!("$all: [{}]", operands.join(", "))),
    ];
    let nested = |inner: BoxedStrategy<String>| {
        prop_oneof![
            6 => inner.clone(),
            1 => inner.clone().prop_map(|inner| format!("$not: {{{inner}}}")),
            1 => proptest::collection::vec(inner.clone(), 1..3)
                .prop_map(|inner| format!("$elemMatch: {{{}}}", distinct(inner))),
            1 => (path(), inner).prop_map(|(path, inner)| format!("$elemMatch: {{\"{path}\": {{{inner}}}}}")),
        ]
        .boxed()
    };
    nested(nested(simple.boxed()))
}

/// One of each operator: clients do not repeat a name in a document.
fn distinct(mut operators: Vec<String>) -> String {
    let name = |operator: &String| operator.split(':').next().unwrap().to_owned();
    operators.sort_by_key(name);
    operators.dedup_by_key(|operator| name(operator));
    operators.join(", ")
}

pub(super) fn filter() -> impl Strategy<Value = String> {
    let condition = (path(), proptest::collection::vec(operator(), 1..3))
        .prop_map(|(path, operators)| format!("{{\"{path}\": {{{}}}}}", distinct(operators)));
    let logic = |inner: BoxedStrategy<String>| {
        let name = prop_oneof![3 => Just("$and"), 2 => Just("$or"), 1 => Just("$nor")];
        let joined = (name, proptest::collection::vec(inner.clone(), 1..4))
            .prop_map(|(name, inner)| format!("{{{name}: [{}]}}", inner.join(", ")));
        prop_oneof![2 => inner, 1 => joined].boxed()
    };
    logic(logic(condition.boxed()))
}

fn parsed(text: &str) -> Filter {
    Filter::parse(doc(text).doc(), &Options::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn field(path: &str) -> IndexField {
    IndexField { path: path.to_owned(), descending: false }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// A document that matches has an entry within the bounds; within exact bounds every entry is of a match.
    #[test]
    fn bounds_hold_every_match(text in filter(), docs in proptest::collection::vec(fields(value()), 1..6)) {
        let filter = parsed(&text);
        for path in ["a", "b", "a.b", "a.0", "a.1.b"] {
            for doc in &docs {
                let doc = super::notation::doc(doc);
                let Ok(entries) = key::entries(doc.doc(), &[field(path)]) else { continue };
                // An index that is multikey is so for all its documents; one that is not has no documents
                // with arrays.
                for multikey in [false, true] {
                    if entries.multikey[0] && !multikey {
                        continue;
                    }
                    let Some(bounds) = filter.bounds(path, multikey) else { continue };
                    let within = |key: &Vec<u8>| bounds.intervals.iter().any(|interval| interval.contains(key));
                    let matches = filter.matches(doc.doc()).unwrap();
                    let found = entries.keys.iter().any(within);
                    prop_assert!(found || !matches, "{text} matches {doc}, but not in {path}: {bounds:?}");
                    if bounds.exact {
                        // The rest of the filter is about other paths, so only the path's own part is
                        // decided.
                        let alone = own_part(&filter, &text, path);
                        prop_assert!(!found || alone.is_none_or(|own| own.matches(doc.doc()).unwrap()), "{text} on {path} is exact, but {doc} is no match");
                    }
                    let mut descending = Vec::new();
                    for key in &entries.keys {
                        descending.push(key.iter().map(|byte| !byte).collect::<Vec<u8>>());
                    }
                    let upside_down = |key: &Vec<u8>| bounds.intervals.iter().any(|interval| interval.descending().contains(key));
                    prop_assert_eq!(descending.iter().any(upside_down), found, "{} descending in {}", text, path);
                }
                if filter.wants_presence(path) && filter.matches(doc.doc()).unwrap() {
                    prop_assert!(!entries.missing_all || path.contains('.'), "{text} matches {doc} without {path}");
                }
            }
        }
    }

    /// The branches of an `$or` together match what the filter matches.
    #[test]
    fn branches_are_the_filter(text in filter(), text2 in filter(), document in fields(value())) {
        let document = doc(&document);
        let filter = parsed(&format!("{{$or: [{text}, {text2}], b: {{$ne: 3}}}}"));
        let branches = filter.branches().unwrap();
        let any = branches.iter().any(|branch| branch.matches(document.doc()).unwrap());
        prop_assert_eq!(any, filter.matches(document.doc()).unwrap());
    }

    /// An implication that is claimed holds.
    #[test]
    fn implications_hold(a in filter(), b in filter(), docs in proptest::collection::vec(fields(value()), 1..5)) {
        let (x, y) = (parsed(&a), parsed(&b));
        let both = parsed(&format!("{{$and: [{a}, {b}]}}"));
        prop_assert!(both.implies(&x) && both.implies(&y), "{a} and {b} imply each of them");
        for document in docs {
            let document = doc(&document);
            for (from, to) in [(&x, &y), (&y, &x), (&both, &x)] {
                if from.implies(to) && from.matches(document.doc()).unwrap() {
                    prop_assert!(to.matches(document.doc()).unwrap(), "{a} / {b} on {document}");
                }
            }
        }
    }

    /// Sort keys are those of the least, or greatest, entry that an index would have.
    #[test]
    fn sort_keys_are_the_first_entries(document in fields(value()), descending in any::<bool>()) {
        let document = doc(&document);
        let direction = if descending { -1 } else { 1 };
        let sort = Sort::parse(doc(&format!("{{a: {direction}}}")).doc()).unwrap();
        let entries = key::entries(document.doc(), &[IndexField { path: "a".to_owned(), descending }]).unwrap();
        prop_assert_eq!(Some(&sort.key(document.doc()).unwrap()), entries.keys.first());
    }
}

/// The part of a conjunction on the path; `None` if it cannot be separated in the text.
fn own_part(filter: &Filter, text: &str, path: &str) -> Option<Filter> {
    let only = text.starts_with(&format!("{{\"{path}\""));
    only.then(|| filter.clone())
}

struct Nowhere;

impl Source for Nowhere {
    type Error = LangError;

    fn find(&self, _: &str, _: &Filter) -> Result<Stream<'_, LangError>, LangError> {
        Ok(Box::new(std::iter::empty()))
    }
}

/// Random operators in wrong places, with wrong operands.
fn nonsense() -> impl Strategy<Value = String> {
    let names = [
        "$set",
        "$inc",
        "$push",
        "$each",
        "$slice",
        "$sort",
        "$pull",
        "$rename",
        "$bit",
        "$and",
        "$or",
        "$not",
        "$elemMatch",
        "$in",
        "$gt",
        "$regex",
        "$expr",
        "$match",
        "$group",
        "$project",
        "$unwind",
        "$sort",
        "$limit",
        "$lookup",
        "$facet",
        "$add",
        "$cond",
        "$map",
        "$filter",
        "$reduce",
        "$let",
        "$switch",
        "$range",
        "$dateAdd",
        "$dateTrunc",
        "$convert",
        "$substrCP",
        "$round",
        "$arrayElemAt",
        "$zip",
        "$slice",
        "input",
        "in",
        "as",
        "cond",
        "vars",
        "_id",
        "a",
        "a.b",
        "a.$",
        "a.$[]",
        "a.$[x]",
        "from",
        "pipeline",
        "unit",
        "amount",
        "startDate",
        "path",
    ];
    let scalar = prop_oneof![
        value(),
        prop_oneof![
            Just("\"$a\""),
            Just("\"$a.b\""),
            Just("\"$$ROOT\""),
            Just("\"$$this\""),
            Just("\"$\""),
            Just("\"day\""),
            Just("\"(\""),
            Just("9223372036854775807L"),
            Just("-9223372036854775808L"),
            Just("Date(9223372036854775807)"),
            Just("1E6144d"),
            Just("-1"),
            Just("Infinity")
        ]
        .prop_map(str::to_owned),
    ];
    scalar.prop_recursive(4, 24, 4, move |inner| {
        let name = proptest::sample::select(names.to_vec());
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| format!("[{}]", values.join(", "))),
            proptest::collection::vec((name, inner), 0..4).prop_map(|fields| {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
                format!("{{{}}}", fields.join(", "))
            }),
        ]
    })
}

fn try_everything(spec: Value<'_>, document: Doc<'_>) {
    let options = Options { variables: Some(document.to_buf()), ..Options::default() };
    if let Value::Document(spec) = spec {
        if let Ok(filter) = Filter::parse(spec, &options) {
            let _ = filter.matches_at(document);
            let _ = (filter.seed(), filter.bounds("a", true), filter.branches(), filter.implies(&filter));
        }
        if let Ok(projection) = Projection::parse(spec, &options)
            && let Ok(projected) = projection.apply(document, None)
        {
            Doc::check(projected.bytes()).unwrap();
        }
        let _ = Sort::parse(spec).map(|sort| sort.key(document));
    }
    if let Ok(update) = Update::parse(spec, None, &options) {
        let context = UpdateContext { position: Some(1), now_ms: 5, inserting: false };
        if let Ok(Applied::Changed(changed)) = update.apply(document, &context) {
            Doc::check(changed.bytes()).unwrap();
        }
    }
    if let Value::Array(stages) = spec
        && let Ok(pipeline) = Pipeline::parse(stages, &options)
    {
        let input: Vec<Result<DocBuf, LangError>> = vec![Ok(document.to_buf()), Ok(document.to_buf())];
        if let Ok(stream) = pipeline.run(Box::new(input.into_iter()), &Nowhere, 1 << 16) {
            for doc in stream.take(50).flatten() {
                Doc::check(doc.bytes()).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn nonsense_is_refused_or_harmless(spec in nonsense(), document in fields(value())) {
        let document = doc(&document);
        let spec = super::notation::value(&spec);
        try_everything(spec.value(), document.doc());
    }

    /// Every function with operands of any types, in any number.
    #[test]
    fn functions_take_anything(
        name in proptest::sample::select(FUNCTIONS.to_vec()),
        operands in proptest::collection::vec(value(), 0..4),
        names in proptest::collection::vec(proptest::sample::select(NAMES.to_vec()), 4),
    ) {
        let list = format!("[{{$replaceWith: {{r: {{{name}: [{}]}}}}}}]", operands.join(", "));
        let fields: Vec<_> = names.iter().zip(&operands).map(|(name, value)| format!("{name}: {value}")).collect();
        let named = format!("[{{$replaceWith: {{r: {{{name}: {{{}}}}}}}}}]", fields.join(", "));
        for stages in [list, named] {
            try_everything(super::notation::value(&stages).value(), doc("{a: 1}").doc());
        }
    }
}

const FUNCTIONS: [&str; 60] = [
    "$add",
    "$subtract",
    "$multiply",
    "$divide",
    "$mod",
    "$abs",
    "$ceil",
    "$floor",
    "$round",
    "$trunc",
    "$sqrt",
    "$pow",
    "$log",
    "$bitAnd",
    "$bitNot",
    "$concat",
    "$toUpper",
    "$substrBytes",
    "$substrCP",
    "$indexOfCP",
    "$indexOfBytes",
    "$split",
    "$trim",
    "$replaceAll",
    "$regexFindAll",
    "$arrayElemAt",
    "$first",
    "$firstN",
    "$concatArrays",
    "$in",
    "$indexOfArray",
    "$range",
    "$slice",
    "$zip",
    "$sortArray",
    "$sum",
    "$avg",
    "$min",
    "$stdDevSamp",
    "$setUnion",
    "$setEquals",
    "$setIntersection",
    "$mergeObjects",
    "$objectToArray",
    "$arrayToObject",
    "$setField",
    "$getField",
    "$toInt",
    "$toLong",
    "$toDecimal",
    "$toString",
    "$toDate",
    "$convert",
    "$year",
    "$dateToString",
    "$dateFromParts",
    "$dateAdd",
    "$dateDiff",
    "$dateTrunc",
    "$dateFromString",
];

const NAMES: [&str; 22] = [
    "input",
    "n",
    "regex",
    "chars",
    "find",
    "replacement",
    "to",
    "date",
    "timezone",
    "format",
    "startDate",
    "endDate",
    "unit",
    "amount",
    "year",
    "month",
    "field",
    "value",
    "sortBy",
    "inputs",
    "dateString",
    "binSize",
];
