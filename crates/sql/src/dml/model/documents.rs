//! INSERT, UPDATE and DELETE of documents, by the statements of the document model.
//!
//! Its indexes, validators, references, quotas and rules apply. A row is found by a query that returns `doc`,
//! whose `_id` identifies the document with its type; the column `_id` is a text.

use std::borrow::Cow;
use std::collections::HashSet;

use ropewalk::documents::lang::{
    Budget as Command, COMMAND_BYTES_MAX, Doc, DocBuf, Options, Owned, Update, Value as Bson, key,
};
use ropewalk::documents::{Collection, DocumentsError, DocumentsTx, Find, ID_INDEX, UpdateSpec, id_filter};
use ropewalk::tables::{Type, Value};
use sqlparser::ast;

use super::{ModelInsert, null_in, place_in, unsupported};
use crate::access::rights::Acting;
use crate::access::row_source::Access;
use crate::dml::keyed::{Beside, from_of, relations_of};
use crate::dml::write::{
    Proposed, Returning, Written, assignments_of, is_default, nothing_but_a_delete, nothing_but_an_update,
};
use crate::error::{Result, SqlError, state};
use crate::exec::finder::Finder;
use crate::exec::relations::Rows as _;
use crate::exec::relations::models::{Kind as ModelKind, ModelRelation};
use crate::expr::cast::cast_in;
use crate::expr::{Context, Expr, Record, bug};
use crate::limits::budget::Budget;
use crate::plan::bind::Binder;
use crate::plan::bind::scope::Scope;
use crate::plan::{Planner, alias_of};
use crate::syntax::current_of::cursor_of;
use crate::syntax::names::{column_of, parts, table_name};
use crate::types::json;
use crate::types::json_bson::{Replaced, document_of, id_text, json_of, value_of};

/// The column `doc`.
const DOC: (&str, Type) = ("doc", Type::JSON);
/// Number of columns of a collection.
const WIDTH: usize = 2;
/// The place of `excluded.doc`, after the columns of the stored document.
const PROPOSED_DOC: usize = 3;

/// ON CONFLICT of an INSERT of documents.
pub(super) struct OnConflict {
    /// It handles a conflict of `_id` alone, otherwise one of any unique index.
    is_of_id: bool,
    /// `None`: DO NOTHING. The new `doc`, and a condition, over the stored document and the proposed one.
    update: Option<(Expr, Option<Expr>)>,
}

impl OnConflict {
    pub(super) fn each_expr(&self, each: &mut dyn FnMut(&Expr)) {
        if let Some((doc, filter)) = &self.update {
            each(doc);
            filter.iter().for_each(each);
        }
    }
}

/// UPDATE or DELETE of the documents that a query finds.
pub(crate) struct Change {
    relation: ModelRelation,
    collection: Collection,
    acting: Acting,
    /// Its rows begin with the stored `doc`, followed by the new one.
    query: Finder,
    /// `None` deletes. True if the new `doc` is a literal, which is read as JSON.
    set: Option<bool>,
    returning: Option<Returning>,
    /// Positions of the other relations' columns in a row of the query, for RETURNING.
    others: Vec<usize>,
}

fn failed(error: DocumentsError) -> SqlError {
    ropewalk::Error::from(error).into()
}

