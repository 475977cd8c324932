//! Distinct values under a path.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::error::{DocumentsError, Result};
use crate::lang::budget::{Held, byte_steps, held};
use crate::lang::{self, Collation, Doc, Owned};

/// Most bytes of the result, as of any document.
const BYTES_MAX: usize = 16 << 20;
/// Memory of an entry of the tree, whose capacity may be twice its length.
const ENTRY_BYTES: usize = 2 * size_of::<(Vec<u8>, Owned)>() + 16;

/// The distinct values under a path, elements of arrays one by one.
pub struct Distinct {
    path: String,
    collation: Option<Collation>,
    values: BTreeMap<Vec<u8>, Owned>,
    bytes: usize,
    held: Held,
}

impl Distinct {
    /// No values yet. Values that are equal under `collation` count once.
    #[must_use]
    pub fn under(path: &str, collation: Option<Collation>) -> Self {
        Self { path: path.to_owned(), collation, values: BTreeMap::new(), bytes: 0, held: held("distinct") }
    }

    /// Adds the values of a document.
    ///
    /// # Errors
    /// More than 16 MiB of values; more memory than the command may hold.
    pub fn add(&mut self, document: Doc<'_>) -> Result<()> {
        let Self { path, collation, values, bytes, held } = self;
        lang::path::each_at(document, path, &mut |value| {
            byte_steps(value.payload_bytes())?;
            let key = lang::key::collated_key_of(value, collation.as_ref())?;
            let size = key.len();
            if *bytes <= BYTES_MAX
                && let Entry::Vacant(free) = values.entry(key)
            {
                let value = Owned::from(value);
                held.take(ENTRY_BYTES + size + value.bytes())?;
                free.insert(value);
                *bytes += size;
            }
            Ok(())
        })?;
        if *bytes > BYTES_MAX {
            return Err(DocumentsError::TooLarge { what: "distinct", bytes: *bytes, max: BYTES_MAX });
        }
        Ok(())
    }

    /// The values, in their order.
    #[must_use]
    pub fn values(self) -> Vec<Owned> {
        self.values.into_values().collect()
    }
}
