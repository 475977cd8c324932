//! Values and columns: the Arrow representation of each type, in both directions.
//!
//! ```text
//! bool, int, float, text, bytea, date, time, timestamp, uuid   Arrow's own; json is text
//! numeric(p,s)   Decimal128(p,s)          every row has the scale of the column
//! numeric        Binary, as in a row      every value has its individual scale
//! arrays         Binary, as in a row
//! ```
//! Values in row encoding may be equal although their bytes differ: comparisons use
//! [`crate::exec::analytic::kernel::scalar::order_key`].

use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use ropewalk::tables::{Numeric, Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::expr::bug;

/// The Arrow type of a column's values.
pub(crate) fn data_type(ty: Type) -> DataType {
    let Type::Scalar(scalar) = ty else { return DataType::Binary };
    match scalar {
        Scalar::Bool => DataType::Boolean,
        Scalar::Int2 => DataType::Int16,
        Scalar::Int4 => DataType::Int32,
        Scalar::Int8 => DataType::Int64,
        Scalar::Float4 => DataType::Float32,
        Scalar::Float8 => DataType::Float64,
        Scalar::Numeric(Some(limits)) => DataType::Decimal128(limits.precision, limits.scale as i8),
        Scalar::Text | Scalar::Json | Scalar::Jsonb => DataType::Utf8View,
        Scalar::Date => DataType::Date32,
        Scalar::Time => DataType::Time64(TimeUnit::Microsecond),
        Scalar::Timestamp | Scalar::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, None),
        Scalar::Uuid => DataType::FixedSizeBinary(16),
        Scalar::Bytea => DataType::BinaryView,
        // Numerics without limits, and types without an Arrow counterpart.
        _ => DataType::Binary,
    }
}

/// True when Arrow compares values of this form as SQL does.
pub(crate) fn compares(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Binary | DataType::Float32 | DataType::Float64)
}

/// Fills one column.
pub(crate) enum Builder {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Decimal(Decimal128Builder, u8),
    Text(StringViewBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Bytea(BinaryViewBuilder),
    Row(BinaryBuilder, Vec<u8>),
}

impl Builder {
    pub(crate) fn new(data_type: &DataType, rows: usize) -> Result<Self> {
        Ok(match data_type {
            DataType::Boolean => Self::Bool(BooleanBuilder::with_capacity(rows)),
            DataType::Int16 => Self::Int2(Int16Builder::with_capacity(rows)),
            DataType::Int32 => Self::Int4(Int32Builder::with_capacity(rows)),
            DataType::Int64 => Self::Int8(Int64Builder::with_capacity(rows)),
            DataType::Float32 => Self::Float4(Float32Builder::with_capacity(rows)),
            DataType::Float64 => Self::Float8(Float64Builder::with_capacity(rows)),
            DataType::Decimal128(_, scale) => Self::Decimal(
                Decimal128Builder::with_capacity(rows).with_data_type(data_type.clone()),
                u8::try_from(*scale).unwrap_or_default(),
            ),
            DataType::Utf8View => Self::Text(StringViewBuilder::with_capacity(rows)),
            DataType::Date32 => Self::Date(Date32Builder::with_capacity(rows)),
            DataType::Time64(_) => Self::Time(Time64MicrosecondBuilder::with_capacity(rows)),
            DataType::Timestamp(_, _) => Self::Timestamp(TimestampMicrosecondBuilder::with_capacity(rows)),
            DataType::FixedSizeBinary(_) => Self::Uuid(FixedSizeBinaryBuilder::with_capacity(rows, 16)),
            DataType::BinaryView => Self::Bytea(BinaryViewBuilder::with_capacity(rows)),
            DataType::Binary => Self::Row(BinaryBuilder::with_capacity(rows, rows * 8), Vec::new()),
            other => return Err(bug(&format!("a column of {other}"))),
        })
    }

