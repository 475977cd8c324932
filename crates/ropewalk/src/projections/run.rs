//! One batch as a projection sees it: transaction, outputs, and effects to run after the commit.

use core::fmt;
use core::time::Duration;

use ropewalk_base::rebuild_name;
use ropewalk_documents::{Collection, DocumentsError};
use ropewalk_engine::EngineError;
use ropewalk_events::EventBatch;
use ropewalk_tables::{Table, TablesError};
use ropewalk_vfs::Clock;

use super::Registered;
use crate::database::DOCUMENT_DATABASE;
use crate::database::transaction::Transaction;
use crate::error::projection::passing;
use crate::error::{Error, ProjectionError, Result};
use ropewalk_events::ApplyError;

/// A table or collection that a projection writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Output {
    /// A table.
    Table(String),
    /// A collection.
    Collection {
        /// The database name.
        database: String,
        /// The collection name.
        name: String,
    },
}

impl Output {
    /// Creates a table output.
    pub fn table(name: impl Into<String>) -> Self {
        Self::Table(name.into())
    }

    /// Creates a collection output in the database [`DOCUMENT_DATABASE`].
    pub fn collection(name: impl Into<String>) -> Self {
        Self::collection_in(DOCUMENT_DATABASE, name)
    }

    /// Creates a collection output in the given database.
    pub fn collection_in(database: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Collection { database: database.into(), name: name.into() }
    }
}

impl Output {
    /// The output as a rebuild writes it.
    pub(super) fn rebuilt(self, generation: u64) -> Self {
        match self {
            Self::Table(name) => Self::Table(rebuild_name(&name, generation)),
            Self::Collection { database, name } => {
                Self::Collection { database, name: rebuild_name(&name, generation) }
            }
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(name) => write!(f, "table {name}"),
            Self::Collection { database, name } => write!(f, "collection {database}.{name}"),
        }
    }
}

pub(super) type Effect = Box<dyn FnOnce()>;

/// An output, and the name under which this generation writes it.
struct Written {
    output: Output,
    name: String,
}

/// A batch of events that a projection applies in one transaction.
pub struct ProjectionRun<'a> {
    tx: &'a mut Transaction,
    projection: &'a str,
    outputs: Vec<Written>,
    generation: u64,
    replay: bool,
    applied: usize,
    effects: Vec<Effect>,
}

impl<'a> ProjectionRun<'a> {
    pub(super) fn new(tx: &'a mut Transaction, one: &'a Registered, generation: u64, replay: bool) -> Self {
        if replay {
            tx.mark_replay();
            tx.mark_rebuild();
        }
        let written = |output: Output| {
            let (Output::Table(name) | Output::Collection { name, .. }) = &output;
            let name = if replay { rebuild_name(name, generation) } else { name.clone() };
            Written { output, name }
        };
        let outputs = one.handler.outputs().into_iter().map(written).collect();
        let projection = &one.name;
        Self { tx, projection, outputs, generation, replay, applied: 0, effects: Vec::new() }
    }

    /// The transaction of this batch.
    ///
    /// If an event cannot be applied, only changes made here are undone.
    pub fn tx(&mut self) -> &mut Transaction {
        self.tx
    }

    /// The generation of the outputs that is written, from 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of events that this batch has applied.
    pub fn applied(&self) -> usize {
        self.applied
    }

    /// True while a rebuild applies events again: skip effects that must happen only once.
    pub fn is_replay(&self) -> bool {
        self.replay
    }

    /// Runs `effect` once, after the commit of this batch has reached the durability of the options.
    ///
    /// It is skipped during a replay and if the batch does not commit. A crash between the commit and the
    /// effect loses the effect: what must happen belongs in the transaction.
    pub fn after_commit(&mut self, effect: impl FnOnce() + 'static) {
        if !self.replay {
            self.effects.push(Box::new(effect));
        }
    }

    /// Returns the name under which this generation writes the output `name`.
    ///
    /// # Errors
    /// [`ProjectionError::UnknownOutput`].
    pub fn name(&self, name: &str) -> Result<String> {
        let is_named = |written: &&Written| match &written.output {
            Output::Table(own) | Output::Collection { name: own, .. } => own == name,
        };
        let found = self.outputs.iter().find(is_named);
        found.map(|written| written.name.clone()).ok_or_else(|| self.unknown(name))
    }

