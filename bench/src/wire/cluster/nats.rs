//! A client of NATS on one blocking connection: requests of JetStream's API, and appends under the condition that a
//! given message is the newest one, which is how the leader of a cluster appends.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ropewalk_bench::harness::worker::Latencies;
use serde_json::{Value, json};

/// Subject of all responses: a connection waits for one kind of response at a time.
const INBOX: &str = "_INBOX.bench";
const OPTIONS: &str = r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;

/// A connection.
pub(crate) struct Nats {
    stream: TcpStream,
    /// Bytes that were received; those before `used` belong to earlier messages.
    input: Vec<u8>,
    used: usize,
}

/// State of a stream.
pub(crate) struct StreamState {
    /// Number of the newest message.
    pub(crate) last: u64,
    /// Stored bytes of all messages, with their headers.
    pub(crate) bytes: u64,
    /// Name of the server that leads it.
    pub(crate) leader: String,
    /// Every replica has what the leader has.
    pub(crate) is_current: bool,
}

/// Result of appends.
pub(crate) struct Appended {
    /// Messages a second.
    pub(crate) rate: f64,
    pub(crate) latencies: Latencies,
}

impl Nats {
    /// Connects; a response may take `patience`.
    pub(crate) fn connect(address: &str, patience: Duration) -> Result<Self> {
        let mut stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(format!("CONNECT {OPTIONS}\r\nSUB {INBOX} 1\r\nPING\r\n").as_bytes())?;
        let mut nats = Self { stream, input: Vec::new(), used: 0 };
        while nats.line()? != "PONG" {}
        Ok(nats)
    }

    /// The answer of JetStream's API to `verb` with an object.
    pub(crate) fn api(&mut self, verb: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let request = format!("PUB $JS.API.{verb} {INBOX} {}\r\n{body}\r\n", body.len());
        self.stream.write_all(request.as_bytes())?;
        let answer = self.message()?;
        // Without a subscriber, NATS answers with an empty message.
        ensure!(!answer.is_empty(), "{verb}: JetStream does not respond");
        let answer: Value = serde_json::from_slice(&answer).with_context(|| verb.to_owned())?;
        ensure!(answer.get("error").is_none(), "{verb}: {answer}");
        Ok(answer)
    }

    /// Creates a stream with three replicas, for [`Nats::append`]. Settings are those of a cluster's stream.
    pub(crate) fn create(&mut self, stream: &str) -> Result<()> {
        let settings = json!({
            "name": stream, "subjects": [subject(stream)], "storage": "file", "num_replicas": 3,
            "retention": "limits", "discard": "new", "deny_delete": true, "max_msgs": -1, "max_bytes": -1,
        });
        self.api(&format!("STREAM.CREATE.{stream}"), &settings).map(drop)
    }

    /// State of a stream.
    pub(crate) fn state(&mut self, stream: &str) -> Result<StreamState> {
        let info = self.api(&format!("STREAM.INFO.{stream}"), &json!({}))?;
        let number = |path: &str| info.pointer(path).and_then(Value::as_u64);
        let replicas = info.pointer("/cluster/replicas").and_then(Value::as_array);
        let replicas = replicas.with_context(|| format!("stream {stream} has one replica: {info}"))?;
        let current = |replica: &Value| {
            replica.get("current") == Some(&Value::Bool(true))
                && replica.get("offline") != Some(&Value::Bool(true))
        };
        let leader = info.pointer("/cluster/leader").and_then(Value::as_str).unwrap_or_default();
        Ok(StreamState {
            last: number("/state/last_seq").context("a stream without its newest message")?,
            bytes: number("/state/bytes").context("a stream without its bytes")?,
            leader: leader.to_owned(),
            is_current: !leader.is_empty() && replicas.iter().all(current),
        })
    }

    /// Appends messages of `bytes` for `time`, at most `window` of them unconfirmed, each expecting the one before it.
    pub(crate) fn append(
        &mut self,
        stream: &str,
        bytes: usize,
        window: usize,
        time: Duration,
    ) -> Result<Appended> {
        let contents = vec![b'x'; bytes];
        let first = self.state(stream)?.last;
        let (mut newest, mut sent) = (first, VecDeque::with_capacity(window));
        let (mut latencies, mut output, begin) = (Latencies::default(), Vec::new(), Instant::now());
        loop {
            // Filled when all confirmations that have arrived are read, so that messages share packets.
            if self.used == self.input.len() && begin.elapsed() < time {
                output.clear();
                while sent.len() < window {
                    put(&mut output, stream, newest + sent.len() as u64, &contents)?;
                    sent.push_back(Instant::now());
                }
                self.stream.write_all(&output)?;
            }
            let Some(started) = sent.pop_front() else { break };
            let answer: Value = serde_json::from_slice(&self.message()?).context("a confirmation")?;
            newest += 1;
            ensure!(answer.get("seq").and_then(Value::as_u64) == Some(newest), "message {newest}: {answer}");
            latencies.record(started.elapsed());
        }
        Ok(Appended { rate: (newest - first) as f64 / begin.elapsed().as_secs_f64(), latencies })
    }

