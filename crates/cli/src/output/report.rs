//! Rows in the form that was asked for. One row is one JSON object, one line of CSV, or one line of a table.
//!
//! JSON keeps every byte: payloads that are UTF-8 stand as text, others as base64 and say so in a field of their own.
//! Tables are for eyes: empty columns are left out, long cells are cut, the middle of a long result is elided.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// For eyes
    Table,
    /// One JSON array
    Json,
    /// One JSON object per line
    Ndjson,
    /// RFC 4180, with a header
    Csv,
}

impl Mode {
    /// The form for who is reading when nobody said.
    pub(crate) fn automatic() -> Self {
        if io::stdout().is_terminal() { Self::Table } else { Self::Ndjson }
    }
}

/// Rows at the beginning and at the end that a table shows of a long result.
const TABLE_END_ROWS: usize = 50;
/// Characters of one table cell.
const TABLE_CELL_CHARS: usize = 300;

/// Narrower than this is no terminal that anybody reads tables on, but one that does not know its width.
const TERMINAL_COLUMNS_MIN: u16 = 40;

/// An empty table: a line under the header and nothing else, as wide as the terminal. `width` counts where there is none.
pub(crate) fn table(width: Option<u16>) -> Table {
    const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    match table.width() {
        Some(columns) if columns >= TERMINAL_COLUMNS_MIN => {}
        Some(_) => {
            table.set_width(width.unwrap_or(100));
        }
        None => {
            if let Some(width) = width {
                table.set_width(width);
            }
        }
    }
    table
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    None,
    Text(String),
    Number(u64),
    Decimal(f64),
    Bool(bool),
    List(Vec<String>),
    Pairs(Vec<(String, String)>),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl Cell {
    fn json(&self, out: &mut String) {
        match self {
            Self::None => out.push_str("null"),
            Self::Text(text) => quote(text, out),
            // Writing into a string cannot fail.
            Self::Number(number) => drop(write!(out, "{number}")),
            Self::Decimal(number) => drop(write!(out, "{number}")),
            Self::Bool(value) => drop(write!(out, "{value}")),
            Self::List(items) => {
                out.push('[');
                for (ordinal, item) in items.iter().enumerate() {
                    comma(ordinal, out);
                    quote(item, out);
                }
                out.push(']');
            }
            Self::Pairs(pairs) => {
                out.push('{');
                for (ordinal, (key, value)) in pairs.iter().enumerate() {
                    comma(ordinal, out);
                    quote(key, out);
                    out.push(':');
                    quote(value, out);
                }
                out.push('}');
            }
        }
    }

    fn csv(&self) -> String {
        let mut text = match self {
            Self::None => String::new(),
            Self::Text(text) => text.clone(),
            other => {
                let mut json = String::new();
                other.json(&mut json);
                json
            }
        };
        if text.contains([',', '"', '\r', '\n']) {
            text = format!("\"{}\"", text.replace('"', "\"\""));
        }
        text
    }

    /// As shown to people: one line, cut, harmless to a terminal.
    pub(crate) fn eyes(&self) -> String {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => thousands(*number),
            Self::List(items) => items.join(" "),
            Self::Pairs(pairs) => pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
            Self::None => String::new(),
            other => other.csv(),
        };
        let text = printable(&text);
        match text.char_indices().nth(TABLE_CELL_CHARS) {
            Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
            None => text,
        }
    }
}

fn comma(ordinal: usize, out: &mut String) {
    if ordinal > 0 {
        out.push(',');
    }
}

fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a string is always JSON"));
}

/// The text without anything that a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// 1234567 as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (ordinal, digit) in digits.chars().enumerate() {
        if ordinal > 0 && (digits.len() - ordinal).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Microseconds since 1970 as RFC 3339.
pub(crate) fn time(micros: i64) -> Cell {
    jiff::Timestamp::from_microsecond(micros).map_or(Cell::None, |t| Cell::Text(t.to_string()))
}

/// A payload, and the name of its encoding when it is not plain text.
pub(crate) fn payload(data: &[u8]) -> (Cell, Cell) {
    match std::str::from_utf8(data) {
        Ok(text) => (text.into(), Cell::None),
        Err(_) => (Cell::Text(STANDARD.encode(data)), "base64".into()),
    }
}

/// Writes rows in one form.
pub(crate) struct Report<W> {
    out: W,
    mode: Mode,
    columns: &'static [&'static str],
    rows: u64,
    /// Of a table: its first rows, then its last.
    first: Vec<Vec<Cell>>,
    last: VecDeque<Vec<Cell>>,
}

