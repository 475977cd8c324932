//! Bounds: the conditions of a filter on one path, as intervals of index keys.
//!
//! ```text
//! { a: { $gte: 3, $lt: 9 } }   [3, 9)                 { a: { $in: [1, 2] } }   [1] [2]
//! { a: /^ab/ }                 ["ab", "ac") and the regex itself               { a: null }   undefined .. null, to be checked
//! ```
//!
//! Invariants
//! 1. A document that matches has an entry in one of the intervals. Too wide is slow, too narrow is wrong.
//! 2. `exact` is claimed only if the converse holds as well: then the documents of the intervals need no
//!    check for this path.

use crate::lang::filter::{Comparison, Leaf, Node, Test};
use crate::lang::value::key::{self, Interval};
use crate::lang::value::number;
use crate::lang::value::order::{self, class};
use crate::lang::value::{Doc, Value, tag};

/// Intervals of keys of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Sorted, not touching one another; ascending keys, see [`Interval::descending`].
    pub intervals: Vec<Interval>,
    /// The intervals are equivalent to the filter's conditions on this path.
    pub exact: bool,
}

impl Bounds {
    /// Every interval is a single value.
    #[must_use]
    pub fn are_points(&self) -> bool {
        self.intervals.iter().all(|interval| interval.point)
    }

    fn new(intervals: Vec<Interval>, exact: bool) -> Self {
        Self { intervals: union(intervals), exact }
    }
}

/// The bounds of `path` in the conjunction `root`.
pub(crate) fn of(root: &Node, path: &str, multikey: bool) -> Option<Bounds> {
    let mut result: Option<Bounds> = None;
    let mut every = true;
    for node in root.conjuncts() {
        let Some(next) = of_node(node, path, multikey) else {
            // There are, or may be, other conditions on the path.
            every &= node.path().is_some_and(|own| own != path);
            continue;
        };
        result = Some(match result {
            None => next,
            Some(bounds) if multikey => {
                every = false;
                narrower(bounds, next)
            }
            Some(bounds) => Bounds {
                intervals: intersection(&bounds.intervals, &next.intervals),
                exact: bounds.exact && next.exact,
            },
        });
    }
    result.map(|bounds| Bounds { exact: bounds.exact && every, ..bounds })
}

/// True when this condition bounds the path.
pub(crate) fn bounds_path(node: &Node, path: &str) -> bool {
    of_node(node, path, false).is_some()
}

fn of_node(node: &Node, path: &str, multikey: bool) -> Option<Bounds> {
    match node {
        Node::Leaf(leaf) if leaf.path == path => of_test(&leaf.test),
        // `{ a: { $elemMatch: { b: .. } } }` bounds the path a.b.
        Node::Leaf(Leaf { path: own, test: Test::ElementMatches(inner) }) => {
            let rest = path.strip_prefix(own.as_str())?.strip_prefix('.')?;
            of(inner, rest, multikey).map(|bounds| Bounds { exact: false, ..bounds })
        }
        Node::Not(inner) => match inner.as_ref() {
            Node::Leaf(Leaf { path: own, test: Test::Exists }) if own == path => {
                Some(Bounds::new(vec![Interval::point(Value::Null)], false))
            }
            _ => None,
        },
        Node::Or(branches) if !branches.is_empty() => {
            let mut intervals = Vec::new();
            for branch in branches {
                intervals.extend(of(branch, path, multikey)?.intervals);
            }
            Some(Bounds::new(intervals, false))
        }
        _ => None,
    }
}

