//! The HTTP/1.1 client of `one-tx` and `cluster`: one connection, one request at a time. Where clients and servers
//! share the processors, all clients are tasks of one thread, so that they take as little as possible.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

const PIECE_BYTES: usize = 16 << 10;

/// A persistent connection.
pub(crate) struct Connection {
    stream: TcpStream,
    host: String,
    piece: Vec<u8>,
    /// Bytes of the response that is being read.
    input: Vec<u8>,
}

impl Connection {
    pub(crate) async fn connect(host: &str) -> Result<Self> {
        let stream = TcpStream::connect(host).await.with_context(|| format!("connecting to {host}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, host: host.to_owned(), piece: vec![0; PIECE_BYTES], input: Vec::new() })
    }

    /// A request with a JSON body, for [`Connection::send`].
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let (host, length) = (&self.host, body.len());
        let kind = "content-type: application/json";
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    }

    /// A GET with further headers, each with its end of line, for [`Connection::send`].
    pub(crate) fn get(&self, path: &str, headers: &str) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", self.host).into_bytes()
    }

    /// Sends a request, and returns the status and body of the response.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<(u16, &str)> {
        self.input.clear();
        let mut rest = request;
        while !rest.is_empty() {
            let stream = &mut self.stream;
            let sent = poll_fn(|context| Pin::new(&mut *stream).poll_write(context, rest)).await?;
            rest = rest.get(sent..).unwrap_or_default();
        }
        let (status, body) = loop {
            if let Some(found) = complete(&self.input)? {
                break found;
            }
            self.more().await?;
        };
        Ok((status, std::str::from_utf8(self.input.get(body).unwrap_or_default())?))
    }

    /// Sends a request with a JSON body; the status must be 2xx.
    pub(crate) async fn call(&mut self, method: &str, path: &str, body: &str) -> Result<&str> {
        let request = self.request(method, path, body);
        let (status, answer) = self.send(&request).await?;
        ensure!((200..300).contains(&status), "{method} {path}: {status}: {answer}");
        Ok(answer)
    }

    async fn more(&mut self) -> Result<()> {
        let (stream, piece) = (&mut self.stream, &mut self.piece);
        let mut piece = ReadBuf::new(piece);
        poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut piece)).await?;
        ensure!(!piece.filled().is_empty(), "the server closed the connection");
        self.input.extend_from_slice(piece.filled());
        Ok(())
    }
}

/// Status and place of the body of a response; `None` while parts are missing.
fn complete(input: &[u8]) -> Result<Option<(u16, Range<usize>)>> {
    let Some(end) = input.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(input.get(..end).unwrap_or_default())?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = length.context("a response without its length")?;
    let body = end + 4..end + 4 + length.trim().parse::<usize>()?;
    Ok((input.len() >= body.end).then_some((status, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_complete_with_its_last_byte() {
        let text = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(complete(text).unwrap(), Some((201, 43..46)));
        for cut in 0..text.len() {
            assert_eq!(complete(&text[..cut]).unwrap(), None, "{cut}");
        }
        complete(b"HTTP/1.1 200 OK\r\n\r\n").unwrap_err();
    }
}
