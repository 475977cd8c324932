//! The newest events and postings, between two checkpoints.
//!
//!   append ─▶ arena (values) + list of (offset, length) per store + postings: term ─▶ positions
//!
//! Values are read without locks, postings under a short read lock. Positions above a reader's head may
//! already be present (sequenced, not yet durable): readers ignore those above the head of their snapshot.
//!
//! Replay adds events without their postings, which cost four times as much: the first reader or writer that
//! needs the postings of a store builds the missing ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use ropewalk_base::{AppendList, Arena, ArenaOffset, DecodeError, HashedMap, Seq};
use ropewalk_engine::Memory;

use crate::event::codec::{BodyRef, VALUE_HEADER};
use crate::index::postings::{Kind, Term};

/// Memory of one posting in addition to its positions: entry of the map and of the name.
const POSTING_BYTES: u64 = 72;

/// Events and postings of every store, of one generation.
#[derive(Default)]
pub(crate) struct EventMemory {
    arena: Arena,
    stores: RwLock<HashMap<u32, Arc<StoreMemory>>>,
    /// Stores deleted in this generation, and the commits that did it.
    deleted: RwLock<Vec<(u32, Seq)>>,
    bytes: AtomicU64,
}

impl Memory for EventMemory {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Events and postings of one store, of one generation.
pub(crate) struct StoreMemory {
    store: u32,
    /// Position of the first event in it.
    pub(crate) first: u64,
    /// Arena offset and length of each event, alternating.
    entries: AppendList,
    /// Commit number and the last position it wrote, alternating.
    commits: AppendList,
    /// Events without postings follow those that have some.
    is_behind: AtomicBool,
    postings: RwLock<Postings>,
}

#[derive(Default)]
struct Postings {
    /// Events that have postings, the first in the list.
    events: u64,
    by_term: HashedMap<u64, Posting>,
    /// Terms whose hash is used by an earlier, different term of the same store.
    collided: HashMap<(Kind, Box<[u8]>), Positions>,
}

struct Posting {
    kind: Kind,
    name: ArenaOffset,
    name_len: u32,
    positions: Positions,
}

/// Positions relative to the store memory's first. Most tags of most systems occur once per generation.
enum Positions {
    One(u32),
    Many(Vec<u32>),
}

impl Positions {
    fn push(&mut self, at: u32) {
        debug_assert!(self.as_slice().last() <= Some(&at), "the positions of a term rise");
        match self {
            Self::One(first) if *first == at => {}
            Self::One(first) => *self = Self::Many(vec![*first, at]),
            Self::Many(all) if all.last() == Some(&at) => {}
            Self::Many(all) => all.push(at),
        }
    }

    fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(all) => all,
        }
    }
}

impl EventMemory {
    pub(crate) fn store(&self, store: u32) -> Option<Arc<StoreMemory>> {
        self.stores.read().get(&store).cloned()
    }

