//! Registry of channels: delivers NOTIFY of one connection to those that LISTEN.
//!
//! ```text
//! NOTIFY, committed ─▶ Hub, in the order of commits ─▶ Mailbox of each listener ─▶ NotificationResponse, between its transactions
//! ```
//! Notifications are delivered in commit order, across connections. A connection learns of its commit only
//! later, so a transaction with notifications takes a [`Ticket`] before it commits. A commit's notifications
//! wait for all tickets taken before the commit was known. Notifications are not stored: a client that is not
//! connected misses them. A listener whose mailbox is full is disconnected, so that neither memory nor
//! notifiers wait for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use ropewalk::Seq;
use ropewalk_sql::Announcement;
use tokio::sync::Notify;

/// Most notifications that wait for one listener.
const WAITING_MAX: usize = 10_000;

/// A received notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Process number of the notifier.
    pub(crate) process: i32,
    pub(crate) channel: Arc<str>,
    pub(crate) payload: Arc<str>,
}

#[derive(Default)]
struct Waiting {
    heard: VecDeque<Heard>,
    /// A notification was lost.
    is_full: bool,
}

#[derive(Default)]
struct Post {
    waiting: Mutex<Waiting>,
    came: Notify,
}

/// Undelivered announcements of one transaction.
struct Letter {
    process: i32,
    post: Arc<Post>,
    announcements: Vec<Announcement>,
    /// It waits for outstanding tickets with lower numbers.
    before: u64,
}

#[derive(Default)]
struct Office {
    channels: HashMap<String, HashMap<i32, Arc<Post>>>,
    /// Outstanding tickets, and the number of the next.
    tickets: BTreeSet<u64>,
    next: u64,
    /// By commit, then by arrival.
    letters: BTreeMap<(Seq, u64), Letter>,
}

impl Office {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.letters.first_entry()
            && self.tickets.first().is_none_or(|ticket| *ticket >= entry.get().before)
        {
            let Letter { process, post, announcements, before: _ } = entry.remove();
            announcements.into_iter().for_each(|announcement| self.put(process, &post, announcement));
        }
    }

    fn put(&mut self, process: i32, own: &Arc<Post>, announcement: Announcement) {
        match announcement {
            Announcement::Listen(channel) => {
                self.channels.entry(channel).or_default().insert(process, own.clone());
            }
            Announcement::Unlisten(which) => self.channels.retain(|channel, listeners| {
                if which.as_ref().is_none_or(|which| which == channel) {
                    listeners.remove(&process);
                }
                !listeners.is_empty()
            }),
            Announcement::Notify { channel, payload } => {
                let Some(listeners) = self.channels.get(&channel) else { return };
                let heard = Heard { process, channel: channel.into(), payload: payload.into() };
                listeners.values().for_each(|post| post.put(heard.clone()));
            }
        }
    }
}

/// The channels of all connections.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<Office>>);

/// Held while a transaction with notifications may be committing; released on drop.
pub(crate) struct Ticket {
    hub: Hub,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut office = locked(&self.hub.0);
        office.tickets.remove(&self.number);
        office.deliver();
    }
}

/// Notifications for one connection; dropping it ends all its LISTENs.
pub(crate) struct Mailbox {
    hub: Hub,
    process: i32,
    post: Arc<Post>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|held| held.into_inner())
}

impl Hub {
    /// A mailbox for a connection, without any LISTEN.
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
    /// Take it before a transaction with notifications commits, and hold it until they are announced.
    pub(crate) fn ticket(&self) -> Ticket {
        let mut office = locked(&self.hub.0);
        let number = office.number();
        office.tickets.insert(number);
        Ticket { hub: self.hub.clone(), number }
    }

    /// Publishes the announcements of this connection's transaction, committed as `seq`.
    pub(crate) fn announce(&self, announcements: Vec<Announcement>, seq: Seq, ticket: Option<Ticket>) {
        if !announcements.is_empty() {
            let mut office = locked(&self.hub.0);
            let before = office.number();
            let letter = Letter { process: self.process, post: self.post.clone(), announcements, before };
            office.letters.insert((seq, before), letter);
            if ticket.is_none() {
                office.deliver();
            }
        }
        drop(ticket);
    }

