//! Projections: the needed events, and how each changes a state.
//!
//! Tuples, `Vec`s and `Option`s of projections are projections, too: one read serves all, and each sees only
//! the events of its query. Source: DCB specification, "Projections".

use crate::error::ApplyError;
use crate::event::codec::SequencedEventRef;
use crate::event::typed::FromEvent;
use crate::event::types::Query;

/// State folded from the events of a query.
///
/// Projections compose: a tuple of up to six, a `Vec` of one type, and an `Option` are projections over the
/// union of their queries. The state of each part is folded from the events of its query alone. `None` and an
/// empty `Vec` need no events.
pub trait Projection {
    /// The folded state.
    type State;
    /// The events it needs.
    fn query(&self) -> Query;
    /// The state before the first event.
    fn initial(&self) -> Self::State;
    /// The state after `event`.
    ///
    /// # Errors
    /// An event that cannot be applied, for example because its data does not decode. The decision then fails
    /// with [`EventsError::Unapplied`](crate::error::EventsError::Unapplied).
    fn apply(&self, state: &mut Self::State, event: &SequencedEventRef<'_>) -> Result<(), ApplyError>;

    /// True when `event` matches the query. Called for each part of a composed projection and each event, so
    /// that implementations which store their query should match it instead of building it again.
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

/// Creates a projection: the events of `query` folded into `initial` by `apply`, which cannot fail.
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
pub fn count(
    query: Query,
) -> FnProjection<u64, impl Fn(&mut u64, &SequencedEventRef<'_>) -> Result<(), ApplyError>> {
    projection(query, 0, |count, _| *count += 1)
}

/// A projection to whether any event of a query exists.
pub fn exists(
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
