//! Prepared handles: a table by its number, with its newest schema cached.
//!
//! A snapshot may use the cached schema when no definition changed between the commit it was loaded at and
//! the snapshot, whichever is older: one comparison with the newest change of any definition. Otherwise the
//! catalog is read, as of the snapshot.

use std::sync::Arc;

use ropewalk_base::Seq;
use ropewalk_engine::{EachEntry, KeySpan, Keyspace, MANY, ReadView, Snapshot};

use crate::catalog::tables::{LoadedSchema, Slot, Tables, TablesModel};
use crate::catalog::{name_key, number, object_key, object_range, table_key};
use crate::error::{Result, TablesError};
use crate::read::sealed::Sealed;
use crate::read::{KeyRange, TablesRead, row_prefix};
use crate::row::keys::{append_row_key, put_row_key};
use crate::row::{OwnedRow, Row};
use crate::schema::{Parts, Schema};
use crate::value::Value;

struct Inner {
    id: u32,
    name: String,
    loaded: Slot,
}

/// A prepared handle on a table. Cheap to clone; remains valid through every change and rename.
#[derive(Clone)]
pub struct Table(Arc<Inner>);

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({} {:?})", self.0.id, self.0.name)
    }
}

impl Table {
    pub(crate) fn new(model: &TablesModel, id: u32, name: &str) -> Self {
        Self(Arc::new(Inner { id, name: name.to_owned(), loaded: model.slot(id) }))
    }

    /// The table's number, which never changes.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The name that the handle was created with.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn unknown(&self) -> TablesError {
        TablesError::UnknownTable { name: self.0.name.clone() }
    }

    /// The schema visible to `read`.
    pub(crate) fn schema_at(&self, model: &TablesModel, read: ReadView<'_>) -> Result<Arc<Schema>> {
        let loaded = self.0.loaded.load();
        if let Some(loaded) = &*loaded
            && model.last_ddl.is_current(loaded.at, read)
        {
            return Ok(loaded.schema.clone());
        }
        let stored =
            read.get(model.spaces().catalog, &table_key(self.0.id))?.ok_or_else(|| self.unknown())?;
        let parts =
            Parts::decode(&stored).map_err(TablesError::damaged(format!("definition {}", self.0.id)))?;
        let schema = match &*loaded {
            Some(loaded) if loaded.schema.version() == parts.version => {
                debug_assert_eq!(
                    loaded.schema.parts.encode(),
                    parts.encode(),
                    "a version has one definition"
                );
                loaded.schema.clone()
            }
            _ => Arc::new(Schema::new(parts)),
        };
        if loaded.as_ref().is_none_or(|loaded| loaded.at < read.at()) {
            let newest = LoadedSchema { schema: schema.clone(), at: read.at() };
            self.0.loaded.store(Some(Arc::new(newest)));
        }
        Ok(schema)
    }
}

/// The number of the table `name`.
pub(crate) fn find(model: &TablesModel, read: ReadView<'_>, name: &str) -> Result<Option<u32>> {
    let Some(stored) = read.get(model.spaces().catalog, &name_key(name))? else { return Ok(None) };
    let damaged =
        || TablesError::Damaged { place: format!("name {name:?}"), what: "a table's number".into() };
    number(&stored).map(Some).ok_or_else(damaged)
}

impl Tables {
    /// A prepared handle on the table `name`.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`].
    pub fn table(&self, name: &str) -> Result<Table> {
        let snapshot = self.engine.snapshot();
        let id = find(&self.model, snapshot.read(), name)?;
        let id = id.ok_or_else(|| TablesError::UnknownTable { name: name.to_owned() })?;
        let table = Table::new(&self.model, id, name);
        table.schema_at(&self.model, snapshot.read())?;
        Ok(table)
    }

    /// Names of all tables, sorted.
    ///
    /// # Errors
    /// Damage.
    pub fn names(&self) -> Result<Vec<String>> {
        self.names_at(&self.engine.snapshot())
    }

    /// Names of all tables as of `snapshot`, sorted.
    ///
    /// # Errors
    /// Damage.
    pub fn names_at(&self, snapshot: &Snapshot) -> Result<Vec<String>> {
        let mut cursor = snapshot.read().cursor(self.model.spaces().catalog);
        cursor.seek(b"n")?;
        let mut names = Vec::new();
        while cursor.valid() && cursor.key().first() == Some(&b'n') {
            names.push(String::from_utf8_lossy(cursor.key().get(1..).unwrap_or_default()).into_owned());
            cursor.next()?;
        }
        Ok(names)
    }

    /// The definition of a table as of `snapshot`.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`] when the table does not exist in the snapshot.
    pub fn schema(&self, snapshot: &Snapshot, table: &Table) -> Result<Arc<Schema>> {
        table.schema_at(&self.model, snapshot.read())
    }

