//! The engine as a node: it leads, or follows the entries of the shared log.
//!
//! ```text
//! open ─▶ follower ──campaign──▶ leader ──another node leads, or an append stays unknown──▶ stopped: open again
//!          ▲    │ follow: check, apply, local copy, visible
//!          └────┘
//! ```
//!
//! A file `place` in the database directory tells after which entry an opened node continues. It is written now and then,
//! so it is often older than the local copy: the entries between the two are compared with that, and not applied again.
//! It exists before the first entry is applied, with the identity of the shared log.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use ropewalk_log::shared::{
    EntryFollowed, EntryIndex, EntryKind, NodeSettings, Place, ReplicatedLog, SavedPlace, SharedEntry,
};
use ropewalk_log::{CommitLog, LocalLog, LogError};
use ropewalk_vfs::{Env, OpenMode};

use crate::commit::Core;
use crate::engine::{Engine, io};
use crate::error::{EngineError, Result};
use crate::options::{Background, SharedOptions};

/// Name of the file with the place, and while it is written.
pub(crate) const PLACE: &str = "place";
pub(crate) const NEW_PLACE: &str = "place.new";
/// The place is written so much later when no commit came since: then it saves only the reading of small entries.
const IDLE_FACTOR: u32 = 30;

/// More than the file has: an address is much shorter.
const PLACE_BYTES_MAX: u64 = 64 << 10;

/// Part of an engine among the nodes that share its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// No other node: the log is local.
    Alone,
    /// This node commits.
    Leader {
        /// Its term.
        term: u64,
    },
    /// This node applies what the leader commits.
    Follower {
        /// Address that the leader advertises, if it is known.
        leader: Option<String>,
    },
}

/// An entry that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followed {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// The leader that wrote it.
    pub node: [u8; 16],
    /// That leader's clock when it was written, microseconds since 1970.
    pub time_micros: i64,
    /// Commits that it made visible. Others of the entry were in the local copy already.
    pub commits: u64,
    /// Its leader has stepped down after it, and asks this node to lead.
    pub is_successor: bool,
    /// The place of this node after it.
    pub place: Place,
}

impl Engine {
    /// Part of this engine among the nodes. Cheap.
    pub fn role(&self) -> Role {
        let Some(log) = &self.core.replicated else { return Role::Alone };
        match log.term() {
            Some(term) => Role::Leader { term },
            None => Role::Follower { leader: log.leader() },
        }
    }

    /// True when the engine has stopped because it no longer leads, or cannot know whether its last commits took place.
    /// The owner closes it, opens it again, and follows.
    pub fn is_deposed(&self) -> bool {
        self.core.replicated.as_ref().is_some_and(|log| log.is_deposed())
    }

    /// The newest entry of the shared log that this node has applied; zero when it is alone.
    pub fn place(&self) -> Place {
        self.core.replicated.as_ref().map(|log| log.place()).unwrap_or_default()
    }

    /// The newest place that is not in the middle of a group of commits, with the shared log that it is in. `None` when this
    /// node has read no entry yet, or is alone.
    pub fn saved_place(&self) -> Option<SavedPlace> {
        self.core.replicated.as_ref()?.saved_place()
    }

    /// The place that this node has noted in its directory since it was opened: if it ends now, it needs the entries after
    /// this one. `None` when it has noted none, or is alone.
    pub fn noted_place(&self) -> Option<SavedPlace> {
        let log = self.core.replicated.as_ref()?.saved_place()?.log;
        let place = self.core.noted.lock().place;
        (place.index > EntryIndex::ZERO).then_some(SavedPlace { log, place, leader: None })
    }