/// Runs an operation on the documents of the transaction, which ends when the statement is cancelled.
fn within<R>(
    access: &mut Access<'_>,
    cx: &Context<'_>,
    work: impl FnOnce(&mut DocumentsTx<'_>) -> std::result::Result<R, DocumentsError>,
) -> Result<std::result::Result<R, DocumentsError>> {
    let watch = cx.interrupt.watch(cx.env);
    let look = || watch.documents().map_err(DocumentsError::Interrupted);
    let inner = watch.clone();
    let command = Command::new(COMMAND_BYTES_MAX, None, move || inner.documents());
    let mut documents = access.transaction()?.documents();
    let done = command.run(|| work(&mut documents.with_cancellation(&look)));
    if done.is_err() {
        watch.check()?;
    }
    Ok(done)
}

/// The document with this `_id`, if the caller may read it.
fn stored(
    access: &mut Access<'_>,
    cx: &Context<'_>,
    collection: &Collection,
    id: Bson<'_>,
) -> Result<Option<DocBuf>> {
    let find = Find::matching(id_filter(id));
    within(access, cx, |documents| documents.find_one(collection, &find))?.map_err(failed)
}

/// Replaces the document with this `_id`; a document that is the same is not written.
fn replace(
    access: &mut Access<'_>,
    cx: &Context<'_>,
    collection: &Collection,
    id: Bson<'_>,
    new: &DocBuf,
) -> Result<()> {
    // The `_id` comes first, so the document is never read as one of operators.
    let update = Update::parse(Bson::Document(new.doc()), None, &Options::default());
    let update = update.map_err(|error| failed(error.into()))?;
    let spec = UpdateSpec::new(id_filter(id), update);
    within(access, cx, |documents| documents.update_one(collection, &spec))?.map_err(failed)?;
    Ok(())
}

fn id_of(document: Doc<'_>) -> Bson<'_> {
    document.get("_id").unwrap_or(Bson::Null)
}

/// The columns of a document.
fn row_of(document: &DocBuf) -> Record {
    vec![Value::text(id_text(id_of(document.doc()))), Value::json(json_of(document.doc()))]
}

/// The document that a value of `doc` describes, in place of a stored one.
fn replacement(relation: &ModelRelation, value: &Value<'_>, stored: &DocBuf) -> Result<DocBuf> {
    let (text, takes_order) = match value {
        Value::Json(text) => (text, false),
        Value::Jsonb(text) => (text, true),
        Value::Null => return Err(null_in(relation, DOC.0)),
        _ => return Err(bug("a document that is no JSON")),
    };
    let stored = stored.doc();
    document_of(text, Some(id_of(stored)), Some(Replaced { stored, takes_order }))
}

impl Planner<'_> {
    /// Binds a new value of `doc`. A `jsonb` is not cast: it takes the order of the stored fields.
    fn new_doc(&mut self, expr: &ast::Expr, scope: &Scope) -> Result<Expr> {
        if is_default(expr) {
            return Err(unsupported("DEFAULT as a document"));
        }
        let typed = Binder::new(self, scope, "UPDATE").bind(expr)?;
        match typed.ty {
            Some(Type::JSONB) => Ok(typed.expr),
            _ => self.assigned(typed, DOC, scope),
        }
    }

    pub(super) fn documents_on_conflict(
        &mut self,
        on: &ast::OnConflict,
        relation: &ModelRelation,
        scope: &Scope,
    ) -> Result<OnConflict> {
        let is_of_id = match &on.conflict_target {
            None => false,
            Some(ast::ConflictTarget::Columns(names)) if matches!(names.as_slice(), [name] if name.value == "_id") => {
                true
            }
            Some(ast::ConflictTarget::OnConstraint(name)) if parts(name)? == [ID_INDEX] => true,
            Some(_) => {
                let message =
                    "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                return Err(SqlError::new(state::INVALID_COLUMN_REFERENCE, message)
                    .hint("write ON CONFLICT (_id), or ON CONFLICT DO NOTHING for every unique index"));
            }
        };
        let ast::OnConflictAction::DoUpdate(update) = &on.action else {
            return Ok(OnConflict { is_of_id, update: None });
        };
        if !is_of_id {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            return Err(SqlError::new(state::SYNTAX_ERROR, message).hint("for example, ON CONFLICT (_id)"));
        }
        let mut both = scope.clone();
        both.add_qualified("excluded", relation.fields().to_vec())?;
        let doc = assigned_doc(&update.assignments, relation)?;
        let doc = self.new_doc(&doc, &both)?;
        let filter = match &update.selection {
            None => None,
            Some(selection) => Some(Binder::new(self, &both, "WHERE").condition(selection)?),
        };
        Ok(OnConflict { is_of_id, update: Some((doc, filter)) })
    }

    /// The collection that an UPDATE or DELETE changes, and its reference; `None` for a table.
    fn changed_collection(
        &mut self,
        target: &ast::TableWithJoins,
    ) -> Result<Option<(ModelRelation, String)>> {
        let ast::TableFactor::Table { name, alias, args: None, .. } = &target.relation else {
            return Ok(None);
        };
        let Some(relation) = self.model_named(name, false)?.filter(|_| target.joins.is_empty()) else {
            return Ok(None);
        };
        let alias = alias_of(alias.as_ref())?.map_or_else(|| table_name(name), Ok)?;
        Ok(Some((relation, alias)))
    }

    /// Plans an UPDATE of documents; `None` for a target that is not of another model.
    pub(crate) fn model_update(&mut self, update: &ast::Update) -> Result<Option<Change>> {
        let Some((relation, alias)) = self.changed_collection(&update.table)? else { return Ok(None) };
        if !matches!(relation.kind(), ModelKind::Documents(..)) {
            return Err(relation.not_written());
        }
        nothing_but_an_update(update)?;
        let value = assigned_doc(&update.assignments, &relation)?;
        if is_default(&value) {
            return Err(unsupported("DEFAULT as a document"));
        }
        let is_literal = self.takes_type(&value, DOC.1)?;
        let exprs = vec![column_of(&alias, DOC.0), value.into_owned()];
        let target = (&update.table, from_of(update), update.selection.as_ref());
        let change = self.change((relation, alias), target, exprs, update.returning.as_deref())?;
        if !is_literal {
            self.check_assigned(DOC, change.query.columns().get(1).map_or(Type::TEXT, |column| column.ty))?;
        }
        Ok(Some(Change { set: Some(is_literal), ..change }))
    }

    /// Plans a DELETE of documents; `None` for a target that is not of another model.
    pub(crate) fn model_delete(&mut self, delete: &ast::Delete) -> Result<Option<Change>> {
        let ast::FromTable::WithFromKeyword(tables) = &delete.from else { return Ok(None) };
        let [target] = tables.as_slice() else { return Ok(None) };
        let Some((relation, alias)) = self.changed_collection(target)? else { return Ok(None) };
        if !matches!(relation.kind(), ModelKind::Documents(..)) {
            return Err(relation.not_written());
        }
        nothing_but_a_delete(delete)?;
        let exprs = vec![column_of(&alias, DOC.0)];
        let others = delete.using.as_deref().unwrap_or_default();
        let target = (target, others, delete.selection.as_ref());
        self.change((relation, alias), target, exprs, delete.returning.as_deref()).map(Some)
    }

    /// Plans the query that finds documents, and RETURNING.
    fn change(
        &mut self,
        (relation, alias): (ModelRelation, String),
        (target, others, selection): (&ast::TableWithJoins, &[ast::TableWithJoins], Option<&ast::Expr>),
        exprs: Vec<ast::Expr>,
        returning: Option<&[ast::SelectItem]>,
    ) -> Result<Change> {
        let ModelKind::Documents(collection, acting) = relation.kind() else {
            return Err(bug("no collection"));
        };
        let (collection, acting) = (collection.clone(), acting.clone());
        if selection.and_then(cursor_of).is_some() {
            return Err(SqlError::unsupported(
                "WHERE CURRENT OF for documents",
                "name the document: WHERE _id = ...",
            ));
        }
        let shown = if returning.is_some() { relations_of(others)? } else { Vec::new() };
        let query = self.key_query(target, others, selection, (exprs, &shown))?;
        let mut scope = Scope::default();
        scope.add(alias, relation.fields().to_vec())?;
        let (returning, others) = self.returning_beside(returning, scope, &query, &shown)?;
        Ok(Change { relation, collection, acting, query, set: None, returning, others })
    }
}

