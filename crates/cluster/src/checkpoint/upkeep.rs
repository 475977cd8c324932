//! Periodic checkpoint maintenance of a running node, one step at a time.
//!
//! ```text
//! every node:  report its place ─▶ newest checkpoint too old? ─▶ make one ─▶ delete what no checkpoint needs
//! the leader:  ... and trim the shared log
//! ```
//! The node that made the newest checkpoint makes the next one, because most of its runs are stored already. Other followers
//! wait a little longer, and the leader twice as long unless it is the only node.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ropewalk_base::hash64;
use ropewalk_engine::Role;
use ropewalk_log::LogId;
use ropewalk_log::shared::{EntryIndex, SharedLog};

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::make::{CheckpointMade, Maker};
use crate::checkpoint::withdraw::Withdrawn;
use crate::checkpoint::{Checkpoints, Manifest, NodeReport};
use crate::settings::after;

/// Times of the upkeep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpkeepSettings {
    /// Age of the newest checkpoint at which the next one is made. Default 10 minutes.
    pub interval: Duration,
    /// Time between two steps. Default 10 seconds.
    pub pause: Duration,
    /// Time for which the shared log is retained for a node that has stopped reporting. Default one hour.
    pub grace: Duration,
}

impl Default for UpkeepSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(600),
            pause: Duration::from_secs(10),
            grace: Duration::from_secs(3600),
        }
    }
}

/// Something that a step did, or failed to do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum UpkeepDone {
    /// Made a checkpoint.
    Made(CheckpointMade),
    /// Deleted objects that no checkpoint needs.
    Collected {
        /// How many.
        objects: u64,
    },
    /// Trimmed the shared log.
    Trimmed {
        /// The oldest entry that is left.
        oldest: EntryIndex,
    },
    /// A checkpoint cannot be used: found by the leader before it trims.
    Unusable {
        /// Its number.
        number: u64,
        /// Why.
        cause: CheckpointError,
    },
    /// Something failed; it is tried again.
    Failed {
        /// The action that failed.
        what: &'static str,
        /// The failure.
        error: CheckpointError,
    },
}

/// A step, and when the next one has something to do.
#[derive(Debug, Clone)]
pub struct UpkeepStep {
    /// Actions of the step.
    pub done: Vec<UpkeepDone>,
    /// Monotonic nanoseconds at which to call again; the largest number when the database has stopped.
    pub again: u64,
}

/// State of an upkeep after its last step, for operators.
#[derive(Debug, Clone, Default)]
pub struct UpkeepStatus {
    /// The newest checkpoint of this shared log; `None` while none is known.
    pub newest: Option<NewestCheckpoint>,
    /// Checkpoints that this upkeep has made.
    pub made: u64,
    /// Actions of this upkeep that have failed.
    pub failures: u64,
    /// The last action that failed in the last step, and why.
    pub failed: Option<(&'static str, CheckpointError)>,
}

/// The newest checkpoint, as an upkeep has found or made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewestCheckpoint {
    /// Its number.
    pub number: u64,
    /// The node that made it.
    pub node: [u8; 16],
    /// When it was made, in nanoseconds of the monotonic clock of the database; approximate if another node made it.
    pub since: u64,
}

/// Reports, makes checkpoints and trims for one open database.
pub struct Upkeep {
    maker: Maker,
    log: Arc<dyn SharedLog>,
    settings: UpkeepSettings,
    /// Since when this upkeep runs. Times are monotonic nanoseconds.
    started: u64,
    due: u64,
    status: UpkeepStatus,
    /// Place of each checkpoint that was found; `None` if it cannot be used.
    places: BTreeMap<u64, Option<(LogId, EntryIndex)>>,
    /// The entry of each node's report, and when it was seen first.
    reports: BTreeMap<[u8; 16], (EntryIndex, u64)>,
    /// Checkpoints that were withdrawn.
    withdrawn: BTreeSet<Withdrawn>,
}

impl Upkeep {
    /// The upkeep of the database of `maker`, which follows `log`.
    pub fn new(maker: Maker, log: Arc<dyn SharedLog>, settings: UpkeepSettings) -> Self {
        let now = maker.database().engine().env().clock.monotonic_nanos();
        Self {
            maker,
            log,
            settings,
            started: now,
            due: now,
            status: UpkeepStatus::default(),
            places: BTreeMap::new(),
            reports: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
        }
    }

    /// Makes checkpoints at once, whatever their age.
    pub fn maker(&mut self) -> &mut Maker {
        &mut self.maker
    }

