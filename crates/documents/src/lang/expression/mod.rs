//! Aggregation expressions: `{ $add: [ "$a", 1 ] }`.
//!
//! ```text
//! BSON ─▶ parse, names of variables resolved ─▶ Node ─▶ evaluate over a document ─▶ Val: nothing, in place, or new
//! ```
//!
//! An operator that decides which of its operands to evaluate (`$cond`, `$and`, `$map` ..) is a node; every
//! other operator is a function of values in one of the tables of [`functions`].
//!
//! A path in an expression maps over arrays: `"$a.b"` of `{ a: [ { b: 1 }, {}, { b: 2 } ] }` is `[ 1, 2 ]`;
//! a number in it is a name.
//!
//! Source: MongoDB manual, "Aggregation Operators".

pub(crate) mod accumulate;
pub(crate) mod functions;
pub(crate) mod percentile;

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use crate::lang::budget::{self, Held, byte_steps, steps};
use crate::lang::error::{LangError, LangResult, refuse};
use crate::lang::expression::functions::{Arguments, Call, Function};
use crate::lang::expression::percentile::{Percentiles, counted};
use crate::lang::options::Options;
use crate::lang::random::Random;
use crate::lang::value::collation::Collation;
use crate::lang::value::ordering::Order;
use crate::lang::value::path;
use crate::lang::value::val::{self, Answer, Val};
use crate::lang::value::writer::Writer;
use crate::lang::value::{DEPTH_MAX, DOCUMENT_BYTES_MAX, Doc, DocBuf, Owned, Value};

/// Most levels of nested expressions.
const NESTING_MAX: usize = 100;
/// Steps for one document: a second or two. Nested maps over long ranges could otherwise run for years.
const STEPS_MAX: u64 = 20_000_000;
/// Bytes built by a function that count as one step.
const STEP_BYTES: usize = 8;
/// Most visible variables: each is a stack frame during evaluation.
const VARIABLES_MAX: usize = 1000;
/// Size of operands that are not counted while others are evaluated.
const UNCOUNTED_BYTES: usize = 4 << 10;

/// A parsed expression. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Expression(Arc<Parsed>);

#[derive(Debug)]
struct Parsed {
    node: Node,
    /// The memory of the nodes.
    _held: Held,
}

#[derive(Debug, Clone)]
enum Node {
    Nothing,
    Constant(Owned),
    /// A variable, by the number of bindings between it and its use, or the document; and the path from it.
    Path(Start, String),
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    Call(&'static Function, Vec<Node>, Order),
    And(Vec<Node>),
    Or(Vec<Node>),
    /// Condition, then, else.
    Choice(Box<[Node; 3]>),
    IfNull(Vec<Node>),
    Switch(Vec<(Node, Node)>, Option<Box<Node>>),
    /// Binds the values in turn, then evaluates the body.
    Let(Vec<Node>, Box<Node>),
    Map(Box<[Node; 2]>),
    /// Input, condition, limit.
    Filter(Box<[Node; 3]>),
    /// Input, initial value, step with `$$value` and `$$this`.
    Reduce(Box<[Node; 3]>),
    /// A random number from 0 up to but not including 1.
    Random(Random),
    Percentiles(Box<Node>, Percentiles),
}

#[derive(Debug, Clone, Copy)]
enum Start {
    Root,
    Bound(usize),
}

/// The variables known to an expression's parser, and the counter of node memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scope<'o> {
    now_ms: i64,
    constants: Option<Doc<'o>>,
    names: Option<&'o Names<'o>>,
    depth: usize,
    held: Option<&'o Held>,
    random: Option<&'o Random>,
    collation: Option<&'o Collation>,
}

/// Variables bound by one operator, and the enclosing ones.
struct Names<'o> {
    own: &'o [&'o str],
    /// Variables that are bound but not visible.
    hidden: usize,
    outer: Option<&'o Names<'o>>,
}

impl<'o> Scope<'o> {
    pub(crate) fn of(options: &'o Options) -> Self {
        let constants = options.variables.as_ref().map(DocBuf::doc);
        let (random, collation) = (Some(&options.random), options.collation.as_ref());
        Self { now_ms: options.now_ms, constants, random, collation, ..Self::default() }
    }

