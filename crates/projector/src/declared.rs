//! A declared projection as a handler of the facade: planned statements for each type of events.
//!
//! Invariants
//! 1. A batch reads the row of the declaration in its transaction, so a change of it conflicts with the batch.
//! 2. A generation is built by one text. A rebuild plans the statements on the tables and collections that it
//!    fills.
//! 3. A statement has a limit of time, and ends when the runner stops, which is no failure of the event.
//! 4. The parked events of a generation have a limit in number, and their texts one in bytes.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;

use parking_lot::Mutex;
use ropewalk::documents::Collection;
use ropewalk::engine::{EngineError, TRANSACTION_BYTES_MAX};
use ropewalk::events::{ReadOptions, SequencedEventRef};
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionError, ProjectionRun};
use ropewalk::tables::TablesError;
use ropewalk::{Database, Error, EventStore, Position, Query, Transaction};
use ropewalk_sql::{
    Canceller, EventStatement, OnError, PARKED_MAX, ParkedEvent, ProjectionDef, Session, Settings, SqlError,
    StoredProjection, parked_count, state,
};

/// Most bytes of the statement, and of the message, of a parked event.
const PARKED_BYTES_MAX: usize = 4_096;

/// Limits of the statements of a runner.
#[derive(Clone)]
pub(crate) struct Limits {
    /// Cancels every statement once the runner stops.
    pub(crate) stop: Canceller,
    /// Most time of one statement.
    pub(crate) statement_time: Duration,
}

/// A declared projection.
pub(crate) struct Declared {
    db: Database,
    name: String,
    limits: Limits,
    outputs: Vec<Output>,
    query: Query,
    live: Mutex<Option<Build>>,
    rebuild: Mutex<Option<Build>>,
}

/// The statements of one generation.
struct Build {
    generation: u64,
    text: String,
    on_error: OnError,
    session: Session,
    statements: HashMap<String, Vec<Step>>,
    /// The collections that it writes.
    collections: Vec<Collection>,
    /// Number of its parked events, in a batch that has parked one.
    parked_events: Option<u64>,
}

/// A statement, planned on first use, so that an error belongs to an event.
enum Step {
    Text(String),
    Planned(Box<EventStatement>),
}

/// An event that cannot be applied.
#[derive(Debug)]
struct Refused {
    statement: String,
    error: SqlError,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { statement, error } = self;
        write!(f, "{}: {error}; statement: {statement}", error.state)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// The error of the database that this is, if it does not concern the event.
    fn passing(&self, declared: &Declared, tx: &Transaction) -> Option<Error> {
        if self.error.state == state::QUERY_CANCELED && declared.limits.stop.is_cancelled() {
            return Some(ProjectionError::Interrupted { name: declared.name.clone() }.into());
        }
        if self.error.is_retryable() {
            let (what, seq) = (self.error.message.clone(), tx.snapshot().seq());
            return Some(TablesError::Conflict { what, seq }.into());
        }
        declared.db.stopped().filter(|_| self.error.state == state::IO_ERROR)
    }
}

/// The error that ends a batch before an event, which the next batch begins with, if a statement exceeded a limit
/// after the batch had applied events: they may have used it up.
fn full(error: &SqlError, applied: usize, tx: &Transaction) -> Option<ApplyError> {
    let is_full = applied > 0 && error.state == state::PROGRAM_LIMIT_EXCEEDED;
    let (bytes, max) = (tx.write_bytes() as u64, TRANSACTION_BYTES_MAX);
    is_full.then(|| Error::from(EngineError::TooLarge { bytes, max }).into())
}

/// Fails if a collection does not exist: its first document would create it without its indexes.
fn check_exist(collections: &[Collection], tx: &mut Transaction) -> Result<(), SqlError> {
    for collection in collections {
        if !tx.documents().has_collection(collection).map_err(Error::from)? {
            let (database, name) = (collection.database(), collection.name());
            let message = format!("collection \"{database}.{name}\" does not exist");
            return Err(SqlError::new(state::UNDEFINED_TABLE, message));
        }
    }
    Ok(())
}