    /// State after the last step.
    pub fn status(&self) -> &UpkeepStatus {
        &self.status
    }

    /// Does what is due at `now`, in nanoseconds of the monotonic clock of the database. Long while a checkpoint is made.
    pub fn step(&mut self, now: u64) -> UpkeepStep {
        let mut done = Vec::new();
        if self.maker.database().stopped().is_some() {
            return UpkeepStep { done, again: u64::MAX };
        }
        if now >= self.due {
            self.due = after(now, self.settings.pause);
            self.status.failed = None;
            self.attempt(&mut done, "report this node", |upkeep, _| upkeep.report());
            let known =
                self.attempt(&mut done, "read the checkpoint store", |upkeep, done| upkeep.look(now, done));
            if known {
                self.attempt(&mut done, "trim the shared log", |upkeep, done| upkeep.trim(now, done));
            }
            if known && now >= self.checkpoint_due(now) {
                self.attempt(&mut done, "make a checkpoint", |upkeep, done| upkeep.make(now, done));
            }
        }
        UpkeepStep { done, again: self.due }
    }

    /// Notes a failure; true without one.
    fn attempt(
        &mut self,
        done: &mut Vec<UpkeepDone>,
        what: &'static str,
        attempt: impl FnOnce(&mut Self, &mut Vec<UpkeepDone>) -> Result<(), CheckpointError>,
    ) -> bool {
        let Err(error) = attempt(self, done) else { return true };
        self.status.failures += 1;
        self.status.failed = Some((what, error.clone()));
        done.push(UpkeepDone::Failed { what, error });
        false
    }

    fn checkpoints(&self) -> &Checkpoints {
        self.maker.checkpoints()
    }

    /// The shared log that the database follows, once it has read from it.
    fn shared_log(&self) -> Option<LogId> {
        self.maker.database().engine().saved_place().map(|saved| saved.log)
    }

    fn leads(&self) -> bool {
        matches!(self.maker.database().role(), Role::Leader { .. })
    }

    /// Tells the others what this node needs if it is opened again.
    fn report(&self) -> Result<(), CheckpointError> {
        let engine = self.maker.database().engine();
        let Some(place) = engine.noted_place() else { return Ok(()) };
        let (node, address) = (self.maker.node(), self.maker.address().to_owned());
        let time_micros = engine.env().clock.wall_micros();
        self.checkpoints().report(&NodeReport { node, address, leads: self.leads(), time_micros, place })
    }

    /// Learns which checkpoints and nodes there are.
    fn look(&mut self, now: u64, done: &mut Vec<UpkeepDone>) -> Result<(), CheckpointError> {
        let mut found = BTreeMap::new();
        for report in self.checkpoints().report_names()? {
            // Two may be there for a moment: the older one counts.
            let index = found.entry(report.node).or_insert(report.index);
            *index = (*index).min(report.index);
        }
        let seen = |(node, index): ([u8; 16], EntryIndex)| {
            let known = self.reports.get(&node).filter(|(known, _)| *known == index);
            (node, (index, known.map_or(now, |(_, since)| *since)))
        };
        self.reports = found.into_iter().map(seen).collect();
        let withdrawn = self.checkpoints().withdrawn()?;
        if withdrawn != self.withdrawn {
            // One that was usable may not be any more; the next one is due then.
            self.withdrawn = withdrawn;
            self.places.clear();
            self.status.newest = None;
        }
        let numbers = self.checkpoints().numbers()?;
        self.places.retain(|number, _| numbers.contains(number));
        for number in numbers {
            if self.places.contains_key(&number) {
                continue;
            }
            let place = match self.examine(number, now) {
                Ok(place) => Some(place),
                Err(cause) if cause.is_unusable() => {
                    // One that was deleted meanwhile is in order.
                    if !self.checkpoints().numbers()?.contains(&number) {
                        continue;
                    }
                    done.push(UpkeepDone::Unusable { number, cause });
                    None
                }
                Err(error) => return Err(error),
            };
            self.places.insert(number, place);
        }
        Ok(())
    }

    /// Reads a manifest, and checks that there is everything that it names.
    fn examine(&mut self, number: u64, now: u64) -> Result<(LogId, EntryIndex), CheckpointError> {
        let manifest = self.checkpoints().manifest(number)?;
        if let Some(name) = self.checkpoints().missing(&manifest)? {
            return Err(CheckpointError::Damaged { name, what: "it is missing".to_owned() });
        }
        self.note_newest(&manifest, now);
        Ok((manifest.place.log, manifest.place.place.index))
    }

