//! The names by which the API is reached, and the web pages that may call it.
//!
//! A browser sends a page's requests to any address that the page's name resolves to, with the page's name as
//! `Host`: a page can point its own name at a loopback address (DNS rebinding). A form or script of another
//! page sends its origin. Both are refused here, before credentials are looked at. Callers on the local
//! socket are not browsers.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method};
use ropewalk_auth::Caller;

use crate::App;
use crate::kit::problem::{Problem, Refusal};
use crate::settings::Cors;

/// Names by which clients may reach the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Any.
    Any,
    /// These in lower case, loopback names, and IP addresses, which no page can rebind.
    Names(Vec<String>),
}

impl Default for Hosts {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

/// A text that is no host name.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a host name; it has no scheme, port or path")]
pub struct InvalidHost(pub String);

impl Hosts {
    /// Reads a list of names; `*` means any.
    ///
    /// # Errors
    /// [`InvalidHost`].
    pub fn names<T: AsRef<str>>(list: impl IntoIterator<Item = T>) -> Result<Self, InvalidHost> {
        let mut names = Vec::new();
        for name in list {
            let name = name.as_ref();
            if name == "*" {
                return Ok(Self::Any);
            }
            if name.is_empty() || name.contains([':', '/', '?', '#', '@', ' ']) {
                return Err(InvalidHost(name.to_owned()));
            }
            names.push(name.to_ascii_lowercase());
        }
        Ok(Self::Names(names))
    }

    fn allow(&self, host: &str) -> bool {
        let Self::Names(names) = self else { return true };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        literal.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || names.contains(&host)
    }
}

/// Rejects a request for another host with 421, and one that changes data for a page of another origin with
/// 403.
pub(crate) fn check(app: &App, request: &Request) -> Result<(), Problem> {
    if request.extensions().get::<Caller>().is_some() {
        return Ok(());
    }
    verdict(&app.settings.hosts, &app.settings.cors, request)
}

fn verdict(hosts: &Hosts, cors: &Cors, request: &Request) -> Result<(), Problem> {
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
fn host(headers: &HeaderMap) -> Result<Option<Authority>, Problem> {
    let mut values = headers.get_all(HOST).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let authority = value.to_str().ok().and_then(|text| text.parse().ok());
    match (authority, values.next()) {
        (Some(authority), None) => Ok(Some(authority)),
        _ => Err(Problem::invalid("the header Host names no host, or more than one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_loopback_names_addresses_and_listed_names() {
        let hosts = Hosts::names(["db.Example"]).unwrap();
        for allowed in
            ["localhost", "LOCALHOST.", "shop.localhost", "127.0.0.1", "[::1]", "10.1.2.3", "DB.example"]
        {
            assert!(hosts.allow(allowed), "{allowed}");
        }
        for refused in ["evil.example", "localhost.evil.example", "db.example.evil", "", "127.0.0.1.nip.io"] {
            assert!(!hosts.allow(refused), "{refused}");
        }
        assert!(Hosts::names(["*"]).unwrap().allow("evil.example"));
        for bad in ["", "a:80", "http://a", "a/b"] {
            assert!(Hosts::names([bad]).is_err(), "{bad}");
        }
    }
}
