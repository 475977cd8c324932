//! Descriptions of the operations that the crate of PostgreSQL's protocol serves on this port. That crate has
//! their handlers and their rights; a test of the server compares its table with the OpenAPI document. Only the
//! schemas of the types here are used.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::kit::problem::ProblemBody;

/// A text with statements.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SqlRequest)]
#[allow(dead_code)]
struct SqlIn {
    /// Statements, which are one transaction unless BEGIN and COMMIT are among them.
    #[schema(example = "SELECT $1::int + 1 AS next")]
    sql: String,
    /// Values of `$1`, `$2`, … of a single statement: numbers, booleans, or texts in PostgreSQL's format.
    #[serde(default)]
    #[schema(example = json!([41]))]
    params: Vec<serde_json::Value>,
}

/// The results of all statements, in order.
#[derive(Serialize, ToSchema)]
#[schema(as = SqlResults)]
#[allow(dead_code)]
struct SqlOut {
    results: Vec<SqlResultOut>,
}

/// The result of a statement.
#[derive(Serialize, ToSchema)]
#[schema(as = SqlResult)]
#[allow(dead_code)]
struct SqlResultOut {
    /// The command tag of PostgreSQL.
    #[schema(example = "SELECT 1")]
    command: String,
    /// Absent for a statement that returns no rows, as `rows`.
    #[serde(skip_serializing_if = "Option::is_none")]
    columns: Option<Vec<SqlColumnOut>>,
    /// A value for each column: integers, finite floats, booleans, `json` and `jsonb` as JSON, other types as
    /// texts in PostgreSQL's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!([[42]]))]
    rows: Option<Vec<Vec<serde_json::Value>>>,
}

/// A column of a result.
#[derive(Serialize, ToSchema)]
#[schema(as = SqlColumn)]
#[allow(dead_code)]
struct SqlColumnOut {
    /// Several columns may have the same name.
    #[schema(example = "next")]
    name: String,
    #[serde(rename = "type")]
    #[schema(example = "integer")]
    ty: String,
}

/// Runs the statements of a text.
///
/// `Accept` selects the form of the response. NDJSON, CSV and Arrow are the rows of a single statement; a text
/// of several statements, or a statement without rows, is rejected with 400 before it runs. The caller needs
/// the rights of each statement. Problems have `sqlstate` and, where applicable, `explanation`, `hint`,
/// `position`, `schema`, `table`, `column` and `constraint`.
#[utoipa::path(
    post, path = "/v1/sql", operation_id = "run_sql", tag = "sql",
    params(("x-statement-id" = Option<String>, Header, description = "1 to 64 bytes, which no other running request of the caller has: `DELETE /v1/sql/{id}` cancels this request.")),
    request_body = SqlIn,
    responses(
        (status = 200, description = "Every statement ran. NDJSON has an object for each row, CSV (RFC 4180) a line of names and a line for each row, Arrow is its IPC stream.",
            content((SqlOut = "application/json"), (String = "application/x-ndjson"), (String = "text/csv"), (serde_json::Value = "application/vnd.apache.arrow.stream"))),
        (status = 409, description = "A running request of the caller has this id, an object exists already, or other commits conflicted too often.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 504, description = "Cancelled, or over the time limit of a request, SQLSTATE 57014: `timeout`. Earlier commits of the text remain. The shared log of a cluster did not answer; a write may have happened: `outcome_unknown`.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
#[allow(dead_code)]
pub(super) fn run_sql() {}

/// Cancels a request that was sent with `X-Statement-Id`, which then fails with 504.
#[utoipa::path(
    delete, path = "/v1/sql/{id}", operation_id = "cancel_sql", tag = "sql",
    params(("id" = String, Path, description = "The id in the header of the request.")),
    responses(
        (status = 204, description = "The request is being cancelled."),
        (status = 404, description = "No running request of the caller has this id: `not_found`.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
#[allow(dead_code)]
pub(super) fn cancel_sql() {}
