//! Reads, compared with the oracle: queries in both directions, long-lived snapshots, cursors, subscriptions,
//! change feeds.

use std::time::Duration;

use ropewalk::changes::{ChangeFeed, ChangedPart};
use ropewalk::engine::Keyspace;
use ropewalk::events::{Delivery, EventReader, ReadOptions, SequencedEvent, Subscription};
use ropewalk::hooks::KvWrite;
use ropewalk::{Class, Database, Error, EventStore, Position, Query, Seq};
use ropewalk_engine::{Cursor, EngineError, LogError, Snapshot};

use crate::events::generators;
use crate::events::generators::show;
use crate::events::oracle::{Stored, Write};
use crate::events::scenario::{Bug, Check, KEYSPACES, World, ensure};

struct Held {
    snapshot: Snapshot,
    at: u64,
}

struct Subscriber {
    store: String,
    query: Query,
    /// Everything up to here was delivered or does not match.
    after: u64,
    open: Option<Subscription>,
}

struct Follower {
    next: u64,
    open: Option<ChangeFeed>,
}

/// Readers that live for more than one step. Subscribers and followers outlive a boot: they resume with their
/// numbers.
#[derive(Default)]
pub(crate) struct Readers {
    /// A snapshot of the beginning of the boot, compared completely at its end.
    relic: Option<Held>,
    snapshots: Vec<Held>,
    subscribers: Vec<Subscriber>,
    followers: Vec<Follower>,
}

impl Readers {
    /// Drops all references to the database.
    pub(crate) fn park(&mut self) {
        self.relic = None;
        self.snapshots.clear();
        self.subscribers.iter_mut().for_each(|s| s.open = None);
        self.followers.iter_mut().for_each(|f| f.open = None);
    }
}

/// True when a stored event equals the oracle's.
fn same(found: &SequencedEvent, position: u64, stored: &Stored) -> bool {
    found.position.0 == position
        && found.seq.0 == stored.seq
        && stored.time.is_none_or(|time| time == found.time_micros)
        && found.event == stored.event
}

fn brief(events: &[SequencedEvent]) -> Vec<u64> {
    events.iter().map(|e| e.position.0).collect()
}

impl World {
    fn any_store(&mut self) -> Check<(String, EventStore)> {
        let name = *self.dice.pick(&generators::STORES).expect("there are stores");
        let store = self.db().events(name).map_err(|e| Bug(format!("handle of store {name}: {e}")))?;
        Ok((name.to_owned(), store))
    }

    /// One random query at a snapshot of commit `at`, read in one of several ways.
    fn read_query(&mut self, snapshot: Snapshot, at: u64) -> Check {
        let (name, store) = self.any_store()?;
        let query = if self.dice.one_in(8) { Query::all() } else { generators::query(&self.dice) };
        let options = generators::read_options(&self.dice, self.oracle.head(&name, at));
        let batch = self.dice.between(1, 40) as usize;
        self.note(format!("read {name} at {at} {query:?} {options:?} by {batch}"));
        let read = || -> Result<(Vec<SequencedEvent>, Option<Position>), Error> {
            let mut reader = store.read_at(snapshot, &query, options)?;
            let head = reader.head();
            Ok((drain(&mut reader, batch)?, head))
        };
        let result = read();
        let Some((found, head)) = self.allow("read", result)? else { return Ok(()) };
        self.counts.reads += 1;
        let expected = self.oracle.query(&name, at, &query, &options);
        let equal =
            found.len() == expected.len() && found.iter().zip(&expected).all(|(f, (p, s))| same(f, *p, s));
        let positions: Vec<u64> = expected.iter().map(|(p, _)| *p).collect();
        ensure!(
            equal,
            "read {name} at {at} {query:?} {options:?}: expected {positions:?}, got {:?}",
            brief(&found)
        );
        let expected = self.oracle.head(&name, at);
        ensure!(
            head.map_or(0, |p| p.0) == expected,
            "head of {name} at {at}: expected {expected}, got {head:?}"
        );
        Ok(())
    }

