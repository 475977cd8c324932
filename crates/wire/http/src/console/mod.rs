//! The web console: files that the server has embedded, at `/ui/`.
//!
//! ```text
//! GET /              ─▶ 307 /ui/
//! GET /ui/assets/…   ─▶ the file, cached for a year: its name has a hash of its contents
//! GET /ui/…          ─▶ the page; its script reads the state of the view from the path
//! ```
//! The files need no credentials: they contain no data of the database. The script gets all data from the
//! public API, with the rights of its user.

use axum::extract::State;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use ropewalk_auth::Needs;
use ropewalk_http_kit::encoding::Encoding;
use ropewalk_wire::Code;

use crate::app::App;
use crate::kit::problem::{Problem, Refusal, Result};
use crate::route::Route;
use crate::settings::console::ConsoleFile;

/// Folder of the console.
const FOLDER: &str = "/ui/";
/// The page.
const PAGE: &str = "index.html";
/// Prefix of the files whose names contain a hash.
const HASHED: &str = "assets/";
/// Most bytes of an inflated file: the largest has less than 1 MiB.
const FILE_BYTES_MAX: usize = 16 << 20;
/// Scripts, styles and data from this server only; no inline script or style, no frames, no forms.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::undescribed(Needs::PUBLIC, Method::GET, "/", to_folder),
        Route::undescribed(Needs::PUBLIC, Method::GET, "/ui", to_folder),
        Route::undescribed(Needs::PUBLIC, Method::GET, FOLDER, file),
        Route::undescribed(Needs::PUBLIC, Method::GET, "/ui/{*path}", file),
    ]
}

async fn to_folder() -> Redirect {
    Redirect::temporary(FOLDER)
}

async fn file(State(app): State<App>, uri: Uri, headers: HeaderMap) -> Result<Response> {
    let path = uri.path().strip_prefix(FOLDER).unwrap_or_default();
    let is_hashed = path.starts_with(HASHED);
    let wanted = if is_hashed { path } else { PAGE };
    let found = app.settings.console.iter().find(|file| file.path == wanted);
    let missing = || Problem::refused(Refusal::NoRoute, format!("the console has no file {path:?}"));
    respond(found.ok_or_else(missing)?, is_hashed, &headers)
}

fn respond(file: &ConsoleFile, is_hashed: bool, headers: &HeaderMap) -> Result<Response> {
    let cached = if is_hashed { "public, max-age=31536000, immutable" } else { "no-cache" };
    let about = [
        (CONTENT_TYPE, HeaderValue::from_static(file.media_type())),
        (CACHE_CONTROL, HeaderValue::from_static(cached)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        (VARY, HeaderValue::from_static("accept-encoding")),
    ];
    if accepts_gzip(headers) {
        let encoding = [(CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
        return Ok((about, encoding, file.gzip).into_response());
    }
    let inflated = Encoding::Gzip.inflate(file.gzip, FILE_BYTES_MAX);
    let inflated = inflated.map_err(|error| {
        Problem::new(Code::Internal, format!("file {:?} of the console: {error}", file.path))
    })?;
    Ok((about, inflated).into_response())
}

/// True when a coding of `Accept-Encoding` is gzip with a quality above 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        is_gzip && quality.is_none_or(|quality| quality > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_by_its_name_unless_its_quality_is_zero() {
        let accepts = |value: &'static str| {
            accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        for value in ["gzip", "br, GZIP", "deflate;q=1, gzip;q=0.5"] {
            assert!(accepts(value), "{value}");
        }
        for value in ["", "br", "gzip;q=0", "xgzip", "*"] {
            assert!(!accepts(value), "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
