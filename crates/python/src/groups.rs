//! Consumer groups.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ropewalk::groups::{ConsumerGroup, ConsumerGroups, GroupSettings, GroupStatus, Parked, Settled};
use ropewalk::{Database, Position};

use crate::error::{Fault, Result};
use crate::events::{input, output};
use crate::value::body::Body;

/// Default number of events of one take, and of parked events in one answer.
const BATCH: usize = 100;
/// Most events of one take, and most parked events of one answer.
const BATCH_MAX: usize = 1_000;
/// Longest wait of a take for its first event.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Carries out a request about a group, with the body and the answer of the HTTP API. Times are microseconds
/// since 1970, events are tuples.
///
/// Actions: `put`, `delete`, `get`, `take`, `acknowledge`, `retry`, `park`, `extend`, `parked`,
/// `parked/replay`, `parked/discard`.
pub(crate) fn request<'py>(
    py: Python<'py>,
    db: &Database,
    (store, name): (&str, &str),
    action: &str,
    body: &Bound<'py, PyDict>,
) -> Result<Bound<'py, PyDict>> {
    let groups = db.consumer_groups(store)?;
    let mut body = Body::new(body);
    if action == "put" {
        return create(py, &groups, name, body);
    }
    if action == "delete" {
        body.finish()?;
        py.detach(|| -> Result<_> {
            groups.group(name)?;
            Ok(groups.delete(name)?)
        })?;
        return Ok(PyDict::new(py));
    }
    let group = py.detach(|| groups.group(name))?;
    match action {
        "get" => {
            body.finish()?;
            state(py, &group)
        }
        "take" => take(py, &group, body),
        "parked" => parked(py, &group, body),
        "extend" => {
            let (lease, time) = (lease(&mut body)?, body.millis("lease_ms")?);
            body.finish()?;
            let (done, until) = py.detach(|| group.extend(lease, time))?;
            let answer = PyDict::new(py);
            answer.set_item("done", done.done)?;
            answer.set_item("until", until)?;
            Ok(answer)
        }
        _ => settle(py, &group, action, body),
    }
}

fn create<'py>(
    py: Python<'py>,
    groups: &ConsumerGroups,
    name: &str,
    mut body: Body<'_, 'py>,
) -> Result<Bound<'py, PyDict>> {
    let defaults = GroupSettings::new(input::query(&mut body)?);
    let after = body.number("after")?.map(Position);
    let settings = GroupSettings {
        lease: body.millis("lease_ms")?.unwrap_or(defaults.lease),
        pause: body.millis("pause_ms")?.unwrap_or(defaults.pause),
        tries_max: small(&mut body, "tries")?.unwrap_or(defaults.tries_max),
        pending_max: small(&mut body, "pending")?.unwrap_or(defaults.pending_max),
        in_order: body.flag("in_order")?,
        ..defaults
    };
    body.finish()?;
    let group = py.detach(|| -> Result<_> {
        groups.create(name, settings, after)?;
        Ok(groups.group(name)?)
    })?;
    state(py, &group)
}

fn small(body: &mut Body<'_, '_>, name: &'static str) -> Result<Option<u32>> {
    let too_large = |_| Fault::invalid(format!("{name}: the number is too large"));
    body.number(name)?.map(|number| u32::try_from(number).map_err(too_large)).transpose()
}

fn lease(body: &mut Body<'_, '_>) -> Result<u64> {
    body.number("lease")?.ok_or_else(|| Fault::invalid("lease: is needed"))
}

fn state<'py>(py: Python<'py>, group: &ConsumerGroup) -> Result<Bound<'py, PyDict>> {
    let status = py.detach(|| group.status())?;
    let GroupStatus { settings, cursor, head, waiting, pending, leased, parked } = status;
    let state = PyDict::new(py);
    state.set_item("name", group.name())?;
    let items = PyList::empty(py);
    for item in &settings.query.items {
        let fields = PyDict::new(py);
        let words = [
            ("types", &item.types),
            ("tags", &item.tags),
            ("type_prefixes", &item.type_prefixes),
            ("tag_prefixes", &item.tag_prefixes),
        ];
        for (name, words) in words.into_iter().filter(|(_, words)| !words.is_empty()) {
            fields.set_item(name, words)?;
        }
        items.append(fields)?;
    }
    let query = PyDict::new(py);
    query.set_item("items", items)?;
    state.set_item("query", query)?;
    state.set_item("lease_ms", settings.lease.as_millis())?;
    state.set_item("pause_ms", settings.pause.as_millis())?;
    state.set_item("tries", settings.tries_max)?;
    state.set_item("in_order", settings.in_order)?;
    state.set_item("pending_max", settings.pending_max)?;
    state.set_item("cursor", cursor.0)?;
    state.set_item("head", head.0)?;
    for (name, count) in [("waiting", waiting), ("pending", pending), ("leased", leased), ("parked", parked)]
    {
        state.set_item(name, count)?;
    }
    Ok(state)
}

