//! Throttling of password guesses: after a few failures each further attempt has to wait, with growing
//! pauses.
//!
//! Failures are counted for (user, peer), for the peer, and for the user; each has a number of free failures,
//! then a pause that doubles up to a minute. A success resets the pair. For a day after it, failures of other
//! peers do not delay this pair, so they cannot lock a user out of a known address. Fifteen quiet minutes
//! reset everything. The tables are bounded: when one is full the older half is dropped.

use core::time::Duration;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::newcomer::network;

const ENTRIES_MAX: usize = 16 << 10;
const FORGIVEN_AFTER: Duration = Duration::from_secs(15 * 60);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A successful login of a pair counts for this long.
const KNOWN_FOR: Duration = Duration::from_secs(24 * 3600);
/// No user has a longer name; truncated, so that entries stay small.
const NAME_CHARS_MAX: usize = 64;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Pair(String, Option<IpAddr>),
    Peer(IpAddr),
    User(String),
}

impl Key {
    /// Failures without consequence: typing errors for a pair, an office that shares one address for a peer;
    /// so many for a user that locking a user out takes a botnet.
    fn free(&self) -> u32 {
        match self {
            Self::Pair(..) => 5,
            Self::Peer(_) => 50,
            Self::User(_) => 500,
        }
    }
}

struct Entry {
    failures: u32,
    last: Instant,
    blocked_until: Instant,
}

#[derive(Default)]
pub(crate) struct Throttle(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    entries: HashMap<Key, Entry>,
    /// Pairs that logged in, and when.
    known: HashMap<Key, Instant>,
}

/// One attempt's keys.
pub(crate) struct Attempt(Vec<Key>);

impl Attempt {
    pub(crate) fn new(user: &str, peer: Option<IpAddr>) -> Self {
        let user: String = user.chars().take(NAME_CHARS_MAX).collect();
        let peer = peer.map(network);
        let mut keys = vec![Key::Pair(user.clone(), peer), Key::User(user)];
        keys.extend(peer.map(Key::Peer));
        Self(keys)
    }
}

impl Throttle {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(|held| held.into_inner())
    }

    /// How long the attempt has to wait; `None`: not at all.
    pub(crate) fn pause(&self, attempt: &Attempt, now: Instant) -> Option<Duration> {
        let tables = self.tables();
        let is_known = attempt
            .0
            .iter()
            .any(|key| tables.known.get(key).is_some_and(|at| now.duration_since(*at) < KNOWN_FOR));
        let counts = |key: &&Key| !(is_known && matches!(key, Key::User(_)));
        let entries = attempt.0.iter().filter(counts).filter_map(|key| tables.entries.get(key));
        let until = entries.map(|entry| entry.blocked_until).max()?;
        until.checked_duration_since(now).filter(|pause| !pause.is_zero())
    }

    pub(crate) fn failed(&self, attempt: &Attempt, now: Instant) {
        let table = &mut self.tables().entries;
        if table.len() + attempt.0.len() > ENTRIES_MAX {
            drop_older_half(table, |entry| entry.last);
        }
        for key in &attempt.0 {
            let fresh = Entry { failures: 0, last: now, blocked_until: now };
            let entry = table.entry(key.clone()).or_insert(fresh);
            if now.duration_since(entry.last) > FORGIVEN_AFTER {
                entry.failures = 0;
            }
            entry.failures = entry.failures.saturating_add(1);
            entry.last = now;
            if let Some(over) = entry.failures.checked_sub(key.free()) {
                entry.blocked_until = now + Duration::from_secs(1 << over.min(6)).min(PAUSE_MAX);
            }
        }
    }

    pub(crate) fn succeeded(&self, attempt: &Attempt, now: Instant) {
        let tables = &mut *self.tables();
        for key in attempt.0.iter().filter(|key| matches!(key, Key::Pair(..))) {
            tables.entries.remove(key);
            if tables.known.len() >= ENTRIES_MAX {
                drop_older_half(&mut tables.known, |at| *at);
            }
            tables.known.insert(key.clone(), now);
        }
    }
}

fn drop_older_half<T>(table: &mut HashMap<Key, T>, last: impl Fn(&T) -> Instant) {
    let mut times: Vec<Instant> = table.values().map(&last).collect();
    let middle = times.len() / 2;
    let median = *times.select_nth_unstable(middle).1;
    table.retain(|_, value| last(value) > median);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn pauses_begin_after_five_failures_and_double_to_a_minute() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let attempt = Attempt::new("ann", peer(1));
        for _ in 0..4 {
            throttle.failed(&attempt, now);
            assert_eq!(throttle.pause(&attempt, now), None);
        }
        let mut pauses = Vec::new();
        for _ in 0..8 {
            throttle.failed(&attempt, now);
            pauses.push(throttle.pause(&attempt, now).unwrap().as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(throttle.pause(&attempt, now + PAUSE_MAX), None);
        // Another peer's ann and this peer's bob are not delayed.
        assert_eq!(throttle.pause(&Attempt::new("ann", peer(2)), now), None);
        assert_eq!(throttle.pause(&Attempt::new("bob", peer(1)), now), None);
        throttle.succeeded(&attempt, now);
        assert_eq!(throttle.pause(&attempt, now), None);
    }

    #[test]
    fn peer_that_tries_many_names_is_throttled() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for i in 0..50 {
            throttle.failed(&Attempt::new(&format!("user{i}"), peer(1)), now);
        }
        assert!(throttle.pause(&Attempt::new("fresh", peer(1)), now).is_some());
        assert!(throttle.pause(&Attempt::new("fresh", peer(2)), now).is_none());
        assert!(throttle.pause(&Attempt::new("fresh", peer(1)), now + FORGIVEN_AFTER).is_none());
    }

    #[test]
    fn l3_failures_of_others_do_not_lock_a_known_address_out() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let at_home = Attempt::new("ann", peer(200));
        throttle.succeeded(&at_home, now);
        for address in 0..100 {
            for _ in 0..5 {
                throttle.failed(&Attempt::new("ann", peer(address)), now);
            }
        }
        assert!(throttle.pause(&Attempt::new("ann", peer(201)), now).is_some());
        assert_eq!(throttle.pause(&at_home, now), None);
        for _ in 0..5 {
            throttle.failed(&at_home, now);
        }
        assert!(throttle.pause(&at_home, now).is_some());
    }

    #[test]
    fn table_is_bounded() {
        let (throttle, mut now) = (Throttle::default(), Instant::now());
        for i in 0..2 * ENTRIES_MAX {
            now += Duration::from_micros(1);
            throttle.failed(&Attempt::new(&format!("{i}{}", "x".repeat(9999)), None), now);
        }
        let table = &throttle.tables().entries;
        assert!(table.len() <= ENTRIES_MAX);
        assert!(table.keys().all(|key| !matches!(key, Key::User(name) if name.len() > NAME_CHARS_MAX)));
    }

    #[test]
    fn ipv6_network_of_one_owner_is_one_peer() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let address = |last: u16| Some(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]));
        for i in 0..5 {
            throttle.failed(&Attempt::new("ann", address(i)), now);
        }
        assert!(throttle.pause(&Attempt::new("ann", address(99)), now).is_some());
    }
}
