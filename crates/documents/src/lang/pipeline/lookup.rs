//! `$lookup` and `$graphLookup`: documents of other collections.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::lang::budget::{self, Held, byte_steps};
use crate::lang::error::{LangError, LangResult, lang_error, refuse};
use crate::lang::expression::{Expression, Scope};
use crate::lang::filter::Filter;
use crate::lang::memory::Memory;
use crate::lang::options::Options;
use crate::lang::pipeline::projection::with_field;
use crate::lang::pipeline::{Pipeline, Source, Stream, only};
use crate::lang::value::key::key_of;
use crate::lang::value::path;
use crate::lang::value::writer::Writer;
use crate::lang::value::{DOCUMENT_BYTES_MAX, Doc, DocBuf, ELEMENT_BYTES, Owned, Value};

/// Memory of a stage in addition to the values that it was parsed from.
const LOOKUP_BYTES: usize = 1 << 10;

/// A parsed `$lookup`.
#[derive(Debug, Clone)]
pub(crate) struct Lookup {
    from: Option<String>,
    /// Local and foreign field.
    fields: Option<(String, String)>,
    /// Variables for the pipeline.
    variables: Vec<(String, Expression)>,
    /// Unparsed: its variables are constants of each document.
    stages: Option<Stages>,
    as_path: String,
    options: Options,
    depth: usize,
    /// The memory of the options' variables and of the stages.
    _held: Arc<Held>,
}

#[derive(Debug, Clone)]
struct Stages {
    array: Owned,
    /// Parsed with missing variables, to validate it and find its collections.
    parsed: Pipeline,
}

