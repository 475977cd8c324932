//! Transactions over events, documents, samples and rows: in one request, or over several.
//!
//! ```text
//! POST /v1/transactions            preconditions, operations ─▶ one commit ─▶ a result for each operation
//! POST /v1/transactions/begin      ─▶ a token; then …/{transaction}/operations, …/{transaction}/commit, DELETE
//! ```
//! `requests` has the bodies, `results` the encoding of results and errors, `documents` transactions of one
//! database of documents. [`ropewalk_transactions`] runs them.

mod documents;
mod requests;
mod results;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ropewalk::Seq;
use ropewalk_auth::Needs;
use ropewalk_transactions::{IdempotencyKey, Request, TransactionId};
use ropewalk_wire::{Bounds, Service};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

use crate::events::IdempotencyHeader;
use crate::kit::body::{JsonText, from_json};
use crate::kit::path::PathRequest;
use crate::kit::problem::{Problem, Result};
use crate::route::Route;
use requests::{BeginIn, OperationsIn, Parsed, Parser, TransactionIn};
use results::{BegunOut, CommittedOut, Encoder, ResultsOut, TransactionOut};

/// Note in the table of rights.
const RIGHTS: &str = "rights of each operation, as if it came alone";

pub(crate) fn routes() -> Vec<Route> {
    vec![
        documents::route(),
        Route::new(Needs::LOGIN.later(RIGHTS), routes!(run)),
        Route::new(Needs::LOGIN.later(RIGHTS), routes!(begin)),
        Route::new(Needs::LOGIN.later(RIGHTS), routes!(run_in)),
        Route::new(Needs::LOGIN.later("transactions of other callers are not found"), routes!(commit)),
        Route::new(Needs::LOGIN.later("transactions of other callers are not found"), routes!(roll_back)),
    ]
}

/// The token in a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TransactionName {
    /// The token of an open transaction.
    transaction: String,
}

impl TransactionName {
    fn id(&self, service: &Service) -> Result<TransactionId> {
        self.transaction.parse().map_err(|cause| results::problem(service, cause))
    }
}

/// Runs all operations in one commit, or none of them.
///
/// Each operation sees the writes of those before it. At `serializable`, the default, nothing that the
/// transaction has read of any model has changed at its commit: the server runs it again when it conflicts
/// with others. An operation with `expect` fails the transaction when it concerns another number of
/// documents or rows. With `at` the transaction only reads, as of that commit. With the header `Idempotency-Key` a repetition of the request writes nothing and gets
/// the first results, also after a restart, for 24 hours.
#[utoipa::path(
    post, path = "/v1/transactions", operation_id = "run_transaction", tag = "transactions",
    params(("idempotency-key" = Option<String>, Header, description = "1 to 255 bytes, unique for the caller. The results of a transaction with a key have at most 1 MiB.")),
    request_body = TransactionIn<'static>,
    responses(
        (status = 200, description = "Committed. A result for each operation, in order.", body = TransactionOut),
        (status = 409, description = "A condition failed, a value exists already, or other commits conflicted too often. Nothing was written."),
        (status = 410, description = "The commit of `at` cannot be read any more: `oldest_readable` can."),
        (status = 412, description = "A precondition or an expected number does not hold. Nothing was written."),
        (status = 422, description = "The key was used for another request, or a document breaks a rule. Nothing was written."),
    ),
)]
async fn run(
    PathRequest { app, caller, .. }: PathRequest,
    IdempotencyHeader(key): IdempotencyHeader,
    body: JsonText,
) -> Result<Response> {
    let bounds = Bounds::new(&app.service);
    let key = key.map(|key| key.to_str().map(str::to_owned)).transpose();
    let key = key.map_err(|_| Problem::invalid_header("the header Idempotency-Key is not ASCII"))?;
    let (parser, of) = (Parser::new(&bounds), caller.clone());
    let parse = move |text: &str| {
        let parsed = parser.transaction(from_json::<TransactionIn<'_>>(text)?)?;
        let key = key.map(|key| IdempotencyKey::new(&of, &key, text.as_bytes())).transpose()?;
        Ok((parsed, key))
    };
    let (Parsed { operations, modes, includes, forms, places }, key) = body.parse(parse).await?;
    if key.is_some() {
        // Keys expire also on servers that begin no transactions.
        app.transactions.start_sweep();
    }
    let request = Request { operations, modes, includes: includes.map(Seq), key };
    let encoder = Encoder::new(&app.service, forms);
    let answer = app.transactions.transact(&caller, &request, &bounds, &encoder).await;
    let answer = answer.map_err(|failure| results::failed(&app.service, failure, &places))?;
    encoder.response(&answer, places.preconditions)
}

/// Begins a transaction over several requests.
///
/// It reads one snapshot and its own writes. It is rolled back by an error of an operation, and after 30
/// seconds without a request.
#[utoipa::path(
    post, path = "/v1/transactions/begin", operation_id = "begin_transaction", tag = "transactions",
    request_body = BeginIn,
    responses(
        (status = 201, description = "Begun.", body = BegunOut),
        (status = 410, description = "The commit of `at` cannot be read any more: `oldest_readable` can."),
    ),
)]
async fn begin(PathRequest { app, caller, .. }: PathRequest, body: JsonText) -> Result<Response> {
    let modes = body.parse(|text| Ok(from_json::<BeginIn>(text)?.modes())).await?;
    let begun = app.transactions.begin(&caller, modes).await;
    let (id, snapshot) = begun.map_err(|failure| results::problem(&app.service, failure.cause))?;
    Ok((StatusCode::CREATED, axum::Json(BegunOut::new(&app.service, id, snapshot))).into_response())
}

