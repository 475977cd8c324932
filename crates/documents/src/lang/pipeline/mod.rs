//! Aggregation pipelines: stages over a stream of documents.
//!
//! ```text
//! input ─▶ $match ─▶ $unwind ─▶ $group ─▶ $sort ─▶ ..          a stage pulls from the one before it
//!                                  │         └ holds all, or the first n when a $limit follows
//!                                  └ holds its groups
//! ```
//!
//! Stages that need their complete input (group, sort, windows, facet, bucketAuto, sample, count) read it
//! when the pipeline is run; together they hold at most the given memory. All others pass documents on one
//! by one.
//!
//! Other collections are read through [`Source`], which the store implements. The caller writes for `$out`
//! and `$merge`: see [`Pipeline::output`].
//!
//! Source: MongoDB manual, "Aggregation Stages".

pub(crate) mod bucket;
pub(crate) mod densify;
pub(crate) mod fill;
pub(crate) mod granularity;
pub(crate) mod group;
pub(crate) mod lookup;
pub(crate) mod output;
pub(crate) mod projection;
pub(crate) mod redact;
pub(crate) mod unwind;
pub(crate) mod window;
pub(crate) mod window_functions;

use crate::lang::budget::{byte_steps, steps};
use crate::lang::error::{LangError, LangResult, refuse};
use crate::lang::expression::{Expression, Scope};
use crate::lang::filter::Filter;
use crate::lang::memory::{Holder, Memory};
use crate::lang::options::Options;
use crate::lang::pipeline::bucket::BucketAuto;
use crate::lang::pipeline::densify::Densify;
use crate::lang::pipeline::group::Group;
use crate::lang::pipeline::lookup::{GraphLookup, Lookup};
use crate::lang::pipeline::output::Output;
use crate::lang::pipeline::projection::{Dialect, Projection, document_of};
use crate::lang::pipeline::redact::Redact;
use crate::lang::pipeline::unwind::Unwind;
use crate::lang::pipeline::window::WindowFields;
use crate::lang::random::Random;
use crate::lang::value::sort::Sort;
use crate::lang::value::val::Val;
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, DocBuf, Value};

/// Most levels of nested pipelines, and most stages of one.
const NESTING_MAX: usize = 20;
const STAGES_MAX: usize = 1000;

/// A stream of documents.
pub type Stream<'a, E> = Box<dyn Iterator<Item = Result<DocBuf, E>> + 'a>;

/// Access of a pipeline to other collections.
pub trait Source {
    /// The error of the source.
    type Error: From<LangError>;

    /// Documents of `collection` that match.
    ///
    /// # Errors
    /// Any error of reading; a collection that does not exist is empty.
    fn find(&self, collection: &str, filter: &Filter) -> Result<Stream<'_, Self::Error>, Self::Error>;

