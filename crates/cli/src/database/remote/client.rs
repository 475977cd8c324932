//! A blocking HTTP client: one connection, one request at a time, streamed bodies.

use std::cell::RefCell;
use std::io::{self, BufRead, Read};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::endpoint::{Endpoint, Secrets};
use super::problem::{self, Line};
use crate::output::failure::{Exit, Failure, Result};

/// Most time to open a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);
const JSON: &str = "application/json";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// NDJSON with all payloads in base64, which preserves every byte.
const NDJSON: &str = "application/x-ndjson; payload=base64";

type Sender = SendRequest<Full<Bytes>>;

/// A client of one server.
pub(crate) struct Client {
    endpoint: Endpoint,
    secrets: Secrets,
    authorization: Option<String>,
    runtime: Runtime,
    connection: RefCell<Option<Sender>>,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(endpoint: Endpoint, secrets: Secrets) -> Result<Self> {
        let authorization = endpoint.authorization(&secrets)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(Exit::Io, format!("start the client: {error}"), ""))?;
        let client = Self { endpoint, secrets, authorization, runtime, connection: RefCell::new(None) };
        let connection = client.runtime.block_on(client.open())?;
        client.connection.replace(Some(connection));
        Ok(client)
    }

    /// The address for messages.
    pub(crate) fn shown(&self) -> String {
        self.endpoint.shown()
    }

    async fn open(&self) -> Result<Sender> {
        let opening = async {
            let stream = self.endpoint.connect(&self.secrets).await?;
            handshake(TokioIo::new(stream)).await.map_err(|error| self.endpoint.unreachable(&error))
        };
        let (sender, connection) = tokio::time::timeout(CONNECT_TIME, opening)
            .await
            .map_err(|_| self.endpoint.unreachable(&"no response"))??;
        // An error of the connection is reported by the request that uses it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    /// Sends a request and decodes its JSON response.
    pub(crate) fn ask<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<A> {
        self.ask_once(method, path, body, None)
    }

    /// Sends a request that the server runs once for each key, and decodes its JSON response.
    pub(crate) fn ask_once<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        key: Option<&str>,
    ) -> Result<A> {
        let answer = self.send(method, path, body, JSON, key)?;
        let mut bytes = Vec::new();
        Body::new(self, answer).read_to_end(&mut bytes).map_err(|error| self.endpoint.unreachable(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.strange(&error))
    }

    /// Sends a request whose response has no content.
    pub(crate) fn act(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result {
        let answer = self.send(method, path, body, JSON, None)?;
        let drained = io::copy(&mut Body::new(self, answer), &mut io::sink());
        drained.map(drop).map_err(|error| self.endpoint.unreachable(&error))
    }

    /// Sends a request and visits each JSON line of the streamed response.
    pub(crate) fn lines<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        mut visit: impl FnMut(T) -> Result,
    ) -> Result {
        let answer = self.send(method, path, body, NDJSON, None)?;
        let mut body = Body::new(self, answer);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read =
                body.read_until(b'\n', &mut line).map_err(|error| self.endpoint.unreachable(&error))?;
            if read == 0 {
                return Ok(());
            }
            match problem::line(&self.shown(), &line) {
                Line::Value(value) => visit(value)?,
                Line::Control => {}
                Line::Ended(failure) => return Err(failure),
                Line::Strange(error) => return Err(self.strange(&error)),
            }
        }
    }

    fn strange(&self, error: &dyn std::fmt::Display) -> Failure {
        let what = format!("{} sent an unexpected response: {error}", self.shown());
        Failure::new(Exit::Internal, what, "Is it a Ropewalk server of this version?")
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        accept: &str,
        key: Option<&str>,
    ) -> Result<Response<Incoming>> {
        let json = body.map(serde_json::to_vec).transpose();
        let json = json.map_err(|error| Failure::invalid(error.to_string()))?;
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.endpoint.host());
        request = request.header(ACCEPT, accept);
        if json.is_some() {
            request = request.header(CONTENT_TYPE, JSON);
        }
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(Bytes::from(json.unwrap_or_default())))
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let answer = self.runtime.block_on(async {
            let idle = self.connection.borrow_mut().take();
            let mut connection = match usable(idle).await {
                Some(idle) => idle,
                None => self.open().await?,
            };
            let answer = connection.send_request(request).await;
            self.connection.replace(Some(connection));
            answer.map_err(|error| self.endpoint.unreachable(&error))
        })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let mut bytes = Vec::new();
        Body::new(self, answer).read_to_end(&mut bytes).map_err(|error| self.endpoint.unreachable(&error))?;
        Err(problem::failure(&self.shown(), status, &bytes))
    }
}

/// The connection of the previous request, unless the server has closed it.
async fn usable(idle: Option<Sender>) -> Option<Sender> {
    let mut idle = idle?;
    idle.ready().await.ok()?;
    Some(idle)
}

/// The streamed body of a response.
struct Body<'c> {
    client: &'c Client,
    incoming: Incoming,
    chunk: Bytes,
}

impl<'c> Body<'c> {
    fn new(client: &'c Client, answer: Response<Incoming>) -> Self {
        Self { client, incoming: answer.into_body(), chunk: Bytes::new() }
    }
}

impl BufRead for Body<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.chunk.is_empty() {
            match self.client.runtime.block_on(self.incoming.frame()) {
                None => break,
                Some(Err(error)) => return Err(io::Error::other(error)),
                // Trailers are ignored.
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
            }
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, bytes: usize) {
        drop(self.chunk.split_to(bytes.min(self.chunk.len())));
    }
}

impl Read for Body<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut held = self.fill_buf()?;
        let read = held.read(out)?;
        self.consume(read);
        Ok(read)
    }
}
