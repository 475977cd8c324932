//! Checkpoints of the cluster: nodes that lose their disks or are trimmed away come back from one.
//!
//! ```text
//! node ─▶ upkeep: report, checkpoint, trim ─▶ link ─▶ one checkpoint store        boot ─▶ no database? ─▶ join ─▶ open
//! ```
//! Checked: the shared log is never trimmed before what the second newest checkpoint continues with; every checkpoint that
//! exists is whole; a node always comes back, with the contents that the others have at its commit.

use std::path::Path;
use std::sync::Arc;

use ropewalk::cluster::{SharedError, SharedOptions};
use ropewalk::engine::Env;
use ropewalk_cluster::checkpoint::{
    CheckpointError, CheckpointStore, Checkpoints, DirectoryStore, JoinNotice, Joined, ObjectError,
    UpkeepDone, discard_copy,
};
use ropewalk_log::shared::{EntryIndex, SharedLog};
use ropewalk_vfs::SeededRandom;

use crate::cluster::history::Contents;
use crate::cluster::link::ProcessLink;
use crate::cluster::member::{Member, Network};
use crate::cluster::world::World;
use crate::events::scenario::{Bug, Check, DIR, ensure};

/// An empty store that fails only by its connections.
pub(super) fn new_store(seed: u64) -> Arc<DirectoryStore> {
    let env = Env { random: Arc::new(SeededRandom::new(seed)), ..Env::memory() };
    Arc::new(DirectoryStore::open(&env, Path::new("/store")).expect("a directory in memory can be made"))
}

/// The connection of a process to the checkpoint store.
pub(super) struct StoreLink {
    pub(super) process: ProcessLink,
    pub(super) store: Arc<DirectoryStore>,
}

impl core::fmt::Debug for StoreLink {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "StoreLink({})", self.process.node)
    }
}

impl StoreLink {
    fn ask<T>(
        &self,
        name: &str,
        call: impl FnOnce(&DirectoryStore) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let no_answer = || ObjectError { call: "call", name: name.to_owned(), cause: "no answer".to_owned() };
        let world = self.process.pause().ok_or_else(no_answer)?;
        let network = world.network(self.process.node);
        let is_lost = world.is_troubled() && world.dice.one_in(60);
        if network == Network::Down || is_lost && world.dice.one_in(2) {
            return Err(no_answer());
        }
        let answer = call(&self.store);
        if is_lost || network == Network::NoAnswers { Err(no_answer()) } else { answer }
    }
}

impl CheckpointStore for StoreLink {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        self.ask(name, |store| store.create(name, bytes))
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectError> {
        self.ask(name, |store| store.read(name))
    }

    fn list(&self, kind: &str) -> Result<Vec<String>, ObjectError> {
        self.ask(kind, |store| store.list(kind))
    }

    fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.ask(name, |store| store.delete(name))
    }
}