    /// Calls that return a value without a stream.
    pub(crate) fn read_scalars(&mut self) -> Check {
        let (name, store) = self.any_store()?;
        let at = self.visible();
        let query = generators::query(&self.dice);
        let head = self.oracle.head(&name, at);
        let after = self.dice.one_in(2).then(|| Position(self.dice.below(head + 2)));
        let source = format!("source{}", self.dice.below(3));
        self.note(format!("count, exists, last of {name} {query:?} after {after:?}"));
        let ask = || -> Result<_, Error> {
            let last = store.read_last(&query)?;
            let (count, exists) = (store.count(&query)?, store.exists(&query, after)?);
            Ok((last, count, exists, store.head()?, store.tracking(&source)?))
        };
        let result = ask();
        let Some((last, count, exists, found_head, tracking)) = self.allow("scalars", result)? else {
            return Ok(());
        };
        self.counts.reads += 1;
        let all = self.oracle.query(&name, at, &query, &ReadOptions::default());
        ensure!(
            count == all.len() as u64,
            "count of {query:?} in {name}: expected {}, got {count}",
            all.len()
        );
        let same_last = match (&last, all.last()) {
            (Some(last), Some((position, stored))) => same(last, *position, stored),
            (None, None) => true,
            _ => false,
        };
        ensure!(same_last, "last of {query:?} in {name}: expected {:?}, got {last:?}", all.last());
        let expected = all.iter().any(|(p, _)| after.is_none_or(|after| *p > after.0));
        ensure!(
            exists == expected,
            "{query:?} in {name} after {after:?} exists: expected {expected}, got {exists}"
        );
        ensure!(found_head.map_or(0, |p| p.0) == head, "head of {name}: expected {head}, got {found_head:?}");
        let expected = self.oracle.tracking(&name, &source, at);
        ensure!(
            tracking == expected,
            "tracking of {source} in {name}: expected {expected:?}, got {tracking:?}"
        );
        Ok(())
    }

    /// One random read of the keyspaces at a snapshot of commit `at`.
    fn read_keys(&mut self, snapshot: &Snapshot, at: u64) -> Check {
        let keyspaces = self.boot().keyspaces.clone();
        let keyspace = self.dice.pick(&keyspaces).expect("there are keyspaces").id();
        let inner = ropewalk_engine::Keyspace(keyspace);
        let key = generators::key(&self.dice);
        let found = snapshot.read().get(inner, &key).map(|v| v.map(|v| v.to_vec()));
        self.note(format!("get {keyspace} {} at {at}", show(&key)));
        if let Some(found) = self.allow("get", found)? {
            let expected = self.oracle.get(keyspace, &key, at);
            let (wanted, got) = (expected.map(show), found.as_deref().map(show));
            ensure!(
                found.as_deref() == expected,
                "key {} of {keyspace} at {at}: expected {wanted:?}, got {got:?}",
                show(&key)
            );
        }
        let mut cursor = snapshot.read().cursor(inner);
        let mut place: Option<usize> = None;
        for _ in 0..self.dice.between(1, 12) {
            let rows = self.oracle.rows(keyspace, at);
            let key = generators::key(&self.dice);
            let below = rows.partition_point(|(k, _)| *k < key.as_slice());
            let upto = rows.partition_point(|(k, _)| *k <= key.as_slice());
            let moves = if place.is_some() { 8 } else { 4 };
            let (what, result, expected) = match self.dice.below(moves) {
                0 => ("seek", cursor.seek(&key), Some(below)),
                1 => ("seek_for_prev", cursor.seek_for_prev(&key), upto.checked_sub(1)),
                2 => ("first", cursor.first(), Some(0)),
                3 => ("last", cursor.last(), rows.len().checked_sub(1)),
                4 | 5 => ("next", cursor.next(), place.map(|p| p + 1)),
                _ => ("prev", cursor.prev(), place.and_then(|p| p.checked_sub(1))),
            };
            let expected_row = expected.and_then(|at| rows.get(at));
            place = expected.filter(|_| expected_row.is_some());
            if result.is_ok() {
                let found = current(&cursor);
                let (wanted, got) = (expected_row.map(|row| show(row.0)), found.map(|row| show(row.0)));
                ensure!(
                    found == expected_row.copied(),
                    "{what} {} in {keyspace} at {at}: expected {wanted:?}, got {got:?}",
                    show(&key)
                );
            }
            let line = format!("  {what} {} to {place:?}", show(&key));
            self.note(line);
            if self.allow(what, result)?.is_none() {
                return Ok(());
            }
        }
        self.counts.reads += 1;
        Ok(())
    }

