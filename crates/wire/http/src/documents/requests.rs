//! Request bodies about documents, and their parsing. Documents, filters and updates are Extended JSON; they
//! pass through as raw text until they become BSON.

use ropewalk_wire::extjson_parser;
use std::collections::BTreeMap;
use std::sync::Arc;

use ropewalk::documents::lang::key::IndexField;
use ropewalk::documents::lang::{DocBuf, Filter, Options, Pipeline, Projection, Sort, Update, Value};
use ropewalk::documents::{
    CollectionOptions, DocumentsError, Find, FindAndModify, Hint, IndexDef, OnDelete, Reference, UpdateSpec,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::refused;
use crate::kit::json::{DurabilityIn, Object};
use crate::kit::problem::{Problem, Result};

/// Parses the document in `field`.
pub(crate) fn document(field: &str, text: &str) -> Result<DocBuf> {
    extjson_parser::parse(text).map_err(|error| Problem::from(error).within(field))
}

fn lang<T, E: Into<DocumentsError>>(field: &str, result: Result<T, E>) -> Result<T> {
    result.map_err(|error| refused(error.into()).within(field))
}

pub(crate) fn filter(text: Option<&str>, options: &Options) -> Result<Filter> {
    match text {
        None => Ok(Filter::all()),
        Some(text) => lang("filter", Filter::parse(document("filter", text)?.doc(), options)),
    }
}

fn sort(text: &str) -> Result<Sort> {
    lang("sort", Sort::parse(document("sort", text)?.doc()))
}

fn projection(text: &str, options: &Options) -> Result<Projection> {
    lang("projection", Projection::parse(document("projection", text)?.doc(), options))
}

/// An index by its name, or by its fields: `"a_1"`, `{"a": 1}`.
fn hint(text: &str) -> Result<Hint> {
    let value = extjson_parser::parse_value(text).map_err(|error| Problem::from(error).within("hint"))?;
    match value.value() {
        Value::String(name) => Ok(Hint::Name(name.to_owned())),
        Value::Document(fields) => {
            let field = |(path, direction): (&str, Value<'_>)| match direction.as_double() {
                Some(direction) if direction != 0.0 => Ok((path.to_owned(), direction < 0.0)),
                _ => Err(Problem::invalid_field(format!("hint: {path:?} is neither 1 nor -1"))),
            };
            Ok(Hint::Fields(fields.iter().map(field).collect::<Result<_, _>>()?))
        }
        other => Err(Problem::invalid_field(format!("hint: a name or fields, not {}", other.type_name()))),
    }
}

pub(crate) fn number(field: &str, number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| Problem::invalid_field(format!("{field}: {number} is too large")))
}

/// The texts of a query, from a body or from a query string.
#[derive(Default)]
pub(super) struct FindTexts<'a> {
    pub(super) filter: Option<&'a str>,
    pub(super) sort: Option<&'a str>,
    pub(super) projection: Option<&'a str>,
    pub(super) hint: Option<&'a str>,
    pub(super) skip: Option<u64>,
    pub(super) limit: Option<u64>,
}

impl FindTexts<'_> {
    pub(crate) fn find(&self, options: &Options) -> Result<Find> {
        let mut find = Find::matching(filter(self.filter, options)?);
        if let Some(text) = self.sort {
            find = find.sort(sort(text)?);
        }
        if let Some(text) = self.projection {
            find = find.project(projection(text, options)?);
        }
        if let Some(text) = self.hint {
            find = find.hint(hint(text)?);
        }
        if let Some(documents) = self.skip {
            find = find.skip(number("skip", documents)?);
        }
        if let Some(documents) = self.limit {
            find = find.limit(number("limit", documents)?);
        }
        Ok(find)
    }
}

