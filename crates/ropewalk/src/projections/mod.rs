//! Materialised projections: what the events of a store mean, kept as rows and documents.
//!
//!   events behind the checkpoint ─▶ apply, in one transaction ─▶ checkpoint, in the same commit ─▶ effects
//!
//! Invariants
//! 1. A checkpoint and what was applied up to it are of one commit: every event is applied exactly once, whatever crashes.
//! 2. A generation is one build of the outputs. Readers see the outputs under their own names: one generation, whole.
//! 3. A rebuild writes beside them, under names of its own, and takes their place in one commit. At that moment its
//!    checkpoint is the live one, so that no event is missing, and none has its effects twice.
//!
//! Not here: what is kept (`record`), batches and following (`live`), building anew (`rebuild`).

mod error;
mod live;
mod rebuild;
mod record;
mod run;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use ropewalk_engine::{Durability, Isolation, KeyspaceOptions};
use ropewalk_events::{EventStore, Query, SequencedEvent};

pub use error::{ApplyError, ProjectionError};
pub use live::{Progress, Running};
pub use rebuild::{RebuildMode, Rebuilt};
pub use record::ProjectionFailure;
pub use run::{Output, ProjectionRun};
pub use status::{ProjectionStatus, RebuildStatus};

use crate::database::Database;
use crate::error::Error;
use crate::keyspace::Keyspace;
use crate::names::check_name;
use crate::transaction::Transaction;

/// Where the records of all projections lie.
const KEYSPACE: &str = "sys.projections";
/// How often a batch that meets other commits is tried again.
const ATTEMPTS: usize = 1_000;

/// What the events of a query become: rows and documents.
///
/// An implementation writes through [`ProjectionRun::tx`] alone, and asks [`ProjectionRun::table`] and
/// [`ProjectionRun::collection`] where to, since a rebuild writes elsewhere until it is whole.
pub trait MaterializedProjection: Send + Sync {
    /// The events it needs.
    fn query(&self) -> Query;

    /// The tables and collections that it writes, which are its own. A table that foreign keys of others refer to, and a
    /// collection with references, cannot be swapped by a rebuild.
    fn outputs(&self) -> Vec<Output>;

    /// Makes the tables, collections and indexes of a new generation, in the transaction of its first batch.
    ///
    /// # Errors
    /// What the database answers, or anything of the application's.
    fn prepare(&self, _run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        Ok(())
    }

    /// Applies one event. It may be called again for the same event when its transaction could not commit, so that it must
    /// have no effect but on the transaction; see [`ProjectionRun::after_commit`] for what else is to happen.
    ///
    /// # Errors
    /// Whatever keeps the event from being applied: the projection stops there, with what was applied before kept.
    /// Conflicts and failures of the machine, handed on as they are, do not count as the event's.
    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEvent) -> Result<(), ApplyError>;
}

/// How projections work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectionOptions {
    /// Most events of one commit.
    pub batch_events: usize,
    /// Most events of one commit of a rebuild.
    pub rebuild_batch_events: usize,
    /// Most projections that are rebuilt side by side, each in a thread.
    pub rebuilds_at_once: usize,
    /// How durable a commit is when its effects run.
    pub durability: Durability,
}

impl Default for ProjectionOptions {
    fn default() -> Self {
        Self {
            batch_events: 1_000,
            rebuild_batch_events: 5_000,
            rebuilds_at_once: 4,
            durability: Durability::Sync,
        }
    }
}

/// A projection under its name.
struct Registered {
    name: String,
    handler: Arc<dyn MaterializedProjection>,
    /// Held by whoever applies live events, and by a rebuild while it takes over.
    turn: Mutex<()>,
    /// Held by a rebuild.
    rebuild: Mutex<()>,
}

struct Inner {
    db: Database,
    store: EventStore,
    keyspace: Keyspace,
    options: ProjectionOptions,
    registered: RwLock<BTreeMap<String, Arc<Registered>>>,
    /// How often rebuilds were told to end.
    interruptions: AtomicU64,
}