    pub(crate) fn read_now(&mut self) -> Check {
        let snapshot = self.db().engine().snapshot();
        let at = snapshot.seq().0;
        if self.dice.one_in(3) { self.read_keys(&snapshot, at) } else { self.read_query(snapshot, at) }
    }

    /// Takes, reads, moves or drops a long-lived snapshot.
    pub(crate) fn use_snapshot(&mut self) -> Check {
        let count = self.readers.snapshots.len();
        if count == 0 || (count < 6 && self.dice.one_in(4)) {
            let snapshot = self.db().engine().snapshot();
            let at = snapshot.seq().0;
            self.note(format!("hold a snapshot of {at}"));
            self.readers.snapshots.push(Held { snapshot, at });
            return Ok(());
        }
        let index = self.dice.index(count);
        if self.dice.one_in(8) {
            self.note("drop a snapshot");
            self.readers.snapshots.swap_remove(index);
            return Ok(());
        }
        let repin = self.dice.one_in(2);
        let Some(held) = self.readers.snapshots.get_mut(index) else { return Ok(()) };
        if repin {
            held.snapshot.refresh_sources();
        }
        let (snapshot, at) = (held.snapshot.clone(), held.at);
        ensure!(snapshot.seq().0 == at, "a snapshot of {at} moved to {}", snapshot.seq());
        self.note(format!("read the snapshot of {at}, repin {repin}"));
        if self.dice.one_in(2) { self.read_keys(&snapshot, at) } else { self.read_query(snapshot, at) }
    }

    /// After a crash: rewinds readers that hold numbers of lost commits.
    pub(crate) fn rewind_readers(&mut self, last: u64) {
        for follower in &mut self.readers.followers {
            follower.next = follower.next.min(last + 1);
        }
        for subscriber in &mut self.readers.subscribers {
            subscriber.after = subscriber.after.min(self.oracle.head(&subscriber.store, last));
        }
    }

    pub(crate) fn use_subscription(&mut self) -> Check {
        if self.readers.subscribers.len() < 3 {
            let store = (*self.dice.pick(&generators::STORES).expect("there are stores")).to_owned();
            let query = if self.dice.one_in(3) { Query::all() } else { generators::query(&self.dice) };
            self.readers.subscribers.push(Subscriber { store, query, after: 0, open: None });
        }
        let index = self.dice.index(self.readers.subscribers.len());
        let mut subscriber = self.readers.subscribers.swap_remove(index);
        let result = self.poll_subscriber(&mut subscriber);
        self.readers.subscribers.push(subscriber);
        result
    }

