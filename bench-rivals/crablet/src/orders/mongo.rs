//! A client of MongoDB's protocol with a few connections: commands as OP_MSG.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use bson::{Document, doc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

const OP_MSG: i32 = 2013;
/// Length, request, response to, operation; then flags, and the kind of the one section.
const HEAD_BYTES: usize = 16 + 4 + 1;
const DATABASE: &str = "shop";

/// Connections that take commands in turn.
pub(crate) struct Mongo {
    connections: Vec<Mutex<TcpStream>>,
    next: AtomicUsize,
}

impl Mongo {
    pub(crate) async fn connect(address: &str, connections: usize) -> Result<Self> {
        let mut open = Vec::with_capacity(connections);
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await.context("connecting to MongoDB")?;
            stream.set_nodelay(true)?;
            open.push(Mutex::new(stream));
        }
        Ok(Self { connections: open, next: AtomicUsize::new(0) })
    }

    /// Inserts a document; it is in the journal on disk.
    pub(crate) async fn insert(&self, collection: &str, document: Document) -> Result<()> {
        let concern = doc! { "w": 1_i32, "j": true };
        let insert = doc! { "insert": collection, "documents": [document], "writeConcern": concern };
        let answer = self.command(insert).await?;
        ensure!(!answer.contains_key("writeErrors"), "MongoDB: {answer}");
        Ok(())
    }

    /// Runs a command that returns a cursor; the first document.
    pub(crate) async fn first(&self, command: Document) -> Result<Option<Document>> {
        let answer = self.command(command).await?;
        let first = answer.get_document("cursor")?.get_array("firstBatch")?.first();
        Ok(first.and_then(|first| first.as_document()).cloned())
    }

    async fn command(&self, mut command: Document) -> Result<Document> {
        command.insert("$db", DATABASE);
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let connection = self.connections.get(place).context("no connection")?;
        let mut stream = connection.lock().await;
        stream.write_all(&message(&command)?).await?;
        let length = stream.read_i32_le().await?;
        let mut rest = vec![0; usize::try_from(length)?.checked_sub(4).context("a short message")?];
        stream.read_exact(&mut rest).await?;
        let body = rest.get(HEAD_BYTES - 4..).context("a short message")?;
        let answer = Document::from_reader(body)?;
        let is_ok = answer.get_f64("ok").is_ok_and(|ok| ok == 1.0);
        ensure!(is_ok, "MongoDB: {answer}");
        Ok(answer)
    }
}

/// A command as a message.
fn message(command: &Document) -> Result<Vec<u8>> {
    let body = command.to_vec()?;
    let length = i32::try_from(HEAD_BYTES + body.len())?;
    let mut out = Vec::with_capacity(HEAD_BYTES + body.len());
    for number in [length, 1, 0, OP_MSG, 0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.push(0);
    out.extend_from_slice(&body);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_announces_its_length_and_one_section() {
        let bytes = message(&doc! { "ping": 1_i32 }).unwrap();
        assert_eq!(bytes.len(), 21 + 15);
        assert_eq!(&bytes[..4], &36_i32.to_le_bytes());
        assert_eq!(&bytes[12..21], &[221, 7, 0, 0, 0, 0, 0, 0, 0]);
    }
}
