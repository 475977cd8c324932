//! Positions in the text of a query: byte ranges, displayed as line and column.

/// A range of bytes in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Span {
    /// From the beginning of this to the end of `last`.
    pub(crate) fn to(self, last: Span) -> Span {
        Span { start: self.start, end: last.end }
    }

    /// `line:column` of the beginning, both from 1, columns in bytes.
    pub fn line_column(self, query: &str) -> String {
        if query.is_empty() {
            return "unknown position".to_owned();
        }
        let Some(before) = query.as_bytes().get(..self.start) else { return "invalid position".to_owned() };
        let line = 1 + before.iter().filter(|b| **b == b'\n').count();
        let column = self.start + 1 - before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        format!("{line}:{column}")
    }
}
