use ropewalk_base::Position;
use ropewalk_events::{Query, ReadOptions};

use super::record::{Kind, ProjectionFailure, Record};
use super::run::Output;
use super::{Inner, Projections};
use crate::database::Snapshot;
use crate::error::{Error, Result};

/// Matching events are counted up to this number.
const LAG_COUNTED_MAX: u64 = 1_000_000;

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
    ///
    /// From a million on, later events that do not match count, too.
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
    pub fn status(&self, name: &str) -> Result<ProjectionStatus> {
        let one = self.0.one(name)?;
        self.status_at(&self.0.db.snapshot(), name, &one.handler.query())
    }

    /// Returns the status of a projection that need not be registered and that applies the events of `query`.
    ///
    /// Cost: as [`Projections::status`].
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn status_at(&self, snapshot: &Snapshot, name: &str, query: &Query) -> Result<ProjectionStatus> {
        self.0.status(snapshot, name, query)
    }

    /// Returns the outputs of a projection under the names that its rebuild writes, until it replaces the live
    /// ones; none without a rebuild. `outputs` returns the outputs of the projection.
    ///
    /// The projection need not be registered.
    ///
    /// # Errors
    /// Stored data is corrupt; errors of `outputs`.
    pub fn rebuild_outputs_at<E: From<Error>>(
        &self,
        snapshot: &Snapshot,
        name: &str,
        outputs: impl FnOnce() -> Result<Vec<Output>, E>,
    ) -> Result<Vec<Output>, E> {
        let Some(rebuild) = self.0.records(name).look(snapshot, Kind::Rebuild)? else {
            return Ok(Vec::new());
        };
        Ok(outputs()?.into_iter().map(|output| output.rebuilt(rebuild.generation)).collect())
    }

    /// Returns the status of every registered projection, sorted by name.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn statuses(&self) -> Result<Vec<ProjectionStatus>> {
        let registered: Vec<_> = self.0.registered.read().values().cloned().collect();
        let snapshot = self.0.db.snapshot();
        registered.iter().map(|one| self.0.status(&snapshot, &one.name, &one.handler.query())).collect()
    }
}

impl Inner {
    fn status(&self, snapshot: &Snapshot, name: &str, query: &Query) -> Result<ProjectionStatus> {
        let records = self.records(name);
        let live = records.look(snapshot, Kind::Live)?;
        let rebuild = records.look(snapshot, Kind::Rebuild)?;
        let checkpoint = live.as_ref().map(|record| Position(record.checkpoint));
        let head = self.store.head_at(snapshot.engine())?.unwrap_or(Position::ZERO);
        let options = ReadOptions { after: checkpoint, before: Some(head.next()), ..ReadOptions::default() };
        let lag = self.store.scan(query, options, |scan| {
            let mut lag = 0;
            while let Some(position) = scan.next_position()? {
                lag += 1;
                if lag >= LAG_COUNTED_MAX {
                    lag += head.0.saturating_sub(position.0);
                    break;
                }
            }
            Ok(lag)
        })?;
        Ok(ProjectionStatus {
            name: name.to_owned(),
            generation: live.as_ref().map(|record| record.generation),
            checkpoint,
            head,
            lag,
            failure: live.and_then(|record| record.failure),
            rebuild: rebuild.map(RebuildStatus::from),
        })
    }
}
