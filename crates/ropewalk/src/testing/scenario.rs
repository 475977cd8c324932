//! Given events, when a command runs, then events, a refusal or rows.

use core::fmt::Debug;
use core::time::Duration;
use std::sync::Arc;

use ropewalk_base::Position;
use ropewalk_events::{
    DecisionError, Event, EventStore, FromEvent, Projection, Query, ReadOptions, RetryPolicy, SequencedEvent,
    ToEvent, to_events,
};

use super::machine::Machine;
use crate::database::Database;
use crate::projections::{MaterializedProjection, ProjectionOptions, Projections, RebuildMode};

/// A database on a simulated machine, and the event store that a test is about.
///
/// See the [module](super) for an example.
pub struct Scenario {
    machine: Machine,
    db: Database,
    store: EventStore,
}

/// Result of a command, to be compared with the expected one.
#[must_use = "a scenario ends with an expectation"]
pub struct Outcome<R, E> {
    scenario: Scenario,
    /// Last position before the command.
    head: Position,
    result: Result<R, E>,
}

impl Scenario {
    /// An empty database; `store` is the event store of the scenario.
    ///
    /// # Panics
    /// The name is not allowed for an event store.
    #[track_caller]
    pub fn new(store: &str) -> Self {
        let machine = Machine::new(1);
        let db = machine.open().expect("a new database opens");
        let store = db.events(store).expect("the name of the event store is allowed");
        Self { machine, db, store }
    }

    /// Appends the events that have happened before.
    ///
    /// # Panics
    /// An event does not encode, or exceeds a limit.
    #[track_caller]
    pub fn given<'e, E: ToEvent + 'e>(self, events: impl IntoIterator<Item = &'e E>) -> Self {
        let events = to_events(events).expect("the given events encode");
        if !events.is_empty() {
            self.store.append(&events, None).expect("the given events are appended");
        }
        self
    }

