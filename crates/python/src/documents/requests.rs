//! Bodies of requests about documents.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use ropewalk::documents::lang::{
    DocBuf, Filter, Options, Owned, Pipeline, Projection, Sort, Update, Value, Writer,
};
use ropewalk::documents::{Find, FindAndModify, Hint, UpdateSpec, id_filter};

use crate::error::{Fault, Result};
use crate::value::body::{Body, expected, list};
use crate::value::bson;

/// A read or write of documents.
pub(crate) enum Work {
    /// Counts the matches.
    Count(Find),
    /// The distinct values of a field.
    Distinct(String, Filter),
    /// Runs a pipeline.
    Aggregate(Pipeline),
    /// Reads a document by its `_id`.
    Get(Owned),
    /// Reads the matches.
    Find(Find),
    /// Writes.
    Change(Change),
}

/// A write of documents.
pub(crate) enum Change {
    /// Inserts documents.
    Insert(Vec<DocBuf>),
    /// Stores a document, in place of the one with its `_id` if there is one.
    Put(Owned, DocBuf, Box<UpdateSpec>),
    /// Updates the first match, or all.
    Update(Box<UpdateSpec>, bool),
    /// Deletes the matches.
    Delete(Find),
    /// Updates or deletes one document, and returns it.
    Modify(Box<FindAndModify>),
}

/// The work that an action names.
pub(crate) fn work(action: &str, body: &mut Body<'_, '_>, options: &Options) -> Result<Work> {
    Ok(match action {
        "count" => Work::Count(Find::matching(filter(body, options)?)),
        "distinct" => Work::Distinct(body.need_text("field")?, filter(body, options)?),
        "aggregate" => Work::Aggregate(pipeline(body, options)?),
        "insert" => Work::Change(Change::Insert(documents(body)?)),
        "put" => Work::Change(put(body, options)?),
        "update" => Work::Change(update(body, options)?),
        "delete" => Work::Change(delete(body, options)?),
        "modify" => Work::Change(modify(body, options)?),
        other => return Err(Fault::invalid(format!("unknown action {other:?} on documents"))),
    })
}

fn documents(body: &mut Body<'_, '_>) -> Result<Vec<DocBuf>> {
    let given = body.list("documents")?;
    if given.is_empty() {
        return Err(Fault::invalid("documents: at least one is needed"));
    }
    let document =
        |(place, one): (usize, &Bound<'_, PyAny>)| bson::document(&format!("documents[{place}]"), one);
    given.iter().enumerate().map(document).collect()
}

fn filter(body: &mut Body<'_, '_>, options: &Options) -> Result<Filter> {
    match body.get("filter")? {
        Some(given) => Ok(Filter::parse(bson::document("filter", &given)?.doc(), options)?),
        None => Ok(Filter::all()),
    }
}

fn sort(body: &mut Body<'_, '_>) -> Result<Option<Sort>> {
    let Some(given) = body.get("sort")? else { return Ok(None) };
    Ok(Some(Sort::parse(bson::document("sort", &given)?.doc())?))
}

fn projection(body: &mut Body<'_, '_>, options: &Options) -> Result<Option<Projection>> {
    let Some(given) = body.get("projection")? else { return Ok(None) };
    Ok(Some(Projection::parse(bson::document("projection", &given)?.doc(), options)?))
}

/// An index by its name, or by its fields: `"a_1"`, `{"a": 1}`.
fn hint(body: &mut Body<'_, '_>) -> Result<Option<Hint>> {
    let Some(given) = body.get("hint")? else { return Ok(None) };
    if let Ok(name) = given.cast::<PyString>() {
        return Ok(Some(Hint::Name(name.to_str()?.to_owned())));
    }
    let fields = bson::document("hint", &given)?;
    let field = |(path, direction): (&str, Value<'_>)| match direction.as_double() {
        Some(direction) if direction != 0.0 => Ok((path.to_owned(), direction < 0.0)),
        _ => Err(Fault::invalid(format!("hint: {path:?} is neither 1 nor -1"))),
    };
    Ok(Some(Hint::Fields(fields.doc().iter().map(field).collect::<Result<_>>()?)))
}

/// `filter`, `sort`, `projection`, `hint`, `skip` and `limit`.
pub(crate) fn find(body: &mut Body<'_, '_>, options: &Options) -> Result<Find> {
    let mut find = Find::matching(filter(body, options)?);
    if let Some(sort) = sort(body)? {
        find = find.sort(sort);
    }
    if let Some(projection) = projection(body, options)? {
        find = find.project(projection);
    }
    if let Some(hint) = hint(body)? {
        find = find.hint(hint);
    }
    if let Some(documents) = body.count("skip")? {
        find = find.skip(documents);
    }
    if let Some(documents) = body.count("limit")? {
        find = find.limit(documents);
    }
    Ok(find)
}

fn pipeline(body: &mut Body<'_, '_>, options: &Options) -> Result<Pipeline> {
    let given = body.need("pipeline")?;
    let variables = body.get("let")?.map(|given| bson::document("let", &given)).transpose()?;
    let stages = bson::owned(&list_of(&given)?)?;
    let Some(stages) = stages.value().as_array() else { return Err(expected("pipeline", "a list", &given)) };
    Ok(Pipeline::parse(stages, &Options { variables, ..options.clone() })?)
}

/// A sequence as a list.
fn list_of<'py>(given: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    Ok(PyList::new(given.py(), list("pipeline", given)?)?.into_any())
}

