//! Filters: MongoDB's query language, parsed once and evaluated on many documents.
//!
//! ```text
//! { a: 1, b: { $gt: 2, $lt: 9 }, $or: [ .. ] }  ─▶  And[ a = 1, b > 2, b < 9, Or[ .. ] ]
//! ```
//!
//! A leaf is a path and a test; it holds if any value of the path passes (see [`path`]). `$ne`, `$nin` and
//! `$exists: false` are negations of leaves, which is why `{ a: { $ne: 1 } }` does not match an array with a
//! 1 in it.
//!
//! Comparisons are within a class of types: `{ a: { $gt: 5 } }` finds numbers only. Null equals a missing
//! value.
//!
//! Refused: `$where`, `$text`, geometry, and unknown operators.
//! Source: MongoDB manual, "Query and Projection Operators".

pub(crate) mod bounds;
pub(crate) mod parser;

use std::cmp::Ordering;
use std::sync::Arc;

use crate::lang::budget::{Held, byte_steps, held, steps};
use crate::lang::error::LangResult;
use crate::lang::expression::Expression;
use crate::lang::filter::bounds::Bounds;
use crate::lang::options::Options;
use crate::lang::regex::Pattern;
use crate::lang::schema::Schema;
use crate::lang::value::collation::Collation;
use crate::lang::value::number;
use crate::lang::value::order::{self, holds_text};
use crate::lang::value::ordering::Order;
use crate::lang::value::path::{self, AtEnd, Hit};
use crate::lang::value::{Doc, DocBuf, Owned, Value};

/// Most paths of a filter that a planner considers, and most branches.
const PATHS_MAX: usize = 64;
const BRANCHES_MAX: usize = 256;
/// Most conditions and values of all branches: each has a copy of the conditions outside the `$or`.
const BRANCHES_SIZE_MAX: usize = 1 << 16;

/// A parsed filter. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Filter {
    pub(crate) root: Arc<Node>,
    /// The collation that it was parsed with.
    collation: Option<Collation>,
    /// The memory of the conditions.
    _held: Option<Arc<Held>>,
}

impl From<Node> for Filter {
    fn from(root: Node) -> Self {
        Self { root: Arc::new(root), collation: None, _held: None }
    }
}

