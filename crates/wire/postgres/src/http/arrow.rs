//! Rows of a statement as a stream in Arrow's IPC format.

use std::fmt;

use arrow_ipc::writer::StreamWriter;
use ropewalk_sql::{ArrowRows, Outcome, SqlError, arrow_rows, state};
use ropewalk_transactions::cover_results;
use ropewalk_wire::WireError;

use crate::failure::refused;

/// Writes the schema and the record batches. `cover` reserves memory for so many bytes of `body`.
///
/// # Errors
/// Those of [`arrow_rows`]; more than 64 MiB; the error of `cover`.
pub(super) fn put_arrow(
    body: &mut Vec<u8>,
    outcome: &Outcome,
    cover: &mut dyn FnMut(usize) -> Result<(), WireError>,
) -> Result<(), SqlError> {
    let ArrowRows { schema, batches } = arrow_rows(outcome)?;
    let mut writer = StreamWriter::try_new(body, &schema).map_err(broken)?;
    for batch in &batches {
        writer.write(batch).map_err(broken)?;
        cover_results(writer.get_ref().len(), cover).map_err(|error| refused(&error))?;
    }
    writer.finish().map_err(broken)
}

fn broken(error: impl fmt::Display) -> SqlError {
    SqlError::new(state::INTERNAL_ERROR, format!("the rows in Arrow's format: {error}"))
}
