//! Samples and PromQL.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ropewalk::Database;
use ropewalk::promql::{self, Answer, Options, Query, Sample, Value};
use ropewalk::series::{Labels, SampleBatch};

use crate::error::{Fault, Result};
use crate::value::body::{Body, list, object, text};

/// The series store that SQL and PromQL read.
pub(crate) const STORE: &str = "default";

/// The samples of a body: `[{"labels": {name: value}, "samples": [[milliseconds, value]]}]`.
pub(crate) fn samples(body: &mut Body<'_, '_>) -> Result<SampleBatch> {
    let mut batch = SampleBatch::new();
    for one in body.list("series")? {
        let fields = object("series", &one)?;
        let mut series = Body::new(&fields);
        let labels = labels(&series.need("labels")?)?;
        let mut samples = batch.series(&labels);
        for sample in series.list("samples")? {
            let pair = list("samples", &sample)?;
            let pair = match pair.as_slice() {
                [time, value] => time.extract::<i64>().ok().zip(value.extract::<f64>().ok()),
                _ => None,
            };
            let invalid = || Fault::invalid("samples: pairs of milliseconds and a value are needed");
            let (time, value) = pair.ok_or_else(invalid)?;
            samples.push(time, value);
        }
        series.finish()?;
    }
    Ok(batch)
}

fn labels(given: &Bound<'_, PyAny>) -> Result<Labels> {
    let mut pairs = Vec::new();
    for (name, value) in object("labels", given)?.iter() {
        pairs.push((text("labels", &name)?, text("labels", &value)?));
    }
    if !pairs.iter().any(|(name, value)| name == "__name__" && !value.is_empty()) {
        return Err(Fault::invalid("labels: __name__, the name of the metric, is needed"));
    }
    Ok(Labels::new(pairs)?)
}

/// Times of a query in milliseconds: one, or start, end and step.
#[derive(Clone, Copy)]
pub(crate) enum Times {
    At(i64),
    Range(i64, i64, i64),
}

/// Evaluates a query; the result is that of the HTTP API: `{"resultType", "result"}`.
pub(crate) fn promql<'py>(
    py: Python<'py>,
    db: &Database,
    query: &str,
    times: Times,
) -> Result<Bound<'py, PyDict>> {
    let answer = py.detach(|| -> Result<Answer> {
        let query = Query::parse(query, Options::default()).map_err(promql::Error::from)?;
        let store = db.series(STORE)?;
        let snapshot = db.snapshot();
        let metrics = snapshot.metrics(&store);
        Ok(match times {
            Times::At(at) => query.instant(&metrics, at, &|| None)?,
            Times::Range(start, end, step) => query.range(&metrics, start, end, step, &|| None)?,
        })
    })?;
    let at = match times {
        Times::At(at) | Times::Range(at, ..) => at,
    };
    Ok(result(py, &answer.value, at)?)
}

fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

fn result<'py>(py: Python<'py>, value: &Value, at: i64) -> PyResult<Bound<'py, PyDict>> {
    let data = PyDict::new(py);
    let list = PyList::empty(py);
    let kind = match value {
        Value::Scalar(number) => {
            data.set_item("result", (seconds(at), number))?;
            data.set_item("resultType", "scalar")?;
            return Ok(data);
        }
        Value::Text(text) => {
            data.set_item("result", (seconds(at), String::from_utf8_lossy(text)))?;
            data.set_item("resultType", "string")?;
            return Ok(data);
        }
        Value::Vector(rows) => {
            for (labels, sample) in rows {
                let Sample::Float(number) = sample else { continue };
                let row = PyDict::new(py);
                row.set_item("metric", metric(py, labels)?)?;
                row.set_item("value", (seconds(at), number))?;
                list.append(row)?;
            }
            "vector"
        }
        Value::Matrix(series) => {
            for one in series {
                let row = PyDict::new(py);
                row.set_item("metric", metric(py, &one.labels)?)?;
                row.set_item("values", points(py, one)?)?;
                list.append(row)?;
            }
            "matrix"
        }
    };
    data.set_item("result", list)?;
    data.set_item("resultType", kind)?;
    Ok(data)
}

fn metric<'py>(py: Python<'py>, labels: &Labels) -> PyResult<Bound<'py, PyDict>> {
    let metric = PyDict::new(py);
    for (name, value) in labels.iter() {
        metric.set_item(name, value)?;
    }
    Ok(metric)
}

fn points<'py>(py: Python<'py>, series: &promql::Series) -> PyResult<Bound<'py, PyList>> {
    let points = PyList::empty(py);
    for (time, sample) in &series.samples {
        if let Sample::Float(number) = sample {
            points.append((seconds(*time), number))?;
        }
    }
    Ok(points)
}
