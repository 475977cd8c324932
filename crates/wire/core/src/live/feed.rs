//! The live side of subscriptions: new events of a store are read once for all of its followers.
//!
//!   woken by the hub ─▶ feed of the store (one task) ─▶ new events, read once
//!                         └─▶ index: type, tag ─▶ groups whose filter may match ─▶ one batch per matching group, shared
//!                                                                            └─▶ wakes the group's followers
//!
//! Followers with the same filter are one group. A group caches its newest batches; a follower takes the
//! events after its position from there. A slower one reads from the store by its position: there is no queue
//! per follower, and nothing to overflow. Followers whose filter matches nothing new are not even woken.
//!
//! Invariant: a group's batches hold every matching event of (`covered_from`, the feed's position], in order,
//! each once.
//!
//! Not here: waking the feeds (`hub`), finding matching filters (`index`).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ropewalk::events::{EventBatch, ReadOptions};
use ropewalk::hooks::StoreMark;
use ropewalk::{EventStore, Position, Query};
use tokio::sync::Notify;

use crate::calls::Service;
use crate::error::{Result, WireError};
use crate::live::follow::{EncodedBatch, fill};
use crate::live::index::Index;

/// Bytes of batches that a feed caches for its followers. A follower further back reads from the store.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Approximate cost of a cached batch in addition to its events.
const BATCH_OVERHEAD: usize = 512;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|held| held.into_inner())
}

/// The new events of one store.
pub(crate) struct Feed {
    store: EventStore,
    mark: StoreMark,
    /// Everything up to here was read. Written under the lock of `state`.
    position: AtomicU64,
    state: Mutex<State>,
    /// There may be new events, or no follower left.
    changed: Notify,
}

struct State {
    groups: HashMap<Arc<Query>, (Arc<Group>, usize)>,
    index: Index,
    /// Cached batches in the order of their creation, with their bytes.
    kept: VecDeque<(Arc<Group>, usize)>,
    kept_bytes: usize,
    ended: bool,
}

/// Followers with one filter.
pub(crate) struct Group {
    pub(crate) query: Arc<Query>,
    live: Mutex<Live>,
    news: Notify,
}

struct Live {
    covered_from: Position,
    /// Each with the position that it covers up to.
    batches: VecDeque<(Position, Arc<EncodedBatch>)>,
    ended: Option<WireError>,
}

/// State of a group for one follower.
pub(crate) enum News {
    /// All matching events after the follower's position, up to this one.
    Batch(Position, Arc<EncodedBatch>),
    /// The follower's position lies before, or inside, the cached batches: read from the store.
    Behind,
}

