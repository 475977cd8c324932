//! Splits the bytes of COPY FROM into records; chunks may have any size.
//!
//! ```text
//! chunks ─▶ buffer ─▶ find the end of the record ─▶ fields, unescaped ─▶ Record
//! ```
//! Bytes that were scanned for the end of a record are not scanned again when the next chunk arrives.

use crate::error::{Result, SqlError, state};
use crate::syntax::copy_statement::{CopyStatement, Format, Header};
use crate::types::binary_format::not_utf8;

/// Maximum number of bytes of one record.
const RECORD_BYTES_MAX: usize = 64 << 20;
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// The fields of a record.
#[derive(Debug, Default)]
pub(crate) struct Record {
    bytes: Vec<u8>,
    /// End of each field, and whether it is NULL.
    ends: Vec<(usize, bool)>,
}

impl Record {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn end_field(&mut self, is_null: bool) {
        self.ends.push((self.bytes.len(), is_null));
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of each field; `None` for NULL.
    pub(crate) fn fields(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let mut start = 0;
        self.ends.iter().map(move |(end, is_null)| {
            let field = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            (!is_null).then_some(field)
        })
    }
}

#[derive(Debug)]
pub(crate) struct Reader {
    format: Format,
    header: Header,
    delimiter: u8,
    null: Vec<u8>,
    quote: u8,
    escape: u8,
    /// FORCE_NOT_NULL of each column: an unquoted null string is data. `null_too` is FORCE_NULL: a quoted one
    /// is NULL.
    not_null: Vec<bool>,
    null_too: Vec<bool>,
    columns: Vec<String>,
    buffer: Vec<u8>,
    /// Start of the next record in `buffer`.
    start: usize,
    /// End of the bytes that were scanned for the end of that record.
    looked: usize,
    in_quotes: bool,
    began: bool,
    ended: bool,
    /// Number of the last returned record, from 1.
    pub(crate) line: u64,
}

fn bad(message: impl Into<String>) -> SqlError {
    SqlError::new(state::BAD_COPY_FILE_FORMAT, message)
}

impl Reader {
    pub(crate) fn new(copy: &CopyStatement, columns: Vec<String>) -> Result<Self> {
        Ok(Self {
            format: copy.format,
            header: copy.header,
            delimiter: copy.delimiter(),
            null: copy.null().as_bytes().to_vec(),
            quote: copy.quote(),
            escape: copy.escape(),
            not_null: copy.force_not_null.among(&columns)?,
            null_too: copy.force_null.among(&columns)?,
            columns,
            buffer: Vec::new(),
            start: 0,
            looked: 0,
            in_quotes: false,
            began: false,
            ended: false,
            line: 0,
        })
    }

