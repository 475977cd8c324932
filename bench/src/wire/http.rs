//! The HTTP/1.1 client of `mytsdb`, `cluster` and `console`: one connection, one request at a time, blocking. It is minimal, because
//! it shares the processors with the server that it measures.

use std::io::{IoSlice, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Longer than any response takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A persistent connection.
pub(crate) struct Http {
    stream: TcpStream,
    host: String,
    /// Bytes of the response that is being read.
    input: Vec<u8>,
    /// The body of the latest response.
    pub(crate) body: Vec<u8>,
}

impl Http {
    pub(crate) fn connect(host: &str) -> Result<Self> {
        let stream = TcpStream::connect(host).with_context(|| format!("connecting to {host}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, host: host.to_owned(), input: Vec::new(), body: Vec::new() })
    }

    /// Sends a GET for `path` and returns the status; the body is in [`Http::body`].
    pub(crate) fn get(&mut self, path: &str) -> Result<u16> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        self.stream.write_all(head.as_bytes())?;
        self.answer()
    }

    /// Sends an empty POST to `path`.
    pub(crate) fn post(&mut self, path: &str) -> Result<u16> {
        let head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\n\r\n", self.host);
        self.stream.write_all(head.as_bytes())?;
        self.answer()
    }

    /// Sends a POST with a JSON body to `path`.
    pub(crate) fn post_json(&mut self, path: &str, body: &str) -> Result<u16> {
        let kind = "content-type: application/json";
        let (host, length) = (&self.host, body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes())?;
        self.answer()
    }

    /// Sends a compressed request of remote write 1.0.
    pub(crate) fn write(&mut self, body: &[u8]) -> Result<u16> {
        let head = format!(
            "POST /api/v1/write HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-protobuf\r\n\
             content-encoding: snappy\r\nx-prometheus-remote-write-version: 0.1.0\r\ncontent-length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        let mut sent = self.stream.write_vectored(&[IoSlice::new(head.as_bytes()), IoSlice::new(body)])?;
        for part in [head.as_bytes(), body] {
            let rest = part.get(sent.min(part.len())..).unwrap_or_default();
            self.stream.write_all(rest)?;
            sent = sent.saturating_sub(part.len());
        }
        self.answer()
    }

    fn answer(&mut self) -> Result<u16> {
        self.input.clear();
        self.body.clear();
        let head = loop {
            if let Some(at) = find(&self.input, b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let text = std::str::from_utf8(self.input.get(..head).unwrap_or_default())?.to_ascii_lowercase();
        let status = text.split(' ').nth(1).context("no status")?.parse()?;
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("transfer-encoding:") == Some("chunked") {
            self.chunks(head)?;
        } else {
            let length: usize = field("content-length:").map_or(Ok(0), str::parse)?;
            while self.input.len() < head + length {
                self.more()?;
            }
            self.body.extend_from_slice(self.input.get(head..head + length).unwrap_or_default());
        }
        Ok(status)
    }

    fn chunks(&mut self, mut at: usize) -> Result<()> {
        loop {
            let line = loop {
                match find(self.input.get(at..).unwrap_or_default(), b"\r\n") {
                    Some(length) => break length,
                    None => self.more()?,
                }
            };
            let size = std::str::from_utf8(self.input.get(at..at + line).unwrap_or_default())?;
            let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)?;
            at += line + 2;
            while self.input.len() < at + size + 2 {
                self.more()?;
            }
            self.body.extend_from_slice(self.input.get(at..at + size).unwrap_or_default());
            at += size + 2;
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn more(&mut self) -> Result<()> {
        let mut piece = [0; 64 << 10];
        let read = self.stream.read(&mut piece)?;
        if read == 0 {
            bail!("the server closed the connection");
        }
        self.input.extend_from_slice(piece.get(..read).unwrap_or_default());
        Ok(())
    }

    /// Like [`Http::get`]; the status must be 200.
    pub(crate) fn ask(&mut self, path: &str) -> Result<()> {
        let status = self.get(path)?;
        ensure!(status == 200, "{path}: {status}: {}", String::from_utf8_lossy(&self.body));
        Ok(())
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Text as a part of a query string.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