    fn poll_subscriber(&mut self, subscriber: &mut Subscriber) -> Check {
        let Subscriber { store, query, after, .. } = subscriber;
        self.note(format!("subscriber of {store} {query:?} after {after}"));
        if subscriber.open.is_none() || self.dice.one_in(10) {
            let handle = self.db().events(store).map_err(|e| Bug(e.to_string()))?;
            // Come back with the number that the subscription itself reports.
            let resume = subscriber.open.as_ref().map_or(*after, |open| open.position().0);
            ensure!(resume >= *after, "a subscription that delivered up to {after} reports {resume}");
            let skipped =
                self.oracle.query(store, u64::MAX, query, &ReadOptions::default().after(Position(*after)));
            let skips = skipped.first().is_some_and(|(position, _)| *position <= resume);
            ensure!(!skips, "a subscription reports position {resume} and has delivered only up to {after}");
            *after = resume;
            let opened = handle.subscribe(query, Some(Position(resume)));
            subscriber.open = self.allow("subscribe", opened)?;
        }
        for _ in 0..self.dice.between(1, 40) {
            let Some(open) = &mut subscriber.open else { return Ok(()) };
            let next = open.next(Duration::ZERO);
            let Some(delivery) = self.allow("subscription", next)? else {
                subscriber.open = None;
                return Ok(());
            };
            let at = self.visible();
            let options = ReadOptions::default().after(Position(subscriber.after)).limit(1);
            let expected = self.oracle.query(&subscriber.store, at, &subscriber.query, &options);
            match (delivery, expected.first()) {
                (Some(Delivery::Event(event)), Some((position, stored)))
                    if same(&event, *position, stored) =>
                {
                    subscriber.after = *position;
                }
                (Some(Delivery::CaughtUp { head }), next) => {
                    let early = next.is_some_and(|(position, _)| *position <= head.0);
                    ensure!(!early, "caught up at {head} without {:?}", next.map(|n| n.0));
                    subscriber.after = subscriber.after.max(head.0);
                }
                (Some(Delivery::FellBehind { .. }), _) => {}
                (None, None) => return Ok(()),
                (found, next) => {
                    return Err(Bug(format!(
                        "expected the delivery of {:?}, got {found:?}",
                        next.map(|n| n.0)
                    )));
                }
            }
        }
        self.counts.reads += 1;
        Ok(())
    }

    pub(crate) fn use_feed(&mut self) -> Check {
        if self.readers.followers.len() < 2 {
            self.readers.followers.push(Follower { next: 1, open: None });
        }
        let index = self.dice.index(self.readers.followers.len());
        let mut follower = self.readers.followers.swap_remove(index);
        let result = self.poll_feed(&mut follower);
        self.readers.followers.push(follower);
        result
    }

    fn poll_feed(&mut self, follower: &mut Follower) -> Check {
        self.note(format!("follow the changes from {}", follower.next));
        if follower.open.is_none() || self.dice.one_in(10) {
            let opened = self.db().changes(Seq(follower.next));
            follower.open = self.allow("changes", opened)?;
        }
        let Some(mut feed) = follower.open.take() else { return Ok(()) };
        for _ in 0..self.dice.between(1, 20) {
            let at = self.visible();
            match feed.next(Duration::ZERO) {
                Ok(Some(change)) => {
                    let seq = change.seq.0;
                    ensure!(
                        seq == follower.next,
                        "the feed delivers commit {seq}, expected {}",
                        follower.next
                    );
                    self.compare_change(seq, change.time_micros, change.parts)?;
                    follower.next += 1;
                }
                Ok(None) => {
                    let owed = follower.next <= self.written.min(at);
                    ensure!(
                        !owed,
                        "the feed ends before {}, commits up to {} are written",
                        follower.next,
                        self.written
                    );
                    break;
                }
                Err(error) if error.class() == Class::NotFound => {
                    self.note(format!("  {error}"));
                    match error {
                        Error::Engine(EngineError::FeedTrimmed { oldest, .. }) => {
                            ensure!(
                                oldest.0 > follower.next,
                                "trimmed to {oldest}, requested {}",
                                follower.next
                            );
                            follower.next = oldest.0;
                        }
                        Error::Engine(EngineError::Log(log)) if matches!(*log, LogError::Trimmed { .. }) => {}
                        other => return Err(Bug(format!("the feed answers {other}"))),
                    }
                    return Ok(());
                }
                // After a failed sync the cache may have lost data that was never acknowledged as durable.
                Err(error) if error.class() == Class::Corrupt && self.sync_failed && self.stopped() => {
                    return Ok(());
                }
                Err(error) => {
                    self.allow::<(), _>("feed", Err(error))?;
                    return Ok(());
                }
            }
        }
        self.counts.reads += 1;
        follower.open = Some(feed);
        Ok(())
    }

