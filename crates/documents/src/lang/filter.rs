//! Filters: MongoDB's query language, parsed once, asked of many documents.
//!
//! ```text
//! { a: 1, b: { $gt: 2, $lt: 9 }, $or: [ .. ] }  ─▶  And[ a = 1, b > 2, b < 9, Or[ .. ] ]
//! ```
//!
//! A leaf is a path and a test; it holds if any value of the path passes ([`super::path`] says which those are). `$ne`, `$nin` and
//! `$exists: false` are negations of leaves, which is why `{ a: { $ne: 1 } }` refuses an array with a 1 in it.
//!
//! Comparisons stay within a class of types: `{ a: { $gt: 5 } }` finds numbers only. Null equals what is missing.
//!
//! Refused: `$where`, `$text`, geometry, and whatever is not known.
//! Source: MongoDB manual, "Query and Projection Operators".

use super::bounds::Bounds;
use super::error::{LangError, refuse};
use super::expression::{Expression, Scope};
use super::number;
use super::options::Options;
use super::order;
use super::path::{self, AtEnd, Hit};
use super::regex::Pattern;
use super::value::{Doc, DocBuf, Owned, TYPE_NAMES, Value, tag};

/// Operators in operators, at most; documents themselves go to [`super::DEPTH_MAX`].
const NESTING_MAX: usize = 100;

/// A parsed filter.
#[derive(Debug, Clone)]
pub struct Filter {
    pub(crate) root: Node,
}

/// Where a match was found, for the positional `$`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Match {
    /// The element of the outermost array that the last condition on an array was met by.
    pub position: Option<usize>,
}