/// Runs operations in an open transaction. Positions of appends are null: they are known after the commit.
#[utoipa::path(
    post, path = "/v1/transactions/{transaction}/operations", operation_id = "run_in_transaction", tag = "transactions",
    params(TransactionName),
    request_body = OperationsIn<'static>,
    responses(
        (status = 200, description = "A result for each operation, in order.", body = ResultsOut),
        (status = 409, description = "A condition failed, or a value exists already. The transaction is rolled back."),
        (status = 412, description = "An expected number does not hold. The transaction is rolled back."),
    ),
)]
async fn run_in(at: PathRequest<TransactionName>, body: JsonText) -> Result<Response> {
    let PathRequest { app, caller, names, .. } = at;
    let id = names.id(&app.service)?;
    let bounds = Bounds::new(&app.service);
    let parser = Parser::new(&bounds);
    let parse = move |text: &str| parser.operations(from_json::<OperationsIn<'_>>(text)?);
    let Parsed { operations, forms, places, .. } = body.parse(parse).await?;
    let encoder = Encoder::new(&app.service, forms);
    let answer = app.transactions.run(&caller, id, &operations, &bounds, &encoder).await;
    let answer = answer.map_err(|failure| results::failed(&app.service, failure, &places))?;
    encoder.results(&answer)
}

/// Commits an open transaction.
#[utoipa::path(
    post, path = "/v1/transactions/{transaction}/commit", operation_id = "commit_transaction", tag = "transactions",
    params(TransactionName),
    responses(
        (status = 200, description = "Committed. The positions of each append, in order.", body = CommittedOut),
        (status = 409, description = "Another commit changed what the transaction read, or a condition failed: begin again. Nothing was written."),
    ),
)]
async fn commit(at: PathRequest<TransactionName>) -> Result<Response> {
    let answer = at.app.transactions.commit(&at.caller, at.names.id(&at.app.service)?).await;
    let answer = answer.map_err(|failure| results::problem(&at.app.service, failure.cause))?;
    Ok(axum::Json(CommittedOut::new(&answer)).into_response())
}

/// Rolls an open transaction back. A request that runs in it is cancelled, and fails with 404.
#[utoipa::path(
    delete, path = "/v1/transactions/{transaction}", operation_id = "roll_back_transaction", tag = "transactions",
    params(TransactionName),
    responses((status = 204, description = "Rolled back.")),
)]
async fn roll_back(at: PathRequest<TransactionName>) -> Result<StatusCode> {
    let ended = at.app.transactions.roll_back(&at.caller, at.names.id(&at.app.service)?);
    ended.map_err(|failure| results::problem(&at.app.service, failure.cause))?;
    Ok(StatusCode::NO_CONTENT)
}
