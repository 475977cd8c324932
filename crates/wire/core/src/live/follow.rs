//! Subscriptions: first existing events, then new ones, each once and in order, for ever.
//!
//!   [position after] ─▶ catch up: own batches from the store ─▶ CaughtUp ─▶ live: shared batches of the group ─▶ …
//!                              ▲                                                          │ slower than the writers
//!                              └────────────────────────── FellBehind ◀───────────────────┘
//!
//! A subscription is only a position: it can always resume by reading from there. See `feed` and `hub` for
//! the live side.

use core::ops::ControlFlow;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use ropewalk::events::{EventBatch, EventReader, ReadOptions, SequencedEventRef};
use ropewalk::hooks::StoreMark;
use ropewalk::{EventStore, Position, Query};
use ropewalk_auth::{Caller, Right};
use tokio::sync::OwnedSemaphorePermit;

use crate::calls::Service;
use crate::calls::reading::{INLINE, off_thread};
use crate::error::{Result, WireError};
use crate::live::feed::{News, still_there};
use crate::live::hub::Member;

/// Most events of one batch, and bytes of them as stored.
const BATCH_EVENTS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

/// The protocol whose encoded frame is cached with a batch.
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

/// Events that are delivered together, shared by all subscriptions with the same matches.
pub struct EncodedBatch {
    events: EventBatch,
    frames: [OnceLock<Bytes>; FRAMES],
}

impl EncodedBatch {
    pub(crate) fn new(events: EventBatch) -> Self {
        Self { events, frames: Default::default() }
    }

    /// The events, in order; at least one.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = SequencedEventRef<'_>> + ExactSizeIterator {
        self.events.iter()
    }

    /// The batch as one protocol sends it: encoded by the first subscription that calls it, shared by the
    /// others. It must depend only on the batch.
    pub fn frame(&self, frame: Frame, encode: impl FnOnce(&Self) -> Bytes) -> Bytes {
        match self.frames.get(frame as usize) {
            Some(slot) => slot.get_or_init(|| encode(self)).clone(),
            None => encode(self),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.events.bytes()
    }

    /// A batch of the events at these indexes.
    pub(crate) fn pick(&self, indexes: &[usize]) -> Self {
        let mut events = EventBatch::new();
        indexes.iter().filter_map(|at| self.events.get(*at)).for_each(|event| events.push(&event));
        events.shrink();
        Self::new(events)
    }
}