#[derive(Debug, Clone)]
pub(crate) enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Leaf(Leaf),
    Expression(Box<Expression>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Leaf {
    pub(crate) path: String,
    pub(crate) test: Test,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Test {
    Compare(Comparison, Owned),
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
pub(crate) struct Mask(Vec<u8>);

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// `BadValue`, `FailedToParse` and others for operators that are unknown, or known with other operands.
    pub fn parse(filter: Doc<'_>, options: &Options) -> Result<Self, LangError> {
        let parser = Parser { options };
        Ok(Self { root: parser.conjunction(filter, 0)? })
    }

    /// The filter that everything matches: `{}`.
    #[must_use]
    pub fn all() -> Self {
        Self { root: Node::And(Vec::new()) }
    }

    /// `{ path: value }`
    #[must_use]
    pub fn equals(path: &str, value: Value<'_>) -> Self {
        let test = Test::Compare(Comparison::Equal, value.into());
        Self { root: Node::Leaf(Leaf { path: path.to_owned(), test }) }
    }

    /// `{ path: { $in: values } }`
    #[must_use]
    pub fn among(path: &str, values: &[Value<'_>]) -> Self {
        let values = distinct(values.iter().map(|value| Owned::from(*value)).collect());
        Self { root: Node::Leaf(Leaf { path: path.to_owned(), test: Test::In(values, Vec::new()) }) }
    }

    /// Both at once.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self.is_all() {
            return other;
        }
        let nodes = self.root.conjuncts().iter().chain(other.root.conjuncts()).cloned().collect();
        Self { root: Node::And(nodes) }
    }

    /// Does it match?
    ///
    /// # Errors
    /// Those of the expressions in `$expr`; other filters have none.
    pub fn matches(&self, doc: Doc<'_>) -> Result<bool, LangError> {
        self.root.matches(doc, &mut Match::default())
    }

    /// Does it match, and where?
    ///
    /// # Errors
    /// Those of [`Filter::matches`].
    pub fn matches_at(&self, doc: Doc<'_>) -> Result<Option<Match>, LangError> {
        let mut at = Match::default();
        Ok(if self.root.matches(doc, &mut at)? { Some(at) } else { None })
    }

    /// Is it `{}`?
    #[must_use]
    pub fn is_all(&self) -> bool {
        matches!(&self.root, Node::And(nodes) if nodes.is_empty())
    }

    /// The value of `{ _id: value }`, if that is the whole filter.
    #[must_use]
    pub fn only_id(&self) -> Option<Value<'_>> {
        match self.root.conjuncts() {
            [only] => only.equality("_id"),
            _ => None,
        }
    }

    /// The value that `path` has in every match, if an equality says so.
    #[must_use]
    pub fn equality(&self, path: &str) -> Option<Value<'_>> {
        self.root.conjuncts().iter().find_map(|node| node.equality(path))
    }

    /// What the conjunction says of `path`, as intervals of keys; `None` when that is nothing useful.
    ///
    /// With `multikey` conditions are not intersected: each may be met by another element of an array. In a compound index two
    /// fields that go through the same array must not both be bounded.
    #[must_use]
    pub fn bounds(&self, path: &str, multikey: bool) -> Option<Bounds> {
        super::bounds::of(&self.root, path, multikey)
    }

    /// Paths with conditions that bound an index, in order of appearance.
    #[must_use]
    pub fn bounded_paths(&self) -> Vec<&str> {
        let mut paths = Vec::new();
        for node in self.root.conjuncts() {
            if let Some(path) = node.path()
                && !paths.contains(&path)
                && self.bounds(path, false).is_some()
            {
                paths.push(path);
            }
        }
        paths
    }

    /// The branches of an `$or`, each together with all other conditions: what a planner may plan one by one.
    #[must_use]
    pub fn branches(&self) -> Option<Vec<Self>> {
        let conjuncts = self.root.conjuncts();
        let (at, branches) = conjuncts.iter().enumerate().find_map(|(at, node)| match node {
            Node::Or(branches) => Some((at, branches)),
            _ => None,
        })?;
        let rest = || conjuncts.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, node)| node.clone());
        Some(
            branches
                .iter()
                .map(|branch| {
                    let nodes = branch.conjuncts().iter().cloned().chain(rest()).collect();
                    Self { root: Node::And(nodes) }
                })
                .collect(),
        )
    }

    /// Has every match a value at `path`, be it null? Then a sparse index on it holds them all.
    #[must_use]
    pub fn wants_presence(&self, path: &str) -> bool {
        self.root.conjuncts().iter().any(|node| match node {
            Node::Leaf(leaf) => leaf.path == path && leaf.test.wants_presence(),
            _ => false,
        })
    }

    /// True only if every match of this filter is one of `other`: may a partial index serve it? Rather no than wrong.
    #[must_use]
    pub fn implies(&self, other: &Self) -> bool {
        super::bounds::implies(&self.root, &other.root)
    }

    /// The document that an upsert begins with: the filter's equalities.
    ///
    /// # Errors
    /// `NotSingleValueField` when two of them contradict each other in one field.
    pub fn seed(&self) -> Result<DocBuf, LangError> {
        let mut tree = super::tree::Tree::default();
        self.root.seed(&mut tree)?;
        Ok(tree.into_document())
    }
}

/// Rather unequal than wrongly equal: expressions are never.
impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::And(a), Self::And(b)) | (Self::Or(a), Self::Or(b)) => a == b,
            (Self::Not(a), Self::Not(b)) => a == b,
            (Self::Leaf(a), Self::Leaf(b)) => a == b,
            _ => false,
        }
    }
}

impl Node {
    /// What must hold at once. An `$and` inside of an `$and` was flattened by the parser.
    pub(crate) fn conjuncts(&self) -> &[Node] {
        match self {
            Self::And(nodes) => nodes,
            other => std::slice::from_ref(other),
        }
    }

    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Leaf(leaf) => Some(&leaf.path),
            Self::Not(node) => node.path(),
            _ => None,
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