    /// Every store that was written to, in the order of their numbers.
    pub(crate) fn all_stores(&self) -> Vec<(u32, Arc<StoreMemory>)> {
        let mut all: Vec<_> = self.stores.read().iter().map(|(id, memory)| (*id, memory.clone())).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// Notes that a store was deleted. Called by the sequencer only.
    pub(crate) fn delete(&self, store: u32, seq: Seq) {
        self.deleted.write().push((store, seq));
        self.bytes.fetch_add(64, Ordering::Relaxed);
    }

    /// Stores deleted in this generation, in the order of their numbers.
    pub(crate) fn deleted(&self) -> Vec<(u32, Seq)> {
        let mut deleted = self.deleted.read().clone();
        deleted.sort_unstable();
        deleted
    }

    /// Adds the events of one commit. Called by the sequencer, or by recovery, which defers their postings.
    pub(crate) fn append<'a>(
        &self,
        store: u32,
        first: u64,
        (seq, time_micros): (Seq, i64),
        is_replay: bool,
        bodies: impl Iterator<Item = Result<&'a [u8], DecodeError>>,
    ) -> Result<u64, DecodeError> {
        let memory = match self.store(store) {
            Some(memory) => memory,
            None => {
                let memory = Arc::new(StoreMemory {
                    store,
                    first,
                    entries: AppendList::default(),
                    commits: AppendList::default(),
                    is_behind: AtomicBool::new(false),
                    postings: RwLock::default(),
                });
                self.stores.write().insert(store, memory.clone());
                memory
            }
        };
        let mut header = [0; VALUE_HEADER];
        let (seq_bytes, time_bytes) = header.split_at_mut(8);
        seq_bytes.copy_from_slice(&seq.0.to_le_bytes());
        time_bytes.copy_from_slice(&time_micros.to_le_bytes());
        let mut bytes = 0;
        let mut position = first;
        if is_replay {
            memory.is_behind.store(true, Ordering::Release);
        } else {
            self.catch_up(&memory);
        }
        let mut postings = memory.postings.write();
        for body in bodies {
            let body = body?;
            let decoded = BodyRef::decode(body)?;
            let offset = self.arena.push_parts(&[&header, body]);
            if !is_replay {
                bytes += postings.add_event(&self.arena, store, (offset, body), &decoded);
            }
            memory.entries.push(offset.to_bits());
            memory.entries.push((VALUE_HEADER + body.len()) as u64);
            bytes += (VALUE_HEADER + body.len() + 16) as u64;
            position += 1;
        }
        let events = memory.entries.len() as u64 / 2;
        // Replay defers postings, and checks no positions: they come from the log.
        debug_assert!(is_replay || postings.events == events, "every event has its postings");
        debug_assert!(is_replay || memory.first + events == position, "positions have no gaps");
        drop(postings);
        if position > first {
            let last = memory.commits.len().checked_sub(2).and_then(|at| memory.commits.get(at));
            debug_assert!(last.is_none_or(|last| last <= seq.0), "commits are noted in their order");
            memory.commits.push(seq.0);
            memory.commits.push(position - 1);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(position - first)
    }

    /// Builds the postings that replay deferred.
    #[inline]
    fn catch_up(&self, memory: &StoreMemory) {
        if memory.is_behind.load(Ordering::Acquire) {
            self.add_missing_postings(memory);
        }
    }

    #[cold]
    fn add_missing_postings(&self, memory: &StoreMemory) {
        let mut postings = memory.postings.write();
        let mut bytes = 0;
        while let Some(value) = self.value(memory, memory.first + postings.events) {
            let (offset, body) =
                (memory.entries.get(2 * postings.events as usize), value.get(VALUE_HEADER..));
            let (offset, body) = offset.zip(body).expect("an event in the list has a place and a header");
            let decoded = BodyRef::decode(body).expect("replay has decoded it");
            let place = (ArenaOffset::from_bits(offset), body);
            bytes += postings.add_event(&self.arena, memory.store, place, &decoded);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        memory.is_behind.store(false, Ordering::Release);
    }

    /// The value of the event at `position`, if it is in this generation.
    #[inline]
    pub(crate) fn value<'a>(&'a self, memory: &StoreMemory, position: u64) -> Option<&'a [u8]> {
        let index = 2 * position.checked_sub(memory.first)? as usize;
        let len = memory.entries.get(index + 1)?;
        let offset = memory.entries.get(index)?;
        self.arena.get(ArenaOffset::from_bits(offset), len as usize)
    }

