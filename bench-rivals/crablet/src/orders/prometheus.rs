//! Remote write 1.0 and one query, over a few connections.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// Connections that take writes in turn.
pub(crate) struct Prometheus {
    address: String,
    connections: Vec<Mutex<TcpStream>>,
    next: AtomicUsize,
}

impl Prometheus {
    pub(crate) async fn connect(address: &str, connections: usize) -> Result<Self> {
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await.context("connecting to Prometheus")?;
            stream.set_nodelay(true)?;
            open.push(Mutex::new(stream));
        }
        Ok(Self { address: address.to_owned(), connections: open, next: AtomicUsize::new(0) })
    }

    /// Writes the sample of an order. Prometheus responds before it syncs.
    pub(crate) async fn write(&self, client: i64, at_ms: i64, value: f64) -> Result<()> {
        let body = snap::raw::Encoder::new().compress_vec(&request(client, at_ms, value))?;
        let mut bytes = format!(
            "POST /api/v1/write HTTP/1.1\r\nhost: {}\r\ncontent-type: application/x-protobuf\r\n\
             content-encoding: snappy\r\nx-prometheus-remote-write-version: 0.1.0\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(&body);
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let connection = self.connections.get(place).context("no connection")?;
        let mut stream = connection.lock().await;
        stream.write_all(&bytes).await?;
        // A success has no body; after an error the connection is not used again.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(stream.read_buf(&mut head).await? > 0, "Prometheus closed the connection");
        }
        ensure!(head.starts_with(b"HTTP/1.1 204"), "Prometheus: {}", String::from_utf8_lossy(&head));
        Ok(())
    }

    /// Number of samples of a day before `at`, seconds since 1970.
    pub(crate) async fn samples(&self, at: i64) -> Result<i64> {
        let mut stream = TcpStream::connect(&self.address).await?;
        // sum(count_over_time(order_cents[1d]))
        let path = format!("/api/v1/query?query=sum%28count_over_time%28order_cents%5B1d%5D%29%29&time={at}");
        stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address).as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
        let body: serde_json::Value = serde_json::from_str(body)?;
        let value = body.pointer("/data/result/0/value/1").and_then(serde_json::Value::as_str);
        Ok(value.with_context(|| format!("no samples: {body}"))?.parse()?)
    }
}

/// A request of one series with one sample, not compressed.
fn request(client: i64, at_ms: i64, value: f64) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in [("__name__", "order_cents"), ("client", client.to_string().as_str())] {
        let mut label = Vec::new();
        put_bytes(&mut label, 1, name.as_bytes());
        put_bytes(&mut label, 2, value.as_bytes());
        put_bytes(&mut series, 1, &label);
    }
    // Field 1 is a double, field 2 an integer.
    let mut sample = vec![1 << 3 | 1];
    sample.extend_from_slice(&value.to_le_bytes());
    sample.push(2 << 3);
    put_varint(&mut sample, at_ms.cast_unsigned());
    put_bytes(&mut series, 2, &sample);
    let mut out = Vec::new();
    put_bytes(&mut out, 1, &series);
    out
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_the_message_of_remote_write() {
        let bytes = request(3, 300, 1.0);
        assert_eq!(&bytes[..4], &[10, 52, 10, 23]);
        assert_eq!(&bytes[bytes.len() - 14..], &[18, 12, 9, 0, 0, 0, 0, 0, 0, 240, 63, 16, 172, 2]);
    }
}