    fn seed(&self, tree: &mut super::tree::Tree<'_>) -> Result<(), LangError> {
        match self {
            Self::And(nodes) => nodes.iter().try_for_each(|node| node.seed(tree)),
            Self::Or(nodes) if nodes.len() == 1 => nodes.iter().try_for_each(|node| node.seed(tree)),
            Self::Leaf(Leaf { path, test: Test::Compare(Comparison::Equal, value) }) => {
                tree.seed(path, value.clone())
            }
            Self::Leaf(Leaf { path, test: Test::In(values, patterns) }) => match values.as_slice() {
                [only] if patterns.is_empty() => tree.seed(path, only.clone()),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    pub(crate) fn matches(&self, doc: Doc<'_>, at: &mut Match) -> Result<bool, LangError> {
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
        }
    }
}

impl Leaf {
    fn find(&self, doc: Doc<'_>) -> Result<Option<Hit>, LangError> {
        let at_end = self.test.at_end();
        let mut error = None;
        let mut element = None;
        let hit =
            path::any(doc, &self.path, at_end, &mut |value| match self.test.passes(value, &mut element) {
                Ok(passes) => passes,
                Err(other) => {
                    error = Some(other);
                    true
                }
            });
        match (error, hit) {
            (Some(error), _) => Err(error),
            // The element of `$elemMatch` is the position, if its array is the outermost.
            (None, Some(Hit { position: None })) => Ok(Some(Hit { position: element })),
            (None, hit) => Ok(hit),
        }
    }
}

impl Test {
    fn at_end(&self) -> AtEnd {
        match self {
            Self::Size(_) | Self::ElementMatches(_) | Self::ElementPasses(_) | Self::Exists => AtEnd::Whole,
            _ => AtEnd::Elements,
        }
    }

    /// Does it fail where nothing is?
    pub(crate) fn wants_presence(&self) -> bool {
        matches!(self.passes(None, &mut None), Ok(false))
    }

    /// Does this one value pass? `element` is where `$elemMatch` found its own.
    fn passes(&self, value: Option<Value<'_>>, element: &mut Option<usize>) -> Result<bool, LangError> {
        Ok(match self {
            Self::Compare(comparison, operand) => comparison.holds(value, operand.value()),
            Self::In(values, patterns) => {
                values.iter().any(|operand| Comparison::Equal.holds(value, operand.value()))
                    || patterns.iter().any(|pattern| pattern_matches(pattern, value))
            }
            Self::Regex(pattern) => pattern_matches(pattern, value),
            Self::Exists => value.is_some(),
            Self::Type(tags) => value.is_some_and(|value| tags.contains(&value.tag())),
            Self::Mod { divisor, remainder } => {
                value.filter(|value| value.is_number()).and_then(number::truncated).is_some_and(|number| {
                    // The one overflow there is, the least integer by -1, leaves nothing.
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
                    // An array is a document with positions for names.
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

fn passes_all(tests: &[(Test, bool)], value: Value<'_>) -> Result<bool, LangError> {
    for (test, negated) in tests {
        if test.passes(Some(value), &mut None)? == *negated {
            return Ok(false);
        }
    }
    Ok(true)
}

fn pattern_matches(pattern: &Pattern, value: Option<Value<'_>>) -> bool {
    match value {
        Some(Value::String(text) | Value::Symbol(text)) => pattern.regex.is_match(text),
        Some(Value::Regex(text, options)) => text == pattern.pattern && options == pattern.options,
        _ => false,
    }
}

impl Comparison {
    /// Holds the comparison between a value, or nothing, and the operand?
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
        // Nothing is above or below "not a number", which is only equal to itself.
        if order.is_ne() && (number::is_nan(value) || number::is_nan(operand)) {
            return false;
        }
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
                // Negative numbers go on with ones.
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

struct Parser<'o> {
    options: &'o Options,
}

impl Parser<'_> {
    fn conjunction(&self, filter: Doc<'_>, depth: usize) -> Result<Node, LangError> {
        if depth > NESTING_MAX {
            refuse!(BadValue, "exceeded maximum query tree depth of {NESTING_MAX}");
        }
        let mut nodes = Vec::new();
        for (name, value) in filter {
            match name {
                "$and" => {
                    for node in self.list(name, value, depth)? {
                        match node {
                            Node::And(inner) => nodes.extend(inner),
                            other => nodes.push(other),
                        }
                    }
                }
                "$or" => nodes.push(Node::Or(self.list(name, value, depth)?)),
                "$nor" => nodes.push(Node::Not(Box::new(Node::Or(self.list(name, value, depth)?)))),
                "$expr" => {
                    let expression = Expression::parse(value, &Scope::of(self.options))?;
                    nodes.push(Node::Expression(Box::new(expression)));
                }
                "$comment" => {}
                "$alwaysTrue" | "$alwaysFalse" => {
                    if value.as_integer() != Some(1) {
                        refuse!(FailedToParse, "{name} must be an integer value and equal to 1");
                    }
                    if name == "$alwaysFalse" {
                        nodes.push(Node::Or(Vec::new()));
                    }
                }
                "$where" => {
                    refuse!(CommandNotSupported, "$where runs JavaScript, which is not offered: use $expr")
                }
                "$jsonSchema" | "$text" => refuse!(NotImplemented, "{name} is not implemented"),
                _ if name.starts_with('$') => refuse!(
                    BadValue,
                    "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider \
                     using $getField or $setField."
                ),
                _ => self.field(name, value, depth, &mut nodes)?,
            }
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::And(nodes) })
    }

    fn list(&self, name: &str, value: Value<'_>, depth: usize) -> Result<Vec<Node>, LangError> {
        let Value::Array(array) = value else { refuse!(BadValue, "{name} must be an array") };
        let mut nodes = Vec::new();
        for entry in array.values() {
            let Value::Document(entry) = entry else {
                refuse!(BadValue, "$or/$and/$nor entries need to be full objects");
            };
            nodes.push(self.conjunction(entry, depth + 1)?);
        }
        if nodes.is_empty() {
            refuse!(BadValue, "$and/$or/$nor must be a nonempty array");
        }
        Ok(nodes)
    }

    /// `name: value`, where the value is an operand or a document of operators.
    fn field(
        &self,
        path: &str,
        value: Value<'_>,
        depth: usize,
        nodes: &mut Vec<Node>,
    ) -> Result<(), LangError> {
        match value {
            Value::Document(operators) if is_operators(operators) => {
                self.operators(path, operators, depth, nodes)
            }
            Value::Regex(pattern, options) => {
                nodes.push(leaf(path, Test::Regex(Pattern::new(pattern, options)?)));
                Ok(())
            }
            Value::Undefined => refuse!(BadValue, "cannot compare to undefined"),
            value => {
                nodes.push(leaf(path, Test::Compare(Comparison::Equal, value.into())));
                Ok(())
            }
        }
    }

    fn operators(
        &self,
        path: &str,
        operators: Doc<'_>,
        depth: usize,
        nodes: &mut Vec<Node>,
    ) -> Result<(), LangError> {
        if depth > NESTING_MAX {
            refuse!(BadValue, "exceeded maximum query tree depth of {NESTING_MAX}");
        }
        let options = operators.get("$options");
        for (name, value) in operators {
            match name {
                "$ne" => {
                    if let Value::Regex(..) = value {
                        refuse!(BadValue, "Can't have regex as arg to $ne.");
                    }
                    nodes.push(not(leaf(path, self.comparison(Comparison::Equal, value)?)));
                }
                "$nin" => nodes.push(not(leaf(path, self.membership(name, value)?))),
                "$exists" => {
                    let exists = leaf(path, Test::Exists);
                    nodes.push(if value.is_truthy() { exists } else { not(exists) });
                }
                "$not" => nodes.push(not(self.negated(path, value, depth)?)),
                "$all" => self.all(path, value, depth, nodes)?,
                "$options" => {
                    if operators.get("$regex").is_none() {
                        refuse!(BadValue, "$options needs a $regex");
                    }
                }
                "$regex" => nodes.push(leaf(path, Test::Regex(regex(value, options)?))),
                "$comment" => {}
                _ => nodes.push(leaf(path, self.test(name, value, depth)?)),
            }
        }
        Ok(())
    }

    fn negated(&self, path: &str, value: Value<'_>, depth: usize) -> Result<Node, LangError> {
        match value {
            Value::Regex(pattern, options) => Ok(leaf(path, Test::Regex(Pattern::new(pattern, options)?))),
            Value::Document(inner) if inner.is_empty() => refuse!(BadValue, "$not cannot be empty"),
            Value::Document(inner) => {
                let mut nodes = Vec::new();
                self.operators(path, inner, depth + 1, &mut nodes)?;
                Ok(Node::And(nodes))
            }
            _ => refuse!(BadValue, "$not needs a regex or a document"),
        }
    }

    /// An operator that is one test.
    fn test(&self, name: &str, value: Value<'_>, depth: usize) -> Result<Test, LangError> {
        Ok(match name {
            "$eq" => self.comparison(Comparison::Equal, value)?,
            "$gt" => self.ordering(name, Comparison::Greater, value)?,
            "$gte" => self.ordering(name, Comparison::GreaterOrEqual, value)?,
            "$lt" => self.ordering(name, Comparison::Less, value)?,
            "$lte" => self.ordering(name, Comparison::LessOrEqual, value)?,
            "$in" => self.membership(name, value)?,
            "$type" => Test::Type(types(value)?),
            "$mod" => modulus(value)?,
            "$size" => match value.as_integer() {
                Some(size) if size >= 0 => Test::Size(size),
                Some(size) => refuse!(
                    BadValue,
                    "Failed to parse $size. Expected a non-negative number in: $size: {size}"
                ),
                None => refuse!(BadValue, "Failed to parse $size. Expected an integer: $size: {value}"),
            },
            "$elemMatch" => self.element(value, depth)?,
            "$bitsAllSet" => Test::Bits { mask: mask(name, value)?, all: true, set: true },
            "$bitsAllClear" => Test::Bits { mask: mask(name, value)?, all: true, set: false },
            "$bitsAnySet" => Test::Bits { mask: mask(name, value)?, all: false, set: true },
            "$bitsAnyClear" => Test::Bits { mask: mask(name, value)?, all: false, set: false },
            "$near" | "$nearSphere" | "$geoWithin" | "$geoIntersects" | "$within" => {
                refuse!(NotImplemented, "{name} is not implemented")
            }
            _ => refuse!(BadValue, "unknown operator: {name}"),
        })
    }

    fn comparison(&self, comparison: Comparison, value: Value<'_>) -> Result<Test, LangError> {
        if let Value::Undefined = value {
            refuse!(BadValue, "cannot compare to undefined");
        }
        Ok(Test::Compare(comparison, value.into()))
    }

    fn ordering(&self, name: &str, comparison: Comparison, value: Value<'_>) -> Result<Test, LangError> {
        if let Value::Regex(..) = value {
            refuse!(BadValue, "Can't have RegEx as arg to predicate over field: {name}");
        }
        self.comparison(comparison, value)
    }

    fn membership(&self, name: &str, value: Value<'_>) -> Result<Test, LangError> {
        let Value::Array(array) = value else { refuse!(BadValue, "{name} needs an array") };
        let mut values = Vec::new();
        let mut patterns = Vec::new();
        for value in array.values() {
            match value {
                Value::Regex(pattern, options) => patterns.push(Pattern::new(pattern, options)?),
                Value::Undefined => refuse!(BadValue, "cannot compare to undefined"),
                Value::Document(doc) if is_operators(doc) => refuse!(BadValue, "cannot nest $ under $in"),
                value => values.push(Owned::from(value)),
            }
        }
        Ok(Test::In(distinct(values), patterns))
    }

    fn all(
        &self,
        path: &str,
        value: Value<'_>,
        depth: usize,
        nodes: &mut Vec<Node>,
    ) -> Result<(), LangError> {
        let Value::Array(array) = value else { refuse!(BadValue, "$all needs an array") };
        if array.is_empty() {
            nodes.push(Node::Or(Vec::new()));
        }
        let element_matches = |value: Value<'_>| {
            value.as_document().and_then(Doc::first).is_some_and(|(name, _)| name == "$elemMatch")
        };
        let elements = array.values().next().is_some_and(element_matches);
        for value in array.values() {
            if elements != element_matches(value) {
                refuse!(BadValue, "no $ expressions in $all");
            }
            match value {
                Value::Document(doc) if elements => self.operators(path, doc, depth + 1, nodes)?,
                Value::Document(doc) if is_operators(doc) => refuse!(BadValue, "no $ expressions in $all"),
                value => self.field(path, value, depth, nodes)?,
            }
        }
        Ok(())
    }

    fn element(&self, value: Value<'_>, depth: usize) -> Result<Test, LangError> {
        let Value::Document(inner) = value else { refuse!(BadValue, "$elemMatch needs an Object") };
        let logical = |name: &str| matches!(name, "$and" | "$or" | "$nor" | "$expr" | "$where");
        let values = is_operators(inner) && inner.first().is_some_and(|(name, _)| !logical(name));
        if !values {
            return Ok(Test::ElementMatches(Box::new(self.conjunction(inner, depth + 1)?)));
        }
        let mut nodes = Vec::new();
        self.operators("", inner, depth + 1, &mut nodes)?;
        let mut tests = Vec::new();
        for node in nodes {
            flatten(node, false, &mut tests)?;
        }
        Ok(Test::ElementPasses(tests))
    }
}

/// Tests of one element out of nodes on it.
fn flatten(node: Node, negated: bool, tests: &mut Vec<(Test, bool)>) -> Result<(), LangError> {
    match node {
        Node::Leaf(leaf) => tests.push((leaf.test, negated)),
        Node::Not(inner) => flatten(*inner, !negated, tests)?,
        Node::And(mut nodes) if !negated || nodes.len() == 1 => {
            for node in nodes.drain(..) {
                flatten(node, negated, tests)?;
            }
        }
        // `$not` of several operators: an element that fails one of them.
        Node::And(nodes) => {
            let mut inner = Vec::new();
            for node in nodes {
                flatten(node, false, &mut inner)?;
            }
            tests.push((Test::All(inner), true));
        }
        Node::Or(nodes) if nodes.is_empty() => tests.push((Test::In(Vec::new(), Vec::new()), negated)),
        _ => refuse!(BadValue, "$elemMatch on values cannot hold this operator"),
    }
    Ok(())
}

fn leaf(path: &str, test: Test) -> Node {
    Node::Leaf(Leaf { path: path.to_owned(), test })
}

fn not(node: Node) -> Node {
    Node::Not(Box::new(node))
}

fn distinct(mut values: Vec<Owned>) -> Vec<Owned> {
    values.sort_by(|a, b| order::compare(a.value(), b.value()));
    values.dedup_by(|a, b| order::equal(a.value(), b.value()));
    values
}

/// A document of operators? `$ref`, `$id` and `$db` are the fields of a reference.
pub(crate) fn is_operators(doc: Doc<'_>) -> bool {
    doc.first().is_some_and(|(name, _)| name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db"))
}

fn regex(value: Value<'_>, options: Option<Value<'_>>) -> Result<Pattern, LangError> {
    let given = match options {
        None => None,
        Some(Value::String(options)) => Some(options),
        Some(_) => refuse!(BadValue, "$options has to be a string"),
    };
    match value {
        Value::String(pattern) => Pattern::new(pattern, given.unwrap_or("")),
        Value::Regex(pattern, own) => {
            if given.is_some() && !own.is_empty() {
                refuse!(51074, "options set in both $regex and $options");
            }
            Pattern::new(pattern, given.unwrap_or(own))
        }
        _ => refuse!(BadValue, "$regex has to be a string"),
    }
}

/// The types' bytes of `$type`: numbers, names, `"number"`, or an array of them.
fn types(value: Value<'_>) -> Result<Vec<u8>, LangError> {
    let one = |value: Value<'_>, tags: &mut Vec<u8>| {
        match value {
            Value::String("number") => tags.extend([tag::DOUBLE, tag::INT32, tag::INT64, tag::DECIMAL]),
            Value::String(name) => match TYPE_NAMES.iter().find(|(_, own)| *own == name) {
                Some((tag, _)) => tags.push(*tag),
                None => refuse!(BadValue, "Unknown type name alias: {name}"),
            },
            value => match value.as_integer() {
                Some(-1) => tags.push(tag::MIN_KEY),
                Some(number)
                    if TYPE_NAMES
                        .iter()
                        .any(|(tag, _)| i64::from(*tag) == number && *tag != tag::MIN_KEY) =>
                {
                    tags.push(number as u8);
                }
                Some(number) => refuse!(BadValue, "Invalid numerical type code: {number}"),
                None => refuse!(TypeMismatch, "type must be represented as a number or a string"),
            },
        }
        Ok(())
    };
    let mut tags = Vec::new();
    match value {
        Value::Array(array) if array.is_empty() => {
            refuse!(FailedToParse, "$type must match at least one type");
        }
        Value::Array(array) => array.values().try_for_each(|value| one(value, &mut tags))?,
        value => one(value, &mut tags)?,
    }
    Ok(tags)
}

fn modulus(value: Value<'_>) -> Result<Test, LangError> {
    let Value::Array(array) = value else { refuse!(BadValue, "malformed mod, needs to be an array") };
    let mut values = array.values();
    let (Some(divisor), Some(remainder)) = (values.next(), values.next()) else {
        refuse!(BadValue, "malformed mod, not enough elements");
    };
    if values.next().is_some() {
        refuse!(BadValue, "malformed mod, too many elements");
    }
    let (Some(divisor), Some(remainder)) = (number::truncated(divisor), number::truncated(remainder)) else {
        refuse!(BadValue, "malformed mod, divisor and remainder must be numbers that fit 64 bits");
    };
    if divisor == 0 {
        refuse!(BadValue, "divisor cannot be 0");
    }
    Ok(Test::Mod { divisor, remainder })
}

/// Bits by number, by list of positions, or by bytes.
fn mask(name: &str, value: Value<'_>) -> Result<Mask, LangError> {
    /// Enough for a binary value of 1 KiB; MongoDB allows any position of 32 bits.
    const POSITION_MAX: i64 = 8191;
    let mut bytes = Vec::new();
    match value {
        Value::Binary(_, mask) => bytes.extend_from_slice(mask),
        Value::Array(positions) => {
            for position in positions.values() {
                let Some(at) = position.as_integer().filter(|at| (0..=POSITION_MAX).contains(at)) else {
                    refuse!(
                        BadValue,
                        "{name}: bit positions must be integers from 0 to {POSITION_MAX}: {position}"
                    );
                };
                let at = at as usize;
                if bytes.len() <= at / 8 {
                    bytes.resize(at / 8 + 1, 0);
                }
                if let Some(byte) = bytes.get_mut(at / 8) {
                    *byte |= 1 << (at % 8);
                }
            }
        }
        value => match value.as_integer() {
            Some(mask) if mask >= 0 => bytes.extend_from_slice(&mask.to_le_bytes()),
            Some(mask) => refuse!(BadValue, "{name} takes a mask of at least zero: {mask}"),
            None => refuse!(BadValue, "{name} takes an Array, a number, or a BinData but received: {value}"),
        },
    }
    Ok(Mask(bytes))
}
