//! Documents as dictionaries.
//!
//! ```text
//! None, bool, int, float, str, list, tuple, dict   null, bool, int32 or int64, double, string, array, document
//! bytes                                            binary
//! ObjectId, datetime, UUID, Decimal                ObjectId, date in milliseconds, binary 4, decimal128
//! other BSON types                                 their Extended JSON
//! ```

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use ropewalk::documents::lang::extjson::{self, Form};
use ropewalk::documents::lang::{
    Code, DEPTH_MAX, DOCUMENT_BYTES_MAX, Decimal, Doc, DocBuf, LangError, Owned, Value, Writer,
};
use ropewalk::hooks::{from_hex, hex};

use crate::error::{Fault, Result};
use crate::value::Helper;
use crate::value::body::expected;

/// Bytes of a UUID.
const BINARY_UUID: u8 = 4;

/// The kind and the plain form of a value of another type.
static SIMPLIFIED: Helper = Helper::new("ropewalk._embedded.values", "simplified");
/// The value of an object of Extended JSON.
static FROM_EXTENDED: Helper = Helper::new("ropewalk._documents", "from_extended");
static DATETIME: Helper = Helper::new("ropewalk._embedded.values", "date_of");
static OBJECT_ID: Helper = Helper::new("ropewalk._documents", "ObjectId");
static UUID: Helper = Helper::new("ropewalk._embedded.values", "uuid_of");
static DECIMAL: Helper = Helper::new("decimal", "Decimal");
static LOADS: Helper = Helper::new("json", "loads");

/// Names that make an object with one field a value of Extended JSON.
const EXTENDED: [&str; 7] =
    ["$oid", "$date", "$numberDecimal", "$numberLong", "$numberInt", "$numberDouble", "$binary"];

/// A document of a dictionary.
///
/// # Errors
/// `what` is something else; a value without a BSON form; too deep, too large.
pub(crate) fn document(what: &str, value: &Bound<'_, PyAny>) -> Result<DocBuf> {
    let mut writer = Writer::new();
    if let Ok(fields) = value.cast::<PyDict>() {
        put_fields(&mut writer, fields, 1)?;
        return Ok(writer.finish());
    }
    match owned(value)?.value().as_document() {
        Some(document) => Ok(document.to_buf()),
        None => Err(expected(what, "a dictionary", value)),
    }
}

/// A value of a document, such as an `_id`.
///
/// # Errors
/// As [`document`].
pub(crate) fn owned(value: &Bound<'_, PyAny>) -> Result<Owned> {
    if let Ok(text) = value.cast_exact::<PyString>() {
        return Ok(Owned::from(Value::String(text.to_str()?)));
    }
    let mut writer = Writer::new();
    put(&mut writer, "v", value, 1)?;
    Ok(writer.finish().doc().get("v").map_or(Owned::NULL, Owned::from))
}

fn put_fields(writer: &mut Writer, fields: &Bound<'_, PyDict>, depth: usize) -> Result<()> {
    for (name, value) in fields.iter() {
        let Ok(name) = name.cast::<PyString>() else {
            return Err(expected("name of a field", "a text", &name));
        };
        let name = name.to_str()?;
        if name.contains('\0') {
            return Err(Fault::invalid(format!("the name of the field {name:?} has a zero byte")));
        }
        put(writer, name, &value, depth)?;
    }
    Ok(())
}

fn put(writer: &mut Writer, name: &str, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Fault::invalid(format!("a document nested deeper than {DEPTH_MAX} levels")));
    }
    if let Ok(text) = value.cast_exact::<PyString>() {
        writer.put(name, Value::String(text.to_str()?));
    } else if let Ok(number) = value.cast_exact::<PyInt>() {
        writer.put(name, integer(number)?);
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        writer.put(name, Value::Double(number.value()));
    } else if let Ok(fields) = value.cast_exact::<PyDict>() {
        put_object(writer, name, fields, depth)?;
    } else if let Ok(list) = value.cast_exact::<PyList>() {
        put_list(writer, name, list.iter(), depth)?;
    } else if value.is_none() {
        writer.put(name, Value::Null);
    } else if let Ok(truth) = value.cast_exact::<PyBool>() {
        writer.put(name, Value::Bool(truth.is_true()));
    } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        writer.put(name, Value::Binary(0, bytes.as_bytes()));
    } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        put_list(writer, name, tuple.iter(), depth)?;
    } else {
        put_simplified(writer, name, value, depth)?;
    }
    if writer.size() > DOCUMENT_BYTES_MAX {
        let what = format!("a document of more than {DOCUMENT_BYTES_MAX} bytes");
        return Err(LangError::new(Code::BSONObjectTooLarge, what).into());
    }
    Ok(())
}