    fn note_newest(&mut self, manifest: &Manifest, now: u64) {
        let is_ours = self.shared_log() == Some(manifest.place.log);
        if !is_ours || self.status.newest.is_some_and(|newest| newest.number >= manifest.number) {
            return;
        }
        // Clocks of two nodes decide only when one of them makes the next checkpoint.
        let clock = &self.maker.database().engine().env().clock;
        let age = clock.wall_micros().saturating_sub(manifest.time_micros);
        let age = u64::try_from(age).unwrap_or(0).saturating_mul(1000);
        let (number, node, since) = (manifest.number, manifest.node, now.saturating_sub(age));
        self.status.newest = Some(NewestCheckpoint { number, node, since });
    }

    /// When this node makes the next checkpoint.
    fn checkpoint_due(&self, now: u64) -> u64 {
        let interval = self.settings.interval;
        let Some(NewestCheckpoint { number, node, since }) = self.status.newest else {
            return after(self.started, self.patience(interval, 0, now));
        };
        let is_own = node == self.maker.node() && !self.leads();
        after(since, if is_own { interval } else { self.patience(interval, number, now) })
    }

    /// How old the newest checkpoint, of another node, has to be.
    fn patience(&self, interval: Duration, number: u64, now: u64) -> Duration {
        let node = self.maker.node();
        if self.leads() {
            let is_other = |(other, _): (&[u8; 16], _)| *other != node;
            let has_others = self.live(now).any(is_other);
            return if has_others { interval * 2 } else { interval };
        }
        let mut seed = node.to_vec();
        seed.extend(number.to_le_bytes());
        let thousandths = u32::try_from(hash64(&seed) % 1000).unwrap_or(0);
        interval + interval / 4 * thousandths / 1000
    }

    /// Nodes that have reported themselves within the grace time, and the entry of each.
    fn live(&self, now: u64) -> impl Iterator<Item = (&[u8; 16], EntryIndex)> {
        let grace = u64::try_from(self.settings.grace.as_nanos()).unwrap_or(u64::MAX);
        let is_live = move |since: u64| now.saturating_sub(since) < grace;
        self.reports
            .iter()
            .filter(move |(_, (_, since))| is_live(*since))
            .map(|(node, (index, _))| (node, *index))
    }

    /// The oldest entry that has to stay; `None` when too few checkpoints are known.
    fn oldest_needed(&self, now: u64) -> Option<EntryIndex> {
        let log = self.shared_log()?;
        let mut usable = self.places.values().rev().flatten().filter(|(of, _)| *of == log);
        let second = usable.nth(1).map(|(_, index)| *index)?;
        let own = self.maker.database().engine().noted_place()?.place.index;
        let nodes = self.live(now).map(|(_, index)| index);
        Some(nodes.chain([own]).fold(second, Ord::min).next())
    }

    fn trim(&self, now: u64, done: &mut Vec<UpkeepDone>) -> Result<(), CheckpointError> {
        let Some(oldest) = self.oldest_needed(now).filter(|_| self.leads()) else { return Ok(()) };
        let bounds = self.log.bounds()?;
        // The newest entry is retained, so that no node requests the end of an empty log from the service.
        let oldest = oldest.min(bounds.newest);
        if bounds.oldest < oldest {
            self.log.trim(oldest)?;
            done.push(UpkeepDone::Trimmed { oldest });
        }
        Ok(())
    }

    fn make(&mut self, now: u64, done: &mut Vec<UpkeepDone>) -> Result<(), CheckpointError> {
        match self.maker.make() {
            Ok(made) => {
                let number = made.number;
                // The duration of making it counts for its age.
                self.status.newest = Some(NewestCheckpoint { number, node: self.maker.node(), since: now });
                self.status.made += 1;
                done.push(UpkeepDone::Made(made));
                let objects = self.checkpoints().collect(number)?;
                if objects > 0 {
                    done.push(UpkeepDone::Collected { objects });
                }
                Ok(())
            }
            // The next step finds the newer checkpoint, or the node has caught up by then.
            Err(
                CheckpointError::Outrun { .. } | CheckpointError::Behind { .. } | CheckpointError::NoPlace,
            ) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Checkpoints {
    /// The first block that a checkpoint names and the store does not have.
    pub(super) fn missing(&self, manifest: &Manifest) -> Result<Option<String>, CheckpointError> {
        let names = self.block_names()?;
        Ok(manifest.blocks().map(|block| block.name()).find(|name| !names.contains(name)))
    }
}
