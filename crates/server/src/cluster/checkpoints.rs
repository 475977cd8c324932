//! The checkpoints of the cluster: this node begins with one, and takes part in their upkeep while it serves.
//!
//! ```text
//! empty directory ─▶ fill ─▶ open, follow, caught up ─▶ start: report, make checkpoints, trim ─▶ … ─▶ stop
//!      ▲                                                                                   └▶ status: HTTP, metrics
//!      └── discard ◀── the shared log no longer has the next entries, and `cluster.rejoin`
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ropewalk::Database;
use ropewalk::cluster::{SharedError, SharedLog};
use ropewalk::engine::Env;
use ropewalk_cluster::checkpoint::{
    CheckpointError, CheckpointStore, Checkpoints, DirectoryStore, JoinNotice, Joined, Maker, RunningUpkeep,
    StoppableStore, Upkeep, UpkeepDone, UpkeepSettings,
};
use ropewalk_cluster_s3::{S3Place, S3Store};
use ropewalk_wire::{CheckpointStatus, Code, WireError};
use tokio::sync::oneshot;

use crate::cluster::{ASK_PAUSE, cluster_error, identity};
use crate::config::settings::{Cluster, SettingsError};
use crate::server::ServeError;

/// Longest pause between two steps of the upkeep: a node is live for the others while it reports in time.
const STEP_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Opens the store of `cluster.checkpoints`.
///
/// # Errors
/// The place is not valid or cannot be used.
pub(super) fn open(place: &str) -> Result<Arc<dyn CheckpointStore>, ServeError> {
    let invalid = |what: String| SettingsError::Invalid { place: "cluster.checkpoints".to_owned(), what };
    if S3Place::is_meant(place) {
        let store = S3Store::open(S3Place::parse(place).map_err(invalid)?);
        return Ok(Arc::new(store.map_err(|error| invalid(error.to_string()))?));
    }
    let store = DirectoryStore::open(&Env::real(), Path::new(place));
    Ok(Arc::new(store.map_err(|error| invalid(error.to_string()))?))
}

/// Deletes the database of a node whose next entries were trimmed, so that it begins with a checkpoint.
///
/// # Errors
/// No checkpoint has all of it; the store, the shared log, a file. Then the database stays.
pub(super) fn discard(
    store: &Arc<dyn CheckpointStore>,
    dir: &Path,
    log: &dyn SharedLog,
) -> Result<(), ServeError> {
    let discarded = Checkpoints::new(store.clone()).discard_trimmed(&Env::real(), dir, log);
    let number = discarded.map_err(|error| cluster_error(error.to_string()))?;
    tracing::warn!(number, "deleted the copy of this node; it begins with a checkpoint");
    Ok(())
}

/// The checkpoints of the cluster, from the opening of this node's database to its end.
pub(super) struct Keeper {
    checkpoints: Checkpoints,
    store: Arc<StoppableStore>,
    /// The same store, also after the upkeep was stopped.
    lasting: Checkpoints,
    running: Mutex<Option<RunningUpkeep>>,
}

impl Keeper {
    /// The checkpoints in `store`. The upkeep does not run yet.
    pub(super) fn new(store: &Arc<dyn CheckpointStore>) -> Self {
        let lasting = Checkpoints::new(store.clone());
        let store = Arc::new(StoppableStore::new(store.clone()));
        Self { checkpoints: Checkpoints::new(store.clone()), store, lasting, running: Mutex::default() }
    }

    /// Gives the directory `dir`, if it has no database, that of a checkpoint. Blocks, and waits for a shared log that does not
    /// respond.
    ///
    /// # Errors
    /// The shared log was trimmed, and no checkpoint fits; the store, a file, the lock of the directory.
    fn fill(&self, dir: &Path, log: &dyn SharedLog) -> Result<(), ServeError> {
        let node = identity::of(dir)?;
        note_withdrawn(self.checkpoints.withdraw_distrusted(&Env::real(), dir, &node));
        let mut is_told = false;
        let joined = loop {
            match self.checkpoints.join(&Env::real(), dir, log, &mut note_joining) {
                Err(CheckpointError::Shared(SharedError::Unavailable { cause }))
                    if !self.store.is_stopped() =>
                {
                    if !core::mem::replace(&mut is_told, true) {
                        tracing::warn!(cause, "the shared log does not answer; waiting for it");
                    }
                    std::thread::sleep(ASK_PAUSE);
                }
                joined => break joined.map_err(|error| cluster_error(error.to_string()))?,
            }
        };
        match joined {
            Joined::Present => {}
            Joined::FromFirstEntry => {
                tracing::info!("the node begins with the first entry of the shared log")
            }
            Joined::FromCheckpoint { number, seq, place, bytes, found_bytes } => {
                let (seq, entry) = (seq.0, place.index.0);
                tracing::info!(number, seq, entry, bytes, found_bytes, "the node begins with a checkpoint");
            }
        }
        Ok(())
    }

