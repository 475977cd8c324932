//! The graph of dependencies between transactions, and its cycles from the worst kind to the least.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::history::{Executed, Version, line};
use super::{Anomaly, Kind, Level};

/// Transactions of a component that a search for its shortest cycle starts from.
const STARTS_MAX: usize = 200;

/// Kind of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EdgeKind {
    Ww,
    Wr,
    Rw,
    Time,
}

const WRITES: &[EdgeKind] = &[EdgeKind::Ww];
const FLOWS: &[EdgeKind] = &[EdgeKind::Ww, EdgeKind::Wr];
const DATA: &[EdgeKind] = &[EdgeKind::Ww, EdgeKind::Wr, EdgeKind::Rw];
const ALL: &[EdgeKind] = &[EdgeKind::Ww, EdgeKind::Wr, EdgeKind::Rw, EdgeKind::Time];

/// The searches for cycles, the worst kind first: the weakest level that forbids it, and its edges.
const SEARCHES: [(Level, Kind, &[EdgeKind]); 5] = [
    (Level::Snapshot, Kind::DirtyWrite, WRITES),
    (Level::Snapshot, Kind::CircularInformation, FLOWS),
    (Level::Snapshot, Kind::ReadSkew, DATA),
    (Level::Serializable, Kind::WriteSkew, DATA),
    (Level::StrictSerializable, Kind::StaleRead, ALL),
];

/// A dependency: `from` precedes `to`, because of a version of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge<'h> {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: EdgeKind,
    pub(super) key: &'h str,
    pub(super) version: Version,
}

impl Edge<'_> {
    /// The reason, as a sentence.
    fn reason(&self) -> String {
        let Self { from, to, kind, key, version } = self;
        match kind {
            EdgeKind::Ww => format!("T{from} wrote {key} before T{to} wrote version {version} of it"),
            EdgeKind::Wr => format!("T{from} wrote version {version} of {key}, which T{to} read"),
            EdgeKind::Rw => format!("T{from} read {key} without version {version}, which T{to} wrote"),
            EdgeKind::Time => format!("T{from} had ended when T{to} began"),
        }
    }
}

/// The dependencies of a history.
#[derive(Default)]
pub(super) struct Graph<'h> {
    /// By the preceding transaction. Of several edges of one kind between two transactions the first counts.
    edges: BTreeMap<usize, BTreeMap<(usize, EdgeKind), Edge<'h>>>,
}

type Cycle<'h> = Vec<Edge<'h>>;

impl<'h> Graph<'h> {
    pub(super) fn add(&mut self, edge: Edge<'h>) {
        if edge.from != edge.to {
            self.edges.entry(edge.from).or_default().entry((edge.to, edge.kind)).or_insert(edge);
        }
    }

