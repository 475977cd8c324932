//! Directories of nodes that do not run: a new shared log from them, and databases that leave or begin again.

use std::path::Path;

use ropewalk::Class;
use ropewalk::cluster::{SharedError, SharedLog};
use ropewalk::engine::Env;
use ropewalk_cluster::checkpoint::{CheckpointError, Checkpoints, JoinNotice, Joined};
use ropewalk_cluster::{Left, Reseed, ReseedError, Reseeded};
use ropewalk_cluster_s3::S3Place;

use crate::cluster::{adapter, checkpoints, identity};
use crate::config::settings::Settings;
use crate::directories::{DirectoryError, LeftCluster, NewLog, NewLogMade, Restored};

/// The file in which a node notes its place in the shared log.
const PLACE: &str = "place";

/// Writes the longest of several copies into the shared log of `cluster.log`, which must have no entry and is created if it does
/// not exist. The copies that reach it follow it; each other node is passed to [`adopt`].
///
/// # Errors
/// A directory has no database, or a process has it open; the copies differ; more commits are known, by `cluster.checkpoints`, than
/// the longest copy has; the shared log has entries, or cannot be written.
pub fn make_log(settings: &Settings, new: &NewLog) -> Result<NewLogMade, DirectoryError> {
    for dir in &new.copies {
        check_database(dir)?;
        if new.is_alone && dir.join(PLACE).exists() {
            let what = format!("{} is a node of a cluster already", dir.display());
            let remedy = "`ropewalk cluster reseed` makes a new shared log from nodes";
            return Err(DirectoryError::new(Class::Conflict, what, remedy));
        }
    }
    let store = settings.cluster.checkpoints.as_deref().map(checkpoints::open).transpose()?;
    let store = store.map(Checkpoints::new);
    if let Some(store) = store.as_ref().filter(|_| new.is_alone)
        && !store.is_empty().map_err(ReseedError::from)?
    {
        let what = "the place of cluster.checkpoints has checkpoints of another cluster";
        return Err(DirectoryError::new(Class::Conflict, what, "Each cluster needs another directory"));
    }
    let log = adapter::open(&settings.cluster, true)?;
    write_log(&*log, store.as_ref(), new)
}

fn write_log(
    log: &dyn SharedLog,
    store: Option<&Checkpoints>,
    new: &NewLog,
) -> Result<NewLogMade, DirectoryError> {
    let node = identity::random().map_err(|error| DirectoryError::new(Class::Io, error.to_string(), ""))?;
    let reseed = Reseed {
        copies: &new.copies,
        checkpoints: store,
        accepts_loss: new.accepts_loss,
        node,
        // No node leads on the new log yet.
        address: "",
    };
    let Reseeded { from, seq, base, entries, lost } = reseed.run(&Env::real(), log)?;
    Ok(NewLogMade { from, seq: seq.0, base: base.0, entries, lost })
}

/// Lets the database in `dir`, of a node that does not run, follow the shared log of `cluster.log`, which [`make_log`] has written.
/// Returns its newest commit.
///
/// # Errors
/// It has no database, or a process has it open; its newest commit is not in the shared log, or differs.
pub fn adopt(settings: &Settings, dir: &Path) -> Result<u64, DirectoryError> {
    check_database(dir)?;
    let log = adapter::open(&settings.cluster, false)?;
    Ok(ropewalk_cluster::adopt(&Env::real(), dir, &*log)?.0)
}

/// Makes the database in `dir`, of a node that does not run, a database that is alone.
///
/// # Errors
/// It has no database, or a process has it open; it is not a node.
pub fn leave(dir: &Path) -> Result<LeftCluster, DirectoryError> {
    check_database(dir)?;
    let name = dir.join(identity::FILE);
    if !dir.join(PLACE).exists() && !name.exists() {
        let what = format!("{} is not a node of a cluster", dir.display());
        return Err(DirectoryError::new(Class::Conflict, what, ""));
    }
    let Left { seq, place } = ropewalk_cluster::leave(&Env::real(), dir)?;
    match std::fs::remove_file(&name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let what = format!("remove {}: {error}", name.display());
            Err(DirectoryError::new(Class::Io, what, "Run the command again"))
        }
        _ => Ok(LeftCluster { seq: seq.0, entry: place.map(|saved| saved.place.index.0) }),
    }
}

