//! The native module `ropewalk._core`: a database in the process of a Python program.
//!
//! ```text
//! ropewalk (Python)   clients/python/ropewalk: the classes of the HTTP client, and `_embedded` over this module
//!    │ bodies of the HTTP API as dictionaries of Python values
//! ropewalk._core      value ─▶ events, documents, metrics, sql, groups, transaction ─▶ ropewalk, ropewalk-sql
//! ```
//! Python code is public, this module is not: its functions take the bodies that the HTTP API takes, so that one
//! Python code serves both. Results are the answers of that API, with Python's values in place of JSON's.
//!
//! Invariants
//! 1. The interpreter is detached (other threads run) in every call of the engine.
//! 2. Every argument of a wrong type, name or size is an exception with the name of the field.
//! 3. See `handle` for closing and forks.

mod database;
mod documents;
mod error;
mod events;
mod groups;
mod handle;
mod metrics;
mod sql;
mod tables;
mod transaction;
mod value;

use pyo3::prelude::*;

/// The native part of the package `ropewalk`; use `ropewalk.open`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<database::Core>()?;
    module.add_class::<documents::Cursor>()?;
    module.add_class::<documents::Prepared>()?;
    module.add_class::<events::read::Events>()?;
    module.add_class::<events::read::Following>()?;
    module.add_class::<sql::Rows>()?;
    module.add_class::<tables::Table>()?;
    module.add_class::<transaction::Open>()
}
