//! `ropewalkSamples`: appends samples of series.

use ropewalk::documents::lang::{Value, Writer};
use ropewalk::series::{Labels, SampleBatch};
use ropewalk_auth::Right;

use crate::call::Call;
use crate::crud::write::int;
use crate::models::change::Change;
use crate::protocol::args::Args;
use crate::protocol::failure::{Code, Failure, Outcome};

/// `ropewalkSamples`
pub(crate) fn append<'a>(call: &mut Call<'a>) -> Outcome<Change<'a>> {
    let args = call.args;
    args.only(&["ropewalkSamples", "series"])?;
    let name = args.needed("ropewalkSamples", args.text("ropewalkSamples")?)?;
    call.may(Right::Append, Some(name))?;
    let store = call.shared.service.database().series(name)?;
    let mut batch = SampleBatch::new();
    for series in args.documents("series")? {
        put_series(&Args::statement("ropewalkSamples.series", series, &["labels", "samples"])?, &mut batch)?;
    }
    Ok(Change::new(batch.bytes(), move |_, tx| {
        if !batch.is_empty() {
            tx.append_samples(&store, &batch)?;
        }
        let mut out = Writer::new();
        out.put("n", int(batch.len() as i64));
        Ok(out.finish())
    }))
}

/// Adds the samples of one series.
fn put_series(args: &Args<'_>, batch: &mut SampleBatch) -> Outcome<()> {
    let mut labels = Vec::new();
    for (name, value) in args.needed("labels", args.document("labels")?)? {
        let value = value.as_str().ok_or_else(|| {
            Failure::new(Code::TypeMismatch, format!("the value of label {name:?} has to be a string"))
        })?;
        labels.push((name, value));
    }
    let labels = Labels::new(labels).map_err(ropewalk::Error::from)?;
    let mut samples = batch.series(&labels);
    for sample in args.needed("samples", args.array("samples")?)?.values() {
        let (time_ms, value) = sample_of(sample).ok_or_else(|| {
            let message = "a sample is an array of a time (a date, or milliseconds since 1970) and a number";
            Failure::new(Code::TypeMismatch, message)
        })?;
        samples.push(time_ms, value);
    }
    Ok(())
}

/// Time and value.
fn sample_of(sample: Value<'_>) -> Option<(i64, f64)> {
    let mut parts = sample.as_array()?.values();
    let time_ms = match parts.next()? {
        Value::DateTime(time_ms) => time_ms,
        number => number.as_integer()?,
    };
    let value = parts.next()?.as_double()?;
    parts.next().is_none().then_some((time_ms, value))
}
