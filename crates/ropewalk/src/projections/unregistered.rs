//! Changes of a projection's stored state within a transaction, without its handler.

use ropewalk_base::Position;

use super::Projections;
use super::record::Kind;
use super::run::{Output, drop_outputs};
use crate::database::transaction::Transaction;
use crate::error::Result;

impl Projections {
    /// Clears the failures of a projection and of its rebuild, which then apply the failing event again.
    ///
    /// Returns the position of that event, or `None` if there is no failing event.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn retry_in(&self, tx: &mut Transaction, name: &str) -> Result<Option<Position>> {
        self.resolve(tx, name, false)
    }

    /// Skips the event that a projection or its rebuild fails on, within a transaction.
    ///
    /// Returns its position, or `None` if there is no failing event.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn skip_in(&self, tx: &mut Transaction, name: &str) -> Result<Option<Position>> {
        self.resolve(tx, name, true)
    }

    /// Returns the live generation of a projection; a rebuild that replaces it conflicts with the transaction.
    ///
    /// # Errors
    /// Stored data is corrupt.
    pub fn generation_in(&self, tx: &mut Transaction, name: &str) -> Result<Option<u64>> {
        let live = self.0.records(name).get(tx, Kind::Live)?;
        Ok(live.map(|record| record.generation))
    }

    fn resolve(&self, tx: &mut Transaction, name: &str, skips: bool) -> Result<Option<Position>> {
        let records = self.0.records(name);
        let mut position = None;
        for kind in [Kind::Live, Kind::Rebuild] {
            let Some(mut record) = records.get(tx, kind)? else { continue };
            let Some(failure) = record.failure.take() else { continue };
            if skips {
                record.checkpoint = record.checkpoint.max(failure.position.0);
            }
            records.put(tx, kind, &record);
            position = position.or(Some(failure.position));
        }
        Ok(position)
    }

    /// Deletes the records of a projection and the outputs of its rebuild; the live outputs remain.
    ///
    /// # Errors
    /// Stored data is corrupt; outputs that other objects refer to.
    pub fn forget_in(&self, tx: &mut Transaction, name: &str, outputs: &[Output]) -> Result<()> {
        let records = self.0.records(name);
        if let Some(rebuild) = records.get(tx, Kind::Rebuild)? {
            drop_outputs(tx, outputs, Some(rebuild.generation))?;
            records.delete(tx, Kind::Rebuild);
        }
        if records.get(tx, Kind::Live)?.is_some() {
            records.delete(tx, Kind::Live);
        }
        Ok(())
    }
}
