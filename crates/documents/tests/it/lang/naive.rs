//! Filters by definition: the query as written, interpreted on trees, with every value of a path expanded
//! first. Slow and simple; shares no code with the implementation under test.

use std::cmp::Ordering;

use bson::{Bson, Document};
use proptest::prelude::*;
use ropewalk_documents::lang::{DocBuf, Filter, Options};

use super::notation::doc;
use super::properties::{fields, filter, value};

fn tree(doc: &DocBuf) -> Document {
    Document::from_reader(doc.bytes()).unwrap()
}

/// All values of a path, `None` for a missing field. The last array on the path is included itself, too,
/// unless `whole`.
fn reach(value: &Bson, path: &[&str], whole: bool) -> Vec<Option<Bson>> {
    let Some((name, rest)) = path.split_first() else {
        return match value {
            Bson::Array(elements) if !whole => elements.iter().chain([value]).cloned().map(Some).collect(),
            value => vec![Some(value.clone())],
        };
    };
    match value {
        Bson::Document(doc) => match doc.get(name) {
            Some(value) => reach(value, rest, whole),
            None => vec![None],
        },
        Bson::Array(elements) => {
            let fixed = name.parse::<usize>().ok().and_then(|at| elements.get(at));
            let mut out = Vec::new();
            for element in elements {
                if let Bson::Document(doc) = element
                    && (fixed.is_none() || doc.contains_key(name))
                {
                    out.extend(reach(element, path, whole));
                }
            }
            if let Some(element) = fixed
                && (rest.is_empty() || matches!(element, Bson::Document(_) | Bson::Array(_)))
            {
                out.extend(reach(element, rest, whole));
            }
            out
        }
        _ => vec![None],
    }
}

fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(d) => Some(*d),
        Bson::Decimal128(d) => d.to_string().parse().ok(),
        _ => None,
    }
}

fn class(value: &Bson) -> u8 {
    match value {
        Bson::MinKey => 0,
        Bson::Undefined => 1,
        Bson::Null => 2,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => 3,
        Bson::String(_) => 4,
        Bson::Document(_) => 5,
        Bson::Array(_) => 6,
        Bson::Boolean(_) => 7,
        Bson::DateTime(_) => 8,
        Bson::RegularExpression(_) => 9,
        Bson::MaxKey => 10,
        other => panic!("{other}"),
    }
}

fn compare(a: &Bson, b: &Bson) -> Ordering {
    class(a).cmp(&class(b)).then_with(|| match (a, b) {
        (Bson::String(a), Bson::String(b)) => a.cmp(b),
        (Bson::Boolean(a), Bson::Boolean(b)) => a.cmp(b),
        (Bson::Array(a), Bson::Array(b)) => {
            let different = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            different.unwrap_or(a.len().cmp(&b.len()))
        }
        (Bson::Document(a), Bson::Document(b)) => {
            let field = |((a, x), (b, y)): ((&String, &Bson), (&String, &Bson))| {
                class(x).cmp(&class(y)).then(a.cmp(b)).then(compare(x, y))
            };
            a.iter().zip(b).map(field).find(|order| order.is_ne()).unwrap_or(a.len().cmp(&b.len()))
        }
        _ => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan())),
            _ => Ordering::Equal,
        },
    })
}

fn nullish(value: Option<&Bson>) -> bool {
    matches!(value, None | Some(Bson::Null | Bson::Undefined))
}

fn compared(value: Option<&Bson>, operand: &Bson, accept: fn(Ordering) -> bool) -> bool {
    if nullish(Some(operand)) {
        return nullish(value) && accept(Ordering::Equal);
    }
    let Some(value) = value else { return false };
    let nan = |value: &Bson| number(value).is_some_and(f64::is_nan);
    if nan(value) != nan(operand) && number(value).is_some() && number(operand).is_some() {
        return false;
    }
    let same = class(value) == class(operand) || matches!(operand, Bson::MinKey | Bson::MaxKey);
    if !same || nan(value) != nan(operand) {
        return false;
    }
    accept(compare(value, operand))
}

/// The three patterns of the generator.
fn pattern(pattern: &str, value: Option<&Bson>) -> bool {
    match value {
        Some(Bson::String(text)) => match pattern {
            "^x" | "^xy*" => text.starts_with('x'),
            one => text.contains(one),
        },
        Some(Bson::RegularExpression(regex)) => regex.pattern.as_str() == pattern,
        _ => false,
    }
}

fn equals(value: Option<&Bson>, operand: &Bson) -> bool {
    match operand {
        Bson::RegularExpression(regex) => pattern(regex.pattern.as_str(), value),
        operand => compared(value, operand, Ordering::is_eq),
    }
}

