//! This server as a node of a cluster.
//!
//! ```text
//! settings ─▶ shared log: NATS, PostgreSQL ─▶ database, a follower ─▶ node, in its thread ─┬▶ caught up: the ports open
//!                                                   ▲                                     ├▶ leads: `lead`
//! checkpoints of other nodes ── empty directory ────┘                                     └▶ ended: open again, or stop
//! other nodes ◀── HTTP: `forward` (writes), `members` (reports)          `checkpoints`: made while the ports are open
//! ```
//! Not here: who leads and what is applied (`ropewalk-cluster`), what a client of each protocol sees (the protocols).

mod adapter;
mod checkpoints;
pub(crate) mod directories;
mod forward;
mod identity;
mod lead;
mod members;
mod view;

use std::sync::Arc;
use std::time::Duration;

use ropewalk::cluster::{EntryIndex, SharedError, SharedLog, SharedOptions};
use ropewalk::{Database, Options};
pub(crate) use ropewalk_cluster::End;
use ropewalk_cluster::checkpoint::{CheckpointStore, Checkpoints};
use ropewalk_cluster::{Node, RunningNode};
use ropewalk_http_kit::leader::ToLeader;
use ropewalk_wire::{NodeAddresses, Service};
use tokio::sync::{oneshot, watch};

pub(crate) use crate::cluster::checkpoints::Filling;
use crate::cluster::checkpoints::Keeper;
use crate::cluster::forward::Forward;
use crate::cluster::view::View;
use crate::config::settings::{self, Settings};
use crate::server::ServeError;

/// Pause between two questions for the end of a shared log that does not answer.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// Pause between two looks whether the node has caught up.
const LOOK: Duration = Duration::from_millis(20);

/// Parts that outlive the database: a node that was deposed opens the database again, and keeps its connections.
#[derive(Default)]
pub(crate) struct Lasting {
    log: Option<Arc<dyn SharedLog>>,
    store: Option<Arc<dyn CheckpointStore>>,
    forward: Option<Arc<Forward>>,
    /// The node has stepped down, and another one leads first.
    holds_off: bool,
}

/// How the database is opened again after the end of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// As it is.
    Follow,
    /// As it is, and another node leads first.
    HoldOff,
    /// Its copy is deleted, and a checkpoint takes its place.
    Rejoin,
}

impl Lasting {
    /// The store of `cluster.checkpoints`, if it is set.
    fn store(&mut self, settings: &Settings) -> Result<Option<Arc<dyn CheckpointStore>>, ServeError> {
        let Some(place) = &settings.cluster.checkpoints else { return Ok(None) };
        let store = match &self.store {
            Some(store) => store.clone(),
            None => self.store.insert(checkpoints::open(place)?).clone(),
        };
        Ok(Some(store))
    }

    /// The shared log. A node of a new cluster creates it: one without a database, if there are no checkpoints either. Others
    /// belong to a log that was lost.
    fn log(&mut self, settings: &Settings) -> Result<Arc<dyn SharedLog>, ServeError> {
        if let Some(log) = &self.log {
            return Ok(log.clone());
        }
        let has_checkpoints = match self.store(settings)? {
            None => false,
            Some(store) => {
                let is_empty = Checkpoints::new(store).is_empty();
                !is_empty.map_err(|error| cluster_error(error.to_string()))?
            }
        };
        let is_new = !settings.dir.0.join("store").exists() && !has_checkpoints;
        Ok(self.log.insert(adapter::open(&settings.cluster, is_new)?).clone())
    }

    /// Starts to give the directory, if it has no database, that of a checkpoint. `None` without `cluster.checkpoints`.
    ///
    /// # Errors
    /// The settings cannot be used, or the log service does not answer.
    pub(crate) fn fill(&mut self, settings: &Settings) -> Result<Option<Filling>, ServeError> {
        let Some(store) = self.store(settings)? else { return Ok(None) };
        let log = self.log(settings)?;
        Filling::start(&store, &settings.dir.0, log).map(Some)
    }

    /// Prepares the directory, which no engine has open any more, for its next opening.
    ///
    /// # Errors
    /// The copy is to be deleted, and no checkpoint has all of it.
    pub(crate) fn prepare(&mut self, again: Again, settings: &Settings) -> Result<(), ServeError> {
        self.holds_off = again == Again::HoldOff;
        match self.store(settings)?.filter(|_| again == Again::Rejoin) {
            None => Ok(()),
            Some(store) => {
                let log = self.log(settings)?;
                checkpoints::discard(&store, &settings.dir.0, &*log)
            }
        }
    }
}

/// The node around an open database.
pub(crate) struct Joined {
    view: Arc<View>,
    log: Arc<dyn SharedLog>,
    forward: Arc<Forward>,
    /// Name of the node.
    node: [u8; 16],
    ended: watch::Receiver<Option<End>>,
    /// Ends with this value.
    running: RunningNode,
}

