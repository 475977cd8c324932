//! `SELECT append_event(type, tags, data, ...) [FROM ...]`: an event for each row of the query, in the
//! current transaction.
//!
//! Named arguments: `store`, `metadata` (a JSON object of strings), `id`, `idempotency_key`; and the
//! condition under which the commit may append: `fail_if_tags` and `fail_if_types` (no event has one of these
//! types and all of these tags), or `fail_if` (a JSON array of such items: `[{"types": [...], "tags": [...]},
//! ...]`), and `after` (no such event after this position). Consecutive rows with the same store, condition
//! and key are one append.
//! A NULL `after` is the position before the first event; NULL is an error for every other argument but `id` and `metadata`. An
//! idempotency key identifies the whole transaction, which may contain one append only.
//! The commit assigns positions, so the results are NULL; `last_event_position()` returns the last one
//! afterwards.

use std::borrow::Cow;

use ropewalk::events::QueryItem;
use ropewalk::tables::{Type, Value};
use ropewalk::{AppendCondition, AppendOptions, Event, EventStore, Position, Query};
use sqlparser::ast;

use crate::access::row_source::Access;
use crate::dml::write::Source;
use crate::error::{Result, SqlError, state};
use crate::expr::{Context, Expr, Record};
use crate::limits::budget::Budget;
use crate::plan::Planner;
use crate::syntax::names::{folded, parts};
use crate::types::json;
use crate::types::outcome::ResultColumn;

/// A call of `append_event`.
pub(crate) struct Append {
    /// The rows of arguments.
    source: Source,
    /// The argument in each column of a row.
    arguments: Vec<Argument>,
    pub(crate) columns: Vec<ResultColumn>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument {
    Type,
    Tags,
    Data,
    Store,
    Metadata,
    Id,
    IdempotencyKey,
    FailIfTags,
    FailIfTypes,
    FailIf,
    After,
}

impl Argument {
    const POSITIONAL: [Self; 3] = [Self::Type, Self::Tags, Self::Data];

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "store" => Self::Store,
            "metadata" => Self::Metadata,
            "id" => Self::Id,
            "idempotency_key" => Self::IdempotencyKey,
            "fail_if_tags" => Self::FailIfTags,
            "fail_if_types" => Self::FailIfTypes,
            "fail_if" => Self::FailIf,
            "after" => Self::After,
            _ => return None,
        })
    }

    fn data_type(self) -> ast::DataType {
        use ast::DataType as D;
        match self {
            Self::Type | Self::Data | Self::Store | Self::IdempotencyKey => D::Text,
            Self::Tags | Self::FailIfTags | Self::FailIfTypes => {
                D::Array(ast::ArrayElemTypeDef::SquareBracket(Box::new(D::Text), None))
            }
            Self::Metadata | Self::FailIf => D::JSON,
            Self::Id => D::Uuid,
            Self::After => D::BigInt(None),
        }
    }
}

fn wrong(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(state::UNDEFINED_FUNCTION, format!("append_event: {what}")).hint(
        "append_event(type text, tags text[], data text, store => text, metadata => json, id => uuid, \
         idempotency_key => text, fail_if_tags => text[], fail_if_types => text[], fail_if => json, after => bigint)",
    )
}

fn only_arguments(function: &ast::Function) -> SqlError {
    SqlError::unsupported(format!("the call {function}"), "append_event takes arguments alone")
}

fn invalid(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(state::INVALID_PARAMETER_VALUE, format!("append_event: {what}"))
}

/// `CAST(expr AS data_type)`, so that literals and parameters get their types.
fn cast(expr: &ast::Expr, data_type: ast::DataType) -> ast::SelectItem {
    ast::SelectItem::UnnamedExpr(ast::Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(expr.clone()),
        data_type,
        array: false,
        format: None,
    })
}

impl Append {
    /// The call, if it is the only item that a query selects.
    pub(crate) fn of(query: &ast::Query) -> Option<&ast::Function> {
        let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
        let ([ast::SelectItem::UnnamedExpr(ast::Expr::Function(function))]
        | [ast::SelectItem::ExprWithAlias { expr: ast::Expr::Function(function), .. }]) =
            select.projection.as_slice()
        else {
            return None;
        };
        let is_append = parts(&function.name).is_ok_and(|parts| parts == ["append_event"]);
        is_append.then_some(function)
    }