    /// The scope inside of an operator that binds variables.
    fn with<'s>(&self, names: &'s Names<'s>) -> LangResult<Scope<'s>>
    where
        'o: 's,
    {
        let mut count = 0;
        let mut next = Some(names);
        while let Some(names) = next {
            count += names.own.len() + names.hidden;
            next = names.outer;
        }
        if count > VARIABLES_MAX {
            refuse!(Overflow, "an expression binds more than {VARIABLES_MAX} variables at one place");
        }
        Ok(Scope { names: Some(names), ..*self })
    }

    /// The order of the command's values.
    pub(crate) fn order(&self) -> Order {
        Order::of(self.collation)
    }

    /// Number of bindings between the variable and its use.
    fn find(&self, name: &str) -> Option<usize> {
        let mut outwards = 0;
        let mut next = self.names;
        while let Some(names) = next {
            if let Some(place) = names.own.iter().rev().position(|own| *own == name) {
                return Some(outwards + place);
            }
            outwards += names.own.len() + names.hidden;
            next = names.outer;
        }
        None
    }

    fn deeper(&self) -> LangResult<Self> {
        if self.depth >= NESTING_MAX {
            refuse!(Overflow, "an expression is nested deeper than {NESTING_MAX} levels");
        }
        Ok(Self { depth: self.depth + 1, ..*self })
    }

    /// Counts a node that owns so many bytes; its list may have room for twice as many.
    fn node(&self, bytes: usize) -> LangResult<()> {
        byte_steps(bytes)?;
        self.held.map_or(Ok(()), |held| held.take(2 * size_of::<Node>() + bytes))
    }

    fn constant(&self, value: Value<'_>) -> LangResult<Node> {
        self.node(value.payload_bytes())?;
        Ok(Node::Constant(value.into()))
    }
}

/// Environment of an evaluation.
#[derive(Clone, Copy)]
pub(crate) struct Env<'e> {
    root: Doc<'e>,
    bound: Option<&'e Binding<'e>>,
}

struct Binding<'e> {
    value: Option<Value<'e>>,
    outer: Option<&'e Binding<'e>>,
}

/// State of one evaluation: the remaining steps, and the memory of operands.
struct Run {
    fuel: Cell<u64>,
    held: OnceCell<Held>,
}

impl Run {
    fn new() -> Self {
        Self { fuel: Cell::new(STEPS_MAX), held: OnceCell::new() }
    }

    fn burn(&self, count: u64) -> LangResult<()> {
        steps(usize::try_from(count).unwrap_or(usize::MAX))?;
        match self.fuel.get().checked_sub(count) {
            Some(left) => {
                self.fuel.set(left);
                Ok(())
            }
            None => {
                refuse!(ExceededTimeLimit, "an expression took more than {STEPS_MAX} steps for one document")
            }
        }
    }

    fn held(&self) -> &Held {
        self.held.get_or_init(|| budget::held("an expression"))
    }

    /// A counter of memory in use while operands are evaluated, initially zero.
    fn keeping(&self) -> Kept<'_> {
        Kept { run: self, bytes: 0, taken: 0 }
    }

    /// A value that was built.
    fn made(&self, writer: Writer) -> Answer {
        self.burn((writer.size() / STEP_BYTES) as u64)?;
        val::built(writer)
    }
}

/// Memory in use while operands are evaluated.
struct Kept<'r> {
    run: &'r Run,
    bytes: usize,
    taken: usize,
}

impl Kept<'_> {
    fn set(&mut self, bytes: usize) -> LangResult<()> {
        self.bytes = bytes;
        if bytes > self.taken + UNCOUNTED_BYTES {
            self.run.held().take(bytes - self.taken)?;
            self.taken = bytes;
        }
        Ok(())
    }

    fn add(&mut self, bytes: usize) -> LangResult<()> {
        self.set(self.bytes + bytes)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if self.taken > 0 {
            self.run.held().give_back(self.taken);
        }
    }
}

impl Expression {
    /// Parses an operand: a path, a constant, an operator, or a document or array of operands.
    pub(crate) fn parse(value: Value<'_>, scope: &Scope<'_>) -> LangResult<Self> {
        let held = budget::held("an expression");
        let node = parse(value, &Scope { held: Some(&held), ..*scope })?;
        Ok(Self(Arc::new(Parsed { node, _held: held })))
    }

    pub(crate) fn constant(value: Value<'_>) -> Self {
        let node = Node::Constant(value.into());
        Self(Arc::new(Parsed { node, _held: budget::held("an expression") }))
    }

