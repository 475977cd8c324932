//! Aggregation expressions: `{ $add: [ "$a", 1 ] }`.
//!
//! ```text
//! BSON ─▶ parse, names of variables resolved ─▶ Node ─▶ evaluate over a document ─▶ Val: nothing, in place, or new
//! ```
//!
//! What decides itself which of its operands it wants (`$cond`, `$and`, `$map` ..) is a node of its own; everything else is a function
//! of values in one of the tables of [`super::functions`].
//!
//! A path in an expression goes through arrays as a map: `"$a.b"` of `{ a: [ { b: 1 }, {}, { b: 2 } ] }` is `[ 1, 2 ]`; a number in it is a name.
//!
//! Source: MongoDB manual, "Aggregation Operators".

use std::cell::Cell;

use super::error::{LangError, refuse};
use super::functions::{self, Arguments, Function};
use super::options::Options;
use super::path;
use super::val::{self, Answer, Val};
use super::value::{Doc, DocBuf, Owned, Value};
use super::writer::Writer;

/// Expressions in expressions, at most.
const NESTING_MAX: usize = 100;
/// Steps for one document: a second or two. Maps in maps over long ranges would go on for years.
const STEPS_MAX: u64 = 20_000_000;
/// So many bytes that a function makes are a step.
const STEP_BYTES: usize = 8;

/// A parsed expression.
#[derive(Debug, Clone)]
pub(crate) struct Expression {
    node: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Nothing,
    Constant(Owned),
    /// A variable, by how many bindings it lies outwards, or the document; and the path from it.
    Path(Start, String),
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    Call(&'static Function, Vec<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    /// Condition, then, else.
    Choice(Box<[Node; 3]>),
    IfNull(Vec<Node>),
    Switch(Vec<(Node, Node)>, Option<Box<Node>>),
    /// Each value is bound in turn; the last is what comes of it.
    Let(Vec<Node>, Box<Node>),
    Map(Box<[Node; 2]>),
    /// Input, condition, limit.
    Filter(Box<[Node; 3]>),
    /// Input, initial value, step with `$$value` and `$$this`.
    Reduce(Box<[Node; 3]>),
}

#[derive(Debug, Clone, Copy)]
enum Start {
    Root,
    Bound(usize),
}

/// The variables that an expression's parser knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    now_ms: i64,
    constants: Option<DocBuf>,
    names: Vec<String>,
    depth: usize,
}

impl Scope {
    pub(crate) fn of(options: &Options) -> Self {
        Self { now_ms: options.now_ms, constants: options.variables.clone(), names: Vec::new(), depth: 0 }
    }

    fn with(&self, names: &[&str]) -> Self {
        let mut scope = self.clone();
        scope.names.extend(names.iter().map(|name| (*name).to_owned()));
        scope
    }

    fn deeper(&self) -> Result<Self, LangError> {
        if self.depth >= NESTING_MAX {
            refuse!(Overflow, "an expression is nested deeper than {NESTING_MAX} levels");
        }
        Ok(Self { depth: self.depth + 1, ..self.clone() })
    }
}

/// What an expression is evaluated in.
#[derive(Clone, Copy)]
pub(crate) struct Env<'e> {
    root: Doc<'e>,
    bound: Option<&'e Binding<'e>>,
}

struct Binding<'e> {
    value: Option<Value<'e>>,
    outer: Option<&'e Binding<'e>>,
}

/// Steps that are left.
struct Fuel(Cell<u64>);

impl Fuel {
    fn burn(&self, steps: u64) -> Result<(), LangError> {
        match self.0.get().checked_sub(steps) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => {
                refuse!(ExceededTimeLimit, "an expression took more than {STEPS_MAX} steps for one document")
            }
        }
    }
}

impl Expression {
    /// Parses an operand: a path, a constant, an operator, or a document or array of operands.
    pub(crate) fn parse(value: Value<'_>, scope: &Scope) -> Result<Self, LangError> {
        Ok(Self { node: parse(value, scope)? })
    }

