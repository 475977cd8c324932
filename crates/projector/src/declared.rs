//! A declared projection as a handler of the facade: planned statements for each type of events.
//!
//! Invariants
//! 1. A batch reads the row of the declaration in its transaction, so a change of it conflicts with the batch.
//! 2. A generation is built by one text. A rebuild plans the statements on the tables that it fills.

use core::fmt;
use std::collections::HashMap;

use parking_lot::Mutex;
use ropewalk::events::{ReadOptions, SequencedEvent};
use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun};
use ropewalk::tables::TablesError;
use ropewalk::{Database, Error, Position, Query, Transaction};
use ropewalk_sql::{
    EventStatement, OnError, ParkedEvent, ProjectionDef, Session, Settings, SqlError, StoredProjection, state,
};

/// A declared projection.
pub(crate) struct Declared {
    db: Database,
    name: String,
    outputs: Vec<String>,
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
    fn passing(&self, db: &Database, tx: &Transaction) -> Option<Error> {
        if self.error.is_retryable() {
            let (what, seq) = (self.error.message.clone(), tx.snapshot().seq());
            return Some(TablesError::Conflict { what, seq }.into());
        }
        db.stopped().filter(|_| self.error.state == state::IO_ERROR)
    }
}

impl Build {
    fn new(db: &Database, generation: u64, text: &str, settings: Settings) -> Result<Self, SqlError> {
        let def = StoredProjection::parse(text)?;
        let mut statements: HashMap<String, Vec<Step>> = HashMap::new();
        for rule in &def.rules {
            for name in &rule.types {
                let steps = rule.statements.iter().map(|text| Step::Text(text.clone()));
                statements.entry(name.clone()).or_default().extend(steps);
            }
        }
        let session = Session::with_settings(db.clone(), settings);
        Ok(Self { generation, text: text.to_owned(), on_error: def.on_error, session, statements })
    }

    /// Runs the statements of an event. After an error, the transaction must be rolled back to its start.
    fn apply(&mut self, tx: &mut Transaction, event: &SequencedEvent) -> Result<(), Box<Refused>> {
        let Some(steps) = self.statements.get_mut(event.event_type()) else { return Ok(()) };
        for step in steps {
            step.run(&mut self.session, tx, event)
                .map_err(|error| Box::new(Refused { statement: step.text().to_owned(), error }))?;
        }
        Ok(())
    }

    /// The event, parked because of `refused`.
    fn parked(&self, db: &Database, name: &str, event: &SequencedEvent, refused: Refused) -> ParkedEvent {
        ParkedEvent {
            projection: name.to_owned(),
            generation: self.generation,
            position: event.position.0,
            event_type: event.event_type().to_owned(),
            statement: refused.statement,
            sqlstate: refused.error.state.to_string(),
            message: refused.error.message,
            parked_at: db.engine().env().clock.wall_micros(),
            wants_retry: false,
        }
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
        event: &SequencedEvent,
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
    pub(crate) fn new(db: Database, stored: &StoredProjection) -> Result<Self, SqlError> {
        let def = StoredProjection::parse(&stored.text)?;
        let before = stored.before.as_deref().map(StoredProjection::parse).transpose()?;
        let mut types: Vec<&str> = before.iter().chain([&def]).flat_map(ProjectionDef::types).collect();
        types.sort_unstable();
        types.dedup();
        Ok(Self {
            db,
            name: stored.name.clone(),
            query: Query::from_types(types),
            outputs: def.outputs.clone(),
            live: Mutex::new(None),
            rebuild: Mutex::new(None),
        })
    }

    fn stored(&self, tx: &mut Transaction) -> Result<StoredProjection, ApplyError> {
        let stored = StoredProjection::read_in(&self.db, tx, &self.name)?;
        stored.ok_or_else(|| "the projection was dropped".into())
    }

    /// Prepares the statements of a generation, unless they are prepared.
    fn settle(
        &self,
        slot: &mut Option<Build>,
        generation: u64,
        text: &str,
        settings: Settings,
    ) -> Result<(), SqlError> {
        let is_same = slot.as_ref().is_some_and(|build| build.generation == generation && build.text == text);
        if !is_same {
            *slot = Some(Build::new(&self.db, generation, text, settings)?);
        }
        Ok(())
    }

    /// Applies a parked event again: it is no longer parked, or it stays with its new error.
    pub(crate) fn retry(&self, tx: &mut Transaction, parked: &ParkedEvent) -> Result<(), ApplyError> {
        let stored = self.stored(tx)?;
        if !ParkedEvent::all_in(&self.db, tx, &self.name)?.contains(parked) {
            return Ok(());
        }
        let mut slot = self.live.lock();
        let text = stored.text_of(parked.generation);
        self.settle(&mut slot, parked.generation, text, Settings::default())?;
        let build = slot.as_mut().ok_or("no statements")?;
        let position = parked.position;
        let options =
            ReadOptions::default().after(Position(position.saturating_sub(1))).before(Position(position + 1));
        let store = self.db.events(&stored.store)?;
        let event = tx.snapshot().events(&store, &Query::all(), options)?.next().transpose()?;
        tx.savepoint();
        let done = match &event {
            Some(event) => build.apply(tx, event),
            None => Ok(()),
        };
        match (done, &event) {
            (Err(refused), Some(event)) => {
                tx.rollback_to_savepoint();
                if let Some(error) = refused.passing(&self.db, tx) {
                    return Err(error.into());
                }
                build.parked(&self.db, &self.name, event, *refused).put_in(tx)?;
            }
            _ => {
                parked.remove_in(tx)?;
            }
        }
        Ok(())
    }
}

impl MaterializedProjection for Declared {
    fn query(&self) -> Query {
        self.query.clone()
    }

    fn outputs(&self) -> Vec<Output> {
        self.outputs.iter().map(Output::table).collect()
    }

    fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
        let mut stored = self.stored(run.tx())?;
        if run.is_replay() {
            for output in &self.outputs {
                let name = run.name(output)?;
                run.tx().tables().create_table_like(output, &name)?;
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
        if !run.is_replay() {
            let text = stored.text_of(generation);
            return Ok(self.settle(&mut self.live.lock(), generation, text, Settings::default())?);
        }
        if stored.since.is_none_or(|since| generation < since) {
            return Err("a newer version replaces this rebuild".into());
        }
        let mut settings = Settings::default();
        for output in &self.outputs {
            settings.redirects.insert(output.clone(), run.name(output)?);
        }
        Ok(self.settle(&mut self.rebuild.lock(), generation, &stored.text, settings)?)
    }

    fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEvent) -> Result<(), ApplyError> {
        let mut slot = if run.is_replay() { self.rebuild.lock() } else { self.live.lock() };
        let build = slot.as_mut().ok_or("no statements")?;
        let tx = run.tx();
        let parks = build.on_error == OnError::Park;
        if parks {
            tx.savepoint();
        }
        let Err(refused) = build.apply(tx, event) else { return Ok(()) };
        if let Some(error) = refused.passing(&self.db, tx) {
            return Err(error.into());
        }
        if !parks {
            return Err(refused.into());
        }
        tx.rollback_to_savepoint();
        build.parked(&self.db, &self.name, event, *refused).put_in(tx)?;
        Ok(())
    }
}
