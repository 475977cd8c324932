//! Declared projections: exactly once across crashes, rebuilds, failures, changes of their declaration.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)] // helpers outside of test functions

mod changes;
mod crashes;
mod documents;
mod failures;
mod following;
mod limits;

use ropewalk::engine::{Background, Env};
use ropewalk::{Database, Error, Event, Options};
use ropewalk_projector::{Runner, RunnerOptions};
use ropewalk_sql::{Session, SqlError, to_text};

/// A database with an event store, and a session over it.
struct Shop {
    db: Database,
    session: Session,
}

/// An order of a kind of goods.
fn placed(kind: &str) -> Event {
    Event::new("Placed").data(format!(r#"{{"kind":"{kind}"}}"#))
}

const COUNTS: &str = "CREATE TABLE counts (kind text PRIMARY KEY, n bigint NOT NULL)";
const COUNTING: &str = "CREATE PROJECTION counting FROM EVENTS shop ON 'Placed' DO (
    INSERT INTO counts VALUES (event.json->>'kind', 1) ON CONFLICT (kind) DO UPDATE SET n = counts.n + 1)";

impl Shop {
    fn open(env: &Env) -> Result<Self, Error> {
        let db = Options::new().env(env.clone()).background(Background::Manual).open("/shop")?;
        Ok(Self { session: Session::new(db.clone()), db })
    }

    /// A database in memory with the projection of the number of orders of each kind.
    fn counting() -> Self {
        let mut shop = Self::open(&Env::memory()).unwrap();
        shop.run(COUNTS);
        shop.run(COUNTING);
        shop
    }

    fn append(&self, events: &[Event]) -> Result<(), Error> {
        self.db.events("shop")?.append(events, None)?;
        Ok(())
    }

    fn try_run(&mut self, sql: &str) -> Result<Vec<String>, SqlError> {
        let outcome = self.session.execute(sql, &[])?;
        let cell = |value: &_| to_text(value).unwrap_or_else(|| "NULL".to_owned());
        Ok(outcome.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join("|")).collect())
    }

    /// The rows of a statement.
    fn run(&mut self, sql: &str) -> Vec<String> {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {} {error}", error.state))
    }

    /// The code of the error of a statement.
    fn refused(&mut self, sql: &str) -> &'static str {
        self.try_run(sql).unwrap_err().state.0
    }

    fn catch_up(&self) {
        self.catch_up_by(2);
    }

    fn catch_up_by(&self, batch_events: usize) {
        #[allow(clippy::print_stderr)] // shown with a failing test
        let report =
            std::sync::Arc::new(|name: &str, error: &dyn std::error::Error| eprintln!("{name}: {error}"));
        let options = RunnerOptions { batch_events, report, ..RunnerOptions::default() };
        Runner::new(self.db.clone(), options).catch_up().unwrap();
    }

    fn counts(&mut self) -> Vec<String> {
        self.run("SELECT kind, n FROM counts ORDER BY kind")
    }

    fn state(&mut self) -> String {
        self.run("SELECT state FROM ropewalk_projections").join(",")
    }
}
