//! `$jsonSchema` with MongoDB's keywords (draft 4 with `bsonType`).
//!
//! ```text
//! { bsonType: "object", required: ["name"], properties: { name: { bsonType: "string", minLength: 1 } } }
//!   ─▶ a list of rules; a value satisfies the schema if it breaks none of them
//! ```
//!
//! A rule applies to one kind of value and accepts all others: `minimum` accepts any text. The first
//! violation is reported with its path.
//!
//! Refused, as in MongoDB: `$ref`, `$schema`, `default`, `definitions`, `format`, `id`, and unknown
//! keywords.

use std::cell::RefCell;

use crate::lang::budget::{Held, byte_steps, held, steps};
use crate::lang::error::{LangError, LangResult, refuse};
use crate::lang::regex::{Pattern, Patterns};
use crate::lang::value::number;
use crate::lang::value::order;
use crate::lang::value::{Doc, Owned, TYPE_NAMES, Value, tag};

/// Most levels of nested schemas.
const NESTING_MAX: usize = 100;

/// A parsed schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    Types(Vec<u8>),
    Required(Vec<String>),
    Properties(Properties),
    /// Least and greatest number of fields.
    Fields(u64, u64),
    Items(Items),
    /// Least and greatest number of elements.
    Length(u64, u64),
    Unique,
    Minimum {
        bound: Owned,
        exclusive: bool,
    },
    Maximum {
        bound: Owned,
        exclusive: bool,
    },
    MultipleOf(Owned),
    /// Least and greatest number of characters.
    Text(u64, u64),
    Pattern(Pattern),
    Enum(Vec<Owned>),
    All(Vec<Schema>),
    Any(Vec<Schema>),
    One(Vec<Schema>),
    Not(Box<Schema>),
    /// If this field exists, these fields are required, or the document must satisfy this schema.
    Dependency(String, Result<Vec<String>, Box<Schema>>),
}

#[derive(Debug, Clone, PartialEq)]
struct Properties {
    named: Vec<(String, Schema)>,
    patterns: Vec<(Pattern, Schema)>,
    others: Others,
}

#[derive(Debug, Clone, PartialEq)]
struct Items {
    /// One schema for all, or one for each of the first.
    all: Option<Box<Schema>>,
    first: Vec<Schema>,
    others: Others,
}

/// Whether additional fields or elements are allowed.
#[derive(Debug, Clone, PartialEq)]
enum Others {
    Anything,
    Nothing,
    Matching(Box<Schema>),
}

impl Schema {
    /// Parses a schema.
    ///
    /// # Errors
    /// `FailedToParse` for unknown or unsupported keywords, `TypeMismatch` for operands of other types.
    pub fn parse(schema: Doc<'_>) -> LangResult<Self> {
        Self::parse_with(schema, &Patterns::default(), &held("a schema"))
    }

    /// Parses a schema whose patterns count among `patterns`, and its rules in `held`.
    pub(crate) fn parse_with(schema: Doc<'_>, patterns: &Patterns, held: &Held) -> LangResult<Self> {
        parse(schema, At { depth: 0, patterns, held })
    }

    /// The first rule that the document breaks, with the path: `address.zip: pattern`.
    ///
    /// # Errors
    /// An end of the command.
    pub fn first_failure(&self, doc: Doc<'_>) -> LangResult<Option<String>> {
        let visit = Visit::default();
        let broken = self.broken(Value::Document(doc), &visit);
        match visit.0.into_inner() {
            Some(ended) => Err(ended),
            None => Ok(broken.map(Broken::shown)),
        }
    }

    fn accepts(&self, value: Value<'_>, visit: &Visit) -> bool {
        self.broken(value, visit).is_none()
    }

    fn broken(&self, value: Value<'_>, visit: &Visit) -> Option<Broken> {
        self.rules.iter().find_map(|rule| {
            if visit.ends(1) {
                return said("the command has ended");
            }
            rule.broken(value, visit)
        })
    }
}

/// A check of one document; holds the error that ended it early, if any.
#[derive(Default)]
struct Visit(RefCell<Option<LangError>>);

impl Visit {
    /// Counts steps; true once the command has ended.
    fn ends(&self, count: usize) -> bool {
        let mut ended = self.0.borrow_mut();
        if ended.is_none() {
            *ended = steps(count).err();
        }
        ended.is_some()
    }
}

impl Visit {
    fn matches(&self, pattern: &Pattern, text: &str) -> bool {
        pattern.is_match(text).unwrap_or_else(|error| {
            self.0.borrow_mut().get_or_insert(error);
            false
        })
    }
}