/// The value that an UPDATE assigns to `doc`.
fn assigned_doc<'a>(
    assignments: &'a [ast::Assignment],
    relation: &ModelRelation,
) -> Result<Cow<'a, ast::Expr>> {
    let set = assignments_of(assignments, &|name| place_in(relation, relation.fields(), name))?;
    match <[_; 1]>::try_from(set) {
        Ok([(1, value)]) => Ok(value),
        _ => Err(failed(DocumentsError::ImmutableId)),
    }
}

impl ModelInsert {
    /// Inserts the rows as documents, in order.
    pub(super) fn insert_documents(
        &self,
        (collection, acting): (&Collection, &Acting),
        rows: Vec<Proposed>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        access.transaction()?.documents().act_for(acting.caller());
        let (mut written, mut touched) = (Written::default(), HashSet::new());
        for row in rows {
            cx.interrupt.check(cx.env)?;
            let document = self.document(row)?;
            let inserted =
                within(access, cx, |documents| documents.insert_one(collection, document.bytes()))?;
            let id = match (inserted, &self.on_conflict) {
                (Ok(id), on) => {
                    if on.as_ref().is_some_and(|on| on.update.is_some()) {
                        touched.insert(key::key_of(id.value()));
                    }
                    id
                }
                (Err(DocumentsError::Duplicate { index, .. }), Some(on))
                    if !on.is_of_id || index == ID_INDEX =>
                {
                    match self.resolve(on, collection, &document, &mut touched, access, cx)? {
                        Some(id) => id,
                        None => continue,
                    }
                }
                (Err(error), _) => return Err(failed(error)),
            };
            let row = match &self.returning {
                None => Record::new(),
                // As stored, and only if the caller may read it.
                Some(_) => row_of(&stored(access, cx, collection, id.value())?.ok_or_else(gone)?),
            };
            written.row(&row, self.returning.as_ref(), cx, budget)?;
        }
        Ok(written)
    }

