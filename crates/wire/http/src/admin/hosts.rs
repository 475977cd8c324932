//! The names by which the API is reached, and the web pages that may call it.
//!
//! A browser sends a page's requests to any address that the page's name resolves to, with the page's name as
//! `Host`: a page can point its own name at a loopback address (DNS rebinding). A form or script of another
//! page sends its origin. Both are refused here, before credentials are looked at. Callers on the local
//! socket are not browsers.

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method};
use ropewalk_auth::Caller;

use crate::app::App;
use crate::kit::problem::{Problem, Refusal, Result};
use crate::settings::Cors;
use crate::settings::hosts::Hosts;

/// Rejects a request for another host with 421, and one that changes data for a page of another origin with
/// 403.
pub(crate) fn check(app: &App, request: &Request) -> Result<()> {
    if request.extensions().get::<Caller>().is_some() {
        return Ok(());
    }
    verdict(&app.settings.hosts, &app.settings.cors, request)
}

fn verdict(hosts: &Hosts, cors: &Cors, request: &Request) -> Result<()> {
    let authority = request
        .uri()
        .authority()
        .cloned()
        .map_or_else(|| host(request.headers()), |found| Ok(Some(found)))?;
    if let Some(authority) = &authority
        && !hosts.allow(authority.host())
    {
        let detail =
            format!("{:?} is not a name of this server; http.hosts lists its names", authority.host());
        return Err(Problem::refused(Refusal::Host, detail));
    }
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let refuse = |what: &str| {
        let detail = format!("a web page of {what} may not send this; http.cors lists the origins that may");
        Err(Problem::refused(Refusal::Origin, detail))
    };
    match request.headers().get(ORIGIN) {
        Some(origin) if cors.allows(origin) => Ok(()),
        Some(origin) => {
            let origin = origin.to_str().unwrap_or("null");
            let own = authority.is_some_and(|own| {
                origin.split_once("://").is_some_and(|(_, from)| own.as_str().eq_ignore_ascii_case(from))
            });
            if own { Ok(()) } else { refuse(&format!("origin {origin:?}")) }
        }
        // Browsers that send no origin with a form say where it came from.
        None => match request.headers().get("sec-fetch-site").map(|site| site.as_bytes()) {
            Some(b"cross-site" | b"same-site") if *cors != Cors::Any => refuse("another site"),
            _ => Ok(()),
        },
    }
}

/// The one host that the headers name; clients of HTTP/1.0 may name none.
fn host(headers: &HeaderMap) -> Result<Option<Authority>> {
    let mut values = headers.get_all(HOST).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let authority = value.to_str().ok().and_then(|text| text.parse().ok());
    match (authority, values.next()) {
        (Some(authority), None) => Ok(Some(authority)),
        _ => Err(Problem::invalid_header("the header Host names no host, or more than one")),
    }
}