/// A violated rule.
struct Broken {
    /// Names on the path to the value, from the inside.
    path: Vec<String>,
    what: &'static str,
}

impl Broken {
    fn within(mut self, name: &str) -> Self {
        self.path.push(name.to_owned());
        self
    }

    fn shown(self) -> String {
        let path = self.path.into_iter().rev().collect::<Vec<_>>().join(".");
        if path.is_empty() { self.what.to_owned() } else { format!("{path}: {}", self.what) }
    }
}

fn said(what: &'static str) -> Option<Broken> {
    Some(Broken { path: Vec::new(), what })
}

impl Rule {
    fn broken(&self, value: Value<'_>, visit: &Visit) -> Option<Broken> {
        let unless = |holds: bool, what: &'static str| if holds { None } else { said(what) };
        let between = |count: usize, least: u64, most: u64| (least..=most).contains(&(count as u64));
        match (self, value) {
            (Self::Types(tags), value) => unless(tags.contains(&value.tag()), "bsonType"),
            (Self::Required(names), Value::Document(doc)) => {
                let missing = names.iter().find(|name| doc.get(name).is_none())?;
                said("required").map(|broken| broken.within(missing))
            }
            (Self::Properties(properties), Value::Document(doc)) => properties.broken(doc, visit),
            (Self::Fields(least, most), Value::Document(doc)) => {
                unless(between(doc.iter().count(), *least, *most), "minProperties or maxProperties")
            }
            (Self::Items(items), Value::Array(array)) => items.broken(array, visit),
            (Self::Length(least, most), Value::Array(array)) => {
                unless(between(array.values().count(), *least, *most), "minItems or maxItems")
            }
            (Self::Unique, Value::Array(array)) => {
                if visit.ends(array.bytes().len()) {
                    return said("the command has ended");
                }
                let mut values: Vec<_> = array.values().collect();
                values.sort_unstable_by(|a, b| order::compare(*a, *b));
                let equal = |(a, b): (&Value<'_>, &Value<'_>)| order::equal(*a, *b);
                unless(!values.iter().zip(values.iter().skip(1)).any(equal), "uniqueItems")
            }
            (Self::Minimum { bound, exclusive }, value) if value.is_number() => {
                let order = order::compare(value, bound.value());
                unless(if *exclusive { order.is_gt() } else { order.is_ge() }, "minimum")
            }
            (Self::Maximum { bound, exclusive }, value) if value.is_number() => {
                let order = order::compare(value, bound.value());
                unless(if *exclusive { order.is_lt() } else { order.is_le() }, "maximum")
            }
            (Self::MultipleOf(divisor), value) if value.is_number() => {
                let rest = number::to_decimal(value).zip(number::to_decimal(divisor.value()));
                let rest = rest.and_then(|(a, b)| a.remainder(b));
                unless(rest.is_some_and(|rest| rest.is_zero()), "multipleOf")
            }
            (Self::Text(least, most), Value::String(text)) => {
                unless(between(text.chars().count(), *least, *most), "minLength or maxLength")
            }
            (Self::Pattern(pattern), Value::String(text)) => unless(visit.matches(pattern, text), "pattern"),
            (Self::Enum(values), value) => {
                if visit.ends(values.len()) {
                    return said("the command has ended");
                }
                unless(values.iter().any(|own| order::equal(own.value(), value)), "enum")
            }
            (Self::All(schemas), value) => schemas.iter().find_map(|schema| schema.broken(value, visit)),
            (Self::Any(schemas), value) => {
                unless(schemas.iter().any(|schema| schema.accepts(value, visit)), "anyOf")
            }
            (Self::One(schemas), value) => {
                unless(schemas.iter().filter(|schema| schema.accepts(value, visit)).count() == 1, "oneOf")
            }
            (Self::Not(schema), value) => unless(!schema.accepts(value, visit), "not"),
            (Self::Dependency(name, wanted), Value::Document(doc)) => {
                doc.get(name)?;
                match wanted {
                    Ok(names) => unless(names.iter().all(|name| doc.get(name).is_some()), "dependencies"),
                    Err(schema) => schema.broken(value, visit),
                }
            }
            _ => None,
        }
    }
}