    /// Checks whether the pipeline may continue. Called every few hundred documents of each stage.
    ///
    /// # Errors
    /// Any reason to end it.
    fn look(&self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Documents of a stage between two checks whether the pipeline may continue.
const DOCUMENTS_PER_LOOK: u32 = 512;
/// Steps that one document of a stage counts as, in addition to those of its bytes.
const DOCUMENT_STEPS: usize = 16;

/// The documents of a stage; ends when the command or the source must not continue.
fn looked<'a, S: Source>(stream: Stream<'a, S::Error>, source: &'a S) -> Stream<'a, S::Error> {
    let mut seen = 0;
    Box::new(stream.map(move |document| {
        seen += 1;
        if seen == DOCUMENTS_PER_LOOK {
            seen = 0;
            source.look()?;
        }
        let document = document?;
        steps(DOCUMENT_STEPS)?;
        byte_steps(document.bytes().len())?;
        Ok(document)
    }))
}

/// A parsed pipeline.
#[derive(Debug, Clone)]
pub struct Pipeline {
    stages: Vec<Stage>,
    output: Option<Output>,
}

#[derive(Debug, Clone)]
enum Stage {
    Match(Filter),
    Project(Projection),
    ReplaceRoot(Expression),
    Group(Group),
    BucketAuto(BucketAuto),
    WindowFields(WindowFields),
    Sort(Sort),
    Skip(u64),
    Limit(u64),
    Unwind(Unwind),
    Count(String),
    Lookup(Box<Lookup>),
    GraphLookup(Box<GraphLookup>),
    Facet(Vec<(String, Pipeline)>),
    Sample { size: u64, random: Random },
    Redact(Redact),
    Densify(Densify),
    UnionWith { collection: Option<String>, pipeline: Pipeline },
    Documents(Expression),
}

impl Pipeline {
    /// Parses an array of stages.
    ///
    /// # Errors
    /// 40324 for an unknown stage, 40323 for a document with more than one, and the stages' own.
    pub fn parse(stages: Doc<'_>, options: &Options) -> LangResult<Self> {
        Self::parse_inner(stages, options, 0)
    }

    pub(crate) fn parse_inner(stages: Doc<'_>, options: &Options, depth: usize) -> LangResult<Self> {
        if depth > NESTING_MAX {
            refuse!(Overflow, "pipelines are nested deeper than {NESTING_MAX} levels");
        }
        let mut pipeline = Self { stages: Vec::new(), output: None };
        for stage in stages.values() {
            let Value::Document(doc) = stage else {
                refuse!(TypeMismatch, "Each element of the 'pipeline' array must be an object");
            };
            let (Some((name, operand)), 1) = (doc.first(), doc.iter().count()) else {
                refuse!(40323, "A pipeline stage specification object must contain exactly one field.");
            };
            if pipeline.stages.len() >= STAGES_MAX {
                refuse!(BadValue, "Pipeline length must be no longer than {STAGES_MAX} stages");
            }
            if let Some(output) = &pipeline.output {
                refuse!(40601, "{} can only be the final stage in the pipeline", output.name());
            }
            if let "$out" | "$merge" = name {
                if depth > 0 {
                    refuse!(51047, "{name} is not allowed within another pipeline");
                }
                pipeline.output = Some(Output::parse(name, operand, options)?);
                continue;
            }
            let position = pipeline.stages.len();
            parse_stage(name, operand, options, depth, position, &mut pipeline.stages)?;
        }
        Ok(pipeline)
    }

    /// The leading `$match`, which an index may serve; running the pipeline over its matches gives the same.
    #[must_use]
    pub fn leading_filter(&self) -> Option<&Filter> {
        match self.stages.first() {
            Some(Stage::Match(filter)) => Some(filter),
            _ => None,
        }
    }

    /// The destination of the pipeline's documents.
    #[must_use]
    pub fn output(&self) -> Option<&Output> {
        self.output.as_ref()
    }

    /// True when it generates its own documents, with `$documents`. Then it runs without input, on a
    /// database.
    #[must_use]
    pub fn brings_documents(&self) -> bool {
        matches!(self.stages.first(), Some(Stage::Documents(_)))
    }

    /// The other collections it reads.
    #[must_use]
    pub fn collections(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for stage in &self.stages {
            match stage {
                Stage::Lookup(lookup) => names.extend(lookup.collections()),
                Stage::GraphLookup(lookup) => names.push(lookup.collection()),
                Stage::UnionWith { collection, pipeline } => {
                    names.extend(collection.as_deref());
                    names.extend(pipeline.collections());
                }
                Stage::Facet(parts) => names.extend(parts.iter().flat_map(|(_, part)| part.collections())),
                _ => {}
            }
        }
        names
    }

    /// Runs the pipeline over `input`.
    ///
    /// # Errors
    /// Those of the input and of the source, those of expressions, and
    /// `QueryExceededMemoryLimitNoDiskUseAllowed` when the stages need more than `memory_bytes_max`. A later
    /// error is an item of the stream.
    pub fn run<'a, S: Source>(
        &'a self,
        input: Stream<'a, S::Error>,
        source: &'a S,
        memory_bytes_max: usize,
    ) -> Result<Stream<'a, S::Error>, S::Error> {
        self.run_in(input, source, &Memory::new(memory_bytes_max))
    }

