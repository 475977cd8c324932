//! Parses filters from BSON: the operators, and the operands that they accept.

use crate::lang::budget::{Held, byte_steps};
use crate::lang::error::{LangResult, refuse};
use crate::lang::expression::{Expression, Scope};
use crate::lang::filter::{Comparison, Leaf, Mask, Node, Test, distinct};
use crate::lang::options::Options;
use crate::lang::regex::{Pattern, Patterns};
use crate::lang::schema::Schema;
use crate::lang::value::number;
use crate::lang::value::{Doc, Owned, TYPE_NAMES, Value, tag};

/// Most levels of nested operators; documents themselves may have [`crate::lang::DEPTH_MAX`].
const NESTING_MAX: usize = 100;

/// The conditions of a filter.
pub(crate) fn parse(filter: Doc<'_>, options: &Options, held: &Held) -> LangResult<Node> {
    Parser { options, held }.conjunction(filter, 0)
}

struct Parser<'o> {
    options: &'o Options,
    /// The memory of the conditions.
    held: &'o Held,
}

impl Parser<'_> {
    fn conjunction(&self, filter: Doc<'_>, depth: usize) -> LangResult<Node> {
        if depth > NESTING_MAX {
            refuse!(BadValue, "exceeded maximum query tree depth of {NESTING_MAX}");
        }
        let mut nodes = Vec::new();
        for (name, value) in filter {
            self.count(name.len())?;
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
                "$sampleRate" => {
                    let rate = match value.as_double() {
                        Some(rate) if (0.0..=1.0).contains(&rate) => rate,
                        Some(_) => refuse!(BadValue, "numeric argument to $sampleRate must be in [0, 1]"),
                        None => refuse!(BadValue, "argument to $sampleRate must be a numeric type"),
                    };
                    nodes.push(Node::Expression(Box::new(Expression::sampling(rate, self.options))));
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
                "$jsonSchema" => match value {
                    Value::Document(schema) => nodes.push(Node::Schema(Box::new(Schema::parse_with(
                        schema,
                        &self.options.patterns,
                        self.held,
                    )?))),
                    _ => refuse!(TypeMismatch, "$jsonSchema must be an object"),
                },
                "$text" => refuse!(NotImplemented, "{name} is not implemented"),
                // A document in an array may be a reference.
                "$ref" | "$id" | "$db" if depth > 0 => self.field(name, value, depth, &mut nodes)?,
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

    /// Counts a condition that owns so many bytes; its list may have room for twice as many, and a negation
    /// around it.
    fn count(&self, bytes: usize) -> LangResult<()> {
        byte_steps(bytes)?;
        self.held.take(3 * size_of::<Node>() + bytes)
    }

    fn list(&self, name: &str, value: Value<'_>, depth: usize) -> LangResult<Vec<Node>> {
        let Value::Array(array) = value else { refuse!(BadValue, "{name} must be an array") };
        let mut nodes = Vec::new();
        for entry in array.values() {
            let Value::Document(entry) = entry else {
                refuse!(BadValue, "$or/$and/$nor entries need to be full objects");
            };
            self.count(0)?;
            nodes.push(self.conjunction(entry, depth + 1)?);
        }
        if nodes.is_empty() {
            refuse!(BadValue, "$and/$or/$nor must be a nonempty array");
        }
        Ok(nodes)
    }

    /// `name: value`, where the value is an operand or a document of operators.
    fn field(&self, path: &str, value: Value<'_>, depth: usize, nodes: &mut Vec<Node>) -> LangResult<()> {
        match value {
            Value::Document(operators) if is_operators(operators) => {
                self.operators(path, operators, depth, nodes)
            }
            Value::Regex(pattern, options) => {
                nodes.push(leaf(path, Test::Regex(self.options.patterns.compile(pattern, options)?)));
                Ok(())
            }
            Value::Undefined => refuse!(BadValue, "cannot compare to undefined"),
            value => {
                self.count(path.len() + value.payload_bytes())?;
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
    ) -> LangResult<()> {
        if depth > NESTING_MAX {
            refuse!(BadValue, "exceeded maximum query tree depth of {NESTING_MAX}");
        }
        let options = operators.get("$options");
        for (name, value) in operators {
            // The value of an operator without nested operators is copied.
            let copied =
                if value.as_document().is_some_and(is_operators) { 0 } else { value.payload_bytes() };
            self.count(path.len() + copied)?;
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
                "$regex" => {
                    nodes.push(leaf(path, Test::Regex(regex(value, options, &self.options.patterns)?)))
                }
                "$comment" => {}
                _ => nodes.push(leaf(path, self.test(name, value, depth)?)),
            }
        }
        Ok(())
    }

    fn negated(&self, path: &str, value: Value<'_>, depth: usize) -> LangResult<Node> {
        match value {
            Value::Regex(pattern, options) => {
                Ok(leaf(path, Test::Regex(self.options.patterns.compile(pattern, options)?)))
            }
            Value::Document(inner) if inner.is_empty() => refuse!(BadValue, "$not cannot be empty"),
            Value::Document(inner) => {
                let mut nodes = Vec::new();
                self.operators(path, inner, depth + 1, &mut nodes)?;
                Ok(Node::And(nodes))
            }
            _ => refuse!(BadValue, "$not needs a regex or a document"),
        }
    }

    /// Parses an operator that is one test.
    fn test(&self, name: &str, value: Value<'_>, depth: usize) -> LangResult<Test> {
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

    fn comparison(&self, comparison: Comparison, value: Value<'_>) -> LangResult<Test> {
        if let Value::Undefined = value {
            refuse!(BadValue, "cannot compare to undefined");
        }
        Ok(Test::Compare(comparison, value.into()))
    }

    fn ordering(&self, name: &str, comparison: Comparison, value: Value<'_>) -> LangResult<Test> {
        if let Value::Regex(..) = value {
            refuse!(BadValue, "Can't have RegEx as arg to predicate over field: {name}");
        }
        self.comparison(comparison, value)
    }

    fn membership(&self, name: &str, value: Value<'_>) -> LangResult<Test> {
        let Value::Array(array) = value else { refuse!(BadValue, "{name} needs an array") };
        let mut values = Vec::new();
        let mut patterns = Vec::new();
        for value in array.values() {
            self.held.take(2 * size_of::<Owned>() + size_of::<Pattern>())?;
            match value {
                Value::Regex(pattern, options) => {
                    patterns.push(self.options.patterns.compile(pattern, options)?)
                }
                Value::Undefined => refuse!(BadValue, "cannot compare to undefined"),
                Value::Document(doc) if is_operators(doc) => refuse!(BadValue, "cannot nest $ under $in"),
                value => values.push(Owned::from(value)),
            }
        }
        Ok(Test::In(distinct(values), patterns))
    }

    fn all(&self, path: &str, value: Value<'_>, depth: usize, nodes: &mut Vec<Node>) -> LangResult<()> {
        let Value::Array(array) = value else { refuse!(BadValue, "$all needs an array") };
        if array.is_empty() {
            nodes.push(Node::Or(Vec::new()));
        }
        let element_matches = |value: Value<'_>| {
            value.as_document().and_then(Doc::first).is_some_and(|(name, _)| name == "$elemMatch")
        };
        let elements = array.values().next().is_some_and(element_matches);
        for value in array.values() {
            self.count(path.len() + value.payload_bytes())?;
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

    fn element(&self, value: Value<'_>, depth: usize) -> LangResult<Test> {
        let Value::Document(inner) = value else { refuse!(BadValue, "$elemMatch needs an Object") };
        if !is_about_value(inner) {
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

/// Converts nodes on an element to tests of that element.
fn flatten(node: Node, negated: bool, tests: &mut Vec<(Test, bool)>) -> LangResult<()> {
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

/// True for a document of operators on one value. Logical operators are about the fields of a document.
pub(crate) fn is_about_value(doc: Doc<'_>) -> bool {
    let logical = |name: &str| matches!(name, "$and" | "$or" | "$nor" | "$expr" | "$jsonSchema" | "$where");
    is_operators(doc) && doc.first().is_some_and(|(name, _)| !logical(name))
}

/// True for a document of operators. `$ref`, `$id` and `$db` are the fields of a reference.
pub(crate) fn is_operators(doc: Doc<'_>) -> bool {
    doc.first().is_some_and(|(name, _)| name.starts_with('$') && !matches!(name, "$ref" | "$id" | "$db"))
}

fn regex(value: Value<'_>, options: Option<Value<'_>>, patterns: &Patterns) -> LangResult<Pattern> {
    let given = match options {
        None => None,
        Some(Value::String(options)) => Some(options),
        Some(_) => refuse!(BadValue, "$options has to be a string"),
    };
    match value {
        Value::String(pattern) => patterns.compile(pattern, given.unwrap_or("")),
        Value::Regex(pattern, own) => {
            if given.is_some() && !own.is_empty() {
                refuse!(51074, "options set in both $regex and $options");
            }
            patterns.compile(pattern, given.unwrap_or(own))
        }
        _ => refuse!(BadValue, "$regex has to be a string"),
    }
}

/// The type bytes of `$type`: numbers, names, `"number"`, or an array of them.
fn types(value: Value<'_>) -> LangResult<Vec<u8>> {
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
    tags.sort_unstable();
    tags.dedup();
    Ok(tags)
}

fn modulus(value: Value<'_>) -> LangResult<Test> {
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

/// A bit mask from a number, a list of positions, or bytes.
fn mask(name: &str, value: Value<'_>) -> LangResult<Mask> {
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