    /// The document of a row: `doc`, with the `_id` of the column if it has none.
    fn document(&self, row: Proposed) -> Result<DocBuf> {
        let mut values = row.into_iter().map(|value| value.filter(|value| *value != Value::Null));
        let (id, doc) = (values.next().flatten(), values.next().flatten());
        let doc = doc.ok_or_else(|| null_in(&self.relation, DOC.0))?;
        let id = id.map(|id| super::text_of(&id)).transpose()?;
        let document = document_of(&super::text_of(&doc)?, id.as_deref().map(Bson::String), None)?;
        match id {
            Some(id) if id_text(id_of(document.doc())) != id => {
                let message = format!("the column _id is {id:?}, and doc has another _id");
                Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message).hint("give the _id once"))
            }
            _ => Ok(document),
        }
    }

    /// Resolves the conflict of a proposed document with a stored one. Returns the `_id` of the document that
    /// was updated.
    fn resolve(
        &self,
        on: &OnConflict,
        collection: &Collection,
        document: &DocBuf,
        touched: &mut HashSet<Vec<u8>>,
        access: &mut Access<'_>,
        cx: &Context<'_>,
    ) -> Result<Option<Owned>> {
        let Some((new, filter)) = &on.update else { return Ok(None) };
        let id = id_of(document.doc());
        let old = stored(access, cx, collection, id)?.ok_or_else(gone)?;
        let both: Record = row_of(&old).into_iter().chain(row_of(document)).collect();
        if let Some(filter) = filter
            && !filter.holds(cx, &both)?
        {
            return Ok(None);
        }
        if !touched.insert(key::key_of(id)) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new(state::CARDINALITY_VIOLATION, message)
                .hint("ensure that no rows proposed for insertion have the same key"));
        }
        let new = match new {
            // With its types, which JSON does not have.
            Expr::Column(PROPOSED_DOC) => document.clone(),
            expr => replacement(&self.relation, &expr.eval(cx, &both)?, &old)?,
        };
        replace(access, cx, collection, id, &new)?;
        Ok(Some(Owned::from(id)))
    }
}

