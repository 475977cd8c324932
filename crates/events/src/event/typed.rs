//! Typed events: conversion between an application's types and stored events.
//!
//! ```text
//! types ─▶ ToEvent ─▶ Event ─▶ store ─▶ Recorded ─▶ FromEvent ─▶ types
//! ```
//! Not here: a payload format. Applications supply one, such as serde_json.

use ropewalk_base::Position;

use crate::error::{ApplyError, EventsError, Result};
use crate::event::codec::{BodyRef, SequencedEvent, SequencedEventRef};
use crate::event::types::{Event, Query, QueryItem};

/// A stored event, owned or read in place, from which [`FromEvent`] decodes.
///
/// Both types have methods of the same names themselves; the trait is for code that is generic over them.
pub trait Recorded {
    /// Its number in the store.
    fn position(&self) -> Position;
    /// Commit time, microseconds since 1970 UTC.
    fn time_micros(&self) -> i64;
    /// Its type.
    fn event_type(&self) -> &str;
    /// Its tags, in the order of the append.
    fn tags(&self) -> impl Iterator<Item = &str> + Clone;
    /// The client's metadata, in order.
    fn metadata(&self) -> impl Iterator<Item = (&str, &str)> + Clone;
    /// The payload.
    fn data(&self) -> &[u8];
}

macro_rules! recorded {
    ($type:ty, $inner:ty) => {
        impl Recorded for $type {
            fn position(&self) -> Position {
                self.position
            }

            fn time_micros(&self) -> i64 {
                self.time_micros
            }

            fn event_type(&self) -> &str {
                let inner: &$inner = self;
                inner.event_type()
            }

            fn tags(&self) -> impl Iterator<Item = &str> + Clone {
                let inner: &$inner = self;
                inner.tags()
            }

            fn metadata(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
                let inner: &$inner = self;
                inner.metadata()
            }

            fn data(&self) -> &[u8] {
                let inner: &$inner = self;
                inner.data()
            }
        }
    };
}

recorded!(SequencedEvent, SequencedEvent);
recorded!(SequencedEventRef<'_>, BodyRef<'_>);

/// A type that is appended as an event.
pub trait ToEvent {
    /// The event with its type, tags and data.
    ///
    /// # Errors
    /// A value that does not encode.
    fn to_event(&self) -> Result<Event, ApplyError>;
}

/// A type that stored events are decoded into.
///
/// ```
/// use ropewalk_events::{ApplyError, Event, FromEvent, Recorded, ToEvent};
///
/// struct Paid {
///     order: String,
///     cents: u64,
/// }
///
/// impl ToEvent for Paid {
///     fn to_event(&self) -> Result<Event, ApplyError> {
///         Ok(Event::new("Paid").tag(format!("order:{}", self.order)).data(self.cents.to_string()))
///     }
/// }
///
/// impl FromEvent for Paid {
///     const TYPES: &'static [&'static str] = &["Paid"];
///
///     fn from_event(event: &impl Recorded) -> Result<Self, ApplyError> {
///         let order = event.tags().find_map(|tag| tag.strip_prefix("order:")).ok_or("no tag of an order")?;
///         Ok(Self { order: order.to_owned(), cents: std::str::from_utf8(event.data())?.parse()? })
///     }
/// }
/// ```
pub trait FromEvent: Sized {
    /// The types of the events that it decodes.
    const TYPES: &'static [&'static str];

    /// Decodes an event.
    ///
    /// # Errors
    /// A type that is not in [`FromEvent::TYPES`]; data that does not decode.
    fn from_event(event: &impl Recorded) -> Result<Self, ApplyError>;

    /// All events of its types; no event if it has no types.
    fn query() -> Query {
        Self::tagged([] as [String; 0])
    }

    /// The events of its types that have all of the tags.
    fn tagged<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Query {
        if Self::TYPES.is_empty() {
            return Query::none();
        }
        Query::from_items([QueryItem::new(Self::TYPES.iter().copied(), tags)])
    }
}

/// Metadata key of the version of an event's data.
pub const VERSION_KEY: &str = "event_version";

/// The version of a stored event's data: that of [`VERSION_KEY`], 1 without it.
///
/// # Errors
/// The metadata entry is not a version.
pub fn event_version(event: &impl Recorded) -> Result<u32, ApplyError> {
    let Some((_, version)) = event.metadata().find(|(key, _)| *key == VERSION_KEY) else { return Ok(1) };
    version.parse().map_err(|_| format!("metadata {VERSION_KEY:?} is {version:?}, not a number").into())
}

/// The events of a list of typed ones, to be appended by any call that takes events.
///
/// # Errors
/// [`EventsError::Unencoded`], for the first that does not encode.
pub fn to_events<'e, E: ToEvent + 'e>(typed: impl IntoIterator<Item = &'e E>) -> Result<Vec<Event>> {
    let encode = |(ordinal, event): (usize, &E)| {
        event.to_event().map_err(|source| EventsError::Unencoded { ordinal, source })
    };
    typed.into_iter().enumerate().map(encode).collect()
}

pub(crate) fn decode<E: FromEvent>(event: &impl Recorded) -> Result<E> {
    E::from_event(event).map_err(|source| unapplied(event, source))
}

/// The error of an event that cannot be applied; errors of the store itself are passed on.
pub(crate) fn unapplied(event: &impl Recorded, source: ApplyError) -> EventsError {
    match source.downcast::<EventsError>() {
        Ok(own) => *own,
        Err(source) => {
            let (position, event_type) = (event.position(), event.event_type().to_owned());
            EventsError::Unapplied { position, event_type, source }
        }
    }
}