    /// Starts the upkeep of `db`, which is open in `dir` and follows `log`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        &self,
        (db, dir): (&Database, &Path),
        log: Arc<dyn SharedLog>,
        (node, address): ([u8; 16], String),
        settings: &Cluster,
    ) -> Result<(), ServeError> {
        let interval = settings.checkpoint_interval.0;
        let settings =
            UpkeepSettings { interval, pause: interval.min(STEP_PAUSE_MAX), grace: settings.grace.0 };
        let maker = Maker::new(self.checkpoints.clone(), db.clone(), dir, node, address);
        let (store, mut notes) = (self.store.clone(), Notes::default());
        let notice = move |done: UpkeepDone| {
            // A stopped store lets the rest of a step fail.
            if !store.is_stopped() {
                notes.take(&done);
            }
        };
        let running = Upkeep::new(maker, log, settings).run(notice);
        let running = running.map_err(|source| ServeError::Io {
            what: "start the thread of the checkpoints".to_owned(),
            source,
        })?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// The checkpoints as the upkeep of this node knows them. `now` is in nanoseconds of the monotonic clock of the database.
    pub(super) fn status(&self, now: u64) -> CheckpointStatus {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let status = running.as_ref().map(RunningUpkeep::status).unwrap_or_default();
        let age = |since: u64| Duration::from_nanos(now.saturating_sub(since));
        CheckpointStatus {
            newest: status.newest.map(|newest| newest.number),
            age: status.newest.map(|newest| age(newest.since)),
            made: status.made,
            failures: status.failures,
            failed: status.failed.map(|(what, error)| format!("{what}: {}", for_clients(&error))),
        }
    }

    /// Deletes the reports of a node that will not return; returns how many.
    ///
    /// # Errors
    /// The store.
    pub(super) fn forget(&self, node: &[u8; 16]) -> Result<u64, WireError> {
        self.checkpoints.forget(node).map_err(|error| {
            tracing::error!(%error, "the reports of a node cannot be deleted");
            WireError::new(Code::Io, for_clients(&error))
        })
    }

    /// Makes the checkpoints of this node unusable, because its contents differ. After [`Keeper::stop`].
    pub(super) fn withdraw(&self, node: &[u8; 16]) {
        note_withdrawn(self.lasting.withdraw(node).map(Some));
    }

    /// Ends the upkeep. A checkpoint that it is making ends with its next call of the store.
    pub(super) fn stop(&self) {
        self.store.stop();
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            running.stop();
        }
    }
}

/// The error without paths of this machine, which only its log has.
fn for_clients(error: &CheckpointError) -> String {
    match error {
        CheckpointError::Store(error) => error.to_string(),
        CheckpointError::Shared(error) => error.to_string(),
        CheckpointError::Damaged { .. } | CheckpointError::Withdrawn { .. } => error.to_string(),
        _ => "the log of this node says why".to_owned(),
    }
}

fn note_withdrawn(withdrawn: Result<Option<u64>, CheckpointError>) {
    match withdrawn {
        Ok(None) => {}
        Ok(Some(number)) => tracing::warn!(number, "withdrew the checkpoints of this node up to this one"),
        Err(error) => {
            tracing::error!(%error, "the checkpoints of this node are wrong, and cannot be withdrawn: start it again");
        }
    }
}

fn note_joining(notice: JoinNotice) {
    match notice {
        JoinNotice::Begins { number, bytes } => tracing::info!(number, bytes, "downloading a checkpoint"),
        JoinNotice::Rejected { number, cause } => {
            tracing::error!(number, %cause, "a checkpoint cannot be used; the one before is tried");
        }
        _ => {}
    }
}

