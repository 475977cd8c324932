//! INSERT, UPDATE and DELETE on the relations of other models, in the transaction of the statement.
//!
//! ```text
//! INSERT ─▶ rows, computed as for a table ─▶ documents │ a batch of samples │ an append of events
//! UPDATE, DELETE of documents ─▶ SELECT doc, e FROM c, u WHERE … ─▶ write by `_id`
//! ```
//! Samples and events never change, so their relations take INSERT alone.
//!
//! Invariants
//! 1. All rows are computed before the first write: a statement never sees its own writes.
//! 2. The rules of collections apply to the caller of the session, as in its reads.

mod documents;
mod events;
mod metrics;

use ropewalk::documents::Collection;
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

pub(crate) use documents::Change;

use crate::access::row_source::Access;
use crate::dml::write::{Given, Proposed, Returning, Source, Targets, Written, nothing_but_an_insert};
use crate::error::{Result, SqlError, state};
use crate::exec::relations::Rows as _;
use crate::exec::relations::models::{Kind as ModelKind, ModelRelation};
use crate::expr::{Context, Expr, bug};
use crate::limits::budget::Budget;
use crate::plan::Planner;
use crate::plan::bind::scope::Scope;
use crate::syntax::names::{folded, parts, table_name};

/// An INSERT into a relation of another model.
pub(crate) struct ModelInsert {
    relation: ModelRelation,
    /// The columns that can have values.
    columns: Vec<(String, Type)>,
    /// The place of each value of a row in them.
    places: Vec<usize>,
    pub(crate) source: Source,
    on_conflict: Option<documents::OnConflict>,
    pub(crate) returning: Option<Returning>,
}

/// A statement that writes a relation of another model.
pub(crate) enum ModelWrite {
    Insert(ModelInsert),
    /// UPDATE or DELETE of documents.
    Change(Change),
}

fn unsupported(what: impl std::fmt::Display) -> SqlError {
    SqlError::unsupported(what, "write VALUES or a query into columns of the relation")
}

/// The error for a column without a value.
fn null_in(relation: &ModelRelation, column: &str) -> SqlError {
    let name = relation.name();
    let message =
        format!("null value in column \"{column}\" of relation \"{name}\" violates not-null constraint");
    SqlError::new(state::NOT_NULL_VIOLATION, message)
}

/// The place of a column of a relation.
fn place_in(relation: &ModelRelation, columns: &[(String, Type)], column: &ast::ObjectName) -> Result<usize> {
    let place = match parts(column)?.as_slice() {
        [name] => columns.iter().position(|(known, _)| known == name),
        _ => return Err(unsupported(format!("the column {column}"))),
    };
    place.ok_or_else(|| {
        let message = format!("column \"{column}\" of relation \"{}\" does not exist", relation.name());
        SqlError::new(state::UNDEFINED_COLUMN, message)
    })
}

impl Planner<'_> {
    /// The relation of another model with this name; `None` if it denotes another object, or nothing.
    /// Stores and metrics that do not exist are found if `may_be_new`.
    fn model_named(&mut self, name: &ast::ObjectName, may_be_new: bool) -> Result<Option<ModelRelation>> {
        if !matches!(self.table(name), Err(error) if error.state == state::UNDEFINED_TABLE) {
            return Ok(None);
        }
        let kept = self.kept_name(name).ok();
        if let Some(kept) = &kept
            && (crate::access::views::find(&mut self.access, kept)?.is_some()
                || crate::access::sequences::find(&mut self.access, &self.standing.created, kept)?.is_some())
        {
            return Ok(None);
        }
        let parts = parts(name)?;
        if crate::catalog::is_relation(&parts) {
            return Ok(None);
        }
        // A name in a schema of tables is a mistake rather than a new store.
        let is_schema = !may_be_new || parts.len() == 2 && kept.is_some();
        let found = self.model_relation(&parts, is_schema)?;
        // The plan is valid for one run: a table of this name may be created.
        self.is_fleeting |= found.is_some() && !self.is_fixed_collection(&parts);
        Ok(found)
    }

    /// True for a collection that a table of the same name does not replace.
    fn is_fixed_collection(&self, names: &[String]) -> bool {
        matches!(names, [database, name] if self.standing.settings.collection(database, name).is_some())
    }

    /// The collection that an INSERT creates. The statement has to list its columns, so that a wrong name of a
    /// table creates nothing.
    fn new_collection(
        &mut self,
        name: &ast::ObjectName,
        listed: &[ast::ObjectName],
    ) -> Result<Option<ModelRelation>> {
        let names = parts(name)?;
        let [database, collection] = names.as_slice() else { return Ok(None) };
        for column in listed {
            if !matches!(parts(column)?.as_slice(), [name] if name == "_id" || name == "doc") {
                return Ok(None);
            }
        }
        let is_reserved = database.starts_with("pg_") || database == "information_schema";
        if listed.is_empty()
            || is_reserved
            || self.is_fixed_collection(&names)
            || self.kept_name(name).is_ok()
        {
            return Ok(None);
        }
        let acting = self.standing.acting.clone();
        let found = self.access.database().documents().collection(database, collection).ok();
        self.is_fleeting |= found.is_some();
        Ok(found.map(|collection| ModelRelation::of_collection(collection, &acting)))
    }

    /// Plans an INSERT into a relation of another model; `None` for any other target.
    pub(crate) fn model_insert(&mut self, insert: &ast::Insert) -> Result<Option<ModelInsert>> {
        let ast::TableObject::TableName(name) = &insert.table else { return Ok(None) };
        let relation = match self.model_named(name, true)? {
            Some(relation) => relation,
            None => match self.new_collection(name, &insert.columns)? {
                Some(relation) => relation,
                None => return Ok(None),
            },
        };
        nothing_but_an_insert(insert)?;
        if crate::syntax::overriding::of(insert).is_some() {
            return Err(unsupported("OVERRIDING"));
        }
        let columns = match relation.kind() {
            ModelKind::Metric(..) => metrics::columns(&insert.columns)?,
            _ => relation.fields().to_vec(),
        };
        let shown = columns.iter().map(|(name, ty)| (name.as_str(), *ty)).collect();
        let place = |column: &ast::ObjectName| place_in(&relation, &columns, column);
        let targets = Targets::of(&insert.columns, shown, &place)?;
        let (source, width) = self.insert_source(insert.source.as_deref(), &targets)?;
        let mut places = targets.places;
        places.truncate(width);
        let alias = match &insert.table_alias {
            Some(alias) => folded(&alias.alias),
            None => table_name(name)?,
        };
        let mut scope = Scope::default();
        scope.add(alias, columns.clone())?;
        let is_documents = matches!(relation.kind(), ModelKind::Documents(..));
        let on_conflict = match &insert.on {
            None => None,
            Some(ast::OnInsert::OnConflict(on)) if is_documents => {
                Some(self.documents_on_conflict(on, &relation, &scope)?)
            }
            Some(other) => return Err(unsupported(other.to_string().trim())),
        };
        if matches!(relation.kind(), ModelKind::Events(_)) {
            events::check_columns(&places, &source)?;
            if insert.returning.is_some() {
                return Err(SqlError::unsupported(
                    "RETURNING of an INSERT of events",
                    "the commit assigns positions: call last_event_position() after it",
                ));
            }
        }
        let returning = self.returning(insert.returning.as_deref(), &scope)?;
        Ok(Some(ModelInsert { relation, columns, places, source, on_conflict, returning }))
    }
}

