//! Reading rows, in a transaction or at a snapshot: by key, by range, through an index, in both directions.

pub(crate) mod table;

use std::ops::Bound;
use std::sync::Arc;

use ropewalk_base::keys::prefix_end;
use ropewalk_engine::{EachEntry, KeySpan, Keyspace};

use crate::catalog::{Spaces, enum_key, object_range};
use crate::error::{Result, TablesError};
use crate::read::table::Table;
use crate::row::keys::{entry_row, put_key_column, put_row_key};
use crate::row::{OwnedRow, Row};
use crate::schema::enums::EnumType;
use crate::schema::{Index, Schema};
use crate::value::Value;
use crate::value::key::put_marked;

/// Index entries resolved to rows at a time.
const PAGE: usize = 256;

/// A range of keys by leading columns: each bound has values for any number of them, in the order of the
/// key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyRange<'a> {
    from: Bound<Vec<Value<'a>>>,
    to: Bound<Vec<Value<'a>>>,
}

impl<'a> KeyRange<'a> {
    /// All keys.
    pub fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded }
    }

    /// The keys with these leading columns.
    pub fn prefix(values: impl Into<Vec<Value<'a>>>) -> Self {
        let values = values.into();
        Self { from: Bound::Included(values.clone()), to: Bound::Included(values) }
    }

    /// Begins at the first key with these leading columns.
    #[must_use]
    pub fn from(mut self, values: impl Into<Vec<Value<'a>>>) -> Self {
        self.from = Bound::Included(values.into());
        self
    }

    /// Begins after every key with these leading columns.
    #[must_use]
    pub fn after(mut self, values: impl Into<Vec<Value<'a>>>) -> Self {
        self.from = Bound::Excluded(values.into());
        self
    }

    /// Ends after every key with these leading columns.
    #[must_use]
    pub fn to(mut self, values: impl Into<Vec<Value<'a>>>) -> Self {
        self.to = Bound::Included(values.into());
        self
    }

    /// Ends before the first key with these leading columns.
    #[must_use]
    pub fn before(mut self, values: impl Into<Vec<Value<'a>>>) -> Self {
        self.to = Bound::Excluded(values.into());
        self
    }

    /// True for a single key of so many columns.
    fn is_key(&self, columns: usize) -> bool {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) => {
                columns > 0 && from.len() == columns && from == to
            }
            _ => false,
        }
    }

    /// The range as bytes: start and end.
    fn bytes(
        &self,
        object: u32,
        encode: impl Fn(&[Value<'a>]) -> Result<Vec<u8>>,
    ) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
        let (first, end) = object_range(object);
        let from = match &self.from {
            Bound::Unbounded => first.to_vec(),
            Bound::Included(values) => encode(values)?,
            // No key can follow the greatest prefix, so the range is empty.
            Bound::Excluded(values) => {
                let prefix = encode(values)?;
                prefix_end(&prefix).unwrap_or(prefix)
            }
        };
        let to = match &self.to {
            Bound::Unbounded => end.map(|end| end.to_vec()),
            Bound::Included(values) => prefix_end(&encode(values)?),
            Bound::Excluded(values) => Some(encode(values)?),
        };
        Ok((from, to))
    }
}

