//! Registry of the feeds of all followed stores, and the one task that wakes them.
//!
//!   commit visible ─▶ watcher (one task) ─▶ each feed: did its store move? (two atomic loads) ─yes─▶ the feed's task
//!
//! So a thousand followed stores without new events cost a commit in another one microseconds in all. The
//! watcher starts with the first follower and ends with the last, and so do the feeds.
//!
//! Invariant: a feed ends (stop, failure, deleted store, no follower) under the lock of the hub, which
//! joining takes too. So no follower joins a feed that has ended, and no commit after a join is missed: the
//! watcher takes the lock after it.
//!
//! Lock order: hub, feed, group.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ropewalk::hooks::StoreMark;
use ropewalk::{EventStore, Position, Query};
use tokio::sync::Notify;

use crate::calls::Service;
use crate::error::{Result, WireError};
use crate::live::feed::{Feed, Group, News, lock};

/// The feeds of all followed stores.
#[derive(Default)]
pub(crate) struct Hub {
    feeds: Mutex<Feeds>,
    /// The last feed has ended.
    deserted: Notify,
}

#[derive(Default)]
struct Feeds {
    by_store: HashMap<String, Arc<Feed>>,
    watched: bool,
}

/// A follower's membership in a group; dropping it leaves the group.
pub(crate) struct Member {
    feed: Arc<Feed>,
    group: Arc<Group>,
}

impl Hub {
    /// Joins the followers of `query` on `store`, whose mark is `mark`. Must be called inside the runtime.
    ///
    /// # Errors
    /// The store is gone; corruption.
    pub(crate) fn join(
        &self,
        service: &Service,
        store: &EventStore,
        mark: &StoreMark,
        query: &Arc<Query>,
    ) -> Result<Member> {
        let mut feeds = lock(&self.feeds);
        if let Some(feed) = feeds.by_store.get(store.name()).filter(|feed| feed.is_of(mark.id())) {
            return Ok(Member { feed: feed.clone(), group: feed.join(query) });
        }
        let feed = Arc::new(Feed::new(store.clone(), mark.clone())?);
        let group = feed.join(query);
        if let Some(deleted) = feeds.by_store.insert(store.name().to_owned(), feed.clone()) {
            // A deleted store of the same name; its feed has yet to notice.
            deleted.wake();
        }
        tokio::spawn(feed.clone().run(service.clone()));
        if !std::mem::replace(&mut feeds.watched, true) {
            tokio::spawn(Self::watch(service.clone()));
        }
        Ok(Member { feed, group })
    }

    /// The watcher.
    async fn watch(service: Service) {
        let (hub, stop) = (service.hub(), service.stop().clone());
        let failed = loop {
            let seen = service.database().seq();
            {
                let mut feeds = lock(&hub.feeds);
                if feeds.by_store.is_empty() {
                    feeds.watched = false;
                    return;
                }
                feeds.by_store.values().filter(|feed| feed.is_late()).for_each(|feed| feed.wake());
            }
            tokio::select! {
                news = service.database().wait_visible_after(seen) => match news {
                    Ok(_) => {}
                    Err(error) => break error.into(),
                },
                () = hub.deserted.notified() => {}
                () = stop.wait() => break WireError::stopping(),
            }
        };
        let mut feeds = lock(&hub.feeds);
        feeds.watched = false;
        feeds.by_store.drain().for_each(|(_, feed)| feed.end(&failed));
    }

    /// Ends `feed` if it has no followers.
    pub(crate) fn close(&self, feed: &Arc<Feed>) -> bool {
        let mut feeds = lock(&self.feeds);
        let empty = feed.is_deserted();
        if empty {
            self.remove(&mut feeds, feed);
        }
        empty
    }

    /// Ends `feed` and its followers' streams with `error`.
    pub(crate) fn fail(&self, feed: &Arc<Feed>, error: &WireError) {
        let mut feeds = lock(&self.feeds);
        self.remove(&mut feeds, feed);
        feed.end(error);
    }

    fn remove(&self, feeds: &mut Feeds, feed: &Arc<Feed>) {
        if feeds.by_store.get(feed.name()).is_some_and(|current| Arc::ptr_eq(current, feed)) {
            feeds.by_store.remove(feed.name());
        }
        if feeds.by_store.is_empty() {
            self.deserted.notify_one();
        }
    }
}

impl Member {
    /// Waits until there are events after `after`.
    pub(crate) async fn news(&self, after: Position) -> Result<News> {
        self.group.wait(after).await
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.feed.leave(&self.group);
    }
}