/// Position of a match, for the positional `$`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Match {
    /// The element of the outermost array that satisfied the last condition on an array.
    pub position: Option<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Leaf(Leaf),
    Expression(Box<Expression>),
    Schema(Box<Schema>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Leaf {
    pub(crate) path: String,
    pub(crate) test: Test,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    Compare(Comparison, Owned),
    /// Sorted values, and patterns.
    In(Vec<Owned>, Vec<Pattern>),
    Regex(Pattern),
    Exists,
    Type(Vec<u8>),
    Mod {
        divisor: i64,
        remainder: i64,
    },
    Size(i64),
    Bits {
        mask: Mask,
        all: bool,
        set: bool,
    },
    /// An element that is a document and matches.
    ElementMatches(Box<Node>),
    /// An element that passes all of the tests, each with its negation or not.
    ElementPasses(Vec<(Test, bool)>),
    /// All of these, negated or not: only inside of `ElementPasses`.
    All(Vec<(Test, bool)>),
    /// A comparison under a collation with one of several operands, or one of the patterns.
    Collated(Box<Collated>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Collated {
    pub(crate) comparison: Comparison,
    /// The keys of the operands under the collation, in their order, and the operands.
    pub(crate) operands: Vec<(Vec<u8>, Owned)>,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) order: Order,
}

impl Collated {
    /// `values` are the operands: one that may contain text, or any number of them that a value may equal.
    pub(crate) fn new(
        comparison: Comparison,
        values: Vec<Owned>,
        patterns: Vec<Pattern>,
        order: Order,
    ) -> LangResult<Self> {
        let keyed = |value: Owned| Ok((order.key(value.value())?, value));
        let mut operands = values.into_iter().map(keyed).collect::<LangResult<Vec<_>>>()?;
        operands.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Self { comparison, operands, patterns, order })
    }

    fn holds(&self, value: Option<Value<'_>>) -> LangResult<bool> {
        if self.operands.is_empty() {
            return Ok(false);
        }
        // Null also equals a missing value.
        let value = value.filter(|value| !value.is_nullish()).unwrap_or(Value::Null);
        let key = self.order.key(value)?;
        Ok(match (self.comparison, self.operands.as_slice()) {
            (Comparison::Equal, operands) => operands.binary_search_by(|(own, _)| own.cmp(&key)).is_ok(),
            (comparison, [(own, operand)]) => {
                order::class(value) == order::class(operand.value()) && comparison.accepts(key.cmp(own))
            }
            _ => false,
        })
    }

    /// Bytes of the keys.
    pub(crate) fn key_bytes(&self) -> usize {
        self.operands.iter().map(|(key, _)| key.capacity()).sum()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Bits by position, as bytes, least first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mask(pub(crate) Vec<u8>);

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// `BadValue`, `FailedToParse` and others for operators that are unknown, or known with other operands.
    pub fn parse(filter: Doc<'_>, options: &Options) -> LangResult<Self> {
        let held = held("a filter");
        let root = crate::lang::filter::parser::parse(filter, options, &held)?;
        let collation = options.collation.clone();
        Ok(Self { root: Arc::new(root), collation, _held: Some(Arc::new(held)) })
    }

    /// The filter that everything matches: `{}`.
    #[must_use]
    pub fn all() -> Self {
        Node::And(Vec::new()).into()
    }

    /// `{ path: value }`
    #[must_use]
    pub fn equals(path: &str, value: Value<'_>) -> Self {
        let test = Test::Compare(Comparison::Equal, value.into());
        Node::Leaf(Leaf { path: path.to_owned(), test }).into()
    }

    /// `{ path: { $in: values } }`
    #[must_use]
    pub fn among(path: &str, values: &[Value<'_>]) -> Self {
        let values = distinct(values.iter().map(|value| Owned::from(*value)).collect());
        Node::Leaf(Leaf { path: path.to_owned(), test: Test::In(values, Vec::new()) }).into()
    }

    /// [`Filter::among`] under a collation.
    pub(crate) fn among_ordered(path: &str, values: &[Value<'_>], order: &Order) -> LangResult<Self> {
        if order.collation().is_none() {
            return Ok(Self::among(path, values));
        }
        let values = values.iter().map(|value| Owned::from(*value)).collect();
        let test = Collated::new(Comparison::Equal, values, Vec::new(), order.clone())?;
        let node = Node::Leaf(Leaf { path: path.to_owned(), test: Test::Collated(Box::new(test)) });
        Ok(Self { collation: order.collation().cloned(), ..node.into() })
    }

    /// The conjunction of both filters.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self.is_all() {
            return other;
        }
        if other.is_all() {
            return self;
        }
        debug_assert!(self.collation == other.collation, "the conditions of one query have one collation");
        let nodes = self.root.conjuncts().iter().chain(other.root.conjuncts()).cloned().collect();
        Self { collation: other.collation, ..Node::And(nodes).into() }
    }

    /// The conditions that are the same under every collation, for a planner of an index with another one:
    /// it matches what this filter matches, and more.
    #[must_use]
    pub(crate) fn without_text(&self) -> Self {
        let nodes: Vec<Node> =
            self.root.conjuncts().iter().filter(|node| node.is_free_of_text()).cloned().collect();
        Node::And(nodes).into()
    }

    /// The collation that it was parsed with.
    pub(crate) fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    /// Evaluates the filter.
    ///
    /// # Errors
    /// Those of the expressions in `$expr`; other filters have none.
    pub fn matches(&self, doc: Doc<'_>) -> LangResult<bool> {
        self.root.matches(doc, &mut Match::default())
    }

    /// Evaluates the filter; returns the position of a match.
    ///
    /// # Errors
    /// Those of [`Filter::matches`].
    pub fn matches_at(&self, doc: Doc<'_>) -> LangResult<Option<Match>> {
        let mut at = Match::default();
        Ok(if self.root.matches(doc, &mut at)? { Some(at) } else { None })
    }

    /// True when it evaluates an expression: `$expr` or `$sampleRate`.
    pub(crate) fn has_expression(&self) -> bool {
        self.root.any_expression(&|_| true)
    }

    /// True when it may differ from one evaluation to the next on the same document: it has random numbers.
    pub(crate) fn varies(&self) -> bool {
        self.root.any_expression(&Expression::varies)
    }

    /// The conditions that are the same at each evaluation, and those that vary; together they are the filter.
    pub(crate) fn split_varying(self) -> [Option<Self>; 2] {
        if !self.varies() {
            return [Some(self), None];
        }
        let (varying, fixed): (Vec<Node>, Vec<Node>) =
            self.root.conjuncts().iter().cloned().partition(|node| node.any_expression(&Expression::varies));
        [fixed, varying].map(|nodes| {
            let root = Arc::new(Node::And(nodes));
            (!root.conjuncts().is_empty()).then(|| Self {
                root,
                collation: self.collation.clone(),
                _held: self._held.clone(),
            })
        })
    }

    /// True for `{}`.
    #[must_use]
    pub fn is_all(&self) -> bool {
        matches!(&*self.root, Node::And(nodes) if nodes.is_empty())
    }

    /// The value of `{ _id: value }`, if that is the whole filter.
    #[must_use]
    pub fn only_id(&self) -> Option<Value<'_>> {
        match self.root.conjuncts() {
            [only] => only.equality("_id"),
            _ => None,
        }
    }

    /// The value of `path` in every match, if an equality determines it.
    #[must_use]
    pub fn equality(&self, path: &str) -> Option<Value<'_>> {
        self.root.conjuncts().iter().find_map(|node| node.equality(path))
    }

    /// The conditions on `path`, as intervals of keys; `None` when they do not bound it.
    ///
    /// With `multikey` conditions are not intersected: different elements of an array may satisfy each of
    /// them. In a compound index two fields that go through the same array must not both be bounded.
    #[must_use]
    pub fn bounds(&self, path: &str, multikey: bool) -> Option<Bounds> {
        crate::lang::filter::bounds::of(&self.root, path, multikey)
    }

    /// Paths with conditions that bound an index, in order of appearance; at most as many as an index could
    /// use.
    #[must_use]
    pub fn bounded_paths(&self) -> Vec<&str> {
        let mut paths = Vec::new();
        for node in self.root.conjuncts() {
            if let Some(path) = node.path()
                && paths.len() < PATHS_MAX
                && !paths.contains(&path)
                && crate::lang::filter::bounds::bounds_path(node, path)
            {
                paths.push(path);
            }
        }
        paths
    }

    /// All paths that it reads; `None` when it reads whole documents. A document with the same values under
    /// these paths matches as the original does, unless arrays are on the paths.
    #[must_use]
    pub fn paths(&self) -> Option<Vec<&str>> {
        let mut paths = Vec::new();
        self.root.collect_paths(&mut paths).then_some(paths)
    }

    /// True when the conditions on these paths are the complete filter.
    #[must_use]
    pub fn is_of(&self, paths: &[&str]) -> bool {
        self.root.conjuncts().iter().all(|node| node.path().is_some_and(|path| paths.contains(&path)))
    }

    /// The branches of an `$or`, each together with all other conditions, for a planner to plan one by one.
    /// None when there are too many, and for a filter that varies: each branch is evaluated separately.
    #[must_use]
    pub fn branches(&self) -> Option<Vec<Self>> {
        if self.varies() {
            return None;
        }
        let conjuncts = self.root.conjuncts();
        let (at, branches) = conjuncts.iter().enumerate().find_map(|(at, node)| match node {
            Node::Or(branches) => Some((at, branches)),
            _ => None,
        })?;
        if branches.len() > BRANCHES_MAX {
            return None;
        }
        let rest_size: usize =
            conjuncts.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, node)| node.size()).sum();
        let own_size: usize = branches.iter().map(Node::size).sum();
        if branches.len().saturating_mul(rest_size).saturating_add(own_size) > BRANCHES_SIZE_MAX {
            return None;
        }
        let rest = || conjuncts.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, node)| node.clone());
        Some(
            branches
                .iter()
                .map(|branch| {
                    let nodes = branch.conjuncts().iter().cloned().chain(rest()).collect();
                    Self { collation: self.collation.clone(), ..Node::And(nodes).into() }
                })
                .collect(),
        )
    }

    /// True when every match has a value at `path`, possibly null. Then a sparse index on it contains all
    /// matches.
    #[must_use]
    pub fn wants_presence(&self, path: &str) -> bool {
        self.root.conjuncts().iter().any(|node| match node {
            Node::Leaf(leaf) => leaf.path == path && leaf.test.wants_presence(),
            _ => false,
        })
    }

    /// True only if every match of this filter is one of `other`, so that a partial index can serve it. May
    /// be false when unsure.
    #[must_use]
    pub fn implies(&self, other: &Self) -> bool {
        crate::lang::filter::bounds::implies(&self.root, &other.root)
    }

    /// The document that an upsert starts from: the filter's equalities.
    ///
    /// # Errors
    /// `NotSingleValueField` when two of them contradict each other in one field.
    pub fn seed(&self) -> LangResult<DocBuf> {
        let mut tree = crate::lang::value::tree::Tree::default();
        self.root.seed(&mut tree)?;
        tree.into_document()
    }
}