    pub(crate) fn constant(value: Value<'_>) -> Self {
        Self { node: Node::Constant(value.into()) }
    }

    pub(crate) fn evaluate_root<'e>(&'e self, root: Doc<'e>) -> Result<Val<'e>, LangError> {
        self.node.evaluate(Env { root, bound: None }, &Fuel(Cell::new(STEPS_MAX)))
    }
}

fn parse(value: Value<'_>, scope: &Scope) -> Result<Node, LangError> {
    match value {
        Value::String(text) if text.starts_with('$') => parse_path(text, scope),
        Value::Document(doc) => match doc.first() {
            Some((name, operand)) if name.starts_with('$') => {
                if doc.iter().count() > 1 {
                    refuse!(15983, "An object representing an expression must have exactly one field: {doc}");
                }
                parse_operator(name, operand, &scope.deeper()?)
            }
            _ => parse_object(doc, &scope.deeper()?),
        },
        Value::Array(array) => {
            let scope = scope.deeper()?;
            Ok(Node::Array(array.values().map(|value| parse(value, &scope)).collect::<Result<_, _>>()?))
        }
        Value::Undefined => Ok(Node::Nothing),
        other => Ok(Node::Constant(other.into())),
    }
}

fn parse_path(text: &str, scope: &Scope) -> Result<Node, LangError> {
    let Some(variable) = text.strip_prefix("$$") else {
        let path = text.strip_prefix('$').unwrap_or_default();
        if path.is_empty() {
            refuse!(16872, "'$' by itself is not a valid FieldPath");
        }
        check_path(path)?;
        return Ok(Node::Path(Start::Root, path.to_owned()));
    };
    let (name, rest) = path::split(variable);
    if name.is_empty() {
        refuse!(FailedToParse, "empty variable names are not allowed");
    }
    if !rest.is_empty() {
        check_path(rest)?;
    }
    if let Some(outwards) = scope.names.iter().rev().position(|own| own == name) {
        return Ok(Node::Path(Start::Bound(outwards), rest.to_owned()));
    }
    match name {
        "ROOT" | "CURRENT" => return Ok(Node::Path(Start::Root, rest.to_owned())),
        "NOW" => return Ok(Node::Constant(Value::DateTime(scope.now_ms).into())),
        "REMOVE" => return Ok(Node::Nothing),
        "CLUSTER_TIME" | "USER_ROLES" | "SEARCH_META" | "JS_SCOPE" | "IS_MR" => {
            refuse!(NotImplemented, "the variable $${name} is not implemented")
        }
        _ => {}
    }
    let constant = scope.constants.as_ref().and_then(|constants| constants.doc().get(name));
    match constant {
        None => refuse!(17276, "Use of undefined variable: {name}"),
        // A variable whose value is missing.
        Some(Value::Undefined) => Ok(Node::Nothing),
        Some(value) if rest.is_empty() => Ok(Node::Constant(value.into())),
        Some(value) => Ok(match follow(Some(value), rest) {
            Val::Missing => Node::Nothing,
            found => Node::Constant(found.or_null().into()),
        }),
    }
}

fn check_path(path: &str) -> Result<(), LangError> {
    for name in path.split('.') {
        if name.is_empty() {
            refuse!(15998, "FieldPath field names may not be empty strings: {path:?}");
        }
        if name.starts_with('$') {
            refuse!(
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField: {path:?}"
            );
        }
        if name.contains('\0') {
            refuse!(16411, "FieldPath field names may not contain '\\0'.");
        }
    }
    Ok(())
}

