//! Materialised projections: rows and documents derived from the events of a store.
//!
//!   events after the checkpoint ─▶ apply, in one transaction ─▶ checkpoint, in the same commit ─▶ effects
//!
//! Invariants
//! 1. A checkpoint and the results up to it are one commit, so each event is applied exactly once despite
//!    crashes.
//! 2. A generation is one build of the outputs. Readers always see one complete generation, under the output
//!    names.
//! 3. A rebuild writes under separate names and replaces the outputs in one commit. At that point its
//!    checkpoint equals the live one, so no event is missing and no effect runs twice.
//!
//! Not here: stored records (`record`), batches and following (`live`), rebuilds (`rebuild`), changes of stored
//! state without a handler (`unregistered`).

mod live;
mod rebuild;
mod record;
mod run;
mod status;
mod unregistered;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use ropewalk_engine::{Durability, Isolation};
use ropewalk_events::{EventStore, Query, SequencedEventRef};

pub use crate::error::ProjectionError;
pub use live::{Progress, Running};
pub use rebuild::{RebuildMode, Rebuilt};
pub use record::ProjectionFailure;
pub use ropewalk_events::ApplyError;
pub use run::{Output, ProjectionRun};
pub use status::{ProjectionStatus, RebuildStatus};

use crate::database::Database;
use crate::database::system_keyspace::SystemKeyspace;
use crate::database::transaction::Transaction;
use crate::error::{Error, Result};
use crate::names::check_name;

/// Keyspace of the records of all projections.
const KEYSPACE: &str = "sys.projections";
/// Most attempts of a batch that conflicts with other commits.
const ATTEMPTS: usize = 1_000;

/// A projection: derives rows and documents from the events of a query.
///
/// An implementation writes only through [`ProjectionRun::tx`], to the outputs that [`ProjectionRun::table`]
/// and [`ProjectionRun::collection`] return, since a rebuild writes elsewhere until it is complete.
pub trait MaterializedProjection: Send + Sync {
    /// The events that it needs.
    fn query(&self) -> Query;

    /// The tables and collections that it writes, exclusively.
    ///
    /// A rebuild cannot swap a table that foreign keys of other tables refer to, or a collection with
    /// references.
    fn outputs(&self) -> Vec<Output>;

    /// Creates the tables, collections and indexes of a new generation.
    ///
    /// It runs in the transaction of the first batch.
    ///
    /// # Errors
    /// Errors of the database or of the application.
    fn prepare(&self, _run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        Ok(())
    }

    /// Runs before the events of each batch, in its transaction.
    ///
    /// # Errors
    /// An error ends the batch and does not count as a failure of an event.
    fn begin(&self, _run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        Ok(())
    }

    /// Applies one event.
    ///
    /// It may be called again for the same event if its transaction could not commit, so it must have no
    /// effects outside the transaction; see [`ProjectionRun::after_commit`] for those.
    ///
    /// # Errors
    /// Any error that prevents the event from being applied. The projection stops at the event; earlier
    /// results are preserved. Conflicts and failures of the machine, returned unchanged, are retried or
    /// reported but do not count as failures of the event; nor does `EngineError::TooLarge`, which ends the
    /// batch before the event, unless it is the first of the batch.
    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError>;
}

/// Batch sizes, parallelism and durability of projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectionOptions {
    /// Most events of one commit.
    pub batch_events: usize,
    /// Most events of one commit of a rebuild.
    pub rebuild_batch_events: usize,
    /// Most projections that are rebuilt in parallel, one thread each.
    pub rebuilds_at_once: usize,
    /// Durability that the checkpoint has when a call returns, or a batch that follows the head is applied, and
    /// that a commit reaches before its effects run.
    ///
    /// With [`Durability::Sync`], earlier batches of a catch-up or a rebuild without effects are buffered: each is
    /// one commit with its checkpoint, so a power cut only repeats their work.
    pub durability: Durability,
}

impl Default for ProjectionOptions {
    fn default() -> Self {
        Self {
            batch_events: 5_000,
            rebuild_batch_events: 5_000,
            rebuilds_at_once: 4,
            durability: Durability::Sync,
        }
    }
}

/// A registered projection.
struct Registered {
    name: String,
    handler: Arc<dyn MaterializedProjection>,
    /// Held while live events are applied, and by a rebuild while it takes over.
    turn: Mutex<()>,
    /// Held during a rebuild.
    rebuild: Mutex<()>,
    /// The last live batch was followed by more events, so its commit may not be durable.
    is_unsynced: AtomicBool,
}

struct Inner {
    db: Database,
    store: EventStore,
    keyspace: SystemKeyspace,
    options: ProjectionOptions,
    registered: RwLock<BTreeMap<String, Arc<Registered>>>,
    /// Number of calls to interrupt rebuilds.
    interruptions: AtomicU64,
}