    /// Appends a chunk to the buffer.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if self.ended {
            // Only line ends may follow the end of the data.
            let rest = bytes.iter().any(|byte| !byte.is_ascii_whitespace());
            return if rest { Err(bad("received copy data after EOF marker")) } else { Ok(()) };
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.looked -= self.start;
            self.start = 0;
        }
        if self.buffer.len().saturating_add(bytes.len()) > RECORD_BYTES_MAX.saturating_add(1 << 20) {
            let message = format!("a record of COPY exceeds {RECORD_BYTES_MAX} bytes");
            return Err(SqlError::new(state::PROGRAM_LIMIT_EXCEEDED, message));
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Reads the next complete record into `record`. Returns false if more bytes are needed; with `last` no
    /// more bytes follow.
    pub(crate) fn next(&mut self, record: &mut Record, last: bool) -> Result<bool> {
        record.clear();
        if self.ended {
            return Ok(false);
        }
        if self.format == Format::Binary {
            return self.binary(record, last);
        }
        loop {
            let Some(end) = self.line_end(last)? else { return Ok(false) };
            self.line += 1;
            let next = (end + 1).min(self.buffer.len());
            let is_first = !std::mem::replace(&mut self.began, true);
            let line = self.buffer.get(self.start..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line == b"\\." {
                self.ended = true;
                return Ok(false);
            }
            if self.format == Format::Csv {
                self.csv(line, record)?
            } else {
                self.text(line, record)?
            }
            (self.start, self.looked) = (next, next);
            let is_header = is_first && self.header != Header::None;
            if !is_header {
                return Ok(true);
            }
            if self.header == Header::Match {
                self.check_header(record)?;
            }
            record.clear();
        }
    }

    fn check_header(&self, record: &Record) -> Result<()> {
        let names: Vec<Option<&[u8]>> = record.fields().collect();
        let same = names.len() == self.columns.len()
            && names.iter().zip(&self.columns).all(|(name, column)| *name == Some(column.as_bytes()));
        if same {
            return Ok(());
        }
        Err(bad("column name mismatch in header line")
            .hint(format!("the columns are {}", self.columns.join(", "))))
    }

    /// Finds the end of the line that begins at `start`.
    fn line_end(&mut self, last: bool) -> Result<Option<usize>> {
        let csv = self.format == Format::Csv;
        let rest = self.buffer.get(self.looked..).unwrap_or_default();
        let mut bytes = rest.iter().enumerate();
        while let Some((place, byte)) = bytes.next() {
            let escapes = match csv {
                true => self.in_quotes && *byte == self.escape && self.escape != self.quote,
                false => *byte == b'\\',
            };
            if escapes {
                // The next byte is literal, even a line end. If it has not arrived yet, both are scanned
                // again.
                if bytes.next().is_none() && !last {
                    self.looked += place;
                    return Ok(None);
                }
            } else if *byte == b'\n' && !self.in_quotes {
                return Ok(Some(self.looked + place));
            } else if csv && *byte == self.quote {
                // A doubled quote within quotes leaves the quoted state and enters it again.
                self.in_quotes = !self.in_quotes;
            }
        }
        self.looked = self.buffer.len();
        if !last || self.start == self.buffer.len() {
            return Ok(None);
        }
        if self.in_quotes {
            return Err(bad("unterminated CSV quoted field"));
        }
        Ok(Some(self.buffer.len()))
    }

    fn text(&self, line: &[u8], record: &mut Record) -> Result<()> {
        let fields = Fields { rest: Some(line), delimiter: self.delimiter };
        for field in fields {
            if field == self.null {
                record.end_field(true);
                continue;
            }
            let from = record.bytes.len();
            unescape(field, &mut record.bytes);
            utf8(record.bytes.get(from..))?;
            record.end_field(false);
        }
        Ok(())
    }

    fn csv(&self, line: &[u8], record: &mut Record) -> Result<()> {
        let mut bytes = line.iter().copied().peekable();
        loop {
            let (from, mut was_quoted) = (record.bytes.len(), false);
            let mut in_quotes = false;
            let more = loop {
                let Some(byte) = bytes.next() else { break false };
                if in_quotes {
                    if byte == self.escape
                        && bytes.peek().is_some_and(|n| *n == self.quote || *n == self.escape)
                    {
                        record.bytes.extend(bytes.next());
                    } else if byte == self.quote {
                        in_quotes = false;
                    } else {
                        record.bytes.push(byte);
                    }
                } else if byte == self.quote {
                    (in_quotes, was_quoted) = (true, true);
                } else if byte == self.delimiter {
                    break true;
                } else {
                    record.bytes.push(byte);
                }
            };
            if in_quotes {
                return Err(bad("unterminated CSV quoted field"));
            }
            let field = record.bytes.get(from..).unwrap_or_default();
            utf8(Some(field))?;
            let column = record.ends.len();
            let told = |list: &[bool]| list.get(column).copied().unwrap_or(false);
            let is_null =
                field == self.null && if was_quoted { told(&self.null_too) } else { !told(&self.not_null) };
            record.end_field(is_null);
            if !more {
                return Ok(());
            }
        }
    }

    fn binary(&mut self, record: &mut Record, last: bool) -> Result<bool> {
        let cut = |what: &str| {
            if last { Err(bad(format!("unexpected EOF in COPY data: {what}"))) } else { Ok(false) }
        };
        if !self.began {
            let Some((head, rest)) = self.unread().split_first_chunk::<19>() else { return cut("header") };
            let Some((signature, flags)) = head.split_first_chunk::<11>() else { return cut("header") };
            if signature != SIGNATURE {
                return Err(bad("COPY file signature not recognized"));
            }
            let number = |at: usize| {
                flags.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
            };
            if number(0) >> 16 != 0 {
                return Err(bad("unrecognized critical flags in COPY file header"));
            }
            let extension = number(4) as usize;
            if rest.len() < extension {
                return cut("header");
            }
            self.start += 19 + extension;
            (self.looked, self.began) = (self.start, true);
        }
        let Some((count, mut rest)) = self.unread().split_first_chunk::<2>() else { return cut("a row") };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            self.ended = true;
            return Ok(false);
        }
        let all = rest.len();
        let mut fields = Record::default();
        for _ in 0..count {
            let Some((length, behind)) = rest.split_first_chunk::<4>() else { return cut("a row") };
            let length = i32::from_be_bytes(*length);
            rest = behind;
            if length == -1 {
                fields.end_field(true);
                continue;
            }
            let Ok(length) = usize::try_from(length) else { return Err(bad("invalid field size")) };
            let Some((field, behind)) = rest.split_at_checked(length) else { return cut("a row") };
            rest = behind;
            fields.bytes.extend_from_slice(field);
            fields.end_field(false);
        }
        let taken = 2 + all - rest.len();
        self.start += taken;
        self.looked = self.start;
        self.line += 1;
        *record = fields;
        Ok(true)
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }
}

fn utf8(field: Option<&[u8]>) -> Result<()> {
    std::str::from_utf8(field.unwrap_or_default()).map(|_| ()).map_err(|_| not_utf8())
}

/// The raw fields of a line of the text format.
struct Fields<'l> {
    rest: Option<&'l [u8]>,
    delimiter: u8,
}

impl<'l> Iterator for Fields<'l> {
    type Item = &'l [u8];

