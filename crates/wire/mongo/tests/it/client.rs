//! A minimal driver: builds messages, sends them over a pipe, reads replies.

use bson::{Document, doc};
use ropewalk::Database;
use ropewalk_mongo::{Mongo, MongoSettings};
use ropewalk_wire::{Service, ServiceSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

pub(crate) const MSG: i32 = 2013;

/// A server over a fresh database.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) service: Service,
    pub(crate) mongo: Mongo,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::over(Database::in_memory().unwrap())
    }

    pub(crate) fn over(db: Database) -> Self {
        let service = Service::new(db, ServiceSettings::default()).unwrap();
        Self { mongo: Mongo::new(service.clone(), MongoSettings::default()), service }
    }

    pub(crate) fn connect(&self) -> Client {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let mongo = self.mongo.clone();
        let local = "127.0.0.1:27017".parse().unwrap();
        tokio::spawn(
            async move { mongo.serve(theirs, Some("127.0.0.1:5".parse().unwrap()), Some(local)).await },
        );
        Client { stream: ours, id: 0 }
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: DuplexStream,
    pub(crate) id: i32,
}

pub(crate) fn framed(id: i32, opcode: i32, payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for word in [payload.len() as i32 + 16, id, 0, opcode] {
        message.extend(word.to_le_bytes());
    }
    message.extend(payload);
    message
}

/// The payload of an OP_MSG.
pub(crate) fn message(flags: u32, body: &Document) -> Vec<u8> {
    let mut payload = flags.to_le_bytes().to_vec();
    payload.push(0);
    payload.extend(body.to_vec().unwrap());
    payload
}

/// A section with a sequence of documents.
pub(crate) fn sequence(name: &str, documents: &[Document]) -> Vec<u8> {
    let mut inside = name.as_bytes().to_vec();
    inside.push(0);
    documents.iter().for_each(|document| inside.extend(document.to_vec().unwrap()));
    let mut section = vec![1];
    section.extend((inside.len() as i32 + 4).to_le_bytes());
    section.extend(inside);
    section
}

/// A reply: opcode, its id, the id it responds to, payload.
pub(crate) struct Answer {
    pub(crate) id: i32,
    pub(crate) opcode: i32,
    pub(crate) to: i32,
    pub(crate) payload: Vec<u8>,
}

impl Answer {
    pub(crate) fn document(&self) -> Document {
        let at = if self.opcode == MSG { 5 } else { 20 };
        Document::from_reader(&self.payload[at..]).unwrap()
    }
}

impl Client {
    pub(crate) async fn send(&mut self, opcode: i32, payload: &[u8]) {
        self.id += 1;
        self.stream.write_all(&framed(self.id, opcode, payload)).await.unwrap();
    }

    /// `None`: the server has disconnected.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).await.ok()?;
        let word = |at: usize| i32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let mut payload = vec![0; word(0) as usize - 16];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some(Answer { id: word(4), opcode: word(12), to: word(8), payload })
    }

    /// Runs a command on database `app`.
    pub(crate) async fn run(&mut self, mut command: Document) -> Document {
        if command.get("$db").is_none() {
            command.insert("$db", "app");
        }
        self.send(MSG, &message(0, &command)).await;
        let answer = self.answer().await.unwrap();
        assert_eq!((answer.opcode, answer.to), (MSG, self.id));
        answer.document()
    }

    /// Runs a command that has to succeed.
    pub(crate) async fn ok(&mut self, command: Document) -> Document {
        let answer = self.run(command.clone()).await;
        assert_eq!(answer.get_f64("ok").unwrap(), 1.0, "{command}\n{answer}");
        answer
    }

    /// Runs a command that must be rejected; returns code and labels.
    pub(crate) async fn refused(&mut self, command: Document) -> (i32, Vec<String>) {
        let answer = self.run(command.clone()).await;
        assert_eq!(answer.get_f64("ok").unwrap(), 0.0, "{command}\n{answer}");
        assert!(
            !answer.get_str("errmsg").unwrap().is_empty() && !answer.get_str("codeName").unwrap().is_empty()
        );
        let labels = answer.get_array("errorLabels").ok();
        let labels = labels.into_iter().flatten().map(|label| label.as_str().unwrap().to_owned()).collect();
        (answer.get_i32("code").unwrap(), labels)
    }

    /// All documents that a query finds.
    pub(crate) async fn find(&mut self, collection: &str, filter: Document) -> Vec<Document> {
        let answer = self.ok(doc! { "find": collection, "filter": filter }).await;
        batch(&answer, "firstBatch")
    }
}

pub(crate) fn batch(answer: &Document, field: &str) -> Vec<Document> {
    let batch = answer.get_document("cursor").unwrap().get_array(field).unwrap();
    batch.iter().map(|value| value.as_document().unwrap().clone()).collect()
}

pub(crate) fn cursor_id(answer: &Document) -> i64 {
    answer.get_document("cursor").unwrap().get_i64("id").unwrap()
}

pub(crate) fn lsid(number: u8) -> Document {
    doc! { "id": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![number; 16] } }
}