/// Opens the database as a follower of the shared log, and runs the node.
///
/// # Errors
/// The settings cannot be used, or the log service does not answer; errors of the database.
pub(crate) fn join(
    lasting: &mut Lasting,
    options: Options,
    settings: &Settings,
    addresses: &NodeAddresses,
) -> Result<(Database, Joined), ServeError> {
    let dir = &settings.dir.0;
    let log = lasting.log(settings)?;
    let keeper = lasting.store(settings)?.map(|store| Keeper::new(&store));
    let forward = match &lasting.forward {
        Some(forward) => forward.clone(),
        None => lasting.forward.insert(Arc::new(Forward::new(settings.cluster.ca.as_deref())?)).clone(),
    };
    let node = identity::of(dir)?;
    let mut shared = SharedOptions::new(log.clone(), node, addresses.to_string());
    shared.patience = settings.cluster.patience.0;
    let db = options.shared(shared).open(dir)?;
    let seed = node.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    let of_node = ropewalk_cluster::Settings { seed, ..node_settings(&settings.cluster) };
    // The time is counted from now on, which is later than the last entry that the others have seen.
    let hold_off = if lasting.holds_off { of_node.patience_max() } else { Duration::ZERO };
    let running = Arc::new(Node::new(db.clone(), log.clone(), of_node).hold_off(hold_off));
    let (sender, ended) = watch::channel(None);
    let running = running
        .run(move |end| drop(sender.send_replace(Some(end.clone()))))
        .map_err(|source| ServeError::Io { what: "start the thread of the node".to_owned(), source })?;
    let view = View::new(running.node().clone(), node, addresses.clone(), keeper, &settings.cluster)?;
    Ok((db, Joined { view: Arc::new(view), log, forward, node, ended, running }))
}

impl Joined {
    /// Waits until the node has every entry that the shared log has now. Before that a node could take a closed server for an
    /// open one: its users may be among the entries that it lacks.
    pub(crate) async fn caught_up(&self) -> Result<(), ServeError> {
        let newest = newest(self.log.clone())?.await;
        let newest =
            newest.map_err(|_| cluster_error("the newest entry of the shared log was not determined"))??;
        while self.view.index() < newest.0 {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits for the end of the node.
    pub(crate) async fn ended(&self) -> End {
        let mut ended = self.ended.clone();
        loop {
            if let Some(end) = &*ended.borrow_and_update() {
                return end.clone();
            }
            if ended.changed().await.is_err() {
                // The thread was stopped.
                core::future::pending::<()>().await;
            }
        }
    }

    /// Makes the service one of the cluster, and starts the work between the nodes and that of a leader.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn serve(&self, service: &Service, settings: &Settings) -> Result<(), ServeError> {
        service.join(self.view.clone());
        if let Some(keeper) = &self.view.keeper {
            let place = (self.view.database(), settings.dir.0.as_path());
            let node = (self.node, self.view.addresses.to_string());
            keeper.start(place, self.log.clone(), node, &settings.cluster)?;
        }
        let stores = settings.grpc.stores.iter().map(|of| of.store.clone()).collect();
        tokio::spawn(lead::lead(service.clone(), self.view.clone(), stores));
        tokio::spawn(members::report(service.clone(), self.view.clone(), self.forward.clone()));
        Ok(())
    }

    /// Sends requests to the leader.
    pub(crate) fn to_leader(&self) -> Arc<dyn ToLeader> {
        self.forward.clone()
    }

    /// Ends the threads of the node.
    pub(crate) fn stop(self) {
        let differs = matches!(*self.ended.borrow(), Some(End::Differs { .. }));
        if let Some(keeper) = &self.view.keeper {
            keeper.stop();
            if differs {
                keeper.withdraw(&self.node);
            }
        }
        self.running.stop();
    }
}

fn node_settings(settings: &settings::Cluster) -> ropewalk_cluster::Settings {
    ropewalk_cluster::Settings { lease: settings.lease.0, ..ropewalk_cluster::Settings::default() }
}

/// Asks the log for its newest entry, in a thread, since it blocks, until it answers.
fn newest(log: Arc<dyn SharedLog>) -> Result<oneshot::Receiver<Result<EntryIndex, ServeError>>, ServeError> {
    let (sender, receiver) = oneshot::channel();
    let ask = move || {
        let mut is_told = false;
        loop {
            match log.bounds() {
                Ok(bounds) => return drop(sender.send(Ok(bounds.newest))),
                Err(SharedError::Unavailable { cause }) if !sender.is_closed() => {
                    if !core::mem::replace(&mut is_told, true) {
                        tracing::warn!(cause, "the shared log does not answer; waiting for it");
                    }
                    std::thread::sleep(ASK_PAUSE);
                }
                Err(error) => return drop(sender.send(Err(cluster_error(error.to_string())))),
            }
        }
    };
    let thread = std::thread::Builder::new().name("rope-ask".to_owned()).spawn(ask);
    thread.map_err(|source| ServeError::Io { what: "start a thread".to_owned(), source })?;
    Ok(receiver)
}

/// The consequence of the end of a node: how the database is opened again.
///
/// # Errors
/// An operator has to decide.
pub(crate) fn after(end: &End, settings: &Settings) -> Result<Again, ServeError> {
    let is_trimmed = matches!(end, End::Trimmed { .. });
    if end.is_reopened() || (is_trimmed && settings.cluster.rejoin) {
        tracing::warn!(%end, "the node has ended");
        return Ok(match end {
            End::Trimmed { .. } => Again::Rejoin,
            End::SteppedDown => Again::HoldOff,
            _ => Again::Follow,
        });
    }
    tracing::error!(%end, "the node has ended");
    let remedy = match (is_trimmed, &settings.cluster.checkpoints) {
        (false, _) if matches!(end, End::Differs { .. }) => "; start it with an empty directory",
        (false, _) => "",
        (true, Some(_)) => {
            "; start it with --cluster-rejoin: it deletes its copy of the database and begins with a checkpoint"
        }
        (true, None) => {
            "; with cluster.checkpoints and --cluster-rejoin it begins with a checkpoint that another node has made"
        }
    };
    Err(cluster_error(format!("{end}{remedy}")))
}

fn cluster_error(what: impl Into<String>) -> ServeError {
    ServeError::Cluster { what: what.into() }
}