/// A query.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DocumentsQuery)]
pub(crate) struct FindIn<'a> {
    /// Which documents, in MongoDB's language. Absent: all.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>, example = json!({"age": {"$gte": 18}}))]
    filter: Option<&'a RawValue>,
    /// Fields and directions.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>, example = json!({"age": -1}))]
    sort: Option<&'a RawValue>,
    /// Which fields are shown.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>, example = json!({"name": 1}))]
    projection: Option<&'a RawValue>,
    /// By this index: its name, or its fields.
    #[serde(borrow, default)]
    #[schema(value_type = Option<serde_json::Value>)]
    hint: Option<&'a RawValue>,
    /// Leaves out the first ones.
    skip: Option<u64>,
    /// At most so many.
    limit: Option<u64>,
    /// Writes every type in its canonical form, numbers too.
    #[serde(default)]
    pub(crate) canonical: bool,
}

impl FindIn<'_> {
    pub(crate) fn find(&self, options: &Options) -> Result<Find> {
        let texts = FindTexts {
            filter: self.filter.map(RawValue::get),
            sort: self.sort.map(RawValue::get),
            projection: self.projection.map(RawValue::get),
            hint: self.hint.map(RawValue::get),
            skip: self.skip,
            limit: self.limit,
        };
        texts.find(options)
    }
}

/// Which documents are counted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DocumentsCountRequest)]
pub(crate) struct CountIn<'a> {
    /// Which documents. Absent: all.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    pub(super) filter: Option<&'a RawValue>,
}

/// A request for the distinct values of a field.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DistinctRequest)]
pub(crate) struct DistinctIn<'a> {
    /// Dotted path.
    #[schema(example = "address.city")]
    pub(super) field: String,
    /// Of which documents. Absent: of all.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    pub(super) filter: Option<&'a RawValue>,
}

/// A pipeline.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AggregateRequest)]
pub(crate) struct AggregateIn<'a> {
    /// Stages, in order.
    #[serde(borrow)]
    #[schema(value_type = Vec<Object>, example = json!([{"$group": {"_id": "$city", "n": {"$sum": 1}}}]))]
    pipeline: &'a RawValue,
    /// Constants that the stages see as `$$name`.
    #[serde(borrow, default, rename = "let")]
    #[schema(value_type = Option<Object>)]
    variables: Option<&'a RawValue>,
    /// Writes every type in its canonical form, numbers too.
    #[serde(default)]
    pub(crate) canonical: bool,
}

/// Stages out of an array.
pub(super) fn pipeline(text: &str, options: &Options) -> Result<Pipeline> {
    let stages =
        extjson_parser::parse_value(text).map_err(|error| Problem::from(error).within("pipeline"))?;
    let stages =
        stages.value().as_array().ok_or_else(|| Problem::invalid_field("pipeline: an array is needed"))?;
    lang("pipeline", Pipeline::parse(stages, options))
}

impl AggregateIn<'_> {
    pub(super) fn pipeline(&self, options: Options) -> Result<Pipeline> {
        let variables = self.variables.map(|text| document("let", text.get())).transpose()?;
        pipeline(self.pipeline.get(), &Options { variables, ..options })
    }
}

/// Documents to insert.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InsertRequest)]
pub(crate) struct InsertIn<'a> {
    /// Inserted together, or not at all. One without `_id` is given an ObjectId.
    #[serde(borrow)]
    #[schema(value_type = Vec<Object>, example = json!([{"_id": "ann", "age": 41}]))]
    pub(super) documents: Vec<&'a RawValue>,
    /// As for appends.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    pub(super) durability: DurabilityIn,
}

/// An update.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpdateRequest)]
pub(crate) struct UpdateIn<'a> {
    /// Which documents.
    #[serde(borrow)]
    #[schema(value_type = Object, example = json!({"_id": "ann"}))]
    filter: &'a RawValue,
    /// Operators, an array of stages, or a whole document that takes the place of the first that matches.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value, example = json!({"$inc": {"age": 1}}))]
    update: &'a RawValue,
    /// Conditions on the elements that `$[name]` represents.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<Object>>)]
    array_filters: Option<&'a RawValue>,
    /// All that match, not the first.
    #[serde(default)]
    pub(crate) many: bool,
    /// Inserts a document when none matches.
    #[serde(default)]
    upsert: bool,
    /// Which one is the first. Excludes `many`.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    sort: Option<&'a RawValue>,
    /// By this index.
    #[serde(borrow, default)]
    #[schema(value_type = Option<serde_json::Value>)]
    hint: Option<&'a RawValue>,
    /// As for appends. Not inside a transaction, which has its own.
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    pub(crate) durability: Option<DurabilityIn>,
}

