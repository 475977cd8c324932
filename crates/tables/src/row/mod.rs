//! Rows: the columns that the key does not hold, read in place.
//!
//! ```text
//! varint layout * 2 + wide | NULL bits | fixed columns | ends of varying columns but the last | varying columns
//!                            one bit per nullable column; u16 each, u32 when wide
//! ```
//! A *layout* is the list of columns that a row was written with. A schema remembers every layout that it ever had, so a
//! change of the table rewrites nothing: an older row shows the columns it has, and what a newer column was added with
//! stands for those it lacks. NULLs keep their place among the fixed columns, so that each is found by one addition.

pub(crate) mod convert;
pub(crate) mod display;
pub(crate) mod keys;

use std::borrow::Cow;
use std::sync::Arc;

use ropewalk_base::{DecodeError, Decoder, put_varint};

use crate::error::TablesError;
use crate::schema::Schema;
use crate::value::Value;
use crate::value::key::{skip_value, take_value};
use crate::value::types::Type;

/// A column as rows of one layout hold it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayoutColumn {
    pub(crate) id: u16,
    pub(crate) ty: Type,
    pub(crate) nullable: bool,
}

/// Where a layout keeps a column.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    /// Offset behind the NULL bits, and width.
    Fixed(usize, usize),
    /// Which of the varying columns.
    Varying(usize),
}

/// The columns of a row, in order, and where each is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    pub(crate) columns: Vec<LayoutColumn>,
    places: Vec<(Option<usize>, Place)>,
    null_bytes: usize,
    fixed_bytes: usize,
    varying: usize,
}

impl Layout {
    pub(crate) fn new(columns: Vec<LayoutColumn>) -> Self {
        let (mut bits, mut fixed_bytes, mut varying) = (0, 0, 0);
        let places = columns
            .iter()
            .map(|column| {
                let bit = column.nullable.then_some(bits);
                bits += usize::from(column.nullable);
                let place = match column.ty.width() {
                    Some(width) => {
                        fixed_bytes += width;
                        Place::Fixed(fixed_bytes - width, width)
                    }
                    None => {
                        varying += 1;
                        Place::Varying(varying - 1)
                    }
                };
                (bit, place)
            })
            .collect();
        Self { columns, places, null_bytes: usize::div_ceil(bits, 8), fixed_bytes, varying }
    }

    /// Appends a row of layout number `number`; `values` are those of the layout's columns. Allocates nothing of its own.
    pub(crate) fn put<'v>(
        &self,
        number: usize,
        values: impl Iterator<Item = &'v Value<'v>> + Clone,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        if !self.put_ends(number, values.clone(), false, out) {
            out.truncate(start);
            self.put_ends(number, values, true, out);
        }
    }

    /// As [`Layout::put`], with wide ends or not; false when narrow ones cannot say how long the row is.
    fn put_ends<'v>(
        &self,
        number: usize,
        values: impl Iterator<Item = &'v Value<'v>> + Clone,
        wide: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        put_varint(out, number as u64 * 2 + u64::from(wide));
        let nulls_at = out.len();
        let fixed_at = nulls_at + self.null_bytes;
        out.resize(fixed_at, 0);
        for ((bit, place), value) in self.places.iter().zip(values.clone()) {
            if let (Some(bit), true) = (bit, value.is_null())
                && let Some(byte) = out.get_mut(nulls_at + bit / 8)
            {
                *byte |= 1 << (bit % 8);
            }
            if let Place::Fixed(offset, width) = place {
                value.put_stored(out);
                out.resize(fixed_at + offset + width, 0);
            }
        }
        let (ends_at, size) = (out.len(), if wide { 4 } else { 2 });
        let first = ends_at + self.varying.saturating_sub(1) * size;
        out.resize(first, 0);
        for ((_, place), value) in self.places.iter().zip(values) {
            let Place::Varying(ordinal) = place else { continue };
            value.put_stored(out);
            let end = out.len() - first;
            if !wide && end > usize::from(u16::MAX) {
                return false;
            }
            let at = ends_at + ordinal * size;
            // The last end is the row's own, and has no place.
            if at < first
                && let (Some(slot), Some(bytes)) =
                    (out.get_mut(at..at + size), (end as u32).to_le_bytes().get(..size))
            {
                slot.copy_from_slice(bytes);
            }
        }
        true
    }

    /// The bytes of column `index`, `None` for NULL. `body` is the row behind its first number.
    #[inline]
    fn column<'a>(&self, index: usize, wide: bool, body: &'a [u8]) -> Result<Option<&'a [u8]>, DecodeError> {
        let error = DecodeError { what: "column of a row", offset: 0 };
        let &(bit, place) = self.places.get(index).ok_or_else(|| error.clone())?;
        if let Some(bit) = bit
            && body.get(bit / 8).ok_or_else(|| error.clone())? & (1 << (bit % 8)) != 0
        {
            return Ok(None);
        }
        let (start, end) = match place {
            Place::Fixed(offset, width) => (self.null_bytes + offset, self.null_bytes + offset + width),
            Place::Varying(ordinal) => {
                let ends = self.null_bytes + self.fixed_bytes;
                let size = if wide { 4 } else { 2 };
                let first = ends + (self.varying - 1) * size;
                let end_of = |ordinal: usize| {
                    let mut bytes = [0; 4];
                    let at = ends + ordinal * size;
                    bytes.get_mut(..size)?.copy_from_slice(body.get(at..at + size)?);
                    Some(first + u32::from_le_bytes(bytes) as usize)
                };
                let start = if ordinal == 0 { Some(first) } else { end_of(ordinal - 1) };
                let end = if ordinal + 1 == self.varying { Some(body.len()) } else { end_of(ordinal) };
                (start.ok_or_else(|| error.clone())?, end.ok_or_else(|| error.clone())?)
            }
        };
        body.get(start..end).map(Some).ok_or(error)
    }
}

