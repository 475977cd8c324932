//! A commit that has to follow a certain one: no other commit may come between.

use ropewalk_base::Seq;

use crate::error::Rejection;
use crate::model::version::ReadView;
use crate::model::{KV, ModelId, Operation, Outcome, Verdict};

/// The newest commit is another one than expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the newest commit is {newest}, {expected} is expected")]
pub struct NotNewest {
    /// The expected commit.
    pub expected: Seq,
    /// The newest commit.
    pub newest: Seq,
}

/// Requires that its commit directly follows this one; writes nothing.
///
/// Otherwise the transaction is rejected with [`NotNewest`].
#[derive(Debug, Clone, Copy)]
pub struct FollowsCommit(pub Seq);

impl Operation for FollowsCommit {
    fn model(&self) -> ModelId {
        KV
    }

    fn bytes_max(&self) -> usize {
        0
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn follows(&self) -> Option<Seq> {
        Some(self.0)
    }

    // The engine compares the numbers, which a view does not have.
    fn validate(&mut self, _: ReadView<'_>) -> Result<Verdict, Rejection> {
        Ok(Verdict::Write)
    }

    fn encode(&mut self, _: Seq, _: i64, _: &mut Vec<u8>) -> Outcome {
        (0, 0)
    }
}
