//! The terms of the DCB specification (dcb.events): event, tag, query, query item, append condition,
//! sequenced event.

use ropewalk_base::Position;
use uuid::Uuid;

use crate::error::{EventsError, Result};

/// Longest type, tag, metadata key or value, and the most tags or metadata entries of one event.
pub const TEXT_BYTES_MAX: usize = 65_535;
/// Longest store name, tracking source and idempotency key, bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Most items of one query, and most types or tags of one item.
pub const QUERY_TERMS_MAX: usize = 1_000;

/// An event to append.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// Type of the event, such as `CourseDefined`. 1 to 65,535 bytes.
    pub event_type: String,
    /// Subjects of the event, such as `course:c1`. Opaque to the store, no duplicates, 1 to 65,535 bytes
    /// each.
    pub tags: Vec<String>,
    /// The payload, opaque.
    pub data: Vec<u8>,
    /// The client's id of the event.
    pub id: Option<Uuid>,
    /// The client's metadata, in order; keys are unique.
    pub metadata: Vec<(String, String)>,
}

impl Event {
    /// An event of this type, without tags or data.
    pub fn new(event_type: impl Into<String>) -> Self {
        Self { event_type: event_type.into(), ..Self::default() }
    }

    /// Adds a tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets the payload.
    #[must_use]
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: Uuid) -> Self {
        self.id = Some(id);
        self
    }

    /// Adds a metadata entry.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    pub(crate) fn check(&self, ordinal: usize) -> Result<()> {
        let refuse = |what: String| Err(EventsError::InvalidEvent { ordinal, what });
        if self.event_type.is_empty() || self.event_type.len() > TEXT_BYTES_MAX {
            return refuse(format!(
                "type of {} bytes; 1 to {TEXT_BYTES_MAX} are allowed",
                self.event_type.len()
            ));
        }
        if self.tags.len() > TEXT_BYTES_MAX || self.metadata.len() > TEXT_BYTES_MAX {
            return refuse(format!("more than {TEXT_BYTES_MAX} tags or metadata entries"));
        }
        if let Some(tag) = self.tags.iter().find(|t| t.is_empty() || t.len() > TEXT_BYTES_MAX) {
            return refuse(format!("tag of {} bytes; 1 to {TEXT_BYTES_MAX} are allowed", tag.len()));
        }
        if let Some(tag) = first_duplicate(self.tags.iter().map(String::as_str)) {
            return refuse(format!("duplicate tag {tag:?}"));
        }
        if self.metadata.iter().any(|(k, v)| k.len() > TEXT_BYTES_MAX || v.len() > TEXT_BYTES_MAX) {
            return refuse(format!("metadata key or value over {TEXT_BYTES_MAX} bytes"));
        }
        if let Some(key) = first_duplicate(self.metadata.iter().map(|(k, _)| k.as_str())) {
            return refuse(format!("duplicate metadata key {key:?}"));
        }
        Ok(())
    }
}

fn first_duplicate<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let mut sorted: Vec<&str> = words.collect();
    sorted.sort_unstable();
    sorted.array_windows().find(|[a, b]| a == b).map(|[a, _]| *a)
}

/// A query item: any of the types (none = every type) AND all of the tags.
///
/// Types and tags are found by their postings, at a cost proportional to the matches. Prefixes are compared
/// with each event that remains after the item's `tags`, and its `types` without `type_prefixes`; without any
/// of these, with every event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct QueryItem {
    /// The event's type is one of these, or begins with one of `type_prefixes`; both empty = any type.
    pub types: Vec<String>,
    /// The event has all of these.
    pub tags: Vec<String>,
    /// The event's type begins with one of these, or is one of `types`.
    pub type_prefixes: Vec<String>,
    /// For each of these the event has a tag that begins with it.
    pub tag_prefixes: Vec<String>,
}

impl QueryItem {
    /// An item from types and tags.
    pub fn new<T: Into<String>, U: Into<String>>(
        types: impl IntoIterator<Item = T>,
        tags: impl IntoIterator<Item = U>,
    ) -> Self {
        Self {
            types: types.into_iter().map(Into::into).collect(),
            tags: tags.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Also events whose type begins with this.
    #[must_use]
    pub fn type_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.type_prefixes.push(prefix.into());
        self
    }

    /// Only events with a tag that begins with this.
    #[must_use]
    pub fn tag_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.tag_prefixes.push(prefix.into());
        self
    }

    /// True when matching has to read the events.
    pub fn has_prefixes(&self) -> bool {
        !self.type_prefixes.is_empty() || !self.tag_prefixes.is_empty()
    }

    /// True when it has no criteria.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty() && self.tags.is_empty() && !self.has_prefixes()
    }

    /// True when an event of this type with these tags matches.
    pub fn matches<'a>(&self, event_type: &str, tags: impl Iterator<Item = &'a str> + Clone) -> bool {
        let any_type = self.types.is_empty() && self.type_prefixes.is_empty();
        let begins = |text: &str, prefix: &String| text.starts_with(prefix.as_str());
        (any_type
            || self.types.iter().any(|t| t == event_type)
            || self.type_prefixes.iter().any(|prefix| begins(event_type, prefix)))
            && self.tags.iter().all(|wanted| tags.clone().any(|tag| tag == wanted))
            && self.tag_prefixes.iter().all(|prefix| tags.clone().any(|tag| begins(tag, prefix)))
    }
}

/// Selects events: those that match any of the items; without items all events, or none ([`Query::none`]).
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Query {
    /// The items, combined with OR.
    pub items: Vec<QueryItem>,
    /// If there are no items, no event matches.
    none: bool,
}