    /// Appends a value of the column's type, or NULL.
    #[inline]
    pub(crate) fn push(&mut self, value: &Value<'_>) -> Result<()> {
        match (self, value) {
            (builder, Value::Null) => builder.push_null(),
            (Self::Bool(b), Value::Bool(v)) => b.append_value(*v),
            (Self::Int2(b), Value::Int2(v)) => b.append_value(*v),
            (Self::Int4(b), Value::Int4(v)) => b.append_value(*v),
            (Self::Int8(b), Value::Int8(v)) => b.append_value(*v),
            (Self::Float4(b), Value::Float4(v)) => b.append_value(*v),
            (Self::Float8(b), Value::Float8(v)) => b.append_value(*v),
            (Self::Decimal(b, scale), Value::Numeric(v)) => {
                if v.is_nan() {
                    return Err(SqlError::unsupported(
                        "NaN in a column of type numeric with limits",
                        "use a column of type numeric without limits for NaN",
                    ));
                }
                let same = if v.scale() == *scale { Some(*v) } else { v.rescale(*scale) };
                b.append_value(
                    same.ok_or_else(|| crate::expr::arith::out_of_range(Type::NUMERIC))?.mantissa(),
                );
            }
            (Self::Text(b), Value::Text(v) | Value::Json(v) | Value::Jsonb(v)) => b.append_value(v),
            (Self::Date(b), Value::Date(v)) => b.append_value(*v),
            (Self::Time(b), Value::Time(v)) => b.append_value(*v),
            (Self::Timestamp(b), Value::Timestamp(v) | Value::Timestamptz(v)) => b.append_value(*v),
            (Self::Uuid(b), Value::Uuid(v)) => b.append_value(v).map_err(|e| bug(&e.to_string()))?,
            (Self::Bytea(b), Value::Bytea(v)) => b.append_value(v),
            (Self::Row(b, bytes), value) => {
                bytes.clear();
                value.put_row(bytes);
                b.append_value(bytes);
            }
            (_, value) => {
                let found = value.value_type().map_or_else(String::new, crate::types::names::type_name);
                return Err(bug(&format!("a value of type {found} in a column of another")));
            }
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Self::Bool(b) => b.append_null(),
            Self::Int2(b) => b.append_null(),
            Self::Int4(b) => b.append_null(),
            Self::Int8(b) => b.append_null(),
            Self::Float4(b) => b.append_null(),
            Self::Float8(b) => b.append_null(),
            Self::Decimal(b, _) => b.append_null(),
            Self::Text(b) => b.append_null(),
            Self::Date(b) => b.append_null(),
            Self::Time(b) => b.append_null(),
            Self::Timestamp(b) => b.append_null(),
            Self::Uuid(b) => b.append_null(),
            Self::Bytea(b) => b.append_null(),
            Self::Row(b, _) => b.append_null(),
        }
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(b) => Arc::new(b.finish()),
            Self::Int2(b) => Arc::new(b.finish()),
            Self::Int4(b) => Arc::new(b.finish()),
            Self::Int8(b) => Arc::new(b.finish()),
            Self::Float4(b) => Arc::new(b.finish()),
            Self::Float8(b) => Arc::new(b.finish()),
            Self::Decimal(b, _) => Arc::new(b.finish()),
            Self::Text(b) => Arc::new(b.finish()),
            Self::Date(b) => Arc::new(b.finish()),
            Self::Time(b) => Arc::new(b.finish()),
            Self::Timestamp(b) => Arc::new(b.finish()),
            Self::Uuid(b) => Arc::new(b.finish()),
            Self::Bytea(b) => Arc::new(b.finish()),
            Self::Row(b, _) => Arc::new(b.finish()),
        }
    }
}

/// Reads one column.
pub(crate) struct Reader<'a> {
    array: &'a dyn Array,
    cells: Cells<'a>,
    ty: Type,
}