/// An update out of JSON.
pub(super) fn update(text: &str, array_filters: Option<&RawValue>, options: &Options) -> Result<Update> {
    let in_field = |field| move |error| Problem::from(error).within(field);
    let update = extjson_parser::parse_value(text).map_err(in_field("update"))?;
    let filters = array_filters.map(|text| extjson_parser::parse_value(text.get())).transpose();
    let filters = filters.map_err(in_field("array_filters"))?;
    let filters = match &filters {
        None => None,
        Some(filters) => Some(
            filters
                .value()
                .as_array()
                .ok_or_else(|| Problem::invalid_field("array_filters: an array is needed"))?,
        ),
    };
    lang("update", Update::parse(update.value(), filters, options))
}

impl UpdateIn<'_> {
    pub(crate) fn spec(&self, options: &Options) -> Result<UpdateSpec> {
        if self.many && self.sort.is_some() {
            return Err(Problem::invalid_field("sort excludes many"));
        }
        let filter = filter(Some(self.filter.get()), options)?;
        let mut spec = UpdateSpec::new(filter, update(self.update.get(), self.array_filters, options)?);
        spec.upsert = self.upsert;
        spec.sort = self.sort.map(|text| sort(text.get()).map(Arc::new)).transpose()?;
        spec.hint = self.hint.map(|text| hint(text.get())).transpose()?;
        Ok(spec)
    }
}

/// A deletion.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DeleteRequest)]
pub(crate) struct DeleteIn<'a> {
    /// Which documents.
    #[serde(borrow)]
    #[schema(value_type = Object)]
    filter: &'a RawValue,
    /// All that match, not the first.
    #[serde(default)]
    many: bool,
    /// As for appends. Not inside a transaction, which has its own.
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    pub(crate) durability: Option<DurabilityIn>,
}

impl DeleteIn<'_> {
    pub(crate) fn find(&self, options: &Options) -> Result<Find> {
        let find = Find::matching(filter(Some(self.filter.get()), options)?);
        Ok(if self.many { find } else { find.limit(1) })
    }
}

/// A document that is found and changed, or deleted, in one go.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ModifyRequest)]
pub(crate) struct ModifyIn<'a> {
    /// Which document.
    #[serde(borrow)]
    #[schema(value_type = Object)]
    filter: &'a RawValue,
    /// The change to it. Absent: it is deleted, if `delete` says so.
    #[serde(borrow, default)]
    #[schema(value_type = Option<serde_json::Value>)]
    update: Option<&'a RawValue>,
    /// Deletes it.
    #[serde(default)]
    delete: bool,
    /// Conditions on the elements that `$[name]` represents.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<Object>>)]
    array_filters: Option<&'a RawValue>,
    /// Which one, when several match.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    sort: Option<&'a RawValue>,
    /// Which of its fields are shown.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    projection: Option<&'a RawValue>,
    /// Inserts a document when none matches.
    #[serde(default)]
    upsert: bool,
    /// Returns it as it is afterwards.
    #[serde(default)]
    after: bool,
    /// By this index.
    #[serde(borrow, default)]
    #[schema(value_type = Option<serde_json::Value>)]
    hint: Option<&'a RawValue>,
    /// As for appends.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    pub(super) durability: DurabilityIn,
}

impl ModifyIn<'_> {
    pub(crate) fn spec(&self, options: &Options) -> Result<FindAndModify> {
        let filter = filter(Some(self.filter.get()), options)?;
        let mut spec = match (self.update, self.delete) {
            (Some(text), false) => {
                FindAndModify::update(filter, update(text.get(), self.array_filters, options)?)
            }
            (None, true) if self.upsert || self.after || self.array_filters.is_some() => {
                return Err(Problem::invalid_field("upsert, after and array_filters go with update"));
            }
            (None, true) => FindAndModify::delete(filter),
            _ => return Err(Problem::invalid_field("one of update and delete is needed")),
        };
        spec.sort = self.sort.map(|text| sort(text.get()).map(Arc::new)).transpose()?;
        spec.projection =
            self.projection.map(|text| projection(text.get(), options).map(Arc::new)).transpose()?;
        spec.hint = self.hint.map(|text| hint(text.get())).transpose()?;
        (spec.upsert, spec.return_new) = (self.upsert, self.after);
        Ok(spec)
    }
}

