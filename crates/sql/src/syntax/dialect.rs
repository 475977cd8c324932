//! PostgreSQL's dialect for the parser, with a limit on backtracking.
//!
//! Where a word may begin an expression in two ways the parser tries one, and backtracks to the other when
//! that fails. Each nesting level doubles the attempts: a syntax error within twenty nested calls would
//! occupy a thread for seconds, within forty practically forever. So each expression that the parser begins
//! is counted, with a limit in proportion to the length of the text.

use std::any::{Any, TypeId};
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Number of expressions that any text may begin, and the additional number for each of its tokens.
const BEGUN: usize = 20_000;
const BEGUN_EACH: usize = 8;

/// The dialect for one text.
#[derive(Debug)]
pub(crate) struct Bounded {
    left: AtomicUsize,
    has_named_arguments: bool,
}

impl Bounded {
    /// The dialect for a text with these tokens.
    pub(crate) fn of(tokens: &[TokenWithSpan]) -> Self {
        let left = AtomicUsize::new(BEGUN + BEGUN_EACH * tokens.len());
        let has_named_arguments = tokens.iter().any(|token| match &token.token {
            Token::RArrow | Token::Assignment | Token::Colon => true,
            Token::Word(word) => word.keyword == Keyword::VALUE,
            _ => false,
        });
        Self { left, has_named_arguments }
    }

    /// True when a text was rejected because of its attempts.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

/// Forwards methods to PostgreSQL's dialect: all that it does not leave to the defaults.
macro_rules! as_postgres {
    ($($name:ident($($argument:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $out {
            PostgreSqlDialect {}.$name($($argument),*)
        })*
    };
}

/// `x BETWEEN a AND b` unchanged, or as `x BETWEEN a AND b OR x BETWEEN b AND a`.
fn both_ways(between: Expr, is_symmetric: bool, negated: bool) -> Expr {
    let mut all = between;
    if let (true, Expr::Between { expr, negated: false, low, high }) = (is_symmetric, &all) {
        let turned =
            Expr::Between { expr: expr.clone(), negated: false, low: high.clone(), high: low.clone() };
        all = Expr::BinaryOp { left: Box::new(all), op: BinaryOperator::Or, right: Box::new(turned) };
    }
    let all = Expr::Nested(Box::new(all));
    if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(all) } } else { all }
}

/// True for the word ISNULL, which the parser does not know as a keyword.
fn is_isnull(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("isnull"))
}

impl Dialect for Bounded {
    fn dialect(&self) -> TypeId {
        PostgreSqlDialect {}.type_id()
    }

    /// Counts attempts, and parses operators before their operand: the parser lets `-` bind looser than `^`, and `~`, `@`,
    /// `|/` and `||/` closer than `+`.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let left = self.left.load(Ordering::Relaxed).saturating_sub(1);
        self.left.store(left, Ordering::Relaxed);
        if left == 0 {
            return Some(Err(ParserError::RecursionLimitExceeded));
        }
        let (op, binding) = match parser.peek_token_ref().token {
            Token::Minus => (UnaryOperator::Minus, Precedence::AtTz),
            Token::Plus => (UnaryOperator::Plus, Precedence::AtTz),
            Token::Tilde => (UnaryOperator::BitwiseNot, Precedence::PgOther),
            Token::AtSign => (UnaryOperator::PGAbs, Precedence::PgOther),
            Token::PGSquareRoot => (UnaryOperator::PGSquareRoot, Precedence::PgOther),
            Token::PGCubeRoot => (UnaryOperator::PGCubeRoot, Precedence::PgOther),
            _ => return None,
        };
        parser.next_token();
        let operand = parser.parse_subexpr(self.prec_value(binding));
        Some(operand.map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }))
    }

    /// Adds ISNULL, and `~` and its variants, which the parser lets bind as `=` does.
    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk => Some(Ok(self.prec_value(Precedence::PgOther))),
            token if is_isnull(token) => Some(Ok(self.prec_value(Precedence::Is))),
            _ => PostgreSqlDialect {}.get_next_precedence(parser),
        }
    }

    /// Parses BETWEEN SYMMETRIC and ISNULL, which the parser does not know, and IS DISTINCT FROM, whose right side it reads
    /// beyond AND and OR.
    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        expr: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        use Keyword::{ASYMMETRIC, BETWEEN, DISTINCT, FROM, IS, NOT, SYMMETRIC};
        for (negated, words) in [(false, &[IS, DISTINCT, FROM][..]), (true, &[IS, NOT, DISTINCT, FROM])] {
            if parser.parse_keywords(words) {
                let (left, right) =
                    (Box::new(expr.clone()), parser.parse_subexpr(self.prec_value(Precedence::Is)));
                let whole = if negated { Expr::IsNotDistinctFrom } else { Expr::IsDistinctFrom };
                return Some(right.map(|right| whole(left, Box::new(right))));
            }
        }
        if is_isnull(&parser.peek_token_ref().token) {
            parser.next_token();
            return Some(Ok(Expr::IsNull(Box::new(expr.clone()))));
        }
        for (negated, is_symmetric, words) in [
            (false, true, &[BETWEEN, SYMMETRIC][..]),
            (true, true, &[NOT, BETWEEN, SYMMETRIC]),
            (false, false, &[BETWEEN, ASYMMETRIC]),
            (true, false, &[NOT, BETWEEN, ASYMMETRIC]),
        ] {
            if parser.parse_keywords(words) {
                let between = parser.parse_between(expr.clone(), false);
                return Some(between.map(|between| both_ways(between, is_symmetric, negated)));
            }
        }
        None
    }

    /// When true the parser reads each argument twice, so it is true only for texts with named arguments.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        self.has_named_arguments
    }

    as_postgres! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_reserved_for_identifier(kw: Keyword) -> bool;
        is_custom_operator_part(ch: char) -> bool;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(prec: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}
