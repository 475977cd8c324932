//! Pipelines that write: `$out` and `$merge`, in the reading transaction, so that a new collection becomes
//! visible atomically.

use std::cell::RefCell;

use ropewalk_engine::Durability;

use crate::error::{DocumentsError, Result};
use crate::lang::{
    self, Code, Doc, DocBuf, Filter, LangError, Options, Output, OutputMode, Pipeline, Stream, Update, Value,
    WhenMatched, WhenNotMatched, Writer,
};
use crate::model::handle::Collection;
use crate::query::aggregate::{Inside, Nothing, PIPELINE_BYTES_MAX, collected, leading};
use crate::query::read::Find;
use crate::transaction::source::Source as _;
use crate::transaction::tx::DocumentsTx;
use crate::write::document::duplicate_id;
use crate::write::statements::UpdateSpec;

impl Collection {
    /// Runs a pipeline as of the newest commit and returns its results. A pipeline that writes runs in a
    /// separate transaction and returns nothing.
    ///
    /// # Errors
    /// As [`Collection::aggregate_at`]; as [`DocumentsTx::aggregate`].
    pub fn aggregate(&self, pipeline: &Pipeline, durability: Durability) -> Result<Vec<DocBuf>> {
        if pipeline.output().is_some() {
            return self.documents().transact(durability, |tx| tx.aggregate(self, pipeline));
        }
        let mut documents = Vec::new();
        self.aggregate_at(self.documents().engine.snapshot(), pipeline, &mut |document| {
            documents.push(document);
            Ok(true)
        })?;
        Ok(documents)
    }
}

impl DocumentsTx<'_> {
    /// Runs a pipeline inside the transaction, own writes included. With `$out` or `$merge` at its end it
    /// writes the documents and returns nothing.
    ///
    /// # Errors
    /// Errors of the stages and of the writes; more memory than [`PIPELINE_BYTES_MAX`], for the stages or
    /// for the results.
    pub fn aggregate(&mut self, collection: &Collection, pipeline: &Pipeline) -> Result<Vec<DocBuf>> {
        self.statement(|tx| {
            let documents = {
                let database = collection.database().to_owned();
                let look = tx.look;
                let source = Inside { database, tx: RefCell::new(tx), look };
                let input: Stream<'_, DocumentsError> = if pipeline.brings_documents() {
                    Box::new(std::iter::empty())
                } else {
                    lang::Source::find(&source, collection.name(), &leading(pipeline))?
                };
                collected(pipeline.run(input, &source, PIPELINE_BYTES_MAX)?)?
            };
            let Some(output) = pipeline.output() else { return Ok(documents) };
            let database = output.database.as_deref().unwrap_or(collection.database());
            let target = tx.collection(database, &output.collection)?;
            tx.within(|tx| tx.write_output(&target, output, documents))?;
            Ok(Vec::new())
        })
    }

    fn write_output(&mut self, target: &Collection, output: &Output, documents: Vec<DocBuf>) -> Result<()> {
        match &output.mode {
            OutputMode::Replace => {
                // Created also when there are no results.
                self.definition_to_write(target)?;
                self.delete(target, &Find::all())?;
                documents.iter().try_for_each(|document| self.insert_one(target, document.bytes()).map(drop))
            }
            OutputMode::Merge { on, matched, not_matched } => {
                self.check_identifies(target, on)?;
                documents
                    .iter()
                    .try_for_each(|document| self.merge(target, on, matched, *not_matched, document.doc()))
            }
        }
    }

    /// Checks that a unique index is on the fields `on`, so that they identify one document.
    fn check_identifies(&mut self, target: &Collection, on: &[String]) -> Result<()> {
        if matches!(on, [id] if id == "_id") {
            return Ok(());
        }
        let definition = self.definition_of(target)?;
        let found = definition.iter().flat_map(|definition| definition.indexes()).any(|index| {
            index.ready
                && index.def.unique
                && index.partial.is_none()
                && index.fields().len() == on.len()
                && index.fields().iter().all(|field| on.contains(&field.path))
        });
        if found {
            return Ok(());
        }
        let what = "Cannot find index to verify that join fields will be unique";
        Err(LangError::new(Code::Location(51183), what).into())
    }

    fn merge(
        &mut self,
        target: &Collection,
        on: &[String],
        matched: &WhenMatched,
        not_matched: WhenNotMatched,
        document: Doc<'_>,
    ) -> Result<()> {
        let mut filter = Writer::new();
        for path in on {
            match lang::path::get(document, path) {
                Some(value) if !value.is_nullish() && value.as_array().is_none() => {
                    filter.open_document(path);
                    filter.put("$eq", value);
                    filter.close();
                }
                None if path == "_id" => {}
                _ => {
                    let what = format!(
                        "$merge write error: 'on' field '{path}' cannot be missing, null, undefined or an array"
                    );
                    return Err(LangError::new(Code::Location(51132), what).into());
                }
            }
        }
        let filter = filter.finish();
        // A document without an `_id` matches no other.
        let there = if filter.doc().is_empty() {
            None
        } else {
            let filter = Filter::parse(filter.doc(), &Options::default())?;
            self.find_one(target, &Find::matching(filter.clone()))?.map(|there| (there, filter))
        };
        let Some((there, filter)) = there else {
            return match not_matched {
                WhenNotMatched::Insert => self.insert_one(target, document.bytes()).map(drop),
                WhenNotMatched::Discard => Ok(()),
                WhenNotMatched::Fail => {
                    let what = "$merge could not find a matching document in the target collection";
                    Err(LangError::new(Code::Location(13113), what).into())
                }
            };
        };
        let options = Options { now_ms: self.now_ms(), ..Options::default() };
        let update = match matched {
            WhenMatched::KeepExisting => return Ok(()),
            WhenMatched::Fail => {
                let definition = self.definition_to_write(target)?;
                let id = there.doc().get("_id").unwrap_or(Value::Null);
                return Err(duplicate_id(&definition, id));
            }
            WhenMatched::Replace => Update::parse(Value::Document(document), None, &options)?,
            WhenMatched::Merge => {
                let mut set = Writer::new();
                set.open_document("$set");
                for (name, value) in document.iter().filter(|(name, _)| *name != "_id") {
                    set.put(name, value);
                }
                set.close();
                Update::parse(Value::Document(set.finish().doc()), None, &options)?
            }
            WhenMatched::Pipeline { stages, variables } => {
                let variables = Some(variables_of(document, variables.as_ref(), &options)?);
                Update::parse(stages.value(), None, &Options { variables, ..options })?
            }
        };
        self.update_one(target, &UpdateSpec::new(filter, update)).map(drop)
    }
}

/// The values of a `$merge`'s variables for one document.
fn variables_of(document: Doc<'_>, spec: Option<&DocBuf>, options: &Options) -> Result<DocBuf> {
    let Some(spec) = spec else {
        let mut out = Writer::new();
        out.put("new", Value::Document(document));
        return Ok(out.finish());
    };
    // The expressions of one document are evaluated as a new root.
    let mut stages = Writer::array();
    stages.open_document("0");
    stages.open_document("$replaceRoot");
    stages.put("newRoot", Value::Document(spec.doc()));
    stages.close();
    stages.close();
    let stages = stages.finish();
    let pipeline = Pipeline::parse(stages.doc(), options)?;
    let input: Stream<'_, DocumentsError> = Box::new(std::iter::once(Ok(document.to_buf())));
    let out = pipeline.run(input, &Nothing, PIPELINE_BYTES_MAX)?.next();
    out.unwrap_or_else(|| Ok(DocBuf::empty()))
}
