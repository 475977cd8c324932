//! `SELECT append_event(type, tags, data, ...)`: an event in the transaction at hand.
//!
//! Named arguments: `store`, `metadata` (a JSON object of texts), `id`; and the condition under which the commit may append:
//! `fail_if_tags`, `fail_if_types` (no event has one of these types and all of these tags) and `after` (none behind this position).
//! The position is known at the commit; the answer is NULL.

use ropewalk::tables::{Type, Value};
use ropewalk::{AppendCondition, AppendOptions, Event, EventStore, Position, Query, QueryItem};
use sqlparser::ast;

use crate::access::Access;
use crate::bind::Binder;
use crate::cast::Strength;
use crate::error::{Result, SqlError, state};
use crate::expr::{Context, Expr};
use crate::plan::Planner;
use crate::scope::{Scope, folded, parts};

/// A call of `append_event`.
pub(crate) struct Append {
    event_type: Expr,
    tags: Expr,
    data: Expr,
    store: Option<Expr>,
    fail_if_tags: Option<Expr>,
    fail_if_types: Option<Expr>,
    after: Option<Expr>,
    id: Option<Expr>,
}

fn wrong(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(state::UNDEFINED_FUNCTION, format!("append_event: {what}")).hint(
        "append_event(type text, tags text[], data text, store => text, fail_if_tags => text[], fail_if_types => text[], after => bigint, id => uuid)",
    )
}

impl Append {
    /// The call that a query is, if it is one and nothing else.
    pub(crate) fn of(query: &ast::Query) -> Option<&ast::Function> {
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let [ast::SelectItem::UnnamedExpr(ast::Expr::Function(function))] = select.projection.as_slice()
        else {
            return None;
        };
        let is_append = parts(&function.name).is_ok_and(|parts| parts == ["append_event"]);
        (is_append && select.from.is_empty() && select.selection.is_none()).then_some(function)
    }

    pub(crate) fn plan(function: &ast::Function, planner: &mut Planner<'_>) -> Result<Self> {
        let ast::FunctionArguments::List(list) = &function.args else { return Err(wrong("no arguments")) };
        let texts = Type::TEXT.array();
        let nothing = Scope::default();
        let mut bind = |expr: &ast::Expr, ty: Type| {
            Binder::new(planner, &nothing, "append_event").bind_as(expr, ty, Strength::Assignment)
        };
        let mut positional = Vec::new();
        let (mut store, mut fail_if_tags, mut fail_if_types, mut after, mut id) =
            (None, None, None, None, None);
        for argument in &list.args {
            match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    let ty = match positional.len() {
                        0 | 2 => Type::TEXT,
                        1 => texts,
                        _ => return Err(wrong("more than three arguments without a name")),
                    };
                    positional.push(bind(expr, ty)?);
                }
                ast::FunctionArg::ExprNamed {
                    name: ast::Expr::Identifier(name),
                    arg: ast::FunctionArgExpr::Expr(expr),
                    ..
                } => {
                    let name = folded(name);
                    let (slot, ty) = match name.as_str() {
                        "store" => (&mut store, Type::TEXT),
                        "fail_if_tags" => (&mut fail_if_tags, texts),
                        "fail_if_types" => (&mut fail_if_types, texts),
                        "after" => (&mut after, Type::INT8),
                        "id" => (&mut id, Type::UUID),
                        other => return Err(wrong(format!("there is no argument {other}"))),
                    };
                    if slot.replace(bind(expr, ty)?).is_some() {
                        return Err(wrong(format!("the argument {name} is given twice")));
                    }
                }
                other => return Err(wrong(format!("the argument {other}"))),
            }
        }
        let Ok([event_type, tags, data]) = <[Expr; 3]>::try_from(positional) else {
            return Err(wrong("type, tags and data are needed"));
        };
        Ok(Self { event_type, tags, data, store, fail_if_tags, fail_if_types, after, id })
    }

    pub(crate) fn run(&self, access: &mut Access<'_>, cx: &Context<'_>) -> Result<()> {
        let text = |expr: &Expr| match expr.constant(cx)? {
            Value::Text(text) => Ok(text.into_owned()),
            _ => Err(wrong("NULL where a text is needed")),
        };
        let texts = |expr: &Expr| -> Result<Vec<String>> {
            let Value::Array(array) = expr.constant(cx)? else {
                return Err(wrong("NULL where a list is needed"));
            };
            array
                .iter()
                .map(|item| match item {
                    Ok(Value::Text(text)) => Ok(text.into_owned()),
                    _ => Err(wrong("NULL in a list of texts")),
                })
                .collect()
        };
        let mut event = Event::new(text(&self.event_type)?).data(text(&self.data)?.into_bytes());
        for tag in texts(&self.tags)? {
            event = event.tag(tag);
        }
        if let Some(id) = &self.id
            && let Value::Uuid(bytes) = id.constant(cx)?
        {
            event = event.id(uuid::Uuid::from_bytes(bytes));
        }
        let name = self.store.as_ref().map_or_else(|| Ok("default".to_owned()), text)?;
        let store: EventStore = access.database().events(&name)?;
        let tags = self.fail_if_tags.as_ref().map(texts).transpose()?;
        let types = self.fail_if_types.as_ref().map(texts).transpose()?;
        let mut options = AppendOptions::default();
        if tags.is_some() || types.is_some() || self.after.is_some() {
            let query = match (types, tags) {
                (None, None) => Query::all(),
                (types, tags) => {
                    Query::from_items([QueryItem::new(types.unwrap_or_default(), tags.unwrap_or_default())])
                }
            };
            let mut condition = AppendCondition::none_match(query);
            if let Some(after) = &self.after {
                let position = after.constant(cx)?.as_integer().and_then(|p| u64::try_from(p).ok());
                condition = condition.after(Position(position.ok_or_else(|| wrong("after is a position"))?));
            }
            options.conditions.push(condition);
        }
        access.transaction()?.append(&store, &[event], options)?;
        Ok(())
    }
}