    pub(crate) fn plan(
        query: &ast::Query,
        function: &ast::Function,
        planner: &mut Planner<'_>,
    ) -> Result<Self> {
        let ast::FunctionArguments::List(list) = &function.args else { return Err(wrong("no arguments")) };
        let ast::Function { filter: None, null_treatment: None, over: None, within_group, .. } = function
        else {
            return Err(only_arguments(function));
        };
        if !within_group.is_empty() || list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
            return Err(only_arguments(function));
        }
        let (mut arguments, mut projection) = (Vec::new(), Vec::new());
        for argument in &list.args {
            let (kind, expr) = match argument {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    let kind = Argument::POSITIONAL.get(arguments.len());
                    (*kind.ok_or_else(|| wrong("more than three arguments without a name"))?, expr)
                }
                ast::FunctionArg::ExprNamed {
                    name: ast::Expr::Identifier(name),
                    arg: ast::FunctionArgExpr::Expr(expr),
                    ..
                } => {
                    let name = folded(name);
                    let kind = Argument::named(&name);
                    (kind.ok_or_else(|| wrong(format!("there is no argument {name}")))?, expr)
                }
                other => return Err(wrong(format!("the argument {other}"))),
            };
            if arguments.contains(&kind) {
                return Err(wrong(format!("an argument is given twice: {argument}")));
            }
            arguments.push(kind);
            projection.push(cast(expr, kind.data_type()));
        }
        if !Argument::POSITIONAL.iter().all(|needed| arguments.contains(needed)) {
            return Err(wrong("type, tags and data are needed"));
        }
        let is_item =
            [Argument::FailIfTags, Argument::FailIfTypes].iter().any(|kind| arguments.contains(kind));
        if is_item && arguments.contains(&Argument::FailIf) {
            return Err(wrong("fail_if excludes fail_if_tags and fail_if_types"));
        }
        let mut rows = query.clone();
        let mut name = "append_event".to_owned();
        if let ast::SetExpr::Select(select) = rows.body.as_mut() {
            if let [ast::SelectItem::ExprWithAlias { alias, .. }] = select.projection.as_slice() {
                name = folded(alias);
            }
            select.projection = projection;
        }
        let source = planner.source_of(&rows)?;
        let columns = vec![ResultColumn { name, ty: Type::INT8 }];
        Ok(Self { source, arguments, columns })
    }

    /// True for one row of arguments.
    pub(crate) fn is_brief(&self) -> bool {
        matches!(&self.source, Source::Select(select) if select.levels.is_empty())
    }

    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        self.source.each_expr(each);
    }

    /// Appends the events; returns the number of rows.
    pub(crate) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<u64> {
        let mut pending: Option<Call> = None;
        let mut count = 0;
        for record in self.source.records(types, access, cx, budget)? {
            cx.interrupt.check(cx.env)?;
            let call = self.call(record)?;
            count += 1;
            match &mut pending {
                Some(open) if open.store == call.store && open.options == call.options => {
                    open.events.extend(call.events);
                }
                _ => {
                    if let Some(done) = pending.replace(call) {
                        done.append(access)?;
                    }
                }
            }
        }
        if let Some(done) = pending {
            done.append(access)?;
        }
        Ok(count)
    }

    /// The append that one row describes.
    fn call(&self, record: Record) -> Result<Call> {
        let mut row: Vec<(Argument, Value<'static>)> = self.arguments.iter().copied().zip(record).collect();
        let null_after = (Argument::After, Value::Null);
        let is_first = row.contains(&null_after);
        row.retain(|argument| *argument != null_after);
        let may_be_null = |kind: &Argument| matches!(kind, Argument::Id | Argument::Metadata);
        if row.iter().any(|(kind, value)| *value == Value::Null && !may_be_null(kind)) {
            return Err(invalid("NULL where a value is needed"));
        }
        let mut take = |kind: Argument| {
            let place = row.iter().position(|(known, value)| *known == kind && *value != Value::Null)?;
            Some(row.swap_remove(place).1)
        };
        let needed = |value: Option<Value<'static>>| value.ok_or_else(|| invalid("a value is missing"));
        let (event_type, data) = (needed(take(Argument::Type))?, needed(take(Argument::Data))?);
        let mut event = Event::new(text(event_type)?).data(text(data)?.into_bytes());
        for tag in texts(&needed(take(Argument::Tags))?)? {
            event = event.tag(tag);
        }
        if let Some(metadata) = take(Argument::Metadata) {
            let pairs = metadata_of(&text(metadata)?);
            for (key, value) in pairs.ok_or_else(|| invalid("metadata is a JSON object of texts"))? {
                event = event.metadata(key, value);
            }
        }
        if let Some(Value::Uuid(bytes)) = take(Argument::Id) {
            event = event.id(uuid::Uuid::from_bytes(bytes));
        }
        let store = take(Argument::Store).map_or_else(|| Ok("default".to_owned()), text)?;
        let types = take(Argument::FailIfTypes).map(|value| texts(&value)).transpose()?;
        let tags = take(Argument::FailIfTags).map(|value| texts(&value)).transpose()?;
        let items = take(Argument::FailIf).map(|value| items_of(&text(value)?)).transpose()?;
        let query = match (types, tags, items) {
            (None, None, None) => None,
            (_, _, Some(items)) => Some(Query::from_items(items)),
            (types, tags, None) => {
                Some(Query::from_items([QueryItem::new(types.unwrap_or_default(), tags.unwrap_or_default())]))
            }
        };
        let after = match take(Argument::After) {
            // NULL: the position was read before the first event.
            None => is_first.then_some(Position(0)),
            Some(after) => {
                let position = after.as_integer().and_then(|position| u64::try_from(position).ok());
                Some(Position(position.ok_or_else(|| invalid("after is a position"))?))
            }
        };
        let mut options = AppendOptions::default();
        if query.is_some() || after.is_some() {
            let mut condition = AppendCondition::none_match(query.unwrap_or_else(Query::all));
            if let Some(after) = after {
                condition = condition.after(after);
            }
            options.conditions.push(condition);
        }
        options.idempotency_key = take(Argument::IdempotencyKey).map(text).transpose()?;
        Ok(Call { store, events: vec![event], options })
    }
}

