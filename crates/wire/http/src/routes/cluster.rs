//! Requests to a node of a cluster: which the leader serves, which this node, and after which commit.
//!
//! ```text
//! request ─▶ is it a write? ─ no ─▶ Ropewalk-Seq: wait for that commit ─▶ Ropewalk-Read: linearizable: barrier ─▶ route
//!                └ yes ─▶ this node leads ─▶ route
//!                         another does ─▶ sent there, or 307 for `Prefer: redirect`
//!                                          └ it is replaced before it answers: the outcome is unknown
//! response ─▶ Ropewalk-Seq: the newest commit that it may contain
//! ```
//! A node that is alone has none of this.
//!
//! Not sent on: a request in a browser's session, which only this node knows, and one on the local socket. Both are
//! answered with `not_leader` and the leader's addresses.

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::header::{AUTHORIZATION, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ropewalk::Seq;
use ropewalk_auth::BrowserSession;
use ropewalk_http_kit::body::RequestBody;
use ropewalk_http_kit::encoding::Encoding;
use ropewalk_http_kit::leader::{FORWARDED, send_to_leader};
use ropewalk_wire::{Cluster, Code, NodeAddresses};

use crate::app::App;
use crate::kit::problem::Problem;
use crate::settings::leader::{READ, SEQ};

/// Preferences of the client, RFC 7240.
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The node that serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Any node.
    Here,
    /// The leader.
    Leader,
    /// The leader if it turns out to write.
    Either,
}

/// The last part of paths whose POST only reads.
const READING: &[&str] =
    &["read", "query", "query_range", "query_exemplars", "format_query", "parse_query", "labels", "series"];

/// The node that serves requests of a route.
fn place(method: &Method, path: &str) -> Place {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Place::Here;
    }
    let last = path.rsplit('/').next().unwrap_or_default();
    match (path, last.rsplit_once(':').map(|(_, verb)| verb)) {
        // No route; sessions of browsers, the configuration and backups belong to a node.
        ("" | "/v1/session" | "/-/reload" | "/api/v1/admin/tsdb/snapshot", _) => Place::Here,
        // The client means the node that it calls.
        ("/v1/cluster/step-down", _) => Place::Here,
        ("/v1/sql", _) | (_, Some("aggregate")) => Place::Either,
        (_, Some("query" | "last" | "count" | "exists" | "distinct" | "explain")) => Place::Here,
        ("/read", _) => Place::Here,
        (path, None) if path.ends_with("/documents/query") => Place::Here,
        (path, None)
            if *method == Method::POST && path.starts_with("/api/v1/") && READING.contains(&last) =>
        {
            Place::Here
        }
        _ => Place::Leader,
    }
}

/// How much a read may miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Anything that this node does not have yet.
    Local,
    /// Nothing up to the commit that the request names.
    Session,
    /// Nothing that was acknowledged before the request.
    Linearizable,
}

/// Requirements of a request for the node that serves it.
struct Asked {
    seq: Option<Seq>,
    level: Level,
}

impl Asked {
    fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let level = match text(&READ) {
            Some("local") => Level::Local,
            None | Some("session") => Level::Session,
            Some("linearizable") => Level::Linearizable,
            Some(other) => {
                let what =
                    format!("Ropewalk-Read is {other:?}; local, session and linearizable are possible");
                return Err(Problem::invalid_header(what));
            }
        };
        let seq = text(&SEQ).map(|number| {
            let what = || Problem::invalid_header(format!("Ropewalk-Seq is {number:?}, not a commit number"));
            number.parse().map(Seq).map_err(|_| what())
        });
        Ok(Self { seq: seq.transpose()?, level })
    }

    /// Waits until this node has what the request asks for.
    async fn wait(&self, app: &App) -> Result<(), Problem> {
        if let Some(seq) = self.seq.filter(|_| self.level != Level::Local) {
            app.service.wait_for_commit(seq).await?;
        }
        if self.level == Level::Linearizable {
            app.service.read_barrier().await?;
        }
        Ok(())
    }
}

/// Serves a request whose caller is known.
pub(crate) async fn serve(app: &App, request: Request, next: Next) -> Response {
    let Some(cluster) = app.service.cluster() else { return next.run(request).await };
    let served = in_cluster(app, &**cluster, request, next).await;
    let mut response = served.unwrap_or_else(IntoResponse::into_response);
    // A response of the leader has its number.
    response.headers_mut().entry(SEQ).or_insert_with(|| HeaderValue::from(app.service.database().seq().0));
    response
}

async fn in_cluster(
    app: &App,
    cluster: &dyn Cluster,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let asked = Asked::read(request.headers())?;
    if !app.service.database().leads() {
        let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        match place(request.method(), path) {
            Place::Leader => return to_leader(app, cluster, request).await,
            _ if asked.level == Level::Linearizable => return to_leader(app, cluster, request).await,
            Place::Either => return here_or_at_leader(app, cluster, &asked, request, next).await,
            Place::Here => {}
        }
    }
    asked.wait(app).await?;
    Ok(next.run(request).await)
}

/// Serves a request here, and sends it to the leader if it would have written: then it had no effect here.
async fn here_or_at_leader(
    app: &App,
    cluster: &dyn Cluster,
    asked: &Asked,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    asked.wait(app).await?;
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let body = RequestBody::read(&app.service, request, Encoding::Identity).await?.into_bytes();
    let response = next.run(Request::from_parts(parts.clone(), Body::from(body.clone()))).await;
    match response.extensions().get::<Code>() {
        Some(Code::NotLeader) => to_leader(app, cluster, Request::from_parts(parts, Body::from(body))).await,
        _ => Ok(response),
    }
}

