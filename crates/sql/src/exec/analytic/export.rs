//! Results as Arrow record batches for other programs.
//!
//! ```text
//! bool, int, float, text, bytea, date, time, timestamp, numeric(p,s)   the query engine's columns, without a copy
//! json, jsonb                text
//! timestamptz                timestamp in microseconds with the zone UTC
//! uuid                       fixed size binary of 16 bytes
//! numeric                    decimal128 with the greatest scale of the result; text, if a value does not fit
//! interval, enum             text, in PostgreSQL's format
//! arrays                     lists of the element's form
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BinaryViewArray, Decimal128Builder, ListArray, RecordBatch, RecordBatchOptions,
    StringViewArray, StringViewBuilder, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use ropewalk::tables::{NUMERIC_DIGITS_MAX, Scalar, Type, Value};

use crate::error::{Result, SqlError, state};
use crate::exec::analytic::kernel::convert::{Builder, Reader, data_type};
use crate::expr::bug;
use crate::types::outcome::{Outcome, ResultColumn};
use crate::types::text_format::to_text;

/// Most rows of a batch that is built from single rows.
const BATCH_ROWS: usize = 64 << 10;

/// The rows of a result as record batches with one schema.
#[derive(Debug, Clone)]
pub struct ArrowRows {
    /// Names and Arrow types of the columns. Names may repeat.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

/// Returns the rows of a result as Arrow record batches.
///
/// Columns of [`Outcome::batches`] whose form is Arrow's are shared, not copied.
///
/// # Errors
/// NaN in a column of type numeric with limits.
pub fn arrow_rows(outcome: &Outcome) -> Result<ArrowRows> {
    let columns = outcome.columns.as_deref().unwrap_or_default();
    let mut sizes: Vec<usize> = outcome.batches.iter().map(RecordBatch::num_rows).collect();
    sizes.extend(outcome.rows.chunks(BATCH_ROWS).map(<[_]>::len));
    let (mut fields, mut exported) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
    for (place, ResultColumn { name, ty }) in columns.iter().enumerate() {
        let (form, arrays) = column(engine_arrays(outcome, place, *ty)?, *ty)?;
        fields.push(Field::new(name, form, true));
        exported.push(arrays.into_iter());
    }
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let batch = |rows: usize| {
        let arrays: Vec<ArrayRef> = exported.iter_mut().filter_map(Iterator::next).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(broken)
    };
    let batches = sizes.into_iter().map(batch).collect::<Result<Vec<_>>>()?;
    Ok(ArrowRows { schema, batches })
}

/// Returns the rows of a result one by one, also those that are in columns.
///
/// # Errors
/// Values that no statement returns.
pub fn single_rows(outcome: &Outcome) -> Result<Vec<Vec<Value<'static>>>> {
    let columns = outcome.columns.as_deref().unwrap_or_default();
    let mut rows = Vec::with_capacity(outcome.batches.iter().map(RecordBatch::num_rows).sum());
    for batch in &outcome.batches {
        let readers = batch.columns().iter().zip(columns);
        let readers = readers.map(|(array, column)| Reader::new(array.as_ref(), column.ty));
        let readers = readers.collect::<Result<Vec<_>>>()?;
        for row in 0..batch.num_rows() {
            let values = readers.iter().map(|reader| Ok(reader.get(row)?.into_owned()));
            rows.push(values.collect::<Result<Vec<_>>>()?);
        }
    }
    rows.extend(outcome.rows.iter().cloned());
    Ok(rows)
}

/// Approximate memory of a batch, as if its columns shared no memory with others.
pub(super) fn batch_bytes(batch: &RecordBatch) -> usize {
    let bytes = |array: &ArrayRef| {
        let data = array.to_data();
        let fixed = data.get_slice_memory_size().unwrap_or_else(|_| data.get_array_memory_size());
        let any = array.as_any();
        let texts = any.downcast_ref::<StringViewArray>().map(|texts| total(texts.lengths()));
        let binary = any.downcast_ref::<BinaryViewArray>().map(|binary| total(binary.lengths()));
        fixed.saturating_add(texts.or(binary).unwrap_or_default())
    };
    batch.columns().iter().map(bytes).sum()
}

fn total(lengths: impl Iterator<Item = u32>) -> usize {
    lengths.map(|length| length as usize).sum()
}

fn broken(error: ArrowError) -> SqlError {
    bug(&error.to_string())
}

/// The arrays of a column in the engine's form of its type, one for each batch.
fn engine_arrays(outcome: &Outcome, place: usize, ty: Type) -> Result<Vec<ArrayRef>> {
    let form = data_type(ty);
    let mut arrays = Vec::new();
    for batch in &outcome.batches {
        let array = batch.columns().get(place).ok_or_else(|| bug("a batch with fewer columns"))?;
        // Untyped NULLs, for example, have another form.
        let is_same = *array.data_type() == form;
        arrays.push(if is_same { array.clone() } else { built(&form, &values(array, ty)?)? });
    }
    for rows in outcome.rows.chunks(BATCH_ROWS) {
        let mut builder = Builder::new(&form, rows.len())?;
        for row in rows {
            builder.push(row.get(place).unwrap_or(&Value::Null))?;
        }
        arrays.push(builder.finish());
    }
    Ok(arrays)
}