    fn compare_change(&self, seq: u64, time: i64, parts: Vec<ChangedPart<'_>>) -> Check {
        let Some(expected) = self.oracle.commit(seq) else {
            return Err(Bug(format!("the feed invents commit {seq}")));
        };
        ensure!(
            expected.time.is_none_or(|t| t == time),
            "commit {seq} has time {time}, expected {:?}",
            expected.time
        );
        let mut appends = expected.appends.iter();
        let mut writes = Vec::new();
        for part in parts {
            match part {
                ChangedPart::Events { store, append } => {
                    let Some((ask, first)) = appends.next() else {
                        return Err(Bug(format!("commit {seq} has an append too many")));
                    };
                    ensure!(*store == ask.store, "commit {seq} appends to {store}, expected {}", ask.store);
                    let events: Result<Vec<_>, _> =
                        append.events().map(|e| e.map(|(p, e)| (p.0, e.to_event()))).collect();
                    let events = events.map_err(|e| Bug(format!("commit {seq}: {e}")))?;
                    let same = events.iter().map(|(p, e)| (*p, e)).eq((*first..).zip(&ask.events));
                    ensure!(same, "the events of commit {seq} in the feed differ");
                    let tracking = ask.options.tracking.as_ref().map(|t| (t.source.as_str(), t.position));
                    ensure!(append.tracking == tracking, "tracking of commit {seq}: {:?}", append.tracking);
                }
                ChangedPart::Keys(keys) => writes.extend(keys.into_iter().map(|(keyspace, write)| {
                    let write = match write {
                        KvWrite::Put(key, value) => Write::Put(key.to_vec(), value.to_vec()),
                        KvWrite::Delete(key) => Write::Delete(key.to_vec()),
                        KvWrite::DeleteRange(start, end) => Write::DeleteRange(start.to_vec(), end.to_vec()),
                    };
                    (keyspace.id(), write)
                })),
                part @ ChangedPart::Other(..) if part.model() == Some("keyspaces") => {
                    ensure!(seq <= KEYSPACES as u64, "commit {seq} defines a keyspace");
                }
                ChangedPart::Other(model, _) => {
                    return Err(Bug(format!("commit {seq} has a part of model {}", model.0)));
                }
            }
        }
        ensure!(appends.next().is_none(), "commit {seq} lacks an append in the feed");
        ensure!(writes == expected.writes, "the writes of commit {seq} in the feed differ");
        Ok(())
    }

    /// Compares all contents, in both directions.
    pub(crate) fn compare_all(&mut self) -> Check {
        let (db, keyspaces, at) = (self.db(), self.boot().keyspaces.clone(), self.visible());
        self.compare_database(&db, &keyspaces, at)
    }

    /// A database at commit `at`: everything in it, against the oracle.
    pub(crate) fn compare_database(&mut self, db: &Database, keyspaces: &[Keyspace], at: u64) -> Check {
        let existing = db.event_stores();
        let expected = self.oracle.stores(at);
        ensure!(self.stopped() || existing == expected, "stores: expected {expected:?}, got {existing:?}");
        self.compare_snapshot(db, keyspaces, &db.engine().snapshot(), at)
    }

    /// Holds a snapshot of the present until the end of the boot, through flushes and merges.
    pub(crate) fn hold_relic(&mut self) {
        let snapshot = self.db().engine().snapshot();
        self.note(format!("hold a snapshot of {} until the end", snapshot.seq()));
        self.readers.relic = Some(Held { at: snapshot.seq().0, snapshot });
    }

    pub(crate) fn compare_relic(&mut self) -> Check {
        let Some(Held { snapshot, at }) = self.readers.relic.take() else { return Ok(()) };
        self.mark();
        let (db, keyspaces) = (self.db(), self.boot().keyspaces.clone());
        self.compare_snapshot(&db, &keyspaces, &snapshot, at)
    }

