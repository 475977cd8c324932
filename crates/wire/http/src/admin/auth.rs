//! Authentication by the header `Authorization`, before any route sees the request.
//!
//! Logins are throttled by the address of the connection. Headers such as `X-Forwarded-For` are never read,
//! since any client can write them. A listener that knows its caller otherwise (a local socket that only its
//! owner can open) puts the [`Caller`] into the request's extensions, which no client can.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_auth::{Caller, Credentials};
use ropewalk_wire::Code;

use crate::app::App;
use crate::kit::problem::{Problem, Refusal};

/// Puts the caller into the request.
///
/// # Errors
/// 401, 403 or 429.
pub(crate) async fn authenticate(app: &App, request: &mut Request) -> Result<(), Problem> {
    if request.extensions().get::<Caller>().is_none() {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
        let given = Given::read(request.headers());
        let caller = caller(app, given, peer).await?;
        request.extensions_mut().insert(caller);
    }
    Ok(())
}

async fn caller(app: &App, given: Result<Given, Problem>, peer: Option<IpAddr>) -> Result<Caller, Problem> {
    let given = given?;
    let credentials = match &given {
        Given::Nothing => Credentials::None,
        Given::Password { user, password } => Credentials::Password { user, password },
        Given::Token(token) => Credentials::Token(token),
    };
    Ok(app.service.access().authenticate(credentials, peer).await?)
}

#[derive(Debug, PartialEq, Eq)]
enum Given {
    Nothing,
    Password { user: String, password: String },
    Token(String),
}

impl Given {
    fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let refuse = |what: &str| Problem::new(Code::Unauthenticated, format!("Authorization: {what}"));
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(Self::Nothing) };
        if values.next().is_some() {
            return Err(refuse("the header is there more than once"));
        }
        let text = value.to_str().map_err(|_| refuse("the header is not ASCII text"))?;
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            return Ok(Self::Token(rest.trim().to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return Err(refuse("Basic and Bearer are possible"));
        }
        let decoded = STANDARD.decode(rest.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let decoded = decoded.ok_or_else(|| refuse("Basic needs user:password in base64"))?;
        let (user, password) = decoded.split_once(':').ok_or_else(|| refuse("Basic needs user:password"))?;
        Ok(Self::Password { user: user.to_owned(), password: password.to_owned() })
    }
}

/// Rejects headers over the limit, as far as the listener let them through.
pub(crate) fn limit_headers(app: &App, request: &Request) -> Result<(), Problem> {
    let bytes: usize =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let most = app.settings.header_bytes_max;
    if bytes > most {
        let detail = format!("the headers have {bytes} bytes; at most {most} are allowed");
        return Err(Problem::refused(Refusal::Headers, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<Given> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        Given::read(&headers).ok()
    }

    #[test]
    fn the_header_is_read() {
        assert_eq!(Given::read(&HeaderMap::new()).unwrap(), Given::Nothing);
        assert_eq!(read("bearer rw_abc"), Some(Given::Token("rw_abc".into())));
        let basic = Given::Password { user: "ann".into(), password: "a:ö".into() };
        assert_eq!(read(&format!("Basic {}", STANDARD.encode("ann:a:ö"))), Some(basic));
        for bad in ["Digest x", "Basic ", "Basic !!", "Basic YW5u", "Basic /w=="] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
