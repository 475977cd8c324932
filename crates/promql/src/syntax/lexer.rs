//! Splits text into tokens. Three modes, switched by brackets: outside, inside braces (keywords are names
//! there), inside square brackets (only durations and arithmetic).
//!
//! All tokens are created at once; invalid text ends in one [`Kind::Error`] token, which the parser reports
//! when it gets there. Comments and white space are dropped.

use ropewalk_labels::text::quote;

use crate::syntax::ast::{AggregateOp, BinaryOp};
use crate::syntax::position::Span;

/// Limit of tokens of a query: a tree takes hundreds of bytes for each.
const TOKENS_MAX: usize = 50_000;

/// Kind of a token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    End,
    Error(String),
    Identifier,
    /// A name with a colon, which can only be a metric.
    MetricIdentifier,
    Text,
    Number,
    Duration,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    Comma,
    Colon,
    /// `=`
    Assign,
    /// `=~`
    Match,
    /// `!~`
    NotMatch,
    AtModifier,
    Operator(BinaryOp),
    Aggregate(AggregateOp),
    Keyword(Keyword),
    Special(Special),
}

/// Keywords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keyword {
    Offset,
    Smoothed,
    Anchored,
    By,
    Without,
    On,
    Ignoring,
    GroupLeft,
    GroupRight,
    Fill,
    FillLeft,
    FillRight,
    Bool,
}

/// Words that are calculations when parentheses follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    Start,
    End,
    Step,
    Range,
    MaxOf,
    MinOf,
}

/// A token and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) span: Span,
}

impl Token<'_> {
    /// The token's name in errors.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::End => "end of input".to_owned(),
            Kind::Error(message) => message.clone(),
            Kind::Identifier => format!("identifier {}", quote(self.text)),
            Kind::MetricIdentifier => format!("metric identifier {}", quote(self.text)),
            Kind::Text => format!("string {}", self.short()),
            Kind::Number => format!("number {}", self.short()),
            Kind::Duration => format!("duration {}", self.short()),
            Kind::Keyword(_) => format!("<{}>", self.text),
            Kind::Operator(_) | Kind::Match | Kind::NotMatch | Kind::AtModifier => {
                format!("<op:{}>", self.text)
            }
            Kind::Aggregate(_) => format!("<aggr:{}>", self.text),
            _ => self.short(),
        }
    }

    fn short(&self) -> String {
        if self.text.len() <= 10 {
            return quote(self.text);
        }
        let head: String = self.text.chars().take(10).collect();
        format!("{}...", quote(&head))
    }
}

fn word(text: &str) -> Option<Kind> {
    use AggregateOp as A;
    use Keyword as K;
    Some(match text.to_ascii_lowercase().as_str() {
        "and" => Kind::Operator(BinaryOp::And),
        "or" => Kind::Operator(BinaryOp::Or),
        "unless" => Kind::Operator(BinaryOp::Unless),
        "atan2" => Kind::Operator(BinaryOp::Atan2),
        "sum" => Kind::Aggregate(A::Sum),
        "avg" => Kind::Aggregate(A::Avg),
        "count" => Kind::Aggregate(A::Count),
        "min" => Kind::Aggregate(A::Min),
        "max" => Kind::Aggregate(A::Max),
        "group" => Kind::Aggregate(A::Group),
        "stddev" => Kind::Aggregate(A::Stddev),
        "stdvar" => Kind::Aggregate(A::Stdvar),
        "topk" => Kind::Aggregate(A::Topk),
        "bottomk" => Kind::Aggregate(A::Bottomk),
        "count_values" => Kind::Aggregate(A::CountValues),
        "quantile" => Kind::Aggregate(A::Quantile),
        "limitk" => Kind::Aggregate(A::Limitk),
        "limit_ratio" => Kind::Aggregate(A::LimitRatio),
        "offset" => Kind::Keyword(K::Offset),
        "smoothed" => Kind::Keyword(K::Smoothed),
        "anchored" => Kind::Keyword(K::Anchored),
        "by" => Kind::Keyword(K::By),
        "without" => Kind::Keyword(K::Without),
        "on" => Kind::Keyword(K::On),
        "ignoring" => Kind::Keyword(K::Ignoring),
        "group_left" => Kind::Keyword(K::GroupLeft),
        "group_right" => Kind::Keyword(K::GroupRight),
        "fill" => Kind::Keyword(K::Fill),
        "fill_left" => Kind::Keyword(K::FillLeft),
        "fill_right" => Kind::Keyword(K::FillRight),
        "bool" => Kind::Keyword(K::Bool),
        "inf" | "nan" => Kind::Number,
        other => Kind::Special(special(other)?),
    })
}

