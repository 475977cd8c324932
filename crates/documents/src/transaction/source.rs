//! Sources that documents are read from: a transaction or a snapshot.

use std::sync::Arc;

use ropewalk_engine::{EachEntry, KeySpan, Reading};

use crate::catalog::definition::Definition;
use crate::error::Result;
use crate::model::Documents;
use crate::model::handle::Collection;
use crate::rules::Caller;

/// A check that long scans call periodically; an error from it ends the scan.
pub type CancelCheck<'a> = &'a (dyn Fn() -> Result<()> + Sync);

/// A transaction or a snapshot that documents are read from.
pub(crate) trait Source {
    /// Begins a statement.
    fn begin(&mut self);
    fn documents(&self) -> &Documents;
    /// The caller whose access the rules decide about.
    fn caller(&self) -> Option<&Arc<Caller>>;
    /// Checks whether a long operation may continue. Called once for each page of a scan.
    fn look(&self) -> Result<()>;
    /// The snapshot, without the transaction's own writes.
    fn reading(&self) -> Reading;
    fn definition_of(&mut self, collection: &Collection) -> Result<Option<Arc<Definition>>>;
    fn fetch(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    fn walk(&mut self, span: KeySpan<'_>, each: &mut EachEntry<'_>) -> Result<()>;
}