fn integer(number: &Bound<'_, PyInt>) -> Result<Value<'static>> {
    let Ok(number) = number.extract::<i64>() else {
        return Err(Fault::invalid(format!("{} does not fit 64 bits", number.str()?)));
    };
    Ok(i32::try_from(number).map_or(Value::Int64(number), Value::Int32))
}

/// A document, or the value that an object of Extended JSON represents.
fn put_object(writer: &mut Writer, name: &str, fields: &Bound<'_, PyDict>, depth: usize) -> Result<()> {
    if fields.len() == 1
        && let Some((first, _)) = fields.iter().next()
        && first.extract::<&str>().is_ok_and(|first| EXTENDED.contains(&first))
    {
        let value = FROM_EXTENDED.get(fields.py())?.call1((fields,))?;
        if !value.is_instance_of::<PyDict>() {
            return put(writer, name, &value, depth + 1);
        }
    }
    writer.open_document(name);
    put_fields(writer, fields, depth + 1)?;
    writer.close();
    Ok(())
}

fn put_list<'py>(
    writer: &mut Writer,
    name: &str,
    values: impl Iterator<Item = Bound<'py, PyAny>>,
    depth: usize,
) -> Result<()> {
    writer.open_array(name);
    for value in values {
        put(writer, "", &value, depth + 1)?;
    }
    writer.close();
    Ok(())
}

fn put_simplified(writer: &mut Writer, name: &str, value: &Bound<'_, PyAny>, depth: usize) -> Result<()> {
    let simplified = SIMPLIFIED.get(value.py())?.call1((value,))?;
    let (kind, plain): (String, Bound<'_, PyAny>) = simplified.extract()?;
    match kind.as_str() {
        "oid" => {
            let text: String = plain.extract()?;
            let id = from_hex(&text).and_then(|bytes| <[u8; 12]>::try_from(bytes).ok());
            let invalid =
                || Fault::invalid(format!("{text:?} is no ObjectId: 24 hexadecimal digits are needed"));
            writer.put(name, Value::ObjectId(id.ok_or_else(invalid)?));
        }
        "date" => writer.put(name, Value::DateTime(plain.extract()?)),
        "uuid" => {
            let bytes: Vec<u8> = plain.extract()?;
            writer.put(name, Value::Binary(BINARY_UUID, &bytes));
        }
        "binary" => {
            let bytes: Vec<u8> = plain.extract()?;
            writer.put(name, Value::Binary(0, &bytes));
        }
        "decimal" => {
            let text: String = plain.extract()?;
            let number = Decimal::parse(&text);
            let invalid = || Fault::invalid(format!("{text:?} is no decimal number of a document"));
            writer.put(name, Value::Decimal(number.ok_or_else(invalid)?));
        }
        _ => put(writer, name, &plain, depth + 1)?,
    }
    Ok(())
}

/// A document as a dictionary.
pub(crate) fn to_dict<'py>(py: Python<'py>, document: Doc<'_>) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, value) in document.iter() {
        fields.set_item(name, to_python(py, value)?)?;
    }
    Ok(fields)
}

/// Documents as a list of dictionaries.
pub(crate) fn to_list<'py>(py: Python<'py>, documents: &[DocBuf]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for document in documents {
        list.append(to_dict(py, document.doc())?)?;
    }
    Ok(list)
}

/// A value of a document.
pub(crate) fn to_python<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::String(text) => Ok(PyString::new(py, text).into_any()),
        Value::Int32(number) => number.into_bound_py_any(py),
        Value::Int64(number) => number.into_bound_py_any(py),
        Value::Double(number) => number.into_bound_py_any(py),
        Value::Bool(truth) => truth.into_bound_py_any(py),
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Document(document) => Ok(to_dict(py, document)?.into_any()),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values.values() {
                list.append(to_python(py, value)?)?;
            }
            Ok(list.into_any())
        }
        Value::Binary(0, bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        Value::Binary(BINARY_UUID, bytes) if bytes.len() == 16 => {
            UUID.get(py)?.call1((PyBytes::new(py, bytes),))
        }
        Value::ObjectId(id) => OBJECT_ID.get(py)?.call1((hex(&id),)),
        Value::DateTime(millis) => DATETIME.get(py)?.call1((millis,)),
        Value::Decimal(number) => DECIMAL.get(py)?.call1((number.to_string(),)),
        other => LOADS.get(py)?.call1((extjson::to_text(other, Form::Relaxed),)),
    }
}