    fn next(&mut self) -> Option<&'l [u8]> {
        let rest = self.rest?;
        let mut escaped = false;
        let end = rest.iter().position(|byte| {
            let ends = !escaped && *byte == self.delimiter;
            escaped = !escaped && *byte == b'\\';
            ends
        });
        let (field, behind) = match end {
            Some(end) => (rest.get(..end).unwrap_or_default(), rest.get(end + 1..)),
            None => (rest, None),
        };
        self.rest = behind;
        Some(field)
    }
}

fn unescape(field: &[u8], out: &mut Vec<u8>) {
    if !field.contains(&b'\\') {
        out.extend_from_slice(field);
        return;
    }
    let mut bytes = field.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let digits = |bytes: &mut std::iter::Peekable<_>, first: u32, radix: u32, max: usize| {
            let mut value = first;
            for _ in 0..max {
                let digit = bytes.peek().and_then(|byte: &u8| char::from(*byte).to_digit(radix));
                let Some(digit) = digit else { break };
                value = value * radix + digit;
                bytes.next();
            }
            value.to_le_bytes()[0]
        };
        match bytes.next() {
            None => out.push(b'\\'),
            Some(b'b') => out.push(8),
            Some(b'f') => out.push(12),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'v') => out.push(11),
            Some(b'x') if bytes.peek().is_some_and(u8::is_ascii_hexdigit) => {
                out.push(digits(&mut bytes, 0, 16, 2));
            }
            Some(digit @ b'0'..=b'7') => out.push(digits(&mut bytes, u32::from(digit - b'0'), 8, 2)),
            Some(other) => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::copy_statement::{Copied, Direction};

    fn copy(options: &[(&str, &str)]) -> CopyStatement {
        let what = Copied::Table { table: "t".into(), columns: None };
        let mut copy = CopyStatement::new(what, Direction::From);
        options.iter().for_each(|(option, text)| copy.set(option, text).unwrap());
        copy
    }

    /// The records of `text`, for several chunk sizes.
    fn records(options: &[(&str, &str)], text: &[u8]) -> Result<Vec<String>> {
        let mut all: Option<Vec<String>> = None;
        for piece in [1, 2, 3, 7, text.len().max(1)] {
            let mut reader = Reader::new(&copy(options), vec!["a".into(), "b".into()])?;
            let (mut record, mut shown) = (Record::default(), Vec::new());
            let mut take = |reader: &mut Reader, last| -> Result<()> {
                while reader.next(&mut record, last)? {
                    let field = |field: Option<&[u8]>| {
                        field.map_or("NULL".into(), |f| format!("{:?}", String::from_utf8_lossy(f)))
                    };
                    shown.push(record.fields().map(field).collect::<Vec<_>>().join(" "));
                }
                Ok(())
            };
            for bytes in text.chunks(piece) {
                reader.push(bytes)?;
                take(&mut reader, false)?;
            }
            take(&mut reader, true)?;
            assert_eq!(all.get_or_insert_with(|| shown.clone()), &shown, "in pieces of {piece}");
        }
        Ok(all.unwrap_or_default())
    }

    #[test]
    fn text_records() {
        let found = records(&[], b"1\tone\n2\t\\N\n\\\\N\t\\t\\n\\x41\\101\\\t\\\nx\n\t\n3\tlast").unwrap();
        assert_eq!(
            found,
            [r#""1" "one""#, r#""2" NULL"#, r#""\\N" "\t\nAA\t\nx""#, r#""" """#, r#""3" "last""#,]
        );
        assert_eq!(records(&[], b"1\t2\r\n\\.\n").unwrap(), [r#""1" "2""#]);
        assert_eq!(records(&[("delimiter", "|"), ("null", "-")], b"-|a\n").unwrap(), [r#"NULL "a""#]);
        assert!(records(&[], b"\xff\t1\n").is_err());
        assert!(records(&[], b"").unwrap().is_empty());
    }

    #[test]
    fn csv_records() {
        let csv = ("format", "csv");
        let text = b"a,b\r\n1,\"x,\"\"y\"\"\r\nz\"\n,\"\"\n\"NULL\", 2\n";
        let found = records(&[csv, ("header", "match")], text).unwrap();
        assert_eq!(found, [r#""1" "x,\"y\"\r\nz""#, r#"NULL """#, r#""NULL" " 2""#]);
        assert_eq!(
            records(&[csv, ("quote", "'"), ("escape", "\\")], b"'it\\'s',2\n").unwrap(),
            [r#""it's" "2""#]
        );
        assert!(records(&[csv, ("header", "match")], b"a,c\n1,2\n").is_err());
        assert!(records(&[csv], b"\"a,2\n").is_err());
    }

    #[test]
    fn binary_records() {
        let mut bytes = [SIGNATURE, &[0; 8]].concat();
        bytes.extend_from_slice(&[0, 2, 0, 0, 0, 1, b'x', 0xff, 0xff, 0xff, 0xff]);
        assert!(records(&[("format", "binary")], &bytes).is_err(), "without its end");
        bytes.extend_from_slice(&[0xff, 0xff]);
        assert_eq!(records(&[("format", "binary")], &bytes).unwrap(), [r#""x" NULL"#]);
        assert!(records(&[("format", "binary")], b"not binary at all, but text").is_err());
    }
}
