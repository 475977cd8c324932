use ropewalk_base::Position;
use ropewalk_events::ReadOptions;

use super::record::{Kind, ProjectionFailure, Record};
use super::{Inner, Projections, Registered};
use crate::error::Error;

/// Progress and failure of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectionStatus {
    /// Name of the projection.
    pub name: String,
    /// Generation that readers see; `None` before the first batch.
    pub generation: Option<u64>,
    /// Every event up to here is applied or does not match; `None` before the first batch.
    ///
    /// It may trail recent events that do not match.
    pub checkpoint: Option<Position>,
    /// Last position of the store.
    pub head: Position,
    /// Number of matching events not yet applied.
    pub lag: u64,
    /// The failing event, if any.
    pub failure: Option<ProjectionFailure>,
    /// The running or interrupted rebuild.
    pub rebuild: Option<RebuildStatus>,
}

/// Progress and failure of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildStatus {
    /// Generation that it builds.
    pub generation: u64,
    /// Every event up to here is applied or does not match.
    pub checkpoint: Position,
    /// The live checkpoint at its start, or the head of the store if there was none.
    pub until: Position,
    /// The failing event, if any.
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
    /// Returns the status of the projection `name`.
    ///
    /// Cost: proportional to the postings of the events not yet applied.
    ///
    /// # Errors
    /// [`super::ProjectionError::Unknown`]; corrupt data.
    pub fn status(&self, name: &str) -> Result<ProjectionStatus, Error> {
        let one = self.0.one(name)?;
        self.0.status(&one)
    }

    /// Returns the status of every registered projection, sorted by name.
    ///
    /// # Errors
    /// Stored data is corrupt.
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
