//! Serializable and weaker transactions over keys and events, open for several steps.

use ropewalk::engine::Keyspace;
use ropewalk::events::EventsError;
use ropewalk::{AppendOptions, Error, Event, Isolation, Transaction};
use ropewalk_engine::{KvBatch, Operation};

use crate::events::generators;
use crate::events::generators::show;
use crate::events::oracle::{AppendAsk, Ask, KeysAsk, Write, matches};
use crate::events::scenario::{Answer, Bug, Check, Pending, Waiting, World, ensure};

/// A transaction and the oracle's data to judge it.
pub(crate) struct OpenTransaction {
    transaction: Transaction,
    isolation: Isolation,
    keys_read: Vec<(u16, Vec<u8>)>,
    ranges_read: Vec<(u16, Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)>,
    /// In order; the last write to a key counts.
    writes: Vec<(u16, Write)>,
    appends: Vec<AppendAsk>,
    savepoints: Vec<(usize, usize)>,
}

impl OpenTransaction {
    fn own(&self, keyspace: u16, key: &[u8]) -> Option<Option<&[u8]>> {
        self.writes.iter().rev().find_map(|(id, write)| match write {
            Write::Put(k, value) if *id == keyspace && k == key => Some(Some(value.as_slice())),
            Write::Delete(k) if *id == keyspace && k == key => Some(None),
            _ => None,
        })
    }
}

impl World {
    fn any_keyspace(&mut self) -> Keyspace {
        let keyspaces = self.boot().keyspaces.clone();
        *self.dice.pick(&keyspaces).expect("there are keyspaces")
    }

    /// Writes, range deletes among them, submitted without waiting: blind, or at a snapshot that other writes may outdate.
    pub(crate) fn submit_keys(&mut self) -> Check {
        let (mut batch, since, isolation) = if self.dice.one_in(4) {
            let snapshot = self.db().engine().snapshot();
            let since = snapshot.seq().0;
            (KvBatch::validated_at(snapshot, Isolation::Snapshot), since, Isolation::Snapshot)
        } else {
            (KvBatch::new(), 0, Isolation::ReadCommitted)
        };
        let mut writes = Vec::new();
        for _ in 0..self.dice.between(1, 8) {
            let keyspace = self.any_keyspace().id();
            let inner = ropewalk_engine::Keyspace(keyspace);
            let key = generators::key(&self.dice);
            writes.push((
                keyspace,
                match self.dice.below(8) {
                    0 | 1 => {
                        batch.delete(inner, &key);
                        Write::Delete(key)
                    }
                    2 => {
                        let (start, end) = generators::range(&self.dice);
                        batch.delete_range(inner, &start, &end);
                        Write::DeleteRange(start, end)
                    }
                    _ => {
                        let value = generators::any_value(&self.dice);
                        batch.put(inner, &key, &value);
                        Write::Put(key, value)
                    }
                },
            ));
        }
        let durability = self.durability();
        self.note(format!("submit {durability:?} {isolation:?} at {since}: {}", list(&writes)));
        let keys = KeysAsk { since, isolation, keys_read: Vec::new(), ranges_read: Vec::new(), writes };
        let ask = Ask { appends: Vec::new(), keys: Some(keys) };
        self.mark();
        let operations: Vec<Box<dyn Operation>> = vec![Box::new(batch)];
        match self.db().engine().submit(operations, durability) {
            Ok(handle) => {
                self.boot().pending.push(Pending { ask, durability, waiting: Waiting::Keys(handle) })
            }
            Err(error) => {
                self.allow::<(), _>("submit", Err(Error::from(error)))?;
            }
        }
        Ok(())
    }

