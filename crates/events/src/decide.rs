//! Decision models: fold what is relevant, decide, and append only if it is still true.
//!
//!   projections ─▶ one read ─▶ state + append condition ─▶ decide(state) ─▶ append; on conflict again
//!
//! A projection says which events it needs and how each changes its state. Tuples of projections are decision models:
//! one read serves all, and each sees only the events of its own query.
//! Source: DCB specification, "Projections" and "Decision Model".

use core::time::Duration;

use ropewalk_base::Position;

use crate::append::{AppendOptions, Appended};
use crate::codec::SequencedEventRef;
use crate::error::EventsError;
use crate::store::EventStore;
use crate::types::{AppendCondition, Event, Query};

/// State folded from the events of a query.
pub trait Projection {
    /// What it folds into.
    type State;
    /// The events it needs.
    fn query(&self) -> Query;
    /// The state before the first event.
    fn initial(&self) -> Self::State;
    /// The state after `event`.
    fn apply(&self, state: &mut Self::State, event: &SequencedEventRef<'_>);
}

/// A projection from a query and a closure.
pub struct FnProjection<S, F> {
    query: Query,
    initial: S,
    apply: F,
}

/// Makes a projection: the events of `query` folded into `initial` by `apply`.
pub fn projection<S, F>(query: Query, initial: S, apply: F) -> FnProjection<S, F>
where
    S: Clone,
    F: Fn(&mut S, &SequencedEventRef<'_>),
{
    FnProjection { query, initial, apply }
}

/// A projection that counts the events of a query.
pub fn counter(query: Query) -> FnProjection<u64, impl Fn(&mut u64, &SequencedEventRef<'_>)> {
    projection(query, 0, |count, _| *count += 1)
}

/// A projection that says whether any event of a query is there.
pub fn any(query: Query) -> FnProjection<bool, impl Fn(&mut bool, &SequencedEventRef<'_>)> {
    projection(query, false, |found, _| *found = true)
}

impl<S, F> Projection for FnProjection<S, F>
where
    S: Clone,
    F: Fn(&mut S, &SequencedEventRef<'_>),
{
    type State = S;

    fn query(&self) -> Query {
        self.query.clone()
    }

    fn initial(&self) -> S {
        self.initial.clone()
    }

    fn apply(&self, state: &mut S, event: &SequencedEventRef<'_>) {
        (self.apply)(state, event);
    }
}

fn union(left: Query, right: Query) -> Query {
    if left.is_all() || right.is_all() {
        return Query::all();
    }
    let mut items = left.items;
    for item in right.items {
        if !items.contains(&item) {
            items.push(item);
        }
    }
    Query { items }
}

macro_rules! compose {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Projection),+> Projection for ($($name,)+) {
            type State = ($($name::State,)+);

            fn query(&self) -> Query {
                let queries = [$(self.$index.query()),+];
                queries.into_iter().reduce(union).unwrap_or_default()
            }

            fn initial(&self) -> Self::State {
                ($(self.$index.initial(),)+)
            }

            fn apply(&self, state: &mut Self::State, event: &SequencedEventRef<'_>) {
                $(if self.$index.query().matches(event.event_type(), event.tags()) {
                    self.$index.apply(&mut state.$index, event);
                })+
            }
        }
    };
}

compose!(A 0, B 1);
compose!(A 0, B 1, C 2);
compose!(A 0, B 1, C 2, D 3);
compose!(A 0, B 1, C 2, D 3, E 4);
compose!(A 0, B 1, C 2, D 3, E 4, G 5);

/// What a decision rests on.
#[derive(Debug, Clone)]
pub struct Decision<S> {
    /// The folded state.
    pub state: S,
    /// Holds as long as nothing relevant was appended since.
    pub condition: AppendCondition,
}

/// How often and how patiently a decision is tried again after a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, at least one.
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

/// Why a decision led to no append.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError<E> {
    /// The decider said no.
    #[error("the decision was refused: {0}")]
    Refused(#[source] E),
    /// The store said no; a conflict here means that every attempt met one.
    #[error(transparent)]
    Store(#[from] EventsError),
}

impl EventStore {
    /// Folds a projection, or a tuple of them, in one read.
    ///
    /// # Errors
    /// As [`EventStore::read`].
    pub fn decision<P: Projection>(&self, model: &P) -> Result<Decision<P::State>, EventsError> {
        let query = model.query();
        let mut state = model.initial();
        let mut reader = self.read(&query, crate::types::ReadOptions::default())?;
        while reader.visit(1024, |event| model.apply(&mut state, event))? > 0 {}
        let after = reader.head().or(Some(Position::ZERO));
        Ok(Decision { state, condition: AppendCondition { fail_if_events_match: query, after } })
    }

    /// Folds, decides, and appends what `decide` answers under the condition that nothing relevant came between; on a
    /// conflict everything again. An empty answer appends nothing.
    ///
    /// # Errors
    /// [`DecisionError::Refused`] with the decider's error, at once; [`DecisionError::Store`] otherwise.
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