fn built(form: &DataType, values: &[Value<'_>]) -> Result<ArrayRef> {
    let mut builder = Builder::new(form, values.len())?;
    values.iter().try_for_each(|value| builder.push(value))?;
    Ok(builder.finish())
}

fn values(array: &ArrayRef, ty: Type) -> Result<Vec<Value<'_>>> {
    let reader = Reader::new(array.as_ref(), ty)?;
    (0..reader.rows()).map(|row| reader.get(row)).collect()
}

/// The exported form of a column, and its arrays.
fn column(arrays: Vec<ArrayRef>, ty: Type) -> Result<(DataType, Vec<ArrayRef>)> {
    match ty {
        Type::Scalar(Scalar::Timestamptz) => {
            let form = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
            let zoned = arrays.iter().map(with_zone).collect::<Result<Vec<_>>>()?;
            Ok((form, zoned))
        }
        Type::Scalar(Scalar::Numeric(None)) => numerics(&arrays),
        Type::Array(element) => lists(&arrays, element),
        Type::Scalar(_) if data_type(ty) == DataType::Binary => texts(&arrays, ty),
        Type::Scalar(_) => Ok((data_type(ty), arrays)),
    }
}

fn with_zone(array: &ArrayRef) -> Result<ArrayRef> {
    let times = array.as_any().downcast_ref::<TimestampMicrosecondArray>();
    let times = times.ok_or_else(|| bug("a timestamp in another form"))?;
    Ok(Arc::new(times.clone().with_timezone("UTC")))
}

fn texts(arrays: &[ArrayRef], ty: Type) -> Result<(DataType, Vec<ArrayRef>)> {
    let text = |array: &ArrayRef| -> Result<ArrayRef> {
        let mut builder = StringViewBuilder::with_capacity(array.len());
        values(array, ty)?.iter().for_each(|value| builder.append_option(to_text(value)));
        Ok(Arc::new(builder.finish()))
    };
    Ok((DataType::Utf8View, arrays.iter().map(text).collect::<Result<Vec<_>>>()?))
}

fn numerics(arrays: &[ArrayRef]) -> Result<(DataType, Vec<ArrayRef>)> {
    let columns = arrays.iter().map(|array| values(array, Type::NUMERIC)).collect::<Result<Vec<_>>>()?;
    let scales = columns.iter().flatten().map(|value| match value {
        Value::Numeric(number) => number.scale(),
        _ => 0,
    });
    let scale = scales.max().unwrap_or_default();
    let form = DataType::Decimal128(NUMERIC_DIGITS_MAX, scale.cast_signed());
    let mut decimals: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in &columns {
        let mut builder = Decimal128Builder::with_capacity(column.len()).with_data_type(form.clone());
        for value in column {
            match value {
                Value::Numeric(number) => match number.rescale(scale).filter(|_| !number.is_nan()) {
                    Some(number) => builder.append_value(number.mantissa()),
                    None => return texts(arrays, Type::NUMERIC),
                },
                _ => builder.append_null(),
            }
        }
        decimals.push(Arc::new(builder.finish()));
    }
    Ok((form, decimals))
}

fn lists(arrays: &[ArrayRef], element: Scalar) -> Result<(DataType, Vec<ArrayRef>)> {
    let inner = Type::Scalar(element);
    let (mut elements, mut shapes) = (Vec::with_capacity(arrays.len()), Vec::with_capacity(arrays.len()));
    for array in arrays {
        let lists = values(array, Type::Array(element))?;
        let mut builder = Builder::new(&data_type(inner), lists.len())?;
        let mut lengths = Vec::with_capacity(lists.len());
        for list in &lists {
            let mut length = 0;
            if let Value::Array(list) = list {
                for item in list.iter() {
                    let item =
                        item.map_err(|error| SqlError::new(state::DATA_CORRUPTED, error.to_string()))?;
                    builder.push(&item)?;
                    length += 1;
                }
            }
            lengths.push(length);
        }
        let nulls: NullBuffer = lists.iter().map(|list| !list.is_null()).collect();
        elements.push(builder.finish());
        shapes.push((OffsetBuffer::<i32>::from_lengths(lengths), nulls));
    }
    let (form, elements) = column(elements, inner)?;
    let field = Arc::new(Field::new("item", form, true));
    let list = |((offsets, nulls), elements)| -> Result<ArrayRef> {
        let list = ListArray::try_new(field.clone(), offsets, elements, Some(nulls)).map_err(broken)?;
        Ok(Arc::new(list))
    };
    let lists = shapes.into_iter().zip(elements).map(list).collect::<Result<Vec<_>>>()?;
    Ok((DataType::List(field), lists))
}
