//! Bodies of requests: the fields that the HTTP API takes, as a dictionary of Python values.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use ropewalk::{Durability, Isolation};

use crate::error::{Fault, Result};

/// A body, whose fields are read one by one. A field that is `None` counts as absent.
pub(crate) struct Body<'a, 'py> {
    fields: &'a Bound<'py, PyDict>,
    /// Names of the fields that were read.
    known: Vec<&'static str>,
}

impl<'a, 'py> Body<'a, 'py> {
    pub(crate) fn new(fields: &'a Bound<'py, PyDict>) -> Self {
        Self { fields, known: Vec::with_capacity(8) }
    }

    /// The value of a field.
    pub(crate) fn get(&mut self, name: &'static str) -> Result<Option<Bound<'py, PyAny>>> {
        self.known.push(name);
        Ok(self.fields.get_item(name)?.filter(|value| !value.is_none()))
    }

    /// The value of a field; `None` in it is a value.
    pub(crate) fn get_any(&mut self, name: &'static str) -> Result<Option<Bound<'py, PyAny>>> {
        self.known.push(name);
        Ok(self.fields.get_item(name)?)
    }

    /// The value of a field that must be there.
    pub(crate) fn need(&mut self, name: &'static str) -> Result<Bound<'py, PyAny>> {
        self.get(name)?.ok_or_else(|| Fault::invalid(format!("{name}: is needed")))
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>> {
        self.get(name)?.map(|value| text(name, &value)).transpose()
    }

    pub(crate) fn need_text(&mut self, name: &'static str) -> Result<String> {
        text(name, &self.need(name)?)
    }

    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<u64>> {
        self.get(name)?.map(|value| number(name, &value)).transpose()
    }

    pub(crate) fn count(&mut self, name: &'static str) -> Result<Option<usize>> {
        let too_large = |_| Fault::invalid(format!("{name}: the number is too large"));
        self.number(name)?.map(|number| usize::try_from(number).map_err(too_large)).transpose()
    }

    pub(crate) fn millis(&mut self, name: &'static str) -> Result<Option<Duration>> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool> {
        let Some(value) = self.get(name)? else { return Ok(false) };
        match value.cast::<PyBool>() {
            Ok(flag) => Ok(flag.is_true()),
            Err(_) => Err(expected(name, "True or False", &value)),
        }
    }

    /// A field that is an object itself.
    pub(crate) fn object(&mut self, name: &'static str) -> Result<Option<Bound<'py, PyDict>>> {
        self.get(name)?.map(|value| object(name, &value)).transpose()
    }

    /// The values of a list; empty without the field.
    pub(crate) fn list(&mut self, name: &'static str) -> Result<Vec<Bound<'py, PyAny>>> {
        match self.get(name)? {
            Some(value) => list(name, &value),
            None => Ok(Vec::new()),
        }
    }

    /// `sync`, `buffered` or `async:MILLISECONDS`.
    pub(crate) fn durability(&mut self) -> Result<Durability> {
        self.text("durability")?.map_or(Ok(Durability::Sync), |text| durability(&text))
    }

    /// Rejects fields that were not read.
    pub(crate) fn finish(self) -> Result<()> {
        for name in self.fields.keys() {
            if !name.extract::<&str>().is_ok_and(|name| self.known.contains(&name)) {
                return Err(Fault::invalid(format!("unknown field {}", name.repr()?)));
            }
        }
        Ok(())
    }
}

pub(crate) fn expected(name: &str, wanted: &str, value: &Bound<'_, PyAny>) -> Fault {
    match value.get_type().name() {
        Ok(found) => Fault::invalid(format!("{name}: {wanted} is needed, not {found}")),
        Err(error) => error.into(),
    }
}

pub(crate) fn text(name: &str, value: &Bound<'_, PyAny>) -> Result<String> {
    match value.cast::<PyString>() {
        Ok(text) => Ok(text.to_str()?.to_owned()),
        Err(_) => Err(expected(name, "a text", value)),
    }
}

pub(crate) fn number(name: &str, value: &Bound<'_, PyAny>) -> Result<u64> {
    value.extract().map_err(|_| expected(name, "a number from 0", value))
}

pub(crate) fn object<'py>(name: &str, value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>> {
    value.cast::<PyDict>().cloned().map_err(|_| expected(name, "a dictionary", value))
}

pub(crate) fn list<'py>(name: &str, value: &Bound<'py, PyAny>) -> Result<Vec<Bound<'py, PyAny>>> {
    if value.is_instance_of::<PyString>() {
        return Err(expected(name, "a list", value));
    }
    let values = value.try_iter().map_err(|_| expected(name, "a list", value))?;
    Ok(values.collect::<PyResult<_>>()?)
}

pub(crate) fn texts(name: &str, value: &Bound<'_, PyAny>) -> Result<Vec<String>> {
    list(name, value)?.iter().map(|one| text(name, one)).collect()
}

pub(crate) fn durability(text: &str) -> Result<Durability> {
    match text {
        "sync" => Ok(Durability::Sync),
        "buffered" => Ok(Durability::Buffered),
        other => match other.strip_prefix("async:").map(str::parse) {
            Some(Ok(millis)) => Ok(Durability::Async { interval: Duration::from_millis(millis) }),
            _ => Err(Fault::invalid(format!(
                "durability {text:?}; allowed are sync, buffered, async:MILLISECONDS"
            ))),
        },
    }
}

pub(crate) fn isolation(text: &str) -> Result<Isolation> {
    match text {
        "serializable" => Ok(Isolation::Serializable),
        "snapshot" => Ok(Isolation::Snapshot),
        _ => Err(Fault::invalid(format!("isolation {text:?}; allowed are serializable and snapshot"))),
    }
}