    /// Everything that a snapshot of commit `at` sees, against the oracle.
    fn compare_snapshot(
        &mut self,
        db: &Database,
        keyspaces: &[Keyspace],
        snapshot: &Snapshot,
        at: u64,
    ) -> Check {
        for name in generators::STORES {
            let store = db.events(name).map_err(|e| Bug(e.to_string()))?;
            for options in [ReadOptions::default(), ReadOptions::backwards()] {
                let read = store.read_at(snapshot.clone(), &Query::all(), options).map_err(Error::from);
                let result = read.and_then(|mut reader| drain(&mut reader, 1000));
                let Some(found) = self.allow("read all", result)? else { return Ok(()) };
                let expected = self.oracle.query(name, at, &Query::all(), &options);
                let wrong = found.iter().zip(&expected).find(|(found, (p, stored))| !same(found, *p, stored));
                ensure!(
                    wrong.is_none(),
                    "all of {name} at {at}: expected {:?}, got {:?}",
                    wrong.map(|w| w.1),
                    wrong.map(|w| w.0)
                );
                ensure!(
                    found.len() == expected.len(),
                    "{name} at {at}: expected {} events, got {}",
                    expected.len(),
                    found.len()
                );
            }
        }
        for keyspace in keyspaces {
            let inner = ropewalk_engine::Keyspace(keyspace.id());
            let forward = scan(snapshot.read().cursor(inner), false);
            let Some(found) = self.allow("scan", forward)? else { return Ok(()) };
            let same = found
                .iter()
                .map(|(k, v)| (k.as_slice(), v.as_slice()))
                .eq(self.oracle.rows(keyspace.id(), at));
            ensure!(
                same,
                "keyspace {} at {at} differs: {}",
                keyspace.id(),
                difference(&found, &self.oracle.rows(keyspace.id(), at))
            );
            let backward = scan(snapshot.read().cursor(inner), true);
            let Some(mut reversed) = self.allow("scan back", backward)? else { return Ok(()) };
            reversed.reverse();
            ensure!(found == reversed, "keyspace {} at {at} differs backwards", keyspace.id());
        }
        self.counts.reads += 1;
        Ok(())
    }

    /// Every checksum and every invariant.
    pub(crate) fn verify(&mut self) -> Check {
        if self.lies {
            // Reads lie, so its report may be true of what it read.
            return Ok(());
        }
        self.mark();
        let report = self.db().verify();
        let Some(report) = self.allow("verify", report)? else { return Ok(()) };
        ensure!(report.store.damage.is_empty(), "verify finds damage: {:?}", report.store.damage);
        ensure!(report.violations.is_empty(), "verify finds {:?}", report.violations);
        Ok(())
    }
}

/// Reads to the end in batches, or event by event.
pub(crate) fn drain(reader: &mut EventReader, batch: usize) -> Result<Vec<SequencedEvent>, Error> {
    if batch.is_multiple_of(2) {
        return Ok(reader.collect::<Result<Vec<_>, _>>()?);
    }
    let mut all = Vec::new();
    loop {
        let more = reader.next_batch(batch)?;
        let end = more.len() < batch;
        all.extend(more);
        if end {
            return Ok(all);
        }
    }
}

fn current<'a>(cursor: &'a Cursor<'_>) -> Option<(&'a [u8], &'a [u8])> {
    cursor.valid().then(|| (cursor.key(), cursor.value()))
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn scan(mut cursor: Cursor<'_>, backwards: bool) -> Result<Rows, EngineError> {
    if backwards {
        cursor.last()?
    } else {
        cursor.first()?
    }
    let mut rows = Vec::new();
    while let Some((key, value)) = current(&cursor) {
        rows.push((key.to_vec(), value.to_vec()));
        if backwards { cursor.prev()? } else { cursor.next()? }
    }
    Ok(rows)
}

fn difference(found: &Rows, expected: &[(&[u8], &[u8])]) -> String {
    let keys: Vec<_> = found.iter().map(|(k, _)| k.as_slice()).collect();
    let missing: Vec<_> = expected.iter().filter(|(k, _)| !keys.contains(k)).map(|(k, _)| k).collect();
    let extra: Vec<_> = keys.iter().filter(|k| !expected.iter().any(|(e, _)| e == *k)).collect();
    let list = |keys: Vec<&&[u8]>| keys.iter().map(|k| show(k)).collect::<Vec<_>>();
    let (missing, extra) = (list(missing), list(extra));
    format!("missing {missing:?}, too many {extra:?}, of {} and {}", expected.len(), found.len())
}
