//! The live side of subscriptions: what is new in a store is looked at once, whoever follows it.
//!
//!   commit visible ─▶ feed of the store (one task) ─▶ new events, read once
//!                         └─▶ index: type, tag ─▶ groups whose filter may match ─▶ one batch per matching group, shared
//!                                                                            └─▶ wakes the group's followers
//!
//! Followers with the same filter are one group. A group keeps its newest batches for a moment; a follower takes from
//! there what lies behind its own position. One that is slower than that reads from the store by its own position: there
//! is no queue per follower, and nothing to overflow. Followers whose filter matches nothing new are not even woken.
//!
//! Invariants
//! 1. A group's batches hold every matching event of (`covered_from`, the feed's position], in order, each once.
//! 2. A feed ends (stop, failure, deleted store, nobody left) under the lock of the hub or with its reason set, so that
//!    nobody joins a feed that has ended without learning it.
//!
//! Lock order: hub, feed, group.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use ropewalk::{EventBatch, EventStore, Position, Query, QueryItem, ReadOptions, SequencedEventRef};
use tokio::sync::Notify;

use crate::error::WireError;
use crate::follow::{EncodedBatch, fill};
use crate::service::Service;

/// Bytes of batches that a feed keeps for its followers. One that falls further behind reads from the store.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// What a kept batch costs beside its events, about.
const BATCH_OVERHEAD: usize = 512;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|held| held.into_inner())
}

/// The feeds of all followed stores.
#[derive(Default)]
pub(crate) struct Hub(Mutex<HashMap<String, Arc<Feed>>>);

/// The new events of one store.
struct Feed {
    store: EventStore,
    id: u32,
    state: Mutex<State>,
    /// The last follower left.
    deserted: Notify,
}

struct State {
    /// Everything up to here was looked at.
    position: Position,
    groups: HashMap<Arc<Query>, (Arc<Group>, usize)>,
    index: Index,
    /// Batches in the order in which they were made, with their bytes.
    kept: VecDeque<(Arc<Group>, usize)>,
    kept_bytes: usize,
    ended: Option<WireError>,
}

/// Followers with one filter.
struct Group {
    query: Arc<Query>,
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

/// A follower's place in a group. Dropped, the follower leaves.
pub(crate) struct Member {
    feed: Arc<Feed>,
    group: Arc<Group>,
}

impl Hub {
    /// Joins the followers of `query` on `store`, whose number is `id`. Must be called inside the runtime.
    pub(crate) fn join(
        &self,
        service: &Service,
        store: &EventStore,
        id: u32,
        query: &Arc<Query>,
    ) -> Result<Member, WireError> {
        let mut feeds = lock(&self.0);
        if let Some(feed) = feeds.get(store.name()).filter(|feed| feed.id == id)
            && let Some(group) = feed.join(query)
        {
            return Ok(Member { feed: feed.clone(), group });
        }
        let position = store.head()?.unwrap_or(Position::ZERO);
        let feed = Arc::new(Feed::new(store.clone(), id, position));
        let group = feed.join(query).ok_or_else(WireError::stopping)?;
        feeds.insert(store.name().to_owned(), feed.clone());
        tokio::spawn(feed.clone().run(service.clone()));
        Ok(Member { feed, group })
    }

    /// Ends `feed` if nobody follows it any more.
    fn close(&self, feed: &Arc<Feed>) -> bool {
        let mut feeds = lock(&self.0);
        let empty = lock(&feed.state).groups.is_empty();
        if empty {
            Self::remove(&mut feeds, feed);
        }
        empty
    }

    fn remove(feeds: &mut HashMap<String, Arc<Feed>>, feed: &Arc<Feed>) {
        if feeds.get(feed.store.name()).is_some_and(|current| Arc::ptr_eq(current, feed)) {
            feeds.remove(feed.store.name());
        }
    }

