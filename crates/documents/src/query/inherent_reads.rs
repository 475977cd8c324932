//! The reads of [`DocumentsRead`] as methods of the types themselves, so that applications import no trait.

use crate::error::Result;
use crate::lang::{DocBuf, Filter, Owned, Value};
use crate::model::handle::Collection;
use crate::query::read::{DocumentsRead, Find};
use crate::query::snapshot_reads::DocumentsAt;
use crate::transaction::tx::DocumentsTx;

macro_rules! reads {
    ($($reader:ty),+) => {$(
        impl $reader {
            /// The document with this `_id`. Cost: one lookup and the copy of the document.
            ///
            /// # Errors
            /// Damage.
            pub fn get(
                &mut self,
                collection: &Collection,
                id: Value<'_>,
            ) -> Result<Option<DocBuf>> {
                DocumentsRead::get(self, collection, id)
            }

            /// The documents that `find` selects, all in memory.
            ///
            /// # Errors
            /// A filter, sort or projection that does not fit a document; an unknown hint; a sort that takes
            /// too much memory; damage.
            pub fn find(
                &mut self,
                collection: &Collection,
                find: &Find,
            ) -> Result<Vec<DocBuf>> {
                DocumentsRead::find(self, collection, find)
            }

            /// The first document that `find` selects.
            ///
            /// # Errors
            /// As `find`.
            pub fn find_one(
                &mut self,
                collection: &Collection,
                find: &Find,
            ) -> Result<Option<DocBuf>> {
                DocumentsRead::find_one(self, collection, find)
            }

            /// Passes the documents that `find` selects to `each`, one by one, until it returns false.
            ///
            /// # Errors
            /// As `find`; the errors of `each`.
            pub fn visit(
                &mut self,
                collection: &Collection,
                find: &Find,
                each: &mut dyn FnMut(DocBuf) -> Result<bool>,
            ) -> Result<()> {
                DocumentsRead::visit(self, collection, find, each)
            }

            /// Number of documents that `find` selects, skip and limit included.
            ///
            /// # Errors
            /// As `find`.
            pub fn count(&mut self, collection: &Collection, find: &Find) -> Result<u64> {
                DocumentsRead::count(self, collection, find)
            }

            /// The distinct values under `path`, elements of arrays one by one, in value order.
            ///
            /// # Errors
            /// As `find`; more than 16 MiB of values.
            pub fn distinct(
                &mut self,
                collection: &Collection,
                path: &str,
                filter: &Filter,
            ) -> Result<Vec<Owned>> {
                DocumentsRead::distinct(self, collection, path, filter)
            }
        }
    )+};
}

reads!(DocumentsAt<'_>, DocumentsTx<'_>);
