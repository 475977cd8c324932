//! Several operations on documents of one database in one commit: all of them, or none.

use axum::response::Response;
use ropewalk_auth::Needs;
use ropewalk_transactions::{Modes, Request};
use ropewalk_wire::Bounds;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::requests::{DocumentsIn, Parsed, Parser};
use super::results::{self, Encoder};
use crate::documents::collections::DatabaseName;
use crate::kit::body::{JsonText, from_json};
use crate::kit::json::{DurabilityIn, Object};
use crate::kit::path::PathRequest;
use crate::kit::problem::Result;
use crate::route::{DATABASE, Route};

pub(super) fn route() -> Route {
    Route::new(Needs::read_and_append(DATABASE), routes!(transaction))
}

/// A transaction.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TransactionRequest)]
struct TransactionIn<'a> {
    /// In this order; each sees the writes of those before it.
    #[serde(borrow)]
    #[schema(value_type = Vec<DocumentsIn<'a>>)]
    operations: Vec<Object<DocumentsIn<'a>>>,
    /// As for appends.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^(sync|buffered|async:[0-9]+)$")]
    durability: DurabilityIn,
}

/// The result of each operation, as its own route returns it.
#[derive(Serialize, ToSchema)]
#[schema(as = TransactionResults)]
#[allow(dead_code)] // only its schema is used: the results are written by hand
struct ResultsOut {
    #[schema(value_type = Vec<Object>)]
    results: Vec<serde_json::Value>,
}

/// Runs all of the operations, in one commit, or none.
///
/// Each reads the writes of those before it. Nothing that they have read has changed at the commit: the
/// server retries a transaction that conflicts with others. With `expect` an operation fails the entire
/// transaction when it does not concern so many documents.
#[utoipa::path(
    post, path = "/v1/databases/{database}/transaction", operation_id = "transaction", tag = "documents",
    params(DatabaseName),
    request_body = TransactionIn<'static>,
    responses(
        (status = 200, description = "Committed. A result for each operation, in order.", body = ResultsOut),
        (status = 409, description = "A document is there, or a unique index has its values: `already_exists`. Nothing was written."),
    ),
)]
async fn transaction(at: PathRequest<DatabaseName>, body: JsonText) -> Result<Response> {
    let PathRequest { app, caller, names: DatabaseName { database }, .. } = at;
    let bounds = Bounds::new(&app.service);
    let parser = Parser::new(&bounds);
    let parse = move |text: &str| {
        let TransactionIn { operations, durability } = from_json(text)?;
        let modes = Modes { durability: durability.0, ..Modes::default() };
        parser.documents_of(&operations, &database, modes)
    };
    let Parsed { operations, modes, forms, places, .. } = body.parse(parse).await?;
    let request = Request { operations, modes, includes: None, key: None };
    let encoder = Encoder::new(&app.service, forms);
    let answer = app.transactions.transact(&caller, &request, &bounds, &encoder).await;
    let answer = answer.map_err(|failure| results::failed(&app.service, failure, &places))?;
    encoder.results(&answer)
}