    /// Begins a transaction, continues one, or ends one.
    pub(crate) fn use_transaction(&mut self) -> Check {
        let open = self.boot().transactions.len();
        if open == 0 || (open < 4 && self.dice.one_in(4)) {
            let isolation = self.dice.weighted(&[
                (6, Isolation::Serializable),
                (2, Isolation::Snapshot),
                (1, Isolation::ReadCommitted),
            ]);
            let transaction = self.db().begin_with(isolation);
            self.note(format!("begin {isolation:?} at {}", transaction.snapshot().seq()));
            self.boot().transactions.push(OpenTransaction {
                transaction,
                isolation,
                keys_read: Vec::new(),
                ranges_read: Vec::new(),
                writes: Vec::new(),
                appends: Vec::new(),
                savepoints: Vec::new(),
            });
        }
        let count = self.boot().transactions.len();
        let index = self.dice.index(count);
        let mut open = self.boot().transactions.swap_remove(index);
        for _ in 0..self.dice.between(1, 4) {
            match self.dice.below(14) {
                0..4 => self.transaction_get(&mut open)?,
                4 | 5 => self.transaction_range(&mut open)?,
                6..10 => self.transaction_write(&mut open),
                10 => self.transaction_append(&mut open)?,
                11 => {
                    open.transaction.savepoint();
                    open.savepoints.push((open.writes.len(), open.appends.len()));
                }
                12 => {
                    let expected = open.savepoints.pop();
                    ensure!(
                        open.transaction.rollback_to_savepoint() == expected.is_some(),
                        "savepoints differ"
                    );
                    if let Some((writes, appends)) = expected {
                        // A rolled back write counts as a read of its key: it may have revealed whether the
                        // key was free.
                        open.keys_read.extend(open.writes.drain(writes..).map(|(id, write)| match write {
                            Write::Put(key, _) | Write::Delete(key) | Write::DeleteRange(key, _) => (id, key),
                        }));
                        open.appends.truncate(appends);
                    }
                }
                _ if self.dice.one_in(4) => {
                    self.note("roll back");
                    open.transaction.rollback();
                    return Ok(());
                }
                _ => return self.transaction_commit(open),
            }
        }
        self.boot().transactions.push(open);
        Ok(())
    }

    fn transaction_get(&mut self, open: &mut OpenTransaction) -> Check {
        let keyspace = self.any_keyspace();
        let key = generators::key(&self.dice);
        self.mark();
        let result = open.transaction.get(keyspace, &key);
        let own = open.own(keyspace.id(), &key).is_some();
        let Some(found) = self.allow("transaction get", result)? else {
            // A read that failed returned nothing, but the transaction has noted it.
            let end = Some([key.as_slice(), &[0]].concat());
            if !own {
                open.ranges_read.push((keyspace.id(), key.clone(), end, Some(key)));
            }
            return Ok(());
        };
        let at = open.transaction.snapshot().seq().0;
        let expected = match open.own(keyspace.id(), &key) {
            Some(own) => own,
            None => self.oracle.get(keyspace.id(), &key, at),
        };
        let (wanted, got) = (expected.map(show), found.as_deref().map(show));
        ensure!(
            found.as_deref() == expected,
            "transaction at {at} reads {}: expected {wanted:?}, got {got:?}",
            show(&key)
        );
        if !own {
            open.keys_read.push((keyspace.id(), key));
        }
        Ok(())
    }

    fn transaction_range(&mut self, open: &mut OpenTransaction) -> Check {
        let keyspace = self.any_keyspace();
        let (start, end) = generators::range(&self.dice);
        let end = self.dice.one_in(5).then_some(end);
        let limit = if self.dice.one_in(2) { self.dice.between(1, 6) as usize } else { usize::MAX };
        self.mark();
        let result = open.transaction.range(keyspace, &start, end.as_deref(), limit);
        let Some(found) = self.allow("transaction range", result)? else {
            open.ranges_read.push((keyspace.id(), start.clone(), end, Some(start)));
            return Ok(());
        };
        let at = open.transaction.snapshot().seq().0;
        let id = keyspace.id();
        let mut expected: std::collections::BTreeMap<Vec<u8>, Vec<u8>> =
            self.oracle.rows(id, at).into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
        for (written, write) in &open.writes {
            match write {
                Write::Put(key, value) if *written == id => expected.insert(key.clone(), value.clone()),
                Write::Delete(key) if *written == id => expected.remove(key),
                _ => None,
            };
        }
        let inside = |key: &Vec<u8>| *key >= start && end.as_ref().is_none_or(|end| key < end);
        let expected: Vec<_> = expected.into_iter().filter(|(key, _)| inside(key)).take(limit).collect();
        ensure!(
            found == expected,
            "transaction at {at} reads {}..{:?} limit {limit}: got {:?}, expected {:?}",
            show(&start),
            end.as_deref().map(show),
            found.iter().map(|(k, _)| show(k)).collect::<Vec<_>>(),
            expected.iter().map(|(k, _)| show(k)).collect::<Vec<_>>()
        );
        let seen = (found.len() == limit)
            .then(|| found.last().map_or_else(Vec::new, |(key, _)| [key.as_slice(), &[0]].concat()));
        open.ranges_read.push((id, start, end, seen));
        Ok(())
    }

