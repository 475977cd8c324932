//! Decision models: fold what is relevant, decide, and append only if it is still true.
//!
//!   projections ─▶ one read ─▶ state + append condition ─▶ decide(state) ─▶ append; on conflict again
//!
//! A projection says which events it needs and how each changes its state. Tuples, `Vec`s and `Option`s of projections
//! are projections, too: one read serves all, and each sees only the events of its own query.
//! Source: DCB specification, "Projections" and "Decision Model".

use core::time::Duration;

use ropewalk_base::Position;

use crate::append::{AppendOptions, Appended};
use crate::codec::SequencedEventRef;
use crate::error::{ApplyError, EventsError};
use crate::store::EventStore;
use crate::typed::FromEvent;
use crate::types::{AppendCondition, Event, Query};

/// State folded from the events of a query.
///
/// Projections compose: a tuple of up to six, a `Vec` of one type, and an `Option` are projections over the union of their
/// queries. The state of each part is folded from the events of its query alone. `None` and an empty `Vec` need no events.
pub trait Projection {
    /// What it folds into.
    type State;
    /// The events it needs.
    fn query(&self) -> Query;
    /// The state before the first event.
    fn initial(&self) -> Self::State;
    /// The state after `event`.
    ///
    /// # Errors
    /// Whatever keeps the event from being applied, such as data that does not decode. The decision then fails with
    /// [`EventsError::Unapplied`].
    fn apply(&self, state: &mut Self::State, event: &SequencedEventRef<'_>) -> Result<(), ApplyError>;

    /// True when `event` matches the query. Called for each part of a composed projection and each event, so that
    /// implementations which store their query should match it instead of building it again.
    fn wants(&self, event: &SequencedEventRef<'_>) -> bool {
        self.query().matches(event.event_type(), event.tags())
    }
}

/// A projection from a query and a closure.
pub struct FnProjection<S, F> {
    query: Query,
    initial: S,
    apply: F,
}

/// Makes a projection: the events of `query` folded into `initial` by `apply`, which cannot fail.
pub fn projection<S: Clone>(
    query: Query,
    initial: S,
    apply: impl Fn(&mut S, &SequencedEventRef<'_>),
) -> FnProjection<S, impl Fn(&mut S, &SequencedEventRef<'_>) -> Result<(), ApplyError>> {
    try_projection(query, initial, move |state, event| {
        apply(state, event);
        Ok(())
    })
}

/// As [`projection`], with an `apply` that may fail; see [`Projection::apply`].
///
/// ```
/// use ropewalk_events::{Query, try_projection};
///
/// let total = try_projection(Query::from_types(["Paid"]), 0_u64, |total, event| {
///     *total += std::str::from_utf8(event.data())?.parse::<u64>()?;
///     Ok(())
/// });
/// # let _ = total;
/// ```
pub fn try_projection<S, F>(query: Query, initial: S, apply: F) -> FnProjection<S, F>
where
    S: Clone,
    F: Fn(&mut S, &SequencedEventRef<'_>) -> Result<(), ApplyError>,
{
    FnProjection { query, initial, apply }
}

/// As [`projection`], with events decoded as `E`; one that does not decode fails the decision.
pub fn typed_projection<E: FromEvent, S: Clone>(
    query: Query,
    initial: S,
    apply: impl Fn(&mut S, E),
) -> FnProjection<S, impl Fn(&mut S, &SequencedEventRef<'_>) -> Result<(), ApplyError>> {
    try_projection(query, initial, move |state, event| {
        apply(state, E::from_event(event)?);
        Ok(())
    })
}

/// A projection that counts the events of a query.
pub fn counter(
    query: Query,
) -> FnProjection<u64, impl Fn(&mut u64, &SequencedEventRef<'_>) -> Result<(), ApplyError>> {
    projection(query, 0, |count, _| *count += 1)
}

/// A projection that says whether any event of a query is there.
pub fn any(
    query: Query,
) -> FnProjection<bool, impl Fn(&mut bool, &SequencedEventRef<'_>) -> Result<(), ApplyError>> {
    projection(query, false, |found, _| *found = true)
}

impl<S, F> Projection for FnProjection<S, F>
where
    S: Clone,
    F: Fn(&mut S, &SequencedEventRef<'_>) -> Result<(), ApplyError>,
{
    type State = S;

    fn query(&self) -> Query {
        self.query.clone()
    }

    fn initial(&self) -> S {
        self.initial.clone()
    }

    fn apply(&self, state: &mut S, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        (self.apply)(state, event)
    }

    fn wants(&self, event: &SequencedEventRef<'_>) -> bool {
        self.query.matches(event.event_type(), event.tags())
    }
}

impl<P: Projection> Projection for Vec<P> {
    type State = Vec<P::State>;

    fn query(&self) -> Query {
        self.iter().map(P::query).fold(Query::none(), Query::union)
    }

    fn initial(&self) -> Self::State {
        self.iter().map(P::initial).collect()
    }

    fn apply(&self, state: &mut Self::State, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        for (part, state) in self.iter().zip(state) {
            if part.wants(event) {
                part.apply(state, event)?;
            }
        }
        Ok(())
    }

    fn wants(&self, event: &SequencedEventRef<'_>) -> bool {
        self.iter().any(|part| part.wants(event))
    }
}

impl<P: Projection> Projection for Option<P> {
    type State = Option<P::State>;

    fn query(&self) -> Query {
        self.as_ref().map_or_else(Query::none, P::query)
    }

    fn initial(&self) -> Self::State {
        self.as_ref().map(P::initial)
    }

    fn apply(&self, state: &mut Self::State, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        match (self, state) {
            (Some(part), Some(state)) => part.apply(state, event),
            _ => Ok(()),
        }
    }

    fn wants(&self, event: &SequencedEventRef<'_>) -> bool {
        self.as_ref().is_some_and(|part| part.wants(event))
    }
}

macro_rules! compose {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Projection),+> Projection for ($($name,)+) {
            type State = ($($name::State,)+);

            fn query(&self) -> Query {
                Query::none()$(.union(self.$index.query()))+
            }

            fn initial(&self) -> Self::State {
                ($(self.$index.initial(),)+)
            }

            fn apply(
                &self,
                state: &mut Self::State,
                event: &SequencedEventRef<'_>,
            ) -> Result<(), ApplyError> {
                $(if self.$index.wants(event) {
                    self.$index.apply(&mut state.$index, event)?;
                })+
                Ok(())
            }

            fn wants(&self, event: &SequencedEventRef<'_>) -> bool {
                false $(|| self.$index.wants(event))+
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
    /// Folds a projection, or a composition of them, in one read.
    ///
    /// # Errors
    /// As [`EventStore::read`]; [`EventsError::Unapplied`] for an event that the projection cannot apply.
    pub fn decision<P: Projection>(&self, model: &P) -> Result<Decision<P::State>, EventsError> {
        let query = model.query();
        let mut state = model.initial();
        let mut reader = self.read(&query, crate::types::ReadOptions::default())?;
        reader.project(model, &mut state)?;
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