    /// Reads the tables as of `snapshot`, outside any transaction.
    pub fn at<'a>(&self, snapshot: &'a Snapshot) -> TablesAt<'a> {
        TablesAt { tables: self.clone(), snapshot }
    }

    /// The keyspace of rows and index entries, as commits of the change feed name it.
    pub fn rows_keyspace(&self) -> Keyspace {
        self.model.spaces().rows
    }

    /// Prepares lookups of single rows of `table` by primary key.
    pub fn point(&self, table: &Table) -> PointGet {
        PointGet { model: self.model.clone(), table: table.clone(), schema: None, key: Vec::new() }
    }
}

/// Lookups of single rows by primary key: after the first they resolve no names and allocate nothing.
pub struct PointGet {
    model: Arc<TablesModel>,
    table: Table,
    /// The schema used last, and the snapshot it is valid for.
    schema: Option<(Arc<Schema>, Seq)>,
    key: Vec<u8>,
}

/// A row read by [`PointGet::get`], in place.
pub struct PointRow<'a> {
    schema: &'a Arc<Schema>,
    key: &'a [u8],
    value: ropewalk_engine::Value<'a>,
}

impl PointRow<'_> {
    /// The row as a borrowed `Row`.
    pub fn row(&self) -> Row<'_> {
        Row::new(self.schema, self.key, &self.value)
    }
}

impl PointGet {
    /// The row with this primary key.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`] when the table does not exist in the snapshot; values that do not fit
    /// the key; damage.
    pub fn get<'a>(&'a mut self, snapshot: &'a Snapshot, key: &[Value<'_>]) -> Result<Option<PointRow<'a>>> {
        let read = snapshot.read();
        self.renew(read)?;
        let (schema, _) = self.schema.as_ref().expect("renewing sets the schema");
        put_row_key(schema, key, &mut self.key)?;
        let found = read.get(self.model.spaces().rows, &self.key)?;
        Ok(found.map(|value| PointRow { schema, key: &self.key, value }))
    }

    /// Passes the rows with these primary keys to `each`, in the order of `keys`: ordinal of the key, row.
    /// [`MANY`] lookups run interleaved.
    ///
    /// # Errors
    /// As [`PointGet::get`]; the errors of `each`.
    pub fn get_many(
        &mut self,
        snapshot: &Snapshot,
        keys: &[&[Value<'_>]],
        mut each: impl FnMut(usize, Option<Row<'_>>) -> Result<()>,
    ) -> Result<()> {
        let read = snapshot.read();
        self.renew(read)?;
        let (schema, _) = self.schema.as_ref().expect("renewing sets the schema");
        for (batch, keys) in keys.chunks(MANY).enumerate() {
            self.key.clear();
            let mut ends = [0; MANY];
            for (key, end) in keys.iter().zip(&mut ends) {
                append_row_key(schema, key, &mut self.key)?;
                *end = self.key.len();
            }
            let (mut encoded, mut start) = ([&[][..]; MANY], 0);
            for (key, end) in encoded.iter_mut().zip(ends).take(keys.len()) {
                *key = self.key.get(start..end).expect("keys follow each other");
                start = end;
            }
            let encoded = encoded.get(..keys.len()).expect("a batch has MANY keys at most");
            let mut outcome = Ok(());
            read.get_many(self.model.spaces().rows, encoded, |number, value| {
                let row = encoded.get(number).zip(value.as_deref());
                let row = row.map(|(key, value)| Row::new(schema, key, value));
                if outcome.is_ok() {
                    outcome = each(batch * MANY + number, row);
                }
            })?;
            outcome?;
        }
        Ok(())
    }

    /// Makes the schema the one visible to `read`.
    #[inline]
    fn renew(&mut self, read: ReadView<'_>) -> Result<()> {
        let last = &self.model.last_ddl;
        if !self.schema.as_ref().is_some_and(|(_, at)| last.is_current(*at, read)) {
            self.schema = Some((self.table.schema_at(&self.model, read)?, read.at()));
        }
        Ok(())
    }
}

/// The tables as of one snapshot.
pub struct TablesAt<'a> {
    tables: Tables,
    snapshot: &'a Snapshot,
}

impl Sealed for TablesAt<'_> {}

impl TablesRead for TablesAt<'_> {
    fn begin(&mut self) {}

    #[allow(private_interfaces)] // the trait is sealed
    fn spaces(&self) -> crate::catalog::Spaces {
        self.tables.model.spaces()
    }

    fn schema_of(&mut self, table: &Table) -> Result<Arc<Schema>> {
        table.schema_at(&self.tables.model, self.snapshot.reading().view())
    }

    fn fetch(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.snapshot.reading().view().get(self.spaces().rows, key)?.map(|value| value.to_vec()))
    }

    fn fetch_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut found = Vec::with_capacity(keys.len());
        self.snapshot.reading().view().get_many(self.spaces().rows, keys, |number, value| {
            debug_assert_eq!(number, found.len(), "values come in the order of their keys");
            found.push(value.map(|value| value.to_vec()));
        })?;
        Ok(found)
    }

    fn walk(&mut self, keyspace: Keyspace, span: KeySpan<'_>, each: &mut EachEntry<'_>) -> Result<()> {
        Ok(self.snapshot.reading().view().visit(keyspace, span, each)?)
    }
}

