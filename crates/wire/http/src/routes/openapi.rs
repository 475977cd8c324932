//! The OpenAPI document: generated from the handlers, so that it cannot differ from the code.
//!
//! Every operation under `/v1` and of the compatible interfaces can fail in the same ways; those responses
//! are added here once instead of forty times there. So is the body of the failures that an operation describes.

use std::sync::LazyLock;

use axum::response::Response;
use ropewalk_http_kit::response;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{OpenApi, ToSchema};

use super::elsewhere;
use crate::kit::problem::{PROBLEM_TYPE, ProblemBody};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ropewalk",
        description = "Events with conditions, documents, SQL, transactions and streams over HTTP. Errors are problem+json with a stable `code`. The API of Prometheus below `/api/v1` on the same port, and `/metrics`, are not part of this document.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "events", description = "Append, read and follow the events of a store."),
        (name = "consumers", description = "Consumer groups: leases, retries, parked events; checkpoints of consumers."),
        (name = "documents", description = "Documents in Extended JSON: by `_id`, by query, in transactions, and what happens to them."),
        (name = "transactions", description = "Events, documents, samples and rows in one commit: in one request, or over several."),
        (name = "sql", description = "Statements of SQL over every model."),
        (name = "stores", description = "The stores of the database."),
        (name = "backups", description = "Copies of the whole database, made while it is in use."),
        (name = "access", description = "Users, API tokens and what they may do."),
        (name = "compatible", description = "Surfaces that others defined: the DCB k6 suite and the web app of go-crablet. `/cleanup` is there only with the setting `dev`."),
    ),
    paths(elsewhere::run_sql, elsewhere::cancel_sql),
    components(schemas(ProblemBody)),
)]
struct Document;

/// Failures of any operation: status and cause.
const REFUSALS: [(&str, &str); 13] = [
    ("400", "Invalid request: `invalid_argument`."),
    ("401", "Unknown user, wrong password, unknown or expired token: `unauthenticated`."),
    ("403", "The caller may not do this: `permission_denied`."),
    ("404", "There is no such store, collection or document: `not_found`."),
    ("408", "The body came too slowly: `request_timeout`."),
    ("413", "Over a limit of bytes or events: `too_large`."),
    (
        "415",
        "The body is not application/json, or its encoding is not gzip or zstd: `unsupported_media_type`.",
    ),
    (
        "429",
        "Too much at once, or too many failed logins: `resource_exhausted`. `Retry-After` says when to try again.",
    ),
    ("431", "The headers are over the limit: `headers_too_large`."),
    ("500", "Internal error: `internal`, `io` or `corrupt`. The server log has details."),
    (
        "503",
        "The server is stopping: `stopping`. This node of a cluster does not lead, and could not send the request to the leader; it had no effect: `not_leader`. `Retry-After` says when to try again.",
    ),
    (
        "504",
        "Deadline exceeded; an append may have happened: `timeout`. The shared log of a cluster did not answer; a write may have happened: `outcome_unknown`.",
    ),
    ("405", "This path has other methods: `method_not_allowed`."),
];

/// Further failures of operations on documents.
const REFUSALS_OF_DOCUMENTS: [(&str, &str); 3] = [
    ("409", "Already exists, or concurrent changes conflicting: `already_exists`, `key_conflict`."),
    ("412", "A precondition of the request does not hold: `precondition_failed`."),
    (
        "422",
        "A document breaks the validator or a reference of its collection: `validation_failed`; the database is as large as it may be: `quota_exceeded`.",
    ),
];

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten()
}

fn build() -> utoipa::openapi::OpenApi {
    let mut document = super::described(Document::openapi());
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemBody::name()))).build();
    for (path, item) in &mut document.paths.paths {
        let more: &[(&str, &str)] =
            if path.starts_with("/v1/databases") || path.starts_with("/v1/transactions") {
                &REFUSALS_OF_DOCUMENTS
            } else {
                &[]
            };
        for operation in operations(item) {
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response
                    && status.as_str() >= "400"
                    && response.content.is_empty()
                {
                    response
                        .content
                        .insert(PROBLEM_TYPE.to_owned(), utoipa::openapi::RefOr::T(problem.clone()));
                }
            }
            for &(status, description) in REFUSALS.iter().chain(more) {
                let response = ResponseBuilder::new()
                    .description(description)
                    .content(PROBLEM_TYPE, problem.clone())
                    .build();
                operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
            }
        }
    }
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("password", SecurityScheme::Http(Http::new(HttpAuthScheme::Basic)));
    components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    let none: [&str; 0] = [];
    document.security = Some(vec![
        SecurityRequirement::default(),
        SecurityRequirement::new("password", none),
        SecurityRequirement::new("token", none),
    ]);
    document
}

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let mut text = build().to_pretty_json().expect("the document is plain data");
    text.push('\n');
    text
});

pub(crate) fn json() -> String {
    TEXT.clone()
}

pub(super) async fn document() -> Response {
    response::json(TEXT.as_str())
}
