//! Iterators over the events of one snapshot, and over new events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use ropewalk::events::{Delivery, EventBatch, EventReader, Subscription};
use ropewalk::{Position, Query};

use crate::error::{Fault, Result};
use crate::events::{input, output};
use crate::handle::{Shared, Slot};
use crate::value::body::Body;

/// Most events of one batch.
const BATCH_MAX: usize = 4096;
/// Longest wait for an event during which a subscription cannot be closed.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Matching events of one snapshot.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct Events {
    reader: Slot<EventReader>,
    head: u64,
}

/// Begins to read the events of a store; the body has `query`, `from`, `after`, `before`, `backwards`, `limit`.
pub(crate) fn read(
    py: Python<'_>,
    shared: &Arc<Shared>,
    store: &str,
    body: &Bound<'_, PyDict>,
) -> Result<Events> {
    let db = shared.db()?;
    let mut body = Body::new(body);
    let (query, options) = input::read(&mut body)?;
    body.finish()?;
    let reader = py.detach(|| -> Result<_> { Ok(db.events(store)?.read(&query, options)?) })?;
    let head = reader.head().map_or(0, |head| head.0);
    Ok(Events { reader: Slot::new(shared, reader)?, head })
}

#[pymethods]
impl Events {
    /// Last position of the store at the snapshot; 0 for an empty one.
    #[getter]
    fn head(&self) -> u64 {
        self.head
    }

    /// Up to `most` further events; an empty list at the end.
    fn next_batch<'py>(&self, py: Python<'py>, most: usize) -> Result<Bound<'py, PyList>> {
        let batch = py.detach(|| {
            self.reader.with(|reader| {
                let mut batch = EventBatch::new();
                reader.visit(most.min(BATCH_MAX), |event| batch.push(event))?;
                Ok(batch)
            })
        })?;
        Ok(output::events(py, &batch)?)
    }

    /// Ends the read, and releases its snapshot.
    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.reader.take().map(drop))
    }
}

/// An endless subscription.
#[pyclass(frozen, name = "Subscription", module = "ropewalk._core")]
pub(crate) struct Following {
    subscription: Slot<Subscription>,
}

/// Subscribes to a store after a position, the last event, or the checkpoint of a consumer. The body has
/// `query`, `after` and `checkpoint`.
pub(crate) fn subscribe(
    py: Python<'_>,
    shared: &Arc<Shared>,
    store: &str,
    body: &Bound<'_, PyDict>,
) -> Result<Following> {
    let db = shared.db()?;
    let mut body = Body::new(body);
    let query: Query = input::query(&mut body)?;
    let (after, consumer) = (body.get("after")?, body.text("checkpoint")?);
    body.finish()?;
    if after.is_some() && consumer.is_some() {
        return Err(Fault::invalid("after excludes checkpoint"));
    }
    let head = || py.detach(|| -> Result<_> { Ok(db.events(store)?.head()?.unwrap_or(Position::ZERO)) });
    let after = after.map(|after| input::start(&after, head)).transpose()?;
    let subscription = py.detach(|| -> Result<_> {
        let after = match consumer {
            Some(consumer) => db.consumer_checkpoints(store)?.get(&consumer)?,
            None => after,
        };
        Ok(db.events(store)?.subscribe(&query, after)?)
    })?;
    Ok(Following { subscription: Slot::new(shared, subscription)? })
}

#[pymethods]
impl Following {
    /// The next event, a state (`"caught-up"` or `"fell-behind"`, and the last position), or `None` when
    /// nothing happens within so many seconds.
    fn next<'py>(&self, py: Python<'py>, timeout: f64) -> Result<Option<Bound<'py, PyTuple>>> {
        let timeout = Duration::try_from_secs_f64(timeout).unwrap_or(WAIT_MAX);
        let end = Instant::now() + timeout.min(Duration::from_secs(3600));
        let delivery = py.detach(|| -> Result<_> {
            loop {
                let wait = end.saturating_duration_since(Instant::now()).min(WAIT_MAX);
                let delivery = self.subscription.with(|subscription| Ok(subscription.next(wait)?))?;
                if delivery.is_some() || Instant::now() >= end {
                    return Ok(delivery);
                }
            }
        })?;
        Ok(match delivery {
            None => None,
            Some(Delivery::Event(event)) => Some(output::owned(py, &event)?),
            Some(Delivery::CaughtUp { head }) => Some(("caught-up", head.0).into_pyobject(py)?),
            Some(Delivery::FellBehind { head }) => Some(("fell-behind", head.0).into_pyobject(py)?),
        })
    }

    /// Ends the subscription.
    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.subscription.take().map(drop))
    }
}
