//! Transactions whose commit is awaited asynchronously, for servers with many clients and few threads.
//!
//! ```text
//! work ─▶ operations ─▶ queue of the engine ─▶ one log write for all queued ─▶ wake the awaiting tasks
//! ```
//! The work itself runs on the caller's thread; only the disk is awaited.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use ropewalk_engine::{CommitHandle, Durability, InFlightCommit};

use crate::error::Result;
use crate::model::Documents;
use crate::transaction::tx::DocumentsTx;

/// Result of a transaction, once it is as durable as requested. Dropping it does not cancel the commit.
pub struct Submitted<R> {
    documents: Documents,
    result: Option<R>,
    /// `None`: it wrote nothing.
    handle: Option<CommitHandle>,
}

impl Documents {
    /// Runs `work` once, in a new transaction, and queues the commit. Never blocks: callers check the
    /// engine's capacity first.
    ///
    /// # Errors
    /// The errors of `work`; an error of the engine while its queue is full. When awaited:
    /// [`crate::DocumentsError::Conflict`], after which the same work may be submitted again once the other commit
    /// is visible; errors of the engine.
    pub fn submit<R>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut DocumentsTx<'_>) -> Result<R>,
    ) -> Result<Submitted<R>> {
        let (result, operations) = self.prepared(work)?;
        let handle = match operations.is_empty() {
            true => None,
            false => {
                Some(self.engine.try_submit(operations, durability).map_err(|error| self.failed(error))?)
            }
        };
        Ok(Submitted { documents: self.clone(), result: Some(result), handle })
    }
}

impl<R: Unpin> InFlightCommit for Submitted<R> {
    fn can_lead(&self) -> bool {
        self.handle.as_ref().is_some_and(CommitHandle::can_lead)
    }

    fn lead(&mut self) {
        self.handle.iter_mut().for_each(CommitHandle::lead);
    }
}

impl<R: Unpin> Future for Submitted<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(handle) = &mut self.handle {
            match Pin::new(handle).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.documents.failed(error))),
            }
        }
        self.handle = None;
        Poll::Ready(Ok(self.result.take().expect("a future is not polled again once it is ready")))
    }
}
