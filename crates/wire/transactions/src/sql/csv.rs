//! Results of SQL statements as CSV by RFC 4180.

use ropewalk_sql::{Outcome, to_text};
use ropewalk_wire::WireError;

use super::json::cover_results;

/// Writes the names of the columns, and then each row, with values in PostgreSQL's text format. NULL is an
/// empty field, an empty text `""`. `cover` reserves memory for so many bytes of `csv`.
///
/// # Errors
/// More than 64 MiB; the error of `cover`.
pub fn put_csv(
    csv: &mut String,
    outcome: &Outcome,
    cover: &mut dyn FnMut(usize) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let columns = outcome.columns.as_deref().unwrap_or_default();
    put_line(csv, columns.iter().map(|column| Some(column.name.to_string())));
    for row in &outcome.rows {
        put_line(csv, row.iter().map(to_text));
        cover_results(csv.len(), cover)?;
    }
    Ok(())
}

fn put_line(csv: &mut String, fields: impl Iterator<Item = Option<String>>) {
    for (place, field) in fields.enumerate() {
        if place > 0 {
            csv.push(',');
        }
        match field {
            None => {}
            Some(text) if text.is_empty() || text.contains(['"', ',', '\r', '\n']) => {
                csv.push('"');
                csv.push_str(&text.replace('"', "\"\""));
                csv.push('"');
            }
            Some(text) => csv.push_str(&text),
        }
    }
    csv.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let mut csv = String::new();
        let fields = ["a", "", "b\"c", "d,e", "f\ng"].map(|text| Some(text.to_owned()));
        put_line(&mut csv, fields.into_iter().chain([None]));
        assert_eq!(csv, "a,\"\",\"b\"\"c\",\"d,e\",\"f\ng\",\r\n");
    }
}
