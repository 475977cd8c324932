//! Event stores under the same measurement: the required operations, and the definition of "reading an
//! event".

use std::path::Path;

use anyhow::Result;

/// An event to append.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its type.
    pub kind: String,
    /// Its payload.
    pub data: Vec<u8>,
    /// Its tags.
    pub tags: Vec<String>,
}

/// A query item: any of the types (all when empty) and all of the tags.
#[derive(Debug, Clone, Default)]
pub struct Item {
    /// Any of these types.
    pub kinds: Vec<String>,
    /// All of these tags.
    pub tags: Vec<String>,
}

/// A query: any of the items; without items every event.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// The items.
    pub items: Vec<Item>,
}

impl Query {
    /// Every event.
    pub fn all() -> Self {
        Self::default()
    }

    /// One item.
    pub fn of(kinds: &[&str], tags: &[&str]) -> Self {
        Self::all().or(kinds, tags)
    }

    /// The same query with one more item.
    pub fn or(mut self, kinds: &[&str], tags: &[&str]) -> Self {
        let owned = |all: &[&str]| all.iter().map(|&s| s.to_owned()).collect();
        self.items.push(Item { kinds: owned(kinds), tags: owned(tags) });
        self
    }
}

/// Direction of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Oldest first.
    Forward,
    /// Newest first.
    Backward,
}

/// When an append returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// After the bytes are durable.
    Synced,
    /// After the operating system has the bytes.
    Buffered,
}

/// A store under measurement.
pub trait EventStore: Sized + Sync {
    /// Events in the form that `append` takes; made outside the clock.
    type Batch: Send;
    /// A query in the form that `read` takes; made outside the clock.
    type Filter: Sync;
    /// An event that outlives the read.
    type Owned;

    /// False when appends from several threads at once are not safe.
    const CONCURRENT: bool;

    /// Opens the store in `dir`, creating it when the directory is empty.
    fn open(dir: &Path) -> Result<Self>;
    /// Prepares events.
    fn batch(events: Vec<Event>) -> Self::Batch;
    /// Prepares a query.
    fn filter(query: &Query) -> Self::Filter;
    /// Appends atomically unless `unless` finds an event; returns the last position. A conflict is `Ok(None)`.
    fn append(&self, batch: Self::Batch, unless: Option<&Self::Filter>, flush: Flush) -> Result<Option<u64>>;
    /// Passes every match, up to `limit`, to `visitor`, streaming as far as the store can.
    fn read<V: Visitor>(
        &self,
        filter: &Self::Filter,
        direction: Direction,
        limit: Option<u32>,
        visitor: &mut V,
    ) -> Result<()>;
    /// Reads every match into an array, like an application that stores them.
    fn collect(&self, filter: &Self::Filter, direction: Direction) -> Result<Vec<Self::Owned>>;
    /// Position of the newest event, 0 when the store is empty.
    fn head(&self) -> Result<u64>;
    /// Compacts a preloaded store for fast reads. Not timed.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    /// Reads every match, up to `limit`, touching all parts of each event.
    fn answer(&self, filter: &Self::Filter, direction: Direction, limit: Option<u32>) -> Result<Answer> {
        let mut answer = Answer::default();
        self.read(filter, direction, limit, &mut answer)?;
        Ok(answer)
    }
}

/// Receives the events of a read, one after the other.
pub trait Visitor {
    /// An event. Its tags follow by [`Visitor::tag`].
    fn event(&mut self, position: u64, kind: &str, data: &[u8]);
    /// A tag of the preceding event.
    fn tag(&mut self, tag: &str);
}

/// Summary of a read: detects a missing, doubled or altered event, and is cheap enough not to dominate the
/// row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answer {
    /// Events seen.
    pub events: u64,
    sum: u64,
    first: u64,
    last: u64,
}

impl Answer {
    /// True when `other` read the same events in reverse order, as far as the sums show.
    pub fn is_reverse_of(&self, other: &Answer) -> bool {
        Answer { first: other.last, last: other.first, ..*other } == *self
    }
}

impl Visitor for Answer {
    #[inline]
    fn event(&mut self, position: u64, kind: &str, data: &[u8]) {
        if self.events == 0 {
            self.first = position;
        }
        self.events += 1;
        self.last = position;
        self.sum =
            self.sum.wrapping_add(position).wrapping_add(ends(kind.as_bytes())).wrapping_add(ends(data));
    }

    #[inline]
    fn tag(&mut self, tag: &str) {
        self.sum = self.sum.wrapping_add(ends(tag.as_bytes()));
    }
}

/// Length, first and last byte in one number.
#[inline]
fn ends(bytes: &[u8]) -> u64 {
    let first = bytes.first().copied().unwrap_or_default();
    let last = bytes.last().copied().unwrap_or_default();
    ((bytes.len() as u64) << 16) + (u64::from(first) << 8) + u64::from(last)
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} events, sum {:x}, from {} to {}", self.events, self.sum, self.first, self.last)
    }
}
