//! Moves subqueries with FOR UPDATE from FROM to WITH, where their rows are locked before they are read.
//!
//! ```text
//! SELECT … FROM (SELECT … FOR UPDATE) AS x        is   WITH l AS (SELECT … FOR UPDATE) SELECT … FROM l AS x
//! UPDATE … FROM (SELECT … FOR UPDATE) AS x        is   WITH l AS (SELECT … FOR UPDATE) UPDATE … FROM l AS x
//! ```

use std::sync::LazyLock;

use sqlparser::ast;

use crate::syntax::parse;

/// Template from which the parts of a statement are cloned.
static TEMPLATE: LazyLock<Option<ast::Query>> =
    LazyLock::new(|| match parse::template("WITH l AS (SELECT 1) SELECT * FROM l")? {
        ast::Statement::Query(query) => Some(*query),
        _ => None,
    });

/// The subqueries that were moved.
struct Lifted {
    template: &'static ast::Query,
    parts: Vec<ast::Cte>,
}

impl Lifted {
    /// Moves a query to WITH and returns its name.
    fn take(&mut self, query: &ast::Query) -> Option<ast::Ident> {
        let mut part = self.template.with.as_ref()?.cte_tables.first()?.clone();
        // No table can have this name.
        let name = ast::Ident::with_quote('"', format!("*locked{}", self.parts.len()));
        part.alias.name = name.clone();
        *part.query = query.clone();
        self.parts.push(part);
        Some(name)
    }

    /// Replaces the locking subqueries of a FROM by their names.
    fn relations(&mut self, from: &mut [ast::TableWithJoins]) -> Option<()> {
        for tables in from {
            let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
            for factor in std::iter::once(&mut tables.relation).chain(joined) {
                let ast::TableFactor::Derived { lateral: false, subquery, alias, .. } = factor else {
                    continue;
                };
                if subquery.locks.is_empty() {
                    continue;
                }
                let name = self.take(subquery)?;
                let given = alias.clone();
                let mut plain = self.relation(name)?;
                if let ast::TableFactor::Table { alias, .. } = &mut plain {
                    *alias = given;
                }
                *factor = plain;
            }
        }
        Some(())
    }

    fn relation(&self, name: ast::Ident) -> Option<ast::TableFactor> {
        let ast::SetExpr::Select(select) = self.template.body.as_ref() else { return None };
        let mut plain = select.from.first()?.relation.clone();
        if let ast::TableFactor::Table { name: named, .. } = &mut plain {
            *named = ast::ObjectName::from(vec![name]);
        }
        Some(plain)
    }

    fn query(&mut self, query: &mut ast::Query) -> Option<()> {
        let ast::SetExpr::Select(select) = query.body.as_mut() else { return Some(()) };
        self.relations(&mut select.from)
    }
}

/// True for SKIP LOCKED, which skips rows locked by others.
pub(crate) fn skips(query: &ast::Query) -> bool {
    let parts = query.with.iter().flat_map(|with| &with.cte_tables);
    let mut locks = parts.flat_map(|part| &part.query.locks);
    locks.any(|lock| lock.nonblock == Some(ast::NonBlock::SkipLocked))
}

/// The statement with the locking subqueries of its FROM moved to WITH; `None` if it has none.
pub(crate) fn lifted(statement: &ast::Statement) -> Option<ast::Query> {
    let template = TEMPLATE.as_ref()?;
    let mut lifted = Lifted { template, parts: Vec::new() };
    let mut around = template.clone();
    around.with = None;
    match statement {
        ast::Statement::Query(query) if query.locks.is_empty() => {
            around = (**query).clone();
            lifted.query(&mut around)?;
        }
        ast::Statement::Update(update) => {
            let mut update = update.clone();
            if let Some(
                ast::UpdateTableFromKind::BeforeSet(tables) | ast::UpdateTableFromKind::AfterSet(tables),
            ) = &mut update.from
            {
                lifted.relations(tables)?;
            }
            *around.body = ast::SetExpr::Update(ast::Statement::Update(update));
        }
        ast::Statement::Delete(delete) => {
            let mut delete = delete.clone();
            if let Some(tables) = &mut delete.using {
                lifted.relations(tables)?;
            }
            *around.body = ast::SetExpr::Delete(ast::Statement::Delete(delete));
        }
        ast::Statement::Insert(insert) => {
            let mut insert = insert.clone();
            lifted.query(insert.source.as_mut()?)?;
            *around.body = ast::SetExpr::Insert(ast::Statement::Insert(insert));
        }
        _ => return None,
    }
    if lifted.parts.is_empty() {
        return None;
    }
    match &mut around.with {
        Some(with) => with.cte_tables.append(&mut lifted.parts),
        None => {
            let mut with = template.with.clone()?;
            with.cte_tables = lifted.parts;
            around.with = Some(with);
        }
    }
    Some(around)
}