async fn to_leader(app: &App, cluster: &dyn Cluster, request: Request) -> Result<Response, Problem> {
    let addresses = cluster.leader();
    let unserved = || Problem::from(app.service.not_leader());
    let leader = addresses.as_ref().and_then(|addresses| addresses.http()).ok_or_else(unserved)?;
    let headers = request.headers();
    if prefers_redirect(headers) {
        return redirect(leader, &request);
    }
    let is_known = headers.contains_key(AUTHORIZATION) || app.service.access().admits_anonymous();
    let in_session = request.extensions().get::<BrowserSession>().is_some();
    let sender = app.settings.leader.as_ref();
    // One that another node has sent here: the two do not agree who leads, and will soon.
    let Some(sender) = sender.filter(|_| is_known && !in_session && !headers.contains_key(FORWARDED)) else {
        return Err(unserved());
    };
    Ok(send_to_leader(&**sender, cluster, NodeAddresses::http, request).await?)
}

/// True if the client wants to send the request to the leader itself.
fn prefers_redirect(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case("redirect"))
}

fn redirect(leader: &str, request: &Request) -> Result<Response, Problem> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let place = HeaderValue::try_from(format!("{leader}{path}"));
    let place = place.map_err(|_| Problem::new(Code::Internal, "the leader's address is no header"))?;
    Ok((StatusCode::TEMPORARY_REDIRECT, [(LOCATION, place)]).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_go_to_the_leader_and_reads_stay() {
        for (method, path, wanted) in [
            (Method::GET, "/v1/stores/{store}/events", Place::Here),
            (Method::POST, "/v1/stores/{store}/events", Place::Leader),
            (Method::POST, "/v1/stores/{store}/events:query", Place::Here),
            (Method::POST, "/v1/stores/{store}/groups/{group}/take", Place::Leader),
            (Method::PUT, "/v1/stores/{store}", Place::Leader),
            (
                Method::POST,
                "/v1/databases/{database}/collections/{collection}/documents:aggregate",
                Place::Either,
            ),
            (
                Method::POST,
                "/v1/databases/{database}/collections/{collection}/documents:update",
                Place::Leader,
            ),
            (Method::POST, "/v1/projects/{project}/databases/(default)/documents/query", Place::Here),
            (Method::POST, "/v1/projects/{project}/databases/(default)/documents/{*path}", Place::Leader),
            (Method::POST, "/v1/transactions", Place::Leader),
            (Method::POST, "/v1/transactions/{transaction}/commit", Place::Leader),
            (Method::POST, "/v1/sql", Place::Either),
            (Method::DELETE, "/v1/session", Place::Here),
            (Method::POST, "/v1/cluster/step-down", Place::Here),
            (Method::POST, "/v1/cluster/check", Place::Leader),
            (Method::DELETE, "/v1/cluster/members/{node}", Place::Leader),
            (Method::PUT, "/v1/users/{user}", Place::Leader),
            (Method::POST, "/read", Place::Here),
            (Method::POST, "/append", Place::Leader),
            (Method::POST, "/api/v1/write", Place::Leader),
            (Method::POST, "/api/v1/query_range", Place::Here),
            (Method::POST, "/api/v1/series", Place::Here),
            (Method::DELETE, "/api/v1/series", Place::Leader),
            (Method::POST, "/api/v1/otlp/v1/metrics", Place::Leader),
            (Method::POST, "/api/v1/config/drop-rules", Place::Leader),
            (Method::POST, "", Place::Here),
        ] {
            assert_eq!(place(&method, path), wanted, "{method} {path}");
        }
    }

    #[test]
    fn every_row_that_needs_more_than_reading_goes_to_the_leader() {
        use ropewalk_auth::Right;
        let local = ["/v1/session", "/v1/backups", "/v1/backups/{backup}", "/v1/cluster/step-down"];
        for row in super::super::operations() {
            let (method, path) = row.name.split_once(' ').unwrap();
            let writes = row.needs.rights.iter().any(|right| *right != Right::Read);
            if writes && method != "GET" && !local.contains(&path) {
                assert_eq!(place(&method.parse().unwrap(), path), Place::Leader, "{}", row.name);
            }
        }
    }

    #[test]
    fn headers_are_read_or_rejected() {
        let asked = |headers: &[(&HeaderName, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert((*name).clone(), value.parse().unwrap());
            }
            Asked::read(&map).ok().map(|asked| (asked.seq.map(|seq| seq.0), asked.level))
        };
        assert_eq!(asked(&[]), Some((None, Level::Session)));
        assert_eq!(asked(&[(&SEQ, "12"), (&READ, "local")]), Some((Some(12), Level::Local)));
        assert_eq!(asked(&[(&READ, "linearizable")]), Some((None, Level::Linearizable)));
        for bad in [(&SEQ, "x"), (&SEQ, "-1"), (&READ, "strong")] {
            assert_eq!(asked(&[bad]), None, "{bad:?}");
        }
        let mut map = HeaderMap::new();
        map.insert(PREFER, "respond-async, Redirect".parse().unwrap());
        assert!(prefers_redirect(&map) && !prefers_redirect(&HeaderMap::new()));
    }
}
