//! Rows of COPY TO as bytes of one of its formats.

use ropewalk::tables::Value;

use crate::error::Result;
use crate::syntax::copy_statement::{CopyStatement, Format, Header};
use crate::types::binary_format::put_sized;
use crate::types::text_format;
use crate::types::zone::Zone;

pub(crate) struct Writer {
    format: Format,
    header: bool,
    delimiter: u8,
    null: String,
    quote: u8,
    escape: u8,
    quoted: Vec<bool>,
    columns: Vec<String>,
    /// Time zone in which timestamps are written.
    zone: Zone,
    /// Buffer for the text of one value.
    one: String,
}

impl Writer {
    pub(crate) fn new(copy: &CopyStatement, columns: Vec<String>, zone: Zone) -> Result<Self> {
        Ok(Self {
            format: copy.format,
            header: copy.header != Header::None,
            delimiter: copy.delimiter(),
            null: copy.null().to_owned(),
            quote: copy.quote(),
            escape: copy.escape(),
            quoted: copy.force_quote.among(&columns)?,
            columns,
            zone,
            one: String::new(),
        })
    }

    /// Writes the header before the first row.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if self.format == Format::Binary {
            out.extend_from_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
        } else if self.header {
            let columns = std::mem::take(&mut self.columns);
            for (place, column) in columns.iter().enumerate() {
                self.delimit(place, out);
                if self.format == Format::Csv {
                    self.csv(column, false, columns.len(), out);
                } else {
                    self.escaped(column, out);
                }
            }
            out.push(b'\n');
            self.columns = columns;
        }
    }

    pub(crate) fn row(&mut self, row: &[Value<'_>], out: &mut Vec<u8>) {
        if self.format == Format::Binary {
            out.extend_from_slice(&(row.len() as u16).to_be_bytes());
            row.iter().for_each(|value| put_sized(value, out));
            return;
        }
        for (place, value) in row.iter().enumerate() {
            self.delimit(place, out);
            if value.is_null() {
                out.extend_from_slice(self.null.as_bytes());
                continue;
            }
            let mut one = std::mem::take(&mut self.one);
            one.clear();
            text_format::push(value, &self.zone, &mut one);
            if self.format == Format::Csv {
                let forced = self.quoted.get(place).copied().unwrap_or(false);
                self.csv(&one, forced, row.len(), out);
            } else {
                self.escaped(&one, out);
            }
            self.one = one;
        }
        out.push(b'\n');
    }

    /// Writes the trailer after the last row.
    pub(crate) fn end(&self, out: &mut Vec<u8>) {
        if self.format == Format::Binary {
            out.extend_from_slice(&[0xff, 0xff]);
        }
    }

    fn delimit(&self, place: usize, out: &mut Vec<u8>) {
        if place > 0 {
            out.push(self.delimiter);
        }
    }

    fn escaped(&self, text: &str, out: &mut Vec<u8>) {
        for byte in text.bytes() {
            let letter = match byte {
                b'\\' => b'\\',
                8 => b'b',
                12 => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                11 => b'v',
                byte if byte == self.delimiter => byte,
                plain => {
                    out.push(plain);
                    continue;
                }
            };
            out.extend_from_slice(&[b'\\', letter]);
        }
    }

    fn csv(&self, text: &str, forced: bool, columns: usize, out: &mut Vec<u8>) {
        let special =
            |byte: u8| byte == self.delimiter || byte == self.quote || matches!(byte, b'\n' | b'\r');
        // A lone `\.` would be read as the end of the data.
        let quotes =
            forced || text == self.null || text.bytes().any(special) || columns == 1 && text == "\\.";
        if !quotes {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        out.push(self.quote);
        for byte in text.bytes() {
            if byte == self.quote || byte == self.escape {
                out.push(self.escape);
            }
            out.push(byte);
        }
        out.push(self.quote);
    }
}