    /// Parses an operand that sees `names` as variables, for [`Expression::evaluate_with`].
    pub(crate) fn parse_with(value: Value<'_>, scope: &Scope<'_>, names: &[&str]) -> LangResult<Self> {
        let names = Names { own: names, hidden: 0, outer: scope.names };
        Self::parse(value, &scope.with(&names)?)
    }

    /// True for so many of all documents, as `$rand` is below it.
    pub(crate) fn sampling(rate: f64, options: &Options) -> Self {
        let less = functions::find("$lt").expect("$lt is a function");
        let share = Node::Random(options.random.clone());
        let operands = vec![share, Node::Constant(Value::Double(rate).into())];
        let node = Node::Call(less, operands, Order::default());
        Self(Arc::new(Parsed { node, _held: budget::held("an expression") }))
    }

    /// True when it has random numbers.
    pub(crate) fn varies(&self) -> bool {
        self.0.node.varies()
    }

    pub(crate) fn evaluate_root<'e>(&'e self, root: Doc<'e>) -> LangResult<Val<'e>> {
        self.0.node.evaluate(Env { root, bound: None }, &Run::new())
    }

    /// Evaluates an expression of [`Expression::parse_with`], with the values of its variables in order.
    pub(crate) fn evaluate_with(&self, root: Doc<'_>, values: &[Value<'_>]) -> Answer {
        evaluate_bound(&self.0.node, values, Env { root, bound: None }, &Run::new())
    }
}

/// Binds the values to variables in turn, then evaluates the body.
fn evaluate_bound(body: &Node, values: &[Value<'_>], env: Env<'_>, run: &Run) -> Answer {
    match values.split_first() {
        None => Ok(body.evaluate(env, run)?.into_static()),
        Some((first, rest)) => {
            let binding = Binding { value: Some(*first), outer: env.bound };
            evaluate_bound(body, rest, Env { root: env.root, bound: Some(&binding) }, run)
        }
    }
}

/// True when the value contains no operator and no path at any depth: then it is a constant.
fn is_plain(value: Value<'_>, depth: usize) -> bool {
    match value {
        Value::String(text) => !text.starts_with('$'),
        Value::Array(array) => depth < DEPTH_MAX && array.values().all(|value| is_plain(value, depth + 1)),
        Value::Document(_) | Value::Undefined => false,
        _ => true,
    }
}

fn parse(value: Value<'_>, scope: &Scope<'_>) -> LangResult<Node> {
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
        Value::Array(_) if is_plain(value, 0) => scope.constant(value),
        Value::Array(array) => {
            let scope = scope.deeper()?;
            scope.node(0)?;
            Ok(Node::Array(array.values().map(|value| parse(value, &scope)).collect::<Result<_, _>>()?))
        }
        Value::Undefined => {
            scope.node(0)?;
            Ok(Node::Nothing)
        }
        other => scope.constant(other),
    }
}

