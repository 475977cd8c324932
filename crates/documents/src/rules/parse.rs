//! Parser of rules: the subset of CEL, the Common Expression Language, that rules of documents need.
//!
//! ```text
//! choice := or ( '?' or ':' choice )?          or := and ( '||' and )*          and := relation ( '&&' relation )*
//! relation := sum ( == != < <= > >= in  sum )*     sum := product ( + - product )*     product := unary ( * / % unary )*
//! unary := ( '!' | '-' ) unary | member            member := primary ( .name | .name(…) | [ choice ] )*
//! ```
//! Refused: unsigned numbers beyond int64, bytes, durations, messages, and patterns that are not literals.
//! Source: the CEL specification's language definition.

use crate::lang::regex::Pattern;
use crate::lang::{Owned, Value};

/// Longest rule, bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Most levels of nested expressions.
const DEPTH_MAX: usize = 64;

/// A parsed expression.
#[derive(Debug)]
pub(super) enum Expr {
    Literal(Owned),
    Variable(String),
    Field(Box<Expr>, String),
    /// `has(a.b)`
    Has(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    List(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Choice(Box<[Expr; 3]>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// A function call; a method's receiver is the first argument.
    Call(Function, Vec<Expr>),
    Matches(Box<Expr>, Pattern),
    /// `range.all(name, body)` and the other macros.
    Each(Each, Box<Expr>, String, Box<Expr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Int,
    Double,
    Text,
    Type,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Each {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Name(String),
    Text(String),
    Int(u64),
    Double(f64),
    Mark(&'static str),
}

const MARKS: [&str; 26] = [
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}", "=", ";",
];

/// Parses a rule.
///
/// # Errors
/// Describes the error and its byte position.
pub(super) fn parse(text: &str) -> Result<Expr, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("a rule of {} bytes; the limit is {TEXT_BYTES_MAX}", text.len()));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, end: text.len() };
    let expr = parser.choice()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expr),
        Some((place, _)) => Err(format!("unexpected text at byte {place}")),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.find('\n').and_then(|end| comment.get(end..)).unwrap_or_default();
            continue;
        }
        let place = text.len() - rest.len();
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let (token, behind) = if first == '"' || first == '\'' {
            quoted(rest, first).ok_or_else(|| format!("unterminated text at byte {place}"))?
        } else if first.is_ascii_digit() {
            number(rest).ok_or_else(|| format!("invalid number at byte {place}"))?
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            (Token::Name(name.to_owned()), behind)
        } else {
            let mark = MARKS.into_iter().find(|mark| rest.starts_with(mark));
            let mark = mark.ok_or_else(|| format!("unexpected {first:?} at byte {place}"))?;
            (Token::Mark(mark), rest.strip_prefix(mark).unwrap_or_default())
        };
        tokens.push((place, token));
        rest = behind;
    }
}

fn quoted(rest: &str, quote: char) -> Option<(Token, &str)> {
    let mut out = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Some((Token::Text(out), rest.get(at + 1..)?)),
            '\\' => out.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                same @ ('\\' | '"' | '\'' | '`' | '?') => same,
                _ => return None,
            }),
            '\n' => return None,
            _ => out.push(c),
        }
    }
    None
}

