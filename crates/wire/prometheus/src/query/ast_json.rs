//! `parse_query`: the syntax tree of an expression as JSON, by the names of Prometheus.
//!
//! Values that depend on the query's times (`offset (step() * 2)`) are in `…Expr`, with a 0 in the plain
//! field.

use axum::extract::State;
use axum::response::Response;
use ropewalk::promql::ast::{
    AtModifier, BinaryOp, Cardinality, Duration, DurationExpr, DurationKind, Expr, Number, RangeEdges,
    Selector, ValueType,
};
use ropewalk::promql::format_float;
use ropewalk::promql::functions::{Function, Variadic};
use ropewalk::series::{MatchOp, Matcher};
use serde_json::{Value, json};

use crate::app::App;
use crate::query;
use crate::request::params::Params;
use crate::request::response::{ApiError, Notes, success};

/// `parse_query`.
pub(crate) async fn parse(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let tree = query::parsed(&app, params, |query| tree(query.expr()).to_string()).await?;
    Ok(success(&Notes::default(), |out| out.extend_from_slice(tree.as_bytes())))
}

fn tree(expr: &Expr) -> Value {
    match expr {
        Expr::Number(number) => json!({ "type": "numberLiteral", "val": format_float(number.value) }),
        Expr::Text(text) => json!({ "type": "stringLiteral", "val": String::from_utf8_lossy(&text.value) }),
        Expr::Selector(selector) => selector_tree("vectorSelector", selector),
        Expr::Matrix(matrix) => {
            let mut tree = selector_tree("matrixSelector", &matrix.selector);
            put_duration(&mut tree, "range", &matrix.range);
            tree
        }
        Expr::Subquery(subquery) => {
            let mut tree = json!({ "type": "subquery", "expr": self::tree(&subquery.expr) });
            put_duration(&mut tree, "range", &subquery.range);
            put_duration(&mut tree, "step", &subquery.step);
            put_duration(&mut tree, "offset", &subquery.offset);
            put_at(&mut tree, subquery.at);
            tree
        }
        Expr::Call(call) => {
            let mut tree = json!({
                "type": "call",
                "func": function(call.function),
                "args": call.args.iter().map(self::tree).collect::<Vec<_>>(),
            });
            put_if(&mut tree, "keepMetricNames", call.keep_name, || json!(true));
            tree
        }
        Expr::Aggregate(aggregate) => {
            let mut tree = json!({
                "type": "aggregation",
                "op": aggregate.op.name(),
                "expr": self::tree(&aggregate.expr),
                "param": aggregate.param.as_ref().map(self::tree),
                "grouping": aggregate.grouping,
                "without": aggregate.without,
            });
            put_if(&mut tree, "more", !aggregate.more.is_empty(), || {
                aggregate.more.iter().map(self::tree).collect()
            });
            put_if(&mut tree, "limit", aggregate.limit.is_some(), || json!(aggregate.limit));
            tree
        }
        Expr::Binary(binary) => {
            let vectors = [&binary.left, &binary.right].iter().all(|e| e.value_type() == ValueType::Vector);
            let matching = binary.matching.as_ref().filter(|_| vectors).map(|matching| {
                let card = match matching.card {
                    Cardinality::OneToOne => "one-to-one",
                    Cardinality::ManyToOne => "many-to-one",
                    Cardinality::OneToMany => "one-to-many",
                    Cardinality::ManyToMany => "many-to-many",
                };
                json!({
                    "card": card,
                    "labels": matching.labels,
                    "on": matching.on,
                    "include": matching.include,
                    "fillValues": { "lhs": matching.fill_left, "rhs": matching.fill_right },
                })
            });
            let mut tree = json!({
                "type": "binaryExpr",
                "op": binary.op.name(),
                "lhs": self::tree(&binary.left),
                "rhs": self::tree(&binary.right),
                "matching": matching,
                "bool": binary.bool,
            });
            put_if(&mut tree, "keepMetricNames", binary.keep_name, || json!(true));
            tree
        }
        Expr::WithOffset(shifted) => {
            let mut tree = json!({ "type": "shiftedExpr", "expr": self::tree(&shifted.expr) });
            put_duration(&mut tree, "offset", &shifted.offset);
            put_at(&mut tree, shifted.at);
            tree
        }
        Expr::Unary(unary) => {
            let op = if unary.negative { "-" } else { "+" };
            json!({ "type": "unaryExpr", "op": op, "expr": self::tree(&unary.expr) })
        }
        Expr::Paren(paren) => json!({ "type": "parenExpr", "expr": self::tree(&paren.expr) }),
        // Marks of the planner, which has not run on this tree.
        Expr::Invariant(inner) => self::tree(inner),
    }
}