    /// Calls `each` for every term of `memory` with its ascending positions, in the order of the terms'
    /// hashes.
    pub(crate) fn each_posting<E>(
        &self,
        store: u32,
        memory: &StoreMemory,
        mut each: impl FnMut(&Term<'_>, &mut dyn Iterator<Item = u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.catch_up(memory);
        let postings = memory.postings.read();
        let named = postings.by_term.values().map(|p| {
            let name = self.arena.get(p.name, p.name_len as usize).expect("the name lies in a pushed event");
            (p.kind, name, &p.positions)
        });
        let collided = postings.collided.iter().map(|((kind, name), positions)| (*kind, &**name, positions));
        let mut all: Vec<_> =
            named.chain(collided).map(|(kind, name, p)| (Term::new(store, kind, name), p)).collect();
        all.sort_unstable_by_key(|(term, positions)| (term.hash, positions.as_slice().first().copied()));
        for (term, positions) in all {
            let mut absolute = positions.as_slice().iter().map(|at| memory.first + u64::from(*at));
            each(&term, &mut absolute)?;
        }
        Ok(())
    }

    /// Runs `look` on the positions of a term (relative to `memory.first`, ascending) under the read lock.
    pub(crate) fn positions<R>(
        &self,
        memory: &StoreMemory,
        term: &Term<'_>,
        look: impl FnOnce(&[u32]) -> R,
    ) -> R {
        self.catch_up(memory);
        let postings = memory.postings.read();
        match postings.find(&self.arena, term) {
            Some(positions) => look(positions.as_slice()),
            None => look(&[]),
        }
    }
}

impl StoreMemory {
    /// Last position that a commit up to `seq` wrote here, if any did.
    pub(crate) fn head_at(&self, seq: Seq) -> Option<u64> {
        if seq == Seq::MAX {
            return self.last();
        }
        // Pairs: binary search over the even entries.
        let pairs = self.commits.len() / 2;
        if pairs > 0 && self.commits.get(2 * (pairs - 1)).is_some_and(|s| s <= seq.0) {
            return self.commits.get(2 * pairs - 1);
        }
        let (mut low, mut high) = (0, pairs);
        while low < high {
            let mid = low + (high - low) / 2;
            if self.commits.get(2 * mid).is_some_and(|s| s <= seq.0) { low = mid + 1 } else { high = mid }
        }
        self.commits.get(2 * low.checked_sub(1)? + 1)
    }

    /// Last position in it, pending commits included.
    pub(crate) fn last(&self) -> Option<u64> {
        let events = self.entries.len() / 2;
        (events > 0).then(|| self.first + events as u64 - 1)
    }
}

impl Postings {
    /// Adds the next event, whose value was copied to `offset`; returns the bytes used.
    fn add_event(
        &mut self,
        arena: &Arena,
        store: u32,
        (offset, body): (ArenaOffset, &[u8]),
        decoded: &BodyRef<'_>,
    ) -> u64 {
        let at = self.events as u32;
        self.events += 1;
        // A name lies inside the body, and in the copied value at the same distance from the body's start.
        let place =
            |name: &str| offset.plus(VALUE_HEADER + (name.as_ptr() as usize - body.as_ptr() as usize));
        let mut add = |kind, name: &str| self.add(arena, store, (kind, name), place(name), at);
        let of_type = add(Kind::Type, decoded.event_type());
        decoded.tags().fold(of_type, |bytes, tag| bytes + add(Kind::Tag, tag))
    }

    /// Adds a position; returns the bytes used.
    fn add(
        &mut self,
        arena: &Arena,
        store: u32,
        (kind, name): (Kind, &str),
        place: ArenaOffset,
        at: u32,
    ) -> u64 {
        let term = Term::new(store, kind, name.as_bytes());
        let mut grown = 4;
        let posting = self.by_term.entry(term.hash).or_insert_with(|| {
            grown += POSTING_BYTES;
            Posting { kind, name: place, name_len: name.len() as u32, positions: Positions::One(at) }
        });
        if posting.is(arena, &term) {
            posting.positions.push(at);
        } else {
            grown += POSTING_BYTES + name.len() as u64;
            let key = (kind, Box::from(name.as_bytes()));
            self.collided.entry(key).or_insert(Positions::One(at)).push(at);
        }
        grown
    }

    fn find(&self, arena: &Arena, term: &Term<'_>) -> Option<&Positions> {
        let posting = self.by_term.get(&term.hash)?;
        if posting.is(arena, term) {
            return Some(&posting.positions);
        }
        self.collided.get(&(term.kind, Box::from(term.name)))
    }
}

impl Posting {
    fn is(&self, arena: &Arena, term: &Term<'_>) -> bool {
        self.kind == term.kind && arena.get(self.name, self.name_len as usize) == Some(term.name)
    }
}