    fn fail(&self, feed: &Arc<Feed>, error: WireError) {
        let mut feeds = lock(&self.0);
        Self::remove(&mut feeds, feed);
        let mut state = lock(&feed.state);
        for (group, _) in state.groups.values() {
            lock(&group.live).ended = Some(error.clone());
            group.news.notify_waiters();
        }
        state.ended = Some(error);
    }
}

impl Feed {
    fn new(store: EventStore, id: u32, position: Position) -> Self {
        let state = State {
            position,
            groups: HashMap::new(),
            index: Index::default(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            ended: None,
        };
        Self { store, id, state: Mutex::new(state), deserted: Notify::new() }
    }

    /// `None` when the feed has ended.
    fn join(&self, query: &Arc<Query>) -> Option<Arc<Group>> {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return None;
        }
        if let Some((group, members)) = state.groups.get_mut(query) {
            *members += 1;
            return Some(group.clone());
        }
        let live = Live { covered_from: state.position, batches: VecDeque::new(), ended: None };
        let group = Arc::new(Group { query: query.clone(), live: Mutex::new(live), news: Notify::new() });
        state.index.add(&group);
        state.groups.insert(query.clone(), (group.clone(), 1));
        Some(group)
    }

    fn leave(&self, group: &Arc<Group>) {
        let mut state = lock(&self.state);
        let Some((current, members)) = state.groups.get_mut(&group.query) else { return };
        if !Arc::ptr_eq(current, group) {
            return;
        }
        *members -= 1;
        if *members == 0 {
            state.groups.remove(&group.query);
            state.index.remove(group);
        }
        if state.groups.is_empty() {
            self.deserted.notify_one();
        }
    }

    /// The task of the feed.
    async fn run(self: Arc<Self>, service: Service) {
        let stop = service.stop().clone();
        let failed = loop {
            let seen = service.database().seq();
            match self.look() {
                Ok(true) => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Ok(false) => {}
                Err(error) => break error,
            }
            tokio::select! {
                news = service.database().visible_beyond(seen) => match news {
                    Ok(_) => {}
                    Err(error) => break error.into(),
                },
                () = self.deserted.notified() => {
                    if service.hub().close(&self) {
                        return;
                    }
                }
                () = stop.wait() => break WireError::stopping(),
            }
        };
        service.hub().fail(&self, failed);
    }

