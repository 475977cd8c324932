//! Views: create, alter and drop.

use std::collections::BTreeSet;

use crate::catalog::name_key;
use crate::catalog::view::{VIEW_DEPTH_MAX, View, view_key};
use crate::error::DocumentsError;
use crate::lang::budget::{Held, held};
use crate::lang::error::lang_error;
use crate::lang::{Options, Pipeline};
use crate::model::commit_section::{Event, What};
use crate::model::handle::Collection;
use crate::transaction::source::Source as _;
use crate::transaction::tx::DocumentsTx;

/// Memory of a name in the set, in addition to its text, and of the guard of its key.
const NAME_BYTES: usize = 128;

/// The names that a view reads, also through others, and their memory.
struct Reads {
    seen: BTreeSet<String>,
    held: Held,
}

impl DocumentsTx<'_> {
    /// The view that has this name, for this transaction; `None` for a collection.
    ///
    /// # Errors
    /// Damage.
    pub fn view_of(&mut self, collection: &Collection) -> Result<Option<View>, DocumentsError> {
        self.stored_view(collection.database(), collection.name())
    }

    /// Creates a view; false when it exists and is the same.
    ///
    /// # Errors
    /// [`DocumentsError::CollectionExists`] when a collection or another view has the name; a pipeline that
    /// is invalid or writes; views that read each other in a circle.
    pub fn create_view(&mut self, name: &Collection, view: &View) -> Result<bool, DocumentsError> {
        self.statement(|tx| {
            match tx.view_of(name)? {
                Some(there) if there == *view => return Ok(false),
                None if tx.definition_of(name)?.is_none() => {}
                _ => {
                    let (database, collection) = (name.database().to_owned(), name.name().to_owned());
                    return Err(DocumentsError::CollectionExists { database, collection });
                }
            }
            tx.check_unreserved(name)?;
            tx.put_view(name, view)?;
            Ok(true)
        })
    }

    /// Replaces a view.
    ///
    /// # Errors
    /// [`DocumentsError::UnknownCollection`]; as [`DocumentsTx::create_view`].
    pub fn set_view(&mut self, name: &Collection, view: &View) -> Result<(), DocumentsError> {
        self.statement(|tx| match tx.view_of(name)? {
            Some(_) => tx.put_view(name, view),
            None => Err(name.unknown()),
        })
    }

    fn put_view(&mut self, name: &Collection, view: &View) -> Result<(), DocumentsError> {
        self.documents.collection(name.database(), &view.on)?;
        self.check_view(name, view)?;
        let (catalog, key) = (self.spaces().catalog, view_key(name.database(), name.name()));
        // A collection of the same name that is created at the same time.
        self.kv.guard_key(catalog, &name_key(name.database(), name.name()));
        self.guard(catalog, &key);
        self.kv.put(catalog, &key, view.encode().bytes());
        self.view_changed(name.database());
        Ok(())
    }

    /// Drops a view; false if no view has that name.
    pub(crate) fn drop_view(&mut self, database: &str, name: &str) -> Result<bool, DocumentsError> {
        if self.stored_view(database, name)?.is_none() {
            return Ok(false);
        }
        let (catalog, key) = (self.spaces().catalog, view_key(database, name));
        self.guard(catalog, &key);
        self.kv.delete(catalog, &key);
        self.view_changed(database);
        Ok(true)
    }

    fn view_changed(&mut self, database: &str) {
        self.defined(0, What::Definition { event: Event::Changed, database, name: "" });
    }

    /// Checks the pipelines of a view and of those that it reads: no circle, and not too deep.
    fn check_view(&mut self, name: &Collection, view: &View) -> Result<(), DocumentsError> {
        let (database, catalog) = (name.database(), self.spaces().catalog);
        let mut reads = Reads { seen: BTreeSet::new(), held: held("the names of views") };
        let mut level = self.read_by(view, &mut reads)?;
        for depth in 1.. {
            let (mut next, mut has_views) = (Vec::new(), false);
            for read in level {
                if read == name.name() {
                    let error = lang_error!(
                        GraphContainsCycle,
                        "View cycle detected: {database}.{} reads itself",
                        name.name()
                    );
                    return Err(error.into());
                }
                // The view must be the same when this one is committed.
                self.kv.guard_key(catalog, &view_key(database, &read));
                if let Some(view) = self.stored_view(database, &read)? {
                    has_views = true;
                    next.extend(self.read_by(&view, &mut reads)?);
                }
            }
            if !has_views {
                break;
            }
            if depth >= VIEW_DEPTH_MAX {
                let error = lang_error!(
                    ViewDepthLimitExceeded,
                    "View depth limit exceeded; maximum depth is {VIEW_DEPTH_MAX}"
                );
                return Err(error.into());
            }
            level = next;
        }
        Ok(())
    }

    /// The collections and views that a view reads and that are not among `reads`.
    fn read_by(&self, view: &View, reads: &mut Reads) -> Result<Vec<String>, DocumentsError> {
        let options = Options { now_ms: self.now_ms(), ..Options::default() };
        let pipeline = Pipeline::parse(view.stages.doc(), &options)?;
        if let Some(output) = pipeline.output() {
            let error = lang_error!(
                OptionNotSupportedOnView,
                "The aggregation stage {} cannot be used within a view",
                output.name()
            );
            return Err(error.into());
        }
        let mut new = Vec::new();
        for name in pipeline.collections().into_iter().chain([view.on.as_str()]) {
            if !reads.seen.contains(name) {
                reads.held.take(2 * (size_of::<String>() + name.len()) + NAME_BYTES)?;
                reads.seen.insert(name.to_owned());
                new.push(name.to_owned());
            }
        }
        Ok(new)
    }
}
