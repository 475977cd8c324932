//! One call: its caller, its time limit, and its row in the metrics.

use core::future::Future;
use core::time::Duration;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use ropewalk_auth::{Caller, Credentials};
use ropewalk_wire::{Code, Reservation, Service, WireError};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::status::ToStatus;

/// A protocol of this crate: its name in the metrics, and its errors.
#[derive(Clone, Copy)]
pub(crate) struct Protocol {
    pub(crate) name: &'static str,
    pub(crate) status: ToStatus,
}

/// When a call must have ended: found by the admission layer.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(pub(crate) Instant);

/// The outcome of a call with one response, or with a stream.
pub(crate) type Reply<T, E = Status> = Result<Response<T>, E>;

/// The deadline of `request`. `limit`: its time, if the admission layer has not set one.
pub(crate) fn deadline<T>(request: &Request<T>, limit: Duration) -> Instant {
    request.extensions().get::<Deadline>().map_or_else(|| Instant::now() + limit, |deadline| deadline.0)
}

/// Memory of a response, which is held until the response has been sent.
#[derive(Clone)]
pub(crate) struct ResponseMemory(#[expect(dead_code, reason = "released when dropped")] Arc<Reservation>);

impl ResponseMemory {
    pub(crate) fn new(reservation: Reservation) -> Self {
        Self(Arc::new(reservation))
    }

    /// Returns `part` of the response, for a closure that owns this memory.
    pub(crate) fn pass<T>(&self, part: T) -> T {
        part
    }
}

/// The time that the client grants in the header `grpc-timeout`: up to eight digits and a unit.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, WireError> {
    const HOUR: u64 = 3600;
    let Some(header) = headers.get("grpc-timeout") else { return Ok(None) };
    let text = header.to_str().unwrap_or_default();
    let parsed = text.split_at_checked(text.len().saturating_sub(1)).and_then(|(digits, unit)| {
        let is_number = digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number: u64 = is_number.then(|| digits.parse().ok()).flatten()?;
        match unit {
            "H" => Some(Duration::from_secs(number * HOUR)),
            "M" => Some(Duration::from_secs(number * 60)),
            "S" => Some(Duration::from_secs(number)),
            "m" => Some(Duration::from_millis(number)),
            "u" => Some(Duration::from_micros(number)),
            "n" => Some(Duration::from_nanos(number)),
            _ => None,
        }
    });
    let malformed =
        || WireError::invalid("grpc-timeout must be 1 to 8 digits and one of the units H, M, S, m, u, n");
    parsed.map(Some).ok_or_else(malformed)
}

/// The caller of `request`, as found by the admission layer.
pub(crate) fn caller<T>(request: &Request<T>) -> Result<Caller, WireError> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| WireError::new(Code::Unauthenticated, "credentials are needed"))
}

/// The header that names a store.
pub(crate) const STORE: HeaderName = HeaderName::from_static("x-store");

/// The store of the header `x-store`, else that of the port. The rights are checked on what it returns.
pub(crate) fn store<'a>(of_port: &'a str, headers: &'a HeaderMap) -> Result<&'a str, WireError> {
    match headers.get(STORE) {
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
) -> Reply<R> {
    let timer = service.metrics().request(protocol.name, operation);
    let limit = service.limits().request_time;
    let result = tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(WireError::new(Code::Timeout, format!("no answer within {} ms", limit.as_millis())))
    });
    timer.done(result.as_ref().map(drop).map_err(|error| error.code));
    result.map(Response::new).map_err(|error| (protocol.status)(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_digits_and_a_unit() {
        let parse = |text: &str| {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-timeout"),
                text.parse::<http::HeaderValue>().unwrap(),
            )]);
            timeout(&headers)
        };
        assert_eq!(timeout(&HeaderMap::new()).unwrap(), None);
        for (text, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("99999999S", Duration::from_secs(99_999_999)),
            ("250m", Duration::from_millis(250)),
            ("5u", Duration::from_micros(5)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(parse(text).unwrap(), Some(expected), "{text}");
        }
        for text in ["", "S", "5", "5s", "-5S", "1.5S", "123456789S", "+5S"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
