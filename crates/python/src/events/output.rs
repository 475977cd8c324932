//! Stored events as tuples, which `ropewalk._embedded.events` reads.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use ropewalk::events::{EventBatch, SequencedEvent, SequencedEventRef};

/// `(position, seq, microseconds since 1970, type, tags, data, id, metadata, tracking)`
///
/// `data` is bytes; `id`, `metadata` (a dictionary) and `tracking` (source and position) may be `None`.
pub(crate) fn event<'py>(py: Python<'py>, event: &SequencedEventRef<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let tags = PyTuple::new(py, event.tags())?;
    let data = PyBytes::new(py, event.data());
    let id = event.id().map(|id| id.to_string());
    let mut metadata = None;
    for (name, value) in event.metadata() {
        metadata.get_or_insert_with(|| PyDict::new(py)).set_item(name, value)?;
    }
    let (position, seq, kind) = (event.position.0, event.seq.0, event.event_type());
    (position, seq, event.time_micros, kind, tags, data, id, metadata, event.tracking()).into_pyobject(py)
}

pub(crate) fn owned<'py>(py: Python<'py>, owned: &SequencedEvent) -> PyResult<Bound<'py, PyTuple>> {
    owned.with_ref(|stored| event(py, stored))
}

pub(crate) fn events<'py>(py: Python<'py>, batch: &EventBatch) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for one in batch.iter() {
        list.append(event(py, &one)?)?;
    }
    Ok(list)
}
