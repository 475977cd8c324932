//! Views in the catalogs: their columns, and their text with correctly qualified names.

use ropewalk::tables::{PUBLIC, Value, qualify, schema_and_name};
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, Tokenizer, Word};

use super::VIEW_OID;
use crate::access::row_source::Access;
use crate::access::views::{self, VIEWS};
use crate::error::{Result, state};
use crate::limits::budget::{Budget, MEMORY_BYTES_MAX};
use crate::syntax::names::ident;

/// A view.
#[derive(Debug)]
pub(crate) struct ViewOf {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) query: ast::Query,
}

impl ViewOf {
    /// A hash of the name (FNV-1a), because a view has no permanent number.
    pub(crate) fn oid(&self) -> i64 {
        let mixed = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        VIEW_OID + i64::from(self.name.bytes().fold(0x811c_9dc5, mixed) & 0x3fff_ffff)
    }

    /// The number of the rule that stores the query in PostgreSQL.
    pub(crate) fn rule_oid(&self) -> i64 {
        self.oid() + 0x4000_0000
    }

    /// The stored names of the relations in its FROMs.
    pub(crate) fn reads(&self) -> Vec<String> {
        let mut read = Vec::new();
        with_relations(&self.query, &mut |schema, name| {
            read.push(qualify(schema.unwrap_or(PUBLIC), name));
            None
        });
        read
    }

    /// The text of its query, and the stored names of the relations in its FROMs. Those that `is_known` but
    /// not `is_visible` are qualified.
    pub(crate) fn text(
        &self,
        is_known: &dyn Fn(&str) -> bool,
        is_visible: &dyn Fn(&str) -> bool,
    ) -> (String, Vec<String>) {
        let mut read = Vec::new();
        let text = with_relations(&self.query, &mut |schema, name| {
            let schema = schema.unwrap_or(PUBLIC);
            let kept = qualify(schema, name);
            if !is_known(&kept) {
                return None;
            }
            let is_qualified = !is_visible(&kept);
            if !read.contains(&kept) {
                read.push(kept);
            }
            Some(Written { schema: schema.to_owned(), is_qualified, name: name.to_owned() })
        });
        (text, read)
    }
}

/// The name of a relation in a query text.
pub(crate) struct Written {
    pub(crate) schema: String,
    /// True if FROM includes the schema. Columns that were qualified with it stay so in any case.
    pub(crate) is_qualified: bool,
    pub(crate) name: String,
}

impl Written {
    /// Converts a stored name, which is qualified unless it is in public.
    pub(crate) fn of(kept: &str) -> Self {
        let (schema, name) = schema_and_name(kept);
        Self { schema: schema.to_owned(), is_qualified: schema != PUBLIC, name: name.to_owned() }
    }
}

/// The text of a query with each relation of a FROM renamed by `named`, given its schema and name. Qualified
/// columns are renamed accordingly.
pub(crate) fn with_relations(
    query: &ast::Query,
    named: &mut dyn FnMut(Option<&str>, &str) -> Option<Written>,
) -> String {
    let text = query.to_string();
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, &text).tokenize() else { return text };
    let own = names_of_with(&tokens);
    let word = |at: usize| tokens.get(at).and_then(word_of);
    let is = |at: usize, token: &Token| tokens.get(at) == Some(token);
    let (mut shown, mut at) = (String::new(), 0);
    let mut place = Place::default();
    while let Some(token) = tokens.get(at) {
        let mut taken = 1;
        if place.expects()
            && let Some(first) = word(at)
            && !is_keyword(token)
        {
            let second = if is(at + 1, &Token::Period) { word(at + 2) } else { None };
            let (schema, name, length) = match second {
                Some(second) => (Some(first), second, 3),
                None => (None, first, 1),
            };
            let is_plain = !is(at + length, &Token::Period) && !is(at + length, &Token::LParen);
            let is_own = schema.is_none() && own.contains(&name);
            if is_plain
                && !is_own
                && let Some(written) = named(schema.as_deref(), &name)
            {
                if written.is_qualified {
                    shown += &ident(&written.schema);
                    shown.push('.');
                }
                shown += &ident(&written.name);
                tokens.iter().skip(at).take(length).for_each(|token| place.step(token));
                at += length;
                continue;
            }
            taken = length;
        } else if !place.expects()
            && let (Some(schema), Some(name)) = (word(at), word(at + 2))
            && is(at + 1, &Token::Period)
            && is(at + 3, &Token::Period)
            && let Some(written) = named(Some(&schema), &name)
        {
            shown += &format!("{}.{}", ident(&written.schema), ident(&written.name));
            taken = 3;
            tokens.iter().skip(at).take(taken).for_each(|token| place.step(token));
            at += taken;
            continue;
        }
        for token in tokens.iter().skip(at).take(taken) {
            place.step(token);
            shown += &token.to_string();
        }
        at += taken;
    }
    shown
}

