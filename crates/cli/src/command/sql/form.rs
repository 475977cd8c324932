//! Results of statements in one of several forms. NULL is null in JSON and empty in the other forms.

use std::borrow::Cow;
use std::io::{self, Write};

use clap::ValueEnum;
use comfy_table::CellAlignment;
use ropewalk::tables::{Scalar, Type, Value};
use ropewalk_sql::{Outcome, Zone, to_text, to_text_in};

use crate::output::cell::printable;
use crate::output::report::{Mode, table};

/// Format of a result: those of all commands, and some only for SQL rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people; the middle of a long result is omitted
    Table,
    /// Each column on a separate line
    Vertical,
    /// RFC 4180, with a header
    Csv,
    /// Fields separated by tabs, with a header; tabs and line ends as \t and \n
    Tsv,
    /// One JSON array
    Json,
    /// One JSON object per line
    Ndjson,
    /// A Markdown table
    Markdown,
}

impl From<Mode> for Form {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Table => Self::Table,
            Mode::Json => Self::Json,
            Mode::Ndjson => Self::Ndjson,
            Mode::Csv => Self::Csv,
        }
    }
}

/// Rows at each end of a long result that a table displays.
const END_ROWS: usize = 50;
/// Characters of a cell of a table.
const CELL_CHARS: usize = 300;

type Columns<'o> = [(&'o str, Type)];
type Row = Vec<Value<'static>>;

fn text(value: &Value<'_>) -> String {
    to_text(value).unwrap_or_default()
}

fn is_number(ty: Type) -> bool {
    use Scalar as S;
    let Type::Scalar(scalar) = ty else { return false };
    matches!(scalar, S::Int2 | S::Int4 | S::Int8 | S::Float4 | S::Float8 | S::Numeric(_))
}

/// Formats timestamps in the given time zone, as text.
fn in_zone<'o>(rows: &'o [Row], zone: &Zone) -> Cow<'o, [Row]> {
    if zone.is_utc() {
        return Cow::Borrowed(rows);
    }
    let shown = |value: &Value<'static>| match value {
        Value::Timestamptz(_) => to_text_in(value, zone).map_or(Value::Null, Value::text),
        other => other.clone(),
    };
    Cow::Owned(rows.iter().map(|row| row.iter().map(shown).collect()).collect())
}

/// Writes the rows of a result.
pub(crate) fn show(outcome: &Outcome, form: Form, zone: &Zone, out: &mut dyn Write) -> io::Result<()> {
    let columns: Vec<(&str, Type)> =
        outcome.columns.iter().flat_map(|c| c.iter()).map(|c| (c.name.as_str(), c.ty)).collect();
    let rows = &in_zone(&outcome.rows, zone);
    match form {
        Form::Table => framed(&columns, rows, out),
        Form::Vertical => vertical(&columns, rows, out),
        Form::Csv => lines(&columns, rows, out, ",", &|field| {
            let special = field.contains([',', '"', '\n', '\r']);
            if special { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.to_owned() }
        }),
        Form::Tsv => lines(&columns, rows, out, "\t", &|field| {
            field.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
        }),
        Form::Json if rows.is_empty() => writeln!(out, "[]"),
        Form::Json => {
            writeln!(out, "[")?;
            for (place, row) in rows.iter().enumerate() {
                let comma = if place + 1 < rows.len() { "," } else { "" };
                writeln!(out, "  {}{comma}", object(&columns, row))?;
            }
            writeln!(out, "]")
        }
        Form::Ndjson => rows.iter().try_for_each(|row| writeln!(out, "{}", object(&columns, row))),
        Form::Markdown => markdown(&columns, rows, out),
    }
}

fn framed(columns: &Columns<'_>, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let mut table = table(None);
    table.set_header(columns.iter().map(|(name, _)| printable(name)));
    let cell = |value: &Value<'_>| {
        let whole = printable(&text(value));
        match whole.char_indices().nth(CELL_CHARS) {
            Some((cut, _)) => format!("{}…", whole.get(..cut).unwrap_or_default()),
            None => whole,
        }
    };
    let is_elided = rows.len() > END_ROWS * 2;
    for (number, row) in rows.iter().enumerate() {
        if !is_elided || number < END_ROWS || number >= rows.len() - END_ROWS {
            table.add_row(row.iter().map(cell));
        } else if number == END_ROWS {
            table.add_row(columns.iter().map(|_| "⋮"));
        }
    }
    for (column, (_, ty)) in table.column_iter_mut().zip(columns) {
        if is_number(*ty) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string().lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))?;
    let elided = if is_elided { format!(", {} shown", END_ROWS * 2) } else { String::new() };
    writeln!(out, "({} row{}{elided})", rows.len(), if rows.len() == 1 { "" } else { "s" })
}

fn vertical(columns: &Columns<'_>, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let width = columns.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (number, row) in rows.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        for ((name, _), value) in columns.iter().zip(row) {
            writeln!(out, "{:>width$} = {}", printable(name), printable(&text(value)))?;
        }
    }
    Ok(())
}

fn lines(
    columns: &Columns<'_>,
    rows: &[Row],
    out: &mut dyn Write,
    between: &str,
    escape: &dyn Fn(&str) -> String,
) -> io::Result<()> {
    let names: Vec<String> = columns.iter().map(|(name, _)| escape(name)).collect();
    writeln!(out, "{}", names.join(between))?;
    rows.iter().try_for_each(|row| {
        let fields: Vec<String> = row.iter().map(|value| escape(&text(value))).collect();
        writeln!(out, "{}", fields.join(between))
    })
}

fn markdown(columns: &Columns<'_>, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let escape = |text: &str| text.replace('|', "\\|").replace('\n', "<br>");
    let line = |fields: Vec<String>| format!("| {} |", fields.join(" | "));
    let rule = |ty: Type| if is_number(ty) { "---:".to_owned() } else { "---".into() };
    writeln!(out, "{}", line(columns.iter().map(|(name, _)| escape(name)).collect()))?;
    writeln!(out, "{}", line(columns.iter().map(|(_, ty)| rule(*ty)).collect()))?;
    rows.iter()
        .try_for_each(|row| writeln!(out, "{}", line(row.iter().map(|value| escape(&text(value))).collect())))
}

/// A row as JSON: numbers, booleans, JSON and arrays as such, everything else as a string.
fn object(columns: &Columns<'_>, row: &[Value<'static>]) -> String {
    let members = columns
        .iter()
        .zip(row)
        .map(|((name, _), value)| format!("{}:{}", serde_json::Value::from(*name), json(value)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn json(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) => text(value),
        Value::Float4(float) if float.is_finite() => text(value),
        Value::Float8(float) if float.is_finite() => text(value),
        Value::Numeric(number) if !number.is_nan() => text(value),
        // A line end can only occur between its tokens.
        Value::Json(document) => document.replace(['\n', '\r'], " "),
        Value::Array(array) => {
            let items: Vec<String> = array.iter().flatten().map(|item| json(&item)).collect();
            format!("[{}]", items.join(","))
        }
        other => serde_json::Value::from(text(other)).to_string(),
    }
}