fn take<'py>(py: Python<'py>, group: &ConsumerGroup, mut body: Body<'_, 'py>) -> Result<Bound<'py, PyDict>> {
    let most = body.count("max")?.unwrap_or(BATCH);
    let (time, wait) = (body.millis("lease_ms")?, body.millis("wait_ms")?.unwrap_or_default());
    body.finish()?;
    if most == 0 || most > BATCH_MAX {
        return Err(Fault::Invalid(format!("{most} events cannot be taken; 1 to {BATCH_MAX} can")));
    }
    if wait > WAIT_MAX {
        return Err(Fault::Invalid(format!("a call waits at most {} ms", WAIT_MAX.as_millis())));
    }
    let taken = py.detach(|| group.take_waiting(most, time, wait))?;
    let events = PyList::empty(py);
    for one in &taken.events {
        let event = PyDict::new(py);
        event.set_item("tries", one.tries)?;
        event.set_item("event", output::owned(py, &one.event)?)?;
        events.append(event)?;
    }
    let answer = PyDict::new(py);
    let is_empty = taken.events.is_empty();
    answer.set_item("lease", (!is_empty).then_some(taken.id))?;
    answer.set_item("until", (!is_empty).then_some(taken.until_micros))?;
    answer.set_item("events", events)?;
    Ok(answer)
}

fn parked<'py>(
    py: Python<'py>,
    group: &ConsumerGroup,
    mut body: Body<'_, 'py>,
) -> Result<Bound<'py, PyDict>> {
    let after = body.number("after")?.map(Position);
    let limit = body.count("limit")?.unwrap_or(BATCH).min(BATCH_MAX);
    body.finish()?;
    let found = py.detach(|| group.parked(after, limit))?;
    let list = PyList::empty(py);
    for Parked { event, tries, time_micros, reason } in &found {
        let one = PyDict::new(py);
        one.set_item("tries", tries)?;
        one.set_item("parked_at", time_micros)?;
        one.set_item("reason", reason)?;
        one.set_item("event", output::owned(py, event)?)?;
        list.append(one)?;
    }
    let answer = PyDict::new(py);
    answer.set_item("parked", list)?;
    Ok(answer)
}

fn settle<'py>(
    py: Python<'py>,
    group: &ConsumerGroup,
    action: &str,
    mut body: Body<'_, 'py>,
) -> Result<Bound<'py, PyDict>> {
    let positions = input::positions(&mut body)?;
    let which = positions.as_deref();
    let settled = match action {
        "acknowledge" => {
            let lease = lease(&mut body)?;
            body.finish()?;
            py.detach(|| group.acknowledge(lease, which))?
        }
        "retry" => {
            let (lease, pause) = (lease(&mut body)?, body.millis("pause_ms")?);
            let reason = body.text("reason")?.unwrap_or_default();
            body.finish()?;
            py.detach(|| group.retry(lease, which, pause, &reason))?
        }
        "park" => {
            let (lease, reason) = (lease(&mut body)?, body.text("reason")?.unwrap_or_default());
            body.finish()?;
            py.detach(|| group.park(lease, which, &reason))?
        }
        "parked/replay" => {
            body.finish()?;
            py.detach(|| group.replay(which))?
        }
        "parked/discard" => {
            body.finish()?;
            py.detach(|| group.discard(which))?
        }
        other => return Err(Fault::Invalid(format!("unknown action {other:?} of a consumer group"))),
    };
    let Settled { done, lost, parked } = settled;
    let answer = PyDict::new(py);
    answer.set_item("done", done)?;
    answer.set_item("parked", parked)?;
    answer.set_item("lost", lost.iter().map(|position| position.0).collect::<Vec<_>>())?;
    Ok(answer)
}
