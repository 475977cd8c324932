//! Which hash of contents most nodes have: decided by the leader from the reports of the others.
//!
//! ```text
//! followers ── reports ─▶ leader: its own hash and theirs ─▶ more than half of the nodes agree ─▶ statement in the log
//!                                                              every node compares ─▶ one that differs stops for good
//! ```
//! Rules
//! 1. The leader states the hash that more than half of the nodes have which have reported lately, itself included: at least
//!    two nodes.
//! 2. Without such a hash it states none. Of two nodes that differ, either may be the wrong one: both continue,
//!    [`HashStatus::differing`] shows it, and a third node decides, or an operator.
//! 3. If no report compares with its own hashes for [`Settings::hash_time`], it names a new origin, from which on they do.
//! 4. Every node compares its own hash with the statement, also the leader. A leader that differs has stated the hash of the
//!    others; it ends, and another node leads.
//!
//! Two kinds of hashes: of the effects of all commits, at commits that the nodes have in common; and of slices of the
//! contents, which the leader requests one after another in a pass over all contents.

pub(crate) mod report;

use std::collections::BTreeMap;

use ropewalk::Seq;
use ropewalk_base::ContentHash;
use ropewalk_engine::{Engine, HashCounts, HashMarks};
use ropewalk_log::shared::{EntryIndex, HashBody};

use crate::hashes::report::HashReport;
use crate::settings::{Settings, after};

/// A pass over all contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pass {
    /// Bytes that were equal so far.
    pub bytes: u64,
    /// Slices that were equal so far.
    pub slices: u64,
    /// The commit as of which the last slice was hashed.
    pub seq: Seq,
}

/// Comparisons of contents, for operators.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HashStatus {
    /// The newest commit up to which the effects of this node were compared, and equal.
    pub equal: Seq,
    /// Cost of hashing effects.
    pub counts: HashCounts,
    /// On the leader: nodes whose last report differs from its own hashes.
    pub differing: Vec<[u8; 16]>,
    /// On the leader: the pass that is under way.
    pub pass: Option<Pass>,
    /// The last pass that ended while this node led, and when, in monotonic nanoseconds.
    pub last_pass: Option<(Pass, u64)>,
    /// Passes that ended so, or early.
    pub passes: u64,
    /// Why the last slice could not be hashed.
    pub failed: Option<String>,
}

/// The part of the leader.
#[derive(Default)]
pub(crate) struct Audit {
    /// The last report of each node, and when it came.
    reports: BTreeMap<[u8; 16], (HashReport, u64)>,
    /// Since when reports of other origins wait for a new one.
    elsewhere_since: Option<u64>,
    /// A pass that is under way, and the start of its next slice.
    pass: Option<(Pass, Vec<u8>)>,
    /// The request whose answers are awaited, and since when.
    request: Option<(EntryIndex, u64)>,
    last_pass: Option<(Pass, u64)>,
    passes: u64,
    /// When the next pass begins without being requested.
    pass_due: Option<u64>,
    is_requested: bool,
    failed: Option<String>,
}

impl Audit {
    /// Notes the report of a node.
    pub(crate) fn take(&mut self, node: [u8; 16], report: HashReport, now: u64) {
        self.reports.insert(node, (report, now));
    }

    /// A pass is to begin, unless one is under way.
    pub(crate) fn request(&mut self) {
        self.is_requested = true;
    }

    /// This node does not lead: what it knows of the others grows old.
    pub(crate) fn clear(&mut self) {
        let Self { last_pass, passes, .. } = *self;
        *self = Self { last_pass, passes, ..Self::default() };
    }

    /// The next statement, if one is due. `random` names new origins.
    pub(crate) fn due(
        &mut self,
        engine: &Engine,
        now: u64,
        settings: &Settings,
        random: impl FnOnce() -> u64,
    ) -> Option<HashBody> {
        let is_late = |at: u64| now >= after(at, settings.report_time());
        self.reports.retain(|_, (_, at)| !is_late(*at));
        let own = engine.hash_marks();
        let effects = self.effects(&own, now, settings, random);
        effects.or_else(|| self.slice(engine, now, settings))
    }

    /// The statement about effects.
    fn effects(
        &mut self,
        own: &HashMarks,
        now: u64,
        settings: &Settings,
        random: impl FnOnce() -> u64,
    ) -> Option<HashBody> {
        let (seq, hash) = own.marks.last().copied()?;
        if own.origin == 0 {
            // Nodes have nothing to compare yet: this is where their sums begin to agree.
            return Some(HashBody::Effects { origin: random().max(1), seq, hash });
        }
        let reports: Vec<&HashReport> = self.reports.values().map(|(report, _)| report).collect();
        let nodes = reports.iter().filter(|report| report.marks.origin == own.origin).count() + 1;
        if nodes == 1 {
            let is_common =
                |seq: &Seq| reports.iter().any(|report| report.marks.marks.iter().any(|(at, _)| at == seq));
            let Some((seq, hash)) = own.marks.iter().rev().find(|(seq, _)| is_common(seq)) else {
                self.elsewhere_since = None;
                return None;
            };
            // The sums of all others began elsewhere: each was restarted before a checkpoint had the origin.
            let is_over = now >= after(*self.elsewhere_since.get_or_insert(now), settings.hash_time);
            return is_over.then(|| HashBody::Effects { origin: random().max(1), seq: *seq, hash: *hash });
        }
        self.elsewhere_since = None;
        let others =
            |seq| -> Vec<ContentHash> { reports.iter().filter_map(|r| r.effects(own.origin, seq)).collect() };
        own.marks.iter().rev().find_map(|(seq, hash)| {
            let hash = decide(*hash, &others(*seq), nodes)?;
            Some(HashBody::Effects { origin: own.origin, seq: *seq, hash })
        })
    }

