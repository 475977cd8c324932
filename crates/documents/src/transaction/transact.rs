//! Transactions of one statement or closure, retried after a conflict with another commit.

use core::time::Duration;

use ropewalk_engine::{
    CommitError, Durability, EngineError, Isolation, KeyConflict, KvTransaction, Operation, Rejection,
};

use crate::error::{DocumentsError, Result};
use crate::model::Documents;
use crate::transaction::tx::{DocumentsState, DocumentsTx};

/// Most attempts at a transaction that conflicts with other commits.
const ATTEMPTS: usize = 1000;
impl Documents {
    /// Runs `work` once, in a new transaction.
    pub(crate) fn attempt<R>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut DocumentsTx<'_>) -> Result<R>,
    ) -> Result<R> {
        let (result, operations) = self.prepared(work)?;
        if operations.is_empty() {
            return Ok(result);
        }
        self.engine.commit(operations, durability).map(|_| result).map_err(|error| self.failed(error))
    }

    /// Runs `work` in a new transaction; returns its result and the operations to commit.
    pub(crate) fn prepared<R>(
        &self,
        work: impl FnOnce(&mut DocumentsTx<'_>) -> Result<R>,
    ) -> Result<(R, Vec<Box<dyn Operation>>)> {
        let mut kv = KvTransaction::new(self.engine.clone(), Isolation::ReadCommitted);
        let mut state = DocumentsState::default();
        let result = work(&mut DocumentsTx::new(self, &mut kv, &mut state))?;
        let mut operations: Vec<Box<dyn Operation>> = state.operation().into_iter().collect();
        if kv.has_writes() {
            operations.push(Box::new(kv.into_batch()));
        }
        Ok((result, operations))
    }

    pub(crate) fn failed(&self, error: CommitError) -> DocumentsError {
        match error {
            CommitError::Rejected(reason) => self.rejected(reason),
            other => EngineError::from(other).into(),
        }
    }

    fn rejected(&self, reason: Rejection) -> DocumentsError {
        match reason.downcast::<KeyConflict>() {
            Ok(conflict) => {
                let seq = conflict.seq;
                let unknown = || DocumentsError::Conflict { what: "a key".into(), seq };
                self.explain(&conflict).unwrap_or_else(unknown)
            }
            Err(reason) => match reason.downcast::<EngineError>() {
                Ok(error) => (*error).into(),
                Err(other) => DocumentsError::InvalidOptions { what: other.to_string() },
            },
        }
    }

    /// Runs `work` in a new transaction, and retries it after a conflict. `work` must have no side effects
    /// outside the transaction. Every statement reads the newest commit; all data that the statement depends
    /// on is unchanged at commit.
    ///
    /// # Errors
    /// The errors of `work`; the last conflict.
    pub fn transact<R>(
        &self,
        durability: Durability,
        mut work: impl FnMut(&mut DocumentsTx<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut attempt = 1;
        loop {
            match self.attempt(durability, &mut work) {
                Err(DocumentsError::Conflict { seq, .. }) if attempt < ATTEMPTS => {
                    attempt += 1;
                    // The other commit becomes visible only once it is durable.
                    self.engine.wait_visible(seq, Duration::from_secs(1));
                }
                result => return result,
            }
        }
    }
}