/// Gives the directory `dir`, which must have no database, that of the newest complete checkpoint in `store`, as in
/// `cluster.checkpoints`.
/// `notice` gets the reason against each newer one. Interrupted, it may be called again, and continues.
///
/// # Errors
/// `store` cannot be used or has no complete checkpoint; `dir` has a database, or a process has it open; I/O.
pub fn restore(store: &str, dir: &Path, notice: &mut dyn FnMut(String)) -> Result<Restored, DirectoryError> {
    // Opening a store makes its directory.
    if !S3Place::is_meant(store) && !Path::new(store).is_dir() {
        let what = format!("there is no checkpoint store in {store}");
        return Err(DirectoryError::new(Class::NotFound, what, ""));
    }
    let store = Checkpoints::new(checkpoints::open(store)?);
    let mut rejected = |found: JoinNotice| {
        if let JoinNotice::Rejected { number, cause } = found {
            notice(format!("checkpoint {number} cannot be used: {cause}"));
        }
    };
    let joined = store.restore(&Env::real(), dir, &mut rejected).map_err(ReseedError::from)?;
    match joined {
        Joined::FromCheckpoint { number, seq, bytes, .. } => {
            Ok(Restored { checkpoint: number, seq: seq.0, bytes })
        }
        Joined::Present | Joined::FromFirstEntry => {
            let what = format!("there is a database in {}, which is not replaced", dir.display());
            Err(DirectoryError::new(Class::Conflict, what, "--at names a directory without one"))
        }
    }
}

/// Before the log service is called, so that a wrong name is reported at once.
fn check_database(dir: &Path) -> Result<(), DirectoryError> {
    if dir.join("store").is_dir() {
        return Ok(());
    }
    Err(ReseedError::NoDatabase { dir: dir.to_owned() }.into())
}

impl From<ReseedError> for DirectoryError {
    fn from(error: ReseedError) -> Self {
        let (class, remedy) = match &error {
            ReseedError::Engine(error) => {
                let class = ropewalk::Error::from(error.clone()).class();
                (class, if class == Class::Busy { "Stop the process that has it open" } else { "" })
            }
            ReseedError::Shared(error) => (class_of_log(error), ""),
            ReseedError::Checkpoints(error) => (class_of_checkpoints(error), ""),
            ReseedError::NoDatabase { .. } => (Class::NotFound, ""),
            ReseedError::NoCopy => (Class::Invalid, "--from DIR names one"),
            ReseedError::NotEmpty { .. } => (Class::Conflict, "Nothing was written"),
            ReseedError::OtherLog { .. } => (Class::Invalid, "All copies have to be of one cluster"),
            ReseedError::Differ { .. } => {
                (Class::Invalid, "One of them is damaged or has another history: decide, and leave it out")
            }
            ReseedError::Longer { .. } => (
                Class::Conflict,
                "--from adds the directory of that node; --accept-loss gives the commits up",
            ),
            ReseedError::Append { .. } => (Class::Io, "The copies are as they were"),
            ReseedError::Foreign { .. } => (
                Class::Conflict,
                "Nothing was changed; a node with an empty directory begins with a checkpoint of the new log",
            ),
            _ => (Class::Internal, ""),
        };
        Self::new(class, error.to_string(), remedy)
    }
}

fn class_of_log(error: &SharedError) -> Class {
    match error {
        SharedError::Unavailable { .. } => Class::Io,
        SharedError::Trimmed { .. } | SharedError::Lost { .. } => Class::Corrupt,
    }
}