    /// The next notification.
    ///
    /// # Errors
    /// The mailbox overflowed.
    pub(crate) fn next(&self) -> Result<Option<Heard>, Overflow> {
        let mut waiting = locked(&self.post.waiting);
        match waiting.heard.pop_front() {
            None if waiting.is_full => Err(Overflow),
            heard => Ok(heard),
        }
    }

    /// Waits until a notification arrives. Cancel-safe.
    pub(crate) async fn came(&self) {
        self.post.came.notified().await;
    }
}

/// Too many notifications waited for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overflow;

impl Drop for Mailbox {
    fn drop(&mut self) {
        let mut office = locked(&self.hub.0);
        let (process, post) = (self.process, self.post.clone());
        // Its own notifications are still delivered; its LISTENs are gone.
        for letter in office.letters.values_mut().filter(|letter| letter.process == process) {
            letter.announcements.retain(|said| matches!(said, Announcement::Notify { .. }));
        }
        office.put(process, &post, Announcement::Unlisten(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Announces without a separate commit.
    fn say(mailbox: &Mailbox, announcements: Vec<Announcement>) {
        mailbox.announce(announcements, Seq::ZERO, None);
    }

    fn notify(channel: &str, payload: &str) -> Announcement {
        Announcement::Notify { channel: channel.into(), payload: payload.into() }
    }

    #[test]
    fn only_listeners_receive_notifications() {
        let hub = Hub::default();
        let (ann, bob) = (hub.mailbox(1), hub.mailbox(2));
        say(&ann, vec![notify("c", "early"), Announcement::Listen("c".into()), notify("c", "own")]);
        say(&bob, vec![notify("c", "bob's"), notify("d", "nobody's")]);
        let heard = |mailbox: &Mailbox| {
            mailbox.next().unwrap().map(|heard| (heard.process, heard.payload.to_string()))
        };
        assert_eq!(heard(&ann), Some((1, "own".into())));
        assert_eq!(heard(&ann), Some((2, "bob's".into())));
        assert_eq!((heard(&ann), heard(&bob)), (None, None));
        say(&ann, vec![Announcement::Unlisten(Some("c".into())), notify("c", "late")]);
        assert_eq!(heard(&ann), None);
        say(&bob, vec![Announcement::Listen("c".into())]);
        drop(bob);
        assert!(locked(&hub.0).channels.is_empty());
    }

    #[test]
    fn full_mailbox_reports_overflow() {
        let hub = Hub::default();
        let ann = hub.mailbox(1);
        say(&ann, vec![Announcement::Listen("c".into())]);
        say(&ann, vec![notify("c", "x"); WAITING_MAX + 1]);
        for _ in 0..WAITING_MAX {
            assert!(ann.next().unwrap().is_some());
        }
        assert_eq!(ann.next(), Err(Overflow));
    }

    #[test]
    fn notifications_arrive_in_commit_order() {
        let hub = Hub::default();
        let [ann, bob, cy] = [1, 2, 3].map(|process| hub.mailbox(process));
        say(&cy, vec![Announcement::Listen("c".into())]);
        let heard = || std::iter::from_fn(|| cy.next().unwrap().map(|heard| heard.payload.to_string()));
        let (first, second) = (ann.ticket(), bob.ticket());
        // Bob's commit came later, and is known first.
        bob.announce(vec![notify("c", "6")], Seq(6), Some(second));
        assert_eq!(heard().count(), 0);
        ann.announce(vec![notify("c", "5")], Seq(5), Some(first));
        assert_eq!(heard().collect::<Vec<_>>(), ["5", "6"]);
        // A failed commit delays no notification, nor does one that begins later.
        let lost = ann.ticket();
        bob.announce(vec![notify("c", "7")], Seq(7), Some(bob.ticket()));
        let later = ann.ticket();
        assert_eq!(heard().count(), 0);
        drop(lost);
        assert_eq!(heard().collect::<Vec<_>>(), ["7"]);
        drop(later);
    }
}