/// Where a schema finds a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Source {
    /// In the key: behind this many key columns of fixed width and bytes, or by stepping over columns.
    Key(usize),
    /// Column of the layout.
    Layout(usize),
    /// The rows of the layout lack it.
    Missing,
}

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
    pub fn get(&self, index: usize) -> Result<Value<'a>, TablesError> {
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

    /// The key column number `ordinal`, which the key holds exactly.
    #[inline]
    fn read_key(&self, ordinal: usize, ty: Type) -> Result<Value<'a>, DecodeError> {
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
    pub fn column(&self, name: &str) -> Result<Value<'a>, TablesError> {
        self.get(self.schema.index_of(name)?)
    }

    /// All columns in order.
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn values(&self) -> Result<Vec<Value<'a>>, TablesError> {
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

/// A row that outlives what it was read from.
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

    /// To read it.
    pub fn row(&self) -> Row<'_> {
        Row::new(&self.schema, &self.key, &self.value)
    }

    /// As [`Row::get`].
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn get(&self, index: usize) -> Result<Value<'_>, TablesError> {
        self.row().get(index)
    }

    /// As [`Row::column`].
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn column(&self, name: &str) -> Result<Value<'_>, TablesError> {
        self.row().column(name)
    }

    /// As [`Row::values`].
    ///
    /// # Errors
    /// As [`Row::get`].
    pub fn values(&self) -> Result<Vec<Value<'_>>, TablesError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::testing::{any_type, any_value};
    use proptest::prelude::*;

    fn column(id: u16, ty: Type, nullable: bool) -> LayoutColumn {
        LayoutColumn { id, ty, nullable }
    }

    fn put(layout: &Layout, number: usize, values: &[Value<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        layout.put(number, values.iter(), &mut out);
        out
    }

    #[test]
    fn golden() {
        let layout = Layout::new(vec![
            column(1, Type::INT4, true),
            column(2, Type::TEXT, true),
            column(3, Type::BOOL, false),
            column(4, Type::BYTEA, false),
        ]);
        let values = [Value::Int4(-2), Value::text("ab"), Value::Bool(true), Value::bytea(&b"xyz"[..])];
        assert_eq!(
            put(&layout, 3, &values),
            [6, 0, 0xfe, 0xff, 0xff, 0xff, 1, 2, 0, b'a', b'b', b'x', b'y', b'z']
        );
        let values = [Value::Null, Value::Null, Value::Bool(false), Value::bytea(&b""[..])];
        assert_eq!(put(&layout, 0, &values), [0, 0b11, 0, 0, 0, 0, 0, 0, 0]);
        // One column that may not be NULL costs one byte.
        let layout = Layout::new(vec![column(1, Type::BYTEA, false)]);
        assert_eq!(put(&layout, 0, &[Value::bytea(&b"v"[..])]), [0, b'v']);
    }

    fn rows() -> impl Strategy<Value = (Vec<LayoutColumn>, Vec<Value<'static>>)> {
        let cell = (any_type(), any::<bool>(), any::<bool>()).prop_flat_map(|(ty, nullable, null)| {
            let value = if nullable && null { Just(Value::Null).boxed() } else { any_value(ty) };
            (Just(column(0, ty, nullable)), value)
        });
        prop::collection::vec(cell, 0..8).prop_map(|cells| cells.into_iter().unzip())
    }

    proptest! {
        #[test]
        fn rows_round_trip((columns, values) in rows(), long in 0..100_000_usize) {
            let mut columns = columns;
            let mut values = values;
            columns.push(column(9, Type::BYTEA, false));
            values.push(Value::bytea(vec![7; long]));
            columns.push(column(9, Type::TEXT, true));
            values.push(Value::text("end"));
            let layout = Layout::new(columns);
            let row = put(&layout, 5, &values);
            let mut decoder = Decoder::new(&row);
            let head = decoder.varint("head").unwrap();
            for (index, value) in values.iter().enumerate() {
                let ty = layout.columns[index].ty;
                let read = layout.column(index, head % 2 == 1, decoder.rest()).unwrap();
                let read = read.map_or(Value::Null, |bytes| Value::from_row(ty, bytes).unwrap());
                // Debug, so that NaN equals itself.
                prop_assert_eq!(format!("{read:?}"), format!("{value:?}"));
            }
        }

        #[test]
        fn no_bytes_panic((columns, _) in rows(), wide: bool, bytes: Vec<u8>) {
            let layout = Layout::new(columns);
            for index in 0..layout.columns.len() {
                if let Ok(Some(found)) = layout.column(index, wide, &bytes) {
                    let _ = Value::from_row(layout.columns[index].ty, found).map(|v| v.to_string());
                }
            }
        }
    }
}
