//! Linearizable reads: readers that wait for the proof that this node leads.
//!
//! ```text
//! reader ─┐
//! reader ─┼▶ one Renew entry, begun after all of them ─▶ the newest visible commit, to each
//! reader ─┘
//! ```
//! A reader that comes while an entry is on its way waits for the next one: that entry may have been stored before a
//! commit of another leader.

use core::time::Duration;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use ropewalk::Seq;
use ropewalk_base::sync::Mutex;
use ropewalk_engine::EngineError;
use ropewalk_log::LogError;

/// Why there is no barrier.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// This node does not lead.
    #[error("this node does not lead")]
    NotLeader {
        /// Address of the node that does, if it is known.
        leader: Option<String>,
    },
    /// The shared log did not answer within the caller's time.
    #[error("the shared log did not confirm in time that this node leads")]
    Late,
    /// The node failed.
    #[error(transparent)]
    Engine(EngineError),
}

impl From<EngineError> for BarrierError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::NotLeader { leader } => Self::NotLeader { leader },
            // The log gave no answer within the patience of the node.
            EngineError::Log(error) if matches!(*error, LogError::Unknown { .. }) => Self::Late,
            other => Self::Engine(other),
        }
    }
}

pub(crate) type Answer = Result<Seq, BarrierError>;

/// Readers that wait.
#[derive(Default)]
pub(crate) struct Barriers {
    waiting: Mutex<Vec<Sender<Answer>>>,
}

impl Barriers {
    /// Adds a reader.
    pub(crate) fn enter(&self) -> Receiver<Answer> {
        let (sender, receiver) = channel();
        self.waiting.lock().push(sender);
        receiver
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Answers the readers that have come before `prove` begins.
    pub(crate) fn serve(&self, prove: impl FnOnce() -> Answer) {
        let waiting = core::mem::take(&mut *self.waiting.lock());
        if waiting.is_empty() {
            return;
        }
        let answer = prove();
        for reader in waiting {
            // One that has given up is gone.
            let _ = reader.send(answer.clone());
        }
    }
}

/// Waits for an answer.
pub(crate) fn wait(receiver: &Receiver<Answer>, left: Duration) -> Answer {
    receiver.recv_timeout(left).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(BarrierError::Late),
        // The node has ended and dropped its readers.
        RecvTimeoutError::Disconnected => Err(BarrierError::NotLeader { leader: None }),
    })
}