impl World {
    /// Gives a node without a database one. False when it has to try again.
    pub(super) fn prepare(
        &self,
        member: &Member,
        incarnation: u64,
        env: &Env,
        log: &dyn SharedLog,
        checkpoints: &Checkpoints,
    ) -> Check<bool> {
        let number = member.number;
        if member.trouble.lock().is_trimmed {
            if let Err(error) = discard_copy(env, Path::new(DIR)) {
                self.excuse_copy(member, incarnation, "discard", &error)?;
                return Ok(false);
            }
            member.trouble.lock().is_trimmed = false;
        }
        let mut rejected = None;
        let mut notice = |notice: JoinNotice| {
            if let JoinNotice::Rejected { number, cause } = notice
                && !matches!(cause, CheckpointError::Withdrawn { .. })
            {
                rejected = Some(format!("checkpoint {number}: {cause}"));
            }
        };
        let joined = checkpoints.join(env, Path::new(DIR), log, &mut notice);
        if let Some(rejected) = rejected {
            return Err(Bug(format!("node {number} rejects {rejected}")));
        }
        match joined {
            Ok(Joined::Present) => {}
            Ok(Joined::FromFirstEntry) => self.note(format!("node {number} begins at the first entry")),
            Ok(Joined::FromCheckpoint { number: of, seq, place, found_bytes, bytes }) => {
                self.note(format!(
                    "node {number} begins with checkpoint {of}, commit {seq}, entry {}, {found_bytes} of {bytes} bytes",
                    place.index
                ));
                self.count(|counts| counts.copies += 1);
            }
            Err(error) => {
                self.excuse_copy(member, incarnation, "join", &error)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A machine gets a new disk.
    pub(super) fn lose_disk(&self, member: &Member) {
        self.note(format!("node {} loses its disk", member.number));
        self.end_process(member, true);
        member.disk.wipe(Path::new(DIR));
    }

    /// Runs a step of checkpoint maintenance on a node.
    pub(super) fn upkeep(&self, member: &Member) -> Check {
        // A node that begins with a checkpoint of other contents before it is withdrawn differs, too: docs/cluster.md, "Limits".
        let is_away = self.now() < member.trouble.lock().paused_until;
        if is_away || member.trouble.lock().differs {
            return Ok(());
        }
        let Some(used) = member.begin() else { return Ok(()) };
        used.let_read();
        let step = used.process.upkeep.lock().step(self.local_nanos(member.number));
        let number = member.number;
        for done in step.done {
            match done {
                UpkeepDone::Made(made) => {
                    self.note(format!(
                        "node {number} makes checkpoint {} of commit {}, entry {}, {} of {} bytes",
                        made.number, made.seq, made.place.index, made.stored_bytes, made.bytes
                    ));
                    self.count(|counts| counts.checkpoints += 1);
                }
                UpkeepDone::Collected { objects } => {
                    self.note(format!("node {number} deletes {objects} objects"))
                }
                UpkeepDone::Trimmed { oldest } => {
                    self.note(format!("node {number} trims the shared log before entry {oldest}"));
                    self.count(|counts| counts.trims += 1);
                }
                UpkeepDone::Unusable { number: of, cause: CheckpointError::Withdrawn { .. } } => {
                    self.note(format!("node {number} finds that checkpoint {of} was withdrawn"));
                }
                UpkeepDone::Failed { what, error } => {
                    self.excuse_copy(member, used.process.incarnation, what, &error)?;
                }
                other => return Err(Bug(format!("upkeep of node {number}: {other:?}"))),
            }
        }
        self.check_trimmed()
    }

    /// A failure about checkpoints, for which there is a reason.
    fn excuse_copy(&self, member: &Member, incarnation: u64, what: &str, error: &CheckpointError) -> Check {
        let number = member.number;
        self.note(format!("node {number}: {what}: {error}"));
        let is_dead = !member.is_alive(incarnation);
        let is_disk = member.disk.is_off() || member.trouble.lock().disk;
        let is_cut = self.is_troubled() || self.network(number) != Network::Up;
        let is_stopped = member.process().is_none_or(|process| process.db.stopped().is_some());
        let has_reason = match error {
            CheckpointError::Store(_) | CheckpointError::Shared(SharedError::Unavailable { .. }) => is_cut,
            CheckpointError::Io { .. } => is_disk,
            CheckpointError::Engine(_) => is_disk || is_cut || is_stopped,
            // Until another node has made the next one.
            CheckpointError::NoneFits { .. } if self.has_withdrawn()? => true,
            _ => self.record.lock().history.is_damaged(),
        };
        let is_panic = error.to_string().contains("panic");
        ensure!(
            (has_reason || is_dead) && !is_panic,
            "node {number}: {what} failed without a reason: {error}"
        );
        Ok(())
    }

    /// The shared log has every entry after the second newest checkpoint.
    fn check_trimmed(&self) -> Check {
        let oldest = self.oldest_entry()?;
        if oldest <= EntryIndex(1) || self.record.lock().history.is_damaged() {
            return Ok(());
        }
        let found = self.checkpoints().list().map_err(|error| Bug(error.to_string()))?;
        if self.has_withdrawn()? {
            return Ok(());
        }
        let second = found.get(1).and_then(|found| found.manifest.as_ref().ok());
        let continued = second.is_some_and(|manifest| oldest <= manifest.place.place.index.next());
        ensure!(
            continued,
            "the shared log begins at entry {oldest}, the second newest checkpoint is {second:?}"
        );
        Ok(())
    }

    /// The oldest entry of the shared log.
    pub(super) fn oldest_entry(&self) -> Check<EntryIndex> {
        self.log.bounds().map(|bounds| bounds.oldest).map_err(|error| Bug(error.to_string()))
    }

    /// The checkpoints, by a connection without faults.
    fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.store.clone())
    }

    /// The checkpoints of a node that differs are not used from now on.
    pub(super) fn withdraw(&self, member: &Member) -> Check {
        let withdrawn = self.checkpoints().withdraw(&member.name).map_err(|error| Bug(error.to_string()))?;
        self.note(format!("the checkpoints of node {} are withdrawn up to {withdrawn}", member.number));
        Ok(())
    }

    /// True while one of the two newest checkpoints is withdrawn.
    fn has_withdrawn(&self) -> Check<bool> {
        let found = self.checkpoints().list().map_err(|error| Bug(error.to_string()))?;
        Ok(found.iter().any(|found| matches!(found.manifest, Err(CheckpointError::Withdrawn { .. }))))
    }

    /// Every checkpoint is whole, and a new machine that begins with the newest one has what the others have.
    pub(super) fn check_checkpoints(&self) -> Check {
        let failed = |error: CheckpointError| Bug(format!("checkpoints: {error}"));
        let checkpoints = self.checkpoints();
        for found in checkpoints.list().map_err(failed)?.iter().take(2) {
            if matches!(found.manifest, Err(CheckpointError::Withdrawn { .. })) {
                continue;
            }
            checkpoints.verify(found.number).map_err(failed)?;
        }
        let (env, log) = (Env::memory(), self.log.handle());
        let joined = checkpoints.join(&env, Path::new(DIR), &log, &mut |_| {}).map_err(failed)?;
        let Joined::FromCheckpoint { number, seq, .. } = joined else { return Ok(()) };
        let shared = SharedOptions::new(Arc::new(log), [0; 16], "reader");
        let db = self.any_member().options.clone().env(env).shared(shared).open(Path::new(DIR))?;
        ensure!(db.seq() == seq, "checkpoint {number} of commit {seq} opens at commit {}", db.seq());
        let contents = Contents::at(&db, &db.snapshot())?;
        crate::runs::restarts::verify(&db)?;
        self.record.lock().history.observe(usize::MAX, seq.0, &contents)
    }
}