    /// Bytes that the stream stores for a message in addition to its contents.
    pub(crate) fn overhead(&mut self, stream: &str) -> Result<u64> {
        const BYTES: u64 = 1000;
        let before = self.state(stream)?;
        let appended = self.append(stream, BYTES as usize, 1, Duration::from_millis(100))?;
        let after = self.state(stream)?;
        let stored = (after.bytes - before.bytes).checked_div(appended.latencies.count());
        stored.and_then(|stored| stored.checked_sub(BYTES)).context("no message was stored")
    }

    /// Contents of the next message.
    fn message(&mut self) -> Result<Vec<u8>> {
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split(' ').collect();
            let (headers, total): (usize, usize) = match words.as_slice() {
                ["MSG", .., total] => (0, total.parse()?),
                ["HMSG", .., headers, total] => (headers.parse()?, total.parse()?),
                // About the connection.
                _ => continue,
            };
            while self.input.len() < self.used + total + 2 {
                self.more()?;
            }
            let contents = self.input.get(self.used + headers..self.used + total);
            let contents = contents.context("headers longer than their message")?.to_vec();
            self.used += total + 2;
            return Ok(contents);
        }
    }

    /// The next line of the protocol; pings are answered.
    fn line(&mut self) -> Result<String> {
        loop {
            let rest = self.input.get(self.used..).unwrap_or_default();
            let Some(length) = rest.windows(2).position(|two| two == b"\r\n") else {
                self.more()?;
                continue;
            };
            let line = String::from_utf8_lossy(rest.get(..length).unwrap_or_default()).into_owned();
            self.used += length + 2;
            if line.starts_with("-ERR") {
                bail!("NATS: {line}");
            }
            if line != "PING" {
                return Ok(line);
            }
            self.stream.write_all(b"PONG\r\n")?;
        }
    }

    fn more(&mut self) -> Result<()> {
        self.input.drain(..self.used);
        self.used = 0;
        let mut piece = [0; 64 << 10];
        let read = self.stream.read(&mut piece).context("waiting for NATS")?;
        ensure!(read > 0, "NATS closed the connection");
        self.input.extend_from_slice(piece.get(..read).unwrap_or_default());
        Ok(())
    }
}

fn subject(stream: &str) -> String {
    format!("{stream}.log.0123456789abcdef0123456789abcdef")
}

/// A message that the stream accepts only after message `expected`.
fn put(output: &mut Vec<u8>, stream: &str, expected: u64, contents: &[u8]) -> Result<()> {
    let headers = format!(
        "NATS/1.0\r\nNats-Expected-Last-Sequence: {expected}\r\nNats-Expected-Stream: {stream}\r\n\r\n"
    );
    let total = headers.len() + contents.len();
    write!(output, "HPUB {} {INBOX} {} {total}\r\n{headers}", subject(stream), headers.len())?;
    output.extend_from_slice(contents);
    output.extend_from_slice(b"\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A connection to a script that has sent `said` after the greeting.
    fn connected(said: &'static [u8]) -> (Nats, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let script = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"INFO {}\r\nPONG\r\n").unwrap();
            stream.write_all(said).unwrap();
            let lines = BufReader::new(stream).lines();
            lines.map_while(std::result::Result::ok).collect()
        });
        (Nats::connect(&address, Duration::from_secs(60)).unwrap(), script)
    }

    #[test]
    fn messages_with_and_without_headers_have_their_contents() {
        let said =
            b"MSG _INBOX.bench 1 3\r\nabc\r\nPING\r\nHMSG _INBOX.bench 1 12 14\r\nNATS/1.0\r\n\r\nde\r\n";
        let (mut nats, script) = connected(said);
        assert_eq!(nats.message().unwrap(), b"abc");
        assert_eq!(nats.message().unwrap(), b"de");
        drop(nats);
        assert!(script.join().unwrap().contains(&"PONG".to_owned()));
    }

    #[test]
    fn errors_of_server_and_api_are_errors() {
        let said = b"MSG _INBOX.bench 1 23\r\n{\"error\":{\"code\":404}} \r\n-ERR 'Slow Consumer'\r\n";
        let (mut nats, _script) = connected(said);
        let error = nats.api("STREAM.INFO.x", &json!({})).unwrap_err().to_string();
        assert!(error.contains("404"), "{error}");
        let error = nats.message().unwrap_err().to_string();
        assert!(error.contains("Slow Consumer"), "{error}");
    }

    #[test]
    fn message_names_the_one_that_it_expects() {
        let mut output = Vec::new();
        put(&mut output, "s", 7, b"abc").unwrap();
        let text = String::from_utf8(output).unwrap();
        let headers = "NATS/1.0\r\nNats-Expected-Last-Sequence: 7\r\nNats-Expected-Stream: s\r\n\r\n";
        let length = headers.len();
        let wanted = format!("HPUB {} {INBOX} {length} {}\r\n{headers}abc\r\n", subject("s"), length + 3);
        assert_eq!(text, wanted);
    }
}