    /// Returns the table that this generation writes for the output `name`.
    ///
    /// # Errors
    /// [`ProjectionError::UnknownOutput`]; [`TablesError::UnknownTable`] if
    /// [`prepare`](super::MaterializedProjection::prepare) did not create it.
    pub fn table(&mut self, name: &str) -> Result<Table> {
        let is_wanted =
            |written: &&Written| matches!(&written.output, Output::Table(own) if own.as_str() == name);
        match self.outputs.iter().find(is_wanted) {
            Some(written) => Ok(self.tx.tables().table(&written.name)?),
            None => Err(self.unknown(Output::table(name))),
        }
    }

    /// Returns the collection for the output `name` in the database [`DOCUMENT_DATABASE`].
    ///
    /// # Errors
    /// As [`ProjectionRun::collection_in`].
    pub fn collection(&mut self, name: &str) -> Result<Collection> {
        self.collection_in(DOCUMENT_DATABASE, name)
    }

    /// Returns the collection for the output `name` in the given database.
    ///
    /// # Errors
    /// [`ProjectionError::UnknownOutput`]; names not allowed for a database or collection.
    pub fn collection_in(&mut self, database: &str, name: &str) -> Result<Collection> {
        let is_wanted = |written: &&Written| match &written.output {
            Output::Collection { database: own, name: named } => own == database && named == name,
            Output::Table(_) => false,
        };
        match self.outputs.iter().find(is_wanted) {
            Some(written) => Ok(self.tx.documents().collection(database, &written.name)?),
            None => Err(self.unknown(Output::collection_in(database, name))),
        }
    }

    /// The error of an output that the projection does not declare.
    fn unknown(&self, output: impl fmt::Display) -> Error {
        let declared = self.outputs.iter().map(|written| written.output.to_string()).collect();
        let (name, output) = (self.projection.to_owned(), output.to_string());
        ProjectionError::UnknownOutput { name, output, declared }.into()
    }

    pub(super) fn prepare(&mut self, one: &Registered) -> Result<()> {
        one.handler.prepare(self).map_err(|error| self.unprepared(error))
    }

    pub(super) fn begin(&mut self, one: &Registered) -> Result<()> {
        one.handler.begin(self).map_err(|error| self.unprepared(error))
    }

    /// The error of a handler that does not concern an event.
    fn unprepared(&self, error: ApplyError) -> Error {
        let source = match passing(error) {
            Ok(error) => return error,
            Err(source) => source,
        };
        let (name, generation) = (self.projection.to_owned(), self.generation);
        match self.live_table(&source) {
            Some(table) => ProjectionError::LiveName { name, generation, table }.into(),
            None => ProjectionError::Unprepared { name, generation, source }.into(),
        }
    }

    /// The output whose live table has the name that this generation tried to create.
    fn live_table(&self, source: &ApplyError) -> Option<String> {
        let Some(Error::Tables(TablesError::Duplicate { name, .. })) = source.downcast_ref::<Error>() else {
            return None;
        };
        let wanted = Output::table(name);
        let is_output = self.outputs.iter().any(|written| written.output == wanted);
        (self.replay && is_output).then(|| name.clone())
    }

    /// Applies `events`; returns how many were applied and the error of the next one, which is rolled back.
    ///
    /// The batch ends before an event that exceeds the limits of a transaction, unless it is the first, and
    /// when its time is over.
    pub(super) fn apply(
        &mut self,
        one: &Registered,
        events: &EventBatch,
        mut timer: Timer<'_>,
    ) -> Result<(usize, Option<ApplyError>)> {
        for (applied, event) in events.iter().enumerate() {
            if applied > 0 && timer.is_over() {
                return Ok((applied, None));
            }
            self.applied = applied;
            let (place, effects) = (self.tx.place(), self.effects.len());
            let Err(error) = one.handler.apply(self, &event) else { continue };
            let source = match passing(error) {
                Ok(error) => return Err(error),
                Err(source) => source,
            };
            self.tx.back_to(&place);
            self.effects.truncate(effects);
            let is_full = applied > 0
                && matches!(
                    source.downcast_ref::<Error>(),
                    Some(Error::Engine(EngineError::TooLarge { .. }))
                );
            return Ok((applied, Some(source).filter(|_| !is_full)));
        }
        Ok((events.len(), None))
    }

