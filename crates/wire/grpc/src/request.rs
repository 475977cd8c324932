//! One call: its caller, its time limit, and its row in the metrics.

use core::future::Future;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ropewalk_auth::{Caller, Credentials};
use ropewalk_wire::{Code, Service, WireError};
use tonic::{Request, Response, Status};

use crate::status::ToStatus;

/// A protocol of this crate: its name in the metrics, and its errors.
#[derive(Clone, Copy)]
pub(crate) struct Protocol {
    pub(crate) name: &'static str,
    pub(crate) status: ToStatus,
}

/// The caller of `request`, as found by the admission layer.
pub(crate) fn caller<T>(request: &Request<T>) -> Result<Caller, WireError> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| WireError::new(Code::Unauthenticated, "credentials are needed"))
}

/// The store of the header `x-store`, else that of the port. The rights are checked on what it returns.
pub(crate) fn store<'a>(of_port: &'a str, headers: &'a HeaderMap) -> Result<&'a str, WireError> {
    match headers.get("x-store") {
        None => Ok(of_port),
        Some(name) => name.to_str().map_err(|_| WireError::invalid("x-store must be printable ASCII")),
    }
}

/// The caller of another protocol's call on the same port, found from its headers like those of this crate.
///
/// # Errors
/// The status to return: UNAUTHENTICATED, or that there were too many failures from this address.
pub async fn known_caller(
    service: &Service,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
) -> Result<Caller, Status> {
    authenticate(service, headers, peer).await.map_err(|error| crate::status::plain(&error))
}

/// The caller by the header `authorization: Bearer TOKEN` or `Basic USER:PASSWORD`.
pub(crate) async fn authenticate(
    service: &Service,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
) -> Result<Caller, WireError> {
    let Some(header) = headers.get("authorization") else {
        return Ok(service.access().authenticate(Credentials::None, peer).await?);
    };
    let malformed =
        || WireError::new(Code::Unauthenticated, "authorization must be `Bearer TOKEN` or `Basic …`");
    let (scheme, value) = header.to_str().ok().and_then(|h| h.split_once(' ')).ok_or_else(malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(service.access().authenticate(Credentials::Token(value), peer).await?);
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(malformed());
    }
    let pair = STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = pair.ok_or_else(malformed)?;
    let (user, password) = pair.split_once(':').ok_or_else(malformed)?;
    Ok(service.access().authenticate(Credentials::Password { user, password }, peer).await?)
}

/// Runs a call with one response.
pub(crate) async fn unary<R>(
    service: &Service,
    protocol: Protocol,
    operation: &'static str,
    work: impl Future<Output = Result<R, WireError>>,
) -> Result<Response<R>, Status> {
    let timer = service.metrics().request(protocol.name, operation);
    let limit = service.limits().request_time;
    let result = tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(WireError::new(Code::Timeout, format!("no answer within {} ms", limit.as_millis())))
    });
    timer.done(result.as_ref().map(drop).map_err(|error| error.code));
    result.map(Response::new).map_err(|error| (protocol.status)(&error))
}