impl Query {
    /// Every event.
    pub fn all() -> Self {
        Self::default()
    }

    /// Matches no event: for an absent optional part of a decision.
    ///
    /// Reads and subscriptions find nothing, an append condition on it never fails. [`Query::or`] adds items
    /// to it.
    pub fn none() -> Self {
        Self { items: Vec::new(), none: true }
    }

    /// Events that match any of the items; all events if there are no items.
    pub fn from_items(items: impl IntoIterator<Item = QueryItem>) -> Self {
        Self { items: items.into_iter().collect(), none: false }
    }

    /// Events of any of the types.
    pub fn from_types<T: Into<String>>(types: impl IntoIterator<Item = T>) -> Self {
        Self::from_items([QueryItem::new(types, [] as [String; 0])])
    }

    /// Events with all of the tags.
    pub fn from_tags<T: Into<String>>(tags: impl IntoIterator<Item = T>) -> Self {
        Self::from_items([QueryItem::new([] as [String; 0], tags)])
    }

    /// Adds an item.
    #[must_use]
    pub fn or(mut self, item: QueryItem) -> Self {
        self.items.push(item);
        self.none = false;
        self
    }

    /// Events that match either query.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        if self.is_none() || other.is_all() {
            return other;
        }
        if self.is_all() {
            return self;
        }
        for item in other.items {
            if !self.items.contains(&item) {
                self.items.push(item);
            }
        }
        self
    }

    /// True when every event matches.
    pub fn is_all(&self) -> bool {
        self.items.is_empty() && !self.none
    }

    /// True when no event can match.
    pub fn is_none(&self) -> bool {
        self.items.is_empty() && self.none
    }

    /// True when matching has to read the events; see [`QueryItem`].
    pub fn has_prefixes(&self) -> bool {
        self.items.iter().any(QueryItem::has_prefixes)
    }

    /// True when an event of this type with these tags matches.
    pub fn matches<'a>(&self, event_type: &str, tags: impl Iterator<Item = &'a str> + Clone) -> bool {
        self.is_all() || self.items.iter().any(|item| item.matches(event_type, tags.clone()))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(EventsError::InvalidQuery { what });
        if self.items.len() > QUERY_TERMS_MAX {
            return refuse(format!("{} items; at most {QUERY_TERMS_MAX} are allowed", self.items.len()));
        }
        for (ordinal, item) in self.items.iter().enumerate() {
            if item.is_empty() {
                return refuse(format!(
                    "item {ordinal} has neither types nor tags; a query without items means all events"
                ));
            }
            let lists = [&item.types, &item.tags, &item.type_prefixes, &item.tag_prefixes];
            if lists.iter().any(|list| list.len() > QUERY_TERMS_MAX) {
                return refuse(format!("item {ordinal} has more than {QUERY_TERMS_MAX} types or tags"));
            }
            if lists.into_iter().flatten().any(|text| text.is_empty() || text.len() > TEXT_BYTES_MAX) {
                return refuse(format!(
                    "item {ordinal} has a type, tag or prefix that is empty or over {TEXT_BYTES_MAX} bytes"
                ));
            }
        }
        Ok(())
    }
}

/// "Append only if nothing relevant happened since I read."
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppendCondition {
    /// The append fails if an event matches this…
    pub fail_if_events_match: Query,
    /// …at a position after this one. `None`: at any position. May lie beyond the head.
    pub after: Option<Position>,
}

impl AppendCondition {
    /// Fails if any event at all matches.
    pub fn none_match(query: Query) -> Self {
        Self { fail_if_events_match: query, after: None }
    }

    /// Fails if an event after `position` matches.
    #[must_use]
    pub fn after(mut self, position: Position) -> Self {
        self.after = Some(position);
        self
    }
}

/// Progress of a consumer in an upstream source, stored with the events that it caused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracking {
    /// Name of the upstream source, 1 to 255 bytes.
    pub source: String,
    /// Position there; rises with every append that names the source.
    pub position: u64,
}

/// Range, direction and limit of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    /// First position to read, inclusive, in the direction of reading. `None`: the first, or backwards the
    /// last.
    pub from: Option<Position>,
    /// Only events after this position.
    pub after: Option<Position>,
    /// Only events before this position.
    pub before: Option<Position>,
    /// Newest first.
    pub backwards: bool,
    /// Limit of events.
    pub limit: Option<u64>,
}

impl ReadOptions {
    /// Newest first.
    pub fn backwards() -> Self {
        Self { backwards: true, ..Self::default() }
    }

    /// Starts at `position`, inclusive.
    #[must_use]
    pub fn from(mut self, position: Position) -> Self {
        self.from = Some(position);
        self
    }

    /// Only events after `position`.
    #[must_use]
    pub fn after(mut self, position: Position) -> Self {
        self.after = Some(position);
        self
    }

    /// Only events before `position`.
    #[must_use]
    pub fn before(mut self, position: Position) -> Self {
        self.before = Some(position);
        self
    }

    /// At most `limit` events.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Inclusive bounds on positions for a store whose last visible position is `head`; empty when low >
    /// high.
    pub(crate) fn bounds(&self, head: u64) -> (u64, u64) {
        let mut low = self.after.map_or(1, |p| p.0.saturating_add(1));
        let mut high = head.min(self.before.map_or(u64::MAX, |p| p.0.saturating_sub(1)));
        match (self.from, self.backwards) {
            (Some(from), false) => low = low.max(from.0),
            (Some(from), true) => high = high.min(from.0),
            (None, _) => {}
        }
        (low.max(1), high)
    }
}
