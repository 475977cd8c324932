//! Declared types of view columns: a column taken from a table has the table's type modifiers, such as the
//! length of a `varchar(n)`.

use ropewalk::tables::{PUBLIC, Precision, Type, qualify};
use sqlparser::ast;

use super::Catalog;
use super::ViewOf;
use super::show;
use crate::syntax::names::{folded, parts};

/// Maximum nesting depth of views that is searched.
const DEPTH_MAX: usize = 16;

/// PostgreSQL's number of a type, its modifier, and the precision of times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared {
    pub(super) oid: i64,
    pub(super) modifier: i64,
    pub(super) times: Precision,
}

impl Declared {
    fn of_length(ty: Type, characters: i64) -> Self {
        let oid = if matches!(ty, Type::Array(_)) { 1015 } else { 1043 };
        Self { oid, modifier: characters + 4, times: Precision::default() }
    }

    /// The length of a `varchar(n)`.
    pub(super) fn characters_max(&self) -> Option<i64> {
        (self.oid == 1043 && self.modifier > 4).then(|| self.modifier - 4)
    }
}

type Columns = Vec<(String, Option<Declared>)>;

impl Catalog {
    /// The declared type of each column of a view; `None` where it is not that of a table column.
    pub(super) fn declared(&self, view: &ViewOf) -> Vec<Option<Declared>> {
        self.within(view, 0)
    }

    fn within(&self, view: &ViewOf, depth: usize) -> Vec<Option<Declared>> {
        let mut declared = self.of_query(&view.query, depth).unwrap_or_default();
        declared.resize(view.columns.len(), None);
        declared
    }

    /// `None` if names alone do not determine the origin of the columns.
    fn of_query(&self, query: &ast::Query, depth: usize) -> Option<Vec<Option<Declared>>> {
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        if query.with.is_some() || depth > DEPTH_MAX {
            return None;
        }
        let mut relations: Vec<(String, Columns)> = Vec::new();
        for tables in &select.from {
            relations.push(self.relation(&tables.relation, depth)?);
            for join in &tables.joins {
                relations.push(self.relation(&join.relation, depth)?);
            }
        }
        let mut declared = Vec::new();
        for item in &select.projection {
            match item {
                ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => {
                    declared.push(of_expr(expr, &relations));
                }
                // With several relations, `*` may merge columns of USING.
                ast::SelectItem::Wildcard(_) if relations.len() == 1 => {
                    declared
                        .extend(relations.iter().flat_map(|(_, columns)| columns).map(|(_, found)| *found));
                }
                ast::SelectItem::QualifiedWildcard(
                    ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let name = parts(name).ok()?.pop()?;
                    let (_, columns) = relations.iter().find(|(known, _)| *known == name)?;
                    declared.extend(columns.iter().map(|(_, found)| *found));
                }
                _ => return None,
            }
        }
        Some(declared)
    }

    /// The name in scope of a relation of FROM, and its columns.
    fn relation(&self, factor: &ast::TableFactor, depth: usize) -> Option<(String, Columns)> {
        let ast::TableFactor::Table { name, alias, args: None, with_ordinality: false, .. } = factor else {
            return None;
        };
        let (kept, own) = match parts(name).ok()?.as_slice() {
            [name] => (qualify(PUBLIC, name), name.clone()),
            [schema, name] => (qualify(schema, name), name.clone()),
            _ => return None,
        };
        let mut columns: Columns =
            match (self.table_named(&kept), self.views.iter().find(|view| view.name == kept)) {
                (Some(schema), _) => {
                    let of = |(place, column): (usize, &ropewalk::tables::Column)| {
                        let (oid, modifier) = show::type_of(schema, place, column);
                        let times = column.precision().unwrap_or_default();
                        (column.name().to_owned(), Some(Declared { oid, modifier, times }))
                    };
                    schema.columns().iter().enumerate().map(of).collect()
                }
                (None, Some(view)) => {
                    view.columns.iter().cloned().zip(self.within(view, depth + 1)).collect()
                }
                (None, None) => return None,
            };
        let Some(alias) = alias else { return Some((own, columns)) };
        for ((name, _), given) in columns.iter_mut().zip(&alias.columns) {
            *name = folded(&given.name);
        }
        Some((folded(&alias.name), columns))
    }
}

fn of_expr(expr: &ast::Expr, relations: &[(String, Columns)]) -> Option<Declared> {
    let (relation, column) = match expr {
        ast::Expr::Nested(inner) => return of_expr(inner, relations),
        ast::Expr::Cast { data_type, .. } => {
            let (ty, modifiers) = crate::types::names::with_modifiers(data_type).ok()?;
            let most = modifiers.characters_max.and_then(|most| i64::try_from(most).ok());
            return most.map(|most| Declared::of_length(ty, most));
        }
        ast::Expr::Identifier(ident) => (None, folded(ident)),
        ast::Expr::CompoundIdentifier(idents) => match idents.as_slice() {
            [.., relation, column] => (Some(folded(relation)), folded(column)),
            _ => return None,
        },
        _ => return None,
    };
    let in_reach = relations.iter().filter(|(name, _)| relation.as_ref().is_none_or(|wanted| wanted == name));
    let found = in_reach.flat_map(|(_, columns)| columns).find(|(name, _)| *name == column);
    found.and_then(|(_, declared)| *declared)
}
