//! Authentication by the header `Authorization` or the cookie of a session, before any route sees the request.
//!
//! A browser adds the cookie to every request to this server, whichever page makes it. A request that changes
//! something is therefore accepted by cookie only with the write token of the session in a header.
//!
//! Logins are throttled by the address of the connection. Headers such as `X-Forwarded-For` are never read,
//! since any client can write them. A listener that knows its caller otherwise (a local socket that only its
//! owner can open) puts the [`Caller`] into the request's extensions, which no client can.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::header::{AUTHORIZATION, COOKIE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_auth::{BrowserSession, Caller, Credentials};
use ropewalk_wire::Code;

use crate::app::App;
use crate::kit::problem::{Problem, Refusal, Result};

/// Name of the cookie of a session.
pub(super) const SESSION_COOKIE: &str = "ropewalk_session";
/// Header with the write token of a session.
const WRITE_TOKEN: HeaderName = HeaderName::from_static("x-write-token");
/// Header by which a script says that its user must not see the browser's own login dialog.
const BY_SCRIPT: HeaderName = HeaderName::from_static("x-requested-with");

/// Puts the caller into the request, or returns the response 401, 403 or 429.
pub(crate) async fn authenticate(app: &App, request: &mut Request) -> Result<(), Response> {
    if request.extensions().get::<Caller>().is_some() {
        return Ok(());
    }
    let is_by_script = request.headers().contains_key(BY_SCRIPT);
    admit(app, request).await.map_err(|problem| refuse(problem, is_by_script))
}

async fn admit(app: &App, request: &mut Request) -> Result<()> {
    let caller = match session(app, request)? {
        Some(session) => {
            let caller = session.caller().clone();
            request.extensions_mut().insert(session);
            caller
        }
        None => {
            let peer =
                request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
            caller(app, Given::read(request.headers()), peer).await?
        }
    };
    request.extensions_mut().insert(caller);
    Ok(())
}

/// The response to a caller who is not admitted. A challenge for `Basic` makes a browser show a dialog, also
/// when a script has sent the request.
fn refuse(problem: Problem, is_by_script: bool) -> Response {
    let mut response = problem.into_response();
    if is_by_script && response.headers().contains_key(WWW_AUTHENTICATE) {
        let bearer = HeaderValue::from_static("Bearer realm=\"ropewalk\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
    }
    response
}

/// The session of a request without `Authorization`, if it carries the cookie of a live one.
fn session(app: &App, request: &Request) -> Result<Option<BrowserSession>> {
    let headers = request.headers();
    if headers.contains_key(AUTHORIZATION) {
        return Ok(None);
    }
    let found = session_cookie(headers).and_then(|cookie| app.service.access().session(cookie));
    let Some(session) = found else { return Ok(None) };
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let token = headers.get(WRITE_TOKEN).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if changes && !session.permits_write(token) {
        let detail =
            format!("a request that changes something needs the header {WRITE_TOKEN} of its session");
        return Err(Problem::refused(Refusal::WriteToken, detail));
    }
    Ok(Some(session))
}

/// The cookie of a session in the headers of a request.
pub(super) fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == SESSION_COOKIE).map(|(_, cookie)| cookie)
}

async fn caller(app: &App, given: Result<Given>, peer: Option<IpAddr>) -> Result<Caller> {
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
    fn read(headers: &HeaderMap) -> Result<Self> {
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
pub(crate) fn limit_headers(app: &App, request: &Request) -> Result<()> {
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
    fn session_cookie_is_found_among_others() {
        let cookie = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(COOKIE, value.parse().unwrap());
            }
            session_cookie(&headers).map(str::to_owned)
        };
        assert_eq!(cookie(&["a=1; ropewalk_session=x-y_z;b=2"]).as_deref(), Some("x-y_z"));
        assert_eq!(cookie(&["a=1", "ropewalk_session=x"]).as_deref(), Some("x"));
        for absent in [&[][..], &["ropewalk_session"], &["my_ropewalk_session=x"], &["a=ropewalk_session=x"]]
        {
            assert_eq!(cookie(absent), None, "{absent:?}");
        }
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