fn special(lower: &str) -> Option<Special> {
    Some(match lower {
        "start" => Special::Start,
        "end" => Special::End,
        "step" => Special::Step,
        "range" => Special::Range,
        "max_of" => Special::MaxOf,
        "min_of" => Special::MinOf,
        _ => return None,
    })
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

fn is_alpha(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn is_alphanumeric(c: char) -> bool {
    is_alpha(c) || c.is_ascii_digit()
}

/// All tokens of `query`; the last is [`Kind::End`] or [`Kind::Error`].
pub(crate) fn tokens(query: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer {
        query,
        at: 0,
        start: 0,
        tokens: Vec::new(),
        parens: 0,
        brace: false,
        bracket: false,
        colon: false,
        duration: false,
        calculates: false,
    };
    let end = loop {
        if lexer.tokens.len() >= TOKENS_MAX {
            break Kind::Error(format!("the query has too many parts: the limit is {TOKENS_MAX} tokens"));
        }
        match lexer.next_token() {
            Ok(true) => {}
            Ok(false) => break Kind::End,
            Err(message) => break Kind::Error(message),
        }
    };
    let span = Span { start: lexer.start, end: if end == Kind::End { lexer.start } else { query.len() } };
    let mut tokens = lexer.tokens;
    tokens.push(Token { kind: end, text: "", span });
    tokens
}

struct Lexer<'a> {
    query: &'a str,
    /// Next byte to read, and first byte of the token being read.
    at: usize,
    start: usize,
    tokens: Vec<Token<'a>>,
    parens: usize,
    brace: bool,
    bracket: bool,
    /// Whether it occurred since the bracket was opened.
    colon: bool,
    duration: bool,
    /// In a bracket before the first number: operators are tokens as outside, but nothing else is.
    calculates: bool,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.query.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.at += wanted.len_utf8();
        }
        there
    }

    fn eat_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.bump();
        }
    }

    fn read(&self) -> &'a str {
        self.query.get(self.start..self.at).unwrap_or_default()
    }

    fn emit(&mut self, kind: Kind) {
        let token = Token { kind, text: self.read(), span: Span { start: self.start, end: self.at } };
        self.tokens.push(token);
        self.start = self.at;
    }

    fn skip_blank(&mut self) {
        loop {
            self.eat_while(is_space);
            if self.peek() != Some('#') {
                break;
            }
            self.eat_while(|c| c != '\n' && c != '\r');
        }
        self.start = self.at;
    }

    fn next_token(&mut self) -> Result<bool, String> {
        self.skip_blank();
        let Some(c) = self.bump() else {
            return if self.brace {
                Err("unexpected end of input inside braces".to_owned())
            } else if self.calculates {
                Err("unexpected end of input in duration expression".to_owned())
            } else if self.parens > 0 {
                Err("unclosed left parenthesis".to_owned())
            } else if self.bracket {
                Err("unclosed left bracket".to_owned())
            } else {
                Ok(false)
            };
        };
        if self.brace {
            self.in_braces(c)?
        } else if self.calculates && !"]()+-*/%^,.".contains(c) && !c.is_ascii_digit() {
            self.in_duration(c)?
        } else {
            self.outside(c)?
        }
        Ok(true)
    }

    fn in_braces(&mut self, c: char) -> Result<(), String> {
        match c {
            _ if is_alpha(c) => {
                self.eat_while(is_alphanumeric);
                self.emit(Kind::Identifier);
            }
            ',' => self.emit(Kind::Comma),
            '"' | '\'' | '`' => self.string(c)?,
            '=' => {
                let kind = if self.eat('~') { Kind::Match } else { Kind::Assign };
                self.emit(kind);
            }
            '!' => match self.bump() {
                Some('~') => self.emit(Kind::NotMatch),
                Some('=') => self.emit(Kind::Operator(BinaryOp::NotEqual)),
                other => {
                    return Err(format!("unexpected character after '!' inside braces: {}", shown(other)));
                }
            },
            '{' => return Err("unexpected left brace '{'".to_owned()),
            '}' => {
                self.emit(Kind::RightBrace);
                self.brace = false;
            }
            _ => return Err(format!("unexpected character inside braces: {}", shown(Some(c)))),
        }
        Ok(())
    }

    fn outside(&mut self, c: char) -> Result<(), String> {
        match c {
            ',' => self.emit(Kind::Comma),
            '*' => self.emit(Kind::Operator(BinaryOp::Mul)),
            '/' => self.emit(Kind::Operator(BinaryOp::Div)),
            '%' => self.emit(Kind::Operator(BinaryOp::Mod)),
            '+' => self.emit(Kind::Operator(BinaryOp::Add)),
            '-' => self.emit(Kind::Operator(BinaryOp::Sub)),
            '^' => self.emit(Kind::Operator(BinaryOp::Pow)),
            '@' => self.emit(Kind::AtModifier),
            '=' => match self.peek() {
                Some('=') => {
                    self.bump();
                    self.emit(Kind::Operator(BinaryOp::Equal));
                }
                Some('~') => return Err("unexpected character after '=': '~'".to_owned()),
                _ => self.emit(Kind::Assign),
            },
            '!' => match self.bump() {
                Some('=') => self.emit(Kind::Operator(BinaryOp::NotEqual)),
                other => return Err(format!("unexpected character after '!': {}", shown(other))),
            },
            '<' | '>' => {
                let (plain, equal, trim) = match c {
                    '<' => (BinaryOp::Less, BinaryOp::LessEqual, BinaryOp::TrimUpper),
                    _ => (BinaryOp::Greater, BinaryOp::GreaterEqual, BinaryOp::TrimLower),
                };
                let op = if self.eat('=') {
                    equal
                } else if self.eat('/') {
                    trim
                } else {
                    plain
                };
                self.emit(Kind::Operator(op));
            }
            '(' => {
                self.parens += 1;
                self.emit(Kind::LeftParen);
            }
            ')' => {
                let Some(open) = self.parens.checked_sub(1) else {
                    self.start = self.at;
                    return Err("unexpected right parenthesis ')'".to_owned());
                };
                self.parens = open;
                self.emit(Kind::RightParen);
            }
            '{' => {
                self.emit(Kind::LeftBrace);
                self.brace = true;
            }
            '[' => {
                if self.bracket {
                    return Err("unexpected left bracket '['".to_owned());
                }
                self.emit(Kind::LeftBracket);
                (self.bracket, self.colon, self.duration, self.calculates) = (true, false, false, true);
            }
            ']' => {
                if !self.bracket {
                    return Err("unexpected right bracket ']'".to_owned());
                }
                self.emit(Kind::RightBracket);
                (self.bracket, self.calculates) = (false, false);
            }
            '"' | '\'' | '`' => self.string(c)?,
            _ if c.is_ascii_digit() || (c == '.' && self.peek().is_some_and(|c| c.is_ascii_digit())) => {
                self.at = self.start;
                (self.duration, self.calculates) = (true, false);
                let kind = self.number_or_duration()?;
                self.emit(kind);
            }
            _ if self.calculates => return Err(unexpected_in_duration(c)),
            _ if self.bracket && (is_alpha(c) || c == ':') => self.in_brackets(c)?,
            _ if is_alpha(c) || c == ':' => {
                self.eat_while(|c| is_alphanumeric(c) || c == ':');
                let kind = self.identifier();
                self.emit(kind);
            }
            _ => return Err(format!("unexpected character: {}", shown(Some(c)))),
        }
        Ok(())
    }

    /// Within brackets, before any number.
    fn in_duration(&mut self, c: char) -> Result<(), String> {
        if c != ':' {
            return if self.duration_word() { Ok(()) } else { Err(unexpected_in_duration(c)) };
        }
        let why = if !self.duration { "colon before duration" } else { "repeated colon" };
        if !self.duration || self.colon {
            self.start = self.at;
            return Err(format!("unexpected {why} in duration expression"));
        }
        self.emit(Kind::Colon);
        self.colon = true;
        Ok(())
    }

    /// Within brackets, after a number.
    fn in_brackets(&mut self, c: char) -> Result<(), String> {
        match c {
            ':' if self.colon => Err("unexpected colon ':'".to_owned()),
            ':' => {
                self.emit(Kind::Colon);
                self.colon = true;
                Ok(())
            }
            _ if self.duration_word() => Ok(()),
            _ => Err(format!("unexpected character: {}, expected ':'", shown(Some(c)))),
        }
    }

    /// Reads `step` and similar words, if one is next.
    fn duration_word(&mut self) -> bool {
        self.eat_while(is_alpha);
        match special(&self.read().to_ascii_lowercase()) {
            Some(word @ (Special::Step | Special::Range | Special::MaxOf | Special::MinOf)) => {
                self.duration = true;
                self.emit(Kind::Special(word));
                true
            }
            _ => false,
        }
    }

    fn identifier(&self) -> Kind {
        let text = self.read();
        match word(text) {
            // These may be metric names, too: only parentheses make them keywords.
            Some(Kind::Keyword(Keyword::Fill | Keyword::FillLeft | Keyword::FillRight))
                if !self.rest().trim_start_matches(is_space).starts_with('(') =>
            {
                Kind::Identifier
            }
            Some(kind) => kind,
            None if text.contains(':') => Kind::MetricIdentifier,
            None => Kind::Identifier,
        }
    }

    fn number_or_duration(&mut self) -> Result<Kind, String> {
        if self.scan_number() || self.scan_multiple() {
            return Ok(Kind::Number);
        }
        if self.scan_duration() {
            return Ok(Kind::Duration);
        }
        Err(format!("bad number or duration syntax: {}", quote(self.read())))
    }

    fn accept(&mut self, set: &str) -> bool {
        let there = self.peek().is_some_and(|c| set.contains(c));
        if there {
            self.bump();
        }
        there
    }

    /// Reads the longest prefix that looks like a number.
    fn scan_number(&mut self) -> bool {
        let mut digits = "0123456789";
        if self.accept("0") && self.accept("xX") {
            self.accept("_");
            digits = "0123456789abcdefABCDEF";
        }
        self.accept(".");
        self.accept(digits);
        let (mut dot, mut exponent) = (false, false);
        while self.peek().is_some_and(|c| digits.contains(c) || "._eE".contains(c)) {
            if dot && self.accept(".") {
                return false;
            }
            if exponent && self.accept("eE") {
                return false;
            }
            if self.accept(".") {
                dot = true;
                if self.accept("_.") || digits.len() > 10 {
                    return false;
                }
            } else if digits.len() == 10 && self.accept("eE") {
                exponent = true;
                self.accept("+-");
                if self.accept("._eE") || self.peek().is_none() {
                    return false;
                }
            } else if self.accept("_") {
                if self.accept("._eE") || self.peek().is_none() {
                    return false;
                }
            } else {
                self.eat_while(|c| digits.contains(c));
            }
        }
        self.at > self.start && !self.peek().is_some_and(is_alphanumeric)
    }

    /// Reads the multiplier of a number: `K`, `Mi`, `GB`, `TiB`.
    fn scan_multiple(&mut self) -> bool {
        let number = self.at;
        if !self.read().ends_with(|c: char| c.is_ascii_digit() || c == '.') || !self.accept("KMGT") {
            return false;
        }
        self.accept("i");
        self.accept("B");
        let is_end = !self.peek().is_some_and(is_alphanumeric);
        if !is_end {
            self.at = number;
        }
        is_end
    }

    /// Reads the units and further digits of a duration whose first digits have been read.
    fn scan_duration(&mut self) -> bool {
        if !self.accept("smhdwy") {
            return false;
        }
        self.accept("s");
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.eat_while(|c| c.is_ascii_digit());
            if !self.accept("smhdw") {
                return false;
            }
            self.accept("s");
        }
        if self.peek().is_some_and(is_alphanumeric) {
            self.bump();
            return false;
        }
        true
    }

    fn string(&mut self, quote: char) -> Result<(), String> {
        loop {
            match self.bump() {
                None if quote == '`' => return Err("unterminated raw string".to_owned()),
                None => return Err("unterminated quoted string".to_owned()),
                Some('\n') if quote != '`' => return Err("unterminated quoted string".to_owned()),
                Some('\\') if quote != '`' => self.escape(quote)?,
                Some(c) if c == quote => break,
                Some(_) => {}
            }
        }
        self.emit(Kind::Text);
        Ok(())
    }

    fn escape(&mut self, quote: char) -> Result<(), String> {
        let unterminated = || "escape sequence not terminated".to_owned();
        let c = self.bump().ok_or_else(unterminated)?;
        let (count, radix, max) = match c {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' => return Ok(()),
            _ if c == quote => return Ok(()),
            '0'..='7' => {
                self.at -= 1;
                (3, 8, 255)
            }
            'x' => (2, 16, 255),
            'u' => (4, 16, u32::from(char::MAX)),
            'U' => (8, 16, u32::from(char::MAX)),
            _ => return Err(format!("unknown escape sequence {}", code_point(c))),
        };
        let mut value = 0u32;
        for _ in 0..count {
            let c = self.bump().ok_or_else(unterminated)?;
            let digit = c
                .to_digit(radix)
                .ok_or_else(|| format!("illegal character {} in escape sequence", code_point(c)))?;
            value = value.wrapping_mul(radix).wrapping_add(digit);
        }
        if value > max || (0xd800..0xe000).contains(&value) {
            return Err("escape sequence is an invalid Unicode code point".to_owned());
        }
        Ok(())
    }
}

fn unexpected_in_duration(c: char) -> String {
    format!("unexpected character in duration expression: {}", shown(Some(c)))
}

fn code_point(c: char) -> String {
    let code = u32::from(c);
    if c.is_control() { format!("U+{code:04X}") } else { format!("U+{code:04X} '{c}'") }
}

/// A character in single quotes; the end of the text without quotes.
fn shown(c: Option<char>) -> String {
    match c {
        None => "'\\uffff'".to_owned(),
        Some('\'') => "'\\''".to_owned(),
        Some('\\') => "'\\\\'".to_owned(),
        Some(c) => {
            let quoted = quote(c.encode_utf8(&mut [0; 4]));
            let inner = quoted.get(1..quoted.len() - 1).unwrap_or_default();
            if c == '"' { "'\"'".to_owned() } else { format!("'{inner}'") }
        }
    }
}
