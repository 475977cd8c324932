//! `ropewalk.v1.Transactions`: transactions over all models, in one call or over several.
//!
//! ```text
//! message ─▶ requests, documents: operations ─▶ ropewalk-transactions ─▶ results: each encoded once ─▶ frame
//!                                                   └─ failure: a status that names the failed operation
//! ```
//! [`ropewalk_transactions`] runs the transactions of every protocol. Open transactions may be those of HTTP,
//! too: their tokens and limits are the same in both.

mod documents;
mod failure;
mod requests;
mod results;

use core::future::Future;
use std::sync::Arc;

use prost::Message as _;
use ropewalk_auth::Caller;
use ropewalk_transactions::{Failure, OpenTransactions, TransactionId};
use ropewalk_wire::{Bounds, Code, Service, WireError, run_unpinned};
use tokio::time::Instant;
use tonic::{Request, Response};

use crate::events::PROTOCOL;
use crate::frame::{Frame, put_number};
use crate::proto::ropewalk::v1 as proto;
use crate::request::{self, Reply};
use crate::server::transactions::transactions_server;
use failure::Failed;
use requests::{Parsed, Parser};
use results::Encoder;

/// Messages from this size on are converted as blocking work.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// The service.
pub(crate) struct Transactions {
    service: Service,
    open: OpenTransactions,
    /// The event store of operations that name none.
    store: Arc<str>,
}

/// The caller of a call, and when the call must have ended.
struct Call {
    caller: Caller,
    deadline: Instant,
}

impl Call {
    fn bounds(&self, service: &Service) -> Bounds {
        Bounds::with_deadline(service, self.deadline.into_std())
    }
}

impl Transactions {
    pub(crate) fn new(service: Service, open: OpenTransactions, store: Arc<str>) -> Self {
        Self { service, open, store }
    }