    /// Runs the pipeline at once and holds its documents, so that they do not refer to the pipeline.
    ///
    /// # Errors
    /// As [`Pipeline::run`]; the documents count in `memory_bytes_max`.
    pub fn run_held<S: Source<Error: 'static>>(
        &self,
        input: Stream<'_, S::Error>,
        source: &S,
        memory_bytes_max: usize,
    ) -> Result<Stream<'static, S::Error>, S::Error> {
        let memory = Memory::new(memory_bytes_max);
        let (documents, hold) = held("a view", self.run_in(input, source, &memory)?, &memory)?;
        Ok(Box::new(kept(documents, hold)))
    }

    pub(crate) fn run_in<'a, S: Source>(
        &'a self,
        input: Stream<'a, S::Error>,
        source: &'a S,
        memory: &Memory,
    ) -> Result<Stream<'a, S::Error>, S::Error> {
        let mut stream = looked(input, source);
        for (at, stage) in self.stages.iter().enumerate() {
            let limit = match self.stages.get(at + 1) {
                Some(Stage::Limit(limit)) => Some(*limit),
                _ => None,
            };
            stream = looked(stage.run(stream, source, memory, limit)?, source);
        }
        Ok(stream)
    }

    /// Checks that the stages are allowed in an update: set, unset, project and replace.
    pub(crate) fn check_update(&self) -> LangResult<()> {
        let allowed =
            self.stages.iter().all(|stage| matches!(stage, Stage::Project(_) | Stage::ReplaceRoot(_)));
        if allowed && self.output.is_none() {
            return Ok(());
        }
        refuse!(
            InvalidOptions,
            "an update's pipeline may hold $addFields, $set, $project, $unset, $replaceRoot and $replaceWith only"
        )
    }

    /// Applies the stages of an update to one document.
    pub(crate) fn transform(&self, doc: DocBuf) -> LangResult<DocBuf> {
        self.stages.iter().try_fold(doc, |doc, stage| match stage {
            Stage::Project(projection) => projection.apply(doc.doc(), None),
            Stage::ReplaceRoot(expression) => replaced(doc.doc(), expression),
            _ => Ok(doc),
        })
    }
}