fn of_test(test: &Test) -> Option<Bounds> {
    let of_classes = |classes: &[u8]| {
        Bounds::new(classes.iter().map(|class| Interval::prefix(vec![*class])).collect(), false)
    };
    let numbers = order::class(Value::Int32(0));
    match test {
        Test::Compare(comparison, operand) => {
            of_comparison(*comparison, operand.value(), key::key_of(operand.value()))
        }
        // Patterns match the text itself, of which the keys of an index under a collation say nothing.
        Test::Collated(test) if test.patterns.is_empty() => {
            let mut intervals = Vec::new();
            for (key, operand) in &test.operands {
                if let Value::Array(_) = operand.value() {
                    return None;
                }
                intervals.extend(of_comparison(test.comparison, operand.value(), key.clone())?.intervals);
            }
            Some(Bounds::new(intervals, false))
        }
        Test::In(values, patterns) => {
            let mut intervals = Vec::new();
            let mut exact = patterns.is_empty();
            for value in values {
                let bounds = of_comparison(Comparison::Equal, value.value(), key::key_of(value.value()))?;
                exact &= bounds.exact;
                intervals.extend(bounds.intervals);
            }
            patterns.iter().for_each(|pattern| intervals.extend(of_pattern(pattern)));
            Some(Bounds::new(intervals, exact))
        }
        Test::Regex(pattern) => Some(Bounds::new(of_pattern(pattern), false)),
        Test::Type(tags) => {
            // An index has no entry for an array as a whole.
            let classes: Option<Vec<u8>> = tags.iter().map(|tag| class_of(*tag)).collect();
            Some(of_classes(&classes?))
        }
        Test::Mod { .. } => Some(of_classes(&[numbers])),
        Test::Bits { .. } => Some(of_classes(&[numbers, order::class(Value::Binary(0, &[]))])),
        // One element passes all the tests, so their intervals may be intersected whatever arrays there are.
        Test::ElementPasses(tests) => tests
            .iter()
            // A test of an element's own elements does not constrain the element, which is what is indexed.
            .filter(|(test, negated)| !negated && !matches!(test, Test::ElementPasses(_)))
            .filter_map(|(test, _)| of_test(test))
            .reduce(|a, b| Bounds { intervals: intersection(&a.intervals, &b.intervals), exact: false })
            .map(|bounds| Bounds { exact: false, ..bounds }),
        Test::Exists | Test::Size(_) | Test::ElementMatches(_) | Test::All(_) | Test::Collated(_) => None,
    }
}

/// The bounds of a comparison with an operand, which has this key in the index.
fn of_comparison(comparison: Comparison, operand: Value<'_>, start: Vec<u8>) -> Option<Bounds> {
    let class = order::class(operand);
    match operand {
        Value::Null | Value::Undefined => {
            let intervals = match comparison {
                Comparison::Less | Comparison::Greater => Vec::new(),
                _ => {
                    vec![Interval { start: vec![class::UNDEFINED], end: vec![class::NULL + 1], point: false }]
                }
            };
            return Some(Bounds::new(intervals, false));
        }
        // Matches the array nested in another array, or the array itself by the entry of its first element.
        Value::Array(array) if comparison == Comparison::Equal => {
            let first = array.values().next().unwrap_or(Value::Undefined);
            return Some(Bounds::new(vec![Interval::point_of(start), Interval::point(first)], false));
        }
        Value::Array(_) | Value::MinKey | Value::MaxKey => return None,
        _ => {}
    }
    if comparison == Comparison::Equal {
        return Some(Bounds::new(vec![Interval::point_of(start)], true));
    }
    if number::is_nan(operand) {
        let equal = matches!(comparison, Comparison::LessOrEqual | Comparison::GreaterOrEqual);
        return Some(Bounds::new(if equal { vec![Interval::point(operand)] } else { Vec::new() }, true));
    }
    // The order of numbers begins with NaN, which no comparison with a number matches.
    let least =
        if operand.is_number() { key::behind(&key::key_of(Value::Double(f64::NAN))) } else { vec![class] };
    let (start, end) = match comparison {
        Comparison::Less => (least, start),
        Comparison::LessOrEqual => (least, key::behind(&start)),
        Comparison::Greater => (key::behind(&start), vec![class + 1]),
        Comparison::GreaterOrEqual | Comparison::Equal => (start, vec![class + 1]),
    };
    Some(Bounds::new(vec![Interval { start, end, point: false }], true))
}

fn of_pattern(pattern: &crate::lang::regex::Pattern) -> Vec<Interval> {
    let prefix = pattern.prefix().unwrap_or_default();
    let mut start = key::key_of(Value::String(&prefix));
    // Without the two bytes that end the text.
    debug_assert!(start.ends_with(&[0, 1]), "the key of a text ends with 00 01");
    start.truncate(start.len() - 2);
    let own = Value::Regex(&pattern.pattern, &pattern.options);
    vec![Interval::prefix(start), Interval::point(own)]
}