/// The projections of one event store. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use ropewalk::documents::lang::{Value, Writer};
/// use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun};
/// use ropewalk::{Database, Event, Query, SequencedEvent};
///
/// /// One document for each order.
/// struct Orders;
///
/// impl MaterializedProjection for Orders {
///     fn query(&self) -> Query {
///         Query::from_types(["Placed"])
///     }
///
///     fn outputs(&self) -> Vec<Output> {
///         vec![Output::collection("orders")]
///     }
///
///     fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEvent) -> Result<(), ApplyError> {
///         let orders = run.collection("orders")?;
///         let mut order = Writer::new();
///         order.put("_id", Value::Int64(event.position.0 as i64));
///         run.tx().documents().insert_one(&orders, order.finish().bytes())?;
///         run.after_commit(|| { /* tell somebody; not done while a rebuild replays */ });
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), ropewalk::Error> {
/// let db = Database::in_memory()?;
/// db.events("shop")?.append(&[Event::new("Placed"), Event::new("Seen")], None)?;
/// let projections = db.projections("shop")?;
/// projections.register("orders", Arc::new(Orders))?;
/// assert_eq!(projections.catch_up("orders")?.applied, 1);
/// let status = projections.status("orders")?;
/// assert_eq!((status.checkpoint.map(|p| p.0), status.lag), (Some(2), 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Projections(Arc<Inner>);

impl Database {
    /// The projections of the event store `store`. They are registered with the answer; what they have applied is kept in
    /// the database.
    ///
    /// # Errors
    /// A name that no store may have; the manifest cannot be written.
    pub fn projections(&self, store: &str) -> Result<Projections, Error> {
        self.projections_with(store, ProjectionOptions::default())
    }

    /// As [`Database::projections`], working otherwise.
    ///
    /// # Errors
    /// As [`Database::projections`].
    pub fn projections_with(&self, store: &str, options: ProjectionOptions) -> Result<Projections, Error> {
        Ok(Projections(Arc::new(Inner {
            db: self.clone(),
            store: self.events(store)?,
            keyspace: self.keyspace(KEYSPACE, KeyspaceOptions::default())?,
            options,
            registered: RwLock::default(),
            interruptions: AtomicU64::new(0),
        })))
    }
}

impl Projections {
    /// Makes a projection known under `name`, 1 to 255 bytes, by which its checkpoint is kept.
    ///
    /// # Errors
    /// A name that is empty, too long, holds control characters, or is taken.
    pub fn register(&self, name: &str, handler: Arc<dyn MaterializedProjection>) -> Result<(), Error> {
        check_name("projection", name)?;
        let mut registered = self.0.registered.write();
        if registered.contains_key(name) {
            return Err(ProjectionError::Duplicate { name: name.to_owned() }.into());
        }
        let (turn, rebuild) = (Mutex::new(()), Mutex::new(()));
        let one = Registered { name: name.to_owned(), handler, turn, rebuild };
        registered.insert(name.to_owned(), Arc::new(one));
        Ok(())
    }

    /// The names that are registered, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.registered.read().keys().cloned().collect()
    }

    /// Ends the rebuilds that are under way after their batch; [`RebuildMode::ResumeOnly`] resumes them.
    pub fn interrupt_rebuilds(&self) {
        self.0.interruptions.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets a projection: its record, its outputs, and those of a rebuild, in one commit. It stays registered and begins
    /// anew when it is next asked to catch up.
    ///
    /// # Errors
    /// [`ProjectionError::Unknown`]; outputs that others refer to.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let one = self.0.one(name)?;
        let (_rebuild, _turn) = (one.rebuild.lock(), one.turn.lock());
        self.0.attempt(|tx| self.0.forget(tx, &one))
    }

    /// Moves the checkpoint past the event that the projection fails on, which is never applied then. Answers its position;
    /// `None` when there is no such event.
    ///
    /// # Errors
    /// [`ProjectionError::Unknown`]; damage.
    pub fn skip_failing(&self, name: &str) -> Result<Option<ropewalk_base::Position>, Error> {
        let one = self.0.one(name)?;
        let _turn = one.turn.lock();
        self.0.attempt(|tx| self.0.skip(tx, &one))
    }
}

impl Inner {
    fn one(&self, name: &str) -> Result<Arc<Registered>, Error> {
        let found = self.registered.read().get(name).cloned();
        found.ok_or_else(|| ProjectionError::Unknown { name: name.to_owned() }.into())
    }

    /// Runs `work` in a transaction until it commits.
    fn attempt<R>(&self, work: impl FnMut(&mut Transaction) -> Result<R, Error>) -> Result<R, Error> {
        self.db.transact_with(Isolation::Serializable, self.options.durability, ATTEMPTS, work)
    }

    fn replaced(&self, one: &Registered) -> Error {
        let (name, store) = (one.name.clone(), self.store.name().to_owned());
        ProjectionError::StoreReplaced { name, store }.into()
    }
}