fn parse_stage(
    name: &str,
    operand: Value<'_>,
    options: &Options,
    depth: usize,
    position: usize,
    stages: &mut Vec<Stage>,
) -> LangResult<()> {
    let scope = Scope::of(options);
    let document = |code: i32| match operand {
        Value::Document(doc) => Ok(doc),
        _ => Err(LangError::new(
            crate::lang::error::Code::Location(code),
            format!("{name} specification stage must be an object, found: {}", operand.type_name()),
        )),
    };
    let count = |code: i32| match operand.as_integer() {
        Some(count) if count >= 0 => Ok(count as u64),
        _ => Err(LangError::new(
            crate::lang::error::Code::Location(code),
            format!("invalid argument to {name} stage: expected a non-negative number, found: {operand}"),
        )),
    };
    let stage = match name {
        "$match" => Stage::Match(Filter::parse(document(15959)?, options)?),
        "$project" => {
            let doc = document(15969)?;
            if doc.is_empty() {
                refuse!(
                    51272,
                    "Invalid $project :: caused by :: projection specification must have at least one field"
                );
            }
            Stage::Project(Projection::parse_as(doc, options, Dialect::Stage)?)
        }
        "$addFields" | "$set" => Stage::Project(Projection::adding(document(40272)?, options)?),
        "$unset" => Stage::Project(parse_unset(operand)?),
        "$replaceWith" => Stage::ReplaceRoot(Expression::parse(operand, &scope)?),
        "$replaceRoot" => {
            let root = only(name, document(40229)?, &["newRoot"])?.get("newRoot");
            match root {
                Some(root) => Stage::ReplaceRoot(Expression::parse(root, &scope)?),
                None => refuse!(40231, "no newRoot specified for the $replaceRoot stage"),
            }
        }
        "$group" => Stage::Group(Group::parse(document(15947)?, &scope)?),
        "$sortByCount" => {
            stages.push(Stage::Group(Group::counting(operand, &scope)?));
            let mut order = Writer::new();
            order.put("count", Value::Int32(-1));
            Stage::Sort(Sort::parse(order.finish().doc())?)
        }
        "$bucket" => {
            stages.push(Stage::Group(crate::lang::pipeline::bucket::parse(document(40201)?, &scope)?));
            let mut order = Writer::new();
            order.put("_id", Value::Int32(1));
            Stage::Sort(Sort::parse(order.finish().doc())?)
        }
        "$bucketAuto" => Stage::BucketAuto(BucketAuto::parse(document(40240)?, &scope)?),
        "$sort" => {
            let sort = Sort::parse(document(15973)?)?;
            if sort.fields().is_empty() {
                refuse!(15976, "$sort stage must have at least one sort key");
            }
            Stage::Sort(sort)
        }
        "$skip" => Stage::Skip(count(5107200)?),
        "$limit" => match count(5107201)? {
            0 => refuse!(15958, "the limit must be positive"),
            limit => Stage::Limit(limit),
        },
        "$unwind" => Stage::Unwind(Unwind::parse(operand)?),
        "$count" => match operand {
            Value::String(field)
                if !field.is_empty() && !field.starts_with('$') && !field.contains(['.', '\0']) =>
            {
                Stage::Count(field.to_owned())
            }
            _ => refuse!(
                40156,
                "the count field must be a non-empty string without dots, dollars in front, and zeros"
            ),
        },
        "$lookup" => Stage::Lookup(Box::new(Lookup::parse(document(40319)?, options, depth)?)),
        "$graphLookup" => Stage::GraphLookup(Box::new(GraphLookup::parse(document(40103)?, options)?)),
        "$facet" => Stage::Facet(parse_facet(document(40169)?, options, depth)?),
        "$sample" => {
            let size = only(name, document(28745)?, &["size"])?.get("size").and_then(Value::as_integer);
            match size {
                Some(size) if size > 0 => Stage::Sample { size: size as u64, random: options.random.clone() },
                _ => refuse!(28747, "size argument to $sample must be a positive integer"),
            }
        }
        "$unionWith" => parse_union(operand, options, depth)?,
        "$documents" => {
            if position != 0 {
                refuse!(40602, "$documents is only valid as the first stage in a pipeline");
            }
            Stage::Documents(Expression::parse(operand, &scope)?)
        }
        "$setWindowFields" => Stage::WindowFields(WindowFields::parse(document(40173)?, &scope)?),
        "$redact" => Stage::Redact(Redact::parse(operand, &scope)?),
        "$densify" => Stage::Densify(Densify::parse(operand)?),
        "$fill" => {
            let (windows, values) = fill::parse(operand, options)?;
            stages.extend(windows.map(Stage::WindowFields));
            stages.extend(values.map(Stage::Project));
            return Ok(());
        }
        "$geoNear" | "$search" | "$vectorSearch" => {
            refuse!(NotImplemented, "the stage {name} is not implemented")
        }
        _ => refuse!(40324, "Unrecognized pipeline stage name: '{name}'"),
    };
    stages.push(stage);
    Ok(())
}

/// Rejects fields with other names.
pub(crate) fn only<'v>(stage: &str, doc: Doc<'v>, names: &[&str]) -> LangResult<Doc<'v>> {
    match doc.iter().find(|(name, _)| !names.contains(name)) {
        Some((name, _)) => refuse!(FailedToParse, "unknown argument to {stage}: {name}"),
        None => Ok(doc),
    }
}

/// Rejects fields with other names, as MongoDB's parser of commands does.
pub(crate) fn known(stage: &str, doc: Doc<'_>, names: &[&str]) -> LangResult<()> {
    match doc.iter().find(|(name, _)| !names.contains(name)) {
        Some((name, _)) => refuse!(40415, "BSON field '{stage}.{name}' is an unknown field."),
        None => Ok(()),
    }
}

/// The texts of an array.
pub(crate) fn text_list<'v>(field: &str, value: Value<'v>) -> LangResult<Vec<&'v str>> {
    let texts = value.as_array().and_then(|array| array.values().map(Value::as_str).collect());
    match texts {
        Some(texts) => Ok(texts),
        None => refuse!(TypeMismatch, "BSON field '{field}' must be an array of strings, found {value}"),
    }
}

/// The path of a field, if it is one.
pub(crate) fn checked_path(path: &str) -> LangResult<&str> {
    if path.split('.').any(str::is_empty) {
        refuse!(15998, "FieldPath field names may not be empty strings: {path:?}");
    }
    if path.split('.').any(|name| name.starts_with('$')) {
        refuse!(16410, "FieldPath field names may not start with '$': {path:?}");
    }
    Ok(path)
}

