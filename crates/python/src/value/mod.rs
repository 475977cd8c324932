//! Values of Python as those of the models, and back.

pub(crate) mod body;
pub(crate) mod bson;
pub(crate) mod json;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A function or class of the package, looked up at its first use.
pub(crate) struct Helper {
    module: &'static str,
    name: &'static str,
    found: PyOnceLock<Py<PyAny>>,
}

impl Helper {
    pub(crate) const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name, found: PyOnceLock::new() }
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let found = self.found.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
            Ok(py.import(self.module)?.getattr(self.name)?.unbind())
        })?;
        Ok(found.bind(py))
    }
}
