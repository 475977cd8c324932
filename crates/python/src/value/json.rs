//! JSON text of Python values, for the payloads of events.

use std::io::Write as _;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::{Fault, Result};
use crate::value::Helper;

/// Deepest nesting of lists and dictionaries.
const DEPTH_MAX: usize = 200;

/// Values of JSON for a dataclass, date, `Decimal` and others.
static ENCODE: Helper = Helper::new("ropewalk._typed", "encode");

/// Appends a value as compact JSON.
///
/// # Errors
/// `ValueError` for NaN and infinities; `TypeError` for a type without a JSON form; too deep.
pub(crate) fn put(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<()> {
    put_within(value, out, 0)
}

fn put_within(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Fault::invalid(format!("data: nested deeper than {DEPTH_MAX} levels")));
    }
    if put_plain(value, out, depth)? {
        return Ok(());
    }
    let encoded = ENCODE.get(value.py())?.call1((value,))?;
    if encoded.as_ptr() != value.as_ptr() {
        return put_within(&encoded, out, depth + 1);
    }
    // A subclass of a plain type.
    if let Ok(text) = value.cast::<PyString>() {
        put_text(text.to_str()?, out);
    } else if let Ok(number) = value.cast::<PyInt>() {
        put_int(number, out)?;
    } else if let Ok(number) = value.cast::<PyFloat>() {
        put_float(number.value(), out)?;
    } else {
        let what = format!("{} has no JSON form", value.get_type().name()?);
        return Err(PyTypeError::new_err(what).into());
    }
    Ok(())
}

/// Appends a value of one of JSON's own types; false for others.
fn put_plain(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> Result<bool> {
    if let Ok(text) = value.cast_exact::<PyString>() {
        put_text(text.to_str()?, out);
    } else if let Ok(number) = value.cast_exact::<PyInt>() {
        put_int(number, out)?;
    } else if let Ok(fields) = value.cast_exact::<PyDict>() {
        out.push(b'{');
        for (place, (name, value)) in fields.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            put_name(&name, out)?;
            out.push(b':');
            put_within(&value, out, depth + 1)?;
        }
        out.push(b'}');
    } else if let Ok(list) = value.cast_exact::<PyList>() {
        put_list(list.iter(), out, depth)?;
    } else if value.is_none() {
        out.extend_from_slice(b"null");
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        put_float(number.value(), out)?;
    } else if let Ok(truth) = value.cast_exact::<PyBool>() {
        out.extend_from_slice(if truth.is_true() { b"true" } else { b"false" });
    } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        put_list(tuple.iter(), out, depth)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn put_list<'py>(
    values: impl Iterator<Item = Bound<'py, PyAny>>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<()> {
    out.push(b'[');
    for (place, value) in values.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        put_within(&value, out, depth + 1)?;
    }
    out.push(b']');
    Ok(())
}

fn put_name(name: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<()> {
    if let Ok(text) = name.cast::<PyString>() {
        put_text(text.to_str()?, out);
    } else {
        let encoded = ENCODE.get(name.py())?.call1((name,))?.str()?;
        put_text(encoded.to_str()?, out);
    }
    Ok(())
}

fn put_int(number: &Bound<'_, PyInt>, out: &mut Vec<u8>) -> Result<()> {
    match number.extract::<i64>() {
        Ok(number) => {
            let _ = write!(out, "{number}");
        }
        Err(_) => out.extend_from_slice(number.str()?.to_str()?.as_bytes()),
    }
    Ok(())
}

fn put_float(number: f64, out: &mut Vec<u8>) -> Result<()> {
    if !number.is_finite() {
        return Err(PyValueError::new_err("NaN and infinities have no JSON form").into());
    }
    let _ = write!(out, "{number:?}");
    Ok(())
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while let Some(place) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
        let (plain, special) = rest.split_at(place);
        out.extend_from_slice(plain.as_bytes());
        let mut chars = special.chars();
        match chars.next().unwrap_or_default() {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            control => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'"');
}
