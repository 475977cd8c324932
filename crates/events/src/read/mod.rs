//! Reading: streams whose memory is one batch, at one snapshot, in either direction.

pub(crate) mod projection;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use ropewalk_base::Position;
use ropewalk_engine::{MANY, Snapshot};

use crate::error::Result;
use crate::event::codec::{SequencedEvent, SequencedEventRef};
use crate::event::typed::{FromEvent, unapplied};
use crate::event::types::{Event, Query, ReadOptions};
use crate::index::search::{Node, Place, StoreRead, Values};
use crate::read::projection::Projection;

/// Matching events in order, read in place, while the snapshot is held. A lending iterator: each event is
/// borrowed until the next call.
pub struct Scan<'s> {
    plan: Node<'s>,
    values: Values<'s>,
    /// Remaining bounds, inclusive.
    low: u64,
    high: u64,
    backwards: bool,
    left: u64,
    /// Positions found before their events are requested.
    ahead: VecDeque<u64>,
    /// Number found the last time. Doubles, so that a reader of few events pays for few.
    stride: usize,
}

/// Events of the first concurrent lookup.
const AHEAD_MIN: usize = 8;

impl<'s> Scan<'s> {
    pub(crate) fn new(
        store: &StoreRead<'s>,
        query: &'s Query,
        options: &ReadOptions,
        head: u64,
    ) -> Result<Self> {
        let (low, high) = options.bounds(head);
        Ok(Self {
            plan: store.plan(query, (low, high))?,
            values: Values::new(store),
            low,
            high,
            backwards: options.backwards,
            left: options.limit.unwrap_or(u64::MAX),
            ahead: VecDeque::new(),
            stride: 0,
        })
    }

    /// The next position, without its event.
    ///
    /// # Errors
    /// A posting is damaged.
    pub fn next_position(&mut self) -> Result<Option<Position>> {
        match self.ahead.pop_front() {
            Some(position) => Ok(Some(Position(position))),
            None => Ok(self.find()?.map(Position)),
        }
    }

    fn find(&mut self) -> Result<Option<u64>> {
        if self.left == 0 || self.low > self.high {
            return Ok(None);
        }
        let found = if self.backwards {
            self.plan.seek_le(self.high)?.filter(|p| *p >= self.low)
        } else {
            self.plan.seek_ge(self.low)?.filter(|p| *p <= self.high)
        };
        let Some(position) = found else {
            self.left = 0;
            return Ok(None);
        };
        self.left -= 1;
        if self.backwards {
            self.high = position - 1
        } else {
            self.low = position + 1
        }
        Ok(Some(position))
    }

    /// Finds the positions after `first`, so that distant events are looked up concurrently.
    fn look_ahead(&mut self, first: u64) -> Result<()> {
        self.stride = (self.stride * 2).clamp(AHEAD_MIN, MANY);
        self.ahead.push_back(first);
        while self.ahead.len() < self.stride
            && let Some(position) = self.find()?
        {
            self.ahead.push_back(position);
        }
        self.values.expect(self.ahead.make_contiguous());
        self.ahead.pop_front();
        Ok(())
    }

    /// The next event.
    ///
    /// # Errors
    /// A posting or an event is damaged.
    #[allow(clippy::should_implement_trait)] // the event borrows from the scan
    pub fn next(&mut self) -> Result<Option<SequencedEventRef<'_>>> {
        let position = match self.ahead.pop_front() {
            Some(position) => position,
            None => {
                let Some(position) = self.find()? else { return Ok(None) };
                if self.values.lies_apart(position) {
                    self.look_ahead(position)?;
                }
                position
            }
        };
        self.values.get(position).map(Some)
    }
}

/// Matching events in order, at the snapshot of its creation. Owns its state; holds one batch at a time.
pub struct EventReader {
    snapshot: Snapshot,
    place: Option<Place>,
    query: Query,
    options: ReadOptions,
    head: u64,
    done: bool,
    /// Matching events that the reading transaction appends, in the order of reading: they come after the
    /// last stored one.
    own: VecDeque<SequencedEvent>,
    batch: std::vec::IntoIter<SequencedEvent>,
}

/// Events that the iterator of an [`EventReader`] fetches at a time.
const BATCH_EVENTS: usize = 256;
/// Events that [`EventReader::project`] applies at a time.
const PROJECT_EVENTS: usize = 1_024;

impl EventReader {
    pub(crate) fn new(
        snapshot: Snapshot,
        place: Option<Place>,
        query: Query,
        options: ReadOptions,
    ) -> Result<Self> {
        query.check()?;
        let head = place.map_or(Ok(0), |place| StoreRead::new(snapshot.reading().view(), place).head())?;
        let (own, batch) = (VecDeque::new(), Vec::new().into_iter());
        Ok(Self { snapshot, place, query, options, head, done: false, own, batch })
    }

    /// Also reads the events that a transaction is about to append, as if they followed the last position.
    #[must_use]
    pub fn with_own(mut self, events: &[SequencedEvent]) -> Self {
        let last = events.last().map_or(self.head, |event| event.position.0);
        let (low, high) = self.options.bounds(last);
        let wanted = |event: &&SequencedEvent| {
            let Event { event_type, tags, .. } = &event.event;
            (low..=high).contains(&event.position.0)
                && self.query.matches(event_type, tags.iter().map(String::as_str))
        };
        let mut own: VecDeque<_> = events.iter().filter(wanted).cloned().collect();
        if self.options.backwards {
            own.make_contiguous().reverse();
        }
        self.own = own;
        self
    }