    /// Applies the entry after [`Engine::place`]; its commits are visible when it returns. One caller at a time.
    ///
    /// Without a place the entry has to be the oldest of the shared log.
    ///
    /// # Errors
    /// [`EngineError::Diverged`] when it does not continue this database, [`EngineError::Differs`] when it says that most nodes
    /// have other contents: the engine has stopped. [`EngineError::Busy`] and [`LogError::Shared`]: nothing was applied, and the call may be repeated.
    /// [`LogError::Leads`] on the leader; the engine's failure.
    pub fn follow(&self, entry: &SharedEntry) -> Result<Followed> {
        let core = &*self.core;
        let log = core.shared_log()?;
        core.admit(core.options.background == Background::Threads)?;
        let guard = core.stop_on_panic("following the shared log");
        let followed =
            core.note_log(log).and_then(|()| log.follow(entry, |commits| core.apply_followed(log, commits)));
        guard.disarm();
        let followed = followed.map_err(|error| match error {
            // It was written by a leader of another version, or is damaged in a way that no checksum tells.
            EngineError::Record { .. } | EngineError::UnknownModel { .. } => {
                EngineError::Diverged { index: entry.index, what: error.to_string().into() }
            }
            other => other,
        });
        let done = followed.inspect_err(|error| core.fail_unless_repeatable(error))?;
        if let Some(body) = &done.hash {
            core.take_hash(body, done.place, None)?;
        }
        let EntryFollowed { kind, node, time_micros, commits, is_successor, place, .. } = done;
        Ok(Followed { kind, node, time_micros, commits, is_successor, place })
    }

    /// Tries to lead, with the next term: true when this node leads now. False when an entry is newer than those that
    /// it has applied: it has to follow them first.
    ///
    /// # Errors
    /// [`LogError::Shared`] and [`LogError::Unknown`] when the shared log does not answer: this node does not lead, and
    /// may try again. [`LogError::Sealed`] when the shared log was closed. [`EngineError::Diverged`] when it has lost
    /// entries that this node has: the engine has stopped.
    pub fn campaign(&self) -> Result<bool> {
        let log = self.core.shared_log()?;
        let result = self.core.note_log(log).and_then(|()| log.campaign().map_err(EngineError::from));
        result.inspect_err(|error| self.core.fail_unless_repeatable(error))
    }

    /// Gives up leading, so that another node leads: the `successor` at once, if it follows. Commits that took place are
    /// acknowledged; later ones are refused with [`EngineError::NotLeader`]. The engine stops as that of a deposed leader does.
    ///
    /// # Errors
    /// [`EngineError::NotLeader`] when it does not lead; [`LogError::Options`] when it is alone. [`LogError::Unknown`]: it is
    /// unknown whether the last commits took place, and the engine has stopped, too.
    pub fn step_down(&self, successor: Option<[u8; 16]>) -> Result<()> {
        if let Some(error) = self.core.refusal() {
            return Err(error);
        }
        let stepped = self.core.shared_log()?.step_down(successor);
        match &stepped {
            Err(LogError::NotLeader) => {}
            Err(error) => self.core.fail(error),
            Ok(()) => self.core.fail(&"this node has stepped down"),
        }
        stepped.map_err(EngineError::from)
    }

    /// Proves that this node leads, and tells the others so. Readers that call it at the same time share one entry; what
    /// they read afterwards contains each commit that any node has acknowledged before the call.
    ///
    /// # Errors
    /// [`EngineError::NotLeader`] when it does not lead, or no longer; [`LogError::Unknown`]. If it was leading, the engine
    /// has stopped.
    pub fn renew(&self) -> Result<()> {
        if let Some(error) = self.core.refusal() {
            return Err(error);
        }
        let Some(log) = &self.core.replicated else { return Ok(()) };
        log.renew().map_err(|error| {
            if !matches!(error, LogError::NotLeader) {
                self.core.fail_by_log(&error);
            }
            error.into()
        })
    }
}

impl Core {
    /// The shared log of a running node.
    pub(crate) fn shared_log(&self) -> Result<&ReplicatedLog> {
        if let Some(error) = self.stopped() {
            return Err(error);
        }
        let what = "no log that nodes share";
        self.replicated.as_deref().ok_or_else(|| LogError::Options { what }.into())
    }

