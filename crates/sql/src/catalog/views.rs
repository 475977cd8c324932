//! Views as the catalogs show them: their columns, and their text with names as they must be written.

use ropewalk::tables::{PUBLIC, Type, Value, name_in};
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, Tokenizer, Word};

use super::{VIEW_OID, show};
use crate::access::Access;
use crate::budget::{Budget, MEMORY_BYTES_MAX};
use crate::error::{Result, state};
use crate::plan::{Planner, Standing};
use crate::scope::{Params, folded};
use crate::settings::Settings;
use crate::views::{self, VIEWS};

/// A view.
#[derive(Debug)]
pub(crate) struct ViewOf {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) query: ast::Query,
}

impl ViewOf {
    /// Made from its name (FNV-1a), which is all that a view has for life.
    pub(crate) fn oid(&self) -> i64 {
        let mixed = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        VIEW_OID + i64::from(self.name.bytes().fold(0x811c_9dc5, mixed) & 0x3fff_ffff)
    }

    /// The number of the rule that PostgreSQL would keep its query by.
    pub(crate) fn rule_oid(&self) -> i64 {
        self.oid() + 0x4000_0000
    }

    /// The names of its columns with their types, as they are now; none when what it reads is gone.
    pub(crate) fn typed(&self, access: Access<'_>, standing: Standing) -> Vec<(String, Type)> {
        // Names without a schema are of public there.
        let mut settings = Settings::clone(&standing.settings);
        settings.others.insert("search_path".into(), PUBLIC.into());
        let standing = Standing { settings: settings.into(), ..standing };
        let mut planner = Planner::beside(access, Params::default(), standing);
        let Ok(planned) = crate::query::prepare(&self.query, &mut planner) else { return Vec::new() };
        let named = planned.columns.into_iter().zip(&self.columns);
        named.map(|(column, name)| (name.clone(), column.ty)).collect()
    }

    /// Its query, and the relations in its FROMs by their kept names. Those that `is_known` knows and `is_visible` does not see are
    /// qualified.
    pub(crate) fn text(
        &self,
        is_known: &dyn Fn(&str) -> bool,
        is_visible: &dyn Fn(&str) -> bool,
    ) -> (String, Vec<String>) {
        let mut read = Vec::new();
        let text = with_relations(&self.query, &mut |schema, name| {
            let kept = name_in(schema.unwrap_or(PUBLIC), name);
            if !is_known(&kept) {
                return None;
            }
            let schema = (!is_visible(&kept)).then(|| schema.unwrap_or(PUBLIC).to_owned());
            read.push(kept);
            Some((schema, name.to_owned()))
        });
        (text, read)
    }
}

/// What stands in the place of a relation: its schema, if that is to be written, and its name.
type Named = Option<(Option<String>, String)>;

/// The text of a query in which `named` says what stands for each relation of a FROM, given its schema and its name.
pub(crate) fn with_relations(
    query: &ast::Query,
    named: &mut dyn FnMut(Option<&str>, &str) -> Named,
) -> String {
    let text = query.to_string();
    let own: Vec<String> = match &query.with {
        None => Vec::new(),
        Some(with) => with.cte_tables.iter().map(|cte| folded(&cte.alias.name)).collect(),
    };
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, &text).tokenize() else { return text };
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(word)) if word.quote_style.is_some() => Some(word.value.clone()),
        Some(Token::Word(word)) => Some(word.value.to_lowercase()),
        _ => None,
    };
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
                && let Some((schema, name)) = named(schema.as_deref(), &name)
            {
                if let Some(schema) = schema {
                    shown += &show::ident(&schema);
                    shown.push('.');
                }
                shown += &show::ident(&name);
                tokens.iter().skip(at).take(length).for_each(|token| place.step(token));
                at += length;
                continue;
            }
            taken = length;
        }
        for token in tokens.iter().skip(at).take(taken) {
            place.step(token);
            shown += &token.to_string();
        }
        at += taken;
    }
    shown
}

/// True for the words that may stand before a relation.
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

/// Where in a query a walk over its tokens is: for each level of parentheses whether it is in a FROM, and whether the name of a
/// relation comes next.
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
                // A parenthesis where a relation may stand holds a join, or a query, which has a FROM of its own.
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
