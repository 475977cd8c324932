//! Parser from tokens to a syntax tree: recursive descent with operator precedence.
//!
//! Parsing stops at the first error, which has a position. Error texts follow Prometheus: the unexpected
//! token, the part of the language, and what was expected.
//!
//! Not here: types of arguments and operands (`check`), durations (`durations`), selectors and their
//! modifiers (`selector`), `WITH` (`templates`).

mod check;
mod durations;
mod selector;
mod templates;

pub(crate) use durations::SECONDS_MAX;

use std::rc::Rc;

use ropewalk_labels::Matcher;
use ropewalk_labels::text::{quote, quote_bytes};

use self::templates::Template;
use crate::budget::{BudgetError, StopReason};
use crate::data::patterns::Patterns;
use crate::data::text;
use crate::syntax::ast::*;
use crate::syntax::functions;
use crate::syntax::lexer::{Keyword, Kind, Token, tokens};
use crate::syntax::metricsql;
use crate::syntax::position::Span;

/// Height of the tallest tree: recursion over a tree must fit on any thread's stack.
const DEPTH_MAX: usize = 200;
/// Bytes of one part of a tree, roughly.
const PART_BYTES: usize = 384;
/// Longest query text.
const QUERY_BYTES_MAX: usize = 1 << 20;

/// Accepted parts of the language. The default is all: no part changes the meaning of a text that is valid
/// without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseOptions {
    /// Functions and aggregations that Prometheus calls experimental.
    pub experimental_functions: bool,
    /// `foo[step() * 2]`
    pub duration_expressions: bool,
    /// `anchored`, `smoothed`
    pub extended_ranges: bool,
    /// `fill`, `fill_left`, `fill_right`
    pub fill_modifiers: bool,
    /// The extensions of MetricsQL
    pub metricsql: bool,
}

impl Default for ParseOptions {
    fn default() -> Self {
        Self::ALL
    }
}

impl ParseOptions {
    /// The complete language.
    pub const ALL: ParseOptions = ParseOptions {
        experimental_functions: true,
        duration_expressions: true,
        extended_ranges: true,
        fill_modifiers: true,
        metricsql: true,
    };

    /// The language of Prometheus 3.15 without feature flags.
    pub const PLAIN: ParseOptions = ParseOptions {
        experimental_functions: false,
        duration_expressions: true,
        extended_ranges: false,
        fill_modifiers: false,
        metricsql: false,
    };
}

/// A text that is not a valid expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: parse error: {message}")]
pub struct ParseError {
    /// Description of the error.
    pub message: String,
    /// Its position.
    pub span: Span,
    /// Its position as `line:column`.
    pub place: String,
}

/// Parses an expression and checks its types.
///
/// # Errors
/// The first syntax error.
pub fn parse(query: &str, options: ParseOptions) -> Result<Expr, ParseError> {
    let parsed = parse_until(query, options, &|| None);
    parsed.map(|parsed| parsed.expr).map_err(|fault| fault.into_error(query))
}

/// An expression with the bytes counted for its tree and its regular expressions.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    pub(crate) bytes: usize,
}

/// Reasons for a parse to fail.
#[derive(Debug)]
pub(crate) enum ParseFault {
    Parse(ParseError),
    Budget(BudgetError),
}

impl ParseFault {
    /// For callers that never stop a parser.
    fn into_error(self, query: &str) -> ParseError {
        match self {
            Self::Parse(error) => error,
            Self::Budget(error) => {
                fault_at(query, Fault { message: error.to_string(), span: Span::default() })
            }
        }
    }
}

fn fault_at(query: &str, fault: Fault) -> ParseError {
    ParseError { place: fault.span.line_column(query), message: fault.message, span: fault.span }
}