    /// The next request of a pass, or the statement about the last one.
    fn slice(&mut self, engine: &Engine, now: u64, settings: &Settings) -> Option<HashBody> {
        let found = engine.comparisons();
        if self.pass_due.is_none() {
            // The leader before may have left a pass.
            let left = found.slice.as_ref().and_then(|(_, slice)| slice.next.clone());
            self.pass = left.map(|next| (Pass::default(), next));
            self.pass_due = Some(after(now, settings.pass_interval));
        }
        if self.pass.is_none() {
            if !self.is_requested && self.pass_due.is_some_and(|due| now < due) {
                return None;
            }
            self.pass = Some((Pass::default(), Vec::new()));
            self.is_requested = false;
            self.failed = None;
        }
        let (_, start) = self.pass.as_ref()?;
        let Some((request, since)) = self.request else {
            return Some(HashBody::Slice { start: start.clone(), bytes: settings.slice_bytes });
        };
        let own = found.slice.filter(|(of, _)| *of == request);
        let Some((_, own)) = own else {
            self.fail(found.failed.unwrap_or_else(|| "the slice was not hashed".to_owned()), now, settings);
            return None;
        };
        let reports = self.reports.values().map(|(report, _)| report);
        let others: Vec<ContentHash> =
            reports.filter_map(|r| r.slice.filter(|(of, _)| *of == request)).map(|(_, hash)| hash).collect();
        let nodes = self.reports.len() + 1;
        let Some(stated) = decide(own.hash, &others, nodes) else {
            if now >= after(since, settings.hash_time) {
                let cause = match others.iter().filter(|hash| **hash != own.hash).count() {
                    0 if others.is_empty() => "no other node has reported a hash of the slice".to_owned(),
                    0 => format!(
                        "only {} of {nodes} nodes have reported a hash of the slice",
                        others.len() + 1
                    ),
                    _ => format!("no more than half of {nodes} nodes have the same contents of the slice"),
                };
                self.fail(cause, now, settings);
            }
            return None;
        };
        let parts = if stated == own.hash { own.parts } else { Vec::new() };
        Some(HashBody::SliceHash { request, seq: own.seq, hash: stated, parts })
    }

    /// The statement is in the log, as entry `index`, and this node does not differ.
    pub(crate) fn stated(
        &mut self,
        body: &HashBody,
        index: EntryIndex,
        engine: &Engine,
        now: u64,
        settings: &Settings,
    ) {
        match body {
            HashBody::Effects { .. } => self.elsewhere_since = None,
            HashBody::Slice { .. } => self.request = Some((index, now)),
            HashBody::SliceHash { request, .. } => {
                self.request = None;
                let own = engine.comparisons().slice.filter(|(of, _)| of == request);
                let (Some((pass, start)), Some((_, own))) = (&mut self.pass, own) else { return };
                pass.slices += 1;
                pass.bytes += own.bytes;
                pass.seq = own.seq;
                match own.next {
                    Some(next) => *start = next,
                    None => {
                        self.last_pass = Some((*pass, now));
                        self.passes += 1;
                        self.pass = None;
                        self.pass_due = Some(after(now, settings.pass_interval));
                    }
                }
            }
        }
    }

    /// The pass cannot continue.
    pub(crate) fn fail(&mut self, cause: String, now: u64, settings: &Settings) {
        (self.pass, self.request, self.failed) = (None, None, Some(cause));
        self.passes += 1;
        self.pass_due = Some(after(now, settings.pass_interval));
    }

    pub(crate) fn status(&self, engine: &Engine) -> HashStatus {
        let (own, found) = (HashReport::of(engine), engine.comparisons());
        let differs = |(_, (report, _)): &(&[u8; 16], &(HashReport, u64))| report.differs(&own);
        HashStatus {
            equal: found.equal,
            counts: engine.hash_counts(),
            differing: self.reports.iter().filter(differs).map(|(node, _)| *node).collect(),
            pass: self.pass.as_ref().map(|(pass, _)| *pass),
            last_pass: self.last_pass,
            passes: self.passes,
            failed: self.failed.clone().or(found.failed),
        }
    }
}

/// The hash that more than half of `nodes` nodes have, of a leader with hash `own` and the reports `others`; at least one other
/// node has it, or `None`.
fn decide(own: ContentHash, others: &[ContentHash], nodes: usize) -> Option<ContentHash> {
    let mut counts: BTreeMap<u128, usize> = BTreeMap::from([(own.0, 1)]);
    others.iter().for_each(|hash| *counts.entry(hash.0).or_default() += 1);
    let (most, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (!others.is_empty() && count * 2 > nodes).then_some(ContentHash(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_half_of_the_nodes_decide_and_without_them_none() {
        let (a, b, c) = (ContentHash(1), ContentHash(2), ContentHash(3));
        for (others, nodes, stated) in [
            // Three nodes: all agree; one follower differs; the leader differs; all differ.
            (vec![a, a], 3, Some(a)),
            (vec![a, b], 3, Some(a)),
            (vec![b, b], 3, Some(b)),
            (vec![b, c], 3, None),
            // Only one of two followers has reported this hash.
            (vec![a], 3, Some(a)),
            (vec![b], 3, None),
            // Two nodes; five nodes.
            (vec![a], 2, Some(a)),
            (vec![b], 2, None),
            (vec![b, b, a], 5, None),
            (vec![b, b, b, c], 5, Some(b)),
            // A node does not decide alone.
            (vec![], 1, None),
        ] {
            assert_eq!(decide(a, &others, nodes), stated, "{others:?} of {nodes}");
        }
    }
}