fn parse_object(doc: Doc<'_>, scope: &Scope) -> Result<Node, LangError> {
    let mut fields = Vec::new();
    for (name, value) in doc {
        if name.starts_with('$') {
            refuse!(15983, "An object representing an expression must have exactly one field: {doc}");
        }
        if name.contains('.') {
            refuse!(16412, "FieldPath field names may not contain '.': {name}");
        }
        fields.push((name.to_owned(), parse(value, scope)?));
    }
    Ok(Node::Object(fields))
}

fn parse_operator(name: &str, operand: Value<'_>, scope: &Scope) -> Result<Node, LangError> {
    let all = || -> Result<Vec<Node>, LangError> {
        match operand {
            Value::Array(array) => array.values().map(|value| parse(value, scope)).collect(),
            value => Ok(vec![parse(value, scope)?]),
        }
    };
    Ok(match name {
        "$literal" | "$const" => Node::Constant(operand.into()),
        "$expr" => parse(operand, scope)?,
        "$and" => Node::And(all()?),
        "$or" => Node::Or(all()?),
        "$ifNull" => {
            let nodes = all()?;
            if nodes.len() < 2 {
                refuse!(1257300, "$ifNull needs at least two arguments, had: {}", nodes.len());
            }
            Node::IfNull(nodes)
        }
        "$cond" => match operand {
            Value::Document(_) => {
                let parts = named(name, operand, &["if", "then", "else"], 3)?;
                Node::Choice(Box::new(three(&parts, scope)?))
            }
            _ => match <[Node; 3]>::try_from(all()?) {
                Ok(parts) => Node::Choice(Box::new(parts)),
                Err(parts) => {
                    refuse!(
                        16020,
                        "Expression $cond takes exactly 3 arguments. {} were passed in.",
                        parts.len()
                    )
                }
            },
        },
        "$switch" => parse_switch(operand, scope)?,
        "$let" => parse_let(operand, scope)?,
        "$map" => {
            let parts = named(name, operand, &["input", "in", "as"], 2)?;
            let inner = scope.with(&[variable(part(&parts, 2), "this")?]);
            Node::Map(Box::new([parse_part(&parts, 0, scope)?, parse_part(&parts, 1, &inner)?]))
        }
        "$filter" => {
            let parts = named(name, operand, &["input", "cond", "as", "limit"], 2)?;
            let inner = scope.with(&[variable(part(&parts, 2), "this")?]);
            Node::Filter(Box::new([
                parse_part(&parts, 0, scope)?,
                parse_part(&parts, 1, &inner)?,
                parse_part(&parts, 3, scope)?,
            ]))
        }
        "$reduce" => {
            let parts = named(name, operand, &["input", "initialValue", "in"], 3)?;
            let inner = scope.with(&["value", "this"]);
            Node::Reduce(Box::new([
                parse_part(&parts, 0, scope)?,
                parse_part(&parts, 1, scope)?,
                parse_part(&parts, 2, &inner)?,
            ]))
        }
        "$function" | "$accumulator" => {
            refuse!(CommandNotSupported, "{name} runs JavaScript, which is not offered")
        }
        _ => {
            let Some(function) = functions::find(name) else {
                refuse!(InvalidPipelineOperator, "Unrecognized expression '{name}'");
            };
            let mut nodes = match function.arguments {
                Arguments::Named(names, required) => {
                    let parts = named(name, operand, names, required)?;
                    (0..names.len()).map(|at| parse_part(&parts, at, scope)).collect::<Result<_, _>>()?
                }
                Arguments::NamedOrOne(names, required) => match operand {
                    Value::Document(doc) if !doc.first().is_some_and(|(name, _)| name.starts_with('$')) => {
                        let parts = named(name, operand, names, required)?;
                        (0..names.len()).map(|at| parse_part(&parts, at, scope)).collect::<Result<_, _>>()?
                    }
                    _ => all()?,
                },
                Arguments::Between(least, most) => {
                    let nodes = all()?;
                    if !(least..=most).contains(&nodes.len()) {
                        let wanted = if least == most {
                            format!("exactly {least}")
                        } else {
                            format!("{least} to {most}")
                        };
                        refuse!(
                            16020,
                            "Expression {name} takes {wanted} arguments. {} were passed in.",
                            nodes.len()
                        );
                    }
                    nodes
                }
            };
            if name == "$getField" {
                // Without an input the field is the document's own.
                nodes.truncate(2);
                match nodes.as_mut_slice() {
                    [_] => nodes.push(Node::Path(Start::Root, String::new())),
                    [_, input @ Node::Nothing] => *input = Node::Path(Start::Root, String::new()),
                    _ => {}
                }
            }
            Node::Call(function, nodes)
        }
    })
}