/// The projections of one event store. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use ropewalk::documents::lang::{Value, Writer};
/// use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun};
/// use ropewalk::{Database, Event, Query};
/// use ropewalk::events::SequencedEventRef;
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
///     fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
///         let orders = run.collection("orders")?;
///         let mut order = Writer::new();
///         order.put("_id", Value::Int64(event.position.0 as i64));
///         run.tx().documents().insert_one(&orders, order.finish().bytes())?;
///         run.after_commit(|| { /* notify a user; skipped while a rebuild replays */ });
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
    /// Returns the projections of the event store `store`.
    ///
    /// Handlers are registered with the returned value; checkpoints and outputs are stored in the database.
    ///
    /// # Errors
    /// The name is not allowed for a store, or the commit that defines its keyspace fails.
    pub fn projections(&self, store: &str) -> Result<Projections> {
        self.projections_with(store, ProjectionOptions::default())
    }

    /// Same as [`Database::projections`], with options.
    ///
    /// # Errors
    /// As [`Database::projections`].
    pub fn projections_with(&self, store: &str, options: ProjectionOptions) -> Result<Projections> {
        Ok(Projections(Arc::new(Inner {
            db: self.clone(),
            store: self.events(store)?,
            keyspace: self.system_keyspace(KEYSPACE)?,
            options,
            registered: RwLock::default(),
            interruptions: AtomicU64::new(0),
        })))
    }
}

impl Projections {
    /// Registers a projection under `name`, which identifies its checkpoint.
    ///
    /// # Errors
    /// The name is empty, longer than 255 bytes, contains control characters, or is already registered;
    /// [`ProjectionError::SharedOutput`].
    pub fn register(&self, name: &str, handler: Arc<dyn MaterializedProjection>) -> Result<()> {
        check_name("projection", name)?;
        let mut registered = self.0.registered.write();
        if registered.contains_key(name) {
            return Err(ProjectionError::Duplicate { name: name.to_owned() }.into());
        }
        let outputs = handler.outputs();
        for other in registered.values() {
            if let Some(output) = other.handler.outputs().iter().find(|output| outputs.contains(output)) {
                let (name, other, output) = (name.to_owned(), other.name.clone(), output.to_string());
                return Err(ProjectionError::SharedOutput { name, other, output }.into());
            }
        }
        let (turn, rebuild, is_unsynced) = (Mutex::new(()), Mutex::new(()), AtomicBool::new(false));
        let one = Registered { name: name.to_owned(), handler, turn, rebuild, is_unsynced };
        registered.insert(name.to_owned(), Arc::new(one));
        Ok(())
    }

    /// Removes a registration, after the current batch; its stored state remains.
    ///
    /// Returns false for a name that is not registered.
    pub fn unregister(&self, name: &str) -> bool {
        let Some(one) = self.0.registered.write().remove(name) else { return false };
        drop((one.rebuild.lock(), one.turn.lock()));
        true
    }

    /// Returns the registered names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.registered.read().keys().cloned().collect()
    }

    /// Interrupts running rebuilds after their current batch.
    ///
    /// [`RebuildMode::ResumeOnly`] resumes them.
    pub fn interrupt_rebuilds(&self) {
        self.0.interruptions.fetch_add(1, Ordering::AcqRel);
    }

    /// Deletes the record and outputs of a projection, and those of its rebuild, in one commit.
    ///
    /// It stays registered and starts from the first event when it next catches up.
    ///
    /// # Errors
    /// [`ProjectionError::Unknown`]; outputs that other objects refer to.
    pub fn remove(&self, name: &str) -> Result<()> {
        let one = self.0.one(name)?;
        let (_rebuild, _turn) = (one.rebuild.lock(), one.turn.lock());
        self.0.attempt(|tx| self.0.forget(tx, &one))
    }

    /// Skips the event that the projection fails on, which is then never applied.
    ///
    /// Returns its position, or `None` if there is no failing event.
    ///
    /// # Errors
    /// [`ProjectionError::Unknown`]; corrupt data.
    pub fn skip_failing(&self, name: &str) -> Result<Option<ropewalk_base::Position>> {
        let one = self.0.one(name)?;
        let _turn = one.turn.lock();
        self.0.attempt(|tx| self.0.skip(tx, &one.name))
    }
}

impl Inner {
    fn one(&self, name: &str) -> Result<Arc<Registered>> {
        let found = self.registered.read().get(name).cloned();
        found.ok_or_else(|| ProjectionError::Unknown { name: name.to_owned() }.into())
    }

    /// Runs `work` in a transaction and retries after conflicts.
    fn attempt<R>(&self, work: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        self.keyspace.to_write(&self.db)?;
        self.db.transact_with(Isolation::Serializable, self.options.durability, ATTEMPTS, work)
    }

    fn replaced(&self, one: &Registered) -> Error {
        let (name, store) = (one.name.clone(), self.store.name().to_owned());
        ProjectionError::StoreReplaced { name, store }.into()
    }
}
