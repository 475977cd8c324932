//! Requests to a node, each on a new connection and with a deadline: a halted node does not respond.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::command::demo::server::failed;
use crate::output::failure::{Exit, Failure, Result};

/// A client of one node.
pub(super) struct Http {
    host: String,
    /// Longest time of a request.
    deadline: Duration,
    runtime: Runtime,
}

/// A response, also one with an error status.
pub(super) struct Response {
    pub(super) status: u16,
    /// Number of the newest commit that the response may contain.
    pub(super) seq: Option<u64>,
    pub(super) body: Value,
}

impl Response {
    /// The stable code of an error.
    pub(super) fn code(&self) -> &str {
        self.body.get("code").and_then(Value::as_str).unwrap_or_default()
    }
}

impl Http {
    pub(super) fn new(host: &str, deadline: Duration) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed("start the client", &error))?;
        Ok(Self { host: host.to_owned(), deadline, runtime })
    }

    /// Sends a GET request, or with a JSON body a POST request.
    pub(super) fn ask(&self, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Result<Response> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.host);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default().to_owned()));
        let request = request.body(body).map_err(|error| Failure::invalid(error.to_string()))?;
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(self.deadline, self.exchange(request)).await });
        let text = match answer {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {} ms", self.deadline.as_millis()),
        };
        Err(Failure::new(Exit::Io, format!("http://{}{path}: {text}", self.host), ""))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response, Box<dyn std::error::Error>> {
        let stream = TcpStream::connect(&self.host).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        // An error of the connection is reported by its request.
        let driver = tokio::spawn(async move { drop(connection.await) });
        let (head, body) = sender.send_request(request).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        driver.abort();
        let seq = head.headers.get("ropewalk-seq").and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Response { status: head.status.as_u16(), seq, body: serde_json::from_slice(&bytes)? })
    }
}