    /// Authenticates a call and runs it within its deadline.
    async fn call<T, R, F>(
        &self,
        operation: &'static str,
        request: Request<T>,
        work: impl FnOnce(Call, T) -> F,
    ) -> Reply<R>
    where
        F: Future<Output = Reply<R, Failed>>,
    {
        let timer = self.service.metrics().request(PROTOCOL.name, operation);
        let deadline = request::deadline(&request, self.service.limits().request_time);
        let caller = request::caller(&request);
        // The extensions hold the memory of the message.
        let (_, held, message) = request.into_parts();
        let work = async { work(Call { caller: caller?, deadline }, message).await };
        let result = tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| {
            let what = "the deadline of the request has passed; a commit may still happen";
            Err(WireError::new(Code::Timeout, what).into())
        });
        drop(held);
        timer.done(result.as_ref().map(drop).map_err(|failed| failed.code));
        result.map_err(|failed| failed.status)
    }

    fn failed(&self, failure: impl Into<Failure>) -> Failed {
        Failed::new(&self.service, failure.into(), 0)
    }

    fn id(&self, token: &str) -> Result<TransactionId, Failed> {
        token.parse::<TransactionId>().map_err(|cause| self.failed(cause))
    }

    async fn run(&self, call: Call, message: proto::CommitRequest) -> Reply<Frame, Failed> {
        let bounds = call.bounds(&self.service);
        let is_large = message.encoded_len() > INLINE_BYTES_MAX;
        let parser = Parser::new(&self.store, &bounds);
        let Parsed { request, encoding, preconditions } =
            blocking_if(is_large, || parser.transaction(&call.caller, message))?;
        if request.key.is_some() {
            // Keys expire also on servers that begin no transactions.
            self.open.start_sweep();
        }
        let encoder = Encoder::new(&self.service, encoding);
        let answer = self.open.transact(&call.caller, &request, &bounds, &encoder).await;
        let answer = answer.map_err(|failure| Failed::new(&self.service, failure, preconditions))?;
        let mut head = Vec::new();
        put_number(&mut head, 1, answer.seq.0);
        put_number(&mut head, 2, answer.is_repeated.into());
        encoder.respond(head, 3, answer.results.get(preconditions..).unwrap_or_default())
    }

    async fn open_transaction(
        &self,
        call: Call,
        message: proto::BeginRequest,
    ) -> Reply<proto::BeginResponse, Failed> {
        let proto::BeginRequest { isolation, durability, async_interval_millis, at } = message;
        let modes = requests::modes(isolation, durability, async_interval_millis, at)?;
        let begun = self.open.begin(&call.caller, modes).await;
        let (id, snapshot) = begun.map_err(|failure| self.failed(failure))?;
        let idle_time = self.service.limits().transactions.idle_time;
        Ok(Response::new(proto::BeginResponse {
            transaction: id.to_string(),
            snapshot: snapshot.0,
            idle_millis: u64::try_from(idle_time.as_millis()).unwrap_or(u64::MAX),
        }))
    }

    async fn run_in(&self, call: Call, message: proto::ExecuteRequest) -> Reply<Frame, Failed> {
        let id = self.id(&message.transaction)?;
        let bounds = call.bounds(&self.service);
        let is_large = message.encoded_len() > INLINE_BYTES_MAX;
        let parser = Parser::new(&self.store, &bounds);
        let encoding = requests::encoding(message.document_encoding)?;
        let operations = blocking_if(is_large, || parser.operations(Vec::new(), message.operations))?;
        let encoder = Encoder::new(&self.service, encoding);
        let answer = self.open.run(&call.caller, id, &operations, &bounds, &encoder).await;
        let answer = answer.map_err(|failure| self.failed(failure))?;
        encoder.respond(Vec::new(), 1, &answer.results)
    }

    async fn commit_transaction(
        &self,
        call: Call,
        message: proto::CommitOpenRequest,
    ) -> Reply<proto::CommitOpenResponse, Failed> {
        let id = self.id(&message.transaction)?;
        let answer = self.open.commit(&call.caller, id).await.map_err(|failure| self.failed(failure))?;
        let appends = answer.results.iter().filter_map(|result| result.as_ref().err());
        let appended = appends.map(results::appended).collect();
        Ok(Response::new(proto::CommitOpenResponse { seq: answer.seq.0, appended }))
    }

    async fn roll_back(
        &self,
        call: Call,
        message: proto::RollbackRequest,
    ) -> Reply<proto::RollbackResponse, Failed> {
        let id = self.id(&message.transaction)?;
        self.open.roll_back(&call.caller, id).map_err(|failure| self.failed(failure))?;
        Ok(Response::new(proto::RollbackResponse {}))
    }
}

/// Runs work, without blocking other tasks if it takes long.
fn blocking_if<R>(is_long: bool, work: impl FnOnce() -> R) -> R {
    if is_long { run_unpinned(work) } else { work() }
}

#[tonic::async_trait]
impl transactions_server::Transactions for Transactions {
    async fn commit(&self, request: Request<proto::CommitRequest>) -> Reply<Frame> {
        self.call("transact", request, |call, message| self.run(call, message)).await
    }

    async fn begin(&self, request: Request<proto::BeginRequest>) -> Reply<proto::BeginResponse> {
        self.call("begin", request, |call, message| self.open_transaction(call, message)).await
    }

    async fn execute(&self, request: Request<proto::ExecuteRequest>) -> Reply<Frame> {
        self.call("execute", request, |call, message| self.run_in(call, message)).await
    }

    async fn commit_open(
        &self,
        request: Request<proto::CommitOpenRequest>,
    ) -> Reply<proto::CommitOpenResponse> {
        self.call("commit", request, |call, message| self.commit_transaction(call, message)).await
    }

    async fn rollback(&self, request: Request<proto::RollbackRequest>) -> Reply<proto::RollbackResponse> {
        self.call("rollback", request, |call, message| self.roll_back(call, message)).await
    }
}