    /// Looks at what is new, a batch of it; true when there is more.
    fn look(&self) -> Result<bool, WireError> {
        let position = lock(&self.state).position;
        let mut reader = self.store.read(&Query::all(), ReadOptions::default().after(position))?;
        let head = reader.head().unwrap_or(Position::ZERO);
        let news = fill(&mut reader)?;
        // Asked after the read: numbers are never given twice, so the read saw the same store.
        still_there(&self.store, self.id)?;
        let more = !reader.ended();
        let last = news.iter().next_back().map(|event| event.position);
        let position = if more { last.unwrap_or(position) } else { head.max(position) };
        lock(&self.state).publish(news, position);
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
        self.position = position;
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

impl Member {
    /// Waits until there is something behind `after`.
    pub(crate) async fn news(&self, after: Position) -> Result<News, WireError> {
        loop {
            let waiting = self.group.news.notified();
            tokio::pin!(waiting);
            // Announced before the look, so that what comes between is not missed.
            waiting.as_mut().enable();
            if let Some(news) = self.group.news(after)? {
                return Ok(news);
            }
            waiting.await;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.feed.leave(&self.group);
    }
}

/// Finds the groups whose filter may match an event, without asking the others. Each query item stands under its first
/// tag, or, without tags, under each of its types.
#[derive(Default)]
struct Index {
    all: Vec<Arc<Group>>,
    by_tag: HashMap<String, Vec<Arc<Group>>>,
    by_type: HashMap<String, Vec<Arc<Group>>>,
}

impl Index {
    fn places<'q>(query: &'q Query) -> impl Iterator<Item = (bool, &'q str)> {
        let of_item = |item: &'q QueryItem| {
            let tag = item.tags.first().map(|tag| (true, tag.as_str()));
            let types = if tag.is_some() { &[] } else { item.types.as_slice() };
            tag.into_iter().chain(types.iter().map(|name| (false, name.as_str())))
        };
        query.items.iter().flat_map(of_item)
    }

    fn add(&mut self, group: &Arc<Group>) {
        if group.query.is_all() {
            self.all.push(group.clone());
        }
        for (is_tag, name) in Self::places(&group.query) {
            let map = if is_tag { &mut self.by_tag } else { &mut self.by_type };
            map.entry(name.to_owned()).or_default().push(group.clone());
        }
    }

    fn remove(&mut self, group: &Arc<Group>) {
        self.all.retain(|other| !Arc::ptr_eq(other, group));
        for (is_tag, name) in Self::places(&group.query) {
            let map = if is_tag { &mut self.by_tag } else { &mut self.by_type };
            let Some(groups) = map.get_mut(name) else { continue };
            groups.retain(|other| !Arc::ptr_eq(other, group));
            if groups.is_empty() {
                map.remove(name);
            }
        }
    }

    /// Calls `each` with every group that may want `event`, some of them more than once.
    fn candidates(&self, event: &SequencedEventRef<'_>, mut each: impl FnMut(&Arc<Group>)) {
        self.all.iter().for_each(&mut each);
        self.by_type.get(event.event_type()).into_iter().flatten().for_each(&mut each);
        for tag in event.tags() {
            self.by_tag.get(tag).into_iter().flatten().for_each(&mut each);
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::{Database, Event};

    use super::*;

    fn subsets<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
        let chosen = |bits: usize| {
            let named = names.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1);
            named.map(|(_, name)| *name).collect()
        };
        (0..1 << names.len()).map(chosen).collect()
    }

    /// Every query of up to two items over two types and two tags, and every event over three of each.
    #[test]
    fn the_index_misses_no_group_that_matches_and_forgets_those_that_left() {
        let db = Database::in_memory().unwrap();
        let store = db.events("s").unwrap();
        for tags in subsets(&["x", "y", "z"]) {
            for event_type in ["A", "B", "C"] {
                let event = tags.iter().fold(Event::new(event_type), |event, tag| event.tag(*tag));
                store.append(&[event], None).unwrap();
            }
        }
        let events = fill(&mut store.read(&Query::all(), ReadOptions::default()).unwrap()).unwrap();
        let mut items = Vec::new();
        for types in subsets(&["A", "B"]) {
            let tags = subsets(&["x", "y"]).into_iter();
            items.extend(tags.map(|tags| QueryItem::new(types.clone(), tags)));
        }
        items.retain(|item| !item.types.is_empty() || !item.tags.is_empty());
        let mut queries = vec![Query::all()];
        for (at, item) in items.iter().enumerate() {
            queries.push(Query::from_items([item.clone()]));
            let pairs = items[at..].iter().map(|other| Query::from_items([item.clone(), other.clone()]));
            queries.extend(pairs);
        }
        let groups: Vec<Arc<Group>> = queries.into_iter().map(group).collect();
        let mut index = Index::default();
        groups.iter().for_each(|group| index.add(group));
        for event in events.iter() {
            let mut found = Vec::new();
            index.candidates(&event, |group| found.push(Arc::as_ptr(group)));
            for group in &groups {
                let matches = group.query.matches(event.event_type(), event.tags());
                assert!(!matches || found.contains(&Arc::as_ptr(group)), "{:?}", group.query);
            }
        }
        groups.iter().for_each(|group| index.remove(group));
        assert!(index.all.is_empty() && index.by_tag.is_empty() && index.by_type.is_empty());
    }

    fn group(query: Query) -> Arc<Group> {
        let live = Live { covered_from: Position::ZERO, batches: VecDeque::new(), ended: None };
        Arc::new(Group { query: Arc::new(query), live: Mutex::new(live), news: Notify::new() })
    }
}