/// Conservative: expressions are never equal.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::And(a), Self::And(b)) | (Self::Or(a), Self::Or(b)) => a == b,
            (Self::Not(a), Self::Not(b)) => a == b,
            (Self::Leaf(a), Self::Leaf(b)) => a == b,
            (Self::Schema(a), Self::Schema(b)) => a == b,
            _ => false,
        }
    }
}

impl Node {
    /// The conditions of the conjunction. An `$and` inside an `$and` was flattened by the parser.
    pub(crate) fn conjuncts(&self) -> &[Node] {
        match self {
            Self::And(nodes) => nodes,
            other => std::slice::from_ref(other),
        }
    }

    /// True if `is` holds for one of the expressions that are evaluated on a document.
    fn any_expression(&self, is: &dyn Fn(&Expression) -> bool) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().any(|node| node.any_expression(is)),
            Self::Not(node) => node.any_expression(is),
            Self::Leaf(leaf) => leaf.test.any_expression(is),
            Self::Expression(expression) => is(expression),
            Self::Schema(_) => false,
        }
    }

    /// Collects the paths; false when more than values under paths are read.
    fn collect_paths<'n>(&'n self, paths: &mut Vec<&'n str>) -> bool {
        match self {
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().all(|node| node.collect_paths(paths)),
            Self::Not(node) => node.collect_paths(paths),
            Self::Leaf(leaf) => {
                paths.push(&leaf.path);
                true
            }
            Self::Expression(_) | Self::Schema(_) => false,
        }
    }

    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Leaf(leaf) => Some(&leaf.path),
            Self::Not(node) => node.path(),
            _ => None,
        }
    }

    /// True when it is the same under every collation, and bounds the same keys.
    fn is_free_of_text(&self) -> bool {
        match self {
            Self::Not(node) => node.is_free_of_text(),
            Self::Leaf(leaf) => match &leaf.test {
                Test::Compare(_, operand) => !holds_text(operand.value()),
                Test::In(values, patterns) => {
                    patterns.is_empty() && !values.iter().any(|value| holds_text(value.value()))
                }
                Test::Exists | Test::Type(_) | Test::Mod { .. } | Test::Size(_) | Test::Bits { .. } => true,
                _ => false,
            },
            _ => false,
        }
    }

    /// Number of conditions; long values count as several.
    fn size(&self) -> usize {
        match self {
            Self::And(nodes) | Self::Or(nodes) => 1 + nodes.iter().map(Self::size).sum::<usize>(),
            Self::Not(node) => 1 + node.size(),
            Self::Leaf(leaf) => 1 + leaf.path.len() / SIZE_BYTES + leaf.test.size(),
            Self::Expression(_) => 1,
            Self::Schema(_) => BRANCHES_SIZE_MAX / BRANCHES_MAX,
        }
    }

    fn equality(&self, path: &str) -> Option<Value<'_>> {
        match self {
            Self::Leaf(Leaf { path: own, test: Test::Compare(Comparison::Equal, value) }) if own == path => {
                Some(value.value())
            }
            _ => None,
        }
    }

    fn seed(&self, tree: &mut crate::lang::value::tree::Tree<'_>) -> LangResult<()> {
        match self {
            Self::And(nodes) => nodes.iter().try_for_each(|node| node.seed(tree)),
            Self::Or(nodes) if nodes.len() == 1 => nodes.iter().try_for_each(|node| node.seed(tree)),
            Self::Leaf(Leaf { path, test: Test::Compare(Comparison::Equal, value) }) => {
                tree.seed(path, value.clone())
            }
            Self::Leaf(Leaf { path, test: Test::Collated(test) }) => {
                match (test.comparison, test.operands.as_slice()) {
                    (Comparison::Equal, [(_, only)]) if test.patterns.is_empty() => {
                        tree.seed(path, only.clone())
                    }
                    _ => Ok(()),
                }
            }
            Self::Leaf(Leaf { path, test: Test::In(values, patterns) }) => match values.as_slice() {
                [only] if patterns.is_empty() => tree.seed(path, only.clone()),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    pub(crate) fn matches(&self, doc: Doc<'_>, at: &mut Match) -> LangResult<bool> {
        match self {
            Self::And(nodes) => {
                for node in nodes {
                    if !node.matches(doc, at)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(nodes) => {
                for node in nodes {
                    if node.matches(doc, at)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(node) => Ok(!node.matches(doc, &mut Match::default())?),
            Self::Leaf(leaf) => {
                let hit = leaf.find(doc)?;
                if let Some(Hit { position: Some(position) }) = hit {
                    at.position = Some(position);
                }
                Ok(hit.is_some())
            }
            Self::Expression(expression) => {
                let value = expression.evaluate_root(doc)?;
                Ok(value.get().is_some_and(Value::is_truthy))
            }
            Self::Schema(schema) => Ok(schema.first_failure(doc)?.is_none()),
        }
    }
}

impl Leaf {
    fn find(&self, doc: Doc<'_>) -> LangResult<Option<Hit>> {
        let at_end = self.test.at_end();
        let mut error = None;
        let mut element = None;
        byte_steps(doc.bytes().len())?;
        let hit =
            path::any(doc, &self.path, at_end, &mut |value| match self.test.passes(value, &mut element) {
                Ok(passes) => passes,
                Err(other) => {
                    error = Some(other);
                    true
                }
            })?;
        match (error, hit) {
            (Some(error), _) => Err(error),
            // The element of `$elemMatch` is the position, if its array is the outermost.
            (None, Some(Hit { position: None })) => Ok(Some(Hit { position: element })),
            (None, hit) => Ok(hit),
        }
    }
}

/// Bytes of a value that count as one condition.
const SIZE_BYTES: usize = 64;

impl Test {
    fn any_expression(&self, is: &dyn Fn(&Expression) -> bool) -> bool {
        match self {
            Self::ElementMatches(node) => node.any_expression(is),
            Self::ElementPasses(tests) | Self::All(tests) => {
                tests.iter().any(|(test, _)| test.any_expression(is))
            }
            _ => false,
        }
    }

    fn size(&self) -> usize {
        let of = |value: &Owned| 1 + value.bytes() / SIZE_BYTES;
        let tests = |tests: &[(Self, bool)]| tests.iter().map(|(test, _)| 1 + test.size()).sum();
        match self {
            Self::Compare(_, operand) => of(operand),
            Self::In(values, patterns) => values.iter().map(of).sum::<usize>() + patterns.len(),
            Self::ElementMatches(node) => node.size(),
            Self::ElementPasses(inner) | Self::All(inner) => tests(inner),
            Self::Bits { mask, .. } => mask.0.len() / SIZE_BYTES,
            Self::Collated(test) => {
                test.operands.iter().map(|(_, operand)| of(operand)).sum::<usize>() + test.patterns.len()
            }
            Self::Regex(_) | Self::Exists | Self::Type(_) | Self::Mod { .. } | Self::Size(_) => 0,
        }
    }

    fn at_end(&self) -> AtEnd {
        match self {
            Self::Size(_) | Self::ElementMatches(_) | Self::ElementPasses(_) | Self::Exists => AtEnd::Whole,
            _ => AtEnd::Elements,
        }
    }

    /// True when the test fails for a missing value.
    pub(crate) fn wants_presence(&self) -> bool {
        matches!(self.passes(None, &mut None), Ok(false))
    }

    /// Tests one value. `element` receives the position found by `$elemMatch`.
    fn passes(&self, value: Option<Value<'_>>, element: &mut Option<usize>) -> LangResult<bool> {
        Ok(match self {
            Self::Compare(comparison, operand) => comparison.holds(value, operand.value()),
            Self::In(values, patterns) => is_among(values, value) || any_matches(patterns, value)?,
            Self::Collated(test) => test.holds(value)? || any_matches(&test.patterns, value)?,
            Self::Regex(pattern) => pattern_matches(pattern, value)?,
            Self::Exists => value.is_some(),
            Self::Type(tags) => value.is_some_and(|value| tags.contains(&value.tag())),
            Self::Mod { divisor, remainder } => {
                value.filter(|value| value.is_number()).and_then(number::truncated).is_some_and(|number| {
                    // The only overflow, the least integer by -1, has no remainder.
                    number.checked_rem(*divisor).unwrap_or(0) == *remainder
                })
            }
            Self::Size(size) => {
                let array = value.and_then(Value::as_array);
                array.is_some_and(|array| array.values().count() as i64 == *size)
            }
            Self::Bits { mask, all, set } => value.is_some_and(|value| mask.test(value, *all, *set)),
            Self::ElementMatches(node) => {
                let Some(array) = value.and_then(Value::as_array) else { return Ok(false) };
                for (at, value) in array.values().enumerate() {
                    steps(1)?;
                    // An array is a document with positions as names.
                    if let Value::Document(doc) | Value::Array(doc) = value
                        && node.matches(doc, &mut Match::default())?
                    {
                        *element = Some(at);
                        return Ok(true);
                    }
                }
                false
            }
            Self::ElementPasses(tests) => {
                let Some(array) = value.and_then(Value::as_array) else { return Ok(false) };
                for (at, value) in array.values().enumerate() {
                    steps(tests.len())?;
                    if passes_all(tests, value)? {
                        *element = Some(at);
                        return Ok(true);
                    }
                }
                false
            }
            Self::All(tests) => match value {
                Some(value) => passes_all(tests, value)?,
                None => false,
            },
        })
    }
}

fn passes_all(tests: &[(Test, bool)], value: Value<'_>) -> LangResult<bool> {
    for (test, negated) in tests {
        if test.passes(Some(value), &mut None)? == *negated {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True when the value is among these, which are sorted. Null also equals a missing value.
fn is_among(values: &[Owned], value: Option<Value<'_>>) -> bool {
    match value.filter(|value| !value.is_nullish()) {
        Some(value) => values.binary_search_by(|own| order::compare(own.value(), value)).is_ok(),
        None => values.binary_search_by(|own| order::compare(own.value(), Value::Null)).is_ok(),
    }
}

fn any_matches(patterns: &[Pattern], value: Option<Value<'_>>) -> LangResult<bool> {
    steps(patterns.len())?;
    for pattern in patterns {
        if pattern_matches(pattern, value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn pattern_matches(pattern: &Pattern, value: Option<Value<'_>>) -> LangResult<bool> {
    Ok(match value {
        Some(Value::String(text) | Value::Symbol(text)) => pattern.is_match(text)?,
        Some(Value::Regex(text, options)) => text == pattern.pattern && options == pattern.options,
        _ => false,
    })
}

impl Comparison {
    /// Evaluates the comparison of a value, which may be missing, with the operand.
    pub(crate) fn holds(self, value: Option<Value<'_>>, operand: Value<'_>) -> bool {
        if operand.is_nullish() {
            let nullish = value.is_none_or(Value::is_nullish);
            return nullish && !matches!(self, Self::Less | Self::Greater);
        }
        let Some(value) = value else { return false };
        let open = matches!(operand, Value::MinKey | Value::MaxKey);
        if order::class(value) != order::class(operand) && !open {
            return false;
        }
        let order = order::compare(value, operand);
        // Nothing is above or below NaN, which is only equal to itself.
        if order.is_ne() && (number::is_nan(value) || number::is_nan(operand)) {
            return false;
        }
        self.accepts(order)
    }

    fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Mask {
    fn test(&self, value: Value<'_>, all: bool, set: bool) -> bool {
        let integer;
        let (bytes, fill): (&[u8], u8) = match value {
            Value::Binary(_, bytes) => (bytes, 0),
            value if value.is_number() => {
                let Some(number) = value.as_integer() else { return false };
                integer = number.to_le_bytes();
                // Negative numbers are sign-extended with ones.
                (&integer, if number < 0 { 0xFF } else { 0 })
            }
            _ => return false,
        };
        let mut hits = self.0.iter().enumerate().map(|(at, mask)| {
            let byte = bytes.get(at).copied().unwrap_or(fill);
            let byte = if set { byte } else { !byte };
            (byte & mask, *mask)
        });
        if all { hits.all(|(hit, mask)| hit == mask) } else { hits.any(|(hit, _)| hit != 0) }
    }
}

/// Sorts the values and removes duplicates.
pub(crate) fn distinct(mut values: Vec<Owned>) -> Vec<Owned> {
    values.sort_by(|a, b| order::compare(a.value(), b.value()));
    values.dedup_by(|a, b| order::equal(a.value(), b.value()));
    values
}
