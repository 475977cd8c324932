//! Views as the catalogs show them: their columns, and their text with names as they must be written.

use ropewalk::tables::{Type, Value};
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, Tokenizer, Word};

use super::VIEW_OID;
use crate::access::Access;
use crate::budget::{Budget, MEMORY_BYTES_MAX};
use crate::error::{Result, state};
use crate::plan::{Planner, Standing};
use crate::scope::{Params, folded};
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
        let mut planner = Planner::beside(access, Params::default(), standing);
        let Ok(planned) = crate::query::prepare(&self.query, &mut planner) else { return Vec::new() };
        let named = planned.columns.into_iter().zip(&self.columns);
        named.map(|(column, name)| (name.clone(), column.ty)).collect()
    }

    /// Its query, and the names of the relations in its FROMs. Those that `is_known` knows are qualified when `qualifies`.
    pub(crate) fn text(&self, qualifies: bool, is_known: &dyn Fn(&str) -> bool) -> (String, Vec<String>) {
        let text = self.query.to_string();
        let own: Vec<String> = match &self.query.with {
            None => Vec::new(),
            Some(with) => with.cte_tables.iter().map(|cte| folded(&cte.alias.name)).collect(),
        };
        let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, &text).tokenize() else {
            return (text, Vec::new());
        };
        let (mut shown, mut read) = (String::new(), Vec::new());
        let mut place = Place::default();
        for (number, token) in tokens.iter().enumerate() {
            if let Token::Word(word) = token
                && place.expects()
            {
                let name =
                    if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() };
                let is_plain = !matches!(tokens.get(number + 1), Some(Token::Period | Token::LParen));
                if is_plain && !own.contains(&name) && is_known(&name) {
                    if qualifies {
                        shown += "public.";
                    }
                    read.push(name);
                }
            }
            place.step(token);
            shown += &token.to_string();
        }
        (shown, read)
    }
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
