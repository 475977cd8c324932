//! Queries of WITH that are in scope while a query is planned for nested loops.

use std::sync::{Arc, Mutex};

use ropewalk::tables::Type;
use sqlparser::ast;

use crate::expr::Record;
use crate::expr::inner_query::InnerQuery;
use crate::plan::bind::scope::Mark;
use crate::syntax::names::folded;

/// Input rows of the step of a recursion: set by the executor before each step.
pub(crate) type Last = Arc<Mutex<Arc<Vec<Record>>>>;

/// The plan of a query of WITH, its columns, and the properties of those beyond their types.
type Planned = (Box<dyn InnerQuery>, Vec<(String, Type)>, Vec<(usize, Mark)>);

/// A query of WITH in scope.
#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    pub(crate) query: ast::Query,
    /// It reads itself: its rows are computed step by step.
    pub(crate) is_recursive: bool,
    /// The input of its step, set while the step is planned.
    pub(crate) last: Option<(Last, Vec<(String, Type)>)>,
    /// Its plan, made for the first reference.
    pub(crate) planned: Option<Planned>,
}

impl Named {
    /// A query of WITH.
    pub(crate) fn of(cte: &ast::Cte, recursive: bool) -> Self {
        let name = folded(&cte.alias.name);
        Self {
            is_recursive: recursive && says(&cte.query.to_string(), &name),
            last: None,
            planned: None,
            name,
            columns: cte.alias.columns.iter().map(|column| folded(&column.name)).collect(),
            query: (*cte.query).clone(),
        }
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name
    }

    /// A named relation whose rows are computed before they are read.
    pub(crate) fn answered(
        name: String,
        columns: Vec<(String, Type)>,
        rows: Last,
        query: &ast::Query,
    ) -> Self {
        let last = Some((rows, columns));
        Self { is_recursive: false, last, planned: None, name, columns: Vec::new(), query: query.clone() }
    }
}

/// True when a word of the text equals the name; planning determines whether it means this query.
pub(crate) fn says(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word.eq_ignore_ascii_case(name))
}