fn parse_unset(operand: Value<'_>) -> LangResult<Projection> {
    let paths: Option<Vec<&str>> = match operand {
        Value::String(path) => Some(vec![path]),
        Value::Array(paths) if !paths.is_empty() => paths.values().map(Value::as_str).collect(),
        _ => None,
    };
    match paths {
        Some(paths) => Projection::removing(&paths),
        None => refuse!(
            31002,
            "$unset specification must be a string or an array of strings with at least one field"
        ),
    }
}

fn parse_facet(doc: Doc<'_>, options: &Options, depth: usize) -> LangResult<Vec<(String, Pipeline)>> {
    let mut parts = Vec::new();
    for (name, stages) in doc {
        let Value::Array(stages) = stages else {
            refuse!(40170, "arguments to $facet must be arrays, {name} is type {}", stages.type_name());
        };
        if name.starts_with('$') || name.contains('.') {
            refuse!(40169, "a field of $facet must not contain a dot or begin with a dollar: {name}");
        }
        let part = Pipeline::parse_inner(stages, options, depth + 1)?;
        if part.stages.iter().any(|stage| matches!(stage, Stage::Facet(_) | Stage::Documents(_))) {
            refuse!(40600, "$facet and $documents are not allowed within a $facet stage");
        }
        parts.push((name.to_owned(), part));
    }
    if parts.is_empty() {
        refuse!(40169, "the $facet specification must be a non-empty object");
    }
    Ok(parts)
}

fn parse_union(operand: Value<'_>, options: &Options, depth: usize) -> LangResult<Stage> {
    let empty = Pipeline { stages: Vec::new(), output: None };
    let doc = match operand {
        Value::String(name) => {
            return Ok(Stage::UnionWith { collection: Some(name.to_owned()), pipeline: empty });
        }
        Value::Document(doc) => only("$unionWith", doc, &["coll", "pipeline"])?,
        _ => refuse!(
            FailedToParse,
            "the $unionWith stage specification must be an object or string, but found {}",
            operand.type_name()
        ),
    };
    let collection = doc.get("coll").and_then(Value::as_str).map(str::to_owned);
    let pipeline = match doc.get("pipeline") {
        None => empty,
        Some(Value::Array(stages)) => Pipeline::parse_inner(stages, options, depth + 1)?,
        Some(other) => {
            refuse!(TypeMismatch, "the pipeline of $unionWith is an array, not {}", other.type_name())
        }
    };
    if collection.is_none() && !pipeline.brings_documents() {
        refuse!(FailedToParse, "$unionWith needs 'coll', or a pipeline that begins with $documents");
    }
    Ok(Stage::UnionWith { collection, pipeline })
}

fn replaced(doc: Doc<'_>, expression: &Expression) -> LangResult<DocBuf> {
    let value = expression.evaluate_root(doc)?;
    match document_of(&value) {
        Some(doc) => Ok(doc),
        None => refuse!(
            40228,
            "'newRoot' expression must evaluate to an object, but resulting value was: {} of type {}",
            value.or_null(),
            value.type_name()
        ),
    }
}

