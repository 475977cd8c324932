//! Connections that carry one request after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use hyper::client::conn::http1::{SendRequest, handshake};
use ropewalk_http_kit::leader::ToLeaderError;
use rustls::ClientConfig;
use tokio_rustls::TlsConnector;

use super::{dial, incoming, not_sent, outgoing};

/// Most idle connections to one node.
const IDLE_MAX: usize = 64;

/// Connections to nodes, by URL.
pub(super) struct Connections {
    tls: TlsConnector,
    pub(super) idle: Mutex<HashMap<String, Vec<SendRequest<Body>>>>,
}

impl Connections {
    pub(super) fn new(tls: ClientConfig) -> Self {
        Self { tls: TlsConnector::from(Arc::new(tls)), idle: Mutex::default() }
    }

    fn idle(&self, node: &str) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.get_mut(node)?;
        senders.retain(|sender| !sender.is_closed());
        let place = senders.iter().position(SendRequest::is_ready)?;
        Some(senders.swap_remove(place))
    }

    /// Gives a connection back; it is used again once its response is complete.
    fn give_back(&self, node: &str, sender: SendRequest<Body>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let senders = idle.entry(node.to_owned()).or_default();
        if senders.len() < IDLE_MAX {
            senders.push(sender);
        }
    }

    /// Sends a request to the node at `uri`, whose text is `node`.
    pub(super) async fn exchange(
        &self,
        node: &str,
        uri: &Uri,
        request: Request,
    ) -> Result<Response, ToLeaderError> {
        let mut request = addressed(uri, request)?;
        while let Some(mut sender) = self.idle(node) {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.give_back(node, sender);
                    return Ok(incoming(response));
                }
                // The node had closed the connection.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ToLeaderError::NoAnswer(error.into_error().to_string())),
                },
            }
        }
        let stream = dial(uri, &self.tls).await?;
        let (mut sender, connection) =
            handshake(stream).await.map_err(|error| not_sent(error.to_string()))?;
        tokio::spawn(async move {
            // Its end is seen by the sender.
            let _ = connection.await;
        });
        match sender.try_send_request(request).await {
            Ok(response) => {
                self.give_back(node, sender);
                Ok(incoming(response))
            }
            Err(mut error) => match error.take_message() {
                Some(_) => Err(not_sent(error.into_error().to_string())),
                None => Err(ToLeaderError::NoAnswer(error.into_error().to_string())),
            },
        }
    }
}

/// The request as it is sent: a path, and the name of the other node.
fn addressed(node: &Uri, request: Request) -> Result<Request, ToLeaderError> {
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let authority = node.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(authority).map_err(|error| not_sent(error.to_string()))?;
    let mut request = outgoing(Uri::from(path), request);
    request.headers_mut().insert(HOST, host);
    Ok(request)
}