impl Properties {
    fn broken(&self, doc: Doc<'_>, visit: &Visit) -> Option<Broken> {
        doc.iter().find_map(|(name, value)| {
            if visit.ends(1 + self.named.len() + self.patterns.len()) {
                return said("the command has ended");
            }
            let within = |broken: Broken| broken.within(name);
            let mut known = false;
            for (own, schema) in &self.named {
                if own == name {
                    known = true;
                    if let Some(broken) = schema.broken(value, visit) {
                        return Some(within(broken));
                    }
                }
            }
            for (pattern, schema) in &self.patterns {
                if visit.matches(pattern, name) {
                    known = true;
                    if let Some(broken) = schema.broken(value, visit) {
                        return Some(within(broken));
                    }
                }
            }
            if known { None } else { self.others.broken(value, visit, "additionalProperties").map(within) }
        })
    }
}

impl Items {
    fn broken(&self, array: Doc<'_>, visit: &Visit) -> Option<Broken> {
        array.values().enumerate().find_map(|(at, value)| {
            let broken = match (&self.all, self.first.get(at)) {
                (Some(schema), _) => schema.broken(value, visit),
                (None, Some(schema)) => schema.broken(value, visit),
                (None, None) => self.others.broken(value, visit, "additionalItems"),
            };
            broken.map(|broken| broken.within(&at.to_string()))
        })
    }
}

impl Others {
    fn broken(&self, value: Value<'_>, visit: &Visit, what: &'static str) -> Option<Broken> {
        match self {
            Self::Anything => None,
            Self::Nothing => said(what),
            Self::Matching(schema) => schema.broken(value, visit),
        }
    }
}

/// Position of the parser.
#[derive(Clone, Copy)]
struct At<'p> {
    depth: usize,
    patterns: &'p Patterns,
    /// The memory of the rules.
    held: &'p Held,
}

/// Memory of the first rules: the initial capacity of a list is four.
const RULE_BYTES: usize = 4 * size_of::<Rule>();
/// Memory of a name in a list, for each of its bytes: short ones take several times their length.
const NAME_FACTOR: usize = 8;

impl At<'_> {
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

fn parse(schema: Doc<'_>, at: At<'_>) -> LangResult<Schema> {
    if at.depth > NESTING_MAX {
        refuse!(Overflow, "a $jsonSchema is nested deeper than {NESTING_MAX} levels");
    }
    let mut rules = Vec::new();
    for (name, value) in schema {
        let holds_schemas =
            matches!(value, Value::Document(_)) || matches!(name, "allOf" | "anyOf" | "oneOf");
        let listed = if holds_schemas || name == "items" { 0 } else { value.payload_bytes() };
        byte_steps(value.payload_bytes())?;
        at.held.take(RULE_BYTES + name.len() + NAME_FACTOR * listed)?;
        Keyword { name, value, schema, at }.parse_into(&mut rules)?;
    }
    Ok(Schema { rules })
}

/// A keyword with its operand, and the schema that contains it.
#[derive(Clone, Copy)]
struct Keyword<'k> {
    name: &'k str,
    value: Value<'k>,
    schema: Doc<'k>,
    at: At<'k>,
}

