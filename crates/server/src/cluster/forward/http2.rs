//! Connections that carry many calls at once: one to each node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{HOST, TE};
use axum::http::uri::{Parts, Scheme};
use axum::http::{HeaderValue, Uri, Version};
use axum::response::Response;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::TokioExecutor;
use ropewalk_http_kit::leader::ToLeaderError;
use rustls::ClientConfig;
use tokio_rustls::TlsConnector;

use super::{dial, incoming, is_secure, not_sent, outgoing};

/// Connections to nodes, by URL.
pub(super) struct Connections {
    tls: TlsConnector,
    open: Mutex<HashMap<String, SendRequest<Body>>>,
}

impl Connections {
    pub(super) fn new(tls: ClientConfig) -> Self {
        Self { tls: TlsConnector::from(Arc::new(tls)), open: Mutex::default() }
    }

    fn open(&self, node: &str) -> Option<SendRequest<Body>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.get(node).is_some_and(SendRequest::is_closed) {
            open.remove(node);
        }
        open.get(node).cloned()
    }

    async fn connect(&self, node: &str, uri: &Uri) -> Result<SendRequest<Body>, ToLeaderError> {
        let stream = dial(uri, &self.tls).await?;
        let made = handshake(TokioExecutor::new(), stream).await;
        let (sender, connection) = made.map_err(|error| not_sent(error.to_string()))?;
        tokio::spawn(async move {
            // Its end is seen by the senders.
            let _ = connection.await;
        });
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), sender.clone());
        Ok(sender)
    }

    /// Sends a call to the node at `uri`, whose text is `node`.
    pub(super) async fn exchange(
        &self,
        node: &str,
        uri: &Uri,
        request: Request,
    ) -> Result<Response, ToLeaderError> {
        let mut request = addressed(uri, request)?;
        if let Some(mut sender) = self.open(node) {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(incoming(response)),
                // The node had closed the connection.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ToLeaderError::NoAnswer(error.into_error().to_string())),
                },
            }
        }
        let mut sender = self.connect(node, uri).await?;
        sender.try_send_request(request).await.map(incoming).map_err(|mut error| {
            let unsent = error.take_message();
            let why = error.into_error().to_string();
            if unsent.is_some() { not_sent(why) } else { ToLeaderError::NoAnswer(why) }
        })
    }
}

/// The call as it is sent: the whole address of the other node, and trailers allowed.
fn addressed(node: &Uri, request: Request) -> Result<Request, ToLeaderError> {
    let mut address = Parts::default();
    address.scheme = Some(if is_secure(node) { Scheme::HTTPS } else { Scheme::HTTP });
    address.authority = node.authority().cloned();
    address.path_and_query = request.uri().path_and_query().cloned();
    let address = Uri::from_parts(address).map_err(|error| not_sent(error.to_string()))?;
    let mut request = outgoing(address, request);
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(HOST);
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    Ok(request)
}
