//! Finding events: a query becomes a tree of posting cursors, and a position becomes bytes.
//!
//!   Query = OR of items ─▶ And[ tag, tag, …, Or[ type, type, … ] ] ─▶ leapfrog ─▶ positions ─▶ values
//!
//! Leapfrog (Veldhuizen, ICDT 2014, in its simplest form): each child in turn jumps to the first position not
//! below the largest seen; when all agree, that is a match. Forward and backward are mirror images, so they
//! cost the same.

use std::sync::Arc;

use ropewalk_base::Seq;
use ropewalk_engine::{Cursor, Keyspace, MANY, ReadView, Value};

use crate::error::{EventsError, Result};
use crate::event::codec::{POSITION_MAX, STORES_MAX, SequencedEventRef};
use crate::event::types::{Query, QueryItem};
use crate::index::memory::{EventMemory, StoreMemory};
use crate::index::postings::{Kind, Term, TermCursor};

/// One generation's events of the store being read.
#[derive(Clone)]
pub(crate) struct Source<'s> {
    pub(crate) events: &'s EventMemory,
    pub(crate) memory: Arc<StoreMemory>,
}

/// Key of an event in its keyspace: 24 bits of store number, 40 of position, big-endian.
pub(crate) fn event_key(store: u32, position: u64) -> [u8; 8] {
    (u64::from(store) << 40 | position.min(POSITION_MAX)).to_be_bytes()
}

/// The range of keys that holds all events of a store.
pub(crate) fn store_range(store: u32) -> (Vec<u8>, Vec<u8>) {
    let end = if store < STORES_MAX { event_key(store + 1, 0).to_vec() } else { vec![0xff; 9] };
    (event_key(store, 0).to_vec(), end)
}

/// Store and position of an event's key.
pub(crate) fn split_event_key(key: &[u8]) -> Option<(u32, u64)> {
    let both = u64::from_be_bytes(key.try_into().ok()?);
    Some(((both >> 40) as u32, both & POSITION_MAX))
}

/// The keyspaces and number of a store.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) store: u32,
    /// The events model's slot in the engine.
    pub(crate) slot: usize,
    pub(crate) events: Keyspace,
    pub(crate) postings: Keyspace,
}

/// A store at one snapshot: its sources in ascending order of positions.
pub(crate) struct StoreRead<'s> {
    pub(crate) read: ReadView<'s>,
    pub(crate) place: Place,
    /// Oldest first.
    pub(crate) memories: Vec<Source<'s>>,
}

impl<'s> StoreRead<'s> {
    pub(crate) fn new(read: ReadView<'s>, place: Place) -> Self {
        let memories = read.memories::<EventMemory>(place.slot).rev();
        let memories =
            memories.filter_map(|events| Some(Source { events, memory: events.store(place.store)? }));
        Self { read, place, memories: memories.collect() }
    }

    /// Last position visible to this read; zero for none.
    pub(crate) fn head(&self) -> Result<u64> {
        let seq = self.read.at();
        for source in self.memories.iter().rev() {
            if let Some(head) = source.memory.head_at(seq) {
                return Ok(head);
            }
        }
        let Some(last) = self.last_in_runs(seq)? else { return Ok(0) };
        if seq == Seq::MAX || self.event_seq(last)? <= seq {
            return Ok(last);
        }
        // For a snapshot that was moved to newer runs the head is the last event of a visible commit.
        let (mut low, mut high) = (0, last);
        while low < high {
            let mid = high - (high - low) / 2;
            if self.event_seq(mid)? <= seq { low = mid } else { high = mid - 1 }
        }
        Ok(low)
    }

    /// The commit that wrote the event at `position`.
    pub(crate) fn event_seq(&self, position: u64) -> Result<Seq> {
        let mut values = Values::new(self);
        Ok(values.get(position)?.seq)
    }

    fn last_in_runs(&self, seq: Seq) -> Result<Option<u64>> {
        let mut cursor = self.read.runs().cursor(self.place.events, seq);
        cursor.seek_for_prev(&event_key(self.place.store, POSITION_MAX))?;
        if !cursor.valid() {
            return Ok(None);
        }
        let found = split_event_key(cursor.key()).filter(|(store, _)| *store == self.place.store);
        Ok(found.map(|(_, position)| position))
    }