impl ModelInsert {
    /// True if the statement needs the right to read.
    fn reads(&self) -> bool {
        self.returning.is_some() || self.on_conflict.is_some()
    }

    /// The values of a row for all columns; `None` is the default of a column.
    fn placed(&self, proposed: Proposed) -> Proposed {
        let mut row: Proposed = vec![None; self.columns.len()];
        for (place, value) in self.places.iter().zip(proposed) {
            if let Some(slot) = row.get_mut(*place) {
                *slot = value;
            }
        }
        row
    }

    fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let rows = self.source.proposed(types, access, cx, budget)?;
        let rows = rows.into_iter().map(|row| self.placed(row)).collect();
        match self.relation.kind() {
            ModelKind::Documents(collection, acting) => {
                self.insert_documents((collection, acting), rows, access, cx, budget)
            }
            ModelKind::Metric(store, metric) => {
                self.append_samples((store, metric), rows, access, cx, budget)
            }
            ModelKind::Events(store) => self.append_events(store, rows, access, cx),
            ModelKind::Promql { .. } => Err(bug("an INSERT into a query")),
        }
    }

    /// The line of EXPLAIN that describes the write.
    pub(crate) fn line(&self) -> String {
        let kind = match self.relation.kind() {
            ModelKind::Documents(..) => "collection",
            ModelKind::Events(_) => "event store",
            ModelKind::Metric(..) | ModelKind::Promql { .. } => "metric",
        };
        format!("Insert into {kind} {}", self.relation.name())
    }
}

impl ModelWrite {
    pub(crate) fn returning(&self) -> Option<&Returning> {
        match self {
            Self::Insert(insert) => insert.returning.as_ref(),
            Self::Change(change) => change.returning(),
        }
    }

    /// The collection that it writes; `None` for samples and events.
    pub(crate) fn collection(&self) -> Option<&Collection> {
        match self {
            Self::Insert(insert) => match insert.relation.kind() {
                ModelKind::Documents(collection, _) => Some(collection),
                ModelKind::Metric(..) | ModelKind::Events(_) | ModelKind::Promql { .. } => None,
            },
            Self::Change(change) => Some(change.collection()),
        }
    }

    /// True if the statement needs the right to read.
    pub(crate) fn reads(&self) -> bool {
        match self {
            Self::Insert(insert) => insert.reads(),
            Self::Change(_) => true,
        }
    }

    /// True for an INSERT of at most `rows_max` rows of VALUES.
    pub(crate) fn is_brief(&self, rows_max: usize) -> bool {
        matches!(self, Self::Insert(insert) if insert.source.is_brief(rows_max))
    }

    /// Calls `each` for every expression of an INSERT. An UPDATE or DELETE is never brief.
    pub(crate) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        let Self::Insert(insert) = self else { return };
        insert.source.each_expr(each);
        insert.on_conflict.iter().for_each(|on| on.each_expr(each));
        insert.returning.iter().for_each(|returning| returning.each_expr(each));
    }

    /// Runs the statement; returns its command, too.
    pub(crate) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<(&'static str, Written)> {
        Ok(match self {
            Self::Insert(insert) => ("INSERT", insert.run(types, access, cx, budget)?),
            Self::Change(change) => (change.command(), change.run(types, access, cx, budget)?),
        })
    }
}

/// True if a row of VALUES gives a value for its column `number`.
fn is_given(source: &Source, number: usize) -> bool {
    match source {
        Source::Values(rows) => rows.iter().any(|row| matches!(row.get(number), Some(Given::Expr(_)))),
        Source::Select(_) | Source::Whole(..) => true,
    }
}

/// The text of a value that is text or JSON.
fn text_of(value: &Value<'_>) -> Result<String> {
    match value {
        Value::Text(text) | Value::Json(text) | Value::Jsonb(text) => Ok(text.clone().into_owned()),
        _ => Err(bug("a column of text")),
    }
}