fn parse_path(text: &str, scope: &Scope<'_>) -> LangResult<Node> {
    scope.node(text.len())?;
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
    if let Some(outwards) = scope.find(name) {
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
    let constants = scope.constants.unwrap_or(Doc::empty());
    byte_steps(constants.bytes().len())?;
    let constant = constants.get(name);
    match constant {
        None => refuse!(17276, "Use of undefined variable: {name}"),
        // A variable whose value is missing.
        Some(Value::Undefined) => Ok(Node::Nothing),
        Some(value) if rest.is_empty() => scope.constant(value),
        Some(value) => match follow(Some(value), rest)? {
            Val::Missing => Ok(Node::Nothing),
            found => scope.constant(found.or_null()),
        },
    }
}

fn check_path(path: &str) -> LangResult<()> {
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

fn parse_object(doc: Doc<'_>, scope: &Scope<'_>) -> LangResult<Node> {
    let mut fields = Vec::new();
    for (name, value) in doc {
        if name.starts_with('$') {
            refuse!(15983, "An object representing an expression must have exactly one field: {doc}");
        }
        if name.contains('.') {
            refuse!(16412, "FieldPath field names may not contain '.': {name}");
        }
        scope.node(name.len())?;
        fields.push((name.to_owned(), parse(value, scope)?));
    }
    scope.node(0)?;
    Ok(Node::Object(fields))
}

fn parse_operator(name: &str, operand: Value<'_>, scope: &Scope<'_>) -> LangResult<Node> {
    scope.node(0)?;
    let all = || operands(operand, scope);
    Ok(match name {
        "$literal" | "$const" => scope.constant(operand)?,
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
            let names = [variable(part(&parts, 2), "this")?];
            let names = Names { own: &names, hidden: 0, outer: scope.names };
            let inner = scope.with(&names)?;
            Node::Map(Box::new([parse_part(&parts, 0, scope)?, parse_part(&parts, 1, &inner)?]))
        }
        "$filter" => {
            let parts = named(name, operand, &["input", "cond", "as", "limit"], 2)?;
            let names = [variable(part(&parts, 2), "this")?];
            let names = Names { own: &names, hidden: 0, outer: scope.names };
            let inner = scope.with(&names)?;
            Node::Filter(Box::new([
                parse_part(&parts, 0, scope)?,
                parse_part(&parts, 1, &inner)?,
                parse_part(&parts, 3, scope)?,
            ]))
        }
        "$reduce" => {
            let parts = named(name, operand, &["input", "initialValue", "in"], 3)?;
            let names = Names { own: &["value", "this"], hidden: 0, outer: scope.names };
            let inner = scope.with(&names)?;
            Node::Reduce(Box::new([
                parse_part(&parts, 0, scope)?,
                parse_part(&parts, 1, scope)?,
                parse_part(&parts, 2, &inner)?,
            ]))
        }
        "$rand" => {
            if !matches!(operand, Value::Document(doc) | Value::Array(doc) if doc.is_empty()) {
                refuse!(10065, "invalid parameter: expected an empty object ($rand)");
            }
            Node::Random(scope.random.cloned().unwrap_or_default())
        }
        "$percentile" | "$median" => {
            let (percentiles, input) = Percentiles::parse(name, operand, scope)?;
            Node::Percentiles(Box::new(parse(input, scope)?), percentiles)
        }
        "$function" | "$accumulator" => {
            refuse!(CommandNotSupported, "{name} runs JavaScript, which is not offered")
        }
        _ => parse_call(name, operand, scope)?,
    })
}

/// A function of values.
fn parse_call(name: &str, operand: Value<'_>, scope: &Scope<'_>) -> Result<Node, LangError> {
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
            _ => operands(operand, scope)?,
        },
        Arguments::Between(least, most) => {
            let nodes = operands(operand, scope)?;
            if !(least..=most).contains(&nodes.len()) {
                let wanted =
                    if least == most { format!("exactly {least}") } else { format!("{least} to {most}") };
                refuse!(16020, "Expression {name} takes {wanted} arguments. {} were passed in.", nodes.len());
            }
            nodes
        }
    };
    if name == "$getField" {
        // Without an input the field is that of the document.
        nodes.truncate(2);
        match nodes.as_mut_slice() {
            [_] => nodes.push(Node::Path(Start::Root, String::new())),
            [_, input @ Node::Nothing] => *input = Node::Path(Start::Root, String::new()),
            _ => {}
        }
    }
    Ok(Node::Call(function, nodes, scope.order()))
}

/// The operands of an array, or a single one.
fn operands(operand: Value<'_>, scope: &Scope<'_>) -> Result<Vec<Node>, LangError> {
    match operand {
        Value::Array(array) => array.values().map(|value| parse(value, scope)).collect(),
        value => Ok(vec![parse(value, scope)?]),
    }
}

/// The named operands of an operator, in the order of `names`; the first `required` are mandatory.
fn named<'v>(
    operator: &str,
    operand: Value<'v>,
    names: &[&str],
    required: usize,
) -> LangResult<Vec<Option<Value<'v>>>> {
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