/// The log of an upkeep: each failure once, and not in each of its steps.
#[derive(Default)]
struct Notes {
    /// The last failure of each action.
    failed: HashMap<&'static str, String>,
}

impl Notes {
    fn take(&mut self, done: &UpkeepDone) {
        match done {
            UpkeepDone::Made(made) => {
                let (number, seq, entry) = (made.number, made.seq.0, made.place.index.0);
                let (bytes, stored_bytes) = (made.bytes, made.stored_bytes);
                tracing::info!(number, seq, entry, bytes, stored_bytes, "made a checkpoint of the cluster");
                self.failed.clear();
            }
            UpkeepDone::Collected { objects } => {
                tracing::debug!(objects, "deleted objects that no checkpoint needs");
            }
            UpkeepDone::Trimmed { oldest } => {
                tracing::info!(oldest = oldest.0, "trimmed the shared log");
            }
            UpkeepDone::Unusable { number, cause } => {
                tracing::error!(number, %cause, "a checkpoint cannot be used");
            }
            UpkeepDone::Failed { what, error } => {
                let error = error.to_string();
                if self.failed.get(what) == Some(&error) {
                    tracing::debug!(action = what, error, "the upkeep of the checkpoints failed again");
                } else {
                    tracing::warn!(
                        action = what,
                        error,
                        "the upkeep of the checkpoints failed; it is repeated"
                    );
                    self.failed.insert(*what, error);
                }
            }
            _ => {}
        }
    }
}

/// A directory that is being filled, in a thread.
pub(crate) struct Filling {
    keeper: Arc<Keeper>,
    done: oneshot::Receiver<Result<(), ServeError>>,
    thread: JoinHandle<()>,
}