    fn out(&self, node: usize, allowed: &[EdgeKind]) -> impl Iterator<Item = Edge<'h>> {
        let edges = self.edges.get(&node).into_iter().flat_map(BTreeMap::values).copied();
        edges.filter(move |edge| allowed.contains(&edge.kind))
    }

    /// One cycle of each group of transactions that depend on each other: the worst that the level forbids.
    pub(super) fn anomalies(&self, history: &[Executed], level: Level) -> Vec<Anomaly> {
        let mut anomalies = Vec::new();
        let mut reported: BTreeSet<usize> = BTreeSet::new();
        for (_, kind, allowed) in SEARCHES.iter().filter(|(forbidden, ..)| level >= *forbidden) {
            for nodes in self.components(allowed) {
                if !reported.is_disjoint(&nodes) {
                    continue;
                }
                let found = match kind {
                    Kind::ReadSkew => self.cycle_with_one_rw(&nodes),
                    kind => self.shortest_cycle(&nodes, allowed).map(|cycle| (*kind, cycle)),
                };
                if let Some((kind, cycle)) = found {
                    anomalies.push(report(history, kind, &cycle));
                    reported.extend(nodes);
                }
            }
        }
        anomalies
    }

    /// The groups of several transactions that reach each other (Kosaraju and Sharir, 1981).
    fn components(&self, allowed: &[EdgeKind]) -> Vec<BTreeSet<usize>> {
        let (mut order, mut visited) = (Vec::new(), BTreeSet::new());
        let mut back: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for start in self.edges.keys() {
            let mut stack = vec![(*start, false)];
            while let Some((node, is_left)) = stack.pop() {
                if is_left {
                    order.push(node);
                } else if visited.insert(node) {
                    stack.push((node, true));
                    for edge in self.out(node, allowed) {
                        back.entry(edge.to).or_default().push(node);
                        stack.push((edge.to, false));
                    }
                }
            }
        }
        let (mut components, mut assigned) = (Vec::new(), BTreeSet::new());
        for start in order.into_iter().rev() {
            let (mut component, mut open) = (BTreeSet::new(), vec![start]);
            while let Some(node) = open.pop() {
                if assigned.insert(node) {
                    component.insert(node);
                    open.extend(back.get(&node).into_iter().flatten());
                }
            }
            if component.len() > 1 {
                components.push(component);
            }
        }
        components
    }

    fn shortest_cycle(&self, nodes: &BTreeSet<usize>, allowed: &[EdgeKind]) -> Option<Cycle<'h>> {
        let starts = nodes.iter().take(STARTS_MAX);
        starts.filter_map(|node| self.path(*node, *node, allowed, nodes)).min_by_key(Vec::len)
    }

    /// A cycle with exactly one rw edge: read skew, or a lost update if it is about one key alone.
    fn cycle_with_one_rw(&self, nodes: &BTreeSet<usize>) -> Option<(Kind, Cycle<'h>)> {
        let mut into: BTreeMap<usize, Vec<Edge<'h>>> = BTreeMap::new();
        for edge in nodes.iter().flat_map(|node| self.out(*node, &[EdgeKind::Rw])) {
            if nodes.contains(&edge.to) {
                into.entry(edge.to).or_default().push(edge);
            }
        }
        for (node, edges) in into {
            let reached = self.reached(node, nodes);
            let Some(rw) = edges.into_iter().find(|edge| reached.contains(&edge.from)) else { continue };
            let mut cycle = vec![rw];
            cycle.extend(self.path(node, rw.from, FLOWS, nodes)?);
            let mut others = cycle.iter().skip(1);
            let is_lost = others.all(|edge| edge.kind == EdgeKind::Ww && edge.key == rw.key);
            return Some((if is_lost { Kind::LostUpdate } else { Kind::ReadSkew }, cycle));
        }
        None
    }

    /// The transactions that ww and wr edges reach.
    fn reached(&self, from: usize, within: &BTreeSet<usize>) -> BTreeSet<usize> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            let next = self.out(node, FLOWS).map(|edge| edge.to).filter(|to| within.contains(to));
            open.extend(next.filter(|to| reached.insert(*to)));
        }
        reached
    }

    /// A shortest path of at least one edge.
    fn path(
        &self,
        from: usize,
        to: usize,
        allowed: &[EdgeKind],
        within: &BTreeSet<usize>,
    ) -> Option<Cycle<'h>> {
        let mut arrived: BTreeMap<usize, Edge<'h>> = BTreeMap::new();
        let mut open = VecDeque::from([from]);
        while let Some(node) = open.pop_front() {
            for edge in self.out(node, allowed).filter(|edge| within.contains(&edge.to)) {
                if arrived.contains_key(&edge.to) {
                    continue;
                }
                arrived.insert(edge.to, edge);
                open.push_back(edge.to);
            }
            if arrived.contains_key(&to) {
                break;
            }
        }
        let mut path = Vec::new();
        let mut node = to;
        loop {
            let edge = arrived.get(&node)?;
            path.push(*edge);
            node = edge.from;
            if node == from {
                path.reverse();
                return Some(path);
            }
        }
    }
}

/// The cycle as text.
fn report(history: &[Executed], kind: Kind, cycle: &[Edge<'_>]) -> Anomaly {
    let mut text = format!("{} transactions must each precede the next, and the last the first", cycle.len());
    for edge in cycle {
        text.push_str(&format!("\n  T{} before T{}: {}", edge.from, edge.to, edge.reason()));
    }
    for edge in cycle {
        text.push_str("\n  ");
        text.push_str(&line(history, edge.from));
    }
    Anomaly { kind, text }
}