    /// Lets time pass.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        self.machine.clock().advance(time);
        self
    }

    /// Runs a command of the application.
    pub fn when<R, E>(self, command: impl FnOnce(&Database) -> Result<R, E>) -> Outcome<R, E> {
        let head = self.head();
        let result = command(&self.db);
        Outcome { scenario: self, head, result }
    }

    /// Folds `model`, decides, and appends the events of the decision.
    ///
    /// # Panics
    /// The model cannot be folded, or the events cannot be appended.
    #[track_caller]
    pub fn when_deciding<P: Projection, E: Debug>(
        self,
        model: &P,
        decide: impl FnMut(&P::State) -> Result<Vec<Event>, E>,
    ) -> Outcome<(), E> {
        let head = self.head();
        let result = match self.store.execute_decision(model, RetryPolicy::default(), decide) {
            Err(DecisionError::Refused(refusal)) => Err(refusal),
            decided => {
                decided.expect("the decision is made");
                Ok(())
            }
        };
        Outcome { scenario: self, head, result }
    }

    /// Applies the events to a projection in three ways, and compares what `read` returns with `expected`.
    ///
    /// The ways are: each event in a separate commit, a rebuild, all events in one commit. `name` must not be
    /// used by a projection of the scenario before.
    ///
    /// ```
    /// use ropewalk::events::SequencedEventRef;
    /// use ropewalk::projections::{ApplyError, MaterializedProjection, Output, ProjectionRun};
    /// use ropewalk::tables::{ColumnDef, KeyRange, TableDef, Type};
    /// use ropewalk::testing::Scenario;
    /// use ropewalk::{Database, Event, Query};
    ///
    /// #[derive(Debug, Event)]
    /// struct Paid {
    ///     #[event(tag)]
    ///     order: String,
    /// }
    ///
    /// struct PaidOrders;
    ///
    /// impl MaterializedProjection for PaidOrders {
    ///     fn query(&self) -> Query {
    ///         Query::from_types(["Paid"])
    ///     }
    ///
    ///     fn outputs(&self) -> Vec<Output> {
    ///         vec![Output::table("paid")]
    ///     }
    ///
    ///     fn prepare(&self, run: &mut ProjectionRun<'_>) -> Result<(), ApplyError> {
    ///         let table = TableDef::new(run.name("paid")?).column(ColumnDef::new("id", Type::TEXT));
    ///         run.tx().tables().create_table(table.primary_key(["id"]))?;
    ///         Ok(())
    ///     }
    ///
    ///     fn apply(&self, run: &mut ProjectionRun<'_>, event: &SequencedEventRef<'_>) -> Result<(), ApplyError> {
    ///         let (table, paid) = (run.table("paid")?, event.decode::<Paid>()?);
    ///         run.tx().tables().insert(&table, &[("id", paid.order.into())])?;
    ///         Ok(())
    ///     }
    /// }
    ///
    /// fn count(db: &Database) -> u64 {
    ///     let table = db.table("paid").unwrap();
    ///     db.snapshot().tables(db).count(&table, &KeyRange::all()).unwrap()
    /// }
    ///
    /// Scenario::new("shop")
    ///     .given(&[Paid { order: "o1".into() }, Paid { order: "o2".into() }])
    ///     .then_projection("paid", PaidOrders, count, &2);
    /// ```
    ///
    /// # Panics
    /// An event cannot be applied; what is read differs.
    #[track_caller]
    pub fn then_projection<T: PartialEq + Debug>(
        self,
        name: &str,
        projection: impl MaterializedProjection + 'static,
        read: impl Fn(&Database) -> T,
        expected: &T,
    ) -> Self {
        let handler: Arc<dyn MaterializedProjection> = Arc::new(projection);
        let single = ProjectionOptions { batch_events: 1, ..ProjectionOptions::default() };
        let projections = self.caught_up(name, handler.clone(), single);
        assert_eq!(read(&self.db), *expected, "each event in a separate commit");
        projections.rebuild(name, RebuildMode::ForceFullRebuild).expect("the projection is rebuilt");
        assert_eq!(read(&self.db), *expected, "rebuilt");
        projections.remove(name).expect("the projection is removed");
        self.caught_up(name, handler, ProjectionOptions::default());
        assert_eq!(read(&self.db), *expected, "all events in one commit");
        self
    }

    #[track_caller]
    fn caught_up(
        &self,
        name: &str,
        handler: Arc<dyn MaterializedProjection>,
        options: ProjectionOptions,
    ) -> Projections {
        let projections = self.db.projections_with(self.store.name(), options);
        let projections = projections.expect("the name of the event store is allowed");
        projections.register(name, handler).expect("the projection is registered");
        projections.catch_up(name).expect("the events are applied");
        projections
    }

    /// The database, for checks of rows, documents and samples.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// The machine, for its clock and disk.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    #[track_caller]
    fn head(&self) -> Position {
        self.store.head().expect("the event store is read").unwrap_or(Position::ZERO)
    }

    #[track_caller]
    fn events_after(&self, position: Position) -> Vec<SequencedEvent> {
        let events = self.store.read(&Query::all(), ReadOptions::default().after(position));
        let events = events.and_then(|events| events.collect::<Result<Vec<_>, _>>());
        events.expect("the event store is read")
    }
}

impl<R, E: Debug> Outcome<R, E> {
    /// Expects that the command succeeded and appended exactly these events to the store of the scenario.
    ///
    /// # Panics
    /// The command failed, or appended other events.
    #[track_caller]
    pub fn then<T: FromEvent + PartialEq + Debug>(self, expected: &[T]) -> Scenario {
        let error = self.result.err();
        assert!(error.is_none(), "the command failed: {error:?}");
        let events = self.scenario.events_after(self.head);
        let appended: Result<Vec<T>, _> = events.iter().map(SequencedEvent::decode).collect();
        assert_eq!(appended.expect("the appended events decode"), expected);
        self.scenario
    }

    /// Expects that the command failed with an error for which `is_expected` returns true, and appended nothing.
    ///
    /// # Panics
    /// The command succeeded, failed with another error, or appended events.
    #[track_caller]
    pub fn then_refused(self, is_expected: impl FnOnce(&E) -> bool) -> Scenario {
        let events = self.scenario.events_after(self.head);
        let error = self.result.as_ref().err();
        assert!(error.is_some(), "the command succeeded, with the events {events:?}");
        assert!(error.is_some_and(is_expected), "the command failed for another reason: {error:?}");
        assert!(events.is_empty(), "the command failed and appended {events:?}");
        self.scenario
    }

    /// The result of the command, for other checks.
    ///
    /// # Errors
    /// That of the command.
    pub fn into_result(self) -> Result<R, E> {
        self.result
    }
}