/// Reads the next batch.
pub(crate) fn fill(reader: &mut EventReader) -> Result<EventBatch> {
    let mut batch = EventBatch::new();
    reader.visit_while(BATCH_EVENTS, |event| {
        batch.push(event);
        if batch.bytes() < BATCH_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    batch.shrink();
    Ok(batch)
}

/// Items that a subscription delivers.
#[derive(Clone)]
pub enum Followed {
    /// The next matching events.
    Events(Arc<EncodedBatch>),
    /// Everything up to `head` has been delivered; the following events are live.
    CaughtUp {
        /// Last position of the store, matching or not; zero for an empty store.
        head: Position,
    },
    /// More than a batch is waiting: the subscriber is slower than the writers. [`Followed::CaughtUp`]
    /// follows once it has caught up.
    FellBehind {
        /// Last position of the store.
        head: Position,
    },
}

/// An open subscription. See [`Service::follow`].
pub struct Following {
    service: Service,
    caller: Caller,
    /// Version of users and tokens when the caller was last checked; `u64::MAX`: not yet.
    access_seen: u64,
    store: EventStore,
    /// The store as it was when the subscription began, or when its first append created it.
    mark: Option<StoreMark>,
    query: Arc<Query>,
    /// Everything up to here was delivered, is in `ready`, or does not match.
    after: Position,
    /// True once [`Followed::CaughtUp`] was delivered.
    live: bool,
    /// The last batch read from the store took long.
    long: bool,
    ready: VecDeque<Followed>,
    member: Option<Member>,
    _permit: OwnedSemaphorePermit,
}

impl Following {
    pub(crate) fn new(
        service: Service,
        caller: Caller,
        store: EventStore,
        query: Query,
        after: Position,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let mark = store.mark();
        service.metrics().subscriptions.fetch_add(1, Relaxed);
        let (query, ready) = (Arc::new(query), VecDeque::new());
        Self {
            service,
            caller,
            access_seen: u64::MAX,
            store,
            mark,
            query,
            after,
            live: false,
            long: false,
            ready,
            member: None,
            _permit: permit,
        }
    }

    /// Waits for the next item. Cancel-safe.
    ///
    /// # Errors
    /// [`crate::Code::Stopping`] when the server shuts down; [`crate::Code::NotFound`] when the store is
    /// deleted; [`crate::Code::Unauthenticated`] or [`crate::Code::PermissionDenied`] when the caller may no
    /// longer read; corruption; a stopped engine.
    pub async fn next(&mut self) -> Result<Followed> {
        loop {
            if let Some(followed) = self.ready.pop_front() {
                if let Followed::Events(batch) = &followed {
                    self.service.access().revalidate(&mut self.caller, &mut self.access_seen)?;
                    self.caller.check(Right::Read, Some(self.store.name()))?;
                    let events = batch.events().len() as u64;
                    self.service.metrics().events_delivered.fetch_add(events, Relaxed);
                }
                return Ok(followed);
            }
            if self.service.stop().stopping() {
                return Err(WireError::stopping());
            }
            let Some(mark) = &self.mark else {
                self.wait_for_store().await?;
                continue;
            };
            if !self.live {
                self.catch_up().await?;
                continue;
            }
            let member = match &self.member {
                Some(member) => member,
                None => {
                    let hub = self.service.hub();
                    self.member.insert(hub.join(&self.service, &self.store, mark, &self.query)?)
                }
            };
            match member.news(self.after).await? {
                News::Batch(to, batch) => {
                    self.after = to;
                    self.ready.push_back(Followed::Events(batch));
                }
                News::Behind => self.catch_up().await?,
            }
        }
    }

    /// Waits until the store is created. It reads as empty until then.
    async fn wait_for_store(&mut self) -> Result<()> {
        let seen = self.service.database().seq();
        self.mark = self.store.mark();
        if self.mark.is_some() {
            return Ok(());
        }
        if !self.live {
            self.live = true;
            self.ready.push_back(Followed::CaughtUp { head: Position::ZERO });
            return Ok(());
        }
        tokio::select! {
            visible = self.service.database().wait_visible_after(seen) => { visible?; }
            () = self.service.stop().wait() => return Err(WireError::stopping()),
        }
        self.service.access().revalidate(&mut self.caller, &mut self.access_seen)?;
        Ok(self.caller.check(Right::Read, Some(self.store.name()))?)
    }

    /// Reads the next batch from the store. Changes nothing before its last await.
    async fn catch_up(&mut self) -> Result<()> {
        let read = || -> Result<_> {
            let started = Instant::now();
            let mut reader = self.store.read(&self.query, ReadOptions::default().after(self.after))?;
            let batch = fill(&mut reader)?;
            Ok((reader, batch, started.elapsed() > INLINE))
        };
        let read = if self.long { off_thread(self.service.long_reads(), read).await } else { read() };
        let (reader, batch, long) = read?;
        self.long = long;
        let head = reader.head().unwrap_or(Position::ZERO);
        if let Some(mark) = &self.mark {
            still_there(&self.store, mark.id())?;
        }
        let more = !reader.ended();
        if more && self.live {
            self.live = false;
            self.ready.push_back(Followed::FellBehind { head });
        }
        let last = batch.iter().next_back().map(|event| event.position);
        if !batch.is_empty() {
            self.ready.push_back(Followed::Events(Arc::new(EncodedBatch::new(batch))));
        }
        if more {
            self.after = last.unwrap_or(self.after);
            return Ok(());
        }
        self.after = head.max(self.after);
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