    pub(super) fn into_effects(self) -> Vec<Effect> {
        self.effects
    }
}

/// The time of a batch. Its clock is read at every event while events are slow, and rarely while they are quick.
pub(super) struct Timer<'c> {
    clock: &'c dyn Clock,
    end: u64,
    read_at: u64,
    /// Events until the clock is read, and from one reading to the next.
    left: u32,
    stride: u32,
}

/// Most events between two readings of the clock.
const STRIDE_MAX: u32 = 8;
/// Events are quick if that many of them take less time, nanoseconds.
const QUICK_NANOS: u64 = 100_000;

impl<'c> Timer<'c> {
    /// Starts a batch that may take `time`.
    pub(super) fn start(clock: &'c dyn Clock, time: Duration) -> Self {
        Self { clock, end: clock.deadline(time), read_at: clock.monotonic_nanos(), left: 1, stride: 1 }
    }

    fn is_over(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        let now = self.clock.monotonic_nanos();
        let is_quick = now.saturating_sub(self.read_at) < QUICK_NANOS;
        self.stride = if is_quick { (self.stride * 2).min(STRIDE_MAX) } else { 1 };
        (self.read_at, self.left) = (now, self.stride);
        now > self.end
    }
}

/// Drops the live outputs, or with `generation` those of that rebuild.
pub(super) fn drop_outputs(tx: &mut Transaction, outputs: &[Output], generation: Option<u64>) -> Result<()> {
    let name_of =
        |name: &str| generation.map_or_else(|| name.to_owned(), |number| rebuild_name(name, number));
    for output in outputs {
        match output {
            Output::Table(name) => drop_table(tx, &name_of(name))?,
            Output::Collection { database, name } => {
                let mut documents = tx.documents();
                let collection = documents.collection(database, &name_of(name))?;
                documents.drop_collection(&collection)?;
            }
        }
    }
    Ok(())
}

/// Gives the collections of a rebuild the access rules that the live ones have now: readers find them by name,
/// and later they replace the live ones.
pub(super) fn copy_rules(tx: &mut Transaction, outputs: &[Output], generation: u64) -> Result<()> {
    for output in outputs {
        let Output::Collection { database, name } = output else { continue };
        let mut documents = tx.documents();
        let built = documents.collection(database, &rebuild_name(name, generation))?;
        let live = documents.collection(database, name)?;
        documents.copy_rules(&live, &built)?;
    }
    Ok(())
}

/// Replaces the live outputs with those of a rebuild.
pub(super) fn swap_outputs(tx: &mut Transaction, outputs: &[Output], generation: u64) -> Result<()> {
    // The live name may be one that is reserved now: it may be older than the rule.
    tx.mark_rebuild();
    copy_rules(tx, outputs, generation)?;
    for output in outputs {
        match output {
            Output::Table(name) => {
                let built = rebuild_name(name, generation);
                drop_table(tx, name)?;
                if has_table(tx, &built)? {
                    tx.tables().rename_table(&built, name)?;
                }
            }
            Output::Collection { database, name } => {
                let mut documents = tx.documents();
                let built = documents.collection(database, &rebuild_name(name, generation))?;
                let place = documents.collection(database, name)?;
                match documents.rename_collection(&built, &place, true) {
                    // The first document would have created it, so the rebuild produced no documents.
                    Err(DocumentsError::UnknownCollection { .. }) => {
                        documents.drop_collection(&place)?;
                    }
                    renamed => renamed?,
                }
            }
        }
    }
    Ok(())
}

fn has_table(tx: &mut Transaction, name: &str) -> Result<bool> {
    match tx.tables().table(name) {
        Ok(_) => Ok(true),
        Err(TablesError::UnknownTable { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn drop_table(tx: &mut Transaction, name: &str) -> Result<()> {
    if has_table(tx, name)? {
        tx.tables().drop_table(name)?;
    }
    Ok(())
}