fn word_of(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    }
}

/// The names defined by WITH at any level: those before `AS (` and before `(columns) AS (`.
fn names_of_with(tokens: &[Token]) -> Vec<String> {
    let plain = |token: &&Token| !matches!(token, Token::Whitespace(_));
    let tokens: Vec<&Token> = tokens.iter().filter(plain).collect();
    let is = |token: &Token, wanted: Keyword| matches!(token, Token::Word(word) if word.quote_style.is_none() && word.keyword == wanted);
    let mut names = Vec::new();
    for (place, _) in tokens.iter().enumerate().filter(|(_, token)| is(token, Keyword::AS)) {
        let behind = tokens.iter().skip(place + 1);
        let mut behind =
            behind.skip_while(|token| is(token, Keyword::NOT) || is(token, Keyword::MATERIALIZED));
        if behind.next() != Some(&&Token::LParen) {
            continue;
        }
        let mut before = tokens.iter().take(place).rev();
        let mut name = before.next();
        if name == Some(&&Token::RParen) {
            name = before.find(|token| **token == &Token::LParen).and_then(|_| before.next());
        }
        names.extend(name.and_then(|token| word_of(token)));
    }
    names
}

/// True for keywords that may precede a relation.
fn is_keyword(token: &Token) -> bool {
    matches!(
        token,
        Token::Word(Word {
            keyword: Keyword::ONLY | Keyword::LATERAL | Keyword::SELECT | Keyword::VALUES | Keyword::WITH,
            quote_style: None,
            ..
        })
    )
}

/// State of a scan over the tokens of a query: for each level of parentheses whether it is in a FROM, and
/// whether a relation name is expected next.
#[derive(Default)]
struct Place {
    levels: Vec<bool>,
    in_from: bool,
    expects: bool,
}

impl Place {
    fn expects(&self) -> bool {
        self.expects
    }

    fn step(&mut self, token: &Token) {
        match token {
            Token::Whitespace(_) => {}
            Token::LParen => {
                self.levels.push(self.in_from);
                // A parenthesis in place of a relation contains a join, or a query with its FROM.
                (self.in_from, self.expects) = (self.expects, self.expects);
            }
            Token::RParen => (self.in_from, self.expects) = (self.levels.pop().unwrap_or_default(), false),
            Token::Comma => self.expects = self.in_from,
            Token::Word(Word { keyword: Keyword::FROM | Keyword::JOIN, quote_style: None, .. }) => {
                (self.in_from, self.expects) = (true, true);
            }
            Token::Word(Word { keyword: Keyword::ONLY | Keyword::LATERAL, quote_style: None, .. }) => {}
            Token::Word(Word {
                keyword:
                    Keyword::SELECT
                    | Keyword::WHERE
                    | Keyword::GROUP
                    | Keyword::HAVING
                    | Keyword::WINDOW
                    | Keyword::ORDER
                    | Keyword::LIMIT
                    | Keyword::OFFSET
                    | Keyword::UNION
                    | Keyword::INTERSECT
                    | Keyword::EXCEPT,
                quote_style: None,
                ..
            }) => (self.in_from, self.expects) = (false, false),
            _ => self.expects = false,
        }
    }
}

/// All views in the order of their names.
pub(crate) fn all(access: &mut Access<'_>) -> Result<Vec<ViewOf>> {
    let table = match access.table(VIEWS) {
        Ok((table, _)) => table,
        Err(error) if error.state == state::UNDEFINED_TABLE => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let rows = access.all(&table, &ropewalk::tables::KeyRange::all(), &Budget::new(MEMORY_BYTES_MAX))?;
    let mut views = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(Value::Text(name)) = row.first()
            && let Some(view) = views::find(access, name)?
        {
            views.push(ViewOf { name: name.to_string(), columns: view.columns, query: view.query });
        }
    }
    Ok(views)
}
