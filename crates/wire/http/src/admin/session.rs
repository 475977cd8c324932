//! The caller of a request, and sessions of browsers.
//!
//! ```text
//! POST /v1/session, Authorization: …  ─▶ Set-Cookie: ropewalk_session=…; HttpOnly; SameSite=Strict
//! GET /v1/session, Cookie: …          ─▶ {"name", "kind", "roles", "write_token"}
//! ```
//! A script cannot read the cookie, and a browser does not send it with requests of other sites. Requests that
//! change something also need the write token ([`super::auth`]).

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ropewalk_auth::{BrowserSession, Caller, Needs};
use ropewalk_wire::Code;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::auth::{SESSION_COOKIE, session_cookie};
use super::users::{RolesIn, roles_out};
use crate::app::App;
use crate::kit::body::NoBody;
use crate::kit::problem::{Problem, Result};
use crate::route::Route;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::new(Needs::LOGIN, routes!(look, begin, end))]
}

/// A caller.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
struct SessionOut {
    /// Name of the user or token; empty without credentials.
    #[schema(example = "ann")]
    name: String,
    /// `user`, `token`, `anonymous` while the server is open, `process` on the local socket.
    #[schema(example = "user")]
    kind: String,
    /// Rights by store; `*` means every store.
    roles: RolesIn,
    /// Of a session: requests that change something carry it in the header `X-Write-Token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    write_token: Option<String>,
    /// Version of the server.
    #[schema(example = "0.1.0")]
    version: &'static str,
}

impl SessionOut {
    fn new(caller: &Caller, session: Option<&BrowserSession>) -> Self {
        let principal = caller.principal();
        Self {
            name: caller.name().to_owned(),
            kind: principal.split(' ').next().unwrap_or_default().to_owned(),
            roles: roles_out(caller.roles().clone()),
            write_token: session.map(|session| session.write_token().to_owned()),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// A cookie with the attributes of ours; without a value it removes the cookie.
fn cookie(app: &App, value: &str) -> Result<HeaderValue> {
    let secure = if app.settings.secure_cookies { "; Secure" } else { "" };
    let age = if value.is_empty() { "; Max-Age=0" } else { "" };
    let text = format!("{SESSION_COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}");
    HeaderValue::from_str(&text).map_err(|_| Problem::new(Code::Internal, "the cookie is not ASCII"))
}

/// The responses contain the write token.
fn not_stored() -> (HeaderName, HeaderValue) {
    (CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

/// The caller of this request, with its rights.
#[utoipa::path(
    get, path = "/v1/session", operation_id = "get_session", tag = "access",
    responses((status = 200, description = "The caller.", body = SessionOut)),
)]
async fn look(Extension(caller): Extension<Caller>, session: Option<Extension<BrowserSession>>) -> Response {
    let session = session.map(|Extension(session)| session);
    ([not_stored()], Json(SessionOut::new(&caller, session.as_ref()))).into_response()
}

/// Begins a session of a browser: later requests may carry its cookie instead of credentials.
///
/// It ends after 8 hours without a request, after 7 days, when the server stops, and with its user, password or
/// token.
#[utoipa::path(
    post, path = "/v1/session", operation_id = "begin_session", tag = "access",
    responses((status = 201, description = "Begun. The response sets the cookie.", body = SessionOut)),
)]
async fn begin(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    in_session: Option<Extension<BrowserSession>>,
    request_headers: HeaderMap,
    NoBody: NoBody,
) -> Result<Response> {
    if in_session.is_some() {
        // Sessions that begin one another would have no longest life.
        return Err(Problem::invalid("a session begins with credentials, not with another session"));
    }
    let (value, session) = app.service.access().begin_session(&caller)?;
    if let Some(earlier) = session_cookie(&request_headers) {
        app.service.access().end_session(earlier);
    }
    let headers = [(SET_COOKIE, cookie(&app, &value)?), not_stored()];
    let body = Json(SessionOut::new(&caller, Some(&session)));
    Ok((StatusCode::CREATED, headers, body).into_response())
}

/// Ends the session of the cookie, if there is one.
#[utoipa::path(
    delete, path = "/v1/session", operation_id = "end_session", tag = "access",
    responses((status = 204, description = "Ended. The response removes the cookie.")),
)]
async fn end(State(app): State<App>, headers: HeaderMap, NoBody: NoBody) -> Result<Response> {
    if let Some(value) = session_cookie(&headers) {
        app.service.access().end_session(value);
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie(&app, "")?)]).into_response())
}