impl TablesAt<'_> {
    /// Passes the rows with stored keys from `start` (included) to `end` (excluded) to `each`, until it
    /// returns false; without a bound from the first or to the last row. For callers that partition a table
    /// by [stored keys](Row::stored_key).
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`]; damage; the errors of `each`.
    pub fn scan_stored(
        &mut self,
        table: &Table,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        each: &mut dyn FnMut(Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        let schema = self.schema_of(table)?;
        let (first, behind) = object_range(schema.rows_object());
        let start = start.unwrap_or(&first);
        let end = end.or(behind.as_ref().map(<[u8; 4]>::as_slice));
        let mut outcome = Ok(true);
        self.walk_rows(KeySpan::forward(start, end), &mut |key, value| {
            outcome = each(Row::new(&schema, key, value));
            matches!(outcome, Ok(true))
        })?;
        outcome.map(|_| ())
    }

    /// The table to whose rows a stored key belongs.
    ///
    /// `None` for entries of indexes, and for a table that does not exist in the snapshot. Cost: two reads of
    /// the catalog.
    ///
    /// # Errors
    /// Damage.
    pub fn table_of_row(&self, key: &[u8]) -> Result<Option<Table>> {
        let Some(object) = key.first_chunk().copied().map(u32::from_be_bytes) else { return Ok(None) };
        let model = &self.tables.model;
        let (catalog, read) = (model.spaces().catalog, self.snapshot.read());
        let Some(owner) = read.get(catalog, &object_key(object))? else { return Ok(None) };
        let damaged =
            || TablesError::Damaged { place: format!("object {object}"), what: "a table's number".into() };
        let id = number(&owner).ok_or_else(damaged)?;
        let Some(stored) = read.get(catalog, &table_key(id))? else { return Ok(None) };
        let parts = Parts::decode(&stored).map_err(TablesError::damaged(format!("definition {id}")))?;
        Ok((parts.rows == object).then(|| Table::new(model, id, &parts.name)))
    }

    /// A row with this stored key and value, such as those of a change of the rows' keyspace.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`].
    pub fn decode_row(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<OwnedRow> {
        Ok(OwnedRow::new(self.schema_of(table)?, key.to_vec(), value.to_vec()))
    }

    /// The row under a stored key.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`]; damage.
    pub fn stored_row(&mut self, table: &Table, key: &[u8]) -> Result<Option<OwnedRow>> {
        let schema = self.schema_of(table)?;
        let value = self.fetch(key)?;
        Ok(value.map(|value| OwnedRow::new(schema, key.to_vec(), value)))
    }

    /// The least stored key of rows whose primary key begins with `values`.
    ///
    /// # Errors
    /// [`TablesError::UnknownTable`]; values that do not fit the key.
    pub fn stored_prefix(&mut self, table: &Table, values: &[Value<'_>]) -> Result<Vec<u8>> {
        let schema = self.schema_of(table)?;
        row_prefix(&schema, values)
    }

    /// True when no commit after `since`, which this snapshot or an earlier one saw, wrote a row of `rows`
    /// (see [`Schema::rows_object`]) between these stored keys. Also false when unknown, because writes
    /// after `since` were flushed from memory. Cost: a search of the changes in memory, not of the rows.
    pub fn is_known_unchanged_since(
        &self,
        rows: u32,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
        since: Seq,
    ) -> bool {
        let (first, behind) = object_range(rows);
        let start = start.unwrap_or(&first);
        let end = end.or(behind.as_ref().map(<[u8; 4]>::as_slice));
        self.snapshot.reading().view().is_known_unchanged_since(self.spaces().rows, start, end, since)
    }

    /// The rows of `range`, as owned copies, at most `limit`.
    ///
    /// # Errors
    /// As [`TablesRead::scan`].
    pub fn rows(&mut self, table: &Table, range: &KeyRange<'_>, limit: usize) -> Result<Vec<OwnedRow>> {
        self.collect(table, range, false, limit)
    }
}