    /// Stops the engine after an error of following or of a campaign, unless nothing was done.
    fn fail_unless_repeatable(&self, error: &EngineError) {
        let repeatable = match error {
            EngineError::Busy { .. } => true,
            EngineError::Log(error) => matches!(
                **error,
                LogError::Shared(_) | LogError::Unknown { .. } | LogError::Leads | LogError::Sealed
            ),
            _ => false,
        };
        if !repeatable {
            self.fail_with(error.clone());
        }
    }

    /// Writes to the file which shared log is that of this node, before the node has anything of it.
    fn note_log(&self, log: &ReplicatedLog) -> Result<()> {
        if self.noted.lock().has_log {
            return Ok(());
        }
        let first = log.first_place()?;
        let mut noted = self.noted.lock();
        write_place(&self.env, &self.dir, &first)?;
        (noted.place, noted.has_log) = (first.place, true);
        Ok(())
    }

    /// Writes the place in the shared log to its file if the last one was written `after` so long. The local copy is synced
    /// first, so that it has the commits that the place names.
    pub(crate) fn note_place(&self, after: Duration) -> Result<()> {
        let Some(log) = &self.replicated else { return Ok(()) };
        let Some(saved) = log.saved_place() else { return Ok(()) };
        let mut noted = self.noted.lock();
        let place = saved.place;
        if place == noted.place {
            return Ok(());
        }
        let after = if place.seq == noted.place.seq { after * IDLE_FACTOR } else { after };
        let now = self.env.clock.monotonic_nanos();
        if u128::from(now.saturating_sub(noted.at)) < after.as_nanos() {
            return Ok(());
        }
        noted.at = now;
        log.sync_copy().inspect_err(|error| self.fail(error))?;
        write_place(&self.env, &self.dir, &saved)?;
        noted.place = place;
        Ok(())
    }
}

/// Writes the file with the place, durably; returns its length.
pub(crate) fn write_place(env: &Env, dir: &Path, saved: &SavedPlace) -> Result<u64> {
    let (path, new) = (dir.join(PLACE), dir.join(NEW_PLACE));
    if env.vfs.exists(&new).map_err(io("look for", &new))? {
        env.vfs.remove(&new).map_err(io("remove", &new))?;
    }
    let file = env.vfs.open(&new, OpenMode::CreateNew).map_err(io("create", &new))?;
    let bytes = saved.encode();
    file.write_all_at(&bytes, 0).map_err(io("write", &new))?;
    file.sync_data().map_err(io("sync", &new))?;
    env.vfs.rename(&new, &path).map_err(io("rename", &new))?;
    env.vfs.sync_dir(dir).map_err(io("sync directory", dir))?;
    Ok(bytes.len() as u64)
}

/// The noted place. None when the file is missing or damaged: then the node begins with the oldest entry, which proves as
/// much.
pub(crate) fn read_place(env: &Env, dir: &Path) -> Result<Option<SavedPlace>> {
    let path = dir.join(PLACE);
    if !env.vfs.exists(&path).map_err(io("look for", &path))? {
        return Ok(None);
    }
    let file = env.vfs.open(&path, OpenMode::Read).map_err(io("open", &path))?;
    let length = file.len().map_err(io("measure", &path))?;
    let mut bytes = vec![0; usize::try_from(length.min(PLACE_BYTES_MAX)).unwrap_or_default()];
    file.read_exact_at(&mut bytes, 0).map_err(io("read", &path))?;
    Ok(SavedPlace::decode(&bytes).ok())
}

/// The log of an engine, also as the one that nodes share, if they do.
type NodeLog = (Arc<dyn CommitLog>, Option<Arc<ReplicatedLog>>);

pub(crate) fn node_log(
    env: &Env,
    dir: &Path,
    local: LocalLog,
    shared: Option<&SharedOptions>,
) -> Result<NodeLog> {
    let Some(shared) = shared else { return Ok((Arc::new(local), None)) };
    let saved = read_place(env, dir)?;
    let SharedOptions { log, node, address, patience, .. } = shared.clone();
    let settings = NodeSettings { node, address, patience };
    let replicated = ReplicatedLog::new(local, log, env.clock.clone(), settings, saved.as_ref());
    let replicated = Arc::new(replicated);
    Ok((replicated.clone(), Some(replicated)))
}
