//! Reads and writes of documents: BSON or Extended JSON becomes filters, updates and queries.

use std::sync::Arc;

use ropewalk::documents::lang::{DocBuf, Filter, LangError, Options, Owned, Projection, Sort, Update, Value};
use ropewalk::documents::{DocumentsError, Find, Hint, UpdateSpec};
use ropewalk_transactions::DocumentsWork;
use ropewalk_wire::{WireError, extjson_parser};

use crate::proto::ropewalk::v1 as proto;
use crate::proto::ropewalk::v1::document::Encoding;
use crate::proto::ropewalk::v1::documents_operation::Operation as WorkIn;
use crate::proto::ropewalk::v1::index_hint::Index;
use crate::proto::ropewalk::v1::update_documents::Change;

/// The read or write of an operation.
///
/// # Errors
/// It is absent, or a part of it is invalid.
pub(super) fn work(work: Option<WorkIn>, options: &Options) -> Result<DocumentsWork, WireError> {
    let missing = || WireError::invalid("one of insert, update, delete, get and find is needed");
    match work.ok_or_else(missing)? {
        WorkIn::Insert(inserted) => Ok(DocumentsWork::Insert(document("insert", inserted)?)),
        WorkIn::Update(update) => {
            let many = update.many;
            Ok(DocumentsWork::Update { spec: update_spec(update, options).map_err(within("update"))?, many })
        }
        WorkIn::Delete(delete) => {
            let filter = required_filter(delete.filter, options).map_err(within("delete"))?;
            let find = Find::matching(filter);
            Ok(DocumentsWork::Delete(if delete.many { find } else { find.limit(1) }))
        }
        WorkIn::Get(named) => {
            let named = document("get", named)?;
            match named.doc().iter().collect::<Vec<_>>().as_slice() {
                [("_id", id)] => Ok(DocumentsWork::Get(Owned::from(*id))),
                _ => Err(WireError::invalid("get: a document with the field _id alone is needed")),
            }
        }
        WorkIn::Find(asked) => Ok(DocumentsWork::Find(find(asked, options).map_err(within("find"))?)),
    }
}

/// The filter of a field that must be there.
///
/// # Errors
/// It is absent or invalid.
pub(super) fn required_filter(
    document: Option<proto::Document>,
    options: &Options,
) -> Result<Filter, WireError> {
    filter(document.ok_or_else(|| WireError::invalid("filter: it is absent"))?, options)
}

/// A number of documents.
///
/// # Errors
/// It is larger than any collection.
pub(super) fn count(field: &str, count: u64) -> Result<usize, WireError> {
    usize::try_from(count).map_err(|_| WireError::invalid(format!("{field}: {count} is too large")))
}

/// Adds the field to the message of an error.
fn within(field: &str) -> impl Fn(WireError) -> WireError {
    move |error| WireError { message: format!("{field}: {}", error.message), ..error }
}

fn lang<T>(field: &str, parsed: Result<T, LangError>) -> Result<T, WireError> {
    parsed.map_err(|error| within(field)(DocumentsError::from(error).into()))
}

fn document(field: &str, document: proto::Document) -> Result<DocBuf, WireError> {
    match document.encoding {
        Some(Encoding::Bson(bytes)) => lang(field, DocBuf::check(bytes)),
        Some(Encoding::ExtendedJson(text)) => extjson_parser::parse(&text).map_err(within(field)),
        None => Err(WireError::invalid(format!("{field}: one of bson and extended_json is needed"))),
    }
}

/// An array of documents, as the language has pipelines and array filters.
fn array(field: &str, documents: Vec<proto::Document>) -> Result<Owned, WireError> {
    let documents = documents.into_iter().map(|element| document(field, element));
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    Ok(Owned::array(documents.iter().map(|element| Value::Document(element.doc()))))
}

fn filter(filter: proto::Document, options: &Options) -> Result<Filter, WireError> {
    lang("filter", Filter::parse(document("filter", filter)?.doc(), options))
}

fn sort(sort: proto::Document) -> Result<Sort, WireError> {
    lang("sort", Sort::parse(document("sort", sort)?.doc()))
}

fn hint(hint: proto::IndexHint) -> Result<Hint, WireError> {
    match hint.index.ok_or_else(|| WireError::invalid("hint: one of name and fields is needed"))? {
        Index::Name(name) => Ok(Hint::Name(name)),
        Index::Fields(fields) => {
            let fields = document("hint", fields)?;
            let field = |(path, direction): (&str, Value<'_>)| match direction.as_double() {
                Some(direction) if direction != 0.0 => Ok((path.to_owned(), direction < 0.0)),
                _ => Err(WireError::invalid(format!("hint: {path:?} is neither 1 nor -1"))),
            };
            Ok(Hint::Fields(fields.doc().iter().map(field).collect::<Result<_, _>>()?))
        }
    }
}

fn find(asked: proto::FindDocuments, options: &Options) -> Result<Find, WireError> {
    let mut found = match asked.filter {
        None => Find::all(),
        Some(document) => Find::matching(filter(document, options)?),
    };
    if let Some(document) = asked.sort {
        found = found.sort(sort(document)?);
    }
    if let Some(spec) = asked.projection {
        let spec = document("projection", spec)?;
        found = found.project(lang("projection", Projection::parse(spec.doc(), options))?);
    }
    if let Some(asked) = asked.hint {
        found = found.hint(hint(asked)?);
    }
    if let Some(documents) = asked.limit {
        found = found.limit(count("limit", documents)?);
    }
    Ok(found.skip(count("skip", asked.skip)?))
}

fn update_spec(asked: proto::UpdateDocuments, options: &Options) -> Result<UpdateSpec, WireError> {
    if asked.many && asked.sort.is_some() {
        return Err(WireError::invalid("sort excludes many"));
    }
    let filter = required_filter(asked.filter, options)?;
    let change = asked.change.ok_or_else(|| WireError::invalid("one of update and pipeline is needed"))?;
    let change = match change {
        Change::Update(update) => Owned::document(document("update", update)?),
        Change::Pipeline(pipeline) => array("pipeline", pipeline.stages)?,
    };
    let array_filters = match asked.array_filters {
        filters if filters.is_empty() => None,
        filters => Some(array("array_filters", filters)?),
    };
    let array_filters = array_filters.as_ref().and_then(|filters| filters.value().as_array());
    let update = lang("update", Update::parse(change.value(), array_filters, options))?;
    let mut spec = UpdateSpec::new(filter, update);
    spec.upsert = asked.upsert;
    spec.sort = asked.sort.map(|document| sort(document).map(Arc::new)).transpose()?;
    spec.hint = asked.hint.map(hint).transpose()?;
    Ok(spec)
}