fn class_of_checkpoints(error: &CheckpointError) -> Class {
    match error {
        CheckpointError::Engine(error) => ropewalk::Error::from(error.clone()).class(),
        CheckpointError::Shared(error) => class_of_log(error),
        CheckpointError::Damaged { .. } | CheckpointError::Withdrawn { .. } => Class::Corrupt,
        CheckpointError::NoneFits { .. } | CheckpointError::NoneComplete { .. } => Class::NotFound,
        CheckpointError::NotReplaced { .. } => Class::Conflict,
        CheckpointError::Io { source, .. } if source.kind() == std::io::ErrorKind::WouldBlock => Class::Busy,
        _ => Class::Io,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use ropewalk::cluster::{LogId, MemorySharedLog, SharedOptions};
    use ropewalk::engine::KeyspaceOptions;
    use ropewalk::{Database, Durability, Options, Seq};

    use super::*;

    fn put(db: &Database, value: &[u8]) -> Seq {
        let keys = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        db.put(keys, b"k", value, Durability::Sync).unwrap()
    }

    /// A database alone in `dir`; returns its newest commit.
    fn alone(dir: &Path) -> Seq {
        let db = Options::new().open(dir).unwrap();
        let seq = put(&db, b"alone");
        db.close().unwrap();
        seq
    }

    fn from(dir: &Path) -> NewLog {
        NewLog { copies: vec![dir.to_owned()], is_alone: true, accepts_loss: false }
    }

    /// Opens the database in `dir` as node `number`, applies all entries, and leads.
    fn lead(log: &MemorySharedLog, dir: &Path, number: u8) -> Database {
        let shared = SharedOptions::new(Arc::new(log.handle()), [number; 16], "http://a:1".to_owned());
        let db = Options::new().shared(shared).open(dir).unwrap();
        loop {
            let after = db.engine().place().index;
            let entries = log.read(after, 1 << 20, core::time::Duration::ZERO).unwrap();
            if entries.is_empty() {
                break;
            }
            for entry in &entries {
                db.engine().follow(entry).unwrap();
            }
        }
        assert!(db.engine().campaign().unwrap());
        db.begin_leading().unwrap();
        db
    }

    #[test]
    fn database_becomes_the_first_node_and_is_alone_again_after_leaving() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("db");
        let seq = alone(&dir);
        let log = MemorySharedLog::new(LogId([7; 16]));
        let made = write_log(&log, None, &from(&dir)).unwrap();
        assert_eq!((made.seq, made.from.as_path(), made.lost), (seq.0, dir.as_path(), None));
        let again = write_log(&log, None, &from(&dir)).unwrap_err();
        assert_eq!(again.class(), Class::Conflict, "{again}");

        let name = identity::of(&dir).unwrap();
        let db = lead(&log, &dir, 1);
        let newest = put(&db, b"led");
        let busy = leave(&dir).unwrap_err();
        assert_eq!((busy.class(), busy.remedy().is_empty()), (Class::Busy, false), "{busy}");
        db.close().unwrap();
        assert!(Options::new().open(&dir).is_err(), "a node is not opened alone");
        let left = leave(&dir).unwrap();
        assert_eq!((left.seq, left.entry.is_some()), (newest.0, true));
        let db = Options::new().open(&dir).unwrap();
        assert_eq!(db.seq(), newest);
        db.close().unwrap();
        let error = leave(&dir).unwrap_err();
        assert_eq!((error.class(), error.to_string().contains("not a node")), (Class::Conflict, true));
        assert_ne!(identity::of(&dir).unwrap(), name, "as another node it has another name");
    }

    #[test]
    fn lost_cluster_is_restored_from_its_checkpoints() {
        let place = tempfile::tempdir().unwrap();
        let (dir, store) =
            (place.path().join("db"), place.path().join("checkpoints").to_str().unwrap().to_owned());
        let log = MemorySharedLog::new(LogId([7; 16]));
        let db = lead(&log, &dir, 1);
        let seq = put(&db, b"in the checkpoint");
        let missing = restore(&store, &dir, &mut |_| ()).unwrap_err();
        assert_eq!((missing.class(), Path::new(&store).exists()), (Class::NotFound, false), "{missing}");
        let checkpoints = Checkpoints::new(checkpoints::open(&store).unwrap());
        let mut maker =
            ropewalk_cluster::checkpoint::Maker::new(checkpoints, db.clone(), &dir, [1; 16], "http://a:1");
        maker.make().unwrap();
        drop(maker);
        db.close().unwrap();
        let present = restore(&store, &dir, &mut |_| ()).unwrap_err();
        assert_eq!(present.class(), Class::Conflict, "{present}");

        let copy = place.path().join("copy");
        let restored = restore(&store, &copy, &mut |_| ()).unwrap();
        assert_eq!((restored.checkpoint, restored.seq), (1, seq.0));
        let new = MemorySharedLog::new(LogId([8; 16]));
        let made = write_log(&new, None, &NewLog { is_alone: false, ..from(&copy) }).unwrap();
        assert_eq!(made.seq, seq.0);
        let db = lead(&new, &copy, 2);
        assert_eq!((db.seq(), put(&db, b"on the new log")), (seq, seq.next()));
    }

    #[test]
    fn wrong_directories_are_reported_before_the_log_service_is_called() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("db");
        let settings = Settings::default();
        let error = make_log(&settings, &from(&dir)).unwrap_err();
        assert_eq!(error.class(), Class::NotFound, "{error}");
        assert_eq!(adopt(&settings, &dir).unwrap_err().class(), Class::NotFound);
        assert_eq!(leave(&dir).unwrap_err().class(), Class::NotFound);
        assert!(!dir.exists(), "nothing is created");
        alone(&dir);
        std::fs::write(dir.join(PLACE), "").unwrap();
        let error = make_log(&settings, &from(&dir)).unwrap_err();
        assert!(error.to_string().contains("is a node"), "{error}");
        let no_copy = NewLog { copies: Vec::<PathBuf>::new(), ..from(&dir) };
        let error = write_log(&MemorySharedLog::new(LogId([7; 16])), None, &no_copy).unwrap_err();
        assert_eq!(error.class(), Class::Invalid, "{error}");
    }
}