/// The class of a type's byte; `None` for arrays.
fn class_of(tag: u8) -> Option<u8> {
    let empty = Doc::empty();
    Some(order::class(match tag {
        tag::ARRAY => return None,
        tag::STRING | tag::SYMBOL => Value::String(""),
        tag::DOCUMENT => Value::Document(empty),
        tag::BINARY => Value::Binary(0, &[]),
        tag::UNDEFINED => Value::Undefined,
        tag::OBJECT_ID => Value::ObjectId([0; 12]),
        tag::BOOL => Value::Bool(false),
        tag::DATE => Value::DateTime(0),
        tag::NULL => Value::Null,
        tag::REGEX => Value::Regex("", ""),
        tag::DB_POINTER => Value::DbPointer("", [0; 12]),
        tag::CODE => Value::Code(""),
        tag::CODE_WITH_SCOPE => Value::CodeWithScope("", empty),
        tag::TIMESTAMP => Value::Timestamp(0),
        tag::MIN_KEY => Value::MinKey,
        tag::MAX_KEY => Value::MaxKey,
        _ => Value::Int32(0),
    }))
}

/// Sorts intervals and merges those that overlap.
fn union(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.retain(|interval| !interval.is_empty());
    intervals.sort();
    let mut out: Vec<Interval> = Vec::with_capacity(intervals.len());
    for next in intervals {
        match out.last_mut() {
            Some(last) if next.start < last.end => {
                if next.end > last.end {
                    last.end = next.end;
                    last.point = false;
                }
            }
            _ => out.push(next),
        }
    }
    debug_assert!(are_apart(&out), "intervals are sorted and do not overlap: {out:?}");
    out
}

/// Sorted, and none overlaps another.
fn are_apart(intervals: &[Interval]) -> bool {
    intervals.is_sorted_by(|a, b| a.end <= b.start) && !intervals.iter().any(Interval::is_empty)
}

/// The intersection of two sorted lists of disjoint intervals, in one pass.
fn intersection(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    debug_assert!(are_apart(a) && are_apart(b), "intervals are sorted and do not overlap");
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut out = Vec::new();
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        let both = x.intersect(y);
        let first_ends = x.end <= y.end;
        if !both.is_empty() {
            out.push(both);
        }
        if first_ends {
            a.next()
        } else {
            b.next()
        };
    }
    out
}

fn narrower(a: Bounds, b: Bounds) -> Bounds {
    let width = |bounds: &Bounds| {
        // Prefers a range bounded at both ends within its class to one that is open.
        let open = bounds.intervals.iter().filter(|i| i.start.len() == 1 || i.end.len() == 1).count();
        (!bounds.are_points(), open, bounds.intervals.len())
    };
    if width(&b) < width(&a) { b } else { a }
}

/// True only if every match of `filter` is one of `other`.
pub(crate) fn implies(filter: &Node, other: &Node) -> bool {
    if let Node::And(nodes) = other {
        return nodes.iter().all(|node| implies(filter, node));
    }
    if let Node::Or(branches) = filter
        && !branches.is_empty()
    {
        return branches.iter().all(|branch| implies(branch, other));
    }
    if let Node::Or(branches) = other
        && branches.iter().any(|branch| implies(filter, branch))
    {
        return true;
    }
    filter.conjuncts().iter().any(|node| node == other || single(node, other))
}

/// One condition implies another one of the same path: its intervals lie within the other's.
fn single(node: &Node, other: &Node) -> bool {
    if let Node::Or(branches) = node {
        return !branches.is_empty() && branches.iter().all(|branch| implies(branch, other));
    }
    let (Node::Leaf(leaf), Node::Leaf(other)) = (node, other) else { return false };
    if leaf.path != other.path {
        return false;
    }
    if let Test::Exists = other.test {
        return leaf.test.wants_presence();
    }
    match (of_test(&leaf.test), of_test(&other.test)) {
        (Some(own), Some(wanted)) if wanted.exact => own.intervals.iter().all(|interval| {
            wanted.intervals.iter().any(|wide| wide.start <= interval.start && interval.end <= wide.end)
        }),
        _ => false,
    }
}