impl Lookup {
    pub(crate) fn parse(spec: Doc<'_>, options: &Options, depth: usize) -> LangResult<Self> {
        only("$lookup", spec, &["from", "localField", "foreignField", "let", "pipeline", "as"])?;
        let text = |name: &str| match spec.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.to_owned())),
            Some(other) => {
                refuse!(FailedToParse, "$lookup argument '{name}' must be a string, found {other}")
            }
        };
        let Some(as_path) = text("as")? else {
            refuse!(FailedToParse, "must specify 'as' field for a $lookup");
        };
        let fields = match (text("localField")?, text("foreignField")?) {
            (Some(local), Some(foreign)) => Some((local, foreign)),
            (None, None) => None,
            _ => refuse!(
                FailedToParse,
                "$lookup requires both or neither of 'localField' and 'foreignField' to be specified"
            ),
        };
        let scope = Scope::of(options);
        let mut variables = Vec::new();
        match spec.get("let") {
            None => {}
            Some(Value::Document(doc)) => {
                for (name, value) in doc {
                    variables.push((name.to_owned(), Expression::parse(value, &scope)?));
                }
            }
            Some(other) => refuse!(FailedToParse, "$lookup argument 'let: {other}' must be an object"),
        }
        let held = budget::held("$lookup");
        let copied = options.variables.as_ref().map_or(0, |variables| variables.bytes().len());
        byte_steps(copied)?;
        held.take(LOOKUP_BYTES + copied + spec.bytes().len())?;
        let mut lookup = Self {
            _held: Arc::new(held),
            from: text("from")?,
            fields,
            variables,
            stages: None,
            as_path,
            options: options.clone(),
            depth,
        };
        match spec.get("pipeline") {
            None if lookup.fields.is_none() => {
                refuse!(
                    FailedToParse,
                    "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified"
                )
            }
            None if !lookup.variables.is_empty() => {
                refuse!(FailedToParse, "$lookup with a 'let' argument must also specify 'pipeline'")
            }
            None => {}
            Some(stages @ Value::Array(array)) => {
                let nothing: Vec<Owned> = lookup.variables.iter().map(|_| Value::Undefined.into()).collect();
                let parsed = Pipeline::parse_inner(array, &lookup.with_variables(&nothing), depth + 1)?;
                lookup.stages = Some(Stages { array: stages.into(), parsed });
            }
            Some(other) => {
                refuse!(TypeMismatch, "the pipeline of $lookup is an array, not {}", other.type_name())
            }
        }
        let brings = lookup.stages.as_ref().is_some_and(|stages| stages.parsed.brings_documents());
        if lookup.from.is_none() && !brings {
            refuse!(FailedToParse, "must specify 'from' field for a $lookup");
        }
        Ok(lookup)
    }

    pub(crate) fn collections(&self) -> Vec<&str> {
        let inner = self.stages.iter().flat_map(|stages| stages.parsed.collections());
        self.from.as_deref().into_iter().chain(inner).collect()
    }

    /// The command's variables, and those of the stage, which override them.
    fn with_variables(&self, values: &[Owned]) -> Options {
        let mut writer = Writer::new();
        for ((name, _), value) in self.variables.iter().zip(values) {
            writer.put(name, value.value());
        }
        let outer = self.options.variables.as_ref().map_or(Doc::empty(), DocBuf::doc);
        for (name, value) in
            outer.iter().filter(|(name, _)| !self.variables.iter().any(|(own, _)| own == name))
        {
            writer.put(name, value);
        }
        Options { variables: Some(writer.finish()), ..self.options.clone() }
    }

    pub(crate) fn apply<S: Source>(
        &self,
        doc: Doc<'_>,
        source: &S,
        memory: &Memory,
    ) -> Result<DocBuf, S::Error> {
        let filter = match &self.fields {
            Some((local, foreign)) => joined(doc, local, foreign)?,
            None => Filter::all(),
        };
        let input: Stream<'_, S::Error> = match &self.from {
            Some(from) => source.find(from, &filter)?,
            None => Box::new(std::iter::empty()),
        };
        let mut writer = Writer::array().with_room(JOINED_BYTES_MAX);
        let hold = memory.holder("$lookup");
        let mut take = |doc: Result<DocBuf, S::Error>| -> Result<(), S::Error> {
            let doc = doc?;
            byte_steps(doc.bytes().len())?;
            hold.take(2 * (ELEMENT_BYTES + doc.bytes().len()))?;
            writer.put("", Value::Document(doc.doc()));
            if writer.is_full() {
                return Err(self.too_large().into());
            }
            Ok(())
        };
        match &self.stages {
            None => input.into_iter().try_for_each(&mut take)?,
            Some(stages) => {
                let mut values = Vec::new();
                for (_, expression) in &self.variables {
                    // Undefined represents a missing value: expressions treat it as missing.
                    values
                        .push(Owned::from(expression.evaluate_root(doc)?.get().unwrap_or(Value::Undefined)));
                }
                let array = stages.array.value().as_array().unwrap_or(Doc::empty());
                let options = self.with_variables(&values);
                hold.take(options.variables.as_ref().map_or(0, |variables| variables.bytes().len()))?;
                let pipeline = Pipeline::parse_inner(array, &options, self.depth + 1)?;
                pipeline.run_in(input, source, memory)?.try_for_each(&mut take)?;
            }
        }
        let joined = with_field(doc, &self.as_path, writer.into_owned())?;
        if joined.bytes().len() > crate::lang::value::DOCUMENT_BYTES_MAX {
            return Err(self.too_large().into());
        }
        Ok(joined)
    }

    fn too_large(&self) -> LangError {
        lang_error!(4568, "Total size of documents in {:?} exceeds maximum document size", self.from)
    }
}

/// `{ foreign: { $in: values of local } }`; a local field that is missing equals null.
fn joined(doc: Doc<'_>, local: &str, foreign: &str) -> LangResult<Filter> {
    let (mut values, held) = path::values_at(doc, local)?;
    // Copies of the values, and the intervals that the planner derives from them.
    held.take(values.len() * JOINED_VALUE_BYTES + 4 * doc.bytes().len())?;
    if values.is_empty() && !matches!(path::get(doc, local), Some(Value::Array(_))) {
        values.push(Value::Null);
    }
    Ok(Filter::among(foreign, &values))
}

/// Limit of the documents joined to one, before the size of the result is known.
const JOINED_BYTES_MAX: usize = DOCUMENT_BYTES_MAX;
/// Memory of a value to search by: the value, and an interval of keys.
const JOINED_VALUE_BYTES: usize = 4 * size_of::<Owned>();

/// A parsed `$graphLookup`.
#[derive(Debug, Clone)]
pub(crate) struct GraphLookup {
    from: String,
    start: Expression,
    connect_from: String,
    connect_to: String,
    as_path: String,
    depth_max: i64,
    depth_field: Option<String>,
    restriction: Filter,
}

/// Memory of a found document, in the list and in the set of visited ones.
const SEEN_BYTES: usize = 2 * (size_of::<DocBuf>() + size_of::<Vec<u8>>()) + 32;

