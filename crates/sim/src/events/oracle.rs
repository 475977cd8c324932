//! The expected contents of the database: an obvious model without logs, runs or postings.
//!
//! The oracle stores every commit in order. It decides each request in its place in the order, as the
//! sequencer must, and it defines the view of any reader at any commit. Commits at its end may be in doubt:
//! sequenced, but without a response before a crash. The contents of a reopened database must be a prefix of
//! the oracle, and not too short.

use std::collections::BTreeMap;

use ropewalk::events::{QueryItem, ReadOptions};
use ropewalk::{AppendOptions, Event, Isolation, Query};

use crate::events::generators::show;

/// A requested append.
#[derive(Clone)]
pub(crate) struct AppendAsk {
    pub(crate) store: String,
    pub(crate) events: Vec<Event>,
    pub(crate) options: AppendOptions,
    /// Head of the store when the conditions were checked before the sequencer; zero when they were not.
    pub(crate) looked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

impl std::fmt::Display for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Put(key, value) => write!(f, "put {} ({} bytes)", show(key), value.len()),
            Self::Delete(key) => write!(f, "delete {}", show(key)),
            Self::DeleteRange(start, end) => write!(f, "delete {} .. {}", show(start), show(end)),
        }
    }
}

impl Write {
    fn touches(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        match self {
            Self::Put(key, _) | Self::Delete(key) => {
                key.as_slice() >= low && high.is_none_or(|high| key.as_slice() < high)
            }
            Self::DeleteRange(start, end) => {
                end.as_slice() > low && high.is_none_or(|high| start.as_slice() < high) && start < end
            }
        }
    }
}

/// Reads and writes of a key-value transaction.
#[derive(Clone)]
pub(crate) struct KeysAsk {
    pub(crate) since: u64,
    pub(crate) isolation: Isolation,
    pub(crate) keys_read: Vec<(u16, Vec<u8>)>,
    /// Keyspace, start, end, and the key after the last row read, when a limit ended the read.
    pub(crate) ranges_read: Vec<(u16, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)>,
    pub(crate) writes: Vec<(u16, Write)>,
}

/// A requested transaction.
#[derive(Clone, Default)]
pub(crate) struct Ask {
    pub(crate) appends: Vec<AppendAsk>,
    pub(crate) keys: Option<KeysAsk>,
}

/// Why a transaction must be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Condition { ordinal: usize, position: u64, item: Option<usize> },
    Tracking { stored: u64 },
    Idempotency { first: u64, last: u64 },
    Keys,
}

/// The expected result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expect {
    Commit,
    /// Committed before, by this commit; this is the result that the append returned then.
    Done {
        outcome: (u64, u64),
        by: u64,
    },
    Refuse(Refusal),
    /// A range that was read was written to and reads the same: both results are right.
    CommitOrRefuseKeys,
}

/// An event where it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
    /// `None` when the oracle cannot know it.
    pub(crate) time: Option<i64>,
    pub(crate) event: Event,
}

/// One transaction in its place in the order.
#[derive(Clone)]
pub(crate) struct Commit {
    pub(crate) time: Option<i64>,
    /// Store, first position, events.
    pub(crate) appends: Vec<(AppendAsk, u64)>,
    pub(crate) writes: Vec<(u16, Write)>,
}

#[derive(Default, Clone)]
struct StoreLog {
    events: Vec<Stored>,
    /// Source to commits and positions, ascending.
    tracking: BTreeMap<String, Vec<(u64, u64)>>,
    /// Key to commit, positions and events.
    keys: BTreeMap<String, (u64, (u64, u64), Vec<Event>)>,
}

type Versions = Vec<(u64, Option<Vec<u8>>)>;

#[derive(Default, Clone)]
pub(crate) struct Oracle {
    commits: Vec<Commit>,
    stores: BTreeMap<String, StoreLog>,
    keys: BTreeMap<(u16, Vec<u8>), Versions>,
}

