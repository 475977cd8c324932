//! Catch-up and live subscriptions.
//!
//!   [position after] ─▶ catch up in batches ─▶ CaughtUp ─▶ sleep until a commit is published ─▶ next batch ─▶ …
//!
//! A subscription is a reader that remembers its position: without a queue between writer and reader, a slow
//! subscriber costs nothing and never loses anything.

use core::time::Duration;
use std::collections::VecDeque;

use ropewalk_base::Position;

use crate::error::Result;
use crate::event::codec::SequencedEvent;
use crate::event::types::{Query, ReadOptions};
use crate::store::EventStore;

/// Events fetched at a time.
const BATCH_EVENTS: usize = 512;

/// An item delivered by a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The next matching event.
    Event(SequencedEvent),
    /// Everything up to `head` has been delivered; later events are live.
    CaughtUp {
        /// Last position of the store, matching or not; zero for an empty store.
        head: Position,
    },
    /// More than a batch is waiting: the subscriber is slower than the writers. [`Delivery::CaughtUp`]
    /// follows once it has caught up.
    FellBehind {
        /// Last position of the store.
        head: Position,
    },
}

/// Follows a query. See [`EventStore::subscribe`].
pub struct Subscription {
    store: EventStore,
    query: Query,
    /// Everything up to here has been checked.
    after: Position,
    ready: VecDeque<Delivery>,
    live: bool,
    /// The newest commit that has been checked.
    seen: ropewalk_base::Seq,
    started: bool,
}

impl Subscription {
    pub(crate) fn new(store: EventStore, query: Query, after: Position) -> Self {
        Self {
            store,
            query,
            after,
            ready: VecDeque::new(),
            live: false,
            seen: ropewalk_base::Seq::ZERO,
            started: false,
        }
    }

    /// Position to resume after: everything up to it has been delivered or does not match.
    pub fn position(&self) -> Position {
        self.ready
            .iter()
            .find_map(|d| match d {
                Delivery::Event(event) => Some(Position(event.position.0 - 1)),
                _ => None,
            })
            .unwrap_or(self.after)
    }

    /// The next delivery, waiting at most `timeout`. `None`: nothing happened in that time.
    ///
    /// # Errors
    /// Damage; the engine stopped.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Delivery>> {
        let clock = self.store.engine.env().clock.clone();
        let deadline = clock.deadline(timeout);
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return Ok(Some(delivery));
            }
            self.fetch()?;
            if !self.ready.is_empty() {
                continue;
            }
            let left = deadline.saturating_sub(clock.monotonic_nanos());
            if left == 0 {
                return Ok(None);
            }
            self.store.wait_beyond(self.seen, Duration::from_nanos(left));
            if let Some(error) = self.store.engine.stopped() {
                return Err(error.into());
            }
        }
    }

    /// Reads the commits since the last call.
    fn fetch(&mut self) -> Result<()> {
        let snapshot = self.store.engine.snapshot();
        if self.started && snapshot.seq() == self.seen {
            return Ok(());
        }
        let seq = snapshot.seq();
        let mut reader =
            self.store.read_at(snapshot, &self.query, ReadOptions::default().after(self.after))?;
        let head = reader.head().unwrap_or(Position::ZERO);
        let batch = reader.next_batch(BATCH_EVENTS)?;
        let full = batch.len() == BATCH_EVENTS;
        if full && self.live {
            self.live = false;
            self.ready.push_back(Delivery::FellBehind { head });
        }
        debug_assert!(batch.first().is_none_or(|event| event.position > self.after), "each event comes once");
        let last = batch.last().map(|event| event.position);
        self.ready.extend(batch.into_iter().map(Delivery::Event));
        self.started = true;
        if full {
            self.after = last.expect("a full batch has a last event");
            self.seen = ropewalk_base::Seq::ZERO;
            return Ok(());
        }
        // A subscription may begin after the end of the store.
        self.after = head.max(self.after);
        self.seen = seq;
        if !self.live {
            self.live = true;
            self.ready.push_back(Delivery::CaughtUp { head });
        }
        Ok(())
    }
}
