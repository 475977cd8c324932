//! Reports: rows in one of several forms. A row is one JSON object, one line of CSV, or one line of a table.
//!
//! Tables are for people: they omit empty columns, cut long cells, and elide the middle of a long result.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::cell::{Cell, comma, quote, thousands};

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// For people
    Table,
    /// One JSON array
    Json,
    /// One JSON object per line
    Ndjson,
    /// RFC 4180, with a header
    Csv,
}

impl Mode {
    /// The default form: a table on a terminal, NDJSON elsewhere.
    pub(crate) fn automatic() -> Self {
        if io::stdout().is_terminal() { Self::Table } else { Self::Ndjson }
    }
}

/// Rows at each end of a long result that a table displays.
const TABLE_END_ROWS: usize = 50;

/// A terminal that reports fewer columns does not know its width.
const TERMINAL_COLUMNS_MIN: u16 = 40;

/// An empty table with a line under its header, as wide as the terminal; `width` applies where there is no terminal.
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

    /// Flushes the rows written so far; a table is written by [`Report::finish`].
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
    fn same_rows_are_written_in_every_mode() {
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
    fn report_without_rows_is_valid_in_every_mode() {
        assert_eq!(written(Mode::Json, &[]), "[]\n");
        assert_eq!(written(Mode::Ndjson, &[]), "");
        assert_eq!(written(Mode::Csv, &[]), "n,text,tags,rare\n");
        assert_eq!(written(Mode::Table, &[]), "");
    }

    #[test]
    fn long_table_shows_first_and_last_rows() {
        let rows: Vec<_> = (0..1000).map(|n| vec![n.into(), "x".into(), Cell::None, Cell::None]).collect();
        let table = written(Mode::Table, &rows);
        assert!(table.contains("… 900 more …") && table.contains("999") && !table.contains("500"), "{table}");
    }
}