impl Stage {
    fn run<'a, S: Source>(
        &'a self,
        input: Stream<'a, S::Error>,
        source: &'a S,
        memory: &Memory,
        limit: Option<u64>,
    ) -> Result<Stream<'a, S::Error>, S::Error> {
        Ok(match self {
            Self::Match(filter) => Box::new(input.filter_map(move |doc| match doc {
                Ok(doc) => match filter.matches(doc.doc()) {
                    Ok(true) => Some(Ok(doc)),
                    Ok(false) => None,
                    Err(error) => Some(Err(error.into())),
                },
                failed => Some(failed),
            })),
            Self::Project(projection) => {
                Box::new(input.map(move |doc| Ok(projection.apply(doc?.doc(), None)?)))
            }
            Self::ReplaceRoot(expression) => {
                Box::new(input.map(move |doc| Ok(replaced(doc?.doc(), expression)?)))
            }
            Self::Group(group) => {
                let mut groups = group.start(memory);
                for doc in input {
                    groups.add(doc?.doc())?;
                }
                Box::new(groups.finish().map(|doc| doc.map_err(S::Error::from)))
            }
            Self::BucketAuto(buckets) => {
                let (held, hold) = held("$bucketAuto", input, memory)?;
                Box::new(kept(buckets.finish(held, memory)?, hold))
            }
            Self::WindowFields(fields) => {
                let (held, hold) = held("$setWindowFields", input, memory)?;
                // The stage charges them again, with their keys.
                drop(hold);
                let (made, hold) = fields.finish(held, memory)?;
                Box::new(kept(made, hold))
            }
            Self::Sort(sort) => {
                let (held, hold) = sorted(sort, input, memory, limit)?;
                Box::new(kept(held, hold))
            }
            Self::Skip(count) => {
                let mut left = *count;
                // An error is not a document: it is passed on.
                Box::new(input.filter(move |doc| {
                    let skip = left > 0 && doc.is_ok();
                    left -= u64::from(skip);
                    !skip
                }))
            }
            Self::Limit(count) => Box::new(input.take(usize::try_from(*count).unwrap_or(usize::MAX))),
            Self::Unwind(unwind) => Box::new(input.flat_map(move |doc| {
                let (docs, failed) = match doc {
                    Ok(doc) => (Some(unwind.apply(doc)), None),
                    Err(error) => (None, Some(Err(error))),
                };
                docs.into_iter().flatten().map(|doc| doc.map_err(S::Error::from)).chain(failed)
            })),
            Self::Count(name) => {
                let mut count = 0;
                for doc in input {
                    doc?;
                    count += 1;
                }
                let mut writer = Writer::new();
                writer.put(name, crate::lang::value::number::narrow(count, true));
                // No documents give no result.
                Box::new((count > 0).then(|| Ok(writer.finish())).into_iter())
            }
            Self::Lookup(lookup) => {
                let memory = memory.clone();
                Box::new(input.map(move |doc| lookup.apply(doc?.doc(), source, &memory)))
            }
            Self::GraphLookup(lookup) => {
                let memory = memory.clone();
                Box::new(input.map(move |doc| lookup.apply(doc?.doc(), source, &memory)))
            }
            Self::Facet(parts) => Box::new(std::iter::once(Ok(facet(parts, input, source, memory)?))),
            Self::Sample { size, random } => {
                let (held, hold) = sample(*size, random, input, memory)?;
                Box::new(kept(held, hold))
            }
            Self::Redact(redact) => Box::new(input.filter_map(move |doc| match doc {
                Ok(doc) => redact.apply(doc.doc()).map_err(S::Error::from).transpose(),
                Err(error) => Some(Err(error)),
            })),
            Self::Densify(densify) => {
                Box::new(densify.finish(input, memory)?.map(|doc| doc.map_err(S::Error::from)))
            }
            Self::UnionWith { collection, pipeline } => {
                let other: Stream<'a, S::Error> = match collection {
                    Some(collection) => {
                        source.find(collection, pipeline.leading_filter().unwrap_or(&Filter::all()))?
                    }
                    None => Box::new(std::iter::empty()),
                };
                Box::new(input.chain(pipeline.run_in(other, source, memory)?))
            }
            Self::Documents(expression) => {
                let (docs, hold) = documents(expression, memory)?;
                Box::new(kept(docs, hold))
            }
        })
    }
}

/// The documents of `$documents`.
fn documents(expression: &Expression, memory: &Memory) -> Result<(Vec<DocBuf>, Holder), LangError> {
    let value = expression.evaluate_root(Doc::empty())?;
    let hold = memory.holder("$documents");
    let array = value.get().and_then(Value::as_array);
    let array = array.filter(|array| array.values().all(|value| value.as_document().is_some()));
    let Some(array) = array else {
        refuse!(5858203, "an array of objects is expected for $documents");
    };
    let count = array.values().count();
    hold.take(count * size_of::<DocBuf>() + array.bytes().len())?;
    let mut docs = Vec::with_capacity(count);
    docs.extend(array.values().filter_map(Value::as_document).map(Doc::to_buf));
    Ok((docs, hold))
}

