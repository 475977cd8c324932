//! Decision models: fold the relevant events, decide, and append only if the state is still current.
//!
//!   projections ─▶ one read ─▶ state + append condition ─▶ decide(state) ─▶ append; retried on conflict
//!
//! Source: DCB specification, "Decision Model".

use core::time::Duration;

use ropewalk_base::Position;

use crate::append::{AppendOptions, Appended};
use crate::error::{EventsError, Result};
use crate::event::types::{AppendCondition, Event};
use crate::read::projection::Projection;
use crate::store::EventStore;

/// The state of a decision and the condition for its append.
#[derive(Debug, Clone)]
pub struct Decision<S> {
    /// The folded state.
    pub state: S,
    /// Fails if a relevant event was appended since.
    pub condition: AppendCondition,
}

/// Number and pauses of retries after a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in total, at least one.
    pub attempts: u32,
    /// Pause before the second attempt; doubles with each, with random jitter between half and all of it.
    pub first_pause: Duration,
    /// Longest pause.
    pub longest_pause: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 10,
            first_pause: Duration::from_micros(200),
            longest_pause: Duration::from_millis(50),
        }
    }
}

/// Reasons for a decision to append nothing.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError<E> {
    /// The decider rejected it.
    #[error("the decision was refused: {0}")]
    Refused(#[source] E),
    /// The store rejected it; a conflict here means that every attempt met one.
    #[error(transparent)]
    Store(#[from] EventsError),
}

impl EventStore {
    /// Folds a projection, or a composition of them, in one read.
    ///
    /// # Errors
    /// As [`EventStore::read`]; [`EventsError::Unapplied`] for an event that the projection cannot apply.
    pub fn decision<P: Projection>(&self, model: &P) -> Result<Decision<P::State>> {
        let query = model.query();
        let mut state = model.initial();
        let mut reader = self.read(&query, crate::event::types::ReadOptions::default())?;
        reader.project(model, &mut state)?;
        let after = reader.head().or(Some(Position::ZERO));
        Ok(Decision { state, condition: AppendCondition { fail_if_events_match: query, after } })
    }

    /// Folds, decides, and appends the events that `decide` returns under the condition that no relevant
    /// event was appended since; retries all of it after a conflict. An empty result appends nothing.
    ///
    /// # Errors
    /// [`DecisionError::Refused`] with the decider's error, without a retry; [`DecisionError::Store`]
    /// otherwise.
    pub fn execute_decision<P: Projection, E>(
        &self,
        model: &P,
        retry: RetryPolicy,
        mut decide: impl FnMut(&P::State) -> Result<Vec<Event>, E>,
    ) -> Result<Option<Appended>, DecisionError<E>> {
        let mut pause = retry.first_pause;
        let mut attempt = 1;
        loop {
            let decision = self.decision(model)?;
            let events = decide(&decision.state).map_err(DecisionError::Refused)?;
            if events.is_empty() {
                return Ok(None);
            }
            match self.append_with(&events, AppendOptions::condition(decision.condition)) {
                Ok(appended) => return Ok(Some(appended)),
                Err(error) if error.is_conflict() && attempt < retry.attempts => {}
                Err(error) => return Err(error.into()),
            }
            attempt += 1;
            let env = self.engine.env();
            let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
            env.clock.sleep(Duration::from_nanos(nanos / 2 + env.random.next_u64() % (nanos / 2).max(1)));
            pause = pause.saturating_mul(2).min(retry.longest_pause);
        }
    }
}
