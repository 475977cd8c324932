//! Live subscriptions.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ropewalk::{EventBatch, EventStore, Position, Query, ReadOptions, Seq, SequencedEventRef};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::WireError;
use crate::service::Service;

/// Events of one batch, and bytes of them as stored.
const BATCH_EVENTS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

/// Which protocol's frame is kept with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// Server-sent events.
    Sse,
    /// Lines of JSON.
    Ndjson,
    /// `umadb.v1.SubscribeResponse`.
    Umadb,
    /// `ropewalk.events.v1`.
    Grpc,
}

const FRAMES: usize = 4;

/// Events that a subscription delivers together, shared by all subscriptions that want the same ones.
pub struct EncodedBatch {
    events: EventBatch,
    frames: [OnceLock<Bytes>; FRAMES],
}

impl EncodedBatch {
    fn new(events: EventBatch) -> Self {
        Self { events, frames: Default::default() }
    }

    /// The events, in order; at least one.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = SequencedEventRef<'_>> + ExactSizeIterator {
        self.events.iter()
    }

    /// The batch as one protocol sends it: encoded by the first subscription that asks, shared by the others. What it
    /// holds must depend on nothing but the batch.
    pub fn frame(&self, frame: Frame, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        match self.frames.get(frame as usize) {
            Some(slot) => slot.get_or_init(|| encode(self)).clone(),
            None => encode(self),
        }
    }
}

/// What a subscription delivers.
#[derive(Clone)]
pub enum Followed {
    /// The next matching events.
    Events(Arc<EncodedBatch>),
    /// Everything up to `head` has been delivered; what follows is live.
    CaughtUp {
        /// Last position of the store, matching or not; zero for an empty store.
        head: Position,
    },
    /// More than a batch is waiting: the subscriber is slower than the writers. [`Followed::CaughtUp`] follows when it is
    /// not.
    FellBehind {
        /// Last position of the store.
        head: Position,
    },
}

/// An open subscription. See [`Service::follow`].
pub struct Following {
    service: Service,
    store: EventStore,
    query: Query,
    after: Position,
    seen: Seq,
    live: bool,
    started: bool,
    ready: VecDeque<Followed>,
    _permit: OwnedSemaphorePermit,
}

impl Following {
    pub(crate) fn new(
        service: Service,
        store: EventStore,
        query: Query,
        after: Position,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        service.metrics().subscriptions.fetch_add(1, Relaxed);
        let (seen, ready) = (Seq::ZERO, VecDeque::new());
        Self { service, store, query, after, seen, live: false, started: false, ready, _permit: permit }
    }

    /// Waits for what comes next.
    ///
    /// # Errors
    /// [`crate::Code::Stopping`] when the server shuts down; damage; the engine stopped.
    pub async fn next(&mut self) -> Result<Followed, WireError> {
        let stop = self.service.stop().clone();
        loop {
            if let Some(followed) = self.ready.pop_front() {
                return Ok(followed);
            }
            if stop.stopping() {
                return Err(WireError::stopping());
            }
            self.fetch()?;
            if !self.ready.is_empty() {
                continue;
            }
            let news = self.service.database().visible_beyond(self.seen);
            tokio::select! {
                news = news => drop(news?),
                () = stop.wait() => return Err(WireError::stopping()),
            }
        }
    }

    fn fetch(&mut self) -> Result<(), WireError> {
        let seq = self.service.database().seq();
        if self.started && seq == self.seen {
            return Ok(());
        }
        let mut reader = self.store.read(&self.query, ReadOptions::default().after(self.after))?;
        let head = reader.head().unwrap_or(Position::ZERO);
        let mut batch = EventBatch::new();
        reader.visit_while(BATCH_EVENTS, |event| {
            batch.push(event);
            if batch.bytes() < BATCH_BYTES {
                core::ops::ControlFlow::Continue(())
            } else {
                core::ops::ControlFlow::Break(())
            }
        })?;
        let more = !reader.ended();
        if more && self.live {
            self.live = false;
            self.ready.push_back(Followed::FellBehind { head });
        }
        let last = batch.iter().next_back().map(|event| event.position);
        if !batch.is_empty() {
            self.service.metrics().events_delivered.fetch_add(batch.len() as u64, Relaxed);
            self.ready.push_back(Followed::Events(Arc::new(EncodedBatch::new(batch))));
        }
        self.started = true;
        if more {
            self.after = last.unwrap_or(self.after);
            self.seen = Seq::ZERO;
            return Ok(());
        }
        self.after = head.max(self.after);
        self.seen = seq;
        if !self.live {
            self.live = true;
            self.ready.push_back(Followed::CaughtUp { head });
        }
        Ok(())
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.service.metrics().subscriptions.fetch_sub(1, Relaxed);
    }
}