/// As [`parse`]; `stop` is called before each regular expression is compiled.
pub(crate) fn parse_until(
    query: &str,
    options: ParseOptions,
    stop: &dyn Fn() -> Option<StopReason>,
) -> Result<Parsed, ParseFault> {
    with_parser(query, (options, stop), |parser| {
        if parser.token().kind == Kind::End {
            return Err(Fault { message: "no expression found in input".to_owned(), span: Span::default() });
        }
        let expr = parser.expr(0)?;
        parser.end()?;
        check::check(&expr, query)?;
        // A copy is made for evaluation.
        let bytes = templates::parts(&expr).saturating_mul(2 * PART_BYTES) + parser.patterns.bytes();
        Ok(Parsed { expr, bytes })
    })
}

/// Parses a vector selector without modifiers, as in `match[]` parameters: its matchers, the name's last.
///
/// # Errors
/// The first syntax error, or a selector without a matcher.
pub fn parse_selector(query: &str) -> Result<Vec<Matcher>, ParseError> {
    let parsed = with_parser(query, (ParseOptions::PLAIN, &|| None), |parser| {
        let selector = parser.vector_selector()?;
        parser.end()?;
        check::check_patterns(&selector)?;
        Ok(selector.matchers)
    });
    parsed.map_err(|fault| fault.into_error(query))
}

fn with_parser<T>(
    query: &str,
    (options, stop): (ParseOptions, &dyn Fn() -> Option<StopReason>),
    parse: impl FnOnce(&mut Parser<'_>) -> Result<T, Fault>,
) -> Result<T, ParseFault> {
    if query.len() > QUERY_BYTES_MAX {
        let message = format!("query of {} bytes exceeds the limit of {QUERY_BYTES_MAX}", query.len());
        return Err(ParseFault::Parse(fault_at(query, Fault { message, span: Span::default() })));
    }
    let mut parser = Parser {
        tokens: tokens(query),
        at: 0,
        options,
        aggregations: 0,
        depth: 0,
        templates: Vec::new(),
        filled_in: 0,
        patterns: Patterns::default(),
        stop,
        stopped: None,
    };
    let result = parse(&mut parser);
    result.map_err(|fault| match parser.stopped {
        Some(stopped) => ParseFault::Budget(stopped),
        None => ParseFault::Parse(fault_at(query, fault)),
    })
}

/// A syntax error, before its line and column are known.
#[derive(Debug)]
struct Fault {
    message: String,
    span: Span,
}

fn fault<T>(span: Span, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { message: message.into(), span })
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    options: ParseOptions,
    /// Depth of enclosing aggregations: errors in them mention the aggregation.
    aggregations: usize,
    depth: usize,
    /// The names defined by `WITH`, the innermost last.
    templates: Vec<Rc<Template>>,
    /// Parts substituted for templates.
    filled_in: usize,
    patterns: Patterns,
    stop: &'a dyn Fn() -> Option<StopReason>,
    /// Why the query was stopped, if it was: the fault that ends the parser is then not about the text.
    stopped: Option<BudgetError>,
}