/// An index.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = IndexRequest)]
pub(crate) struct IndexIn<'a> {
    /// Paths, in order; a minus in front makes one descending. `$**` is every field.
    #[schema(example = json!(["city", "-age"]))]
    fields: Vec<String>,
    /// Absent: made of the fields, `city_1_age_-1`.
    name: Option<String>,
    /// No two documents may have the same values.
    #[serde(default)]
    unique: bool,
    /// Leaves out documents that have none of the fields.
    #[serde(default)]
    sparse: bool,
    /// Maintained, but not used by queries.
    #[serde(default)]
    hidden: bool,
    /// Leaves out documents that do not match this filter.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    partial: Option<&'a RawValue>,
    /// Removes documents that many seconds after the date in the field.
    #[schema(minimum = 0, maximum = 2_147_483_647)]
    expire_after_seconds: Option<i64>,
}

impl IndexIn<'_> {
    pub(super) fn def(&self) -> Result<IndexDef> {
        let mut def = IndexDef::on(self.fields.iter().map(String::as_str));
        def.name.clone_from(&self.name);
        (def.unique, def.sparse, def.hidden) = (self.unique, self.sparse, self.hidden);
        def.expire_after_seconds = self.expire_after_seconds;
        def.partial = self.partial.map(|text| document("partial", text.get())).transpose()?;
        Ok(def)
    }
}

/// Fields and directions as an [`IndexIn`] has them.
pub(super) fn fields(fields: &[IndexField]) -> Vec<String> {
    let text = |field: &IndexField| format!("{}{}", if field.descending { "-" } else { "" }, field.path);
    fields.iter().map(text).collect()
}

/// Effect on documents whose reference is deleted.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OnDelete)]
enum OnDeleteIn {
    /// It cannot be deleted.
    Restrict,
    /// Their field becomes null.
    SetNull,
    /// They go, too.
    Cascade,
}

/// A field that holds the `_id` of a document of another collection.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReferenceRequest)]
struct ReferenceIn {
    /// The collection, of the same database.
    collection: String,
    /// Effect of the deletion of the document there.
    #[schema(inline)]
    on_delete: OnDeleteIn,
}

/// Requirements of a collection on its documents.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CollectionRequest)]
pub(crate) struct CollectionIn<'a> {
    /// A filter that documents match to be written, such as `{"$jsonSchema": …}`.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    validator: Option<&'a RawValue>,
    /// Documents that already violate the validator may be changed in any way.
    #[serde(default)]
    moderate: bool,
    /// The validator can be neither replaced nor removed.
    #[serde(default)]
    protected: bool,
    /// Expressions in CEL by operation: `read`, `list`, `create`, `update`, `delete`, `write`. They see `request.auth.uid`,
    /// `request.resource`, `resource`.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>, example = json!({"read": "true", "write": "request.auth.uid == resource.owner"}))]
    rules: Option<&'a RawValue>,
    /// By dotted path.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, ReferenceIn>)]
    references: BTreeMap<String, Object<ReferenceIn>>,
}

impl CollectionIn<'_> {
    pub(super) fn options(self) -> Result<CollectionOptions> {
        let reference = |(field, Object(reference)): (String, Object<ReferenceIn>)| Reference {
            field,
            collection: reference.collection,
            on_delete: match reference.on_delete {
                OnDeleteIn::Restrict => OnDelete::Restrict,
                OnDeleteIn::SetNull => OnDelete::SetNull,
                OnDeleteIn::Cascade => OnDelete::Cascade,
            },
        };
        Ok(CollectionOptions {
            validator: self.validator.map(|text| document("validator", text.get())).transpose()?,
            moderate: self.moderate,
            protected: self.protected,
            references: self.references.into_iter().map(reference).collect(),
            rules: self.rules.map(|text| document("rules", text.get())).transpose()?,
            capped: None,
        })
    }
}
