//! `WITH (name = expression, name(a, b) = expression) expression`: named expressions.
//!
//! A definition can use those before it and those of enclosing scopes. One without parameters is parsed
//! immediately; the tokens of one with parameters are parsed at each use, when its arguments are known. The
//! expression replaces the name in the tree, in parentheses where needed. The size of the expansion is
//! limited.

use std::rc::Rc;

use ropewalk_labels::Matcher;
use ropewalk_labels::text::quote;

use super::Fault;
use super::Parser;
use super::fault;
use crate::syntax::ast::*;
use crate::syntax::lexer::Kind;
use crate::syntax::position::Span;

/// Limit of parts that templates add to a tree: its nodes, matchers, labels, and chunks of its strings.
const FILLED_IN_MAX: usize = 20_000;
/// Bytes of a string that count as one part.
const TEXT_PIECE: usize = 64;
/// Limit of the names in scope.
const TEMPLATES_MAX: usize = 1_000;

/// A named expression.
#[derive(Debug)]
pub(super) struct Template {
    name: String,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Expr(Expr),
    /// Parameters, first token, and how many templates are visible to the definition.
    Tokens(Vec<String>, usize, usize),
}

impl Parser<'_> {
    /// The template that the next token names, if it is used as one: with arguments if it has parameters.
    pub(super) fn template(&self) -> Option<Rc<Template>> {
        let found = self.templates.iter().rev().find(|template| template.name == self.token().text)?;
        let called = self.peek(1).kind == Kind::LeftParen;
        (called == matches!(found.body, Body::Tokens(..))).then(|| Rc::clone(found))
    }

    /// `WITH (…) expression`
    pub(super) fn with(&mut self) -> Result<Expr, Fault> {
        self.next();
        self.expect(&Kind::LeftParen)?;
        let outside = self.templates.len();
        while !self.is(&Kind::RightParen) {
            self.definition()?;
            if !self.is(&Kind::RightParen) && !self.eat(&Kind::Comma) {
                return self.unexpected("WITH", "\",\" or \")\"");
            }
        }
        self.next();
        let result = self.expr(0);
        self.templates.truncate(outside);
        result
    }

    fn definition(&mut self) -> Result<(), Fault> {
        let token = self.next();
        if !matches!(token.kind, Kind::Identifier | Kind::MetricIdentifier) {
            return fault(token.span, format!("unexpected {} in WITH, expected name", token.describe()));
        }
        let mut params = Vec::new();
        let has_params = self.eat(&Kind::LeftParen);
        while has_params && !self.eat(&Kind::RightParen) {
            let param = self.next();
            if param.kind != Kind::Identifier {
                return fault(param.span, format!("unexpected {} in WITH, expected name", param.describe()));
            }
            if params.iter().any(|known| known == param.text) {
                return fault(param.span, format!("name {} is given twice", quote(param.text)));
            }
            params.push(param.text.to_owned());
            if !self.is(&Kind::RightParen) && !self.eat(&Kind::Comma) {
                return self.unexpected("WITH", "\",\" or \")\"");
            }
        }
        if !self.eat(&Kind::Assign) {
            return self.unexpected("WITH", "\"=\"");
        }
        let body = if has_params {
            let first = self.at;
            self.skip_body()?;
            Body::Tokens(params, first, self.templates.len())
        } else {
            Body::Expr(self.expr(0)?)
        };
        if self.templates.len() >= TEMPLATES_MAX {
            return fault(token.span, format!("too many names in WITH: the limit is {TEMPLATES_MAX}"));
        }
        self.templates.push(Rc::new(Template { name: token.text.to_owned(), body }));
        Ok(())
    }

    /// Skips to the comma or parenthesis after an expression.
    fn skip_body(&mut self) -> Result<(), Fault> {
        let mut open = 0usize;
        loop {
            match self.token().kind {
                Kind::End | Kind::Error(_) => return self.unexpected("WITH", ""),
                Kind::Comma | Kind::RightParen if open == 0 => return Ok(()),
                Kind::LeftParen | Kind::LeftBrace | Kind::LeftBracket => open += 1,
                Kind::RightParen | Kind::RightBrace | Kind::RightBracket => open = open.saturating_sub(1),
                _ => {}
            }
            self.next();
        }
    }

    /// The expression of the template that is named next.
    pub(super) fn fill_in(&mut self) -> Result<Expr, Fault> {
        let Some(template) = self.template() else { return self.unexpected_here() };
        let token = self.next();
        let expr = match &template.body {
            Body::Expr(expr) => {
                self.count(parts(expr), token.span)?;
                expr.clone()
            }
            Body::Tokens(params, first, seen) => {
                self.call_template(&template, params, (*first, *seen), token.span)?
            }
        };
        self.check_depth(height(&expr))?;
        let span = expr.span();
        let expr = match expr {
            Expr::Selector(selector) if self.is(&Kind::LeftBrace) => {
                return Ok(Expr::Selector(Box::new(self.more_conditions(*selector)?)));
            }
            // Without parentheses its parts would belong to the operators around it.
            expr @ (Expr::Binary(_) | Expr::Unary(_)) => Expr::Paren(Box::new(Paren { expr, span })),
            expr => expr,
        };
        Ok(expr)
    }

    fn call_template(
        &mut self,
        template: &Template,
        params: &[String],
        (first, seen): (usize, usize),
        span: Span,
    ) -> Result<Expr, Fault> {
        let (args, close) = self.args()?;
        if args.len() != params.len() {
            let (name, wanted, given) = (quote(&template.name), params.len(), args.len());
            let message = format!("expected {wanted} argument(s) in call to {name}, got {given}");
            return fault(span.to(close), message);
        }
        let behind = self.at;
        let bound = params
            .iter()
            .zip(args)
            .map(|(name, arg)| Rc::new(Template { name: name.clone(), body: Body::Expr(arg) }));
        let within: Vec<_> = self.templates.iter().take(seen).cloned().chain(bound).collect();
        let outside = std::mem::replace(&mut self.templates, within);
        self.at = first;
        let mut result = self.expr(0);
        if result.is_ok() && !matches!(self.token().kind, Kind::Comma | Kind::RightParen) {
            result = self.unexpected("WITH", "\",\" or \")\"");
        }
        let read = self.at.saturating_sub(first);
        self.templates = outside;
        self.at = behind;
        let expr = result?;
        // Tokens cost time even without a result, and strings cost more than their tokens.
        self.count(read.max(parts(&expr)), span)?;
        Ok(expr)
    }

    /// Limits the expansion of a short text by templates.
    fn count(&mut self, parts: usize, span: Span) -> Result<(), Fault> {
        self.filled_in += parts;
        if self.filled_in > FILLED_IN_MAX {
            return fault(span, format!("templates stand for too much: the limit is {FILLED_IN_MAX} parts"));
        }
        Ok(())
    }

    /// The matchers of a template that is named within braces.
    pub(super) fn conditions_of_template(&mut self) -> Result<Option<Vec<Matcher>>, Fault> {
        let Some(template) = self.template_of_any_kind() else { return Ok(None) };
        match &template.body {
            Body::Expr(Expr::Selector(selector)) if selector.others.is_empty() => {
                self.count(parts_of_matchers(&selector.matchers), self.token().span)?;
                Ok(Some(selector.matchers.clone()))
            }
            _ => Ok(None),
        }
    }

    /// The string of a template that is named as a matcher's value.
    pub(super) fn text_of_template(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if !self.is(&Kind::Identifier) {
            return Ok(None);
        }
        let Some(template) = self.template_of_any_kind() else { return Ok(None) };
        match &template.body {
            Body::Expr(expr @ Expr::Text(text)) => {
                self.count(parts(expr), self.token().span)?;
                Ok(Some(text.value.clone()))
            }
            _ => Ok(None),
        }
    }

    fn template_of_any_kind(&self) -> Option<Rc<Template>> {
        self.templates.iter().rev().find(|template| template.name == self.token().text).map(Rc::clone)
    }
}

