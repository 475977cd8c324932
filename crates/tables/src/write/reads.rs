//! The reads of [`TablesRead`] as methods of the types themselves, so that applications import no trait.

use crate::error::Result;
use crate::read::table::{Table, TablesAt};
use crate::read::{KeyRange, TablesRead};
use crate::row::{OwnedRow, Row};
use crate::value::Value;
use crate::write::tx::TablesTx;

macro_rules! reads {
    ($($reader:ty),+) => {$(
        impl $reader {
            /// The row with this primary key. Cost: one lookup and the copy of the row.
            ///
            /// # Errors
            /// Values that do not fit the key; damage.
            pub fn get(&mut self, table: &Table, key: &[Value<'_>]) -> Result<Option<OwnedRow>> {
                TablesRead::get(self, table, key)
            }

            /// The rows with these primary keys, in the order of the keys.
            ///
            /// # Errors
            /// As `get`.
            pub fn get_many(
                &mut self,
                table: &Table,
                keys: &[&[Value<'_>]],
            ) -> Result<Vec<Option<OwnedRow>>> {
                TablesRead::get_many(self, table, keys)
            }

            /// Passes the rows of a range of the primary key to `each`, in order or backward, until it
            /// returns false.
            ///
            /// # Errors
            /// Bounds that do not fit the key; damage; the errors of `each`.
            pub fn scan(
                &mut self,
                table: &Table,
                range: &KeyRange<'_>,
                backward: bool,
                each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
            ) -> Result<()> {
                TablesRead::scan(self, table, range, backward, each)
            }

            /// The rows of a range of the primary key, as owned copies, at most `limit`.
            ///
            /// # Errors
            /// As `scan`.
            pub fn collect(
                &mut self,
                table: &Table,
                range: &KeyRange<'_>,
                backward: bool,
                limit: usize,
            ) -> Result<Vec<OwnedRow>> {
                TablesRead::collect(self, table, range, backward, limit)
            }

            /// Number of rows in a range of the primary key. Cost: a scan of it.
            ///
            /// # Errors
            /// As `scan`.
            pub fn count(&mut self, table: &Table, range: &KeyRange<'_>) -> Result<u64> {
                TablesRead::count(self, table, range)
            }

            /// Passes the rows of a range of an index to `each`, in order or backward, until it returns
            /// false.
            ///
            /// # Errors
            /// [`crate::TablesError::UnknownIndex`]; as `scan`.
            pub fn scan_index(
                &mut self,
                table: &Table,
                index: &str,
                range: &KeyRange<'_>,
                backward: bool,
                each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
            ) -> Result<()> {
                TablesRead::scan_index(self, table, index, range, backward, each)
            }

            /// The rows of a range of an index, as owned copies, at most `limit`.
            ///
            /// # Errors
            /// As `scan_index`.
            pub fn collect_index(
                &mut self,
                table: &Table,
                index: &str,
                range: &KeyRange<'_>,
                backward: bool,
                limit: usize,
            ) -> Result<Vec<OwnedRow>> {
                TablesRead::collect_index(self, table, index, range, backward, limit)
            }
        }
    )+};
}

reads!(TablesAt<'_>, TablesTx<'_>);
