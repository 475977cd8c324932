//! Options of collections, and indexes.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ropewalk::documents::{CollectionOptions, Definition, ID_INDEX, IndexDef, OnDelete, Reference};

use crate::error::{Fault, Result};
use crate::value::body::{Body, object, text, texts};
use crate::value::bson;

/// `validator`, `moderate`, `protected`, `rules` and `references`.
pub(crate) fn collection(body: &mut Body<'_, '_>) -> Result<CollectionOptions> {
    let validator = body.get("validator")?.map(|given| bson::document("validator", &given)).transpose()?;
    let rules = body.get("rules")?.map(|given| bson::document("rules", &given)).transpose()?;
    let mut references = Vec::new();
    if let Some(given) = body.object("references")? {
        for (field, reference) in given.iter() {
            references.push(reference_of(text("references", &field)?, &reference)?);
        }
    }
    let (moderate, protected) = (body.flag("moderate")?, body.flag("protected")?);
    Ok(CollectionOptions { validator, moderate, protected, references, rules, capped: None })
}

fn reference_of(field: String, given: &Bound<'_, PyAny>) -> Result<Reference> {
    let fields = object("references", given)?;
    let mut body = Body::new(&fields);
    let collection = body.need_text("collection")?;
    let on_delete = match body.need_text("on_delete")?.as_str() {
        "restrict" => OnDelete::Restrict,
        "set_null" => OnDelete::SetNull,
        "cascade" => OnDelete::Cascade,
        other => {
            let what = format!("on_delete {other:?}; allowed are restrict, set_null and cascade");
            return Err(Fault::Invalid(what));
        }
    };
    body.finish()?;
    Ok(Reference { field, collection, on_delete })
}

/// `fields`, `name`, `unique`, `sparse`, `hidden`, `partial` and `expire_after_seconds`.
pub(crate) fn index(body: &mut Body<'_, '_>) -> Result<IndexDef> {
    let fields = texts("fields", &body.need("fields")?)?;
    let mut index = IndexDef::on(fields.iter().map(String::as_str));
    index.name = body.text("name")?;
    (index.unique, index.sparse, index.hidden) =
        (body.flag("unique")?, body.flag("sparse")?, body.flag("hidden")?);
    index.partial = body.get("partial")?.map(|given| bson::document("partial", &given)).transpose()?;
    let seconds = body.number("expire_after_seconds")?;
    let too_large = |_| Fault::invalid("expire_after_seconds: the number is too large");
    index.expire_after_seconds =
        seconds.map(|seconds| i64::try_from(seconds).map_err(too_large)).transpose()?;
    Ok(index)
}

/// The name of an index: its own, or fields and directions, `city_1_age_-1`.
pub(crate) fn index_name(index: &IndexDef) -> String {
    let parts =
        index.fields.iter().map(|field| format!("{}_{}", field.path, if field.descending { -1 } else { 1 }));
    index.name.clone().unwrap_or_else(|| parts.collect::<Vec<_>>().join("_"))
}

/// The indexes of a collection as the HTTP API lists them, the one on `_id` first.
pub(crate) fn indexes<'py>(py: Python<'py>, definition: &Definition) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    let id = PyDict::new(py);
    id.set_item("name", ID_INDEX)?;
    id.set_item("fields", ["_id"])?;
    id.set_item("unique", true)?;
    id.set_item("ready", true)?;
    list.append(id)?;
    for index in definition.indexes() {
        let def = index.def();
        let sign = |descending| if descending { "-" } else { "" };
        let fields = def.fields.iter().map(|field| format!("{}{}", sign(field.descending), field.path));
        let one = PyDict::new(py);
        one.set_item("name", index.name())?;
        one.set_item("fields", fields.collect::<Vec<_>>())?;
        one.set_item("unique", def.unique)?;
        one.set_item("sparse", def.sparse)?;
        one.set_item("hidden", def.hidden)?;
        one.set_item("ready", index.is_ready())?;
        if let Some(partial) = &def.partial {
            one.set_item("partial", bson::to_dict(py, partial.doc())?)?;
        }
        if let Some(seconds) = def.expire_after_seconds {
            one.set_item("expire_after_seconds", seconds)?;
        }
        list.append(one)?;
    }
    Ok(list)
}