impl Feed {
    /// A feed that begins after the current last event of the store.
    pub(crate) fn new(store: EventStore, mark: StoreMark) -> Result<Self> {
        let position = store.head()?.unwrap_or(Position::ZERO);
        still_there(&store, mark.id())?;
        let state = State {
            groups: HashMap::new(),
            index: Index::default(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            ended: false,
        };
        let position = AtomicU64::new(position.0);
        Ok(Self { store, mark, position, state: Mutex::new(state), changed: Notify::new() })
    }

    /// The store's name.
    pub(crate) fn name(&self) -> &str {
        self.store.name()
    }

    /// True when it is the feed of store number `id`.
    pub(crate) fn is_of(&self, id: u32) -> bool {
        self.mark.id() == id
    }

    /// True when there are unread events, even if they are not visible yet.
    pub(crate) fn is_late(&self) -> bool {
        self.mark.has_events_after(self.position())
    }

    /// True when there are no followers.
    pub(crate) fn is_deserted(&self) -> bool {
        lock(&self.state).groups.is_empty()
    }

    /// Wakes the feed's task.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Everything up to here was read.
    fn position(&self) -> Position {
        Position(self.position.load(Ordering::Acquire))
    }

    /// Ends the followers' streams with `error`, and the task.
    pub(crate) fn end(&self, error: &WireError) {
        let mut state = lock(&self.state);
        for (group, _) in state.groups.values() {
            lock(&group.live).ended = Some(error.clone());
            group.news.notify_waiters();
        }
        state.ended = true;
        self.changed.notify_one();
    }

    /// Adds a follower of `query`.
    pub(crate) fn join(&self, query: &Arc<Query>) -> Arc<Group> {
        let mut state = lock(&self.state);
        if let Some((group, members)) = state.groups.get_mut(query) {
            *members += 1;
            return group.clone();
        }
        let group = Arc::new(Group::new(query.clone(), self.position()));
        state.index.add(&group);
        state.groups.insert(query.clone(), (group.clone(), 1));
        group
    }

    /// Removes a follower.
    pub(crate) fn leave(&self, group: &Arc<Group>) {
        let mut state = lock(&self.state);
        let Some((_, members)) = state.groups.get_mut(&group.query) else { return };
        *members -= 1;
        if *members == 0 {
            state.groups.remove(&group.query);
            state.index.remove(group);
        }
        if state.groups.is_empty() {
            self.changed.notify_one();
        }
    }

    /// The task of the feed.
    pub(crate) async fn run(self: Arc<Self>, service: Service) {
        loop {
            match self.look() {
                Ok(true) => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Ok(false) => {}
                Err(error) => return service.hub().fail(&self, &error),
            }
            self.changed.notified().await;
            if lock(&self.state).ended || self.is_deserted() && service.hub().close(&self) {
                return;
            }
        }
    }

    /// Reads a batch of new events; true when there are more.
    fn look(&self) -> Result<bool> {
        let position = self.position();
        let mut reader = self.store.read(&Query::all(), ReadOptions::default().after(position))?;
        let head = reader.head().unwrap_or(Position::ZERO);
        let news = fill(&mut reader)?;
        // Checked after the read: ids are never reused, so the read saw the same store.
        still_there(&self.store, self.mark.id())?;
        let more = !reader.ended();
        let last = news.iter().next_back().map(|event| event.position);
        let position = if more { last.unwrap_or(position) } else { head.max(position) };
        let mut state = lock(&self.state);
        state.publish(news, position);
        // Under the lock: a group that joins now must know which events it gets.
        self.position.store(position.0, Ordering::Release);
        Ok(more)
    }
}

/// Fails when `store` no longer has the id `id`, because it was deleted.
pub(crate) fn still_there(store: &EventStore, id: u32) -> Result<()> {
    if store.id() == Some(id) {
        return Ok(());
    }
    Err(WireError::not_found(format!("event store {:?} was deleted", store.name())))
}

impl State {
    /// Passes `news`, everything up to `position`, to the groups that match.
    fn publish(&mut self, news: EventBatch, position: Position) {
        let mut wanted: HashMap<*const Group, (Arc<Group>, Vec<usize>)> = HashMap::new();
        for (at, event) in news.iter().enumerate() {
            self.index.candidates(&event, |group| {
                let key = Arc::as_ptr(group);
                let known = wanted.get_mut(&key);
                if known.as_ref().is_some_and(|(_, events)| events.last() == Some(&at)) {
                    return;
                }
                if group.query.matches(event.event_type(), event.tags()) {
                    match known {
                        Some((_, events)) => events.push(at),
                        None => drop(wanted.insert(key, (group.clone(), vec![at]))),
                    }
                }
            });
        }
        if wanted.is_empty() {
            return;
        }
        let all = news.len();
        let news = Arc::new(EncodedBatch::new(news));
        for (group, events) in wanted.into_values() {
            // Groups that match all events share one batch, whatever the filter.
            let batch = if events.len() == all { news.clone() } else { Arc::new(news.pick(&events)) };
            self.kept_bytes += batch.bytes() + BATCH_OVERHEAD;
            self.kept.push_back((group.clone(), batch.bytes() + BATCH_OVERHEAD));
            lock(&group.live).batches.push_back((position, batch));
            group.news.notify_waiters();
        }
        while self.kept_bytes > KEPT_BYTES_MAX
            && let Some((group, bytes)) = self.kept.pop_front()
        {
            self.kept_bytes -= bytes;
            let mut live = lock(&group.live);
            if let Some((to, _)) = live.batches.pop_front() {
                live.covered_from = to;
            }
        }
    }
}

impl Group {
    /// A group that gets the events after `from`.
    pub(crate) fn new(query: Arc<Query>, from: Position) -> Self {
        let live = Live { covered_from: from, batches: VecDeque::new(), ended: None };
        Self { query, live: Mutex::new(live), news: Notify::new() }
    }

    /// Waits until there are events after `after`.
    pub(crate) async fn wait(&self, after: Position) -> Result<News> {
        loop {
            let waiting = self.news.notified();
            tokio::pin!(waiting);
            // Enabled before the check, so that no notification in between is missed.
            waiting.as_mut().enable();
            if let Some(news) = self.news(after)? {
                return Ok(news);
            }
            waiting.await;
        }
    }

    /// The events after `after`; `None`: nothing yet.
    fn news(&self, after: Position) -> Result<Option<News>> {
        let live = lock(&self.live);
        if let Some(error) = &live.ended {
            return Err(error.clone());
        }
        if after < live.covered_from {
            return Ok(Some(News::Behind));
        }
        let next = live.batches.partition_point(|(to, _)| *to <= after);
        let Some((to, batch)) = live.batches.get(next) else { return Ok(None) };
        let whole = batch.events().next().is_some_and(|event| event.position > after);
        Ok(Some(if whole { News::Batch(*to, batch.clone()) } else { News::Behind }))
    }
}