impl<'a> Parser<'a> {
    fn token(&self) -> &Token<'a> {
        self.peek(0)
    }

    fn peek(&self, ahead: usize) -> &Token<'a> {
        let last = self.tokens.len() - 1;
        self.tokens
            .get((self.at + ahead).min(last))
            .expect("the list of tokens always ends in one that stays")
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.token().clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&self, kind: &Kind) -> bool {
        self.token().kind == *kind
    }

    fn eat(&mut self, kind: &Kind) -> bool {
        let there = self.is(kind);
        if there {
            self.next();
        }
        there
    }

    /// End of the token read last.
    fn end_of_last(&self) -> usize {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map_or(0, |token| token.span.end)
    }

    fn unexpected<T>(&self, context: &str, expected: &str) -> Result<T, Fault> {
        let token = self.token();
        if let Kind::Error(message) = &token.kind {
            return fault(token.span, message.clone());
        }
        let mut message = format!("unexpected {}", token.describe());
        if !context.is_empty() {
            message += &format!(" in {context}");
        }
        if !expected.is_empty() {
            message += &format!(", expected {expected}");
        }
        fault(token.span, message)
    }

    /// For errors without a specific context.
    fn unexpected_here<T>(&self) -> Result<T, Fault> {
        self.unexpected(if self.aggregations > 0 { "aggregation" } else { "" }, "")
    }

    fn expect(&mut self, kind: &Kind) -> Result<Token<'a>, Fault> {
        if self.is(kind) { Ok(self.next()) } else { self.unexpected_here() }
    }

    fn end(&self) -> Result<(), Fault> {
        if self.is(&Kind::End) { Ok(()) } else { self.unexpected_here() }
    }

    /// Rejects trees higher than the limit; `more` is for trees that grow without recursion of the parser.
    fn check_depth(&self, more: usize) -> Result<(), Fault> {
        if self.depth + more > DEPTH_MAX {
            return fault(
                self.token().span,
                format!("expression is nested too deeply: the limit is {DEPTH_MAX}"),
            );
        }
        Ok(())
    }

    /// An expression whose operators bind at least as strongly as `strength`.
    fn expr(&mut self, strength: u8) -> Result<Expr, Fault> {
        self.check_depth(1)?;
        self.depth += 1;
        let result = self.binary(strength);
        self.depth -= 1;
        result
    }

    fn binary(&mut self, strength: u8) -> Result<Expr, Fault> {
        let mut left = self.unary()?;
        let mut grown = 0;
        while let Some(op) = self.operator() {
            let (binds, to_the_right) = op.precedence();
            if binds < strength {
                break;
            }
            grown += 1;
            self.check_depth(grown)?;
            self.next();
            let (bool, matching) = self.modifiers()?;
            let right = self.expr(if to_the_right { binds } else { binds + 1 })?;
            let filled = matching.fill_left.is_some() || matching.fill_right.is_some();
            let span = left.span().to(right.span());
            left = check::binary(op, left, right, bool, matching);
            if filled && !self.options.fill_modifiers {
                return fault(span, "binop fill modifiers are experimental and not enabled");
            }
        }
        Ok(left)
    }

    /// The next token as an operator.
    fn operator(&self) -> Option<BinaryOp> {
        match self.token().kind {
            Kind::Operator(op) => Some(op),
            // After an expression PromQL has no names.
            Kind::Identifier if self.options.metricsql => BinaryOp::of_metricsql(self.token().text),
            _ => None,
        }
    }

    /// True when the next token is this word of MetricsQL, at a position where PromQL has no names.
    fn is_word(&self, word: &str) -> bool {
        self.options.metricsql && self.is(&Kind::Identifier) && self.token().text.eq_ignore_ascii_case(word)
    }

    fn unary(&mut self) -> Result<Expr, Fault> {
        let negative = match self.token().kind {
            Kind::Operator(BinaryOp::Add) => false,
            Kind::Operator(BinaryOp::Sub) => true,
            _ => return self.postfix(),
        };
        let start = self.next().span;
        let (binds, _) = BinaryOp::Pow.precedence();
        let expr = self.expr(binds)?;
        let span = start.to(expr.span());
        Ok(match expr {
            Expr::Number(number) => {
                let value = if negative { -number.value } else { number.value };
                Expr::Number(Number { value, span, ..number })
            }
            expr => Expr::Unary(Box::new(Unary { negative, expr, span })),
        })
    }

    fn primary(&mut self) -> Result<Expr, Fault> {
        let token = self.token().clone();
        let followed_by = self.peek(1).kind.clone();
        match token.kind {
            Kind::Number | Kind::Duration => Ok(Expr::Number(self.number()?)),
            Kind::Text => {
                let value = self.text()?;
                Ok(Expr::Text(Text { value, span: token.span }))
            }
            Kind::LeftParen => {
                self.next();
                let expr = self.expr(0)?;
                let close = self.expect(&Kind::RightParen)?;
                Ok(Expr::Paren(Box::new(Paren { expr, span: token.span.to(close.span) })))
            }
            Kind::Aggregate(op)
                if matches!(followed_by, Kind::LeftParen | Kind::Keyword(Keyword::By | Keyword::Without)) =>
            {
                self.next();
                self.aggregations += 1;
                let result = self.aggregate(op, token.span);
                self.aggregations -= 1;
                result
            }
            Kind::Identifier if self.is_word("with") && followed_by == Kind::LeftParen => self.with(),
            Kind::Identifier | Kind::MetricIdentifier if self.template().is_some() => self.fill_in(),
            Kind::Identifier
                if matches!(followed_by, Kind::LeftParen | Kind::Keyword(Keyword::By | Keyword::Without))
                    && self.aggregation_of_metricsql().is_some() =>
            {
                let Some(op) = self.aggregation_of_metricsql() else { return self.unexpected_here() };
                self.next();
                self.aggregations += 1;
                let result = self.aggregate(op, token.span);
                self.aggregations -= 1;
                result
            }
            Kind::Identifier | Kind::Special(_) if followed_by == Kind::LeftParen => self.call(),
            _ => Ok(Expr::Selector(Box::new(self.vector_selector()?))),
        }
    }

    /// The next token as an aggregation of MetricsQL.
    fn aggregation_of_metricsql(&self) -> Option<AggregateOp> {
        AggregateOp::of_metricsql(self.token().text).filter(|_| self.options.metricsql)
    }

    fn number(&mut self) -> Result<Number, Fault> {
        let token = self.next();
        let (value, duration) = match token.kind {
            Kind::Duration => {
                let ms = text::parse_duration(token.text).or_else(|message| fault(token.span, message))?;
                (ms as f64 / 1000.0, true)
            }
            _ => {
                let is_word = token.text.starts_with(|c: char| c.is_ascii_alphabetic());
                let multiple = text::parse_multiple(token.text).filter(|_| self.options.metricsql);
                let what = match multiple.or_else(|| text::parse_number(token.text)) {
                    Some(value) if value.is_finite() || is_word => {
                        return Ok(Number { value, duration: false, span: token.span });
                    }
                    Some(_) => "value out of range",
                    None => "invalid syntax",
                };
                let number = quote(token.text);
                return fault(
                    token.span,
                    format!("error parsing number: strconv.ParseFloat: parsing {number}: {what}"),
                );
            }
        };
        Ok(Number { value, duration, span: token.span })
    }

    fn text(&mut self) -> Result<Vec<u8>, Fault> {
        let token = self.next();
        text::unquote(token.text).or_else(|message| {
            fault(token.span, format!("error unquoting string {}: {message}", quote(token.text)))
        })
    }

    /// A string for a name or a label value, which must be UTF-8.
    fn utf8(&mut self) -> Result<String, Fault> {
        let span = self.token().span;
        String::from_utf8(self.text()?).or_else(|error| {
            fault(span, format!("string {} is not valid UTF-8", quote_bytes(error.as_bytes())))
        })
    }

    fn call(&mut self) -> Result<Expr, Fault> {
        let name = self.next();
        let more = || metricsql::find(name.text).filter(|_| self.options.metricsql);
        let function = functions::find(name.text).or_else(more);
        let (args, close) = self.args()?;
        let Some(function) = function else {
            return fault(name.span, format!("unknown function with name {}", quote(name.text)));
        };
        if function.experimental && !self.options.experimental_functions {
            return fault(name.span, format!("function {} is not enabled", quote(name.text)));
        }
        let args = if self.options.metricsql { with_windows(function, args) } else { args };
        Ok(Expr::Call(Box::new(Call { function, args, keep_name: false, span: name.span.to(close) })))
    }

    fn args(&mut self) -> Result<(Vec<Expr>, Span), Fault> {
        self.expect(&Kind::LeftParen)?;
        let mut args = Vec::new();
        if self.is(&Kind::RightParen) {
            return Ok((args, self.next().span));
        }
        loop {
            args.push(self.expr(0)?);
            if !self.is(&Kind::Comma) {
                break;
            }
            let comma = self.next();
            if !self.begins_expr() && !matches!(self.token().kind, Kind::Error(_)) {
                return fault(comma.span, "trailing commas not allowed in function call args");
            }
        }
        Ok((args, self.expect(&Kind::RightParen)?.span))
    }

    fn aggregate(&mut self, op: AggregateOp, start: Span) -> Result<Expr, Fault> {
        let mut modifier = self.grouping()?;
        let (args, _) = self.args()?;
        if modifier.is_none() {
            modifier = self.grouping()?;
        }
        if matches!(self.token().kind, Kind::Error(_)) {
            return self.unexpected_here();
        }
        let (without, grouping) = modifier.unwrap_or_default();
        let span = Span { start: start.start, end: self.end_of_last() };
        if args.is_empty() {
            return fault(span, "no arguments for aggregate expression provided");
        }
        if op.experimental() && !self.options.experimental_functions {
            let message = format!(
                "{}() is experimental and must be enabled with --enable-feature=promql-experimental-functions",
                op.name()
            );
            return fault(span, message);
        }
        let (wanted, given) = (1 + usize::from(op.has_param()), args.len());
        let mut args = args.into_iter();
        let param = if op.has_param() { args.next() } else { None };
        // With several quantiles the vector comes last.
        let expr = if op == AggregateOp::Quantiles { args.next_back() } else { args.next() };
        let more: Vec<Expr> = args.collect();
        let more_max = if self.options.metricsql { op.more_max() } else { 0 };
        let (Some(expr), true) = (expr, more.len() <= more_max) else {
            let message = format!(
                "wrong number of arguments for aggregate expression provided, expected {wanted}, got {given}"
            );
            return fault(span, message);
        };
        if op == AggregateOp::Quantiles && more.is_empty() {
            return fault(span, "quantiles needs a label, quantiles and a vector");
        }
        let limit = if self.is_word("limit") { Some(self.limit()?) } else { None };
        let span = Span { start: start.start, end: self.end_of_last() };
        let aggregate = Aggregate { op, expr, param, more, grouping, without, limit, span };
        Ok(Expr::Aggregate(Box::new(aggregate)))
    }

    /// `limit 5`: maximum number of groups of an aggregation.
    fn limit(&mut self) -> Result<u64, Fault> {
        self.next();
        let span = self.token().span;
        if !self.is(&Kind::Number) {
            return self.unexpected("limit", "number");
        }
        let value = self.number()?.value;
        if value < 0.0 || value.fract() != 0.0 || value > u32::MAX.into() {
            return fault(span, "limit must be a whole number from 0");
        }
        Ok(value as u64)
    }

    /// `by (...)` or `without (...)`, if present.
    fn grouping(&mut self) -> Result<Option<(bool, Vec<String>)>, Fault> {
        let without = match self.token().kind {
            Kind::Keyword(Keyword::By) => false,
            Kind::Keyword(Keyword::Without) => true,
            _ => return Ok(None),
        };
        self.next();
        Ok(Some((without, self.labels()?)))
    }

    fn labels(&mut self) -> Result<Vec<String>, Fault> {
        if !self.eat(&Kind::LeftParen) {
            return self.unexpected("grouping opts", "\"(\"");
        }
        let mut labels = Vec::new();
        while !self.eat(&Kind::RightParen) {
            labels.push(self.label()?);
            if !self.eat(&Kind::Comma) && !self.is(&Kind::RightParen) {
                return self.unexpected("grouping opts", "\",\" or \")\"");
            }
        }
        Ok(labels)
    }

    fn label(&mut self) -> Result<String, Fault> {
        use BinaryOp::{And, Atan2, Or, Unless};
        let span = self.token().span;
        let name = match &self.token().kind {
            Kind::Text => self.utf8()?,
            Kind::Identifier
            | Kind::MetricIdentifier
            | Kind::Aggregate(_)
            | Kind::Special(_)
            | Kind::Operator(And | Or | Unless | Atan2) => self.next().text.to_owned(),
            Kind::Keyword(word) if *word != Keyword::Without => self.next().text.to_owned(),
            _ => return self.unexpected("grouping opts", "label"),
        };
        if name.is_empty() {
            return fault(span, "invalid label name for grouping: \"\"");
        }
        Ok(name)
    }

    /// The modifiers between an operator and its right side.
    fn modifiers(&mut self) -> Result<(bool, Matching), Fault> {
        let mut matching = Matching {
            card: Cardinality::OneToOne,
            labels: Vec::new(),
            on: false,
            include: Vec::new(),
            fill_left: None,
            fill_right: None,
        };
        let bool = self.eat(&Kind::Keyword(Keyword::Bool));
        if let Kind::Keyword(word @ (Keyword::On | Keyword::Ignoring)) = self.token().kind {
            self.next();
            matching.on = word == Keyword::On;
            matching.labels = self.labels()?;
            if let Kind::Keyword(word @ (Keyword::GroupLeft | Keyword::GroupRight)) = self.token().kind {
                self.next();
                matching.card =
                    if word == Keyword::GroupLeft { Cardinality::ManyToOne } else { Cardinality::OneToMany };
                if self.is(&Kind::LeftParen) || !self.begins_expr() {
                    matching.include = self.labels()?;
                }
            }
        }
        match self.token().kind {
            Kind::Keyword(Keyword::Fill) => {
                let value = self.fill()?;
                (matching.fill_left, matching.fill_right) = (Some(value), Some(value));
            }
            Kind::Keyword(first @ (Keyword::FillLeft | Keyword::FillRight)) => {
                let value = self.fill()?;
                let other = if first == Keyword::FillLeft { Keyword::FillRight } else { Keyword::FillLeft };
                let second = if self.is(&Kind::Keyword(other)) { Some(self.fill()?) } else { None };
                (matching.fill_left, matching.fill_right) =
                    if first == Keyword::FillLeft { (Some(value), second) } else { (second, Some(value)) };
            }
            _ => {}
        }
        Ok((bool, matching))
    }

    fn fill(&mut self) -> Result<f64, Fault> {
        self.next();
        self.expect(&Kind::LeftParen)?;
        let negative = self.is(&Kind::Operator(BinaryOp::Sub));
        if negative || self.is(&Kind::Operator(BinaryOp::Add)) {
            self.next();
        }
        if !matches!(self.token().kind, Kind::Number | Kind::Duration) {
            return self.unexpected_here();
        }
        let value = self.number()?.value;
        self.expect(&Kind::RightParen)?;
        Ok(if negative { -value } else { value })
    }

    /// True when the next token can begin an expression.
    fn begins_expr(&self) -> bool {
        use BinaryOp::{Add, And, Or, Sub, Unless};
        match self.token().kind {
            Kind::Number
            | Kind::Duration
            | Kind::Text
            | Kind::LeftParen
            | Kind::LeftBrace
            | Kind::Identifier
            | Kind::MetricIdentifier
            | Kind::Aggregate(_)
            | Kind::Special(_)
            | Kind::Operator(Add | Sub | And | Or | Unless) => true,
            Kind::Keyword(word) => !matches!(
                word,
                Keyword::On | Keyword::Ignoring | Keyword::GroupLeft | Keyword::GroupRight | Keyword::Bool
            ),
            _ => false,
        }
    }
}

/// Adds an implicit range to selectors where a function needs one and none is written.
fn with_windows(function: &functions::Function, args: Vec<Expr>) -> Vec<Expr> {
    let wants_range =
        |index: usize| function.args.get(index).or(function.args.last()) == Some(&ValueType::Matrix);
    let widen = |(index, arg): (usize, Expr)| match arg {
        Expr::Selector(selector) if wants_range(index) => {
            let span = selector.span;
            let window = DurationExpr { kind: DurationKind::Window, wrapped: false, span };
            let range = Duration::Expr(Box::new(window));
            Expr::Matrix(Box::new(Matrix { selector: *selector, range, span }))
        }
        arg => arg,
    };
    args.into_iter().enumerate().map(widen).collect()
}