/// Memory of a compact document in a list, whose capacity may be twice its length.
fn held_bytes(doc: &DocBuf) -> usize {
    doc.bytes().len() + 2 * size_of::<DocBuf>()
}

/// Documents one by one; their memory is released once all have been taken.
fn kept<E>(docs: Vec<DocBuf>, hold: Holder) -> impl Iterator<Item = Result<DocBuf, E>> {
    docs.into_iter().map(move |doc| {
        let _ = &hold;
        Ok(doc)
    })
}

/// All documents of a stage, and their memory.
fn held<E: From<LangError>>(
    stage: &'static str,
    input: Stream<'_, E>,
    memory: &Memory,
) -> Result<(Vec<DocBuf>, Holder), E> {
    let (hold, mut held) = (memory.holder(stage), Vec::new());
    for doc in input {
        let doc = doc?.compact();
        hold.take(held_bytes(&doc))?;
        held.push(doc);
    }
    Ok((held, hold))
}

/// All documents in order, or the first `limit` of them, which is all that is held then. The sort is stable.
fn sorted<E: From<LangError>>(
    sort: &Sort,
    input: Stream<'_, E>,
    memory: &Memory,
    limit: Option<u64>,
) -> Result<(Vec<DocBuf>, Holder), E> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let hold = memory.holder("$sort");
    let bytes = |key: &Vec<u8>, doc: &DocBuf| {
        key.capacity() + doc.bytes().len() + 2 * size_of::<(Vec<u8>, u64, DocBuf)>()
    };
    let mut held: Vec<(Vec<u8>, u64, DocBuf)> = Vec::new();
    for (arrived, doc) in (0u64..).zip(input) {
        let doc = doc?.compact();
        let mut key = sort.key(doc.doc())?;
        key.shrink_to_fit();
        hold.take(bytes(&key, &doc))?;
        held.push((key, arrived, doc));
        // Cut when the list has doubled: each cut costs as much as was added since the last one.
        if held.len() >= limit.saturating_mul(2).max(limit.saturating_add(1024)) {
            cut(&mut held, limit);
            hold.set(held.iter().map(|(key, _, doc)| bytes(key, doc)).sum());
        }
    }
    cut(&mut held, limit);
    Ok((held.into_iter().map(|(_, _, doc)| doc).collect(), hold))
}

fn cut(held: &mut Vec<(Vec<u8>, u64, DocBuf)>, limit: usize) {
    held.sort_unstable_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    held.truncate(limit);
}

fn facet<S: Source>(
    parts: &[(String, Pipeline)],
    input: Stream<'_, S::Error>,
    source: &S,
    memory: &Memory,
) -> Result<DocBuf, S::Error> {
    let (held, _hold) = held("$facet", input, memory)?;
    let mut writer = Writer::new().bounded();
    for (name, pipeline) in parts {
        writer.open_array(name);
        for doc in pipeline.run_in(Box::new(held.iter().cloned().map(Ok)), source, memory)? {
            writer.put("", Value::Document(doc?.doc()));
            if writer.is_full() {
                break;
            }
        }
        writer.close();
    }
    Ok(writer.within("a document that $facet makes")?.finish())
}

/// A uniform sample of `size` documents: Vitter's reservoir.
fn sample<E: From<LangError>>(
    size: u64,
    random: &Random,
    input: Stream<'_, E>,
    memory: &Memory,
) -> Result<(Vec<DocBuf>, Holder), E> {
    let hold = memory.holder("$sample");
    let mut held: Vec<DocBuf> = Vec::new();
    for (seen, doc) in (1u64..).zip(input) {
        let doc = doc?.compact();
        if (held.len() as u64) < size {
            hold.take(held_bytes(&doc))?;
            held.push(doc);
        } else if let Some(place) = held.get_mut((random.number() % seen) as usize) {
            hold.change(doc.bytes().len() as isize - place.bytes().len() as isize)?;
            *place = doc;
        }
    }
    Ok((held, hold))
}

/// Writes a value as a field of a document; for other stages of this module.
pub(crate) fn put(writer: &mut Writer, name: &str, value: &Val<'_>) {
    if let Some(value) = value.get() {
        writer.put(name, value);
    }
}
