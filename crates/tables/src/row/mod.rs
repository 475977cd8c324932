//! Rows of a table, read in place through a schema; their keys, text forms and Rust types.

pub(crate) mod convert;
pub(crate) mod display;
pub(crate) mod keys;

use std::borrow::Cow;
use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder};

use crate::error::{Result, TablesError};
use crate::schema::Schema;
use crate::schema::layout::Source;
use crate::value::Value;
use crate::value::key::{skip_value, take_value};
use crate::value::types::Type;

/// One row, read in place.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    schema: &'a Arc<Schema>,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Row<'a> {
    pub(crate) fn new(schema: &'a Arc<Schema>, key: &'a [u8], value: &'a [u8]) -> Self {
        Self { schema, key, value }
    }

    /// The key under which the row is stored. Keys of a table's rows sort as its primary key does.
    pub fn stored_key(&self) -> &'a [u8] {
        self.key
    }

    /// The schema that the row is read through.
    pub fn schema(&self) -> &'a Arc<Schema> {
        self.schema
    }

    fn damaged(&self, error: DecodeError) -> TablesError {
        let key = crate::row::display::row_key(self.schema, self.key);
        TablesError::damaged(format!("table {:?}, row {key}", self.schema.name()))(error)
    }

    /// The value of the column at `index` of the schema. Text and bytes are borrowed; nothing is allocated.
    ///
    /// # Errors
    /// [`TablesError::UnknownColumn`]; damage.
    #[inline]
    pub fn get(&self, index: usize) -> Result<Value<'a>> {
        let column = self.schema.column_at(index)?;
        let read = self.read(index, column.ty).map_err(|error| self.damaged(error))?;
        let value = read.unwrap_or_else(|| column.missing.borrowed());
        match &column.labels {
            None => Ok(value),
            Some(labels) => labels
                .named(value)
                .ok_or_else(|| self.damaged(DecodeError { what: "known label of an enum", offset: 0 })),
        }
    }

    #[inline]
    fn read(&self, index: usize, ty: Type) -> Result<Option<Value<'a>>, DecodeError> {
        if let Some(ordinal) = self.schema.key_source(index) {
            return self.read_key(ordinal, ty).map(Some);
        }
        let mut decoder = Decoder::new(self.value);
        let head = decoder.varint("layout of a row")?;
        let unknown = DecodeError { what: "known layout of a row", offset: 0 };
        let number = usize::try_from(head / 2).map_err(|_| unknown.clone())?;
        let (layout, source) = self.schema.layout_source(number, index).ok_or(unknown)?;
        let Source::Layout(at) = source else { return Ok(None) };
        match layout.column(at, head % 2 == 1, decoder.rest())? {
            None => Ok(Some(Value::Null)),
            Some(bytes) => Value::from_row(ty, bytes)
                .map(Some)
                .ok_or(DecodeError { what: "value of its type", offset: decoder.offset() }),
        }
    }

    /// Decodes the key column number `ordinal`, which the key holds exactly.
    #[inline]
    fn read_key(&self, ordinal: usize, ty: Type) -> Result<Value<'a>, DecodeError> {
        // A key that is too short is damaged, and decodes to nothing.
        let mut rest = self.key.get(4..).unwrap_or_default();
        for before in self.schema.key_columns().iter().take(ordinal) {
            let column = self.schema.columns().get(*before);
            rest = skip_value(column.map_or(Type::BOOL, |c| c.ty), rest)?;
        }
        take_value(ty, rest).map(|(value, _)| value)
    }

    /// The value of the column `name`.
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn column(&self, name: &str) -> Result<Value<'a>> {
        self.get(self.schema.index_of(name)?)
    }

    /// All columns in order.
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn values(&self) -> Result<Vec<Value<'a>>> {
        (0..self.schema.columns().len()).map(|index| self.get(index)).collect()
    }

    /// A copy that borrows nothing.
    #[allow(clippy::should_implement_trait)] // the owned row is another type
    pub fn to_owned(self) -> OwnedRow {
        OwnedRow { schema: self.schema.clone(), key: self.key.into(), value: self.value.into() }
    }
}

impl std::fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct(self.schema.name());
        for (index, column) in self.schema.columns().iter().enumerate() {
            let value: Cow<'_, str> = match self.get(index) {
                Ok(value) => value.to_string().into(),
                Err(_) => "damaged".into(),
            };
            shown.field(&column.name, &format_args!("{value}"));
        }
        shown.finish()
    }
}

/// A row that owns its data.
#[derive(Clone)]
pub struct OwnedRow {
    schema: Arc<Schema>,
    key: Box<[u8]>,
    value: Box<[u8]>,
}

impl OwnedRow {
    pub(crate) fn new(schema: Arc<Schema>, key: Vec<u8>, value: Vec<u8>) -> Self {
        Self { schema, key: key.into(), value: value.into() }
    }

    /// Bytes of its stored key and value.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }

    /// The row as a borrowed `Row`.
    pub fn row(&self) -> Row<'_> {
        Row::new(&self.schema, &self.key, &self.value)
    }

    /// As [`Row::get`].
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn get(&self, index: usize) -> Result<Value<'_>> {
        self.row().get(index)
    }

    /// As [`Row::column`].
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn column(&self, name: &str) -> Result<Value<'_>> {
        self.row().column(name)
    }

    /// As [`Row::values`].
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn values(&self) -> Result<Vec<Value<'_>>> {
        self.row().values()
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }
}

impl std::fmt::Debug for OwnedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.row().fmt(f)
    }
}