fn selector_tree(kind: &str, selector: &Selector) -> Value {
    let mut tree = json!({
        "type": kind,
        "name": selector.name,
        "matchers": selector.matchers.iter().map(matcher).collect::<Vec<_>>(),
        "anchored": selector.edges == RangeEdges::Anchored,
        "smoothed": selector.edges == RangeEdges::Smoothed,
    });
    put_duration(&mut tree, "offset", &selector.offset);
    put_at(&mut tree, selector.at);
    put_if(&mut tree, "orMatchers", !selector.others.is_empty(), || {
        selector.others.iter().map(|list| list.iter().map(matcher).collect::<Vec<_>>()).collect()
    });
    tree
}

fn matcher(matcher: &Matcher) -> Value {
    let op = match matcher.op() {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Regex => "=~",
        MatchOp::NotRegex => "!~",
    };
    json!({ "type": op, "name": matcher.name(), "value": matcher.value() })
}

fn function(function: &Function) -> Value {
    let variadic = match function.variadic {
        Variadic::None => 0,
        Variadic::UpTo(more) => i64::try_from(more).unwrap_or(i64::MAX),
        Variadic::Any => -1,
    };
    json!({
        "name": function.name,
        "argTypes": function.args.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "variadic": variadic,
        "returnType": function.returns.name(),
    })
}

fn put(tree: &mut Value, name: &str, value: Value) {
    if let Value::Object(fields) = tree {
        fields.insert(name.to_owned(), value);
    }
}

/// A field of MetricsQL, absent for plain PromQL.
fn put_if(tree: &mut Value, name: &str, is_there: bool, value: impl FnOnce() -> Value) {
    if is_there {
        put(tree, name, value());
    }
}

fn put_at(tree: &mut Value, at: Option<AtModifier>) {
    let (time, word) = match at {
        None => (Value::Null, Value::Null),
        Some(AtModifier::Time(ms)) => (json!(ms), Value::Null),
        Some(AtModifier::Start) => (Value::Null, json!("start")),
        Some(AtModifier::End) => (Value::Null, json!("end")),
    };
    put(tree, "timestamp", time);
    put(tree, "startOrEnd", word);
}

fn put_duration(tree: &mut Value, name: &str, duration: &Duration) {
    let written = match duration {
        Duration::Fixed(_) => Value::Null,
        Duration::Expr(expr) => duration_tree(expr),
    };
    put(tree, name, json!(duration.ms()));
    put(tree, &format!("{name}Expr"), written);
}

fn duration_tree(expr: &DurationExpr) -> Value {
    let of = |op: &str, left: Option<&DurationExpr>, right: Option<&DurationExpr>| {
        json!({
            "type": "durationExpr",
            "op": op,
            "lhs": left.map(duration_tree),
            "rhs": right.map(duration_tree),
            "wrapped": expr.wrapped,
        })
    };
    let number = |number: &Number| json!({ "type": "numberLiteral", "val": format_float(number.value), "duration": number.duration });
    match &expr.kind {
        DurationKind::Number(literal) if !expr.wrapped => number(literal),
        // A literal in parentheses has the form of a sum without a left operand.
        DurationKind::Number(literal) => {
            let mut tree = of(BinaryOp::Add.name(), None, None);
            put(&mut tree, "rhs", number(literal));
            tree
        }
        DurationKind::Step => of("step", None, None),
        DurationKind::Range => of("range", None, None),
        DurationKind::Window => of("window", None, None),
        DurationKind::Negative(inner) => of(BinaryOp::Sub.name(), None, Some(inner)),
        DurationKind::Binary(op, left, right) => of(op.name(), Some(left), Some(right)),
        DurationKind::MinOf(left, right) => of("min_of", Some(left), Some(right)),
        DurationKind::MaxOf(left, right) => of("max_of", Some(left), Some(right)),
    }
}