fn item_matches(item: &QueryItem, event: &Event) -> bool {
    let begins = |text: &String, prefix: &String| text.starts_with(prefix.as_str());
    let any_type = item.types.is_empty() && item.type_prefixes.is_empty();
    (any_type
        || item.types.contains(&event.event_type)
        || item.type_prefixes.iter().any(|prefix| begins(&event.event_type, prefix)))
        && item.tags.iter().all(|tag| event.tags.contains(tag))
        && item.tag_prefixes.iter().all(|prefix| event.tags.iter().any(|tag| begins(tag, prefix)))
}

pub(crate) fn matches(query: &Query, event: &Event) -> bool {
    query.is_all() || query.items.iter().any(|item| item_matches(item, event))
}

impl Oracle {
    /// Of a database whose first commits define so many keyspaces.
    pub(crate) fn with_keyspaces(count: usize) -> Self {
        let definition = || Commit { time: None, appends: Vec::new(), writes: Vec::new() };
        Self { commits: std::iter::repeat_with(definition).take(count).collect(), ..Self::default() }
    }

    /// The last commit, in doubt or not.
    pub(crate) fn last(&self) -> u64 {
        self.commits.len() as u64
    }

    pub(crate) fn commit(&self, seq: u64) -> Option<&Commit> {
        self.commits.get(seq.checked_sub(1)? as usize)
    }

    pub(crate) fn last_time(&self) -> Option<i64> {
        self.commits.last().map_or(Some(i64::MIN), |commit| commit.time)
    }

    /// Names of the stores that exist after commit `at`.
    pub(crate) fn stores(&self, at: u64) -> Vec<String> {
        self.stores.keys().filter(|name| self.head(name, at) > 0).cloned().collect()
    }

    pub(crate) fn events(&self, store: &str, at: u64) -> &[Stored] {
        let events = self.stores.get(store).map_or(&[][..], |log| &log.events);
        events.get(..events.partition_point(|e| e.seq <= at)).unwrap_or(&[])
    }

    pub(crate) fn head(&self, store: &str, at: u64) -> u64 {
        self.events(store, at).len() as u64
    }

    pub(crate) fn tracking(&self, store: &str, source: &str, at: u64) -> Option<u64> {
        let stored = self.stores.get(store)?.tracking.get(source)?;
        stored.iter().rev().find(|(seq, _)| *seq <= at).map(|(_, position)| *position)
    }

    /// Matching events with their positions, in reading order.
    pub(crate) fn query(
        &self,
        store: &str,
        at: u64,
        query: &Query,
        options: &ReadOptions,
    ) -> Vec<(u64, &Stored)> {
        let inside = |position: u64| {
            options.after.is_none_or(|after| position > after.0)
                && options.before.is_none_or(|before| position < before.0)
                && options.from.is_none_or(|from| {
                    if options.backwards { position <= from.0 } else { position >= from.0 }
                })
        };
        let all = (1..).zip(self.events(store, at));
        let mut found: Vec<_> =
            all.filter(|(p, stored)| inside(*p) && matches(query, &stored.event)).collect();
        if options.backwards {
            found.reverse();
        }
        found.truncate(options.limit.map_or(usize::MAX, |limit| limit as usize));
        found
    }

    pub(crate) fn get(&self, keyspace: u16, key: &[u8], at: u64) -> Option<&[u8]> {
        let versions = self.keys.get(&(keyspace, key.to_vec()))?;
        versions.iter().rev().find(|(seq, _)| *seq <= at)?.1.as_deref()
    }

    /// Keys and values that exist after commit `at`, ascending.
    pub(crate) fn rows(&self, keyspace: u16, at: u64) -> Vec<(&[u8], &[u8])> {
        let all = self.keys.range((keyspace, Vec::new())..).take_while(|((id, _), _)| *id == keyspace);
        let live = all.filter_map(|((_, key), versions)| {
            let (_, value) = versions.iter().rev().find(|(seq, _)| *seq <= at)?;
            Some((key.as_slice(), value.as_deref()?))
        });
        live.collect()
    }

