//! A server that speaks NATS's protocol and answers as a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::servers::{STREAM, loopback};

/// The subject of the scripted stream.
pub(crate) const SUBJECT: &str = "LOG.log.000102030405060708090a0b0c0d0e0f";

/// A message to the client.
pub(crate) struct Sent {
    /// The subject of the subscription that receives it.
    to: String,
    subject: String,
    reply: String,
    /// Lines after `NATS/1.0`.
    headers: Option<String>,
    payload: Vec<u8>,
}

impl Sent {
    fn new(to: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            to: to.into(),
            subject: to.into(),
            reply: String::new(),
            headers: None,
            payload: payload.into(),
        }
    }

    /// The delivery `number` of a consumer: the entry `entry`.
    pub(crate) fn delivery(to: &str, entry: u64, number: u64, pending: u64) -> Self {
        let reply = format!("$JS.ACK.LOG.c.1.{entry}.{number}.1764240000000000000.{pending}");
        Self { subject: SUBJECT.into(), reply, ..Self::new(to, entry.to_string()) }
    }

    /// A heartbeat after the delivery `last`.
    pub(crate) fn heartbeat(to: &str, last: u64) -> Self {
        let headers = format!(" 100 Idle Heartbeat\r\nNats-Last-Consumer: {last}\r\nNats-Last-Stream: 0\r\n");
        Self { headers: Some(headers), ..Self::new(to, "") }
    }

    pub(crate) fn subject(self, subject: &str) -> Self {
        Self { subject: subject.into(), ..self }
    }
}

/// A message of the client.
pub(crate) struct Request {
    pub(crate) subject: String,
    reply: String,
    pub(crate) payload: Vec<u8>,
}

impl Request {
    /// The answer to it.
    pub(crate) fn answer(&self, value: &Value) -> Sent {
        Sent::new(&self.reply, value.to_string())
    }

    /// The subject to which a new consumer delivers, and the number of its first entry.
    pub(crate) fn consumer(&self) -> Option<(String, u64)> {
        let body: Value = serde_json::from_slice(&self.payload).ok()?;
        let config = body.get("config").filter(|_| self.subject.starts_with("$JS.API.CONSUMER.CREATE."))?;
        Some((config["deliver_subject"].as_str()?.to_owned(), config["opt_start_seq"].as_u64()?))
    }

    pub(crate) fn is_info(&self) -> bool {
        self.subject == format!("$JS.API.STREAM.INFO.{STREAM}")
    }
}

/// The answer of a stream with these entries.
pub(crate) fn info(first: u64, last: u64) -> Value {
    json!({
        "config": {
            "name": STREAM, "subjects": [SUBJECT], "storage": "file", "retention": "limits", "discard": "new",
            "deny_delete": true, "num_replicas": 1,
        },
        "created": "2026-11-27T12:00:00Z",
        "state": {"first_seq": first, "last_seq": last},
    })
}

/// Messages that answer a message of the client.
pub(crate) type Script = dyn FnMut(&Request) -> Vec<Sent> + Send;

/// Starts a server of this version; returns its address. It lives as long as the process.
pub(crate) fn serve(version: &str, script: impl FnMut(&Request) -> Vec<Sent> + Send + 'static) -> String {
    let address = format!("{}.1", loopback());
    let listener = TcpListener::bind((address.as_str(), 4222)).unwrap();
    let info = json!({"server_id": "S", "server_name": "scripted", "version": version, "headers": true,
        "max_payload": 1_048_576, "proto": 1, "jetstream": true});
    let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(script));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (info, script) = (info.to_string(), script.clone());
            thread::spawn(move || connection(stream.unwrap(), &info, &script));
        }
    });
    address
}

fn connection(mut stream: TcpStream, info: &str, script: &Mutex<Script>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    write!(stream, "INFO {info}\r\n").unwrap();
    let mut subscriptions: Vec<(String, String)> = Vec::new();
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let sent = match *words {
            ["PING"] => stream.write_all(b"PONG\r\n").map(|()| vec![]),
            ["SUB", subject, number] => {
                subscriptions.push((subject.trim_end_matches('*').to_owned(), number.to_owned()));
                Ok(vec![])
            }
            [verb @ ("PUB" | "HPUB"), subject, ref rest @ ..] => {
                let mut body = vec![0; rest.last().unwrap().parse::<usize>().unwrap() + 2];
                lines.read_exact(&mut body).unwrap();
                body.truncate(body.len() - 2);
                let numbers = if verb == "HPUB" { 2 } else { 1 };
                let reply = rest[..rest.len() - numbers].first().copied().unwrap_or_default().to_owned();
                if verb == "HPUB" {
                    body.drain(..rest[rest.len() - 2].parse::<usize>().unwrap());
                }
                Ok(script.lock()(&Request { subject: subject.to_owned(), reply, payload: body }))
            }
            _ => Ok(vec![]),
        };
        for message in sent.unwrap_or_default() {
            let Some((_, number)) = subscriptions.iter().find(|(subject, _)| message.to.starts_with(subject))
            else {
                continue;
            };
            let Sent { subject, reply, headers, payload, .. } = message;
            let headers = headers.map(|lines| format!("NATS/1.0{lines}\r\n"));
            let head = match &headers {
                Some(headers) => {
                    format!(
                        "HMSG {subject} {number} {reply} {} {}\r\n{headers}",
                        headers.len(),
                        headers.len() + payload.len()
                    )
                }
                None => format!("MSG {subject} {number} {reply} {}\r\n", payload.len()),
            };
            stream.write_all(&[head.as_bytes(), &payload, b"\r\n"].concat()).unwrap();
        }
        line.clear();
    }
}