fn number(rest: &str) -> Option<(Token, &str)> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut end = digits(rest);
    let mut whole = true;
    if let Some(tail) =
        rest.get(end..)?.strip_prefix('.').filter(|tail| tail.starts_with(|c: char| c.is_ascii_digit()))
    {
        end += 1 + digits(tail);
        whole = false;
    }
    if let Some(tail) = rest.get(end..)?.strip_prefix(['e', 'E']) {
        let sign = usize::from(tail.starts_with(['+', '-']));
        let count = digits(tail.get(sign..)?);
        if count == 0 {
            return None;
        }
        end += 1 + sign + count;
        whole = false;
    }
    let (text, mut behind) = rest.split_at_checked(end)?;
    let token = if whole { Token::Int(text.parse().ok()?) } else { Token::Double(text.parse().ok()?) };
    if whole {
        behind = behind.strip_prefix(['u', 'U']).unwrap_or(behind);
    }
    (!behind.starts_with(|c: char| c.is_alphanumeric() || c == '_')).then_some((token, behind))
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    depth: usize,
    end: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(place, _)| *place)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += 1;
        token
    }

    fn take(&mut self, mark: &str) -> bool {
        let there = matches!(self.peek(), Some(Token::Mark(own)) if *own == mark);
        self.at += usize::from(there);
        there
    }

    fn want(&mut self, mark: &str) -> Result<(), String> {
        if self.take(mark) { Ok(()) } else { Err(format!("expected {mark:?} at byte {}", self.place())) }
    }

    fn name(&mut self) -> Result<String, String> {
        let place = self.place();
        match self.next() {
            Some(Token::Name(name)) => Ok(name),
            _ => Err(format!("expected a name at byte {place}")),
        }
    }

    fn choice(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("nested deeper than {DEPTH_MAX} levels, at byte {}", self.place()));
        }
        let condition = self.or()?;
        let expr = if self.take("?") {
            let yes = self.or()?;
            self.want(":")?;
            Expr::Choice(Box::new([condition, yes, self.choice()?]))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Result<Expr, String> {
        let mut left = self.and()?;
        while self.take("||") {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, String> {
        let mut left = self.relation()?;
        while self.take("&&") {
            left = Expr::And(Box::new(left), Box::new(self.relation()?));
        }
        Ok(left)
    }

    fn relation(&mut self) -> Result<Expr, String> {
        self.chain(Self::sum, |token| match token {
            Token::Mark("==") => Some(Operator::Equal),
            Token::Mark("!=") => Some(Operator::NotEqual),
            Token::Mark("<") => Some(Operator::Less),
            Token::Mark("<=") => Some(Operator::LessOrEqual),
            Token::Mark(">") => Some(Operator::Greater),
            Token::Mark(">=") => Some(Operator::GreaterOrEqual),
            Token::Name(name) if name == "in" => Some(Operator::In),
            _ => None,
        })
    }

    fn sum(&mut self) -> Result<Expr, String> {
        self.chain(Self::product, |token| match token {
            Token::Mark("+") => Some(Operator::Add),
            Token::Mark("-") => Some(Operator::Subtract),
            _ => None,
        })
    }

    fn product(&mut self) -> Result<Expr, String> {
        self.chain(Self::unary, |token| match token {
            Token::Mark("*") => Some(Operator::Multiply),
            Token::Mark("/") => Some(Operator::Divide),
            Token::Mark("%") => Some(Operator::Remainder),
            _ => None,
        })
    }

    /// Operands with operators of one precedence between them, grouped from the left.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Expr, String>,
        operator: fn(&Token) -> Option<Operator>,
    ) -> Result<Expr, String> {
        let mut left = operand(self)?;
        while let Some(operator) = self.peek().and_then(operator) {
            self.at += 1;
            left = Expr::Binary(operator, Box::new(left), Box::new(operand(self)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        // Without recursion, so that a sequence of signs does not create a deep tree.
        let (mut inverted, mut negative, mut signs) = (false, false, (0, 0));
        loop {
            if signs.1 == 0 && self.take("!") {
                inverted = !inverted;
                signs.0 += 1;
            } else if signs.0 == 0 && self.take("-") {
                negative = !negative;
                signs.1 += 1;
            } else {
                break;
            }
        }
        if signs.1 == 1
            && let Some(Token::Int(number)) = self.peek().cloned()
        {
            self.at += 1;
            let number = 0_i64.checked_sub_unsigned(number).ok_or("a number below all of int64")?;
            return self.members(Expr::Literal(Value::Int64(number).into()));
        }
        let member = self.member()?;
        Ok(match signs {
            (0, 0) => member,
            (0, _) if negative => Expr::Negative(Box::new(member)),
            (0, _) => Expr::Negative(Box::new(Expr::Negative(Box::new(member)))),
            _ if inverted => Expr::Not(Box::new(member)),
            _ => Expr::Not(Box::new(Expr::Not(Box::new(member)))),
        })
    }

    fn member(&mut self) -> Result<Expr, String> {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut target: Expr) -> Result<Expr, String> {
        for _ in 0..DEPTH_MAX {
            if self.take(".") {
                let name = self.name()?;
                target = if self.take("(") {
                    self.method(target, &name)?
                } else {
                    Expr::Field(Box::new(target), name)
                };
            } else if self.take("[") {
                let index = self.choice()?;
                self.want("]")?;
                target = Expr::Index(Box::new(target), Box::new(index));
            } else {
                return Ok(target);
            }
        }
        Err(format!("a path of more than {DEPTH_MAX} steps, at byte {}", self.place()))
    }

    /// Arguments up to the closing parenthesis.
    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>, String> {
        let mut arguments = Vec::new();
        while !self.take(close) {
            if !arguments.is_empty() {
                self.want(",")?;
                // A list may end with a comma.
                if close == "]" && self.take(close) {
                    break;
                }
            }
            arguments.push(self.choice()?);
        }
        Ok(arguments)
    }

    fn method(&mut self, target: Expr, name: &str) -> Result<Expr, String> {
        let each = match name {
            "all" => Some(Each::All),
            "exists" => Some(Each::Exists),
            "exists_one" => Some(Each::ExistsOne),
            "map" => Some(Each::Map),
            "filter" => Some(Each::Filter),
            _ => None,
        };
        if let Some(each) = each {
            let variable = self.name()?;
            self.want(",")?;
            let body = self.choice()?;
            self.want(")")?;
            return Ok(Expr::Each(each, Box::new(target), variable, Box::new(body)));
        }
        let place = self.place();
        let mut arguments = self.arguments(")")?;
        arguments.insert(0, target);
        call(name, arguments, true).map_err(|what| format!("{what}, at byte {place}"))
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let place = self.place();
        let literal = |value: Value<'_>| Ok(Expr::Literal(value.into()));
        match self.next() {
            Some(Token::Text(text)) => literal(Value::String(&text)),
            Some(Token::Double(number)) => literal(Value::Double(number)),
            Some(Token::Int(number)) => match i64::try_from(number) {
                Ok(number) => literal(Value::Int64(number)),
                Err(_) => Err(format!("a number beyond int64 at byte {place}")),
            },
            Some(Token::Name(name)) => match name.as_str() {
                "true" => literal(Value::Bool(true)),
                "false" => literal(Value::Bool(false)),
                "null" => literal(Value::Null),
                "has" if self.take("(") => {
                    let inner = self.choice()?;
                    self.want(")")?;
                    match inner {
                        Expr::Field(target, name) => Ok(Expr::Has(target, name)),
                        _ => Err(format!("has() takes a field, at byte {place}")),
                    }
                }
                name if self.take("(") => {
                    let arguments = self.arguments(")")?;
                    call(name, arguments, false).map_err(|what| format!("{what}, at byte {place}"))
                }
                _ => Ok(Expr::Variable(name)),
            },
            Some(Token::Mark("(")) => {
                let inner = self.choice()?;
                self.want(")")?;
                Ok(inner)
            }
            Some(Token::Mark("[")) => Ok(Expr::List(self.arguments("]")?)),
            Some(Token::Mark("{")) => {
                let mut fields = Vec::new();
                while !self.take("}") {
                    if !fields.is_empty() {
                        self.want(",")?;
                    }
                    let key = self.choice()?;
                    self.want(":")?;
                    fields.push((key, self.choice()?));
                }
                Ok(Expr::Map(fields))
            }
            Some(_) => Err(format!("unexpected symbol at byte {place}")),
            None => Err("unexpected end".into()),
        }
    }
}

fn call(name: &str, mut arguments: Vec<Expr>, method: bool) -> Result<Expr, String> {
    let (function, count) = match (name, method) {
        ("size", _) => (Function::Size, 1),
        ("contains", true) => (Function::Contains, 2),
        ("startsWith", true) => (Function::StartsWith, 2),
        ("endsWith", true) => (Function::EndsWith, 2),
        ("int", false) => (Function::Int, 1),
        ("double", false) => (Function::Double, 1),
        ("string", false) => (Function::Text, 1),
        ("type", false) => (Function::Type, 1),
        ("matches", _) => {
            let (pattern, target) = (arguments.pop(), arguments.pop());
            return match (target, pattern, arguments.is_empty()) {
                (Some(target), Some(Expr::Literal(pattern)), true) => {
                    let text = pattern.value().as_str().ok_or("a pattern is a text")?;
                    let pattern = Pattern::new(text, "").map_err(|error| error.message)?;
                    Ok(Expr::Matches(Box::new(target), pattern))
                }
                _ => Err("matches() takes a text and a literal pattern".into()),
            };
        }
        _ => return Err(format!("there is no function {name:?}")),
    };
    if arguments.len() != count {
        return Err(format!("{name}() takes {} arguments", if method { count - 1 } else { count }));
    }
    Ok(Expr::Call(function, arguments))
}