impl<W: Write> Report<W> {
    pub(crate) fn new(out: W, mode: Mode, columns: &'static [&'static str]) -> io::Result<Self> {
        let mut report = Self { out, mode, columns, rows: 0, first: Vec::new(), last: VecDeque::new() };
        if mode == Mode::Csv {
            writeln!(report.out, "{}", columns.join(","))?;
        }
        Ok(report)
    }

    /// Writes one row, whose cells are in the order of the columns.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) -> io::Result<()> {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows += 1;
        match self.mode {
            Mode::Table if self.first.len() < TABLE_END_ROWS => self.first.push(cells),
            Mode::Table => {
                if self.last.len() == TABLE_END_ROWS {
                    self.last.pop_front();
                }
                self.last.push_back(cells);
            }
            Mode::Csv => writeln!(self.out, "{}", cells.iter().map(Cell::csv).collect::<Vec<_>>().join(","))?,
            Mode::Ndjson => writeln!(self.out, "{}", object(self.columns, &cells))?,
            Mode::Json => {
                let before = if self.rows == 1 { "[\n" } else { ",\n" };
                write!(self.out, "{before}  {}", object(self.columns, &cells))?;
            }
        }
        Ok(())
    }

    /// Hands what was written so far to the reader; a table waits for [`Report::finish`].
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the output.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        match self.mode {
            Mode::Json if self.rows == 0 => writeln!(self.out, "[]")?,
            Mode::Json => writeln!(self.out, "\n]")?,
            Mode::Table if self.rows > 0 => {
                let elided = self.rows - (self.first.len() + self.last.len()) as u64;
                write_table(&mut self.out, self.columns, &self.first, elided, &self.last)?;
            }
            Mode::Table | Mode::Csv | Mode::Ndjson => {}
        }
        self.out.flush()
    }
}

fn object(columns: &[&str], cells: &[Cell]) -> String {
    let mut json = String::from("{");
    let present = columns.iter().zip(cells).filter(|(_, cell)| **cell != Cell::None);
    for (ordinal, (name, cell)) in present.enumerate() {
        comma(ordinal, &mut json);
        quote(name, &mut json);
        json.push(':');
        cell.json(&mut json);
    }
    json.push('}');
    json
}

fn write_table(
    out: &mut impl Write,
    columns: &[&str],
    first: &[Vec<Cell>],
    elided: u64,
    last: &VecDeque<Vec<Cell>>,
) -> io::Result<()> {
    let rows = || first.iter().chain(last);
    let used: Vec<bool> = (0..columns.len())
        .map(|c| rows().any(|row| row.get(c).is_some_and(|cell| *cell != Cell::None)))
        .collect();
    let shown = |row: &[Cell]| -> Vec<comfy_table::Cell> {
        let used_cells = row.iter().zip(&used).filter(|(_, used)| **used);
        used_cells
            .map(|(cell, _)| {
                let number = matches!(cell, Cell::Number(_) | Cell::Decimal(_));
                let align = if number { CellAlignment::Right } else { CellAlignment::Left };
                comfy_table::Cell::new(cell.eyes()).set_alignment(align)
            })
            .collect()
    };
    let mut table = table(None);
    table.set_header(columns.iter().zip(&used).filter(|(_, used)| **used).map(|(name, _)| *name));
    for row in first {
        table.add_row(shown(row));
    }
    if elided > 0 {
        table.add_row([format!("… {} more …", thousands(elided))]);
    }
    for row in last {
        table.add_row(shown(row));
    }
    writeln!(out, "{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mode: Mode, rows: &[Vec<Cell>]) -> String {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, mode, &["n", "text", "tags", "rare"]).unwrap();
        for row in rows {
            report.row(row.clone()).unwrap();
        }
        report.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    fn rows() -> Vec<Vec<Cell>> {
        vec![
            vec![1.into(), "plain".into(), Cell::List(vec!["a:1".into(), "b".into()]), Cell::None],
            vec![1234.into(), "say \"x\",\nnow\u{1b}[31m".into(), Cell::List(vec![]), Cell::None],
        ]
    }

    #[test]
    fn every_mode_writes_the_same_rows() {
        assert_eq!(
            written(Mode::Ndjson, &rows()),
            "{\"n\":1,\"text\":\"plain\",\"tags\":[\"a:1\",\"b\"]}\n\
             {\"n\":1234,\"text\":\"say \\\"x\\\",\\nnow\\u001b[31m\",\"tags\":[]}\n"
        );
        let json: serde_json::Value = serde_json::from_str(&written(Mode::Json, &rows())).unwrap();
        assert_eq!(json[1]["n"], 1234);
        assert_eq!(
            written(Mode::Csv, &rows()),
            "n,text,tags,rare\n1,plain,\"[\"\"a:1\"\",\"\"b\"\"]\",\n1234,\"say \"\"x\"\",\nnow\u{1b}[31m\",[],\n"
        );
        let table = written(Mode::Table, &rows());
        assert!(table.contains("1,234") && table.contains("a:1 b") && !table.contains("rare"), "{table}");
        assert!(!table.contains('\u{1b}'), "a terminal must not obey stored bytes: {table}");
    }

    #[test]
    fn no_rows() {
        assert_eq!(written(Mode::Json, &[]), "[]\n");
        assert_eq!(written(Mode::Ndjson, &[]), "");
        assert_eq!(written(Mode::Csv, &[]), "n,text,tags,rare\n");
        assert_eq!(written(Mode::Table, &[]), "");
    }

    #[test]
    fn a_long_table_shows_its_ends() {
        let rows: Vec<_> = (0..1000).map(|n| vec![n.into(), "x".into(), Cell::None, Cell::None]).collect();
        let table = written(Mode::Table, &rows);
        assert!(table.contains("… 900 more …") && table.contains("999") && !table.contains("500"), "{table}");
    }

    #[test]
    fn payloads_keep_every_byte() {
        assert_eq!(payload(b"{}"), ("{}".into(), Cell::None));
        assert_eq!(payload(&[0xff, 0]), ("/wA=".into(), "base64".into()));
    }

    #[test]
    fn grouped_digits() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