pub(crate) fn row_prefix(schema: &Schema, values: &[Value<'_>]) -> Result<Vec<u8>> {
    too_many(schema, values.len(), schema.key_columns().len())?;
    let mut key = schema.parts.rows.to_be_bytes().to_vec();
    for (place, value) in schema.key_columns().iter().zip(values) {
        put_key_column(schema, *place, value, &mut key)?;
    }
    Ok(key)
}

/// The common prefix of the index's entries with these leading values.
pub(crate) fn index_prefix(schema: &Schema, index: &Index, values: &[Value<'_>]) -> Result<Vec<u8>> {
    too_many(schema, values.len(), index.columns.len())?;
    let mut key = index.object.to_be_bytes().to_vec();
    for (part, value) in index.columns.iter().zip(values) {
        let value = value.borrowed().assign(part.ty).map_err(|source| TablesError::Value {
            table: schema.name().to_owned(),
            column: index.name.clone(),
            source,
        })?;
        put_marked(&mut key, &value, part.order);
    }
    Ok(key)
}

fn too_many(schema: &Schema, found: usize, expected: usize) -> Result<()> {
    if found > expected {
        return Err(TablesError::Arity { table: schema.name().to_owned(), expected, found });
    }
    Ok(())
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// The enum types from one key of the catalog up to another.
fn enum_types<R: TablesRead + ?Sized>(read: &mut R, start: &[u8], end: &[u8]) -> Result<Vec<EnumType>> {
    let mut all = Vec::new();
    read.walk_catalog(start, end, &mut |key, bytes| all.push(EnumType::stored(bytes, key)))?;
    all.into_iter().collect()
}

/// Reads common to transactions and snapshots. A transaction sees its own writes, and its reads count for
/// its isolation.
pub trait TablesRead: sealed::Sealed {
    #[doc(hidden)]
    fn begin(&mut self);
    #[doc(hidden)]
    #[allow(private_interfaces)] // the trait is sealed
    fn spaces(&self) -> Spaces;
    #[doc(hidden)]
    fn schema_of(&mut self, table: &Table) -> Result<Arc<Schema>>;
    #[doc(hidden)]
    fn fetch(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    #[doc(hidden)]
    fn fetch_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.fetch(key)).collect()
    }
    /// Passes the entries of a keyspace to `each` until it returns false.
    #[doc(hidden)]
    fn walk(&mut self, keyspace: Keyspace, span: KeySpan<'_>, each: &mut EachEntry<'_>) -> Result<()>;

    #[doc(hidden)]
    fn walk_rows(&mut self, span: KeySpan<'_>, each: &mut EachEntry<'_>) -> Result<()> {
        self.walk(self.spaces().rows, span, each)
    }

    #[doc(hidden)]
    fn walk_catalog(&mut self, start: &[u8], end: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.walk(self.spaces().catalog, KeySpan::forward(start, Some(end)), &mut |key, value| {
            each(key, value);
            true
        })
    }

    /// The enum type called `name`.
    ///
    /// # Errors
    /// Damage.
    fn enum_named(&mut self, name: &str) -> Result<Option<EnumType>> {
        self.begin();
        let key = enum_key(name);
        let behind = [key.as_slice(), &[0]].concat();
        Ok(enum_types(self, &key, &behind)?.pop())
    }

    /// All enum types, by name. Cost: a scan of them.
    ///
    /// # Errors
    /// Damage.
    fn enums(&mut self) -> Result<Vec<EnumType>> {
        self.begin();
        enum_types(self, b"e", b"f")
    }

    /// The enum type with this number. Cost: a scan of all of them.
    ///
    /// # Errors
    /// Damage.
    fn enum_numbered(&mut self, number: u32) -> Result<Option<EnumType>> {
        Ok(self.enums()?.into_iter().find(|known| known.number() == number))
    }

    /// The definition of a table as visible here.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`].
    fn schema(&mut self, table: &Table) -> Result<Arc<Schema>> {
        self.begin();
        self.schema_of(table)
    }

    /// The row with this primary key.
    ///
    /// # Errors
    /// Values that do not fit the key; damage.
    fn get(&mut self, table: &Table, key: &[Value<'_>]) -> Result<Option<OwnedRow>> {
        self.begin();
        let schema = self.schema_of(table)?;
        let mut bytes = Vec::new();
        put_row_key(&schema, key, &mut bytes)?;
        Ok(self.fetch(&bytes)?.map(|value| OwnedRow::new(schema, bytes, value)))
    }

    /// The rows with these primary keys, in the order of the keys.
    ///
    /// # Errors
    /// As [`TablesRead::get`].
    fn get_many(&mut self, table: &Table, keys: &[&[Value<'_>]]) -> Result<Vec<Option<OwnedRow>>> {
        self.begin();
        let schema = self.schema_of(table)?;
        let mut encoded = vec![Vec::new(); keys.len()];
        for (key, bytes) in keys.iter().zip(&mut encoded) {
            put_row_key(&schema, key, bytes)?;
        }
        let found = self.fetch_many(&encoded.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        debug_assert_eq!(found.len(), keys.len(), "every key was looked up");
        let row = |(bytes, value): (Vec<u8>, Option<Vec<u8>>)| {
            value.map(|value| OwnedRow::new(schema.clone(), bytes, value))
        };
        Ok(encoded.into_iter().zip(found).map(row).collect())
    }

    /// Passes the rows of a range of the primary key to `each`, in order or backward, until it returns
    /// false. Rows are read in place. Only the scanned part of the range counts as read.
    ///
    /// # Errors
    /// Bounds that do not fit the key; damage; the errors of `each`.
    fn scan(
        &mut self,
        table: &Table,
        range: &KeyRange<'_>,
        backward: bool,
        each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        self.begin();
        self.scan_within(table, range, backward, each)
    }

    /// As `scan`, within a statement that has already begun.
    #[doc(hidden)]
    fn scan_within(
        &mut self,
        table: &Table,
        range: &KeyRange<'_>,
        backward: bool,
        each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        let schema = self.schema_of(table)?;
        let (from, to) = range.bytes(schema.parts.rows, |values| row_prefix(&schema, values))?;
        if range.is_key(schema.key_columns().len()) {
            // A lookup: a scan would open a cursor over all levels.
            return match self.fetch(&from)? {
                Some(value) => each(Row::new(&schema, &from, &value)).map(|_| ()),
                None => Ok(()),
            };
        }
        let mut outcome = Ok(true);
        self.walk_rows(KeySpan { start: &from, end: to.as_deref(), backward }, &mut |key, value| {
            outcome = each(Row::new(&schema, key, value));
            matches!(outcome, Ok(true))
        })?;
        outcome.map(|_| ())
    }

    /// The rows of a range, as owned copies, at most `limit`.
    ///
    /// # Errors
    /// As [`TablesRead::scan`].
    fn collect(
        &mut self,
        table: &Table,
        range: &KeyRange<'_>,
        backward: bool,
        limit: usize,
    ) -> Result<Vec<OwnedRow>> {
        let mut rows = Vec::new();
        if limit == 0 {
            return Ok(rows);
        }
        self.scan(table, range, backward, &mut |row| {
            rows.push(row.to_owned());
            Ok(rows.len() < limit)
        })?;
        Ok(rows)
    }

    /// Number of rows in a range. Cost: a scan of it.
    ///
    /// # Errors
    /// As [`TablesRead::scan`].
    fn count(&mut self, table: &Table, range: &KeyRange<'_>) -> Result<u64> {
        let mut count = 0;
        self.scan(table, range, false, &mut |_| {
            count += 1;
            Ok(true)
        })?;
        Ok(count)
    }

    /// Passes the rows of a range of an index to `each`, in order or backward, until it returns false.
    ///
    /// # Errors
    /// [`TablesError::UnknownIndex`]; as [`TablesRead::scan`].
    fn scan_index(
        &mut self,
        table: &Table,
        index: &str,
        range: &KeyRange<'_>,
        backward: bool,
        each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        self.begin();
        let schema = self.schema_of(table)?;
        let index = schema.index_named(index)?;
        let (mut from, mut to) = range.bytes(index.object, |values| index_prefix(&schema, index, values))?;
        // Rows are fetched page by page, so that the first rows need no scan of all entries.
        let mut page = 8;
        loop {
            let mut entries = Vec::new();
            self.walk_rows(KeySpan { start: &from, end: to.as_deref(), backward }, &mut |key, value| {
                entries.push((key.to_vec(), value.to_vec()));
                entries.len() < page
            })?;
            for (key, value) in &entries {
                let place = || format!("table {:?}, index {:?}", schema.name(), index.name);
                let row_key =
                    entry_row(schema.parts.rows, key, value).map_err(TablesError::damaged(place()))?;
                let Some(row) = self.fetch(&row_key)? else {
                    return Err(TablesError::Damaged {
                        place: place(),
                        what: "an entry leads to no row".into(),
                    });
                };
                if !each(Row::new(&schema, &row_key, &row))? {
                    return Ok(());
                }
            }
            match entries.pop() {
                Some((last, _)) if entries.len() + 1 == page && backward => to = Some(last),
                Some((mut last, _)) if entries.len() + 1 == page => {
                    last.push(0);
                    from = last;
                }
                _ => return Ok(()),
            }
            page = PAGE;
        }
    }

    /// The rows of a range of an index, as owned copies, at most `limit`.
    ///
    /// # Errors
    /// As [`TablesRead::scan_index`].
    fn collect_index(
        &mut self,
        table: &Table,
        index: &str,
        range: &KeyRange<'_>,
        backward: bool,
        limit: usize,
    ) -> Result<Vec<OwnedRow>> {
        let mut rows = Vec::new();
        if limit == 0 {
            return Ok(rows);
        }
        self.scan_index(table, index, range, backward, &mut |row| {
            rows.push(row.to_owned());
            Ok(rows.len() < limit)
        })?;
        Ok(rows)
    }
}
