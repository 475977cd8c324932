//! Views as sources of documents: a view is read by running its pipeline.
//!
//! Reads of the view itself fail with `CommandNotSupportedOnView`, so that a collection costs no look-up of a
//! view; a caller that can run a pipeline catches the error and reads through [`view_documents`].

use std::cell::Cell;

use ropewalk_engine::{ReadView, Snapshot};

use crate::catalog::split_name;
use crate::catalog::view::{VIEW_DEPTH_MAX, View, not_on_view, view_key};
use crate::error::DocumentsError;
use crate::lang::error::lang_error;
use crate::lang::{Filter, Options, Pipeline, Source, Stream};
use crate::model::Documents;
use crate::model::handle::Collection;
use crate::query::aggregate::{PIPELINE_BYTES_MAX, leading};

/// The view of that name, as `read` sees it.
pub(crate) fn view_at(
    documents: &Documents,
    read: ReadView<'_>,
    database: &str,
    name: &str,
) -> Result<Option<View>, DocumentsError> {
    let stored = read.get(documents.model.spaces().catalog, &view_key(database, name))?;
    stored.map(|stored| View::decode(&stored)).transpose()
}

/// Rejects the name of a collection that does not exist if a view has it.
pub(crate) fn refuse_view(collection: &Collection, read: ReadView<'_>) -> Result<(), DocumentsError> {
    let key = view_key(collection.database(), collection.name());
    match read.get(collection.documents().model.spaces().catalog, &key)? {
        Some(_) => Err(not_on_view(collection.database(), collection.name())),
        None => Ok(()),
    }
}

impl Collection {
    /// The view that has this name, as of the newest commit; `None` for a collection.
    ///
    /// # Errors
    /// Damage.
    pub fn view(&self) -> Result<Option<View>, DocumentsError> {
        self.view_at(&self.documents().engine.snapshot())
    }

    /// The view that has this name, as of `snapshot`.
    ///
    /// # Errors
    /// Damage.
    pub fn view_at(&self, snapshot: &Snapshot) -> Result<Option<View>, DocumentsError> {
        view_at(self.documents(), snapshot.read(), self.database(), self.name())
    }
}

impl Documents {
    /// Names of the views of a database, sorted.
    ///
    /// # Errors
    /// Damage.
    pub fn views(&self, database: &str) -> Result<Vec<String>, DocumentsError> {
        let snapshot = self.engine.snapshot();
        let mut cursor = snapshot.read().cursor(self.model.spaces().catalog);
        let prefix = view_key(database, "");
        let mut names = Vec::new();
        cursor.seek(&prefix)?;
        while cursor.valid() && cursor.key().starts_with(&prefix) {
            names.extend(split_name(cursor.key(), 1).map(|(_, name)| name.to_owned()));
            cursor.next()?;
        }
        Ok(names)
    }
}

thread_local! {
    /// Views that this thread is reading through one another.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// One level of views; ends when dropped.
struct Level;

impl Level {
    fn enter(view: &View) -> Result<Self, DocumentsError> {
        if DEPTH.get() >= VIEW_DEPTH_MAX {
            let error = lang_error!(
                ViewDepthLimitExceeded,
                "View depth too deep or view cycle detected; maximum depth is {VIEW_DEPTH_MAX}, at {:?}",
                view.on
            );
            return Err(error.into());
        }
        DEPTH.set(DEPTH.get() + 1);
        Ok(Self)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// The documents of a view that match: they are computed at once and held.
///
/// # Errors
/// Errors of the stages; more memory than [`PIPELINE_BYTES_MAX`]; views through more than 20 others.
pub fn view_documents<S: Source<Error = DocumentsError>>(
    view: &View,
    filter: &Filter,
    options: &Options,
    source: &S,
) -> Result<Stream<'static, DocumentsError>, DocumentsError> {
    let _level = Level::enter(view)?;
    let pipeline = Pipeline::parse(view.stages.doc(), options)?;
    let input: Stream<'_, DocumentsError> = if pipeline.brings_documents() {
        Box::new(std::iter::empty())
    } else {
        source.find(&view.on, &leading(&pipeline))?
    };
    let (held, filter) = (pipeline.run_held(input, source, PIPELINE_BYTES_MAX)?, filter.clone());
    Ok(Box::new(held.filter_map(move |document| match document {
        Ok(document) => match filter.matches(document.doc()) {
            Ok(true) => Some(Ok(document)),
            Ok(false) => None,
            Err(error) => Some(Err(error.into())),
        },
        failed => Some(failed),
    })))
}