impl Keyword<'_> {
    /// Adds the rules of the keyword; some keywords are part of another keyword's rule and add none.
    fn parse_into(self, rules: &mut Vec<Rule>) -> LangResult<()> {
        let Self { name, value, schema, at } = self;
        let rule = match name {
            "bsonType" | "type" => Rule::Types(types(name, value)?),
            "required" => Rule::Required(names(name, value)?),
            "properties" | "patternProperties" | "additionalProperties" => {
                // All three form one rule, created at the first.
                let first = schema.iter().find(|(name, _)| {
                    matches!(*name, "properties" | "patternProperties" | "additionalProperties")
                });
                if first.is_none_or(|(first, _)| first != name) {
                    return Ok(());
                }
                Rule::Properties(properties(schema, at)?)
            }
            "minProperties" => Rule::Fields(self.parse_count()?, u64::MAX),
            "maxProperties" => Rule::Fields(0, self.parse_count()?),
            "items" => Rule::Items(items(schema, value, at)?),
            "additionalItems" => {
                if schema.get("items").is_none() {
                    others(name, Some(value), at)?;
                }
                return Ok(());
            }
            "minItems" => Rule::Length(self.parse_count()?, u64::MAX),
            "maxItems" => Rule::Length(0, self.parse_count()?),
            "uniqueItems" => {
                if !self.read_flag(name)? {
                    return Ok(());
                }
                Rule::Unique
            }
            "minimum" => {
                Rule::Minimum { bound: self.parse_bound()?, exclusive: self.read_flag("exclusiveMinimum")? }
            }
            "maximum" => {
                Rule::Maximum { bound: self.parse_bound()?, exclusive: self.read_flag("exclusiveMaximum")? }
            }
            "exclusiveMinimum" | "exclusiveMaximum" => return self.check_exclusive(),
            "multipleOf" => Rule::MultipleOf(self.parse_divisor()?),
            "minLength" => Rule::Text(self.parse_count()?, u64::MAX),
            "maxLength" => Rule::Text(0, self.parse_count()?),
            "pattern" => match value {
                Value::String(pattern) => Rule::Pattern(at.patterns.compile(pattern, "")?),
                _ => refuse!(TypeMismatch, "$jsonSchema keyword 'pattern' must be a string"),
            },
            "enum" => match value {
                Value::Array(values) if !values.is_empty() => {
                    Rule::Enum(values.values().map(Owned::from).collect())
                }
                _ => refuse!(TypeMismatch, "$jsonSchema keyword 'enum' must be a non-empty array"),
            },
            "allOf" => Rule::All(self.parse_schemas()?),
            "anyOf" => Rule::Any(self.parse_schemas()?),
            "oneOf" => Rule::One(self.parse_schemas()?),
            "not" => Rule::Not(Box::new(self.parse_inner(value)?)),
            "dependencies" => return self.parse_dependencies(rules),
            "title" | "description" => match value {
                Value::String(_) => return Ok(()),
                _ => refuse!(TypeMismatch, "$jsonSchema keyword '{name}' must be of type string"),
            },
            "$ref" | "$schema" | "default" | "definitions" | "format" | "id" => {
                refuse!(FailedToParse, "$jsonSchema keyword '{name}' is not currently supported")
            }
            _ => refuse!(FailedToParse, "Unknown $jsonSchema keyword: {name}"),
        };
        rules.push(rule);
        Ok(())
    }

    /// Parses a schema that the operand is or contains.
    fn parse_inner(self, value: Value<'_>) -> LangResult<Schema> {
        match value {
            Value::Document(doc) => parse(doc, self.at.deeper()),
            other => refuse!(
                TypeMismatch,
                "$jsonSchema keyword '{}' must be an object, but found {}",
                self.name,
                other.type_name()
            ),
        }
    }

    /// The operand as a list of schemas.
    fn parse_schemas(self) -> LangResult<Vec<Schema>> {
        match self.value {
            Value::Array(array) if !array.is_empty() => {
                array.values().map(|value| self.parse_inner(value)).collect()
            }
            _ => refuse!(
                TypeMismatch,
                "$jsonSchema keyword '{}' must be a non-empty array of objects",
                self.name
            ),
        }
    }

    /// The operand as a number of fields, elements or characters.
    fn parse_count(self) -> LangResult<u64> {
        match self.value.as_integer() {
            Some(count) if count >= 0 => Ok(count as u64),
            _ => refuse!(
                FailedToParse,
                "$jsonSchema keyword '{}' must be a non-negative integer, found {}",
                self.name,
                self.value
            ),
        }
    }

    /// The boolean of a keyword in the same schema; false without it.
    fn read_flag(self, name: &str) -> LangResult<bool> {
        match self.schema.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => refuse!(TypeMismatch, "$jsonSchema keyword '{name}' must be a boolean"),
        }
    }

    /// The operand as a number that values are compared with.
    fn parse_bound(self) -> LangResult<Owned> {
        if self.value.is_number() {
            Ok(Owned::from(self.value))
        } else {
            refuse!(
                TypeMismatch,
                "$jsonSchema keyword '{}' must be a number, found {}",
                self.name,
                self.value.type_name()
            )
        }
    }

    fn parse_divisor(self) -> LangResult<Owned> {
        let divisor = self.parse_bound()?;
        if order::compare(divisor.value(), Value::Int32(0)).is_le() {
            refuse!(FailedToParse, "$jsonSchema keyword 'multipleOf' must have a positive value");
        }
        Ok(divisor)
    }

    /// Checks that the bound exists which `exclusiveMinimum` or `exclusiveMaximum` excludes.
    fn check_exclusive(self) -> LangResult<()> {
        let of = if self.name == "exclusiveMinimum" { "minimum" } else { "maximum" };
        if self.schema.get(of).is_none() {
            refuse!(
                FailedToParse,
                "$jsonSchema keyword '{of}' must be a present if {} is present",
                self.name
            );
        }
        Ok(())
    }

    fn parse_dependencies(self, rules: &mut Vec<Rule>) -> LangResult<()> {
        let Value::Document(dependencies) = self.value else {
            refuse!(TypeMismatch, "$jsonSchema keyword 'dependencies' must be an object");
        };
        for (field, wanted) in dependencies {
            rules.push(Rule::Dependency(
                field.to_owned(),
                match wanted {
                    Value::Array(_) => Ok(names(self.name, wanted)?),
                    wanted => Err(Box::new(self.parse_inner(wanted)?)),
                },
            ));
        }
        Ok(())
    }
}