/// The number of parts of an expression, all of which a copy duplicates.
pub(super) fn parts(expr: &Expr) -> usize {
    let own = match expr {
        Expr::Text(text) => text.value.len() / TEXT_PIECE,
        Expr::Selector(e) => parts_of_selector(e),
        Expr::Matrix(e) => parts_of_selector(&e.selector) + parts_of_duration(&e.range),
        Expr::Subquery(e) => [&e.range, &e.step, &e.offset].into_iter().map(parts_of_duration).sum(),
        Expr::WithOffset(e) => parts_of_duration(&e.offset),
        Expr::Aggregate(e) => parts_of_labels(&e.grouping),
        Expr::Binary(e) => e
            .matching
            .as_ref()
            .map_or(0, |matching| parts_of_labels(&matching.labels) + parts_of_labels(&matching.include)),
        _ => 0,
    };
    1 + own + expr.children().into_iter().map(parts).sum::<usize>()
}

fn parts_of_selector(selector: &Selector) -> usize {
    let lists = selector.others.iter().chain([&selector.matchers]);
    lists.map(|list| 1 + parts_of_matchers(list)).sum::<usize>() + parts_of_duration(&selector.offset)
}

fn parts_of_duration(duration: &Duration) -> usize {
    fn parts(expr: &DurationExpr) -> usize {
        match &expr.kind {
            DurationKind::Number(_) | DurationKind::Step | DurationKind::Range | DurationKind::Window => 1,
            DurationKind::Negative(one) => 1 + parts(one),
            DurationKind::Binary(_, one, other)
            | DurationKind::MinOf(one, other)
            | DurationKind::MaxOf(one, other) => 1 + parts(one) + parts(other),
        }
    }
    match duration {
        Duration::Fixed(_) => 0,
        Duration::Expr(expr) => parts(expr),
    }
}

fn parts_of_matchers(matchers: &[Matcher]) -> usize {
    matchers.iter().map(|m| 1 + (m.name().len() + m.value().len()) / TEXT_PIECE).sum()
}

fn parts_of_labels(labels: &[String]) -> usize {
    labels.iter().map(|label| 1 + label.len() / TEXT_PIECE).sum()
}

fn height(expr: &Expr) -> usize {
    1 + expr.children().into_iter().map(height).max().unwrap_or(0)
}
