//! Views: created, changed and listed, and read by the commands that read collections.
//!
//! ```text
//! find, count, distinct on a view ─▶ the stages of the same query ─▶ a pipeline over the view
//! ```
//! A view is read with the rights and rules that bind the caller on the collections that it reads.

use ropewalk::documents::lang::{Doc, DocBuf, Options, Pipeline, Value, Writer};
use ropewalk::documents::{Collection, View, not_on_view};
use ropewalk_auth::Right;

use crate::call::Call;
use crate::crud::read::{FIRST_BATCH, computed, first_batch};
use crate::crud::write::int;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};
use crate::state::cursors::Source;
use crate::state::guard::{Guard, Needs};

/// Options of collections that views do not have.
const NOT_OF_VIEWS: &[&str] = &[
    "validator",
    "validationLevel",
    "validationAction",
    "capped",
    "size",
    "max",
    "changeStreamPreAndPostImages",
];

/// The view of this name, if it is one.
pub(crate) fn named(collection: &Collection) -> Outcome<Option<View>> {
    Ok(if collection.definition()?.is_some() { None } else { collection.view()? })
}

/// Rejects an operation that views do not have.
///
/// # Errors
/// `CommandNotSupportedOnView`.
pub(crate) fn refuse(collection: &Collection) -> Outcome<()> {
    match named(collection)? {
        Some(_) => Err(not_on_view(collection.database(), collection.name()).into()),
        None => Ok(()),
    }
}

/// The view that `create` and `collMod` describe; `None` if they are about a collection.
pub(crate) fn described(args: &Args<'_>) -> Outcome<Option<View>> {
    let (on, stages) = (args.text("viewOn")?, args.array("pipeline")?);
    let Some(on) = on else {
        return match stages {
            None => Ok(None),
            Some(_) => {
                let message = "'pipeline' requires 'viewOn' to also be specified";
                Err(Failure::new(Code::BadValue, message))
            }
        };
    };
    if let Some(option) = NOT_OF_VIEWS.iter().find(|option| args.get(option).is_some()) {
        let message = format!("the option '{option}' is not supported on a view");
        return Err(Failure::new(Code::InvalidOptions, message));
    }
    Ok(Some(View { on: on.to_owned(), stages: stages.unwrap_or(Doc::empty()).to_buf() }))
}

/// Creates a view.
pub(crate) fn create(call: &Call<'_>, view: &View) -> Outcome<Writer> {
    if call.in_transaction {
        let message = "Cannot create a view in a multi-document transaction.";
        return Err(Failure::new(Code::OperationNotSupportedInTransaction, message));
    }
    call.may(Right::Append, Some(call.database))?;
    let name = call.collection()?;
    call.documents().transact(call.durability(), |tx| tx.create_view(&name, view))?;
    Ok(Writer::new())
}

/// Changes a view.
pub(crate) fn modify(call: &Call<'_>, view: &View) -> Outcome<Writer> {
    if call.args.array("pipeline")?.is_none() {
        let message = "Both 'viewOn' and 'pipeline' must be specified when modifying a view";
        return Err(Failure::new(Code::InvalidOptions, message));
    }
    let name = call.collection()?;
    call.documents().transact(call.durability(), |tx| tx.set_view(&name, view))?;
    Ok(Writer::new())
}

/// The entry of a view in `listCollections`.
pub(crate) fn put(name: &str, view: &View, name_only: bool) -> DocBuf {
    let mut out = Writer::new();
    out.put("name", Value::String(name));
    out.put("type", Value::String("view"));
    if !name_only {
        out.open_document("options");
        out.put("viewOn", Value::String(&view.on));
        out.put("pipeline", Value::Array(view.stages.doc()));
        out.close();
        out.open_document("info");
        out.put("readOnly", Value::Bool(true));
        out.close();
    }
    out.finish()
}

/// Adds the collections that views among `read` read, to repeat the checks of their rules at each batch.
pub(crate) fn add_read(call: &Call<'_>, read: &mut Vec<Collection>) -> Outcome<()> {
    if call.asked().is_none() {
        return Ok(());
    }
    let mut at = 0;
    while let Some(collection) = read.get(at) {
        at += 1;
        let Some(view) = named(collection)? else { continue };
        let stages = Pipeline::parse(view.stages.doc(), &Options::default())?;
        for name in stages.collections().into_iter().chain([view.on.as_str()]) {
            if !read.iter().any(|known| known.name() == name) {
                read.push(call.documents().collection(call.database, name)?);
            }
        }
    }
    Ok(())
}

