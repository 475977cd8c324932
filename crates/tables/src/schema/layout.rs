//! Rows: the columns that the key does not hold, read in place.
//!
//! ```text
//! varint layout * 2 + wide | NULL bits | fixed columns | ends of varying columns but the last | varying columns
//!                            one bit per nullable column; u16 each, u32 when wide
//! ```
//! A *layout* is the list of columns that a row was written with. A schema contains all its former layouts,
//! so changing the table rewrites no rows: an older row has its own columns, and the default of a newer
//! column is used for those it lacks. NULLs occupy space among the fixed columns, so that each column is
//! found by one addition.

use ropewalk_base::{DecodeError, Decoder, put_varint};

use crate::value::Value;
use crate::value::types::Type;

/// A column stored in rows of a layout.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayoutColumn {
    pub(crate) id: u16,
    pub(crate) ty: Type,
    pub(crate) nullable: bool,
}

/// Position of a column in a layout.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    /// Offset after the NULL bits, and width.
    Fixed(usize, usize),
    /// Ordinal among the varying columns.
    Varying(usize),
}

/// The columns of a row, in order, and their positions.
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

    /// Bytes of a row without the contents of its varying columns.
    pub(crate) fn bytes_min(&self) -> usize {
        1 + self.null_bytes + self.fixed_bytes + 2 * self.varying.saturating_sub(1)
    }

    /// Appends a row of layout number `number`; `values` are those of the layout's columns. Does not
    /// allocate.
    pub(crate) fn put<'v>(
        &self,
        number: usize,
        values: impl Iterator<Item = &'v Value<'v>> + Clone,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        if !self.put_ends(number, values.clone(), false, out) {
            out.truncate(start);
            self.put_ends(number, values.clone(), true, out);
        }
        if cfg!(debug_assertions) {
            self.check_row(out.get(start..).expect("the row was just appended"), values);
        }
    }

    /// Checks that a row reads as it was written.
    fn check_row<'v>(&self, row: &[u8], values: impl Iterator<Item = &'v Value<'v>>) {
        let mut decoder = Decoder::new(row);
        let head = decoder.varint("layout of a row").expect("a row begins with its layout");
        let (mut stored, mut count) = (Vec::new(), 0);
        for (index, value) in values.enumerate() {
            stored.clear();
            value.put_stored(&mut stored);
            let wanted = (!value.is_null()).then_some(stored.as_slice());
            let found = self.column(index, head % 2 == 1, decoder.rest());
            assert_eq!(found, Ok(wanted), "column {index} of a row does not read as it was written");
            count += 1;
        }
        assert_eq!(count, self.columns.len(), "a row has a value for each column of its layout");
    }

    /// As [`Layout::put`], with wide ends or not; false when narrow ones cannot represent the row's length.
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
            debug_assert!(bit.is_some() || !value.is_null(), "NULL in a column that is NOT NULL");
            if let (Some(bit), true) = (bit, value.is_null()) {
                let byte = out.get_mut(nulls_at + bit / 8).expect("every nullable column has a bit");
                *byte |= 1 << (bit % 8);
            }
            if let Place::Fixed(offset, width) = place {
                value.put_stored(out);
                debug_assert!(
                    value.is_null() || out.len() == fixed_at + offset + width,
                    "a value has another width than its column"
                );
                out.resize(fixed_at + offset + width, 0);
            }
        }
        let (ends_at, size) = (out.len(), if wide { 4 } else { 2 });
        // A layout may have no varying columns.
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
            // The last end is the end of the row and is not stored.
            if at < first {
                // Longer rows than an end can say are refused for their length.
                let bytes = (end as u32).to_le_bytes();
                let slot = out.get_mut(at..at + size).expect("the row has room for the ends");
                slot.copy_from_slice(bytes.get(..size).expect("an end has two or four bytes"));
            }
        }
        true
    }

    /// The bytes of column `index`, `None` for NULL. `body` is the row after its layout number.
    #[inline]
    pub(crate) fn column<'a>(
        &self,
        index: usize,
        wide: bool,
        body: &'a [u8],
    ) -> Result<Option<&'a [u8]>, DecodeError> {
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

/// Where a schema reads a column from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Source {
    /// The key: after this many fixed-width key columns and bytes, or by skipping columns.
    Key(usize),
    /// Column of the layout.
    Layout(usize),
    /// The rows of the layout lack it.
    Missing,
}

#[cfg(test)]
mod tests {
    use ropewalk_base::Decoder;

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
        // One NOT NULL column costs one byte.
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