/// One append.
struct Call {
    store: String,
    events: Vec<Event>,
    options: AppendOptions,
}

impl Call {
    fn append(self, access: &mut Access<'_>) -> Result<()> {
        let store = access.database().events(&self.store)?;
        append(access, &store, &self.events, self.options)
    }
}

/// Appends events in the transaction of the statement.
pub(super) fn append(
    access: &mut Access<'_>,
    store: &EventStore,
    events: &[Event],
    options: AppendOptions,
) -> Result<()> {
    let transaction = access.transaction()?;
    let has_key = options.idempotency_key.is_some();
    if transaction.has_idempotency_key() || has_key && transaction.pending_appends() > 0 {
        let what = "a transaction with an idempotency key may contain one append only: the key identifies the whole transaction";
        return Err(invalid(what));
    }
    transaction.append(store, events, options)?;
    Ok(())
}

fn text(value: Value<'static>) -> Result<String> {
    match value {
        Value::Text(text) | Value::Json(text) => Ok(text.into_owned()),
        other => Err(invalid(format!("{other} where a text is needed"))),
    }
}

fn texts(value: &Value<'static>) -> Result<Vec<String>> {
    let Value::Array(array) = value else { return Err(invalid("no list of texts")) };
    let item = |item| match item {
        Ok(Value::Text(text)) => Ok(text.into_owned()),
        _ => Err(invalid("NULL in a list of texts")),
    };
    array.iter().map(item).collect()
}

/// The pairs of a JSON object of strings; `None` for other values.
pub(super) fn metadata_of(text: &str) -> Option<Vec<(String, String)>> {
    let pair = |(key, value): (String, &str)| {
        let is_text = json::kind(value) == "string";
        Some((key, json::as_text(value).filter(|_| is_text)?.into_owned()))
    };
    json::members(text)?.into_iter().map(pair).collect()
}

/// The items of `fail_if`.
fn items_of(text: &str) -> Result<Vec<QueryItem>> {
    let wrong = || invalid(r#"fail_if is a JSON array of {"types": [texts], "tags": [texts]}"#);
    let list = |value: &str| -> Result<Vec<String>> {
        let text = |part: &&str| json::kind(part) == "string";
        let parts = json::all_elements(value).filter(|parts| parts.iter().all(text));
        let texts = parts.ok_or_else(wrong)?.into_iter().map(|part| json::as_text(part).map(Cow::into_owned));
        texts.collect::<Option<_>>().ok_or_else(wrong)
    };
    let item = |part: &str| {
        let (mut types, mut tags) = (Vec::new(), Vec::new());
        for (key, value) in json::members(part).ok_or_else(wrong)? {
            match key.as_str() {
                "types" => types = list(value)?,
                "tags" => tags = list(value)?,
                _ => return Err(wrong()),
            }
        }
        Ok(QueryItem::new(types, tags))
    };
    let items: Vec<QueryItem> =
        json::all_elements(text).ok_or_else(wrong)?.into_iter().map(item).collect::<Result<_>>()?;
    // An empty list would match every event.
    if items.is_empty() { Err(wrong()) } else { Ok(items) }
}