fn no_hint() -> Failure {
    Failure::new(Code::OptionNotSupportedOnView, "a hint is not supported on a view")
}

/// Rejects a hint for a view.
pub(crate) fn refuse_hint(collection: &Collection) -> Outcome<()> {
    if named(collection)?.is_some() { Err(no_hint()) } else { Ok(()) }
}

/// Stages being written.
struct Stages(Writer);

impl Stages {
    /// Those of a command's query, and its bounds.
    fn of(args: &Args<'_>, query: &str) -> Outcome<Self> {
        let mut stages = Self(Writer::array());
        if args.get("hint").is_some() {
            return Err(no_hint());
        }
        if let Some(query) = args.document(query)?.filter(|query| !query.is_empty()) {
            stages.add("$match", Value::Document(query));
        }
        if let Some(sort) = args.document("sort")?.filter(|sort| !sort.is_empty()) {
            stages.add("$sort", Value::Document(sort));
        }
        if let Some(skip) = args.count("skip")? {
            stages.add("$skip", Value::Int64(skip as i64));
        }
        // Zero is no limit; old clients count up to the absolute value of a negative one.
        if let Some(limit) = args.integer("limit")?.filter(|limit| *limit != 0) {
            stages.add("$limit", Value::Int64(limit.checked_abs().unwrap_or(i64::MAX)));
        }
        Ok(stages)
    }

    fn add(&mut self, name: &str, operand: Value<'_>) {
        self.0.open_document("");
        self.0.put(name, operand);
        self.0.close();
    }

    fn parse(self, call: &Call<'_>) -> Outcome<Pipeline> {
        let options = call.options(&call.args)?;
        Ok(Pipeline::parse(self.0.finish().doc(), &options)?)
    }
}

/// `find` on a view.
pub(crate) fn find(call: &Call<'_>, view: &Collection) -> Outcome<Writer> {
    let mut stages = Stages::of(&call.args, "filter")?;
    if let Some(fields) = call.args.document("projection")?.filter(|fields| !fields.is_empty()) {
        stages.add("$project", Value::Document(fields));
    }
    let pipeline = stages.parse(call)?;
    let mut read = vec![view.clone()];
    add_read(call, &mut read)?;
    let guard = Guard::new(call.reader(), Needs::Database, read)?;
    let (documents, bytes, at) = computed(call, Some(view), &pipeline, None)?;
    let size = call.args.count("batchSize")?.unwrap_or(FIRST_BATCH);
    let single = call.args.flag("singleBatch")?.unwrap_or(false);
    let namespace = format!("{}.{}", view.database(), view.name());
    first_batch(call, guard, namespace, Source::Ready(documents, bytes), size, single, at)
}

/// `count` on a view.
pub(crate) fn count(call: &Call<'_>, view: &Collection) -> Outcome<Writer> {
    let mut stages = Stages::of(&call.args, "query")?;
    stages.add("$count", Value::String("n"));
    let (documents, ..) = computed(call, Some(view), &stages.parse(call)?, None)?;
    let counted = documents.front().and_then(|document| document.doc().get("n")).and_then(Value::as_integer);
    let mut out = Writer::new();
    out.put("n", int(counted.unwrap_or(0)));
    Ok(out)
}

/// The values of `distinct` on a view, an array.
pub(crate) fn distinct(call: &Call<'_>, view: &Collection, path: &str) -> Outcome<DocBuf> {
    let mut stages = Stages::of(&call.args, "query")?;
    // An array on the path counts as its elements.
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    for end in ends {
        let parent = format!("${}", path.get(..end).unwrap_or(path));
        stages.add("$unwind", Value::String(&parent));
    }
    stages.0.open_document("");
    stages.0.open_document("$group");
    stages.0.put("_id", Value::Null);
    stages.0.open_document("values");
    stages.0.put("$addToSet", Value::String(&format!("${path}")));
    stages.0.close();
    stages.0.close();
    stages.0.close();
    let (documents, ..) = computed(call, Some(view), &stages.parse(call)?, None)?;
    let values = documents.front().and_then(|document| document.doc().get("values"));
    Ok(values.and_then(Value::as_array).unwrap_or(Doc::empty()).to_buf())
}
