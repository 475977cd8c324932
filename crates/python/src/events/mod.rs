//! Event stores: appends, reads, subscriptions.
//!
//! ```text
//! input    dictionaries and tuples ─▶ events, queries, conditions
//! output   stored events ─▶ tuples
//! read     iterators over events of one snapshot, and over new events
//! ```

pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod read;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use ropewalk::{Database, Position};

use crate::error::{Fault, Result};
use crate::value::body::Body;

/// Appends events; returns the positions of the first and last, and the commit.
///
/// The body has `events`, `conditions`, `tracking`, `repeat_by_id`, `idempotency_key` and `durability`.
pub(crate) fn append(
    py: Python<'_>,
    db: &Database,
    store: &str,
    body: &Bound<'_, PyDict>,
) -> Result<(u64, u64, u64)> {
    let mut body = Body::new(body);
    let (events, mut options) = input::append(&mut body)?;
    options.repeat_by_id = body.flag("repeat_by_id")?;
    options.idempotency_key = body.text("idempotency_key")?;
    options.durability = body.durability()?;
    body.finish()?;
    py.detach(|| {
        let appended = db.events(store)?.append_with(&events, options);
        let appended = appended.map_err(|error| Fault::settled(error.into(), db))?;
        Ok((appended.first.0, appended.last.0, appended.seq.0))
    })
}

/// Answers `last`, `count` or `exists` about the events of a query.
pub(crate) fn ask<'py>(
    py: Python<'py>,
    db: &Database,
    store: &str,
    route: &str,
    body: &Bound<'py, PyDict>,
) -> Result<Bound<'py, PyDict>> {
    let mut body = Body::new(body);
    let query = input::query(&mut body)?;
    let answer = PyDict::new(py);
    match route {
        "last" => {
            body.finish()?;
            let last = py.detach(|| -> Result<_> { Ok(db.events(store)?.read_last(&query)?) })?;
            let event = last.map(|event| output::owned(py, &event)).transpose()?;
            answer.set_item("event", event)?;
        }
        "count" => {
            body.finish()?;
            let count = py.detach(|| -> Result<_> { Ok(db.events(store)?.count(&query)?) })?;
            answer.set_item("count", count)?;
        }
        "exists" => {
            let after = body.number("after")?.map(Position);
            body.finish()?;
            let exists = py.detach(|| -> Result<_> { Ok(db.events(store)?.exists(&query, after)?) })?;
            answer.set_item("exists", exists)?;
        }
        other => return Err(Fault::invalid(format!("unknown question {other:?}"))),
    }
    Ok(answer)
}
