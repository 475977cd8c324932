//! Sources that documents are read from: a transaction or a snapshot.

use std::sync::Arc;

use ropewalk_engine::Reading;

use crate::catalog::definition::Definition;
use crate::error::DocumentsError;
use crate::model::Documents;
use crate::model::handle::Collection;
use crate::rules::Caller;

/// Asked from time to time by a walk that may take long whether it may go on; an error ends it.
pub type Look<'a> = &'a (dyn Fn() -> Result<(), DocumentsError> + Sync);

/// What can be read from: a transaction or a snapshot.
pub(crate) trait Source {
    /// Begins a statement.
    fn begin(&mut self);
    fn documents(&self) -> &Documents;
    /// Whose rules are asked.
    fn caller(&self) -> Option<&Arc<Caller>>;
    /// Whether what may take long may go on. Asked once for each page of a walk.
    fn look(&self) -> Result<(), DocumentsError>;
    /// The snapshot, without own writes.
    fn reading(&self) -> Reading;
    fn definition_of(&mut self, collection: &Collection) -> Result<Option<Arc<Definition>>, DocumentsError>;
    fn fetch(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, DocumentsError>;
    fn walk(
        &mut self,
        start: &[u8],
        end: Option<&[u8]>,
        backward: bool,
        each: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), DocumentsError>;
}
