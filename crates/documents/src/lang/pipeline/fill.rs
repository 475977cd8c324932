//! `$fill`: missing values, as stages that exist already.
//!
//! ```text
//! { sortBy: { t: 1 }, output: { a: { method: "locf" }, b: { method: "linear" }, c: { value: 0 } } }
//!   ─▶ $setWindowFields: { sortBy: { t: 1 }, output: { a: { $locf: "$a" }, b: { $linearFill: "$b" } } }
//!   ─▶ $addFields: { c: { $ifNull: ["$c", 0] } }
//! ```
//!
//! Source: MongoDB manual, "$fill".

use crate::lang::error::{LangError, refuse};
use crate::lang::expression::Scope;
use crate::lang::options::Options;
use crate::lang::pipeline::projection::Projection;
use crate::lang::pipeline::window::WindowFields;
use crate::lang::pipeline::{checked_path, known, text_list};
use crate::lang::value::writer::Writer;
use crate::lang::value::{Doc, Value};

/// The stages of a `$fill`, in order.
pub(crate) fn parse(
    operand: Value<'_>,
    options: &Options,
) -> Result<(Option<WindowFields>, Option<Projection>), LangError> {
    let Value::Document(spec) = operand else {
        refuse!(
            FailedToParse,
            "the $fill stage specification must be an object, found {}",
            operand.type_name()
        );
    };
    known("$fill", spec, &["partitionBy", "partitionByFields", "sortBy", "output"])?;
    let Some(output) = spec.get("output") else {
        refuse!(40414, "BSON field '$fill.output' is missing but a required field");
    };
    let output = output.as_document().filter(|output| !output.is_empty());
    let Some(output) = output else {
        refuse!(6050203, "The output field in '$fill' must contain an object with at least one element");
    };
    let mut windows = Writer::new().bounded();
    let mut values = Writer::new().bounded();
    let (mut has_windows, mut has_values) = (false, false);
    put_partition(spec, &mut windows)?;
    if let Some(sort) = spec.get("sortBy") {
        windows.put("sortBy", sort);
    }
    windows.open_document("output");
    for (field, fill) in output {
        let fill = fill.as_document().filter(|fill| fill.iter().count() == 1);
        let Some((how, operand)) = fill.and_then(Doc::first) else {
            refuse!(6050200, "Each fill output specification must be an object with exactly one field");
        };
        let path = format!("${field}");
        match (how, operand) {
            ("value", value) => {
                has_values = true;
                values.open_document(field);
                values.open_array("$ifNull");
                values.put("", Value::String(&path));
                values.put("", value);
                values.close();
                values.close();
            }
            ("method", Value::String(method @ ("linear" | "locf"))) => {
                has_windows = true;
                windows.open_document(field);
                windows.put(if method == "linear" { "$linearFill" } else { "$locf" }, Value::String(&path));
                windows.close();
            }
            ("method", _) => refuse!(6050202, "Method must be either locf or linear"),
            _ => refuse!(40415, "BSON field '$fill.output.{how}' is an unknown field."),
        }
    }
    windows.close();
    let windows = windows.within("$fill")?.finish();
    let values = values.within("$fill")?.finish();
    let windows =
        if has_windows { Some(WindowFields::parse(windows.doc(), &Scope::of(options))?) } else { None };
    let values = if has_values { Some(Projection::adding(values.doc(), options)?) } else { None };
    Ok((windows, values))
}

/// Puts `partitionBy`: an expression, or a document with the named fields.
fn put_partition(spec: Doc<'_>, windows: &mut Writer) -> Result<(), LangError> {
    match (spec.get("partitionBy"), spec.get("partitionByFields")) {
        (None, None) => {}
        (Some(_), Some(_)) => refuse!(
            6050204,
            "Maximum one of 'partitionBy' and 'partitionByFields' can be specified in '$fill'"
        ),
        (Some(by), None) => match by {
            Value::String(_) | Value::Document(_) => windows.put("partitionBy", by),
            other => refuse!(
                TypeMismatch,
                "BSON field '$fill.partitionBy' is the wrong type '{}', expected types '[string, object]'",
                other.type_name()
            ),
        },
        (None, Some(fields)) => {
            windows.open_document("partitionBy");
            for (at, field) in text_list("$fill.partitionByFields", fields)?.into_iter().enumerate() {
                windows.put(&at.to_string(), Value::String(&format!("${}", checked_path(field)?)));
            }
            windows.close();
        }
    }
    Ok(())
}
