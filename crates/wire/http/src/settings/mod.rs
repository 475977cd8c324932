//! Settings of the HTTP interface. Limits that all protocols share are in [`ropewalk_wire::Limits`].

pub(crate) mod console;
pub(crate) mod hosts;
pub(crate) mod leader;

use core::time::Duration;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};

use console::ConsoleFile;
use hosts::Hosts;
use ropewalk_http_kit::leader::ToLeader;

/// Header of reads: the last position of the store at the time of the read; 0 when it was empty.
pub(crate) const HEAD: HeaderName = HeaderName::from_static("ropewalk-head");

/// Settings of [`crate::router`].
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Serves `POST /cleanup`, which empties a store. Default: no.
    pub dev: bool,
    /// Origins whose web pages may call. Default: none.
    pub cors: Cors,
    /// Names by which clients reach the API. Default: loopback names and IP addresses.
    pub hosts: Hosts,
    /// Interval of heartbeats on an idle subscription. Default: 15 seconds.
    pub heartbeat: Duration,
    /// Most bytes of all request headers together. Default: 16 KiB.
    pub header_bytes_max: usize,
    /// Files of the web console, served at `/ui/`; empty: there is no console. Default: empty.
    pub console: &'static [ConsoleFile],
    /// Browsers send the cookie of a session over TLS only. Default: no.
    pub secure_cookies: bool,
    /// The settings of the server as `GET /v1/settings` returns them. Default: empty.
    pub in_force: Vec<SettingInForce>,
    /// Sends writes to the leader while this node follows. Default: they are rejected with its address.
    pub leader: Option<Arc<dyn ToLeader>>,
}

/// A setting of the server in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingInForce {
    /// Its name in the settings file.
    pub name: String,
    /// Its value as text.
    pub value: String,
    /// The source of the value: `default`, a file, a variable, a flag.
    pub origin: String,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            dev: false,
            cors: Cors::None,
            hosts: Hosts::default(),
            heartbeat: Duration::from_secs(15),
            header_bytes_max: 16 << 10,
            console: &[],
            secure_cookies: false,
            in_force: Vec::new(),
            leader: None,
        }
    }
}

/// Origins that a browser lets in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Cors {
    /// None but our own.
    #[default]
    None,
    /// Every one. A token in the page is still needed where access is closed; no cookies are involved.
    Any,
    /// These, such as `https://app.example`.
    Origins(Vec<HeaderValue>),
}

/// An invalid origin.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an origin; it has the form https://host or https://host:port, without a path")]
pub struct InvalidOrigin(pub String);

impl Cors {
    /// Reads a list of origins; `*` means any, an empty list none.
    ///
    /// # Errors
    /// [`InvalidOrigin`].
    pub fn origins<T: AsRef<str>>(list: impl IntoIterator<Item = T>) -> Result<Self, InvalidOrigin> {
        let mut origins = Vec::new();
        for origin in list {
            let origin = origin.as_ref();
            if origin == "*" {
                return Ok(Self::Any);
            }
            let invalid = || InvalidOrigin(origin.to_owned());
            let (scheme, host) = origin.split_once("://").ok_or_else(invalid)?;
            if scheme.is_empty() || host.is_empty() || host.contains(['/', '?', '#', '@', ' ']) {
                return Err(invalid());
            }
            origins.push(HeaderValue::from_str(origin).map_err(|_| invalid())?);
        }
        Ok(if origins.is_empty() { Self::None } else { Self::Origins(origins) })
    }

    /// True when pages of `origin` may call.
    pub(crate) fn allows(&self, origin: &HeaderValue) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Origins(origins) => origins.contains(origin),
        }
    }

    pub(crate) fn layer(&self) -> Option<CorsLayer> {
        let origins = match self {
            Self::None => return None,
            Self::Any => AllowOrigin::any(),
            Self::Origins(origins) => AllowOrigin::list(origins.iter().cloned()),
        };
        let asked = [
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::CONTENT_ENCODING,
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            HeaderName::from_static("last-event-id"),
            HeaderName::from_static("idempotency-key"),
            leader::SEQ,
            leader::READ,
            HeaderName::from_static("prefer"),
            HeaderName::from_static("x-store"),
            HeaderName::from_static("x-append-if-isolation"),
            HeaderName::from_static("x-isolation-level"),
        ];
        Some(
            CorsLayer::new()
                .allow_origin(origins)
                .allow_methods([
                    Method::GET,
                    Method::HEAD,
                    Method::PUT,
                    Method::POST,
                    Method::PATCH,
                    Method::DELETE,
                ])
                .allow_headers(asked)
                .expose_headers([header::ETAG, header::RETRY_AFTER, HEAD, leader::SEQ])
                .max_age(Duration::from_secs(600)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_checked() {
        assert_eq!(Cors::origins([""; 0]).unwrap(), Cors::None);
        assert_eq!(Cors::origins(["https://a.example", "*"]).unwrap(), Cors::Any);
        assert!(
            matches!(Cors::origins(["http://localhost:5173"]).unwrap(), Cors::Origins(list) if list.len() == 1)
        );
        for bad in ["a.example", "https://", "https://a.example/", "://a", "https://a b"] {
            assert!(Cors::origins([bad]).is_err(), "{bad}");
        }
    }
}