fn put(body: &mut Body<'_, '_>, options: &Options) -> Result<Change> {
    let id = bson::owned(&body.need("id")?)?;
    let given = bson::document("document", &body.need("document")?)?;
    let mut document = Writer::new();
    document.put("_id", id.value());
    for (name, value) in given.doc().iter().filter(|(name, _)| *name != "_id") {
        document.put(name, value);
    }
    let document = document.finish();
    let replacement = Update::parse(Value::Document(document.doc()), None, options)?;
    let spec = UpdateSpec::new(id_filter(id.value()), replacement);
    Ok(Change::Put(id, document, Box::new(spec)))
}

fn changes(body: &mut Body<'_, '_>, options: &Options) -> Result<Option<Update>> {
    let filters = body.get("array_filters")?.map(|given| bson::owned(&given)).transpose()?;
    let filters = match &filters {
        None => None,
        Some(filters) => Some(
            filters.value().as_array().ok_or_else(|| Fault::invalid("array_filters: a list is needed"))?,
        ),
    };
    let Some(given) = body.get("update")? else { return Ok(None) };
    Ok(Some(Update::parse(bson::owned(&given)?.value(), filters, options)?))
}

fn update(body: &mut Body<'_, '_>, options: &Options) -> Result<Change> {
    let filter = filter(body, options)?;
    let changes = changes(body, options)?.ok_or_else(|| Fault::invalid("update: is needed"))?;
    let mut spec = UpdateSpec::new(filter, changes);
    let many = body.flag("many")?;
    spec.upsert = body.flag("upsert")?;
    spec.sort = sort(body)?.map(Arc::new);
    spec.hint = hint(body)?;
    if many && spec.sort.is_some() {
        return Err(Fault::invalid("sort excludes many"));
    }
    Ok(Change::Update(Box::new(spec), many))
}

fn delete(body: &mut Body<'_, '_>, options: &Options) -> Result<Change> {
    let find = Find::matching(filter(body, options)?);
    Ok(Change::Delete(if body.flag("many")? { find } else { find.limit(1) }))
}

fn modify(body: &mut Body<'_, '_>, options: &Options) -> Result<Change> {
    let filter = filter(body, options)?;
    let (upsert, after) = (body.flag("upsert")?, body.flag("after")?);
    let mut spec = match (changes(body, options)?, body.flag("delete")?) {
        (Some(changes), false) => FindAndModify::update(filter, changes),
        (None, true) if upsert || after => {
            return Err(Fault::invalid("upsert and after go with update"));
        }
        (None, true) => FindAndModify::delete(filter),
        _ => return Err(Fault::invalid("one of update and delete is needed")),
    };
    spec.sort = sort(body)?.map(Arc::new);
    spec.projection = projection(body, options)?.map(Arc::new);
    spec.hint = hint(body)?;
    (spec.upsert, spec.return_new) = (upsert, after);
    Ok(Change::Modify(Box::new(spec)))
}

/// The work of an operation of a transaction: one of `insert`, `update`, `delete`, `get` and `find`.
pub(crate) fn operation(body: &mut Body<'_, '_>, options: &Options) -> Result<Work> {
    if let Some(document) = body.get("insert")? {
        return Ok(Work::Change(Change::Insert(vec![bson::document("insert", &document)?])));
    }
    if let Some(id) = body.get_any("get")? {
        return Ok(Work::Get(bson::owned(&id)?));
    }
    if let Some(fields) = body.object("update")? {
        return within(&fields, |body| Ok(Work::Change(update(body, options)?)));
    }
    if let Some(fields) = body.object("delete")? {
        return within(&fields, |body| Ok(Work::Change(delete(body, options)?)));
    }
    if let Some(fields) = body.object("find")? {
        return within(&fields, |body| Ok(Work::Find(find(body, options)?)));
    }
    Err(Fault::invalid("one of insert, update, delete, get and find is needed"))
}

fn within(fields: &Bound<'_, PyDict>, read: impl FnOnce(&mut Body<'_, '_>) -> Result<Work>) -> Result<Work> {
    let mut body = Body::new(fields);
    let work = read(&mut body)?;
    body.finish()?;
    Ok(work)
}

/// Counts at most so many documents that match the filter.
pub(crate) fn count(body: &mut Body<'_, '_>, options: &Options, most: usize) -> Result<Work> {
    Ok(Work::Count(Find::matching(filter(body, options)?).limit(most)))
}
