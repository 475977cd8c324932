//! The live side of subscriptions: what is new in a store is looked at once, whoever follows it.
//!
//!   woken by the hub ─▶ feed of the store (one task) ─▶ new events, read once
//!                         └─▶ index: type, tag ─▶ groups whose filter may match ─▶ one batch per matching group, shared
//!                                                                            └─▶ wakes the group's followers
//!
//! Followers with the same filter are one group. A group keeps its newest batches for a moment; a follower takes from
//! there what lies behind its own position. One that is slower than that reads from the store by its own position: there
//! is no queue per follower, and nothing to overflow. Followers whose filter matches nothing new are not even woken.
//!
//! Invariant: a group's batches hold every matching event of (`covered_from`, the feed's position], in order, each once.
//!
//! Not here: who is woken when (`hub`), which filters are asked (`index`).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ropewalk::{EventBatch, EventStore, Position, Query, ReadOptions, StoreMark};
use tokio::sync::Notify;

use crate::error::WireError;
use crate::follow::{EncodedBatch, fill};
use crate::index::Index;
use crate::service::Service;

/// Bytes of batches that a feed keeps for its followers. One that falls further behind reads from the store.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// What a kept batch costs beside its events, about.
const BATCH_OVERHEAD: usize = 512;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|held| held.into_inner())
}

/// The new events of one store.
pub(crate) struct Feed {
    store: EventStore,
    mark: StoreMark,
    /// Everything up to here was looked at. Written under the lock of `state`.
    position: AtomicU64,
    state: Mutex<State>,
    /// There may be news, or nobody to tell them.
    changed: Notify,
}

struct State {
    groups: HashMap<Arc<Query>, (Arc<Group>, usize)>,
    index: Index,
    /// Batches in the order in which they were made, with their bytes.
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

/// What a group has for a follower.
pub(crate) enum News {
    /// All matching events behind the follower's position, up to this one.
    Batch(Position, Arc<EncodedBatch>),
    /// The follower's position lies before, or inside, what is kept: read from the store.
    Behind,
}

impl Feed {
    /// A feed that begins behind what is in the store now.
    pub(crate) fn new(store: EventStore, mark: StoreMark) -> Result<Self, WireError> {
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

    /// True when there is something that was not looked at, be it not visible yet.
    pub(crate) fn is_late(&self) -> bool {
        self.mark.moved(self.position())
    }

    /// True when nobody follows.
    pub(crate) fn is_deserted(&self) -> bool {
        lock(&self.state).groups.is_empty()
    }

    /// Lets the task look.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Everything up to here was looked at.
    fn position(&self) -> Position {
        Position(self.position.load(Ordering::Acquire))
    }

    /// Tells the followers that nothing more comes, and why; ends the task.
    pub(crate) fn end(&self, error: &WireError) {
        let mut state = lock(&self.state);
        for (group, _) in state.groups.values() {
            lock(&group.live).ended = Some(error.clone());
            group.news.notify_waiters();
        }
        state.ended = true;
        self.changed.notify_one();
    }

    /// One more follower of `query`.
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

    /// One follower less.
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

    /// Looks at what is new, a batch of it; true when there is more.
    fn look(&self) -> Result<bool, WireError> {
        let position = self.position();
        let mut reader = self.store.read(&Query::all(), ReadOptions::default().after(position))?;
        let head = reader.head().unwrap_or(Position::ZERO);
        let news = fill(&mut reader)?;
        // Asked after the read: numbers are never given twice, so the read saw the same store.
        still_there(&self.store, self.mark.id())?;
        let more = !reader.ended();
        let last = news.iter().next_back().map(|event| event.position);
        let position = if more { last.unwrap_or(position) } else { head.max(position) };
        let mut state = lock(&self.state);
        state.publish(news, position);
        // Under the lock: a group that joins now must know what it is given and what not.
        self.position.store(position.0, Ordering::Release);
        Ok(more)
    }
}

/// Refuses to go on when `store` is not the one that had the number `id`.
pub(crate) fn still_there(store: &EventStore, id: u32) -> Result<(), WireError> {
    if store.id() == Some(id) {
        return Ok(());
    }
    Err(WireError::not_found(format!("event store {:?} was deleted", store.name())))
}

impl State {
    /// Hands `news`, everything up to `position`, to the groups that want it.
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
            // Who wants everything shares one batch, whatever the filter.
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
    /// A group that gets what comes behind `from`.
    pub(crate) fn new(query: Arc<Query>, from: Position) -> Self {
        let live = Live { covered_from: from, batches: VecDeque::new(), ended: None };
        Self { query, live: Mutex::new(live), news: Notify::new() }
    }

    /// Waits until there is something behind `after`.
    pub(crate) async fn wait(&self, after: Position) -> Result<News, WireError> {
        loop {
            let waiting = self.news.notified();
            tokio::pin!(waiting);
            // Announced before the look, so that what comes between is not missed.
            waiting.as_mut().enable();
            if let Some(news) = self.news(after)? {
                return Ok(news);
            }
            waiting.await;
        }
    }

    /// What lies behind `after`; `None`: nothing yet.
    fn news(&self, after: Position) -> Result<Option<News>, WireError> {
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
