//! The order of the versions of each key, and the edges that follow from it.
//!
//! ```text
//! ww   the writer of a version ─▶ the writer of a later one
//! wr   the writer of a version ─▶ its reader
//! rw   the reader of a version ─▶ the writer of a later one
//! time the transaction that ended ─▶ the one that began afterwards
//! ```
//! Edges that follow from others are left out where the order is complete: to the next version instead of to
//! all later ones.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Base, Facts, Uses, Writes};
use super::graph::{Edge, EdgeKind, Graph};
use super::history::{Outcome, Seen, Version};
use super::{Anomaly, Kind};

/// Adds the edges of one key. Reports reads that contradict each other, and lost updates.
pub(super) fn add_edges<'h>(
    facts: &Facts<'h>,
    key: &'h str,
    uses: &Uses,
    graph: &mut Graph<'h>,
    anomalies: &mut Vec<Anomaly>,
) {
    let mut edges = Edges { facts, key, graph };
    edges.add_registers(uses, anomalies);
    edges.add_lists(uses, anomalies);
    edges.add_sets(uses);
}

/// Adds an edge from each transaction to those that began after its end, as far as no others imply it.
pub(super) fn add_time(facts: &Facts<'_>, graph: &mut Graph<'_>) {
    let mut moments: Vec<(u64, bool, usize, u64)> = Vec::new();
    for number in &facts.committed {
        let Some(executed) = facts.history.get(*number) else { continue };
        moments.push((executed.begin, false, *number, executed.begin));
        // A commit without a response may have happened at any later time.
        if executed.outcome == Outcome::Committed {
            moments.push((executed.end, true, *number, executed.begin));
        }
    }
    moments.sort_unstable();
    // Ended transactions that no later ended one follows: their edges imply all others.
    let mut last: Vec<(u64, usize)> = Vec::new();
    for (time, is_end, number, begin) in moments {
        if is_end {
            last.retain(|(end, _)| *end >= begin);
            last.push((time, number));
        } else {
            for (_, before) in &last {
                graph.add(Edge { from: *before, to: number, kind: EdgeKind::Time, key: "", version: 0 });
            }
        }
    }
}

/// Where the edges of one key go.
struct Edges<'g, 'h> {
    facts: &'g Facts<'h>,
    key: &'h str,
    graph: &'g mut Graph<'h>,
}

impl Edges<'_, '_> {
    fn add(&mut self, kind: EdgeKind, from: usize, to: usize, version: Version) {
        self.graph.add(Edge { from, to, kind, key: self.key, version });
    }

    fn writer(&self, version: Version) -> Option<usize> {
        self.facts.writer(self.key, version)
    }

    /// Registers: a version follows the one that its writer had read.
    fn add_registers(&mut self, uses: &Uses, anomalies: &mut Vec<Anomaly>) {
        let mut after: BTreeMap<Base, Vec<&Writes>> = BTreeMap::new();
        for writes in &uses.writes {
            after.entry(writes.base).or_default().push(writes);
        }
        let next = |base: Base| after.get(&base).map_or(&[][..], Vec::as_slice);
        for (number, seen) in &uses.reads {
            let Seen::Newest(newest) = seen else { continue };
            if let Some((version, writer)) = newest.and_then(|version| Some((version, self.writer(version)?)))
            {
                self.add(EdgeKind::Wr, writer, *number, version);
            }
            let rivals = next(Base::Read(*newest));
            // A blind write comes after the state in which there was no version.
            let blind = if newest.is_none() { next(Base::Blind) } else { &[] };
            // Those that replaced the same version as the reader are reported below, as a lost update.
            let is_rival = rivals.iter().any(|writes| writes.number == *number);
            let later = rivals.iter().filter(|_| !is_rival).chain(blind);
            for (writer, version) in
                later.filter_map(|writes| Some((writes.number, *writes.versions.first()?)))
            {
                self.add(EdgeKind::Rw, *number, writer, version);
            }
        }
        for (base, writes) in &after {
            let Base::Read(newest) = base else { continue };
            let before = newest.and_then(|version| self.writer(version));
            for Writes { number, versions, .. } in writes {
                if let (Some(before), Some(version)) = (before, versions.first()) {
                    self.add(EdgeKind::Ww, before, *number, *version);
                }
            }
            if writes.len() > 1 {
                let seen = Seen::Newest(*newest);
                let text = format!("{} transactions replaced {} = {seen}", writes.len(), self.key);
                let numbers = writes.iter().map(|writes| writes.number);
                anomalies.push(self.facts.anomaly(Kind::LostUpdate, text, numbers));
            }
        }
    }

    /// Lists: the longest read shows the order, and the versions that it lacks follow.
    fn add_lists(&mut self, uses: &Uses, anomalies: &mut Vec<Anomaly>) {
        let lists = || {
            uses.reads.iter().filter_map(|(number, seen)| match seen {
                Seen::List(list) => Some((*number, list)),
                Seen::Newest(_) | Seen::Set(_) => None,
            })
        };
        let Some((reader, order)) = lists().max_by_key(|(_, list)| list.len()) else { return };
        let known: BTreeSet<Version> = order.iter().copied().collect();
        if known.len() < order.len() {
            let text = format!("{} = {order:?} has a version twice", self.key);
            anomalies.push(self.facts.anomaly(Kind::IncompatibleOrder, text, [reader]));
            return;
        }
        let places: Vec<(Version, usize)> =
            order.iter().filter_map(|version| Some((*version, self.writer(*version)?))).collect();
        for ((_, before), (version, after)) in places.iter().zip(places.iter().skip(1)) {
            self.add(EdgeKind::Ww, *before, *after, *version);
        }
        let unread: Vec<(Version, usize)> = uses
            .writes
            .iter()
            .filter_map(|writes| Some((*writes.versions.first()?, writes.number)))
            .filter(|(version, _)| !known.contains(version))
            .collect();
        if let Some((_, before)) = places.last() {
            for (version, after) in &unread {
                self.add(EdgeKind::Ww, *before, *after, *version);
            }
        }
        for (number, list) in lists() {
            if !order.starts_with(list) {
                let text = format!("{} was read as {list:?} and as {order:?}", self.key);
                anomalies.push(self.facts.anomaly(Kind::IncompatibleOrder, text, [number, reader]));
                continue;
            }
            if let Some((version, writer)) = list.last().and_then(|last| Some((*last, self.writer(*last)?))) {
                self.add(EdgeKind::Wr, writer, number, version);
            }
            let mut missed = places.iter().filter(|(version, _)| !list.contains(version));
            let next = missed.find(|(_, writer)| *writer != number);
            for (version, writer) in next.map_or(unread.as_slice(), std::slice::from_ref) {
                self.add(EdgeKind::Rw, number, *writer, *version);
            }
        }
    }

    /// Sets: a reader follows the writers of what it saw, and precedes all others.
    fn add_sets(&mut self, uses: &Uses) {
        for (number, seen) in &uses.reads {
            let Seen::Set(set) = seen else { continue };
            for Writes { number: writer, versions, .. } in &uses.writes {
                let Some(version) = versions.first() else { continue };
                match set.contains(version) {
                    true => self.add(EdgeKind::Wr, *writer, *number, *version),
                    false => self.add(EdgeKind::Rw, *number, *writer, *version),
                }
            }
        }
    }
}
