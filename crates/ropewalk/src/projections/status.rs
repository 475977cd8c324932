use ropewalk_base::Position;
use ropewalk_events::ReadOptions;

use super::record::{Kind, ProjectionFailure, Record};
use super::{Inner, Projections, Registered};
use crate::error::Error;

/// Where a projection stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionStatus {
    /// Its name.
    pub name: String,
    /// Which build of its outputs readers see; `None` before the first.
    pub generation: Option<u64>,
    /// Every event up to here is applied or does not match; `None` before the first batch. May lag behind events that do not
    /// match.
    pub checkpoint: Option<Position>,
    /// Last position of the store.
    pub head: Position,
    /// Matching events that are not applied yet.
    pub lag: u64,
    /// The event that it stops at.
    pub failure: Option<ProjectionFailure>,
    /// The rebuild that is under way, or was interrupted.
    pub rebuild: Option<RebuildStatus>,
}

/// Where a rebuild stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildStatus {
    /// Which build of the outputs it makes.
    pub generation: u64,
    /// How far it has come.
    pub checkpoint: Position,
    /// How far the live projection was when it began, or the head where there was none.
    pub until: Position,
    /// The event that it stops at.
    pub failure: Option<ProjectionFailure>,
}

impl From<Record> for RebuildStatus {
    fn from(record: Record) -> Self {
        Self {
            generation: record.generation,
            checkpoint: Position(record.checkpoint),
            until: Position(record.until),
            failure: record.failure,
        }
    }
}

impl Projections {
    /// Where the projection `name` stands. Cost: proportional to the postings of what it lags behind.
    ///
    /// # Errors
    /// [`super::ProjectionError::Unknown`]; damage.
    pub fn status(&self, name: &str) -> Result<ProjectionStatus, Error> {
        let one = self.0.one(name)?;
        self.0.status(&one)
    }

    /// Where every registered projection stands, by name.
    ///
    /// # Errors
    /// Damage.
    pub fn statuses(&self) -> Result<Vec<ProjectionStatus>, Error> {
        let registered: Vec<_> = self.0.registered.read().values().cloned().collect();
        registered.iter().map(|one| self.0.status(one)).collect()
    }
}

impl Inner {
    fn status(&self, one: &Registered) -> Result<ProjectionStatus, Error> {
        let records = self.records(one);
        let snapshot = self.db.snapshot();
        let live = records.look(&snapshot, Kind::Live)?;
        let rebuild = records.look(&snapshot, Kind::Rebuild)?;
        let checkpoint = live.as_ref().map(|record| Position(record.checkpoint));
        let head = self.store.head_at(snapshot.engine())?.unwrap_or(Position::ZERO);
        let options = ReadOptions { after: checkpoint, before: Some(head.next()), ..ReadOptions::default() };
        let lag = self.store.scan(&one.handler.query(), options, |scan| {
            let mut lag = 0;
            while scan.next_position()?.is_some() {
                lag += 1;
            }
            Ok(lag)
        })?;
        Ok(ProjectionStatus {
            name: one.name.clone(),
            generation: live.as_ref().map(|record| record.generation),
            checkpoint,
            head,
            lag,
            failure: live.and_then(|record| record.failure),
            rebuild: rebuild.map(RebuildStatus::from),
        })
    }
}