    /// The first event after `after`, up to `head`, that matches, and the first item it matches.
    fn first_match(&self, store: &str, query: &Query, after: u64, head: u64) -> Option<(u64, Option<usize>)> {
        let found = (1..=head)
            .zip(self.events(store, u64::MAX))
            .find(|(p, e)| *p > after && matches(query, &e.event));
        found.map(|(position, stored)| {
            (position, query.items.iter().position(|item| item_matches(item, &stored.event)))
        })
    }

    fn failing_condition(&self, ask: &AppendAsk, from: u64, head: u64) -> Option<Refusal> {
        ask.options.conditions.iter().enumerate().find_map(|(ordinal, condition)| {
            let after = condition.after.map_or(0, |p| p.0).max(from);
            let (position, item) =
                self.first_match(&ask.store, &condition.fail_if_events_match, after, head)?;
            Some(Refusal::Condition { ordinal, position, item })
        })
    }

    /// Expected failure before the sequencer, with commits up to `visible`; records how far it checked.
    pub(crate) fn look_ahead(&self, ask: &mut AppendAsk, visible: u64) -> Option<Refusal> {
        if ask.options.conditions.is_empty() || ask.options.idempotency_key.is_some() {
            return None;
        }
        ask.looked = self.head(&ask.store, visible);
        self.failing_condition(ask, 0, ask.looked)
    }

    /// The expected result of a transaction that is sequenced now.
    pub(crate) fn decide(&self, ask: &Ask) -> Expect {
        for append in &ask.appends {
            if let Some(expect) = self.decide_append(append) {
                return expect;
            }
        }
        ask.keys.as_ref().map_or(Expect::Commit, |keys| self.decide_keys(keys))
    }

    fn decide_append(&self, ask: &AppendAsk) -> Option<Expect> {
        let log = self.stores.get(&ask.store)?;
        if let Some((by, (first, last), events)) =
            ask.options.idempotency_key.as_ref().and_then(|key| log.keys.get(key))
        {
            let (first, last) = (*first, *last);
            let done = Expect::Done { outcome: (first, last), by: *by };
            return Some(if *events == ask.events {
                done
            } else {
                Expect::Refuse(Refusal::Idempotency { first, last })
            });
        }
        if let Some(refusal) = self.failing_condition(ask, ask.looked, self.head(&ask.store, u64::MAX)) {
            return Some(Expect::Refuse(refusal));
        }
        if let Some(tracking) = &ask.options.tracking
            && let Some(stored) = self.tracking(&ask.store, &tracking.source, u64::MAX)
            && tracking.position <= stored
        {
            return Some(Expect::Refuse(Refusal::Tracking { stored }));
        }
        None
    }

    fn decide_keys(&self, ask: &KeysAsk) -> Expect {
        if ask.isolation == Isolation::ReadCommitted {
            return Expect::Commit;
        }
        let written = ask.writes.iter().filter_map(|(keyspace, write)| match write {
            Write::Put(key, _) | Write::Delete(key) => Some((*keyspace, key.clone())),
            Write::DeleteRange(..) => None,
        });
        let deleted = ask.writes.iter().filter_map(|(keyspace, write)| match write {
            Write::DeleteRange(start, end) if start < end => {
                Some((*keyspace, start.clone(), Some(end.clone()), None))
            }
            _ => None,
        });
        let serializable = ask.isolation == Isolation::Serializable;
        let keys: Vec<_> = written.chain(ask.keys_read.iter().filter(|_| serializable).cloned()).collect();
        let read = ask.ranges_read.iter().filter(|_| serializable).cloned();
        let ranges: Vec<_> = deleted.chain(read).collect();
        let later = || self.commits.iter().skip(ask.since as usize).flat_map(|commit| &commit.writes);
        let after = |key: &[u8]| [key, &[0]].concat();
        let touched =
            keys.iter().any(|(id, key)| later().any(|(at, w)| at == id && w.touches(key, Some(&after(key)))))
                || ranges.iter().any(|(id, start, end, _)| {
                    later().any(|(at, w)| at == id && w.touches(start, end.as_deref()))
                });
        let rows = |id: u16, at: u64, start: &[u8], end: Option<&[u8]>| -> Vec<_> {
            let rows = self.rows(id, at).into_iter();
            rows.filter(|(key, _)| *key >= start && end.is_none_or(|end| *key < end)).collect()
        };
        let changed =
            keys.iter().any(|(id, key)| self.get(*id, key, ask.since) != self.get(*id, key, u64::MAX))
                || ranges.iter().any(|(id, start, end, seen)| {
                    let end = seen.as_deref().or(end.as_deref());
                    rows(*id, ask.since, start, end) != rows(*id, u64::MAX, start, end)
                });
        match (touched, changed) {
            (false, _) => Expect::Commit,
            (true, true) => Expect::Refuse(Refusal::Keys),
            (true, false) => Expect::CommitOrRefuseKeys,
        }
    }