fn parse_part(parts: &[Option<Value<'_>>], at: usize, scope: &Scope<'_>) -> LangResult<Node> {
    part(parts, at).map_or(Ok(Node::Nothing), |value| parse(value, scope))
}

fn three(parts: &[Option<Value<'_>>], scope: &Scope<'_>) -> LangResult<[Node; 3]> {
    Ok([parse_part(parts, 0, scope)?, parse_part(parts, 1, scope)?, parse_part(parts, 2, scope)?])
}

fn variable<'v>(name: Option<Value<'v>>, default: &'v str) -> LangResult<&'v str> {
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

fn parse_switch(operand: Value<'_>, scope: &Scope<'_>) -> LangResult<Node> {
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

fn parse_let(operand: Value<'_>, scope: &Scope<'_>) -> LangResult<Node> {
    let parts = named("$let", operand, &["vars", "in"], 2)?;
    let Some(Value::Document(vars)) = part(&parts, 0) else {
        refuse!(16876, "invalid parameter: expected an object (vars)");
    };
    let mut values = Vec::new();
    let mut names = Vec::new();
    for (at, (name, value)) in vars.iter().enumerate() {
        names.push(variable(Some(Value::String(name)), name)?);
        // The values of one operator cannot refer to each other; those before are bound already.
        let hidden = Names { own: &[], hidden: at, outer: scope.names };
        values.push(parse(value, &scope.with(&hidden)?)?);
    }
    let names = Names { own: &names, hidden: 0, outer: scope.names };
    Ok(Node::Let(values, Box::new(parse_part(&parts, 1, &scope.with(&names)?)?)))
}

impl Node {
    fn varies(&self) -> bool {
        match self {
            Self::Nothing | Self::Constant(_) | Self::Path(..) => false,
            Self::Random(_) => true,
            Self::Object(fields) => fields.iter().any(|(_, node)| node.varies()),
            Self::Array(nodes)
            | Self::Call(_, nodes, _)
            | Self::And(nodes)
            | Self::Or(nodes)
            | Self::IfNull(nodes) => nodes.iter().any(Self::varies),
            Self::Choice(parts) | Self::Filter(parts) | Self::Reduce(parts) => parts.iter().any(Self::varies),
            Self::Map(parts) => parts.iter().any(Self::varies),
            Self::Switch(branches, default) => {
                let branches = branches.iter().any(|(case, then)| case.varies() || then.varies());
                branches || default.as_deref().is_some_and(Self::varies)
            }
            Self::Let(values, body) => values.iter().any(Self::varies) || body.varies(),
            Self::Percentiles(input, _) => input.varies(),
        }
    }

    fn evaluate<'e>(&'e self, env: Env<'e>, run: &Run) -> LangResult<Val<'e>> {
        run.burn(1)?;
        match self {
            Self::Nothing => Ok(Val::Missing),
            Self::Constant(value) => Ok(Val::Ref(value.value())),
            Self::Path(start, path) => evaluate_path(*start, path, env, run),
            Self::Object(fields) => evaluate_object(fields, env, run),
            Self::Array(nodes) => evaluate_array(nodes, env, run),
            Self::Call(function, nodes, order) => evaluate_call(function, nodes, order, env, run),
            Self::And(nodes) => evaluate_junction(nodes, false, env, run),
            Self::Or(nodes) => evaluate_junction(nodes, true, env, run),
            Self::Choice(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                let chosen = if condition.holds(env, run)? { then } else { otherwise };
                chosen.evaluate(env, run)
            }
            Self::IfNull(nodes) => evaluate_if_null(nodes, env, run),
            Self::Switch(branches, default) => evaluate_switch(branches, default.as_deref(), env, run),
            Self::Let(values, body) => bind(values, body, env, run),
            Self::Map(parts) => evaluate_map(parts, env, run),
            Self::Filter(parts) => evaluate_filter(parts, env, run),
            Self::Reduce(parts) => evaluate_reduce(parts, env, run),
            Self::Random(random) => Ok(Val::Ref(Value::Double(random.share()))),
            Self::Percentiles(input, percentiles) => evaluate_percentiles(input, percentiles, env, run),
        }
    }

    fn holds(&self, env: Env<'_>, run: &Run) -> LangResult<bool> {
        Ok(self.evaluate(env, run)?.get().is_some_and(Value::is_truthy))
    }
}

fn evaluate_path<'e>(start: Start, path: &str, env: Env<'e>, run: &Run) -> LangResult<Val<'e>> {
    let value = match start {
        Start::Root => Some(Value::Document(env.root)),
        Start::Bound(outwards) => env.variable(outwards),
    };
    if !path.is_empty() {
        byte_steps(value.map_or(0, Value::payload_bytes))?;
    }
    let found = follow(value, path)?;
    run.burn((found.own_bytes() / STEP_BYTES) as u64)?;
    Ok(found)
}

// The following functions are not inlined, so that a level of nested expressions takes only the stack that its
// operator needs.

#[inline(never)]
fn evaluate_object(fields: &[(String, Node)], env: Env<'_>, run: &Run) -> Answer {
    let (mut writer, mut kept) = (Writer::new().bounded(), run.keeping());
    for (name, node) in fields {
        if let Some(value) = node.evaluate(env, run)?.get() {
            put(&mut writer, name, value, &mut kept, 0)?;
        }
    }
    run.made(writer)
}

#[inline(never)]
fn evaluate_array(nodes: &[Node], env: Env<'_>, run: &Run) -> Answer {
    let (mut writer, mut kept) = (Writer::array().bounded(), run.keeping());
    for node in nodes {
        put(&mut writer, "", node.evaluate(env, run)?.or_null(), &mut kept, 0)?;
    }
    run.made(writer)
}

#[inline(never)]
fn evaluate_call(function: &Function, nodes: &[Node], order: &Order, env: Env<'_>, run: &Run) -> Answer {
    let (mut kept, mut read) = (run.keeping(), 0);
    kept.set(nodes.len() * size_of::<Val<'_>>())?;
    let mut values = Vec::with_capacity(nodes.len());
    for node in nodes {
        let value = node.evaluate(env, run)?;
        kept.add(value.own_bytes())?;
        read += value.size();
        values.push(value);
    }
    byte_steps(read)?;
    let made = match function.call {
        Call::Plain(call) => call(&values)?,
        Call::Ordered(call) => call(&values, order)?,
    };
    run.burn(crate::lang::regex::compile_steps())?;
    if let Val::Own(owned) = &made {
        run.burn((owned.bytes() / STEP_BYTES) as u64)?;
    }
    Ok(made)
}

/// `$and` (`decisive` false) and `$or` (`decisive` true).
#[inline(never)]
fn evaluate_junction(nodes: &[Node], decisive: bool, env: Env<'_>, run: &Run) -> Answer {
    for node in nodes {
        if node.holds(env, run)? == decisive {
            return Ok(val::bool(decisive));
        }
    }
    Ok(val::bool(!decisive))
}

#[inline(never)]
fn evaluate_if_null<'e>(nodes: &'e [Node], env: Env<'e>, run: &Run) -> LangResult<Val<'e>> {
    let mut last = Val::Missing;
    for node in nodes {
        last = node.evaluate(env, run)?;
        if !last.is_nullish() {
            break;
        }
    }
    Ok(last)
}

#[inline(never)]
fn evaluate_switch<'e>(
    branches: &'e [(Node, Node)],
    default: Option<&'e Node>,
    env: Env<'e>,
    run: &Run,
) -> LangResult<Val<'e>> {
    for (case, then) in branches {
        if case.holds(env, run)? {
            return then.evaluate(env, run);
        }
    }
    match default {
        Some(node) => node.evaluate(env, run),
        None => refuse!(
            40066,
            "$switch could not find a matching branch for an input, and no default was specified."
        ),
    }
}

#[inline(never)]
fn evaluate_map([input, body]: &[Node; 2], env: Env<'_>, run: &Run) -> Answer {
    let input = input.evaluate(env, run)?;
    let Some(array) = array_or_null(&input, "$map", 16883)? else { return Ok(Val::NULL) };
    let (mut writer, mut kept) = (Writer::array().bounded(), run.keeping());
    kept.set(input.own_bytes())?;
    for value in array.values() {
        let binding = Binding { value: Some(value), outer: env.bound };
        let inner = Env { bound: Some(&binding), ..env };
        let made = body.evaluate(inner, run)?;
        put(&mut writer, "", made.or_null(), &mut kept, input.own_bytes())?;
    }
    run.made(writer)
}

#[inline(never)]
fn evaluate_filter([input, condition, limit]: &[Node; 3], env: Env<'_>, run: &Run) -> Answer {
    let input = input.evaluate(env, run)?;
    let mut kept = run.keeping();
    kept.set(input.own_bytes())?;
    let limit = limit.evaluate(env, run)?;
    let Some(array) = array_or_null(&input, "$filter", 28651)? else { return Ok(Val::NULL) };
    let limit = match limit.get() {
        None | Some(Value::Null) => i64::MAX,
        Some(limit) => match limit.as_integer() {
            Some(limit) if limit > 0 => limit,
            _ => refuse!(327391, "$filter: limit must be a positive integer: {limit}"),
        },
    };
    let mut writer = Writer::array().bounded();
    let mut count = 0;
    for value in array.values() {
        let binding = Binding { value: Some(value), outer: env.bound };
        if count < limit && condition.holds(Env { bound: Some(&binding), ..env }, run)? {
            put(&mut writer, "", value, &mut kept, input.own_bytes())?;
            count += 1;
        }
    }
    run.made(writer)
}

#[inline(never)]
fn evaluate_reduce([input, initial, body]: &[Node; 3], env: Env<'_>, run: &Run) -> Answer {
    let input = input.evaluate(env, run)?;
    let Some(array) = array_or_null(&input, "$reduce", 40080)? else { return Ok(Val::NULL) };
    let mut kept = run.keeping();
    kept.set(input.own_bytes())?;
    let mut total = initial.evaluate(env, run)?.into_static();
    for value in array.values() {
        kept.set(input.own_bytes() + total.own_bytes())?;
        byte_steps(total.own_bytes())?;
        let next = {
            let outer = Binding { value: total.get(), outer: env.bound };
            let inner = Binding { value: Some(value), outer: Some(&outer) };
            body.evaluate(Env { root: env.root, bound: Some(&inner) }, run)?.into_static()
        };
        total = next;
    }
    Ok(total)
}

#[inline(never)]
fn evaluate_percentiles(input: &Node, percentiles: &Percentiles, env: Env<'_>, run: &Run) -> Answer {
    let input = input.evaluate(env, run)?;
    let mut kept = run.keeping();
    let numbers = match input.get() {
        Some(Value::Array(array)) => {
            let count = array.values().count();
            run.burn(count as u64)?;
            kept.set(input.own_bytes() + count * size_of::<f64>())?;
            let mut numbers = Vec::with_capacity(count);
            numbers.extend(array.values().filter_map(counted));
            numbers
        }
        other => other.and_then(counted).into_iter().collect(),
    };
    percentiles.of(numbers)
}

/// Adds a field or element to a value being built, which exists together with `others` bytes while operands
/// are evaluated.
fn put(
    writer: &mut Writer,
    name: &str,
    value: Value<'_>,
    kept: &mut Kept<'_>,
    others: usize,
) -> LangResult<()> {
    byte_steps(value.payload_bytes())?;
    writer.put(name, value);
    if writer.is_full() {
        refuse!(BSONObjectTooLarge, "an expression makes a value of more than {DOCUMENT_BYTES_MAX} bytes");
    }
    kept.set(others + writer.capacity())
}

/// Binds the values in turn and evaluates the body.
fn bind(values: &[Node], body: &Node, env: Env<'_>, run: &Run) -> Answer {
    match values.split_first() {
        None => Ok(body.evaluate(env, run)?.into_static()),
        Some((first, rest)) => {
            let value = first.evaluate(env, run)?;
            let mut kept = run.keeping();
            kept.set(value.own_bytes())?;
            let binding = Binding { value: value.get(), outer: env.bound };
            bind(rest, body, Env { root: env.root, bound: Some(&binding) }, run)
        }
    }
}

fn array_or_null<'v>(value: &'v Val<'_>, name: &str, code: i32) -> LangResult<Option<Doc<'v>>> {
    match value.get() {
        Some(Value::Array(array)) => Ok(Some(array)),
        _ if value.is_nullish() => Ok(None),
        _ => Err(LangError::new(
            crate::lang::error::Code::Location(code),
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

/// Follows a path as expressions do: it maps over arrays.
fn follow<'e>(value: Option<Value<'e>>, path: &str) -> LangResult<Val<'e>> {
    let Some(value) = value else { return Ok(Val::Missing) };
    if path.is_empty() {
        return Ok(Val::Ref(value));
    }
    Ok(match value {
        Value::Document(doc) => {
            let (name, rest) = path::split(path);
            return follow(doc.get(name), rest);
        }
        Value::Array(array) => {
            let mut writer = Writer::array().bounded();
            for element in array.values() {
                steps(1)?;
                if let Value::Document(_) = element
                    && let Some(found) = follow(Some(element), path)?.get()
                {
                    writer.put("", found);
                }
            }
            Val::Own(writer.within("the values at a path")?.into_owned())
        }
        _ => Val::Missing,
    })
}
