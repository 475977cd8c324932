//! Input of pipelines: the collections of a database, from a snapshot or inside a transaction.
//!
//! The leading filter of a pipeline is planned like any other; the language evaluates the later stages.
//! Pipelines that write are in `write::aggregate`.

use std::cell::RefCell;

use ropewalk_engine::Snapshot;

use crate::error::{DocumentsError, Result};
use crate::lang::{Code, DocBuf, Filter, LangError, Options, Pipeline, Source, Stream};
use crate::model::Documents;
use crate::model::handle::Collection;
use crate::query::read::{Find, Rows};
use crate::query::view::view_documents;
use crate::transaction::source::CancelCheck;
use crate::transaction::tx::DocumentsTx;

/// Memory that the stages of one pipeline may hold, bytes.
pub const PIPELINE_BYTES_MAX: usize = 100 << 20;

/// Options of the pipelines of views.
fn options(documents: &Documents) -> Options {
    Options { now_ms: documents.now_ms(), ..Options::default() }
}

/// The collections of a database at one snapshot.
struct AtSnapshot {
    documents: Documents,
    database: String,
    snapshot: Snapshot,
}

impl Source for AtSnapshot {
    type Error = DocumentsError;

    fn find(&self, collection: &str, filter: &Filter) -> Result<Stream<'_, DocumentsError>> {
        let collection = self.documents.collection(&self.database, collection)?;
        match collection.find_at(self.snapshot.clone(), &Find::matching(filter.clone())) {
            Ok(found) => Ok(Box::new(found)),
            Err(error) if error.is_view() => match collection.view_at(&self.snapshot)? {
                Some(view) => view_documents(&view, filter, &options(&self.documents), self),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// The collections of a database inside a transaction.
pub(crate) struct Inside<'t, 'a> {
    pub(crate) tx: RefCell<&'t mut DocumentsTx<'a>>,
    pub(crate) database: String,
    pub(crate) look: Option<CancelCheck<'t>>,
}

impl Inside<'_, '_> {
    /// Reads documents in pages; between two pages the transaction is free for other stages.
    pub(crate) fn stream(
        &self,
        collection: &Collection,
        filter: Filter,
    ) -> Result<Stream<'_, DocumentsError>> {
        let mut rows = Rows::shown(&mut **self.tx.borrow_mut(), collection, Find::matching(filter))?;
        Ok(Box::new(std::iter::from_fn(move || match rows.next(&mut **self.tx.borrow_mut()) {
            Ok(found) => found.map(|(_, stored)| Ok(DocBuf::trusted(stored))),
            Err(error) => Some(Err(error)),
        })))
    }
}

impl Source for Inside<'_, '_> {
    type Error = DocumentsError;

    fn find(&self, collection: &str, filter: &Filter) -> Result<Stream<'_, DocumentsError>> {
        let collection = self.tx.borrow().collection(&self.database, collection)?;
        match self.stream(&collection, filter.clone()) {
            Err(error) if error.is_view() => {
                let (view, options) = {
                    let mut tx = self.tx.borrow_mut();
                    (tx.stored_view(&self.database, collection.name())?, options(tx.documents))
                };
                match view {
                    Some(view) => view_documents(&view, filter, &options, self),
                    None => Err(error),
                }
            }
            other => other,
        }
    }

    fn look(&self) -> Result<()> {
        self.look.map_or(Ok(()), |look| look())
    }
}

/// Collects the results, within the memory limit.
pub(crate) fn collected(stream: Stream<'_, DocumentsError>) -> Result<Vec<DocBuf>> {
    let (mut documents, mut bytes) = (Vec::new(), 0);
    for document in stream {
        let document = document?.compact();
        bytes += document.bytes().len();
        if bytes > PIPELINE_BYTES_MAX {
            let what =
                format!("a pipeline inside a transaction returns more than {PIPELINE_BYTES_MAX} bytes");
            return Err(LangError::new(Code::QueryExceededMemoryLimitNoDiskUseAllowed, what).into());
        }
        documents.push(document);
    }
    Ok(documents)
}

pub(crate) fn leading(pipeline: &Pipeline) -> Filter {
    pipeline.leading_filter().cloned().unwrap_or_else(Filter::all)
}

impl Collection {
    /// Runs a pipeline over the collection as of `snapshot` and passes the resulting documents to `each`,
    /// one by one, until it returns false.
    ///
    /// # Errors
    /// Errors of the stages; more memory than [`PIPELINE_BYTES_MAX`]; a pipeline that writes; the errors of
    /// `each`.
    pub fn aggregate_at(
        &self,
        snapshot: Snapshot,
        pipeline: &Pipeline,
        each: &mut dyn FnMut(DocBuf) -> Result<bool>,
    ) -> Result<()> {
        if let Some(output) = pipeline.output() {
            let what = format!("writing to {:?} requires a transaction, not a snapshot", output.collection);
            return Err(DocumentsError::InvalidOptions { what });
        }
        let (documents, database) = (self.documents().clone(), self.database().to_owned());
        let source = AtSnapshot { documents, database, snapshot };
        let input: Stream<'_, DocumentsError> = if pipeline.brings_documents() {
            Box::new(std::iter::empty())
        } else {
            source.find(self.name(), &leading(pipeline))?
        };
        for document in pipeline.run(input, &source, PIPELINE_BYTES_MAX)? {
            if !each(document?)? {
                break;
            }
        }
        Ok(())
    }
}

/// A source without other collections.
pub(crate) struct Nothing;

impl Source for Nothing {
    type Error = DocumentsError;

    fn find(&self, _: &str, _: &Filter) -> Result<Stream<'_, DocumentsError>> {
        let what = "this pipeline cannot read other collections".to_owned();
        Err(DocumentsError::InvalidOptions { what })
    }
}