/// One operator on one value.
fn passes(name: &str, operand: &Bson, value: Option<&Bson>) -> bool {
    let array = |value: Option<&Bson>| match value {
        Some(Bson::Array(elements)) => Some(elements.clone()),
        _ => None,
    };
    match name {
        "$eq" => compared(value, operand, Ordering::is_eq),
        "$gt" => compared(value, operand, Ordering::is_gt),
        "$gte" => compared(value, operand, Ordering::is_ge),
        "$lt" => compared(value, operand, Ordering::is_lt),
        "$lte" => compared(value, operand, Ordering::is_le),
        "$in" => operand.as_array().unwrap().iter().any(|operand| equals(value, operand)),
        "$exists" => value.is_some(),
        "$type" => value.is_some_and(|value| {
            let names: Vec<&str> = match operand {
                Bson::Array(names) => names.iter().map(|name| name.as_str().unwrap()).collect(),
                one => vec![one.as_str().unwrap()],
            };
            names.iter().any(|name| match *name {
                "number" => class(value) == 3,
                "string" => class(value) == 4,
                "array" => class(value) == 6,
                "null" => class(value) == 2,
                "object" => class(value) == 5,
                _ => matches!(value, Bson::Int64(_)),
            })
        }),
        "$mod" => {
            let operands: Vec<i32> =
                operand.as_array().unwrap().iter().map(|n| n.as_i32().unwrap()).collect();
            value.and_then(number).is_some_and(|n| {
                n.is_finite() && n.trunc() as i64 % i64::from(operands[0]) == i64::from(operands[1])
            })
        }
        "$size" => array(value).is_some_and(|elements| elements.len() == operand.as_i32().unwrap() as usize),
        "$regex" => pattern(operand.as_str().unwrap(), value),
        "$bitsAnySet" => value
            .and_then(number)
            .is_some_and(|n| n.fract() == 0.0 && n as i64 & i64::from(operand.as_i32().unwrap()) != 0),
        "$elemMatch" => array(value).is_some_and(|elements| {
            let inner = operand.as_document().unwrap();
            let operators = inner.keys().next().is_some_and(|name| name.starts_with('$'));
            elements.iter().any(|element| match element {
                element if operators => inner.iter().all(|(name, operand)| alone(name, operand, element)),
                Bson::Document(doc) => matches(inner, &Bson::Document(doc.clone())),
                Bson::Array(_) => matches(inner, &numbered(element)),
                _ => false,
            })
        }),
        other => panic!("{other}"),
    }
}

/// An array as a document.
fn numbered(array: &Bson) -> Bson {
    let elements = array.as_array().unwrap().iter().enumerate();
    Bson::Document(elements.map(|(at, value)| (at.to_string(), value.clone())).collect())
}

/// An operator inside `$elemMatch`: applied to the element itself, whatever it is.
fn alone(name: &str, operand: &Bson, element: &Bson) -> bool {
    match name {
        "$ne" => !passes("$eq", operand, Some(element)),
        "$nin" => !passes("$in", operand, Some(element)),
        "$exists" => operand.as_bool().unwrap(),
        "$not" => !operand.as_document().unwrap().iter().all(|(name, operand)| alone(name, operand, element)),
        "$all" => {
            let operands = operand.as_array().unwrap();
            !operands.is_empty() && operands.iter().all(|operand| equals(Some(element), operand))
        }
        name => passes(name, operand, Some(element)),
    }
}

/// An operator on a path.
fn holds(name: &str, operand: &Bson, path: &[&str], doc: &Bson) -> bool {
    let any = |name: &str, operand: &Bson| {
        let whole = matches!(name, "$size" | "$elemMatch" | "$exists");
        reach(doc, path, whole).iter().any(|value| passes(name, operand, value.as_ref()))
    };
    match name {
        "$ne" => !any("$eq", operand),
        "$nin" => !any("$in", operand),
        "$exists" => any("$exists", operand) == operand.as_bool().unwrap(),
        "$not" => {
            !operand.as_document().unwrap().iter().all(|(name, operand)| holds(name, operand, path, doc))
        }
        "$all" => {
            let operands = operand.as_array().unwrap();
            let one =
                |operand: &Bson| reach(doc, path, false).iter().any(|value| equals(value.as_ref(), operand));
            !operands.is_empty() && operands.iter().all(one)
        }
        name => any(name, operand),
    }
}

fn matches(filter: &Document, doc: &Bson) -> bool {
    let branch = |branch: &Bson| matches(branch.as_document().unwrap(), doc);
    filter.iter().all(|(name, operand)| match name.as_str() {
        "$and" => operand.as_array().unwrap().iter().all(branch),
        "$or" => operand.as_array().unwrap().iter().any(branch),
        "$nor" => !operand.as_array().unwrap().iter().any(branch),
        path => {
            let path: Vec<&str> = path.split('.').collect();
            operand.as_document().unwrap().iter().all(|(name, operand)| holds(name, operand, &path, doc))
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn filter_matches_as_the_naive_interpreter_does(text in filter(), docs in proptest::collection::vec(fields(value()), 1..6)) {
        let written = doc(&text);
        let filter = Filter::parse(written.doc(), &Options::default()).unwrap();
        for document in docs {
            let document = doc(&document);
            let expected = matches(&tree(&written), &Bson::Document(tree(&document)));
            prop_assert_eq!(filter.matches(document.doc()).unwrap(), expected, "{} on {}", text, document);
        }
    }
}