fn names(keyword: &str, value: Value<'_>) -> LangResult<Vec<String>> {
    let names: Option<Vec<String>> = match value {
        Value::Array(names) if !names.is_empty() => {
            names.values().map(|name| name.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    };
    match names {
        Some(names) => Ok(names),
        None => refuse!(TypeMismatch, "$jsonSchema keyword '{keyword}' must be a non-empty array of strings"),
    }
}

/// `bsonType` has BSON's names, `type` those of JSON.
fn types(keyword: &str, value: Value<'_>) -> LangResult<Vec<u8>> {
    let one = |name: &str| -> LangResult<Vec<u8>> {
        let json = keyword == "type";
        Ok(match name {
            "number" => vec![tag::DOUBLE, tag::INT32, tag::INT64, tag::DECIMAL],
            "boolean" if json => vec![tag::BOOL],
            "integer" if json => {
                refuse!(FailedToParse, "$jsonSchema type 'integer' is not currently supported.")
            }
            name => match TYPE_NAMES.iter().find(|(_, own)| *own == name) {
                Some((tag, _)) if !json || matches!(name, "object" | "array" | "null" | "string") => {
                    vec![*tag]
                }
                _ => refuse!(BadValue, "Unknown type name alias: {name}"),
            },
        })
    };
    match value {
        Value::String(name) => one(name),
        _ => Ok(names(keyword, value)?.iter().map(|name| one(name)).collect::<Result<Vec<_>, _>>()?.concat()),
    }
}

fn others(keyword: &str, value: Option<Value<'_>>, at: At<'_>) -> LangResult<Others> {
    Ok(match value {
        None | Some(Value::Bool(true)) => Others::Anything,
        Some(Value::Bool(false)) => Others::Nothing,
        Some(Value::Document(doc)) => Others::Matching(Box::new(parse(doc, at.deeper())?)),
        Some(_) => {
            refuse!(TypeMismatch, "$jsonSchema keyword '{keyword}' must be either an object or a boolean")
        }
    })
}

fn properties(schema: Doc<'_>, at: At<'_>) -> LangResult<Properties> {
    let fields = |keyword: &str| -> LangResult<Vec<(String, Schema)>> {
        let Some(value) = schema.get(keyword) else { return Ok(Vec::new()) };
        let Value::Document(doc) = value else {
            refuse!(TypeMismatch, "$jsonSchema keyword '{keyword}' must be an object");
        };
        doc.iter()
            .map(|(name, value)| match value {
                Value::Document(inner) => {
                    at.held.take(2 * size_of::<(String, Schema)>() + NAME_FACTOR * name.len())?;
                    Ok((name.to_owned(), parse(inner, at.deeper())?))
                }
                _ => {
                    refuse!(TypeMismatch, "Nested schema for $jsonSchema property '{name}' must be an object")
                }
            })
            .collect()
    };
    let mut patterns = Vec::new();
    for (pattern, schema) in fields("patternProperties")? {
        patterns.push((at.patterns.compile(&pattern, "")?, schema));
    }
    let others = others("additionalProperties", schema.get("additionalProperties"), at)?;
    Ok(Properties { named: fields("properties")?, patterns, others })
}

fn items(schema: Doc<'_>, value: Value<'_>, at: At<'_>) -> LangResult<Items> {
    let others = others("additionalItems", schema.get("additionalItems"), at)?;
    let mut items = Items { all: None, first: Vec::new(), others };
    match value {
        Value::Document(doc) => items.all = Some(Box::new(parse(doc, at.deeper())?)),
        Value::Array(schemas) => {
            for schema in schemas.values() {
                let Value::Document(schema) = schema else {
                    refuse!(
                        TypeMismatch,
                        "$jsonSchema keyword 'items' requires that each element of the array is an object"
                    );
                };
                items.first.push(parse(schema, at.deeper())?);
            }
        }
        _ => refuse!(TypeMismatch, "$jsonSchema keyword 'items' must be an array or an object"),
    }
    Ok(items)
}