    fn transaction_write(&mut self, open: &mut OpenTransaction) {
        let keyspace = self.any_keyspace();
        let key = generators::key(&self.dice);
        if self.dice.one_in(4) {
            open.transaction.delete(keyspace, &key);
            open.writes.push((keyspace.id(), Write::Delete(key)));
        } else {
            let value = generators::value(&self.dice);
            open.transaction.put(keyspace, &key, &value);
            open.writes.push((keyspace.id(), Write::Put(key, value)));
        }
    }

    fn transaction_append(&mut self, open: &mut OpenTransaction) -> Check {
        let (name, mut options) = self.append_options();
        // One transaction must not track a source or use a key twice; the store judges each append on its own.
        if !open.appends.is_empty() {
            options = AppendOptions { conditions: options.conditions, ..AppendOptions::default() };
        }
        let store = self.db().events(&name).map_err(|e| Bug(e.to_string()))?;
        let events = self.author.events(&self.dice);
        let mut own = open.appends.iter().filter(|append| append.store == name).flat_map(|a| &a.events);
        let meets =
            |event: &Event| options.conditions.iter().any(|c| matches(&c.fail_if_events_match, event));
        let meets_own = own.any(meets);
        let result = open.transaction.append(&store, &events, options.clone());
        if meets_own {
            let refused = matches!(result, Err(Error::Events(EventsError::OwnEventMatches { .. })));
            ensure!(refused, "a condition does not see an event that its transaction appends: {result:?}");
            return Ok(());
        }
        if self.allow("append in a transaction", result)?.is_some() {
            open.appends.push(AppendAsk { store: name, events, options, looked: 0 });
        }
        Ok(())
    }

    fn transaction_commit(&mut self, open: OpenTransaction) -> Check {
        let OpenTransaction { transaction, isolation, keys_read, ranges_read, writes, mut appends, .. } =
            open;
        let since = transaction.snapshot().seq().0;
        // The transaction writes each key once, in key order.
        let last: std::collections::BTreeMap<(u16, Vec<u8>), Write> = writes
            .into_iter()
            .map(|(id, write)| match &write {
                Write::Put(key, _) | Write::Delete(key) | Write::DeleteRange(key, _) => {
                    ((id, key.clone()), write)
                }
            })
            .collect();
        let writes: Vec<(u16, Write)> = last.into_iter().map(|((id, _), write)| (id, write)).collect();
        let durability = self.durability();
        self.note(format!(
            "commit the {isolation:?} transaction of {since}: {} keys and {} ranges read, {} appends, {durability:?}: {}",
            keys_read.len(),
            ranges_read.len(),
            appends.len(),
            list(&writes)
        ));
        let visible = self.visible();
        let early = appends.iter_mut().find_map(|append| self.oracle.look_ahead(append, visible));
        let has_keys = !writes.is_empty() || (!appends.is_empty() && isolation == Isolation::Serializable);
        let keys = has_keys.then_some(KeysAsk { since, isolation, keys_read, ranges_read, writes });
        let ask = Ask { appends, keys };
        let empty = ask.appends.is_empty() && ask.keys.is_none();
        let time = self.wall();
        self.mark();
        let result = transaction.commit_with(durability);
        let answer = match result {
            Ok(None) => {
                ensure!(empty, "a transaction with writes answers that it wrote nothing");
                return Ok(());
            }
            Ok(Some(done)) => {
                let appended = done.appended.iter().map(|appended| (appended.first.0, appended.last.0));
                let outcomes = appended.chain(has_keys.then_some((0, 0))).collect();
                Answer::Committed { seq: done.seq.0, outcomes, time: Some(done.time_micros) }
            }
            Err(error) => Answer::from(error),
        };
        ensure!(
            !empty || matches!(answer, Answer::Failed(..)),
            "a transaction without writes answers {answer:?}"
        );
        self.settle_after(&ask, durability, answer, early, time)
    }
}

fn list(writes: &[(u16, Write)]) -> String {
    let shown: Vec<String> = writes.iter().map(|(keyspace, write)| format!("{keyspace} {write}")).collect();
    shown.join(", ")
}