    /// Commits it; returns its number and the results of its parts.
    pub(crate) fn apply(&mut self, ask: &Ask, time: Option<i64>) -> (u64, Vec<(u64, u64)>) {
        let seq = self.last() + 1;
        let mut outcomes = Vec::new();
        let mut appends = Vec::new();
        for append in &ask.appends {
            let log = self.stores.entry(append.store.clone()).or_default();
            let first = log.events.len() as u64 + 1;
            let last = first + append.events.len() as u64 - 1;
            log.events.extend(append.events.iter().map(|event| Stored { seq, time, event: event.clone() }));
            if let Some(tracking) = &append.options.tracking {
                log.tracking.entry(tracking.source.clone()).or_default().push((seq, tracking.position));
            }
            if let Some(key) = &append.options.idempotency_key {
                log.keys.insert(key.clone(), (seq, (first, last), append.events.clone()));
            }
            outcomes.push((first, last));
            appends.push((append.clone(), first));
        }
        let writes = ask.keys.as_ref().map_or_else(Vec::new, |keys| keys.writes.clone());
        if ask.keys.is_some() {
            outcomes.push((0, 0));
        }
        for (keyspace, write) in &writes {
            self.write(seq, *keyspace, write);
        }
        self.commits.push(Commit { time, appends, writes });
        (seq, outcomes)
    }

    fn write(&mut self, seq: u64, keyspace: u16, write: &Write) {
        let mut set = |key: &[u8], value: Option<&[u8]>| {
            let versions = self.keys.entry((keyspace, key.to_vec())).or_default();
            versions.push((seq, value.map(<[u8]>::to_vec)));
        };
        match write {
            Write::Put(key, value) => set(key, Some(value)),
            Write::Delete(key) => set(key, None),
            Write::DeleteRange(start, end) => {
                let gone: Vec<Vec<u8>> =
                    self.rows(keyspace, u64::MAX).into_iter().map(|(key, _)| key.to_vec()).collect();
                for key in gone.iter().filter(|key| *key >= start && *key < end) {
                    let versions = self.keys.entry((keyspace, key.clone())).or_default();
                    versions.push((seq, None));
                }
            }
        }
    }

    /// Drops every commit after `seq`, lost in a crash.
    pub(crate) fn truncate(&mut self, seq: u64) {
        self.commits.truncate(seq as usize);
        for log in self.stores.values_mut() {
            log.events.retain(|stored| stored.seq <= seq);
            log.tracking.values_mut().for_each(|stored| stored.retain(|(at, _)| *at <= seq));
            log.keys.retain(|_, (at, _, _)| *at <= seq);
        }
        self.stores.retain(|_, log| !log.events.is_empty());
        self.keys.values_mut().for_each(|versions| versions.retain(|(at, _)| *at <= seq));
    }

    /// Re-checks every committed conditional append against the commits before it, from the recorded order alone.
    pub(crate) fn recheck_conditions(&self) -> Result<(), String> {
        for (commit, seq) in self.commits.iter().zip(1_u64..) {
            for (ask, first) in &commit.appends {
                let before = self.head(&ask.store, seq - 1);
                if let Some(refusal) = self.failing_condition(ask, 0, before) {
                    return Err(format!(
                        "commit {seq} of {}, first position {first}, was accepted against {refusal:?}",
                        ask.store
                    ));
                }
            }
        }
        Ok(())
    }
}
