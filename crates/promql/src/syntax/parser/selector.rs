//! Vector selectors and postfix modifiers: `[range]`, `[range:step]`, `offset`, `@`, `anchored`, `smoothed`.

use ropewalk_labels::{METRIC_NAME, MatchOp, Matcher};

use super::Fault;
use super::Parser;
use super::fault;
use crate::budget::BudgetError;
use crate::data::patterns::PatternError;
use crate::syntax::ast::*;
use crate::syntax::lexer::{Keyword, Kind, Special};
use crate::syntax::position::Span;

const NO_OFFSET_HERE: &str =
    "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery";
const NO_AT_HERE: &str =
    "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery";

impl Parser<'_> {
    pub(super) fn vector_selector(&mut self) -> Result<Selector, Fault> {
        use BinaryOp::{And, Or, Unless};
        let start = self.token().span;
        let name = match self.token().kind {
            Kind::Identifier
            | Kind::MetricIdentifier
            | Kind::Aggregate(_)
            | Kind::Special(_)
            | Kind::Operator(And | Or | Unless)
            | Kind::Keyword(
                Keyword::By
                | Keyword::Without
                | Keyword::Offset
                | Keyword::Anchored
                | Keyword::Smoothed
                | Keyword::Fill
                | Keyword::FillLeft
                | Keyword::FillRight,
            ) => self.next().text.to_owned(),
            Kind::LeftBrace => String::new(),
            _ => return self.unexpected_here(),
        };
        let mut lists = if self.is(&Kind::LeftBrace) { self.conditions()? } else { vec![Vec::new()] };
        if !name.is_empty() {
            lists.iter_mut().for_each(|list| list.push(Matcher::equal(METRIC_NAME, name.clone())));
        }
        let mut lists = lists.into_iter();
        let matchers = lists.next().unwrap_or_default();
        let span = Span { start: start.start, end: self.end_of_last() };
        Ok(Selector {
            name,
            matchers,
            others: lists.collect(),
            offset: Duration::NONE,
            at: None,
            edges: RangeEdges::Plain,
            totals: false,
            span,
        })
    }

    /// The content of braces: one or more lists of matchers.
    fn conditions(&mut self) -> Result<Vec<Vec<Matcher>>, Fault> {
        self.next();
        let (mut lists, mut list) = (Vec::new(), Vec::new());
        while !self.eat(&Kind::RightBrace) {
            match self.conditions_by_name()? {
                Some(conditions) => list.extend(conditions),
                None => list.push(self.matcher()?),
            }
            if self.is_word("or") {
                self.next();
                lists.push(std::mem::take(&mut list));
                if self.is(&Kind::RightBrace) {
                    return self.unexpected("label matching", "identifier");
                }
            } else if !self.eat(&Kind::Comma) && !self.is(&Kind::RightBrace) {
                return self.unexpected("label matching", "\",\" or \"}\"");
            }
        }
        lists.push(list);
        Ok(lists)
    }

    /// The matchers of a template that is named in braces.
    fn conditions_by_name(&mut self) -> Result<Option<Vec<Matcher>>, Fault> {
        if !self.is(&Kind::Identifier)
            || matches!(
                self.peek(1).kind,
                Kind::Assign | Kind::Match | Kind::NotMatch | Kind::Operator(BinaryOp::NotEqual)
            )
        {
            return Ok(None);
        }
        let conditions = self.conditions_of_template()?;
        if conditions.is_some() {
            self.next();
        }
        Ok(conditions)
    }

    /// A selector from a template, and the matchers in braces after its name.
    pub(super) fn more_conditions(&mut self, mut selector: Selector) -> Result<Selector, Fault> {
        let open = self.token().span;
        let lists = self.conditions()?;
        let ([list], true) = (lists.as_slice(), selector.others.is_empty()) else {
            return fault(open, "conditions joined by \"or\" cannot be joined with others");
        };
        // The name's matcher stays the last.
        let at = selector.matchers.len() - usize::from(!selector.name.is_empty());
        selector.matchers.splice(at..at, list.iter().cloned());
        Ok(selector)
    }

    fn matcher(&mut self) -> Result<Matcher, Fault> {
        let start = self.token().span;
        let (name, quoted) = match self.token().kind {
            Kind::Identifier => (self.next().text.to_owned(), false),
            Kind::Text => (self.utf8()?, true),
            _ => return self.unexpected("label matching", "identifier or \"}\""),
        };
        let op = match self.token().kind {
            Kind::Assign => MatchOp::Equal,
            Kind::Operator(BinaryOp::NotEqual) => MatchOp::NotEqual,
            Kind::Match => MatchOp::Regex,
            Kind::NotMatch => MatchOp::NotRegex,
            // A quoted name alone is the metric's.
            _ if quoted => return Ok(Matcher::equal(METRIC_NAME, name)),
            _ => return self.unexpected("label matching", "label matching operator"),
        };
        self.next();
        let span = start.to(self.token().span);
        if name.is_empty() {
            return fault(span, "the label name is empty");
        }
        let value = match self.text_of_template()? {
            Some(text) => {
                self.next();
                String::from_utf8(text).or_else(|_| fault(span, "the value of a label is not valid UTF-8"))?
            }
            None if self.is(&Kind::Text) => self.utf8()?,
            None => return self.unexpected("label matching", "string"),
        };
        self.patterns.matcher((name, op, value), self.stop).or_else(|error| {
            let message = error.to_string();
            if let PatternError::Budget(stopped @ (BudgetError::Cancelled | BudgetError::TimedOut)) = error {
                self.stopped = Some(stopped);
            }
            fault(span, message)
        })
    }

    pub(super) fn postfix(&mut self) -> Result<Expr, Fault> {
        let mut expr = self.primary()?;
        let mut grown = 0;
        loop {
            grown += 1;
            self.check_depth(grown)?;
            match self.token().kind {
                Kind::LeftBracket => expr = self.brackets(expr)?,
                Kind::Keyword(Keyword::Offset) => self.offset(&mut expr)?,
                Kind::AtModifier => self.at_modifier(&mut expr)?,
                Kind::Keyword(Keyword::Anchored) => self.edges(&mut expr, RangeEdges::Anchored)?,
                Kind::Keyword(Keyword::Smoothed) => self.edges(&mut expr, RangeEdges::Smoothed)?,
                Kind::Identifier if self.is_word("keep_metric_names") => self.keep_name(&mut expr)?,
                _ => return Ok(expr),
            }
        }
    }

    fn brackets(&mut self, expr: Expr) -> Result<Expr, Fault> {
        let open = self.next().span;
        let range =
            self.positive_duration("subquery or range selector", "number, duration, step(), or range()")?;
        if self.eat(&Kind::Colon) {
            let step = if self.is(&Kind::RightBracket) {
                Duration::NONE
            } else {
                self.positive_duration("subquery selector", "number, duration, step(), range(), or \"]\"")?
            };
            if !self.is(&Kind::RightBracket) {
                return self.unexpected("subquery selector", "\"]\"");
            }
            let span = expr.span().to(self.next().span);
            return Ok(Expr::Subquery(Box::new(Subquery {
                expr,
                range,
                step,
                offset: Duration::NONE,
                at: None,
                span,
            })));
        }
        if !self.is(&Kind::RightBracket) {
            return self.unexpected("subquery or range", "\":\" or \"]\"");
        }
        let close = self.next().span;
        let Expr::Selector(selector) = expr else {
            return fault(open.to(close), "ranges only allowed for vector selectors");
        };
        if selector.offset != Duration::NONE {
            return fault(open.to(close), "no offset modifiers allowed before range");
        }
        if selector.at.is_some() {
            return fault(open.to(close), "no @ modifiers allowed before range");
        }
        let span = selector.span.to(close);
        Ok(Expr::Matrix(Box::new(Matrix { selector: *selector, range, span })))
    }

    /// `keep_metric_names` after a function, or an operator in parentheses.
    fn keep_name(&mut self, expr: &mut Expr) -> Result<(), Fault> {
        let word = self.next().span;
        let keep_name = match expr {
            Expr::Call(call) => &mut call.keep_name,
            Expr::Paren(paren) if matches!(paren.expr, Expr::Binary(_)) => match &mut paren.expr {
                Expr::Binary(binary) => &mut binary.keep_name,
                _ => return self.unexpected_here(),
            },
            _ => {
                return fault(
                    word,
                    "keep_metric_names belongs after a function, or an operator in parentheses",
                );
            }
        };
        *keep_name = true;
        Ok(())
    }

    /// Wraps an expression that may be evaluated at other times, where only MetricsQL allows that.
    fn shift(&self, expr: &mut Expr) {
        if self.options.metricsql
            && matches!(expr, Expr::Aggregate(_) | Expr::Call(_) | Expr::Paren(_))
            && expr.value_type() == ValueType::Vector
        {
            let span = expr.span();
            let inner = std::mem::replace(expr, Expr::Text(Text { value: Vec::new(), span }));
            let shifted = WithOffset { expr: inner, offset: Duration::NONE, at: None, span };
            *expr = Expr::WithOffset(Box::new(shifted));
        }
    }

    fn offset(&mut self, expr: &mut Expr) -> Result<(), Fault> {
        self.next();
        let wanted = self.offset_duration()?;
        self.shift(expr);
        let (end, whole) = (self.end_of_last(), expr.span());
        let (offset, span) = match expr {
            Expr::Selector(e) => (&mut e.offset, &mut e.span),
            Expr::Matrix(e) => (&mut e.selector.offset, &mut e.span),
            Expr::Subquery(e) => (&mut e.offset, &mut e.span),
            Expr::WithOffset(e) => (&mut e.offset, &mut e.span),
            _ => return fault(whole, NO_OFFSET_HERE),
        };
        if *offset != Duration::NONE {
            return fault(whole, "offset may not be set multiple times");
        }
        *offset = wanted;
        span.end = end;
        Ok(())
    }

    fn at_modifier(&mut self, expr: &mut Expr) -> Result<(), Fault> {
        self.next();
        let wanted = if let Kind::Special(word @ (Special::Start | Special::End)) = self.token().kind {
            self.next();
            for paren in [Kind::LeftParen, Kind::RightParen] {
                if !self.eat(&paren) {
                    return self.unexpected("@", "timestamp");
                }
            }
            if word == Special::Start { AtModifier::Start } else { AtModifier::End }
        } else {
            let negative = self.is(&Kind::Operator(BinaryOp::Sub));
            if negative || self.is(&Kind::Operator(BinaryOp::Add)) {
                self.next();
            }
            if !matches!(self.token().kind, Kind::Number | Kind::Duration) {
                return self.unexpected("@", "timestamp");
            }
            let value = self.number()?.value;
            let seconds = if negative { -value } else { value };
            if !seconds.is_finite() || seconds.abs() >= i64::MAX as f64 {
                return fault(
                    expr.span(),
                    format!("timestamp out of bounds for @ modifier: {}", fixed(seconds)),
                );
            }
            AtModifier::Time((seconds * 1000.0).round() as i64)
        };
        self.shift(expr);
        let (end, whole) = (self.end_of_last(), expr.span());
        let (at, span) = match expr {
            Expr::Selector(e) => (&mut e.at, &mut e.span),
            Expr::Matrix(e) => (&mut e.selector.at, &mut e.span),
            Expr::Subquery(e) => (&mut e.at, &mut e.span),
            Expr::WithOffset(e) => (&mut e.at, &mut e.span),
            _ => return fault(whole, NO_AT_HERE),
        };
        if at.is_some() {
            return fault(whole, "@ <timestamp> may not be set multiple times");
        }
        *at = Some(wanted);
        span.end = end;
        Ok(())
    }

    fn edges(&mut self, expr: &mut Expr, wanted: RangeEdges) -> Result<(), Fault> {
        let word = self.next().text.to_ascii_lowercase();
        let whole = expr.span();
        if !self.options.extended_ranges {
            return fault(whole, format!("{word} modifier is experimental and not enabled"));
        }
        let edges = match expr {
            Expr::Selector(e) => &mut e.edges,
            Expr::Matrix(e) => &mut e.selector.edges,
            Expr::Subquery(_) => {
                return fault(whole, format!("{word} modifier is not supported for subqueries"));
            }
            _ => return fault(whole, format!("{word} modifier not implemented")),
        };
        if *edges != RangeEdges::Plain && *edges != wanted {
            return fault(whole, "anchored and smoothed modifiers cannot be used together");
        }
        *edges = wanted;
        Ok(())
    }
}

/// Six decimals, as `%f`.
fn fixed(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { crate::data::text::float(value) }
}