/// The beginning of a text that is stored with a parked event.
fn cut(mut text: String) -> String {
    let mut end = text.len().min(PARKED_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

impl Build {
    fn new(declared: &Declared, generation: u64, text: &str, settings: Settings) -> Result<Self, SqlError> {
        let def = StoredProjection::parse(text)?;
        let mut statements: HashMap<String, Vec<Step>> = HashMap::new();
        for rule in &def.rules {
            for name in &rule.types {
                let steps = rule.statements.iter().map(|text| Step::Text(text.clone()));
                statements.entry(name.clone()).or_default().extend(steps);
            }
        }
        let Limits { stop, statement_time } = declared.limits.clone();
        // Zero milliseconds would be no limit.
        let statement_millis = u64::try_from(statement_time.as_millis()).unwrap_or(u64::MAX).max(1);
        let settings = Settings { statement_millis, ..settings };
        let documents = declared.db.documents();
        let used = settings.collections.iter();
        let used = used.map(|((database, _), name)| documents.collection(database, name));
        let collections = used.collect::<Result<_, _>>().map_err(Error::from)?;
        let mut session = Session::with_settings(declared.db.clone(), settings);
        session.use_canceller(stop);
        let (text, on_error) = (text.to_owned(), def.on_error);
        Ok(Self { generation, text, on_error, session, statements, collections, parked_events: None })
    }

    /// Runs the statements of an event. After an error, the transaction must be rolled back to its start.
    fn apply(&mut self, tx: &mut Transaction, event: &SequencedEventRef<'_>) -> Result<(), Box<Refused>> {
        let Some(steps) = self.statements.get_mut(event.event_type()) else { return Ok(()) };
        for step in steps {
            check_exist(&self.collections, tx)
                .and_then(|()| step.run(&mut self.session, tx, event))
                .map_err(|error| Box::new(Refused { statement: step.text().to_owned(), error }))?;
        }
        Ok(())
    }

    /// The event, parked because of `refused`.
    fn parked(&self, declared: &Declared, event: &SequencedEventRef<'_>, refused: Refused) -> ParkedEvent {
        ParkedEvent {
            projection: declared.name.clone(),
            generation: self.generation,
            position: event.position.0,
            event_type: event.event_type().to_owned(),
            statement: cut(refused.statement),
            sqlstate: refused.error.state.to_string(),
            message: cut(refused.error.message),
            parked_at: declared.db.engine().env().clock.wall_micros(),
            wants_retry: false,
        }
    }

    /// Parks an event, if there is room.
    fn park(
        &mut self,
        declared: &Declared,
        tx: &mut Transaction,
        event: &SequencedEventRef<'_>,
        (refused, applied): (Refused, usize),
    ) -> Result<(), ApplyError> {
        let known = match self.parked_events {
            Some(known) => known,
            None => parked_count(&declared.db, &tx.snapshot(), &declared.name, self.generation)?,
        };
        if known >= PARKED_MAX {
            return Err(format!("{PARKED_MAX} events are parked, which is the limit; {refused}").into());
        }
        if let Err(error) = self.parked(declared, event, refused).put_in(tx) {
            return Err(full(&error, applied, tx).unwrap_or_else(|| error.into()));
        }
        self.parked_events = Some(known + 1);
        Ok(())
    }
}

impl Step {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Planned(statement) => statement.text(),
        }
    }

    fn run(
        &mut self,
        session: &mut Session,
        tx: &mut Transaction,
        event: &SequencedEventRef<'_>,
    ) -> Result<(), SqlError> {
        loop {
            match self {
                Self::Planned(statement) => return session.apply_event(tx, statement, event),
                Self::Text(text) => *self = Self::Planned(Box::new(session.prepare_for_events(text)?)),
            }
        }
    }
}

impl Declared {
    pub(crate) fn new(db: Database, stored: &StoredProjection, limits: Limits) -> Result<Self, SqlError> {
        let def = StoredProjection::parse(&stored.text)?;
        let before = stored.before.as_deref().map(StoredProjection::parse).transpose()?;
        let mut types: Vec<&str> = before.iter().chain([&def]).flat_map(ProjectionDef::types).collect();
        types.sort_unstable();
        types.dedup();
        Ok(Self {
            db,
            name: stored.name.clone(),
            limits,
            query: Query::from_types(types),
            outputs: def.outputs.clone(),
            live: Mutex::new(None),
            rebuild: Mutex::new(None),
        })
    }

    /// The settings of statements that write each output under the name that `used` returns.
    fn settings(&self, used: impl Fn(&str) -> Result<String, Error>) -> Result<Settings, Error> {
        let mut settings = Settings::default();
        for output in &self.outputs {
            match output {
                Output::Table(name) => settings.redirects.insert(name.clone(), used(name)?),
                Output::Collection { database, name } => {
                    settings.collections.insert((database.clone(), name.clone()), used(name)?)
                }
            };
        }
        Ok(settings)
    }

    fn stored(&self, tx: &mut Transaction) -> Result<StoredProjection, ApplyError> {
        let stored = StoredProjection::read_in(&self.db, tx, &self.name)?;
        stored.ok_or_else(|| "the projection was dropped".into())
    }

    /// Prepares the statements of a generation for a batch, unless they are prepared.
    fn settle(
        &self,
        slot: &mut Option<Build>,
        generation: u64,
        text: &str,
        settings: Settings,
    ) -> Result<(), SqlError> {
        match slot {
            Some(build) if build.generation == generation && build.text == text => {
                build.parked_events = None;
            }
            _ => *slot = Some(Build::new(self, generation, text, settings)?),
        }
        Ok(())
    }