/// The named operands of an operator, in the order of `names`; the first `required` must be there.
fn named<'v>(
    operator: &str,
    operand: Value<'v>,
    names: &[&str],
    required: usize,
) -> Result<Vec<Option<Value<'v>>>, LangError> {
    let Value::Document(doc) = operand else {
        refuse!(
            FailedToParse,
            "{operator} only supports an object as its argument, not {}",
            operand.type_name()
        );
    };
    for (name, _) in doc {
        if !names.contains(&name) {
            refuse!(FailedToParse, "Unrecognized parameter to {operator}: {name}");
        }
    }
    if let Some(missing) = names.iter().take(required).find(|name| doc.get(name).is_none()) {
        refuse!(FailedToParse, "Missing '{missing}' parameter to {operator}");
    }
    Ok(names.iter().map(|name| doc.get(name)).collect())
}

fn part<'v>(parts: &[Option<Value<'v>>], at: usize) -> Option<Value<'v>> {
    parts.get(at).copied().flatten()
}

fn parse_part(parts: &[Option<Value<'_>>], at: usize, scope: &Scope) -> Result<Node, LangError> {
    part(parts, at).map_or(Ok(Node::Nothing), |value| parse(value, scope))
}

fn three(parts: &[Option<Value<'_>>], scope: &Scope) -> Result<[Node; 3], LangError> {
    Ok([parse_part(parts, 0, scope)?, parse_part(parts, 1, scope)?, parse_part(parts, 2, scope)?])
}

fn variable<'v>(name: Option<Value<'v>>, default: &'v str) -> Result<&'v str, LangError> {
    let name = match name {
        None => return Ok(default),
        Some(Value::String(name)) => name,
        Some(other) => {
            refuse!(FailedToParse, "the name of a variable is a string, not {}", other.type_name())
        }
    };
    let first = |c: char| c.is_ascii_lowercase() || !c.is_ascii();
    if name != "CURRENT" && !name.starts_with(first)
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii())
    {
        refuse!(
            FailedToParse,
            "'{name}' starts with an invalid character for a user variable name, or holds one"
        );
    }
    Ok(name)
}

fn parse_switch(operand: Value<'_>, scope: &Scope) -> Result<Node, LangError> {
    let parts = named("$switch", operand, &["branches", "default"], 0)?;
    let branches = match part(&parts, 0) {
        Some(Value::Array(branches)) => branches,
        Some(other) => {
            refuse!(40061, "$switch expected an array for 'branches', found: {}", other.type_name())
        }
        None => Doc::empty(),
    };
    let mut nodes = Vec::new();
    for branch in branches.values() {
        let parts = named("$switch", branch, &["case", "then"], 2)?;
        nodes.push((parse_part(&parts, 0, scope)?, parse_part(&parts, 1, scope)?));
    }
    if nodes.is_empty() {
        refuse!(40068, "$switch requires at least one branch.");
    }
    let default = part(&parts, 1).map(|value| parse(value, scope)).transpose()?;
    Ok(Node::Switch(nodes, default.map(Box::new)))
}

fn parse_let(operand: Value<'_>, scope: &Scope) -> Result<Node, LangError> {
    let parts = named("$let", operand, &["vars", "in"], 2)?;
    let Some(Value::Document(vars)) = part(&parts, 0) else {
        refuse!(16876, "invalid parameter: expected an object (vars)");
    };
    let mut values = Vec::new();
    let mut names = Vec::new();
    for (at, (name, value)) in vars.iter().enumerate() {
        names.push(variable(Some(Value::String(name)), name)?);
        // Values do not see one another; those before are bound already, so their places are skipped by names nobody can write.
        let hidden: Vec<&str> = (0..at).map(|_| "").collect();
        values.push(parse(value, &scope.with(&hidden))?);
    }
    Ok(Node::Let(values, Box::new(parse_part(&parts, 1, &scope.with(&names))?)))
}

impl Node {
    fn evaluate<'e>(&'e self, env: Env<'e>, fuel: &Fuel) -> Result<Val<'e>, LangError> {
        fuel.burn(1)?;
        Ok(match self {
            Self::Nothing => Val::Missing,
            Self::Constant(value) => Val::Ref(value.value()),
            Self::Path(start, path) => {
                let value = match start {
                    Start::Root => Some(Value::Document(env.root)),
                    Start::Bound(outwards) => env.variable(*outwards),
                };
                follow(value, path)
            }
            Self::Object(fields) => {
                let mut writer = Writer::new();
                for (name, node) in fields {
                    if let Some(value) = node.evaluate(env, fuel)?.get() {
                        writer.put(name, value);
                    }
                }
                val::built(writer.into_owned())?
            }
            Self::Array(nodes) => {
                let mut writer = Writer::array();
                for node in nodes {
                    writer.put("", node.evaluate(env, fuel)?.or_null());
                }
                val::built(writer.into_owned())?
            }
            Self::Call(function, nodes) => {
                let values =
                    nodes.iter().map(|node| node.evaluate(env, fuel)).collect::<Result<Vec<_>, _>>()?;
                let made = (function.call)(&values)?;
                fuel.burn(super::regex::compile_steps())?;
                if let Val::Own(owned) = &made {
                    fuel.burn((owned.bytes() / STEP_BYTES) as u64)?;
                }
                made
            }
            Self::And(nodes) => {
                for node in nodes {
                    if !node.holds(env, fuel)? {
                        return Ok(val::bool(false));
                    }
                }
                val::bool(true)
            }
            Self::Or(nodes) => {
                for node in nodes {
                    if node.holds(env, fuel)? {
                        return Ok(val::bool(true));
                    }
                }
                val::bool(false)
            }
            Self::Choice(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                if condition.holds(env, fuel)? {
                    then.evaluate(env, fuel)?
                } else {
                    otherwise.evaluate(env, fuel)?
                }
            }
            Self::IfNull(nodes) => {
                let mut last = Val::Missing;
                for node in nodes {
                    last = node.evaluate(env, fuel)?;
                    if !last.is_nullish() {
                        break;
                    }
                }
                last
            }
            Self::Switch(branches, default) => {
                for (case, then) in branches {
                    if case.holds(env, fuel)? {
                        return then.evaluate(env, fuel);
                    }
                }
                match default {
                    Some(node) => node.evaluate(env, fuel)?,
                    None => refuse!(
                        40066,
                        "$switch could not find a matching branch for an input, and no default was specified."
                    ),
                }
            }
            Self::Let(values, body) => bind(values, body, env, fuel)?,
            Self::Map(parts) => {
                let [input, body] = parts.as_ref();
                let input = input.evaluate(env, fuel)?;
                let Some(array) = array_or_null(&input, "$map", 16883)? else { return Ok(Val::NULL) };
                let mut writer = Writer::array();
                for value in array.values() {
                    let binding = Binding { value: Some(value), outer: env.bound };
                    let inner = Env { bound: Some(&binding), ..env };
                    writer.put("", body.evaluate(inner, fuel)?.or_null());
                }
                val::built(writer.into_owned())?
            }
            Self::Filter(parts) => {
                let [input, condition, limit] = parts.as_ref();
                let input = input.evaluate(env, fuel)?;
                let limit = limit.evaluate(env, fuel)?;
                let Some(array) = array_or_null(&input, "$filter", 28651)? else { return Ok(Val::NULL) };
                let limit = match limit.get() {
                    None | Some(Value::Null) => i64::MAX,
                    Some(limit) => match limit.as_integer() {
                        Some(limit) if limit > 0 => limit,
                        _ => refuse!(327391, "$filter: limit must be a positive integer: {limit}"),
                    },
                };
                let mut writer = Writer::array();
                let mut count = 0;
                for value in array.values() {
                    let binding = Binding { value: Some(value), outer: env.bound };
                    if count < limit && condition.holds(Env { bound: Some(&binding), ..env }, fuel)? {
                        writer.put("", value);
                        count += 1;
                    }
                }
                writer_done(writer)?
            }
            Self::Reduce(parts) => {
                let [input, initial, body] = parts.as_ref();
                let input = input.evaluate(env, fuel)?;
                let Some(array) = array_or_null(&input, "$reduce", 40080)? else { return Ok(Val::NULL) };
                let mut total = initial.evaluate(env, fuel)?.into_static();
                for value in array.values() {
                    let next = {
                        let outer = Binding { value: total.get(), outer: env.bound };
                        let inner = Binding { value: Some(value), outer: Some(&outer) };
                        body.evaluate(Env { root: env.root, bound: Some(&inner) }, fuel)?.into_static()
                    };
                    total = next;
                }
                total
            }
        })
    }

    fn holds(&self, env: Env<'_>, fuel: &Fuel) -> Result<bool, LangError> {
        Ok(self.evaluate(env, fuel)?.get().is_some_and(Value::is_truthy))
    }
}

fn writer_done(writer: Writer) -> Answer {
    val::built(writer.into_owned())
}

/// Binds the values one after the other and evaluates the body.
fn bind(values: &[Node], body: &Node, env: Env<'_>, fuel: &Fuel) -> Answer {
    match values.split_first() {
        None => Ok(body.evaluate(env, fuel)?.into_static()),
        Some((first, rest)) => {
            let value = first.evaluate(env, fuel)?;
            let binding = Binding { value: value.get(), outer: env.bound };
            bind(rest, body, Env { root: env.root, bound: Some(&binding) }, fuel)
        }
    }
}

fn array_or_null<'v>(value: &'v Val<'_>, name: &str, code: i32) -> Result<Option<Doc<'v>>, LangError> {
    match value.get() {
        Some(Value::Array(array)) => Ok(Some(array)),
        _ if value.is_nullish() => Ok(None),
        _ => Err(LangError::new(
            super::error::Code::Location(code),
            format!("input to {name} must be an array not {}", value.type_name()),
        )),
    }
}

impl<'e> Env<'e> {
    fn variable(&self, outwards: usize) -> Option<Value<'e>> {
        let mut binding = self.bound;
        for _ in 0..outwards {
            binding = binding.and_then(|binding| binding.outer);
        }
        binding.and_then(|binding| binding.value)
    }
}

/// Follows a path as expressions do: arrays are mapped.
fn follow<'e>(value: Option<Value<'e>>, path: &str) -> Val<'e> {
    let Some(value) = value else { return Val::Missing };
    if path.is_empty() {
        return Val::Ref(value);
    }
    match value {
        Value::Document(doc) => {
            let (name, rest) = path::split(path);
            follow(doc.get(name), rest)
        }
        Value::Array(array) => {
            let mut writer = Writer::array();
            for element in array.values() {
                if let Value::Document(_) = element
                    && let Some(found) = follow(Some(element), path).get()
                {
                    writer.put("", found);
                }
            }
            Val::Own(writer.into_owned())
        }
        _ => Val::Missing,
    }
}