    /// Last position of the store at the snapshot, matching or not; `None` when it was empty.
    pub fn head(&self) -> Option<Position> {
        (self.head > 0).then_some(Position(self.head))
    }

    /// Calls `visit` for up to `max` further events; returns their number. Fewer than `max` means the end.
    /// The events are read in place; memory does not grow with the result.
    ///
    /// # Errors
    /// A posting or an event is damaged.
    pub fn visit(&mut self, max: usize, mut visit: impl FnMut(&SequencedEventRef<'_>)) -> Result<usize> {
        self.visit_while(max, |event| {
            visit(event);
            ControlFlow::Continue(())
        })
    }

    /// As [`EventReader::visit`], and ends early, after the event for which `visit` requests it; the next
    /// call continues after it. [`EventReader::ended`] distinguishes an early end from the end.
    ///
    /// # Errors
    /// A posting or an event is damaged.
    pub fn visit_while(
        &mut self,
        max: usize,
        mut visit: impl FnMut(&SequencedEventRef<'_>) -> ControlFlow<()>,
    ) -> Result<usize> {
        let mut visited = 0;
        if self.options.backwards && self.visit_own(max, &mut visited, &mut visit).is_break() {
            return Ok(visited);
        }
        if self.visit_stored(max, &mut visited, &mut visit)?.is_break() {
            return Ok(visited);
        }
        if !self.options.backwards {
            let _ = self.visit_own(max, &mut visited, &mut visit);
        }
        Ok(visited)
    }

    fn visit_own(
        &mut self,
        max: usize,
        visited: &mut usize,
        visit: &mut impl FnMut(&SequencedEventRef<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while *visited < max && self.options.limit != Some(0) {
            let Some(event) = self.own.pop_front() else { break };
            *visited += 1;
            self.options.limit = self.options.limit.map(|limit| limit - 1);
            event.with_ref(&mut *visit)?;
        }
        ControlFlow::Continue(())
    }

    fn visit_stored(
        &mut self,
        max: usize,
        visited: &mut usize,
        visit: &mut impl FnMut(&SequencedEventRef<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let Some(place) = self.place.filter(|_| !self.done && *visited < max) else {
            return Ok(ControlFlow::Continue(()));
        };
        // Between two calls the reader holds no memtables and runs, so that the engine can drop them.
        let reading = self.snapshot.reading();
        let store = StoreRead::new(reading.view(), place);
        let mut scan = Scan::new(&store, &self.query, &self.options, self.head)?;
        let mut count = 0;
        let mut last = None;
        let mut flow = ControlFlow::Continue(());
        while *visited < max && flow.is_continue() {
            let Some(event) = scan.next()? else {
                self.done = true;
                break;
            };
            last = Some(event.position);
            flow = visit(&event);
            *visited += 1;
            count += 1;
        }
        if let Some(last) = last {
            let limit = self.options.limit.map(|limit| limit - count);
            self.options.limit = limit;
            if self.options.backwards {
                self.options.before = Some(last);
            } else {
                self.options.after = Some(last);
            }
        }
        Ok(flow)
    }

    /// Applies all remaining events to a projection.
    ///
    /// # Errors
    /// [`crate::EventsError::Unapplied`], with the state as it was before the event or partly changed; damage.
    pub fn project<P: Projection>(&mut self, projection: &P, state: &mut P::State) -> Result<()> {
        let mut failure = None;
        let mut apply = |event: &SequencedEventRef<'_>| match projection.apply(state, event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(source) => {
                failure = Some(unapplied(event, source));
                ControlFlow::Break(())
            }
        };
        // In batches, between which the reader holds nothing that the engine could drop.
        while self.visit_while(PROJECT_EVENTS, &mut apply)? == PROJECT_EVENTS {}
        failure.map_or(Ok(()), Err)
    }

    /// The remaining events, decoded, with their positions. The iterator continues after an event that does
    /// not decode.
    ///
    /// Its errors are those of [`SequencedEvent::decode`] and of the reader.
    pub fn decoded<E: FromEvent>(self) -> impl Iterator<Item = Result<(Position, E)>> {
        self.map(|event| event.and_then(|event| Ok((event.position, event.decode()?))))
    }

    /// True once all events were visited.
    pub fn ended(&self) -> bool {
        let has_read_all = self.own.is_empty() && (self.done || self.place.is_none());
        has_read_all || self.options.limit == Some(0)
    }

    /// Up to `max` further events, owned. Empty at the end.
    ///
    /// # Errors
    /// A posting or an event is damaged.
    pub fn next_batch(&mut self, max: usize) -> Result<Vec<SequencedEvent>> {
        let mut batch = Vec::new();
        self.visit(max, |event| batch.push(event.to_owned()))?;
        Ok(batch)
    }
}

impl Iterator for EventReader {
    type Item = Result<SequencedEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(event) = self.batch.next() {
            return Some(Ok(event));
        }
        match self.next_batch(BATCH_EVENTS) {
            Ok(batch) => {
                self.batch = batch.into_iter();
                self.batch.next().map(Ok)
            }
            Err(error) => {
                self.done = true;
                Some(Err(error))
            }
        }
    }
}