    /// Applies parked events again, until `is_over`: each is no longer parked, or it stays with its new error. Returns
    /// how many were applied or need not be; at least one of them.
    pub(crate) fn retry(
        &self,
        tx: &mut Transaction,
        parked: &[ParkedEvent],
        is_over: &dyn Fn() -> bool,
    ) -> Result<usize, ApplyError> {
        let stored = self.stored(tx)?;
        let live = self.db.projections(&stored.store)?.generation_in(tx, &self.name)?;
        let store = self.db.events(&stored.store)?;
        let mut slot = self.live.lock();
        for (done, one) in parked.iter().enumerate() {
            if done > 0 && is_over() {
                return Ok(done);
            }
            // A rebuild that has replaced the generation has applied the event, or parked it under its number.
            if live != Some(one.generation) || !one.is_stored_in(&self.db, tx)? {
                continue;
            }
            let settings = self.settings(|name| Ok(name.to_owned()))?;
            self.settle(&mut slot, one.generation, stored.text_of(one.generation), settings)?;
            let build = slot.as_mut().ok_or("no statements")?;
            if !self.retry_one(build, tx, &store, (one, done))? {
                return Ok(done);
            }
        }
        Ok(parked.len())
    }

    /// Applies a parked event again; false, without a change, if the events `done` before it have left no room.
    fn retry_one(
        &self,
        build: &mut Build,
        tx: &mut Transaction,
        store: &EventStore,
        (parked, done): (&ParkedEvent, usize),
    ) -> Result<bool, ApplyError> {
        let position = parked.position;
        let options =
            ReadOptions::default().after(Position(position.saturating_sub(1))).before(Position(position + 1));
        let Some(event) = tx.snapshot().events(store, &Query::all(), options)?.next().transpose()? else {
            return Ok(parked.remove_in(tx).map(|_| true)?);
        };
        tx.savepoint();
        let Err(refused) = event.with_ref(|event| build.apply(tx, event)) else {
            return Ok(parked.remove_in(tx).map(|_| true)?);
        };
        tx.rollback_to_savepoint();
        if let Some(error) = refused.passing(self, tx) {
            return Err(error.into());
        }
        if full(&refused.error, done, tx).is_some() {
            return Ok(false);
        }
        match event.with_ref(|event| build.parked(self, event, *refused)).put_in(tx) {
            Err(error) if full(&error, done, tx).is_some() => Ok(false),
            put => Ok(put.map(|()| true)?),
        }
    }
}

impl MaterializedProjection for Declared {
    fn query(&self) -> Query {
        self.query.clone()
    }

    fn outputs(&self) -> Vec<Output> {
        self.outputs.clone()
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let mut stored = self.stored(run.tx())?;
        if run.is_replay() {
            for output in &self.outputs {
                match output {
                    Output::Table(table) => {
                        let name = run.name(table)?;
                        run.tx().tables().create_table_like(table, &name)?;
                    }
                    Output::Collection { database, name } => {
                        let built = run.collection_in(database, name)?;
                        let mut documents = run.tx().documents();
                        let live = documents.collection(database, name)?;
                        documents.create_collection_like(&live, &built)?;
                    }
                }
            }
            stored.wants_rebuild = false;
            stored.since = stored.since.or(Some(run.generation()));
        }
        // Also unchanged, so that a concurrent change of the declaration conflicts.
        stored.put_in(run.tx())?;
        Ok(())
    }

    fn begin(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let stored = self.stored(run.tx())?;
        if stored.is_paused {
            return Err("the projection is paused".into());
        }
        let generation = run.generation();
        let settings = self.settings(|name| run.name(name))?;
        if !run.is_replay() {
            let text = stored.text_of(generation);
            return Ok(self.settle(&mut self.live.lock(), generation, text, settings)?);
        }
        if stored.since.is_none_or(|since| generation < since) {
            return Err("a newer version replaces this rebuild".into());
        }
        Ok(self.settle(&mut self.rebuild.lock(), generation, &stored.text, settings)?)
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
        let mut slot = if run.is_replay() { self.rebuild.lock() } else { self.live.lock() };
        let build = slot.as_mut().ok_or("no statements")?;
        let (applied, parks) = (run.applied(), build.on_error == OnError::Park);
        let tx = run.tx();
        if parks {
            tx.savepoint();
        }
        let Err(refused) = build.apply(tx, event) else { return Ok(()) };
        if let Some(error) = refused.passing(self, tx) {
            return Err(error.into());
        }
        if parks {
            tx.rollback_to_savepoint();
        }
        if let Some(error) = full(&refused.error, applied, tx) {
            return Err(error);
        }
        match parks {
            true => build.park(self, tx, event, (*refused, applied)),
            false => Err(refused.into()),
        }
    }
}
