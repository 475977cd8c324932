//! The result as a table for readers.

use std::collections::BTreeSet;

use comfy_table::{CellAlignment, Table, presets};

use crate::harness::plan::REFERENCES;
use crate::harness::report::{Report, RowResult};

/// Output format of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A terminal: ids, spread and latencies.
    Terminal,
    /// Markdown: the description of each row, without the spread.
    Markdown,
}

/// Rows, ours, every peer, the report's figure, and the ratios of ours to them: above 1x ours is better.
pub fn render(report: &Report, style: Style) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{} at {}{}, {}, on {}, {} cores, {} GiB, {}, Linux {}\n",
        report.bench,
        report.commit,
        if report.quick { " (quick)" } else { "" },
        report.date.get(..10).unwrap_or(&report.date),
        machine.cpu,
        machine.cores,
        machine.memory_gib,
        machine.fs,
        machine.kernel
    );
    let probe =
        [report.probe.fdatasync_per_s, report.probe.p50_us, report.probe.p99_us].map(|v| number(Some(v)));
    let [rate, p50, p99] = probe;
    text += &format!("disk probe, 4 KiB pwrite + fdatasync: {rate}/s, p50 {p50} µs, p99 {p99} µs\n\n");
    text += &format!("{}\n", rows(report, style));
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    text
}

fn rows(report: &Report, style: Style) -> Table {
    let peers: BTreeSet<&String> = report.rows.iter().flat_map(|row| row.peers.keys()).collect();
    let reported = report.rows.iter().any(|row| row.report.value.is_some());
    let mut header = match style {
        Style::Terminal => vec!["row", "unit", "ours", "min", "max", "p50 µs", "p99 µs", "fdatasync/s"],
        Style::Markdown => vec!["row", "measures", "unit", "ours"],
    };
    header.extend(peers.iter().map(|peer| peer.as_str()));
    if !peers.is_empty() {
        header.push("to best peer");
    }
    if reported {
        header.extend(["report", "to report"]);
    }
    let mut table = Table::new();
    table.load_style(if style == Style::Terminal { presets::NOTHING } else { presets::ASCII_MARKDOWN });
    table.set_header(&header);
    for column in table.column_iter_mut().skip(if style == Style::Terminal { 2 } else { 3 }) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in &report.rows {
        let mut cells = match style {
            Style::Terminal => vec![row.id.clone(), row.unit.clone()],
            Style::Markdown => vec![format!("`{}`", row.id), row.what.clone(), row.unit.clone()],
        };
        cells.push(number(row.ours));
        if style == Style::Terminal {
            cells.extend([row.min, row.max, row.p50_us, row.p99_us, row.fdatasync_per_s].map(number));
        }
        cells.extend(peers.iter().map(|peer| number(row.peers.get(*peer).copied())));
        if !peers.is_empty() {
            cells.push(if row.answers_equal {
                ratio(best_peer(row).map(|(_, _, ratio)| ratio))
            } else {
                "answers differ".into()
            });
        }
        if reported {
            let to_report = row.report.value.and_then(|value| row.ratio(value));
            cells.extend([number(row.report.value), ratio(to_report)]);
        }
        table.add_row(cells);
    }
    table
}

/// Rows of several benchmarks in one Markdown table: ours, the best peer, and the ratio to it.
pub fn summary(rows: &[(String, RowResult)]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["benchmark", "row", "unit", "ours", "best peer", "to best peer"]);
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (bench, row) in rows {
        let best = best_peer(row);
        let peer =
            best.map_or_else(String::new, |(name, value, _)| format!("{} {name}", number(Some(value))));
        table.add_row([
            format!("[{bench}](docs/benchmarks/{bench}.md)"),
            row.what.clone(),
            row.unit.clone(),
            number(row.ours),
            peer,
            ratio(best.map(|(_, _, ratio)| ratio)),
        ]);
    }
    table
}

/// The peer with the smallest ratio, its value and the ratio; peers that are shown for reference only do not count.
fn best_peer(row: &RowResult) -> Option<(&str, f64, f64)> {
    let compared = row.peers.iter().filter(|(name, _)| !REFERENCES.contains(&name.as_str()));
    let ratios = compared.filter_map(|(name, &value)| Some((name.as_str(), value, row.ratio(value)?)));
    ratios.min_by(|a, b| a.2.total_cmp(&b.2))
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{}x", number(Some(value))))
}

/// Three significant digits or all before the point, with thousands separators.
pub fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return String::new() };
    let decimals = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) =
        text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let texts = [1_234_567.8, 123.4, 12.34, 1.234, 0.1234, 0.0].map(|v| number(Some(v)));
        assert_eq!(texts, ["1,234,568", "123", "12.3", "1.23", "0.123", "0"]);
        assert_eq!(number(None), "");
    }
}
