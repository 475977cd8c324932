//! Results of SQL statements as JSON.

use std::fmt::Write as _;

use ropewalk::tables::Value;
use ropewalk_sql::{Outcome, to_text, type_name};
use ropewalk_wire::WireError;

/// Most bytes of the results of one request.
const RESULTS_BYTES_MAX: usize = 64 << 20;

/// Writes `{"command": TAG, "columns": [{"name", "type"}], "rows": [[VALUE]]}`; without columns for statements
/// that return no rows. `cover` reserves memory for so many bytes of `json`.
///
/// # Errors
/// More than 64 MiB; the error of `cover`.
pub fn put_outcome(
    json: &mut String,
    outcome: &Outcome,
    cover: &mut dyn FnMut(usize) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let _ = write!(json, "{{\"command\":{}", quoted(&outcome.tag().to_string()));
    if let Some(columns) = &outcome.columns {
        json.push_str(",\"columns\":[");
        for (place, column) in columns.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            let (name, ty) = (quoted(&column.name), quoted(&type_name(column.ty)));
            let _ = write!(json, "{comma}{{\"name\":{name},\"type\":{ty}}}");
        }
        json.push_str("],\"rows\":[");
        for (place, row) in outcome.rows.iter().enumerate() {
            json.push_str(if place > 0 { ",[" } else { "[" });
            for (place, value) in row.iter().enumerate() {
                if place > 0 {
                    json.push(',');
                }
                put_json(value, json);
                cover_results(json.len(), cover)?;
            }
            json.push(']');
        }
        json.push(']');
    }
    json.push('}');
    Ok(())
}

/// Writes each row as an object in one line, with the names of the columns and the values of [`put_outcome`].
///
/// # Errors
/// Those of [`put_outcome`].
pub fn put_ndjson(
    json: &mut String,
    outcome: &Outcome,
    cover: &mut dyn FnMut(usize) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let columns = outcome.columns.as_deref().unwrap_or_default();
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    for row in &outcome.rows {
        json.push('{');
        for (place, (name, value)) in names.iter().zip(row).enumerate() {
            let comma = if place > 0 { "," } else { "" };
            let _ = write!(json, "{comma}{name}:");
            put_json(value, json);
        }
        json.push_str("}\n");
        cover_results(json.len(), cover)?;
    }
    Ok(())
}

/// Reserves memory for so many bytes of the results of one request.
///
/// # Errors
/// More than 64 MiB; the error of `cover`.
pub fn cover_results(
    bytes: usize,
    cover: &mut dyn FnMut(usize) -> Result<(), WireError>,
) -> Result<(), WireError> {
    cover(bytes)?;
    if bytes > RESULTS_BYTES_MAX {
        let what = "bytes of results (read fewer rows at a time, or over the PostgreSQL port)";
        return Err(WireError::too_large(what, bytes, RESULTS_BYTES_MAX));
    }
    Ok(())
}

/// Numbers that JSON represents exactly, booleans and JSON values unchanged, the rest in PostgreSQL's text
/// format.
fn put_json(value: &Value<'_>, json: &mut String) {
    match value {
        Value::Null => json.push_str("null"),
        Value::Bool(value) => json.push_str(if *value { "true" } else { "false" }),
        Value::Json(text) | Value::Jsonb(text) => json.push_str(text),
        Value::Float4(number) if number.is_finite() => {
            let _ = write!(json, "{number}");
        }
        Value::Float8(number) if number.is_finite() => {
            let _ = write!(json, "{number}");
        }
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) => {
            json.push_str(&to_text(value).unwrap_or_default())
        }
        other => json.push_str(&quoted(&to_text(other).unwrap_or_default())),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