impl Filling {
    /// Starts to fill `dir`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        store: &Arc<dyn CheckpointStore>,
        dir: &Path,
        log: Arc<dyn SharedLog>,
    ) -> Result<Self, ServeError> {
        let keeper = Arc::new(Keeper::new(store));
        let (sender, done) = oneshot::channel();
        let (filler, dir) = (keeper.clone(), dir.to_owned());
        // The receiver may be gone.
        let fill = move || drop(sender.send(filler.fill(&dir, &*log)));
        let thread = std::thread::Builder::new().name("rope-join".to_owned()).spawn(fill);
        let thread = thread.map_err(|source| ServeError::Io { what: "start a thread".to_owned(), source })?;
        Ok(Self { keeper, done, thread })
    }

    /// Waits until the directory has a database, or needs none.
    ///
    /// # Errors
    /// As [`Keeper::fill`].
    pub(crate) async fn finished(&mut self) -> Result<(), ServeError> {
        let done = (&mut self.done).await;
        done.unwrap_or_else(|_| Err(cluster_error("joining from a checkpoint ended without a result")))
    }

    /// Ends a download with its next call of the store, and waits for that. A later start continues the download.
    pub(crate) fn stop(self) {
        self.keeper.stop();
        // A panic of the thread was reported by its hook.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use ropewalk::cluster::{LogId, MemorySharedLog, SharedOptions};
    use ropewalk::{Durability, Options};

    use super::*;

    fn text(path: &Path) -> String {
        path.to_str().unwrap().to_owned()
    }

    /// A leader with one commit, in `dir`.
    fn leader(log: &MemorySharedLog, dir: &Path) -> Database {
        let shared = SharedOptions::new(Arc::new(log.handle()), [1; 16], "http://a:1".to_owned());
        let db = Options::new().shared(shared).open(dir).unwrap();
        assert!(db.engine().campaign().unwrap());
        db.begin_leading().unwrap();
        let keys = db.keyspace("k", ropewalk::engine::KeyspaceOptions::default()).unwrap();
        db.put(keys, b"k", b"v", Durability::Sync).unwrap();
        db
    }

    /// Waits until the keeper knows a checkpoint.
    fn until_newest(keeper: &Keeper, db: &Database) -> CheckpointStatus {
        for _ in 0..6_000 {
            let status = keeper.status(db.engine().env().clock.monotonic_nanos());
            if status.newest.is_some() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no checkpoint within a minute");
    }

    #[test]
    fn node_with_an_empty_directory_begins_with_the_checkpoint_of_another() {
        let place = tempfile::tempdir().unwrap();
        let (one, two) = (place.path().join("one"), place.path().join("two"));
        let store = open(&text(&place.path().join("checkpoints"))).unwrap();
        let log = MemorySharedLog::new(LogId([7; 16]));
        let db = leader(&log, &one);
        let keeper = Keeper::new(&store);
        let now = db.engine().env().clock.monotonic_nanos();
        assert_eq!(keeper.status(now), CheckpointStatus::default(), "the upkeep does not run yet");
        let settings = Cluster { checkpoint_interval: "1ms".parse().unwrap(), ..Cluster::default() };
        let node = ([1; 16], "http://a:1".to_owned());
        keeper.start((&db, &one), Arc::new(log.handle()), node, &settings).unwrap();
        let status = until_newest(&keeper, &db);
        assert!(status.age.is_some() && status.made > 0 && status.failed.is_none(), "{status:?}");
        keeper.stop();
        let newest = db.engine().place().index;
        log.trim(newest).unwrap();

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut filling = Filling::start(&store, &two, Arc::new(log.handle())).unwrap();
        runtime.block_on(filling.finished()).unwrap();
        let shared = SharedOptions::new(Arc::new(log.handle()), [2; 16], "http://b:1".to_owned());
        let joined = Options::new().must_exist().shared(shared).open(&two).unwrap();
        assert_eq!(joined.seq(), db.seq());
    }

    #[test]
    fn directory_that_cannot_be_a_store_is_rejected_by_the_name_of_its_setting() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = open(&text(&file.path().join("checkpoints"))).unwrap_err().to_string();
        assert!(error.starts_with("cluster.checkpoints: "), "{error}");
    }

    #[test]
    fn place_in_s3_that_has_no_bucket_is_rejected_by_the_name_of_its_setting() {
        let error = open("s3:///prefix").unwrap_err().to_string();
        assert!(error.starts_with("cluster.checkpoints: s3:///prefix names no bucket"), "{error}");
    }

    #[test]
    fn checkpoints_of_a_distrusted_directory_are_withdrawn_at_its_start() {
        let place = tempfile::tempdir().unwrap();
        let (one, two) = (place.path().join("one"), place.path().join("two"));
        let store = open(&text(&place.path().join("checkpoints"))).unwrap();
        let log = MemorySharedLog::new(LogId([7; 16]));
        let db = leader(&log, &one);
        let node = identity::of(&one).unwrap();
        let checkpoints = Checkpoints::new(store.clone());
        let mut maker = Maker::new(checkpoints.clone(), db.clone(), &one, node, "http://a:1");
        let number = maker.make().unwrap().number;
        drop(maker);
        db.close().unwrap();

        let start = |dir: &Path| Keeper::new(&store).fill(dir, &log.handle());
        start(&one).unwrap();
        checkpoints.verify(number).unwrap();
        std::fs::write(one.join("differs"), "commit 1").unwrap();
        start(&one).unwrap();
        assert!(matches!(checkpoints.verify(number), Err(CheckpointError::Withdrawn { .. })));
        // A new node reads the log instead.
        start(&two).unwrap();
        assert!(!two.join("store").exists());

        // When it stops: the store answers although the upkeep has ended.
        let keeper = Keeper::new(&store);
        keeper.stop();
        keeper.withdraw(&[9; 16]);
        assert!(store.list("withdrawn").unwrap().iter().any(|name| name.contains("0909")));
    }

    #[test]
    fn stopped_download_ends_without_a_database() {
        let place = tempfile::tempdir().unwrap();
        let store = open(&text(&place.path().join("checkpoints"))).unwrap();
        let log = MemorySharedLog::new(LogId([7; 16]));
        log.set_connected(false);
        // It waits for the shared log.
        let filling = Filling::start(&store, &place.path().join("db"), Arc::new(log)).unwrap();
        filling.stop();
        assert!(!place.path().join("db/store").exists());
    }

    #[test]
    fn errors_for_clients_have_no_paths() {
        let io = CheckpointError::Io {
            op: "open",
            path: "/secret/place".into(),
            source: Arc::new(std::io::ErrorKind::NotFound.into()),
        };
        assert!(!for_clients(&io).contains("secret"));
    }
}
