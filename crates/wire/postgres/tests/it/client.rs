//! A minimal driver: builds messages, sends them over a pipe, reads replies.

use ropewalk::Database;
use ropewalk_postgres::{Postgres, PostgresSettings};
use ropewalk_wire::{Service, ServiceSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// A server over a fresh database.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) service: Service,
    pub(crate) postgres: Postgres,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(PostgresSettings::default())
    }

    pub(crate) fn with(settings: PostgresSettings) -> Self {
        Self::over(Database::in_memory().unwrap(), settings)
    }

    pub(crate) fn over(db: Database, settings: PostgresSettings) -> Self {
        Self::with_service(db, ServiceSettings::default(), settings)
    }

    pub(crate) fn with_service(db: Database, service: ServiceSettings, settings: PostgresSettings) -> Self {
        let service = Service::new(db, service).unwrap();
        Self { postgres: Postgres::new(service.clone(), settings), service }
    }

    /// A connection that has sent nothing.
    pub(crate) fn dial(&self) -> Client {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let postgres = self.postgres.clone();
        tokio::spawn(async move { postgres.serve(theirs, Some("127.0.0.1:5".parse().unwrap()), None).await });
        Client { stream: ours }
    }

    /// A connection after login.
    pub(crate) async fn connect(&self) -> Client {
        let mut client = self.dial();
        client.start(&[("user", "ann")]).await;
        let answers = client.until_ready().await;
        assert_eq!(answers[0], Answer { tag: 'R', body: vec![0; 4] });
        client
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: DuplexStream,
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) tag: char,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A field of an error or a notice.
    pub(crate) fn field(&self, name: u8) -> Option<String> {
        let fields = self.body.split(|byte| *byte == 0);
        fields
            .filter_map(|field| field.split_first())
            .find(|(found, _)| **found == name)
            .map(|(_, text)| String::from_utf8(text.to_vec()).unwrap())
    }

    /// The values of a row.
    pub(crate) fn values(&self) -> Vec<Option<Vec<u8>>> {
        assert_eq!(self.tag, 'D');
        let mut at = 2;
        let mut values = Vec::new();
        while at < self.body.len() {
            let length = i32::from_be_bytes(self.body[at..at + 4].try_into().unwrap());
            at += 4;
            values.push((length >= 0).then(|| {
                let value = self.body[at..at + length as usize].to_vec();
                at += length as usize;
                value
            }));
        }
        values
    }

    /// A readable line.
    pub(crate) fn line(&self) -> String {
        let text = || String::from_utf8_lossy(&self.body).trim_end_matches('\0').to_owned();
        match self.tag {
            'D' => {
                let show = |value: Option<Vec<u8>>| {
                    value.map_or("NULL".to_owned(), |value| String::from_utf8_lossy(&value).into_owned())
                };
                self.values().into_iter().map(show).collect::<Vec<_>>().join("|")
            }
            'C' => text(),
            'E' => format!("ERROR {}: {}", self.field(b'C').unwrap(), self.field(b'M').unwrap()),
            'N' => format!("{} {}", self.field(b'S').unwrap(), self.field(b'M').unwrap()),
            'Z' => format!("ready {}", text()),
            'T' => "columns".to_owned(),
            's' => "suspended".to_owned(),
            'A' => {
                format!("heard {}", String::from_utf8_lossy(&self.body[4..]).replace('\0', " ").trim_end())
            }
            'I' => "empty".to_owned(),
            '1' => "parsed".to_owned(),
            '2' => "bound".to_owned(),
            '3' => "closed".to_owned(),
            'n' => "no rows".to_owned(),
            't' => "parameters".to_owned(),
            'S' => format!("setting {}", text().replace('\0', "=")),
            tag => format!("{tag}?"),
        }
    }
}

pub(crate) fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend((body.len() as i32 + 4).to_be_bytes());
    message.extend(body);
    message
}

pub(crate) fn texts(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.bytes().chain([0])).collect()
}

/// Messages of the extended protocol.
pub(crate) fn parse(name: &str, sql: &str) -> Vec<u8> {
    framed(b'P', &[texts(&[name, sql]), vec![0, 0]].concat())
}

/// Text parameters, text results.
pub(crate) fn bind(portal: &str, statement: &str, values: &[Option<&str>]) -> Vec<u8> {
    let mut body = texts(&[portal, statement]);
    body.extend([0, 0]);
    body.extend((values.len() as i16).to_be_bytes());
    for value in values {
        match value {
            None => body.extend((-1_i32).to_be_bytes()),
            Some(value) => {
                body.extend((value.len() as i32).to_be_bytes());
                body.extend(value.as_bytes());
            }
        }
    }
    body.extend([0, 0]);
    framed(b'B', &body)
}

pub(crate) fn execute(portal: &str, rows: i32) -> Vec<u8> {
    framed(b'E', &[texts(&[portal]), rows.to_be_bytes().to_vec()].concat())
}

pub(crate) fn describe(kind: u8, name: &str) -> Vec<u8> {
    framed(b'D', &[vec![kind], texts(&[name])].concat())
}

pub(crate) fn sync() -> Vec<u8> {
    framed(b'S', &[])
}

pub(crate) fn startup(settings: &[(&str, &str)]) -> Vec<u8> {
    let mut body = (3_i32 << 16).to_be_bytes().to_vec();
    for (name, value) in settings {
        body.extend(texts(&[name, value]));
    }
    body.push(0);
    let mut message = (body.len() as i32 + 4).to_be_bytes().to_vec();
    message.extend(body);
    message
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn start(&mut self, settings: &[(&str, &str)]) {
        self.send(&startup(settings)).await;
    }

    /// `None`: the server has disconnected.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = i32::from_be_bytes(head[1..].try_into().unwrap());
        let mut body = vec![0; length as usize - 4];
        self.stream.read_exact(&mut body).await.ok()?;
        Some(Answer { tag: head[0].into(), body })
    }

    pub(crate) async fn until_ready(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        loop {
            let answer = self.answer().await.expect("the server has hung up");
            answers.push(answer.clone());
            if answer.tag == 'Z' {
                return answers;
            }
        }
    }

    /// Sends messages that end with one replied to by ReadyForQuery; returns lines.
    pub(crate) async fn lines(&mut self, bytes: &[u8]) -> Vec<String> {
        self.send(bytes).await;
        self.until_ready().await.iter().map(Answer::line).collect()
    }

    /// A simple query; the lines without descriptions and settings.
    pub(crate) async fn query(&mut self, sql: &str) -> Vec<String> {
        let lines = self.lines(&framed(b'Q', &texts(&[sql]))).await;
        lines.into_iter().filter(|line| line != "columns" && !line.starts_with("setting")).collect()
    }

    /// The last message of the server.
    pub(crate) async fn last(&mut self) -> Answer {
        let mut last = None;
        while let Some(answer) = self.answer().await {
            last = Some(answer);
        }
        last.expect("the server said nothing")
    }
}
