//! Who hears which channel: NOTIFY of one connection reaches those that LISTEN.
//!
//! ```text
//! NOTIFY, committed ─▶ Hub ─▶ Mailbox of each listener ─▶ NotificationResponse, between its transactions
//! ```
//! What one connection says comes in the order it was committed in; what several say at the same time comes in some order. A
//! notification is kept nowhere: who is not connected does not hear it. A listener whose mailbox is full is told to go, so
//! that neither memory nor those who notify wait for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use ropewalk_sql::Announcement;
use tokio::sync::Notify;

/// Notifications that wait for one listener.
const WAITING_MAX: usize = 10_000;

/// A notification on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Who said it.
    pub(crate) process: i32,
    pub(crate) channel: Arc<str>,
    pub(crate) payload: Arc<str>,
}

#[derive(Default)]
struct Waiting {
    heard: VecDeque<Heard>,
    /// Something was lost.
    is_full: bool,
}

#[derive(Default)]
struct Post {
    waiting: Mutex<Waiting>,
    came: Notify,
}

/// Everybody's channels.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<HashMap<String, HashMap<i32, Arc<Post>>>>>);

/// What a connection hears; it hears nothing more once the value is gone.
pub(crate) struct Mailbox {
    hub: Hub,
    process: i32,
    post: Arc<Post>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|held| held.into_inner())
}

impl Hub {
    /// A mailbox for a connection, which hears nothing yet.
    pub(crate) fn mailbox(&self, process: i32) -> Mailbox {
        Mailbox { hub: self.clone(), process, post: Arc::default() }
    }
}

impl Post {
    fn put(&self, heard: Heard) {
        let mut waiting = locked(&self.waiting);
        match waiting.heard.len() < WAITING_MAX {
            true => waiting.heard.push_back(heard),
            false => waiting.is_full = true,
        }
        self.came.notify_one();
    }
}

impl Mailbox {
    /// Does what was announced by a transaction of this connection that has committed.
    pub(crate) fn announce(&self, announcements: Vec<Announcement>) {
        if announcements.is_empty() {
            return;
        }
        let mut channels = locked(&self.hub.0);
        for announcement in announcements {
            match announcement {
                Announcement::Listen(channel) => {
                    channels.entry(channel).or_default().insert(self.process, self.post.clone());
                }
                Announcement::Unlisten(which) => channels.retain(|channel, listeners| {
                    if which.as_ref().is_none_or(|which| which == channel) {
                        listeners.remove(&self.process);
                    }
                    !listeners.is_empty()
                }),
                Announcement::Notify { channel, payload } => {
                    let Some(listeners) = channels.get(&channel) else { continue };
                    let heard =
                        Heard { process: self.process, channel: channel.into(), payload: payload.into() };
                    listeners.values().for_each(|post| post.put(heard.clone()));
                }
            }
        }
    }

    /// The next that was heard.
    ///
    /// # Errors
    /// More came than waits.
    pub(crate) fn next(&self) -> Result<Option<Heard>, Overflow> {
        let mut waiting = locked(&self.post.waiting);
        match waiting.heard.pop_front() {
            None if waiting.is_full => Err(Overflow),
            heard => Ok(heard),
        }
    }

    /// Until something was heard. May be dropped and called again.
    pub(crate) async fn came(&self) {
        self.post.came.notified().await;
    }
}

/// More notifications came than wait for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.announce(vec![Announcement::Unlisten(None)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notify(channel: &str, payload: &str) -> Announcement {
        Announcement::Notify { channel: channel.into(), payload: payload.into() }
    }

    #[test]
    fn only_who_listens_hears() {
        let hub = Hub::default();
        let (ann, bob) = (hub.mailbox(1), hub.mailbox(2));
        ann.announce(vec![notify("c", "early"), Announcement::Listen("c".into()), notify("c", "own")]);
        bob.announce(vec![notify("c", "bob's"), notify("d", "nobody's")]);
        let heard = |mailbox: &Mailbox| {
            mailbox.next().unwrap().map(|heard| (heard.process, heard.payload.to_string()))
        };
        assert_eq!(heard(&ann), Some((1, "own".into())));
        assert_eq!(heard(&ann), Some((2, "bob's".into())));
        assert_eq!((heard(&ann), heard(&bob)), (None, None));
        ann.announce(vec![Announcement::Unlisten(Some("c".into())), notify("c", "late")]);
        assert_eq!(heard(&ann), None);
        bob.announce(vec![Announcement::Listen("c".into())]);
        drop(bob);
        assert!(locked(&hub.0).is_empty());
    }

    #[test]
    fn a_full_mailbox_says_so() {
        let hub = Hub::default();
        let ann = hub.mailbox(1);
        ann.announce(vec![Announcement::Listen("c".into())]);
        ann.announce(vec![notify("c", "x"); WAITING_MAX + 1]);
        for _ in 0..WAITING_MAX {
            assert!(ann.next().unwrap().is_some());
        }
        assert_eq!(ann.next(), Err(Overflow));
    }
}