    /// The first position that is not in runs.
    fn runs_end(&self) -> u64 {
        self.memories.first().map_or(u64::MAX, |oldest| oldest.memory.first)
    }

    fn term(&self, kind: Kind, name: &'s str) -> Result<Node<'s>, EventsError> {
        let term = Term::new(self.place.store, kind, name.as_bytes());
        let at = (self.place.postings, self.runs_end());
        let cursor = TermCursor::new(term, self.place.store, at, &self.memories, self.read)?;
        Ok(Node::Term(Box::new(cursor)))
    }

    fn item(&self, item: &'s QueryItem, bounds: (u64, u64)) -> Result<Node<'s>, EventsError> {
        let tags = item.tags.iter().map(|tag| self.term(Kind::Tag, tag));
        let mut children = tags.collect::<Result<Vec<_>, _>>()?;
        // With prefixes of types, the postings of types would miss matches.
        let types = if item.type_prefixes.is_empty() { item.types.as_slice() } else { &[] };
        let types = types.iter().map(|name| self.term(Kind::Type, name));
        let mut types = types.collect::<Result<Vec<_>, _>>()?;
        match types.len() {
            0 => {}
            1 => children.append(&mut types),
            _ => children.push(Node::Or(types)),
        }
        let node = match children.len() {
            0 => Node::All,
            1 => children.remove(0),
            _ => Node::And(children),
        };
        Ok(if item.has_prefixes() {
            Node::Looked(Box::new(Looked::new(self, node, item, bounds)))
        } else {
            node
        })
    }

    /// The tree of a query; every item has a type, a tag or a prefix. It is never evaluated outside of
    /// `bounds`, both inclusive.
    ///
    /// # Errors
    /// A filter of a run of postings cannot be read, or is damaged.
    pub(crate) fn plan(&self, query: &'s Query, bounds: (u64, u64)) -> Result<Node<'s>, EventsError> {
        if query.is_all() {
            return Ok(Node::All);
        }
        let items = query.items.iter().map(|item| self.item(item, bounds));
        let mut items = items.collect::<Result<Vec<_>, _>>()?;
        Ok(if items.len() == 1 { items.remove(0) } else { Node::Or(items) })
    }

    /// The first event after `after` that matches, and the item that it matches.
    pub(crate) fn first_match(
        &self,
        query: &'s Query,
        after: u64,
        head: u64,
    ) -> Result<Option<(u64, Option<usize>)>> {
        let from = after.saturating_add(1);
        if from > head {
            return Ok(None);
        }
        if query.is_all() {
            return Ok(Some((from, None)));
        }
        let mut first: Option<(u64, Option<usize>)> = None;
        for (ordinal, item) in query.items.iter().enumerate() {
            let high = first.map_or(head, |(position, _)| position - 1);
            if let Some(position) = self.item(item, (from, high))?.seek_ge(from)?.filter(|p| *p <= high) {
                first = Some((position, Some(ordinal)));
            }
        }
        Ok(first)
    }
}

/// A query's positions, ascending or descending.
pub(crate) enum Node<'s> {
    All,
    Term(Box<TermCursor<'s>>),
    And(Vec<Node<'s>>),
    Or(Vec<Node<'s>>),
    Looked(Box<Looked<'s>>),
}

impl Node<'_> {
    /// The first match at or after `target`.
    pub(crate) fn seek_ge(&mut self, target: u64) -> Result<Option<u64>> {
        match self {
            Self::All => Ok(Some(target)),
            Self::Term(cursor) => cursor.seek_ge(target),
            Self::Looked(looked) => looked.seek_ge(target),
            Self::Or(children) => nearest_of_any(children, target, Self::seek_ge),
            Self::And(children) => nearest_of_all(children, target, Self::seek_ge),
        }
    }

    /// The last match at or before `target`.
    pub(crate) fn seek_le(&mut self, target: u64) -> Result<Option<u64>> {
        match self {
            Self::All => Ok((target > 0).then_some(target)),
            Self::Term(cursor) => cursor.seek_le(target),
            Self::Looked(looked) => looked.seek_le(target),
            Self::Or(children) => nearest_of_any(children, target, Self::seek_le),
            Self::And(children) => nearest_of_all(children, target, Self::seek_le),
        }
    }
}

/// The position nearest to `target` that some child has, in the direction of `seek`.
fn nearest_of_any<'s>(
    children: &mut [Node<'s>],
    target: u64,
    seek: impl Fn(&mut Node<'s>, u64) -> Result<Option<u64>>,
) -> Result<Option<u64>> {
    let mut best: Option<u64> = None;
    for child in children {
        if let Some(found) = seek(child, target)?
            && best.is_none_or(|best| found.abs_diff(target) < best.abs_diff(target))
        {
            best = Some(found);
            if found == target {
                break;
            }
        }
    }
    Ok(best)
}

/// The position nearest to `target` that all children have, in the direction of `seek`.
fn nearest_of_all<'s>(
    children: &mut [Node<'s>],
    mut target: u64,
    seek: impl Fn(&mut Node<'s>, u64) -> Result<Option<u64>>,
) -> Result<Option<u64>> {
    loop {
        let asked = target;
        for child in children.iter_mut() {
            let Some(found) = seek(child, target)? else { return Ok(None) };
            target = found;
        }
        // After a full round without a jump all children are at this position.
        if target == asked {
            return Ok(Some(target));
        }
    }
}

/// The positions of an item with prefixes: the candidates of its postings, checked event by event.
pub(crate) struct Looked<'s> {
    candidates: Node<'s>,
    item: &'s QueryItem,
    values: Values<'s>,
    /// Positions outside, both inclusive, are not checked.
    bounds: (u64, u64),
    /// No position from the first to before the second matches; the second does, if present.
    ahead: Option<(u64, Option<u64>)>,
    /// The same for descending order.
    behind: Option<(u64, Option<u64>)>,
}

impl<'s> Looked<'s> {
    fn new(store: &StoreRead<'s>, candidates: Node<'s>, item: &'s QueryItem, bounds: (u64, u64)) -> Self {
        let values = Values::new(store);
        Self { candidates, item, values, bounds, ahead: None, behind: None }
    }

    fn matches(&mut self, position: u64) -> Result<bool> {
        let event = self.values.get(position)?;
        Ok(self.item.matches(event.event_type(), event.tags()))
    }

    fn seek_ge(&mut self, target: u64) -> Result<Option<u64>> {
        if let Some((from, found)) = self.ahead
            && from <= target
            && found.is_none_or(|found| target <= found)
        {
            return Ok(found);
        }
        let mut at = target;
        let found = loop {
            match self.candidates.seek_ge(at)?.filter(|position| *position <= self.bounds.1) {
                None => break None,
                Some(position) if self.matches(position)? => break Some(position),
                Some(position) => at = position + 1,
            }
        };
        self.ahead = Some((target, found));
        Ok(found)
    }

    fn seek_le(&mut self, target: u64) -> Result<Option<u64>> {
        let target = target.min(self.bounds.1);
        if let Some((from, found)) = self.behind
            && from >= target
            && found.is_none_or(|found| target >= found)
        {
            return Ok(found);
        }
        let mut at = target;
        let found = loop {
            match self.candidates.seek_le(at)?.filter(|position| *position >= self.bounds.0) {
                None => break None,
                Some(position) if self.matches(position)? => break Some(position),
                Some(position) => at = position - 1,
            }
        };
        self.behind = Some((target, found));
        Ok(found)
    }
}

/// A gap up to this many events is scanned; over a larger one the cursor seeks.
const STEPS_MAX: u64 = 6;

/// Reads events by position; fast when they come in order.
pub(crate) struct Values<'s> {
    store: u32,
    events: Keyspace,
    read: ReadView<'s>,
    memories: Vec<Source<'s>>,
    runs_end: u64,
    /// Created when a scan begins; point reads do without.
    cursor: Option<Cursor<'s>>,
    /// Position under the cursor, zero for none.
    at: u64,
    /// Last requested position, zero for none.
    last: u64,
    found: Option<Value<'s>>,
    /// Prefetched values, the next one last.
    ahead: Vec<(u64, Option<Value<'s>>)>,
}

impl<'s> Values<'s> {
    pub(crate) fn new(store: &StoreRead<'s>) -> Self {
        Self {
            store: store.place.store,
            events: store.place.events,
            read: store.read,
            memories: store.memories.clone(),
            runs_end: store.runs_end(),
            cursor: None,
            at: 0,
            last: 0,
            found: None,
            ahead: Vec::new(),
        }
    }

    /// True when the event at `position` is in a run, and not near the last requested one.
    pub(crate) fn lies_apart(&self, position: u64) -> bool {
        position < self.runs_end && position.abs_diff(self.last) > STEPS_MAX
    }

    /// Prefetches the next events, if they are in runs and too far apart for a scan. An error is reported by
    /// the call that requests the event.
    pub(crate) fn expect(&mut self, positions: &[u64]) {
        self.ahead.clear();
        let positions = positions.get(..MANY).unwrap_or(positions);
        let (Some(first), Some(last)) = (positions.first(), positions.last()) else { return };
        let far = first.abs_diff(*last) > STEPS_MAX * (positions.len() as u64 - 1);
        if !far || *first.max(last) >= self.runs_end {
            return;
        }
        let mut keys = [[0; 8]; MANY];
        for (key, position) in keys.iter_mut().zip(positions) {
            *key = event_key(self.store, *position);
        }
        let keys = keys.each_ref().map(|key| key.as_slice());
        let mut found = [const { None }; MANY];
        if let (Some(keys), Some(found)) = (keys.get(..positions.len()), found.get_mut(..positions.len()))
            && self.read.runs().get_many(self.events, keys, self.read.at(), found).is_ok()
        {
            let values = found.iter_mut().map(|entry| entry.take().and_then(|entry| entry.value));
            self.ahead.extend(positions.iter().copied().zip(values).rev());
        }
    }

    /// The event at `position`.
    pub(crate) fn get(&mut self, position: u64) -> Result<SequencedEventRef<'_>> {
        let store = self.store;
        let value = self.value(position)?;
        SequencedEventRef::from_stored(position, value).map_err(|error| damaged(store, position, error))
    }

    fn value(&mut self, position: u64) -> Result<&[u8]> {
        let store = self.store;
        let missing = || damaged(store, position, "the event is missing");
        if position >= self.runs_end {
            let source = self.memories.iter().rev().find(|s| s.memory.first <= position);
            return source.and_then(|s| s.events.value(&s.memory, position)).ok_or_else(missing);
        }
        if let Some((_, value)) = self.ahead.pop_if(|(at, _)| *at == position) {
            self.last = position;
            self.found = value;
            return self.found.as_deref().ok_or_else(missing);
        }
        let walking = position.abs_diff(self.last) <= STEPS_MAX;
        self.last = position;
        if !walking {
            let entry =
                self.read.runs().get(self.events, &event_key(self.store, position), self.read.at())?;
            self.found = entry.and_then(|entry| entry.value);
            return self.found.as_deref().ok_or_else(missing);
        }
        let gap = position.abs_diff(self.at);
        let cursor = self.cursor.get_or_insert_with(|| self.read.runs().cursor(self.events, self.read.at()));
        if self.at == 0 || gap > STEPS_MAX {
            cursor.seek(&event_key(self.store, position))?;
        } else {
            for _ in 0..gap {
                if position > self.at { cursor.next()? } else { cursor.prev()? }
            }
        }
        self.at = position;
        if cursor.valid() && split_event_key(cursor.key()) == Some((self.store, position)) {
            return Ok(cursor.value());
        }
        self.at = 0;
        Err(missing())
    }
}

fn damaged(store: u32, position: u64, what: impl std::fmt::Display) -> EventsError {
    EventsError::Damaged { store, place: format!("position {position}"), what: what.to_string() }
}