fn gone() -> SqlError {
    let message = "a document cannot be found by its _id";
    SqlError::new(state::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .hint("its _id is displayed as a value of another type; write it by the document interfaces")
}

impl Change {
    pub(super) fn collection(&self) -> &Collection {
        &self.collection
    }

    pub(super) fn returning(&self) -> Option<&Returning> {
        self.returning.as_ref()
    }

    pub(super) fn command(&self) -> &'static str {
        if self.set.is_some() { "UPDATE" } else { "DELETE" }
    }

    /// The line of EXPLAIN that describes the write.
    pub(crate) fn line(&self) -> String {
        let what = if self.set.is_some() { "Update" } else { "Delete" };
        format!("{what} collection {} by the _ids that a query finds", self.relation.name())
    }

    pub(super) fn run(
        &self,
        types: &[Type],
        access: &mut Access<'_>,
        cx: &Context<'_>,
        budget: &Budget,
    ) -> Result<Written> {
        let (mut rows, mut seen) = (Vec::new(), HashSet::new());
        self.query.run(types, access, cx, budget, &mut |row| {
            let Some(Value::Json(doc)) = row.first() else { return Err(bug("a row without its document")) };
            let id = value_of(json::member(doc, "_id").ok_or_else(|| bug("a document without _id"))?)?;
            let key = key::key_of(id.value());
            // A document that joins several rows is written once, for the first of them.
            if seen.insert(key.clone()) {
                budget.take_row(&row)?;
                budget.take(2 * key.len())?;
                rows.push((key, id, row));
            }
            Ok(true)
        })?;
        // Independent of the order in which the engine's threads found the rows.
        rows.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        access.transaction()?.documents().act_for(self.acting.caller());
        let mut written = Written::default();
        for (_, id, record) in rows {
            cx.interrupt.check(cx.env)?;
            let row = match self.set {
                Some(is_literal) => self.update(id.value(), is_literal, &record, access, cx)?,
                None => match self.delete(id.value(), &record, access, cx)? {
                    Some(row) => row,
                    None => continue,
                },
            };
            let beside = Beside { row: &row, width: WIDTH, record: &record, others: &self.others };
            written.row(&beside, self.returning.as_ref(), cx, budget)?;
        }
        Ok(written)
    }

    /// Replaces a document. Returns its columns, for RETURNING.
    fn update(
        &self,
        id: Bson<'_>,
        is_literal: bool,
        record: &Record,
        access: &mut Access<'_>,
        cx: &Context<'_>,
    ) -> Result<Record> {
        let old = stored(access, cx, &self.collection, id)?.ok_or_else(gone)?;
        let value = record.get(1).ok_or_else(|| bug("a value that is set"))?;
        let value = match value {
            Value::Text(_) if is_literal => cast_in(value.borrowed(), DOC.1, cx.zone)?,
            value => value.borrowed(),
        };
        let new = replacement(&self.relation, &value, &old)?;
        replace(access, cx, &self.collection, id, &new)?;
        match &self.returning {
            None => Ok(Record::new()),
            Some(_) => Ok(row_of(&stored(access, cx, &self.collection, id)?.ok_or_else(gone)?)),
        }
    }

    /// Deletes a document. Returns its columns; `None` if a reference has deleted it before.
    fn delete(
        &self,
        id: Bson<'_>,
        record: &Record,
        access: &mut Access<'_>,
        cx: &Context<'_>,
    ) -> Result<Option<Record>> {
        let filter = id_filter(id);
        let deleted = within(access, cx, |documents| documents.delete_one(&self.collection, &filter))?;
        let doc = record.first().cloned().ok_or_else(|| bug("a row without its document"))?;
        Ok(deleted.map_err(failed)?.then(|| vec![Value::text(id_text(id)), doc]))
    }
}