enum Cells<'a> {
    Bool(&'a BooleanArray),
    Int2(&'a Int16Array),
    Int4(&'a Int32Array),
    Int8(&'a Int64Array),
    Float4(&'a Float32Array),
    Float8(&'a Float64Array),
    Decimal(&'a Decimal128Array, u8),
    Text(&'a StringViewArray),
    Date(&'a Date32Array),
    Time(&'a Time64MicrosecondArray),
    Timestamp(&'a TimestampMicrosecondArray),
    Uuid(&'a FixedSizeBinaryArray),
    Bytea(&'a BinaryViewArray),
    Row(&'a BinaryArray),
    Null,
}

impl<'a> Reader<'a> {
    /// A column whose values are of type `ty`.
    pub(crate) fn new(array: &'a dyn Array, ty: Type) -> Result<Self> {
        let any = array.as_any();
        let cells = match array.data_type() {
            DataType::Boolean => any.downcast_ref().map(Cells::Bool),
            DataType::Int16 => any.downcast_ref().map(Cells::Int2),
            DataType::Int32 => any.downcast_ref().map(Cells::Int4),
            DataType::Int64 => any.downcast_ref().map(Cells::Int8),
            DataType::Float32 => any.downcast_ref().map(Cells::Float4),
            DataType::Float64 => any.downcast_ref().map(Cells::Float8),
            DataType::Decimal128(_, scale) => {
                let scale = u8::try_from(*scale).unwrap_or_default();
                any.downcast_ref().map(|array| Cells::Decimal(array, scale))
            }
            DataType::Utf8View => any.downcast_ref().map(Cells::Text),
            DataType::Date32 => any.downcast_ref().map(Cells::Date),
            DataType::Time64(_) => any.downcast_ref().map(Cells::Time),
            DataType::Timestamp(_, _) => any.downcast_ref().map(Cells::Timestamp),
            DataType::FixedSizeBinary(_) => any.downcast_ref().map(Cells::Uuid),
            DataType::BinaryView => any.downcast_ref().map(Cells::Bytea),
            DataType::Binary => any.downcast_ref().map(Cells::Row),
            DataType::Null => Some(Cells::Null),
            _ => None,
        };
        let cells = cells.ok_or_else(|| bug(&format!("a column of {}", array.data_type())))?;
        Ok(Self { array, cells, ty })
    }

    pub(crate) fn rows(&self) -> usize {
        self.array.len()
    }

    /// The value of one row.
    pub(crate) fn get(&self, row: usize) -> Result<Value<'a>> {
        if self.array.is_null(row) {
            return Ok(Value::Null);
        }
        let json = self.ty == Type::JSON;
        Ok(match &self.cells {
            Cells::Bool(a) => Value::Bool(a.value(row)),
            Cells::Int2(a) => Value::Int2(a.value(row)),
            Cells::Int4(a) => Value::Int4(a.value(row)),
            Cells::Int8(a) => Value::Int8(a.value(row)),
            Cells::Float4(a) => Value::Float4(a.value(row)),
            Cells::Float8(a) => Value::Float8(a.value(row)),
            Cells::Decimal(a, scale) => Value::Numeric(
                Numeric::new(a.value(row), *scale)
                    .ok_or_else(|| crate::expr::arith::out_of_range(Type::NUMERIC))?,
            ),
            Cells::Text(a) if self.ty == Type::JSONB => Value::Jsonb(a.value(row).into()),
            Cells::Text(a) if json => Value::json(a.value(row)),
            Cells::Text(a) => Value::text(a.value(row)),
            Cells::Date(a) => Value::Date(a.value(row)),
            Cells::Time(a) => Value::Time(a.value(row)),
            Cells::Timestamp(a) if self.ty == Type::TIMESTAMPTZ => Value::Timestamptz(a.value(row)),
            Cells::Timestamp(a) => Value::Timestamp(a.value(row)),
            Cells::Uuid(a) => Value::Uuid(a.value(row).try_into().map_err(|_| bug("a uuid"))?),
            Cells::Bytea(a) => Value::bytea(a.value(row)),
            Cells::Row(a) => Value::from_row(self.ty, a.value(row))
                .ok_or_else(|| SqlError::new(state::DATA_CORRUPTED, "a value that does not decode"))?,
            Cells::Null => Value::Null,
        })
    }
}

/// A value as a constant of a form.
pub(crate) fn literal(value: &Value<'_>, data_type: &DataType) -> Result<ScalarValue> {
    let mut builder = Builder::new(data_type, 1)?;
    builder.push(value)?;
    let array = builder.finish();
    ScalarValue::try_from_array(&array, 0).map_err(|error| bug(&error.to_string()))
}

/// The value of a column's constant.
pub(crate) fn scalar_value(scalar: &ScalarValue, ty: Type) -> Result<Value<'static>> {
    let array = scalar.to_array().map_err(|error| bug(&error.to_string()))?;
    Ok(Reader::new(array.as_ref(), ty)?.get(0)?.into_owned())
}