impl GraphLookup {
    pub(crate) fn parse(spec: Doc<'_>, options: &Options) -> LangResult<Self> {
        let names = [
            "from",
            "startWith",
            "connectFromField",
            "connectToField",
            "as",
            "maxDepth",
            "depthField",
            "restrictSearchWithMatch",
        ];
        only("$graphLookup", spec, &names)?;
        let text = |name: &str| match spec.get(name) {
            Some(Value::String(text)) if !text.is_empty() && !text.starts_with('$') => Ok(text.to_owned()),
            _ => refuse!(40105, "$graphLookup requires '{name}', a string that does not begin with a dollar"),
        };
        let Some(start) = spec.get("startWith") else {
            refuse!(40105, "$graphLookup requires 'startWith'");
        };
        let depth_max = match spec.get("maxDepth").map(Value::as_integer) {
            None => i64::MAX,
            Some(Some(depth)) if depth >= 0 => depth,
            Some(_) => refuse!(40101, "maxDepth requires a nonnegative argument"),
        };
        let restriction = match spec.get("restrictSearchWithMatch") {
            None => Filter::all(),
            Some(Value::Document(filter)) => Filter::parse(filter, options)?,
            Some(_) => refuse!(40185, "restrictSearchWithMatch must be an object"),
        };
        Ok(Self {
            from: text("from")?,
            start: Expression::parse(start, &Scope::of(options))?,
            connect_from: text("connectFromField")?,
            connect_to: text("connectToField")?,
            as_path: text("as")?,
            depth_max,
            depth_field: spec.get("depthField").map(|_| text("depthField")).transpose()?,
            restriction,
        })
    }

    pub(crate) fn collection(&self) -> &str {
        &self.from
    }

    /// Breadth first; each document is returned once, at its least depth.
    pub(crate) fn apply<S: Source>(
        &self,
        doc: Doc<'_>,
        source: &S,
        memory: &Memory,
    ) -> Result<DocBuf, S::Error> {
        let hold = memory.holder("$graphLookup");
        let start = self.start.evaluate_root(doc)?;
        let mut frontier: Vec<Owned> = Vec::new();
        let mut begin = |value: Value<'_>| -> LangResult<()> {
            hold.take(JOINED_VALUE_BYTES + 4 * value.payload_bytes())?;
            frontier.push(value.into());
            Ok(())
        };
        match start.or_null() {
            Value::Array(values) => values.values().try_for_each(&mut begin)?,
            value => begin(value)?,
        }
        let mut asked: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut found: Vec<DocBuf> = Vec::new();
        let mut depth = 0;
        while depth <= self.depth_max {
            frontier.retain(|value| asked.insert(key_of(value.value())));
            if frontier.is_empty() {
                break;
            }
            let values: Vec<Value<'_>> = frontier.iter().map(Owned::value).collect();
            let filter = Filter::among(&self.connect_to, &values).and(self.restriction.clone());
            let mut next = Vec::new();
            for doc in source.find(&self.from, &filter)? {
                let doc = doc?;
                let id = key_of(doc.doc().get("_id").unwrap_or(Value::Document(doc.doc())));
                byte_steps(doc.bytes().len())?;
                hold.take(SEEN_BYTES + id.capacity() + doc.bytes().len())?;
                if !seen.insert(id) {
                    continue;
                }
                path::each_at(doc.doc(), &self.connect_from, &mut |value| {
                    hold.take(JOINED_VALUE_BYTES + 4 * value.payload_bytes())?;
                    next.push(Owned::from(value));
                    Ok(())
                })?;
                let doc = doc.compact();
                found.push(match &self.depth_field {
                    Some(field) => with_field(doc.doc(), field, Value::Int64(depth).into())?,
                    None => doc,
                });
            }
            frontier = next;
            depth += 1;
        }
        let mut writer = Writer::array().bounded();
        found.iter().for_each(|doc| writer.put("", Value::Document(doc.doc())));
        let array = writer.within("the result of $graphLookup")?.into_owned();
        let joined = with_field(doc, &self.as_path, array)?;
        if joined.bytes().len() > crate::lang::value::DOCUMENT_BYTES_MAX {
            return Err(lang_error!(BSONObjectTooLarge, "$graphLookup made a document above 16 MiB").into());
        }
        Ok(joined)
    }
}
